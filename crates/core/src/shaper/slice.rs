//! The slice of a task, by its rate and how many compute; the rule is in [`crate::slice`].

use super::Shaper;
use crate::model::TaskId;
use crate::slice::{Slice, slice_of};

impl Shaper {
    /// The slice that the threads of a task are to have; the kernel's own for one that is not known.
    pub fn slice(&self, id: TaskId) -> Slice {
        let (Some(task), Some(level)) = (self.tasks.get(&id), self.level(id)) else {
            return Slice::Default;
        };
        slice_of(level, self.rate_of(task), f64::from(self.slots.active_used()) > self.cpus.total())
    }
}
