//! Tasks that others froze or stopped, and a root that others froze.
//!
//! The reading thread looks once a cycle at tasks that have just used no CPU, at those that were halted,
//! and at the turn of their weights at the others. The one that would be promoted is looked at before
//! that. What to do about it is the core's.
//!
//! A task that is released while it is halted keeps its group, since a move would thaw it. That group
//! goes with its last process: each cycle tries, and the record stays until then, so that the next daemon
//! knows it too.

use std::sync::Arc;

use super::Executor;
use super::debts::{Debt, Leftover};
use super::world::World;
use crate::group::Group;
use lrs_core::model::TaskId;
use lrs_core::step::{Input, Record};
use lrs_core::task::{Halt, Task};

/// Tasks looked at before one is promoted: of those behind them the next cycle tells.
const MOST_CANDIDATES: usize = 8;

impl<W: World> Executor<'_, W> {
    /// Takes what the reading thread saw. What the guard froze meanwhile was not frozen by others.
    pub(super) fn take_halts(&mut self, mut halts: Vec<(TaskId, Option<Halt>)>) {
        halts.retain(|(id, halt)| {
            let news = |task: &Task| task.halted != *halt && (halt.is_none() || !task.frozen);
            self.core.task(*id).is_some_and(news)
        });
        if !halts.is_empty() {
            self.state.touched.tasks.extend(halts.iter().map(|(id, _)| *id));
            self.push(Input::Halted(halts));
        }
    }

    /// Before an active slot comes free: whether the task that is due can run, and else the next one.
    pub(super) fn look_at_next(&mut self) {
        let mut halts = Vec::new();
        for id in self.core.slots().next_active(MOST_CANDIDATES) {
            let Some(task) = self.core.task(id).filter(|task| !task.frozen) else { break };
            let main = task.who.process.filter(|_| !task.main_exited);
            let entry = self.state.entries.get(&id);
            let Some(group) = entry.and_then(|entry| entry.group.as_ref()) else { break };
            match self.state.world.halt(group, main) {
                Ok(None) => break,
                Ok(Some(halt)) => halts.push((id, Some(halt))),
                Err(error) => {
                    // Most likely its last process is ending right now.
                    tracing::debug!(task = %id, %error, "whether task {id} can run is not known: {error}");
                    break;
                }
            }
        }
        self.take_halts(halts);
    }

    /// Whether the root is frozen, as its files say now.
    pub(super) fn look_at_root(&mut self) {
        let frozen = self.state.world.frozen_root().map_err(|error| error.to_string());
        self.take_root(frozen);
    }

    pub(super) fn take_root(&mut self, frozen: Result<Option<std::path::PathBuf>, String>) {
        let why = match frozen {
            Ok(file) => file.map(|file| {
                format!("the cgroup of all tasks is frozen by others ({} is 1)", file.display())
            }),
            Err(error) => {
                tracing::debug!(%error, "whether the cgroup of all tasks is frozen is not known: {error}");
                return;
            }
        };
        if self.core.why_root_frozen() == why.as_deref() {
            return;
        }
        match &why {
            Some(why) => tracing::warn!("{why}: no task is admitted until it is thawed"),
            None => {
                tracing::info!("the cgroup of all tasks is thawed, and tasks are admitted again")
            }
        }
        self.state.touched.status = true;
        self.push(Input::RootFrozen(why));
    }

    /// Notes a group that keeps its processes after the release.
    pub(super) fn stays(&mut self, id: TaskId, halt: Option<Halt>) {
        let Some(halt) = halt else { return };
        let Some(group) = self.state.entries.get(&id).and_then(|entry| entry.group.clone()) else {
            return;
        };
        let word = match halt {
            Halt::Frozen => "frozen",
            Halt::Stopped => "stopped",
        };
        let cgroup = &group.record.path;
        tracing::warn!(task = %id, cgroup, "task {id} is released and {word} by others: its processes stay in {cgroup}, with neutral weights, and that goes with the last of them");
        let record = self.core.task(id).cloned().map(Box::new);
        self.state.debts.push(Debt::Leftover(Leftover { task: id, group, record }));
    }

    /// Removes the group that a released task left behind, once it is empty, and its record. Answers whether
    /// it did.
    pub(super) fn remove_leftover(&mut self, id: TaskId, group: &Arc<Group>) -> bool {
        let occupied = |processes: Vec<_>| !processes.is_empty();
        if self.state.world.members(group, None).map_or(true, occupied) {
            return false;
        }
        if let Err(error) = self.state.world.remove(group) {
            tracing::debug!(task = %id, %error, "the cgroup of task {id} stays until the next cycle: {error}");
            return false;
        }
        self.forget(Record::Task(id));
        true
    }
}
