//! Who waits in the group of the task that it is going to be, and which way it is on (see
//! `shaper/parking.rs`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::model::{TaskId, Ticket};
use super::task::Task;

/// Who is parked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Parking {
    pub parked: BTreeMap<TaskId, Parked>,
    /// The daemon stops.
    pub over: bool,
}

/// One of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Parked {
    /// The task that it is going to be; its record.
    #[serde(with = "crate::recording::whole")]
    pub task: Box<Task>,
    /// Its request; `None`: that was granted, and failed.
    pub ticket: Option<Ticket>,
    pub way: Way,
    /// It has a slot, which waits for the move under way.
    pub granted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Way {
    Entering,
    Inside,
    Leaving,
}

impl Parking {
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.parked.get(&id).map(|parked| &*parked.task)
    }

    pub fn task_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.parked.get_mut(&id).map(|parked| &mut *parked.task)
    }

    /// The requests with their processes in their groups.
    pub fn inside(&self) -> BTreeSet<Ticket> {
        let inside = self.parked.values().filter(|parked| parked.way == Way::Inside);
        inside.filter_map(|parked| parked.ticket).collect()
    }

    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.parked.values().map(|parked| &*parked.task)
    }
}
