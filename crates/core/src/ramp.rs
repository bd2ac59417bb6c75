//! Expansion ahead of the cycle: while a request waits for a slot and every slot is taken, the node is
//! read every [`SHORTEST`], and passive slots are opened as soon as that shows spare CPU.
//!
//! A cycle of 3 s is right for tasks of 45 s, as the source has them. A queue of tasks of half a second
//! is half done by then, and the CPUs were idle beside it. A shorter cycle for everybody would cost more
//! on each node, at all times, and other rules count in cycles: so these readings open slots by the
//! formula of the cycle and do nothing else. No cycle is judged by them, no trial begins, no slot is
//! withdrawn.
//!
//! Nobody waits most of the time, and then there are none. They end with the last slot that
//! `passive_max` allows. In between they cost at most [`MOST_COST`] of a CPU, and a fifth of it where the
//! last of them found the CPUs saturated, so that a long queue of tasks that compute pays nothing.
//!
//! Limit. A scheduler that looks at free slots and does not wait for one gets new ones each cycle.

use std::time::Duration;

use super::cycle::Measured;
use super::pace::{LONGEST, Pace};
use super::rate::NodeRates;
use super::sample::NodeSample;
use super::shaper::Shaper;
use crate::units::{BootTime, Bytes, Moment, Share};

/// Time between two readings at the least: ten ticks of each CPU's counters (proc_stat(5)).
pub const SHORTEST: Duration = Duration::from_millis(100);

/// Part of a CPU that the readings may cost.
const MOST_COST: f64 = 0.005;

/// The same where the CPUs were saturated at the last of them.
const MOST_COST_SATURATED: f64 = 0.002;

/// When the node is read ahead of the cycle.
#[derive(Clone, Debug, Default)]
pub struct Ramp {
    cost: Pace,
    last: Option<(BootTime, NodeSample)>,
    due: Option<BootTime>,
}

impl Ramp {
    /// When the next reading is due. `may`: [`Shaper::may_ramp`]; where it is not so, what was read is
    /// forgotten, for the CPUs may well be idle while nobody waits.
    pub fn next(&mut self, may: bool, now: BootTime) -> Option<BootTime> {
        if !may {
            (self.last, self.due) = (None, None);
            return None;
        }
        Some(*self.due.get_or_insert(now))
    }

    /// Takes a reading; [`Measured`] is since the one before. `saturation`: the share of CPU in use from
    /// which on there is none to spare.
    pub fn read(&mut self, at: BootTime, node: NodeSample, saturation: Share) -> Option<Measured> {
        let measured = self.last.as_ref().map(|(then, earlier)| {
            Measured::of(&NodeRates::between((*then, earlier), (at, &node)), &node)
        });
        let cpu = measured.and_then(|measured| measured.cpu);
        let most = match cpu.is_some_and(|cpu| cpu.saturated(saturation)) {
            true => MOST_COST_SATURATED,
            false => MOST_COST,
        };
        self.due = Some(at.after(self.cost.at_cost(most).clamp(SHORTEST, LONGEST)));
        self.last = Some((at, node));
        measured
    }

    /// A reading and what followed from it cost so much CPU time.
    pub fn took(&mut self, cpu: Duration) {
        self.cost.took(cpu);
    }
}

impl Shaper {
    /// Whether a reading ahead of the cycle could open a slot.
    pub fn may_ramp(&self) -> bool {
        self.waiting() > 0 && self.may_expand() && !self.probe.is_trying()
    }

    /// Opens passive slots if the CPU was spare. `resident`: the mean size of the tasks.
    pub(super) fn ramp(&mut self, node: &Measured, resident: Option<Bytes>, now: Moment) {
        let saturation = self.policy.cpu_saturation;
        if let Some(cpu) = node.cpu.filter(|cpu| !cpu.saturated(saturation))
            && self.may_ramp()
        {
            self.expand(&cpu, node.memory, resident, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::CpuTimes;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u32) -> BootTime {
        BootTime(ms * MS)
    }

    /// Two CPUs of which `busy` were in use all the time until `ms`.
    fn node(ms: u32, busy: u32) -> NodeSample {
        let cpu =
            CpuTimes { user: busy * ms * MS, idle: (2 - busy) * ms * MS, ..CpuTimes::default() };
        NodeSample { cpu: Some(cpu), ..NodeSample::default() }
    }

    #[test]
    fn a_reading_is_compared_with_the_one_before_and_with_none_from_when_nobody_waited() {
        let mut ramp = Ramp::default();
        let saturation = Share::clamped(0.9);
        assert_eq!(ramp.next(false, at(0)), None);
        assert_eq!(ramp.next(true, at(5)), Some(at(5)), "the first at once");
        assert_eq!(ramp.read(at(5), node(5, 1), saturation), None);
        assert_eq!(ramp.next(true, at(6)), Some(at(5).after(SHORTEST)));
        let measured = ramp.read(at(205), node(205, 1), saturation).unwrap();
        assert_eq!(measured.cpu.unwrap().effective, Share::clamped(0.5));
        assert_eq!(ramp.next(false, at(210)), None);
        assert_eq!(ramp.next(true, at(900)), Some(at(900)));
        assert_eq!(ramp.read(at(900), node(900, 1), saturation), None);
    }

    #[test]
    fn readings_cost_at_most_their_part_of_a_cpu() {
        let pauses = |cost: u32| {
            [1, 2].map(|busy| {
                let mut ramp = Ramp::default();
                ramp.took(cost * MS);
                ramp.next(true, at(0));
                ramp.read(at(0), node(0, busy), Share::clamped(0.9));
                ramp.read(at(1000), node(1000, busy), Share::clamped(0.9));
                ramp.next(true, at(1000)).unwrap().since(at(1000))
            })
        };
        assert_eq!(pauses(0), [SHORTEST, SHORTEST]);
        assert_eq!(pauses(1), [200 * MS, 1000 * MS]);
        assert_eq!(pauses(2), [400 * MS, 2000 * MS]);
        assert_eq!(pauses(20), [LONGEST, LONGEST]);
    }
}
