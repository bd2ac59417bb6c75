//! The waiting tasks of a job, by where their input is.
//!
//! Sets in order, so that the question of every policy, "has this job a task with its input here?",
//! costs a search in a tree, and the answer does not depend on what was asked before.

use std::collections::BTreeSet;

use crate::placement::ids::{Locality, NodeId, RackId, TaskId};
use crate::placement::task::Task;

/// The waiting tasks of one kind of a job, in order, and by where their input is.
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    all: BTreeSet<TaskId>,
    by_node: BTreeSet<(NodeId, TaskId)>,
    by_rack: BTreeSet<(RackId, TaskId)>,
    /// Those without input, which run equally well anywhere.
    free: BTreeSet<TaskId>,
}

impl Waiting {
    /// How many.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = TaskId> {
        self.all.iter().copied()
    }

    /// The first that `may` run there and has a way to its input no longer than `limit` on a node of a
    /// rack; the shortest way wins. Costs a search in a tree, and a step for each task that may not.
    pub(crate) fn first(
        &self,
        node: NodeId,
        rack: RackId,
        limit: Locality,
        may: impl Fn(TaskId) -> bool,
    ) -> Option<TaskId> {
        let may = |task: &TaskId| may(*task);
        let here = || of(&self.by_node, node).find(may);
        let near = || of(&self.by_rack, rack).find(may);
        let mut found = here().or_else(|| self.free.iter().copied().find(may));
        if limit >= Locality::Rack {
            found = found.or_else(near);
        }
        if limit >= Locality::Remote {
            found = found.or_else(|| self.all.iter().copied().find(may));
        }
        found
    }

    /// One more.
    pub(crate) fn add(&mut self, id: TaskId, task: &Task, racks: &BTreeSet<RackId>) {
        self.all.insert(id);
        self.by_node.extend(task.replicas.iter().map(|node| (*node, id)));
        self.by_rack.extend(racks.iter().map(|rack| (*rack, id)));
        if task.replicas.is_empty() {
            self.free.insert(id);
        }
    }

    /// One less.
    pub(crate) fn remove(&mut self, id: TaskId, task: &Task, racks: &BTreeSet<RackId>) {
        self.all.remove(&id);
        for node in &task.replicas {
            self.by_node.remove(&(*node, id));
        }
        for rack in racks {
            self.by_rack.remove(&(*rack, id));
        }
        self.free.remove(&id);
    }
}

/// What a set has of a node or rack, in order.
fn of<T: Copy + Ord>(set: &BTreeSet<(T, TaskId)>, at: T) -> impl Iterator<Item = TaskId> {
    set.range((at, TaskId(0))..=(at, TaskId(usize::MAX))).map(|(_, task)| *task)
}
