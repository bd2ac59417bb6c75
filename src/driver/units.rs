//! Tasks whose cgroup is that of a systemd unit: what the loop does beside the files.
//!
//! An admission in place goes round by [`super::unit_worker`]: looked up there, decided here,
//! prepared there, then placed like any other. The record has what systemd said before the
//! first of it is changed; it goes when systemd has that back.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::Driver;
use super::entry::Placement;
use super::keeping::Said;
use super::process;
use super::unit_calls::{self, AskError};
use super::unit_worker::{Asking, CalledOff, Looked, Prepared, Told, UnitJob, Unrestored, Whose};
use crate::cgroup::Group;
use crate::command::{AdmitRequest, Caller, CommandError, ErrorKind, Reply, Subject};
use crate::config::Mode;
use crate::core::model::{Label, TaskId, Tier};
use crate::proto;
use crate::rights::{Action, Role};
use crate::systemd::unit::UnitRecord;
use crate::units::{Moment, Pid};

/// Admissions of one uid looked up at once: each may wait for systemd as long as it likes.
const MOST_LOOKS: usize = 256;

/// What systemd has yet to get back, of a task that is over.
#[derive(Debug)]
pub struct Owed {
    /// Its unit, and how it was.
    unit: UnitRecord,
    /// It is being given back.
    asked: bool,
    /// The log has it that this is late.
    said: bool,
}

impl Driver {
    /// The process of a request that can be decided without a word from systemd.
    pub(super) fn at_hand(&self, caller: &Caller, request: &AdmitRequest) -> Option<Pid> {
        match request.subject {
            Subject::Unit(_) => None,
            Subject::Process(pid) => {
                let may_ask = self.config.daemon.mode == Mode::Enforce
                    && (request.in_place || request.keep_unit)
                    && crate::systemd::is_running();
                let asks = may_ask
                    && match request.in_place {
                        true => process::may_be_in_unit(pid),
                        false => self.keeping_asks(caller, pid),
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
        *self.looking.entry(caller.uid).or_default() += 1;
        self.workers.ask(UnitJob::Look(Box::new(Asking { caller, request, reply })));
    }

    /// Known before systemd is asked: who may not admit must not cost it anything.
    fn may_look_up(&self, caller: &Caller, subject: &Subject) -> Result<(), CommandError> {
        if self.rights.role(caller) == Role::Reader {
            self.rights.check(caller, Action::Admit { priority: None }, Some(caller.uid))?;
        }
        if matches!(subject, Subject::Unit(_)) {
            self.rights.check(caller, Action::ShapeUnit, None)?;
        }
        if self.looking.get(&caller.uid).is_some_and(|looks| *looks >= MOST_LOOKS) {
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

    pub(super) fn looked_up(
        &mut self,
        asking: Asking,
        result: Result<Looked, CommandError>,
        now: Moment,
    ) {
        let Asking { caller, mut request, reply } = asking;
        if let Entry::Occupied(mut looks) = self.looking.entry(caller.uid) {
            *looks.get_mut() -= 1;
            if *looks.get() == 0 {
                looks.remove();
            }
        }
        let keeps = request.keep_unit && !request.in_place;
        let keeps = keeps && matches!(request.subject, Subject::Process(_));
        let looked = result.and_then(|looked| {
            // One that may leave its unit needs no right to that.
            if !keeps && !matches!(looked.whose, Whose::Nobody) {
                self.rights.check(&caller, Action::ShapeUnit, None)?;
            }
            Ok(looked)
        });
        let Looked { process, whose, stop } = match looked {
            Err(error) => return self.answer(Some(reply), Err(error)),
            Ok(looked) => looked,
        };
        if keeps {
            if let Whose::Unknown(error) = &whose {
                tracing::warn!(pid = process.raw(), %error, "what a stop of the unit of process {process} ends is not known, KillMode=control-group is assumed: {error}");
            }
            return self.admit_process(
                caller,
                request,
                process,
                Said::new(whose, stop),
                reply,
                now,
            );
        }
        if let Subject::Unit(name) = &request.subject {
            request.in_place = true;
            // A unit's name has no character that a label may not have.
            request.labels.name = request.labels.name.or_else(|| Label::new(name.as_str()).ok());
        }
        let unit = match whose {
            Whose::Unit(unit) => Some(unit).filter(|_| self.config.daemon.mode == Mode::Enforce),
            Whose::Nobody | Whose::Unfit => None,
            Whose::Unknown(error) => {
                tracing::warn!(pid = process.raw(), %error, "process {process} is managed in place by files alone, a daemon-reload may undo it: {error}");
                None
            }
        };
        self.admit_process(caller, request, process, Said { unit, ..Said::default() }, reply, now);
    }

    /// Lets systemd give the unit of a task weight files of its own; it is recorded before.
    pub(super) fn prepare_unit(&mut self, id: TaskId) -> Result<(), CommandError> {
        let Some(entry) = self.entries.get_mut(&id) else { return Ok(()) };
        let (Some(process), Some(unit)) = (entry.process, &mut entry.unit) else { return Ok(()) };
        let mut earlier = Vec::new();
        for (id, owed) in &self.unrestored {
            if owed.unit.name == unit.name {
                // What systemd says may be LRS's own word.
                unit.succeed(&owed.unit);
                earlier.push(*id);
            }
        }
        unit.give(&unit_calls::own_files(&*self.tree, unit));
        let unit = unit.clone();
        self.store_admission(id)?;
        for earlier in earlier {
            self.unrestored.remove(&earlier);
            let removed = self.store.remove_task(earlier);
            self.noted(removed);
        }
        self.workers.ask(UnitJob::Prepare { task: id, process, unit });
        Ok(())
    }

    pub(super) fn unit_prepared(
        &mut self,
        id: TaskId,
        result: Result<Prepared, CommandError>,
        now: Moment,
    ) {
        let begun = result.and_then(|prepared| match prepared {
            Prepared::Group(group) => self.place_unit(id, *group),
            Prepared::Changed(unit) => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.unit = Some(unit);
                }
                self.prepare_unit(id)
            }
        });
        if let Err(error) = begun {
            self.admission_failed(id, error, now);
        }
    }

    fn place_unit(&mut self, id: TaskId, group: Group) -> Result<(), CommandError> {
        // Before its record claims weights that another task has told.
        self.check_in_place(id, &group)?;
        let settings = [Tier::Active, Tier::Passive].map(|tier| {
            crate::systemd::unit::settings(&self.tree.tier_files(&group, tier, &self.plan))
        });
        if let Some(unit) = self.entries.get_mut(&id).and_then(|entry| entry.unit.as_mut()) {
            unit.give(&settings.concat());
        }
        if let Some(job) = self.take_in_place(id, group)? {
            self.workers.place(job);
        }
        Ok(())
    }

    /// Tells systemd the weights of `tier`, which the files have already.
    pub(super) fn tell_unit(&mut self, id: TaskId, tier: Tier) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let (Placement::Placed, Some(group), Some(unit)) =
            (entry.phase, &entry.group, &mut entry.unit)
        else {
            return;
        };
        let words =
            |tier| crate::systemd::unit::settings(&self.tree.tier_files(group, tier, &self.plan));
        let settings = words(tier);
        // Both tiers', so that only a new plan makes a new record.
        let other = if tier == Tier::Active { Tier::Passive } else { Tier::Active };
        let new = unit.give(&settings) | unit.give(&words(other));
        let unit = unit.clone();
        entry.telling += 1;
        if new {
            self.store_task(id);
        }
        self.workers.ask(UnitJob::Tell { task: id, unit, settings });
    }

    pub(super) fn unit_told(&mut self, id: TaskId, result: Result<Told, AskError>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.telling = entry.telling.saturating_sub(1);
        let Some(unit) = &mut entry.unit else { return };
        match result {
            Ok(Told::Known) => entry.untold = false,
            Ok(Told::Overtaken) => {}
            Ok(Told::OwnerSaid(said)) => {
                (unit.found, unit.adopted) = (said.found, said.adopted);
                self.store_task(id);
                if let Some(tier) = self.core.task(id).map(|task| task.tier()) {
                    self.tell_unit(id, tier);
                }
            }
            Err(error) => {
                let known = std::mem::replace(&mut entry.untold, true);
                if !known {
                    let unit = unit.name.as_str();
                    tracing::warn!(task = %id, unit, %error, "systemd does not know the weights of {unit}, task {id}; a daemon-reload may undo them until it takes them: {error}");
                }
            }
        }
    }

    /// Once a cycle: what systemd did not take it is told again.
    pub(super) fn tell_again(&mut self) {
        let untold = self.entries.iter().filter(|(_, entry)| entry.untold && entry.telling == 0);
        let untold: Vec<TaskId> = untold.map(|(id, _)| *id).collect();
        for id in untold {
            if let Some(tier) = self.core.task(id).map(|task| task.tier()) {
                self.tell_unit(id, tier);
            }
        }
    }

    /// The record of a task that is over may go once systemd has its weights back.
    pub(super) fn unit_restored(
        &mut self,
        id: TaskId,
        result: Result<(), Unrestored>,
        called_off: Option<CalledOff>,
    ) {
        match result {
            Ok(()) => {
                if let Some(Owed { unit, said: true, .. }) = self.unrestored.remove(&id) {
                    let name = unit.name.as_str();
                    tracing::info!(task = %id, unit = name, "systemd has the weights of {name} back");
                }
                // One that is being released goes when that is done.
                if !self.entries.contains_key(&id) {
                    let removed = self.store.remove_task(id);
                    self.noted(removed);
                }
            }
            Err(Unrestored { unit, error }) => {
                let owed = match self.unrestored.remove(&id) {
                    // A task after it has its record, and gives back for both.
                    None if !self.entries.contains_key(&id) => None,
                    owed => Some(owed.is_some_and(|owed| owed.said)),
                };
                if let Some(said) = owed {
                    if !said {
                        let unit = unit.name.as_str();
                        tracing::warn!(task = %id, unit, %error, "the weights of unit {unit} are not given back yet, trying on: {error}");
                    }
                    self.unrestored.insert(id, Owed { unit: *unit, asked: false, said: true });
                }
            }
        }
        if let Some(CalledOff { replies, error }) = called_off {
            self.answer_all(replies, Err(error));
        }
    }

    /// Once a cycle: what systemd did not take back.
    pub(super) fn restore_again(&mut self) {
        let due = self.unrestored.iter().filter(|(_, owed)| !owed.asked);
        let due: Vec<_> = due.map(|(id, owed)| (*id, owed.unit.clone())).collect();
        for (id, unit) in due {
            self.restore_unit(id, None, unit, None);
        }
    }

    /// Has systemd get back what the unit of a task that is over had; see [`UnitJob::Restore`].
    pub(super) fn restore_unit(
        &mut self,
        task: TaskId,
        group: Option<Arc<Group>>,
        unit: UnitRecord,
        called_off: Option<CalledOff>,
    ) {
        let said = self.unrestored.get(&task).is_some_and(|owed| owed.said);
        self.unrestored.insert(task, Owed { unit: unit.clone(), asked: true, said });
        self.workers.ask(UnitJob::Restore { task, group, unit, called_off });
    }
}
