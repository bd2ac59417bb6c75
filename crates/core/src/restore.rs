//! What becomes of each task that an earlier daemon left.
//!
//! Whatever instant the earlier daemon was killed at, each task is in one of these states (spec 4):
//!
//! | found | then |
//! |---|---|
//! | record placed, group with processes | goes on, weights compared, nothing written that fits |
//! | record placed, group empty, main process elsewhere | goes on; a drift like any other |
//! | record placed, group empty or gone | ended meanwhile: `completed`, end unknown |
//! | record placed, its end in the history, no process in its group | cleaned up |
//! | record placed, unknown to the history, processes there | goes on: the history lost it |
//! | no record or one placed, its release in the history, processes there | released while others had frozen it: the group goes with its last process |
//! | record attaching, its admission in the history | goes on |
//! | record attaching, otherwise | rolled back whole; the client, unanswered, asks again |
//! | record attaching, of a task from observe mode | rolled back to that, and attached anew |
//! | record releasing, known to the history | the release is finished |
//! | record releasing, unknown to the history | cleaned up; finished where the history is damaged and processes are there |
//! | group with processes, no usable record | goes on with what group and history tell, the rest null; an event says so |
//! | group without processes, no record | removed |
//! | record of another boot | ended with that boot |
//! | record to be forgotten, of a systemd unit | goes once systemd has the unit's weights back |
//!
//! The caller looks at groups and processes ([`Observation`]), does what a [`Verdict`] asks for, and says
//! how that went ([`Restore::take`]). What was judged so becomes [`Restored`], for the core, and
//! [`Start`], for the caller.
//!
//! A task with a damaged record goes on as `lost`, with what its group and the history tell
//! ([`Known`]): whatever the record alone knew is unknown, not zero, and an event says so. A task that
//! cannot be given back goes on.

mod known;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::history_state::HistoryState;
use crate::model::{Order, ReservationId, TaskId, Tier};
use crate::slots::Seat;
use crate::state::{Reservation, Restored};
use crate::task::{Attaching, Attachment, GroupRecord, Hold, Life, Task, Who};
use crate::unit::UnitRecord;
use crate::units::BootTime;

pub use known::Known;

/// How long waiters of an earlier daemon get to come back: the longest pause between two tries
/// of `lrsctl run --wait`, and a little.
const GATHER_WAITERS: Duration = Duration::from_millis(600);

/// What the caller found of a task that has a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Its group, if that is there.
    pub group: Option<GroupRecord>,
    /// Processes are in its group, or that is not known. Without a cgroup a task is its main
    /// process.
    pub occupied: bool,
    /// Its main process lives, wherever it is.
    pub main_lives: bool,
    /// [`Known::released`].
    pub released: bool,
}

/// What becomes of a task that has a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    GoesOn,
    /// It ended while no daemon looked.
    Ended,
    /// Its end is in the history, or it never began; what is left of it goes.
    Over,
    /// No client was answered, so nothing may remain: processes go back (some may be in the group,
    /// some not), weights go back, the reservation is free again.
    RollBack,
    /// Its release is finished.
    FinishRelease,
}

impl Verdict {
    /// Whether processes and weights of its group are given back first.
    pub fn gives_back(self) -> bool {
        matches!(self, Verdict::RollBack | Verdict::FinishRelease)
    }
}

/// What becomes of the group of a judged task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupUse {
    /// It is the task's.
    InUse,
    /// It is removed.
    Unneeded,
    /// It was given back.
    GivenBack,
}

/// What the caller does once the core has what was restored.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// What the history and the reservations still have to say: [`Input::Restored`].
    ///
    /// [`Input::Restored`]: crate::step::Input::Restored
    pub due: Due,
    /// Tasks that have ended.
    pub ended: Vec<TaskId>,
    /// Tasks with a finished release.
    pub released: Vec<TaskId>,
    /// Units that have to get their weights back before the record goes.
    pub units: Vec<(TaskId, UnitRecord)>,
    /// Records to delete.
    pub forget: Vec<TaskId>,
}

/// What the earlier daemon did not get to write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Due {
    /// Tasks that the history does not know as admitted.
    pub unrecorded: Vec<TaskId>,
    /// Tasks that were found without a usable record.
    pub adopted: Vec<TaskId>,
    /// Reservations of admissions that are rolled back.
    pub given_back: Vec<ReservationId>,
    /// Those admissions of which a record stays.
    pub called_off: Vec<TaskId>,
    /// Reservations that running tasks have used.
    pub used: BTreeSet<ReservationId>,
}

/// Judges what an earlier daemon left.
#[derive(Debug)]
pub struct Restore {
    history_state: HistoryState,
    /// Part of the history could not be read: that it does not know a task proves nothing.
    history_damaged: bool,
    next_order: u64,
    tasks: BTreeMap<TaskId, Task>,
    called_off: Vec<Task>,
    reservations: BTreeMap<ReservationId, Reservation>,
    start: Start,
}

impl Restore {
    /// `records` and `reservations`: those of this boot.
    pub fn new<'a>(
        history_state: HistoryState,
        history_damaged: bool,
        records: impl Iterator<Item = &'a Task>,
        reservations: BTreeMap<ReservationId, Reservation>,
    ) -> Restore {
        let orders = records.map(|task| task.order.0);
        let promised = reservations.values().map(|reservation| reservation.order.0);
        let next_order = orders.chain(promised).max().unwrap_or(0).saturating_add(1);
        Restore {
            history_state,
            history_damaged,
            next_order,
            tasks: BTreeMap::new(),
            called_off: Vec::new(),
            reservations,
            start: Start::default(),
        }
    }

    /// Whether the history knows it as a task that runs.
    pub fn is_live(&self, id: TaskId) -> bool {
        self.history_state.live.contains_key(&id)
    }

    /// Whether a record the history does not know as running is of a task that has ended. An
    /// own group with processes speaks against it, whatever the history says.
    fn end_is_recorded(&self, record: &Task) -> bool {
        let counters = self.history_state.counters;
        let seen = record.id.epoch == counters.epoch && record.id.number < counters.next_task;
        seen && !self.history_damaged && record.attachment() != Attachment::Own
    }

    /// What becomes of a record of this boot; [`Restore::take`] has to follow.
    pub fn judge(&self, record: &Task, seen: &Observation) -> Verdict {
        let known = self.is_live(record.id);
        // A main process that others have moved out is moved back, as without a restart.
        let occupied = seen.occupied || known && seen.group.is_some() && seen.main_lives;
        match (&record.life, known, occupied) {
            (Life::Releasing(_), true, _) => Verdict::FinishRelease,
            // The history lost it.
            (Life::Releasing(_), false, true) if self.history_damaged => Verdict::FinishRelease,
            (Life::Releasing(_), false, _) => Verdict::Over,
            (Life::Attaching(_), false, _) => Verdict::RollBack,
            (Life::Placed(_), false, false) => Verdict::Over,
            // The daemon was killed before it forgot the record, or before it could store the release.
            (Life::Placed(_), false, true) if seen.released => Verdict::Over,
            (Life::Placed(_), false, true) if self.end_is_recorded(record) => Verdict::Over,
            (Life::Placed(_) | Life::Attaching(_), true, false) => Verdict::Ended,
            (Life::Placed(_), false, true) => Verdict::GoesOn,
            (Life::Placed(_) | Life::Attaching(_), true, true) => Verdict::GoesOn,
        }
    }

    /// The verdict was carried out. `given_back`: whether the group could be, where it had to.
    pub fn take(
        &mut self,
        mut record: Task,
        seen: Observation,
        verdict: Verdict,
        given_back: bool,
    ) -> GroupUse {
        let id = record.id;
        match verdict {
            Verdict::Over => {
                self.forget(record);
                return GroupUse::Unneeded;
            }
            Verdict::RollBack if given_back => {
                if let Life::Attaching(Attaching { used, .. }) = &mut record.life
                    && let Some(promise) = used.take()
                {
                    self.start.due.given_back.push(promise.0);
                    self.reservations.insert(promise.0, promise.1);
                }
                if record.who.unit.is_some() {
                    // Systemd may take long; the next daemon need not give the files back again.
                    record.group = None;
                    self.start.due.called_off.push(id);
                    self.called_off.push(record.clone());
                }
                self.forget(record);
                return GroupUse::GivenBack;
            }
            Verdict::FinishRelease if given_back => {
                self.start.due.unrecorded.extend((!self.is_live(id)).then_some(id));
                self.start.released.push(id);
                self.keep(record, Observation { group: None, ..seen });
                return GroupUse::GivenBack;
            }
            Verdict::FinishRelease if seen.occupied || seen.main_lives => {}
            Verdict::Ended | Verdict::FinishRelease => self.start.ended.push(id),
            Verdict::GoesOn | Verdict::RollBack => {}
        }
        if !self.is_live(id) {
            // Lost from the history (damaged, a disk that was full), or not in it yet.
            self.start.due.unrecorded.push(id);
        }
        self.keep(record, seen);
        GroupUse::InUse
    }

    /// A record of an earlier boot, with which its processes went.
    pub fn earlier_boot(&mut self, record: Task) {
        if self.is_live(record.id) {
            self.start.ended.push(record.id);
            // Whoever is adopted takes a place behind it.
            self.next_order = self.next_order.max(record.order.0.saturating_add(1));
            // What systemd was sent went with that boot.
            let who = Who { unit: None, ..record.who };
            self.keep(Task { who, ..record }, Observation::default());
        } else {
            self.start.forget.push(record.id);
        }
    }

    /// A group that no usable record tells of, and that is the task's if it is `occupied` and the task was
    /// not released.
    pub fn group(
        &mut self,
        id: TaskId,
        group: GroupRecord,
        occupied: bool,
        known: Known,
    ) -> GroupUse {
        if !occupied || known.released && !self.is_live(id) {
            return GroupUse::Unneeded;
        }
        if !self.is_live(id) {
            self.start.due.unrecorded.push(id);
        }
        self.start.due.adopted.push(id);
        self.adopt(id, Some(group), known);
        GroupUse::InUse
    }

    /// Everything was judged.
    pub fn finish(mut self, now: BootTime) -> (Restored, Start) {
        // Known as running, but neither record nor group is left.
        let live = self.history_state.live.keys().filter(|id| !self.tasks.contains_key(id));
        let gone: Vec<TaskId> = live.copied().collect();
        for id in gone {
            self.start.ended.push(id);
            self.adopt(id, None, Known::default());
        }
        let Restore { history_state, tasks, called_off, mut reservations, mut start, .. } = self;
        // A task has the place of the reservation it used, and nothing else has: so the reservation is known as
        // used when the task's record no longer tells, and the daemon was killed before it forgot the
        // reservation's.
        let places: BTreeSet<Order> = tasks.values().map(|task| task.order).collect();
        let used = reservations.iter().filter(|(_, it)| places.contains(&it.order));
        start.due.used.extend(used.map(|(id, _)| *id));
        reservations.retain(|id, _| !start.due.used.contains(id));
        let mut counters = history_state.counters;
        // No id is used twice, not even that of an admission that is rolled back: it was shown.
        let rolled_back = start.units.iter().map(|(id, _)| id).chain(&start.forget);
        let ids = tasks.keys().chain(rolled_back);
        for id in ids.filter(|id| id.epoch == counters.epoch) {
            counters.next_task = counters.next_task.max(id.number.saturating_add(1));
        }
        for id in reservations.keys().filter(|id| id.epoch == counters.epoch) {
            counters.next_reservation = counters.next_reservation.max(id.number.saturating_add(1));
        }
        let restored = Restored {
            tasks: tasks.into_values().collect(),
            called_off,
            reservations: reservations.into_iter().collect(),
            jobs: history_state.jobs.into_iter().collect(),
            totals: history_state.totals,
            counters,
            draining_since: history_state.draining_since,
            // Only a daemon that was here before can have had waiters.
            gather_until: (counters.next_seq > 1).then(|| now.after(GATHER_WAITERS)),
            passive_capacity: history_state.passive_capacity,
        };
        (restored, start)
    }

    /// A record is of no more use, once a unit it tells of has its weights back.
    fn forget(&mut self, record: Task) {
        match record.who.unit {
            Some(unit) => self.start.units.push((record.id, unit)),
            None => self.start.forget.push(record.id),
        }
    }

    fn keep(&mut self, mut task: Task, seen: Observation) {
        self.start.due.used.extend(task.promise().map(|(used, _)| *used));
        // A tier that no event tells is decided again.
        let tier = self.history_state.live.get(&task.id).copied().flatten();
        task.seat = match (task.seat, tier) {
            (Seat::Active | Seat::Passive | Seat::Overflow, Some(Tier::Active)) => Seat::Active,
            (Seat::Active, Some(Tier::Passive)) => Seat::Passive,
            // Its processes are in place, and the record is from before that.
            (Seat::Arriving, Some(Tier::Active)) => Seat::Active,
            (Seat::Arriving, _) => Seat::Overflow,
            (seat, _) => seat,
        };
        task.main_exited = !seen.main_lives;
        task.life = Life::Placed(Hold::Kept);
        task.counts.last = task.counts.opened;
        task.group = seen.group;
        self.tasks.insert(task.id, task);
    }

    /// A task of which only the id, perhaps the group, and what is `known` are left. It takes its
    /// place behind every task that has one.
    fn adopt(&mut self, id: TaskId, group: Option<GroupRecord>, known: Known) {
        let order = Order(self.next_order);
        self.next_order = self.next_order.saturating_add(1);
        let seat = match self.history_state.live.get(&id).copied().flatten() {
            Some(Tier::Active) => Seat::Active,
            Some(Tier::Passive) => Seat::Passive,
            None => Seat::Overflow,
        };
        let Known { uid, labels, priority, released: _ } = known;
        let lost = Task::lost(id, order, seat);
        let priority = priority.unwrap_or(lost.priority);
        self.tasks.insert(id, Task { group, uid, labels, priority, ..lost });
    }
}

#[cfg(test)]
mod tests;
