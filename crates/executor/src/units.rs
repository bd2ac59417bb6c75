//! Tasks with the cgroup of a systemd unit: what the loop does beside the files.
//!
//! An admission in place goes round by [`super::job::UnitJob`]: looked up there, decided here,
//! prepared there, then placed like any other. The record has what systemd reported before the
//! first of it is changed; it goes when systemd has that back. Limits: `lrs_core::unit`.
//!
//! # The life of such a task
//!
//! The steps are those of docs/architecture.md. A task with a unit as its group takes two more
//! on `lrs-units`: the unit is looked up before step 1, and after step 3 systemd is asked to
//! give it weight files, which it makes only for units that have a weight set. Weights are written
//! to the files first, as always; then systemd is asked to set the same (`SetUnitProperties`, until the next
//! boot), so that what it writes at its next `daemon-reload` is what is there. The record has the
//! properties found; it goes once systemd has them back, also for a unit that has stopped, as its
//! runtime settings would outlive it, and after a `kill -9`. What the owner sets meanwhile is repaired
//! like any drift and set in systemd again; the end brings back what was found. A unit, as long as its weights
//! systemd does not have back yet is refused until it has. Without systemd's ear the files alone have
//! the tier, a warning says so, and every cycle tries again; after a call that ran out, calls fail at
//! once for half a minute, so that what hangs costs one admission its patience and not each.
//!
//! The unit is resolved by name, its alias followed; slices, templates, delegated units, systemd and
//! LRS's own units are refused with the reason. A process in place is looked up only if its cgroup
//! is one by its name.
//!
//! A unit takes an admin, also where all its processes are the caller's: its weight counts against
//! its neighbours', and systemd too lets no other user set it. Groups below a delegated unit (all of
//! `user@.service`) are their user's, as before. On D-Bus polkit may grant it (`manage-tasks`).
//!
//! **systemd is asked after the file is written.** A promotion cannot wait for systemd. The loop's
//! write takes effect at once; systemd's own, of the same value, follows. While it is on the way the
//! cycle judges no drift of that task.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::Executor;
use super::debts::{Debt, UnitDebt};
use super::job::{Asking, CalledOff, UnitJob};
use super::keeping::UnitReport;
use super::message::{Looked, Prepared};
use super::world::World;
use crate::command::{AdmitRequest, Caller, CommandError, ErrorKind, Reply, Subject};
use crate::group::Group;
use crate::rights::{Action, Role};
use lrs_api::proto;
use lrs_config::Mode;
use lrs_core::model::{Label, Level, TaskId};
use lrs_core::step::{Input, Ready};
use lrs_core::unit::{UnitName, UnitRecord};
use lrs_core::units::Pid;

/// Admissions of one uid looked up at once: each may wait for systemd as long as it likes.
const MOST_LOOKS: usize = 256;

impl<W: World> Executor<'_, W> {
    /// The process of a request that can be decided without a word from systemd.
    pub(super) fn at_hand(&self, caller: &Caller, request: &AdmitRequest) -> Option<Pid> {
        match request.subject {
            Subject::Unit(_) => None,
            Subject::Process(pid) => {
                let asks = self.state.config.daemon.mode == Mode::Enforce
                    && self.state.world.facts().systemd_runs
                    && match request.in_place {
                        true => self.state.world.may_be_in_unit(pid),
                        false => self.asks_about_unit(caller, pid),
                    };
                (!asks).then_some(pid)
            }
        }
    }

    pub(super) fn look_up(
        &mut self,
        caller: Caller,
        request: AdmitRequest,
        reply: Reply<proto::Task>,
    ) {
        if let Err(error) = self.may_look_up(&caller, &request.subject) {
            return self.answer(Some(reply), Err(error));
        }
        *self.state.looking.entry(caller.uid).or_default() += 1;
        self.begin(UnitJob::Look(Box::new(Asking { caller, request, reply })));
    }

    /// Known before systemd is asked: who may not admit must not cost it anything.
    fn may_look_up(&self, caller: &Caller, subject: &Subject) -> Result<(), CommandError> {
        if self.state.rights.role(caller) == Role::Reader {
            self.state.rights.check(caller, Action::Admit { priority: None }, Some(caller.uid))?;
        }
        if matches!(subject, Subject::Unit(_)) {
            self.state.rights.check(caller, Action::ShapeUnit, None)?;
        }
        if self.state.looking.get(&caller.uid).is_some_and(|looks| *looks >= MOST_LOOKS) {
            return Err(CommandError::new(
                ErrorKind::FailedPrecondition,
                format!(
                    "{MOST_LOOKS} admissions of uid {} wait for systemd to say which unit they are \
                     about; ask again when some are through",
                    caller.uid
                ),
            ));
        }
        Ok(())
    }

    pub(super) fn looked_up(&mut self, asking: Asking, result: Result<Looked, CommandError>) {
        let Asking { caller, mut request, reply } = asking;
        if let Entry::Occupied(mut looks) = self.state.looking.entry(caller.uid) {
            *looks.get_mut() -= 1;
            if *looks.get() == 0 {
                looks.remove();
            }
        }
        let keeps = !request.in_place && matches!(request.subject, Subject::Process(_));
        let looked = result.and_then(|looked| {
            // One that may leave its unit needs no right to that.
            if !keeps && looked.report.shaped {
                self.state.rights.check(&caller, Action::ShapeUnit, None)?;
            }
            Ok(looked)
        });
        let Looked { process, mut report, unasked } = match looked {
            Err(error) => return self.answer(Some(reply), Err(error)),
            Ok(looked) => looked,
        };
        if let Some(error) = unasked {
            let pid = process.raw();
            if keeps {
                tracing::warn!(pid, %error, "what a stop of the unit of process {process} ends is not known, KillMode=control-group is assumed: {error}");
            } else {
                tracing::warn!(pid, %error, "process {process} is managed in place by files alone, a daemon-reload may undo it: {error}");
            }
        }
        if !keeps {
            let enforces = self.state.config.daemon.mode == Mode::Enforce;
            report = UnitReport { unit: report.unit.filter(|_| enforces), ..UnitReport::default() };
        }
        if let Subject::Unit(name) = &request.subject {
            request.in_place = true;
            // A unit's name has no character that a label may not have.
            request.labels.name = request.labels.name.or_else(|| Label::new(name.as_str()).ok());
        }
        self.admit_process(caller, request, process, report, reply);
    }

    /// One task a unit: what a second one found would be the first one's weights.
    pub(super) fn check_unit(
        &self,
        unit: &UnitRecord,
        id: Option<TaskId>,
    ) -> Result<(), CommandError> {
        let name = &unit.name;
        let mut tasks = self.core.tasks();
        let other = tasks.find(|(other, task)| {
            Some(*other) != id && task.who.unit.as_ref().is_some_and(|other| other.name == *name)
        });
        if let Some((other, _)) = other {
            return Err(CommandError::new(
                ErrorKind::AlreadyExists(other),
                format!(
                    "unit {name} is task {other} already; release it first (lrsctl release {other})"
                ),
            ));
        }
        if let Some(earlier) = self.state.debts.holder_of(name) {
            return Err(CommandError::new(
                ErrorKind::FailedPrecondition,
                format!(
                    "systemd has yet to take back the weights that unit {name} had before task \
                     {earlier}; ask again in a moment"
                ),
            ));
        }
        Ok(())
    }

    pub(super) fn unit_prepared(&mut self, id: TaskId, result: Result<Prepared, CommandError>) {
        let mut ready = Ready::default();
        let begun = result.and_then(|prepared| match prepared {
            Prepared::Group(group) => self.hold_in_place(id, *group, &mut ready),
            Prepared::Changed(found) => {
                // Recorded before they are touched, and prepared again.
                let unit = self.core.task(id).and_then(|task| task.who.unit.clone());
                ready.unit = unit.map(|unit| UnitRecord { found, ..unit });
                Ok(())
            }
        });
        self.prepared(id, begun.map(|()| ready));
    }

    /// Tells systemd the weights of `level`, which the files have already.
    pub(super) fn tell_unit(&mut self, id: TaskId, level: Level) {
        let Some(task) = self.core.task(id).filter(|task| task.is_placed()) else { return };
        let Some(entry) = self.state.entries.get_mut(&id) else { return };
        let (Some(group), Some(unit)) = (&entry.group, &task.who.unit) else { return };
        let (group, unit) = (Arc::clone(group), unit.name.clone());
        entry.telling += 1;
        let plan = self.state.plan;
        self.begin(UnitJob::Tell { task: id, group, level, plan, unit });
    }

    pub(super) fn unit_answered(&mut self, id: TaskId, result: Result<(), String>) {
        let Some(entry) = self.state.entries.get_mut(&id) else { return };
        entry.telling = entry.telling.saturating_sub(1);
        let known = !std::mem::replace(&mut entry.untold, result.is_err());
        let unit = self.core.task(id).and_then(|task| task.who.unit.as_ref());
        if let (Err(error), true, Some(unit)) = (result, known, unit) {
            let unit = unit.name.as_str();
            tracing::warn!(task = %id, unit, %error, "systemd does not know the weights of {unit}, task {id}; a daemon-reload may undo them until it takes them: {error}");
        }
    }

    /// Once a cycle: what systemd did not take it is asked to set again.
    pub(super) fn tell_again(&mut self) {
        let untold =
            self.state.entries.iter().filter(|(_, entry)| entry.untold && entry.telling == 0);
        let untold: Vec<TaskId> = untold.map(|(id, _)| *id).collect();
        for id in untold {
            if let Some(level) = self.core.level(id) {
                self.tell_unit(id, level);
            }
        }
    }

    /// Has systemd get back what the unit of a task that is over had; see [`UnitJob::GiveBack`].
    pub(super) fn restore_unit(
        &mut self,
        task: TaskId,
        group: Option<Arc<Group>>,
        unit: UnitRecord,
        called_off: Option<CalledOff>,
    ) {
        let late = self.state.debts.take_unit(task).is_some_and(|debt| debt.late);
        self.ask_back(UnitDebt { task, unit, asked: true, late }, group, called_off);
    }

    pub(super) fn ask_back(
        &mut self,
        debt: UnitDebt,
        group: Option<Arc<Group>>,
        called_off: Option<CalledOff>,
    ) {
        let (task, unit) = (debt.task, debt.unit.clone());
        self.state.debts.push(Debt::Unit(debt));
        self.begin(UnitJob::GiveBack { task, group, unit, releases: false, called_off });
    }

    /// The record of a task that is over may go once systemd has its weights back.
    pub(super) fn unit_restored(
        &mut self,
        id: TaskId,
        result: Result<(), (Box<UnitRecord>, String)>,
        called_off: Option<CalledOff>,
    ) {
        let late = self.state.debts.take_unit(id).is_some_and(|debt| debt.late);
        match result {
            Ok(()) => {
                if late {
                    tracing::info!(task = %id, "systemd has the weights of the unit of task {id} back");
                }
                // One that is being released goes when that is done.
                if !self.state.entries.contains_key(&id) {
                    self.push(Input::Removed(id));
                }
            }
            Err((unit, error)) => {
                if !late {
                    let unit = unit.name.as_str();
                    tracing::warn!(task = %id, unit, %error, "the weights of unit {unit} are not given back yet, trying on: {error}");
                }
                let debt = UnitDebt { task: id, unit: *unit, asked: false, late: true };
                self.state.debts.push(Debt::Unit(debt));
            }
        }
        if let Some(CalledOff { replies, error }) = called_off {
            self.answer_all(replies, Err(error));
        }
    }
}

/// The answer where a unit has stopped before it was a task.
pub fn unit_stopped(unit: &UnitName) -> CommandError {
    CommandError::new(
        ErrorKind::FailedPrecondition,
        format!("unit {unit} stopped while it was being admitted"),
    )
}
