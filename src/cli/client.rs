//! What every command does with a connection: connects, asks, and names failures.

use std::fmt;
use std::time::Duration;

use lrs_api::client::{self, ANSWER_TIMEOUT, ConnectError, Connection, Endpoint, every_page};
use tonic::transport::Channel;

use super::failure::{Failure, Purpose, from_status};
use super::output::say;
use crate::proto;

/// After so long without an answer a command says that it waits: silence looks like a fault of
/// the command.
const SILENCE: Duration = Duration::from_secs(2);

/// How lrsctl names itself.
pub(super) const NAME: &str = concat!("lrsctl/", env!("CARGO_PKG_VERSION"));

/// The daemon that is asked.
#[derive(Clone, Debug)]
pub(super) struct Lrsd {
    /// Its socket.
    pub(super) endpoint: Endpoint,
    /// `--timeout`: how long one answer may take.
    pub(super) timeout: Option<Duration>,
}

impl Lrsd {
    /// How long an answer may take that waits for nothing.
    pub(super) fn answer_within(&self) -> Duration {
        self.timeout.unwrap_or(ANSWER_TIMEOUT)
    }
}

impl fmt::Display for Lrsd {
    /// The socket.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}

/// Connects once, and says on failure what to do.
pub(crate) async fn connect(lrsd: &Lrsd) -> Result<Connection, Failure> {
    client::connect(&lrsd.endpoint, NAME).await.map_err(not_connected)
}

/// The same for [`client::admit`].
pub(super) async fn channel(lrsd: &Lrsd) -> Result<Channel, Failure> {
    client::channel(&lrsd.endpoint, NAME).await.map_err(not_connected)
}

fn not_connected(error: ConnectError) -> Failure {
    let failure = Failure::unreachable(error.to_string());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// One request that is answered at once.
pub(super) fn ask<T, Fut>(
    lrsd: &Lrsd,
    purpose: Purpose,
    request: impl FnOnce(Connection) -> Fut,
) -> Result<T, Failure>
where
    Fut: Future<Output = Result<T, tonic::Status>>,
{
    let answer = async {
        let connection = connect(lrsd).await?;
        request(connection).await.map_err(|status| from_status(&status, purpose))
    };
    super::runtime()?.block_on(in_time(lrsd, answer))?
}

/// What waits for nothing but lrsd: bounded, and with a word where it takes long.
///
/// # Errors
/// There was no answer in time.
pub(super) async fn in_time<T>(lrsd: &Lrsd, answer: impl Future<Output = T>) -> Result<T, Failure> {
    let within = lrsd.answer_within();
    let mut answer = std::pin::pin!(tokio::time::timeout(within, answer));
    let answer = tokio::select! {
        biased;
        answer = answer.as_mut() => answer,
        () = tokio::time::sleep(SILENCE) => {
            let most = seconds(within);
            say(format_args!("lrsctl: no answer from lrsd at {lrsd} yet; {most} s at most"));
            answer.await
        }
    };
    answer.map_err(|_| no_answer(within))
}

/// As people read them: tenths, and thousandths below a second.
fn seconds(duration: Duration) -> f64 {
    let parts = if duration < Duration::from_secs(1) { 1000.0 } else { 10.0 };
    (duration.as_secs_f64() * parts).round() / parts
}

/// The daemon took the request and sent no answer.
pub(super) fn no_answer(after: Duration) -> Failure {
    Failure::unreachable(format!("lrsd did not answer within {} s", seconds(after)))
        .hint("it is stopped or stuck; its log (journalctl -u lrsd) may say why")
}

/// All pages of ListHistory.
pub(super) async fn ended_tasks(
    lrsd: Connection,
    asked: proto::ListHistoryRequest,
) -> Result<Vec<proto::EndedTask>, tonic::Status> {
    every_page(async |page_token| {
        let asked = proto::ListHistoryRequest { page_token, ..asked.clone() };
        let page = lrsd.clone().list_history(asked).await?.into_inner();
        Ok((page.tasks, page.next_page_token))
    })
    .await
}
