//! Opportunistic and slotless tasks: what a discovered task's standing means for who sits where,
//! and what its finder learns late.
//!
//! A scheduler that has opportunistic containers (YARN's) starts them on what its others leave,
//! so here they come last: promoted last, first to lose an active slot, and beyond capacity
//! rather than in a slot that another found task could have. They are found running, as is what
//! displaces them, so no request is refused or waits for it: seats are swapped.
//!
//! Limits. A request (Admit, Reserve) does not get the slot of an opportunistic task on a full
//! node: a full node refuses any priority (spec 3). It gets its weights once it is in.

use super::Shaper;
use crate::event::EventKind;
use crate::model::{Labels, Standing, TaskId};
use crate::slots::Seat;
use crate::step::Record;
use crate::units::Moment;

impl Shaper {
    /// Changes what kind of place a task needs; the rules of placement apply at once.
    pub(crate) fn set_standing(&mut self, id: TaskId, standing: Standing, now: Moment) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let before = task.standing();
        if before == standing {
            return;
        }
        let recorded = !task.is_new();
        self.slots.remove(task.seat, task.rank());
        task.opportunistic = standing == Standing::Opportunistic;
        self.slots.insert(task.seat, task.rank(), id);
        if recorded {
            self.record(now, EventKind::Standing, Some(id.to_string()), |event| {
                event.from = Some(before.to_string());
                event.to = Some(standing.to_string());
            });
        }
        match (before, standing) {
            (_, Standing::Slotless) => {
                self.take_seat(id, Seat::Slotless, "must not be passive and holds no slot", now);
            }
            (Standing::Slotless, _) if !recorded => {
                self.take_seat(id, Seat::Arriving, "all active slots were taken", now);
            }
            (Standing::Slotless, _) => {
                let (seat, reason) = if self.slots.active_free() > 0 {
                    (Seat::Active, "an active slot was free")
                } else if self.slots.passive_free() > 0 {
                    (Seat::Passive, "it needs a slot now, and all active ones were taken")
                } else {
                    (Seat::Overflow, "it needs a slot now, and all were taken")
                };
                self.take_seat(id, seat, reason, now);
            }
            (Standing::Slot | Standing::Opportunistic, _) => {}
        }
        self.step.store(Record::Task(id));
        self.rearrange(now);
    }

    /// Gives a task the labels it lacks, which its finder learnt late; its group may be another one now.
    pub(crate) fn add_labels(&mut self, id: TaskId, labels: Labels) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let before = task.labels.clone();
        let group = labels.group.clone().or_else(|| before.group.clone());
        task.labels = Labels { group, ..before.clone().or(labels) };
        if task.labels == before {
            return;
        }
        let uid = task.uid;
        let after = task.labels.job_key(uid);
        if before.job_key(uid) != after {
            if let Some(key) = before.job_key(uid) {
                self.jobs.left(key);
            }
            if let Some(key) = after {
                self.jobs.started(key, task.labels.group.as_ref());
            }
        } else if let Some(key) = after {
            self.jobs.name_group(&key, task.labels.group.as_ref());
        }
        self.step.store(Record::Task(id));
    }

    /// Another seat, and an event only where the tier follows.
    fn take_seat(&mut self, id: TaskId, seat: Seat, reason: &'static str, now: Moment) {
        let Some(tier) = self.task(id).map(|task| task.tier()) else { return };
        if tier == seat.tier() {
            self.reseat(id, seat);
        } else {
            self.change_tier(id, seat, reason, None, now);
        }
    }

    /// No opportunistic task in a slot while another kind of task is beyond capacity. `true`: a
    /// seat was changed.
    pub(crate) fn put_opportunistic_last(&mut self, now: Moment) -> bool {
        let Some((best, up)) = self.slots.best_overflow() else { return false };
        if best.is_opportunistic() {
            return false;
        }
        if let Some((worst, down)) = self.slots.worst_passive()
            && worst.is_opportunistic()
        {
            for (id, seat) in [(down, Seat::Overflow), (up, Seat::Passive)] {
                self.reseat(id, seat);
                self.step.store(Record::Task(id));
            }
            return true;
        }
        // One that is active still finds no task in a passive slot that could take its place.
        let Some((worst, down)) = self.slots.worst_active() else { return false };
        let Some((best, up)) = self.slots.best_running_overflow() else { return false };
        if best.is_opportunistic() {
            return false;
        }
        if !worst.is_opportunistic() {
            return false;
        }
        let reason = "a task that is not opportunistic needed its slot";
        self.change_tier(down, Seat::Overflow, reason, Some(up), now);
        self.promote(up, "it is not opportunistic, as one of the active tasks is", Some(down), now);
        true
    }
}
