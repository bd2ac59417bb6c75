//! What the shaper knows and what it says: settings, tasks, reservations, requests, refusals.
//! Data only; the rules are in [`super::shaper`] and below it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::guard::GuardPolicy;
use super::guard::freeze::FreezePolicy;
use super::jobs::Finished;
use super::model::{JobKey, Labels, Order, Priority, ReservationId, TaskId, Ticket};
use super::order::QueueOrder;
use super::probe::Formula;
pub use super::reservation::Reservation;
use super::slots::Rank;
use super::task::{Task, Who};
use super::turns::Place;
use crate::units::{BootTime, Bytes, MemoryAmount, Share, WallTime};

/// The settings decisions depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// A; `None`: the number of CPUs.
    pub active: Option<u32>,
    /// P0; `None`: A.
    pub passive: Option<u32>,
    /// Most passive slots; `None`: max(4 A, P0).
    pub passive_max: Option<u32>,
    /// Whether spare CPU opens slots.
    pub expand: bool,
    /// How many slots are added.
    pub formula: Formula,
    /// T of the expansion formula.
    pub io_wait_threshold: Share,
    /// E + S from which the CPU is saturated.
    pub cpu_saturation: Share,
    /// Cycles after which a free expanded slot is withdrawn.
    pub shrink_after: u32,
    /// Which waiting request of a user is next.
    pub order: QueueOrder,
    /// How often a waiting request may be overtaken by others of its user and priority.
    pub overtake_max: u32,
    /// Whether active tasks that are idle lend their slots.
    pub lend: bool,
    /// What the I/O lane may take of a CPU for each active slot; 0: no task is in it.
    pub lane_share: Share,
    /// Life of a reservation that names none.
    pub reservation_ttl: Duration,
    /// Stage 1 of the guard; `None`: off.
    pub guard: Option<GuardPolicy>,
    /// Memory that expansion leaves available.
    pub memory_reserve: MemoryAmount,
}

impl Policy {
    /// The settings as they are shipped, with shorter times and a node of a few hundred bytes: for
    /// simulations and tests.
    pub fn simulated() -> Policy {
        let reserve = MemoryAmount::Bytes(Bytes(100));
        let guard = GuardPolicy {
            dry_run: false,
            reserve,
            resume: MemoryAmount::Bytes(Bytes(200)),
            memory_pressure: Share::clamped(0.2),
            swap_growth: Bytes(16),
            enter_after: Duration::ZERO,
            exit_after: Duration::from_secs(5),
            interference: Share::clamped(0.25),
            freeze: FreezePolicy::REPORTS,
        };
        Policy {
            active: None,
            passive: None,
            passive_max: None,
            expand: true,
            formula: Formula::Lrs,
            io_wait_threshold: Share::clamped(0.3),
            cpu_saturation: Share::clamped(0.9),
            shrink_after: 3,
            order: QueueOrder::Fit,
            overtake_max: 8,
            lend: true,
            lane_share: Share::clamped(0.025),
            reservation_ttl: Duration::from_secs(30),
            guard: Some(guard),
            memory_reserve: reserve,
        }
    }
}

/// A request for a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The user of the task that it is going to be.
    pub uid: u32,
    /// Where it comes from.
    pub who: Who,
    /// What it is.
    pub labels: Labels,
    /// `None`: the reservation's, or 0.
    pub priority: Option<Priority>,
    /// A reservation to use.
    pub reservation: Option<ReservationId>,
    /// What it needs.
    pub need: Need,
    /// Behind every task that is not, whatever the priorities.
    pub opportunistic: bool,
    /// The caller is a member, neither admin nor integration.
    pub by_member: bool,
}

impl Request {
    /// What is to be promised, for a process that is not known yet.
    pub(super) fn of_promise(
        uid: u32,
        by_member: bool,
        labels: Labels,
        priority: Priority,
    ) -> Request {
        let (who, reservation, need) = (Who::default(), None, Need::Slot);
        let (priority, opportunistic) = (Some(priority), false);
        Request { uid, who, labels, priority, reservation, need, opportunistic, by_member }
    }

    /// Its rank if it were seated last of all.
    pub(super) fn rank(&self) -> Rank {
        let priority = self.priority.unwrap_or_default();
        Rank::new(priority, Order(u64::MAX)).behind(self.opportunistic)
    }
}

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Need {
    /// A slot.
    Slot,
    /// The task runs already and cannot be refused: a slot, or overflow.
    Discovered,
    /// Active weights without a slot.
    Slotless,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Waiter {
    pub request: Request,
    pub first_requested: WallTime,
    pub deadline: Option<BootTime>,
    /// How often one that came later went before it.
    pub overtaken: u32,
    /// See [`Patience::parks`].
    pub parks: bool,
    /// It wants promises; `None`: to become a task.
    pub lease: Option<Lease>,
}

impl Waiter {
    /// Where it is listed.
    pub fn place(&self, ticket: Ticket) -> Place {
        let Request { priority, uid, .. } = &self.request;
        let (priority, uid) = (priority.unwrap_or_default(), *uid);
        Place { priority, uid, arrival: (self.first_requested, ticket) }
    }
}

/// What promises of slots are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// How long each holds; `None`: as the settings have it.
    pub ttl: Option<Duration>,
    /// At most so many, at least one.
    pub count: u32,
    /// Of active slots only.
    pub active: bool,
}

impl Lease {
    /// One slot of either tier.
    pub fn one(ttl: Option<Duration>) -> Lease {
        Lease { ttl, count: 1, active: false }
    }
}

/// How a request may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patience {
    /// Its place among waiters of its user and priority.
    pub first_requested: WallTime,
    /// When it gives up; `None`: never.
    pub deadline: Option<BootTime>,
    /// Its process asks for itself, and may wait in the group of the task to come.
    pub parks: bool,
}

/// What a request came to at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    /// It has a slot.
    Placed(TaskId),
    /// It waits.
    Waiting,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// Every slot is taken.
    #[error(
        "no free slot: {active} active and {passive} passive slots are all taken; wait (--wait) or try again later"
    )]
    NoFreeSlot {
        /// A.
        active: u32,
        /// P.
        passive: u32,
    },
    /// A promise is to be of an active one, and none is free.
    #[error(
        "no active slot is free: all {active} are taken or promised; leave `tier` out for a passive one, which moves up as active ones come free"
    )]
    NoActiveSlot {
        /// A.
        active: u32,
    },
    /// The guard holds the passive slots.
    #[error("no free slot: {0}, so no passive slot is offered; wait (--wait) or try again later")]
    Holding(String),
    /// Others froze the group of all tasks: what comes in would be frozen too.
    #[error("no task is admitted: {0}; thaw it, then ask again, or wait (--wait)")]
    RootFrozen(String),
    /// An operator drains the node.
    #[error(
        "the node is draining and takes no new tasks; wait (--wait), use another node, or `lrsctl resume`"
    )]
    Draining,
    /// The reservation does not exist.
    #[error("no reservation {0} was ever made here")]
    UnknownReservation(ReservationId),
    /// The reservation ended.
    #[error(
        "reservation {0} was used, cancelled or has expired, or was withdrawn before lrsd started; reserve \
         again"
    )]
    ReservationEnded(ReservationId),
    /// Others needed its slot (`shaper/share.rs`).
    #[error("reservation {id} was withdrawn: {reason}; reserve again, or wait for a slot (--wait)")]
    ReservationWithdrawn {
        /// The reservation.
        id: ReservationId,
        /// For whom.
        reason: String,
    },
}

/// Counters since the state directory was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub struct Totals {
    pub admitted: u64,
    pub completed: u64,
    /// Of the completed ones, those that left for a group that they made or asked for.
    pub left: u64,
    pub released: u64,
    pub refused: u64,
    pub promoted: u64,
    pub demoted: u64,
}

/// Numbers that never restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counters {
    /// Random per state directory; part of every id.
    pub epoch: u32,
    /// Number of the next task.
    pub next_task: u64,
    /// Number of the next reservation.
    pub next_reservation: u64,
    /// Next place in the order of admission.
    pub next_order: u64,
    /// Sequence number of the next event.
    pub next_seq: u64,
}

/// What an earlier daemon left.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Tasks that were in their slots.
    pub tasks: Vec<Task>,
    /// Admissions that were rolled back, of units that have yet to get their weights back.
    pub called_off: Vec<Task>,
    /// Reservations; those that expired meanwhile end at the first deadline.
    pub reservations: Vec<(ReservationId, Reservation)>,
    /// Finished tasks by job.
    pub jobs: Vec<(JobKey, Finished)>,
    /// Counters.
    pub totals: Totals,
    /// Numbers.
    pub counters: Counters,
    /// Since when the node was draining.
    pub draining_since: Option<WallTime>,
    /// Until when requests that wait are only queued: those that waited for the daemon before
    /// come back in any order, and the oldest comes first.
    pub gather_until: Option<BootTime>,
    /// P then; `None`: not known.
    pub passive_capacity: Option<u32>,
}
