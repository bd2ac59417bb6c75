//! One decision for a whole cluster: what a policy would start now, and what that costs.
//!
//! The nodes report in the order of the input, round after round, until a round starts nothing. That
//! is what heartbeats do on a cluster while nothing ends, and it is what makes "never both tiers in
//! one heartbeat" spread work over the nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use lrs_core::model::Tier;
use serde::Serialize;

use crate::placement::catalogue::Entry;
use crate::placement::cluster::{Cluster, JobId, Locality, NodeId, TaskId};
use crate::placement::fault::Fault;
use crate::placement::groups::warnings;
use crate::placement::input::{Kind, VERSION};
use crate::placement::turn::{PassedOver, Policy, Reason, Turn};

/// What a policy starts, and what waits; the JSON of `lrs-place plan --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Of the form of the file ([`VERSION`]), which takes `waited_seconds`, `offers` and `level` of a plan.
    pub version: u32,
    /// Name of the policy.
    pub policy: &'static str,
    /// The starts, in order.
    pub assigned: Vec<Assigned>,
    /// The jobs with tasks that wait.
    pub waiting: Vec<WaitingJob>,
    /// What is not known or does not fit together in the input, and what the policy could not take into
    /// account.
    pub warnings: Vec<String>,
    /// Totals.
    pub summary: Summary,
}

/// A task that starts.
#[derive(Clone, Debug, Serialize)]
pub struct Assigned {
    /// Name of the job.
    pub job: String,
    /// Name of the task.
    pub task: String,
    /// Map or reduce.
    pub kind: Kind,
    /// Name of the node.
    pub node: String,
    /// Its tier there.
    pub tier: Tier,
    /// How near its input is.
    pub locality: Locality,
    /// Until the input is there; `None`: the input has no network.
    pub transfer_seconds: Option<f64>,
    /// Why this task on this slot.
    pub reason: String,
}

/// A job with tasks that wait.
#[derive(Clone, Debug, Serialize)]
pub struct WaitingJob {
    /// Name of the job.
    pub job: String,
    /// How many of its tasks wait.
    pub tasks: usize,
    /// Why.
    pub reason: String,
    /// How it was passed over, by a policy that counts it; for the next file's job.
    #[serde(flatten)]
    pub passed: Option<PassedOver>,
}

/// A plan in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Tasks that start.
    pub assigned: usize,
    /// Of these, on a node that holds the input.
    pub node_local: usize,
    /// In a rack that holds it.
    pub rack_local: usize,
    /// Elsewhere.
    pub remote: usize,
    /// In active slots.
    pub active: usize,
    /// Tasks that wait.
    pub waiting: usize,
    /// Seconds of moving input, summed; `None`: the input has no network.
    pub transfer_seconds: Option<f64>,
}

/// Asks a policy for a cluster, which stays as it is.
pub fn plan(entry: &Entry, cluster: &Cluster) -> Result<Plan, Fault> {
    let mut policy = entry.policy(cluster)?;
    let mut cluster = cluster.clone();
    let turn = decide(policy.as_mut(), &mut cluster);
    Ok(report(entry.name, policy.as_ref(), turn))
}

/// Lets the nodes report until a round starts nothing.
pub(crate) fn decide<'a>(policy: &mut dyn Policy, cluster: &'a mut Cluster) -> Turn<'a> {
    let now = cluster.jobs().map(|job| cluster[job].arrived).max().unwrap_or(Duration::ZERO);
    let nodes: Vec<NodeId> = cluster.nodes().collect();
    let mut turn = Turn::new(cluster, now);
    loop {
        let before = turn.choices.len();
        policy.assign(&nodes, &mut turn);
        if turn.choices.len() == before {
            return turn;
        }
    }
}

fn report(name: &'static str, policy: &dyn Policy, turn: Turn<'_>) -> Plan {
    let cluster = turn.cluster();
    let no_slot = cluster.nodes().all(|node| cluster[node].next_free().is_none());
    let mut summary = Summary { transfer_seconds: Some(0.0), ..Summary::default() };
    let mut assigned = Vec::with_capacity(turn.choices.len());
    for choice in &turn.choices {
        let task = &cluster[choice.task];
        summary.assigned += 1;
        *match choice.locality {
            Locality::Node => &mut summary.node_local,
            Locality::Rack => &mut summary.rack_local,
            Locality::Remote => &mut summary.remote,
        } += 1;
        summary.active += usize::from(choice.tier == Tier::Active);
        let transfers = summary.transfer_seconds.zip(choice.transfer_seconds);
        summary.transfer_seconds = transfers.map(|(sum, seconds)| sum + seconds);
        assigned.push(Assigned {
            job: cluster[task.job].name.clone(),
            task: task.name.clone(),
            kind: task.kind,
            node: cluster[choice.node].name.clone(),
            tier: choice.tier,
            locality: choice.locality,
            transfer_seconds: choice.transfer_seconds,
            reason: choice.reason.to_string(),
        });
    }
    let mut waiting = Vec::new();
    for job in cluster.queue() {
        let passed = policy.passed_over(&turn, job);
        let held = turn.held.get(&job).copied();
        let reason = if no_slot { Reason::NoFreeSlot } else { held.unwrap_or(Reason::NotChosen) };
        let job = &cluster[job];
        let tasks = job.waiting_tasks();
        summary.waiting += tasks;
        let (name, reason) = (job.name.clone(), reason.to_string());
        waiting.push(WaitingJob { job: name, tasks, reason, passed });
    }
    let mut warnings: Vec<String> =
        cluster.unknown.iter().cloned().chain(warnings(cluster)).collect();
    warnings.extend(turn.warnings.iter().cloned());
    for (job, mut tasks) in unfit(cluster) {
        let (first, count) = (tasks.remove(0), tasks.len() + 1);
        let (name, reason) = (cluster[job].name.clone(), why_unfit(cluster, first));
        let of = &cluster[first].name;
        let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        warnings.push(format!("{of}{more} of {name} can run on no node: {reason}"));
        summary.waiting += count;
        waiting.push(WaitingJob { job: name, tasks: count, reason, passed: None });
    }
    Plan { version: VERSION, policy: name, assigned, waiting, warnings, summary }
}

/// The tasks that no node can run, by their jobs.
fn unfit(cluster: &Cluster) -> BTreeMap<JobId, Vec<TaskId>> {
    let mut jobs: BTreeMap<JobId, Vec<TaskId>> = BTreeMap::new();
    cluster.unfit().for_each(|task| jobs.entry(cluster[task].job).or_default().push(task));
    jobs
}

/// Why no node can run a task.
pub(crate) fn why_unfit(cluster: &Cluster, task: TaskId) -> String {
    let demand = cluster[task].demand.fields();
    let most = |field: usize| {
        cluster.nodes().map(|node| cluster.capacity(node).fields()[field].1).fold(0.0, f64::max)
    };
    for (field, unit) in ["CPUs", "bytes of memory", "bytes of disk"].into_iter().enumerate() {
        let (wanted, most) = (demand[field].1, most(field));
        if wanted > most {
            return format!("no node has {wanted} {unit}, the largest has {most}");
        }
    }
    let fits = |node| cluster[task].demand.fits(&cluster.capacity(node));
    match cluster.nodes().any(fits) {
        true => "no node that has what it takes is connected with its input".to_owned(),
        false => "no node has all of what it takes together".to_owned(),
    }
}
