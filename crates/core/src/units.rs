//! Quantities that cross module borders, each with its unit in its type.
//!
//! Durations are [`std::time::Duration`]. Everything else that has a unit, a range or an
//! identity of its own gets a newtype here, so that a share cannot be mistaken for a
//! percentage or a wall clock for a monotonic one.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A number of bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// The mean, rounded down; `None` of no sizes.
    pub fn mean(sizes: impl Iterator<Item = Bytes>) -> Option<Bytes> {
        let (sum, count) =
            sizes.fold((0_u64, 0_u64), |(sum, count), it| (sum.saturating_add(it.0), count + 1));
        sum.checked_div(count).map(Bytes)
    }
}

impl fmt::Display for Bytes {
    /// Binary units with one decimal: `1.5 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}

/// A size, or a share of the node's memory ("5%").
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum MemoryAmount {
    Bytes(Bytes),
    OfTotal(Share),
}

impl MemoryAmount {
    /// The amount on a node with `total` bytes of memory.
    pub fn of(self, total: Bytes) -> Bytes {
        match self {
            MemoryAmount::Bytes(bytes) => bytes,
            // A share of a u64 fits; the cast cuts off a part of a byte.
            MemoryAmount::OfTotal(share) => Bytes((total.0 as f64 * share.value()) as u64),
        }
    }
}

/// A share of a whole, 0..=1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(f64);

impl Share {
    /// Nothing of the whole.
    pub const ZERO: Share = Share(0.0);
    /// All of the whole.
    pub const ONE: Share = Share(1.0);

    /// `value` clamped into 0..=1; NaN counts as 0.
    pub fn clamped(value: f64) -> Share {
        if value.is_nan() { Share(0.0) } else { Share(value.clamp(0.0, 1.0)) }
    }

    /// `part / whole`, or `None` when the whole is empty.
    pub fn of(part: f64, whole: f64) -> Option<Share> {
        (whole > 0.0).then(|| Share::clamped(part / whole))
    }

    /// The share as a plain number, 0..=1.
    pub fn value(self) -> f64 {
        self.0
    }
}

/// Time since boot with suspend included: `CLOCK_BOOTTIME` (clock_gettime(2)).
///
/// Monotonic, and the same for every process of one boot, so that it may be stored and
/// compared after a restart of the daemon as long as the boot id is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootTime(pub Duration);

impl BootTime {
    /// Time from `earlier` to `self`; zero when `earlier` is later.
    pub fn since(self, earlier: BootTime) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// `self + duration`, saturating.
    pub fn after(self, duration: Duration) -> BootTime {
        BootTime(self.0.saturating_add(duration))
    }
}

impl Serialize for BootTime {
    /// Microseconds since boot in records; all of it in recordings.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if !serializer.is_human_readable() {
            return self.0.serialize(serializer);
        }
        serializer.serialize_u64(u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX))
    }
}

impl<'de> Deserialize<'de> for BootTime {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Duration::deserialize(deserializer).map(BootTime);
        }
        u64::deserialize(deserializer).map(|micros| BootTime(Duration::from_micros(micros)))
    }
}

/// Wall-clock time, microseconds since 1970-01-01T00:00:00Z. For people and records only;
/// nothing is decided by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime {
    micros: i64,
}

impl WallTime {
    /// From microseconds since the Unix epoch.
    pub const fn from_unix_micros(micros: i64) -> WallTime {
        WallTime { micros }
    }

    /// Microseconds since the Unix epoch.
    pub fn unix_micros(self) -> i64 {
        self.micros
    }
}

impl fmt::Display for WallTime {
    /// RFC 3339, UTC, microseconds: `2026-01-02T03:04:05.000006Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // jiff spans years -9999..9999; a clock outside it is shown at the border.
        let timestamp = jiff::Timestamp::from_microsecond(self.micros)
            .unwrap_or(if self.micros < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX });
        write!(f, "{timestamp:.6}")
    }
}

impl std::str::FromStr for WallTime {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let timestamp: jiff::Timestamp = text.parse()?;
        Ok(WallTime { micros: timestamp.as_microsecond() })
    }
}

impl Serialize for WallTime {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WallTime {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// One reading of both clocks; every step of a turn shares it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// What decisions use.
    pub boot: BootTime,
    /// What people read.
    pub wall: WallTime,
}

impl Moment {
    /// The time of day of an earlier instant, by the clock as it is set now. `known` is what it was
    /// before: it stays where it is right to the second, since the two clocks drift apart.
    pub fn time_of(self, earlier: BootTime, known: WallTime) -> WallTime {
        let ago = i64::try_from(self.boot.since(earlier).as_micros()).unwrap_or(i64::MAX);
        let at = self.wall.unix_micros().saturating_sub(ago);
        let is_right = known.unix_micros().abs_diff(at) <= 1_000_000;
        if is_right { known } else { WallTime::from_unix_micros(at) }
    }
}

/// A process (thread group) id, never 0.
///
/// A number alone is no identity: see [`ProcessRef`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pid(std::num::NonZeroI32);

impl Pid {
    /// `None` unless `raw` is positive.
    pub fn new(raw: i32) -> Option<Pid> {
        (raw > 0).then(|| std::num::NonZeroI32::new(raw).map(Pid)).flatten()
    }

    /// The number the kernel uses.
    pub fn raw(self) -> i32 {
        self.0.get()
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A process for as long as it lives: its pid and its start time, field 22 of
/// `/proc/PID/stat` in clock ticks since boot (proc_pid_stat(5)). A recycled pid differs in
/// the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessRef {
    /// The process id.
    pub pid: Pid,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

/// The four user ids of a process, as the `Uid:` line of `/proc/PID/status` has them
/// (proc_pid_status(5), credentials(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uids {
    /// Who started it.
    pub real: u32,
    /// The user it acts as now.
    pub effective: u32,
    /// The user it can act as again.
    pub saved: u32,
    /// The user it acts as on files.
    pub filesystem: u32,
}

impl Uids {
    /// From a `/proc/PID/status`, of which the name may be any bytes; `None` when it has no such
    /// line.
    pub fn parse(status: &[u8]) -> Option<Uids> {
        let mut lines = status.split(|&byte| byte == b'\n');
        let line = std::str::from_utf8(lines.find_map(|line| line.strip_prefix(b"Uid:"))?).ok()?;
        let mut uids = line.split_ascii_whitespace().map(|uid| uid.parse().ok());
        let mut next = || uids.next().flatten();
        Some(Uids { real: next()?, effective: next()?, saved: next()?, filesystem: next()? })
    }

    /// Whether the process has no other user's rights and can get none back.
    pub fn all_are(self, uid: u32) -> bool {
        [self.real, self.effective, self.saved, self.filesystem] == [uid; 4]
    }
}

impl fmt::Display for Uids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Uids { real, effective, saved, filesystem } = self;
        write!(f, "real {real}, effective {effective}, saved {saved}, file system {filesystem}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_moves_what_was_and_not_how_long_ago_it_was() {
        let second = 1_000_000;
        let at = |boot: u64, wall: i64| Moment {
            boot: BootTime(Duration::from_secs(boot)),
            wall: WallTime::from_unix_micros(wall),
        };
        let started = at(100, 5000 * second);
        let age = |now: Moment, known| {
            (now.wall.unix_micros() - now.time_of(started.boot, known).unix_micros()) / second
        };
        let known = started.wall;
        assert_eq!(at(340, 5240 * second + 900).time_of(started.boot, known), known, "it drifts");
        for jump in [86_400, -2 * 86_400, 0] {
            assert_eq!(age(at(340, (5240 + jump) * second), known), 240, "{jump}");
        }
        assert_eq!(at(340, i64::MIN).time_of(started.boot, known).unix_micros(), i64::MIN);
    }

    #[test]
    fn wall_time_prints_and_parses_with_microseconds() {
        let time = WallTime::from_unix_micros(1_767_323_045_000_006);
        assert_eq!(time.to_string(), "2026-01-02T03:04:05.000006Z");
        assert_eq!(time.to_string().parse::<WallTime>().unwrap(), time);
        assert_eq!(WallTime::from_unix_micros(0).to_string(), "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn shares_stay_in_range() {
        assert_eq!(Share::clamped(f64::NAN), Share::ZERO);
        assert_eq!(Share::clamped(7.0), Share::ONE);
        assert_eq!(Share::of(1.0, 0.0), None);
        assert_eq!(Share::of(1.0, 4.0), Some(Share::clamped(0.25)));
    }

    #[test]
    fn boot_time_never_runs_backwards() {
        let early = BootTime(Duration::from_secs(1));
        let late = BootTime(Duration::from_secs(3));
        assert_eq!(late.since(early), Duration::from_secs(2));
        assert_eq!(early.since(late), Duration::ZERO);
    }

    #[test]
    fn one_uid_that_differs_is_enough() {
        let uids = |text: &str| {
            Uids::parse(
                [b"Name:\t\xff\n", format!("Uid:\t{text}\nGid:\t1\n").as_bytes()]
                    .concat()
                    .as_slice(),
            )
        };
        assert!(uids("7\t7\t7\t7").unwrap().all_are(7));
        for mixed in ["0\t7\t7\t7", "7\t0\t7\t7", "7\t7\t0\t7", "7\t7\t7\t0", "8\t8\t8\t8"] {
            assert!(!uids(mixed).unwrap().all_are(7), "{mixed}");
        }
        for damaged in ["7\t7\t7", "7\t7\tx\t7", ""] {
            assert_eq!(uids(damaged), None, "{damaged}");
        }
        let text = uids("0\t7\t8\t9").unwrap().to_string();
        assert_eq!(text, "real 0, effective 7, saved 8, file system 9");
    }

    #[test]
    fn bytes_read_well() {
        assert_eq!(Bytes(512).to_string(), "512 B");
        assert_eq!(Bytes(3 << 29).to_string(), "1.5 GiB");
    }
}
