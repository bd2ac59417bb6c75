//! How much may be held at once: connections, calls, streams, unsent bytes; in all, and by any
//! one user.
//!
//! The doors are open to everyone on the node, so one user's leak must neither exhaust the
//! daemon's descriptors and memory nor lock out the others, least of all root.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A counted limit. Uid 0 is bound by the total alone, every other uid by its own limit as well;
/// the last sixteenth is for uid 0.
#[derive(Debug)]
pub(crate) struct Quota {
    total: usize,
    own: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    by_uid: HashMap<u32, usize>,
}

/// What was taken, given back on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    quota: Arc<Quota>,
    uid: u32,
    amount: usize,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// Everybody's.
    All,
    /// This user's.
    OfUid,
}

impl Full {
    /// For the client that is refused, and for the log.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Full::All => "lrsd has too many connections open; try again later",
            Full::OfUid => "your user has too many connections to lrsd open; close some",
        }
    }
}

impl Quota {
    /// One user gets half of `total`.
    pub(crate) fn new(total: usize) -> Arc<Quota> {
        Arc::new(Quota { total, own: total / 2, held: Mutex::default() })
    }

    /// `own` for each user, however many there are; nothing for uid 0 to run into.
    pub(crate) fn each(own: usize) -> Arc<Quota> {
        Arc::new(Quota { total: usize::MAX, own, held: Mutex::default() })
    }

    pub(crate) fn take(self: &Arc<Quota>, uid: u32) -> Result<Permit, Full> {
        self.take_some(uid, 1)
    }

    /// More than a user's whole limit is given to one who holds nothing: an answer that is
    /// larger can then still be had, one at a time.
    pub(crate) fn take_some(self: &Arc<Quota>, uid: u32, amount: usize) -> Result<Permit, Full> {
        let mut held = self.lock();
        let of_uid = held.of(uid);
        let total = if uid == 0 { self.total } else { self.total - self.total / 16 };
        if uid != 0 && of_uid > 0 && of_uid.saturating_add(amount) > self.own {
            return Err(Full::OfUid);
        }
        if held.all.saturating_add(amount) > total {
            return Err(Full::All);
        }
        held.all += amount;
        held.by_uid.insert(uid, of_uid + amount);
        Ok(Permit { quota: Arc::clone(self), uid, amount })
    }

    /// How much `uid` holds.
    pub(crate) fn held_by(&self, uid: u32) -> usize {
        self.lock().of(uid)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn of(&self, uid: u32) -> usize {
        self.by_uid.get(&uid).copied().unwrap_or(0)
    }
}

impl Permit {
    /// Gives `amount` of it back before the rest.
    pub(crate) fn give_back(&mut self, amount: usize) {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        let mut held = self.quota.lock();
        held.all = held.all.saturating_sub(amount);
        match held.of(self.uid).saturating_sub(amount) {
            // Users who left are forgotten, or the map would grow with every uid ever seen.
            0 => held.by_uid.remove(&self.uid),
            left => held.by_uid.insert(self.uid, left),
        };
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_gets_half_and_root_the_rest() {
        let quota = Quota::new(16);
        let take = |uid, count| (0..count).map(|_| quota.take(uid).unwrap()).collect::<Vec<_>>();
        let first = take(1, 8);
        assert_eq!(quota.take(1).unwrap_err(), Full::OfUid);
        let second = take(2, 7);
        assert_eq!(quota.take(2).unwrap_err(), Full::All);
        let root = quota.take(0).unwrap();
        assert_eq!(quota.take(0).unwrap_err(), Full::All);
        drop((first, root));
        let again = take(1, 8);
        drop((second, again));
        let held = quota.lock();
        assert_eq!((held.all, held.by_uid.len()), (0, 0));
    }

    #[test]
    fn each_user_has_its_own_limit_and_may_hold_one_larger_thing_alone() {
        let quota = Quota::each(10);
        let mut most = quota.take_some(1, 9).unwrap();
        assert_eq!(quota.take_some(1, 2).unwrap_err(), Full::OfUid);
        most.give_back(4);
        let rest = quota.take_some(1, 5).unwrap();
        assert_eq!((quota.held_by(1), quota.held_by(2)), (10, 0));
        let other = quota.take_some(2, 100).unwrap();
        assert_eq!(quota.take(2).unwrap_err(), Full::OfUid);
        let root = [quota.take_some(0, 100).unwrap(), quota.take_some(0, 100).unwrap()];
        drop((most, rest, other, root));
        let held = quota.lock();
        assert_eq!((held.all, held.by_uid.len()), (0, 0));
    }
}
