//! What a daemon takes up again.

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
    let mut take = |occupied| adopting.group(ID, group(Attachment::Own), occupied, known.clone());
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
