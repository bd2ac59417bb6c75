//! Taking connections in: credentials first, then a place, then HTTP/2.
//!
//! Nothing a client does here ends or spins the loop. Out of descriptors or memory, accept(2)
//! fails at once while the connection stays queued, so the loop pauses between tries; over
//! quota, the client gets a GOAWAY that says so and is closed, once it has had the time to
//! read it: a client whose first write meets a closed socket reports a broken pipe instead.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::peer::{self, Peer, PeerStream};
use super::{Limits, Phase};
use crate::quota::{Full, Quota};
use crate::units::Pid;

/// Pause after an accept(2) that failed for want of something. Long enough to cost nothing,
/// short beside the patience of a client.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// How long a refused client has to read why, and how many may be at it; the rest are closed
/// at once.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(1);
const REFUSALS_AT_ONCE: usize = 32;

/// Accepts until the receiver of `accepted` is gone.
pub(super) async fn accept_loop(
    listener: UnixListener,
    accepted: mpsc::Sender<Result<PeerStream, Infallible>>,
    limits: Limits,
    phase: watch::Receiver<Phase>,
) {
    let places = Quota::new(limits.connections);
    // Dropped with the loop, and the refusals under way with it.
    let mut refusals = JoinSet::new();
    loop {
        while refusals.try_join_next().is_some() {}
        let stream = tokio::select! {
            () = accepted.closed() => return,
            stream = listener.accept() => match stream {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if is_of_one_connection(&error) {
                        continue;
                    }
                    tracing::warn!(%error, "cannot accept connections, trying on: {error}");
                    tokio::time::sleep(SHORTAGE_PAUSE).await;
                    continue;
                }
            },
        };
        let caller = match peer::caller(&stream) {
            Ok(caller) => caller,
            Err(error) => {
                // Without credentials there is nobody to give rights to.
                tracing::warn!(%error, "closed a connection: cannot read who it is: {error}");
                continue;
            }
        };
        match places.take(caller.uid) {
            Ok(place) => {
                let peer = Peer(Arc::new(caller));
                let stream =
                    PeerStream::new(stream, peer, limits.first_words, phase.clone(), place);
                if accepted.send(Ok(stream)).await.is_err() {
                    return;
                }
            }
            Err(full) => {
                let (uid, pid) = (caller.uid, caller.pid.map(Pid::raw));
                let why = full.reason();
                tracing::warn!(uid, pid, "refused a connection of uid {uid}: {why}");
                if refusals.len() < REFUSALS_AT_ONCE {
                    refusals.spawn(tokio::time::timeout(REFUSAL_PATIENCE, refuse(stream, full)));
                }
            }
        }
    }
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

/// Says why in HTTP/2 (RFC 9113: 6.5 SETTINGS, 6.8 GOAWAY), which every gRPC client
/// understands, and waits until the client has closed.
async fn refuse(mut stream: UnixStream, full: Full) -> io::Result<()> {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GOAWAY: u8 = 7;
    /// Nothing was looked at, all of it may be tried again (RFC 9113, 7); gRPC: UNAVAILABLE.
    const REFUSED_STREAM: u32 = 7;
    let text = full.reason();
    let length = 8 + text.len() as u32;
    let mut answer = SETTINGS.to_vec();
    answer.extend_from_slice(&length.to_be_bytes()[1..]);
    answer.extend_from_slice(&[GOAWAY, 0]);
    answer.extend_from_slice(&0u32.to_be_bytes()); // on the connection itself
    answer.extend_from_slice(&0u32.to_be_bytes()); // no stream was looked at
    answer.extend_from_slice(&REFUSED_STREAM.to_be_bytes());
    answer.extend_from_slice(text.as_bytes());
    stream.write_all(&answer).await?;
    stream.shutdown().await?;
    let mut ignored = [0; 512];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}
