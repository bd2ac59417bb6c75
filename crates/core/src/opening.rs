//! Passive slots for tasks that wait: they open while requests wait, also where the CPUs are saturated.
//!
//! Saturated CPUs keep passive slots closed, for what computes gains nothing by company (thesis 4.3.2,
//! made for slots with equal shares). With tiers that is the wrong question for a task that waits for a
//! disk, a server or a timer most of the time: it takes little from the CPUs, and from active tasks
//! nothing. So, by the formula "probe":
//!
//! - A request of a job that is *known to wait*, with a computing rate below [`WAITS_BELOW`], gets a
//!   passive slot at once, up to `slots.passive_max` as memory allows. What new tasks have not taken
//!   yet counts as taken.
//! - A passive slot above P0 that comes free while the CPUs are saturated is for such a request, too; for
//!   one that computes, or of which nothing is known, only while fewer than P0 passive tasks and
//!   reservations are of that kind: one for each active slot, so that a promotion waits for no admission.
//!   Else it closes.
//! - The first task of a job of which nothing is known is a sample (thesis 2.4.1.1) and gets a slot like one
//!   that waits, while no more than P0 are of that other kind: so there is one more at the most.
//! - Which request: the first, in the order of service, of the highest priority at which any waits. Those of
//!   its user before it, for which there is no room, are overtaken, each at most `slots.overtake_max`
//!   times; with `slots.order = "fifo"` none is. A request that comes into the active tier by its
//!   priority has any slot.
//!
//! None opens while active tasks wait more than before the last ones ([`super::guard::interference`]), or
//! while the last trial gained nothing ([`super::probe`]): the disk is the limit then.
//!
//! Until a job is known a hint of an admin or an integration says whether it waits ([`super::hint`]); its
//! sample is taken nevertheless.
//!
//! Limits. A job is known by its tasks that ended, or by those that run as of the last cycle; without a name
//! it is that of the user's program, and a request of no program (a shell, or it hides its command) is never
//! known to wait. The first [`LOOKED_AT`] requests are looked at, and
//! [`LOOKED_AT_IN_CYCLE`] with each cycle. While a request of higher priority computes, those of lower ones get
//! no slot by their kind. What a user's request gets by its kind counts as the user's turn.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::jobs::Jobs;
use super::memory::Memory;
use super::model::JobKey;
use super::task::Task;
use crate::units::Bytes;

/// Computing rate below which a job waits: it is blocked for more time than it computes.
///
/// Not the 0.2 of class `io`: the rate of a task that starves is measured too high, by what starting it costs,
/// and a queue of synchronous writers of 0.27 beside tasks that compute takes 1.09 of the time of four equal
/// slots a core, with 0.2 it takes 1.17 (docs/experiments/queue.md).
pub(crate) const WAITS_BELOW: f64 = 0.5;

/// On the way of a promotion: some microseconds.
pub(crate) const LOOKED_AT: usize = 32;

/// Off that way.
pub(crate) const LOOKED_AT_IN_CYCLE: usize = 1024;

/// What the last cycle, or the last reading ahead of it, says of opening slots between two.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Opening {
    /// The CPUs were saturated.
    pub(super) saturated: bool,
    /// Memory for new tasks, without what those that run have yet to take; `None`: not known.
    pub(super) memory: Option<Memory>,
    /// Tasks that ended since, and gave back what their successors take.
    #[serde(default)]
    pub(super) ended: u32,
    /// The largest task of each user at that time.
    #[serde(default, with = "super::history_state::pairs")]
    pub(super) largest: BTreeMap<Option<u32>, Bytes>,
    /// Since the last cycle no slot opened because of it.
    pub(super) lacks_memory: bool,
    /// Jobs without ended tasks, of which those that run wait.
    waiting_jobs: BTreeSet<JobKey>,
    /// The same, of which they compute.
    #[serde(default)]
    computing_jobs: BTreeSet<JobKey>,
    /// A cycle is under way.
    pub(super) in_cycle: bool,
}

impl Opening {
    /// Takes what the tasks of a cycle say.
    pub(super) fn cycle<'t>(&mut self, jobs: &Jobs, tasks: impl Iterator<Item = &'t Task>) {
        let mut rates: BTreeMap<JobKey, (f64, f64)> = BTreeMap::new();
        for task in tasks {
            let rate = task.counts.meter.computing_rate();
            if let (Some(rate), Some(job)) = (rate, task.job_key())
                && jobs.mean_rate(&job).is_none()
            {
                let (sum, count) = rates.entry(job).or_default();
                *sum += rate.value();
                *count += 1.0;
            }
        }
        self.lacks_memory = false;
        let (waiting, computing): (Vec<_>, Vec<_>) =
            rates.into_iter().partition(|(_, (sum, count))| *sum < WAITS_BELOW * count);
        self.waiting_jobs = waiting.into_iter().map(|(job, _)| job).collect();
        self.computing_jobs = computing.into_iter().map(|(job, _)| job).collect();
    }

    /// Whether a rate of `job` was measured.
    pub(super) fn measured(&self, jobs: &Jobs, job: &JobKey) -> bool {
        jobs.mean_rate(job).is_some()
            || self.waiting_jobs.contains(job)
            || self.computing_jobs.contains(job)
    }

    /// Whether `job` is known to wait.
    pub(super) fn waits(&self, jobs: &Jobs, job: &JobKey) -> bool {
        jobs.mean_rate(job)
            .map_or_else(|| self.waiting_jobs.contains(job), |rate| rate.value() < WAITS_BELOW)
    }
}
