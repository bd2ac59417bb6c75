//! What became of each task while no daemon looked.
//!
//! Whatever instant the earlier daemon was killed at, each task is in one of these states
//! (spec 4):
//!
//! | found | then |
//! |---|---|
//! | record placed, group with processes | goes on, weights compared, nothing written that fits |
//! | record placed, group empty, main process elsewhere | goes on; a drift like any other |
//! | record placed, group empty or gone | ended while nobody looked: `completed`, end unknown |
//! | record placed, its end in the history, nobody in its group | cleaned up |
//! | record placed, unknown to the history, processes there | goes on: the history lost it |
//! | record attaching, its admission in the history | goes on |
//! | record attaching, otherwise | rolled back whole; the client, unanswered, asks again |
//! | record attaching, of a task from observe mode | rolled back to that, and attached anew |
//! | record releasing | the release is finished |
//! | group with processes, no usable record | goes on with what is known: null, and said |
//! | group without processes, no record | removed |
//! | record of another boot | ended with that boot |
//! | record to be forgotten, of a systemd unit | goes once systemd has the unit's weights back |
//!
//! A task that cannot be judged (its group cannot be read) goes on: one bad group must not keep
//! the daemon from the others.
//!
//! A task whose record is damaged goes on as `lost`, with what its group tells: whatever the record
//! alone knew is unknown, not zero, and an event says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::entry::Entry;
use crate::cgroup::{Attachment, CgroupError, Group, GroupRecord, TierTree};
use crate::core::books::Books;
use crate::core::model::{Order, ReservationId, TaskId, Tier};
use crate::core::slots::Seat;
use crate::core::task::{Booked, Hold, Life, Task, Who};
use crate::state::Recovered;
use crate::state::record::ReservationRecord;
use crate::systemd::unit::UnitRecord;

/// What is done about the stored tasks.
#[derive(Default)]
pub(super) struct Findings {
    /// In their slots, as the core takes them.
    pub tasks: Vec<Task>,
    /// What the loop holds of them.
    pub entries: BTreeMap<TaskId, Box<Entry>>,
    /// Of those, the ones that have ended.
    pub ended: Vec<TaskId>,
    /// Of those, the ones whose release is done.
    pub released: Vec<TaskId>,
    /// Of those, the ones the history does not know as admitted.
    pub unrecorded: Vec<TaskId>,
    /// Of those, the ones found without a usable record.
    pub adopted: Vec<TaskId>,
    /// Reservations of admissions that are rolled back.
    pub given_back: Vec<ReservationRecord>,
    /// Reservations that running tasks have used.
    pub used: BTreeSet<ReservationId>,
    /// Units that have to get their weights back before the record goes.
    pub units: Vec<(TaskId, UnitRecord)>,
    /// Records to delete.
    pub forget: Vec<TaskId>,
    /// Groups nobody needs any more.
    pub remove: Vec<Group>,
}

struct Finder<'a> {
    tree: &'a TierTree,
    /// Without a tree of its own a task is its main process.
    observing: bool,
    standing: &'a Books,
    /// Part of the history could not be read: that it does not know a task proves nothing.
    history_damaged: bool,
    next_order: u64,
    findings: Findings,
}

/// Judges every record and every group below the root.
pub(super) fn find(
    tree: &TierTree,
    observing: bool,
    standing: &Books,
    recovered: &mut Recovered,
) -> Result<Findings, CgroupError> {
    let tasks = recovered.tasks.iter().map(|record| record.order.0);
    let reservations = recovered.reservations.iter().map(|record| record.reservation.order.0);
    let mut finder = Finder {
        tree,
        observing,
        standing,
        history_damaged: recovered.history_damaged,
        next_order: tasks.chain(reservations).max().unwrap_or(0).saturating_add(1),
        findings: Findings::default(),
    };
    let mut groups: BTreeMap<TaskId, Group> = tree.existing()?.into_iter().collect();
    for record in std::mem::take(&mut recovered.tasks_of_earlier_boots) {
        if standing.live.contains_key(&record.id) {
            finder.findings.ended.push(record.id);
            // What systemd was told went with that boot.
            finder.keep(Task { who: Who { unit: None, ..record.who }, ..record }, None);
        } else {
            finder.findings.forget.push(record.id);
        }
    }
    for record in std::mem::take(&mut recovered.tasks) {
        let own = groups.remove(&record.id);
        finder.judge(record, own);
    }
    for (id, group) in groups {
        finder.judge_group(id, group);
    }
    // Known as running, but neither record nor group is left.
    for id in standing.live.keys() {
        if !finder.findings.entries.contains_key(id) {
            finder.findings.ended.push(*id);
            finder.adopt(*id, None);
        }
    }
    Ok(finder.findings)
}

impl Finder<'_> {
    fn judge(&mut self, mut record: Task, own: Option<Group>) {
        let id = record.id;
        let known = self.standing.live.contains_key(&id);
        let mut group = self.group_of(&record, own);
        if let Some(booked) = record.booked().cloned() {
            group = self.undo_attach(&mut record, booked, group);
        }
        let mut occupied = self.occupied(&record, group.as_ref());
        if known {
            // A main process that somebody has moved out is moved back, as without a restart.
            occupied |= group.is_some() && record.who.process.is_some_and(super::process::alive);
            self.findings.used.extend(record.promise().map(|(used, _)| *used));
        }
        match record.life {
            Life::Releasing(_) => self.finish_release(record, group, known, occupied),
            Life::Attaching(_) if !known => self.roll_back(record, group),
            Life::Placed(_) if !known && (!occupied || self.end_is_recorded(&record)) => {
                // Its end is in the history; the daemon was killed before it forgot the record.
                self.findings.remove.extend(group);
                self.forget(record);
            }
            Life::Placed(_) | Life::Attaching(_) => {
                if !known {
                    // Lost from the history (damaged, a disk that was full), not from the node.
                    self.findings.unrecorded.push(id);
                }
                if !occupied {
                    self.findings.ended.push(id);
                }
                self.keep(record, group);
            }
        }
    }

    /// Whether a record the history does not know as running is of a task that has ended. An
    /// own group with processes speaks against it, whatever the history says.
    fn end_is_recorded(&self, record: &Task) -> bool {
        let counters = self.standing.counters;
        let seen = record.id.epoch == counters.epoch && record.id.number < counters.next_task;
        let own = record.group.as_ref().is_some_and(|g| g.attachment == Attachment::Own);
        seen && !self.history_damaged && !own
    }

    fn judge_group(&mut self, id: TaskId, group: Group) {
        let empty = self.tree.processes(&group).is_ok_and(|processes| processes.is_empty());
        if empty && !self.observing {
            self.findings.remove.push(group);
            return;
        }
        if !self.standing.live.contains_key(&id) {
            self.findings.unrecorded.push(id);
        }
        self.findings.adopted.push(id);
        self.adopt(id, Some(group));
    }

    fn group_of(&mut self, record: &Task, own: Option<Group>) -> Option<Group> {
        match (&record.group, own) {
            (Some(stored), own) if stored.attachment != Attachment::Own => {
                self.findings.remove.extend(own);
                self.reopen(record.id, stored)
            }
            (Some(stored), None) => self.reopen(record.id, stored),
            (_, own) => own.map(|mut group| {
                // The record may be older than the group; it knows where the process was.
                group.record.origin.clone_from(&record.who.origin);
                group
            }),
        }
    }

    fn reopen(&self, id: TaskId, stored: &GroupRecord) -> Option<Group> {
        match self.tree.reopen(stored) {
            Ok(group) => group,
            Err(error) => {
                tracing::error!(task = %id, %error, "the cgroup of task {id} cannot be opened, so the task counts as ended: {error}");
                None
            }
        }
    }

    fn occupied(&self, record: &Task, group: Option<&Group>) -> bool {
        let Some(group) = group else { return false };
        if self.observing || group.record.attachment == Attachment::None {
            return record.who.process.is_some_and(super::process::alive);
        }
        match self.tree.processes(group) {
            Ok(processes) => !processes.is_empty(),
            Err(error) => {
                let id = record.id;
                tracing::error!(task = %id, %error, "cannot tell whether task {id} is over, so it goes on: {error}");
                true
            }
        }
    }

    /// Nobody was answered, so nothing may remain: processes go back (some may be in the group,
    /// some not), weights go back, the reservation is free again.
    fn roll_back(&mut self, record: Task, group: Option<Group>) {
        if let Some(group) = &group
            && let Err(error) = self.tree.release(group)
        {
            let id = record.id;
            tracing::error!(task = %id, %error, "the half-done admission of task {id} cannot be undone, so it goes on: {error}");
            self.findings.unrecorded.push(record.id);
            self.keep(record, Some(group.clone()));
            return;
        }
        let promise = record.promise().cloned();
        self.findings
            .given_back
            .extend(promise.map(|(id, reservation)| ReservationRecord { id, reservation }));
        self.forget(record);
    }

    /// A task from observe mode was being attached. Some of its processes may be in the group made
    /// for it, and some not: all go back, and the task is what it was, to be attached anew.
    fn undo_attach(
        &self,
        record: &mut Task,
        booked: Booked,
        group: Option<Group>,
    ) -> Option<Group> {
        let id = record.id;
        match group.as_ref().map_or(Ok(()), |group| self.tree.release(group)) {
            Ok(()) => {
                record.life = Life::Placed(Hold::Kept);
                record.counts.baseline = booked.baseline;
                let group = self.reopen(id, &booked.group);
                record.group = Some(booked.group);
                group
            }
            Err(error) => {
                tracing::error!(task = %id, %error, "the half-done attach of task {id} cannot be undone, so it goes on: {error}");
                group
            }
        }
    }

    /// A record is of no more use, once a unit it tells of has its weights back.
    fn forget(&mut self, record: Task) {
        match record.who.unit {
            Some(unit) => self.findings.units.push((record.id, unit)),
            None => self.findings.forget.push(record.id),
        }
    }

    fn finish_release(&mut self, record: Task, group: Option<Group>, known: bool, occupied: bool) {
        let id = record.id;
        if !known {
            self.findings.remove.extend(group);
            self.forget(record);
            return;
        }
        let done = match &group {
            Some(group) => self.tree.release(group),
            None => Ok(()),
        };
        match done {
            Ok(()) => {
                self.findings.released.push(id);
                self.keep(record, None);
            }
            Err(error) => {
                tracing::error!(task = %id, %error, "the release of task {id} cannot be finished, so it goes on: {error}");
                if !occupied {
                    self.findings.ended.push(id);
                }
                self.keep(record, group);
            }
        }
    }

    fn keep(&mut self, mut task: Task, group: Option<Group>) {
        // A tier that no event tells is decided again.
        let tier = self.standing.live.get(&task.id).copied().flatten();
        task.seat = match (task.seat, tier) {
            (Seat::Active | Seat::Passive | Seat::Overflow, Some(Tier::Active)) => Seat::Active,
            (Seat::Active, Some(Tier::Passive)) => Seat::Passive,
            // Its processes are in place, and the record is from before that.
            (Seat::Arriving, Some(Tier::Active)) => Seat::Active,
            (Seat::Arriving, _) => Seat::Overflow,
            (seat, _) => seat,
        };
        task.main_exited = !task.who.process.is_some_and(super::process::alive);
        task.life = Life::Placed(Hold::Kept);
        task.counts.last = task.counts.opened;
        task.group = group.as_ref().map(|group| group.record.clone());
        self.hold(task, group);
    }

    fn hold(&mut self, task: Task, group: Option<Group>) {
        let entry = Entry { group: group.map(Arc::new), ..Entry::default() };
        self.findings.entries.insert(task.id, Box::new(entry));
        self.findings.tasks.push(task);
    }

    /// A task of which only the id and perhaps the group are left. It takes its place behind
    /// everybody whose place is known.
    fn adopt(&mut self, id: TaskId, group: Option<Group>) {
        let order = Order(self.next_order);
        self.next_order = self.next_order.saturating_add(1);
        let seat = match self.standing.live.get(&id).copied().flatten() {
            Some(Tier::Active) => Seat::Active,
            Some(Tier::Passive) => Seat::Passive,
            None => Seat::Overflow,
        };
        let record = group.as_ref().map(|group| group.record.clone());
        self.hold(Task { group: record, ..Task::lost(id, order, seat) }, group);
    }
}
