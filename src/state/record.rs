//! What is stored about one task or one reservation: one small JSON file each.
//!
//! Every record carries a format version and the boot it belongs to. A record of another boot
//! describes processes that cannot exist any more; one of another version is damaged as far as
//! this daemon is concerned, and is set aside, never overwritten.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cgroup::{GroupRecord, Kin};
use crate::core::model::{Labels, Order, Priority, ReservationId, Standing, TaskId, Tier};
use crate::core::rate::RateMeter;
use crate::core::slots::Seat;
use crate::core::state::Reservation;
use crate::discover::Finder;
use crate::sample::TaskSample;
use crate::systemd::unit::UnitRecord;
use crate::units::{BootTime, Moment, ProcessRef, WallTime};

/// Format of the files this daemon writes and reads.
pub const VERSION: u32 = 1;

/// A task, as it has to be found again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// Its id.
    pub id: TaskId,
    /// How far its admission got.
    pub phase: RecordPhase,
    /// Its main process; `None`: a damaged file lost it.
    pub process: Option<ProcessRef>,
    /// Whose it is.
    pub uid: Option<u32>,
    /// Who admitted it; the same caller asking again gets the same task.
    pub admitted_by: Option<u32>,
    /// Whether that was with an admin's rights.
    #[serde(default, skip_serializing_if = "is_default")]
    pub as_admin: bool,
    /// How it was found, if nobody admitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<FoundRecord>,
    /// Foreign changes put right so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub repaired: u64,
    /// What it is.
    #[serde(flatten)]
    pub labels: Labels,
    /// Higher runs sooner.
    pub priority: Priority,
    /// Behind every task that is not, whatever the priorities.
    #[serde(default, skip_serializing_if = "is_default")]
    pub opportunistic: bool,
    /// Place in the order of admission.
    pub order: Order,
    /// Where it sits.
    pub seat: Seat,
    /// When it got its slot, people's clock.
    pub admitted_at: WallTime,
    /// When it got its slot, this boot's clock.
    pub admitted_boot: BootTime,
    /// When it was last promoted.
    pub promoted_at: Option<WallTime>,
    /// Its cgroup, once there is one.
    pub group: Option<GroupRecord>,
    /// While a task from observe mode is being attached: its group before, with attachment
    /// `none`. A daemon that finds it undoes the attach and goes on from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booked: Option<GroupRecord>,
    /// The unit of systemd's whose cgroup that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<UnitRecord>,
    /// What it would have lost by leaving the unit it was started in, if it stays there for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays_because: Option<String>,
    /// Where its main process was before, per hierarchy.
    pub origin: Vec<(String, String)>,
    /// What was measured so far.
    pub meter: RateMeter,
    /// The counters at the end of `meter`'s last interval.
    pub measured: Option<(BootTime, TaskSample)>,
    /// Counters at admission, of a cgroup that had a life before.
    pub baseline: Option<TaskSample>,
    /// CPU time since admission that other counters had, before it was attached.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cpu_before: Duration,
    /// The reservation being used, to be given back if the admission fails.
    pub used: Option<ReservationRecord>,
    /// Set when a damaged file lost priority, order and labels.
    pub lost: bool,
}

/// Left out of the file, so that a task nobody discovered is stored as it always was.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl TaskRecord {
    /// Admission as both clocks saw it.
    pub fn admitted(&self) -> Moment {
        Moment { boot: self.admitted_boot, wall: self.admitted_at }
    }
}

/// What is kept of a discovery beside the task it made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundRecord {
    /// Who found it.
    pub by: Finder,
    /// What the finder said last, if it has said anything: only another word of its changes the
    /// priority, so that what an operator sets meanwhile stays.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: Option<Priority>,
    /// The same of the kind of place.
    #[serde(default, skip_serializing_if = "is_default")]
    pub standing: Option<Standing>,
    /// Which processes belong to its main process.
    pub kin: Kin,
}

/// How far an admission got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordPhase {
    /// Processes may or may not be in the cgroup; nobody was answered yet.
    Attaching,
    /// In its slot.
    Placed,
    /// Its processes are being given back.
    Releasing,
}

/// A reservation, as it has to be found again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReservationRecord {
    /// Its id.
    pub id: ReservationId,
    /// What is to come.
    #[serde(flatten)]
    pub labels: Labels,
    /// Who may use it.
    pub uid: u32,
    /// Priority of the task to come.
    pub priority: Priority,
    /// Its place in the order of admission.
    pub order: Order,
    /// Where it holds a slot.
    pub tier: Tier,
    /// When it was made.
    pub created_at: WallTime,
    /// When the promise ends, this boot's clock.
    pub expires: BootTime,
}

impl ReservationRecord {
    /// As stored.
    pub fn new(id: ReservationId, reservation: &Reservation) -> ReservationRecord {
        let Reservation { labels, uid, priority, order, tier, created_at, expires } =
            reservation.clone();
        ReservationRecord { id, labels, uid, priority, order, tier, created_at, expires }
    }

    /// As the core has it.
    pub fn reservation(self) -> (ReservationId, Reservation) {
        let ReservationRecord { id, labels, uid, priority, order, tier, created_at, expires } =
            self;
        (id, Reservation { labels, uid, priority, order, tier, created_at, expires })
    }
}

/// A record with what makes it safe to read back.
#[derive(Serialize, Deserialize)]
pub(super) struct Envelope<T> {
    pub version: u32,
    pub boot_id: String,
    pub record: T,
}
