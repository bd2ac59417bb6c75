//! What the loop owes the node: what could not be done when it was due. Each cycle tries it again, in the
//! order in which it became due, until it is done.
//!
//! A daemon that is killed leaves nothing owed behind: the next one finds the record of the task, which
//! stays until all is done, or its group, which has the name of the task.
//!
//! Limits. A list that is searched from its start: what is owed is little, or the node is in trouble.

use std::sync::Arc;

use super::Executor;
use super::job::GroupJob;
use super::world::World;
use crate::group::Group;
use lrs_core::model::TaskId;
use lrs_core::step::Record;
use lrs_core::task::Task;
use lrs_core::unit::{UnitName, UnitRecord};

/// One thing that is owed.
#[derive(Debug)]
pub(super) enum Debt {
    /// A record is to be removed, as soon as state can be stored (`Executor::store_again`).
    Forgetting(Record),
    /// The group of a task that has ended is to be removed.
    Removal { task: TaskId, group: Arc<Group> },
    /// The group of a task that was released while it was halted is to be removed with its last process.
    Leftover(Leftover),
    /// A task is to be thawed.
    Thaw(TaskId),
    /// A waiter is to be put back where it was before it was parked.
    Unparking(TaskId),
    /// systemd is to get back what the unit of a task that is over had.
    Unit(UnitDebt),
}

/// What a task left behind that was released while it was halted.
#[derive(Debug)]
pub(super) struct Leftover {
    pub(super) task: TaskId,
    pub(super) group: Arc<Group>,
    /// What its record says until the group is gone: should the write of it fail, or the file be removed, a
    /// next daemon might go on with a task that is over. `None`: there is no record.
    pub(super) record: Option<Box<Task>>,
}

/// What systemd has yet to get back.
#[derive(Debug)]
pub(super) struct UnitDebt {
    /// The task that is over.
    pub(super) task: TaskId,
    /// Its unit, and how it was.
    pub(super) unit: UnitRecord,
    /// It is being given back.
    pub(super) asked: bool,
    /// The log has it that this is late.
    pub(super) late: bool,
}

/// All that is owed, in the order in which it became due.
#[derive(Debug, Default)]
pub(super) struct Debts(Vec<Debt>);

impl Debts {
    /// With the groups that an earlier daemon left behind.
    pub(super) fn new(leftovers: impl IntoIterator<Item = Leftover>) -> Debts {
        Debts(leftovers.into_iter().map(Debt::Leftover).collect())
    }

    /// What is stored of released tasks that left a group behind.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = &Task> {
        self.0.iter().filter_map(|owed| match owed {
            Debt::Leftover(leftover) => leftover.record.as_deref(),
            _ => None,
        })
    }

    pub(super) fn push(&mut self, owed: Debt) {
        self.0.push(owed);
    }

    /// Notes that a record is to be removed, once.
    pub(super) fn forgetting(&mut self, record: Record) {
        self.forgotten(record);
        self.push(Debt::Forgetting(record));
    }

    /// Notes that a task is to be thawed, once.
    pub(super) fn thaw(&mut self, task: TaskId) {
        if !self.has_thaw(task) {
            self.push(Debt::Thaw(task));
        }
    }

    /// A record that is to be removed.
    pub(super) fn record(&self) -> Option<Record> {
        self.0.iter().find_map(|owed| match owed {
            Debt::Forgetting(record) => Some(*record),
            _ => None,
        })
    }

    /// A record was removed, or is wanted again.
    pub(super) fn forgotten(&mut self, record: Record) {
        self.0.retain(|owed| !matches!(owed, Debt::Forgetting(other) if *other == record));
    }

    /// Whether a task is yet to be thawed.
    pub(super) fn has_thaw(&self, task: TaskId) -> bool {
        self.0.iter().any(|owed| matches!(owed, Debt::Thaw(other) if *other == task))
    }

    /// Whether the record of a task that is over stays: it tells the next daemon of a group that keeps its
    /// processes, or of what systemd has to get back.
    pub(super) fn needs_record(&self, task: TaskId) -> bool {
        self.0.iter().any(|owed| match owed {
            Debt::Leftover(leftover) => leftover.task == task,
            Debt::Unit(debt) => debt.task == task,
            _ => false,
        })
    }

    /// The task for which systemd has yet to take back this unit.
    pub(super) fn holder_of(&self, unit: &UnitName) -> Option<TaskId> {
        self.0.iter().find_map(|owed| match owed {
            Debt::Unit(debt) if debt.unit.name == *unit => Some(debt.task),
            _ => None,
        })
    }

    /// Takes out what is owed for the unit of a task.
    pub(super) fn take_unit(&mut self, task: TaskId) -> Option<UnitDebt> {
        let is = |owed: &Debt| matches!(owed, Debt::Unit(debt) if debt.task == task);
        match self.0.remove(self.0.iter().position(is)?) {
            Debt::Unit(debt) => Some(debt),
            _ => None,
        }
    }

    /// Whether the group made for a task is yet to be removed.
    pub(super) fn has_removal(&self, task: TaskId) -> bool {
        self.0
            .iter()
            .any(|owed| matches!(owed, Debt::Removal { task: other, .. } if *other == task))
    }

    /// Takes out the groups of ended tasks.
    pub(super) fn take_removals(&mut self) -> Vec<(TaskId, Arc<Group>)> {
        let all = std::mem::take(&mut self.0);
        let mut removals = Vec::new();
        for owed in all {
            match owed {
                Debt::Removal { task, group } => removals.push((task, group)),
                other => self.0.push(other),
            }
        }
        removals
    }
}

impl<W: World> Executor<'_, W> {
    /// Once a cycle: all that is owed is tried again.
    pub(super) fn pay(&mut self) {
        for owed in std::mem::take(&mut self.state.debts).0 {
            match owed {
                Debt::Removal { task, group } => self.begin(GroupJob::Remove { task, group }),
                Debt::Unparking(task) => self.begin_unparking(task),
                Debt::Thaw(task) => self.thaw_again(task),
                Debt::Leftover(leftover) => {
                    if !self.remove_leftover(leftover.task, &leftover.group) {
                        self.state.debts.push(Debt::Leftover(leftover));
                    }
                }
                Debt::Unit(UnitDebt { task, unit, asked: false, late }) => {
                    self.ask_back(UnitDebt { task, unit, asked: true, late }, None, None);
                }
                // The one is under way, and the other goes with the records (`store_again`).
                Debt::Unit(_) | Debt::Forgetting(_) => self.state.debts.push(owed),
            }
        }
    }

    /// The loop ends, and there is no next cycle: what could not be thawed is tried once more.
    pub(super) fn pay_thaws(&mut self) {
        let all = std::mem::take(&mut self.state.debts).0;
        for owed in all {
            match owed {
                Debt::Thaw(task) => self.thaw_again(task),
                other => self.state.debts.push(other),
            }
        }
    }
}
