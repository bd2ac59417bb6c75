//! Waiters that are in their groups before their turn.
//!
//! A move into a cgroup makes the kernel wait for a grace period (8 ms at the median, *measured*), in
//! which a slot that came free would stay empty. So the next waiters wait in the groups of the tasks
//! that they are going to be, with the weights a group is made with; a grant only writes weights.
//!
//! A parked waiter goes the way of a task without being one: [`Job::Park`] finds out where its process
//! is; then [`Input::Prepared`](crate::step::Input::Prepared), its record, [`Job::Attach`],
//! [`Input::Attached`](crate::step::Input::Attached). The record is that of an admission under way: the
//! next daemon rolls it back ([`crate::restore`]), and the client, which has no answer, asks again.
//! The way out is [`Job::Release`] and [`Input::Removed`](crate::step::Input::Removed). A grant while
//! the process is on its way in or out waits for the end of that move.
//!
//! `Shaper::park` compares after each input who should be parked with who is. Nothing else has to
//! know why a waiter lost its place: its time was over, its client left, others came before it, the
//! node drains, the daemon stops.
//!
//! Limits. One that could not be parked is not tried again, and is moved when its turn comes. So is
//! one that [`QueueOrder::Complement`](crate::order::QueueOrder::Complement), or a slot for tasks that wait
//! ([`crate::opening`]), takes from far behind.
//! One that never gets a slot leaves a gap in the numbers of tasks, which are in the order in which
//! requests came to be parked, and not in that of admissions.

use std::collections::BTreeSet;

use super::{Shaper, post_increment};
use crate::model::{Order, TaskId};
use crate::parked::{Parked, Way};
use crate::slots::Seat;
use crate::state::Request;
use crate::step::{Job, Record, Ticket};
use crate::task::{Attaching, GroupRecord, Life, Task};
use crate::units::{Moment, ProcessRef};

/// Waiters parked beyond one for each active slot: as many as one waiter may be overtaken by
/// ([`Policy::overtake_max`](crate::state::Policy::overtake_max) as it is shipped), and enough for
/// short tasks that end while one of them is moved.
const AHEAD: usize = 8;

impl Shaper {
    /// The task that a parked waiter is going to be, while its process is in its group or on its
    /// way into or out of it.
    pub fn parked(&self, id: TaskId) -> Option<&Task> {
        self.parking.task(id)
    }

    /// All of them.
    pub fn all_parked(&self) -> impl Iterator<Item = &Task> {
        self.parking.tasks()
    }

    /// Those with a process on its way back to where it was.
    pub fn leaving(&self) -> impl Iterator<Item = &Task> {
        let leaving = self.parking.parked.values().filter(|parked| parked.way == Way::Leaving);
        leaving.map(|parked| &*parked.task)
    }

    /// Whether this process is on its way back to where it was.
    pub fn is_leaving(&self, process: ProcessRef) -> bool {
        self.leaving().any(|task| task.who.process == Some(process))
    }

    /// Has the next waiters put into their groups, and the others back where they were.
    pub(crate) fn park(&mut self, now: Moment) {
        if self.waiters.is_empty() && self.parking.parked.is_empty() {
            return;
        }
        // Those that waited for the daemon come back in any order.
        let none = self.parking.over || self.draining() || self.gather_until.is_some();
        let places = if none { 0 } else { self.slots.active_capacity as usize + AHEAD };
        let next: BTreeSet<Ticket> = self.queue.order().take(places).map(|(_, t)| t).collect();
        let mut held = BTreeSet::new();
        for (id, parked) in &mut self.parking.parked {
            let keeps = parked.ticket.is_some_and(|ticket| next.contains(&ticket));
            if parked.way == Way::Inside && !keeps {
                parked.way = Way::Leaving;
                self.step.jobs.push(Job::Release(*id));
            }
            held.extend(parked.ticket);
        }
        if self.root_frozen.is_some() {
            // Who is inside stays there: it cannot run, and a move out would thaw it unasked.
            return;
        }
        for ticket in next.difference(&held) {
            let Some(waiter) = self.waiters.get(ticket).filter(|waiter| waiter.parks) else {
                continue;
            };
            let number = post_increment(&mut self.counters.next_task);
            let id = TaskId { epoch: self.counters.epoch, number };
            let Request { uid, who, labels, priority, .. } = waiter.request.clone();
            let reason = "it waits for a slot".to_owned();
            let task = Task {
                labels,
                who,
                uid: Some(uid),
                priority: priority.unwrap_or_default(),
                life: Life::Attaching(Attaching { reason, ..Attaching::default() }),
                admitted_at: now,
                main_exited: false,
                left_for: None,
                lost: false,
                ..Task::lost(id, Order(0), Seat::Passive)
            };
            let (task, ticket) = (Box::new(task), *ticket);
            let (way, granted) = (Way::Entering, false);
            let parked = Parked { task, ticket: Some(ticket), way, granted };
            self.parking.parked.insert(id, parked);
            self.step.jobs.push(Job::Park { task: id, ticket });
        }
    }

    /// The daemon stops: all go back where they were.
    pub(crate) fn end_parking(&mut self) {
        self.parking.over = true;
    }

    /// The request has a slot. Its task if it was parked; with the group, unless it has to wait for
    /// a move to end.
    pub(crate) fn claim_parked(&mut self, ticket: Ticket) -> Option<(TaskId, Option<GroupRecord>)> {
        let all = &mut self.parking.parked;
        let (id, parked) = all.iter_mut().find(|(_, parked)| parked.ticket == Some(ticket))?;
        let id = *id;
        if parked.way == Way::Inside {
            let parked = all.remove(&id)?;
            return Some((id, parked.task.group));
        }
        parked.granted = true;
        Some((id, None))
    }

    /// The process is in its group. `false`: it is no waiter's.
    pub(crate) fn parked_in(&mut self, id: TaskId, group: &GroupRecord) -> bool {
        let Some(parked) = self.parking.parked.get_mut(&id) else { return false };
        if !parked.granted {
            parked.way = Way::Inside;
            parked.task.group = Some(group.clone());
            self.step.store(Record::Task(id));
            return true;
        }
        if let Some(task) = self.tasks.get_mut(&id) {
            task.was_parked(group.clone());
        }
        self.parking_is_over(id);
        true
    }

    /// The process is where it was: it could not be put in, or is out again. `false`: it is no
    /// waiter's.
    pub(crate) fn not_parked(&mut self, id: TaskId) -> bool {
        let Some(parked) = self.parking.parked.get(&id) else { return false };
        let failed = parked.way == Way::Entering;
        if let Some(waiter) = parked.ticket.and_then(|ticket| self.waiters.get_mut(&ticket)) {
            waiter.parks &= !failed;
        }
        self.parking_is_over(id);
        true
    }

    /// The move that a grant may have waited for is done.
    fn parking_is_over(&mut self, id: TaskId) {
        match self.parking.parked.remove(&id) {
            Some(Parked { granted: true, ticket: Some(ticket), .. }) => {
                self.step.jobs.push(Job::Prepare { task: id, ticket });
            }
            _ => self.step.forget(Record::Task(id)),
        }
    }

    /// A task that was parked did not become one: its process goes back where it was.
    pub(crate) fn park_failed(&mut self, task: Box<Task>) {
        let id = task.id;
        let parked = Parked { task, ticket: None, way: Way::Leaving, granted: false };
        self.parking.parked.insert(id, parked);
        self.step.jobs.push(Job::Release(id));
    }
}

#[cfg(test)]
mod tests;
