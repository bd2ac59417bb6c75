//! Taking connections in: credentials first, then a place, then HTTP/2.
//!
//! Nothing a client does here ends or spins the loop. Out of descriptors or memory, accept(2)
//! fails at once while the connection stays queued, so the loop pauses between tries. After a second of that
//! it takes clients in by a descriptor kept for it. Their calls, and those of a client over quota, are
//! answered with that error, for a moment.
//!
//! Admins are served on the thread that accepts, everybody else on a thread of their own:
//! however many calls the others have in the queue of theirs, an admin's is not behind them.

use std::io::{self, Cursor};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Limits;
use super::answer::until_stuck;
use super::dispatch::{Dispatch, Services};
use super::peer::{self, Peer};
use crate::kernfs::files::Explained;

/// Pause after an accept(2) that failed for want of something. Long enough to cost nothing,
/// short beside the patience of a client.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// After so many of them clients get an error.
const SHORTAGE_TRIES: u32 = 10;

/// How long a refused client has to ask and read why, and how many may be at it; the rest are
/// closed at once.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(1);
const REFUSALS_AT_ONCE: usize = 32;

/// What a client reads for which there is no descriptor.
const NO_DESCRIPTORS: &str =
    "lrsd is out of file descriptors; raise LimitNOFILE= of lrsd.service, or try again later";

/// Length of the HTTP/2 client preface (RFC 9113, 3.4). A client that has sent that much has
/// begun to speak; from there on HTTP/2 keepalive looks after it.
const PREFACE_BYTES: usize = 24;

/// For what users leave unread the kernel takes memory from the daemon's share. It doubles this
/// and may go over that by half (socket(7), sock_alloc_send_pskb), so 12 KiB a connection.
const SEND_BUFFER: usize = 4 << 10;

/// The sockets that are listened on, one after the other.
pub(super) struct Listeners {
    pub(super) now: UnixListener,
    /// What replaces one with a removed name.
    pub(super) replaced: Receiver<UnixListener>,
}

impl Listeners {
    async fn accept(&mut self) -> io::Result<UnixStream> {
        loop {
            tokio::select! {
                accepted = self.now.accept() => return Ok(accepted?.0),
                Some(listener) = self.replaced.recv() => self.now = listener,
            }
        }
    }
}

/// Accepts and serves until `stopping`; then until all connections are done.
pub(super) async fn accept_loop(
    mut listeners: Listeners,
    services: Services,
    limits: Limits,
    is_admin: impl Fn(u32) -> bool,
    others: Handle,
    stopping: CancellationToken,
) {
    let (places, here) = (limits.shared(limits.connections), Handle::current());
    // Dropped with the loop, and the connections with them.
    let (mut connections, mut refusals) = (JoinSet::new(), JoinSet::new());
    // To be closed for a client that would not hear otherwise that there are no more.
    let mut kept = None;
    // Tries in a row that failed for want of one.
    let mut tries = 0;
    loop {
        while refusals.try_join_next().is_some() {}
        kept = kept.or_else(|| listeners.now.as_fd().try_clone_to_owned().ok());
        let next = tokio::select! {
            () = stopping.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            next = listeners.accept() => next,
        };
        let (stream, shortage) = match next {
            Ok(stream) => {
                tries = 0;
                (stream, None)
            }
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => {
                let error = Explained(&error);
                tracing::warn!(%error, "cannot accept connections, trying on: {error}");
                tokio::time::sleep(SHORTAGE_PAUSE).await;
                tries += 1;
                if tries < SHORTAGE_TRIES || kept.take().is_none() {
                    continue;
                }
                // It waits in the kernel's queue, or has gone.
                match tokio::time::timeout(SHORTAGE_PAUSE, listeners.accept()).await {
                    Ok(Ok(stream)) => (stream, Some(NO_DESCRIPTORS)),
                    Ok(Err(_)) | Err(_) => continue,
                }
            }
        };
        let caller = match peer::caller(&stream) {
            Ok(caller) => caller,
            Err(error) => {
                // Rights belong to a uid, and without credentials there is none.
                tracing::warn!(%error, "closed a connection: cannot read its credentials: {error}");
                continue;
            }
        };
        let uid = caller.uid;
        let admin = is_admin(uid);
        let place = places.take(uid);
        let refused = shortage.or_else(|| place.as_ref().err().map(|full| full.reason()));
        if !admin && let Err(error) = set_socket_send_buffer_size(&stream, SEND_BUFFER) {
            tracing::warn!(uid, %error, "closed a connection: cannot bound its buffer: {error}");
            continue;
        }
        let connection = Connection {
            limits: limits.clone(),
            streams: if admin {
                limits.calls_per_connection
            } else {
                limits.calls_of_user(places.held(uid))
            },
            dispatch: Dispatch {
                services: services.clone(),
                peer: Peer(caller.into()),
                admin,
                refused,
                stopping: stopping.clone(),
            },
        };
        let home = if admin { &here } else { &others };
        let serve = async move {
            // A descriptor belongs to the runtime that waits for it.
            match stream.into_std().and_then(UnixStream::from_std) {
                Ok(stream) => connection.serve(stream).await,
                Err(error) => tracing::warn!(%error, uid, "closed a connection: {error}"),
            }
            drop(place);
            crate::trim::ended();
        };
        let Some(why) = refused else {
            connections.spawn_on(serve, home);
            continue;
        };
        // Without its pid: of a flood one line is logged, and a count.
        tracing::warn!(uid, "refused a connection of uid {uid}: {why}");
        if refusals.len() < REFUSALS_AT_ONCE {
            let refuse = async move { drop(tokio::time::timeout(REFUSAL_PATIENCE, serve).await) };
            refusals.spawn_on(refuse, home);
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Errors of accept(2) that say something about the client that was next and nothing about
/// us: it gave up, or a filter refused it.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::PermissionDenied
    )
}

/// One accepted connection.
struct Connection {
    dispatch: Dispatch,
    limits: Limits,
    /// Calls at once.
    streams: u32,
}

impl Connection {
    async fn serve(self, stream: UnixStream) {
        let Connection { dispatch, limits, streams } = self;
        let uid = dispatch.peer.0.uid;
        let stopping = dispatch.stopping.clone();
        let (mut read, write) = stream.into_split();
        let mut preface = [0; PREFACE_BYTES];
        tokio::select! {
            // It has asked nothing yet.
            () = stopping.cancelled() => return,
            heard = tokio::time::timeout(limits.first_words, read.read_exact(&mut preface)) => {
                if !matches!(heard, Ok(Ok(_))) {
                    tracing::debug!(uid, "closed a connection of uid {uid} that sent nothing");
                    return;
                }
            }
        }
        let stream = tokio::io::join(Cursor::new(preface).chain(read), write);
        let stuck = Arc::<Notify>::default();
        let calls = Calls { patience: limits.slow_reader, stuck: Arc::clone(&stuck) };
        let connection =
            http2(&limits, streams, calls).serve_connection(TokioIo::new(stream), dispatch);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stuck.notified() => {
                tracing::debug!(uid, "closed a connection of uid {uid} that reads no answers");
                return;
            }
            () = stopping.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(uid, %error, "a connection of uid {uid} broke: {error}");
        }
    }
}

fn http2(limits: &Limits, streams: u32, calls: Calls) -> http2::Builder<Calls> {
    // A stream's window holds a request; a connection's holds a few of those not read yet.
    const STREAM_WINDOW: u32 = 64 << 10;
    const CONNECTION_WINDOW: u32 = 128 << 10;
    /// A head of gRPC has some 200 bytes; the daemon keeps it as long as the call.
    const HEADER_BYTES: u32 = 4 << 10;
    /// Above it a call makes nothing more, whatever window the client grants.
    const SEND_BYTES: usize = 4 << 10;
    let (interval, patience) = limits.keepalive;
    let mut builder = http2::Builder::new(calls);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(streams)
        .max_send_buf_size(SEND_BYTES)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADER_BYTES)
        .keep_alive_interval(interval)
        .keep_alive_timeout(patience);
    builder
}

/// Runs each call of a connection, ends it when its client reads nothing, and then the connection.
#[derive(Clone, Debug)]
struct Calls {
    patience: Duration,
    stuck: Arc<Notify>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Calls {
    fn execute(&self, call: F) {
        tokio::spawn(until_stuck(call, self.patience, Arc::clone(&self.stuck)));
    }
}
