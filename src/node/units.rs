//! The thread that talks to systemd about units that are tasks, and about the weight of the root.
//!
//! systemd answers in milliseconds, in seconds while it reloads, and not at all while it hangs;
//! none of that may keep a promotion or another admission waiting. So the loop and the placing
//! thread write files, and this thread tells systemd afterwards. Jobs stay in order, look-ups
//! come after all others: clients ask for as many as they like, and a unit that is to get its
//! weights back must not wait for them. After a call that ran out systemd is left alone for a
//! while, and what is due fails at once; every cycle tries again.
//!
//! What is queued when the daemon stops is left to the next one: the records have it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::outbox::Outbox;
use super::process;
use super::queue::Queue;
use crate::cgroup::{CgroupError, TierTree, Version};
use crate::clock;
use crate::command::{CommandError, ErrorKind, Subject};
use crate::core::leaving::Stop;
use crate::executor::job::UnitJob;
use crate::executor::keeping::UnitReport;
use crate::executor::message::{Looked, Message, Prepared};
use crate::executor::{cgroup_error, unit_stopped as stopped};
use crate::systemd::lookup::{Unfit, Unit};
use crate::systemd::manager::{Manager, ManagerError};
use crate::systemd::unit::{UnitName, UnitRecord, settings};
use crate::units::{BootTime, Pid, ProcessRef};

/// How long a systemd that let a call run out is not asked again: every job would wait as long,
/// and all behind it.
const SILENCE: Duration = Duration::from_secs(30);

/// Why systemd did not answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It was, in vain.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// It did not answer another call in time, shortly before.
    #[error("systemd does not answer; it is asked again within {SILENCE:?}")]
    Silent,
}

pub(super) fn serve_units(
    tree: &TierTree,
    jobs: &Receiver<UnitJob>,
    outbox: &Outbox,
    stopping: &AtomicBool,
) {
    let mut systemd = Systemd { manager: Manager::default(), tree, silent_until: None };
    let looks = |job: &UnitJob| matches!(job, UnitJob::Look(_) | UnitJob::LookFound { .. });
    let mut queue = Queue::new(jobs, looks);
    while let Some(job) = queue.next() {
        if stopping.load(Ordering::Relaxed) {
            continue;
        }
        outbox.send(match job {
            UnitJob::Look(asking) => {
                let result = if asking.reply.is_closed() {
                    Err(CommandError::new(ErrorKind::Unavailable, "the client went away"))
                } else {
                    systemd.look(&asking.request.subject)
                };
                Message::UnitLooked { asking, result }
            }
            UnitJob::LookFound { found, reply } => {
                let report = systemd.look_at(found.process.pid).report;
                Message::FoundLooked { found, report, reply }
            }
            UnitJob::ShapeRoot { plan } => Message::RootShaped { result: tree.shape_root(&plan) },
            UnitJob::Prepare { task, process, unit } => {
                Message::UnitPrepared { task, result: systemd.prepare(process, &unit) }
            }
            UnitJob::Tell { task, group, level, plan, unit } => {
                let settings = settings(&tree.tier_files(&group, level, &plan));
                // One that is gone needs no weights; its last process tells the loop.
                let result = systemd.ask(|manager| manager.set_weights(&unit, &settings));
                let result = result.map(drop).map_err(|error| error.to_string());
                Message::UnitAnswered { task, result }
            }
            UnitJob::GiveBack { task, group, unit, releases, called_off } => {
                let files = group.as_ref().map_or(Ok(()), |group| tree.clean_up(group));
                match files {
                    Err(error) if releases => {
                        outbox.send(Message::Released { task, result: Err(error) });
                        continue;
                    }
                    Err(error) => {
                        tracing::warn!(%task, unit = unit.name.as_str(), %error, "the weights found in the cgroup of unit {} were not given back at the end of task {task}: {error}", unit.name);
                    }
                    Ok(()) => {}
                }
                let result = systemd.ask(|manager| manager.give_back(&unit));
                let result = result.map_err(|error| (Box::new(unit), error.to_string()));
                // Sent first: without it the record would go with the release.
                outbox.send(Message::UnitRestored { task, result, called_off });
                if !releases {
                    continue;
                }
                Message::Released { task, result: Ok(None) }
            }
        });
    }
}

/// systemd, as far as it can be reached.
struct Systemd<'a> {
    manager: Manager,
    tree: &'a TierTree,
    silent_until: Option<BootTime>,
}

impl Systemd<'_> {
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
        Ok(answer?)
    }

    fn look(&mut self, subject: &Subject) -> Result<Looked, CommandError> {
        match subject {
            Subject::Unit(name) => {
                let unit = self
                    .ask(|manager| manager.unit(name))
                    .map_err(|error| unasked(name, &error))?;
                let record = unit.fit().map_err(|why| {
                    let unknown = matches!(why, Unfit::Unknown(_));
                    let kind =
                        if unknown { ErrorKind::NotFound } else { ErrorKind::FailedPrecondition };
                    CommandError::new(kind, why.to_string())
                })?;
                let process = main(&unit).ok_or_else(|| stopped(&record.name))?;
                let stop = Some(stop_of(&unit));
                let report =
                    UnitReport { unit: Some(record), shaped: true, stop, ..UnitReport::default() };
                Ok(Looked { process, report, unasked: None })
            }
            Subject::Process(pid) => Ok(self.look_at(*pid)),
        }
    }

    /// What systemd says of the unit that a process is in.
    fn look_at(&mut self, process: Pid) -> Looked {
        match self.ask(|manager| manager.unit_of(process)) {
            Ok(Some(unit)) => {
                // In a group below the unit's own it is not for systemd to say.
                let shaped = process::is_shaped_by(process, &unit.control_group);
                let record = unit.fit().ok().filter(|_| shaped);
                let (stop, foreign) = (Some(stop_of(&unit)), unit.delegated);
                let report =
                    UnitReport { unit: record, shaped, stop, foreign, ..UnitReport::default() };
                Looked { process, report, unasked: None }
            }
            Ok(None) => {
                let stop = Some(Stop::Assumed("systemd does not know the unit".into()));
                let report = UnitReport { stop, foreign: true, ..UnitReport::default() };
                Looked { process, report, unasked: None }
            }
            Err(error) => {
                let stop = Some(Stop::Assumed(error.to_string()));
                let report =
                    UnitReport { shaped: true, stop, silent: true, ..UnitReport::default() };
                Looked { process, report, unasked: Some(error.to_string()) }
            }
        }
    }

    fn prepare(
        &mut self,
        process: ProcessRef,
        unit: &UnitRecord,
    ) -> Result<Prepared, CommandError> {
        let name = &unit.name;
        let failed = |error: AskError| unasked(name, &error);
        match self.ask(|manager| manager.weights(name)).map_err(failed)? {
            None => return Err(stopped(name)),
            Some(now) if now != unit.found => return Ok(Prepared::Changed(now)),
            Some(_) => {}
        }
        let own = unit.own_files(self.tree.capabilities().version == Some(Version::V1));
        if !self.ask(|manager| manager.set_weights(name, &own)).map_err(failed)? {
            return Err(stopped(name));
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
            Err(CgroupError::ProcessGone(_)) => Err(stopped(name)),
            Err(error) => Err(cgroup_error(error)),
        }
    }
}

fn unasked(unit: &UnitName, error: &AskError) -> CommandError {
    CommandError::new(
        ErrorKind::FailedPrecondition,
        format!("unit {unit} cannot be admitted: {error}; its processes can be, by pid"),
    )
}

/// What a stop of the unit ends.
fn stop_of(unit: &Unit) -> Stop {
    match &*unit.kill_mode {
        _ if unit.control_group.ends_with(".scope") => Stop::Scope,
        "process" | "none" => Stop::MainProcess,
        "control-group" | "mixed" => Stop::Everything,
        other => Stop::Assumed(format!("systemd calls its KillMode {other:?}")),
    }
}

/// The process that stands for a unit: the one it calls its main process, else its oldest. One
/// that ended meanwhile does not count.
fn main(unit: &Unit) -> Option<Pid> {
    // One descriptor at a time: a unit may have more processes than that.
    let fit = |pid: &Pid| process::pin(*pid).ok().map(|pinned| pinned.process);
    let named = unit.main.filter(|main| unit.processes.contains(main));
    let oldest = || unit.processes.iter().filter_map(fit).min_by_key(|process| process.start_ticks);
    named.as_ref().and_then(fit).or_else(oldest).map(|process| process.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_service_is_stopped_as_a_whole() {
        let stop = |control_group: &str, kill_mode: &str| {
            let (control_group, kill_mode) = (control_group.to_owned(), kill_mode.to_owned());
            stop_of(&Unit { control_group, kill_mode, ..Unit::default() })
        };
        let service = |mode| stop("/system.slice/a.service", mode);
        for mode in ["control-group", "mixed"] {
            assert_eq!(service(mode), Stop::Everything);
            assert_eq!(stop("/user.slice/user-0.slice/session-1.scope", mode), Stop::Scope);
        }
        for mode in ["process", "none"] {
            assert_eq!(service(mode), Stop::MainProcess);
        }
        for mode in ["", "new"] {
            assert!(matches!(service(mode), Stop::Assumed(_)), "{mode}");
        }
    }
}
