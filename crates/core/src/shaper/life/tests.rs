use super::*;
use crate::model::{Labels, ReservationId};
use crate::state::{Lease, Need, Policy, Request, Restored};
use crate::step::{Answer, Input, Step, Ticket, Whither};
use crate::task::Who;
use crate::task::{Finder, FoundRecord};
use crate::unit::{UnitRecord, Weights};
use crate::units::{Pid, ProcessRef};

fn shaper() -> Shaper {
    Shaper::new(Policy::simulated(), 2, Restored::default())
}

fn feed(shaper: &mut Shaper, input: Input) -> Step {
    shaper.handle(input, Moment::default())
}

fn who() -> Who {
    let process = ProcessRef { pid: Pid::new(7).unwrap(), start_ticks: 1 };
    Who { process: Some(process), ..Who::default() }
}

fn ask(shaper: &mut Shaper, who: Who, need: Need, reservation: Option<ReservationId>) -> TaskId {
    let labels = Labels::default();
    let (uid, priority, opportunistic) = (1, None, false);
    let by_member = false;
    let request =
        Request { uid, who, labels, priority, reservation, need, opportunistic, by_member };
    let step = feed(shaper, Input::Request { ticket: Ticket(2), request, patience: None });
    match step.jobs.as_slice() {
        [Job::Prepare { task, .. }] => *task,
        other => panic!("not admitted: {other:?} {:?}", step.answers),
    }
}

/// A unit that is being admitted with a promise.
fn unit_with_promise(shaper: &mut Shaper) -> (TaskId, ReservationId) {
    let labels = Labels::default();
    let (uid, priority) = (1, Priority(0));
    let (ticket, lease, patience) = (Ticket(1), Lease::one(None), None);
    let by_member = false;
    let reserve = Input::Reserve { ticket, uid, by_member, labels, priority, lease, patience };
    let answers = feed(shaper, reserve).answers;
    let [(_, Answer::Reserved(promised))] = &answers[..] else { panic!("{answers:?}") };
    let promise = promised[0];
    let unit = UnitRecord {
        name: "a.service".parse().unwrap(),
        control_group: "/system.slice/a.service".into(),
        found: Weights::default(),
    };
    let who = Who { unit: Some(unit), ..who() };
    (ask(shaper, who, Need::Slot, Some(promise)), promise)
}

#[test]
fn the_record_of_a_failed_unit_admission_has_no_promise_any_more() {
    let mut shaper = shaper();
    let (id, promise) = unit_with_promise(&mut shaper);
    feed(&mut shaper, Input::Prepared { task: id, ready: Ready::default() });
    assert!(shaper.stored_task(id).unwrap().promise().is_some());
    let step = feed(&mut shaper, Input::AttachFailed { task: id, reason: "no".into() });
    let stored: Vec<Record> = step.records.into_iter().collect();
    assert_eq!(stored, [Record::Reservation(promise), Record::Task(id)], "in this order");
    assert_eq!(shaper.stored_tasks().map(|task| task.id).collect::<Vec<_>>(), [id], "to try again");
    assert_eq!(shaper.stored_task(id).unwrap().promise(), None, "else it is promised twice");
    assert!(shaper.task(id).is_none() && shaper.reservation(promise).is_some());
    let step = feed(&mut shaper, Input::Removed(id));
    assert!(step.forget.contains(&Record::Task(id)) && shaper.stored_task(id).is_none());
}

#[test]
fn a_unit_without_a_recorded_admission_gets_nothing_back() {
    let mut shaper = shaper();
    let (id, _) = unit_with_promise(&mut shaper);
    assert!(!shaper.task(id).unwrap().owes_unit(), "systemd was sent nothing");
    let step = feed(&mut shaper, Input::AttachFailed { task: id, reason: "no".into() });
    assert!(step.forget.contains(&Record::Task(id)) && shaper.stored_task(id).is_none());
    let (id, _) = unit_with_promise(&mut shaper);
    feed(&mut shaper, Input::Prepared { task: id, ready: Ready::default() });
    assert!(shaper.task(id).unwrap().owes_unit());
    // Its record failed: nothing was begun.
    feed(&mut shaper, Input::NotRecorded(id));
    assert!(!shaper.task(id).unwrap().owes_unit());
    // The second one did, and systemd was asked after the first.
    feed(&mut shaper, Input::Prepared { task: id, ready: Ready::default() });
    feed(&mut shaper, Input::Prepared { task: id, ready: Ready::default() });
    feed(&mut shaper, Input::NotRecorded(id));
    assert!(shaper.task(id).unwrap().owes_unit());
}

fn group(path: &str, attachment: Attachment) -> GroupRecord {
    GroupRecord {
        attachment,
        path: path.to_owned(),
        inode: 2,
        origin: Default::default(),
        found: Vec::new(),
        elsewhere: Vec::new(),
        for_member: false,
    }
}

/// Whether the finder of a task, of which the main process runs on, must leave that alone after
/// `inputs`.
fn left_alone(inputs: impl Fn(TaskId) -> Vec<Input>) -> bool {
    let mut shaper = shaper();
    let found = FoundRecord { by: Finder::Yarn, priority: None, standing: None, kin: Kin::Session };
    let who = Who { found: Some(found), ..who() };
    let id = ask(&mut shaper, who, Need::Discovered, None);
    let group = group("/lrs/1", Attachment::Own);
    feed(&mut shaper, Input::Prepared { task: id, ready: Ready::default() });
    feed(&mut shaper, Input::Attached { task: id, group, born: TaskSample::default() });
    let jobs = inputs(id).into_iter().flat_map(|input| feed(&mut shaper, input).jobs);
    let removed = jobs.filter_map(|job| match job {
        Job::Remove { leave_alone, .. } => Some(leave_alone),
        _ => None,
    });
    let removed: Vec<bool> = removed.collect();
    let [leave_alone] = removed[..] else { panic!("{removed:?}") };
    leave_alone
}

#[test]
fn only_who_was_released_is_not_to_be_found_again() {
    assert!(left_alone(|id| vec![Input::Release(id), Input::Released(id)]));
    // Moved out while no daemon looked: it is over as a task, and no client wanted that.
    let away = |id| vec![Input::Ended(vec![id]), Input::Figures(vec![(id, Last::Away)])];
    assert!(!left_alone(away));
    let gone = |id| vec![Input::MainExited(id), Input::Release(id), Input::Released(id)];
    assert!(!left_alone(gone), "it has ended");
}

/// A task in a group of its own; its last process went into `/scope`.
fn gone_elsewhere(shaper: &mut Shaper, whither: Whither) -> TaskId {
    let id = ask(shaper, who(), Need::Slot, None);
    feed(shaper, Input::Prepared { task: id, ready: Ready::default() });
    let group = group("/lrs/1", Attachment::Own);
    feed(shaper, Input::Attached { task: id, group, born: TaskSample::default() });
    feed(shaper, Input::WentElsewhere { task: id, to: "/scope".into(), whither });
    id
}

/// The event that tells of its end, and the group it names.
fn end(shaper: &mut Shaper, id: TaskId) -> (EventKind, bool) {
    feed(shaper, Input::Ended(vec![id]));
    let step = feed(shaper, Input::Figures(vec![(id, Last::Unread)]));
    assert!(shaper.task(id).is_none());
    let event = step.events.iter().find(|event| event.task == Some(id.to_string())).unwrap();
    (event.kind, event.reason.as_ref().is_some_and(|reason| reason.contains("/scope")))
}

#[test]
fn a_task_that_cannot_go_on_where_it_went_has_left() {
    let mut shaper = shaper();
    let id = gone_elsewhere(&mut shaper, Whither::Away);
    assert_eq!(end(&mut shaper, id), (EventKind::Left, true));

    let follow = |shaper: &mut Shaper| {
        let id = gone_elsewhere(shaper, Whither::InPlace);
        let (origin, kin) = Default::default();
        feed(shaper, Input::AttachBooked { task: id, origin, kin, followed: true });
        feed(shaper, Input::Prepared { task: id, ready: Ready::default() });
        id
    };
    let id = follow(&mut shaper);
    feed(&mut shaper, Input::AttachFailed { task: id, reason: "its weight is read-only".into() });
    assert_eq!(end(&mut shaper, id), (EventKind::Left, true));

    let id = follow(&mut shaper);
    let there = group("/scope", Attachment::InPlace);
    feed(&mut shaper, Input::Attached { task: id, group: there, born: TaskSample::default() });
    assert_eq!(end(&mut shaper, id).0, EventKind::Completed);
    assert_eq!(shaper.totals().left, 2);
}
