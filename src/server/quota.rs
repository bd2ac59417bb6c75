//! How much may be held at once: connections, calls, streams, unsent bytes; in all, and by any
//! one user.
//!
//! The servers are open to everyone on the node, so one user's leak must neither exhaust the
//! daemon's descriptors and memory nor lock out the others, least of all root.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A counted limit. Uid 0 is bound by `total` alone, all others together by `others`, and each of
/// them by `own`: one person can be many uids (subordinate ids), and so fill all but `others`.
#[derive(Debug)]
pub(crate) struct Quota {
    total: usize,
    others: usize,
    own: usize,
    held: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
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
    /// Everybody's, or that of all but root.
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
    /// One user gets half of `total`; the last sixteenth is for uid 0.
    pub(crate) fn new(total: usize) -> Arc<Quota> {
        Quota::of(total, total - total / 16, total / 2)
    }

    /// `own` for each user but root, `others` for all of them together, `total` with root.
    pub(crate) fn of(total: usize, others: usize, own: usize) -> Arc<Quota> {
        Arc::new(Quota { total, others, own, held: Mutex::default() })
    }

    pub(crate) fn take(self: &Arc<Quota>, uid: u32) -> Result<Permit, Full> {
        self.take_some(uid, 1)
    }

    /// More than a user's whole limit is given to one who holds nothing: an answer that is
    /// larger can then still be had, one at a time.
    pub(crate) fn take_some(self: &Arc<Quota>, uid: u32, amount: usize) -> Result<Permit, Full> {
        let mut held = self.lock();
        let of_uid = held.of(uid);
        let total = if uid == 0 { self.total } else { self.others };
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

    /// How much `uid` holds, and how much everybody.
    pub(crate) fn held(&self, uid: u32) -> (usize, usize) {
        let held = self.lock();
        (held.of(uid), held.all)
    }

    /// Whether `uid`, which is not root, has no more than a sixteenth left of a limit: room for
    /// what is begun, and none to begin.
    pub(crate) fn nearly_full(&self, uid: u32) -> bool {
        let (own, all) = self.held(uid);
        own >= self.own - self.own / 16 || all >= self.others - self.others / 16
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
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
        let quota = Quota::of(usize::MAX, 1000, 10);
        let mut most = quota.take_some(1, 9).unwrap();
        assert_eq!(quota.take_some(1, 2).unwrap_err(), Full::OfUid);
        most.give_back(4);
        let rest = quota.take_some(1, 5).unwrap();
        assert_eq!((quota.held(1), quota.held(2)), ((10, 10), (0, 10)));
        let other = quota.take_some(2, 100).unwrap();
        assert_eq!(quota.take(2).unwrap_err(), Full::OfUid);
        let root = [quota.take_some(0, 100).unwrap(), quota.take_some(0, 100).unwrap()];
        drop((most, rest, other, root));
        let held = quota.lock();
        assert_eq!((held.all, held.by_uid.len()), (0, 0));
    }

    #[test]
    fn many_users_together_have_a_limit_that_root_has_not() {
        let quota = Quota::of(32, 16, 10);
        let first = quota.take_some(1, 9).unwrap();
        assert!(!quota.nearly_full(1) && !quota.nearly_full(2));
        let second = quota.take_some(2, 6).unwrap();
        assert!(quota.nearly_full(2) && quota.nearly_full(3));
        assert_eq!(quota.take_some(3, 2).unwrap_err(), Full::All);
        let root = quota.take_some(0, 17).unwrap();
        drop((first, second, root));
        assert_eq!(quota.held(0), (0, 0));
    }
}
