//! What cannot run where: no policy starts it, and the plan says why; what is too large or too small for
//! a solver is named too.

use super::*;
use crate::placement::input::{NetworkInput, PairInput};

/// Nodes with a capacity of so many CPUs and a slot each, two of whatever else.
fn with_cpus(cpus: &[f64]) -> Vec<NodeInput> {
    let mut of = nodes(&vec![(1, 0); cpus.len()]);
    for (node, cpus) in of.iter_mut().zip(cpus) {
        let capacity = Resources { cpus: *cpus, memory_bytes: 4e9, disk_bytes: 1e12 };
        node.capacity = Some(capacity);
    }
    of
}

fn taking(cpus: f64, mut task: TaskInput) -> TaskInput {
    task.demand = Resources { cpus, ..Resources::default() };
    task
}

fn network(pairs: &[(&str, &str, Option<f64>)]) -> Option<NetworkInput> {
    let pair = |(from, to, bytes_per_sec): &(&str, &str, Option<f64>)| PairInput {
        from: (*from).into(),
        to: (*to).into(),
        bytes_per_sec: *bytes_per_sec,
    };
    Some(NetworkInput {
        within_rack_bytes_per_sec: 1e6,
        between_racks_bytes_per_sec: 1e6,
        pairs: pairs.iter().map(pair).collect(),
    })
}

/// Every policy on a cluster, which gets a group if it has none.
fn of_each(mut input: ClusterInput) -> impl Iterator<Item = (&'static str, Plan)> {
    input.groups = vec![group("g", 1.0)];
    input.jobs.iter_mut().for_each(|job| job.group = Some("g".into()));
    let cluster = check(input).unwrap();
    POLICIES.iter().map(move |entry| (entry.name, planned(entry.name, &cluster)))
}

#[test]
fn a_task_that_fits_nowhere_waits_with_the_reason_and_a_warning() {
    let mut large = job("j", 0, &[("m0", ""), ("m1", "")]);
    large.tasks[0] = taking(100.0, task("m0", "a"));
    let (nodes, network) = (with_cpus(&[2.0, 4.0]), network(&[]));
    for (policy, plan) in
        of_each(ClusterInput { nodes, network, jobs: vec![large], ..ClusterInput::default() })
    {
        let started: Vec<&str> = plan.assigned.iter().map(|task| task.task.as_str()).collect();
        assert_eq!(started, ["m1"], "{policy}");
        assert_eq!(plan.waiting[0].reason, "no node has 100 CPUs, the largest has 4", "{policy}");
        assert_eq!((plan.waiting[0].tasks, plan.summary.waiting), (1, 1), "{policy}");
        let warning = "m0 of j can run on no node: no node has 100 CPUs, the largest has 4";
        assert_eq!(plan.warnings, [warning], "{policy}");
    }
}

#[test]
fn a_task_runs_where_it_fits_and_keeps_no_smaller_one_from_the_other_node() {
    let mut first = job("j", 0, &[]);
    first.tasks = vec![taking(3.0, task("m0", ""))];
    let mut second = job("k", 0, &[]);
    second.tasks = vec![taking(1.0, task("m0", ""))];
    let jobs = vec![first, second];
    let (nodes, network) = (with_cpus(&[2.0, 4.0]), network(&[]));
    for (policy, plan) in of_each(ClusterInput { nodes, network, jobs, ..ClusterInput::default() })
    {
        let mut at: Vec<String> =
            plan.assigned.iter().map(|task| format!("{}@{}", task.job, task.node)).collect();
        at.sort();
        assert_eq!(at, ["j@b", "k@a"], "{policy}");
        assert!(plan.warnings.is_empty(), "{policy}: {:?}", plan.warnings);
    }
}

#[test]
fn a_pair_without_connection_is_not_used() {
    // the input is on c, which has no slot, and gets to b only
    let mut nodes = with_cpus(&[4.0, 4.0, 4.0]);
    nodes[2].slots.active = 0;
    let mut jobs = vec![job("j", 0, &[("m0", "c")])];
    jobs[0].waited_seconds = 30.0;
    jobs[0].offers = 1000;
    jobs[0].level = Locality::Remote;
    let only_b = network(&[("c", "a", None), ("c", "b", Some(1e3))]);
    let input = ClusterInput { nodes, network: only_b, jobs, ..ClusterInput::default() };
    for (policy, plan) in of_each(input.clone()) {
        let at: Vec<&str> = plan.assigned.iter().map(|task| task.node.as_str()).collect();
        assert_eq!(at, ["b"], "{policy}");
    }
    let mut input = input;
    input.network = network(&[("c", "a", None), ("c", "b", None), ("c", "c", None)]);
    input.nodes[2].capacity = Some(Resources::default());
    input.jobs[0].tasks[0].demand.cpus = 1.0;
    for (policy, plan) in of_each(input) {
        assert!(plan.assigned.is_empty(), "{policy}");
        let reason = "no node that has what it takes is connected with its input";
        assert_eq!(plan.waiting[0].reason, reason, "{policy}");
    }
    let forgotten =
        br#"{"nodes": [{"name": "a", "slots": {}}], "network": {"within_rack_bytes_per_sec": 1,
        "between_racks_bytes_per_sec": 1, "pairs": [{"from": "a", "to": "a"}]}}"#;
    assert!(
        parse(forgotten)
            .unwrap_err()
            .to_string()
            .contains("bytes_per_sec: missing; write the bandwidth")
    );
}

/// A check from outside: one dead link left the other costs no digits.
#[test]
fn one_dead_link_does_not_make_the_others_equal() {
    let tasks = [("t0", "a"), ("t1", "b"), ("t2", "c")];
    for dead in [Some(1e-6), Some(1e-4), None] {
        // c is far from everything; t0 and t1 have 1 s or 134 s to choose from
        let mut input = ClusterInput {
            nodes: nodes(&[(0, 0), (0, 0), (1, 0), (1, 0), (1, 0)]),
            ..ClusterInput::default()
        };
        input.network = network(&[
            ("a", "c", dead),
            ("b", "c", dead),
            ("c", "d", dead),
            ("c", "e", dead),
            ("a", "d", Some(1e6)),
            ("a", "e", Some(1e4)),
            ("b", "d", Some(9e5)),
            ("b", "e", Some(1e6)),
        ]);
        input.jobs = vec![job("j", 0, &tasks)];
        let plan = planned("lsap", &check(input).unwrap());
        assert_eq!(plan.summary.transfer_seconds, Some(2.0), "{dead:?}: {:?}", plan.assigned);
    }
}

/// A check from outside: the only task with its input there was the last of 20,001.
#[test]
fn the_last_of_many_tasks_is_found_by_its_input() {
    let mut of = job("j", 0, &[]);
    of.tasks = (0..20_001).map(|number| task(&format!("m{number}"), "b")).collect();
    of.tasks[20_000].replicas = vec!["a".into()];
    let input = ClusterInput {
        nodes: nodes(&[(1, 0), (0, 0)]),
        network: network(&[]),
        jobs: vec![of],
        ..ClusterInput::default()
    };
    let cluster = check(input).unwrap();
    for policy in ["lsap", "lsap-uniform", "data-local", "delay"] {
        let plan = planned(policy, &cluster);
        let started: Vec<&str> = plan.assigned.iter().map(|task| task.task.as_str()).collect();
        assert_eq!(started, ["m20000"], "{policy}");
        assert!(plan.warnings.is_empty(), "{policy}");
    }
}
