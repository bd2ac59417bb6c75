//! The connection to lrsd: what it reports of the node, and the reports to it.
//!
//! [`follow`] keeps the newest status and settings in a `watch` and connects again where the
//! connection ends; [`Link`] makes the calls. lrsd does not say that its settings changed, so
//! they are asked for every few seconds. That question is also the sign that lrsd lives.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lrs_api::client::{self, ConnectError, Connection, Endpoint};
use lrs_api::proto;
use lrs_core::units::BootTime;
use lrs_host::clock;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::settings::Settings;

/// As lrsd's log has it.
const USER_AGENT: &str = concat!("lrs-yarn/", env!("CARGO_PKG_VERSION"));

/// Pause before the next try to connect. A restart of lrsd takes about a second.
const AGAIN: Duration = Duration::from_secs(1);

/// How often the settings are asked for.
const SETTINGS_EVERY: Duration = Duration::from_secs(5);

/// How long lrsd may take for an answer that waits for nothing.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// What is known of lrsd.
#[derive(Clone, Debug)]
pub struct LrsdState {
    /// For calls; `None`: it is away.
    pub connection: Option<Connection>,
    /// Its settings; before its first answer those that were kept.
    pub settings: Option<Arc<Settings>>,
    /// Whether it answered with these settings itself.
    pub is_fresh: bool,
    /// Its status since it has read the node for the first time: to a daemon that restarts, a node
    /// without memory would be a reason to take an offer back.
    pub status: Option<Arc<proto::Status>>,
    /// Since when no such status comes.
    pub away_since: Option<BootTime>,
}

impl LrsdState {
    /// Nothing yet, but perhaps settings that were kept.
    pub fn nothing(kept: Option<Settings>) -> LrsdState {
        LrsdState {
            connection: None,
            settings: kept.map(Arc::new),
            is_fresh: false,
            status: None,
            away_since: Some(clock::boot_time()),
        }
    }
}

/// Why lrsd cannot be followed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum LinkError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("lrsd answers with {:?}: {}", .0.code(), .0.message())]
    Status(#[from] tonic::Status),
    #[error("lrsd does not answer within {ANSWER_WITHIN:?}")]
    TimedOut,
    #[error("lrsd is away")]
    Away,
    #[error("the settings of lrsd are of no use here, is it of another version? {0}")]
    Settings(#[from] toml::de::Error),
}

/// Follows lrsd for ever. Settings are kept in `state_dir`.
pub async fn follow(endpoint: Endpoint, state_dir: &Path, seen: &watch::Sender<LrsdState>) {
    let mut logged = None;
    loop {
        let Err(error) = follow_once(&endpoint, state_dir, seen, &mut logged).await;
        seen.send_modify(|seen| {
            seen.connection = None;
            seen.away_since.get_or_insert_with(clock::boot_time);
        });
        let error = error.to_string();
        if logged.as_ref() != Some(&error) {
            tracing::warn!("lrsd is not followed, which is tried again: {error}");
            logged = Some(error);
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn follow_once(
    endpoint: &Endpoint,
    state_dir: &Path,
    seen: &watch::Sender<LrsdState>,
    logged: &mut Option<String>,
) -> Result<std::convert::Infallible, LinkError> {
    let mut connection = client::connect(endpoint, USER_AGENT).await?;
    let mut statuses = connection.watch_status(proto::WatchStatusRequest {}).await?.into_inner();
    let mut settings = tokio::time::interval(SETTINGS_EVERY);
    let mut known = String::new();
    loop {
        tokio::select! {
            // The settings first: slots are offered by those that hold now.
            biased;
            _ = settings.tick() => {
                let toml = within(connection.get_config(proto::GetConfigRequest {})).await?.toml;
                if toml == known {
                    continue;
                }
                let read = Arc::new(Settings::from_toml(&toml)?);
                if let Err(error) = Settings::keep(&toml, state_dir) {
                    tracing::warn!(%error, "the offer cannot be given back once lrs-yarn has ended: {error}");
                }
                known = toml;
                if logged.take().is_some() {
                    tracing::info!("lrsd is followed");
                }
                seen.send_modify(|seen| {
                    (seen.settings, seen.is_fresh) = (Some(read), true);
                    seen.connection = Some(connection.clone());
                });
            }
            status = statuses.message() => {
                let status = status?.ok_or(LinkError::Away)?;
                if status.node.as_ref().is_some_and(|node| node.sampled_at.is_some()) {
                    seen.send_modify(|seen| {
                        seen.status = Some(Arc::new(status));
                        seen.away_since = None;
                    });
                }
            }
        }
    }
}

async fn within<T>(
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, LinkError> {
    let answer =
        tokio::time::timeout(ANSWER_WITHIN, call).await.map_err(|_| LinkError::TimedOut)?;
    Ok(answer?.into_inner())
}

/// The calls to lrsd; played in tests. They block.
pub trait Lrsd: Send {
    /// Tells hints.
    ///
    /// # Errors
    /// They were not taken, or not all.
    fn hint(&mut self, hints: Vec<proto::ContainerHint>) -> Result<(), LinkError>;
    /// Reports.
    ///
    /// # Errors
    /// It was not taken.
    fn report(&mut self, report: proto::ReportIntegrationRequest) -> Result<(), LinkError>;
    /// How many NodeManagers lrsd finds on the node; `None`: it has not looked yet.
    ///
    /// # Errors
    /// It does not answer.
    fn node_managers(&mut self) -> Result<Option<u32>, LinkError>;
}

/// The real calls.
#[derive(Clone, Debug)]
pub struct Link {
    /// Of another thread than the one that calls.
    pub runtime: Handle,
    /// Where connections come from.
    pub seen: watch::Receiver<LrsdState>,
}

impl Link {
    fn call<T, F>(&self, ask: impl FnOnce(Connection) -> F) -> Result<T, LinkError>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let connection = self.seen.borrow().connection.clone().ok_or(LinkError::Away)?;
        self.runtime.block_on(within(ask(connection)))
    }
}

/// Hints of one request: each has three texts of 256 bytes at most, a request 64 KiB.
const HINTS_A_CALL: usize = 64;

impl Lrsd for Link {
    fn hint(&mut self, hints: Vec<proto::ContainerHint>) -> Result<(), LinkError> {
        for hints in hints.chunks(HINTS_A_CALL) {
            let request = proto::HintRequest { hints: hints.to_vec() };
            self.call(|mut lrsd| async move { lrsd.hint(request).await })?;
        }
        Ok(())
    }

    fn report(&mut self, report: proto::ReportIntegrationRequest) -> Result<(), LinkError> {
        self.call(|mut lrsd| async move { lrsd.report_integration(report).await }).map(drop)
    }

    fn node_managers(&mut self) -> Result<Option<u32>, LinkError> {
        let status =
            self.call(|mut lrsd| async move { lrsd.get_yarn(proto::GetYarnRequest {}).await });
        Ok(status?.node_managers)
    }
}
