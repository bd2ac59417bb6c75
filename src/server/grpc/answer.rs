//! What a call has to say to a client that may not listen.
//!
//! The window of HTTP/2 is the client's choice: one that grants 2 GiB and reads nothing would
//! make the daemon hold all it may ever say. So the daemon goes by what was *written*. Each
//! piece of an answer counts against the bytes of its user from the moment it is encoded until
//! the socket has taken it, a stream makes its next piece only when the last one is gone, and
//! a call that moves nothing for [`Limits::slow_reader`](super::Limits) while something waits
//! is ended: by its status behind what is on the way, so that a client that reads on learns
//! why; by a reset where HTTP/2 has not even taken the last piece (the window is zero). A call
//! that is over may have left pieces with HTTP/2, which keeps them as long as the connection: if
//! they do not move for as long, the connection is closed.
//!
//! ```text
//! service ──► Answer (body) ──► Piece ──► hyper, h2 ──► socket
//!                ▲    waits       │ written: advance(), or dropped
//!                └──── Unsent ◄───┘
//!                        └── watched by `until_stuck`, around the whole call
//! ```
//!
//! Limits: the heads and trailers of answers are not counted; how many there can be follows
//! from the number of connections and of calls on each. What the socket took is the kernel's,
//! which accept.rs bounds for each connection.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http_body::Frame;
use hyper::body::Buf;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::codegen::http::HeaderMap;
use tonic::{Code, Status};

use crate::server::quota::{Permit, Quota};

tokio::task_local! {
    /// Of the call that is being polled.
    static CURRENT: Arc<Unsent>;
}

/// What one call has made and the client has not taken.
#[derive(Debug, Default)]
pub(super) struct Unsent(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    /// When something was last written, or began to wait; `None`: nothing waits.
    since: Option<Instant>,
    /// The call, while it waits for `bytes` to be gone.
    waiting: Option<Waker>,
    too_slow: bool,
}

impl Unsent {
    /// The account of the call that is being polled; outside of calls a new one that nothing reads.
    pub(super) fn current() -> Arc<Unsent> {
        CURRENT.try_with(Arc::clone).unwrap_or_default()
    }

    /// Whether the call is to end because its reader is too slow.
    pub(super) fn is_too_slow(&self) -> bool {
        self.lock().too_slow
    }

    fn add(&self, bytes: usize) {
        let mut state = self.lock();
        state.bytes += bytes;
        state.since.get_or_insert_with(Instant::now);
    }

    fn wrote(&self, bytes: usize) {
        let mut state = self.lock();
        state.bytes = state.bytes.saturating_sub(bytes);
        if state.bytes > 0 {
            state.since = Some(Instant::now());
            return;
        }
        state.since = None;
        if let Some(waker) = state.waiting.take() {
            drop(state);
            waker.wake();
        }
    }

    /// Ready when all is written.
    fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.bytes == 0 {
            return Poll::Ready(());
        }
        state.waiting = Some(cx.waker().clone());
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `call` to its end, or until its client has taken nothing for `patience` while something
/// waits. `call` then gets one turn for its last words; dropped unfinished, it is reset. What it
/// leaves has to move as well, or `stuck` hears of it.
pub(super) async fn until_stuck(
    call: impl Future<Output = ()>,
    patience: Duration,
    stuck: Arc<Notify>,
) {
    let unsent = Arc::<Unsent>::default();
    until_ended(call, patience, &unsent).await;
    let ended = Instant::now();
    loop {
        let Some(since) = unsent.lock().since else { return };
        let due = since.max(ended) + patience;
        if due <= Instant::now() {
            return stuck.notify_one();
        }
        let gone = std::future::poll_fn(|cx| unsent.poll_gone(cx));
        let _ = tokio::time::timeout_at(due, gone).await;
    }
}

async fn until_ended(call: impl Future<Output = ()>, patience: Duration, unsent: &Arc<Unsent>) {
    let mut call = pin!(CURRENT.scope(Arc::clone(unsent), call));
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    std::future::poll_fn(|cx| {
        if call.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        loop {
            let Some(since) = unsent.lock().since else {
                timer = None;
                return Poll::Pending;
            };
            let due = since + patience;
            if due <= Instant::now() {
                unsent.lock().too_slow = true;
                let _last_words = call.as_mut().poll(cx);
                return Poll::Ready(());
            }
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
            if timer.deadline() != due {
                timer.as_mut().reset(due);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
}

/// Part of an answer on its way to the socket.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: Bytes,
    unsent: Arc<Unsent>,
    permit: Option<Permit>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.written(count);
    }
}

impl Piece {
    fn written(&mut self, count: usize) {
        if let Some(permit) = &mut self.permit {
            permit.give_back(count);
        }
        self.unsent.wrote(count);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // Of a connection or stream that ended.
        self.written(self.bytes.len());
    }
}

/// The body of an answer, until the daemon stops; holds the call's places to its end.
pub(super) struct Answer {
    inner: Body,
    /// Whether more may follow the first message.
    streams: bool,
    unsent: Arc<Unsent>,
    allowance: Option<(Arc<Quota>, u32)>,
    stopping: Pin<Box<WaitForCancellationFutureOwned>>,
    ended: bool,
    _places: [Option<Permit>; 2],
}

impl Answer {
    /// Of the call that is being polled. `allowance` are the bytes of the user that asks, and
    /// its uid; `None`: an admin.
    pub(super) fn new(
        inner: Body,
        streams: bool,
        allowance: Option<(Arc<Quota>, u32)>,
        stopping: &CancellationToken,
        places: [Option<Permit>; 2],
    ) -> Answer {
        let (unsent, ended) = (Unsent::current(), false);
        let stopping = Box::pin(stopping.clone().cancelled_owned());
        Answer { inner, streams, unsent, allowance, stopping, ended, _places: places }
    }

    /// A copy, so that no more is held than is counted: the encoder's buffer is larger.
    fn piece(&self, data: &Bytes) -> Option<Piece> {
        let permit = match &self.allowance {
            Some((bytes, uid)) => Some(bytes.take_some(*uid, data.len()).ok()?),
            None => None,
        };
        self.unsent.add(data.len());
        let bytes = Bytes::copy_from_slice(data);
        Some(Piece { bytes, unsent: Arc::clone(&self.unsent), permit })
    }

    fn end(&mut self, status: &Status) -> Poll<Option<Result<Frame<Piece>, Status>>> {
        self.ended = true;
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }
}

impl http_body::Body for Answer {
    type Data = Piece;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, Status>>> {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        // The status of a call of one message may follow at once, the next of many may not.
        let taken =
            !this.streams || this.unsent.is_too_slow() || this.unsent.poll_gone(cx).is_ready();
        if taken && let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            let frame = match frame {
                None => return Poll::Ready(None),
                Some(Err(status)) => return Poll::Ready(Some(Err(status))),
                Some(Ok(frame)) => frame,
            };
            return match frame.into_data() {
                Ok(_) if this.unsent.is_too_slow() => this.end(&too_slow()),
                Ok(data) => match this.piece(&data) {
                    Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                    None => this.end(&too_much_unread(this.streams)),
                },
                Err(frame) => Poll::Ready(frame.into_trailers().ok().map(Frame::trailers).map(Ok)),
            };
        }
        if this.unsent.is_too_slow() {
            return this.end(&too_slow());
        }
        if this.stopping.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        this.end(&stopping())
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }
}

/// The answer to a call that the end of the daemon cuts short.
pub(super) fn stopping() -> Status {
    Status::unavailable("lrsd is stopping; ask again once it is back")
}

/// The answer to a user that leaves its answers unread or its requests half sent. A client that
/// asks for a slot takes RESOURCE_EXHAUSTED for "no free slot", so only streams get it.
pub(super) fn too_much_unread(stream: bool) -> Status {
    let code = if stream { Code::ResourceExhausted } else { Code::Unavailable };
    Status::new(
        code,
        "your user has as many answers of lrsd unread and requests half sent as it may (1 MiB), or \
         all users together have (32 MiB); read them, finish them or close some connections",
    )
}

fn too_slow() -> Status {
    Status::resource_exhausted(
        "closed: nothing of it was read for too long while more waited; ask again and read on",
    )
}
