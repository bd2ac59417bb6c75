//! The two streams. Both are pulled: a stream does work only when what it sent before is
//! written, and holds nothing the loop would have to wait for. A reader that is slow misses
//! states (status) or learns how many events it lost.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use super::answer::{Unsent, stopping};
use crate::core::event::Event;
use crate::proto::{self, event_stream_item::Item};
use crate::publish::{EventRing, Snapshot};
use crate::server::query;

/// The status now, and again whenever it has changed when the reader is ready for more.
pub(super) fn status(
    snapshots: watch::Receiver<Arc<Snapshot>>,
) -> impl Stream<Item = Result<proto::Status, Status>> + Send + 'static {
    let mut last: Option<Arc<proto::Status>> = None;
    WatchStream::new(snapshots)
        .filter_map(move |snapshot| {
            let status = &snapshot.status;
            // Most snapshots change tasks only.
            let same = |last: &Arc<proto::Status>| Arc::ptr_eq(last, status) || last == status;
            if last.as_ref().is_some_and(same) {
                return None;
            }
            last = Some(Arc::clone(status));
            Some(Ok(proto::Status::clone(status)))
        })
        // The loop has ended.
        .chain(tokio_stream::once(Err(stopping())))
}

/// Events taken from the ring at once, and written before the next are taken. A slow reader keeps
/// that many alive; the rest it reads, or has lost, when it comes for them. An event has 100 to
/// 400 bytes as a rule and at most a few KiB, so that the 64 streams of a user stay below its
/// 1 MiB; other calls wait for one batch, not for a history.
const BATCH: usize = 8;

/// Events from a position on, and the news that some are gone.
#[derive(Debug)]
pub(super) struct EventStream {
    ring: Arc<EventRing>,
    news: WatchStream<u64>,
    next: u64,
    /// Last sequence number wanted; `None`: follow.
    end: Option<u64>,
    batch: VecDeque<Arc<Event>>,
    /// A batch has just been given out.
    pause: bool,
    unsent: Arc<Unsent>,
}

impl EventStream {
    pub(super) fn new(ring: Arc<EventRing>, since: Option<u64>, no_follow: bool) -> EventStream {
        let newest = ring.newest();
        let last = *newest.borrow();
        EventStream {
            next: since.unwrap_or(last.saturating_add(1)).max(1),
            end: no_follow.then_some(last),
            news: WatchStream::new(newest),
            batch: VecDeque::new(),
            pause: false,
            unsent: Unsent::current(),
            ring,
        }
    }

    /// The next item that is there already.
    fn take(&mut self) -> Option<Item> {
        if self.batch.is_empty() {
            // Up to a gap: the number of lost events is sent where they are missing.
            let page = self.ring.read(self.next, BATCH);
            self.batch.extend(page.events);
            if page.lost > 0 {
                self.next = self.next.saturating_add(page.lost);
                return Some(Item::Lost(page.lost));
            }
        }
        let event = self.batch.pop_front()?;
        self.pause = self.batch.is_empty();
        self.next = event.seq.saturating_add(1);
        Some(Item::Event(query::event(&event)))
    }

    fn given_up(&self) -> Status {
        let next = self.next;
        let lost = self.ring.last().saturating_add(1).saturating_sub(next);
        Status::resource_exhausted(format!(
            "closed: nothing of it was read for too long; {lost} events were not sent; read what \
             is still kept by watching since {next}"
        ))
    }
}

impl Stream for EventStream {
    type Item = Result<proto::EventStreamItem, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.unsent.is_too_slow() {
            return Poll::Ready(Some(Err(this.given_up())));
        }
        if std::mem::take(&mut this.pause) {
            // Ends the piece of the answer: the encoder gathers until a stream is not ready.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            if this.end.is_some_and(|end| this.next > end) {
                return Poll::Ready(None);
            }
            if let Some(item) = this.take() {
                return Poll::Ready(Some(Ok(proto::EventStreamItem { item: Some(item) })));
            }
            if this.end.is_some() {
                return Poll::Ready(None);
            }
            // A push between `take` and here has changed the watched value: no wake is lost.
            match Pin::new(&mut this.news).poll_next(cx) {
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => return Poll::Ready(Some(Err(stopping()))),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
