//! P. Lu, thesis 2015: layering (3.3.3, Alg. 1), the dispatcher (4.3.2.2, Alg. 2), WCO (Fig. 2.5), and
//! Hadoop's FIFO that all of them build on (Zaharia et al. 2010, section 2).

use super::*;

#[test]
fn layering_never_fills_both_tiers_in_one_cycle() {
    // 3.3.3: no map goes to a passive slot in a cycle in which one went to an active slot
    let maps = [("m0", ""), ("m1", ""), ("m2", ""), ("m3", "")];
    let cluster = cluster(&[(2, 2), (2, 2)], vec![job("j", 0, &maps)]);
    assert_eq!(starts("layering", &cluster), ["j/m0@a+", "j/m1@a+", "j/m2@b+", "j/m3@b+"]);
}

#[test]
fn layering_compares_with_the_lowest_priority_of_the_heartbeat() {
    // stage 2: what is above the lowest active priority, as the heartbeat has it; then what is local
    let jobs = vec![
        runs(job("low", 0, &[("m9", "")]), "m9", "a"),
        job("mid", 0, &[("m0", "b")]),
        job("late", 0, &[("m0", "a")]),
        job("hi", 5, &[("m0", "b"), ("m1", "b")]),
    ];
    let cluster = cluster(&[(1, 3), (0, 0)], jobs);
    assert_eq!(starts("layering", &cluster), ["hi/m0@a-", "hi/m1@a-", "late/m0@a-"]);
}

#[test]
fn layering_leaves_room_for_reduces() {
    // TR is 4 slots x 2 maps / 4 tasks; one reduce a heartbeat, before the maps
    let tasks = [("m0", ""), ("m1", ""), ("r0", ""), ("r1", "")];
    let cluster = cluster(&[(4, 0)], vec![job("j", 0, &tasks)]);
    assert_eq!(starts("layering", &cluster), ["j/r0@a+", "j/m0@a+", "j/m1@a+", "j/r1@a+"]);
}

#[test]
fn layering_takes_a_reduce_above_the_lowest_active_priority_only() {
    let jobs = vec![
        runs(job("running", 5, &[("m9", "")]), "m9", "a"),
        job("equal", 5, &[("r0", "")]),
        job("higher", 6, &[("r0", "")]),
    ];
    assert_eq!(starts("layering", &cluster(&[(1, 2)], jobs)), ["higher/r0@a-"]);
}

#[test]
fn layering_has_the_time_of_arrival_for_a_priority() {
    // 3.3.3: where a user gives none, a job's priority is its timestamp: the earlier is above the later
    let mut jobs = vec![
        job("early", 0, &[("r0", "")]),
        runs(job("late", 0, &[("m9", ""), ("r0", "")]), "m9", "a"),
    ];
    jobs[1].arrived = 5.0;
    assert_eq!(starts("layering", &cluster(&[(1, 2)], jobs)), ["early/r0@a-"]);
}

#[test]
fn the_dispatcher_fills_one_tier_a_heartbeat() {
    let maps = [("m0", ""), ("m1", ""), ("m2", ""), ("m3", "")];
    let cluster = cluster(&[(2, 2), (2, 2)], vec![job("j", 0, &maps)]);
    assert_eq!(starts("lrs", &cluster), ["j/m0@a+", "j/m1@a+", "j/m2@b+", "j/m3@b+"]);
}

#[test]
fn the_dispatcher_takes_local_maps_of_any_job_for_passive_slots() {
    let jobs = vec![
        runs(job("o", 0, &[("m9", "")]), "m9", "a"),
        job("x", 0, &[("m0", "b")]),
        job("y", 0, &[("m0", "a")]),
        job("z", 0, &[("m0", "a")]),
    ];
    let two = cluster(&[(1, 2), (0, 0)], jobs.clone());
    assert_eq!(starts("lrs", &two), ["y/m0@a-", "z/m0@a-"]);
    let three = cluster(&[(1, 3), (0, 0)], jobs);
    assert_eq!(starts("lrs", &three), ["y/m0@a-", "z/m0@a-", "x/m0@a-"]);
}

#[test]
fn the_dispatcher_takes_one_reduce_first() {
    let cluster = cluster(&[(2, 1)], vec![job("j", 0, &[("m0", ""), ("r0", ""), ("r1", "")])]);
    assert_eq!(starts("lrs", &cluster), ["j/r0@a+", "j/m0@a+", "j/r1@a-"]);
}

#[test]
fn fifo_takes_the_nearest_map_of_the_first_job() {
    let jobs = vec![job("j", 0, &[("m0", "b"), ("m1", "a")])];
    assert_eq!(starts("fifo", &cluster(&[(1, 0), (1, 0)], jobs)), ["j/m1@a+", "j/m0@b+"]);
    // in the rack before elsewhere
    let jobs = vec![job("j", 0, &[("m0", "d"), ("m1", "b")])];
    assert_eq!(together("fifo", &four_nodes([1, 0, 0, 0], jobs)), ["j/m1@a+"]);
}

#[test]
fn fifo_asks_priority_then_the_time_of_submission() {
    let mut jobs = vec![job("j", 0, &[("m0", "")]), job("k", 0, &[("m0", "")])];
    jobs[0].arrived = 5.0;
    assert_eq!(starts("fifo", &cluster(&[(1, 0)], jobs.clone())), ["k/m0@a+"]);
    jobs[0].priority = 1;
    assert_eq!(starts("fifo", &cluster(&[(1, 0)], jobs)), ["j/m0@a+"]);
}

#[test]
fn fifo_takes_the_first_job_far_from_its_input_before_a_later_one_at_its_own() {
    let jobs = vec![job("j", 0, &[("m0", "b")]), job("k", 0, &[("m0", "a")])];
    assert_eq!(starts("fifo", &cluster(&[(1, 0), (0, 0)], jobs)), ["j/m0@a+"]);
}

fn rated(name: &str, rate: f64, tasks: &[(&str, &str)]) -> JobInput {
    JobInput { computing_rate: Some(rate), ..job(name, 0, tasks) }
}

#[test]
fn wco_samples_before_anything_else() {
    // Fig. 2.5, first loop; 2.4.1: the random strategy takes tasks in the order of their arrival
    let known = rated("known", 0.5, &[("m0", "a"), ("m1", "a")]);
    let new = job("new", 0, &[("m0", "b"), ("m1", "a")]);
    assert_eq!(starts("wco", &cluster(&[(1, 0), (0, 0)], vec![known, new])), ["new/m0@a+"]);
}

#[test]
fn wco_starts_what_brings_the_node_nearer_to_the_mean() {
    // second loop: (0.9 + 0.9) / 2 is not below 0.5 + 0.1, (0.1 + 0.9) / 2 is
    let computing = runs(rated("c", 0.9, &[("m0", ""), ("m1", "")]), "m0", "a");
    let io = rated("i", 0.1, &[("m0", ""), ("m1", ""), ("m2", "")]);
    assert_eq!(starts("wco", &cluster(&[(2, 0)], vec![computing, io])), ["i/m0@a+"]);
}

#[test]
fn wco_starts_anything_once_slots_outnumber_tasks() {
    // third loop: the resources are more than the tasks that were submitted; as many is not more
    let computing = |waiting: usize| {
        let tasks = [("m0", ""), ("m1", ""), ("m2", "")];
        let mut jobs = vec![runs(rated("c", 0.9, &tasks[..1 + waiting]), "m0", "a")];
        jobs.push(runs(rated("i", 0.1, &[("m0", "")]), "m0", "b"));
        starts("wco", &cluster(&[(3, 0), (1, 0)], jobs))
    };
    assert_eq!(computing(1), ["c/m1@a+"]);
    assert!(computing(2).is_empty());
}
