//! One call: who makes it, what it is about, and how a changing one is carried out.
//!
//! A changing call becomes one command and waits for its answer, as in gRPC. The wait ends early
//! when the caller leaves the bus (its place among those who wait for a slot is free then) or
//! when the daemon stops.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::callers::Known;
use super::connection::Server;
use super::error::CallError;
use super::limited;
use super::path::Object;
use super::polkit::{self, Action, Answer, Question};
use super::value::{self, Dict};
use crate::command::{AdmitRequest, Caller, CommandError, ErrorKind, Wait};
use crate::core::model::Priority;
use crate::kernfs::process::Stat;
use crate::publish::Snapshot;
use crate::rights::Role;
use crate::server::{query, request};
use crate::units::Pid;

/// A call under way.
#[derive(Clone)]
pub(super) struct Call {
    pub server: Arc<Server>,
    pub object: Object,
    pub known: Arc<Known>,
    /// The message carries ALLOW_INTERACTIVE_AUTHORIZATION.
    pub interactive: bool,
}

/// The process that a call is about.
#[derive(Clone, Copy)]
pub(super) struct Pin {
    pub pid: Pid,
    /// `None`: the caller gave a number alone.
    pub start_ticks: Option<u64>,
}

/// What has happened before a command is tried again with what polkit granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Earlier {
    /// Of the process polkit was asked about.
    start_ticks: Option<u64>,
    /// Since the command was tried first.
    passed: Duration,
}

impl Earlier {
    /// The same wish: the same process, and what is left of its wait.
    pub(super) fn again(self, asked: &AdmitRequest) -> AdmitRequest {
        let wait = match asked.wait {
            Wait::For(whole) => Wait::For(whole.saturating_sub(self.passed)),
            wait @ (Wait::No | Wait::Forever) => wait,
        };
        AdmitRequest { start_ticks: self.start_ticks, wait, ..asked.clone() }
    }
}

impl Call {
    /// The caller without its groups, which take a lookup.
    pub(super) fn identity(&self) -> Caller {
        Caller {
            uid: self.known.uid,
            gids: Vec::new(),
            process: self.known.process.clone(),
            granted: None,
        }
    }

    /// The newest. Not kept: a call may wait for hours.
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.server.access.snapshot.borrow())
    }

    pub(super) fn explain(&self, id: &str) -> Result<(Vec<Dict>, bool), CallError> {
        let story = query::explain(&self.server.access, id)?;
        Ok((limited(story.events.iter().map(value::message).collect())?, story.truncated))
    }

    pub(super) async fn release(&self, id: &str) -> Result<(), CallError> {
        let id = request::task_id(id)?;
        let about = Some(("task", id.to_string()));
        let question = Question::new(Action::ManageTasks, "Release", about);
        let release = |caller, _| self.server.service.release(caller, id);
        self.change(question, None, release).await
    }

    pub(super) async fn set_priority(&self, id: &str, priority: i32) -> Result<(), CallError> {
        let id = request::task_id(id)?;
        let about = Some(("task", id.to_string()));
        let question = Question::new(Action::ManageTasks, "SetPriority", about);
        let set = |caller, _| self.server.service.set_priority(caller, id, Priority(priority));
        self.change(question, None, set).await.map(drop)
    }

    /// Has a command carried out; if the table of rights refuses it, asks polkit and tries once
    /// more with what it grants, for the process that is there when it is asked.
    pub(super) async fn change<T, F>(
        &self,
        question: Question,
        pin: Option<Pin>,
        command: impl Fn(Caller, Option<Earlier>) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, CommandError>>,
    {
        let method = question.method;
        let begun = Instant::now();
        let carried_out = async {
            let caller = self.known.caller(&self.server.lookups).await?;
            let refused = match command(caller.clone(), None).await {
                Err(error) if error.kind == ErrorKind::PermissionDenied && self.server.polkit => {
                    error
                }
                first => return first.map_err(CallError::from),
            };
            // A person takes a minute to decide, in which a pid may change hands.
            let start_ticks = match pin.map(|pin| pin.start_ticks.or_else(|| start_of(pin.pid))) {
                Some(None) => return Err(refused.into()),
                start_ticks => start_ticks.flatten(),
            };
            let (bus, name) = (&self.server.bus.connection, &self.known.name);
            match polkit::check(bus, name, question, self.interactive).await {
                Answer::Allowed => {
                    let granted = Caller { granted: Some(Role::Admin), ..caller };
                    let earlier = Earlier { start_ticks, passed: begun.elapsed() };
                    Ok(command(granted, Some(earlier)).await?)
                }
                Answer::Challenge if !self.interactive => {
                    Err(CallError::interaction_required(format!(
                        "{}; polkit would ask for a password: allow interactive authorization",
                        refused.message
                    )))
                }
                Answer::Challenge | Answer::Refused => Err(refused.into()),
            }
        };
        self.unless_left(method, carried_out).await
    }

    /// `answer`, unless the caller leaves or lrsd stops before it is there.
    pub(super) async fn unless_left<T>(
        &self,
        method: &str,
        answer: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let unavailable = |message| Err(CommandError::new(ErrorKind::Unavailable, message).into());
        tokio::select! {
            done = answer => done,
            () = self.known.left.cancelled() => {
                let caller = &self.known.name;
                tracing::debug!(
                    caller, method, "{caller} has left the bus before its {method} was answered"
                );
                unavailable("the caller has left the bus")
            }
            () = self.server.stopping.cancelled() => {
                unavailable("lrsd is stopping; ask again once it is back")
            }
        }
    }
}

/// When a process started, in clock ticks since boot; `None`: there is none any more.
fn start_of(pid: Pid) -> Option<u64> {
    let stat = Stat::of(pid);
    stat.inspect_err(|error| tracing::debug!(%error, "polkit is not asked about {pid}: {error}"))
        .ok()
        .flatten()
        .map(|stat| stat.start_ticks)
}
