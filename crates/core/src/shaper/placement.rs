//! Who sits where: the splitter and the priority rules (thesis 3.3.2 and 4.3.1; spec 3 and 5).
//!
//! [`Shaper::rearrange`] runs after every input and is the whole order of the contract, one rule
//! after the other. Everything else here gets a request to the point where it can be placed.
//! Refusals, waits and promises are in requests.rs.

use std::collections::VecDeque;

use serde_json::json;

use super::order::Known;
use super::{Shaper, post_increment};
use crate::counts::Counts;
use crate::event::EventKind;
use crate::model::{Labels, Order, Priority, ReservationId, TaskId, Tier};
use crate::slots::{Rank, Seat};
use crate::state::{Need, Refusal, Request, Reservation, Waiter};
use crate::step::{Answer, Job, Record, Ticket};
use crate::task::{Attaching, Halt, Life, Task, Who};
use crate::units::Moment;

/// Whom a slot is given to.
struct Newcomer {
    who: Who,
    labels: Labels,
    uid: u32,
    priority: Priority,
    opportunistic: bool,
    order: Order,
}

impl Shaper {
    /// Puts everything where the contract wants it; see the module page.
    pub(crate) fn rearrange(&mut self, now: Moment) {
        let mut known = None;
        loop {
            let capacity = self.slots.active_capacity;
            while self.slots.active_used() > capacity {
                let Some((_, worst)) = self.slots.worst_active() else { break };
                self.demote(worst, "the active tier shrank", None, now);
            }
            while self.slots.active_used() + self.slots.active_reserved() > capacity {
                let Some((_, id)) = self.slots.worst_reserved_active() else { break };
                self.move_reservation(id, Tier::Passive);
            }
            while self.slots.active_used() < capacity {
                let best = [self.slots.best_passive(), self.slots.best_running_overflow()];
                let Some((_, best)) = best.into_iter().flatten().min() else { break };
                if self.slots.active_used() + self.slots.active_reserved() >= capacity
                    && let Some((_, id)) = self.slots.worst_reserved_active()
                {
                    // A promise never keeps running work waiting.
                    self.move_reservation(id, Tier::Passive);
                }
                let best = self.first_for_cpus(self.borrower_before(best));
                self.promote(best, "an active slot came free", None, now);
            }
            while let (Some((best, up)), Some((worst, down))) =
                (self.slots.best_passive(), self.slots.worst_active())
            {
                if !best.outranks(worst) {
                    break;
                }
                self.demote(down, "a task of higher priority needed its slot", Some(up), now);
                self.promote(up, "its priority is above the lowest active one", Some(down), now);
            }
            self.spread_over_cpus(now);
            if self.put_opportunistic_last(now) {
                // What came into a slot takes part in the rules of priority.
                continue;
            }
            while self.slots.active_free() > 0 {
                let Some((_, id)) = self.slots.best_reserved_passive() else { break };
                self.move_reservation(id, Tier::Active);
            }
            self.take_back(now);
            let mut seated_overflow = false;
            while self.slots.passive_free() > 0 {
                let Some((_, id)) = self.slots.best_overflow() else { break };
                self.reseat(id, Seat::Passive);
                self.step.store(Record::Task(id));
                seated_overflow = true;
            }
            if seated_overflow {
                // Now in slots, these tasks take part in the rules of priority.
                continue;
            }
            // Above the maximum only while a shrunk node still has that many tasks.
            let slots = &mut self.slots;
            slots.passive_capacity =
                slots.passive_capacity.min(slots.passive_max).max(slots.passive_in_use());
            if self.grant_by_kind(now) {
                // The candidates in it wait no more.
                known = None;
            } else if !self.grant_waiter(&mut known, now) && !self.withdraw_one(now) {
                break;
            }
        }
        self.free_window.note(self.slots.passive_free());
        self.lend(now);
        if self.follow.newcomer {
            self.follow_active();
        }
    }

    /// What others did to tasks, so that they cannot run, or that they can again.
    pub(crate) fn halted(&mut self, halts: Vec<(TaskId, Option<Halt>)>, now: Moment) {
        for (id, halt) in halts {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            task.halted = halt;
            self.slots.halt(id, halt.is_some());
            self.loans.halt(id, halt.is_some(), now.boot);
        }
        self.rearrange(now);
    }

    /// Others froze the group of all tasks, with the reason, or thawed it.
    pub(crate) fn root_frozen(&mut self, why: Option<String>, now: Moment) {
        self.root_frozen = why;
        self.rearrange(now);
    }

    /// Gives the next waiter a slot, if there is one for it.
    fn grant_waiter(&mut self, known: &mut Option<Known>, now: Moment) -> bool {
        if self.gather_until.is_some() || self.active_offered() + self.passive_offered() == 0 {
            return false;
        }
        let Some((id, waiter)) = self.next_waiter(known) else { return false };
        self.grant(id, waiter, now);
        true
    }

    /// Gives a request that waits no more its slot.
    pub(super) fn grant(&mut self, id: Ticket, waiter: Waiter, now: Moment) {
        match waiter.lease {
            None => {
                self.place(waiter.request, id, now);
            }
            Some(lease) => {
                let promised = self.promise(&waiter.request, lease, now);
                self.step.answers.push((id, Answer::Reserved(promised)));
            }
        }
    }

    pub(crate) fn reseat(&mut self, id: TaskId, seat: Seat) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        self.slots.remove(task.seat, task.rank());
        if task.tier() != seat.tier() {
            // What it wanted in the other tier says little.
            task.counts.demand = None;
            self.follow.newcomer |= seat.tier() == Tier::Active;
        }
        let other = std::mem::replace(&mut task.seat, seat) != seat;
        self.slots.insert(seat, task.rank(), id);
        // Whether a task that borrows still does from its new place is decided with the other loans.
        if other && !(seat.tier() == Tier::Passive && self.loans.decide_again(id)) {
            self.loans.forget(id);
        }
    }

    pub(crate) fn move_reservation(&mut self, id: ReservationId, tier: Tier) {
        let Some(reservation) = self.reservations.get_mut(&id) else { return };
        self.slots.unreserve(reservation.tier, reservation.rank());
        reservation.tier = tier;
        self.slots.reserve(tier, reservation.rank(), id);
        self.step.store(Record::Reservation(id));
    }

    pub(crate) fn promote(
        &mut self,
        id: TaskId,
        reason: &'static str,
        instead_of: Option<TaskId>,
        now: Moment,
    ) {
        self.change_tier(id, Seat::Active, reason, instead_of, now);
    }

    pub(crate) fn demote(
        &mut self,
        id: TaskId,
        reason: &'static str,
        in_favour_of: Option<TaskId>,
        now: Moment,
    ) {
        self.change_tier(id, Seat::Passive, reason, in_favour_of, now);
    }

    pub(crate) fn change_tier(
        &mut self,
        id: TaskId,
        seat: Seat,
        reason: &'static str,
        other: Option<TaskId>,
        now: Moment,
    ) {
        self.reseat(id, seat);
        self.lane.leave(id, now.boot);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if let Life::Attaching(Attaching { reason: of_admission, booked: None, .. }) =
            &mut task.life
        {
            // It has no tier to lose yet; its admission will say where it sits, and why.
            *of_admission = reason.to_owned();
            self.step.set_level(id, seat.tier().into());
            return;
        }
        let priority = task.priority;
        let waited = now.boot.since(task.admitted_at.boot);
        let (kind, from) = match seat.tier() {
            Tier::Active => {
                task.promoted_at = Some(now.wall);
                self.totals.promoted += 1;
                (EventKind::Promoted, Tier::Passive)
            }
            Tier::Passive => {
                self.totals.demoted += 1;
                (EventKind::Demoted, Tier::Active)
            }
        };
        self.step.set_level(id, seat.tier().into());
        let mut inputs = self.slot_inputs();
        self.insert_cpus(id, &mut inputs);
        self.record(now, kind, Some(id.to_string()), |event| {
            event.from = Some(from.to_string());
            event.to = Some(seat.tier().to_string());
            event.reason = Some(reason.to_owned());
            event.inputs = inputs;
            event.inputs.insert("priority".into(), json!(priority));
            event.inputs.insert("seconds_since_admission".into(), json!(waited.as_secs_f64()));
            if let Some(other) = other {
                event.inputs.insert("other_task".into(), json!(other));
            }
        });
        self.step.store(Record::Task(id));
    }

    pub(crate) fn offers(&self, request: &Request) -> bool {
        // A waiter of equal or higher priority comes before this request.
        let priority = request.priority.unwrap_or_default();
        let queued = self.queue.first().is_some_and(|first| first.priority >= priority);
        !queued && self.active_offered() + self.passive_offered() > 0
    }

    /// Seats a found task once its processes are in place: whatever is free, drained or held.
    pub(crate) fn arrive(&mut self, id: TaskId, now: Moment) {
        let Some(task) = self.tasks.get(&id).filter(|task| task.seat == Seat::Arriving) else {
            return;
        };
        let rank = task.rank();
        let why = self.placement_reason(Need::Discovered, rank);
        let seat = if self.slots.active_free() > 0 {
            Seat::Active
        } else if self.slots.passive_free() > 0 {
            Seat::Passive
        } else {
            Seat::Overflow
        };
        self.reseat(id, seat);
        if let Some(task) = self.tasks.get_mut(&id)
            && let Life::Attaching(Attaching { reason, .. }) = &mut task.life
        {
            *reason = why.to_owned();
        }
        if seat.tier() != Seat::Arriving.tier() {
            self.step.set_level(id, seat.tier().into());
        }
        self.rearrange(now);
    }

    pub(crate) fn placement_reason(&self, need: Need, rank: Rank) -> &'static str {
        match need {
            Need::Slotless => "must not be passive and holds no slot",
            Need::Slot | Need::Discovered if self.slots.active_free() > 0 => {
                "an active slot was free"
            }
            Need::Discovered if self.slots.passive_free() == 0 => "found running beyond capacity",
            Need::Slot | Need::Discovered => match self.slots.worst_active() {
                Some((worst, _)) if rank.outranks(worst) => {
                    "its priority is above the lowest in the active tier"
                }
                _ => "all active slots were taken",
            },
        }
    }

    /// Seats a request that has been found to fit.
    pub(crate) fn place(&mut self, request: Request, ticket: Ticket, now: Moment) -> TaskId {
        let reason = self.placement_reason(request.need, request.rank());
        let seat = match request.need {
            Need::Slotless => Seat::Slotless,
            Need::Discovered => Seat::Arriving,
            Need::Slot if self.slots.active_free() > 0 => Seat::Active,
            Need::Slot => Seat::Passive,
        };
        let order = Order(post_increment(&mut self.counters.next_order));
        let priority = request.priority.unwrap_or_default();
        let Request { who, labels, uid, opportunistic, .. } = request;
        if request.need == Need::Slot {
            self.charge_new(&labels, uid);
        }
        let who = Newcomer { who, labels, uid, priority, opportunistic, order };
        self.seat_new(who, seat, reason, None, ticket, now)
    }

    pub(crate) fn redeem(
        &mut self,
        id: ReservationId,
        ticket: Ticket,
        request: Request,
        now: Moment,
    ) -> Result<TaskId, Refusal> {
        self.check_reservation(id)?;
        let expired = self.reservations.get(&id).is_none_or(|r| r.expires <= now.boot);
        if expired {
            self.expire(now);
            return Err(Refusal::ReservationEnded(id));
        }
        if let Some(why) = &self.root_frozen {
            return Err(Refusal::RootFrozen(why.clone()));
        }
        let Some(reservation) = self.take_reservation(id) else {
            return Err(Refusal::ReservationEnded(id));
        };
        let seat = match reservation.tier {
            Tier::Active => Seat::Active,
            Tier::Passive => Seat::Passive,
        };
        let priority = request.priority.unwrap_or(reservation.priority);
        let who = Newcomer {
            who: request.who,
            labels: request.labels.or(reservation.labels.clone()),
            uid: request.uid,
            priority,
            opportunistic: false,
            order: reservation.order,
        };
        let used = Some((id, reservation));
        let task = self.seat_new(who, seat, "its slot was reserved", used, ticket, now);
        self.rearrange(now);
        Ok(task)
    }

    fn seat_new(
        &mut self,
        who: Newcomer,
        seat: Seat,
        reason: &'static str,
        used: Option<(ReservationId, Reservation)>,
        ticket: Ticket,
        now: Moment,
    ) -> TaskId {
        let parked = self.claim_parked(ticket);
        let id = parked.as_ref().map_or_else(
            || TaskId {
                epoch: self.counters.epoch,
                number: post_increment(&mut self.counters.next_task),
            },
            |(id, _)| *id,
        );
        let Newcomer { who, labels, uid, priority, opportunistic, order } = who;
        if let Some(key) = labels.job_key(Some(uid)) {
            self.jobs.started(key, labels.group.as_ref());
        }
        let reason = reason.to_owned();
        let mut task = Task {
            id,
            labels,
            who,
            uid: Some(uid),
            priority,
            opportunistic,
            order,
            seat,
            life: Life::Attaching(Attaching {
                reason,
                used: used.map(Box::new),
                ..Attaching::default()
            }),
            admitted_at: now,
            promoted_at: None,
            group: None,
            counts: Counts::default(),
            frozen: false,
            halted: None,
            repaired: 0,
            repairs: VecDeque::new(),
            main_exited: false,
            left_for: None,
            exit: None,
            lost: false,
        };
        self.slots.insert(seat, task.rank(), id);
        self.follow.newcomer |= seat.tier() == Tier::Active;
        match parked {
            // Once the move under way is done.
            Some((_, None)) => {}
            Some((_, Some(group))) => {
                task.was_parked(group);
                self.step.jobs.push(Job::Prepare { task: id, ticket });
            }
            None => self.step.jobs.push(Job::Prepare { task: id, ticket }),
        }
        self.tasks.insert(id, Box::new(task));
        id
    }

    pub(crate) fn remove_task(&mut self, id: TaskId) -> Option<Box<Task>> {
        let task = self.tasks.remove(&id)?;
        self.slots.remove(task.seat, task.rank());
        self.slots.halt(id, false);
        // One that could not be put in place has used none.
        if !task.is_new() && matches!(task.seat, Seat::Active | Seat::Passive) {
            self.freed.add();
        }
        self.lane.forget(id);
        self.loans.forget(id);
        self.pinned.remove(&id);
        self.ladder.forget(id);
        Some(task)
    }
}
