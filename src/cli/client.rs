//! What every command does with a connection: connects, asks, and names failures.

use std::time::Duration;

use lrs_api::client::{self, ANSWER_TIMEOUT, Connection, Endpoint};

use super::failure::{Asked, Failure, from_status};

/// Connects once, and says on failure what to do.
pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Connection, Failure> {
    let name = concat!("lrsctl/", env!("CARGO_PKG_VERSION"));
    client::connect(endpoint, name).await.map_err(|error| {
        let failure = Failure::unreachable(error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })
}

/// One request that is answered at once.
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
