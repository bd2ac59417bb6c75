//! From a message to its answer: who calls, which object, which method; and the limits.
//!
//! The interfaces are zbus's `#[interface]`, which reads arguments, answers, and describes itself.
//! Its ObjectServer is not used. It would call methods without any limit on calls under way or on
//! the size of an answer, and its Introspect of any parent holds the text of all objects below:
//! with 2,000 tasks registered (2.6 MB) that is an answer of 12.8 MB, for which lrsd grew by 15 MB,
//! and from some 5,000 tasks on it is more than a bus carries (32 MiB), so that any user could
//! have lrsd thrown off the bus. Here an object is made for the call, from the newest snapshot.
//!
//! The bus is open to every user of the node. A call has places in the quota of its user
//! ([`crate::server::quota`]) before anything is done for it and until its answer is written: one, another
//! for each KiB of it, and many if its answer is over all tasks. All of this runs on a thread of
//! its own, so that users of the bus wait for each other at most.

use std::sync::Arc;

use tokio_util::task::TaskTracker;
use zbus::fdo::DBusProxy;
use zbus::message::{Flags, Message};
use zbus::object_server::{DispatchResult2, Interface};

use super::BusError;
use super::call::Call;
use super::callers::{Callers, Known, NotEntered};
use super::connection::Server;
use super::error::CallError;
use super::object;
use super::path::{Object, TASKS_PATH};
use crate::command::{CommandError, ErrorKind};
use crate::server::quota::{Full, Permit};

/// No call that makes sense is larger; the longest labels make one of 2 KiB.
const MAX_CALL_BYTES: usize = 64 << 10;

/// AdmitPidfd takes one descriptor, all other calls take none.
const MAX_DESCRIPTORS: u32 = 1;

/// Answers that may hold every task, every job or very many events.
const LARGE: [&str; 7] =
    ["GetManagedObjects", "ListTasks", "ListJobs", "ListHistory", "ListQueue", "Events", "GetYarn"];

impl Server {
    /// Starts a call among those `under_way`. Refusing one waits until the refusal is written:
    /// who floods this server is not read meanwhile.
    ///
    /// # Errors
    /// The bus cannot be asked who calls.
    pub(super) async fn receive(
        self: &Arc<Server>,
        message: Message,
        callers: &mut Callers,
        bus: &DBusProxy<'_>,
        under_way: &TaskTracker,
    ) -> Result<(), BusError> {
        match self.enter(&message, callers, bus).await {
            Ok((known, place)) => {
                let server = Arc::clone(self);
                under_way.spawn(async move {
                    if let Err(error) = server.answer(&message, known).await {
                        server.refuse(&message, error).await;
                    }
                    drop(place);
                });
            }
            Err(NotEntered::Call(error)) => self.refuse(&message, error).await,
            Err(NotEntered::Bus(error)) => return Err(error),
        }
        Ok(())
    }

    async fn refuse(&self, message: &Message, error: CallError) {
        if message.primary_header().flags().contains(Flags::NoReplyExpected) {
            return;
        }
        if let Err(error) = self.bus.connection.reply_dbus_error(&message.header(), error).await {
            not_sent(&error);
        }
    }

    /// Who calls, and the places of the call.
    async fn enter(
        &self,
        message: &Message,
        callers: &mut Callers,
        bus: &DBusProxy<'_>,
    ) -> Result<(Arc<Known>, Permit), NotEntered> {
        let (header, bytes) = (message.header(), message.data().len());
        if bytes > MAX_CALL_BYTES {
            let large = format!("the call has {bytes} bytes; lrsd takes up to {MAX_CALL_BYTES}");
            return Err(CallError::limits_exceeded(large).into());
        }
        let descriptors = header.unix_fds().unwrap_or(0);
        if descriptors > MAX_DESCRIPTORS {
            return Err(CallError::limits_exceeded(format!(
                "the call has {descriptors} descriptors; no method takes more than \
                 {MAX_DESCRIPTORS}"
            ))
            .into());
        }
        let sender = header.sender().ok_or_else(|| {
            CallError::from(CommandError::new(
                ErrorKind::PermissionDenied,
                "the call has no sender: this is no message bus",
            ))
        })?;
        let known = callers.known(sender, bus).await?;
        let member = header.member().map_or("", |member| member.as_str());
        let is_large = LARGE.contains(&member)
            || member == "Introspect" && header.path().is_some_and(|p| *p == TASKS_PATH);
        let places = if is_large { self.large } else { 1 + bytes / 1024 };
        let place = self.calls.take_some(known.uid, places).map_err(|full| match full {
            Full::All => CallError::too_many(
                "as many calls are under way as lrsd takes; try again in a moment",
            ),
            Full::OfUid => CallError::too_many(format!(
                "uid {} has as many calls under way as one user may; wait for some to end",
                known.uid
            )),
        })?;
        Ok((known, place))
    }

    /// Finds object and method, checks the types of the arguments, and has it answered.
    async fn answer(
        self: &Arc<Server>,
        message: &Message,
        known: Arc<Known>,
    ) -> Result<(), CallError> {
        let header = message.header();
        let path = header.path().map_or("", |path| path.as_str());
        let interface = header.interface().map(|interface| interface.as_str());
        let Some(member) = header.member() else {
            return Err(CallError::unknown_method("the call names no method"));
        };
        let object = match Object::at(path, &self.access.snapshot.borrow()) {
            Some(object) => object,
            // Peer is answered on any path (D-Bus specification, "Standard Interfaces").
            None if interface == Some("org.freedesktop.DBus.Peer") => Object::Directory("org"),
            None => {
                return Err(CallError::unknown_object(format!(
                    "no object {path} here; tasks go with their last process"
                )));
            }
        };
        let interactive = header.primary().flags().contains(Flags::AllowInteractiveAuth);
        let call = Call { server: Arc::clone(self), object, known, interactive };
        let mut interfaces = object::interfaces(&call);
        drop(call);
        if let Some(interface) = interface {
            interfaces.retain(|(name, _)| *name == interface);
            if interfaces.is_empty() {
                return Err(CallError::unknown_interface(format!(
                    "{path} has no interface {interface}"
                )));
            }
        }
        let given = message.body().signature().to_string_no_parens();
        for (_, interface) in interfaces {
            let Some(takes) = takes(&*interface, member) else { continue };
            if given != takes {
                return Err(CallError::invalid_arguments(format!(
                    "{member} takes ({takes}), not ({given})"
                )));
            }
            let connection = &self.bus.connection;
            let called =
                interface.call(self.bus.object_server(), connection, message, member.as_ref());
            let DispatchResult2::Async(answered) = called else {
                return Err(CallError::internal(format!("{member} is described and not there")));
            };
            if let Err(error) = answered.await {
                not_sent(&error);
            }
            return Ok(());
        }
        Err(CallError::unknown_method(format!("{path} has no method {member} there")))
    }
}

/// The types that a method takes, as its introspection shows them; `None`: no such method. zbus
/// itself answers other types with an error that only zbus has.
fn takes(interface: &dyn Interface, member: &str) -> Option<String> {
    let mut xml = String::new();
    interface.introspect_to_writer(&mut xml, 0);
    let (_, method) = xml.split_once(&format!("<method name=\"{member}\">"))?;
    let (method, _) = method.split_once("</method>")?;
    let arguments = method.lines().filter(|line| line.contains("direction=\"in\""));
    Some(arguments.filter_map(|line| line.split("type=\"").nth(1)?.split('"').next()).collect())
}

/// The bus is gone, which its reader notices too.
fn not_sent(error: &impl std::fmt::Display) {
    tracing::debug!(%error, "an answer was not sent: {error}");
}
