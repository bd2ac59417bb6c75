//! The head of an answer that is sent before the answer is known: that of an Admit which waits for its slot.
//!
//! The head brings the ticket of the wait, so that no client has to ask for it. It is sent only to a client that asks
//! for it by the same name in the metadata of the request: some libraries bound a call by its deadline
//! no further than to the head of its answer. What comes after it is as without: the message and its
//! status, or the status alone, which is then in the trailers.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http_body::Frame;
use tokio::sync::mpsc;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderValue, Response, header};
use tonic::codegen::{BoxFuture, Bytes};

/// In the metadata of a request: its ticket is wanted; in the head of the answer: the ticket.
pub(super) const TICKET: &str = lrs_api::client::TICKET;

/// Where the ticket of a call goes that waits; among the extensions of its request.
#[derive(Clone, Debug)]
pub(super) struct TicketTo(pub(super) mpsc::Sender<String>);

/// An answer, or its status, whenever it is known.
pub(super) type Later = BoxFuture<Response<Body>, Status>;

/// An answer with its head sent now, and the rest when `later` is ready.
pub(super) fn with_head(ticket: &str, later: Later) -> Response<Body> {
    let mut response = Response::new(Body::new(Rest::Later(later)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    // A ticket is of letters, digits and dots.
    if let Ok(ticket) = HeaderValue::from_str(ticket) {
        headers.insert(TICKET, ticket);
    }
    response
}

/// What follows a head.
enum Rest {
    Later(Later),
    Body(Body),
    Ended,
}

impl http_body::Body for Rest {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Rest::Later(later) = &mut *self {
            let status = match ready!(later.as_mut().poll(cx)) {
                Err(status) => Some(status),
                Ok(response) => {
                    // Without a message the status is in the head.
                    let status = Status::from_header_map(response.headers());
                    *self = Rest::Body(response.into_body());
                    status
                }
            };
            if let Some(status) = status {
                *self = Rest::Ended;
                let mut trailers = HeaderMap::new();
                let added = status.add_header(&mut trailers);
                return Poll::Ready(Some(added.map(|()| Frame::trailers(trailers))));
            }
        }
        match &mut *self {
            Rest::Body(body) => Pin::new(body).poll_frame(cx),
            Rest::Later(_) | Rest::Ended => Poll::Ready(None),
        }
    }
}
