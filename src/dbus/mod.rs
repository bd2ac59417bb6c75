//! The D-Bus door: `org.lrs.Shaper1` on the system bus, a session bus or an address.
//!
//! Like the gRPC door it translates and decides nothing: a call becomes a
//! [`crate::command::Command`] for the loop or is read off the newest
//! [`crate::publish::Snapshot`], and rights are checked where the command is carried out.
//!
//! ```text
//! bus ──► dispatch ──► callers: who is it ──┬─► changes ──► command queue
//!  ▲                                         │      └─ polkit may add rights
//!  │                                         └─► reads ◄── snapshot, events
//!  └─ announce: signals ◄── snapshot compared with the one told last, events
//! ```
//!
//! `contract` and `properties` are tables of all names and types; dispatch, introspection and
//! signals read them.
//!
//! The bus may be absent, hang, refuse the name or go away: that is said once, tried again with
//! growing pauses, and touches neither the loop nor gRPC. There is no state here: a new
//! connection shows the same tasks. Signals of the meantime are not sent; Events has them.
//!
//! Limits: what a client gets from the bus while lrsd is away is the bus's own error. The
//! answer of GetManagedObjects and of ListTasks grows with the tasks and is refused above what
//! a bus carries; gRPC has pages.

mod announce;
mod callers;
mod changes;
mod contract;
mod dispatch;
mod error;
mod introspect;
mod objects;
mod pidfd;
mod polkit;
mod properties;
mod reads;
mod reply;
mod value;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;
use zbus::message::{Message, Type};
use zbus::{Connection, MessageStream};

use self::announce::Announcer;
use self::dispatch::Door;
use self::error::CallError;
use crate::config::Bus;
use crate::publish::Access;

pub use contract::{MANAGER, MANAGER_PATH, NAME, TASK, TASKS_PATH};

/// Bounds on what callers may hold, and on how long things take. The defaults are the
/// daemon's; tests narrow them.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Calls under way at once, waiting Admits included; any one user but root gets half, and
    /// the last sixteenth is root's.
    pub calls: usize,
    /// How long a call under way may still take once the daemon stops.
    pub stop_grace: Duration,
    /// After this the connection is closed, whoever still waits.
    pub stop_within: Duration,
    /// Pause before a bus is tried again: at first, and at most.
    pub retry: (Duration, Duration),
    /// How long a bus may take to let us in.
    pub connect_within: Duration,
    /// Whether polkit's name is polkit's on a bus that is not the system's, as on a private
    /// bus nobody else is on.
    pub trust_polkit: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            calls: 1024,
            stop_grace: Duration::from_millis(300),
            stop_within: Duration::from_millis(700),
            retry: (Duration::from_secs(1), Duration::from_secs(30)),
            connect_within: Duration::from_secs(10),
            trust_polkit: false,
        }
    }
}

/// Why the door is not open.
#[derive(Debug, thiserror::Error)]
enum DoorError {
    #[error("no bus to connect to ({0})")]
    NoBus(zbus::Error),
    #[error("the bus did not let lrsd in within {0:?}")]
    Slow(Duration),
    #[error(
        "the bus policy does not let uid {uid} own {NAME}: install org.lrs.Shaper1.conf where the \
         bus reads its policies (/usr/share/dbus-1/system.d), reload the bus, and run lrsd as \
         root; or set dbus.bus = \"off\"", uid = rustix::process::geteuid().as_raw()
    )]
    NotAllowed,
    #[error(
        "somebody else owns {NAME} on this bus, most likely another lrsd: stop it, or set \
         dbus.bus = \"off\" in the configuration of one of them"
    )]
    NameTaken,
    #[error("the bus failed: {0}")]
    Bus(#[from] zbus::Error),
    #[error("the bus took the name {NAME} away")]
    NameLost,
    #[error("the bus closed the connection")]
    Closed,
    #[error("signals cannot be made, please report this: {0}")]
    Announcer(tokio::task::JoinError),
}

/// [`serve_with`] the daemon's [`Limits`].
pub async fn serve(
    bus: Bus,
    access: Access,
    tried: oneshot::Sender<()>,
    shutdown: impl Future<Output = ()>,
) {
    serve_with(bus, access, Limits::default(), tried, shutdown).await;
}

/// Serves on `bus` until `shutdown` is ready, coming back whenever the bus does. Nothing that
/// happens on the bus is an error of the daemon. `tried` is told once the first attempt has
/// succeeded or failed.
pub async fn serve_with(
    bus: Bus,
    access: Access,
    limits: Limits,
    tried: oneshot::Sender<()>,
    shutdown: impl Future<Output = ()>,
) {
    let mut tried = Some(tried);
    let mut shutdown = std::pin::pin!(shutdown);
    let mut pause = limits.retry.0;
    let mut said = String::new();
    loop {
        let opened = tokio::select! {
            opened = open(&bus, &access, &limits) => opened,
            () = &mut shutdown => return,
        };
        if let Some(tried) = tried.take() {
            // Whoever no longer listens did not want to wait so long.
            let _ = tried.send(());
        }
        let ended = match opened {
            Ok(session) => {
                tracing::info!(%bus, "serving {NAME}");
                pause = limits.retry.0;
                said.clear();
                match session.run(&limits, &mut shutdown).await {
                    Ok(()) => return,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        // A bus that stays away is news once.
        let reason = ended.to_string();
        if reason != said {
            match &ended {
                DoorError::NoBus(_) => tracing::info!(
                    %bus,
                    "not on D-Bus: {reason}; lrsd goes on with gRPC and tries again. If there is \
                     none, set dbus.bus = \"off\""
                ),
                _ => tracing::warn!(
                    %bus,
                    "not on D-Bus: {reason}; lrsd goes on with gRPC and tries again"
                ),
            }
            said = reason;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = &mut shutdown => return,
        }
        pause = pause.saturating_mul(2).min(limits.retry.1);
    }
}

/// One connection that owns the name.
struct Session {
    door: Arc<Door>,
    messages: MessageStream,
    announcer: Announcer,
    stop: watch::Sender<bool>,
}

async fn open(bus: &Bus, access: &Access, limits: &Limits) -> Result<Session, DoorError> {
    let opening = async {
        let builder = match bus {
            // With "off" nobody opens a door.
            Bus::System | Bus::Off => zbus::connection::Builder::system(),
            Bus::Session => zbus::connection::Builder::session(),
            Bus::Address(address) => zbus::connection::Builder::address(address.as_str()),
        };
        let connection =
            builder.map_err(DoorError::NoBus)?.build().await.map_err(|error| match error {
                zbus::Error::Connection(..) | zbus::Error::Address(_) => DoorError::NoBus(error),
                error => DoorError::Bus(error),
            })?;
        // Before the name is ours, so that no call is missed.
        let messages = MessageStream::from(&connection);
        watch_leaving(&connection).await?;
        let announcer = Announcer::new(connection.clone(), access.clone());
        own_name(&connection).await?;
        let (stop, stopping) = watch::channel(false);
        let polkit = *bus == Bus::System || limits.trust_polkit;
        let door = Door::new(connection, access.clone(), limits, polkit, stopping);
        Ok(Session { door: Arc::new(door), messages, announcer, stop })
    };
    tokio::time::timeout(limits.connect_within, opening)
        .await
        .unwrap_or(Err(DoorError::Slow(limits.connect_within)))
}

/// Asks for the news of every connection that leaves the bus. One rule for all: a rule for
/// each caller would cost two calls to the bus for each.
async fn watch_leaving(connection: &Connection) -> Result<(), DoorError> {
    let rule = "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',\
                member='NameOwnerChanged',arg2=''";
    bus_call(connection, "AddMatch", &(rule,)).await?;
    Ok(())
}

/// RequestName of the D-Bus specification.
async fn own_name(connection: &Connection) -> Result<(), DoorError> {
    const DO_NOT_QUEUE: u32 = 4;
    const PRIMARY_OWNER: u32 = 1;
    const ALREADY_OWNER: u32 = 4;
    let reply = match bus_call(connection, "RequestName", &(NAME, DO_NOT_QUEUE)).await {
        Err(zbus::Error::MethodError(name, ..))
            if name.as_str() == "org.freedesktop.DBus.Error.AccessDenied" =>
        {
            return Err(DoorError::NotAllowed);
        }
        reply => reply?,
    };
    match reply.body().deserialize::<u32>()? {
        PRIMARY_OWNER | ALREADY_OWNER => Ok(()),
        _ => Err(DoorError::NameTaken),
    }
}

async fn bus_call<B>(connection: &Connection, member: &str, body: &B) -> zbus::Result<Message>
where
    B: serde::Serialize + zbus::zvariant::DynamicType,
{
    connection
        .call_method(
            Some("org.freedesktop.DBus"),
            "/org/freedesktop/DBus",
            Some("org.freedesktop.DBus"),
            member,
            body,
        )
        .await
}

impl Session {
    /// Serves until `shutdown`, or until the bus fails.
    async fn run(
        self,
        limits: &Limits,
        shutdown: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<(), DoorError> {
        let Session { door, mut messages, announcer, stop } = self;
        let mut calls = JoinSet::new();
        let mut announcing = tokio::spawn(announcer.run());
        // Dropping `calls` ends the calls under way: nobody is there to answer.
        let ended = loop {
            tokio::select! {
                message = messages.next() => match message {
                    None => break Err(DoorError::Closed),
                    Some(Err(error)) => break Err(error.into()),
                    Some(Ok(message)) => match message.message_type() {
                        Type::MethodCall => door.received(message, &mut calls).await,
                        Type::Signal if lost_name(&message) => break Err(DoorError::NameLost),
                        Type::Signal => door.left(&message),
                        Type::MethodReturn | Type::Error => {}
                    },
                },
                Some(called) = calls.join_next() => answered(called),
                // The loop has ended (then the daemon stops), or the bus failed.
                told = &mut announcing => match told {
                    Ok(Ok(())) => {
                        shutdown.await;
                        break Ok(());
                    }
                    Ok(Err(error)) => break Err(error.into()),
                    Err(error) => break Err(DoorError::Announcer(error)),
                },
                () = &mut *shutdown => break Ok(()),
            }
        };
        announcing.abort();
        if ended.is_ok() {
            let finish = async {
                tokio::select! {
                    () = drained(&mut calls) => return,
                    () = tokio::time::sleep(limits.stop_grace) => {}
                }
                stop.send_replace(true);
                drained(&mut calls).await;
            };
            if tokio::time::timeout(limits.stop_within, finish).await.is_err() {
                tracing::debug!("callers on D-Bus were cut off");
            }
        }
        ended
    }
}

/// The arguments, whose types `Door::route` has checked.
fn arguments<T>(message: &Message) -> Result<T, CallError>
where
    T: for<'de> serde::Deserialize<'de> + zbus::zvariant::Type,
{
    message.body().deserialize().map_err(unreadable)
}

/// As [`arguments`], borrowing from the message.
fn from<'m, T>(body: &'m zbus::message::Body) -> Result<T, CallError>
where
    T: serde::Deserialize<'m> + zbus::zvariant::Type,
{
    body.deserialize().map_err(unreadable)
}

fn unreadable(error: zbus::Error) -> CallError {
    CallError::invalid_arguments(format!("the arguments cannot be read: {error}"))
}

async fn drained(calls: &mut JoinSet<()>) {
    while let Some(called) = calls.join_next().await {
        answered(called);
    }
}

fn answered(called: Result<(), tokio::task::JoinError>) {
    if let Err(error) = called {
        tracing::error!(%error, "a call on D-Bus was not answered, please report this: {error}");
    }
}

/// The bus says so to the former owner alone.
fn lost_name(message: &Message) -> bool {
    let header = message.header();
    header.sender().is_some_and(|sender| sender.as_str() == "org.freedesktop.DBus")
        && header.member().is_some_and(|member| member.as_str() == "NameLost")
        && message.body().deserialize::<&str>().is_ok_and(|name| name == NAME)
}
