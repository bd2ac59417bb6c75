//! What an earlier daemon left on the node: the facts for [`lrs_core::restore`], which judges
//! them, and the giving back that it asks for.
//!
//! A task that cannot be judged (its group cannot be read) goes on: one bad group must not keep
//! the daemon from the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::debts::Leftover;
use super::world::{Storable, World};
use crate::group::{Attachment, Group, GroupRecord};
use crate::recovered::{OwnGroup, Recovered};
use lrs_core::event::{Event, EventKind};
use lrs_core::history_state::HistoryState;
use lrs_core::model::TaskId;
use lrs_core::restore::{GroupUse, Known, Observation, Restore, Start, Verdict};
use lrs_core::state::Restored;
use lrs_core::task::{Life, Task};
use lrs_core::units::BootTime;

/// What is done about the stored tasks.
pub(super) struct EarlierTasks {
    /// For the core.
    pub restored: Restored,
    /// For the loop.
    pub start: Start,
    /// The groups of the tasks.
    pub groups: BTreeMap<TaskId, Group>,
    /// Groups that are of no more use.
    pub remove: Vec<(TaskId, Group)>,
    /// Of released tasks that keep their processes, for others froze or stopped those.
    pub left: BTreeMap<TaskId, Leftover>,
    /// The last `started` event of a daemon before this one.
    pub started: Option<Event>,
}

/// What the daemon before had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unfinished {
    Attach,
    Admission,
    Release,
}

struct Finder<'a, W> {
    world: &'a mut W,
    /// Without a tree of its own a task is its main process.
    observing: bool,
    restore: Restore,
    groups: BTreeMap<TaskId, Group>,
    remove: Vec<(TaskId, Group)>,
    left: BTreeMap<TaskId, Leftover>,
}

/// Looks at every record, and at every group that was made for a task (`own_groups`).
pub(super) fn find(
    world: &mut impl World,
    observing: bool,
    history_state: HistoryState,
    recovered: Recovered,
    own_groups: Vec<OwnGroup>,
    now: BootTime,
) -> EarlierTasks {
    let Recovered { tasks, tasks_of_earlier_boots, reservations, events, .. } = recovered;
    let reservations = reservations.into_iter().map(|record| (record.id, record.reservation));
    let (damaged, reservations) = (recovered.history_damaged, reservations.collect());
    let restore = Restore::new(history_state, damaged, tasks.iter(), reservations);
    let own_groups = own_groups.into_iter().map(|own| (own.task, own));
    let mut own: BTreeMap<TaskId, OwnGroup> = own_groups.collect();
    let (groups, remove, left) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
    let mut finder = Finder { world, observing, restore, groups, remove, left };
    for record in tasks_of_earlier_boots {
        finder.restore.earlier_boot(record);
    }
    for record in tasks {
        let group = own.remove(&record.id).map(|own| own.group);
        finder.judge(record, group, &events);
    }
    for (id, OwnGroup { group, uid, .. }) in own {
        let occupied = finder.has_processes(&group);
        let known = Known { uid, ..Known::from_history(id, events.iter()) };
        let group_use = finder.restore.group(id, group.record.clone(), occupied, known);
        finder.leave(id, Some(group), group_use);
    }
    let Finder { restore, groups, remove, left, .. } = finder;
    let (restored, start) = restore.finish(now);
    let started = events.into_iter().rev().find(|event| event.kind == EventKind::Started);
    EarlierTasks { restored, start, groups, remove, left, started }
}

impl<W: World> Finder<'_, W> {
    fn judge(&mut self, mut record: Task, own: Option<Group>, events: &[Event]) {
        let id = record.id;
        let of_history = || Known::from_history(id, events.iter());
        let mut group = self.group_of(&record, own);
        if record.booked().is_some() && self.give_back(id, group.as_ref(), Unfinished::Attach) {
            // Some of its processes may have been in the group made for it, and some not: it is
            // what it was, to be attached anew.
            record.unattach();
            group = record.group.as_ref().and_then(|stored| self.reopen(id, stored));
        }
        let seen = Observation {
            group: group.as_ref().map(|group| group.record.clone()),
            occupied: self.occupied(&record, group.as_ref()),
            main_lives: self.main_lives(&record),
            released: !self.restore.is_live(id) && of_history().released,
        };
        let verdict = self.restore.judge(&record, &seen);
        if let (Life::Placed(hold), true, Verdict::Over) = (&record.life, seen.released, verdict) {
            // What was not stored then: the history of the next daemon may not go back so far.
            record.life = Life::Releasing(*hold);
            if let Err(error) = self.world.put(Storable::Task(&record)) {
                tracing::warn!(task = %id, %error, "that task {id} was released is not stored: {error}");
            }
        }
        if record.frozen
            && verdict != Verdict::GoesOn
            && let Some(group) = &group
            && let Err(error) = self.world.freeze(group, false)
        {
            tracing::error!(task = %id, %error, "task {id}, which an earlier lrsd froze, stays frozen: {error}");
        }
        let undone = match verdict {
            Verdict::RollBack => self.give_back(id, group.as_ref(), Unfinished::Admission),
            Verdict::FinishRelease => self.give_back(id, group.as_ref(), Unfinished::Release),
            Verdict::GoesOn | Verdict::Ended | Verdict::Over => true,
        };
        let stored = Box::new(record.clone());
        let group_use = self.restore.take(record, seen, verdict, undone);
        self.leave(id, group, group_use);
        if let Some(left) = self.left.get_mut(&id) {
            left.record = Some(stored);
        }
    }

    fn left_behind(&mut self, task: TaskId, group: Group) {
        self.left.insert(task, Leftover { task, group: Arc::new(group), record: None });
    }

    fn leave(&mut self, id: TaskId, group: Option<Group>, group_use: GroupUse) {
        match group_use {
            GroupUse::InUse => self.groups.extend(group.map(|group| (id, group))),
            GroupUse::Unneeded => match group {
                // Released while others had frozen or stopped it.
                Some(group)
                    if group.record.attachment == Attachment::Own && self.has_processes(&group) =>
                {
                    self.left_behind(id, group);
                }
                group => self.remove.extend(group.map(|group| (id, group))),
            },
            GroupUse::GivenBack => {}
        }
    }

    fn group_of(&mut self, record: &Task, own: Option<Group>) -> Option<Group> {
        match (&record.group, own) {
            (Some(stored), own) if stored.attachment != Attachment::Own => {
                self.remove.extend(own.map(|own| (record.id, own)));
                self.reopen(record.id, stored)
            }
            (Some(stored), None) => self.reopen(record.id, stored),
            (stored, own) => own.map(|mut group| {
                // The record may be older than the group; it knows where the process was.
                group.record.origin.clone_from(&record.who.origin);
                if let Some(stored) = stored {
                    group.record.elsewhere.clone_from(&stored.elsewhere);
                }
                self.world.presumed(&group.record)
            }),
        }
    }

    fn reopen(&self, id: TaskId, stored: &GroupRecord) -> Option<Group> {
        match self.world.reopen(stored) {
            Ok(group) => group,
            Err(error) => {
                tracing::error!(task = %id, %error, "the cgroup of task {id} cannot be opened, so the task goes on: {error}");
                Some(self.world.presumed(stored))
            }
        }
    }

    fn main_lives(&self, record: &Task) -> bool {
        record.who.process.is_some_and(|process| self.world.lives(process))
    }

    /// As far as that can be read.
    fn has_processes(&self, group: &Group) -> bool {
        self.world.members(group, None).is_ok_and(|processes| !processes.is_empty())
    }

    fn occupied(&self, record: &Task, group: Option<&Group>) -> bool {
        let Some(group) = group else { return false };
        if self.observing || group.record.attachment == Attachment::None {
            return self.main_lives(record);
        }
        match self.world.members(group, None) {
            Ok(processes) => !processes.is_empty(),
            Err(error) => {
                let id = record.id;
                tracing::error!(task = %id, %error, "cannot tell whether task {id} is over, so it goes on: {error}");
                true
            }
        }
    }

    /// Processes and weights of a group go back.
    fn give_back(&mut self, id: TaskId, group: Option<&Group>, what: Unfinished) -> bool {
        let Some(group) = group else { return true };
        match self.world.release(group, what == Unfinished::Release) {
            Ok(None) => true,
            Ok(Some(_)) => {
                self.left_behind(id, group.clone());
                true
            }
            Err(error) => {
                let (what, remedy) = match what {
                    Unfinished::Attach => ("attach", "undone"),
                    Unfinished::Admission => ("admission", "undone"),
                    Unfinished::Release => ("release", "finished"),
                };
                tracing::error!(task = %id, %error, "the half-done {what} of task {id} cannot be {remedy}, so it goes on: {error}");
                false
            }
        }
    }
}
