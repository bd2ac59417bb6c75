//! Which waiting request is next: the node's own queue (thesis 2.5).
//!
//! turns.rs chooses the user: by priority, and within it the users take turns. This module chooses
//! among the requests of that user: the first that came is next, unless there is a slot for a later
//! one alone ([`super::opening`]). With
//! [`QueueOrder::Complement`] it is chosen by its job's computing rate: the one that brings the mean rate
//! of what runs nearest to the mean of what runs and waits (of this user), so that computing goes beside
//! I/O; ties by arrival. A job without a rate is sampled (thesis 2.4.1.1): its first task goes before the
//! others, at most as many samples at a time as there are active slots. A rate that is not known
//! otherwise is the hinted one ([`crate::hint`]), or counts as the mean. No user comes before another by the rate of its jobs.
//!
//! No request starves: it is overtaken at most [`Policy::overtake_max`] times by others of its user
//! and priority, the skip bound of delay scheduling (Zaharia et al., EuroSys 2010).
//!
//! Limits. Of a user's requests the first [`LOOKED_AT`] are compared. How often a request was
//! overtaken is not stored: a client that asks again after a restart of the daemon begins with 0, so
//! that each restart can add [`Policy::overtake_max`] to its wait.
//! In simulated queues it was within 0.04
//! of the first come, on either side (docs/policies.md), so it is not the default.
//!
//! [`Policy::overtake_max`]: crate::state::Policy::overtake_max

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Shaper;
use crate::jobs::Jobs;
use crate::model::{JobKey, Priority};
use crate::order::QueueOrder;
use crate::slots::Seat;
use crate::state::Waiter;
use crate::step::Ticket;
use crate::task::Task;
use crate::turns::Arrival;
use crate::units::Share;

/// Requests of a user that are compared.
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

/// A waiting request that may be next.
struct Candidate {
    ticket: Ticket,
    overtaken: u32,
    job: Option<JobKey>,
    rate: Option<f64>,
    /// What its client expects, while `rate` is not known: by whomever, for it is compared with those of its
    /// user alone.
    hinted: Option<f64>,
    /// The same if it counts for others too.
    opens: Option<f64>,
}

impl Candidate {
    fn expected(&self) -> Option<f64> {
        self.rate.or(self.hinted)
    }
}

impl Shaper {
    /// Takes the request that gets the next slot from those that wait. `known` is kept from one grant
    /// of a turn to the next: to compute it takes a pass over all tasks.
    pub(super) fn next_waiter(&mut self, known: &mut Option<Known>) -> Option<(Ticket, Waiter)> {
        let first = self.queue.first()?;
        let ticket = if self.policy.order != QueueOrder::Complement {
            first.arrival.1
        } else {
            let known = known.get_or_insert_with(|| Known::of(self));
            let of = (first.priority, first.uid);
            let mut candidates = known.candidates.remove(&of).unwrap_or_default();
            known.look(of, &mut candidates, self);
            let index = self.nearest(known, &candidates.list)?;
            let granted = candidates.list.remove(index)?;
            for before in candidates.list.range_mut(..index) {
                before.overtaken = before.overtaken.saturating_add(1);
                if let Some(waiter) = self.waiters.get_mut(&before.ticket) {
                    waiter.overtaken = before.overtaken;
                }
            }
            known.candidates.insert(of, candidates);
            known.runs(&self.jobs, None, granted.job, granted.opens);
            granted.ticket
        };
        let waiter = self.take_waiter(ticket)?;
        self.queue.served(first.priority, first.uid);
        Some((ticket, waiter))
    }

    /// The place of the next one among the candidates.
    fn nearest(&self, known: &Known, all: &VecDeque<Candidate>) -> Option<usize> {
        let whole = all.iter().filter_map(Candidate::expected).fold(known.running, Rates::add);
        // Behind one that was overtaken often enough none is chosen.
        let last = all.iter().position(|waiter| waiter.overtaken >= self.policy.overtake_max);
        let count = last.map_or(all.len(), |last| last + 1);
        if known.unknown.len() < self.slots.active_capacity as usize {
            let is_first = |waiter: &Candidate| {
                let job = waiter.job.as_ref().filter(|_| waiter.rate.is_none());
                job.is_some_and(|job| self.jobs.running(job) == 0)
            };
            if let Some(sample) = all.iter().take(count).position(is_first) {
                return Some(sample);
            }
        }
        let Some(target) = whole.mean() else { return (count > 0).then_some(0) };
        let distance = |waiter: &Candidate| {
            let with = known.running.add(waiter.expected().unwrap_or(target));
            (with.mean().unwrap_or(target) - target).abs()
        };
        let numbered = all.iter().take(count).map(distance).enumerate();
        numbered.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(index, _)| index)
    }
}

/// The rates of jobs and of what runs.
#[derive(Default)]
pub(super) struct Known {
    /// Of the running tasks of each job.
    by_tasks: BTreeMap<JobKey, Rates>,
    /// Of what runs in slots.
    running: Rates,
    /// Jobs that run and have no rate yet.
    unknown: BTreeSet<JobKey>,
    /// Of each priority and user that had a turn.
    candidates: BTreeMap<(Priority, u32), Candidates>,
}

/// The first [`LOOKED_AT`] of a user.
#[derive(Default)]
struct Candidates {
    list: VecDeque<Candidate>,
    /// The last one that became a candidate.
    looked: Option<Arrival>,
}

impl Known {
    fn of(shaper: &Shaper) -> Known {
        let mut known = Known::default();
        let own = |task: &Task| task.counts.meter.computing_rate().map(|rate| rate.value());
        for task in shaper.tasks.values() {
            if let (Some(job), Some(rate)) = (task.job_key(), own(task)) {
                let rates = known.by_tasks.entry(job).or_default();
                *rates = rates.add(rate);
            }
        }
        for task in shaper.tasks.values() {
            if matches!(task.seat, Seat::Slotless | Seat::Arriving) {
                continue;
            }
            let job = task.job_key();
            let hinted = job.as_ref().and_then(|job| shaper.hint_that_opens(&task.labels, job));
            known.runs(&shaper.jobs, own(task), job, hinted.map(Share::value));
        }
        known
    }

    /// Fills the candidates up. Within a turn of the loop requests leave the queue by a grant alone.
    fn look(&self, (priority, uid): (Priority, u32), all: &mut Candidates, shaper: &Shaper) {
        let room = LOOKED_AT - all.list.len().min(LOOKED_AT);
        for arrival in shaper.queue.of_user(priority, uid, all.looked).take(room) {
            all.looked = Some(arrival);
            let Some(waiter) = shaper.waiters.get(&arrival.1) else { continue };
            let (labels, uid) = (&waiter.request.labels, Some(waiter.request.uid));
            let job = labels.job_key(uid);
            let rate = job.as_ref().and_then(|job| self.rate(&shaper.jobs, job));
            let opens = job.as_ref().and_then(|job| shaper.hint_that_opens(labels, job));
            let hinted = shaper.hint(labels, uid).map(|hint| hint.rate().value());
            let (ticket, overtaken, opens) = (arrival.1, waiter.overtaken, opens.map(Share::value));
            all.list.push_back(Candidate { ticket, overtaken, job, rate, hinted, opens });
        }
    }

    /// Counts a task that runs; it was just admitted where it has no rate of its `own`.
    fn runs(&mut self, jobs: &Jobs, own: Option<f64>, job: Option<JobKey>, hinted: Option<f64>) {
        let measured = own.or_else(|| self.rate(jobs, job.as_ref()?));
        if let Some(rate) = measured.or(hinted) {
            self.running = self.running.add(rate);
        }
        if measured.is_none() {
            self.unknown.extend(job);
        }
    }

    /// The rate of a job's finished tasks; else that of those that run.
    fn rate(&self, jobs: &Jobs, job: &JobKey) -> Option<f64> {
        let finished = jobs.mean_rate(job).map(Share::value);
        finished.or_else(|| self.by_tasks.get(job)?.mean())
    }
}

#[cfg(test)]
mod tests;
