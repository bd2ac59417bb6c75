//! What a process is in that must not be taken from others: a unit of systemd with limits or a stop that
//! would be lost, or the group of another manager.
//!
//! The decision is [`lrs_core::leaving`]'s; here are its facts. systemd is asked, by way of
//! [`super::job::UnitJob`], only where its word matters: which processes a stop of a service ends,
//! whether a unit is delegated, and who manages the weights of a unit that may be taken in place. The
//! rest is read from the cgroups. What systemd reported holds while the request waits; the rest is
//! looked at again when its turn comes.
//!
//! Limits. systemd cannot be asked about the units of a user's own service manager: a service
//! there counts as one that ends all its processes when it stops, which is the default.

use super::Executor;
use super::world::{Move, World};
use crate::command::{AdmitRequest, Caller, CommandError, ErrorKind, cgroup_error};
use crate::found::{Attach, DiscoveredTask, Finder};
use crate::group::{Attachment, Group, HeldBy, Members, Reach, Surroundings, UnitPlace};
use crate::rights::Role;
use lrs_config::Mode;
use lrs_config::rule::{Means, Rule};
use lrs_core::leaving::{self, Facts, Holder, Leaving, Stop, Unit, Weight, Wish};
use lrs_core::model::TaskId;
use lrs_core::unit::UnitRecord;
use lrs_core::units::{Pid, ProcessRef};

/// What systemd reported of the unit that a process is in; by default nothing, for it was not asked.
#[derive(Clone, Debug, Default)]
pub struct UnitReport {
    /// The unit, if its weights can be a task's and systemd has to set them too.
    pub unit: Option<UnitRecord>,
    /// Whether the weights of the process's group are a unit's; also of one that cannot be a task
    /// now, because it is ending, or is delegated and writes what is below.
    pub shaped: bool,
    /// What a stop of it ends.
    pub stop: Option<Stop>,
    /// The unit is delegated, or systemd has no such unit: it is another manager's.
    pub foreign: bool,
    /// systemd was asked, and did not answer: whether the unit is delegated is not known.
    pub silent: bool,
    /// The finders have looked for a task that the process is in.
    pub looked: bool,
}

/// What was decided about who holds a process, for the look when its turn comes.
#[derive(Debug)]
pub(super) struct LeavingDecision {
    report: UnitReport,
    wish: Wish,
    leaving: Leaving,
    /// The unit of systemd's that it was in.
    unit: Option<String>,
}

impl LeavingDecision {
    /// In which hierarchies it is moved.
    pub(super) fn reach(&self) -> Reach {
        match &self.leaving {
            Leaving::LeavePartly => Reach::Weights,
            _ => Reach::All,
        }
    }

    /// What would have been lost.
    pub(super) fn because(&self) -> Option<String> {
        match &self.leaving {
            Leaving::InPlace { because } => Some(because.clone()),
            _ => None,
        }
    }

    /// What is lost.
    pub(super) fn lost(&self) -> Option<String> {
        match &self.leaving {
            Leaving::Leave { lost } => lost.clone(),
            _ => None,
        }
    }
}

/// What a request wants.
fn wish(request: &AdmitRequest) -> Wish {
    match (request.leave_unit, request.keep_unit) {
        (true, _) => Wish::LeaveUnit,
        (false, true) => Wish::Run,
        (false, false) => Wish::Admit,
    }
}

impl<W: World> Executor<'_, W> {
    /// Who holds `process`, as far as the cgroups tell and systemd has reported.
    pub(super) fn held_by(
        &self,
        process: ProcessRef,
        report: &UnitReport,
    ) -> Result<HeldBy, CommandError> {
        let around = self.state.world.surroundings(process, Members::Itself, report.foreign);
        let around = around.map_err(cgroup_error)?;
        Ok(around.map_or(HeldBy::None, |around| around.held_by))
    }

    /// Whether systemd has to be asked about the unit of a process that may have to stay in it.
    pub(super) fn asks_about_unit(&self, caller: &Caller, pid: Pid) -> bool {
        // Refused later: who may not ask must not cost the loop.
        if self.state.rights.role(caller) == Role::Reader {
            return false;
        }
        // What cannot be read is refused later, with the reason.
        self.state.world.identify(pid).is_ok_and(|pinned| self.asks_about(pinned.process))
    }

    fn asks_about(&self, process: ProcessRef) -> bool {
        let asks = |unit: &UnitPlace| {
            !unit.of_user
                && (!unit.is_login()
                    || self.state.world.escaped_limit(process, Move::ToRoot).is_some())
        };
        // As above.
        let held_by = self.held_by(process, &UnitReport::default());
        matches!(held_by, Ok(HeldBy::Systemd(unit)) if asks(&unit))
    }

    /// The same of a process that a rule found and wants moved.
    pub(super) fn asks_about_found(&self, found: &DiscoveredTask) -> bool {
        self.state.config.daemon.mode == Mode::Enforce
            && matches!(found.finder, Finder::Rule(_))
            && !matches!(found.attach, Attach::InPlace { .. })
            && self.asks_about(found.process)
    }

    /// Whether the finders have to look first: the process may be in a job of another manager, and the
    /// task of that job not found yet; then it uses the slot of that task.
    pub(super) fn has_to_be_sought(
        &self,
        request: &AdmitRequest,
        process: ProcessRef,
        report: &UnitReport,
    ) -> Result<bool, CommandError> {
        let moves = !request.in_place && !request.leave_unit;
        let enforces = self.state.config.daemon.mode == Mode::Enforce;
        let in_place = |rule: &Rule| rule.attach == Means::InPlace;
        if report.looked || !moves || !enforces || !self.state.config.discover.iter().any(in_place)
        {
            return Ok(false);
        }
        let managed = matches!(self.held_by(process, report)?, HeldBy::Manager(_));
        // Finders that cannot be asked do not look either.
        Ok(managed && !self.state.hints.looks.is_closed())
    }

    /// Decides where `process` goes, and makes `request` and `unit` say so. `None`: it was to be
    /// taken in place, or nothing is moved here.
    pub(super) fn keep_in_its_group(
        &self,
        caller: &Caller,
        request: &mut AdmitRequest,
        process: ProcessRef,
        report: UnitReport,
        unit: &mut Option<UnitRecord>,
    ) -> Result<Option<LeavingDecision>, CommandError> {
        if request.in_place || self.state.config.daemon.mode != Mode::Enforce {
            return Ok(None);
        }
        let wish = wish(request);
        let (leaving, unit_name) = self.leaving(caller, wish, process, &report)?;
        let refused = |kind, message: &String| Err(CommandError::new(kind, message));
        match &leaving {
            Leaving::Refuse(message) => return refused(ErrorKind::FailedPrecondition, message),
            Leaving::Deny(message) => return refused(ErrorKind::PermissionDenied, message),
            Leaving::InPlace { .. } => {
                request.in_place = true;
                unit.clone_from(&report.unit);
            }
            Leaving::Leave { .. } | Leaving::LeavePartly => {}
        }
        Ok(Some(LeavingDecision { report, wish, leaving, unit: unit_name }))
    }

    /// Whether what was decided when the process asked still holds.
    pub(super) fn still_kept(
        &self,
        caller: &Caller,
        process: ProcessRef,
        kept: &LeavingDecision,
    ) -> Result<(), CommandError> {
        let (leaving, unit) = self.leaving(caller, kept.wish, process, &kept.report)?;
        // What systemd reported was of that unit.
        if leaving.is_like(&kept.leaving) && unit == kept.unit {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorKind::FailedPrecondition,
            format!(
                "the cgroup or the limits of process {} changed since it was looked at; ask \
                 again",
                process.pid
            ),
        ))
    }

    /// In which hierarchies a process that `finder` found is moved.
    pub(super) fn reach_of_found(
        &self,
        finder: &Finder,
        process: ProcessRef,
        report: &UnitReport,
    ) -> Result<Reach, CommandError> {
        let wish = match finder {
            Finder::Rule(_) => Wish::Rule,
            Finder::Yarn => Wish::Container,
        };
        // Both are the operator's.
        let facts = self.facts(true, wish, process, report)?;
        if let Some(Facts { holder: Holder::Systemd(unit), .. }) =
            facts.as_ref().filter(|_| report.silent)
        {
            return Err(CommandError::new(
                ErrorKind::FailedPrecondition,
                format!(
                    "systemd does not say whether {} is delegated, and what is in it another \
                     manager's",
                    unit.name
                ),
            ));
        }
        match facts.map(|facts| leaving::decide(&facts)) {
            None | Some(Leaving::Leave { .. } | Leaving::InPlace { .. }) => Ok(Reach::All),
            Some(Leaving::LeavePartly) => Ok(Reach::Weights),
            Some(Leaving::Refuse(message) | Leaving::Deny(message)) => {
                Err(CommandError::new(ErrorKind::FailedPrecondition, message))
            }
        }
    }

    fn leaving(
        &self,
        caller: &Caller,
        wish: Wish,
        process: ProcessRef,
        report: &UnitReport,
    ) -> Result<(Leaving, Option<String>), CommandError> {
        let admin = self.state.rights.role(caller) == Role::Admin;
        let facts = self.facts(admin, wish, process, report)?;
        let Some(facts) = facts else { return Ok((Leaving::Leave { lost: None }, None)) };
        let unit = match &facts.holder {
            Holder::Systemd(unit) => Some(unit.name.clone()),
            Holder::None | Holder::Manager(_) => None,
        };
        Ok((leaving::decide(&facts), unit))
    }

    /// `None`: nothing is moved here.
    fn facts(
        &self,
        admin: bool,
        wish: Wish,
        process: ProcessRef,
        report: &UnitReport,
    ) -> Result<Option<Facts>, CommandError> {
        let members = if wish == Wish::Run { Members::Itself } else { Members::Family };
        let around = self.state.world.surroundings(process, members, report.foreign);
        let Some(around) = around.map_err(cgroup_error)? else { return Ok(None) };
        let Surroundings { held_by, alone, weighed } = around;
        let weight = match (&report.unit, weighed) {
            _ if report.shaped && !admin => Weight::Forbidden,
            // systemd gives it one.
            (Some(_), _) | (None, true) => Weight::Usable,
            (None, false) => Weight::None,
        };
        let limit = match held_by {
            HeldBy::Systemd(_) => self.state.world.escaped_limit(process, Move::ToRoot),
            HeldBy::None | HeldBy::Manager(_) => None,
        };
        let holder = match held_by {
            HeldBy::None => Holder::None,
            HeldBy::Manager(manager) => Holder::Manager(manager),
            HeldBy::Systemd(unit) => {
                let stop = stop_of(&unit, report);
                Holder::Systemd(Unit { login: unit.is_login(), name: unit.name, stop })
            }
        };
        Ok(Some(Facts { wish, holder, limit, alone, weight, admin }))
    }

    /// Remembers which task has the group, where its path does not tell.
    pub(super) fn take(&mut self, id: TaskId, group: &Group) {
        let path = &group.record.path;
        let in_root = || crate::group::is_within(path, &self.state.world.facts().capabilities.root);
        let by_path = match group.record.attachment {
            Attachment::InPlace => true,
            // Below the root of before, where that was changed.
            Attachment::Own => !in_root(),
            Attachment::None => false,
        };
        if by_path {
            self.state.taken.put(id, path);
        }
    }
}

/// What a stop of the unit ends, as far as it is known.
fn stop_of(unit: &UnitPlace, report: &UnitReport) -> Stop {
    match (&report.stop, unit.is_service()) {
        (Some(Stop::Assumed(_)) | None, true) if unit.of_user => {
            Stop::Assumed("it is a unit of a user's own service manager".into())
        }
        (Some(stop), true) => stop.clone(),
        (None, true) => Stop::Assumed("systemd was not asked".into()),
        (_, false) => Stop::Scope,
    }
}
