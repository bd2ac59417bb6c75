//! Whether the root has its weight among its siblings, and when to try again.
//!
//! The weight of `lrs.slice` is systemd's to write, and a systemd that is busy, as it is while a
//! node boots, does not answer in time. Without the weight all tasks together have the share of one
//! ordinary slice, or the one they had before, and nothing shows it but their speed: so a failure
//! is a warning in the log and in the status, and is tried again until the weight is there.
//!
//! The pauses double, because each try holds up the thread that asks systemd (`lrs-units`) for as
//! long as systemd is waited for (1.5 s).

use super::Driver;
use super::unit_worker::UnitJob;
use crate::cgroup::CgroupError;

/// Cycles between two tries, at most: with cycles of 3 s five minutes.
const LONGEST_PAUSE: u32 = 100;

/// The weight of the root, as far as it is known to be there.
#[derive(Debug, Default)]
pub(super) struct RootWeight {
    /// `None`: it is there, or nothing else is known.
    missing: Option<Missing>,
}

#[derive(Debug)]
struct Missing {
    why: String,
    /// Cycles from the last answer to the next try.
    pause: u32,
    /// Those that have passed.
    passed: u32,
}

impl RootWeight {
    /// Takes the answer to a [`UnitJob::ShapeRoot`].
    pub(super) fn answered(&mut self, result: Result<(), CgroupError>) {
        let before = self.missing.take();
        let why = match result {
            Ok(()) if before.is_some() => return tracing::info!("the LRS root has its weight now"),
            Ok(()) => return,
            Err(error) => error.to_string(),
        };
        if before.as_ref().is_none_or(|before| before.why != why) {
            tracing::warn!(error = %why, "the weight of the LRS root was not written, so tasks compete with other groups as before; it is tried again: {why}");
        }
        let pause = before.map_or(1, |before| before.pause.saturating_mul(2).min(LONGEST_PAUSE));
        self.missing = Some(Missing { why, pause, passed: 0 });
    }

    /// A cycle is over: whether to try again now.
    pub(super) fn is_due(&mut self) -> bool {
        self.missing.as_mut().is_some_and(|missing| {
            missing.passed = missing.passed.saturating_add(1);
            missing.passed == missing.pause
        })
    }

    /// Why the weight is not there.
    pub(super) fn problem(&self) -> Option<&str> {
        self.missing.as_ref().map(|missing| missing.why.as_str())
    }
}

impl Driver {
    /// Has the root given its weight, as the plan is now.
    pub(super) fn shape_root(&self) {
        self.workers.ask(UnitJob::ShapeRoot { plan: self.plan });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Result<(), CgroupError> {
        Err(CgroupError::Refused("systemd did not answer".into()))
    }

    /// Cycles until it is due; an unanswered try is not repeated.
    fn cycles_until_due(weight: &mut RootWeight) -> Option<u32> {
        let due = (1..=1000).find(|_| weight.is_due());
        assert!((0..1000).all(|_| !weight.is_due()), "tried twice without an answer");
        due
    }

    #[test]
    fn a_weight_that_is_there_is_not_tried_again() {
        let mut weight = RootWeight::default();
        assert_eq!(cycles_until_due(&mut weight), None);
        weight.answered(Ok(()));
        assert_eq!(cycles_until_due(&mut weight), None);
        assert_eq!(weight.problem(), None);
    }

    #[test]
    fn a_refused_weight_is_tried_again_later_each_time_until_it_is_there() {
        let mut weight = RootWeight::default();
        for pause in [1, 2, 4, 8, 16, 32, 64, 100, 100] {
            weight.answered(refused());
            assert!(weight.problem().unwrap().contains("did not answer"));
            assert_eq!(cycles_until_due(&mut weight), Some(pause));
        }
        weight.answered(Ok(()));
        assert_eq!(weight.problem(), None);
        assert_eq!(cycles_until_due(&mut weight), None);
        weight.answered(refused());
        assert_eq!(cycles_until_due(&mut weight), Some(1), "a new failure is a new one");
    }
}
