//! What a request costs on the modelled disk: pure, no clock.

use std::time::Duration;

/// One arm over one platter, one request at a time.
///
/// A request takes its bytes over the bandwidth, and [`Arm::seek`] before that when it does not
/// begin where the one before ended. Distance plays no part: what an I/O scheduler can win by
/// sorting is small beside what it can win by letting one reader go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arm {
    bandwidth_bytes_per_sec: u64,
    seek: Duration,
    /// Where the last request ended; `None` before the first.
    at: Option<u64>,
}

impl Arm {
    /// At rest. A bandwidth of zero is taken as one byte a second.
    pub(super) fn new(bandwidth_bytes_per_sec: u64, seek: Duration) -> Arm {
        Arm { bandwidth_bytes_per_sec: bandwidth_bytes_per_sec.max(1), seek, at: None }
    }

    /// The time for `bytes` from `offset` on, and the arm is behind them. Nothing costs nothing.
    pub(super) fn carry(&mut self, offset: u64, bytes: u64) -> Duration {
        if bytes == 0 {
            return Duration::ZERO;
        }
        let seek = if self.at == Some(offset) { Duration::ZERO } else { self.seek };
        self.at = offset.checked_add(bytes);
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bandwidth_bytes_per_sec);
        seek.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEK: Duration = Duration::from_millis(4);
    const MIB: u64 = 1 << 20;

    #[test]
    fn only_what_does_not_follow_costs_a_seek() {
        let mut arm = Arm::new(64 * MIB, SEEK);
        let transfer = Duration::from_nanos(15_625_000);
        assert_eq!(arm.carry(0, MIB), SEEK + transfer, "from rest");
        assert_eq!(arm.carry(MIB, MIB), transfer, "follows");
        assert_eq!(arm.carry(5 * MIB, MIB), SEEK + transfer, "ahead");
        assert_eq!(arm.carry(5 * MIB, MIB), SEEK + transfer, "the same again");
        assert_eq!(arm.carry(6 * MIB, MIB), transfer);
    }

    #[test]
    fn two_streams_by_turns_seek_each_time() {
        let mut arm = Arm::new(64 * MIB, SEEK);
        let one: Duration = (0..8).map(|index| arm.carry(index * MIB, MIB)).sum();
        let mut arm = Arm::new(64 * MIB, SEEK);
        let two: Duration =
            (0..4).flat_map(|i| [i * MIB, (100 + i) * MIB]).map(|at| arm.carry(at, MIB)).sum();
        assert_eq!(two - one, 7 * SEEK);
    }

    #[test]
    fn no_amount_is_too_much() {
        let mut arm = Arm::new(0, Duration::MAX);
        assert_eq!(arm.carry(3, 0), Duration::ZERO);
        assert_eq!(arm.carry(u64::MAX, u64::MAX), Duration::MAX);
        assert_eq!(arm.carry(0, 1), Duration::MAX);
    }
}
