//! `lrsctl metrics`: the text of lrs-exporter without a server.
//!
//! By default in the text format of Prometheus, since the textfile collector of node_exporter reads no
//! other. It also has a text where lrsd does not answer, or not with these figures: a file that is not written anew would show
//! the node as it was.

use std::sync::Arc;

use lrs_metrics::{Format, Options, Samples, gather, read};

use super::client::{Lrsd, ask};
use super::failure::{Failure, Purpose};
use super::output::Output;
use crate::{clock, proto};

/// `lrsctl metrics`
pub(super) fn metrics(lrsd: &Lrsd, openmetrics: bool, out: &mut Output) -> Result<(), Failure> {
    let answered = ask(lrsd, Purpose::Other, |mut lrsd| async move {
        let settings = lrsd.get_config(proto::GetConfigRequest {}).await?.into_inner().toml;
        Ok((settings, read(lrsd, clock::now).await?))
    });
    let (samples, failure) = match answered {
        Ok((settings, reading)) => (gather(&reading, options(&settings)), None),
        Err(failure) => (Samples::down(), Some(failure)),
    };
    let format = if openmetrics { Format::OpenMetrics } else { Format::Prometheus };
    let text = Arc::new(samples).text(format);
    out.text(text.map_err(|error| Failure::failed(format!("cannot write the metrics: {error}")))?)?;
    out.flush()?;
    failure.map_or(Ok(()), Err)
}

/// By the settings in force; those of another version may lack a key.
fn options(settings: &str) -> Options {
    let settings = crate::config::toml_to_json(settings).unwrap_or_default();
    let jobs = settings["metrics"]["jobs"].as_u64().unwrap_or(0);
    Options { jobs: usize::try_from(jobs).unwrap_or(0) }
}
