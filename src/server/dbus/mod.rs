//! The D-Bus server: `org.lrs.Shaper1` on the system bus, a session bus or an address.
//!
//! Like the gRPC server it translates and decides nothing: a call becomes a command for the loop
//! or is read off the newest snapshot, both by [`crate::server::service`], and rights are checked where
//! the command is carried out.
//!
//! ```text
//! bus ──► dispatch: who calls (callers), places ──► Manager, Task ──► service ──► command queue
//!  ▲                                                      │              └──► snapshot, events
//!  │                                                      └─ polkit may add rights
//!  └─ announce: signals ◄── snapshot compared with the one announced last, events
//! ```
//!
//! The bus may be absent, hang, refuse the name or go away: that is logged once, tried again with
//! growing pauses, and touches neither the loop nor gRPC. There is no state here: a new
//! connection shows the same tasks. Signals of the meantime are not sent; Events has them.
//!
//! **D-Bus objects that are looked up, not registered.** Methods, properties and introspection are
//! zbus's `#[interface]`. Its ObjectServer, which would call them, sets no limit on calls under way
//! and shows all objects in one introspection document: 12.8 MB with 2,000 tasks, more than a bus
//! carries with 5,000, so that any user could have lrsd thrown off the bus. The server takes messages
//! off the connection itself: a call has places in the quota of its user first, then an object is made
//! from the snapshot for it. Who calls is asked on a second connection, before the next call is read.
//!
//! Limits: what a client gets from the bus while lrsd is away is the bus's own error. The
//! answer of GetManagedObjects and of ListTasks grows with the tasks and is refused above what
//! a bus carries; gRPC has pages.

mod announce;
mod call;
mod callers;
mod connection;
mod dispatch;
mod error;
mod manager;
mod object;
mod path;
mod polkit;
mod task;
mod value;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lrs_host::spare::NoThread;
use serde::Serialize;
use tokio::sync::{Semaphore, oneshot};
use tokio_stream::StreamExt as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use zbus::fdo::{self, DBusProxy, NameLost, NameOwnerChanged, RequestNameFlags, RequestNameReply};
use zbus::message::Type;
use zbus::zvariant::serialized::Context;
use zbus::zvariant::{self, serialized_size};
use zbus::{Connection, MatchRule, MessageStream};

use self::announce::Announcer;
use self::callers::{Callers, LOOKUPS};
use self::connection::Server;
use self::error::CallError;
use crate::access::Access;
use crate::config::Bus;
use crate::server::quota::Quota;
use crate::server::service::Service;

pub use self::path::{MANAGER_PATH, TASKS_PATH};

/// Name on the bus.
pub const NAME: &str = "org.lrs.Shaper1";

/// A bus disconnects a client that sends more than its limit, 32 MiB for dbus-daemon's system
/// bus.
const MAX_ANSWER_BYTES: usize = 24 << 20;

/// Bounds on what callers may hold, and on how long things take. The defaults are the
/// daemon's; tests narrow them.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Calls under way at once, waiting Admits included; any one user but root gets half, and
    /// the last sixteenth is root's. A call with a large answer counts as
    /// three eighths of all: one for each user, two at once, since each is made whole in memory.
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
    /// bus that no other user reaches.
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

/// Why there is no service on the bus.
#[derive(Debug, thiserror::Error)]
enum BusError {
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
        "another process owns {NAME} on this bus, most likely an lrsd: stop it, or set \
         dbus.bus = \"off\" in the configuration of one of them"
    )]
    NameTaken,
    #[error("the bus failed: {0}")]
    Bus(#[from] zbus::Error),
    #[error("the bus failed: {0}")]
    Refused(#[from] fdo::Error),
    #[error("the bus took the name {NAME} away")]
    NameLost,
    #[error("the bus did not identify the caller within {0:?}")]
    Silent(Duration),
    #[error("the bus closed the connection")]
    Closed,
    #[error("no thread for the connection: {}", NoThread(.0))]
    NoThread(std::io::Error),
    #[error("signals failed: {0}")]
    Signals(Box<dyn std::error::Error + Send + Sync>),
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
/// happens on the bus is an error of the daemon. `tried` gets a message once the first attempt
/// has succeeded or failed.
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
    let mut logged = String::new();
    loop {
        let opening = tokio::time::timeout(limits.connect_within, open(&bus, &access, &limits));
        let opened = tokio::select! {
            opened = opening => opened.unwrap_or(Err(BusError::Slow(limits.connect_within))),
            () = &mut shutdown => return,
        };
        if let Some(tried) = tried.take() {
            // A receiver that is gone did not want to wait so long.
            let _ = tried.send(());
        }
        let ended = match opened {
            Ok(session) => {
                tracing::info!(%bus, "serving {NAME}");
                pause = limits.retry.0;
                logged.clear();
                match session.run(&limits, &mut shutdown).await {
                    Ok(()) => return,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        // A bus that stays away is news once.
        let reason = ended.to_string();
        if reason != logged {
            match &ended {
                BusError::NoBus(_) => tracing::info!(
                    %bus,
                    "not on D-Bus: {reason}; lrsd goes on with gRPC and tries again. If there is \
                     none, set dbus.bus = \"off\""
                ),
                _ => tracing::warn!(
                    %bus,
                    "not on D-Bus: {reason}; lrsd goes on with gRPC and tries again"
                ),
            }
            logged = reason;
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
    server: Arc<Server>,
    messages: MessageStream,
    announcer: Announcer,
    /// On a connection of its own, on which who calls is asked.
    asking: DBusProxy<'static>,
}

async fn open(bus: &Bus, access: &Access, limits: &Limits) -> Result<Session, BusError> {
    let connection = connect(bus).await?;
    // Before the name is ours, so that no call is missed.
    let messages = MessageStream::from(&connection);
    let proxy = DBusProxy::new(&connection).await?;
    // Every connection that leaves the bus. One rule for all: a rule for each caller would cost
    // two calls to the bus for each.
    let leaving = "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',\
                   member='NameOwnerChanged',arg2=''";
    proxy.add_match_rule(MatchRule::try_from(leaving)?).await?;
    let asking = DBusProxy::new(&connect(bus).await?).await?;
    let shown = Arc::new(connection::Bus::new(connection.clone()).await?);
    let announcer = Announcer::new(Arc::clone(&shown), access.clone())?;
    let name = NAME.try_into().map_err(zbus::Error::from)?;
    match proxy.request_name(name, RequestNameFlags::DoNotQueue.into()).await {
        Ok(RequestNameReply::PrimaryOwner | RequestNameReply::AlreadyOwner) => {}
        Ok(_) => return Err(BusError::NameTaken),
        Err(fdo::Error::AccessDenied(_)) => return Err(BusError::NotAllowed),
        Err(error) => return Err(error.into()),
    }
    let server = Arc::new(Server {
        bus: shown,
        access: access.clone(),
        service: Service::new(access.clone()),
        polkit: *bus == Bus::System || limits.trust_polkit,
        lookups: Arc::new(Semaphore::new(LOOKUPS)),
        stopping: CancellationToken::new(),
        calls: Quota::new(limits.calls),
        large: (limits.calls * 3 / 8).max(1),
    });
    Ok(Session { server, messages, announcer, asking })
}

async fn connect(bus: &Bus) -> Result<Connection, BusError> {
    let builder = match bus {
        // With "off" there is no server.
        Bus::System | Bus::Off => zbus::connection::Builder::system(),
        Bus::Session => zbus::connection::Builder::session(),
        Bus::Address(address) => zbus::connection::Builder::address(address.as_str()),
    };
    // zbus starts one, and tokio panics where it cannot.
    lrs_host::spare::thread().map_err(BusError::NoThread)?;
    builder.map_err(BusError::NoBus)?.build().await.map_err(|error| match error {
        zbus::Error::Connection(..) | zbus::Error::Address(_) => BusError::NoBus(error),
        error => BusError::Bus(error),
    })
}

impl Session {
    /// Serves until `shutdown`, or until the bus fails.
    async fn run(
        self,
        limits: &Limits,
        shutdown: &mut (impl Future<Output = ()> + Unpin),
    ) -> Result<(), BusError> {
        let Session { server, messages, announcer, asking } = self;
        let calls = TaskTracker::new();
        let ended = tokio::select! {
            error = receive(&server, messages, &asking, &calls) => Err(error),
            ended = announcer.run() => match ended {
                // The loop has ended; then the daemon stops.
                Ok(()) => {
                    shutdown.await;
                    Ok(())
                }
                Err(error) => Err(BusError::Signals(error)),
            },
            () = &mut *shutdown => Ok(()),
        };
        calls.close();
        if ended.is_ok() {
            let finish = async {
                if tokio::time::timeout(limits.stop_grace, calls.wait()).await.is_err() {
                    server.stopping.cancel();
                    calls.wait().await;
                }
            };
            if tokio::time::timeout(limits.stop_within, finish).await.is_err() {
                tracing::debug!("callers on D-Bus were cut off");
            }
        }
        // No caller is left to answer.
        server.stopping.cancel();
        if ended.is_err() {
            // A call that still writes its answer would keep the connection, and with it the name.
            let close = server.bus.connection.clone().close();
            if !matches!(tokio::time::timeout(limits.stop_within, close).await, Ok(Ok(()))) {
                tracing::debug!("the connection to the bus that failed could not be closed");
            }
        }
        ended
    }
}

/// Starts the calls that come, until the bus fails.
async fn receive(
    server: &Arc<Server>,
    mut messages: MessageStream,
    asking: &DBusProxy<'_>,
    calls: &TaskTracker,
) -> BusError {
    let mut callers = Callers::default();
    loop {
        let message = match messages.next().await {
            None => return BusError::Closed,
            Some(Err(error)) => return error.into(),
            Some(Ok(message)) => message,
        };
        match message.message_type() {
            Type::MethodCall => {
                if let Err(error) = server.receive(message, &mut callers, asking, calls).await {
                    return error;
                }
            }
            Type::Signal => {
                let from_bus = message
                    .header()
                    .sender()
                    .is_some_and(|sender| sender.as_str() == "org.freedesktop.DBus");
                if !from_bus {
                    continue;
                }
                // Sent to the former owner alone.
                let lost = NameLost::from_message(message.clone());
                if lost.is_some_and(|lost| lost.args().is_ok_and(|args| *args.name() == NAME)) {
                    return BusError::NameLost;
                }
                let changed = NameOwnerChanged::from_message(message);
                if let Some(args) = changed.as_ref().and_then(|changed| changed.args().ok())
                    && args.new_owner().is_none()
                {
                    callers.left(args.name().as_str());
                }
            }
            Type::MethodReturn | Type::Error => {}
        }
    }
}

/// `answer`, if it is no larger than a bus carries.
fn limited<T: Serialize + zvariant::Type>(answer: T) -> Result<T, CallError> {
    let size = serialized_size(Context::new_dbus(zvariant::NATIVE_ENDIAN, 0), &answer);
    let bytes = *size.map_err(CallError::internal)?;
    if bytes <= MAX_ANSWER_BYTES {
        return Ok(answer);
    }
    Err(CallError::limits_exceeded(format!(
        "the answer has {bytes} bytes, more than a bus carries; ask for single tasks, or for \
         pages over gRPC"
    )))
}
