//! How much to offer: the configured resource and one slot's worth for each slot beyond the base.
//!
//! Spec 8: configured + (capacity now - A - P0) x slot. The configured value stands for the A + P0
//! slots the site planned with; only what LRS opened beyond them is added.
//!
//! Two limits. The offer is never below what is configured, which is the site's own promise and
//! not LRS's to break. And LRS adds no memory the node does not have: what it adds ends where the
//! node's memory less `guard.memory_reserve` ends. A site that configured more than that itself
//! gets exactly what it configured, no more. Where the node's memory is not known, nothing is
//! added.
//!
//! While the guard holds passive slots back or an operator drains the node nothing is added
//! either: YARN then places nothing new beyond the configured value, and what runs goes on
//! (the over-commit timeout is -1).

use std::time::Duration;

use super::Resource;
use lrs_core::units::{BootTime, Bytes};

/// Least time from one change to a raise. Every change makes the CapacityScheduler work out the
/// cluster's resource and all queue limits anew; capacity grows once a cycle at most.
pub const RAISE_EVERY: Duration = Duration::from_secs(3);

const MIB: u64 = 1 << 20;

/// What a snapshot says about slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    /// Active slots, A.
    pub active: u32,
    /// Passive slots open now.
    pub passive: u32,
    /// P0: passive slots open always.
    pub base: u32,
    /// Whether free passive slots are given out: neither held back by the guard nor draining.
    pub given_out: bool,
}

impl Slots {
    /// Slots open beyond A + P0.
    pub fn beyond_base(self) -> u32 {
        if self.given_out { self.passive.saturating_sub(self.base) } else { 0 }
    }
}

/// What one slot is worth to YARN: `yarn.slot_memory`, `yarn.slot_vcores`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SlotSize {
    pub memory: Bytes,
    pub vcores: u32,
}

/// The node's memory, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// MemTotal of /proc/meminfo; `None`: not read yet.
    pub total: Option<Bytes>,
    /// `guard.memory_reserve` on this node.
    pub reserve: Bytes,
}

/// The offer.
pub fn offer(configured: Resource, slots: Slots, slot: SlotSize, memory: NodeMemory) -> Resource {
    let beyond = slots.beyond_base();
    let Some(total) = memory.total else { return configured };
    let limit_mib = total.0.saturating_sub(memory.reserve.0) / MIB;
    let wished_mib =
        u64::from(beyond).saturating_mul(slot.memory.0 / MIB).saturating_add(configured.memory_mib);
    Resource {
        // YARN counts MiB in an int.
        memory_mib: wished_mib.min(limit_mib).min(i32::MAX as u64).max(configured.memory_mib),
        vcores: slot
            .vcores
            .saturating_mul(beyond)
            .saturating_add(configured.vcores)
            .min(i32::MAX as u32)
            .max(configured.vcores),
    }
}

/// From when on `to` may replace `from`: less at once, so that the scheduler does not fill what
/// is closing; more only some time after the last change.
pub fn due(from: Resource, to: Resource, last_change: Option<BootTime>) -> Option<BootTime> {
    match last_change {
        Some(at) if to.exceeds(from) => Some(at.after(RAISE_EVERY)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;
    const CONFIGURED: Resource = Resource { memory_mib: 8192, vcores: 8 };
    const SLOT: SlotSize = SlotSize { memory: Bytes(GIB), vcores: 1 };
    const ROOMY: NodeMemory = NodeMemory { total: Some(Bytes(64 * GIB)), reserve: Bytes(GIB) };

    fn slots(passive: u32) -> Slots {
        Slots { active: 4, passive, base: 4, given_out: true }
    }

    #[test]
    fn each_slot_beyond_the_base_adds_one_slots_worth() {
        assert_eq!(offer(CONFIGURED, slots(4), SLOT, ROOMY), CONFIGURED);
        let three = Resource { memory_mib: 8192 + 3 * 1024, vcores: 11 };
        assert_eq!(offer(CONFIGURED, slots(7), SLOT, ROOMY), three);
        assert_eq!(offer(CONFIGURED, slots(0), SLOT, ROOMY), CONFIGURED, "never below");
    }

    #[test]
    fn memory_ends_where_the_nodes_does_and_vcores_do_not() {
        let small = NodeMemory { total: Some(Bytes(10 * GIB)), reserve: Bytes(GIB / 2) };
        let offered = offer(CONFIGURED, slots(12), SLOT, small);
        assert_eq!(offered, Resource { memory_mib: 9728, vcores: 16 });
        let over = Resource { memory_mib: 20_000, vcores: 8 };
        assert_eq!(offer(over, slots(12), SLOT, small).memory_mib, 20_000, "the site's own choice");
        let unknown = NodeMemory { total: None, ..small };
        assert_eq!(offer(CONFIGURED, slots(12), SLOT, unknown), CONFIGURED);
    }

    #[test]
    fn what_is_not_given_out_is_not_offered() {
        let held = Slots { given_out: false, ..slots(12) };
        assert_eq!(offer(CONFIGURED, held, SLOT, ROOMY), CONFIGURED);
    }

    #[test]
    fn less_goes_at_once_and_more_waits() {
        let more = Resource { memory_mib: 9216, vcores: 8 };
        let at = BootTime(Duration::from_secs(10));
        assert_eq!(due(CONFIGURED, more, None), None);
        assert_eq!(due(CONFIGURED, more, Some(at)), Some(at.after(RAISE_EVERY)));
        assert_eq!(due(more, CONFIGURED, Some(at)), None);
        let swapped = Resource { memory_mib: 4096, vcores: 9 };
        assert!(due(CONFIGURED, swapped, Some(at)).is_some(), "more of one is a raise");
    }

    proptest! {
        #[test]
        fn an_offer_keeps_its_limits(
            memory_mib in 0u64..=i32::MAX as u64,
            vcores in 0u32..=i32::MAX as u32,
            passive in any::<u32>(),
            base in any::<u32>(),
            given_out in any::<bool>(),
            slot_bytes in 0u64..=1 << 40,
            slot_vcores in 0u32..=1024,
            total in proptest::option::of(any::<u64>()),
            reserve in any::<u64>(),
        ) {
            let configured = Resource { memory_mib, vcores };
            let slots = Slots { active: 4, passive, base, given_out };
            let slot = SlotSize { memory: Bytes(slot_bytes), vcores: slot_vcores };
            let memory = NodeMemory { total: total.map(Bytes), reserve: Bytes(reserve) };
            let offered = offer(configured, slots, slot, memory);
            prop_assert!(offered.memory_mib >= memory_mib && offered.vcores >= vcores);
            prop_assert!(offered.memory_mib <= i32::MAX as u64);
            prop_assert!(offered.vcores <= i32::MAX as u32);
            let room = total.unwrap_or(0).saturating_sub(reserve) / MIB;
            prop_assert!(offered.memory_mib <= room.max(memory_mib), "memory it does not have");
            if passive <= base || !given_out {
                prop_assert_eq!(offered, configured);
            }
        }

        #[test]
        fn a_slot_less_never_offers_more(passive in 0u32..10_000, total in any::<u64>()) {
            let memory = NodeMemory { total: Some(Bytes(total)), reserve: Bytes(GIB) };
            let fewer = offer(CONFIGURED, slots(passive), SLOT, memory);
            let more = offer(CONFIGURED, slots(passive + 1), SLOT, memory);
            prop_assert!(fewer.memory_mib <= more.memory_mib && fewer.vcores <= more.vcores);
        }
    }
}
