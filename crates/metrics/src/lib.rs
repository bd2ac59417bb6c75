//! What lrsd's answers are to Prometheus: `lrsctl metrics` and `lrs-exporter` show the same text.
//!
//! [`read()`] asks lrsd, [`gather()`] turns its messages into samples, and [`Samples::text`] writes them. The last
//! two are pure, so that a test can hold every figure against a message. [`definitions`] is the one
//! list of names: documentation, dashboard and alert rules are tested against it.
//!
//! A crate of its own, without a server, because `lrsctl` links it too. The text is written by
//! `prometheus-client`, which knows two formats: OpenMetrics, and Prometheus' own, which the
//! textfile collector of node_exporter wants. Nothing is registered there: each reading is a
//! collector of its own, since no figure outlives it.
//!
//! A value that is not known is absent, never 0. Figures of tasks are sums over tasks; none has a label of
//! a task or a user, so that the number of series does not grow with the load. Jobs have labels only
//! if they are asked for ([`Options::jobs`]).
//!
//! Limits: lrsd does not know how long a slot was empty between two tasks, so there is no such figure; tasks
//! that ended with and without a failure are two counters, not one with a label, since how a
//! process ended may be known after its end is counted.

pub mod definitions;
mod gather;
mod jobs;
mod read;
mod text;

#[cfg(test)]
mod tests;

use std::time::Duration;

use lrs_api::proto;
use lrs_core::units::WallTime;

pub use gather::gather;
pub use read::read;
pub use text::{Format, Samples};

/// What lrsd answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// GetStatus.
    pub status: proto::Status,
    /// All pages of ListTasks.
    pub tasks: Vec<proto::Task>,
    /// All pages of ListQueue.
    pub queue: Vec<proto::Queued>,
    /// GetYarn.
    pub yarn: proto::YarnStatus,
    /// When it was asked for the last of them.
    pub now: WallTime,
    /// How long all answers took.
    pub took: Duration,
}

/// What is shown of a reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// How many jobs have series of their own; 0: none, and no job is named.
    pub jobs: usize,
}
