//! What a client expects of a task of which nothing is measured yet: a hinted rate.
//!
//! A hint is a computing rate that comes with a request. It counts until there is a measured one: the
//! task's own, that of tasks of its job that ended, or that of those that run as of the last cycle. Then the
//! measured one decides, so that a wrong hint costs what happens within the first cycles of a job. A job
//! with hints is sampled like any other ([`super::opening`], [`crate::shaper`]'s order).
//!
//! By the hint of an admin or an integration slots open, and tasks enter the I/O lane, like those of
//! a job that was measured. That of a member orders its own requests alone, with the order
//! "complement": else whoever calls a task one that waits would have more of the node than others.
//!
//! Limit. A task without a job, not even that of its program, is never measured with others: its hint
//! orders, and opens nothing.

use serde::{Deserialize, Serialize};

use super::model::{JobKey, Labels};
use super::opening::WAITS_BELOW;
use super::shaper::Shaper;
use super::task::Task;
use crate::units::Share;

/// A rate that a client expects, and what may be done by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hint {
    /// In thousandths, so that labels can be compared.
    rate: u16,
    /// Whether it may open slots and the I/O lane: it is not a member's.
    opens: bool,
}

impl Hint {
    /// That of a member, until [`Labels::hinted_by`] says otherwise.
    pub fn new(rate: Share) -> Hint {
        // 0..=1000: cannot be cut.
        Hint { rate: (rate.value() * 1000.0).round() as u16, opens: false }
    }

    /// The rate that is expected.
    pub fn rate(self) -> Share {
        Share::clamped(f64::from(self.rate) / 1000.0)
    }
}

impl Labels {
    /// These, with a hint that opens slots unless it is a member's.
    pub fn hinted_by(mut self, by_member: bool) -> Labels {
        self.hint = self.hint.map(|hint| Hint { opens: !by_member, ..hint });
        self
    }
}

impl Shaper {
    /// The hint of a request or a task, while nothing of its job is measured.
    pub fn hint(&self, labels: &Labels, uid: Option<u32>) -> Option<Hint> {
        let job = labels.job_key(uid);
        labels.hint.filter(|_| !job.is_some_and(|job| self.opening.measured(&self.jobs, &job)))
    }

    /// The rate by which slots and the I/O lane may open, for a task of `job` that has no measured one.
    pub(crate) fn hint_that_opens(&self, labels: &Labels, job: &JobKey) -> Option<Share> {
        let hint = self.hint(labels, job.uid).filter(|hint| hint.opens)?;
        Some(hint.rate())
    }

    /// Whether a request or a task with these labels is known, or expected, to wait.
    pub(crate) fn waits(&self, labels: &Labels, job: &JobKey) -> bool {
        let hinted = || self.hint_that_opens(labels, job);
        self.opening.waits(&self.jobs, job)
            || hinted().is_some_and(|rate| rate.value() < WAITS_BELOW)
    }

    /// The rate of a task: its own, else that of its job, else a hint that opens.
    pub(crate) fn rate_of(&self, task: &Task) -> Option<Share> {
        task.counts.meter.computing_rate().or_else(|| self.rate_of_job(&task.labels, task.uid))
    }

    /// The rate of the job of a task that has none of its own.
    pub(crate) fn rate_of_job(&self, labels: &Labels, uid: Option<u32>) -> Option<Share> {
        let job = labels.job_key(uid)?;
        self.jobs.mean_rate(&job).or_else(|| self.hint_that_opens(labels, &job))
    }
}
