//! The loop of a scheduler that asks a policy: what happens changes the cluster, then the policy is asked, and what
//! it starts is carried out. In the middle the scheduler is restarted, and goes on from its saved state.
//!
//! `cargo run -p lrs-place --example living_cluster`
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use lrs_place::placement::catalogue::Entry;
use lrs_place::placement::check::parse;
use lrs_place::placement::cluster::{Cluster, NodeId, Priority};
use lrs_place::placement::input::{Kind, SlotsInput};
use lrs_place::placement::live::{NewJob, NewTask};
use lrs_place::placement::resources::Resources;
use lrs_place::placement::saved::{load, save};
use lrs_place::placement::turn::{Policy, Turn};

const NODES: &str = r#"{"version": 1, "nodes": [
    {"name": "a", "rack": "r", "slots": {"active": 2}},
    {"name": "b", "rack": "r", "slots": {"active": 2}}]}"#;

/// Asks the policy for the nodes that have reported, and says what it starts; a scheduler starts it.
fn ask(cluster: &mut Cluster, policy: &mut dyn Policy, seconds: u64, log: &mut Vec<String>) {
    let nodes: Vec<NodeId> = cluster.nodes().collect();
    let mut turn = Turn::new(cluster, Duration::from_secs(seconds));
    policy.assign(&nodes, &mut turn);
    for choice in turn.into_choices() {
        let (task, node) = (&cluster[choice.task].name, &cluster[choice.node].name);
        log.push(format!("{seconds} s: {task} starts on {node}: {}", choice.reason));
    }
}

/// What happens in a minute.
pub fn run() -> Result<Vec<String>, Box<dyn Error>> {
    let entry = Entry::find("delay")?;
    let mut cluster = parse(NODES.as_bytes())?;
    let mut policy = entry.policy(&cluster)?;
    let mut log = Vec::new();
    let nodes: Vec<NodeId> = cluster.nodes().collect();
    let group = cluster.groups().next().ok_or("a cluster has a group")?;
    let (name, arrived) = ("sort".to_owned(), Duration::ZERO);
    let job = cluster.arrive(NewJob { name, group, priority: Priority(0), rate: None, arrived });
    for number in 0..4 {
        let (name, replicas) = (format!("m{number}"), vec![nodes[0]]);
        let (kind, demand) = (Kind::Map, Resources::default());
        cluster.submit(job, NewTask { name, kind, bytes: 1 << 27, replicas, demand });
    }
    // Two start at their input, two wait for it.
    ask(&mut cluster, policy.as_mut(), 0, &mut log);

    // A restart: the cluster, and for how long the job was passed over.
    let saved = save(&cluster, entry, policy.as_ref())?;
    (cluster, policy) = load(&saved, entry)?;

    // The other node has one slot from now on. After 10 s the job takes it; then the node drains, so that the last
    // task waits until one at its input ends. What runs on the node when it goes is withdrawn.
    cluster.resize(nodes[1], SlotsInput { active: 1, passive: 0 });
    ask(&mut cluster, policy.as_mut(), 9, &mut log);
    ask(&mut cluster, policy.as_mut(), 10, &mut log);
    cluster.drain(nodes[1], true);
    let first = cluster[nodes[0]].running().next().ok_or("m0 runs")?;
    cluster.finish(first);
    ask(&mut cluster, policy.as_mut(), 20, &mut log);
    for task in cluster.leave(nodes[1]) {
        log.push(format!("30 s: {} is lost with its node", cluster[task].name));
        cluster.withdraw(task);
    }
    Ok(log)
}

fn main() -> Result<(), Box<dyn Error>> {
    run()?.into_iter().for_each(|line| println!("{line}"));
    Ok(())
}
