//! DLAforBT: matching, waiting, admission.

use super::*;
use crate::placement::dla::Dla;

fn cpus(cpus: f64) -> Resources {
    Resources { cpus, ..Resources::default() }
}

/// [`two_racks`] with two slots and so many CPUs on each node, and a CPU for each task.
fn with_cpus(of_nodes: [f64; 4], mut jobs: Vec<JobInput>) -> ClusterInput {
    jobs.iter_mut().flat_map(|job| &mut job.tasks).for_each(|task| task.demand = cpus(1.0));
    let mut input = two_racks(jobs);
    for (node, of_node) in input.nodes.iter_mut().zip(of_nodes) {
        node.slots.active = 2;
        node.capacity = Some(cpus(of_node));
    }
    input
}

#[test]
fn dla_takes_the_most_idle_node_with_the_input() {
    let run = |tasks: &[(&str, &str)]| {
        let mut input = with_cpus([4.0; 4], vec![job("j", 0, tasks)]);
        let running = TaskInput { running: Some(on("b")), demand: cpus(2.0), ..task("m9", "") };
        input.jobs[0].tasks.push(running);
        planned("dla", &check(input).unwrap())
    };
    assert_eq!(run(&[("m0", "ab")]).assigned[0].node, "a");
    let plan = run(&[("m0", "ab"), ("m1", "a")]);
    let nodes: Vec<&str> = plan.assigned.iter().map(|task| task.node.as_str()).collect();
    assert_eq!(nodes, ["b", "a"], "as many matches as possible come before the idler node");
}

#[test]
fn dla_waits_where_that_is_sooner_than_moving_the_input() {
    // a is full; the input of a million bytes moves to b in a second
    for (remaining, assigned) in [(0.5, 0), (2.0, 1)] {
        let mut input = with_cpus([1.0; 4], vec![job("j", 0, &[("m0", "a"), ("m1", "a")])]);
        input.jobs[0].tasks[0].running =
            Some(RunningInput { remaining_seconds: Some(remaining), ..on("a") });
        let plan = planned("dla", &check(input).unwrap());
        assert_eq!(plan.assigned.len(), assigned, "{plan:?}");
        if assigned == 0 {
            assert!(plan.waiting[0].reason.contains("free in 0.5 s"), "{plan:?}");
        } else {
            assert_eq!(plan.assigned[0].node, "b");
        }
    }
}

#[test]
fn dla_admits_jobs_by_their_largest_share() {
    // two CPUs idle: j has its share already
    let mut jobs = vec![
        job("j", 0, &[("m0", ""), ("m1", ""), ("m2", ""), ("m3", "")]),
        job("k", 0, &[("m0", ""), ("m1", "")]),
    ];
    jobs[0].tasks[0].running = Some(on("a"));
    jobs[0].tasks[1].running = Some(on("b"));
    let cluster = check(with_cpus([1.0; 4], jobs)).unwrap();
    let plan = planned("dla", &cluster);
    assert!(plan.assigned.iter().all(|task| task.job == "k"), "{plan:?}");
    assert_eq!((plan.assigned.len(), plan.summary.waiting), (2, 2));
}

/// The warnings of one turn with so many steps, with `tasks` that are all at home on a.
fn warnings(tasks: &[(&str, &str)], steps: u64) -> Vec<String> {
    let mut input = with_cpus([4.0; 4], vec![job("j", 0, tasks)]);
    input.nodes.iter_mut().for_each(|node| node.slots.active = 4);
    let mut cluster = check(input).unwrap();
    let nodes: Vec<_> = cluster.nodes().collect();
    let mut turn = Turn::new(&mut cluster, Duration::ZERO).with_most_steps(steps);
    Dla.assign(&nodes, &mut turn);
    turn.into_outcome().1.into_iter().collect()
}

#[test]
fn dla_says_that_the_solver_was_stopped_and_has_its_steps_for_all_matchings() {
    let four = [("m0", "a"), ("m1", "a"), ("m2", "a"), ("m3", "a")];
    let stopped = warnings(&four, 0);
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    assert!(stopped[0].starts_with("the solver was stopped with "), "{stopped:?}");
    // The first matching needs as many steps as that of these alone, and then there are more.
    let needs =
        |tasks: &[(&str, &str)]| (0..10_000).find(|steps| warnings(tasks, *steps).is_empty());
    let (two, four) = (needs(&four[..2]).unwrap(), needs(&four).unwrap());
    assert!(four > 3 * two, "{two}, {four}");
}
