//! How much all tasks of LRS together weigh beside the rest of the node.
//!
//! Passive tasks are idle among tasks, and against everything else on the node they have the weight
//! of the whole root. With a fixed weight passive work alone takes as much from a service beside LRS
//! as active work may. So the root follows what the *active* tier wants: so many CPUs, so many times
//! the neutral weight, at most one for each active slot; and nothing ([`RootWeight::Idle`]) while no
//! active task wants any, which puts passive work behind every group of the node.
//!
//! What a task wants is what it used and what it waited for ([`demand`]). Waiting counts, else a
//! root that was put behind would keep its tasks from ever showing what they want. A task that has
//! just become active counts as what finished tasks of its job wanted, or as one CPU, until a whole cycle
//! of it was read: a tier of tasks shorter than a cycle is always new. The weight rises at
//! once and falls after [`HOLD`] cycles, and small changes change nothing, so it is not written each
//! cycle. What a task waits for depends on the weight itself: a root that a reading wakes soon after
//! it went idle is held awake for twice as long the next time.
//!
//! Limits. An active task that slept for longer than that and wakes is behind the services until the
//! next reading, a cycle at most; ahead of passive tasks it always is. Tasks in groups of others are
//! outside of the root, and so are tasks below a unit that they may not leave: its weight does nothing
//! for them.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::rate::Interval;

/// For so many cycles the most that was wanted counts.
const HOLD: u64 = 4;

/// It is held for so many cycles at the most.
const LONGEST_HOLD: u64 = 64;

/// A root that wakes within so many holds of going idle did so too early.
const SOON: u64 = 10;

/// A rate takes two readings.
const KNOWN_AFTER: u64 = 2;

/// CPUs wanted below which the root becomes idle, and from which it is no longer. Java machines that
/// do nothing use half a percent of a CPU.
const SLEEP: f64 = 0.02;
const WAKE: f64 = 0.05;

/// The weight stays while it is between these parts of what is wanted.
const ENOUGH: f64 = 0.95;
const TOO_MUCH: f64 = 1.4;

/// Units of cpu.weight for each CPU that is wanted: the neutral weight.
const NEUTRAL: f64 = 100.0;

/// The weight of the root among its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootWeight {
    /// Behind all of them (`cpu.idle`; where there is none, the smallest weight).
    Idle,
    /// In units of cpu.weight, where 100 is neutral.
    Weight(u32),
}

/// How many CPUs a task wanted: what it used, and what it waited for. `None`: not known.
///
/// PSI averages a wait over the CPUs, so the true one is at most `cpus` times it, and of one thread
/// at most all the time. Of several threads that shared what the task got, as many waited for each
/// that ran as the pressure says.
pub fn demand(interval: &Interval) -> Option<f64> {
    let elapsed = interval.elapsed.as_secs_f64();
    let used = interval.cpu.as_secs_f64() / elapsed;
    let Some(pressure) = interval.pressure else {
        return (used == 0.0).then_some(0.0);
    };
    let waited = (pressure.cpu_some.as_secs_f64() / elapsed).clamp(0.0, 1.0);
    let of_one = used + (waited * f64::from(interval.cpus.max(1))).min(1.0);
    // Where nothing ran all the time, how many waited cannot be seen.
    let of_many = if waited < 1.0 { used / (1.0 - waited) } else { used };
    Some(of_one.max(of_many))
}

/// What the root weighs, and what was wanted of late.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Follow {
    /// A task has become active since the last decision.
    pub(super) newcomer: bool,
    weight: Option<RootWeight>,
    /// Since the start.
    cycle: u64,
    /// The most that was wanted of late and in which cycle, first; each later one is less.
    wanted: VecDeque<(u64, f64)>,
    /// For how much longer than [`HOLD`] the most counts: it is doubled so often.
    doubled: u32,
    /// In which cycle it became idle last.
    idle_since: Option<u64>,
}

impl Follow {
    /// The weight in force; `None` before anything was decided.
    pub fn weight(&self) -> Option<RootWeight> {
        self.weight
    }

    /// `wanted` CPUs are wanted now, and `most` can be promised.
    pub fn step(&mut self, wanted: f64, most: u32) {
        let newcomer = std::mem::take(&mut self.newcomer);
        let wanted = if wanted.is_finite() { wanted.clamp(0.0, f64::from(most)) } else { 0.0 };
        while self.wanted.back().is_some_and(|(_, earlier)| *earlier <= wanted) {
            self.wanted.pop_back();
        }
        self.wanted.push_back((self.cycle, wanted));
        while self.wanted.front().is_some_and(|(cycle, _)| cycle + self.hold() <= self.cycle) {
            self.wanted.pop_front();
        }
        let wanted = self.wanted.front().map_or(wanted, |(_, most)| *most).min(f64::from(most));
        let weight = NEUTRAL * wanted;
        let before = self.weight;
        let after = match before {
            Some(RootWeight::Idle) if wanted < WAKE => RootWeight::Idle,
            _ if wanted < SLEEP => RootWeight::Idle,
            Some(RootWeight::Weight(has))
                if f64::from(has) >= ENOUGH * weight && f64::from(has) <= TOO_MUCH * weight =>
            {
                RootWeight::Weight(has)
            }
            _ => RootWeight::Weight(weight.round().max(1.0) as u32),
        };
        self.weight = Some(after);
        match (before == Some(RootWeight::Idle), after == RootWeight::Idle) {
            (false, true) => self.idle_since = Some(self.cycle),
            // A task that came is no sign that the others had been held too short.
            (true, false) if !newcomer => {
                let soon = |since: u64| self.cycle < since + SOON * self.hold();
                let early = self.idle_since.is_some_and(soon);
                self.doubled = if early { self.doubled.saturating_add(1) } else { 0 };
            }
            _ => {}
        }
    }

    /// A cycle was read. Whether enough is known to decide: what an earlier daemon left keeps the weight it
    /// has until two were.
    pub(super) fn end_cycle(&mut self) -> bool {
        self.cycle += 1;
        self.cycle >= KNOWN_AFTER || self.weight.is_some()
    }

    fn hold(&self) -> u64 {
        HOLD.saturating_mul(1 << self.doubled.min(16)).min(LONGEST_HOLD)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::sample::TaskPressure;

    fn wanted(cpu: f64, cpu_some: Option<f64>) -> Option<f64> {
        let pressure = cpu_some.map(|some| TaskPressure {
            cpu_some: Duration::from_secs_f64(some),
            io_some: Duration::ZERO,
        });
        demand(&Interval {
            elapsed: Duration::from_secs(1),
            cpu: Duration::from_secs_f64(cpu),
            pressure,
            thread: None,
            cpus: 2,
        })
    }

    fn near(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found - expected).abs() < 1e-6)
    }

    #[test]
    fn what_was_waited_for_is_wanted_too() {
        assert!(near(wanted(0.0, Some(0.0)), 0.0), "a sleeper");
        assert!(near(wanted(1.0, Some(0.0)), 1.0), "a hog");
        assert!(near(wanted(0.01, Some(0.6)), 1.01), "a starved one");
        assert!(near(wanted(0.0, Some(1.0)), 1.0), "one that got nothing");
        assert!(near(wanted(2.0, Some(0.75)), 8.0), "eight threads on two CPUs");
        assert_eq!(wanted(0.2, None), None, "how long it waited is not known");
        assert!(near(wanted(0.0, None), 0.0));
    }

    impl Follow {
        /// The weight after one more cycle.
        fn after(&mut self, wanted: f64) -> RootWeight {
            self.cycle += 1;
            self.step(wanted, 4);
            self.weight().unwrap()
        }
    }

    #[test]
    fn the_root_rises_at_once_and_falls_later() {
        let mut follow = Follow::default();
        assert_eq!(follow.after(0.0), RootWeight::Idle);
        assert_eq!(follow.after(0.04), RootWeight::Idle, "a little from idle is idle");
        follow.newcomer = true;
        assert_eq!(follow.after(1.0), RootWeight::Weight(100));
        assert_eq!(follow.after(9.0), RootWeight::Weight(400), "no more than the slots are");
        assert_eq!(follow.after(3.9), RootWeight::Weight(400), "nearly the same is the same");
        for _ in 0..3 {
            assert_eq!(follow.after(0.0), RootWeight::Weight(400), "it may wake again");
        }
        assert_eq!(follow.after(0.03), RootWeight::Weight(3), "a little after more is not idle");
        for _ in 0..3 {
            assert_eq!(follow.after(0.0), RootWeight::Weight(3));
        }
        assert_eq!(follow.after(0.0), RootWeight::Idle);
    }

    /// An active writer that computes little, beside services that fill the CPUs: it waits where the
    /// root is idle, and next to nothing where it is not.
    #[test]
    fn a_root_that_makes_its_tasks_wait_does_not_go_idle_again_and_again() {
        let mut follow = Follow::default();
        let (mut idle, mut falls) = (0, 0);
        for _ in 0..1200 {
            let before = follow.weight();
            let waits = before == Some(RootWeight::Idle);
            let after = follow.after(if waits { 1.0 } else { 0.005 });
            idle += u32::from(after == RootWeight::Idle);
            falls += u32::from(after == RootWeight::Idle && before != Some(after));
        }
        assert!(idle <= 25 && falls <= 25, "idle in {idle} of 1200 cycles, {falls} times");
    }

    #[test]
    fn a_newcomer_does_not_hold_the_root_awake_for_longer() {
        let mut follow = Follow::default();
        for _ in 0..20 {
            follow.newcomer = true;
            assert_eq!(follow.after(1.0), RootWeight::Weight(100));
            for _ in 0..HOLD {
                follow.after(0.0);
            }
            assert_eq!(follow.weight(), Some(RootWeight::Idle));
        }
    }

    #[test]
    fn a_constant_tier_is_written_a_few_times_however_noisy_it_is() {
        let mut follow = Follow::default();
        let mut written = 0;
        for cycle in 0..12_000u64 {
            let before = follow.weight();
            // Ten hours of two hogs, by a tenth more or less.
            let noise = (cycle.wrapping_mul(0x9E37_79B9) >> 8) % 1000;
            let after = follow.after(1.8 + 0.4 * noise as f64 / 1000.0);
            written += u32::from(before != Some(after));
        }
        assert!(written <= 3, "written {written} times");
    }

    proptest! {
        #[test]
        fn it_is_never_more_than_the_slots_are_nor_less_than_what_is_wanted(
            steps in prop::collection::vec((0u64..3, -1.0f64..20.0), 1..50), most in 1u32..16,
        ) {
            let mut follow = Follow::default();
            for (cycles, wanted) in steps {
                follow.cycle += cycles;
                follow.step(wanted, most);
                let wanted = wanted.clamp(0.0, f64::from(most));
                match follow.weight().unwrap() {
                    RootWeight::Idle => prop_assert!(wanted < WAKE),
                    RootWeight::Weight(weight) => {
                        prop_assert!(f64::from(weight) >= ENOUGH * NEUTRAL * wanted - 0.5);
                        prop_assert!(f64::from(weight) <= TOO_MUCH * NEUTRAL * f64::from(most));
                    }
                }
            }
        }
    }
}
