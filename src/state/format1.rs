//! Records of tasks in format 1, which daemons up to 0.1.0 wrote. Kept for one release, so that a
//! node upgrades under its running tasks.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::format2::{self, Pairs};
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
    used: Option<Pairs>,
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
    let used = old.used.map(|used| serde_json::from_value(format2::reservation(used)));
    let used: Option<ReservationRecord> = used.transpose()?;
    let life = match old.phase {
        Phase::Attaching => Life::Attaching(Attaching {
            used: used.map(|used| Box::new((used.id, used.reservation))),
            booked: old.booked.map(|group| Box::new(Booked { group, baseline, followed: false })),
            ..Attaching::default()
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
        frozen: false,
        halted: None,
        main_exited: false,
        left_for: None,
        exit: None,
        lost: old.lost,
    })
}

/// `format1/*.json` were written by lrsd 0.1.0 of format 1: an own group, a group in place, a
/// reservation.
#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::core::task::Attachment;
    use crate::state::Store;

    const OWN: &str = include_str!("format1/own.json");
    const IN_PLACE: &str = include_str!("format1/in_place.json");
    const RESERVATION: &str = include_str!("format1/reservation.json");
    const BOOT: &str = "4019fa6f-862b-4253-8bcb-ff39124af171";

    fn old(text: &str) -> Value {
        let file: Value = serde_json::from_str(text).unwrap();
        file["record"].clone()
    }

    #[test]
    fn what_an_earlier_daemon_wrote_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        std::fs::create_dir(&state).unwrap();
        for (name, text) in [
            ("task-t0c9cmuw-0.json", OWN),
            ("task-t0c9cmuw-1.json", IN_PLACE),
            ("reservation-r0c9cmuw-0.json", RESERVATION),
        ] {
            std::fs::write(state.join(name), text).unwrap();
        }
        let (store, recovered) = Store::open(dir.path(), BOOT, 7).unwrap();
        assert_eq!(recovered.damaged, []);
        assert_eq!(recovered.reservations[0].reservation.priority, Priority(3));
        let [own, in_place] = &recovered.tasks[..] else { panic!("{recovered:?}") };
        assert_eq!(own.life, Life::Placed(Hold::Kept));
        assert_eq!(own.labels.job.as_ref().unwrap().as_str(), "grep");
        assert_eq!(own.who.process.unwrap().start_ticks, 1724059);
        assert_eq!((own.who.admitted_by, own.who.origin.len()), (Some(0), 5));
        assert_eq!(own.group.as_ref().unwrap().path, "/lrs-s1fix/t0c9cmuw-0.spin");
        assert!(own.counts.opened.is_some() && own.counts.baseline.is_none());
        assert_eq!(in_place.attachment(), Attachment::InPlace);
        assert_eq!(in_place.group.as_ref().unwrap().found.len(), 2);
        assert!(in_place.counts.baseline.is_some());
        // Written again they are of the format of today, and the same tasks.
        store.put_task(own).unwrap();
        let (_, again) = Store::open(dir.path(), BOOT, 7).unwrap();
        assert_eq!(again.tasks, recovered.tasks);
    }

    #[test]
    fn an_admission_that_an_earlier_daemon_had_begun_is_known_as_one() {
        let mut record = old(OWN);
        record["phase"] = json!("attaching");
        record["used"] = old(RESERVATION);
        let task = read(record.clone()).unwrap();
        let Life::Attaching(Attaching { used: Some(used), booked: None, .. }) = task.life else {
            panic!("{:?}", task.life)
        };
        assert_eq!((used.0.number, used.1.priority), (0, Priority(3)));
        record["booked"] = record["group"].clone();
        assert!(read(record.clone()).unwrap().booked().is_some());
        record["phase"] = json!("releasing");
        assert!(read(record).unwrap().is_releasing());
    }
}
