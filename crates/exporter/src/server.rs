//! The server: `/metrics` and `/healthz`.
//!
//! What anybody may hold by asking is bounded ([`Limits`]): 256 connections, each for 10 s from its
//! first byte to its last, whatever of it is slow. One more closes the oldest: 5,000 that say nothing keep no
//! Prometheus out that is served in milliseconds, but may close one that waits for an lrsd that hangs. A connection serves one
//! request. The page is one piece of memory for all of them.
//!
//! Limits: no TLS and no password; bind an address that only those reach who may read it, or put a proxy
//! before it. Nothing is compressed: a page is some 15 kB.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use lrs_metrics::Format;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::pages::{Pages, Source};

/// What connections may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many there may be at once.
    pub connections: usize,
    /// How long one may take.
    pub whole: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 256, whole: Duration::from_secs(10) }
    }
}

/// Bytes of a request that are read.
const REQUEST: usize = 16 << 10;

/// After this long accept(2) is tried again where it failed, as for want of descriptors.
const AGAIN: Duration = Duration::from_millis(100);

/// Serves until it is dropped, which closes all connections.
pub async fn serve<S: Source>(listener: TcpListener, pages: Arc<Pages<S>>, limits: Limits) {
    let mut tasks = JoinSet::new();
    let mut open = VecDeque::<AbortHandle>::new();
    let mut failed = false;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                if !std::mem::replace(&mut failed, true) {
                    tracing::warn!(%error, "a connection cannot be taken, which is tried again: {error}");
                }
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        failed = false;
        while tasks.try_join_next().is_some() {}
        open.retain(|connection| !connection.is_finished());
        if open.len() >= limits.connections
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(tasks.spawn(connection(stream, Arc::clone(&pages), limits.whole)));
    }
}

async fn connection<S: Source>(stream: TcpStream, pages: Arc<Pages<S>>, whole: Duration) {
    let service = service_fn(move |request| {
        let pages = Arc::clone(&pages);
        async move { Ok::<_, Infallible>(answer(&pages, &request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .max_buf_size(REQUEST)
        .serve_connection(TokioIo::new(stream), service);
    // A scraper that goes away or is slow is its own affair.
    match tokio::time::timeout(whole, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("a connection ended: {error}"),
        Err(_) => tracing::debug!("a connection was closed that took {whole:?}"),
    }
}

async fn answer<S: Source>(pages: &Pages<S>, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut answer = words(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD are served\n".into());
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    match request.uri().path() {
        "/metrics" => {
            let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
            let format = Format::accepted(accept.unwrap_or_default());
            let text = pages.page().await.text(format);
            with_type(StatusCode::OK, format.content_type(), text)
        }
        "/healthz" => match pages.page().await.health() {
            Ok(()) => words(StatusCode::OK, "ok\n".into()),
            Err(why) => words(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        },
        _ => words(StatusCode::NOT_FOUND, "there are /metrics and /healthz\n".into()),
    }
}

fn words(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    with_type(status, "text/plain; charset=utf-8", text.into())
}

fn with_type(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
