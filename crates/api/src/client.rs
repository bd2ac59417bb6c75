//! A connection to `lrsd` over its unix socket.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::proto;
use crate::proto::shaper_client::ShaperClient;

/// A connected client.
pub type Connection = ShaperClient<Channel>;

/// Where `lrsd` listens unless its configuration says otherwise.
pub const DEFAULT_ENDPOINT: &str = "unix:/run/lrs/lrsd.sock";

/// Metadata of an Admit: in the request, that its ticket is wanted as soon as it waits; in the head of the
/// answer, which is sent then, the ticket.
pub const TICKET: &str = "lrs-ticket";

/// How long an answer may take that waits for nothing. Generous: a saturated node is just
/// where an operator needs an answer rather than an error.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a full backlog of the socket may keep a client out.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest answer taken. A page of 1,000 tasks is about half a MiB; the settings and one
/// task's history are far below.
const LARGEST_ANSWER: usize = 64 << 20;

/// Tasks asked for at once.
const PAGE: u32 = 1_000;

/// `sun_path` of unix(7) has 108 bytes, one of them the final NUL.
const LONGEST_SOCKET_PATH: usize = 107;

/// The unix socket of a daemon, parsed from `unix:/path`, `unix:///path` or `unix:relative`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    path: PathBuf,
}

impl Endpoint {
    /// The socket at `path`; an error where the kernel allows no path of that length.
    pub fn unix(path: &Path) -> Result<Endpoint, String> {
        let length = path.as_os_str().len();
        if length > LONGEST_SOCKET_PATH {
            return Err(format!(
                "the socket path has {length} bytes; the kernel allows {LONGEST_SOCKET_PATH}"
            ));
        }
        Ok(Endpoint { path: path.to_owned() })
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unix:{}", self.path.display())
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Endpoint, String> {
        if text.starts_with("https:") || text.starts_with("http:") {
            return Err("network endpoints are not built yet; use unix:/path".to_owned());
        }
        let path = text
            .strip_prefix("unix:")
            .ok_or_else(|| format!("expected unix:/path, for example {DEFAULT_ENDPOINT}"))?;
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            return Err("the socket path is empty".to_owned());
        }
        Endpoint::unix(Path::new(path))
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// connect(2) failed, or took longer than five seconds.
    #[error("cannot reach lrsd at {}: {source}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The error of connect(2).
        source: io::Error,
    },
    /// The socket was reached and the connection ended before HTTP/2 began.
    #[error("{} closed the connection before a word: {source}", path.display())]
    Handshake {
        /// The socket.
        path: PathBuf,
        /// The error of the transport.
        source: tonic::transport::Error,
    },
    /// The name of the client is no header value.
    #[error("cannot set the user agent: {0}")]
    UserAgent(tonic::transport::Error),
}

impl ConnectError {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ConnectError::Socket { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => {
                    Some("is lrsd running? `lrsctl doctor` looks; --endpoint names another socket")
                }
                io::ErrorKind::ConnectionRefused => {
                    Some("nothing listens on this socket any more; start lrsd again")
                }
                io::ErrorKind::TimedOut => {
                    Some("lrsd accepts no connection; is it stopped or stuck?")
                }
                _ => None,
            },
            ConnectError::Handshake { .. } => {
                Some("lrsd may have too many connections open; or another program listens there")
            }
            ConnectError::UserAgent(_) => None,
        }
    }
}

/// Connects once, as `user_agent` (`name/version`). The channel does not reconnect by itself: a
/// client that rides through a restart of the daemon needs to know that there was one.
pub async fn connect(
    endpoint: &Endpoint,
    user_agent: &'static str,
) -> Result<Connection, ConnectError> {
    let channel = channel(endpoint, user_agent).await?;
    Ok(ShaperClient::new(channel).max_decoding_message_size(LARGEST_ANSWER))
}

/// Asks for a slot on a connection of its own ([`channel`]). `ticket` gets the ticket of a request that
/// waits as soon as it waits.
///
/// # Errors
/// The status of the call.
pub async fn admit(
    channel: Channel,
    request: proto::AdmitRequest,
    ticket: impl FnOnce(&str),
) -> Result<proto::AdmitResponse, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let mut request = Request::new(request);
    request.metadata_mut().insert(TICKET, MetadataValue::from_static("wanted"));
    let path = PathAndQuery::from_static("/lrs.v1.Shaper/Admit");
    // The same on the wire as one message, whose head can be read before the message is there.
    let codec = tonic_prost::ProstCodec::default();
    let mut answer = client.server_streaming(request, path, codec).await?;
    if let Some(given) = answer.metadata().get(TICKET).and_then(|value| value.to_str().ok()) {
        ticket(given);
    }
    let task = answer.get_mut().message().await?;
    task.ok_or_else(|| Status::internal("lrsd answered without a message"))
}

/// A connection for [`admit`]; else as [`connect`].
pub async fn channel(
    endpoint: &Endpoint,
    user_agent: &'static str,
) -> Result<Channel, ConnectError> {
    let path = endpoint.path().to_owned();
    let stream = match tokio::time::timeout(CONNECT_TIMEOUT, open(&path)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(source)) => return Err(ConnectError::Socket { path, source }),
        Err(_) => {
            return Err(ConnectError::Socket { path, source: io::ErrorKind::TimedOut.into() });
        }
    };
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_| {
        let stream = stream.take().ok_or(io::ErrorKind::NotConnected);
        async move { stream.map_err(io::Error::from) }
    });
    // The authority is never resolved; over a unix socket it is a formality of HTTP/2.
    tonic::transport::Endpoint::from_static("http://localhost")
        .user_agent(user_agent)
        .map_err(ConnectError::UserAgent)?
        .connect_with_connector(connector)
        .await
        .map_err(|source| ConnectError::Handshake { path, source })
}

/// EAGAIN from connect(2) on a unix socket means that its backlog is full; there is no event
/// to await, so it is asked again.
async fn open(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            other => return other,
        }
    }
}

/// Every task, however many pages that takes.
pub async fn all_tasks(connection: Connection) -> Result<Vec<proto::Task>, tonic::Status> {
    every_page(async |page_token| {
        let request = proto::ListTasksRequest { page_size: PAGE, page_token };
        let page = connection.clone().list_tasks(request).await?.into_inner();
        Ok((page.tasks, page.next_page_token))
    })
    .await
}

/// What is on all pages. `page` answers with what is on the page of a token, which is empty for the
/// first one, and with the token of the next.
pub async fn every_page<T>(
    page: impl AsyncFn(String) -> Result<(Vec<T>, String), tonic::Status>,
) -> Result<Vec<T>, tonic::Status> {
    let (mut all, mut token) = page(String::new()).await?;
    while !token.is_empty() {
        let (more, next) = page(token.clone()).await?;
        // A server that repeats itself must not keep the client forever.
        let is_stuck = more.is_empty() || next == token;
        all.extend(more);
        token = if is_stuck { String::new() } else { next };
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pages_end_with_the_last_and_where_a_server_repeats_itself() {
        async fn all(pages: &[(&str, &[u8], &str)]) -> Vec<u8> {
            let page = async |token: String| {
                let page = pages.iter().find(|page| page.0 == token).expect("a page");
                Ok((page.1.to_vec(), page.2.to_owned()))
            };
            every_page(page).await.expect("no failure")
        }
        assert!(all(&[("", &[], "")]).await.is_empty());
        assert_eq!(all(&[("", &[1, 2], "a"), ("a", &[3], "")]).await, [1, 2, 3]);
        assert_eq!(all(&[("", &[], "a"), ("a", &[3], "b"), ("b", &[4], "")]).await, [3, 4]);
        assert_eq!(all(&[("", &[1], "a"), ("a", &[2], "a")]).await, [1, 2]);
        assert_eq!(all(&[("", &[1], "a"), ("a", &[], "b")]).await, [1]);
    }

    #[test]
    fn an_endpoint_is_a_unix_socket_with_a_path_the_kernel_takes() {
        let path = |text: &str| text.parse::<Endpoint>().map(|e| e.path().to_owned());
        assert_eq!(path("unix:/run/x.sock"), Ok(PathBuf::from("/run/x.sock")));
        assert_eq!(path("unix:///run/x.sock"), Ok(PathBuf::from("/run/x.sock")));
        assert_eq!(path("unix:x.sock"), Ok(PathBuf::from("x.sock")));
        assert!(path("https://localhost:1").unwrap_err().contains("not built yet"));
        assert!(path("/run/x.sock").is_err());
        assert!(path("unix:").is_err());
        assert!(path(&format!("unix:/{}", "x".repeat(106))).is_ok());
        assert!(path(&format!("unix:/{}", "x".repeat(107))).unwrap_err().contains("107"));
    }
}
