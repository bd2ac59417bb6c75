//! Taking connections in: credentials first, then a place, then HTTP/2.
//!
//! Nothing a client does here ends or spins the loop. Out of descriptors or memory, accept(2)
//! fails at once while the connection stays queued, so the loop pauses between tries; over
//! quota, the client gets a GOAWAY that says so and is closed.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::peer::{self, Peer, PeerStream};
use super::quota::{Full, Quota};
use super::{Limits, Phase};

/// Pause after an accept(2) that failed for want of something. Long enough to cost nothing,
/// short beside the patience of a client.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// At most one line of each kind in this time: clients can trigger them.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Accepts until the receiver of `accepted` is gone.
pub(super) async fn accept_loop(
    listener: UnixListener,
    accepted: mpsc::Sender<Result<PeerStream, Infallible>>,
    limits: Limits,
    phase: watch::Receiver<Phase>,
) {
    let places = Quota::new(limits.connections);
    let mut log = AcceptLog::default();
    loop {
        let stream = tokio::select! {
            () = accepted.closed() => return,
            stream = listener.accept() => match stream {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if is_of_one_connection(&error) {
                        continue;
                    }
                    log.shortage.warn(|lost| {
                        tracing::warn!(%error, lost, "cannot accept connections; trying on");
                    });
                    tokio::time::sleep(SHORTAGE_PAUSE).await;
                    continue;
                }
            },
        };
        let Some(stream) = receive(stream, &places, &limits, &phase, &mut log) else {
            continue;
        };
        if accepted.send(Ok(stream)).await.is_err() {
            return;
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

fn receive(
    stream: UnixStream,
    places: &Arc<Quota>,
    limits: &Limits,
    phase: &watch::Receiver<Phase>,
    log: &mut AcceptLog,
) -> Option<PeerStream> {
    let caller = match peer::caller(&stream) {
        Ok(caller) => caller,
        Err(error) => {
            // Without credentials there is nobody to give rights to.
            log.nameless.warn(|lost| {
                tracing::warn!(%error, lost, "closed a connection: its credentials cannot be read");
            });
            return None;
        }
    };
    match places.take(caller.uid) {
        Ok(place) => Some(PeerStream::new(
            stream,
            Peer(Arc::new(caller)),
            limits.first_words,
            phase.clone(),
            place,
        )),
        Err(full) => {
            let text = match full {
                Full::All => "lrsd has too many connections open; try again later",
                Full::OfUid => "your user has too many connections to lrsd open; close some",
            };
            refuse(&stream, text);
            log.refused.warn(|lost| {
                let uid = caller.uid;
                tracing::warn!(uid, pid = ?caller.pid, lost, ?full, "refused a connection");
            });
            None
        }
    }
}

/// Says why in HTTP/2 (RFC 9113: 6.5 SETTINGS, 6.8 GOAWAY), which every gRPC client
/// understands. One write into a fresh socket's empty buffer; a client too odd to take it
/// still sees the close.
fn refuse(stream: &UnixStream, text: &str) {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GOAWAY: u8 = 7;
    const ENHANCE_YOUR_CALM: u32 = 0xb;
    let length = 8 + text.len() as u32;
    let mut answer = SETTINGS.to_vec();
    answer.extend_from_slice(&length.to_be_bytes()[1..]);
    answer.extend_from_slice(&[GOAWAY, 0]);
    answer.extend_from_slice(&0u32.to_be_bytes()); // on the connection itself
    answer.extend_from_slice(&0u32.to_be_bytes()); // no stream was looked at
    answer.extend_from_slice(&ENHANCE_YOUR_CALM.to_be_bytes());
    answer.extend_from_slice(text.as_bytes());
    if let Err(error) = stream.try_write(&answer) {
        tracing::debug!(%error, "a refused client was gone before it could be told");
    }
}

#[derive(Debug, Default)]
struct AcceptLog {
    shortage: Rarely,
    nameless: Rarely,
    refused: Rarely,
}

/// One kind of log line, at most once in [`LOG_EVERY`].
#[derive(Debug, Default)]
struct Rarely {
    last: Option<Instant>,
    lost: u64,
}

impl Rarely {
    /// Calls `line` with the number of lines left out since the last one, or counts this one.
    fn warn(&mut self, line: impl FnOnce(u64)) {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.duration_since(last) < LOG_EVERY) {
            self.lost += 1;
            return;
        }
        line(std::mem::take(&mut self.lost));
        self.last = Some(now);
    }
}
