//! Who holds which slot, in rank order.
//!
//! Bookkeeping only: the shaper decides, this keeps the sets and answers who is first, who is
//! last and how much is free. Every operation is logarithmic in the number of tasks.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::model::{Order, Priority, ReservationId, TaskId, Tier};

/// Place in the queue for the active tier: opportunistic tasks last, then higher priority first,
/// then earlier admission. Smaller is better. [`Order`] is unique among tasks and reservations,
/// so ranks are too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rank {
    opportunistic: bool,
    priority: Reverse<Priority>,
    order: Order,
}

impl Rank {
    /// The rank of a holder.
    pub fn new(priority: Priority, order: Order) -> Rank {
        Rank { opportunistic: false, priority: Reverse(priority), order }
    }

    /// The same, behind everybody who is not opportunistic.
    pub fn behind(self, opportunistic: bool) -> Rank {
        Rank { opportunistic, ..self }
    }

    /// The priority that tells this rank from those above it. An opportunistic holder is below
    /// any, whatever its own says.
    pub fn priority(self) -> Priority {
        if self.opportunistic { Priority(i32::MIN) } else { self.priority.0 }
    }

    /// Whether it is opportunistic.
    pub fn is_opportunistic(self) -> bool {
        self.opportunistic
    }

    /// Whether this holder may take the slot of `other`: by what it is, never by having been
    /// there first.
    pub fn outranks(self, other: Rank) -> bool {
        (self.opportunistic, self.priority) < (other.opportunistic, other.priority)
    }
}

/// Where a running task sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Seat {
    /// In an active slot.
    Active,
    /// In a passive slot.
    Passive,
    /// Passive, beyond capacity, holding no slot.
    Overflow,
    /// Active weights, holding no slot.
    Slotless,
    /// Found running and on its way to its place: it holds nothing and takes nothing from anybody,
    /// since it may come to nothing. Passive weights meanwhile.
    Arriving,
}

impl Seat {
    /// The tier of the weights that a task in this seat has.
    pub fn tier(self) -> Tier {
        match self {
            Seat::Active | Seat::Slotless => Tier::Active,
            Seat::Passive | Seat::Overflow | Seat::Arriving => Tier::Passive,
        }
    }
}

/// Capacities and holders of both tiers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slots {
    /// A.
    pub active_capacity: u32,
    /// P now.
    pub passive_capacity: u32,
    /// P0.
    pub base: u32,
    /// The most P may be expanded to.
    pub passive_max: u32,
    active: BTreeMap<Rank, TaskId>,
    passive: BTreeMap<Rank, TaskId>,
    overflow: BTreeMap<Rank, TaskId>,
    slotless: BTreeMap<Rank, TaskId>,
    arriving: BTreeMap<Rank, TaskId>,
    /// Tasks that cannot run: they keep what they have, and are not promoted.
    halted: BTreeSet<TaskId>,
    reserved_active: BTreeMap<Rank, ReservationId>,
    reserved_passive: BTreeMap<Rank, ReservationId>,
}

fn count<T>(map: &BTreeMap<Rank, T>) -> u32 {
    u32::try_from(map.len()).unwrap_or(u32::MAX)
}

impl Slots {
    fn seats(&mut self, seat: Seat) -> &mut BTreeMap<Rank, TaskId> {
        match seat {
            Seat::Active => &mut self.active,
            Seat::Passive => &mut self.passive,
            Seat::Overflow => &mut self.overflow,
            Seat::Slotless => &mut self.slotless,
            Seat::Arriving => &mut self.arriving,
        }
    }

    fn reserved(&mut self, tier: Tier) -> &mut BTreeMap<Rank, ReservationId> {
        match tier {
            Tier::Active => &mut self.reserved_active,
            Tier::Passive => &mut self.reserved_passive,
        }
    }

    /// The same capacities, with no task in them.
    pub(super) fn emptied(&self) -> Slots {
        let Slots { active_capacity, passive_capacity, base, passive_max, .. } = *self;
        Slots { active_capacity, passive_capacity, base, passive_max, ..Slots::default() }
    }

    /// Seats a task.
    pub fn insert(&mut self, seat: Seat, rank: Rank, task: TaskId) {
        self.seats(seat).insert(rank, task);
    }

    /// Takes a task from its seat.
    pub fn remove(&mut self, seat: Seat, rank: Rank) {
        self.seats(seat).remove(&rank);
    }

    /// A task cannot run, or can again.
    pub fn halt(&mut self, task: TaskId, halted: bool) {
        if halted {
            self.halted.insert(task);
        } else {
            self.halted.remove(&task);
        }
    }

    fn running(&self, seats: &BTreeMap<Rank, TaskId>) -> impl Iterator<Item = (Rank, TaskId)> {
        let running = seats.iter().filter(|(_, task)| !self.halted.contains(task));
        running.map(|(rank, task)| (*rank, *task))
    }

    /// Puts a reservation into a tier.
    pub fn reserve(&mut self, tier: Tier, rank: Rank, reservation: ReservationId) {
        self.reserved(tier).insert(rank, reservation);
    }

    /// Takes a reservation out of a tier.
    pub fn unreserve(&mut self, tier: Tier, rank: Rank) {
        self.reserved(tier).remove(&rank);
    }

    /// Tasks in active slots.
    pub fn active_used(&self) -> u32 {
        count(&self.active)
    }

    /// Tasks in passive slots.
    pub fn passive_used(&self) -> u32 {
        count(&self.passive)
    }

    /// Reservations holding active slots.
    pub fn active_reserved(&self) -> u32 {
        count(&self.reserved_active)
    }

    /// Reservations holding passive slots.
    pub fn passive_reserved(&self) -> u32 {
        count(&self.reserved_passive)
    }

    /// Tasks beyond capacity.
    pub fn overflow(&self) -> u32 {
        count(&self.overflow)
    }

    /// Active slots that are neither taken nor reserved.
    pub fn active_free(&self) -> u32 {
        self.active_capacity.saturating_sub(self.active_used() + self.active_reserved())
    }

    /// Passive slots that are neither taken nor reserved.
    pub fn passive_free(&self) -> u32 {
        self.passive_capacity.saturating_sub(self.passive_in_use())
    }

    /// Passive slots held by tasks and reservations.
    pub fn passive_in_use(&self) -> u32 {
        self.passive_used() + self.passive_reserved()
    }

    /// Tasks with active weights, in a slot or without one.
    pub fn active_tier(&self) -> impl Iterator<Item = TaskId> {
        self.active.values().chain(self.slotless.values()).copied()
    }

    /// SlotMax of the expansion formula.
    pub fn allocated(&self) -> u32 {
        self.active_capacity + self.passive_capacity
    }

    /// The active task that goes first when one must: lowest priority, latest admission.
    pub fn worst_active(&self) -> Option<(Rank, TaskId)> {
        self.active.last_key_value().map(|(rank, task)| (*rank, *task))
    }

    /// The passive task in a slot that comes first of those that can run.
    pub fn best_passive(&self) -> Option<(Rank, TaskId)> {
        self.running(&self.passive).next()
    }

    /// Those in active slots that can run, in order.
    pub fn active_that_run(&self) -> impl Iterator<Item = (Rank, TaskId)> {
        self.running(&self.active)
    }

    /// Those in passive slots that can run, in order.
    pub fn passive_that_run(&self) -> impl Iterator<Item = TaskId> {
        self.running(&self.passive).map(|(_, task)| task)
    }

    /// The passive task in a slot that comes last.
    pub fn worst_passive(&self) -> Option<(Rank, TaskId)> {
        self.passive.last_key_value().map(|(rank, task)| (*rank, *task))
    }

    /// The task beyond capacity that comes first.
    pub fn best_overflow(&self) -> Option<(Rank, TaskId)> {
        self.overflow.first_key_value().map(|(rank, task)| (*rank, *task))
    }

    /// The same of those that can run.
    pub fn best_running_overflow(&self) -> Option<(Rank, TaskId)> {
        self.running(&self.overflow).next()
    }

    /// The first `most` tasks to be promoted, of those that can run.
    pub fn next_active(&self, most: usize) -> Vec<TaskId> {
        let passive = self.running(&self.passive).take(most);
        let mut next: Vec<_> = passive.chain(self.running(&self.overflow).take(most)).collect();
        next.sort_unstable();
        next.into_iter().map(|(_, task)| task).take(most).collect()
    }

    /// The reservation that gives up its active slot first.
    pub fn worst_reserved_active(&self) -> Option<(Rank, ReservationId)> {
        self.reserved_active.last_key_value().map(|(rank, id)| (*rank, *id))
    }

    /// The reservation that comes first for an active slot.
    pub fn best_reserved_passive(&self) -> Option<(Rank, ReservationId)> {
        self.reserved_passive.first_key_value().map(|(rank, id)| (*rank, *id))
    }
}
