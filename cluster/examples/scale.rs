//! How long a policy takes for a large cluster: 10,000 nodes of 4 slots, 100,000 tasks that wait, each with its input on
//! three nodes. The first plan, then 1,000 changes, of which each is the end of a task and what starts in its place.
//!
//! `cargo run --release -p lrs-place --example scale -- delay`, and behind the policy a form of the cluster:
//!
//! - `even`, the default: the inputs anywhere;
//! - `hot`: nine inputs of ten on a hundred of the nodes;
//! - `few`: 35,000 of the tasks, hot ones;
//! - `two`: hot ones, and every other node is too small for every other job;
//! - `sizes`: each node with a memory figure of its own, and tasks of 1, 2, 4 and 12 GB;
//! - `figures`: each task with a memory figure of its own too.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "an example that measures"
)]

use std::error::Error;
use std::time::{Duration, Instant};

use lrs_place::placement::catalogue::Entry;
use lrs_place::placement::check::check;
use lrs_place::placement::cluster::{Cluster, NodeId, Priority};
use lrs_place::placement::input::{
    ClusterInput, GroupInput, Kind, NetworkInput, NodeInput, SlotsInput,
};
use lrs_place::placement::live::{NewJob, NewTask};
use lrs_place::placement::resources::Resources;
use lrs_place::placement::turn::{Policy, Turn};

const NODES: usize = 10_000;
const JOBS: u64 = 1_000;
const TASKS_OF_A_JOB: usize = 100;
const CHANGES: u64 = 1_000;

fn cluster(case: &str) -> Result<Cluster, Box<dyn Error>> {
    let capacity = |node: usize| {
        let is_sized = matches!(case, "sizes" | "figures");
        let memory_bytes = if is_sized { 8e9 + 1e6 * node as f64 } else { 16e9 };
        let cpus = if case == "two" && node % 2 == 1 { 1.0 } else { 4.0 };
        Some(Resources { cpus, memory_bytes, disk_bytes: 1e12 })
    };
    let slots = SlotsInput { active: 4, passive: 0 };
    let node = |node| NodeInput {
        name: format!("n{node}"),
        rack: format!("r{}", node % 250),
        slots,
        capacity: capacity(node),
    };
    let (within_rack_bytes_per_sec, between_racks_bytes_per_sec) = (1e8, 2e7);
    let network = Some(NetworkInput {
        within_rack_bytes_per_sec,
        between_racks_bytes_per_sec,
        pairs: Vec::new(),
    });
    let group: GroupInput = serde_json::from_str(r#"{"name": "all", "weight": 1}"#)?;
    let nodes = (0..NODES).map(node).collect();
    let mut cluster =
        check(ClusterInput { nodes, network, groups: vec![group], ..ClusterInput::default() })?;
    let (nodes, group) =
        (cluster.nodes().collect::<Vec<_>>(), cluster.groups().next().ok_or("no group")?);
    let mut random = fastrand::Rng::with_seed(1);
    let (jobs, hot) = match case {
        "even" | "sizes" | "figures" => (JOBS, 0),
        "hot" | "two" => (JOBS, 9),
        "few" => (350, 9),
        _ => return Err("even, hot, few, two, sizes or figures".into()),
    };
    for number in 0..jobs {
        let (name, arrived) = (format!("j{number}"), Duration::from_secs(number));
        let job = cluster.arrive(NewJob {
            name,
            group,
            priority: Priority(0),
            rate: Some(Default::default()),
            arrived,
        });
        for task in 0..TASKS_OF_A_JOB {
            let among = if random.u8(0..10) < hot { 100 } else { NODES };
            let replicas = random.choose_multiple(nodes[..among].iter().copied(), 3);
            let (kind, bytes) = (Kind::Map, random.u64(1 << 26..1 << 28));
            let memory_bytes = match case {
                "sizes" => [1e9, 2e9, 4e9, 12e9][number as usize % 4],
                "figures" => 8e9 + 1e5 * (number as f64 * TASKS_OF_A_JOB as f64 + task as f64),
                _ => 0.0,
            };
            let cpus = if case == "two" { [1.0, 2.0][number as usize % 2] } else { 1.0 };
            let demand = Resources { cpus, memory_bytes, disk_bytes: 0.0 };
            cluster.submit(job, NewTask { name: String::new(), kind, bytes, replicas, demand });
        }
    }
    Ok(cluster)
}

/// Asks until nothing more starts, as `lrs-place plan` does.
fn ask(cluster: &mut Cluster, policy: &mut dyn Policy, nodes: &[NodeId], at: Duration) -> usize {
    let mut starts = 0;
    loop {
        let mut turn = Turn::new(cluster, at);
        policy.assign(nodes, &mut turn);
        let (choices, warnings) = turn.into_outcome();
        warnings.iter().for_each(|warning| println!("warning: {warning}"));
        match choices.len() {
            0 => return starts,
            more => starts += more,
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let entry = Entry::find(&std::env::args().nth(1).unwrap_or("lrs".into()))?;
    let case = std::env::args().nth(2).unwrap_or("even".into());
    let mut cluster = cluster(&case)?;
    let mut policy = entry.policy(&cluster)?;
    let nodes: Vec<NodeId> = cluster.nodes().collect();
    let begun = Instant::now();
    let starts = ask(&mut cluster, policy.as_mut(), &nodes, Duration::ZERO);
    let first = begun.elapsed();
    let mut changes = Vec::new();
    for change in 0..CHANGES {
        let node = nodes[change as usize * 7 % nodes.len()];
        let over = cluster[node].running().next();
        let begun = Instant::now();
        over.into_iter().for_each(|task| cluster.finish(task));
        ask(&mut cluster, policy.as_mut(), &[node], Duration::from_millis(change));
        changes.push(begun.elapsed());
    }
    changes.sort_unstable();
    let [median, longest] = [changes.len() / 2, changes.len() - 1].map(|at| changes[at]);
    let status = std::fs::read_to_string("/proc/self/status")?;
    let memory = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    println!(
        "{} {case}: {starts} starts in {first:.2?}; a change {median:.1?}, at most {longest:.1?}; {memory}",
        entry.name
    );
    Ok(())
}
