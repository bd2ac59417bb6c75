//! Which tasks stages 2 and 3 of the guard freeze and thaw: the rule is in [`crate::guard::freeze`].
//!
//! A task is frozen by two deeds, its record and then its group, and thawed by the same in the other
//! order. So a daemon that is killed leaves no frozen task that its record does not name, and the next
//! one thaws those first. What is frozen is a passive task in its slot, in a group of LRS's own;
//! whatever else becomes of it, it is thawed in the same step, before its weights are written.

use serde_json::{Map, json};

use super::Shaper;
use crate::event::EventKind;
use crate::guard::Signals;
use crate::guard::freeze::{Decision, FreezePolicy, Ladder};
use crate::model::{TaskId, Tier};
use crate::step::{Job, Record};
use crate::task::{Attachment, Task};
use crate::units::Moment;

/// Whether the guard may freeze the task.
fn may_be_frozen(task: &Task) -> bool {
    task.tier() == Tier::Passive
        && task.is_placed()
        && task.attachment() == Attachment::Own
        && !task.is_contested()
}

impl Shaper {
    /// Stages 2 and 3 of the guard.
    pub fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// The times of stages 2 and 3; `None`: the guard is off.
    pub fn freeze_policy(&self) -> Option<FreezePolicy> {
        let guard = self.policy.guard?;
        let FreezePolicy { headroom_dry_run, freeze_dry_run, .. } = guard.freeze;
        Some(FreezePolicy {
            headroom_dry_run: headroom_dry_run || guard.dry_run,
            freeze_dry_run: freeze_dry_run || guard.dry_run,
            ..guard.freeze
        })
    }

    /// Whether passive tasks are held back more than by their tier.
    pub(crate) fn makes_headroom(&self) -> bool {
        self.ladder.stage() > 0
            && self.freeze_policy().is_some_and(|policy| !policy.headroom_dry_run)
    }

    pub(crate) fn guard_freeze(&mut self, signals: &Signals, now: Moment) {
        let (Some(guard), Some(policy)) = (self.policy.guard, self.freeze_policy()) else { return };
        let tasks = self.tasks().filter(|(_, task)| may_be_frozen(task));
        let mut passive: Vec<_> = tasks.map(|(id, task)| (task.rank(), id)).collect();
        passive.sort_unstable_by(|a, b| b.cmp(a));
        let passive: Vec<TaskId> = passive.into_iter().map(|(_, id)| id).collect();
        let may_freeze = !self.draining();
        let Decision { turn, freeze, thaw } =
            self.ladder.step((&policy, &guard), signals, &passive, may_freeze, now.boot);
        if let Some((from, to)) = turn {
            let first = u32::from(self.guard.entered().is_some());
            let dry_run =
                if from.max(to) == 3 { policy.freeze_dry_run } else { policy.headroom_dry_run };
            let reason = if to == 0 {
                "the node has memory again".to_owned()
            } else {
                self.ladder.reason().to_owned()
            };
            let frozen = self.ladder.frozen().count();
            let full = signals.memory_full;
            self.record(now, EventKind::Guard, None, |event| {
                event.from = Some(from.max(first).to_string());
                event.to = Some(to.max(first).to_string());
                event.reason = Some(reason);
                signals.name_memory(&guard, &mut event.inputs);
                event.inputs.insert("memory_full".into(), json!(full));
                event.inputs.insert("frozen".into(), json!(frozen));
                event.inputs.insert("dry_run".into(), json!(dry_run));
            });
        }
        for (id, reason) in thaw {
            self.thaw(id, reason, now);
        }
        if let Some(id) = freeze {
            self.freeze(id, now);
        }
    }

    fn freeze(&mut self, id: TaskId, now: Moment) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.frozen = true;
        self.step.store(Record::Task(id));
        self.step.jobs.push(Job::Freeze(id));
        let reason = self.ladder.reason().to_owned();
        let stage = self.ladder.stage();
        self.record(now, EventKind::Guard, Some(id.to_string()), |event| {
            event.from = Some("running".into());
            event.to = Some("frozen".into());
            event.reason = Some(reason);
            event.inputs.insert("stage".into(), json!(stage));
        });
    }

    fn thaw(&mut self, id: TaskId, reason: &str, now: Moment) {
        self.ladder.forget(id);
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.frozen) else { return };
        task.frozen = false;
        self.step.jobs.retain(|job| *job != Job::Freeze(id));
        self.step.thaw.push(id);
        self.step.store(Record::Task(id));
        self.record(now, EventKind::Guard, Some(id.to_string()), |event| {
            event.from = Some("frozen".into());
            event.to = Some("thawed".into());
            event.reason = Some(reason.to_owned());
            event.inputs = Map::new();
        });
    }

    pub(crate) fn thaw_all(&mut self, reason: &str, now: Moment) {
        let frozen: Vec<TaskId> = self.ladder.frozen().collect();
        for id in frozen {
            self.thaw(id, reason, now);
        }
    }

    /// After every input: a task that is active, given back, or contested runs.
    pub(crate) fn thaw_what_may_not_be(&mut self, now: Moment) {
        if !self.ladder.has_frozen() {
            return;
        }
        let frozen: Vec<TaskId> = self.ladder.frozen().collect();
        for id in frozen {
            let Some(task) = self.task(id).filter(|task| !may_be_frozen(task)) else { continue };
            let reason = match task.tier() {
                Tier::Active => "it becomes active",
                Tier::Passive if task.is_contested() => "something else changes it",
                Tier::Passive => "it is given back",
            };
            self.thaw(id, reason, now);
        }
    }

    /// What an earlier daemon froze.
    pub(crate) fn thaw_found(&mut self, now: Moment) {
        let frozen: Vec<TaskId> =
            self.tasks().filter(|(_, task)| task.frozen).map(|(id, _)| id).collect();
        for id in frozen {
            self.thaw(id, "an earlier lrsd froze it", now);
        }
    }

    /// The settings are others.
    pub(crate) fn follow_freeze_policy(&mut self, now: Moment) {
        // One stage that only reports is enough: the other freezes again what it may.
        let only_reports = |policy: FreezePolicy| policy.headroom_dry_run || policy.freeze_dry_run;
        if self.freeze_policy().is_none_or(only_reports) {
            self.thaw_all("the settings freeze no task", now);
        }
        if self.policy.guard.is_none() {
            self.ladder = Ladder::default();
        }
    }

    pub(crate) fn not_frozen(&mut self, id: TaskId, reason: String, now: Moment) {
        if let Some(policy) = self.freeze_policy() {
            self.ladder.failed(id, &policy, now.boot);
        }
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.frozen) else { return };
        task.frozen = false;
        self.step.store(Record::Task(id));
        self.record(now, EventKind::Guard, Some(id.to_string()), |event| {
            event.from = Some("frozen".into());
            event.to = Some("running".into());
            event.reason = Some(format!("it could not be frozen: {reason}"));
        });
    }
}
