//! One scenario, with a fault before every one of its deeds in turn: the daemon is killed, the deed is
//! refused, or a stranger acts. Afterwards everything is as it has to be.

use std::collections::{BTreeMap, BTreeSet};

use super::bench::MEMBER;
use super::{Bench, Fault};
use lrs_api::proto;
use lrs_core::event::EventKind;
use lrs_core::model::TaskId;
use lrs_core::restore::Known;
use lrs_core::units::{Pid, ProcessRef};
use lrs_executor::command::{Command, Wait};
use lrs_sim::pretend::ROOT;

/// Two tasks, two that wait, an end, a release, a release of one that waits, and a stop: with the processes
/// in the order in which they are started.
fn play(bench: &mut Bench) -> [ProcessRef; 4] {
    let processes = [(); 4].map(|()| bench.world().start(MEMBER));
    let answers: Vec<_> = processes
        .iter()
        .map(|process| {
            let answer = bench.admit(*process, Wait::Forever);
            bench.finish_all();
            answer
        })
        .collect();
    let mut answers = answers.into_iter();
    let (first, second) = (answers.next().unwrap(), answers.next().unwrap());
    bench.exit_if_it_lives(processes[0]);
    bench.finish_all();
    for mut answer in [first, second] {
        let admitted = answer.try_recv().ok().and_then(Result::ok);
        if let Some(id) = admitted.and_then(|task| task.id.parse().ok()) {
            // One that is over is not found, which is an answer.
            drop(bench.order(|caller, reply| Command::Release { caller, id, reply }));
            bench.finish_all();
        }
    }
    bench.cycle();
    // The clients of the others go.
    drop(answers);
    bench.finish_all();
    bench.cycle();
    processes
}

/// Whether the last word of the history on the task is that it was released: without a record its group is
/// still known by that.
fn released(bench: &mut Bench, id: TaskId) -> bool {
    Known::from_history(id, bench.world().events.iter()).released
}

/// What holds whenever nothing is under way.
pub fn check(bench: &mut Bench, why: &str) {
    super::invariants::slots(bench.core(), why);
    super::invariants::stored(bench, why);
    let shown = bench.shown_ids();
    let known: BTreeSet<_> = bench.parked().union(&shown).copied().collect();
    let left = bench.left_behind();
    let known: BTreeSet<_> = known.union(&left).copied().collect();
    let stored: BTreeSet<_> = bench.world().tasks.keys().copied().collect();
    assert_eq!(known, stored, "{why}: what is known is what is stored");
    let promised: BTreeSet<_> = bench.world().reservations.keys().copied().collect();
    assert_eq!(bench.promised(), promised, "{why}: what is promised is what is stored");
    for id in bench.world().watched() {
        assert!(shown.contains(&id), "{why}: {id} is over and watched");
    }
    let groups: Vec<String> = bench.world().own_groups().into_iter().map(str::to_owned).collect();
    for group in &groups {
        let name = group.strip_prefix(ROOT).and_then(|rest| rest.strip_prefix('/')).unwrap();
        let id = name.parse().unwrap();
        assert!(known.contains(&id) || released(bench, id), "{why}: {group} is no task's");
    }
    for (pid, group) in bench.world().living_in() {
        let known = !group.starts_with(ROOT) || groups.iter().any(|known| known == group);
        assert!(known, "{why}: process {pid} is in {group}, which is not there");
    }
    let mut lives: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut seq = 0;
    for event in &bench.world().events {
        assert!(event.seq > seq, "{why}: {event:?} after {seq}");
        seq = event.seq;
        let Some(task) = &event.task else { continue };
        let life = lives.entry(task.clone()).or_default();
        match event.kind {
            EventKind::Admitted => life.0 += 1,
            EventKind::Completed | EventKind::Released | EventKind::Left => life.1 += 1,
            _ => {}
        }
    }
    for (task, (admitted, ended)) in lives {
        assert!(
            admitted <= 1 && ended <= admitted,
            "{why}: {task} began {admitted}, ended {ended}"
        );
    }
    let status = bench.status();
    let (active, passive) =
        status.slots.map(|it| (it.active.unwrap(), it.passive.unwrap())).unwrap();
    let used = (active.used + passive.used + passive.overflow) as usize;
    // A waiter that others froze while it was on its way back is put in place once it is thawed.
    let core = bench.core();
    let granted = |id| core.task(id).is_some_and(|task| !task.is_placed());
    let stuck = left.iter().filter(|id| granted(**id)).count();
    assert_eq!(used, shown.len() + stuck, "{why}: each task has a slot, and no slot is lost");
    let takes = status.state() == proto::NodeState::Accepting && status.warnings.is_empty();
    let waits_in_vain = status.waiting > 0 && active.free + passive.free > 0;
    assert!(!takes || !waits_in_vain, "{why}: {} wait beside free slots", status.waiting);
    for id in shown {
        if let Some((wanted, found)) = bench.levels(id) {
            assert_eq!(found, wanted, "{why}: the weights of {id}");
        }
    }
}

/// Everything that runs ends, and nothing is left.
pub fn wind_up(mut bench: Bench, why: &str) {
    bench.finish_all();
    (0..5).for_each(|_| bench.cycle());
    check(&mut bench, why);
    for (pid, _) in bench.living() {
        bench.world().exit(pid, 0);
    }
    bench.finish_all();
    (0..5).for_each(|_| bench.cycle());
    check(&mut bench, why);
    assert_eq!(bench.world().own_groups(), [""; 0], "{why}");
    assert!(bench.shown_ids().is_empty(), "{why}");
    bench.take_calls();
}

/// The deeds of the scenario where nothing goes wrong.
fn deeds() -> usize {
    let mut bench = Bench::new(1, 1);
    let before = bench.world().deeds.count;
    play(&mut bench);
    let deeds = bench.world().deeds.count - before;
    bench.take_calls();
    wind_up(bench, "without a fault");
    assert!(deeds > 40, "{deeds}");
    deeds
}

/// Those of the processes of the scenario.
fn pids() -> [Pid; 4] {
    [2, 3, 4, 5].map(|number| Pid::new(number).unwrap())
}

fn with(at: usize, fault: Fault) -> Bench {
    let mut bench = Bench::new(1, 1);
    let before = bench.world().deeds.count;
    bench.world().deeds.fault = Some((before + at, fault));
    let processes = play(&mut bench);
    assert_eq!(bench.world().deeds.fault, None, "{fault:?} has happened before deed {at}");
    assert_eq!(processes.map(|process| process.pid), pids());
    bench
}

#[test]
fn killed_before_every_deed() {
    for at in 0..deeds() {
        let bench = with(at, Fault::Kill).restart();
        wind_up(bench, &format!("killed before deed {at}"));
    }
}

#[test]
fn refused_at_every_deed() {
    for at in 0..deeds() {
        wind_up(with(at, Fault::Refuse), &format!("deed {at} refused"));
    }
}

#[test]
fn refused_at_every_deed_and_killed_afterwards() {
    for at in 0..deeds() {
        let bench = with(at, Fault::Refuse).restart();
        wind_up(bench, &format!("deed {at} refused, then killed"));
    }
}

#[test]
fn a_stranger_acts_before_every_deed() {
    for at in 0..deeds() {
        for pid in pids() {
            for fault in [Fault::Exit(pid), Fault::Move(pid), Fault::Write(pid)] {
                wind_up(with(at, fault), &format!("{fault:?} before deed {at}"));
            }
        }
    }
}
