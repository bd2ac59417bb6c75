//! The groups of others that are tasks, by path: which task is in the way of another.
//!
//! Each found task is compared with all of them on the loop, twice; a walk over a thousand entries
//! would cost more than the rest of what is done for it. Only the path counts, and as whole names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use crate::group::is_within;
use lrs_core::model::TaskId;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// More than one where a unit waits for what was taken meanwhile, or records are damaged.
    by_path: BTreeMap<String, BTreeSet<TaskId>>,
    by_task: HashMap<TaskId, String>,
}

impl Taken {
    /// The group of `task` is the one at `path`, from now on.
    pub(super) fn put(&mut self, task: TaskId, path: &str) {
        self.forget(task);
        self.by_path.entry(path.to_owned()).or_default().insert(task);
        self.by_task.insert(task, path.to_owned());
    }

    /// The task has none.
    pub(super) fn forget(&mut self, task: TaskId) {
        let Some(path) = self.by_task.remove(&task) else { return };
        let Some(tasks) = self.by_path.get_mut(&path) else { return };
        tasks.remove(&task);
        if tasks.is_empty() {
            self.by_path.remove(&path);
        }
    }

    /// The task with `path` as its group, or above it.
    pub(super) fn holding(&self, path: &str) -> Option<TaskId> {
        self.above(path).next()
    }

    /// A task other than `except` with `path` as its group, or above or below it: editing the weight
    /// of one changes what the other gets.
    pub(super) fn overlapping(&self, path: &str, except: Option<TaskId>) -> Option<TaskId> {
        let below = self
            .by_path
            .range::<str, _>((Bound::Excluded(path), Bound::Unbounded))
            .take_while(|(other, _)| other.starts_with(path))
            .filter(|(other, _)| is_within(other, path))
            .flat_map(|(_, tasks)| tasks.iter().copied());
        self.above(path).chain(below).find(|task| Some(*task) != except)
    }

    /// At `path` and above, from the bottom.
    fn above<'a>(&'a self, path: &'a str) -> impl Iterator<Item = TaskId> + 'a {
        let ends = path.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
        let paths: Vec<&str> = ends.chain([path.len()]).map(|end| &path[..end]).collect();
        let found = paths.into_iter().rev().filter_map(|path| self.by_path.get(path));
        found.flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> TaskId {
        TaskId { epoch: 1, number }
    }

    #[test]
    fn groups_are_in_the_way_when_one_is_within_the_other() {
        let mut taken = Taken::default();
        taken.put(id(1), "/yarn/c1");
        let overlapping = |taken: &Taken, path| taken.overlapping(path, None);
        for path in ["/yarn/c1", "/yarn/c1/step", "/yarn"] {
            assert_eq!(overlapping(&taken, path), Some(id(1)), "{path}");
            assert_eq!(taken.overlapping(path, Some(id(1))), None, "its own: {path}");
        }
        for path in ["/yarn/c10", "/yarn/c", "/yar", "/yarn/c2", "/other/yarn/c1"] {
            assert_eq!(overlapping(&taken, path), None, "{path}");
        }
        taken.put(id(2), "/yarn/c10");
        assert_eq!(taken.overlapping("/yarn/c1", Some(id(1))), None, "not below it");
        assert!(overlapping(&taken, "/yarn").is_some());
        assert_eq!(taken.overlapping("/yarn", Some(id(1))), Some(id(2)));
        assert_eq!(taken.overlapping("/yarn", Some(id(2))), Some(id(1)));
    }

    #[test]
    fn a_process_is_in_the_group_next_above_it() {
        let mut taken = Taken::default();
        taken.put(id(1), "/slurm/job_7");
        assert_eq!(taken.holding("/slurm/job_7"), Some(id(1)));
        assert_eq!(taken.holding("/slurm/job_7/step_0/x"), Some(id(1)));
        assert_eq!(taken.holding("/slurm/job_70"), None);
        assert_eq!(taken.holding("/slurm"), None);
        assert_eq!(taken.holding("/"), None);
        taken.put(id(2), "/slurm/job_7/step_0");
        assert_eq!(taken.holding("/slurm/job_7/step_0/x"), Some(id(2)));
    }

    #[test]
    fn a_task_has_one_group_and_leaves_that_of_another() {
        let mut taken = Taken::default();
        taken.put(id(1), "/a");
        taken.put(id(1), "/b");
        assert_eq!((taken.holding("/a"), taken.holding("/b")), (None, Some(id(1))));
        taken.put(id(2), "/b");
        assert_eq!(taken.overlapping("/b", Some(id(2))), Some(id(1)), "the later one is refused");
        taken.forget(id(1));
        assert_eq!(taken.holding("/b"), Some(id(2)), "damaged records may name one twice");
        taken.forget(id(2));
        assert!(taken.by_path.is_empty() && taken.by_task.is_empty());
    }
}
