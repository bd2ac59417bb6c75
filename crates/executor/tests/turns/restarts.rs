//! What the next daemon makes of what one left that was killed, case by case; `every_point` and `lives` look
//! for the cases that are not thought of here.

use lrs_sim::tree::NEUTRAL;

use super::turns::{group, weigh};
use super::{Bench, Call, Method};
use lrs_api::proto::Tier;
use lrs_core::model::Level;
use lrs_core::task::Life;
use lrs_executor::command::Command;
use lrs_sim::pretend::{Fault, HOME};

#[test]
fn the_next_daemon_goes_on_and_writes_no_weight_that_fits() {
    let mut bench = Bench::new(1, 1);
    let (first, process) = bench.task();
    let (second, _) = bench.task();
    let mut bench = bench.restart();
    let weighed = |call: &Call| matches!(call, Call::Weigh(..) | Call::Make(_) | Call::Move(_));
    assert!(!bench.start.iter().any(weighed));
    assert_eq!(bench.shown(first).unwrap().tier(), Tier::Active);
    bench.end(process.pid);
    bench.saw_among(&[weigh(second, Level::Active)]);
}

#[test]
fn a_task_that_lrs_could_not_thaw_is_not_released_until_it_is() {
    let mut bench = Bench::new(1, 1);
    let _active = bench.task();
    let (id, process) = bench.task();
    bench.world().tasks.get_mut(&id).unwrap().frozen = true;
    bench.world().freeze_as_stranger(&group(id), true);
    let mut bench = bench.restart_with(|world| world.deeds.refuse(Method::Freeze, 2));
    assert!(bench.world().tasks[&id].frozen, "for the next daemon");
    let release = |caller, reply| Command::Release { caller, id, reply };
    let mut refused = bench.order(release);
    bench.finish_all();
    let error = refused.try_recv().unwrap().unwrap_err();
    assert!(error.message.contains("could not be thawed"), "{error}");
    bench.cycle();
    bench.saw_among(&[Call::Freeze(group(id), false)]);
    let mut released = bench.order(release);
    bench.finish_all();
    assert_eq!(released.try_recv().unwrap(), Ok(()));
    assert_eq!(bench.world().group_of(process.pid), Some(HOME));
    bench.take_calls();
}

#[test]
fn a_release_that_a_kill_cut_short_thaws_what_lrs_froze() {
    let mut bench = Bench::new(1, 1);
    let (id, process) = bench.task();
    drop(bench.order(|caller, reply| Command::Release { caller, id, reply }));
    bench.world().tasks.get_mut(&id).unwrap().frozen = true;
    bench.world().freeze_as_stranger(&group(id), true);
    let mut bench = bench.restart();
    assert_eq!(bench.world().group_of(process.pid), Some(HOME));
    assert!(bench.world().tasks.is_empty() && bench.world().own_groups().is_empty());
}

#[test]
fn a_release_that_was_not_stored_at_once_is_known_to_the_next_daemon() {
    let mut bench = Bench::new(1, 1);
    let (id, process) = bench.task();
    bench.world().freeze_as_stranger(&group(id), true);
    bench.world().deeds.refuse(Method::PutTask, 1);
    drop(bench.order(|caller, reply| Command::Release { caller, id, reply }));
    bench.finish_all();
    bench.cycle();
    assert!(matches!(bench.world().tasks[&id].life, Life::Releasing(_)));
    let mut bench = bench.restart();
    assert_eq!(bench.shown(id), None);
    bench.end(process.pid);
    bench.cycle();
    bench.finish_all();
    assert!(bench.world().tasks.is_empty() && bench.world().own_groups().is_empty());
    bench.take_calls();
}

#[test]
fn a_group_in_place_gets_its_weights_back_wherever_a_release_is_cut_short() {
    for point in 0..12 {
        let mut bench = Bench::new(1, 1);
        let _active = bench.task();
        let (id, _) = bench.task_in_place("/others/job");
        let at = bench.world().deeds.count + point;
        bench.world().deeds.fault = Some((at, Fault::Kill));
        drop(bench.order(|caller, reply| Command::Release { caller, id, reply }));
        bench.finish_all();
        let mut bench = bench.restart();
        let group = bench.world().node().tree.at("/others/job").unwrap();
        let weights = bench.world().node().tree.groups()[&group].weights;
        let is_task = bench.shown(id).is_some();
        assert_eq!(weights == NEUTRAL, !is_task, "killed before deed {point}");
        assert_eq!(bench.world().tasks.contains_key(&id), is_task, "killed before deed {point}");
        bench.take_calls();
    }
}

#[test]
fn a_group_that_cannot_be_given_back_at_the_start_keeps_its_record() {
    let mut bench = Bench::new(1, 1);
    let (id, process) = bench.task();
    let record = bench.world().tasks[&id].clone();
    bench.end(process.pid);
    bench.finish_all();
    bench.world().tasks.insert(id, record);
    let path = group(id);
    bench.world().node().tree.make(&path);
    let mut bench = bench.restart_with(|world| world.deeds.refuse(Method::Remove, 1));
    assert!(bench.world().own_groups().contains(&&*path));
    let mut bench = bench.restart();
    assert!(bench.world().tasks.is_empty() && bench.world().own_groups().is_empty());
    bench.take_calls();
}
