//! The queue as clients see it: what waits in the order in which it is served, and what is promised.
//!
//! It is not part of the snapshot, of which ten thousand waiters would make a copy with every change. A
//! page is made by the loop when a client asks, one in a turn: a thousand entries take it a millisecond,
//! for which a promotion may have to wait (`cargo bench --bench daemon -- queue`). The next one goes on
//! behind the last waiter seen, or where that is gone behind as many as are left before it.
//!
//! Limits. Pages are of different moments: between two of them places move up, and who leaves moves the
//! others of its user up over those of other users.

use std::time::Duration;

use tokio::sync::mpsc::Sender;

use super::claim::Requester;
use super::tickets::Place;
use super::world::World;
use super::{Executor, view};
use crate::command::{
    Caller, CommandError, ErrorKind, QueueId, QueueMark, QueuePage, QueueRequest,
};
use crate::publish::class;
use crate::rights::{Action, Role};
use lrs_api::proto;
use lrs_api::wire::proto_time;
use lrs_core::model::{Labels, ReservationId, WaiterId};
use lrs_core::queue::{EXPECTED, HeldUp, Waiting};
use lrs_core::state::Reservation;
use lrs_core::step::{Input, Ticket};
use lrs_core::units::{BootTime, Moment, Pid, WallTime};

impl<W: World> Executor<'_, W> {
    /// A page of the queue; reservations, which are no more than slots, are on the first one.
    pub(super) fn queue_page(
        &self,
        caller: &Caller,
        asked: QueueRequest,
    ) -> Result<QueuePage, CommandError> {
        let alone = |entry| QueuePage { entries: vec![entry], next: None };
        match asked {
            QueueRequest::Id(QueueId::Reservation(id)) => {
                self.core.check_reservation(id).map_err(crate::command::refused)?;
                let reservation = self.core.reservation(id);
                let entry = reservation.map(|reservation| self.promise(id, reservation));
                Ok(QueuePage { entries: entry.into_iter().collect(), next: None })
            }
            QueueRequest::Id(QueueId::Waiter(id)) => {
                let ticket = self.ticket_of(id)?;
                let entry = self.queued(caller, ticket);
                entry.map(alone).ok_or_else(|| waits_no_more(id))
            }
            QueueRequest::Process(pid) => {
                let entry = self.waits_for(pid).and_then(|ticket| self.queued(caller, ticket));
                Ok(QueuePage { entries: entry.into_iter().collect(), next: None })
            }
            QueueRequest::Page { after, size } => Ok(self.page(after, size)),
        }
    }

    fn page(&self, after: Option<QueueMark>, size: usize) -> QueuePage {
        let mut entries = Vec::with_capacity(size.min(self.core.waiting()));
        if after.is_none() {
            let mut promises: Vec<_> = self.core.reservations().collect();
            promises
                .sort_by_key(|(_, promise)| (std::cmp::Reverse(promise.priority), promise.order));
            entries.extend(promises.into_iter().map(|(id, promise)| self.promise(id, promise)));
        }
        let held_up = self.core.held_up();
        let mut seen = after.map_or(0, |mark| mark.seen);
        let mut last = after;
        let waits = self.expected_waits(seen);
        let mut waiting = self.core.queue_behind(after);
        for waiter in waiting.by_ref().take(size) {
            let wait = waits.get(seen as usize).copied();
            entries.push(self.waiter(&waiter, seen, wait, held_up));
            seen = seen.saturating_add(1);
            last = Some(self.core.mark(seen, waiter.ticket()));
        }
        let next = last.filter(|_| waiting.next().is_some());
        QueuePage { entries, next }
    }

    /// With its ticket, if that is the caller's to have.
    fn queued(&self, caller: &Caller, ticket: Ticket) -> Option<proto::Queued> {
        let (before, waiting) = self.core.waiting_of(ticket)?;
        let before = u32::try_from(before).unwrap_or(u32::MAX);
        let wait = self.expected_waits(before).get(before as usize).copied();
        let ticket = match self.state.asked.get(&ticket) {
            Some(Requester::Task(admission)) => {
                admission.claim.as_ref().and_then(|claim| self.ticket_for(caller, claim.place))
            }
            Some(Requester::Promise(_)) | None => None,
        };
        let entry = self.waiter(&waiting, before, wait, self.core.held_up());
        Some(proto::Queued { ticket, ..entry })
    }

    /// If it is the caller's to have.
    fn ticket_for(&self, caller: &Caller, place: Place) -> Option<String> {
        let theirs = caller.uid == place.uid || self.state.rights.role(caller) == Role::Admin;
        theirs.then(|| self.state.tickets.give(place))
    }

    /// To a client that waits, if it asked for it.
    pub(super) fn give_ticket(&self, caller: &Caller, place: Place, to: Option<Sender<String>>) {
        let Some(to) = to else { return };
        if let Some(ticket) = self.ticket_for(caller, place) {
            // It has room for this one, and a client that went away needs none.
            let _ = to.try_send(ticket);
        }
    }

    /// By place; none if nothing is known of the one behind `before`.
    fn expected_waits(&self, before: u32) -> Vec<Duration> {
        match before as usize {
            ..EXPECTED => self.core.expected_waits(self.now.boot),
            _ => Vec::new(),
        }
    }

    fn waits_for(&self, pid: Pid) -> Option<Ticket> {
        let mut asked = self.state.asked.iter();
        let of_process = asked.find(|(_, asked)| match asked {
            Requester::Task(admission) => {
                admission.claim.as_ref().is_some_and(|claim| claim.process.pid == pid)
            }
            Requester::Promise(_) => false,
        });
        of_process.map(|(ticket, _)| *ticket)
    }

    fn waiter(
        &self,
        waiting: &Waiting<'_>,
        before: u32,
        wait: Option<Duration>,
        held_up: HeldUp,
    ) -> proto::Queued {
        let request = waiting.request;
        let reason = match held_up {
            HeldUp::Draining => "draining",
            HeldUp::Gathering => "starting",
            HeldUp::Full | HeldUp::Holding if before > 0 => "order",
            HeldUp::Full => "full",
            HeldUp::Holding => "holding",
        };
        let id = WaiterId { epoch: self.state.waiter_epoch, number: waiting.ticket().0 };
        proto::Queued {
            place: Some(before.saturating_add(1)),
            pid: request.who.process.map(|process| process.pid.raw()),
            unit: request.who.unit.as_ref().map(|unit| unit.name.to_string()),
            expires_at: waiting.deadline.map(|at| proto_time(wall(at, self.now))),
            reason: reason.to_owned(),
            parked: waiting.parked,
            expected_wait_seconds: wait.map(|wait| wait.as_secs_f64()),
            priority: request.priority.unwrap_or_default().0,
            ..self.labelled(id.to_string(), &request.labels, request.uid, waiting.since())
        }
    }

    /// A reservation.
    fn promise(&self, id: ReservationId, promise: &Reservation) -> proto::Queued {
        proto::Queued {
            expires_at: Some(proto_time(wall(promise.expires, self.now))),
            reason: "reserved".to_owned(),
            tier: view::tier(promise.tier).into(),
            priority: promise.priority.0,
            ..self.labelled(id.to_string(), &promise.labels, promise.uid, promise.created_at)
        }
    }

    fn labelled(&self, id: String, labels: &Labels, uid: u32, since: WallTime) -> proto::Queued {
        let text = |label: &Option<_>| label.as_ref().map(ToString::to_string);
        let hint = self.core.hint(labels, Some(uid));
        proto::Queued {
            id,
            name: text(&labels.name),
            job: text(&labels.job),
            kind: text(&labels.kind),
            group: text(&labels.group),
            uid,
            since: Some(proto_time(since)),
            class: hint
                .map_or(proto::Class::Unspecified, |hint| {
                    class(Some(view::hinted_class(hint, &self.state.config.classify)))
                })
                .into(),
            hinted: hint.is_some(),
            ..proto::Queued::default()
        }
    }

    fn ticket_of(&self, id: WaiterId) -> Result<Ticket, CommandError> {
        let ticket = Ticket(id.number);
        let waits = id.epoch == self.state.waiter_epoch && self.core.waiting_of(ticket).is_some();
        if waits { Ok(ticket) } else { Err(waits_no_more(id)) }
    }

    /// Ends a wait; the answer to the one that waits names who ended it.
    pub(super) fn cancel_wait(
        &mut self,
        caller: &Caller,
        id: WaiterId,
    ) -> Result<(), CommandError> {
        let ticket = self.ticket_of(id)?;
        let request = self.core.waiting_of(ticket).map(|(_, waiting)| waiting.request);
        let owner = request.map(|request| request.uid);
        self.state.rights.check(caller, Action::ActOnWaiter, owner)?;
        let message =
            format!("the wait for a slot was ended by uid {} (lrsctl cancel)", caller.uid);
        let error = CommandError::new(ErrorKind::FailedPrecondition, message);
        self.state.touched.status = true;
        self.push(Input::Abandon(ticket));
        self.refuse_asked(ticket, error);
        Ok(())
    }
}

/// What people's clocks will show at `at`.
pub(super) fn wall(at: BootTime, now: Moment) -> WallTime {
    let left = i64::try_from(at.since(now.boot).as_micros()).unwrap_or(i64::MAX);
    WallTime::from_unix_micros(now.wall.unix_micros().saturating_add(left))
}

fn waits_no_more(id: WaiterId) -> CommandError {
    let message =
        format!("no request waits for a slot as {id}; `lrsctl queue` lists those that do");
    CommandError::new(ErrorKind::NotFound, message)
}
