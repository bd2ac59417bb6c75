//! The gRPC connection, and the requests every command shares.

use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::Channel;

use super::failure::{Asked, Failure, from_status};
use super::values::Endpoint;
use crate::proto;
use crate::proto::shaper_client::ShaperClient;

/// A connected client.
pub(crate) type Connection = ShaperClient<Channel>;

/// How long a full backlog of the socket may keep us out.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an answer may take that waits for nothing. Generous: a saturated node is just
/// where an operator needs an answer rather than an error.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The largest answer taken. A page of 1,000 tasks is about half a MiB; the settings and one
/// task's history are far below.
const LARGEST_ANSWER: usize = 64 << 20;

/// Tasks asked for at once.
const PAGE: u32 = 1_000;

/// Connects once. The channel does not reconnect by itself: who rides through a restart of
/// the daemon (see `admit`) needs to know that there was one.
pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Connection, Failure> {
    let path = endpoint.path();
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, open(path))
        .await
        .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
        .map_err(|error| unreachable(path, &error))?;
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_| {
        let stream = stream.take().ok_or(std::io::ErrorKind::NotConnected);
        async move { stream.map_err(std::io::Error::from) }
    });
    // The authority is never resolved; over a unix socket it is a formality of HTTP/2.
    let channel = tonic::transport::Endpoint::from_static("http://localhost")
        .user_agent(concat!("lrsctl/", env!("CARGO_PKG_VERSION")))
        .map_err(|error| Failure::failed(format!("cannot set the user agent: {error}")))?
        .connect_with_connector(connector)
        .await
        .map_err(|error| {
            let path = path.display();
            Failure::unreachable(format!("{path} closed the connection before a word: {error}"))
                .hint("lrsd may have too many connections open; or another program listens there")
        })?;
    Ok(ShaperClient::new(channel).max_decoding_message_size(LARGEST_ANSWER))
}

/// EAGAIN from connect(2) on a unix socket means its backlog is full, not that nobody
/// listens; there is no event to await, so it is asked again.
async fn open(path: &Path) -> std::io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            other => return other,
        }
    }
}

fn unreachable(path: &Path, error: &std::io::Error) -> Failure {
    use std::io::ErrorKind;
    let path = path.display();
    let failure = Failure::unreachable(format!("cannot reach lrsd at {path}: {error}"));
    match error.kind() {
        ErrorKind::NotFound => {
            failure.hint("is lrsd running? `lrsctl doctor` looks; --endpoint names another socket")
        }
        ErrorKind::ConnectionRefused => {
            failure.hint("nothing listens on this socket any more; start lrsd again")
        }
        ErrorKind::TimedOut => failure.hint("lrsd accepts no connection; is it stopped or stuck?"),
        _ => failure,
    }
}

/// One request whose answer waits for nothing.
pub(super) fn ask<T, Fut>(
    endpoint: &Endpoint,
    asked: Asked,
    request: impl FnOnce(Connection) -> Fut,
) -> Result<T, Failure>
where
    Fut: Future<Output = Result<T, tonic::Status>>,
{
    super::runtime()?.block_on(async {
        let connection = connect(endpoint).await?;
        match tokio::time::timeout(ANSWER_TIMEOUT, request(connection)).await {
            Ok(answer) => answer.map_err(|status| from_status(&status, asked)),
            Err(_) => Err(no_answer(ANSWER_TIMEOUT)),
        }
    })
}

/// The daemon took the request and said nothing.
pub(super) fn no_answer(after: Duration) -> Failure {
    Failure::unreachable(format!("lrsd did not answer within {} s", after.as_secs()))
        .hint("it is stopped or stuck; its log (journalctl -u lrsd) may say why")
}

/// Every task, however many pages that takes.
pub(crate) async fn all_tasks(
    mut connection: Connection,
) -> Result<Vec<proto::Task>, tonic::Status> {
    let mut tasks = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = proto::ListTasksRequest { page_size: PAGE, page_token };
        let page = connection.list_tasks(request).await?.into_inner();
        // a server that repeats itself must not keep us forever
        let stuck = page.tasks.is_empty();
        tasks.extend(page.tasks);
        page_token = page.next_page_token;
        if page_token.is_empty() || stuck {
            return Ok(tasks);
        }
    }
}
