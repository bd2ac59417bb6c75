//! The connection to lrsd, kept from one collection to the next.

use lrs_api::client::{self, Connection, Endpoint};
use lrs_api::proto;
use lrs_host::clock;
use lrs_metrics::{Reading, read};
use tokio::sync::Mutex;

use crate::pages::Source;
use crate::settings::Settings;

/// How it names itself.
const NAME: &str = concat!("lrs-exporter/", env!("CARGO_PKG_VERSION"));

/// The daemon that is asked.
#[derive(Debug)]
pub struct Lrsd {
    endpoint: Endpoint,
    /// `None`: there is none, or the last call on it failed.
    connection: Mutex<Option<Connection>>,
}

impl Lrsd {
    /// The one at this socket; it need not be there.
    pub fn new(endpoint: Endpoint) -> Lrsd {
        Lrsd { endpoint, connection: Mutex::new(None) }
    }

    async fn connection(&self) -> Result<Connection, String> {
        let mut kept = self.connection.lock().await;
        if let Some(connection) = &*kept {
            return Ok(connection.clone());
        }
        let made =
            client::connect(&self.endpoint, NAME).await.map_err(|error| error.to_string())?;
        *kept = Some(made.clone());
        Ok(made)
    }

    /// Calls it; after a failure the next call begins with a new connection, as after a restart of lrsd.
    async fn call<T, F>(&self, call: impl FnOnce(Connection) -> F + Send) -> Result<T, String>
    where
        F: Future<Output = Result<T, tonic::Status>> + Send,
    {
        // Taken out, so that a call that is given up leaves none behind that does not answer.
        let connection = self.connection().await?;
        self.connection.lock().await.take();
        let answer = call(connection.clone()).await;
        let answer =
            answer.map_err(|status| format!("{:?}: {}", status.code(), status.message()))?;
        self.connection.lock().await.replace(connection);
        Ok(answer)
    }

    /// The settings in force.
    ///
    /// # Errors
    /// Why there are none, as a sentence without its end.
    pub async fn settings(&self) -> Result<Settings, String> {
        let toml = self.call(settings).await?;
        Settings::from_toml(&toml).map_err(|error| format!("its settings are of no use: {error}"))
    }
}

async fn settings(mut lrsd: Connection) -> Result<String, tonic::Status> {
    Ok(lrsd.get_config(proto::GetConfigRequest {}).await?.into_inner().toml)
}

impl Source for Lrsd {
    async fn collect(&self) -> Result<(Settings, Reading), String> {
        let collected = self.call(|lrsd| async move {
            Ok((settings(lrsd.clone()).await?, read(lrsd, clock::now).await?))
        });
        let (toml, reading) = collected.await?;
        // Figures are figures, whatever the settings are.
        Ok((Settings::from_toml(&toml).unwrap_or_default(), reading))
    }
}
