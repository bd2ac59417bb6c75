//! Passive slots for tasks that wait: they open while requests wait, also where the CPUs are saturated.
//!
//! Saturated CPUs keep passive slots closed, for what computes gains nothing by company (thesis 4.3.2,
//! made for slots with equal shares). With tiers that is the wrong question for a task that waits for a
//! disk, a server or a timer most of the time: it takes little from the CPUs, and from active tasks
//! nothing. So, by the formula "probe":
//!
//! - A request of a job that is *known to wait*, with a computing rate below [`COMPUTES`], gets a
//!   passive slot at once, up to `slots.passive_max` as memory allows. What new tasks have not taken
//!   yet counts as taken ([`Shaper::memory_to_come`]).
//! - A passive slot above P0 that comes free while the CPUs are saturated is for such a request, too; for
//!   one that computes, or of which nothing is known, only while fewer than P0 passive tasks are of that
//!   kind: one for each active slot, so that a promotion waits for no admission. Else the slot closes.
//! - The first task of a job of which nothing is known is a sample (thesis 2.4.1.1) and gets a slot like one
//!   that waits, while no more than P0 passive tasks compute or are unknown: so there is one more at the most.
//! - Which request: the first of the user who is next. Those before it, for which there is no room, are
//!   overtaken, each at most `slots.overtake_max` times; with `slots.order = "fifo"` none is.
//!
//! None opens while active tasks wait more than before the last ones ([`super::guard::interference`]), or
//! while the last trial gained nothing ([`super::probe`]): the disk is the limit then.
//!
//! Limits. A job is known by its tasks that ended, or by those that run as of the last cycle; a request
//! without a job is never known to wait. Of a user's requests the first [`LOOKED_AT`] are looked at, and
//! [`LOOKED_AT_IN_CYCLE`] with each cycle.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, json};

use super::capacity::slots_that_fit;
use super::event::EventKind;
use super::jobs::Jobs;
use super::memory::Memory;
use super::model::JobKey;
use super::order::QueueOrder;
use super::probe::Formula;
use super::shaper::Shaper;
use super::slice::COMPUTES;
use super::slots::Seat;
use super::step::Ticket;
use super::task::Task;
use crate::units::{Bytes, Moment};

/// On the way of a promotion: some microseconds.
const LOOKED_AT: usize = 32;

/// Off that way.
const LOOKED_AT_IN_CYCLE: usize = 1024;

/// What the last cycle, or the last reading ahead of it, says of opening slots between two.
#[derive(Clone, Debug, Default)]
pub(super) struct Opening {
    /// The CPUs were saturated.
    pub(super) saturated: bool,
    /// Memory for tasks; `None`: not known.
    pub(super) memory: Option<Memory>,
    /// Jobs without ended tasks whose running ones wait.
    waiting_jobs: BTreeSet<JobKey>,
    /// A cycle is under way.
    in_cycle: bool,
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
        let waits =
            |(job, (sum, count)): (JobKey, (f64, f64))| (sum < COMPUTES * count).then_some(job);
        self.waiting_jobs = rates.into_iter().filter_map(waits).collect();
    }

    /// A cycle begins, or its slots are given.
    pub(super) fn look_far(&mut self, in_cycle: bool) {
        self.in_cycle = in_cycle;
    }

    fn waits(&self, jobs: &Jobs, job: &JobKey) -> bool {
        jobs.mean_rate(job)
            .map_or_else(|| self.waiting_jobs.contains(job), |rate| rate.value() < COMPUTES)
    }
}

impl Shaper {
    /// Gives a request that waits the slot that there is for its kind alone, or opens one. `false`: there
    /// is no such request, or no room.
    pub(super) fn grant_by_kind(&mut self, now: Moment) -> bool {
        let free = self.passive_offered() > 0;
        let opens =
            !free && self.may_expand() && !self.probe.is_trying() && !self.probe.gained_nothing();
        let by_kind = self.policy.formula == Formula::Probe
            && self.gather_until.is_none()
            && self.active_offered() == 0
            && (opens || free && self.is_for_waiting_tasks());
        if !by_kind {
            return false;
        }
        let Some((ticket, job, before)) = self.first_that_waits() else {
            if free {
                self.close_one(now);
            }
            return false;
        };
        if opens && !self.open_one(&job, now) {
            return false;
        }
        for overtaken in before {
            if let Some(waiter) = self.waiters.get_mut(&overtaken) {
                waiter.overtaken = waiter.overtaken.saturating_add(1);
            }
        }
        let Some(waiter) = self.take_waiter(ticket) else { return false };
        let place = waiter.place(ticket);
        self.queue.served(place.priority, place.uid);
        self.grant(ticket, waiter, now);
        true
    }

    /// Whether a free passive slot is for no task that computes: it is above P0, the CPUs are saturated,
    /// and P0 passive tasks compute already.
    fn is_for_waiting_tasks(&self) -> bool {
        self.opening.saturated
            && self.slots.passive_capacity > self.slots.base
            && self.passive_computing() >= self.slots.base
    }

    /// Passive tasks that compute, or of which nothing is known.
    fn passive_computing(&self) -> u32 {
        let computes = |task: &&Task| {
            let own = task.counts.meter.computing_rate();
            let known = task.job_key().is_some_and(|job| self.opening.waits(&self.jobs, &job));
            own.map_or(!known, |rate| rate.value() >= COMPUTES)
        };
        let passive =
            self.tasks.values().map(Box::as_ref).filter(|task| task.seat == Seat::Passive);
        u32::try_from(passive.filter(computes).count()).unwrap_or(u32::MAX)
    }

    /// The first request of a job that waits, or that is its job's sample, of the user who is next; with
    /// those before it.
    fn first_that_waits(&self) -> Option<(Ticket, JobKey, Vec<Ticket>)> {
        let next = self.queue.first()?;
        let mut before = Vec::new();
        let mut samples = None;
        let look = match (self.policy.order, self.opening.in_cycle) {
            (QueueOrder::Fifo, _) => 1,
            (QueueOrder::Fit | QueueOrder::Complement, true) => LOOKED_AT_IN_CYCLE,
            (QueueOrder::Fit | QueueOrder::Complement, false) => LOOKED_AT,
        };
        for (_, ticket) in self.queue.of_user(next.priority, next.uid, None).take(look) {
            let waiter = self.waiters.get(&ticket)?;
            let job = waiter.request.labels.job_key(Some(waiter.request.uid));
            if let Some(job) = job {
                let unknown =
                    || self.jobs.mean_rate(&job).is_none() && self.jobs.running(&job) == 0;
                if self.opening.waits(&self.jobs, &job)
                    || unknown()
                        && *samples
                            .get_or_insert_with(|| self.passive_computing() <= self.slots.base)
                {
                    return Some((ticket, job, before));
                }
            }
            if waiter.overtaken >= self.policy.overtake_max {
                return None;
            }
            before.push(ticket);
        }
        None
    }

    /// Opens a passive slot for a task of `job`, if memory allows.
    fn open_one(&mut self, job: &JobKey, now: Moment) -> bool {
        let mean = self.mean_resident().max(self.ahead.resident);
        let resident = self.jobs.mean_resident(job).or(mean);
        let owed = self.memory_to_come(mean.max(resident), now.boot);
        let Some(memory) = self.opening.memory.clone() else { return false };
        let memory = memory.less(owed);
        let (room, reserve) = self.room_that_binds(&memory);
        let available = room.available;
        if slots_that_fit(1, resident, Some(available), reserve) == 0 {
            return false;
        }
        let mut inputs = Map::new();
        inputs.insert("job".into(), json!(job.job));
        inputs.insert("mean_resident_bytes".into(), json!(resident));
        inputs.insert("memory_available_bytes".into(), json!(available));
        inputs.insert("memory_reserve_bytes".into(), json!(reserve));
        room.name_limit(&mut inputs);
        self.ahead.opened_for(resident);
        self.bound = None;
        let from = self.slots.passive_capacity;
        self.slots.passive_capacity = from + 1;
        self.free_window.restart();
        self.interference.added(1);
        self.probe.added();
        let reason =
            "a request waits of a job that waits more than it computes, or is not known yet";
        self.record_capacity(EventKind::Expanded, from, reason, inputs, now);
        true
    }

    /// Closes a free passive slot.
    fn close_one(&mut self, now: Moment) {
        let reason = "the CPU is saturated, and what waits for a slot computes";
        self.withdraw(1, reason, Map::new(), now);
    }
}

impl super::ramp::Ahead {
    /// A slot was opened for a task of `resident` bytes.
    fn opened_for(&mut self, resident: Option<Bytes>) {
        self.opened += 1;
        self.resident = self.resident.max(resident);
    }
}
