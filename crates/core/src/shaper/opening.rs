//! Slots for tasks that wait, as the shaper stands; the rule and its limits are in [`crate::opening`].

use serde_json::{Map, json};

use super::Shaper;
use crate::capacity::slots_that_fit;
use crate::event::EventKind;
use crate::model::JobKey;
use crate::opening::{LOOKED_AT, LOOKED_AT_IN_CYCLE};
use crate::order::QueueOrder;
use crate::probe::Formula;
use crate::slice::COMPUTES;
use crate::slots::Seat;
use crate::step::Ticket;
use crate::task::Task;
use crate::units::Moment;

impl Shaper {
    /// Gives a request that waits the slot that there is for its kind alone, or opens one. `false`: there
    /// is no such request, or no room.
    pub(crate) fn grant_by_kind(&mut self, now: Moment) -> bool {
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
