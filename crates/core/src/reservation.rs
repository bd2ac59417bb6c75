//! A slot promised before its task exists, and what ends at a time of its own.

use serde::{Deserialize, Serialize};

use super::model::{Labels, Order, Priority, ReservationId, Ticket, Tier};
use super::slots::Rank;
use crate::units::{BootTime, WallTime};

/// A slot promised before its task exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reservation {
    /// What is going to come.
    pub labels: Labels,
    /// Who may use it.
    pub uid: u32,
    /// Priority of the task to come.
    pub priority: Priority,
    /// Its place in the order of admission, inherited by its task.
    pub order: Order,
    /// Where it holds a slot now.
    pub tier: Tier,
    /// When it was made.
    pub created_at: WallTime,
    /// When the promise ends.
    pub expires: BootTime,
    /// Before this it is not withdrawn for others.
    pub yields_from: BootTime,
    /// A member made it: it is under a share (`shaper/share.rs`).
    pub by_member: bool,
}

impl Reservation {
    pub(super) fn rank(&self) -> Rank {
        Rank::new(self.priority, self.order)
    }

    /// When something is due for it.
    pub(super) fn deadlines(&self, id: ReservationId) -> [(BootTime, Deadline); 2] {
        let yields = (self.yields_from, Deadline::MayYield(id));
        [(self.expires, Deadline::Reservation(id)), yields]
    }
}

/// What ends at a time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Deadline {
    Reservation(ReservationId),
    /// From now on it may be withdrawn.
    MayYield(ReservationId),
    Waiter(Ticket),
}
