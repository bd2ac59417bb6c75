//! Noticing that a task is over: when no process is left in its cgroup and below.
//!
//! The main process is watched by its pidfd. When it ends and others are left, each of those
//! gets a pidfd too, re-scanned until a pass finds none unwatched; the last of them to end
//! ends the task. `cgroup.events` and a re-check every cycle stand behind that.

use std::sync::Arc;
use std::time::Duration;

use super::Executor;
use super::discovered::Place;
use super::job::GroupJob;
use super::turn::End;
use super::world::{Move, Whereabouts, World};
use crate::group::{Attached, Attachment, CgroupError, Group, Members, Reach};
use lrs_core::model::TaskId;
use lrs_core::name;
use lrs_core::slots::Seat;
use lrs_core::step::{Input, Last, NotMoved, Whither};
use lrs_core::task::{Finder, Hold, Task};
use lrs_core::units::Pid;

/// Passes over a group in which processes come and go; then the other sources take over.
const MOST_PASSES: usize = 64;

/// Processes of one task watched at once, so that no task takes all descriptors.
const MOST_WATCHED: usize = 64;

/// How long after its last process left it the group of a task in place may be removed by its owner;
/// after that the process counts as moved out.
const REMOVED_WITHIN: Duration = Duration::from_secs(1);

/// A group in place of which the main process has gone elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emptied {
    /// Others are in it, or it stays there.
    No,
    /// It has been empty for a moment.
    JustNow,
    /// Its owner removed it: the task is over, whatever the process goes on to do.
    Removed,
}

/// The processes of a group.
enum GroupContents {
    /// Processes, all of them watched.
    Some,
    /// No process.
    None,
    /// Its main process lives on elsewhere: it was moved out.
    MovedAway,
}

impl<W: World> Executor<'_, W> {
    /// Takes the ends of processes of a turn; answers the tasks that may be over.
    pub(super) fn take_exits(&mut self, ends: &[End]) -> Vec<TaskId> {
        let mut suspects = Vec::new();
        for end in ends {
            match end {
                End::Process(id, pid) => {
                    if let Some(entry) = self.state.entries.get_mut(id) {
                        entry.watched.remove(pid);
                        suspects.push(*id);
                    }
                    let task = self.core.task(*id);
                    if task.is_some_and(|task| self.state.mains_ended.ended(task, *pid)) {
                        self.main_exited(*id);
                    }
                }
                End::Group(id) => suspects.push(*id),
            }
        }
        suspects.sort_unstable();
        suspects.dedup();
        suspects
    }

    /// Ends those of `suspects` that have no process left.
    pub(super) fn check_ended(&mut self, suspects: &[TaskId]) {
        let mut ended = Vec::new();
        for &id in suspects {
            if !self.core.task(id).is_some_and(Task::is_placed) {
                continue;
            }
            let main_lives = self.main_lives(id);
            match self.look_for_processes(id, main_lives) {
                GroupContents::Some => {}
                GroupContents::None => ended.push(id),
                GroupContents::MovedAway if self.moved_away(id) => ended.push(id),
                GroupContents::MovedAway => {}
            }
        }
        self.end(ended);
    }

    /// Ends tasks of which nothing is left.
    pub(super) fn end(&mut self, ended: Vec<TaskId>) {
        if ended.is_empty() {
            return;
        }
        if ended.iter().any(|id| self.core.task(*id).is_some_and(|task| task.seat == Seat::Active))
        {
            self.look_at_next();
        }
        self.push(Input::Ended(ended));
    }

    /// [`lrs_core::step::Job::Figures`].
    pub(super) fn read_figures(&mut self, ended: Vec<TaskId>) {
        let figures = ended.into_iter().map(|id| (id, self.last_figures(id))).collect();
        self.push(Input::Figures(figures));
    }

    /// Whether the main process runs; looked at where no pidfd will say so.
    fn main_lives(&mut self, id: TaskId) -> bool {
        let (Some(task), Some(entry)) = (self.core.task(id), self.state.entries.get(&id)) else {
            return false;
        };
        let Some(main) = task.who.process.filter(|_| !task.main_exited) else { return false };
        if entry.watched.contains_key(&main.pid) || self.state.world.lives(main) {
            return true;
        }
        self.main_exited(id);
        false
    }

    fn look_for_processes(&mut self, id: TaskId, main_lives: bool) -> GroupContents {
        for _ in 0..MOST_PASSES {
            let Some(task) = self.core.task(id) else { return GroupContents::Some };
            let Some(entry) = self.state.entries.get(&id) else { return GroupContents::Some };
            if task.attachment() == Attachment::None {
                // Without a cgroup a task is its main process.
                return if main_lives { GroupContents::Some } else { GroupContents::None };
            }
            let Some(group) = entry.group.clone() else { return GroupContents::Some };
            let processes = match self.processes_of(task, &group) {
                Ok(processes) => processes,
                Err(error) => {
                    tracing::warn!(task = %id, %error, "cannot tell whether task {id} is over: {error}");
                    return GroupContents::Some;
                }
            };
            if processes.is_empty() {
                return if main_lives { GroupContents::MovedAway } else { GroupContents::None };
            }
            if let Some(entry) = self.state.entries.get_mut(&id) {
                entry.emptied = None;
            }
            if main_lives || self.watch_all(id, &processes) {
                return GroupContents::Some;
            }
        }
        tracing::debug!(task = %id, "the processes of task {id} change faster than they can be watched; cgroup.events and the next cycle tell when it is over");
        GroupContents::Some
    }

    /// The processes of a task in its group: those that its rule leaves to a scheduler are not.
    fn processes_of(&self, task: &Task, group: &Group) -> Result<Vec<Pid>, CgroupError> {
        let found = task.who.found.as_ref();
        let rule = found.and_then(|found| match &found.by {
            Finder::Rule(name) => self.state.config.discover.iter().find(|rule| rule.name == *name),
            Finder::Yarn => None,
        });
        self.state.world.members(group, rule.filter(|rule| rule.except.is_some()))
    }

    /// Watches every process of a task, once the main process has ended. `false`: one of them was
    /// gone already, so another look is due.
    fn watch_all(&mut self, id: TaskId, processes: &[Pid]) -> bool {
        let mut all_there = true;
        for pid in processes {
            let Some(entry) = self.state.entries.get_mut(&id) else { return true };
            if entry.watched.contains_key(pid) {
                continue;
            }
            if entry.watched.len() >= MOST_WATCHED {
                // When these have ended the rest gets its turn; cgroup.events tells too.
                break;
            }
            match self.state.world.watch(id, *pid, None, None) {
                Ok(Some(key)) => {
                    entry.watched.insert(*pid, key);
                }
                Ok(None) => all_there = false,
                Err(error) => {
                    // Most likely out of descriptors: the other two sources remain.
                    tracing::debug!(task = %id, %pid, %error, "process {pid} of task {id} is not watched: {error}");
                }
            }
        }
        all_there
    }

    pub(super) fn main_exited(&mut self, id: TaskId) {
        self.push(Input::MainExited(id));
        self.state.touched.tasks.insert(id);
    }

    /// Counters of a task that has ended, read before its group goes.
    fn last_figures(&self, id: TaskId) -> Last {
        let group = self.state.entries.get(&id).and_then(|entry| entry.group.as_ref());
        group
            .filter(|group| group.record.attachment != Attachment::None)
            .and_then(|group| {
                // What a group of its owner's has may be from before the task.
                let is_own = group.record.attachment == Attachment::Own;
                let disks = if is_own { &self.state.whole_disks[..] } else { &[] };
                self.state.world.figures(group, disks)
            })
            .map_or(Last::Unread, Last::Read)
    }

    /// [`lrs_core::step::Job::Remove`]; an own group goes in the background.
    pub(super) fn clean_up(&mut self, task: Task, leave_alone: bool) {
        let id = task.id;
        let Some(mut entry) = self.forget_entry(id, task.who.process) else { return };
        self.state.world.unwatch(id, std::mem::take(&mut entry.watched).into_values());
        // Of one in place that came and went unread the group above counts what it used.
        if !entry.group.as_ref().is_some_and(|group| group.is_in_place()) {
            self.state.sources_new.remove(&id);
        }
        // Always: it may be read by an earlier source, as one that was observed before it got its group.
        self.state.sources_gone.push(id);
        self.state.touched.tasks.insert(id);
        if leave_alone {
            self.state.not_again.extend(task.who.process);
        }
        for reply in std::mem::take(&mut entry.release_replies) {
            self.answer(Some(reply), Ok(()));
        }
        let group = entry.group.take().filter(|_| task.group.is_some());
        if let Some(unit) = task.who.unit {
            // Systemd's call, so elsewhere; the record stays until it has the weights back.
            return self.restore_unit(id, group, unit, None);
        }
        match group {
            Some(group) if group.record.attachment == Attachment::Own => {
                self.begin(GroupJob::Remove { task: id, group });
            }
            // Its owner gets its weights back, unless it has written others since. At once, and
            // before the record that knows them goes.
            Some(group) => {
                if let Err(error) = self.state.world.remove(&group) {
                    let cgroup = &group.record.path;
                    tracing::warn!(task = %id, cgroup, %error, "the weights found in {cgroup} were not given back at the end of task {id}: {error}");
                }
            }
            None => {}
        }
        if self.state.debts.needs_record(id) {
            return;
        }
        // Last: until here a crash leaves a record, and the history has its end.
        self.push(Input::Removed(id));
    }

    /// The main process is not in its group any more: the core decides what is done about it. Answers
    /// whether the task is over.
    pub(super) fn moved_away(&mut self, id: TaskId) -> bool {
        let Some(task) = self.core.task(id).filter(|task| task.is_placed()) else { return false };
        let group = self.state.entries.get(&id).and_then(|entry| entry.group.clone());
        let (Some(process), Some(group)) = (task.who.process, group) else { return false };
        if task.hold() == Hold::MovingBack || !self.state.world.lives(process) {
            // It is on its way back, or ending; its pidfd says so in a moment.
            return false;
        }
        // Unreadable counts as occupied: giving up is the one step that cannot be undone.
        let occupied = self.processes_of(task, &group).map_or(true, |left| !left.is_empty());
        let whereabouts = self.state.world.whereabouts(&group, process);
        let removed = matches!(whereabouts, Ok(Whereabouts::GroupRemoved));
        let emptied = self.emptied(id, &group, occupied, removed);
        if emptied == Emptied::Removed {
            return true;
        }
        let Some(task) = self.core.task(id) else { return false };
        if task.is_contested() && occupied || task.main_exited {
            return false;
        }
        match whereabouts {
            Ok(Whereabouts::WentTo(to)) => return self.went_elsewhere(id, &group, to, occupied),
            Ok(_) if emptied == Emptied::JustNow => return false,
            // An own one that is gone is looked at like one that it left.
            Ok(Whereabouts::Inside | Whereabouts::Elsewhere | Whereabouts::GroupRemoved) => {}
            Err(_) if emptied == Emptied::JustNow => return false,
            // It ends, or is out of sight: what follows says so.
            Err(error) => {
                tracing::debug!(task = %id, %error, "where process {} of task {id} went is not known: {error}", process.pid);
            }
        }
        let position = self.state.world.position(process);
        let found_in = position.map(|position| position.paths.join(" ")).unwrap_or_default();
        let found_in = name::shown(&found_in).into_owned();
        let bound = group.record.attachment == Attachment::Own
            && (task.who.found.is_some() || self.owner_only(task).is_some());
        let escaped = || self.state.world.escaped_limit(process, Move::Into(&group.record.path));
        let limit = bound.then(escaped).flatten();
        if limit.is_some() && !self.state.world.lives(process) {
            // One that has ended meanwhile has a pidfd that says so in a moment.
            return false;
        }
        self.push(Input::Outside { task: id, found_in, limit, occupied });
        self.state.touched.tasks.insert(id);
        false
    }

    /// What the owner of a group in place, in which no process is left, does with it: the supervisor of
    /// a scheduler leaves it to remove it, which takes two steps.
    fn emptied(&mut self, id: TaskId, group: &Group, occupied: bool, removed: bool) -> Emptied {
        let Some(entry) = self.state.entries.get_mut(&id) else { return Emptied::No };
        if occupied || group.record.attachment != Attachment::InPlace {
            entry.emptied = None;
            return Emptied::No;
        }
        if removed {
            return Emptied::Removed;
        }
        let since = *entry.emptied.get_or_insert(self.now.boot);
        if self.now.boot.since(since) < REMOVED_WITHIN { Emptied::JustNow } else { Emptied::No }
    }

    /// The main process went into the group `to`, made after the task's, and is left there.
    fn went_elsewhere(
        &mut self,
        id: TaskId,
        group: &Arc<Group>,
        to: String,
        occupied: bool,
    ) -> bool {
        let place = match occupied {
            true => None,
            false => self.place_in(id, &to),
        };
        let whither = match (occupied, &place) {
            (true, _) => Whither::Partly,
            (false, Some(_)) => Whither::InPlace,
            (false, None) => Whither::Away,
        };
        self.push(Input::WentElsewhere { task: id, to, whither });
        self.state.touched.tasks.insert(id);
        if let Some(place) = place {
            self.begin(GroupJob::Remove { task: id, group: Arc::clone(group) });
            self.attach_booked(id, place, true);
        }
        whither == Whither::Away
    }

    /// The group `to` of the task's only process, if the task can go on there in place.
    fn place_in(&self, id: TaskId, to: &str) -> Option<Place> {
        let task = self.core.task(id)?;
        let process = task.who.process?;
        let around = self.state.world.surroundings(process, Members::Family, false).ok()??;
        if !around.alone || !around.weighed {
            return None;
        }
        // A group that cannot be taken in place is left alone.
        let group = self.state.world.find_in_place(process, Some(to)).ok()?;
        self.check_in_place(id, &group).ok()?;
        let origin = self.state.world.position(process).ok()?.origin;
        Some(Place { kin: task.kin(), origin, group: Some(group), reach: Reach::All })
    }

    /// Unreadable counts as occupied: giving up is the one step that cannot be undone.
    fn is_occupied(&self, group: &Group) -> bool {
        self.state.world.members(group, None).map_or(true, |left| !left.is_empty())
    }

    /// [`lrs_core::step::Job::Reattach`].
    pub(super) fn begin_reattach(&mut self, id: TaskId) {
        let group = self.state.entries.get(&id).and_then(|entry| entry.group.clone());
        let (Some(task), Some(group)) = (self.core.task(id), group) else { return };
        if let Some(process) = task.who.process {
            let (kin, owner) = (task.kin(), self.owner_only(task));
            self.begin(GroupJob::Reattach { task: id, process, kin, owner, group });
        }
    }

    /// Others than its owner's are in the group of a task in place.
    pub(super) fn entered(&mut self, id: TaskId, error: CgroupError) {
        if !matches!(error, CgroupError::Denied(_)) {
            // Most likely its last process is ending right now; else the next cycle tells.
            tracing::debug!(task = %id, %error, "the owners of the processes of task {id} are not known: {error}");
            return;
        }
        self.push(Input::Entered { task: id, error: error.to_string() });
    }

    /// Answers whether it is back.
    pub(super) fn reattached(&mut self, id: TaskId, result: Result<Attached, CgroupError>) -> bool {
        let Some(entry) = self.state.entries.get_mut(&id) else { return false };
        entry.placed_at = self.now.boot;
        let group = entry.group.clone();
        let result = match result {
            Ok(_) => Ok(()),
            Err(CgroupError::ProcessGone(_)) => Err(NotMoved::Ending),
            Err(CgroupError::Denied(reason)) => {
                let occupied = group.is_none_or(|group| self.is_occupied(&group));
                Err(NotMoved::Denied { reason, occupied })
            }
            Err(error) => Err(NotMoved::Failed(error.to_string())),
        };
        let back = result.is_ok();
        self.push(Input::Reattached { task: id, result });
        self.state.touched.tasks.insert(id);
        back
    }
}
