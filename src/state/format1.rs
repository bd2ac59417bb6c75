//! Records of tasks in format 1, which daemons up to 0.1.0 wrote. Kept for one release, so that a
//! node upgrades under its running tasks.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::record::ReservationRecord;
use crate::core::counts::Counts;
use crate::core::model::{Labels, Order, Priority, TaskId};
use crate::core::rate::RateMeter;
use crate::core::sample::TaskSample;
use crate::core::slots::Seat;
use crate::core::task::{Attaching, Booked, GroupRecord, Hold, Life, Task, Who};
use crate::units::{BootTime, Moment, WallTime};

#[derive(Deserialize)]
struct Record {
    id: TaskId,
    phase: Phase,
    #[serde(flatten)]
    labels: Labels,
    #[serde(flatten)]
    who: Who,
    uid: Option<u32>,
    #[serde(default)]
    repaired: u64,
    priority: Priority,
    #[serde(default)]
    opportunistic: bool,
    order: Order,
    seat: Seat,
    admitted_at: WallTime,
    admitted_boot: BootTime,
    promoted_at: Option<WallTime>,
    group: Option<GroupRecord>,
    #[serde(default)]
    booked: Option<GroupRecord>,
    meter: RateMeter,
    measured: Option<(BootTime, TaskSample)>,
    baseline: Option<TaskSample>,
    #[serde(default)]
    cpu_before: Duration,
    used: Option<ReservationRecord>,
    lost: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Phase {
    Attaching,
    Placed,
    Releasing,
}

/// A record as a task.
pub(super) fn read(record: Value) -> Result<Task, serde_json::Error> {
    let old: Record = serde_json::from_value(record)?;
    let baseline = old.baseline;
    let life = match old.phase {
        Phase::Attaching => Life::Attaching(Attaching {
            reason: String::new(),
            used: old.used.map(|used| (used.id, used.reservation)),
            booked: old.booked.map(|group| Booked { group, baseline }),
        }),
        Phase::Placed => Life::Placed(Hold::Kept),
        Phase::Releasing => Life::Releasing(Hold::Kept),
    };
    Ok(Task {
        id: old.id,
        labels: old.labels,
        who: old.who,
        uid: old.uid,
        priority: old.priority,
        opportunistic: old.opportunistic,
        order: old.order,
        seat: old.seat,
        life,
        admitted_at: Moment { boot: old.admitted_boot, wall: old.admitted_at },
        admitted_event: None,
        promoted_at: old.promoted_at,
        group: old.group,
        counts: Counts {
            meter: old.meter,
            opened: old.measured,
            baseline,
            cpu_before: old.cpu_before,
            ..Counts::default()
        },
        repaired: old.repaired,
        repairs: VecDeque::new(),
        main_exited: false,
        lost: old.lost,
    })
}
