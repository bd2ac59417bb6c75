//! The end of a turn: the snapshot that clients read, and then the answers.

use std::sync::Arc;

use super::Executor;
use super::execute::Touched;
use super::world::World;
use lrs_core::model::TaskId;

/// Up to so many tasks, the jobs are published with every change.
const JOBS_AT_ONCE: usize = 256;

impl<W: World> Executor<'_, W> {
    /// Replaces the snapshot if anything changed, then answers those who asked.
    pub(super) fn publish(&mut self) {
        let Touched { tasks, all, jobs, mut status } = std::mem::take(&mut self.state.touched);
        status |= all || !tasks.is_empty();
        if all {
            let all: Vec<TaskId> = self.state.entries.keys().copied().collect();
            self.state.view.tasks = all
                .into_iter()
                .filter_map(|id| Some((id, Arc::new(self.published(id)?))))
                .collect();
        } else {
            for id in tasks {
                match self.published(id) {
                    Some(task) => self.state.view.tasks.insert(id, Arc::new(task)),
                    None => self.state.view.tasks.remove(&id),
                };
            }
        }
        // A walk over all tasks and jobs: on a large node once a cycle, not once an event.
        if all || jobs && self.state.entries.len() < JOBS_AT_ONCE {
            self.state.view.jobs = Arc::new(self.jobs_view());
            self.state.running = self.running_view(self.now.boot);
            status = true;
        }
        let last_event = self.state.events.last();
        let is_new = std::mem::replace(&mut self.state.view.last_event, last_event) != last_event;
        if status {
            self.state.view.status = Arc::new(self.status_view());
        }
        if status || is_new {
            self.state.snapshot.send_replace(Arc::new(self.state.view.clone()));
        }
        for answer in self.state.answers.drain(..) {
            answer();
        }
    }

    /// A task that is in place; one on its way is not shown yet.
    fn published(&self, id: TaskId) -> Option<lrs_api::proto::Task> {
        let task = self.core.task(id).filter(|task| !task.is_new())?;
        self.task_view(task.id, self.now.boot)
    }
}
