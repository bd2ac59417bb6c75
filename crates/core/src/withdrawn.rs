//! The last reservations that were withdrawn: why, and how many would still be there.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::model::ReservationId;
use crate::units::BootTime;

/// Withdrawn reservations of which something is known.
const REASONS: usize = 1024;

/// The last reservations that were withdrawn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Withdrawn(BTreeMap<ReservationId, Withdrawal>);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Withdrawal {
    pub uid: u32,
    /// When the reservation would have ended.
    pub expires: BootTime,
    pub reason: String,
}

impl Withdrawn {
    /// Why this one was.
    pub fn reason(&self, id: ReservationId) -> Option<&String> {
        self.0.get(&id).map(|withdrawal| &withdrawal.reason)
    }

    pub fn add(&mut self, id: ReservationId, withdrawal: Withdrawal) {
        self.0.insert(id, withdrawal);
        if self.0.len() > REASONS {
            // Ids are in the order in which reservations were made.
            self.0.pop_first();
        }
    }

    /// `uid` reserves again: the oldest that it gave up counts no more.
    pub fn replaced(&mut self, uid: u32, now: BootTime) {
        let counts =
            |withdrawal: &&mut Withdrawal| withdrawal.uid == uid && withdrawal.expires > now;
        if let Some(withdrawal) = self.0.values_mut().find(counts) {
            withdrawal.expires = now;
        }
    }

    /// How many would still be there.
    pub fn given_up(&self, now: BootTime) -> u32 {
        let would_be = self.0.values().filter(|withdrawal| withdrawal.expires > now);
        u32::try_from(would_be.count()).unwrap_or(u32::MAX)
    }
}
