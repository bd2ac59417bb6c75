//! Guard, stage 1: hold passive slots back while the node is short of memory (spec 6). Stages 2 and 3
//! are in [`freeze`], and what expansion costs active tasks in [`interference`].
//!
//! LRS adds load, so it must be the first to stop. Each signal has a threshold for entry and one for
//! exit, and both sides have hold times, so that a node near the border does not flap. A node that
//! is short again soon after the stage was left keeps it longer each time ([`Guard::exit_after`]):
//! there the tasks that come back are what it is short of. Nothing here frees memory and nothing is
//! ever killed: this stage only stops more tasks from coming.
//!
//! The signals are available memory, of the node and below every limit ([`Memory`]), the share of time in which all tasks stalled for memory (PSI
//! `full`), and swap in use that grows. How much swap is in use is none: pages that no process reads
//! stay there. Nor are the node's pressure on CPU and disks: passive tasks that wait for them are
//! what LRS is for.
//!
//! Limits: a signal that is missing changes nothing; the caller says which.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use serde_json::{Map, Value, json};

use crate::memory::Memory;
use crate::units::{BootTime, Bytes, MemoryAmount, Moment, Share, WallTime};

pub mod freeze;
pub mod interference;

/// How often the hold time of the exit doubles at most.
const LONGEST_DOUBLING: u32 = 6;

/// Thresholds and hold times of the stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuardPolicy {
    /// Whether the stage acts or only reports.
    pub dry_run: bool,
    /// Entered below it.
    pub reserve: MemoryAmount,
    /// Left at or above it.
    pub resume: MemoryAmount,
    /// Share of a cycle in which all tasks stalled for memory, from which the stage is entered. Left at
    /// half of it.
    pub memory_pressure: Share,
    /// Growth of the swap in use, a second, from which it is entered. Left at half of it.
    pub swap_growth: Bytes,
    /// How long a signal must be bad before the stage is entered.
    pub enter_after: Duration,
    /// How long all must be good before it is left.
    pub exit_after: Duration,
    /// By how much of a cycle active tasks may wait more for added passive slots; all of it: any.
    pub interference: Share,
    /// Stages 2 and 3.
    pub freeze: freeze::FreezePolicy,
}

/// What one cycle measured. `None`: not known, which changes nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signals {
    /// Memory for tasks.
    pub memory: Option<Memory>,
    /// Share of the cycle in which all tasks stalled for memory.
    pub memory_full: Option<Share>,
    /// Bytes a second by which the swap in use grew.
    pub swap_growth: Option<f64>,
}

/// Where a signal is between its thresholds, in a sentence.
enum Level {
    Bad(String),
    Between(String),
    Good(String),
}

impl Signals {
    /// What is available in the room that binds, and its limit, for the inputs of an event.
    pub(super) fn name_memory(&self, policy: &GuardPolicy, inputs: &mut Map<String, Value>) {
        let binding = |memory: &Memory| memory.least_above(|all| policy.reserve.of(all)).0.clone();
        let room = self.memory.as_ref().map(binding);
        inputs.insert("available_bytes".into(), json!(room.as_ref().map(|room| room.available)));
        if let Some(room) = room {
            room.name_limit(inputs);
        }
    }

    /// In the order in which reasons are given.
    fn levels(&self, policy: &GuardPolicy) -> [Option<Level>; 3] {
        let memory = self.memory.as_ref().map(|memory| {
            let reserve = |total| policy.reserve.of(total);
            let (room, reserved) = memory.least_above(reserve);
            if room.available < reserved {
                return Level::Bad(format!(
                    "{} of memory available{}, below the reserve of {reserved}",
                    room.available,
                    room.limit_in_words()
                ));
            }
            let (room, resume) =
                memory.least_above(|total| policy.resume.of(total).max(reserve(total)));
            if room.available >= resume {
                Level::Good(format!(
                    "{} of memory available{}, at least {resume} needed to offer passive slots \
                     again",
                    room.available,
                    room.limit_in_words()
                ))
            } else {
                Level::Between(format!(
                    "{} of memory available{}, less than the {resume} needed to offer passive \
                     slots again",
                    room.available,
                    room.limit_in_words()
                ))
            }
        });
        let limit = policy.memory_pressure.value();
        let pressure = self.memory_full.map(|full| {
            let found = format!(
                "all tasks stalled for memory for {:.1} % of the cycle",
                100.0 * full.value()
            );
            level(full.value(), limit, &found, format!("the limit of {:.1} %", 100.0 * limit))
        });
        let limit = policy.swap_growth.0 as f64;
        let swap = self.swap_growth.map(|growth| {
            let found = format!("swap in use grew by {} a second", Bytes(growth.max(0.0) as u64));
            level(growth, limit, &found, format!("the limit of {}", policy.swap_growth))
        });
        [memory, pressure, swap]
    }
}

/// Bad from `limit` on, good up to half of it; nothing at all is never bad.
fn level(value: f64, limit: f64, found: &str, limit_in_words: String) -> Level {
    if value > 0.0 && value >= limit {
        Level::Bad(format!("{found}, at or above {limit_in_words}"))
    } else if value <= limit / 2.0 {
        Level::Good(format!("{found}, half of {limit_in_words} at most"))
    } else {
        Level::Between(format!("{found}, more than half of {limit_in_words}"))
    }
}

/// One signal, with its two sides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Watch {
    /// Why it counts as bad, once it was for long enough: how it is now, by the thresholds of now.
    bad: Option<String>,
    /// Since when the condition for the other side has held.
    turning_since: Option<BootTime>,
}

impl Watch {
    /// One cycle; answers the sentence with which it turned good.
    fn step(
        &mut self,
        level: Option<Level>,
        (enter_after, exit_after): (Duration, Duration),
        now: BootTime,
    ) -> Option<String> {
        let (text, hold) = match (level?, &mut self.bad) {
            (Level::Bad(text), None) => (text, enter_after),
            (Level::Good(text), Some(bad)) => {
                *bad = format!("{text}; that has to last for {} s", exit_after.as_secs());
                (text, exit_after)
            }
            (Level::Bad(text) | Level::Between(text), Some(bad)) => {
                *bad = text;
                self.turning_since = None;
                return None;
            }
            (Level::Between(_) | Level::Good(_), None) => {
                self.turning_since = None;
                return None;
            }
        };
        let since = *self.turning_since.get_or_insert(now);
        if now.since(since) < hold {
            return None;
        }
        self.turning_since = None;
        match self.bad.take() {
            Some(_) => Some(text),
            None => {
                self.bad = Some(text);
                None
            }
        }
    }
}

/// Where the guard stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Guard {
    entered: Option<Entered>,
    watches: [Watch; 3],
    /// When the stage was left last, and how often in a row it was entered soon after that.
    left: Option<BootTime>,
    again: u32,
}

/// Since when and why the stage is on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entered {
    /// When it was entered.
    pub since: WallTime,
    /// The sentence for status.
    pub reason: String,
}

/// A stage entered or left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Stage 1 is on.
    Entered(String),
    /// Back to normal.
    Left(String),
}

impl Guard {
    /// The stage as entered, if it is on (also in dry run).
    pub fn entered(&self) -> Option<&Entered> {
        self.entered.as_ref()
    }

    /// How long all signals have to be good now: the time of the settings, doubled each time that the
    /// stage was entered within ten times as long after it was left, six times at most.
    pub fn exit_after(&self, policy: &GuardPolicy) -> Duration {
        policy.exit_after.saturating_mul(1 << self.again)
    }

    /// One cycle. Unknown signals change nothing: the guard keeps the side it is on.
    pub fn step(&mut self, policy: &GuardPolicy, signals: &Signals, now: Moment) -> Option<Turn> {
        let holds = (policy.enter_after, self.exit_after(policy));
        let mut good = None;
        for (watch, level) in self.watches.iter_mut().zip(signals.levels(policy)) {
            good = watch.step(level, holds, now.boot).or(good);
        }
        let bad: Vec<&str> = self.watches.iter().filter_map(|watch| watch.bad.as_deref()).collect();
        let reason = bad.join("; ");
        if bad.is_empty() {
            self.entered.take()?;
            self.left = Some(now.boot);
            return Some(Turn::Left(good.unwrap_or_else(|| "no signal is bad any more".into())));
        }
        if let Some(entered) = &mut self.entered {
            entered.reason = reason;
            return None;
        }
        let soon = holds.1.saturating_mul(10);
        self.again = match self.left {
            Some(left) if now.boot.since(left) < soon => (self.again + 1).min(LONGEST_DOUBLING),
            _ => 0,
        };
        self.entered = Some(Entered { since: now.wall, reason: reason.clone() });
        Some(Turn::Entered(reason))
    }

    /// Back to normal because the guard was switched off.
    pub fn reset(&mut self) {
        *self = Guard::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment { boot: BootTime(Duration::from_secs(seconds)), ..Moment::default() }
    }

    fn memory(available: u64) -> Signals {
        let memory = Memory::of_node(Bytes(available), Bytes(1000));
        Signals { memory: Some(memory), ..Signals::default() }
    }

    fn pressure(full: f64) -> Signals {
        Signals { memory_full: Some(Share::clamped(full)), ..memory(500) }
    }

    const UNKNOWN: Signals = Signals { memory: None, memory_full: None, swap_growth: None };

    fn policy() -> GuardPolicy {
        GuardPolicy {
            dry_run: false,
            reserve: MemoryAmount::Bytes(Bytes(100)),
            resume: MemoryAmount::Bytes(Bytes(200)),
            memory_pressure: Share::clamped(0.2),
            swap_growth: Bytes(1000),
            enter_after: Duration::from_secs(3),
            exit_after: Duration::from_secs(10),
            interference: Share::clamped(0.25),
            freeze: freeze::FreezePolicy::REPORTS,
        }
    }

    #[test]
    fn both_sides_have_a_threshold_and_a_hold_time() {
        let (mut guard, policy) = (Guard::default(), policy());
        assert_eq!(guard.step(&policy, &memory(99), at(0)), None);
        assert_eq!(guard.step(&policy, &memory(100), at(2)), None, "a good reading starts anew");
        assert_eq!(guard.step(&policy, &memory(99), at(3)), None);
        assert!(matches!(guard.step(&policy, &memory(50), at(6)), Some(Turn::Entered(_))));
        assert!(guard.entered().is_some());
        assert_eq!(guard.step(&policy, &memory(150), at(60)), None, "between the thresholds");
        assert_eq!(guard.step(&policy, &memory(200), at(70)), None);
        assert_eq!(guard.step(&policy, &UNKNOWN, at(75)), None, "unknown memory changes nothing");
        assert!(matches!(guard.step(&policy, &memory(300), at(80)), Some(Turn::Left(_))));
        assert!(guard.entered().is_none());
    }

    #[test]
    fn the_reason_goes_by_the_settings_of_now() {
        let (mut guard, policy) = (Guard::default(), policy());
        guard.step(&policy, &memory(50), at(0));
        assert!(guard.step(&policy, &memory(50), at(3)).is_some());
        let lower = GuardPolicy {
            reserve: MemoryAmount::Bytes(Bytes(10)),
            resume: MemoryAmount::Bytes(Bytes(20)),
            ..policy
        };
        assert_eq!(guard.step(&lower, &memory(50), at(6)), None, "exit_after");
        let reason = &guard.entered().unwrap().reason;
        assert!(reason.contains("at least 20 B needed") && reason.contains("10 s"), "{reason}");
        assert_eq!(guard.step(&policy, &memory(150), at(9)), None);
        let reason = &guard.entered().unwrap().reason;
        assert!(reason.contains("less than the 200 B needed"), "{reason}");
    }

    #[test]
    fn time_that_runs_backwards_is_harmless() {
        let (mut guard, policy) = (Guard::default(), policy());
        assert_eq!(guard.step(&policy, &memory(1), at(1000)), None);
        assert_eq!(guard.step(&policy, &memory(1), at(5)), None);
        assert!(guard.step(&policy, &memory(1), at(1003)).is_some());
    }

    #[test]
    fn any_signal_enters_and_all_have_to_be_good_to_leave() {
        let policy = GuardPolicy { enter_after: Duration::ZERO, ..policy() };
        let mut guard = Guard::default();
        let entered = guard.step(&policy, &pressure(0.25), at(0));
        let Some(Turn::Entered(reason)) = entered else { panic!("{entered:?}") };
        assert!(reason.contains("25.0 % of the cycle"), "{reason}");
        let swapping = Signals { swap_growth: Some(5000.0), ..memory(500) };
        assert_eq!(guard.step(&policy, &swapping, at(3)), None);
        let reason = &guard.entered().unwrap().reason;
        assert!(reason.contains("25.0 %") && reason.contains("swap in use grew"), "{reason}");
        let calm = Signals { swap_growth: Some(-20.0), ..pressure(0.05) };
        assert_eq!(guard.step(&policy, &calm, at(6)), None);
        assert_eq!(guard.step(&policy, &pressure(0.15), at(15)), None, "pressure is not low yet");
        assert_eq!(
            guard.step(&policy, &calm, at(18)),
            None,
            "swap is good by now, pressure begins"
        );
        assert_eq!(guard.step(&policy, &UNKNOWN, at(40)), None);
        assert!(matches!(guard.step(&policy, &calm, at(41)), Some(Turn::Left(_))));
    }

    #[test]
    fn at_the_edge_it_enters_once_in_ten_hours() {
        let policy = GuardPolicy { enter_after: Duration::ZERO, ..policy() };
        let noise = |cycle: u64| (cycle.wrapping_mul(0x9E37_79B9) >> 8) % 1000;
        let turns = |signals: &dyn Fn(f64) -> Signals| {
            let mut guard = Guard::default();
            // Within a tenth of the threshold.
            let signals = |cycle| signals(0.9 + 0.2 * noise(cycle) as f64 / 1000.0);
            (0..12_000)
                .filter(|&cycle| guard.step(&policy, &signals(cycle), at(3 * cycle)).is_some())
                .count()
        };
        assert_eq!(turns(&|part| memory((100.0 * part) as u64)), 1);
        assert_eq!(turns(&|part| pressure(0.2 * part)), 1);
        assert_eq!(turns(&|part| Signals { swap_growth: Some(1000.0 * part), ..memory(500) }), 1);
    }

    #[test]
    fn tasks_that_are_short_of_memory_whenever_they_come_back_are_let_in_ever_more_seldom() {
        let policy = GuardPolicy { enter_after: Duration::ZERO, ..policy() };
        let (mut guard, mut turns) = (Guard::default(), 0);
        for cycle in 0..12_000u64 {
            let held = guard.entered().is_some();
            let signals = memory(if held { 900 } else { 50 });
            turns += u64::from(guard.step(&policy, &signals, at(3 * cycle)).is_some());
        }
        // 36,000 s at 640 s for each of most.
        assert!((100..150).contains(&turns), "{turns}");
        // A node that was well for long is as before.
        guard.step(&policy, &memory(900), at(40_000));
        guard.step(&policy, &memory(900), at(50_000));
        assert!(guard.entered().is_none());
        guard.step(&policy, &memory(50), at(60_000));
        assert_eq!(guard.exit_after(&policy), policy.exit_after);
    }
}
