//! Samples, and their text.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};

use crate::definitions::{ALL, Definition, Kind};

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' own, 0.0.4: for the textfile collector, and for scrapers that do not ask for the other.
    Prometheus,
}

impl Format {
    /// What a scraper with this `Accept` gets.
    pub fn accepted(accept: &str) -> Format {
        match accept.contains("application/openmetrics-text") {
            true => Format::OpenMetrics,
            false => Format::Prometheus,
        }
    }

    /// The `Content-Type` of a text.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// Below this a whole f64 is exact.
const MOST_WHOLE: f64 = (1_u64 << 53) as f64;

/// What one series is now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Number(f64),
    Count(u64),
    /// The upper bounds with how many were in each bucket alone; the last bound is infinite.
    Histogram {
        buckets: Vec<(f64, u64)>,
        sum: f64,
    },
}

#[derive(Clone, Debug, PartialEq)]
struct Sample {
    labels: Vec<(&'static str, String)>,
    value: Value,
}

/// All samples of one reading.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(HashMap<&'static str, Vec<Sample>>);

impl Samples {
    /// Of an lrsd that does not answer.
    pub fn down() -> Samples {
        let mut samples = Samples::default();
        samples.add(&crate::definitions::UP, &[], 0.0);
        samples
    }

    /// Adds a number; one that is no number or without end is not known. Whole ones are written without
    /// a point.
    pub(crate) fn add(&mut self, of: &'static Definition, labels: &[&str], value: f64) {
        if value.fract() == 0.0 && (0.0..MOST_WHOLE).contains(&value) {
            self.count(of, labels, value as u64);
        } else if value.is_finite() {
            self.put(of, labels, Value::Number(value));
        }
    }

    /// Adds a number that may not be known.
    pub(crate) fn add_known(
        &mut self,
        of: &'static Definition,
        labels: &[&str],
        value: Option<f64>,
    ) {
        if let Some(value) = value {
            self.add(of, labels, value);
        }
    }

    /// Adds what only grows.
    pub(crate) fn count(&mut self, of: &'static Definition, labels: &[&str], value: u64) {
        self.put(of, labels, Value::Count(value));
    }

    pub(crate) fn put(&mut self, of: &'static Definition, labels: &[&str], value: Value) {
        debug_assert_eq!(of.labels.len(), labels.len(), "{}", of.name);
        let labels = of.labels.iter().zip(labels).map(|(name, value)| (*name, (*value).to_owned()));
        let sample = Sample { labels: labels.collect(), value };
        self.0.entry(of.name).or_default().push(sample);
    }

    /// The text; families without a sample are left out.
    ///
    /// # Errors
    /// None is known: a `String` takes everything.
    pub fn text(self: &Arc<Samples>, format: Format) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("lrs");
        registry.register_collector(Box::new(Arc::clone(self)));
        let mut text = String::new();
        match format {
            Format::OpenMetrics => text::encode(&mut text, &registry)?,
            Format::Prometheus => prometheus_text::encode(&mut text, &registry)?,
        }
        Ok(text)
    }
}

impl Collector for Samples {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for definition in ALL {
            let Some(samples) = self.0.get(definition.name) else { continue };
            let unit = Some(definition.unit).filter(|unit| !unit.is_empty());
            let unit = unit.map(|unit| Unit::Other(unit.to_owned()));
            let kind = match definition.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
                Kind::Info => MetricType::Info,
            };
            let mut family =
                encoder.encode_descriptor(definition.name, definition.help, unit.as_ref(), kind)?;
            for sample in samples {
                if definition.kind == Kind::Info {
                    family.encode_info(&sample.labels)?;
                } else if sample.labels.is_empty() {
                    one(&mut family, definition.kind, &sample.value)?;
                } else {
                    let mut series = family.encode_family(&sample.labels)?;
                    one(&mut series, definition.kind, &sample.value)?;
                }
            }
        }
        Ok(())
    }
}

fn one(encoder: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> Result<(), fmt::Error> {
    const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;
    match (kind, value) {
        (Kind::Counter, Value::Count(count)) => encoder.encode_counter(count, NO_EXEMPLAR),
        (Kind::Counter, Value::Number(number)) => encoder.encode_counter(number, NO_EXEMPLAR),
        (_, Value::Count(count)) => encoder.encode_gauge(count),
        (_, Value::Number(number)) => encoder.encode_gauge(number),
        (_, Value::Histogram { buckets, sum }) => {
            let count = buckets.iter().map(|(_, count)| count).sum();
            encoder.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)
        }
    }
}
