//! Changing calls: each becomes one command, whose answer it waits for, as in gRPC.
//!
//! A call is read into a [`Wish`] first, so that its message can go: a wait for a slot keeps
//! neither what the client sent nor its descriptors.

use std::time::Duration;

use tokio::time::Instant;
use zbus::message::Message;
use zbus::zvariant::{Fd, Value};

use super::contract::Change;
use super::dispatch::{Asking, Door};
use super::error::CallError;
use super::objects::{self, Object};
use super::polkit::{self, Verdict};
use super::reply::Answer;
use super::value::{Given, Options};
use super::{arguments, from, pidfd};
use crate::command::{
    AdmitRequest, Caller, Command, CommandError, ErrorKind, Reply, ReserveRequest, Subject, Wait,
};
use crate::core::model::{Priority, ReservationId, TaskId};
use crate::rights::Role;
use crate::units::Pid;
use crate::{proto, request, wire};

/// What a caller wants changed, checked.
#[derive(Debug)]
pub(super) enum Wish {
    Admit(AdmitRequest),
    Reserve(ReserveRequest),
    CancelReservation(ReservationId),
    Release(TaskId),
    SetPriority(TaskId, Priority),
    Drain,
    Resume,
    Reload,
}

/// Reads a changing call.
///
/// # Errors
/// InvalidArgument and its kin; a descriptor that is no pidfd of a running process.
pub(super) fn wish(
    change: Change,
    message: &Message,
    object: &Object,
    caller: &Caller,
) -> Result<Wish, CallError> {
    let body = message.body();
    Ok(match change {
        Change::Admit => {
            let (pid, options): (i32, Given<'_>) = from(&body)?;
            Wish::Admit(request::admit(admit_request(pid, options)?, caller)?)
        }
        Change::AdmitPidfd => {
            let (pidfd, options): (Fd<'_>, Given<'_>) = from(&body)?;
            let process = pidfd::process(&pidfd)?;
            let mut asked = request::admit(admit_request(process.pid.raw(), options)?, caller)?;
            asked.start_ticks = Some(process.start_ticks);
            Wish::Admit(asked)
        }
        Change::Reserve => Wish::Reserve(request::reserve(reserve_request(from(&body)?)?)?),
        Change::CancelReservation => {
            Wish::CancelReservation(request::reservation_id(&arguments::<String>(message)?)?)
        }
        Change::Release => Wish::Release(match object {
            Object::Task(task) => request::task_id(&task.id)?,
            _ => request::task_id(&arguments::<String>(message)?)?,
        }),
        Change::SetPriority => {
            let (id, priority) = match object {
                Object::Task(task) => (request::task_id(&task.id)?, arguments(message)?),
                _ => {
                    let (id, priority): (String, i32) = arguments(message)?;
                    (request::task_id(&id)?, priority)
                }
            };
            Wish::SetPriority(id, Priority(priority))
        }
        Change::Drain => Wish::Drain,
        Change::Resume => Wish::Resume,
        Change::Reload => Wish::Reload,
    })
}

impl Wish {
    /// What polkit is asked.
    fn question(&self) -> polkit::Question {
        use polkit::Action::{ManageTasks, Operate};
        let question = |action, method, about| polkit::Question { action, method, about };
        match self {
            Wish::Admit(asked) => {
                let about = match &asked.subject {
                    Subject::Process(pid) => ("pid", pid.to_string()),
                    Subject::Unit(unit) => ("unit", unit.to_string()),
                };
                question(ManageTasks, "Admit", Some(about))
            }
            Wish::Reserve(_) => question(ManageTasks, "Reserve", None),
            Wish::CancelReservation(id) => {
                question(ManageTasks, "CancelReservation", Some(("reservation", id.to_string())))
            }
            Wish::Release(id) => question(ManageTasks, "Release", Some(("task", id.to_string()))),
            Wish::SetPriority(id, _) => {
                question(ManageTasks, "SetPriority", Some(("task", id.to_string())))
            }
            Wish::Drain => question(Operate, "Drain", None),
            Wish::Resume => question(Operate, "Resume", None),
            Wish::Reload => question(Operate, "Reload", None),
        }
    }
}

/// What has happened before a command is tried again with what polkit granted.
#[derive(Clone, Copy, Debug)]
struct Earlier {
    /// Of the process polkit was asked about.
    start_ticks: Option<u64>,
    /// Since the command was tried first.
    passed: Duration,
}

impl Earlier {
    /// The same wish: the same process, and what is left of its wait.
    fn again(self, asked: &AdmitRequest) -> AdmitRequest {
        let wait = match asked.wait {
            Wait::For(whole) => Wait::For(whole.saturating_sub(self.passed)),
            wait @ (Wait::No | Wait::Forever) => wait,
        };
        AdmitRequest { start_ticks: self.start_ticks, wait, ..asked.clone() }
    }
}

impl Door {
    /// Has a wish carried out, and waits for that.
    pub(super) async fn carry_out(&self, wish: Wish, asking: &Asking<'_>) -> Answer {
        let question = wish.question();
        match wish {
            Wish::Admit(asked) => {
                let pin = match asked.subject {
                    Subject::Process(pid) => Some((pid, asked.start_ticks)),
                    Subject::Unit(_) => None,
                };
                let command = |caller, earlier: Option<Earlier>, reply| Command::Admit {
                    caller,
                    request: earlier.map_or_else(|| asked.clone(), |then| then.again(&asked)),
                    reply,
                };
                let task = self.change(asking, question, pin, command).await?;
                let path = objects::object_path(&task.id)?;
                Ok(vec![Value::from(task.id), path])
            }
            Wish::Reserve(asked) => {
                let command =
                    |caller, _, reply| Command::Reserve { caller, request: asked.clone(), reply };
                reserved(&self.change(asking, question, None, command).await?)
            }
            Wish::CancelReservation(id) => {
                let command = |caller, _, reply| Command::CancelReservation { caller, id, reply };
                self.change(asking, question, None, command).await?;
                Ok(Vec::new())
            }
            Wish::Release(id) => {
                let command = |caller, _, reply| Command::Release { caller, id, reply };
                self.change(asking, question, None, command).await?;
                Ok(Vec::new())
            }
            Wish::SetPriority(id, priority) => {
                let command =
                    |caller, _, reply| Command::SetPriority { caller, id, priority, reply };
                self.change(asking, question, None, command).await?;
                Ok(Vec::new())
            }
            Wish::Drain => {
                let command = |caller, _, reply| Command::Drain { caller, reply };
                self.change(asking, question, None, command).await?;
                Ok(Vec::new())
            }
            Wish::Resume => {
                let command = |caller, _, reply| Command::Resume { caller, reply };
                self.change(asking, question, None, command).await?;
                Ok(Vec::new())
            }
            Wish::Reload => {
                let command = |caller, _, reply| Command::Reload { caller, reply };
                Ok(vec![Value::from(self.change(asking, question, None, command).await?)])
            }
        }
    }

    /// Has a command carried out; if the table of rights refuses it, asks polkit and tries once
    /// more with what it grants, for the process `pin` that is there when it is asked. Ends
    /// early when the caller leaves the bus (its place among those who wait for a slot is free
    /// then) or when the daemon stops.
    async fn change<T>(
        &self,
        asking: &Asking<'_>,
        question: polkit::Question,
        pin: Option<(Pid, Option<u64>)>,
        command: impl Fn(Caller, Option<Earlier>, Reply<T>) -> Command,
    ) -> Result<T, CallError> {
        let commands = &self.access.commands;
        let begun = Instant::now();
        let carried_out = async {
            let first = commands.ask(|reply| command(asking.caller.clone(), None, reply)).await;
            let refused = match first {
                Err(error) if error.kind == ErrorKind::PermissionDenied && self.polkit => error,
                first => return first.map_err(CallError::from),
            };
            // A person takes a minute to decide, in which a pid may change hands.
            let start_ticks = match pin {
                None => None,
                Some((_, Some(start_ticks))) => Some(start_ticks),
                Some((pid, None)) => match start_of(pid) {
                    None => return Err(refused.into()),
                    start_ticks => start_ticks,
                },
            };
            let name = &asking.known.name;
            match polkit::check(&self.bus, name, &question, asking.interactive).await {
                Verdict::Allowed => {
                    let granted = Caller { granted: Some(Role::Admin), ..asking.caller.clone() };
                    let earlier = Earlier { start_ticks, passed: begun.elapsed() };
                    Ok(commands.ask(|reply| command(granted, Some(earlier), reply)).await?)
                }
                Verdict::Challenge if !asking.interactive => {
                    Err(CallError::interaction_required(format!(
                        "{}; polkit would ask for a password: allow interactive authorization",
                        refused.message
                    )))
                }
                Verdict::Challenge | Verdict::Refused => Err(refused.into()),
            }
        };
        let unavailable = |message: &str| {
            Err(CommandError::new(ErrorKind::Unavailable, message.to_owned()).into())
        };
        tokio::select! {
            done = carried_out => done,
            () = asking.known.has_left() => {
                tracing::debug!(
                    caller = asking.known.name,
                    method = question.method,
                    "{} has left the bus before its {} was answered",
                    asking.known.name,
                    question.method
                );
                unavailable("the caller has left the bus")
            }
            () = self.out_of_time() => {
                unavailable("lrsd is stopping; ask again once it is back")
            }
        }
    }
}

/// When a process started, in clock ticks since boot; `None`: there is none any more.
fn start_of(pid: Pid) -> Option<u64> {
    let stat = procfs::process::Process::new(pid.raw()).and_then(|process| process.stat());
    stat.inspect_err(|error| tracing::debug!(%error, "polkit is not asked about {pid}: {error}"))
        .ok()
        .map(|stat| stat.starttime)
}

fn admit_request(pid: i32, options: Given<'_>) -> Result<proto::AdmitRequest, CommandError> {
    let mut options = Options::new(options)?;
    let request = proto::AdmitRequest {
        pid,
        name: options.text("name")?,
        job: options.text("job")?,
        kind: options.text("kind")?,
        priority: options.integer("priority", "i")?,
        reservation: options.text("reservation")?,
        in_place: options.flag("in_place")?,
        keep_unit: options.flag("keep_unit")?,
        wait_ms: options.integer("wait_ms", "t")?.unwrap_or(0),
        wait_forever: options.flag("wait_forever")?,
        unit: options.text("unit")?,
        first_requested_at: options.time("first_requested_at")?.map(wire::proto_time),
    };
    options.finish()?;
    Ok(request)
}

fn reserve_request(options: Given<'_>) -> Result<proto::ReserveRequest, CommandError> {
    let mut options = Options::new(options)?;
    let request = proto::ReserveRequest {
        job: options.text("job")?,
        kind: options.text("kind")?,
        priority: options.integer("priority", "i")?.unwrap_or(0),
        ttl_ms: options.integer("ttl_ms", "t")?,
    };
    options.finish()?;
    Ok(request)
}

fn reserved(reservation: &proto::Reservation) -> Answer {
    let json = serde_json::to_value(reservation).unwrap_or_default();
    let text = |name: &str| {
        json.get(name).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    };
    Ok(["id", "tier", "expires_at"].map(|name| Value::from(text(name))).into())
}
