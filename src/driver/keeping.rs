//! What `lrsctl run` asks for: a task that leaves its unit of systemd's only if nothing is lost.
//!
//! The decision is [`crate::core::leaving`]'s; here are its facts. systemd is asked, by way of
//! [`super::unit_worker`], only where its word matters: which processes a stop of a service ends,
//! and who manages the weights of a unit that may be taken in place. The rest is read from the
//! cgroup. What systemd said holds while the request waits; the rest is looked at again when its
//! turn comes.
//!
//! `lrsctl run` in a unit asks to keep it (`keep_unit`). Then step 1 decides between a move, the
//! unit in place, and a group of LRS's own below a delegated unit (`core/leaving.rs` has the table).
//! systemd is asked only about a service of the system, or a unit that may be taken in place. A group
//! below a unit is made on the loop before step 3, so that the record names it: recovery finds groups
//! outside of the root by records alone, and a kill between the two leaves an empty group that goes
//! with the unit.
//!
//! Limits. systemd cannot be asked about the units of a user's own service manager: a service
//! there counts as one whose stop ends all its processes, which is the default. A daemon killed
//! between the making of a group below a unit and its record leaves that group, empty; systemd
//! removes it with the unit.

use super::Driver;
use super::admission::cgroup_error;
use super::process;
use crate::cgroup::{Attachment, Group, Room, Surroundings};
use crate::command::{AdmitRequest, Caller, CommandError, ErrorKind};
use crate::config::Mode;
use crate::core::leaving::{self, Facts, Leaving, Stop, Unit, Weight};
use crate::core::model::TaskId;
use crate::core::step::Ready;
use crate::rights::Role;
use crate::systemd::unit::UnitRecord;
use crate::units::{Pid, ProcessRef};

/// What systemd said of the unit that a process is in; by default nothing, for it was not asked.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// The unit, if its weights can be a task's and systemd has to be told of them.
    pub unit: Option<UnitRecord>,
    /// Whether the weights of the process's group are a unit's; also of one that cannot be a task
    /// now, because it is ending, or is delegated and writes what is below.
    pub shaped: bool,
    /// What a stop of it ends.
    pub stop: Option<Stop>,
}

/// How a request to keep the unit was decided, for the look when its turn comes.
#[derive(Debug)]
pub(super) struct Kept {
    said: Said,
    leaving: Leaving,
}

impl Kept {
    /// The group in which one for the task is to be made.
    pub(super) fn below(&self) -> Option<String> {
        match &self.leaving {
            Leaving::Below { parent, .. } => Some(parent.clone()),
            _ => None,
        }
    }

    /// What would have been lost.
    pub(super) fn because(&self) -> Option<String> {
        match &self.leaving {
            Leaving::InPlace { because } | Leaving::Below { because, .. } => Some(because.clone()),
            Leaving::Leave | Leaving::Refuse(_) | Leaving::Deny(_) => None,
        }
    }

    /// It is moved within its unit, where the limits above it are the same.
    pub(super) fn is_below(&self) -> bool {
        matches!(self.leaving, Leaving::Below { .. })
    }
}

impl Driver {
    /// Whether systemd has to be asked about a process that is to keep its unit.
    pub(super) fn keeping_asks(&self, caller: &Caller, pid: Pid) -> bool {
        // Refused later: who may not ask must not cost the loop.
        if self.rights.role(caller) == Role::Reader {
            return false;
        }
        // What cannot be read is refused later, with the reason.
        let Ok(pinned) = process::pin(pid) else { return false };
        let Ok(Some(around)) = self.tree.surroundings(pinned.process) else { return false };
        !around.unit.of_user
            && (around.unit.is_service() || self.tree.escapes_limits(pinned.process).is_some())
    }

    /// Decides where `process` goes, and makes `request` and `unit` say so. `None`: nobody asked
    /// for its unit to be kept, or it is in none.
    pub(super) fn keep_unit(
        &self,
        caller: &Caller,
        request: &mut AdmitRequest,
        process: ProcessRef,
        said: Said,
        unit: &mut Option<UnitRecord>,
    ) -> Result<Option<Kept>, CommandError> {
        let asked = request.keep_unit && !request.in_place;
        if !asked || self.config.daemon.mode != Mode::Enforce || !crate::systemd::is_running() {
            return Ok(None);
        }
        let leaving = self.leaving(caller, process, &said)?;
        let refused = |kind, message: &String| Err(CommandError::new(kind, message));
        match &leaving {
            Leaving::Refuse(message) => return refused(ErrorKind::FailedPrecondition, message),
            Leaving::Deny(message) => return refused(ErrorKind::PermissionDenied, message),
            Leaving::InPlace { .. } => {
                request.in_place = true;
                unit.clone_from(&said.unit);
            }
            Leaving::Leave | Leaving::Below { .. } => {}
        }
        Ok(Some(Kept { said, leaving }))
    }

    /// Whether what was decided when the process asked still holds.
    pub(super) fn still_kept(
        &self,
        caller: &Caller,
        process: ProcessRef,
        kept: &Kept,
    ) -> Result<(), CommandError> {
        let now = self.leaving(caller, process, &kept.said)?;
        if now.is_like(&kept.leaving) {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorKind::FailedPrecondition,
            format!(
                "the cgroup or the limits of process {} changed while it waited for a slot; ask \
                 again",
                process.pid
            ),
        ))
    }

    fn leaving(
        &self,
        caller: &Caller,
        process: ProcessRef,
        said: &Said,
    ) -> Result<Leaving, CommandError> {
        let around = self.tree.surroundings(process).map_err(cgroup_error)?;
        let Some(Surroundings { unit, alone, weighed, room }) = around else {
            return Ok(Leaving::Leave);
        };
        let admin = self.rights.role(caller) == Role::Admin;
        let weight = match (&said.unit, weighed) {
            _ if said.shaped && !admin => Weight::Forbidden,
            // systemd gives it one.
            (Some(_), _) | (None, true) => Weight::Usable,
            (None, false) => Weight::None,
        };
        let stop = match (&said.stop, unit.is_service()) {
            (Some(stop), _) => stop.clone(),
            (None, false) => Stop::Scope,
            (None, true) => Stop::Assumed("systemd was not asked".into()),
        };
        let stop = match stop {
            Stop::Assumed(_) if unit.of_user => {
                Stop::Assumed("it is a unit of a user's own service manager".into())
            }
            stop => stop,
        };
        let own = |room: &Room| admin || room.owner == caller.uid;
        Ok(leaving::decide(&Facts {
            unit: Some(Unit { name: unit.name, stop }),
            limit: self.tree.escapes_limits(process),
            alone,
            weight,
            below: room.filter(own).map(|room| room.parent),
            admin,
        }))
    }

    /// Makes the group of a task that stays below its unit, on the loop: it must be in the record
    /// before the process is, and a later daemon finds groups outside of the root by records alone.
    pub(super) fn make_below(
        &mut self,
        id: TaskId,
        parent: &str,
        ready: &mut Ready,
    ) -> Result<(), CommandError> {
        let name = self
            .core
            .task(id)
            .and_then(|task| task.labels.name.clone().or_else(|| task.labels.job.clone()));
        let mut group = self.tree.create_below(parent, id, name.as_ref()).map_err(cgroup_error)?;
        let Some(entry) = self.entries.get_mut(&id) else { return Ok(()) };
        group.record.origin = ready.origin.clone().unwrap_or_default();
        ready.group = Some(group.record.clone());
        entry.group = Some(std::sync::Arc::new(group.clone()));
        self.take(id, &group);
        Ok(())
    }

    /// Remembers whose group it is that is a task, where its path does not tell.
    pub(super) fn take(&mut self, id: TaskId, group: &Group) {
        let path = &group.record.path;
        let in_root = || crate::cgroup::is_within(path, &self.tree.capabilities().root);
        let by_path = match group.record.attachment {
            Attachment::InPlace => true,
            Attachment::Own => !in_root(),
            Attachment::None => false,
        };
        if by_path {
            self.taken.put(id, path);
        }
    }
}
