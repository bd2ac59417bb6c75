//! The gRPC door on a unix socket.
//!
//! It translates: a request becomes a [`crate::command::Command`] for the loop, or is read
//! off the one [`crate::publish::Snapshot`]. There is no policy in it; who may do what is
//! decided where the command is carried out, on the credentials the kernel gives for the
//! connection.
//!
//! ```text
//! accept ──► credentials, place ──► HTTP/2 (tonic) ──► dispatch ──► GrpcServer ──► command queue
//!                                                          ├──► health        └──► snapshot, events
//!                                                          └──► reflection
//! ```
//!
//! The socket is open to every user of the node, so everything a client can hold is bounded:
//! connections and calls (in all, and for each user), calls on one connection, message and
//! header sizes, the time until it speaks, the time it may leave a ping unanswered. Reading
//! is pulled by the client; nothing here ever makes the loop wait.
//!
//! Stopping takes [`Limits::stop_within`] at most, whatever is open: streams end with
//! UNAVAILABLE at once, calls under way get a grace to answer, and what is left then is cut
//! below HTTP/2, whose own shutdown waits for the client.
//!
//! Limits: a connection that has said nothing yet holds a descriptor and about 17 KiB (HTTP/2
//! buffers, measured), for [`Limits::first_words`] at most. A client that asks for pages of
//! tasks and never reads them makes the daemon hold up to one page for each of its calls; the
//! memory limit of the service is the backstop.

mod accept;
mod convert;
mod dispatch;
mod grpc;
mod peer;
mod socket;
mod watch;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, watch as watch_channel};
use tokio_stream::wrappers::ReceiverStream;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, HealthService};

use crate::proto;
use crate::proto::shaper_server::ShaperServer;
use crate::publish::Access;

pub use grpc::{GrpcServer, MAX_PAGE_SIZE};
pub use peer::Peer;
pub use socket::{BoundSocket, MAX_PATH_BYTES, bind};

/// Why the door cannot be opened.
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
        "somebody answers on {}: another lrsd runs there; stop it, or give this one a runtime \
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
    /// The HTTP/2 server failed as a whole.
    #[error("the gRPC server failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// Bounds on what clients may hold, for each socket. The defaults are the daemon's; tests
/// narrow them.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections open at once; any one user but root gets half, and the last sixteenth is
    /// root's. Above it a client is told and closed.
    pub connections: usize,
    /// Calls and streams open at once over all connections, shared in the same way.
    pub calls: usize,
    /// Calls and streams open at once on one connection. Generous, because HTTP/2 does not
    /// refuse what is above it: the client's library silently waits for a stream to end, and
    /// watches do not end.
    pub calls_per_connection: u32,
    /// Until when a new connection must have sent the HTTP/2 preface.
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
            first_words: Duration::from_secs(10),
            keepalive: (Duration::from_secs(60), Duration::from_secs(60)),
            request_bytes: 64 << 10,
            stop_grace: Duration::from_millis(300),
            stop_within: Duration::from_secs(1),
        }
    }
}

/// How far the server is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Streams end, calls have their grace, nobody new comes in.
    Stopping,
    /// Connections end from below.
    Cut,
}

/// What health-checking clients are told (grpc.health.v1). Cheap to clone; one serves all
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
    let BoundSocket { listener, file } = socket;
    let path = file.path().to_owned();
    let listener = tokio::net::UnixListener::from_std(listener).map_err(|source| {
        ServeError::Io { action: "watch for connections on", path: path.clone(), source }
    })?;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTOR)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    health.set_serving(true).await;

    let (set_phase, phase) = watch_channel::channel(Phase::Serving);
    let services = dispatch::Dispatch {
        shaper: ShaperServer::new(GrpcServer::new(access))
            .max_decoding_message_size(limits.request_bytes),
        health: tonic_health::pb::health_server::HealthServer::new(
            HealthService::from_health_reporter(health.reporter.clone()),
        )
        .max_decoding_message_size(limits.request_bytes),
        reflection: reflection.max_decoding_message_size(limits.request_bytes),
        calls: crate::quota::Quota::new(limits.calls),
        phase: phase.clone(),
        grace: limits.stop_grace,
    };
    // One connection under way: the kernel's queue is the queue.
    let (accepted, connections) = mpsc::channel(1);
    let accepting = accept::accept_loop(listener, accepted, limits.clone(), phase.clone());

    let mut stopping = phase;
    let serving = transport(&limits).serve_with_incoming_shutdown(
        services,
        ReceiverStream::new(connections),
        async move {
            // An error means that the sender below is gone, which is a stop as well.
            let _ = stopping.wait_for(|phase| *phase != Phase::Serving).await;
        },
    );
    let stop = async {
        shutdown.await;
        health.set_serving(false).await;
        drop(file);
        set_phase.send_replace(Phase::Stopping);
        // Grace for the answers, and about as much for the client to take them.
        tokio::time::sleep(limits.stop_within.mul_f64(0.7)).await;
        set_phase.send_replace(Phase::Cut);
        tokio::time::sleep(limits.stop_within.mul_f64(0.3)).await;
    };
    let served = async { tokio::join!(accepting, serving).1 };
    tokio::select! {
        served = served => served?,
        () = stop => {
            let path = path.display();
            tracing::warn!(%path, "some connections to {path} did not close in time");
        }
    }
    Ok(())
}

fn transport(limits: &Limits) -> Server {
    // A stream's window holds a request; a connection's holds a few of those not read yet.
    const STREAM_WINDOW: u32 = 64 << 10;
    const CONNECTION_WINDOW: u32 = 128 << 10;
    const HEADER_BYTES: u32 = 16 << 10;
    let (interval, patience) = limits.keepalive;
    Server::builder()
        .max_concurrent_streams(limits.calls_per_connection)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_header_list_size(HEADER_BYTES)
        .http2_keepalive_interval(Some(interval))
        .http2_keepalive_timeout(Some(patience))
}
