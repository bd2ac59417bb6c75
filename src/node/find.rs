//! What an earlier daemon left on the node: the facts for [`crate::core::restore`], which judges
//! them, and the giving back that it asks for.
//!
//! A task that cannot be judged (its group cannot be read) goes on: one bad group must not keep
//! the daemon from the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::process::alive;
use crate::cgroup::{Attachment, CgroupError, Group, GroupRecord, TierTree};
use crate::core::event::EventKind;
use crate::core::history_state::HistoryState;
use crate::core::model::TaskId;
use crate::core::restore::{GroupUse, Known, Observation, Restore, Verdict};
use crate::core::task::Task;
use crate::driver::EarlierTasks;
use crate::state::Recovered;
use crate::units::BootTime;

struct Finder<'a> {
    tree: &'a TierTree,
    /// Without a tree of its own a task is its main process.
    observing: bool,
    restore: Restore,
    groups: BTreeMap<TaskId, Group>,
    remove: Vec<Group>,
    left: BTreeMap<TaskId, Arc<Group>>,
}

/// Looks at every record and every group below the root.
pub(super) fn find(
    tree: &TierTree,
    observing: bool,
    history_state: HistoryState,
    recovered: &mut Recovered,
    now: BootTime,
) -> Result<EarlierTasks, CgroupError> {
    let reservations = std::mem::take(&mut recovered.reservations).into_iter();
    let reservations = reservations.map(|record| (record.id, record.reservation)).collect();
    let (damaged, records) = (recovered.history_damaged, recovered.tasks.iter());
    let restore = Restore::new(history_state, damaged, records, reservations);
    let (groups, remove, left) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
    let mut finder = Finder { tree, observing, restore, groups, remove, left };
    let mut own: BTreeMap<TaskId, Group> = tree.existing()?.into_iter().collect();
    for record in std::mem::take(&mut recovered.tasks_of_earlier_boots) {
        finder.restore.earlier_boot(record);
    }
    for record in std::mem::take(&mut recovered.tasks) {
        let group = own.remove(&record.id);
        finder.judge(record, group);
    }
    for (id, group) in own {
        let empty = tree.processes(&group).is_ok_and(|processes| processes.is_empty());
        let uid = tree.sole_owner(&group);
        let known = Known { uid, ..Known::from_history(id, recovered.events.iter()) };
        let left = finder.restore.group(id, group.record.clone(), !empty || observing, known);
        finder.leave(id, Some(group), left);
    }
    let Finder { restore, groups, remove, left, .. } = finder;
    let (restored, start) = restore.finish(now);
    let started = recovered.events.iter().rev().find(|event| event.kind == EventKind::Started);
    Ok(EarlierTasks { restored, start, groups, remove, left, started: started.cloned() })
}

impl Finder<'_> {
    fn judge(&mut self, mut record: Task, own: Option<Group>) {
        let id = record.id;
        let mut group = self.group_of(&record, own);
        if record.booked().is_some() && self.give_back(id, group.as_ref(), "attach") {
            // Some of its processes may have been in the group made for it, and some not: it is
            // what it was, to be attached anew.
            record.unattach();
            group = record.group.as_ref().and_then(|stored| self.reopen(id, stored));
        }
        let seen = Observation {
            group: group.as_ref().map(|group| group.record.clone()),
            occupied: self.occupied(&record, group.as_ref()),
            main_lives: record.who.process.is_some_and(alive),
        };
        let verdict = self.restore.judge(&record, &seen);
        let undone = match verdict {
            Verdict::RollBack => self.give_back(id, group.as_ref(), "admission"),
            Verdict::FinishRelease => self.give_back(id, group.as_ref(), "release"),
            Verdict::GoesOn | Verdict::Ended | Verdict::Over => true,
        };
        let left = self.restore.take(record, seen, verdict, undone);
        self.leave(id, group, left);
    }

    fn leave(&mut self, id: TaskId, group: Option<Group>, left: GroupUse) {
        match left {
            GroupUse::InUse => self.groups.extend(group.map(|group| (id, group))),
            GroupUse::Unneeded => {
                let occupied = |group: &Group| {
                    self.tree.processes(group).is_ok_and(|processes| !processes.is_empty())
                };
                match group {
                    // Released while others had frozen or stopped it.
                    Some(group) if !self.observing && occupied(&group) => {
                        self.left.insert(id, Arc::new(group));
                    }
                    group => self.remove.extend(group),
                }
            }
            GroupUse::GivenBack => {}
        }
    }

    fn group_of(&mut self, record: &Task, own: Option<Group>) -> Option<Group> {
        match (&record.group, own) {
            (Some(stored), own) if stored.attachment != Attachment::Own => {
                self.remove.extend(own);
                self.reopen(record.id, stored)
            }
            (Some(stored), None) => self.reopen(record.id, stored),
            (stored, own) => own.map(|mut group| {
                // The record may be older than the group; it knows where the process was.
                group.record.origin.clone_from(&record.who.origin);
                if let Some(stored) = stored {
                    group.record.elsewhere.clone_from(&stored.elsewhere);
                }
                self.tree.presumed(&group.record)
            }),
        }
    }

    fn reopen(&self, id: TaskId, stored: &GroupRecord) -> Option<Group> {
        match self.tree.reopen(stored) {
            Ok(group) => group,
            Err(error) => {
                tracing::error!(task = %id, %error, "the cgroup of task {id} cannot be opened, so the task goes on: {error}");
                Some(self.tree.presumed(stored))
            }
        }
    }

    fn occupied(&self, record: &Task, group: Option<&Group>) -> bool {
        let Some(group) = group else { return false };
        if self.observing || group.record.attachment == Attachment::None {
            return record.who.process.is_some_and(alive);
        }
        match self.tree.processes(group) {
            Ok(processes) => !processes.is_empty(),
            Err(error) => {
                let id = record.id;
                tracing::error!(task = %id, %error, "cannot tell whether task {id} is over, so it goes on: {error}");
                true
            }
        }
    }

    /// Processes and weights of a group go back; `what`: of which they are.
    fn give_back(&mut self, id: TaskId, group: Option<&Group>, what: &str) -> bool {
        let given_back = match (group, what) {
            (None, _) => Ok(None),
            (Some(group), "release") => self.tree.release_task(group),
            (Some(group), _) => self.tree.release(group),
        };
        if let (Ok(Some(_)), Some(group)) = (&given_back, group) {
            self.left.insert(id, Arc::new(group.clone()));
        }
        if let Err(error) = &given_back {
            let half = if what == "release" { "finished" } else { "undone" };
            tracing::error!(task = %id, %error, "the half-done {what} of task {id} cannot be {half}, so it goes on: {error}");
        }
        given_back.is_ok()
    }
}
