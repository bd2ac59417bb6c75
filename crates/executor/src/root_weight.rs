//! The weight of the root among its siblings: what follows the active tier, whether it is there, and
//! when to try again.
//!
//! With `tiers.root_weight = "auto"` the loop writes what the core wants
//! ([`lrs_core::neighbours`]) into the root's own files, as soon as it wants another, and compares
//! them each cycle. Of `lrs.slice` systemd knows the most that may be written, and writes that itself
//! now and then, as at a daemon-reload; the next comparison puts it right.
//!
//! That weight of `lrs.slice` is systemd's to write, and a systemd that is busy, as it is while a
//! node boots, does not answer in time. Without the weight all tasks together have the share of one
//! ordinary slice, or the one they had before, and nothing shows it but their speed: so a failure
//! is a warning in the log and in the status, and is tried again until the weight is there.
//!
//! The pauses double, because each try holds up the thread that asks systemd (`lrs-units`) for as
//! long as systemd is waited for (1.5 s).

use serde_json::Map;

use super::Executor;
use super::job::UnitJob;
use super::world::World;
use crate::group::{CgroupError, Drift};
use lrs_config::{Auto, Mode};
use lrs_core::event::EventKind;
use lrs_core::neighbours::RootWeight;

/// Cycles between two tries, at most: with cycles of 3 s five minutes.
const LONGEST_PAUSE: u32 = 100;

/// The weight of the root, as far as it is known to be there.
#[derive(Debug, Default)]
pub(super) struct RootState {
    /// `None`: it is there, or nothing else is known.
    missing: Option<Missing>,
    /// What was written last, of a root that follows the active tier.
    written: Option<RootWeight>,
    /// It was another at the last comparison.
    fought: bool,
}

#[derive(Debug)]
struct Missing {
    why: String,
    /// Cycles from the last answer to the next try.
    pause: u32,
    /// Those that have passed.
    passed: u32,
}

impl RootState {
    /// Takes the answer to a [`UnitJob::ShapeRoot`].
    pub(super) fn answered(&mut self, result: Result<(), CgroupError>) {
        let before = self.missing.take();
        let why = match result {
            Ok(()) if before.is_some() => return tracing::info!("the LRS root has its weight now"),
            Ok(()) => return,
            Err(error) => error.to_string(),
        };
        if before.as_ref().is_none_or(|before| before.why != why) {
            tracing::warn!(error = %why, "the weight of the LRS root was not written, or systemd does not know it; it is tried again: {why}");
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

impl<W: World> Executor<'_, W> {
    /// Gives the root its weight, as the plan is now.
    pub(super) fn shape_root(&mut self) {
        if !self.state.world.facts().root_follows || self.state.world.facts().root_is_systemds {
            self.begin(UnitJob::ShapeRoot { plan: self.state.plan });
        }
        self.state.root_weight.written = None;
        self.weigh_root();
    }

    /// Takes the answer to a [`UnitJob::ShapeRoot`]. systemd has written over what was in the file.
    pub(super) fn root_shaped(&mut self, result: Result<(), CgroupError>) {
        self.state.root_weight.answered(result);
        self.state.root_weight.written = None;
        self.follow_root();
        self.state.touched.status = true;
    }

    /// Gives the root the weight that the active tier wants now, where that is another.
    pub(super) fn follow_root(&mut self) {
        // What failed is tried again once in a while, not at every step.
        let failed =
            self.state.root_weight.missing.is_some() && !self.state.world.facts().root_is_systemds;
        if self.state.root_weight.written != self.wanted_root() && !failed {
            self.weigh_root();
        }
    }

    /// Compares the weight of the root with its files, once a cycle, and puts it right.
    pub(super) fn check_root(&mut self) {
        if self.state.root_weight.missing.is_some() && !self.state.world.facts().root_is_systemds {
            return;
        }
        let drifts = self.weigh_root();
        let known = std::mem::replace(&mut self.state.root_weight.fought, !drifts.is_empty());
        // systemd may write what it was asked to set at any time; a writer that goes on has one event.
        if drifts.is_empty() || known || self.state.world.facts().root_is_systemds {
            return;
        }
        let found: Vec<String> = drifts
            .iter()
            .map(|drift| format!("{} was {}, not {}", drift.file, drift.found, drift.expected))
            .collect();
        let reason = format!("of the LRS root {}; it was put right", found.join(", "));
        self.note(EventKind::Drift, None, reason, Map::new());
    }

    /// The most it may weigh is left behind: nothing follows the active tier while no daemon runs.
    pub(super) fn leave_root(&mut self) {
        let most = self.state.plan.active_capacity.saturating_mul(100);
        if self.state.world.facts().root_follows
            && let Err(error) = self.state.world.weigh_root(RootWeight::Weight(most))
        {
            tracing::debug!(%error, "the LRS root keeps the weight it has: {error}");
        }
    }

    /// What clients read of it, in units of cpu.weight; 0 is idle.
    pub(super) fn shown_root(&self) -> Option<u32> {
        if !self.state.world.facts().root_follows {
            return match self.state.config.tiers.root_weight {
                Auto::Fixed(weight) if self.state.config.daemon.mode == Mode::Enforce => {
                    Some(weight)
                }
                _ => None,
            };
        }
        self.state.root_weight.written.map(|weight| match weight {
            RootWeight::Idle => 0,
            RootWeight::Weight(weight) => weight,
        })
    }

    fn wanted_root(&self) -> Option<RootWeight> {
        self.core.root_weight().filter(|_| self.state.world.facts().root_follows)
    }

    fn weigh_root(&mut self) -> Vec<Drift> {
        let Some(weight) = self.wanted_root() else { return Vec::new() };
        let result = self.state.world.weigh_root(weight);
        let same = self.state.root_weight.written == Some(weight);
        self.state.root_weight.written = result.is_ok().then_some(weight);
        self.state.touched.status |= !same;
        match result {
            Ok(drifts) => {
                if !self.state.world.facts().root_is_systemds {
                    self.state.root_weight.answered(Ok(()));
                }
                if same { drifts } else { Vec::new() }
            }
            Err(error) => {
                self.state.root_weight.answered(Err(error));
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Result<(), CgroupError> {
        Err(CgroupError::Refused("systemd did not answer".into()))
    }

    /// Cycles until it is due; an unanswered try is not repeated.
    fn cycles_until_due(weight: &mut RootState) -> Option<u32> {
        let due = (1..=1000).find(|_| weight.is_due());
        assert!((0..1000).all(|_| !weight.is_due()), "tried twice without an answer");
        due
    }

    #[test]
    fn a_weight_that_is_there_is_not_tried_again() {
        let mut weight = RootState::default();
        assert_eq!(cycles_until_due(&mut weight), None);
        weight.answered(Ok(()));
        assert_eq!(cycles_until_due(&mut weight), None);
        assert_eq!(weight.problem(), None);
    }

    #[test]
    fn a_refused_weight_is_tried_again_later_each_time_until_it_is_there() {
        let mut weight = RootState::default();
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
