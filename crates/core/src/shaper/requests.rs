//! What comes before a task: requests that are granted, refused or wait, and reservations.
//!
//! A request is answered at once if anything is free; whoever is willing to wait is queued
//! (turns.rs has the order), and served by `rearrange` (placement.rs) from what is left over. A promise
//! takes a free slot and never makes one: it demotes no task. Refusals share an event, so that a client
//! that asks in a loop does not flush the history.
//!
//! placement.rs decides whether anything is free; when waits and promises end, shaper.rs
//! (`expire`); which promises end early because others wait, share.rs.

use std::time::Duration;

use serde_json::json;

use super::share::UNTOUCHED;
use super::{Shaper, post_increment};
use crate::event::{Event, EventKind};
use crate::model::{Order, ReservationId, Tier};
use crate::reservation::Deadline;
use crate::state::{Lease, Need, Patience, Refusal, Request, RequestOutcome, Reservation, Waiter};
use crate::step::{Record, Ticket};
use crate::units::Moment;

/// At most one `refused` event in this time; the count of the others is in the next one.
const REFUSAL_EVENT_EVERY: Duration = Duration::from_secs(1);

impl Shaper {
    /// A request for a slot, willing to wait or not.
    pub(crate) fn request(
        &mut self,
        ticket: Ticket,
        request: Request,
        patience: Option<Patience>,
        now: Moment,
    ) -> Result<RequestOutcome, Refusal> {
        let uid = request.uid;
        if let Some(id) = request.reservation {
            let answer = self.redeem(id, ticket, request, now).map(RequestOutcome::Placed);
            return self.refuse_or(answer, uid, now);
        }
        let queues = patience.is_some()
            && (self.gather_until.is_some() || self.keeps_free_for_others(&request));
        if request.need != Need::Slot || (self.offers(&request) && !queues) {
            let id = self.place(request, ticket, now);
            self.rearrange(now);
            return Ok(RequestOutcome::Placed(id));
        }
        let Some(patience) = patience else {
            let refusal = self.refusal();
            return self.refuse_or(Err(refusal), uid, now);
        };
        self.wait(ticket, request, None, patience);
        Ok(RequestOutcome::Waiting)
    }

    /// Puts a request into the queue.
    fn wait(&mut self, ticket: Ticket, request: Request, lease: Option<Lease>, how: Patience) {
        let Patience { first_requested, deadline, parks } = how;
        self.deadlines.extend(deadline.map(|at| (at, Deadline::Waiter(ticket))));
        let waiter = Waiter { request, first_requested, deadline, overtaken: 0, parks, lease };
        self.queue.insert(waiter.place(ticket));
        self.waiters.insert(ticket, waiter);
    }

    /// The waiter went away.
    pub(crate) fn abandon(&mut self, id: Ticket) {
        self.take_waiter(id);
    }

    pub(crate) fn take_waiter(&mut self, id: Ticket) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        self.queue.remove(waiter.place(id));
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, Deadline::Waiter(id)));
        }
        Some(waiter)
    }

    /// Promises slots to `request`, as many as are wanted and free; if none is, it may wait for the
    /// first (`None`). Never demotes: a priority swap happens at its admission.
    pub(crate) fn reserve(
        &mut self,
        ticket: Ticket,
        request: Request,
        lease: Lease,
        patience: Option<Patience>,
        now: Moment,
    ) -> Result<Option<Vec<ReservationId>>, Refusal> {
        let uid = request.uid;
        if patience.is_none() || self.gather_until.is_none() {
            let promised = self.promise(&request, lease, now);
            if !promised.is_empty() {
                self.rearrange(now);
                return Ok(Some(promised));
            }
        }
        if let Some(patience) = patience {
            self.wait(ticket, request, Some(lease), patience);
            return Ok(None);
        }
        let refusal = if lease.active && !self.draining() && self.root_frozen.is_none() {
            Refusal::NoActiveSlot { active: self.slots.active_capacity }
        } else {
            self.refusal()
        };
        self.refuse_or(Err(refusal), uid, now)
    }

    /// What is free of what is wanted.
    pub(crate) fn promise(
        &mut self,
        request: &Request,
        lease: Lease,
        now: Moment,
    ) -> Vec<ReservationId> {
        let mut promised = Vec::new();
        for _ in 0..lease.count {
            let tier = if self.active_offered() > 0 {
                Tier::Active
            } else if self.passive_offered() > 0 && !lease.active {
                Tier::Passive
            } else {
                break;
            };
            promised.push(self.promise_one(request, lease.ttl, tier, now));
        }
        promised
    }

    fn promise_one(
        &mut self,
        request: &Request,
        ttl: Option<Duration>,
        tier: Tier,
        now: Moment,
    ) -> ReservationId {
        let id = ReservationId {
            epoch: self.counters.epoch,
            number: post_increment(&mut self.counters.next_reservation),
        };
        let priority = request.priority.unwrap_or_default();
        self.charge_new(&request.labels, request.uid);
        let reservation = Reservation {
            labels: request.labels.clone(),
            uid: request.uid,
            priority,
            order: Order(post_increment(&mut self.counters.next_order)),
            tier,
            created_at: now.wall,
            expires: now.boot.after(ttl.unwrap_or(self.policy.reservation_ttl)),
            yields_from: now.boot.after(UNTOUCHED),
            by_member: request.by_member,
        };
        self.withdrawn.replaced(request.uid, now.boot);
        self.keep_reservation(id, reservation);
        self.step.store(Record::Reservation(id));
        self.record(now, EventKind::Reserved, Some(id.to_string()), |event| {
            event.to = Some(tier.to_string());
            event.inputs.insert("priority".into(), json!(priority));
            event.inputs.insert("uid".into(), json!(request.uid));
        });
        id
    }

    /// Ends a promise early.
    pub(crate) fn cancel_reservation(&mut self, id: ReservationId, now: Moment) {
        self.end_reservation(id, EventKind::Cancelled, now, |_| ());
        self.rearrange(now);
    }

    pub(crate) fn refusal(&self) -> Refusal {
        if self.draining() {
            Refusal::Draining
        } else if let Some(why) = &self.root_frozen {
            Refusal::RootFrozen(why.clone())
        } else if self.holding() && self.slots.passive_free() > 0 {
            let reason = self.guard.entered().map(|e| e.reason.clone()).unwrap_or_default();
            Refusal::Holding(reason)
        } else {
            Refusal::NoFreeSlot {
                active: self.slots.active_capacity,
                passive: self.slots.passive_capacity,
            }
        }
    }

    pub(crate) fn refuse_or<T>(
        &mut self,
        answer: Result<T, Refusal>,
        uid: u32,
        now: Moment,
    ) -> Result<T, Refusal> {
        if let Err(refusal) = &answer {
            self.count_refusal(&refusal.to_string(), Some(uid), now);
        }
        answer
    }

    /// Counts a request that got no slot. A client that asks in a loop must not flush the
    /// history, so its refusals share one event a second.
    pub(crate) fn count_refusal(&mut self, reason: &str, uid: Option<u32>, now: Moment) {
        self.totals.refused += 1;
        let recently = self
            .refusal_event_at
            .is_some_and(|last| last <= now.boot && now.boot.since(last) < REFUSAL_EVENT_EVERY);
        if recently {
            self.refusals_unrecorded += 1;
            return;
        }
        self.record_refusals(Some(reason), uid, now);
    }

    /// Writes down refusals that shared no event yet, so that none is lost with the daemon.
    pub(crate) fn flush_refusals(&mut self, now: Moment) {
        if self.refusals_unrecorded > 0 {
            self.refusals_unrecorded -= 1;
            self.record_refusals(None, None, now);
        }
    }

    /// `uid`: of the request that was refused for `reason`.
    fn record_refusals(&mut self, reason: Option<&str>, uid: Option<u32>, now: Moment) {
        self.refusal_event_at = Some(now.boot);
        let unrecorded = std::mem::take(&mut self.refusals_unrecorded);
        let more =
            || format!("{} more within a second of one that was written down", unrecorded + 1);
        let reason = reason.map_or_else(more, str::to_owned);
        let inputs = self.slot_inputs();
        self.record(now, EventKind::Refused, None, |event| {
            event.reason = Some(reason);
            event.inputs = inputs;
            event.inputs.insert("refused_since_last_event".into(), json!(unrecorded + 1));
            if let Some(uid) = uid {
                event.inputs.insert("uid".into(), json!(uid));
            }
        });
    }

    /// Whether a reservation can be used or cancelled.
    pub fn check_reservation(&self, id: ReservationId) -> Result<(), Refusal> {
        if self.reservations.contains_key(&id) {
            return Ok(());
        }
        if let Some(reason) = self.withdrawn.reason(id).cloned() {
            return Err(Refusal::ReservationWithdrawn { id, reason });
        }
        let made_here =
            id.epoch == self.counters.epoch && id.number < self.counters.next_reservation;
        Err(if made_here { Refusal::ReservationEnded(id) } else { Refusal::UnknownReservation(id) })
    }

    /// It holds its slot from now on.
    pub(crate) fn keep_reservation(&mut self, id: ReservationId, reservation: Reservation) {
        self.slots.reserve(reservation.tier, reservation.rank(), id);
        self.deadlines.extend(reservation.deadlines(id));
        self.reservations.insert(id, reservation);
    }

    /// It does no more.
    pub(crate) fn take_reservation(&mut self, id: ReservationId) -> Option<Reservation> {
        let reservation = self.reservations.remove(&id)?;
        self.slots.unreserve(reservation.tier, reservation.rank());
        for deadline in reservation.deadlines(id) {
            self.deadlines.remove(&deadline);
        }
        Some(reservation)
    }

    pub(crate) fn end_reservation(
        &mut self,
        id: ReservationId,
        kind: EventKind,
        now: Moment,
        fill: impl FnOnce(&mut Event),
    ) {
        let Some(reservation) = self.take_reservation(id) else { return };
        // What it was to take is there again.
        self.opening.ended += 1;
        self.step.forget(Record::Reservation(id));
        self.record(now, kind, Some(id.to_string()), |event| {
            event.from = Some(reservation.tier.to_string());
            event.inputs.insert("uid".into(), json!(reservation.uid));
            fill(event);
        });
    }
}
