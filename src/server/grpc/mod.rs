//! The gRPC server on a unix socket.
//!
//! It translates: a request becomes a [`crate::command::Command`] for the loop, or is read
//! off the one [`crate::publish::Snapshot`]. There is no policy in it; who may do what is
//! decided where the command is carried out, on the credentials the kernel gives for the
//! connection.
//!
//! ```text
//! accept ──► credentials, place ──► HTTP/2 (hyper) ──► dispatch ──► GrpcServer ──► command queue
//!                                                          ├──► health        └──► snapshot, events
//!                                                          └──► reflection
//! ```
//!
//! The socket is open to every user of the node, so everything a client can hold is bounded:
//! connections and calls (of each user but root, of all of them, and in all), streams and bytes
//! of unsent answers and half-sent requests (of each user but admins, and of all of them), calls
//! on one connection, the kernel's buffer for what is unread, message and header sizes, the time
//! until it speaks and until a request is whole, the time it may leave a ping unanswered or a
//! message unread. The table in docs/operations.md has the figures. Reading is pulled by the
//! client; nothing here ever makes the loop wait, and admins are served on another thread than
//! everybody else.
//!
//! Stopping takes [`Limits::stop_within`] at most, whatever is open: streams end with
//! UNAVAILABLE at once, calls under way get a grace to answer, and what is left then is
//! dropped, for HTTP/2's own shutdown waits for the client.
//!
//! Limits: a connection holds a descriptor and about 17 KiB (HTTP/2 buffers, measured), and up to
//! 16 KiB more for a frame that is half sent, until a ping is unanswered. An answer
//! larger than a user's [`Limits::unsent_bytes`] is given if nothing else of that user waits. The
//! memory limit of the service is the backstop.

mod accept;
mod answer;
mod convert;
mod dispatch;
mod early;
mod peer;
mod shaper;
mod socket;
mod watch;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lrs_host::spare::NoThread;
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, HealthService};

use self::dispatch::Grpc;
use crate::access::Access;
use crate::proto;
use crate::proto::shaper_server::ShaperServer;
use crate::server::quota::Quota;

pub use peer::Peer;
pub use shaper::{GrpcServer, MAX_PAGE_SIZE};
pub use socket::{BoundSocket, MAX_PATH_BYTES, bind};

/// Why the server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address of a unix socket has room for [`MAX_PATH_BYTES`].
    #[error(
        "socket path {} has {bytes} bytes; the kernel takes at most {MAX_PATH_BYTES}: choose a \
         shorter runtime directory or [grpc] listen path",
        path.display()
    )]
    PathTooLong {
        /// As given.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// Another daemon.
    #[error(
        "another lrsd answers on {}: stop it, or give this one a runtime \
         directory of its own",
        path.display()
    )]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// A file, directory or link has the name.
    #[error("{} exists and is no socket: it was left as it is; move it away", path.display())]
    NotASocket {
        /// What is in the way.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// "bind", "listen on" ...
        action: &'static str,
        /// The socket.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The descriptors compiled in do not parse.
    #[error("cannot offer reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    /// The kernel refused a thread or its descriptors.
    #[error("cannot start the thread that serves users: {}", NoThread(.0))]
    Thread(std::io::Error),
}

/// Largest request for reflection: the name of a file, symbol or extension.
const REFLECTION_BYTES: usize = 4 << 10;

/// Bounds on what clients may hold, for each socket. The defaults are the daemon's; tests
/// narrow them.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections open at once; any one user but root gets a quarter, and all of them together
    /// half. A client above it gets an error and is closed.
    pub connections: usize,
    /// Calls and streams open at once over all connections, shared in the same way.
    pub calls: usize,
    /// Calls and streams open at once on one connection. Generous, because HTTP/2 does not
    /// refuse what is above it: the client's library silently waits for a stream to end, and
    /// watches do not end.
    pub calls_per_connection: u32,
    /// Streams open at once of each user but admins, over all connections. Above it
    /// RESOURCE_EXHAUSTED.
    pub streams: usize,
    /// The same of all users but admins together.
    pub all_streams: usize,
    /// Bytes of each user but admins in answers that are made and not yet written, and in
    /// requests that are not yet whole. Above it UNAVAILABLE, of streams RESOURCE_EXHAUSTED.
    pub unsent_bytes: usize,
    /// The same of all users but admins together.
    pub all_unsent_bytes: usize,
    /// A call of which nothing was read for so long, while something waits, is ended; if it
    /// leaves something that is not read for so long either, its connection is closed.
    pub slow_reader: Duration,
    /// Until when a new connection must have sent the HTTP/2 preface, and a call its request.
    pub first_words: Duration,
    /// Interval of HTTP/2 pings, and how long one may stay unanswered. A client stopped by
    /// Ctrl-Z is gone after the sum, and with it its place among those who wait for a slot.
    pub keepalive: (Duration, Duration),
    /// Largest request in bytes. The largest sensible one, an Admit, has below 2 KiB.
    pub request_bytes: usize,
    /// How long a call under way may still take to answer once the daemon stops.
    pub stop_grace: Duration,
    /// After this everything is closed.
    pub stop_within: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 4096,
            calls: 8192,
            calls_per_connection: 2048,
            streams: 64,
            all_streams: 1024,
            unsent_bytes: 1 << 20,
            all_unsent_bytes: 32 << 20,
            slow_reader: Duration::from_secs(10),
            first_words: Duration::from_secs(10),
            keepalive: (Duration::from_secs(60), Duration::from_secs(60)),
            request_bytes: 64 << 10,
            stop_grace: Duration::from_millis(300),
            stop_within: Duration::from_secs(1),
        }
    }
}

impl Limits {
    /// One user gets a quarter of `total`, all but root together half.
    fn shared(&self, total: usize) -> Arc<Quota> {
        Quota::of(total, total / 2, total / 4)
    }

    /// Calls open at once on one more connection of a user that has `own` of `all` connections.
    /// Each call may leave a head and a status unread, so there are fewer on each of many.
    fn calls_of_user(&self, (own, all): (usize, usize)) -> u32 {
        let share = (512 / own.max(1)).min(4096 / all.max(1));
        self.calls_per_connection.min(share.max(8) as u32)
    }
}

/// The health of the daemon for clients that check it (grpc.health.v1). Cheap to clone; one serves all
/// sockets of a daemon.
#[derive(Clone, Debug, Default)]
pub struct Health {
    reporter: HealthReporter,
}

impl Health {
    /// Not yet serving; [`serve`] says so when it does.
    pub fn new() -> Health {
        Health::default()
    }

    /// Sets the state of the daemon as a whole ("") and of `lrs.v1.Shaper`; the daemon says
    /// `false` while its loop does not turn.
    pub async fn set_serving(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in ["", <ShaperServer<GrpcServer> as NamedService>::NAME] {
            self.reporter.set_service_status(service, status).await;
        }
    }
}

/// [`serve_with`] the daemon's [`Limits`].
pub async fn serve(
    socket: BoundSocket,
    access: Access,
    health: Health,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    serve_with(socket, access, health, Limits::default(), shutdown).await
}

/// Serves until `shutdown` is ready, then closes everything within [`Limits::stop_within`]
/// and removes the socket. Call it when the state is recovered: clients that connected since
/// [`bind`] are waiting.
///
/// # Errors
/// When the server cannot be set up. Nothing a client does is an error of the server.
pub async fn serve_with(
    socket: BoundSocket,
    access: Access,
    health: Health,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (listener, file) = socket::watched(socket)?;
    let path = file.path().to_owned();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTOR)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    // Ends with this function.
    let (others, _others_end) =
        crate::runtime::on_thread("lrs-users").map_err(ServeError::Thread)?;
    health.set_serving(true).await;

    let stopping = CancellationToken::new();
    let services = dispatch::Services {
        shaper: Grpc::new(
            ShaperServer::new(GrpcServer::new(access.clone()))
                .max_decoding_message_size(limits.request_bytes),
        ),
        health: Grpc::new(
            tonic_health::pb::health_server::HealthServer::new(
                HealthService::from_health_reporter(health.reporter.clone()),
            )
            .max_decoding_message_size(limits.request_bytes),
        ),
        reflection: Grpc::new(reflection.max_decoding_message_size(REFLECTION_BYTES)),
        bounds: Arc::new(dispatch::Bounds {
            calls: limits.shared(limits.calls),
            streams: Quota::of(usize::MAX, limits.all_streams, limits.streams),
            unsent: Quota::of(usize::MAX, limits.all_unsent_bytes, limits.unsent_bytes),
            request_bytes: limits.request_bytes,
            request_within: limits.first_words,
            grace: limits.stop_grace,
        }),
    };
    let me = rustix::process::geteuid().as_raw();
    let is_admin = move |uid| {
        let config = access.snapshot.borrow().config.clone();
        // Whoever a private daemon runs as can replace it anyway.
        uid == 0 || uid == me || config.is_some_and(|config| config.grpc.admins.contains(&uid))
    };
    let stop_within = limits.stop_within;
    let (replace, replaced) = tokio::sync::mpsc::channel(1);
    let mut keeping = Box::pin(socket::keep(file, replace));
    let listeners = accept::Listeners { now: listener, replaced };
    let serving =
        accept::accept_loop(listeners, services, limits, is_admin, others, stopping.clone());
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        () = serving.as_mut() => {}
        never = keeping.as_mut() => match never {},
        () = shutdown => {
            health.set_serving(false).await;
            // With the name of the socket.
            drop(keeping);
            stopping.cancel();
            if tokio::time::timeout(stop_within, serving).await.is_err() {
                tracing::debug!("some connections to {} did not close in time", path.display());
            }
        }
    }
    Ok(())
}
