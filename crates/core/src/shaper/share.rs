//! What members hold by reservations while others wait.
//!
//! A reservation keeps a slot empty for a task to come. While no other user waits that takes nothing
//! from others, and there is no limit. While a request of another user waits and no slot is offered to
//! it, two rules withdraw reservations that have not been used, one at a time, and only ones that have
//! had their first [`UNTOUCHED`]:
//!
//! 1. *Share.* The slots that are free or reserved, divided by the users who wait or hold reservations,
//!    rounded up, are a user's share. A member who holds more gives up the latest of its reservations
//!    with a priority no higher than that of a waiting request of another user; the member who holds
//!    most is the first to do so.
//! 2. *Priority.* A waiting request of higher priority takes a reservation of another user, the one of
//!    lowest priority, and of equal ones the latest. It need not be beyond a share.
//!
//! Reservations of admins and integrations are under no share, and yield by priority to the requests of
//! admins and integrations only, and only to the one that is next, which gets the slot.
//!
//! The slot goes to whoever is next (turns.rs), so that no more reservations go than requests wait. A
//! reservation that was withdrawn counts as reserved until it would have ended: a share is not less for what
//! was given up, so that who holds its share keeps it, however many requests follow. It is never more than
//! that of all slots. Nothing is withdrawn for nothing: while the node drains, the group of
//! all tasks is frozen, or requests of before a restart are gathered; of a passive slot while the guard
//! holds passive ones back, or found tasks beyond capacity would take it.
//!
//! Limits. What is withdrawn goes to whoever is next. So an admin's request behind a member's of the same
//! priority or a higher one waits with it where only reservations of admins and integrations are left; one
//! above `slots.max_user_priority` is behind no member's. A user's own waiting request takes none of its reservations. Why a reservation was withdrawn is
//! known of the last `REASONS` ([`crate::withdrawn`]), and is not stored: after a restart it has ended, for `why` to say how.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, json};

use super::Shaper;
use crate::event::EventKind;
use crate::model::{Priority, ReservationId, Tier};
use crate::state::Reservation;
use crate::units::{BootTime, Moment};
use crate::withdrawn::Withdrawal;

/// So long a new reservation is not withdrawn: whoever made it is about to use it.
pub const UNTOUCHED: Duration = Duration::from_secs(5);

/// A reservation that is to be withdrawn.
struct Yielding {
    id: ReservationId,
    uid: u32,
    expires: BootTime,
    reason: String,
    figures: Map<String, serde_json::Value>,
}

impl Shaper {
    /// Withdraws the reservation that yields first to those that wait, if one does.
    pub(crate) fn withdraw_one(&mut self, now: Moment) -> bool {
        let needless = self.waiters.is_empty() || self.reservations.is_empty();
        if needless || self.offers_nothing() || self.gather_until.is_some() {
            return false;
        }
        let Some(Yielding { id, uid, expires, reason, figures }) = self.yielding(now) else {
            return false;
        };
        self.withdrawn.add(id, Withdrawal { uid, expires, reason: reason.clone() });
        self.end_reservation(id, EventKind::Withdrawn, now, |event| {
            event.reason = Some(reason);
            event.inputs.extend(figures);
        });
        true
    }

    /// The one that yields first, by its share or by its priority.
    fn yielding(&self, now: Moment) -> Option<Yielding> {
        let mut held: BTreeMap<u32, u32> = BTreeMap::new();
        for reservation in self.reservations.values() {
            *held.entry(reservation.uid).or_default() += 1;
        }
        let share = self.share(held.keys().copied(), now.boot);
        // By user and by whether the reservation is a member's: who waits and may have it.
        let mut waiting: BTreeMap<(u32, bool), Option<(Priority, u32)>> = BTreeMap::new();
        let (mut beyond, mut lower) = (None, None);
        for (id, reservation) in &self.reservations {
            let Reservation { uid, priority, by_member, order, .. } = *reservation;
            if reservation.yields_from > now.boot || !self.would_be_offered(reservation.tier) {
                continue;
            }
            let waits = waiting.entry((uid, by_member)).or_insert_with(|| match by_member {
                true => self.queue.first_of_others(uid),
                false => self.next_not_by_member(uid),
            });
            let Some((wanted, for_uid)) = *waits else { continue };
            let holds = held.get(&uid).copied().unwrap_or(0);
            if by_member && holds > share && wanted >= priority {
                beyond = beyond.max(Some((holds, order, *id, for_uid, wanted)));
            }
            if wanted > priority {
                lower = lower.max(Some((reservation.rank(), *id, for_uid, wanted)));
            }
        }
        let (id, for_uid, wanted, reason) = match (beyond, lower) {
            (Some((holds, _, id, for_uid, wanted)), _) => {
                let reason = format!(
                    "uid {for_uid} waits for a slot, and its owner held {holds} reservations: a \
                     share is {share}"
                );
                (id, for_uid, wanted, reason)
            }
            (None, Some((_, id, for_uid, wanted))) => {
                let reason =
                    format!("uid {for_uid} waits for a slot with the higher priority {wanted}");
                (id, for_uid, wanted, reason)
            }
            (None, None) => return None,
        };
        let reservation = self.reservations.get(&id)?;
        let mut figures = Map::new();
        figures.insert("held".into(), json!(held.get(&reservation.uid)));
        figures.insert("share".into(), json!(share));
        figures.insert("priority".into(), json!(reservation.priority));
        figures.insert("waiting_uid".into(), json!(for_uid));
        figures.insert("waiting_priority".into(), json!(wanted));
        let Reservation { uid, expires, .. } = *reservation;
        Some(Yielding { id, uid, expires, reason, figures })
    }

    /// The request that is next, if it is another user's than `uid` and no member's: its priority and user.
    fn next_not_by_member(&self, uid: u32) -> Option<(Priority, u32)> {
        let next = self.queue.first().filter(|next| next.uid != uid)?;
        let waiter = self.waiters.get(&next.arrival.1)?;
        (!waiter.request.by_member).then_some((next.priority, next.uid))
    }

    /// What each user who waits or holds reservations may keep reserved.
    fn share(&self, holders: impl Iterator<Item = u32>, now: BootTime) -> u32 {
        let users: BTreeSet<u32> = self.queue.users().chain(holders).collect();
        let slots = &self.slots;
        let reserved = slots.active_reserved() + slots.passive_reserved();
        let shared = slots.active_free() + slots.passive_free() + reserved;
        let shared = shared.saturating_add(self.withdrawn.given_up(now)).min(slots.allocated());
        shared.div_ceil(u32::try_from(users.len()).unwrap_or(u32::MAX).max(1))
    }

    /// Whether the slot of a reservation in this tier would be offered to who waits.
    fn would_be_offered(&self, tier: Tier) -> bool {
        let slots = &self.slots;
        if self.probe.owed() > 0 {
            // What becomes free is closed (cycle.rs).
            return false;
        }
        if self.holding() {
            // Another reservation would move up into the active slot.
            return tier == Tier::Active && slots.passive_reserved() == 0;
        }
        slots.overflow() == 0 && slots.passive_in_use() <= slots.passive_max
    }
}

#[cfg(test)]
mod tests;
