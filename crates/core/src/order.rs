//! Which waiting request is next: the node's own queue (thesis 2.5).
//!
//! By default the first by priority and by when it first asked. With [`QueueOrder::Complement`] a request
//! of the highest waiting priority is chosen by its job's computing rate: the one that brings the
//! mean rate of what runs nearest to the mean of what runs and waits, so that computing goes beside
//! I/O; ties by arrival. A job without a rate is sampled (thesis 2.4.1.1): its first task goes before
//! the others, at most as many samples at a time as there are active slots. A rate that is not known
//! otherwise counts as the mean.
//!
//! Nobody starves: a request is overtaken at most [`Policy::overtake_max`] times by others of its
//! priority, the skip bound of delay scheduling (Zaharia et al., EuroSys 2010).
//!
//! Limits. Of a long queue the first [`LOOKED_AT`] requests are compared. A job's rate is that of its
//! name, whoever ran it: a user who lies by the name of a job bends the order of that job's waiting
//! requests, within the bound. In simulated queues it was within 0.04
//! of the first come, on either side (docs/policies.md), so it is not the default.
//!
//! [`Policy::overtake_max`]: super::state::Policy::overtake_max

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::model::JobKey;
use super::shaper::Shaper;
use super::slots::Seat;
use super::step::Ticket;
use super::task::Task;
use crate::units::Share;

/// How the next waiting request is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueOrder {
    /// First come, first served.
    #[default]
    Fifo,
    /// The one whose rate suits what runs.
    Complement,
}

/// Requests compared.
const LOOKED_AT: usize = 1024;

/// Rates that are known, summed up.
#[derive(Clone, Copy, Default)]
struct Rates {
    sum: f64,
    count: f64,
}

impl Rates {
    fn add(self, rate: f64) -> Rates {
        Rates { sum: self.sum + rate, count: self.count + 1.0 }
    }

    fn mean(self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}

impl Shaper {
    /// The request that gets the next slot, of those that wait.
    pub(super) fn next_waiter(&self) -> Option<Ticket> {
        let (priority, _, first) = *self.queue.first()?;
        if self.policy.order == QueueOrder::Fifo {
            return Some(first);
        }
        let known = Known::of(self);
        let equals = self.queue.iter().take_while(|(other, _, _)| *other == priority);
        let all = equals.take(LOOKED_AT).filter_map(|(_, _, ticket)| {
            let waiter = self.waiters.get(ticket)?;
            let job = waiter.request.labels.job_key(Some(waiter.request.uid));
            let rate = job.as_ref().and_then(|job| known.rate(job));
            Some((*ticket, waiter.overtaken, job, rate))
        });
        let all: Vec<_> = all.collect();
        let whole = all.iter().filter_map(|waiter| waiter.3).fold(known.running, Rates::add);
        // Behind one that was overtaken often enough none is chosen.
        let last = all.iter().position(|waiter| waiter.1 >= self.policy.overtake_max);
        let candidates = all.get(..=last.unwrap_or(all.len().saturating_sub(1)))?;
        if known.samples < self.slots.active_capacity as usize {
            let is_first = |job: &JobKey| known.rate(job).is_none() && self.jobs.running(job) == 0;
            let sample = candidates.iter().find(|waiter| waiter.2.as_ref().is_some_and(is_first));
            if let Some((ticket, ..)) = sample {
                return Some(*ticket);
            }
        }
        let Some(target) = whole.mean() else { return Some(first) };
        let distance = |rate: Option<f64>| {
            let with = known.running.add(rate.unwrap_or(target));
            (with.mean().unwrap_or(target) - target).abs()
        };
        let nearest = candidates.iter().min_by(|a, b| distance(a.3).total_cmp(&distance(b.3)));
        nearest.map(|(ticket, ..)| *ticket)
    }

    /// `granted` got a slot: those of its priority that were before it were overtaken.
    pub(super) fn overtake(&mut self, granted: Ticket) {
        for (_, _, before) in self.queue.iter().take_while(|(_, _, ticket)| *ticket != granted) {
            if let Some(waiter) = self.waiters.get_mut(before) {
                waiter.overtaken = waiter.overtaken.saturating_add(1);
            }
        }
    }
}

/// The rates of jobs and of what runs.
struct Known<'a> {
    shaper: &'a Shaper,
    /// Of the running tasks of each job.
    by_tasks: BTreeMap<JobKey, Rates>,
    /// Of what runs in slots.
    running: Rates,
    /// Jobs that run and have no rate yet.
    samples: usize,
}

impl<'a> Known<'a> {
    fn of(shaper: &'a Shaper) -> Known<'a> {
        let (by_tasks, running) = (BTreeMap::new(), Rates::default());
        let mut known = Known { shaper, by_tasks, running, samples: 0 };
        let own = |task: &Task| task.counts.meter.computing_rate().map(|rate| rate.value());
        for task in shaper.tasks.values() {
            if let (Some(job), Some(rate)) = (task.job_key(), own(task)) {
                let rates = known.by_tasks.entry(job).or_default();
                *rates = rates.add(rate);
            }
        }
        let mut unknown = BTreeSet::new();
        for task in shaper.tasks.values() {
            if matches!(task.seat, Seat::Slotless | Seat::Arriving) {
                continue;
            }
            let job = task.job_key();
            match own(task).or_else(|| known.rate(job.as_ref()?)) {
                Some(rate) => known.running = known.running.add(rate),
                None => unknown.extend(job),
            }
        }
        known.samples = unknown.len();
        known
    }

    /// The rate of a job's finished tasks; else that of those that run.
    fn rate(&self, job: &JobKey) -> Option<f64> {
        let finished = self.shaper.jobs.mean_rate(job).map(Share::value);
        finished.or_else(|| self.by_tasks.get(job)?.mean())
    }
}

#[cfg(test)]
mod tests;
