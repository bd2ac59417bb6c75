//! Noticing that a task is over: when no process is left in its cgroup and below.
//!
//! The main process is watched by its pidfd. When it ends and others are left, each of those
//! gets a pidfd too, re-scanned until a pass finds none unwatched; the last of them to end
//! ends the task. `cgroup.events` and a re-check every cycle stand behind that.

use serde_json::{Map, Value, json};

use super::Driver;
use super::entry::Placement;
use super::watch::Ready;
use super::worker::Job;
use crate::cgroup::{Attached, Attachment, CgroupError};
use crate::core::event::EventKind;
use crate::core::model::TaskId;
use crate::core::state::Ending;
use crate::core::step::Input;
use crate::units::{Moment, Pid, Share};

/// Passes over a group whose processes come and go; then the other sources take over.
const MOST_PASSES: usize = 64;

/// Processes of one task watched at once, so that no task takes all descriptors.
const MOST_WATCHED: usize = 64;

/// What a look at a group found.
enum Left {
    /// Processes, all of them watched.
    Some,
    /// Nobody.
    None,
    /// Its main process lives on elsewhere: somebody moved it out.
    MovedAway,
}

impl Driver {
    /// Takes all ends of processes of a turn together, so that no task that ended in the same
    /// instant is promoted.
    pub(super) fn processes_ended(&mut self, ready: &[Ready], now: Moment) {
        let mut suspects = Vec::new();
        for event in ready {
            match event {
                Ready::Exit(id, pid) => {
                    if let Some(entry) = self.entries.get_mut(id) {
                        entry.watched.remove(pid);
                        if entry.process.is_some_and(|main| main.pid == *pid) {
                            entry.main_exited = true;
                            self.touched.tasks.insert(*id);
                        }
                        suspects.push(*id);
                    }
                }
                Ready::Group(id) => suspects.push(*id),
                Ready::Commands | Ready::Messages => {}
            }
        }
        if !suspects.is_empty() {
            suspects.sort_unstable();
            suspects.dedup();
            self.check_ended(&suspects, now);
        }
    }

    /// Ends those of `suspects` that have no process left.
    pub(super) fn check_ended(&mut self, suspects: &[TaskId], now: Moment) {
        let mut ended = Vec::new();
        for &id in suspects {
            let placed =
                self.entries.get(&id).is_some_and(|entry| entry.phase == Placement::Placed);
            if !placed {
                continue;
            }
            match self.look_for_processes(id) {
                Left::Some => {}
                Left::None => ended.push(id),
                Left::MovedAway => self.moved_away(id, now),
            }
        }
        if ended.is_empty() {
            return;
        }
        // Each microsecond until the promoted task has its weights counts; the figures of those
        // that ended can be read after.
        self.feed(Input::Ended(ended.clone()), now);
        let endings = ended.iter().map(|id| (*id, self.ending(*id, now))).collect();
        self.feed(Input::Figures(endings), now);
        for id in ended {
            self.clean_up(id);
        }
    }

    fn look_for_processes(&mut self, id: TaskId) -> Left {
        for _ in 0..MOST_PASSES {
            let Some(entry) = self.entries.get(&id) else { return Left::Some };
            let main_lives = !entry.main_exited && entry.process.is_some();
            if entry.attachment() == Attachment::None {
                // Without a cgroup a task is its main process.
                return if main_lives { Left::Some } else { Left::None };
            }
            let Some(group) = entry.group.clone() else { return Left::Some };
            let processes = match self.tree.processes(&group) {
                Ok(processes) => processes,
                Err(error) => {
                    tracing::warn!(task = %id, %error, "cannot tell whether task {id} is over: {error}");
                    return Left::Some;
                }
            };
            if processes.is_empty() {
                return if main_lives { Left::MovedAway } else { Left::None };
            }
            if main_lives || self.watch_all(id, &processes) {
                return Left::Some;
            }
        }
        tracing::debug!(task = %id, "the processes of task {id} change faster than they can be watched; cgroup.events and the next cycle tell when it is over");
        Left::Some
    }

    /// Watches every process of a task whose main process has ended. `false`: one of them was
    /// gone already, so another look is due.
    fn watch_all(&mut self, id: TaskId, processes: &[Pid]) -> bool {
        let mut all_there = true;
        for pid in processes {
            let Some(entry) = self.entries.get_mut(&id) else { return true };
            if entry.watched.contains_key(pid) {
                continue;
            }
            if entry.watched.len() >= MOST_WATCHED {
                // When these have ended the rest gets its turn; cgroup.events tells too.
                break;
            }
            match self.watcher.watch_process(id, *pid) {
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

    /// Figures for the `completed` event, read before the group goes.
    pub(super) fn ending(&mut self, id: TaskId, now: Moment) -> Ending {
        let (Some(task), Some(entry)) = (self.core.vacated(id), self.entries.get_mut(&id)) else {
            return Ending::default();
        };
        let last = entry
            .group
            .as_ref()
            .and_then(|group| crate::sample::read_final(&group.dirs))
            .filter(|_| entry.attachment() != Attachment::None)
            // A group that counts no CPU time would unsay what was read of its processes.
            .filter(|sample| {
                sample.cpu.is_some() || entry.last.is_none_or(|(_, last)| last.cpu.is_none())
            });
        if let Some(sample) = last {
            let spread = self
                .node_last
                .as_ref()
                .and_then(|(_, node)| node.allowed_cpus)
                .unwrap_or(self.cpus);
            entry.finish(now.boot, sample, self.cpus, spread);
        }
        let mut inputs = Map::new();
        let cpu = entry.since_admission().cpu;
        inputs.insert("cpu_seconds".into(), json!(cpu.map(|cpu| cpu.as_secs_f64())));
        let elapsed = now.boot.since(task.admitted_at.boot).as_secs_f64();
        let elapsed = (!entry.lost).then_some(elapsed);
        inputs.insert("elapsed_seconds".into(), json!(elapsed));
        let raw = entry.meter.computing_rate_raw().map(Share::value);
        inputs.insert("computing_rate_raw".into(), json!(raw));
        Ending { at: Some(now.wall), rate: entry.meter.computing_rate(), inputs }
    }

    /// Forgets a task that has ended; its group goes in the background.
    pub(super) fn clean_up(&mut self, id: TaskId) {
        let Some(mut entry) = self.forget_entry(id) else { return };
        for (_, key) in std::mem::take(&mut entry.watched) {
            self.watcher.forget_process(key);
        }
        self.watcher.forget_group(id);
        if self.sources_new.remove(&id).is_none() {
            self.sources_gone.push(id);
        }
        self.touched.tasks.insert(id);
        // A contested one has what its owner said last.
        if let Some(unit) = entry.unit.take().filter(|_| !entry.contested) {
            // Systemd's call, so elsewhere; the record stays until it has the weights back.
            return self.restore_unit(id, entry.group.take(), unit, None);
        }
        match entry.group.take() {
            Some(group) if group.record.attachment == Attachment::Own => {
                self.workers.place(Job::Remove { task: id, group });
            }
            // Its owner gets its weights back, unless it has written others since. At once, and
            // before the record that knows them goes.
            Some(group) if !entry.contested => {
                if let Err(error) = super::worker::remove(&*self.tree, &group) {
                    let cgroup = &group.record.path;
                    tracing::warn!(task = %id, cgroup, %error, "the weights found in {cgroup} were not given back at the end of task {id}: {error}");
                }
            }
            _ => {}
        }
        if self.unrestored.contains_key(&id) {
            // It still tells what systemd has to get back.
            return;
        }
        // Last: until here a crash leaves a record whose end is in the history.
        let removed = self.store.remove_task(id);
        self.noted(removed);
    }

    /// The main process is not in its group any more: back with it, within bounds.
    pub(super) fn moved_away(&mut self, id: TaskId, now: Moment) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let (Some(process), Some(group)) = (entry.process, entry.group.clone()) else { return };
        if entry.phase != Placement::Placed || entry.moving_back || !super::process::alive(process)
        {
            // It is on its way back, or ending; its pidfd says so in a moment.
            return;
        }
        let in_place = entry.attachment() == Attachment::InPlace;
        // Unreadable counts as occupied, as in [`Driver::give_way`].
        let occupied = |left: Vec<Pid>| !left.is_empty();
        if entry.contested && self.tree.processes(&group).map_or(true, occupied) {
            return;
        }
        let found = super::process::cgroup_paths(process.pid).join(" ");
        let mut inputs = Map::new();
        inputs.insert("cgroup".into(), json!(group.record.path));
        inputs.insert("found_in".into(), json!(found));
        let pid = process.pid;
        let outside = format!("process {pid} was moved out of the task's cgroup");
        if !in_place && !entry.repaired(now.boot) {
            let (kin, found) = (entry.kin(), entry.found.is_some());
            let owner = self.entries.get(&id).and_then(|entry| self.owner_only(entry));
            let bound = found || owner.is_some();
            let escaped = || self.tree.escapes_limits_into(process, &group.record.path);
            if let Some(limit) = bound.then(escaped).flatten() {
                // One that has ended meanwhile has a pidfd that says so in a moment.
                if super::process::alive(process) {
                    let why = format!("{outside} and stays there: {limit}");
                    self.give_way(id, &why, inputs, now);
                }
                return;
            }
            let reason = format!("{outside}; moving it back");
            self.note(EventKind::Drift, Some(id), reason, inputs, now);
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.moving_back = true;
                self.workers.place(Job::Reattach { task: id, process, kin, owner, group });
            }
            return;
        }
        self.give_way(id, &format!("{outside} by somebody else"), inputs, now);
    }

    /// The main process stays outside of the task's cgroup: the task is what is left inside, and
    /// over without that.
    fn give_way(&mut self, id: TaskId, why: &str, inputs: Map<String, Value>, now: Moment) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let Some(group) = entry.group.clone() else { return };
        entry.contested = true;
        let in_place = entry.attachment() == Attachment::InPlace;
        // Unreadable counts as occupied: giving up is the one step that cannot be undone.
        let others = self.tree.processes(&group).map_or(true, |left| !left.is_empty());
        let rest = if others { "what is left in it" } else { "nothing any more" };
        let reason = format!("{why}; the task is {rest}");
        self.note(EventKind::Contested, Some(id), reason, inputs, now);
        self.touched.tasks.insert(id);
        if others {
            return;
        }
        if in_place {
            self.feed(Input::Released(id), now);
            self.clean_up(id);
        } else if let Some(entry) = self.entries.get_mut(&id) {
            // Found again, it would be fought over again. Processes may be left inside; they are given back like those of any release.
            entry.phase = Placement::Releasing;
            self.let_go(id);
            self.store_task(id);
            self.workers.place(Job::Release { task: id, group });
        }
    }

    /// Others than its owner's are in the group of a task in place: it gets its weights back, and
    /// is no task any more.
    pub(super) fn entered(&mut self, id: TaskId, error: CgroupError, now: Moment) {
        let Some(entry) = self.entries.get(&id) else { return };
        if entry.phase != Placement::Placed || !matches!(error, CgroupError::Denied(_)) {
            // Most likely its last process is ending right now; else the next cycle tells.
            tracing::debug!(task = %id, %error, "whose processes task {id} has is not known: {error}");
            return;
        }
        let reason = format!("the cgroup is left alone from now on: {error}");
        self.note(EventKind::Contested, Some(id), reason, Map::new(), now);
        self.feed(Input::Released(id), now);
        self.clean_up(id);
    }

    pub(super) fn reattached(
        &mut self,
        id: TaskId,
        result: Result<Attached, CgroupError>,
        now: Moment,
    ) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.moving_back = false;
            entry.placed_at = now.boot;
            entry.repaired_in_all += u64::from(result.is_ok());
        }
        match result {
            Ok(_) => self.check_ended(&[id], now),
            // It is ending: its pidfd says so in a moment.
            Err(CgroupError::ProcessGone(_)) => {}
            // It is somebody else's by now; there is nothing to fight for.
            Err(CgroupError::Denied(reason)) => {
                let why = format!("its processes were not moved back: {reason}");
                self.give_way(id, &why, Map::new(), now);
            }
            Err(error) => {
                let reason = format!("its processes were not moved back: {error}");
                self.note(EventKind::Drift, Some(id), reason, Map::new(), now);
            }
        }
    }
}
