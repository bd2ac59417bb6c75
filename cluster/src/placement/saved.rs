//! A cluster and a policy as text, and back: a scheduler that was restarted goes on as if it had not been.
//!
//! What is written is the cluster with its numbers, as a forgotten job's number goes to a later one and
//! numbers decide between equals, and what the policy keeps ([`Policy::save`]). What can be found from the
//! rest is not written: sums, who waits, by what input. A text that does not fit together is refused, so
//! that no later decision fails on it.
//!
//! This is no input file: it is for the program that wrote it, of the same [`VERSION`]. Times are the
//! caller's own, so its clock must go on from where it was. What a [`crate::placement::preempt`] counts is
//! not in it: groups wait for their timeouts anew.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::placement::catalogue::Entry;
use crate::placement::check::{DEEPEST, MEASURES, MOST_RESOURCES, MOST_SLOTS};
use crate::placement::cluster::{Cluster, JobId, NodeId, State, TaskId};
use crate::placement::fault::Fault;
use crate::placement::turn::Policy;

/// The version of this form.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    policy: &'a str,
    state: Value,
    cluster: &'a Cluster,
}

#[derive(Deserialize)]
struct Read {
    version: u32,
    policy: String,
    state: Value,
    cluster: Cluster,
}

fn fault(at: &str, what: impl ToString) -> Fault {
    Fault { at: format!("the saved {at}"), what: what.to_string() }
}

/// A cluster and its policy, which is that of `entry`.
///
/// # Errors
/// Where the policy has something that cannot be written.
pub fn save(cluster: &Cluster, entry: &Entry, policy: &dyn Policy) -> Result<String, Fault> {
    let (version, state) = (VERSION, policy.save());
    let written = Written { version, policy: entry.name, state, cluster };
    serde_json::to_string(&written).map_err(|error| fault("cluster", error))
}

/// What [`save`] has written.
///
/// # Errors
/// Where it does not fit together, or is of another policy or version.
pub fn load(text: &str, entry: &Entry) -> Result<(Cluster, Box<dyn Policy>), Fault> {
    let read: Read = serde_json::from_str(text)
        .map_err(|error| fault("state", format!("{error}; write it anew with this program")))?;
    if read.version != VERSION {
        let what = format!("is of version {}, this program reads {VERSION}", read.version);
        return Err(fault("state", what));
    }
    if read.policy != entry.name {
        let what = format!("is of the policy {:?}, not of {:?}", read.policy, entry.name);
        return Err(fault("state", what));
    }
    let mut cluster = read.cluster;
    verify(&cluster).map_err(|what| fault("cluster", what))?;
    cluster.find_again();
    let mut policy = entry.policy(&cluster)?;
    policy.load(&read.state).map_err(|what| fault("policy", what))?;
    Ok((cluster, policy))
}

/// Whether all numbers are of something, and both sides of each relation are there.
fn verify(cluster: &Cluster) -> Result<(), String> {
    let Cluster { nodes, jobs, tasks, groups, network, spare_jobs, spare_tasks, .. } = cluster;
    let is = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_owned()) };
    is(!groups.is_empty(), "there is no group")?;
    for group in groups {
        is(MEASURES.contains(&group.weight), "a weight is none")?;
        is(group.parent.is_none_or(|parent| parent.0 < groups.len()), "a group's parent is none")?;
    }
    for group in cluster.groups() {
        let above = std::iter::successors(Some(group), |group| cluster[*group].parent);
        is(above.take(DEEPEST + 1).count() <= DEEPEST, "a group is below itself")?;
    }
    let amounts =
        tasks.iter().map(|task| task.demand).chain(nodes.iter().filter_map(|of| of.capacity));
    for (_, amount) in amounts.flat_map(|amounts| amounts.fields()) {
        is((0.0..=MOST_RESOURCES).contains(&amount), "an amount is none")?;
    }
    if let Some(network) = network {
        let rates = network.pairs.values().flatten();
        let mut rates = rates.chain([&network.within_rack, &network.between_racks]);
        is(rates.all(|rate| MEASURES.contains(rate)), "a bandwidth is none")?;
        let mut ends = network.pairs.keys().flat_map(|(from, to)| [from, to]);
        is(ends.all(|node| node.0 < nodes.len()), "a pair is of no nodes")?;
    }
    let mut of_jobs = BTreeSet::new();
    for (number, job) in jobs.iter().enumerate() {
        is(job.group.0 < groups.len(), "a job's group is none")?;
        is(!job.forgotten || job.tasks.is_empty(), "a job that was forgotten has tasks")?;
        is(job.forgotten == spare_jobs.contains(&JobId(number)), "a job is forgotten and is not")?;
        for task in &job.tasks {
            let of = tasks.get(task.0).map(|task| task.job);
            is(of == Some(JobId(number)) && of_jobs.insert(*task), "a task is of another job")?;
        }
    }
    let mut seated = BTreeMap::new();
    for (number, node) in nodes.iter().enumerate() {
        is(
            node.slots_of().into_iter().all(|slots| slots <= MOST_SLOTS),
            "a node has too many slots",
        )?;
        for task in node.running() {
            is(seated.insert(task, NodeId(number)).is_none(), "a task runs twice")?;
        }
    }
    for (number, task) in tasks.iter().enumerate() {
        let id = TaskId(number);
        is(task.job.0 < jobs.len(), "a task's job is none")?;
        is(task.replicas.iter().all(|node| node.0 < nodes.len()), "a replica is on no node")?;
        let on = match task.state {
            State::Running(node, _) => Some(node),
            State::Waiting | State::Ended => None,
        };
        is(seated.remove(&id) == on, "a task runs on another node")?;
        is(task.state == State::Ended || of_jobs.contains(&id), "a task is of no job")?;
    }
    is(seated.is_empty(), "what runs is no task")?;
    let spare: BTreeSet<&TaskId> = spare_tasks.iter().collect();
    let is_spare = |task: &TaskId| task.0 < tasks.len() && !of_jobs.contains(task);
    is(
        spare.len() == spare_tasks.len() && spare_tasks.iter().all(is_spare),
        "a number is used twice",
    )?;
    let spare: BTreeSet<&JobId> = spare_jobs.iter().collect();
    let all = spare.len() == spare_jobs.len() && spare_jobs.iter().all(|job| job.0 < jobs.len());
    is(all, "a number is used twice")
}
