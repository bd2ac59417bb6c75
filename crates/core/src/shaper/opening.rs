//! Slots for tasks that wait, as the shaper stands; the rule and its limits are in [`crate::opening`].

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, json};

use super::Shaper;
use crate::bound::Bound;
use crate::capacity::slots_that_fit;
use crate::event::EventKind;
use crate::model::{JobKey, Priority};
use crate::opening::{LOOKED_AT, LOOKED_AT_IN_CYCLE, WAITS_BELOW};
use crate::order::QueueOrder;
use crate::probe::Formula;
use crate::slots::Seat;
use crate::state::Request;
use crate::step::Ticket;
use crate::task::Task;
use crate::units::Moment;

/// A request that may have a slot by its kind.
struct Candidate {
    ticket: Ticket,
    job: JobKey,
    /// Requests of the same user that it passes.
    before: Vec<Ticket>,
}

impl Shaper {
    /// Gives a request the slot that there is for its kind alone, or opens one. `false`: there is no such
    /// request, or no room; free slots for such requests alone are closed then.
    pub(crate) fn grant_by_kind(&mut self, now: Moment) -> bool {
        let Some(next) = self.queue.first() else { return false };
        if self.gather_until.is_some() || !self.is_by_kind(next.priority) {
            return false;
        }
        let free = self.passive_offered() > 0;
        let opens = !free && self.may_expand() && !self.probe.gained_nothing();
        if !(opens || free && self.is_for_waiting_tasks()) {
            return false;
        }
        let Some(candidate) = self.first_by_kind() else {
            if free {
                self.close_by_kind(now);
            }
            return false;
        };
        if opens && !self.open_one(&candidate.job, now) {
            return false;
        }
        for overtaken in candidate.before {
            if let Some(waiter) = self.waiters.get_mut(&overtaken) {
                waiter.overtaken = waiter.overtaken.saturating_add(1);
            }
        }
        let Some(waiter) = self.take_waiter(candidate.ticket) else { return false };
        let place = waiter.place(candidate.ticket);
        self.queue.served(place.priority, place.uid);
        self.grant(candidate.ticket, waiter, now);
        true
    }

    /// Whether the free passive slots are not for a new `request` that could wait.
    pub(crate) fn keeps_free_for_others(&self, request: &Request) -> bool {
        let waits = || {
            let job = request.labels.job_key(Some(request.uid));
            job.is_some_and(|job| self.waits(&request.labels, &job))
        };
        self.is_by_kind(request.priority.unwrap_or_default())
            && self.is_for_waiting_tasks()
            && !waits()
    }

    /// Whether a request of this priority has a slot by its kind: one that comes into the active tier is served
    /// as ever.
    fn is_by_kind(&self, priority: Priority) -> bool {
        self.policy.formula == Formula::Probe
            && !self.probe.is_trying()
            && self.active_offered() == 0
            && self.lowest_active_priority().is_some_and(|lowest| priority <= lowest)
    }

    /// Whether a free passive slot is for no task that computes: it is above P0, the CPUs are saturated,
    /// and P0 passive tasks compute already.
    fn is_for_waiting_tasks(&self) -> bool {
        self.opening.saturated
            && self.slots.passive_capacity > self.slots.base
            && !self.fewer_compute_than(self.slots.base)
    }

    /// Whether fewer than `most` passive tasks and reservations compute, or are not known.
    fn fewer_compute_than(&self, most: u32) -> bool {
        let computes = |task: &&Task| match task.counts.meter.computing_rate() {
            Some(rate) => rate.value() >= WAITS_BELOW,
            None => !task.job_key().is_some_and(|job| self.waits(&task.labels, &job)),
        };
        let reserved = self.slots.passive_reserved();
        let passive =
            self.tasks.values().map(Box::as_ref).filter(|task| task.seat == Seat::Passive);
        let left = most.saturating_sub(reserved) as usize;
        passive.filter(computes).take(left).count() < left
    }

    /// The first request, in the order of service, of a job that waits, or that is its job's sample. Only of
    /// the highest priority at which any waits.
    fn first_by_kind(&self) -> Option<Candidate> {
        let next = self.queue.first()?;
        let mut before: BTreeMap<u32, Vec<Ticket>> = BTreeMap::new();
        // Users with a request that none of their own may pass.
        let mut kept = BTreeSet::new();
        let mut samples = None;
        let look = if self.opening.in_cycle { LOOKED_AT_IN_CYCLE } else { LOOKED_AT };
        for (_, ticket) in self.queue.order().take(look) {
            let waiter = self.waiters.get(&ticket)?;
            let place = waiter.place(ticket);
            if place.priority != next.priority {
                return None;
            }
            if kept.contains(&place.uid) {
                continue;
            }
            let passed = before.entry(place.uid).or_default();
            if let Some(job) = waiter.request.labels.job_key(Some(waiter.request.uid)) {
                let mut is_sample = || {
                    // A promise says nothing of what its task will do.
                    waiter.lease.is_none()
                        && self.jobs.mean_rate(&job).is_none()
                        && self.jobs.running(&job) == 0
                        && *samples
                            .get_or_insert_with(|| self.fewer_compute_than(self.slots.base + 1))
                };
                if self.waits(&waiter.request.labels, &job) || is_sample() {
                    let before = std::mem::take(passed);
                    return Some(Candidate { ticket, job, before });
                }
            }
            passed.push(ticket);
            if self.policy.order == QueueOrder::Fifo || waiter.overtaken >= self.policy.overtake_max
            {
                kept.insert(place.uid);
            }
        }
        None
    }

    /// Opens a passive slot for a task of `job`, if memory allows.
    fn open_one(&mut self, job: &JobKey, now: Moment) -> bool {
        let resident = self.size_of_new(Some(job), job.uid);
        let Some(memory) = &self.opening.memory else { return false };
        let (room, reserve) = self.room_that_binds(memory);
        let available = room.available;
        if slots_that_fit(1, Some(resident), Some(available), reserve) == 0 {
            self.bound = Some(Bound::Memory);
            self.opening.lacks_memory = true;
            return false;
        }
        let mut inputs = Map::new();
        // Events are for all; what program a task is of is for its user and admins.
        if !job.is_program() {
            inputs.insert("job".into(), json!(job.job));
        }
        inputs.insert("task_bytes".into(), json!(resident));
        inputs.insert("memory_available_bytes".into(), json!(available));
        inputs.insert("memory_reserve_bytes".into(), json!(reserve));
        room.name_limit(&mut inputs);
        self.ahead.opened_for(Some(resident));
        self.bound = None;
        let from = self.slots.passive_capacity;
        self.slots.passive_capacity = from + 1;
        self.free_window.restart();
        self.interference.added_meanwhile(1);
        self.probe.added();
        let reason = "a request waits of a job that waits more than it computes, is expected to, or is not known yet";
        self.record_capacity(EventKind::Expanded, from, reason, inputs, now);
        true
    }

    /// Closes the free passive slots above P0.
    fn close_by_kind(&mut self, now: Moment) {
        let slots = &mut self.slots;
        let from = slots.passive_capacity;
        let to = slots.base.max(slots.passive_in_use());
        if to >= from {
            return;
        }
        slots.passive_capacity = to;
        self.probe.withdrawn(to - self.slots.base, from - to, now.boot);
        self.interference.closed_meanwhile(from - to);
        self.free_window.restart();
        let reason = "the CPU is saturated, and what waits for a slot computes";
        self.record_capacity(EventKind::Shrunk, from, reason, Map::new(), now);
    }
}
