//! From a path to one of the three services, with what holds for every call of each: a place
//! among the calls in flight, a bound on what it may leave unread, and a definite end when the
//! daemon stops.
//!
//! ```text
//! request ──► place? ──► service ──► response head ──► body frames ──► trailers
//!               │ no        │ stopping, grace over        │ stopping, nothing ready
//!               ▼           ▼                             ▼
//!            refused    UNAVAILABLE                  UNAVAILABLE
//! ```
//!
//! Ending calls here rather than in each stream means that health watches and reflection end
//! like our own. A call that may already have changed something gets a grace to answer; a
//! stream has nothing to lose and ends at once. Dropping the call drops the reply slot its
//! command carries, by which the loop notices. The head of an answer may go ahead of it (early.rs).
//!
//! A call over quota is UNAVAILABLE, a stream over its own quota RESOURCE_EXHAUSTED: a client
//! that asks for a slot takes the latter for "no free slot".
//!
//! A request that cannot be decoded is INVALID_ARGUMENT, for which the library has INTERNAL: the fault
//! is the client's.
//!
//! A service sees a request when it is whole. Until then it has a deadline and counts among the
//! unsent bytes of its user. The only call with a stream of requests, reflection, has small ones
//! and a place among the streams.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response, Uri};
use tonic::codegen::{BoxFuture, Bytes, Service};
use tonic::{Code, Status};
use tower::util::BoxCloneSyncService;

use super::answer::{Answer, stopping, too_much_unread};
use super::early::{self, TICKET, TicketTo};
use super::peer::Peer;
use crate::server::quota::{Full, Permit, Quota};

/// The services, ours first.
const SERVICES: [&str; 3] =
    ["lrs.v1.Shaper", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"];

/// The calls that answer with a stream of messages.
const STREAMS: [&str; 5] = [
    "/lrs.v1.Shaper/WatchStatus",
    "/lrs.v1.Shaper/WatchEvents",
    "/lrs.v1.Shaper/Record",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
];

/// What older clients of reflection ask. Its messages are those of v1 on the wire.
const REFLECTION_V1ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
const REFLECTION_V1: &str = STREAMS[4];

/// A request that is not whole pays for so many bytes at a time, and the first time for its head
/// (at most 4 KiB) and the state of its call as well.
const REQUEST_STEP: usize = 8 << 10;

/// Before each message in a body of gRPC: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// The services behind the socket, for one connection.
#[derive(Clone, Debug)]
pub(super) struct Dispatch {
    pub(super) services: Services,
    pub(super) peer: Peer,
    /// Not bound by [`Bounds::streams`] and [`Bounds::unsent`].
    pub(super) admin: bool,
    /// Why nothing is served on this connection.
    pub(super) refused: Option<&'static str>,
    pub(super) stopping: CancellationToken,
}

/// The services, and what their calls share over all connections.
#[derive(Clone, Debug)]
pub(super) struct Services {
    pub(super) shaper: Grpc,
    pub(super) health: Grpc,
    pub(super) reflection: Grpc,
    pub(super) bounds: Arc<Bounds>,
}

/// What calls may hold.
#[derive(Debug)]
pub(super) struct Bounds {
    /// Calls open at once.
    pub(super) calls: Arc<Quota>,
    /// Streams of users.
    pub(super) streams: Arc<Quota>,
    /// Bytes of users in answers that are not yet written and in requests that are not yet whole.
    pub(super) unsent: Arc<Quota>,
    /// Largest request.
    pub(super) request_bytes: usize,
    /// How long a request may take to be whole.
    pub(super) request_within: Duration,
    /// How long a call under way may take to answer once the daemon stops.
    pub(super) grace: Duration,
}

/// A generated gRPC service, whichever; it is always ready.
pub(super) type Grpc = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

impl hyper::service::Service<Request<Incoming>> for Dispatch {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Answer>, Infallible>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if request.uri().path() == REFLECTION_V1ALPHA {
            *request.uri_mut() = Uri::from_static(REFLECTION_V1);
        }
        let uid = self.peer.0.uid;
        let bounds = Arc::clone(&self.services.bounds);
        let streams = STREAMS.contains(&request.uri().path());
        let allowance = (!self.admin).then(|| (Arc::clone(&bounds.unsent), uid));
        let until = self.stopping.clone();
        let (places, refused) = match self.places(streams) {
            Ok(places) => (places, None),
            Err(status) => ([None, None], Some(status)),
        };
        let ticket = request.headers().contains_key(TICKET).then(|| {
            let (sender, ticket) = mpsc::channel(1);
            request.extensions_mut().insert(TicketTo(sender));
            ticket
        });
        let this = self.clone();
        Box::pin(async move {
            let patience = {
                let (until, grace) = (until.clone(), bounds.grace);
                async move {
                    until.cancelled().await;
                    tokio::time::sleep(grace).await;
                }
            };
            let mut call: early::Later = Box::pin(async move {
                let call = async {
                    match refused {
                        None => this.route(request, streams).await,
                        Some(status) => Err(status),
                    }
                };
                tokio::select! {
                    biased;
                    response = call => response,
                    () = patience => Err(stopping()),
                }
            });
            let first = match ticket {
                None => Ok(call.as_mut().await),
                Some(mut ticket) => tokio::select! {
                    biased;
                    response = call.as_mut() => Ok(response),
                    Some(ticket) = ticket.recv() => Err(ticket),
                },
            };
            let (response, until) = match first {
                Ok(response) => (response.unwrap_or_else(|status| status.into_http()), until),
                // The call itself ends when the daemon stops, after its grace.
                Err(ticket) => (early::with_head(&ticket, call), CancellationToken::new()),
            };
            let answer = |inner| Answer::new(inner, streams, allowance, &until, places);
            Ok(response.map(answer))
        })
    }
}

impl Dispatch {
    /// Among the calls, and among the streams of its user.
    fn places(&self, streams: bool) -> Result<[Option<Permit>; 2], Status> {
        let (bounds, uid) = (&self.services.bounds, self.peer.0.uid);
        if let Some(reason) = self.refused {
            return Err(Status::unavailable(reason));
        }
        let call = bounds.calls.take(uid).map_err(|full| {
            Status::unavailable(match full {
                Full::All => "lrsd has too many calls open; try again later",
                Full::OfUid => "your user has too many calls to lrsd open; end some",
            })
        })?;
        if self.admin {
            return Ok([Some(call), None]);
        }
        // Before the call does anything, not when it has done it and cannot say so.
        if bounds.unsent.nearly_full(uid) {
            return Err(too_much_unread(streams));
        }
        let stream = streams.then(|| bounds.streams.take(uid)).transpose().map_err(|full| {
            Status::resource_exhausted(match full {
                Full::All => "all users together watch as many streams of lrsd as they may",
                Full::OfUid => {
                    "your user watches as many streams of lrsd as it may; end some, or let one \
                     process watch for all"
                }
            })
        })?;
        Ok([Some(call), stream])
    }

    async fn route(
        mut self,
        mut request: Request<Incoming>,
        streams: bool,
    ) -> Result<Response<Body>, Status> {
        request.extensions_mut().insert(self.peer.clone());
        let name = request.uri().path().split('/').nth(1).unwrap_or_default();
        let [shaper, health, reflection] = SERVICES.map(|known| name == known);
        let Ok(response) = if reflection {
            self.services.reflection.call(request.map(Body::new)).await
        } else if shaper || health {
            let bounds = &self.services.bounds;
            let (within, payer) = (bounds.request_within, (!self.admin).then_some(self.peer.0.uid));
            let request = bounds.whole(request, payer, streams);
            let request = tokio::time::timeout(within, request).await.map_err(|_| {
                Status::unavailable(format!(
                    "the request was not whole within {} s, and nothing was done; send it again",
                    within.as_secs_f64()
                ))
            })??;
            let Ok(response) = match shaper {
                true => self.services.shaper.call(request).await,
                false => self.services.health.call(request).await,
            };
            return match undecoded(&response) {
                Some(what) => Err(Status::invalid_argument(what)),
                None => Ok(response),
            };
        } else {
            return Err(Status::unimplemented(
                "no such service here; this socket speaks lrs.v1.Shaper, health and reflection",
            ));
        };
        Ok(response)
    }
}

/// What tonic says when a body is not the message that it should be (prost's `DecodeError`).
const UNDECODED: &str = "failed to decode Protobuf message";

/// What is wrong with the request, if the service could not decode it.
fn undecoded(response: &Response<Body>) -> Option<String> {
    let status = Status::from_header_map(response.headers())?;
    let undecoded = status.code() == Code::Internal && status.message().starts_with(UNDECODED);
    undecoded.then(|| format!("the request is not the message of this call: {}", status.message()))
}

/// Whether a body is one message as gRPC frames it, and not compressed.
fn check_frame(body: &[u8]) -> Result<(), Status> {
    let wrong = |what: String| Err(Status::invalid_argument(format!("the request {what}")));
    let Some((prefix, message)) = body.split_first_chunk::<PREFIX_BYTES>() else {
        return wrong(format!("has {} bytes, and a message of gRPC has 5 at least", body.len()));
    };
    let [compressed, length @ ..] = *prefix;
    if compressed != 0 {
        return wrong(format!("begins with {compressed}, but compression is not spoken here"));
    }
    let length = u32::from_be_bytes(length);
    if usize::try_from(length) != Ok(message.len()) {
        let found = message.len();
        return wrong(format!("says that its message has {length} bytes and brings {found}"));
    }
    Ok(())
}

impl Bounds {
    /// `request` of `payer`, or of an admin, once all of it is here.
    async fn whole(
        &self,
        request: Request<Incoming>,
        payer: Option<u32>,
        streams: bool,
    ) -> Result<Request<Body>, Status> {
        let (head, mut body) = request.into_parts();
        let (mut whole, mut paid) = (Vec::new(), Vec::new());
        loop {
            while let Some(uid) = payer
                && paid.len() * REQUEST_STEP <= whole.len()
            {
                let step = self.unsent.take_some(uid, REQUEST_STEP);
                paid.push(step.map_err(|_| too_much_unread(streams))?);
            }
            let Some(frame) = body.frame().await else { break };
            let frame = frame.map_err(|error| Status::from_error(error.into()))?;
            let Some(data) = frame.data_ref() else { continue };
            if whole.len() + data.len() > PREFIX_BYTES + self.request_bytes {
                return Err(Status::out_of_range(format!(
                    "the request is larger than {} bytes",
                    self.request_bytes
                )));
            }
            // A copy, for a frame keeps all that was read with it.
            whole.extend_from_slice(data);
        }
        check_frame(&whole)?;
        Ok(Request::from_parts(head, Body::new(http_body_util::Full::<Bytes>::from(whole))))
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::STREAMS;

    #[test]
    fn every_call_that_streams_is_known_as_one() {
        let mut found = Vec::new();
        for set in [
            crate::proto::DESCRIPTOR,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        ] {
            for file in FileDescriptorSet::decode(set).unwrap().file {
                for service in &file.service {
                    let streams = service.method.iter().filter(|m| m.server_streaming());
                    found.extend(streams.map(|method| {
                        format!("/{}.{}/{}", file.package(), service.name(), method.name())
                    }));
                }
            }
        }
        found.sort();
        let mut known = STREAMS;
        known.sort();
        assert_eq!(found, known);
    }
}
