//! The policies on clusters of a few nodes, against what their sources say.

use crate::catalogue::{Entry, POLICIES};
use crate::check::{check, parse};
use crate::cluster::{Cluster, Locality};
use crate::input::{ClusterInput, JobInput, Kind, NodeInput, RunningInput, SlotsInput, TaskInput};
use crate::plan::{Plan, plan};
use lrs_core::model::Tier;

/// Nodes `a`, `b`, ... of one rack each, with so many active and passive slots.
fn nodes(slots: &[(u32, u32)]) -> Vec<NodeInput> {
    let node = |(index, (active, passive)): (usize, &(u32, u32))| {
        let name = char::from(b'a' + u8::try_from(index).unwrap()).to_string();
        let slots = SlotsInput { active: *active, passive: *passive };
        NodeInput { rack: name.clone(), name, slots }
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
        running: None,
    }
}

fn job(name: &str, priority: i32, tasks: &[(&str, &str)]) -> JobInput {
    let tasks = tasks.iter().map(|(name, replicas)| task(name, replicas)).collect();
    JobInput { name: name.into(), priority, arrived: 0.0, tasks }
}

fn cluster(slots: &[(u32, u32)], jobs: Vec<JobInput>) -> Cluster {
    check(ClusterInput { nodes: nodes(slots), network: None, jobs }).unwrap()
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
    low.tasks[0].running = Some(RunningInput { node: "a".into(), tier: Tier::Active });
    let high = job("high", 5, &[("m0", ""), ("m1", "")]);
    let cluster = cluster(&[(1, 3)], vec![low, high]);
    let plan = planned("layering", &cluster);
    let reasons: Vec<&str> = plan.assigned.iter().map(|task| task.reason.as_str()).collect();
    assert!(reasons[0].starts_with("priority above"), "{reasons:?}");
    assert!(reasons[1].starts_with("passive slot"), "the only active task is of the same job");
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
    running.tasks[0].running = Some(RunningInput { node: "a".into(), tier: Tier::Active });
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
    };
    let on = |n: u32| TaskInput { replicas: vec![format!("n{}", n % 1000)], ..task("", "") };
    let tasks = (0..10_000).map(|n| TaskInput { name: format!("m{n}"), ..on(n) }).collect();
    let jobs = vec![JobInput { tasks, ..job("j", 0, &[]) }];
    let nodes = (0..1000).map(node).collect();
    let cluster = check(ClusterInput { nodes, network: None, jobs }).unwrap();
    for entry in POLICIES {
        let summary = planned(entry.name, &cluster).summary;
        assert_eq!((summary.assigned, summary.waiting), (8000, 2000), "{}", entry.name);
    }
}

#[test]
fn unknown_names_are_named_with_what_there_is() {
    let error = Entry::find("best").unwrap_err().to_string();
    assert!(error.contains("\"best\"") && error.contains("data-local"), "{error}");
}
