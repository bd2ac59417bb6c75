//! What is done to a pretended node, and what goes wrong there.
//!
//! Each thing that is done to it is a deed, counted from the start. A [`Fault`] lies before one of them:
//! the daemon is killed, so that nothing that it does from then on has an effect; the deed is refused; or a
//! stranger acts. Half of a deed is never seen: records are renamed into place, a line of the journal that
//! is cut is not read, and a write to a cgroup file is one call of the kernel.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::{HOME, Pretend};
use lrs_core::event::EventKind;
use lrs_core::model::{Level, ReservationId, TaskId};
use lrs_core::step::Record;
use lrs_core::units::Pid;

/// What the loop did.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each is the method of its name
pub enum Call {
    /// A group by its path.
    Weigh(String, Level),
    WeighRoot,
    Freeze(String, bool),
    Release(String),
    Remove(String),
    PutTask(TaskId),
    PutReservation(ReservationId),
    Forget(Record),
    Append(EventKind, Option<TaskId>),
    Watch(TaskId, Pid),
    Unwatch(TaskId),
    Begin(&'static str, Option<TaskId>),
    /// By a thread.
    Make(String),
    Move(Pid),
}

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Method {
    Identify,
    Members,
    Weigh,
    WeighRoot,
    Show,
    Freeze,
    Release,
    Remove,
    Watch,
    PutTask,
    PutReservation,
    Forget,
    Append,
    Attach,
}

/// What lies before a deed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The daemon is killed.
    Kill,
    /// The deed is refused, where it can be.
    Refuse,
    /// A process ends.
    Exit(Pid),
    /// A stranger moves a process to [`HOME`].
    Move(Pid),
    /// A stranger writes a weight into the group of a process.
    Write(Pid),
}

/// Deeds, and the faults before them.
#[derive(Debug, Default)]
pub struct Deeds {
    /// So far.
    pub count: usize,
    /// What lies before which.
    pub fault: Option<(usize, Fault)>,
    /// Those since they were last taken; `None`: they are not kept.
    calls: Option<Vec<Call>>,
    /// How often each of these fails from now on.
    refused: RefCell<BTreeMap<Method, usize>>,
    /// The daemon is killed.
    pub(super) dead: bool,
}

impl Deeds {
    /// Keeps them from now on.
    pub fn record(&mut self) {
        self.calls.get_or_insert_default();
    }

    /// Those since this was last asked.
    pub fn take(&mut self) -> Vec<Call> {
        self.calls.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The next `times` calls of `method` fail.
    pub fn refuse(&mut self, method: Method, times: usize) {
        self.refused.get_mut().insert(method, times);
    }

    pub(super) fn fails(&self, method: Method) -> bool {
        let mut refused = self.refused.borrow_mut();
        let Some(left) = refused.get_mut(&method).filter(|left| **left > 0) else { return false };
        *left -= 1;
        true
    }

    /// Those of the next daemon.
    pub(super) fn after_kill(self) -> Deeds {
        let calls = self.calls.map(|_| Vec::new());
        Deeds { count: self.count, calls, ..Deeds::default() }
    }
}

impl Pretend {
    /// The next deed. `None`: it is not done, for the daemon is dead; else whether it is refused.
    pub(super) fn deed(&mut self, call: Call) -> Option<bool> {
        let Deeds { count, fault, .. } = &mut self.deeds;
        let before = fault.take_if(|(at, _)| at == count).map(|(_, fault)| fault);
        *count += 1;
        match before {
            Some(Fault::Kill) => self.deeds.dead = true,
            Some(Fault::Exit(pid)) => self.exit(pid, 1),
            Some(Fault::Move(pid)) => self.move_away(pid, HOME),
            Some(Fault::Write(pid)) => {
                if let Some(group) = self.group_of(pid).map(str::to_owned) {
                    self.write_foreign(&group);
                }
            }
            Some(Fault::Refuse) | None => {}
        }
        if self.deeds.dead {
            return None;
        }
        if let Some(calls) = &mut self.deeds.calls {
            calls.push(call);
        }
        Some(before == Some(Fault::Refuse))
    }
}
