//! Guard, stage 1: hold passive slots back while memory is short (spec 6).
//!
//! LRS adds load, so it must be the first to stop. Entry and exit have thresholds and hold
//! times of their own, so that a node near the border does not flap. Nothing here frees
//! memory and nothing is ever killed: the stage only stops more tasks from coming.
//!
//! Limits: memory is the only signal, and it is MemAvailable; pressure signals and the stages
//! that cap and freeze are not built.

use std::time::Duration;

use crate::units::{BootTime, Bytes, MemoryAmount, Moment, WallTime};

/// MemoryAmounts and hold times of the stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GuardPolicy {
    /// Whether the stage acts or only reports.
    pub dry_run: bool,
    /// Entered below it.
    pub reserve: MemoryAmount,
    /// Left at or above it.
    pub resume: MemoryAmount,
    /// How long memory must be short before the stage is entered.
    pub enter_after: Duration,
    /// How long it must be plentiful before the stage is left.
    pub exit_after: Duration,
}

/// Available and total memory of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Memory {
    pub available: Bytes,
    pub total: Bytes,
}

/// Where the guard stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Guard {
    entered: Option<Entered>,
    /// Since when the condition for the other side has held.
    turning_since: Option<BootTime>,
}

/// Since when and why the stage is on.
#[derive(Clone, Debug, PartialEq)]
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

    /// One cycle. Unknown memory changes nothing: the guard keeps the side it is on.
    pub fn step(
        &mut self,
        policy: &GuardPolicy,
        memory: Option<Memory>,
        now: Moment,
    ) -> Option<Turn> {
        let memory = memory?;
        let reserve = policy.reserve.of(memory.total);
        let resume = policy.resume.of(memory.total).max(reserve);
        let (turning, hold) = match self.entered {
            None => (memory.available < reserve, policy.enter_after),
            Some(_) => (memory.available >= resume, policy.exit_after),
        };
        if !turning {
            self.turning_since = None;
            return None;
        }
        let since = *self.turning_since.get_or_insert(now.boot);
        if now.boot.since(since) < hold {
            return None;
        }
        self.turning_since = None;
        if self.entered.take().is_some() {
            return Some(Turn::Left(format!(
                "{} of memory available, at least {resume} needed to offer passive slots again",
                memory.available
            )));
        }
        let reason =
            format!("{} of memory available, below the reserve of {reserve}", memory.available);
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

    fn memory(available: u64) -> Option<Memory> {
        Some(Memory { available: Bytes(available), total: Bytes(1000) })
    }

    const POLICY: GuardPolicy = GuardPolicy {
        dry_run: false,
        reserve: MemoryAmount::Bytes(Bytes(100)),
        resume: MemoryAmount::Bytes(Bytes(200)),
        enter_after: Duration::from_secs(3),
        exit_after: Duration::from_secs(10),
    };

    #[test]
    fn both_sides_have_a_threshold_and_a_hold_time() {
        let mut guard = Guard::default();
        assert_eq!(guard.step(&POLICY, memory(99), at(0)), None);
        assert_eq!(guard.step(&POLICY, memory(100), at(2)), None, "a good reading starts anew");
        assert_eq!(guard.step(&POLICY, memory(99), at(3)), None);
        assert!(matches!(guard.step(&POLICY, memory(50), at(6)), Some(Turn::Entered(_))));
        assert!(guard.entered().is_some());
        assert_eq!(guard.step(&POLICY, memory(150), at(60)), None, "between the thresholds");
        assert_eq!(guard.step(&POLICY, memory(200), at(70)), None);
        assert_eq!(guard.step(&POLICY, None, at(75)), None, "unknown memory changes nothing");
        assert!(matches!(guard.step(&POLICY, memory(300), at(80)), Some(Turn::Left(_))));
        assert!(guard.entered().is_none());
    }

    #[test]
    fn time_that_runs_backwards_is_harmless() {
        let mut guard = Guard::default();
        assert_eq!(guard.step(&POLICY, memory(1), at(1000)), None);
        assert_eq!(guard.step(&POLICY, memory(1), at(5)), None);
        assert!(guard.step(&POLICY, memory(1), at(1003)).is_some());
    }
}
