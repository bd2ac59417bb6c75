//! Turn by turn: the rows of docs/architecture.md, "The life of a task", and what becomes of each failure.

use std::time::Duration;

use super::bench::MEMBER;
use super::{Bench, Call, Method};
use lrs_api::proto::Tier;
use lrs_core::event::EventKind;
use lrs_core::model::{Level, Priority, TaskId};
use lrs_core::recording::Entry;
use lrs_core::state::Lease;
use lrs_core::step::Record;
use lrs_executor::command::{Caller, Command, ErrorKind, QueueId, ReserveRequest, Wait};
use lrs_sim::pretend::HOME;

pub(super) fn group(id: TaskId) -> String {
    format!("{}/{id}", lrs_sim::pretend::ROOT)
}

pub(super) fn weigh(id: TaskId, level: Level) -> Call {
    Call::Weigh(group(id), level)
}

fn append(kind: EventKind, id: TaskId) -> Call {
    Call::Append(kind, Some(id))
}

/// The end of a task in the order of its step, without what became of others.
fn cleaned_up(id: TaskId) -> [Call; 4] {
    [
        Call::Unwatch(id),
        Call::Begin("remove", Some(id)),
        Call::Forget(Record::Task(id)),
        append(EventKind::Exit, id),
    ]
}

/// What the thread does after that, on its own.
fn removed(id: TaskId) -> Call {
    Call::Remove(group(id))
}

const FIRST: TaskId = TaskId { epoch: 0, number: 0 };

#[test]
fn a_task_is_recorded_then_attached_then_admitted_then_answered() {
    // With two passive tasks for an active one, its weight is not the one that groups are made with.
    let mut bench = Bench::new(1, 2);
    let process = bench.world().start(MEMBER);
    let mut answer = bench.admit(process, Wait::No);
    bench.saw(&[Call::PutTask(FIRST), Call::Begin("attach", Some(FIRST))]);
    assert!(answer.try_recv().is_err(), "not before it is in place");
    assert_eq!(bench.shown(FIRST), None);
    bench.finish();
    bench.saw(&[
        Call::Make(group(FIRST)),
        weigh(FIRST, Level::Active),
        Call::Move(process.pid),
        append(EventKind::Admitted, FIRST),
        Call::PutTask(FIRST),
        Call::Watch(FIRST, process.pid),
    ]);
    let task = answer.try_recv().unwrap().unwrap();
    assert_eq!((task.tier(), task.pid), (Tier::Active, Some(process.pid.raw())));
    assert_eq!(bench.shown(FIRST).unwrap().id, task.id, "who was answered reads the change");
}

#[test]
fn an_end_promotes_first_and_is_cleaned_up_last() {
    let mut bench = Bench::new(1, 1);
    let (first, process) = bench.task();
    let (second, _) = bench.task();
    bench.end(process.pid);
    let mut expected = vec![
        weigh(second, Level::Active),
        append(EventKind::Completed, first),
        append(EventKind::Promoted, second),
        Call::PutTask(second),
    ];
    expected.extend(cleaned_up(first));
    bench.saw(&expected);
    assert_eq!(bench.shown(second).unwrap().tier(), Tier::Active);
    bench.finish();
    bench.saw(&[removed(first)]);
}

#[test]
fn tasks_that_end_in_one_turn_are_not_promoted_into_each_others_slots() {
    let mut bench = Bench::new(1, 2);
    let tasks = [bench.task(), bench.task(), bench.task()];
    for (_, process) in &tasks[..2] {
        bench.world().exit(process.pid, 0);
    }
    bench.turn(Vec::new());
    bench.saw_among(&[weigh(tasks[2].0, Level::Active)]);
    let kinds = bench.events_of(tasks[1].0);
    assert!(!kinds.contains(&EventKind::Promoted), "{kinds:?}");
}

#[test]
fn a_task_is_over_with_the_last_of_its_processes() {
    let mut bench = Bench::new(1, 1);
    let (id, main) = bench.task();
    let child = bench.world().fork(main.pid).unwrap();
    bench.end(main.pid);
    bench.saw(&[Call::Watch(id, child.pid), append(EventKind::Exit, id), Call::PutTask(id)]);
    assert!(bench.shown(id).unwrap().main_exited);
    bench.end(child.pid);
    bench.saw(&[
        append(EventKind::Completed, id),
        Call::Unwatch(id),
        Call::Begin("remove", Some(id)),
        Call::Forget(Record::Task(id)),
    ]);
    assert_eq!(bench.shown(id), None);
}

#[test]
fn who_waits_gets_the_slot_that_comes_free() {
    let mut bench = Bench::new(1, 0);
    let (_, process) = bench.task();
    let waiter = bench.world().start(MEMBER);
    let mut answer = bench.admit(waiter, Wait::Forever);
    bench.finish_all();
    assert!(answer.try_recv().is_err());
    assert_eq!(bench.status().waiting, 1);
    bench.take_calls();
    bench.end(process.pid);
    let id = answer.try_recv().unwrap().unwrap().id.parse().unwrap();
    // It has waited in the group made for it, so that no move is in the way.
    assert_eq!(bench.world().group_of(waiter.pid), Some(&*group(id)));
    assert_eq!(bench.world().level(&group(id)), Some(Level::Active));
    bench.saw_among(&[append(EventKind::Admitted, id)]);
    assert_eq!(bench.status().waiting, 0);
}

#[test]
fn a_slot_gap_ends_when_the_task_that_waited_is_in_place() {
    for is_parked in [true, false] {
        let mut bench = Bench::new(1, 0);
        let (_, process) = bench.task();
        assert!(bench.daemon().began().is_empty(), "it had not to wait");
        let waiter = bench.world().start(MEMBER);
        let mut answer = bench.admit(waiter, Wait::Forever);
        if is_parked {
            bench.finish_all();
        }
        let free = bench.now().boot;
        bench.end(process.pid);
        while answer.try_recv().is_err() {
            assert!(!is_parked && bench.daemon().began().is_empty());
            assert!(bench.finish(), "its process is never in place");
        }
        assert_eq!(bench.daemon().began(), [free]);
        bench.turn(Vec::new());
        assert!(bench.daemon().began().is_empty(), "each counts once");
        bench.take_calls();
    }
}

#[test]
fn a_waiter_without_a_client_is_put_back() {
    let mut bench = Bench::new(1, 0);
    bench.task();
    let waiter = bench.world().start(MEMBER);
    let answer = bench.admit(waiter, Wait::Forever);
    bench.finish_all();
    assert_ne!(bench.world().group_of(waiter.pid), Some(HOME));
    drop(answer);
    bench.finish_all();
    assert_eq!(bench.world().group_of(waiter.pid), Some(HOME));
    assert_eq!((bench.status().waiting, bench.world().tasks.len()), (0, 1));
    bench.take_calls();
}

#[test]
fn a_release_is_answered_when_the_processes_are_back() {
    let mut bench = Bench::new(1, 1);
    let (id, process) = bench.task();
    let mut answer = bench.order(|caller, reply| Command::Release { caller, id, reply });
    bench.saw(&[Call::PutTask(id), Call::Begin("release", Some(id))]);
    assert!(answer.try_recv().is_err());
    bench.finish();
    bench.saw(&[
        Call::Move(process.pid),
        removed(id),
        append(EventKind::Released, id),
        Call::Unwatch(id),
        Call::Forget(Record::Task(id)),
    ]);
    assert_eq!(answer.try_recv().unwrap(), Ok(()));
    assert_eq!(bench.world().group_of(process.pid), Some(HOME));
}

#[test]
fn a_reservation_is_stored_before_it_is_promised() {
    let mut bench = Bench::new(1, 1);
    let reserve = |caller, reply| Command::Reserve {
        caller,
        request: ReserveRequest {
            labels: Default::default(),
            priority: Priority(0),
            lease: Lease::one(None),
            wait: Wait::No,
        },
        reply,
    };
    bench.world().deeds.refuse(Method::PutReservation, 1);
    let mut refused = bench.order(reserve);
    assert_eq!(refused.try_recv().unwrap().unwrap_err().kind, ErrorKind::Internal);
    assert_eq!(bench.status().slots.unwrap().active.unwrap().reserved, 0, "taken back");
    let mut promised = bench.order(reserve);
    let promised = promised.try_recv().unwrap().unwrap();
    let id = promised.id.parse().unwrap();
    bench.saw_among(&[Call::PutReservation(id)]);
    let mut cancelled = bench.order(|caller, reply| Command::CancelReservation {
        caller,
        id: QueueId::Reservation(id),
        reply,
    });
    assert_eq!(cancelled.try_recv().unwrap(), Ok(()));
    bench.saw_among(&[Call::Forget(Record::Reservation(id))]);
}

#[test]
fn a_stop_leaves_the_tasks_and_their_records() {
    let mut bench = Bench::new(1, 1);
    let (id, process) = bench.task();
    let now = bench.now();
    bench.daemon().begin_end(now);
    bench.daemon().end(Vec::new(), now);
    bench.saw_among(&[Call::Append(EventKind::Stopped, None), Call::PutTask(id)]);
    assert_eq!(bench.world().group_of(process.pid), Some(&*group(id)));
    assert!(bench.world().tasks.contains_key(&id));
}

#[test]
fn what_is_attached_while_the_daemon_stops_counts() {
    let mut bench = Bench::new(1, 1);
    let process = bench.world().start(MEMBER);
    let mut answer = bench.admit(process, Wait::No);
    let now = bench.now();
    bench.daemon().begin_end(now);
    let messages = bench.world().finish().unwrap();
    bench.daemon().end(messages, now);
    assert!(answer.try_recv().unwrap().is_ok());
    bench.saw_among(&[append(EventKind::Admitted, FIRST)]);
    let mut bench = bench.restart();
    assert!(bench.shown(FIRST).is_some());
    bench.take_calls();
}

#[test]
fn a_client_that_goes_during_the_attach_leaves_its_task() {
    let mut bench = Bench::new(1, 1);
    let process = bench.world().start(MEMBER);
    drop(bench.admit(process, Wait::No));
    bench.finish_all();
    assert!(bench.shown(FIRST).is_some());
    bench.take_calls();
}

#[test]
fn asking_again_gives_the_same_task() {
    let mut bench = Bench::new(1, 1);
    let (id, process) = bench.task();
    let mut again = bench.admit(process, Wait::No);
    assert_eq!(again.try_recv().unwrap().unwrap().id, id.to_string());
    let one = bench.world().start(MEMBER);
    let (mut first, mut second) = (bench.admit(one, Wait::No), bench.admit(one, Wait::No));
    bench.finish_all();
    let ids = [first.try_recv(), second.try_recv()].map(|answer| answer.unwrap().unwrap().id);
    assert_eq!(ids[0], ids[1]);
    bench.take_calls();
}

// What becomes of a failure.

#[test]
fn who_is_not_there_is_refused_without_an_effect() {
    let mut bench = Bench::new(1, 1);
    let process = bench.world().start(MEMBER);
    bench.world().deeds.refuse(Method::Identify, 2);
    let mut answer = bench.admit(process, Wait::No);
    assert_eq!(answer.try_recv().unwrap().unwrap_err().kind, ErrorKind::NotFound);
    bench.saw(&[]);
}

#[test]
fn one_that_cannot_be_recorded_is_not_admitted() {
    let mut bench = Bench::new(1, 1);
    let process = bench.world().start(MEMBER);
    bench.world().deeds.refuse(Method::PutTask, 1);
    let mut answer = bench.admit(process, Wait::No);
    let error = answer.try_recv().unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal, "{error}");
    let begun = |call: &Call| matches!(call, Call::Begin("attach", _));
    assert!(!bench.take_calls().iter().any(begun));
    assert_eq!(bench.status().slots.unwrap().active.unwrap().used, 0);
    assert!(bench.status().warnings[0].contains("not being stored"), "until it can be");
    bench.cycle();
    assert_eq!(bench.status().warnings, [""; 0]);
    bench.take_calls();
}

#[test]
fn one_that_cannot_be_attached_leaves_nothing() {
    let mut bench = Bench::new(1, 1);
    let process = bench.world().start(MEMBER);
    bench.world().deeds.refuse(Method::Attach, 1);
    let mut answer = bench.admit(process, Wait::No);
    bench.finish_all();
    let error = answer.try_recv().unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::FailedPrecondition, "{error}");
    assert!(bench.world().tasks.is_empty());
    assert_eq!(bench.world().own_groups(), [""; 0]);
    assert_eq!(bench.status().slots.unwrap().active.unwrap().used, 0);
    bench.take_calls();
}

#[test]
fn who_is_moved_between_judgement_and_move_is_judged_anew() {
    let mut bench = Bench::new(1, 1);
    let process = bench.world().start_in("/slice", MEMBER);
    let mut answer = bench.admit(process, Wait::No);
    bench.saw_among(&[Call::Begin("attach", Some(FIRST))]);
    bench.world().move_away(process.pid, HOME);
    bench.finish();
    assert!(answer.try_recv().is_err());
    assert_eq!(bench.world().own_groups(), [""; 0], "nothing of the first is left");
    bench.saw_among(&[Call::PutTask(FIRST), Call::Begin("attach", Some(FIRST))]);
    bench.finish_all();
    assert!(answer.try_recv().unwrap().is_ok());
    assert_eq!(bench.world().group_of(process.pid), Some(&*group(FIRST)));
    // Its record has where it goes back to.
    drop(bench.order(|caller, reply| Command::Release { caller, id: FIRST, reply }));
    bench.finish_all();
    assert_eq!(bench.world().group_of(process.pid), Some(HOME));
    bench.take_calls();
}

#[test]
fn who_is_moved_again_and_again_is_refused_and_left_there() {
    let mut bench = Bench::new(1, 1);
    let process = bench.world().start_in("/slice", MEMBER);
    let mut answer = bench.admit(process, Wait::No);
    for elsewhere in [HOME, "/slice"].into_iter().cycle() {
        bench.world().move_away(process.pid, elsewhere);
        if !bench.finish() {
            break;
        }
    }
    let error = answer.try_recv().unwrap().unwrap_err();
    assert!(error.message.contains("moved meanwhile"), "{error}");
    assert!(bench.world().tasks.is_empty());
    assert_eq!(bench.world().own_groups(), [""; 0]);
    assert_eq!(bench.status().slots.unwrap().active.unwrap().used, 0);
    bench.take_calls();
}

#[test]
fn weights_that_were_not_written_are_reported_and_written_in_the_next_cycle() {
    let mut bench = Bench::new(1, 1);
    let (_, process) = bench.task();
    let (second, _) = bench.task();
    bench.world().deeds.refuse(Method::Weigh, 1);
    bench.end(process.pid);
    let promoted = bench.world().events.iter().rfind(|event| event.kind == EventKind::Promoted);
    assert!(promoted.unwrap().inputs.contains_key("weights_not_written"));
    assert_eq!(bench.world().level(&group(second)), Some(Level::Passive));
    bench.finish_all();
    bench.cycle();
    assert_eq!(bench.world().level(&group(second)), Some(Level::Active));
    bench.take_calls();
}

#[test]
fn a_group_that_cannot_be_read_keeps_its_task_until_it_can() {
    let mut bench = Bench::new(1, 1);
    let (id, process) = bench.task();
    bench.world().deeds.refuse(Method::Members, 1);
    bench.end(process.pid);
    assert!(bench.shown(id).is_some());
    bench.finish_all();
    bench.cycle();
    assert_eq!(bench.shown(id), None);
    bench.take_calls();
}

#[test]
fn one_that_is_not_watched_ends_with_the_next_cycle() {
    let mut bench = Bench::new(1, 1);
    let process = bench.world().start(MEMBER);
    bench.world().deeds.refuse(Method::Watch, 1);
    let mut answer = bench.admit(process, Wait::No);
    bench.finish_all();
    assert!(answer.try_recv().unwrap().is_ok());
    bench.end(process.pid);
    assert!(bench.shown(FIRST).is_some(), "nothing has reported it");
    bench.cycle();
    assert_eq!(bench.shown(FIRST), None);
    bench.take_calls();
}

#[test]
fn a_release_that_fails_leaves_the_task() {
    let mut bench = Bench::new(1, 1);
    let (id, process) = bench.task();
    bench.world().deeds.refuse(Method::Release, 1);
    let mut answer = bench.order(|caller, reply| Command::Release { caller, id, reply });
    bench.finish_all();
    assert!(answer.try_recv().unwrap().is_err());
    assert_eq!(bench.world().group_of(process.pid), Some(&*group(id)));
    let mut answer = bench.order(|caller, reply| Command::Release { caller, id, reply });
    bench.finish_all();
    assert_eq!(answer.try_recv().unwrap(), Ok(()));
    bench.take_calls();
}

#[test]
fn a_group_that_stays_is_removed_in_the_next_cycle() {
    let mut bench = Bench::new(1, 1);
    let (id, process) = bench.task();
    bench.world().deeds.refuse(Method::Remove, 1);
    bench.end(process.pid);
    bench.finish_all();
    assert!(bench.world().has(&group(id)));
    bench.cycle();
    assert!(!bench.world().has(&group(id)));
    bench.take_calls();
}

#[test]
fn history_that_is_not_stored_is_a_warning_until_it_is() {
    let mut bench = Bench::new(1, 1);
    let (_, process) = bench.task();
    bench.world().deeds.refuse(Method::Append, 1);
    bench.end(process.pid);
    assert!(bench.status().warnings[0].contains("not being stored"));
    bench.finish_all();
    bench.cycle();
    assert_eq!(bench.status().warnings, [""; 0]);
    bench.take_calls();
}

#[test]
fn removed_records_are_stored_anew() {
    let mut bench = Bench::new(1, 1);
    let (id, _) = bench.task();
    bench.world().tasks.clear();
    bench.cycle();
    assert!(bench.world().tasks.is_empty(), "nothing says so");
    bench.world().removed_files = true;
    bench.cycle();
    assert_eq!(bench.world().tasks.keys().collect::<Vec<_>>(), [&id]);
    assert_eq!(bench.status().warnings, [""; 0]);
    bench.take_calls();
}

#[test]
fn weights_of_a_group_that_cannot_be_shown_are_read_again() {
    let mut bench = Bench::new(1, 1);
    let (_, process) = bench.task();
    let (second, _) = bench.task();
    bench.world().deeds.refuse(Method::Show, 1);
    bench.end(process.pid);
    bench.finish_all();
    let weight = |bench: &Bench| bench.shown(second).unwrap().kernel.unwrap().cpu_weight;
    assert_eq!(weight(&bench), Some(1), "as it was read last");
    (0..4).for_each(|_| bench.cycle());
    assert_eq!(weight(&bench), Some(100));
    bench.take_calls();
}

#[test]
fn the_root_gets_its_weight_in_the_next_cycle_where_it_was_refused() {
    let mut bench = Bench::new(2, 1);
    bench.task();
    bench.world().deeds.refuse(Method::WeighRoot, 1);
    bench.task();
    let warned = |bench: &Bench| bench.status().warnings.iter().any(|it| it.contains("LRS root"));
    assert!(warned(&bench));
    bench.cycle();
    assert!(!warned(&bench));
    bench.take_calls();
}

// Strangers.

#[test]
fn a_strangers_weight_is_put_right_and_given_way_to_at_the_fourth_time() {
    let mut bench = Bench::with_cycles_of(Duration::from_secs(3), 1, 1);
    let (id, _) = bench.task();
    // It has its turn every fourth cycle, and each time once it was repaired.
    for _ in 0..8 {
        bench.world().write_foreign(&group(id));
        bench.cycle();
    }
    let kinds = bench.events_of(id);
    assert_eq!(kinds.iter().filter(|kind| **kind == EventKind::Drift).count(), 3, "{kinds:?}");
    assert!(kinds.contains(&EventKind::Contested), "{kinds:?}");
    assert!(bench.shown(id).unwrap().contested);
    bench.take_calls();
}

#[test]
fn a_process_that_a_stranger_moved_is_moved_back() {
    let mut bench = Bench::new(1, 1);
    let (id, process) = bench.task();
    bench.world().move_away(process.pid, HOME);
    (0..4).for_each(|_| bench.cycle());
    assert_eq!(bench.world().group_of(process.pid), Some(&*group(id)));
    assert!(bench.events_of(id).contains(&EventKind::Drift));
    bench.take_calls();
}

#[test]
fn what_others_froze_is_not_promoted() {
    let mut bench = Bench::new(1, 2);
    let (_, process) = bench.task();
    let ((frozen, _), (other, _)) = (bench.task(), bench.task());
    bench.world().freeze_as_stranger(&group(frozen), true);
    bench.end(process.pid);
    bench.saw_among(&[weigh(other, Level::Active)]);
    assert_eq!(bench.shown(frozen).unwrap().tier(), Tier::Passive);
}

#[test]
fn no_task_is_admitted_into_a_frozen_root() {
    let mut bench = Bench::new(1, 1);
    bench.world().freeze_root(true);
    let process = bench.world().start(MEMBER);
    let mut answer = bench.admit(process, Wait::No);
    let error = answer.try_recv().unwrap().unwrap_err();
    assert!(error.message.contains("frozen"), "{error}");
    assert!(bench.world().tasks.is_empty());
    bench.take_calls();
}

#[test]
fn what_an_owner_wrote_before_a_promotion_is_stored_before_it_is_written_over() {
    let mut bench = Bench::new(1, 1);
    let (_, active) = bench.task();
    let (id, _) = bench.task_in_place("/others/job");
    bench.world().write_foreign("/others/job");
    bench.take_calls();
    bench.end(active.pid);
    let calls = bench.take_calls();
    let stored = calls.iter().position(|call| *call == Call::PutTask(id));
    let weighed =
        calls.iter().position(|call| matches!(call, Call::Weigh(path, _) if path == "/others/job"));
    assert!(stored.unwrap() < weighed.unwrap(), "{calls:#?}");
    let found = &bench.world().tasks[&id].group.as_ref().unwrap().found;
    assert_eq!(found, &[("cpu.weight".to_owned(), "77".to_owned())]);
}

#[test]
fn an_admin_records_and_a_member_does_not() {
    let mut bench = Bench::new(1, 1);
    let member = |caller: Caller, reply| {
        let caller = Caller { uid: MEMBER, gids: vec![100], ..caller };
        Command::Record { caller, reply }
    };
    let error = bench.order(member).try_recv().unwrap().unwrap_err();
    assert_eq!(error.kind, ErrorKind::PermissionDenied);
    let order = |bench: &mut Bench| {
        bench.order(|caller, reply| Command::Record { caller, reply }).try_recv().unwrap()
    };
    let mut first = order(&mut bench).unwrap();
    assert_eq!(order(&mut bench).unwrap_err().kind, ErrorKind::FailedPrecondition);
    bench.task();
    assert!(matches!(first.try_recv(), Ok((Entry::Core(..), None))));
    assert!(matches!(first.try_recv(), Ok((Entry::Decided(_), Some(_)))));
    // One that is gone makes way for the next.
    drop(first);
    order(&mut bench).unwrap();
    bench.take_calls();
}
