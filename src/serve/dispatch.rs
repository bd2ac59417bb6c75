//! From a path to one of the three services, with what holds for every call of each: a place
//! among the calls in flight, and a definite end when the daemon stops.
//!
//! ```text
//! request ──► place? ──► service ──► response head ──► body frames ──► trailers
//!               │ no        │ stopping, grace over        │ stopping, nothing ready
//!               ▼           ▼                             ▼
//!          UNAVAILABLE  UNAVAILABLE                  UNAVAILABLE
//! ```
//!
//! Ending calls here rather than in each stream means that health watches and reflection end
//! like our own. A call that may already have changed something gets a grace to answer; a
//! stream has nothing to lose and ends at once. Dropping the call drops the reply slot its
//! command carries, by which the loop notices.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::Frame;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::codegen::{BoxFuture, Bytes, Service};
use tonic::server::NamedService;

use super::Phase;
use super::peer::Peer;
use crate::quota::{Full, Permit, Quota};

/// The services behind the socket. Cloned for every connection.
#[derive(Clone, Debug)]
pub(super) struct Dispatch<S, H, R> {
    pub(super) shaper: S,
    pub(super) health: H,
    pub(super) reflection: R,
    pub(super) calls: Arc<Quota>,
    pub(super) phase: watch::Receiver<Phase>,
    /// How long a call under way may take to answer once the daemon stops.
    pub(super) grace: Duration,
}

/// A generated gRPC service; its readiness is constant.
pub(super) trait Grpc:
    Service<
        Request<Body>,
        Response = Response<Body>,
        Error = Infallible,
        Future = BoxFuture<Response<Body>, Infallible>,
    > + NamedService
    + Clone
    + Send
    + 'static
{
}

impl<T> Grpc for T where
    T: Service<
            Request<Body>,
            Response = Response<Body>,
            Error = Infallible,
            Future = BoxFuture<Response<Body>, Infallible>,
        > + NamedService
        + Clone
        + Send
        + 'static
{
}

impl<S: Grpc, H: Grpc, R: Grpc> Service<Request<Body>> for Dispatch<S, H, R> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let place = match request.extensions().get::<Peer>() {
            Some(Peer(caller)) => self.calls.take(caller.uid),
            // The connection layer puts it there; a call without one is of no user.
            None => return answer(Status::internal("the connection has no peer credentials")),
        };
        let place = match place {
            Ok(place) => place,
            Err(Full::All) => {
                return answer(Status::unavailable(
                    "lrsd has too many calls open; try again later",
                ));
            }
            Err(Full::OfUid) => {
                return answer(Status::unavailable(
                    "your user has too many calls to lrsd open; end some",
                ));
            }
        };
        let service = request.uri().path().strip_prefix('/').and_then(|path| path.split_once('/'));
        let call = match service {
            Some((name, _)) if name == S::NAME => self.shaper.call(request),
            Some((name, _)) if name == H::NAME => self.health.call(request),
            Some((name, _)) if name == R::NAME => self.reflection.call(request),
            _ => {
                return answer(Status::unimplemented(
                    "no such service here; this socket speaks lrs.v1.Shaper, health and reflection",
                ));
            }
        };
        let (mut phase, grace) = (self.phase.clone(), self.grace);
        Box::pin(async move {
            let patience = async {
                // An error means that the server is gone, which ends the call too.
                let _ = phase.wait_for(|phase| *phase != Phase::Serving).await;
                tokio::time::sleep(grace).await;
            };
            let response = tokio::select! {
                biased;
                response = call => response?,
                () = patience => return Ok(stopping().into_http()),
            };
            Ok(response.map(|body| Body::new(Until::new(body, phase, place))))
        })
    }
}

/// What a call is told that the end of the daemon cuts short.
pub(super) fn stopping() -> Status {
    Status::unavailable("lrsd is stopping; ask again once it is back")
}

fn answer(status: Status) -> BoxFuture<Response<Body>, Infallible> {
    Box::pin(std::future::ready(Ok(status.into_http())))
}

/// A response body until the daemon stops; holds the call's place to its end.
struct Until {
    inner: Body,
    phase: watch::Receiver<Phase>,
    /// Made when the body first has nothing ready: most bodies never do.
    ending: Option<WatchStream<Phase>>,
    ended: bool,
    _place: Permit,
}

impl Until {
    fn new(inner: Body, phase: watch::Receiver<Phase>, place: Permit) -> Until {
        Until { inner, phase, ending: None, ended: false, _place: place }
    }

    fn poll_ending(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ending = self.ending.get_or_insert_with(|| WatchStream::new(self.phase.clone()));
        loop {
            match Pin::new(&mut *ending).poll_next(cx) {
                Poll::Ready(Some(Phase::Serving)) => {}
                Poll::Ready(Some(Phase::Stopping | Phase::Cut) | None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl http_body::Body for Until {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        if self.poll_ending(cx).is_pending() {
            return Poll::Pending;
        }
        self.ended = true;
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(match stopping().add_header(&mut trailers) {
            Ok(()) => Ok(Frame::trailers(trailers)),
            Err(status) => Err(status),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}
