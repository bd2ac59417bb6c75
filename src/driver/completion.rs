//! Noticing that a task is over: when no process is left in its cgroup and below.
//!
//! The main process is watched by its pidfd. When it ends and others are left, each of those
//! gets a pidfd too, re-scanned until a pass finds none unwatched; the last of them to end
//! ends the task. `cgroup.events` and a re-check every cycle stand behind that.

use serde_json::{Map, json};

use super::Driver;
use super::entry::Placement;
use super::watch::Ready;
use super::worker::Job;
use crate::cgroup::Attachment;
use crate::core::model::TaskId;
use crate::core::state::Ending;
use crate::units::{Moment, Pid, Share};

/// Passes over a group whose processes come and go; then the other sources take over.
const MOST_PASSES: usize = 64;

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
                            self.changed.insert(*id);
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
        let mut endings = Vec::new();
        for &id in suspects {
            let placed =
                self.entries.get(&id).is_some_and(|entry| entry.phase == Placement::Placed);
            if !placed {
                continue;
            }
            match self.look_for_processes(id) {
                Left::Some => {}
                Left::None => endings.push((id, self.ending(id, now))),
                Left::MovedAway => self.moved_away(id, now),
            }
        }
        if endings.is_empty() {
            return;
        }
        let ended: Vec<TaskId> = endings.iter().map(|(id, _)| *id).collect();
        self.core.ended(endings, now);
        self.carry_out(now);
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
                    tracing::warn!(task = %id, %error, "cannot tell whether the task is over");
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
        tracing::warn!(task = %id, "its processes change faster than they can be watched; cgroup.events and the next cycle tell when it is over");
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
            match self.watcher.watch_process(id, *pid) {
                Ok(Some(key)) => {
                    entry.watched.insert(*pid, key);
                }
                Ok(None) => all_there = false,
                Err(error) => {
                    // Most likely out of descriptors: the other two sources remain.
                    tracing::debug!(task = %id, %pid, %error, "process not watched");
                }
            }
        }
        all_there
    }

    /// Figures for the `completed` event, read before the group goes.
    pub(super) fn ending(&mut self, id: TaskId, now: Moment) -> Ending {
        let (Some(task), Some(entry)) = (self.core.task(id), self.entries.get_mut(&id)) else {
            return Ending::default();
        };
        let last = entry
            .group
            .as_ref()
            .and_then(|group| crate::sample::read_final(&group.dirs))
            .filter(|_| entry.attachment() != Attachment::None);
        if let Some(sample) = last {
            let spread = self
                .node_last
                .as_ref()
                .and_then(|(_, node)| node.allowed_cpus)
                .unwrap_or(self.cpus);
            entry.advance(now.boot, sample, self.cpus, spread);
        }
        let mut inputs = Map::new();
        let cpu = entry.since_admission().cpu;
        inputs.insert("cpu_seconds".into(), json!(cpu.map(|cpu| cpu.as_secs_f64())));
        let elapsed = now.boot.since(task.admitted_at.boot).as_secs_f64();
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
        self.sources_gone.push(id);
        self.changed.insert(id);
        if let Some(group) = entry.group.take()
            && group.record.attachment == Attachment::Own
        {
            self.workers.place(Job::Remove { task: id, group });
        }
        // Last: until here a crash leaves a record whose end is in the history.
        let removed = self.store.remove_task(id);
        self.noted(removed);
    }

    /// Somebody moved the main process out: it is moved back, until LRS stops fighting. Then the
    /// task is what is left in its group, and nothing left is no task.
    pub(super) fn moved_away(&mut self, id: TaskId, now: Moment) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.phase != Placement::Placed {
            return;
        }
        let (Some(process), Some(group)) = (entry.process, entry.group.clone()) else { return };
        if !self.tree.holds(&group, process).is_ok_and(|holds| !holds)
            && entry.attachment() == Attachment::Own
        {
            // Back already, or ending: its pidfd says so in the next turn.
            return;
        }
        if !super::process::alive(process) {
            // It has just ended; its pidfd says so in the next turn.
            return;
        }
        let in_place = entry.attachment() == Attachment::InPlace;
        let found = super::process::cgroup_paths(process.pid).join(" ");
        let mut inputs = Map::new();
        inputs.insert("cgroup".into(), json!(group.record.path));
        inputs.insert("found_in".into(), json!(found));
        if !in_place && !entry.contested && !entry.repaired(now.boot) {
            let reason =
                format!("process {} was moved out of the task's cgroup; moved back", process.pid);
            self.core.note(crate::core::event::EventKind::Drift, Some(id), reason, inputs, now);
            self.workers.place(Job::Reattach { task: id, process, group });
            return;
        }
        let left = self.tree.processes(&group).is_ok_and(|processes| !processes.is_empty());
        if left && entry.contested {
            let reason = format!(
                "process {} was moved out of the task's cgroup again and again; it is left alone, \
                 the task is what is in the cgroup still",
                process.pid
            );
            self.core.note(crate::core::event::EventKind::Contested, Some(id), reason, inputs, now);
            self.changed.insert(id);
            return;
        }
        let reason = format!(
            "process {} was moved out of the task's cgroup by somebody else; the task is given up",
            process.pid
        );
        self.core.note(crate::core::event::EventKind::Contested, Some(id), reason, inputs, now);
        // It may be outside in one hierarchy only: what it still is inside of is left properly.
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.phase = Placement::Releasing;
        }
        self.workers.place(Job::Release { task: id, group });
    }

    pub(super) fn reattached(
        &mut self,
        id: TaskId,
        result: Result<crate::cgroup::Attached, crate::cgroup::CgroupError>,
        now: Moment,
    ) {
        if let Err(error) = result {
            tracing::warn!(task = %id, %error, "processes were not moved back");
        }
        self.check_ended(&[id], now);
    }
}
