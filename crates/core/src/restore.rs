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
mod tests {
    use super::*;
    use crate::model::{Labels, Priority};
    use crate::unit::Weights;
    use crate::units::WallTime;

    const ID: TaskId = TaskId { epoch: 1, number: 4 };
    const PROMISE: ReservationId = ReservationId { epoch: 1, number: 9 };

    fn group(attachment: Attachment) -> GroupRecord {
        let path = "/lrs/1-4".to_owned();
        GroupRecord {
            attachment,
            path,
            inode: 7,
            origin: Default::default(),
            found: Vec::new(),
            elsewhere: Vec::new(),
            for_member: false,
        }
    }

    fn record(life: Life, attachment: Attachment) -> Task {
        let task = Task::lost(ID, Order(1), Seat::Passive);
        Task { life, group: Some(group(attachment)), lost: false, ..task }
    }

    fn attaching() -> Life {
        let reservation = Reservation {
            labels: Labels::default(),
            uid: 1,
            priority: Priority(0),
            order: Order(1),
            tier: Tier::Active,
            created_at: WallTime::from_unix_micros(0),
            expires: BootTime(Duration::from_secs(60)),
            yields_from: BootTime(Duration::from_secs(5)),
            by_member: true,
        };
        let used = Some(Box::new((PROMISE, reservation)));
        Life::Attaching(Attaching { used, ..Attaching::default() })
    }

    fn unit() -> UnitRecord {
        UnitRecord {
            name: "a.service".parse().unwrap(),
            control_group: "/system.slice/a.service".into(),
            found: Weights::default(),
        }
    }

    /// `known`: the history has it that the task runs.
    fn restore(known: bool) -> Restore {
        let mut history_state = HistoryState::default();
        history_state.counters.epoch = 1;
        history_state.counters.next_task = 5;
        history_state.live.extend(known.then_some((ID, Some(Tier::Active))));
        Restore::new(history_state, false, std::iter::empty(), BTreeMap::new())
    }

    fn seen(processes: &str) -> Observation {
        Observation {
            group: (processes != "no group").then(|| group(Attachment::Own)),
            occupied: processes == "inside",
            main_lives: matches!(processes, "inside" | "elsewhere"),
            released: false,
        }
    }

    #[test]
    fn the_table() {
        let placed = || Life::Placed(Hold::Kept);
        let releasing = || Life::Releasing(Hold::Kept);
        let rows = [
            (placed(), true, "inside", Verdict::GoesOn),
            (placed(), true, "elsewhere", Verdict::GoesOn),
            (placed(), true, "none", Verdict::Ended),
            (placed(), true, "no group", Verdict::Ended),
            (placed(), false, "inside", Verdict::GoesOn),
            (placed(), false, "elsewhere", Verdict::Over),
            (placed(), false, "none", Verdict::Over),
            (placed(), false, "no group", Verdict::Over),
            (attaching(), true, "inside", Verdict::GoesOn),
            (attaching(), true, "elsewhere", Verdict::GoesOn),
            (attaching(), true, "none", Verdict::Ended),
            (attaching(), true, "no group", Verdict::Ended),
            (attaching(), false, "inside", Verdict::RollBack),
            (attaching(), false, "elsewhere", Verdict::RollBack),
            (attaching(), false, "none", Verdict::RollBack),
            (attaching(), false, "no group", Verdict::RollBack),
            (releasing(), true, "inside", Verdict::FinishRelease),
            (releasing(), true, "none", Verdict::FinishRelease),
            (releasing(), true, "no group", Verdict::FinishRelease),
            (releasing(), false, "inside", Verdict::Over),
            (releasing(), false, "no group", Verdict::Over),
        ];
        for (life, known, processes, expected) in rows {
            let record = record(life, Attachment::Own);
            let verdict = restore(known).judge(&record, &seen(processes));
            assert_eq!(verdict, expected, "{:?}, known: {known}, {processes}", record.life);
        }
    }

    #[test]
    fn a_recorded_end_is_believed_unless_an_own_group_or_damage_speaks_against_it() {
        let in_place = record(Life::Placed(Hold::Kept), Attachment::InPlace);
        let mut restore = restore(false);
        assert_eq!(restore.judge(&in_place, &seen("inside")), Verdict::Over);
        let new = Task { id: TaskId { epoch: 1, number: 5 }, ..in_place.clone() };
        assert_eq!(restore.judge(&new, &seen("inside")), Verdict::GoesOn, "not seen yet");
        restore.history_damaged = true;
        assert_eq!(restore.judge(&in_place, &seen("inside")), Verdict::GoesOn);
        let own = record(Life::Placed(Hold::Kept), Attachment::Own);
        let released = Observation { released: true, ..seen("inside") };
        assert_eq!(restore.judge(&own, &released), Verdict::Over, "others had frozen it");
    }

    #[test]
    fn a_release_that_a_damaged_history_lost_is_finished_where_processes_are() {
        let releasing = || record(Life::Releasing(Hold::Kept), Attachment::Own);
        let mut restore = restore(false);
        restore.history_damaged = true;
        assert_eq!(restore.judge(&releasing(), &seen("none")), Verdict::Over);
        let verdict = restore.judge(&releasing(), &seen("inside"));
        assert_eq!(verdict, Verdict::FinishRelease);
        restore.take(releasing(), seen("inside"), verdict, true);
        let (_, start) = restore.finish(BootTime::default());
        assert_eq!((start.due.unrecorded, start.released), (vec![ID], vec![ID]));
    }

    /// What is left of a task that was carried out like this.
    fn taken(known: bool, life: Life, verdict: Verdict, given_back: bool) -> (Restored, Start) {
        let mut restore = restore(known);
        let record = record(life, Attachment::Own);
        restore.take(record, seen("inside"), verdict, given_back);
        restore.finish(BootTime::default())
    }

    #[test]
    fn a_promise_is_used_by_who_goes_on_and_free_again_otherwise() {
        let (restored, start) = taken(true, attaching(), Verdict::GoesOn, true);
        assert!(start.due.used.contains(&PROMISE) && restored.reservations.is_empty());
        let (restored, start) = taken(false, attaching(), Verdict::RollBack, true);
        assert_eq!((start.due.given_back, start.forget), (vec![PROMISE], vec![ID]));
        assert!(restored.tasks.is_empty());
        assert_eq!(restored.reservations.first().map(|(id, _)| *id), Some(PROMISE));
        assert_eq!((restored.counters.next_task, restored.counters.next_reservation), (5, 10));
        let (restored, start) = taken(false, attaching(), Verdict::RollBack, false);
        assert!(restored.called_off.is_empty());
        assert_eq!(start.due.unrecorded, [ID], "it could not be rolled back, so it goes on");
        assert!(start.due.used.contains(&PROMISE) && restored.reservations.is_empty());
    }

    #[test]
    fn a_record_that_stays_for_its_unit_has_no_promise_any_more() {
        let mut restore = restore(false);
        let mut record = record(attaching(), Attachment::InPlace);
        record.who.unit = Some(unit());
        restore.take(record, seen("inside"), Verdict::RollBack, true);
        let (restored, start) = restore.finish(BootTime::default());
        assert_eq!((start.due.given_back, start.due.called_off), (vec![PROMISE], vec![ID]));
        assert_eq!(start.units.len(), 1);
        assert_eq!(restored.called_off[0].promise(), None);
        assert_eq!(restored.called_off[0].group, None, "its files were given back");
    }

    #[test]
    fn a_release_that_cannot_be_finished_leaves_the_task() {
        let releasing = || Life::Releasing(Hold::Kept);
        let (restored, start) = taken(true, releasing(), Verdict::FinishRelease, false);
        assert!(start.released.is_empty() && start.ended.is_empty());
        assert!(restored.tasks[0].is_placed() && restored.tasks[0].group.is_some());
        let (restored, start) = taken(true, releasing(), Verdict::FinishRelease, true);
        assert_eq!(start.released, [ID]);
        assert_eq!(restored.tasks[0].group, None);
    }

    #[test]
    fn what_has_no_record_goes_on_as_lost_or_is_over() {
        let mut adopting = restore(false);
        let known = Known { uid: Some(5), priority: Some(Priority(2)), ..Known::default() };
        let mut take =
            |occupied| adopting.group(ID, group(Attachment::Own), occupied, known.clone());
        assert_eq!([take(false), take(true)], [GroupUse::Unneeded, GroupUse::InUse]);
        let (restored, start) = adopting.finish(BootTime::default());
        let task = &restored.tasks[0];
        assert!(task.lost);
        assert_eq!((task.uid, task.priority), (Some(5), Priority(2)));
        assert_eq!((start.due.adopted, start.due.unrecorded), (vec![ID], vec![ID]));
        let (restored, start) = restore(true).finish(BootTime::default());
        assert_eq!((restored.tasks.len(), start.ended), (1, vec![ID]));
    }

    #[test]
    fn another_boot_took_the_processes_with_it() {
        for (known, tasks) in [(true, 1), (false, 0)] {
            let mut restore = restore(known);
            restore.earlier_boot(record(Life::Placed(Hold::Kept), Attachment::Own));
            let (restored, start) = restore.finish(BootTime::default());
            assert_eq!((restored.tasks.len(), start.ended.len()), (tasks, tasks));
            assert_eq!(start.forget.len(), 1 - tasks);
        }
    }

    #[test]
    fn a_task_without_a_record_is_behind_those_of_earlier_boots() {
        let mut restore = restore(true);
        let lost = TaskId { number: 3, ..ID };
        restore.history_state.live.insert(lost, None);
        restore.earlier_boot(record(Life::Placed(Hold::Kept), Attachment::Own));
        let (restored, _) = restore.finish(BootTime::default());
        let order = |id| restored.tasks.iter().find(|task| task.id == id).map(|task| task.order);
        assert_eq!((order(ID), order(lost)), (Some(Order(1)), Some(Order(2))));
    }

    #[test]
    fn a_reservation_is_used_if_a_task_has_its_place() {
        let Life::Attaching(Attaching { used: Some(used), .. }) = attaching() else {
            unreachable!("it is made with one");
        };
        let other = Reservation { order: Order(2), ..used.1.clone() };
        let mut restore = restore(true);
        let later = ReservationId { number: PROMISE.number + 1, ..PROMISE };
        restore.reservations.extend([(PROMISE, used.1), (later, other)]);
        // The daemon stored that the task is placed, and was killed.
        let placed = record(Life::Placed(Hold::Kept), Attachment::Own);
        let seen = Observation { occupied: true, main_lives: true, ..Observation::default() };
        restore.take(placed, seen, Verdict::GoesOn, false);
        let (restored, start) = restore.finish(BootTime::default());
        assert_eq!(start.due.used, BTreeSet::from([PROMISE]));
        assert_eq!(restored.reservations.iter().map(|it| it.0).collect::<Vec<_>>(), [later]);
    }
}
