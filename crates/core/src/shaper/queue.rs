//! The queue as clients see it: who waits, at which place, and why.
//!
//! A place is counted only when a client asks for it: a number kept for each of ten thousand waiters would
//! change with every grant. It is the one of turns.rs: if none comes or leaves, the waiters are served in
//! this order.
//!
//! Limits. Unless requests are served strictly by arrival
//! ([`QueueOrder::Fifo`](crate::order::QueueOrder::Fifo)), another request of the same user and priority may
//! be next, at most [`Policy::overtake_max`](crate::state::Policy::overtake_max) times.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use super::Shaper;
use crate::slots::Seat;
use crate::state::Request;
use crate::step::Ticket;
use crate::task::Task;
use crate::turns::Arrival;
use crate::units::{BootTime, WallTime};

/// For so many places the expected wait for a slot is computed.
pub const EXPECTED: usize = 1000;

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    arrival: Arrival,
    /// What is asked for.
    pub request: &'a Request,
    /// When it gives up; `None`: never.
    pub deadline: Option<BootTime>,
    /// Its process is in the group of the task that it is going to be.
    pub parked: bool,
}

impl Waiting<'_> {
    /// Under which it is answered.
    pub fn ticket(&self) -> Ticket {
        self.arrival.1
    }

    /// When it first asked.
    pub fn since(&self) -> WallTime {
        self.arrival.0
    }
}

/// Where a page of the queue goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Waiters on the pages before.
    pub seen: u32,
    /// The last one of them.
    pub last: Ticket,
    /// Grants until then.
    pub granted: u64,
}

/// Why no waiter gets a slot now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldUp {
    /// Every slot is taken.
    Full,
    /// Passive slots are free, and the guard holds them back.
    Holding,
    /// An operator drains the node.
    Draining,
    /// The daemon has just started: those that waited for the one before it come back first.
    Gathering,
}

impl Shaper {
    /// Those that wait, in the order in which they are served.
    pub fn queue(&self) -> impl Iterator<Item = Waiting<'_>> {
        self.queue_behind(None)
    }

    /// The same behind the last page. Where its last waiter is gone, those before it have most likely
    /// been granted: it goes on behind as many as are left of them.
    pub fn queue_behind(&self, mark: Option<Mark>) -> impl Iterator<Item = Waiting<'_>> {
        let parked = self.parking.inside();
        let before = mark.map_or(0, |mark| {
            let granted = self.queue.granted().saturating_sub(mark.granted);
            let left = || usize::try_from(u64::from(mark.seen).saturating_sub(granted));
            let last = self.waiters.get(&mark.last).and_then(|_| self.place_of(mark.last));
            last.map_or_else(|| left().unwrap_or(usize::MAX), |place| place + 1)
        });
        let order = self.queue.order().skip(before);
        order.filter_map(move |arrival| self.waiting_at(arrival, &parked))
    }

    /// Where the next page goes on, when `seen` waiters up to `last` are on those before.
    pub fn mark(&self, seen: u32, last: Ticket) -> Mark {
        Mark { seen, last, granted: self.queue.granted() }
    }

    fn place_of(&self, ticket: Ticket) -> Option<usize> {
        self.queue.order().position(|(_, other)| other == ticket)
    }

    /// The request of this ticket, if it waits, and how many are before it.
    pub fn waiting_of(&self, ticket: Ticket) -> Option<(usize, Waiting<'_>)> {
        let waiter = self.waiters.get(&ticket)?;
        let before = self.place_of(ticket)?;
        Some((before, self.waiting_at((waiter.first_requested, ticket), &self.parking.inside())?))
    }

    fn waiting_at(&self, arrival: Arrival, parked: &BTreeSet<Ticket>) -> Option<Waiting<'_>> {
        let waiter = self.waiters.get(&arrival.1)?;
        let (request, deadline) = (&waiter.request, waiter.deadline);
        Some(Waiting { arrival, request, deadline, parked: parked.contains(&arrival.1) })
    }

    /// How long those that wait are expected to wait yet, by place, for the first [`EXPECTED`] at most:
    /// the tasks that run, and then those that wait, take as long as those of their jobs that finished.
    /// A slot of a task without an expected end does not come free in this, so that the wait may be
    /// shorter; where no other slot is left, the place and those behind it have no expected wait.
    ///
    /// Left out: slots that open or close, promotion, and who comes with a higher priority.
    pub fn expected_waits(&self, now: BootTime) -> Vec<Duration> {
        if self.held_up() != HeldUp::Full {
            return Vec::new();
        }
        let known = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
        let left = |task: &Task| {
            let elapsed = now.since(task.admitted_at.boot);
            known(self.jobs().remaining(&task.job_key().filter(|_| !task.lost)?, elapsed)?)
        };
        let seated = |task: &&Task| matches!(task.seat, Seat::Active | Seat::Passive);
        let running = self.tasks().map(|(_, task)| task).filter(seated);
        let mut free: BinaryHeap<Reverse<Duration>> =
            running.filter_map(left).map(Reverse).collect();
        let mut waits = Vec::new();
        for waiting in self.queue().take(EXPECTED) {
            let Some(Reverse(wait)) = free.pop() else { break };
            waits.push(wait);
            let job = waiting.request.labels.job_key(Some(waiting.request.uid));
            let takes = job.and_then(|job| known(self.jobs().mean_seconds(&job)?));
            free.extend(takes.map(|takes| Reverse(wait.saturating_add(takes))));
        }
        waits
    }

    /// See [`HeldUp`]; it means something only while a request waits.
    pub fn held_up(&self) -> HeldUp {
        if self.draining() {
            HeldUp::Draining
        } else if self.gather_until.is_some() {
            HeldUp::Gathering
        } else if self.holding() && self.slots.passive_free() > 0 {
            HeldUp::Holding
        } else {
            HeldUp::Full
        }
    }
}
