//! What is read of the core: tasks, slots and what is offered, as the last input left them.

use super::Shaper;
use crate::guard::Guard;
use crate::jobs::Jobs;
use crate::model::{Priority, ReservationId, TaskId};
use crate::slots::Slots;
use crate::state::{Counters, Policy, Reservation, Totals};
use crate::task::Task;
use crate::units::{BootTime, WallTime};
use crate::usage::Usage;

impl Shaper {
    /// Capacities and holders.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// A task by id.
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(&id).map(Box::as_ref)
    }

    /// What is stored of a task: also of one that is over while its record says what others have to
    /// get back.
    pub fn stored_task(&self, id: TaskId) -> Option<&Task> {
        let task = || self.tasks.get(&id).or_else(|| self.vacated.get(&id)).map(Box::as_ref);
        self.parked(id).or_else(task)
    }

    /// All of which something is stored.
    pub fn stored_tasks(&self) -> impl Iterator<Item = &Task> {
        let tasks = self.tasks.values().chain(self.vacated.values()).map(Box::as_ref);
        // One that has a slot and is still being moved is stored as it waited.
        tasks.filter(|task| self.parked(task.id).is_none()).chain(self.all_parked())
    }

    /// All tasks, by id.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = (TaskId, &Task)> {
        self.tasks.iter().map(|(id, task)| (*id, &**task))
    }

    /// A reservation by id.
    pub fn reservation(&self, id: ReservationId) -> Option<&Reservation> {
        self.reservations.get(&id)
    }

    /// All reservations, by id.
    pub fn reservations(&self) -> impl Iterator<Item = (ReservationId, &Reservation)> {
        self.reservations.iter().map(|(id, reservation)| (*id, reservation))
    }

    /// All jobs known.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// How many slots come free a second; `None`: not known yet.
    pub fn slots_freed_per_second(&self) -> Option<f64> {
        self.freed.per_second()
    }

    /// What tasks used of the CPUs over the last cycle.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Counters.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Numbers.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Whether an operator asked for no new tasks.
    pub fn draining(&self) -> bool {
        self.draining_since.is_some()
    }

    /// Since when, by the people's clock.
    pub fn draining_since(&self) -> Option<WallTime> {
        self.draining_since
    }

    /// Where the guard stands.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The settings in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether the guard keeps passive slots from being offered.
    pub fn holding(&self) -> bool {
        self.guard.entered().is_some() && self.policy.guard.is_some_and(|guard| !guard.dry_run)
    }

    pub(super) fn offers_nothing(&self) -> bool {
        self.draining() || self.root_frozen.is_some()
    }

    /// Why no task is put into the group of all tasks: others froze it.
    pub fn why_root_frozen(&self) -> Option<&str> {
        self.root_frozen.as_deref()
    }

    /// Active slots Reserve would grant now.
    pub fn active_offered(&self) -> u32 {
        if self.offers_nothing() { 0 } else { self.slots.active_free() }
    }

    /// Passive slots Reserve would grant now.
    pub fn passive_offered(&self) -> u32 {
        if self.offers_nothing() || self.holding() { 0 } else { self.slots.passive_free() }
    }

    /// Lowest priority in the active tier; `None` while it is empty. An opportunistic task
    /// counts as the lowest there is: anybody else may have its slot.
    pub fn lowest_active_priority(&self) -> Option<Priority> {
        self.slots.worst_active().map(|(rank, _)| rank.priority())
    }

    /// When [`Input::Tick`](crate::step::Input::Tick) has something to do.
    pub fn next_deadline(&self) -> Option<BootTime> {
        let first = self.deadlines.first().map(|(deadline, _)| *deadline);
        [first, self.gather_until].into_iter().flatten().min()
    }
}
