//! Expansion ahead of the cycle: while a request waits for a slot and every slot is taken, the node is
//! read between two cycles, and passive slots open as soon as that shows spare CPU.
//!
//! A cycle of 3 s is right for tasks of 45 s, as the source has them. A queue of tasks of half a second
//! is half done by then, and the CPUs were idle beside it. A shorter cycle for everybody would cost more
//! on each node, at all times, and other rules count in cycles. So these readings are of the node and of
//! the sizes of tasks, and open slots by the formula of the cycle. No cycle, no trial and no step of
//! expansion is judged by them, and no slot is withdrawn.
//!
//! - What is compared lies between two readings, at least [`SHORTEST`] apart. The first comes
//!   [`START_DELAY`] after every slot was taken, or after slots were opened: their tasks have to run
//!   before the CPU they leave is known. Where more than one task in [`STILL_COMING`] is still on its
//!   way, nothing opens.
//! - From one cycle to the next as many slots may open as there are active ones, and one more for each
//!   task that ended in that time; those for tasks that wait ([`super::opening`]) count, and have no such
//!   bound. A task that ended has given its memory back.
//! - What new tasks will take (`shaper/forecast.rs`) comes off the memory available, for the cycle too; at the least as
//!   much as the mean task has, for each of the slots opened so, of the slots of the last cycle, and of those
//!   that took the place of a task that ended.
//! - A cycle in which slots were opened opens none itself, for it looks back on the time before them.
//! - They cost at most [`MOST_COST`] of a CPU, and nothing while no request waits or `passive_max`
//!   is reached.
//!
//! Limit. A scheduler that looks at free slots and does not wait for one gets new ones each cycle.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::measured::Measured;
use super::pace::Pace;
use super::rate::NodeRates;
use super::sample::NodeSample;
use crate::units::{BootTime, Bytes};

/// Time between two readings at the least: twenty ticks of each CPU's counters (proc_stat(5)).
const SHORTEST: Duration = Duration::from_millis(200);

/// Time that new tasks need to begin: an admission takes about 10 ms (docs/experiments/freed-slot.md).
const START_DELAY: Duration = Duration::from_millis(100);

/// One task in so many may be on its way to its group; on a node of many short ones some always are.
pub(super) const STILL_COMING: usize = 8;

/// Part of a CPU that the readings may cost.
const MOST_COST: f64 = 0.002;

/// When the node is read ahead of the cycle.
#[derive(Clone, Debug, Default)]
pub struct Ramp {
    cost: Pace,
    /// Slots allocated, in both tiers.
    slots: Option<u32>,
    last: Option<(BootTime, NodeSample)>,
    due: BootTime,
    /// Readings before it would cost more than they may.
    paid: BootTime,
}

impl Ramp {
    /// When the next reading is due. `slots`: [`Shaper::ramps_from`](super::shaper::Shaper::ramps_from). Where that changes, what was
    /// read before says nothing.
    pub fn next(&mut self, slots: Option<u32>, now: BootTime) -> Option<BootTime> {
        if self.slots != slots {
            self.slots = slots;
            self.last = None;
            self.due = self.paid.max(now.after(START_DELAY));
        }
        self.due()
    }

    /// As [`Ramp::next`] answered last, or later by a reading since.
    pub fn due(&self) -> Option<BootTime> {
        self.slots.map(|_| self.due)
    }

    /// Takes a reading, which took `cost` of CPU time; [`Measured`] is since the one before, if that
    /// counts. One that was under way when the slots changed says nothing.
    pub fn read(&mut self, at: BootTime, node: NodeSample, cost: Duration) -> Option<Measured> {
        self.cost.took(cost);
        self.paid = at.after(self.cost.at_cost(MOST_COST));
        if at < self.due {
            self.due = self.due.max(self.paid);
            return None;
        }
        let measured = self.last.as_ref().map(|(then, earlier)| {
            Measured::of(&NodeRates::between((*then, earlier), (at, &node)), &node)
        });
        self.last = self.slots.map(|_| (at, node));
        self.due = self.paid.max(at.after(SHORTEST));
        measured
    }
}

/// What bounds the slots that open between two cycles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Ahead {
    /// Slots opened since the last cycle.
    pub(super) opened: u32,
    /// Slots that the last cycle opened, or that were opened just before it.
    pub(super) last: u32,
    /// Tasks that ended since the last cycle.
    pub(super) ended: u32,
    /// The largest mean size of tasks since the last cycle: after many ends all tasks are new and small.
    pub(super) resident: Option<Bytes>,
}

impl Ahead {
    /// Slots that may still open before the next cycle.
    pub(super) fn room(&self, active: u32) -> u32 {
        active.saturating_add(self.ended).saturating_sub(self.opened)
    }

    /// New tasks, of at most `tasks`, that may not have taken their memory yet.
    fn young(&self, tasks: usize) -> u64 {
        let replaced = u64::from(self.ended).min(tasks as u64);
        u64::from(self.opened) + u64::from(self.last) + replaced
    }

    /// Memory that those will take, if they become as large as the others.
    pub(super) fn owed(&self, tasks: usize, resident: Option<Bytes>) -> Bytes {
        Bytes(resident.unwrap_or_default().0.saturating_mul(self.young(tasks)))
    }

    /// A slot was opened for a task of `resident` bytes.
    pub(super) fn opened_for(&mut self, resident: Option<Bytes>) {
        self.opened += 1;
        self.resident = self.resident.max(resident);
    }

    /// A cycle begins. Answers how many slots were opened ahead of it.
    pub(super) fn cycle(&mut self) -> u32 {
        let opened = self.opened;
        *self = Self { last: opened, ..Self::default() };
        opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::CpuTimes;
    use crate::units::Share;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u32) -> BootTime {
        BootTime(ms * MS)
    }

    /// Two CPUs of which one was in use all the time until `ms`.
    fn node(ms: u32) -> NodeSample {
        let cpu = CpuTimes { user: ms * MS, idle: ms * MS, ..CpuTimes::default() };
        NodeSample { cpu: Some(cpu), ..NodeSample::default() }
    }

    #[test]
    fn a_reading_is_compared_with_one_of_the_same_slots() {
        let mut ramp = Ramp::default();
        assert_eq!(ramp.next(None, at(0)), None);
        assert_eq!(ramp.next(Some(4), at(5)), Some(at(105)), "they have to run first");
        assert_eq!(ramp.read(at(105), node(105), MS / 10), None);
        assert_eq!(ramp.next(Some(4), at(106)), Some(at(305)));
        let measured = ramp.read(at(305), node(305), MS / 10).unwrap();
        assert_eq!(measured.cpu.unwrap().effective, Share::clamped(0.5));
        assert_eq!(ramp.next(Some(6), at(310)), Some(at(410)));
        assert_eq!(ramp.read(at(410), node(410), MS / 10), None, "there are more by now");
        assert_eq!(ramp.next(None, at(600)), None, "no request waits");
        assert_eq!(ramp.next(Some(6), at(700)), Some(at(800)));
        assert_eq!(ramp.read(at(650), node(650), MS / 10), None, "it was under way");
        assert_eq!(ramp.next(Some(6), at(701)), Some(at(800)));
        assert_eq!(ramp.read(at(800), node(800), MS / 10), None, "nothing to compare with");
        assert!(ramp.read(at(1000), node(1000), MS / 10).is_some());
    }

    #[test]
    fn readings_cost_at_most_their_part_of_a_cpu() {
        let pause = |cost: u32| {
            let mut ramp = Ramp::default();
            ramp.next(Some(4), at(0));
            ramp.read(at(100), node(100), cost * MS);
            ramp.next(Some(4), at(100)).unwrap().since(at(100))
        };
        assert_eq!(pause(0), SHORTEST);
        let mut flickers = Ramp::default();
        flickers.next(Some(4), at(0));
        flickers.read(at(100), node(100), 10 * MS);
        flickers.next(None, at(110));
        assert_eq!(flickers.next(Some(4), at(120)), Some(at(5100)), "however often that changes");
        assert_eq!(pause(1), 500 * MS);
        assert_eq!(pause(40), 20_000 * MS, "on such a node the cycles are as quick");
    }
}
