//! How many slots each tier has: the arithmetic of the slot manager (thesis 4.3.2.1).
//!
//! Pure functions and one small window; the shaper decides when to call them.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Share};

/// How the CPUs of the active tier spent the last cycle. Guest time is inside `effective`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuShares {
    /// E: user + nice + system + irq + softirq.
    pub effective: Share,
    /// W: idle while a disk request of this CPU was outstanding.
    pub iowait: Share,
    /// S: taken by the hypervisor; used, never spare.
    pub steal: Share,
}

impl CpuShares {
    /// Whether other work could use no more CPU: E + S at or above `threshold`. Time spent
    /// waiting for I/O is CPU that other work could use.
    pub fn saturated(&self, threshold: Share) -> bool {
        self.effective.value() + self.steal.value() >= threshold.value()
    }
}

/// Inputs of the expansion formula besides the CPU shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expansion {
    /// CPUs LRS's tasks may use.
    pub cores: u32,
    /// SlotMax = A + P, the slots allocated now.
    pub slot_max: u32,
    /// T of the formula.
    pub io_wait_threshold: Share,
    /// Slots up to `passive_max`: an unbounded quotient is cut to it.
    pub room: u32,
}

/// N, the passive slots to add:
///
/// ```text
/// N = floor( (1 - U) / (U * cores / SlotMax) )   if W <= T,   U = E + W + S
/// N = 1                                          if W >  T
/// ```
///
/// The quotient divides a share of the node by CPUs per slot, so it is smaller by the factor
/// `cores` than the slots that the spare CPU could carry, and it counts waiting for I/O as used. With
/// two slots a core it is 0 above U = 2/3 whatever the number of cores; 64 cores could carry 64 more
/// slots there. The source has it so, for nodes of four cores; [`super::probe`] goes on where it
/// ends. Never more than `room`; all of it where nothing is used at all.
pub fn slots_to_add(cpu: &CpuShares, expansion: &Expansion) -> u32 {
    if cpu.iowait > expansion.io_wait_threshold {
        return expansion.room.min(1);
    }
    let used = cpu.effective.value() + cpu.iowait.value() + cpu.steal.value();
    let used_per_slot = used * f64::from(expansion.cores) / f64::from(expansion.slot_max.max(1));
    let spare = (1.0 - used).max(0.0);
    if used_per_slot <= 0.0 {
        return expansion.room;
    }
    // Decimal shares such as 0.7 are not exact; a quotient a hair below a whole number is it.
    let quotient = (spare / used_per_slot + 1e-9).floor();
    if quotient >= f64::from(expansion.room) { expansion.room } else { quotient as u32 }
}

/// At most `wanted` slots, such that as many tasks of the mean resident size fit into the
/// available memory above the reserve. Unknown sizes open nothing.
pub fn slots_that_fit(
    wanted: u32,
    mean_resident: Option<Bytes>,
    available: Option<Bytes>,
    reserve: Bytes,
) -> u32 {
    let (Some(mean), Some(available)) = (mean_resident, available) else { return 0 };
    let room = available.0.saturating_sub(reserve.0);
    match room.checked_div(mean.0) {
        Some(fitting) => wanted.min(u32::try_from(fitting).unwrap_or(u32::MAX)),
        None if room > 0 => wanted,
        None => 0,
    }
}

/// The fewest free passive slots of each of the last cycles: what was free *throughout*.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FreeWindow {
    minima: VecDeque<u32>,
    current: Option<u32>,
}

impl FreeWindow {
    /// Notes how many are free now; called after every change of the slots.
    pub fn note(&mut self, free: u32) {
        self.current = Some(self.current.map_or(free, |least| least.min(free)));
    }

    /// Ends a cycle and answers what was free throughout the last `cycles`, once there were as
    /// many.
    pub fn end_cycle(&mut self, free_now: u32, cycles: u32) -> Option<u32> {
        let least = self.current.take().map_or(free_now, |least| least.min(free_now));
        self.minima.push_back(least);
        let cycles = cycles.max(1) as usize;
        while self.minima.len() > cycles {
            self.minima.pop_front();
        }
        self.current = Some(free_now);
        (self.minima.len() == cycles).then(|| self.minima.iter().copied().min().unwrap_or(0))
    }

    /// Forgets the past, after slots were withdrawn or added.
    pub fn restart(&mut self) {
        self.minima.clear();
        self.current = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL_ROOM: u32 = 1000;

    fn n(cores: u32, slot_max: u32, e: f64, w: f64, s: f64, room: u32) -> u32 {
        let cpu = CpuShares {
            effective: Share::clamped(e),
            iowait: Share::clamped(w),
            steal: Share::clamped(s),
        };
        if cpu.saturated(Share::clamped(0.9)) {
            return 0;
        }
        let io_wait_threshold = Share::clamped(0.30);
        slots_to_add(&cpu, &Expansion { cores, slot_max, io_wait_threshold, room })
    }

    #[test]
    fn the_contract_vectors_hold() {
        // (cores, SlotMax, E, W, S -> N), spec 3
        for (cores, slot_max, e, w, s, expected) in [
            (4, 8, 0.50, 0.0, 0.0, 2),
            (4, 8, 0.75, 0.05, 0.0, 0),
            (4, 8, 0.50, 0.10, 0.0, 1),
            (4, 8, 0.55, 0.35, 0.0, 1),
            (4, 8, 0.92, 0.0, 0.0, 0),
            (4, 8, 0.10, 0.90, 0.0, 1),
            (4, 8, 0.50, 0.0, 0.40, 0),
            (2, 4, 0.25, 0.0, 0.0, 6),
            (4, 8, 0.0, 0.0, 0.0, ALL_ROOM),
        ] {
            assert_eq!(
                n(cores, slot_max, e, w, s, ALL_ROOM),
                expected,
                "{cores} {slot_max} {e} {w} {s}"
            );
        }
        assert_eq!(n(4, 8, 0.0, 0.0, 0.0, 5), 5);
        assert_eq!(n(4, 8, 0.55, 0.35, 0.0, 0), 0);
    }

    #[test]
    fn memory_bounds_the_expansion() {
        let mib = |n: u64| Bytes(n << 20);
        assert_eq!(slots_that_fit(5, Some(mib(100)), Some(mib(350)), mib(50)), 3);
        assert_eq!(slots_that_fit(2, Some(mib(100)), Some(mib(350)), mib(50)), 2);
        assert_eq!(slots_that_fit(2, Some(mib(100)), Some(mib(50)), mib(100)), 0);
        assert_eq!(slots_that_fit(2, None, Some(mib(350)), mib(50)), 0);
        assert_eq!(slots_that_fit(2, Some(mib(100)), None, mib(50)), 0);
        assert_eq!(slots_that_fit(2, Some(Bytes(0)), Some(mib(350)), mib(50)), 2);
    }

    #[test]
    fn a_slot_used_for_a_moment_was_not_free_throughout() {
        let mut window = FreeWindow::default();
        assert_eq!(window.end_cycle(3, 2), None);
        window.note(1);
        window.note(3);
        assert_eq!(window.end_cycle(3, 2), Some(1));
        assert_eq!(window.end_cycle(3, 2), Some(1));
        assert_eq!(window.end_cycle(3, 2), Some(3));
        window.restart();
        assert_eq!(window.end_cycle(3, 2), None);
    }

    proptest! {
        #[test]
        fn expansion_never_exceeds_its_room_nor_panics(
            cores in 0u32..10_000, slot_max in 0u32..100_000,
            e in -1.0f64..2.0, w in 0.0f64..1.0, s in 0.0f64..1.0, room in 0u32..1000,
        ) {
            prop_assert!(n(cores, slot_max, e, w, s, room) <= room);
        }
    }
}
