//! How much memory is free for tasks: the node has some, and each cgroup above the tasks that has a
//! limit has some. A task has to fit into all of these rooms.
//!
//! /proc/meminfo knows nothing of limits: below `MemoryMax=400M` it promises gigabytes, and the kernel
//! kills the tasks that believe it. So a decision goes by the room that has least above what is to be kept
//! free ([`Memory::least_above`]), and what is kept is a share of that room's own total: 5 % of 400 MB
//! there, 5 % of the node's memory else. Where the node is short of memory by its own share, it is that
//! room which decides, whatever a small limit leaves.
//!
//! What a group uses counts without the cache that the kernel takes back when the limit is reached, as
//! MemAvailable counts it for the node: a group that reads files is at its limit most of the time, and is
//! not short of memory. Swap is room in neither.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use serde_json::{Map, Value, json};

use crate::sample::{MemoryLimit, MemorySample};
use crate::units::Bytes;

/// The node, or a group with a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// What tasks may still take.
    pub available: Bytes,
    /// All of it: the node's memory or the limit.
    pub total: Bytes,
    /// The file of the limit; `None`: the node.
    pub limit: Option<Arc<str>>,
}

impl Room {
    /// The limit in words, to follow a figure of it; nothing for the node.
    pub fn limit_in_words(&self) -> String {
        self.limit.as_ref().map_or_else(String::new, |file| format!(" (the limit in {file})"))
    }

    /// Names the limit among what an event was decided by; nothing for the node.
    pub(crate) fn name_limit(&self, inputs: &mut Map<String, Value>) {
        if let Some(file) = &self.limit {
            inputs.insert("memory_limit_file".into(), json!(**file));
            inputs.insert("memory_limit_bytes".into(), json!(self.total));
        }
    }
}

/// Every room there is, at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    first: Room,
    others: Vec<Room>,
}

impl Memory {
    /// A node without limits.
    pub fn of_node(available: Bytes, total: Bytes) -> Memory {
        Memory { first: Room { available, total, limit: None }, others: Vec::new() }
    }

    /// What was read of the node and of limits above the tasks; `None`: nothing. A limit that is not
    /// below the node's memory is none.
    pub fn of(node: Option<MemorySample>, limits: &[MemoryLimit]) -> Option<Memory> {
        let below = |limit: &&MemoryLimit| node.is_none_or(|node| limit.limit < node.total);
        let rooms =
            node.map(|node| Room { available: node.available, total: node.total, limit: None });
        let limits = limits.iter().filter(below).map(|it| {
            let used = it.used.0.saturating_sub(it.reclaimable.0);
            let available = Bytes(it.limit.0.saturating_sub(used));
            Room { available, total: it.limit, limit: Some(it.file.clone()) }
        });
        let mut rooms = rooms.into_iter().chain(limits);
        Some(Memory { first: rooms.next()?, others: rooms.collect() })
    }

    /// The rooms, the node first and then from the tasks upwards.
    pub fn rooms(&self) -> impl Iterator<Item = &Room> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The room that binds: it has least above what is to be kept free of its total, which is the second
    /// answer.
    pub fn least_above(&self, kept: impl Fn(Bytes) -> Bytes) -> (&Room, Bytes) {
        let above = |room: &Room| i128::from(room.available.0) - i128::from(kept(room.total).0);
        let least = self
            .others
            .iter()
            .fold(&self.first, |least, room| if above(room) < above(least) { room } else { least });
        (least, kept(least.total))
    }

    /// The same where `taken` bytes are as good as used: they will be in every room.
    pub fn less(mut self, taken: Bytes) -> Memory {
        for room in std::iter::once(&mut self.first).chain(&mut self.others) {
            room.available.0 = room.available.0.saturating_sub(taken.0);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::capacity::slots_that_fit;
    use crate::units::{MemoryAmount, Share};

    const MIB: u64 = 1 << 20;

    fn node(available: u64, total: u64) -> Option<MemorySample> {
        let (available, total) = (Bytes(available), Bytes(total));
        Some(MemorySample { total, available, swap_used: Some(Bytes(0)) })
    }

    fn limit(file: &str, limit: u64, used: u64, reclaimable: u64) -> MemoryLimit {
        let [limit, used, reclaimable] = [limit, used, reclaimable].map(Bytes);
        MemoryLimit { file: file.into(), limit, used, reclaimable }
    }

    fn five_percent(total: Bytes) -> Bytes {
        MemoryAmount::OfTotal(Share::clamped(0.05)).of(total)
    }

    #[test]
    fn a_limit_binds_before_the_node_and_a_share_is_of_the_limit() {
        let limits = [limit("max", 400 * MIB, 370 * MIB, 20 * MIB)];
        let memory = Memory::of(node(1400 * MIB, 2000 * MIB), &limits).unwrap();
        let (room, kept) = memory.least_above(five_percent);
        assert_eq!(room.limit.as_deref(), Some("max"));
        assert_eq!((room.available, room.total), (Bytes(50 * MIB), Bytes(400 * MIB)));
        assert_eq!(kept, Bytes(20 * MIB));
        assert_eq!(room.limit_in_words(), " (the limit in max)");
    }

    #[test]
    fn a_node_short_by_its_own_share_binds_beside_a_small_limit() {
        let limits = [limit("max", 400 * MIB, 50 * MIB, 0)];
        let memory = Memory::of(node(1000 * MIB, 64_000 * MIB), &limits).unwrap();
        let (room, kept) = memory.least_above(five_percent);
        assert_eq!((room.limit.as_deref(), kept), (None, Bytes(3200 * MIB)));
        assert_eq!(memory.least_above(|_| Bytes(0)).0.available, Bytes(350 * MIB));
    }

    #[test]
    fn what_is_not_known_takes_nothing_away() {
        assert_eq!(Memory::of(None, &[]), None);
        let limits = [limit("max", 400, 100, 0)];
        assert_eq!(Memory::of(None, &limits).unwrap().rooms().count(), 1);
        let wide = [limit("max", 400, 100, 0)];
        assert_eq!(Memory::of(node(7, 400), &wide), Some(Memory::of_node(Bytes(7), Bytes(400))));
        let over = [limit("high", 400, 900, 100), limit("max", 500, 100, 300)];
        let memory = Memory::of(node(1000, 1000), &over).unwrap();
        let available: Vec<u64> = memory.rooms().map(|room| room.available.0).collect();
        assert_eq!(available, [1000, 0, 500]);
    }

    fn limits() -> impl Strategy<Value = Vec<MemoryLimit>> {
        let number = || prop_oneof![0..2000u64, any::<u64>()];
        let limits = (number(), number(), number());
        prop::collection::vec(limits, 0..5).prop_map(|limits| {
            let named = |(index, (max, used, cache)): (usize, (u64, u64, u64))| {
                limit(&index.to_string(), max, used, cache)
            };
            limits.into_iter().enumerate().map(named).collect()
        })
    }

    proptest! {
        #[test]
        fn what_fits_by_the_room_that_binds_fits_into_every_room(
            limits in limits(),
            (total, available) in (1..3000u64).prop_flat_map(|total| (Just(total), 0..=total)),
            (share, bytes, mean, taken) in (0.0..=1.0f64, 0..500u64, 1..300u64, 0..500u64),
        ) {
            let memory = Memory::of(node(available, total), &limits).unwrap();
            prop_assert!(memory.rooms().all(|room| room.available <= room.total));
            prop_assert!(memory.rooms().all(|room| room.total <= Bytes(total)));
            let memory = memory.less(Bytes(taken));
            for amount in [MemoryAmount::OfTotal(Share::clamped(share)), MemoryAmount::Bytes(Bytes(bytes))] {
                let (room, kept) = memory.least_above(|total| amount.of(total));
                let n = slots_that_fit(100, Some(Bytes(mean)), Some(room.available), kept);
                for room in memory.rooms() {
                    let needed = u64::from(n) * mean + if n > 0 { amount.of(room.total).0 } else { 0 };
                    prop_assert!(needed <= room.available.0, "{n} of {mean} into {room:?}");
                }
                // A limit more never makes more room.
                let (alone, kept) = (Bytes(available.saturating_sub(taken)), amount.of(Bytes(total)));
                prop_assert!(n <= slots_that_fit(100, Some(Bytes(mean)), Some(alone), kept));
            }
        }
    }
}
