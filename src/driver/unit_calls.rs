//! What is asked of systemd for one job, and what its answers mean to an admission.

use std::time::Duration;

use super::process;
use super::unit_worker::{Looked, Prepared, Told, Unrestored, Whose};
use crate::cgroup::{CgroupError, TierTree, Version};
use crate::clock;
use crate::command::{CommandError, ErrorKind, Subject};
use crate::core::leaving::Stop;
use crate::systemd::lookup::{LookupError, Membership, RunningUnit};
use crate::systemd::manager::{Manager, ManagerError};
use crate::systemd::unit::{Setting, UnitName, UnitRecord};
use crate::units::{BootTime, Pid, ProcessRef};

/// How long a systemd that let a call run out is not asked again: every job would wait as long,
/// and all behind it.
const SILENCE: Duration = Duration::from_secs(30);

/// Why systemd was not asked or told.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It was, in vain.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// It did not answer another call in time, shortly before.
    #[error("systemd does not answer; it is asked again within {SILENCE:?}")]
    Silent,
}

/// systemd, as far as it can be reached.
pub(super) struct Systemd<'a> {
    manager: Manager,
    tree: &'a dyn TierTree,
    silent_until: Option<BootTime>,
    unreachable: bool,
}

impl<'a> Systemd<'a> {
    pub(super) fn new(tree: &'a dyn TierTree) -> Systemd<'a> {
        Systemd { manager: Manager::default(), tree, silent_until: None, unreachable: false }
    }

    /// Whether the last call found nobody who answers; a refusal is an answer.
    pub(super) fn is_unreachable(&self) -> bool {
        self.unreachable
    }

    fn ask<T>(
        &mut self,
        call: impl FnOnce(&Manager) -> Result<T, ManagerError>,
    ) -> Result<T, AskError> {
        if self.silent_until.is_some_and(|until| clock::boot_time() < until) {
            return Err(AskError::Silent);
        }
        let answer = call(&self.manager);
        let silent = matches!(answer, Err(ManagerError::Timeout { .. }));
        self.silent_until = silent.then(|| clock::boot_time().after(SILENCE));
        self.unreachable = silent || matches!(answer, Err(ManagerError::Unreachable { .. }));
        Ok(answer?)
    }

    pub(super) fn look(&mut self, subject: &Subject) -> Result<Looked, CommandError> {
        match subject {
            Subject::Unit(name) => {
                let found = self.ask(|manager| match manager.running_unit(name) {
                    Err(LookupError::Manager(error)) => Err(error),
                    found => Ok(found),
                });
                let found = found.map_err(|error| unasked(name, &error))?;
                let unit = found.map_err(|error| unfit(name, error))?;
                let stop = stop_of(&unit.record.control_group, &unit.kill_mode);
                Ok(Looked { process: main(&unit)?, whose: Whose::Unit(unit.record), stop })
            }
            Subject::Process(pid) => {
                // In a group below the unit's own it is not for systemd to say.
                let in_own = |control_group: &str| process::is_shaped_by(*pid, control_group);
                let membership = self.ask(|manager| manager.unit_of(*pid));
                let stop = match &membership {
                    Ok(Membership::Fit(unit)) => {
                        stop_of(&unit.record.control_group, &unit.kill_mode)
                    }
                    Ok(Membership::Unfit { control_group, kill_mode }) => {
                        stop_of(control_group, kill_mode)
                    }
                    Ok(Membership::None) => Stop::Assumed("systemd does not know the unit".into()),
                    Err(error) => Stop::Assumed(error.to_string()),
                };
                let whose = match membership {
                    Ok(Membership::Fit(unit)) if in_own(&unit.record.control_group) => {
                        Whose::Unit(unit.record)
                    }
                    Ok(Membership::Unfit { control_group, .. }) if in_own(&control_group) => {
                        Whose::Unfit
                    }
                    Ok(_) => Whose::Nobody,
                    Err(error) => Whose::Unknown(error),
                };
                Ok(Looked { process: *pid, whose, stop })
            }
        }
    }

    pub(super) fn prepare(
        &mut self,
        process: ProcessRef,
        mut unit: UnitRecord,
    ) -> Result<Prepared, CommandError> {
        let name = unit.name.clone();
        let failed = |error: AskError| unasked(&name, &error);
        let Some(now) = self.ask(|manager| manager.weights(&name)).map_err(failed)? else {
            return Err(stopped(&name));
        };
        if unit.adopt(&now) {
            return Ok(Prepared::Changed(unit));
        }
        let settings = unit.to_begin(&now, counts_shares(self.tree));
        if !self.ask(|manager| manager.settle(&name, &settings)).map_err(failed)? {
            return Err(stopped(&name));
        }
        match self.tree.find_in_place(process, None) {
            Ok(group) if group.record.path == unit.control_group => {
                Ok(Prepared::Group(Box::new(group)))
            }
            Ok(group) => Err(CommandError::new(
                ErrorKind::FailedPrecondition,
                format!(
                    "process {} of unit {name} is in {}, not in the unit's own cgroup {}; admit it by pid",
                    process.pid, group.record.path, unit.control_group
                ),
            )),
            Err(CgroupError::ProcessGone(_)) => Err(stopped(&name)),
            Err(error) => Err(super::admission::cgroup_error(error)),
        }
    }

    pub(super) fn tell(
        &mut self,
        mut unit: UnitRecord,
        settings: &[Setting],
    ) -> Result<Told, AskError> {
        match self.ask(|manager| manager.weights(&unit.name))? {
            Some(now) if unit.adopt(&now) => return Ok(Told::OwnerSaid(Box::new(unit))),
            // One that is gone needs no weights; its last process tells the loop.
            Some(_) | None => {}
        }
        self.ask(|manager| manager.settle(&unit.name, settings)).map(|_| Told::Known)
    }

    /// Gives the unit's properties back.
    pub(super) fn restore(&mut self, unit: UnitRecord) -> Result<(), Unrestored> {
        let restored = self.ask(|manager| manager.give_back(&unit));
        restored.map_err(|error| Unrestored { unit: Box::new(unit), error })
    }
}

/// See [`UnitRecord::own_files`].
pub(super) fn own_files(tree: &dyn TierTree, unit: &UnitRecord) -> Vec<Setting> {
    unit.own_files(counts_shares(tree))
}

/// Whether a unit's weight is its `CPUShares`.
fn counts_shares(tree: &dyn TierTree) -> bool {
    tree.capabilities().version == Some(Version::V1)
}

pub(super) fn stopped(unit: &UnitName) -> CommandError {
    CommandError::new(
        ErrorKind::FailedPrecondition,
        format!("unit {unit} stopped while it was being admitted"),
    )
}

fn unasked(unit: &UnitName, error: &AskError) -> CommandError {
    CommandError::new(
        ErrorKind::FailedPrecondition,
        format!("unit {unit} cannot be admitted: {error}; its processes can be, by pid"),
    )
}

fn unfit(unit: &UnitName, error: LookupError) -> CommandError {
    match error {
        LookupError::Unknown(_) => CommandError::new(ErrorKind::NotFound, error.to_string()),
        LookupError::NotRunning { .. } | LookupError::Unfit(_) => {
            CommandError::new(ErrorKind::FailedPrecondition, error.to_string())
        }
        LookupError::Manager(error) => unasked(unit, &error.into()),
    }
}

/// What a stop of the unit with this cgroup and `KillMode=` ends.
fn stop_of(control_group: &str, kill_mode: &str) -> Stop {
    match kill_mode {
        _ if control_group.ends_with(".scope") => Stop::Scope,
        "process" | "none" => Stop::MainProcess,
        "control-group" | "mixed" => Stop::Everything,
        other => Stop::Assumed(format!("systemd calls its KillMode {other:?}")),
    }
}

/// The process that stands for a unit: the one it calls its main process, else its oldest. One
/// that ended meanwhile does not count.
fn main(unit: &RunningUnit) -> Result<Pid, CommandError> {
    // One descriptor at a time: a unit may have more processes than that.
    let fit = |pid: &Pid| process::pin(*pid).ok().map(|pinned| pinned.process);
    let named = unit.main.filter(|main| unit.processes.contains(main));
    let standing = named.as_ref().and_then(fit).or_else(|| {
        unit.processes.iter().filter_map(fit).min_by_key(|process| process.start_ticks)
    });
    standing.map(|process| process.pid).ok_or_else(|| stopped(&unit.record.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_service_is_stopped_as_a_whole() {
        let service = |mode: &str| stop_of("/system.slice/a.service", mode);
        for mode in ["control-group", "mixed"] {
            assert_eq!(service(mode), Stop::Everything);
            assert_eq!(stop_of("/user.slice/user-0.slice/session-1.scope", mode), Stop::Scope);
        }
        for mode in ["process", "none"] {
            assert_eq!(service(mode), Stop::MainProcess);
        }
        for mode in ["", "new"] {
            assert!(matches!(service(mode), Stop::Assumed(_)), "{mode}");
        }
    }
}
