//! How many connections or calls may be open at once: in all, and by any one user.
//!
//! The doors are open to everyone on the node, so one user's leak must neither exhaust the
//! daemon's descriptors nor lock out the others, least of all root.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A counted limit. Uid 0 is bound by the total alone, every other uid by half of it; the
/// last sixteenth is for uid 0.
#[derive(Debug)]
pub(crate) struct Quota {
    total: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    all: usize,
    by_uid: HashMap<u32, usize>,
}

/// One place, given back on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    quota: Arc<Quota>,
    uid: u32,
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
    pub(crate) fn new(total: usize) -> Arc<Quota> {
        Arc::new(Quota { total, held: Mutex::default() })
    }

    pub(crate) fn take(self: &Arc<Quota>, uid: u32) -> Result<Permit, Full> {
        let mut held = self.lock();
        let of_uid = held.by_uid.get(&uid).copied().unwrap_or(0);
        let (total, own) = if uid == 0 {
            (self.total, self.total)
        } else {
            (self.total - self.total / 16, self.total / 2)
        };
        if of_uid >= own {
            return Err(Full::OfUid);
        }
        if held.all >= total {
            return Err(Full::All);
        }
        held.all += 1;
        held.by_uid.insert(uid, of_uid + 1);
        Ok(Permit { quota: Arc::clone(self), uid })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut held = self.quota.lock();
        held.all = held.all.saturating_sub(1);
        match held.by_uid.get(&self.uid).copied() {
            Some(count) if count > 1 => {
                held.by_uid.insert(self.uid, count - 1);
            }
            // Users who left are forgotten, or the map would grow with every uid ever seen.
            _ => {
                held.by_uid.remove(&self.uid);
            }
        }
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
}
