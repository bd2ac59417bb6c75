//! One task: what is decided on, what is stored and what is shown are this one type.
//!
//! The record on the disk is [`Task`] as it serializes, with an object for each of its parts: parts
//! flattened into one object may have a key in common, and one of the two is lost. What clients see is made of it and of what
//! the kernel says of its group. What belongs to the running daemon alone (descriptors, open
//! groups, who waits for an answer) is the executor's.
//!
//! [`Life`] is how far a task is between its admission and its end. Fields that are not stored
//! begin anew with each daemon: what it fought over, it may fight over again.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::counts::Counts;
use super::exit::Exit;
use super::model::{JobKey, Label, Labels, Order, Priority, ReservationId, Standing, TaskId, Tier};
use super::reservation::Reservation;
use super::sample::TaskSample;
use super::slots::{Rank, Seat};
use super::unit::UnitRecord;
use crate::units::{BootTime, Moment, ProcessRef, WallTime};

/// Repairs within [`CONTEST_WINDOW`] after which LRS stops fighting over a task.
pub const CONTEST_REPAIRS: usize = 3;

/// See [`CONTEST_REPAIRS`].
pub const CONTEST_WINDOW: Duration = Duration::from_secs(60);

/// A task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// What the client says it is.
    pub labels: Labels,
    /// Where it came from.
    pub who: Who,
    /// The user it runs as; `None`: a damaged state file lost it.
    pub uid: Option<u32>,
    /// Higher runs sooner.
    pub priority: Priority,
    /// Behind every task that is not, whatever the priorities.
    #[serde(default, skip_serializing_if = "is_default")]
    pub opportunistic: bool,
    /// Place in the order of admission.
    pub order: Order,
    /// Where it sits.
    pub seat: Seat,
    /// How far it is.
    pub life: Life,
    /// When it got its slot.
    pub admitted_at: Moment,
    /// When it last became active after having been passive.
    pub promoted_at: Option<WallTime>,
    /// Its cgroup, once it is known.
    pub group: Option<GroupRecord>,
    /// What was measured of it.
    pub counts: Counts,
    /// The guard froze it; stored before it is, and until it is thawed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub frozen: bool,
    /// What others did to it, so that it cannot run.
    #[serde(skip)]
    pub halted: Option<Halt>,
    /// Foreign changes put right since admission.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repaired: u64,
    /// When the last of them were put right.
    #[serde(skip)]
    pub repairs: VecDeque<BootTime>,
    /// Whether its main process has ended, or is the task's no longer.
    #[serde(skip)]
    pub main_exited: bool,
    /// The group, made after the task's, that the last of its processes went into.
    #[serde(skip)]
    pub left_for: Option<String>,
    /// How that ended; `None`: it has not, or that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
    /// A damaged state file lost who it is: its order is made up, and what neither its cgroup nor the
    /// history tells is unknown.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lost: bool,
}

/// Left out of the file, so that a record says what is special about its task.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A group of one process per hierarchy, by name and path. Shared: the task, its group and what the
/// executor holds of that have the same.
pub type Origin = Arc<[(String, String)]>;

/// Where a task came from, and what it is made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Who {
    /// Its main process; `None`: a damaged state file lost it.
    pub process: Option<ProcessRef>,
    /// Uid of the caller that admitted it; the same caller asking again gets the same task.
    pub admitted_by: Option<u32>,
    /// Whether that was with an admin's rights, its own or granted; else all the task's processes
    /// have to be that uid's when they are moved.
    #[serde(default, skip_serializing_if = "is_default")]
    pub as_admin: bool,
    /// How it was found, if no client admitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<FoundRecord>,
    /// The unit of systemd's that the group is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitRecord>,
    /// What it would have lost by leaving the group it was started in, if it stays there for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays_because: Option<String>,
    /// What it lost by leaving its unit of systemd's, which an administrator's `admit` may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_by_move: Option<String>,
    /// Where its main process was before, per hierarchy.
    pub origin: Origin,
}

/// How others keep a task from running: none of its processes can. What the guard froze is not halted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Halt {
    /// Its group, one above it, or those below it are frozen.
    Frozen,
    /// All its threads are stopped by a signal or by a debugger (proc_pid_stat(5), `T` and `t`).
    Stopped,
}

/// How far a task is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Life {
    /// Its processes are being put in place; some may be there, and no answer was sent yet.
    Attaching(Attaching),
    /// In its slot.
    Placed(#[serde(skip)] Hold),
    /// Its processes are being given back. Keeps how it was held, should that fail.
    Releasing(#[serde(skip)] Hold),
}

/// What an attach that fails has to give back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attaching {
    /// Why it got this slot, for its `admitted` event.
    pub reason: String,
    /// The reservation it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Box<(ReservationId, Reservation)>>,
    /// How often its record was written; what is not recorded was not touched either.
    #[serde(skip)]
    pub recorded: u32,
    /// It waited in its group, where its process is.
    #[serde(skip)]
    pub parked: bool,
    /// It is from observe mode, and was in its slot before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booked: Option<Box<Booked>>,
}

/// What a task of observe mode had before its attach began; it has it again if that fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Booked {
    /// Its group, with attachment `none`.
    pub group: GroupRecord,
    /// [`Counts::baseline`] then.
    pub baseline: Option<TaskSample>,
    /// It was in a group of LRS's and goes on in one that it made or asked for, in place.
    #[serde(default, skip_serializing_if = "is_default")]
    pub followed: bool,
}

/// Whether a task is kept in its group and at its weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// It is.
    #[default]
    Kept,
    /// Its main process is being moved back; what is seen of it meanwhile does not count.
    MovingBack,
    /// Others keep changing it: nothing is repaired until the daemon starts again. A change of its tier or
    /// of the plan is written all the same, and its end gives back what LRS wrote last.
    Contested,
}

impl Task {
    /// The job that this task belongs to, if it named one.
    pub fn job_key(&self) -> Option<JobKey> {
        self.labels.job_key(self.uid)
    }

    /// A task of which nothing is known but its id and its seat.
    pub fn lost(id: TaskId, order: Order, seat: Seat) -> Task {
        Task {
            id,
            labels: Labels::default(),
            who: Who::default(),
            uid: None,
            priority: Priority::default(),
            opportunistic: false,
            order,
            seat,
            life: Life::Placed(Hold::Kept),
            admitted_at: Moment::default(),
            promoted_at: None,
            group: None,
            counts: Counts::default(),
            frozen: false,
            halted: None,
            repaired: 0,
            repairs: VecDeque::new(),
            main_exited: true,
            left_for: None,
            exit: None,
            lost: true,
        }
    }

    pub(super) fn rank(&self) -> Rank {
        Rank::new(self.priority, self.order).behind(self.opportunistic)
    }

    /// What kind of place it has.
    pub fn standing(&self) -> Standing {
        match (self.seat, self.opportunistic) {
            (Seat::Slotless, _) => Standing::Slotless,
            (_, true) => Standing::Opportunistic,
            (_, false) => Standing::Slot,
        }
    }

    /// The tier of the weights that it should have.
    pub fn tier(&self) -> Tier {
        self.seat.tier()
    }

    /// Whether it is in its slot.
    pub fn is_placed(&self) -> bool {
        matches!(self.life, Life::Placed(_))
    }

    /// Whether its processes are being put in place.
    pub fn is_attaching(&self) -> bool {
        matches!(self.life, Life::Attaching(_))
    }

    /// Whether its processes are being given back.
    pub fn is_releasing(&self) -> bool {
        matches!(self.life, Life::Releasing(_))
    }

    /// Whether there is no event or answer about it yet: a task of observe mode was one before.
    pub fn is_new(&self) -> bool {
        matches!(&self.life, Life::Attaching(Attaching { booked: None, .. }))
    }

    /// The reservation that its admission uses, until that is done.
    pub fn promise(&self) -> Option<&(ReservationId, Reservation)> {
        match &self.life {
            Life::Attaching(attaching) => attaching.used.as_deref(),
            Life::Placed(_) | Life::Releasing(_) => None,
        }
    }

    /// Whether systemd may have been sent weights of its unit, which it gets back at the end.
    pub fn owes_unit(&self) -> bool {
        let untouched = matches!(&self.life, Life::Attaching(Attaching { recorded: 0, .. }));
        self.who.unit.is_some() && !untouched
    }

    /// It waited in `group`.
    pub(super) fn was_parked(&mut self, group: GroupRecord) {
        self.who.origin = Arc::clone(&group.origin);
        self.group = Some(group);
        if let Life::Attaching(attaching) = &mut self.life {
            attaching.parked = true;
        }
    }

    /// Whether its processes were in its group before it was given a slot.
    pub fn is_from_parking(&self) -> bool {
        matches!(&self.life, Life::Attaching(Attaching { parked: true, .. }))
    }

    /// What it was in observe mode, while it is being attached.
    pub fn booked(&self) -> Option<&Booked> {
        match &self.life {
            Life::Attaching(attaching) => attaching.booked.as_deref(),
            Life::Placed(_) | Life::Releasing(_) => None,
        }
    }

    /// Whether observe mode left it without a cgroup, and it is not being attached.
    pub fn is_booked(&self) -> bool {
        let none = |group: &GroupRecord| group.attachment == Attachment::None;
        self.is_placed() && self.group.as_ref().is_some_and(none)
    }

    /// Half of its attach was undone: it is what it was in observe mode.
    pub fn unattach(&mut self) {
        let Life::Attaching(attaching) = &mut self.life else { return };
        let Some(booked) = attaching.booked.take() else { return };
        self.life = Life::Placed(Hold::Kept);
        self.group = Some(booked.group);
        self.counts.baseline = booked.baseline;
    }

    /// How it is held.
    pub fn hold(&self) -> Hold {
        match self.life {
            Life::Placed(hold) | Life::Releasing(hold) => hold,
            Life::Attaching(_) => Hold::Kept,
        }
    }

    /// Whether its group is below that of all tasks: what it uses is counted there, and weighed there.
    pub fn is_below_root(&self) -> bool {
        self.attachment() == Attachment::Own
    }

    /// Whether it is left alone.
    pub fn is_contested(&self) -> bool {
        self.hold() == Hold::Contested
    }

    /// Where its weights are.
    pub fn attachment(&self) -> Attachment {
        self.group.as_ref().map_or(Attachment::None, |group| group.attachment)
    }

    /// Which processes belong to its main one.
    pub fn kin(&self) -> Kin {
        self.who.found.as_ref().map_or_else(Kin::default, |found| found.kin)
    }

    /// Notes a repair at `now`; answers whether it was one too many.
    pub fn note_repair(&mut self, now: BootTime) -> bool {
        while self.repairs.front().is_some_and(|first| now.since(*first) > CONTEST_WINDOW) {
            self.repairs.pop_front();
        }
        self.repairs.push_back(now);
        let contested = self.repairs.len() > CONTEST_REPAIRS;
        if let Life::Placed(hold) = &mut self.life {
            *hold = match (contested, *hold) {
                (true, _) => Hold::Contested,
                // The move under way ends by itself.
                (false, Hold::MovingBack) => Hold::MovingBack,
                (false, _) => Hold::Kept,
            };
        }
        contested
    }

    /// Whether it was repaired so lately that the next repair may be the one too many; the few
    /// cycles between two readings of other tasks would hide a foreign writer's perseverance.
    pub fn repaired_lately(&self, now: BootTime) -> bool {
        !self.is_contested()
            && self.repairs.back().is_some_and(|last| now.since(*last) <= CONTEST_WINDOW)
    }
}

/// What is kept of a discovery beside the task it made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundRecord {
    /// Who found it.
    pub by: Finder,
    /// What the finder reported last, if it has reported any: only a new report of its changes the
    /// priority, so that what an operator sets meanwhile stays.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: Option<Priority>,
    /// The same of the kind of place.
    #[serde(default, skip_serializing_if = "is_default")]
    pub standing: Option<Standing>,
    /// Which processes belong to its main process.
    pub kin: Kin,
}

/// Who found a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finder {
    /// The `[yarn]` section.
    Yarn,
    /// The `[[discover]]` rule of this name.
    Rule(Label),
}

impl fmt::Display for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finder::Yarn => f.write_str("yarn"),
            Finder::Rule(name) => write!(f, "rule {name}"),
        }
    }
}

/// Whom an attach moves beside the main process, of those in the same group as it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kin {
    /// Its descendants.
    #[default]
    Descendants,
    /// All members of the session it leads, and their descendants.
    Session,
}

/// Where a task's weights are: in which owner's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attachment {
    /// LRS made it.
    Own,
    /// Another owner's: weights only.
    InPlace,
    /// Observe mode: bookkeeping only.
    None,
}

/// A task's cgroup for all time: where it is, which one it is, what to give back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// Where the task's weights are.
    pub attachment: Attachment,
    /// Path from the controller's mount, with a leading slash.
    pub path: String,
    /// Inode of the directory in the hierarchy that has the edited weight; a group made anew under
    /// the same path differs.
    pub inode: u64,
    /// Where the main process was before, per hierarchy ("cpu", "cpuacct", ..., "unified"; the
    /// first controller where several are mounted together). Own: release goes back there; empty:
    /// to the root's parent. In place: tells in which hierarchies the group is the task's alone.
    pub origin: Origin,
    /// In place: file name and content of every weight file as found.
    pub found: Vec<(String, String)>,
    /// Own: hierarchies in which the processes stay where they are, because another manager holds
    /// them there ([`super::leaving`]); named as in `origin`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<String>,
    /// In place: whoever asked is no administrator, so no weight goes above what was found.
    #[serde(default, skip_serializing_if = "is_default")]
    pub for_member: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime(Duration::from_secs(seconds))
    }

    #[test]
    fn the_fourth_repair_within_a_minute_is_one_too_many() {
        let mut task = Task::lost(TaskId { epoch: 1, number: 1 }, Order(0), Seat::Active);
        assert!(!task.note_repair(at(0)));
        assert!(!task.note_repair(at(10)));
        assert!(!task.note_repair(at(20)));
        assert!(!task.note_repair(at(61)), "the first has left the window");
        assert!(task.note_repair(at(62)));
        assert!(task.is_contested());
    }

    #[test]
    fn who_was_repaired_is_watched_until_the_window_is_over() {
        let mut task = Task::lost(TaskId { epoch: 1, number: 1 }, Order(0), Seat::Active);
        assert!(!task.repaired_lately(at(0)));
        task.note_repair(at(10));
        assert!(task.repaired_lately(at(70)));
        assert!(!task.repaired_lately(at(71)));
        for second in 100..104 {
            task.note_repair(at(second));
        }
        assert!(!task.repaired_lately(at(104)), "contested: nothing more is repaired");
    }
}
