//! The policies on clusters of a few nodes, against what their sources say.

mod delay;
mod dla;
mod explain;
mod feasible;
mod live;
mod sources;
mod wco;

use crate::placement::catalogue::{Entry, POLICIES};
use crate::placement::check::{check, parse};
use crate::placement::cluster::{Cluster, Locality, NodeId};
use crate::placement::groups::{Groups, Order, unfairness};
use crate::placement::input::{
    ClusterInput, GroupInput, JobInput, Kind, NodeInput, RunningInput, SlotsInput, TaskInput,
};
use crate::placement::lsap::Lsap;
use crate::placement::plan::{Plan, plan};
use crate::placement::resources::Resources;
use crate::placement::turn::{Policy, Turn};
use lrs_core::model::Tier;
use std::time::Duration;

/// Nodes `a`, `b`, ... of one rack each, with so many active and passive slots.
fn nodes(slots: &[(u32, u32)]) -> Vec<NodeInput> {
    let node = |(index, (active, passive)): (usize, &(u32, u32))| {
        let name = char::from(b'a' + u8::try_from(index).unwrap()).to_string();
        let slots = SlotsInput { active: *active, passive: *passive };
        NodeInput { rack: name.clone(), name, slots, capacity: None }
    };
    slots.iter().enumerate().map(node).collect()
}

/// A task: `m0` on `ab` is a map with its input on a and b, `r0` a reduce.
fn task(name: &str, replicas: &str) -> TaskInput {
    TaskInput {
        name: name.into(),
        kind: if name.starts_with('r') { Kind::Reduce } else { Kind::Map },
        bytes: 1_000_000,
        replicas: replicas.chars().map(String::from).collect(),
        demand: Resources::default(),
        running: None,
    }
}

/// Running on an active slot of a node.
fn on(node: &str) -> RunningInput {
    RunningInput { node: node.into(), tier: Tier::Active, remaining_seconds: None }
}

fn job(name: &str, priority: i32, tasks: &[(&str, &str)]) -> JobInput {
    let tasks = tasks.iter().map(|(name, replicas)| task(name, replicas)).collect();
    JobInput {
        name: name.into(),
        group: None,
        priority,
        computing_rate: None,
        arrived: 0.0,
        waited_seconds: 0.0,
        offers: 0,
        level: Locality::Node,
        tasks,
    }
}

fn cluster(slots: &[(u32, u32)], jobs: Vec<JobInput>) -> Cluster {
    check(ClusterInput { nodes: nodes(slots), jobs, ..ClusterInput::default() }).unwrap()
}

fn planned(policy: &str, cluster: &Cluster) -> Plan {
    plan(Entry::find(policy).unwrap(), cluster).unwrap()
}

/// `j/m0@a+` for a task on an active slot of a, `-` on a passive one.
fn starts(policy: &str, cluster: &Cluster) -> Vec<String> {
    let sign = |tier| if tier == Tier::Active { '+' } else { '-' };
    let start = planned(policy, cluster).assigned;
    start.iter().map(|t| format!("{}/{}@{}{}", t.job, t.task, t.node, sign(t.tier))).collect()
}

#[test]
fn fifo_serves_the_head_of_the_queue_whatever_the_place() {
    let jobs = vec![job("j", 0, &[("m0", "b")]), job("k", 0, &[("m0", "a")])];
    assert_eq!(starts("fifo", &cluster(&[(1, 0), (1, 0)], jobs)), ["j/m0@a+", "k/m0@b+"]);
    let jobs = vec![job("j", 0, &[("m0", "a")]), job("k", 1, &[("m0", "b")])];
    assert_eq!(
        starts("fifo", &cluster(&[(1, 0), (0, 0)], jobs)),
        ["k/m0@a+"],
        "priority comes first"
    );
}

#[test]
fn fifo_takes_one_map_and_one_reduce_a_heartbeat() {
    let jobs = vec![job("j", 0, &[("m0", ""), ("m1", ""), ("r0", ""), ("r1", "")])];
    assert_eq!(
        starts("fifo", &cluster(&[(3, 0), (1, 0)], jobs)),
        ["j/r0@a+", "j/m0@a+", "j/r1@b+", "j/m1@a+"]
    );
}

#[test]
fn data_local_looks_for_input_over_all_jobs() {
    let jobs = vec![job("j", 0, &[("m0", "b")]), job("k", 0, &[("m0", "a")])];
    assert_eq!(starts("data-local", &cluster(&[(1, 0), (1, 0)], jobs)), ["k/m0@a+", "j/m0@b+"]);
}

#[test]
fn data_local_is_not_optimal() {
    // the example of Guo, Fox and Zhou: T1 on A and B, T2 on A
    let jobs = vec![job("j", 0, &[("T1", "ab"), ("T2", "a")])];
    let plan = planned("data-local", &cluster(&[(1, 0), (1, 0)], jobs));
    assert_eq!((plan.summary.node_local, plan.summary.remote), (1, 1));
}

#[test]
fn the_dispatcher_spreads_over_active_slots_before_passive_ones() {
    let maps = [("m0", "a"), ("m1", "a"), ("m2", "a"), ("m3", "b"), ("m4", "")];
    let cluster = cluster(&[(1, 2), (1, 2)], vec![job("j", 0, &maps)]);
    // round 1: one active slot each; round 2: passive slots, maps with input there first
    assert_eq!(starts("lrs", &cluster), ["j/m0@a+", "j/m3@b+", "j/m1@a-", "j/m2@a-", "j/m4@b-"]);
}

#[test]
fn the_dispatcher_takes_one_reduce_a_heartbeat_before_the_maps() {
    let cluster = cluster(&[(2, 1)], vec![job("j", 0, &[("r0", ""), ("r1", ""), ("m0", "")])]);
    assert_eq!(starts("lrs", &cluster), ["j/r0@a+", "j/m0@a+", "j/r1@a-"]);
}

#[test]
fn layering_makes_room_for_the_higher_priority() {
    let mut low = job("low", 0, &[("m0", "a"), ("m1", "a"), ("m2", "a")]);
    low.tasks[0].running = Some(on("a"));
    let high = job("high", 5, &[("m0", ""), ("m1", "")]);
    let cluster = cluster(&[(1, 3)], vec![low, high]);
    let plan = planned("layering", &cluster);
    let reasons: Vec<&str> = plan.assigned.iter().map(|task| task.reason.as_str()).collect();
    assert!(reasons[..2].iter().all(|why| why.starts_with("priority above")), "{reasons:?}");
    assert!(reasons[2].starts_with("passive slot"), "{reasons:?}");
    assert_eq!(starts("layering", &cluster), ["high/m0@a-", "high/m1@a-", "low/m1@a-"]);
}

#[test]
fn layering_keeps_room_for_reduces() {
    // half of the tasks are maps: two of the four slots
    let mut tasks: Vec<(String, &str)> = (0..8).map(|n| (format!("m{n}"), "")).collect();
    tasks.extend((0..8).map(|n| (format!("r{n}"), "")));
    let tasks: Vec<(&str, &str)> = tasks.iter().map(|(n, on)| (n.as_str(), *on)).collect();
    let plan = planned("layering", &cluster(&[(4, 0)], vec![job("j", 0, &tasks)]));
    let maps = plan.assigned.iter().filter(|task| task.kind == Kind::Map).count();
    assert_eq!((maps, plan.assigned.len()), (2, 4));
}

#[test]
fn layering_holds_a_reduce_that_would_be_passive() {
    let mut running = job("j", 0, &[("m0", "a"), ("r0", "")]);
    running.tasks[0].running = Some(on("a"));
    let plan = planned("layering", &cluster(&[(1, 1)], vec![running]));
    assert!(plan.assigned.is_empty());
    assert!(plan.waiting[0].reason.contains("not above the lowest active"), "{plan:?}");
}

#[test]
fn bandwidths_give_the_cost_and_the_nearest_replica_counts() {
    let cluster = parse(
        br#"{
          "nodes": [
            {"name": "a", "rack": "r", "slots": {"active": 0}},
            {"name": "b", "rack": "s", "slots": {"active": 0}},
            {"name": "c", "rack": "s", "slots": {"active": 2}}
          ],
          "network": {
            "within_rack_bytes_per_sec": 100, "between_racks_bytes_per_sec": 10,
            "pairs": [{"from": "a", "to": "c", "bytes_per_sec": 200}]
          },
          "jobs": [{"name": "j", "tasks": [
            {"name": "t", "bytes": 1000, "replicas": ["a", "b"]},
            {"name": "u", "bytes": 1000, "replicas": ["b"]}
          ]}]
        }"#,
    )
    .unwrap();
    let plan = planned("fifo", &cluster);
    let cost: Vec<_> = plan.assigned.iter().map(|t| (t.locality, t.transfer_seconds)).collect();
    assert_eq!(cost, [(Locality::Rack, Some(5.0)), (Locality::Rack, Some(10.0))]);
    assert_eq!(plan.summary.transfer_seconds, Some(15.0));
}

#[test]
fn ten_thousand_tasks_in_one_call() {
    let node = |n: u32| NodeInput {
        name: format!("n{n}"),
        rack: (n % 20).to_string(),
        slots: SlotsInput { active: 4, passive: 4 },
        capacity: None,
    };
    let of = |n: u32| TaskInput { replicas: vec![format!("n{}", n % 1000)], ..task("", "") };
    let tasks = (0..10_000).map(|n| TaskInput { name: format!("m{n}"), ..of(n) }).collect();
    let jobs = vec![JobInput { tasks, computing_rate: Some(0.5), ..job("j", 0, &[]) }];
    let nodes = (0..1000).map(node).collect();
    let cluster = check(ClusterInput { nodes, jobs, ..ClusterInput::default() }).unwrap();
    for entry in POLICIES.iter().filter(|entry| entry.needs.is_empty()) {
        let summary = planned(entry.name, &cluster).summary;
        assert_eq!((summary.assigned, summary.waiting), (8000, 2000), "{}", entry.name);
    }
}

#[test]
fn unknown_names_are_named_with_what_there_is() {
    let error = Entry::find("best").unwrap_err().to_string();
    assert!(error.contains("\"best\"") && error.contains("data-local"), "{error}");
}

#[test]
fn lsap_starts_both_tasks_at_their_input() {
    let jobs = vec![job("j", 0, &[("T1", "ab"), ("T2", "a")])];
    let starts = starts("lsap-uniform", &cluster(&[(1, 0), (1, 0)], jobs));
    assert_eq!(starts, ["j/T1@b+", "j/T2@a+"]);
}

/// Two racks of two nodes, one slot each; `pairs` differ.
fn two_racks(jobs: Vec<JobInput>) -> ClusterInput {
    let mut input = ClusterInput { nodes: nodes(&[(1, 0); 4]), jobs, ..ClusterInput::default() };
    for (node, rack) in input.nodes.iter_mut().zip(["x", "x", "y", "y"]) {
        node.rack = rack.into();
    }
    let network = r#"{"within_rack_bytes_per_sec": 1e6, "between_racks_bytes_per_sec": 1e5}"#;
    input.network = Some(serde_json::from_str(network).unwrap());
    input
}

#[test]
fn lsap_takes_the_way_that_is_short_in_sum() {
    // m0 and m1 both have their input on a: one goes elsewhere in the rack, m2 stays away from there
    let jobs = vec![job("j", 0, &[("m0", "a"), ("m1", "a"), ("m2", "bc")])];
    let plan = planned("lsap", &check(two_racks(jobs)).unwrap());
    assert_eq!(plan.summary.transfer_seconds, Some(1.0), "{plan:#?}");
    assert_eq!((plan.summary.node_local, plan.summary.rack_local), (2, 1));
}

#[test]
fn lsap_leaves_out_what_no_best_assignment_needs() {
    // 300 tasks for three slots: the three that are at home win, wherever they stand in the queue
    let mut tasks: Vec<TaskInput> = (0..300).map(|n| task(&format!("m{n}"), "d")).collect();
    for (index, node) in [(299, "a"), (150, "b"), (7, "c")] {
        tasks[index].replicas = vec![node.into()];
    }
    let mut input = two_racks(vec![JobInput { tasks, ..job("j", 0, &[]) }]);
    input.nodes[3].slots.active = 0;
    let plan = planned("lsap", &check(input).unwrap());
    let names: Vec<&str> = plan.assigned.iter().map(|task| task.task.as_str()).collect();
    assert_eq!(names, ["m7", "m150", "m299"]);
    assert_eq!(plan.summary.node_local, 3);
}

#[test]
fn a_policy_refuses_a_file_without_what_it_needs() {
    let cluster = cluster(&[(1, 0)], vec![job("j", 0, &[("m0", "a")])]);
    for (policy, missing) in [("lsap", "network"), ("lsap-fair", "network"), ("dla", "network")] {
        let fault = plan(Entry::find(policy).unwrap(), &cluster).unwrap_err();
        assert_eq!(fault.at, missing);
    }
}

fn group(name: &str, weight: f64) -> GroupInput {
    GroupInput { name: name.into(), parent: None, weight, min_slots: 0, order: Order::Fair }
}

/// The fairness test of Guo, Fox and Zhou, section 5: 60 nodes with a slot each, half of them idle, one
/// replica, 30 running, 90 waiting tasks, five groups with weights 1:2:4:8:16.
fn staircase(seed: u64) -> ClusterInput {
    let mut random = fastrand::Rng::with_seed(seed);
    let slots = SlotsInput { active: 1, passive: 0 };
    let node = |n: usize| NodeInput {
        name: n.to_string(),
        rack: (n / 20).to_string(),
        slots,
        capacity: None,
    };
    let group = |n: u32| group(&n.to_string(), f64::from(1 << n));
    let mut jobs: Vec<JobInput> = (0..5)
        .map(|n| JobInput { group: Some(n.to_string()), ..job(&format!("j{n}"), 0, &[]) })
        .collect();
    for n in 0..120 {
        let replicas = vec![random.usize(0..60).to_string()];
        let running = (n < 30).then(|| on(&n.to_string()));
        let group = if n < 30 { n % 5 } else { random.usize(0..5) };
        jobs[group].tasks.push(TaskInput { replicas, running, ..task(&format!("m{n}"), "") });
    }
    let network = r#"{"within_rack_bytes_per_sec": 1e6, "between_racks_bytes_per_sec": 2.5e5}"#;
    ClusterInput {
        nodes: (0..60).map(node).collect(),
        groups: (0..5).map(group).collect(),
        network: Some(serde_json::from_str(network).unwrap()),
        jobs,
        ..ClusterInput::default()
    }
}

#[test]
fn fairness_and_locality_are_traded_by_alpha() {
    let run = |alpha: f64| {
        let (mut unfair, mut far) = (0.0, 0);
        for seed in 0..20 {
            let mut cluster = check(staircase(seed)).unwrap();
            let nodes: Vec<_> = cluster.nodes().collect();
            let mut turn = Turn::new(&mut cluster, Duration::ZERO);
            Lsap::Fair { alpha, beta: 200.0 }.assign(&nodes, &mut turn);
            assert_eq!(turn.choices.len(), 30, "every idle slot is used");
            far += turn.choices.iter().filter(|one| one.locality != Locality::Node).count();
            unfair += unfairness(&Groups::of(&cluster)).unwrap() / 20.0;
        }
        (unfair, far)
    };
    let before = unfairness(&Groups::of(&check(staircase(0)).unwrap())).unwrap();
    let (fair, local) = (run(0.01), run(1000.0));
    assert!(fair.0 < local.0 && fair.1 > local.1, "{fair:?} {local:?}");
    assert!(fair.0 < before, "{fair:?}, {before} before");
}

#[test]
fn a_size_may_be_written_with_an_exponent_and_is_whole() {
    let parsed = |bytes: &str| {
        let text = format!(
            r#"{{"nodes": [{{"name": "a", "slots": {{}}}}],
                "jobs": [{{"name": "j", "tasks": [{{"name": "t", "bytes": {bytes}}}]}}]}}"#
        );
        parse(text.as_bytes())
            .map(|cluster| cluster.tasks().map(|task| cluster[task].bytes).sum::<u64>())
    };
    assert_eq!(parsed("1e9"), Ok(1_000_000_000));
    assert_eq!(parsed("18446744073709551615"), Ok(u64::MAX));
    for wrong in ["1.5", "-1", "1e300", "\"1\""] {
        assert!(parsed(wrong).unwrap_err().to_string().contains("a whole number from 0 to"));
    }
}

#[test]
fn the_example_has_what_every_policy_needs() {
    let cluster = parse(include_bytes!("../../examples/two-racks.json")).unwrap();
    for entry in POLICIES {
        assert!(planned(entry.name, &cluster).summary.assigned > 0, "{}", entry.name);
    }
}
