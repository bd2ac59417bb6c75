//! What a path names: the manager, one task, or a directory on the way to them.
//!
//! A task's object is there as long as the snapshot has the task. Nothing is known here of who
//! calls and of what an object answers (see [`super::object`]).

use std::sync::Arc;

use crate::core::model::TaskId;
use crate::proto;
use crate::publish::Snapshot;

/// The manager, and the ObjectManager of all tasks.
pub const MANAGER_PATH: &str = "/org/lrs/Shaper1";
/// Tasks are objects right below.
pub const TASKS_PATH: &str = "/org/lrs/Shaper1/task";

/// What a path names.
#[derive(Clone, Debug)]
pub(super) enum Object {
    /// Only on the way to the others; the name of its child.
    Directory(&'static str),
    Manager,
    /// The parent of all tasks.
    Tasks,
    Task(Arc<proto::Task>),
}

impl Object {
    pub(super) fn at(path: &str, snapshot: &Snapshot) -> Option<Object> {
        match path {
            "/" => return Some(Object::Directory("org")),
            "/org" => return Some(Object::Directory("lrs")),
            "/org/lrs" => return Some(Object::Directory("Shaper1")),
            MANAGER_PATH => return Some(Object::Manager),
            TASKS_PATH => return Some(Object::Tasks),
            _ => {}
        }
        let name = path.strip_prefix(TASKS_PATH)?.strip_prefix('/')?;
        let id: TaskId = name.replace('_', "-").parse().ok()?;
        // One path for each task: what only reads like its name is none.
        let task = snapshot.tasks.get(&id).filter(|_| path == task_path(&id.to_string()))?;
        Some(Object::Task(Arc::clone(task)))
    }
}

/// The path of a task. Ids are `[a-z0-9-]`, paths have no `-`.
pub(super) fn task_path(id: &str) -> String {
    format!("{TASKS_PATH}/{}", id.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_one_task_and_nothing_else() {
        let id = TaskId { epoch: 1, number: 2 };
        let mut snapshot = Snapshot::default();
        snapshot.tasks.insert(id, Arc::default());
        let at = |path: &str| Object::at(path, &snapshot);
        let path = task_path(&id.to_string());
        assert!(matches!(at(&path), Some(Object::Task(_))), "{path}");
        assert!(matches!(at(MANAGER_PATH), Some(Object::Manager)));
        assert!(matches!(at(TASKS_PATH), Some(Object::Tasks)));
        for other in ["/org/lrs/Shaper1/task/t0000001_3", "/org/lrs/Shaper1/task/x", "/org/lrs/S"] {
            assert!(at(other).is_none(), "{other}");
        }
        assert!(at(&path.replace("t0000001", "t1")).is_none());
    }
}
