//! What holds for every policy on every cluster.

use std::collections::{BTreeMap, BTreeSet};

use lrs_core::model::Tier;
use proptest::prelude::*;

use crate::placement::catalogue::POLICIES;
use crate::placement::check::check;
use crate::placement::cluster::Locality;
use crate::placement::groups::Order;
use crate::placement::input::{
    ClusterInput, GroupInput, JobInput, Kind, NetworkInput, NodeInput, RunningInput, SlotsInput,
    TaskInput,
};
use crate::placement::plan::plan;
use crate::placement::resources::Resources;

fn amounts(amount: f64) -> Resources {
    Resources { cpus: amount, memory_bytes: amount, disk_bytes: amount }
}

fn clusters() -> impl Strategy<Value = ClusterInput> {
    let node = (0_usize..3, 0_u32..4, 0_u32..4);
    let task = (any::<bool>(), 0_u64..1000, prop::collection::btree_set(0_usize..6, 0..4));
    let job = (-2_i32..3, 0_u32..4, prop::collection::vec(task, 0..12));
    (prop::collection::vec(node, 6), prop::collection::vec(job, 0..5), any::<[bool; 2]>()).prop_map(
        |(nodes, jobs, [network, groups])| {
            let name = |node: usize| format!("n{node}");
            let nodes: Vec<NodeInput> = nodes
                .into_iter()
                .enumerate()
                .map(|(index, (rack, active, passive))| NodeInput {
                    name: name(index),
                    rack: rack.to_string(),
                    slots: SlotsInput { active, passive },
                    capacity: groups.then(|| amounts(2.0 + active as f64)),
                })
                .collect();
            let mut free: Vec<u32> = nodes.iter().map(|node| node.slots.active).collect();
            let mut tasks_of = |tasks: Vec<(bool, u64, BTreeSet<usize>)>| {
                let task = |(index, (reduce, bytes, on)): (usize, (bool, u64, BTreeSet<usize>))| {
                    // every fifth task runs, where a slot is free
                    let at = free.iter().position(|free| *free > 0).filter(|_| index % 5 == 4);
                    let running = at.map(|node| {
                        free[node] -= 1;
                        let remaining_seconds = (bytes % 2 == 0).then_some(bytes as f64);
                        RunningInput { node: name(node), tier: Tier::Active, remaining_seconds }
                    });
                    TaskInput {
                        name: index.to_string(),
                        kind: if reduce { Kind::Reduce } else { Kind::Map },
                        bytes,
                        replicas: on.into_iter().map(name).collect(),
                        demand: amounts((bytes % 3) as f64),
                        running,
                    }
                };
                tasks.into_iter().enumerate().map(task).collect()
            };
            let jobs = jobs
                .into_iter()
                .enumerate()
                .map(|(index, (priority, arrived, tasks))| JobInput {
                    name: format!("j{index}"),
                    group: groups.then(|| format!("g{}", index % 3)),
                    priority,
                    computing_rate: (arrived > 0).then(|| f64::from(arrived) / 3.0),
                    arrived: f64::from(arrived),
                    waited_seconds: f64::from(arrived) * 8.0,
                    offers: u64::from(arrived),
                    level: Locality::Node,
                    tasks: tasks_of(tasks),
                })
                .collect();
            let network = network.then(|| NetworkInput {
                within_rack_bytes_per_sec: 100.0,
                between_racks_bytes_per_sec: 10.0,
                pairs: Vec::new(),
            });
            let weight = |n: u8| GroupInput {
                name: format!("g{n}"),
                parent: (n == 2).then(|| "top".to_owned()),
                weight: f64::from(n + 1),
                min_slots: u32::from(n),
                order: if n == 0 { Order::Fifo } else { Order::Fair },
            };
            let top = GroupInput { name: "top".into(), parent: None, ..weight(3) };
            let groups =
                if groups { (0..3).map(weight).chain([top]).collect() } else { Vec::new() };
            ClusterInput { nodes, network, groups, jobs, ..ClusterInput::default() }
        },
    )
}

proptest! {
    /// No slot is given twice, no task started twice, every task starts or waits, and the same
    /// input has the same plan.
    #[test]
    fn plans_are_sound(input in clusters()) {
        let cluster = check(input.clone()).unwrap();
        let waiting: usize =
            input.jobs.iter().flat_map(|job| &job.tasks).filter(|t| t.running.is_none()).count();
        for entry in POLICIES {
            let Ok(first) = plan(entry, &cluster) else { continue };
            prop_assert_eq!(first.summary.assigned + first.summary.waiting, waiting);
            let mut seen = BTreeSet::new();
            let mut used: BTreeMap<&str, u32> = BTreeMap::new();
            for task in &first.assigned {
                prop_assert!(seen.insert((&task.job, &task.task)), "{} twice", task.task);
                *used.entry(&task.node).or_default() += 1;
            }
            for job in &input.jobs {
                for running in job.tasks.iter().filter_map(|task| task.running.as_ref()) {
                    *used.entry(&running.node).or_default() += 1;
                }
            }
            for node in &input.nodes {
                let slots = node.slots.active + node.slots.passive;
                prop_assert!(used.get(node.name.as_str()).is_none_or(|used| *used <= slots));
            }
            let again = plan(entry, &cluster).unwrap();
            prop_assert_eq!(format!("{:?}", first), format!("{:?}", again));
        }
    }

    /// A policy that keeps nothing back leaves no slot free while a task waits.
    #[test]
    fn baselines_leave_no_slot_free(input in clusters()) {
        let slots: u32 = input.nodes.iter().map(|n| n.slots.active + n.slots.passive).sum();
        let tasks = input.jobs.iter().flat_map(|job| &job.tasks);
        let running = tasks.filter(|task| task.running.is_some()).count();
        let cluster = check(input.clone()).unwrap();
        for entry in POLICIES.iter().filter(|entry| ["fifo", "data-local", "lrs", "lsap", "lsap-uniform"].contains(&entry.name)) {
            let summary = plan(entry, &cluster).map(|plan| plan.summary);
            let Ok(summary) = summary else { continue };
            let taken = summary.assigned + running;
            prop_assert!(summary.waiting == 0 || taken == slots as usize, "{} {summary:?}", entry.name);
        }
    }
}
