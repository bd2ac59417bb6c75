//! What others do to a task of LRS: they move it, change its weights, or put processes into its group.
//!
//! A task with weights or a place that others keep changing is put right a few times a minute
//! ([`CONTEST_REPAIRS`]) and left alone from then on. A place that lies under a limit of theirs, and
//! the group of a task in place, are left alone at once.

use serde_json::{Map, Value, json};

use super::Shaper;
use crate::event::EventKind;
use crate::model::TaskId;
use crate::step::{Job, NotMoved, Whither};
use crate::task::{Attachment, CONTEST_REPAIRS, GroupRecord, Hold, Life, Task};
use crate::units::Moment;

impl Shaper {
    /// The main process is not in its group any more: back with it, within bounds. `limit`: the
    /// limit that a move would lift it out of. `occupied`: others are left in the group.
    pub(crate) fn outside(
        &mut self,
        id: TaskId,
        found_in: &str,
        limit: Option<&str>,
        occupied: bool,
        now: Moment,
    ) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Life::Placed(hold) = task.life else { return };
        let (Some(process), Some(group)) = (task.who.process, &task.group) else { return };
        if hold == Hold::MovingBack || hold == Hold::Contested && occupied {
            return;
        }
        let mut inputs = Map::new();
        inputs.insert("cgroup".into(), json!(group.path));
        inputs.insert("found_in".into(), json!(found_in));
        let outside = format!("process {} was moved out of the task's cgroup", process.pid);
        if group.attachment == Attachment::InPlace || task.note_repair(now.boot) {
            return self.give_way(id, &format!("{outside} by others"), inputs, occupied, now);
        }
        if let Some(limit) = limit {
            let why = format!("{outside} and stays there: {limit}");
            return self.give_way(id, &why, inputs, occupied, now);
        }
        task.life = Life::Placed(Hold::MovingBack);
        self.step.jobs.push(Job::Reattach(id));
        let reason = format!("{outside}; moving it back");
        self.note(EventKind::Drift, Some(id), reason, inputs, now);
    }

    /// Its main process went into a group that was made after the task's: it was the task's own doing,
    /// or another program made that group for it (`systemd-run --scope`, a container). It is left there.
    pub(crate) fn went_elsewhere(&mut self, id: TaskId, to: &str, whither: Whither, now: Moment) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.is_placed()) else { return };
        let (Some(process), Some(group)) = (task.who.process, &task.group) else { return };
        match whither {
            Whither::Partly => {
                if std::mem::replace(&mut task.main_exited, true) {
                    return;
                }
                let mut inputs = Map::new();
                inputs.insert("cgroup".into(), json!(group.path));
                inputs.insert("found_in".into(), json!(to));
                let reason = format!(
                    "process {} went into a group made after the task's and is left there; the \
                     task is what is left in its own",
                    process.pid
                );
                self.note(EventKind::Drift, Some(id), reason, inputs, now);
            }
            Whither::InPlace => {
                // As one that observe mode booked: the executor attaches it next.
                let booked = GroupRecord {
                    attachment: Attachment::None,
                    path: to.to_owned(),
                    ..group.clone()
                };
                task.group = Some(booked);
                task.life = Life::Placed(Hold::Kept);
            }
            Whither::Away => task.left_for = Some(to.to_owned()),
        }
    }

    /// How a move back went.
    pub(crate) fn reattached(&mut self, id: TaskId, result: Result<(), NotMoved>, now: Moment) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if let Life::Placed(hold) | Life::Releasing(hold) = &mut task.life
            && *hold == Hold::MovingBack
        {
            *hold = Hold::Kept;
        }
        match result {
            Ok(()) => task.repaired += 1,
            // Its pidfd says so in a moment.
            Err(NotMoved::Ending) => {}
            // It is another owner's by now; there is nothing to fight for.
            Err(NotMoved::Denied { reason, occupied }) => {
                let why = format!("its processes were not moved back: {reason}");
                self.give_way(id, &why, Map::new(), occupied, now);
            }
            Err(NotMoved::Failed(reason)) => {
                let reason = format!("its processes were not moved back: {reason}");
                self.note(EventKind::Drift, Some(id), reason, Map::new(), now);
            }
        }
    }

    /// The main process stays outside of the task's cgroup: the task is what is left inside, and
    /// over without that.
    fn give_way(
        &mut self,
        id: TaskId,
        why: &str,
        inputs: Map<String, Value>,
        occupied: bool,
        now: Moment,
    ) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if !task.is_placed() {
            return;
        }
        task.life = Life::Placed(Hold::Contested);
        let in_place = task.attachment() == Attachment::InPlace;
        let rest = if occupied { "what is left in it" } else { "nothing any more" };
        let reason = format!("{why}; the task is {rest}");
        self.note(EventKind::Contested, Some(id), reason, inputs, now);
        if occupied {
            return;
        }
        if !in_place {
            // Processes may be left inside; they are given back like those of any release.
            return self.release(id, now);
        }
        if let Some(task) = self.remove_task(id) {
            self.finish_release(task, now);
        }
    }

    /// Others than its owner's are in the group of a task in place: it gets its weights back, and
    /// is no task any more.
    pub(crate) fn entered(&mut self, id: TaskId, error: &str, now: Moment) {
        if !self.task(id).is_some_and(Task::is_placed) {
            return;
        }
        let reason = format!("the cgroup is left alone from now on: {error}");
        self.note(EventKind::Contested, Some(id), reason, Map::new(), now);
        if let Some(task) = self.remove_task(id) {
            self.finish_release(task, now);
        }
    }

    /// Weights of the task are not what LRS wrote. `fits`: what its owner wants gives it its tier
    /// all the same.
    pub(crate) fn drifted(&mut self, id: TaskId, found: Vec<String>, fits: bool, now: Moment) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if !task.is_placed() || task.is_contested() || found.is_empty() {
            return;
        }
        if fits {
            let reason =
                format!("{}; what its owner wrote fits the tier and is kept", found.join("; "));
            return self.note_drift(id, EventKind::Drift, reason, &found, now);
        }
        if task.note_repair(now.boot) {
            let reason = format!(
                "{}; repaired {CONTEST_REPAIRS} times within a minute, left alone from now on",
                found.join("; ")
            );
            return self.note_drift(id, EventKind::Contested, reason, &found, now);
        }
        self.step.jobs.push(Job::Repair { task: id, found });
    }

    /// How a repair went.
    pub(crate) fn repaired(
        &mut self,
        id: TaskId,
        found: &[String],
        result: Result<(), String>,
        now: Moment,
    ) {
        let outcome = match result {
            Ok(()) => "repaired".to_owned(),
            Err(ref error) => format!("not repaired: {error}"),
        };
        if let (Some(task), Ok(())) = (self.tasks.get_mut(&id), result) {
            task.repaired += 1;
        }
        let reason = format!("{}; {outcome}", found.join("; "));
        self.note_drift(id, EventKind::Drift, reason, found, now);
    }

    fn note_drift(
        &mut self,
        id: TaskId,
        kind: EventKind,
        reason: String,
        found: &[String],
        now: Moment,
    ) {
        let Some(task) = self.tasks.get(&id) else { return };
        let mut inputs = Map::new();
        inputs.insert("cgroup".into(), json!(task.group.as_ref().map(|group| &group.path)));
        inputs.insert("found".into(), json!(found));
        inputs.insert("repairs".into(), json!(task.repairs.len()));
        self.note(kind, Some(id), reason, inputs, now);
    }
}
