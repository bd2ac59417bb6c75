//! Zaharia et al., EuroSys 2010: naive fair sharing (Alg. 1), a count of skips (Alg. 2), waits (Alg. 3
//! and section 4.1), pools (sections 2.1 and 4.1).

use super::*;
use crate::placement::delay::{Delay, Patience};

/// A job of maps with input on `d`; a, c and d have a free slot at each heartbeat, b has none. Each
/// heartbeat is a second and a node; expected is the place of the start, or nothing.
fn heartbeats(patience: Patience, trace: &[(u64, &str, &str)]) {
    let maps: Vec<(String, &str)> = (0..trace.len()).map(|n| (format!("m{n}"), "d")).collect();
    let maps: Vec<(&str, &str)> = maps.iter().map(|(name, on)| (name.as_str(), *on)).collect();
    let mut cluster = check(four_nodes([1, 0, 1, 1], vec![job("j", 0, &maps)])).unwrap();
    let mut delay = Delay::new(patience);
    for (second, node, expected) in trace {
        let node = cluster.nodes().find(|id| cluster[*id].name == *node).unwrap();
        let mut turn = Turn::new(&mut cluster, Duration::from_secs(*second));
        delay.assign(&[node], &mut turn);
        let choices = turn.into_choices();
        let found = choices.first().map(|one| one.locality.to_string()).unwrap_or_default();
        assert_eq!(found, *expected, "after {second} s");
        // the slot is free again at the next heartbeat
        choices.iter().for_each(|one| cluster.finish(one.task));
    }
}

const TEN_EACH: Patience =
    Patience::Waits { node: Duration::from_secs(10), rack: Duration::from_secs(10) };

#[test]
fn without_waits_the_job_with_the_fewest_tasks_takes_the_slot_wherever_it_is() {
    // Alg. 1, and 3.3.1: head-of-line scheduling
    heartbeats(Patience::Skips(0), &[(0, "a", "remote"), (1, "c", "rack"), (2, "d", "node")]);
    let jobs = vec![
        runs(job("j", 0, &[("m9", ""), ("m0", "a")]), "m9", "a"),
        job("k", 0, &[("m0", "b"), ("m1", "b")]),
    ];
    let mut cluster = cluster(&[(3, 0), (0, 0)], jobs);
    let mut turn = Turn::new(&mut cluster, Duration::ZERO);
    Delay::new(Patience::Skips(0)).assign(&[NodeId(0)], &mut turn);
    let jobs: Vec<_> =
        turn.into_choices().iter().map(|one| cluster[one.task].job.number()).collect();
    assert_eq!(jobs, [1, 0], "k has none, then both have one and j is first");
}

#[test]
fn a_job_is_skipped_so_many_times_and_then_starts_anywhere_until_it_is_local_again() {
    // Alg. 2 with D = 2: without a new wait after a start elsewhere, with one after a local start
    let trace = [
        (0, "a", ""),
        (0, "a", ""),
        (0, "a", "remote"),
        (0, "a", "remote"),
        (0, "d", "node"),
        (0, "a", ""),
        (0, "c", ""),
        (0, "c", "rack"),
    ];
    heartbeats(Patience::Skips(2), &trace);
}

#[test]
fn while_a_job_is_skipped_the_next_is_served() {
    let jobs = vec![job("j", 0, &[("m0", "b")]), job("k", 0, &[("m0", "a")])];
    for policy in ["delay", "delay-simple", "delay-offers"] {
        assert_eq!(starts(policy, &cluster(&[(1, 0), (0, 0)], jobs.clone())), ["k/m0@a+"]);
    }
}

#[test]
fn a_job_waits_for_its_node_then_for_its_rack() {
    // Alg. 3; c is in the rack of d
    let trace = [
        (0, "a", ""),
        (3, "c", ""),
        (12, "c", "rack"),
        // level 1, and no wait for the rack
        (13, "c", "rack"),
        (14, "a", ""),
        (24, "a", "remote"),
        (25, "a", "remote"),
        // a more local start takes it back
        (26, "c", "rack"),
        (27, "a", ""),
        (28, "d", "node"),
        (29, "c", ""),
        (30, "a", ""),
        (48, "a", ""),
        (49, "a", "remote"),
    ];
    heartbeats(TEN_EACH, &trace);
}

#[test]
fn a_wait_is_time_however_rarely_slots_are_free() {
    // 4.1: a job starts within a predictable time although slots are freed at a slow rate
    heartbeats(TEN_EACH, &[(0, "a", ""), (1, "b", ""), (20, "a", "remote")]);
    heartbeats(TEN_EACH, &[(0, "a", ""), (19, "a", ""), (20, "b", ""), (1000, "a", "remote")]);
}

#[test]
fn reduces_are_not_delayed_and_do_not_touch_the_wait_of_maps() {
    // 4.1: map and reduce slots are assigned independently
    let mut input = four_nodes([1; 4], vec![job("j", 0, &[("m0", "d"), ("r0", "")])]);
    input.jobs[0].waited_seconds = 15.0;
    let mut cluster = check(input).unwrap();
    let mut delay = Delay::new(TEN_EACH);
    let mut places = Vec::new();
    for (second, node) in [(0, 0), (4, 1), (5, 2)] {
        let mut turn = Turn::new(&mut cluster, Duration::from_secs(second));
        delay.assign(&[NodeId(node)], &mut turn);
        places.push(turn.into_choices().len());
    }
    assert_eq!(places, [1, 0, 1], "the reduce; not a or b; the rack, 10 s after the first skip");
}

/// Pools with a job each of so many waiting and running tasks, on one node with `free` slots.
fn pools(free: u32, pools: Vec<(GroupInput, usize)>) -> Vec<String> {
    let running: usize = pools.iter().map(|(_, running)| running).sum();
    let names: Vec<String> = (0..10).map(|n| format!("m{n}")).collect();
    let jobs = pools.iter().map(|(pool, running)| {
        let tasks: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
        let mut job = JobInput { group: Some(pool.name.clone()), ..job(&pool.name, 0, &tasks) };
        job.tasks[10 - running..].iter_mut().for_each(|task| task.running = Some(on("a")));
        job
    });
    let mut input = ClusterInput {
        nodes: nodes(&[(free + running as u32, 0)]),
        jobs: jobs.collect(),
        ..ClusterInput::default()
    };
    input.groups = pools.into_iter().map(|(pool, _)| pool).collect();
    let cluster = check(input).unwrap();
    planned("delay", &cluster).assigned.into_iter().map(|start| start.job).collect()
}

#[test]
fn pools_below_their_minimum_are_first_the_farthest_below_before_others() {
    let minimum = |name: &str, min_slots| GroupInput { min_slots, ..group(name, 1.0) };
    let of = vec![(minimum("x", 0), 0), (minimum("y", 2), 1), (minimum("z", 2), 0)];
    assert_eq!(pools(5, of), ["z", "y", "z", "x", "x"]);
}

#[test]
fn other_pools_are_served_by_share_for_their_weight() {
    assert_eq!(pools(3, vec![(group("x", 2.0), 0), (group("y", 1.0), 0)]), ["x", "y", "x"]);
    assert_eq!(pools(2, vec![(group("x", 1.0), 3), (group("y", 1.0), 1)]), ["y", "y"]);
}

#[test]
fn inside_a_pool_the_order_is_fair_or_fifo() {
    for (order, expected) in [(Order::Fair, ["k", "j"]), (Order::Fifo, ["j", "j"])] {
        let tasks = [("m9", ""), ("m0", ""), ("m1", "")];
        let jobs = [runs(job("j", 0, &tasks), "m9", "a"), job("k", 0, &tasks[1..])];
        let jobs = jobs.map(|job| JobInput { group: Some("g".into()), ..job }).to_vec();
        let input = ClusterInput { nodes: nodes(&[(3, 0)]), jobs, ..ClusterInput::default() };
        let groups = vec![GroupInput { order, ..group("g", 1.0) }];
        let cluster = check(ClusterInput { groups, ..input }).unwrap();
        let starts: Vec<_> =
            planned("delay", &cluster).assigned.into_iter().map(|start| start.job).collect();
        assert_eq!(starts, expected);
    }
}
