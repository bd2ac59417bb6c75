//! What is served: one collection for all who ask within a second.
//!
//! lrsd is asked once a second at most, however many scrape. Who comes while a collection is under way waits for
//! it. It is a task of its own, so that a scraper that goes away does not end it for the others. That lrsd does
//! not answer is a page too, and no older figures are shown in its place.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use lrs_core::pace::hangs;
use lrs_core::units::BootTime;
use lrs_host::clock;
use lrs_metrics::{Format, Options, Reading, Samples, gather};
use tokio::sync::Mutex;

use crate::settings::Settings;

/// How old a page may be.
const AGE: Duration = Duration::from_secs(1);

/// How long lrsd may take for all answers of a collection. Prometheus gives up after 10 s.
const WITHIN: Duration = Duration::from_secs(5);

/// Where readings come from; made up in tests.
pub trait Source: Send + Sync + 'static {
    /// The settings in force and a reading, or why there are none.
    fn collect(&self) -> impl Future<Output = Result<(Settings, Reading), String>> + Send;
}

/// One collection, in both formats.
#[derive(Clone, Debug)]
pub struct Page {
    openmetrics: Bytes,
    prometheus: Bytes,
    health: Result<(), Arc<str>>,
}

impl Page {
    fn of(collected: Result<(Settings, Reading), String>) -> Page {
        let (samples, health) = match collected {
            Ok((settings, reading)) => {
                let jobs = usize::try_from(settings.metrics.jobs).unwrap_or(usize::MAX);
                (gather(&reading, Options { jobs }), health(&reading))
            }
            Err(why) => (Samples::down(), Err(format!("lrsd does not answer: {why}").into())),
        };
        let samples = Arc::new(samples);
        // The only error of writing into memory is one that is not known; then nothing is shown.
        let text = |format| Bytes::from(samples.text(format).unwrap_or_default());
        let (openmetrics, prometheus) = (text(Format::OpenMetrics), text(Format::Prometheus));
        Page { openmetrics, prometheus, health }
    }

    /// The text.
    pub fn text(&self, format: Format) -> Bytes {
        match format {
            Format::OpenMetrics => self.openmetrics.clone(),
            Format::Prometheus => self.prometheus.clone(),
        }
    }

    /// Whether lrsd answers and its control loop turns; else why not, as a sentence.
    pub fn health(&self) -> Result<(), &str> {
        match &self.health {
            Ok(()) => Ok(()),
            Err(why) => Err(why),
        }
    }
}

fn health(reading: &Reading) -> Result<(), Arc<str>> {
    let status = &reading.status;
    let age = status.last_turn_seconds.and_then(|age| Duration::try_from_secs_f64(age).ok());
    let period = Duration::from_millis(status.node.as_ref().map_or(0, |node| node.period_ms));
    match age.filter(|age| hangs(*age, period)) {
        Some(age) => {
            Err(format!("the control loop of lrsd has not turned for {} s", age.as_secs()).into())
        }
        None => Ok(()),
    }
}

/// The newest page, and who makes the next.
#[derive(Debug)]
pub struct Pages<S> {
    source: Arc<S>,
    newest: Arc<Mutex<Option<(BootTime, Page)>>>,
}

impl<S: Source> Pages<S> {
    /// None yet.
    pub fn new(source: Arc<S>) -> Pages<S> {
        Pages { source, newest: Arc::default() }
    }

    /// A page of at most a second ago.
    pub async fn page(&self) -> Page {
        let mut newest = Arc::clone(&self.newest).lock_owned().await;
        if let Some((at, page)) = &*newest
            && clock::boot_time().since(*at) < AGE
        {
            return page.clone();
        }
        let source = Arc::clone(&self.source);
        // With the lock, which others wait for, until there is a page.
        let made = tokio::spawn(async move {
            let collected = tokio::time::timeout(WITHIN, source.collect()).await;
            let collected = collected
                .unwrap_or_else(|_| Err(format!("no answer within {} s", WITHIN.as_secs())));
            let page = Page::of(collected);
            *newest = Some((clock::boot_time(), page.clone()));
            page
        });
        made.await.unwrap_or_else(|error| Page::of(Err(error.to_string())))
    }
}
