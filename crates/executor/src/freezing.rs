//! What the guard froze and thawed, on the groups.

use std::sync::Arc;

use super::Executor;
use super::world::World;
use crate::group::Group;
use lrs_core::model::TaskId;
use lrs_core::step::Input;

impl<W: World> Executor<'_, W> {
    /// Before anything else of a step: a task that becomes active runs when it gets its weights.
    pub(super) fn thaw(&mut self, id: TaskId) {
        let Some(group) = self.group_of(id) else { return };
        if let Err(error) = self.state.world.freeze(&group, false) {
            tracing::error!(task = %id, %error, "task {id} stays frozen, and every cycle tries again: {error}");
            self.state.debts.thaw(id);
        }
        self.state.touched.tasks.insert(id);
    }

    /// A task that could not be thawed at once, unless the guard has frozen it again since.
    pub(super) fn thaw_again(&mut self, id: TaskId) {
        if !self.core.task(id).is_some_and(|task| task.frozen) {
            self.thaw(id);
            self.store_task(id);
        }
    }

    /// [`lrs_core::step::Job::Freeze`]. `unstored`: its record could not be written, so that a
    /// next daemon would not know of it.
    pub(super) fn freeze(&mut self, id: TaskId, unstored: Option<String>) {
        let frozen = match (unstored, self.group_of(id)) {
            (Some(error), _) => Err(error),
            (None, None) => Err("it has no group".to_owned()),
            (None, Some(group)) => {
                self.state.world.freeze(&group, true).map_err(|error| error.to_string())
            }
        };
        if let Err(reason) = frozen {
            self.push(Input::NotFrozen { task: id, reason });
        }
    }

    fn group_of(&self, id: TaskId) -> Option<Arc<Group>> {
        self.state.entries.get(&id).and_then(|entry| entry.group.clone())
    }
}
