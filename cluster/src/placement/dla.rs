//! DLAforBT: data-local allocation for batch tasks (Ru et al.): matching, and waiting where a node
//! with the input is free before the input could be moved.
//!
//! 1. Jobs get tasks admitted by dominant resource fairness over CPUs, memory and disk: always the
//!    job with the smallest dominant share (its largest share of any of them), while its next task
//!    fits into what is idle.
//! 2. Admitted tasks and the nodes that hold their input and have room are matched at the largest sum
//!    of weights; a weight is the idle share of the node. A node takes one task at each matching, and
//!    is matched again with what it has left.
//! 3. A task that is left over waits, if a node with its input is predicted to have room for it before
//!    the input could be moved (`W_rel < T_tran`); else it starts on the node with room that its input
//!    reaches first, the most idle one of equals.
//!
//! `T_tran` is size by bandwidth, which is the source's `|d| rtt / tcp_window`. The prediction is the
//! caller's (`running.remaining_seconds`); a task without one is not waited for. Ours: the idle share is
//! the mean over the three resources.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::placement::cluster::{Cluster, JobId, NodeId, TaskId};
use crate::placement::input::Kind;
use crate::placement::resources::{Resources, lacking};
use crate::placement::solver::{Answer, Costs};
use crate::placement::turn::{Policy, Reason, Turn, Weight};

/// The policy. It has no state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dla;

impl Policy for Dla {
    fn assign(&mut self, nodes: &[NodeId], turn: &mut Turn<'_>) {
        let mut left = admit(turn.cluster(), nodes);
        // Of all matchings; the first that is stopped says so, those after it are as hasty.
        let (mut steps, mut is_stopped) = (turn.most_steps(), false);
        loop {
            let before = left.len();
            let found;
            (left, found) = match_once(left, nodes, turn, steps);
            if !is_stopped {
                turn.warn_if_stopped(&found, before);
            }
            (steps, is_stopped) = (found.steps_left, is_stopped || found.hasty > 0);
            if left.len() == before {
                break;
            }
        }
        left.into_iter().for_each(|task| wait_or_move(task, nodes, turn));
    }

    fn weigh(&self, cluster: &Cluster, nodes: &[NodeId], task: TaskId) -> Vec<Weight> {
        let of = |node: &NodeId| {
            let room = cluster.idle(*node).fields();
            let lacks = lacking(&cluster[task].demand.fields(), &room);
            let refused = lacks.map(|(wanted, idle, what)| {
                format!("it takes {wanted} {what}, and {idle} are idle there")
            });
            Weight { cost: cluster.transfer_seconds(task, *node), refused, ..Weight::default() }
        };
        nodes.iter().map(of).collect()
    }
}

/// The tasks that may start, by dominant resource fairness.
fn admit(cluster: &Cluster, nodes: &[NodeId]) -> Vec<TaskId> {
    let total: Resources = cluster.nodes().map(|node| cluster.capacity(node)).sum();
    let mut idle: Resources = nodes.iter().map(|node| cluster.idle(*node)).sum();
    let mut used: BTreeMap<JobId, Resources> = BTreeMap::new();
    for task in cluster.nodes().flat_map(|node| cluster[node].running()) {
        let used = used.entry(cluster[task].job).or_default();
        *used = *used + cluster[task].demand;
    }
    let kinds = [Kind::Map, Kind::Reduce];
    let mut waiting: BTreeMap<JobId, Vec<TaskId>> = cluster
        .queue()
        .map(|job| {
            let tasks = kinds.iter().flat_map(|kind| cluster[job].waiting(*kind).iter());
            let mut tasks: Vec<TaskId> = tasks.collect();
            tasks.reverse();
            (job, tasks)
        })
        .collect();
    let mut admitted = Vec::new();
    let share = |used: &BTreeMap<JobId, Resources>, job: &JobId| {
        used.get(job).copied().unwrap_or_default().dominant(&total)
    };
    loop {
        let jobs = waiting.keys().copied();
        let least = jobs.min_by(|a, b| {
            let places = || cluster.place(*a).cmp(&cluster.place(*b));
            share(&used, a).total_cmp(&share(&used, b)).then_with(places)
        });
        let Some(job) = least else { break };
        let next = waiting.get_mut(&job).and_then(Vec::pop);
        let Some(task) = next.filter(|task| cluster[*task].demand.fits(&idle)) else {
            waiting.remove(&job);
            continue;
        };
        idle = idle - cluster[task].demand;
        let used = used.entry(job).or_default();
        *used = *used + cluster[task].demand;
        admitted.push(task);
    }
    admitted
}

/// Starts at most one task on each node that holds its input; what is left, and the matching.
fn match_once(
    tasks: Vec<TaskId>,
    nodes: &[NodeId],
    turn: &mut Turn<'_>,
    most_steps: u64,
) -> (Vec<TaskId>, Answer) {
    let cluster = turn.cluster();
    let free: Vec<(NodeId, f64)> = with_room(cluster, nodes).collect();
    let columns: BTreeMap<NodeId, usize> =
        free.iter().enumerate().map(|(column, (node, _))| (*node, column)).collect();
    let idle: Vec<Resources> = free.iter().map(|(node, _)| cluster.idle(*node)).collect();
    let at_home = |task: TaskId| {
        let demand = cluster[task].demand;
        let homes = cluster[task].replicas.iter().filter_map(|node| columns.get(node).copied());
        let homes: Vec<usize> = homes.filter(|column| demand.fits(&idle[*column])).collect();
        homes
    };
    let mut costs = Costs::new(vec![1; free.len()], Vec::new());
    let (mut rows, mut left) = (Vec::new(), Vec::new());
    for task in tasks {
        let homes = at_home(task);
        if homes.is_empty() {
            left.push(task);
        } else {
            // The largest sum of weights is the least sum of what they lack of 1.
            costs.add(homes.into_iter().map(|column| (column, Some(1.0 - free[column].1))), []);
            rows.push(task);
        }
    }
    // Weights are shares, so there is no fault.
    let found = costs.solve(Some(1.0), most_steps).unwrap_or_default();
    for (row, task) in rows.into_iter().enumerate() {
        let matched = found.columns.get(row).copied().flatten().map(|column| free[column]);
        let started = matched.is_some_and(|(node, idle)| {
            let tier = turn.cluster()[node].next_free();
            tier.is_some_and(|tier| turn.start(task, node, tier, Reason::Matched(idle)))
        });
        if !started {
            left.push(task);
        }
    }
    (left, found)
}

fn wait_or_move(task: TaskId, nodes: &[NodeId], turn: &mut Turn<'_>) {
    let cluster = turn.cluster();
    let fits = |(node, _): &(NodeId, f64)| cluster[task].demand.fits(&cluster.idle(*node));
    let nearest = with_room(cluster, nodes)
        .filter(fits)
        .filter_map(|(node, idle)| Some((cluster.transfer_seconds(task, node)?, idle, node)))
        .min_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let Some((seconds, _, node)) = nearest else { return };
    let job = cluster[task].job;
    let replicas = cluster[task].replicas.iter();
    let release = replicas.filter_map(|node| release(cluster, *node, task)).min();
    match (release.map(|after| after.as_secs_f64()), cluster[node].next_free()) {
        (Some(release), _) if release < seconds => turn.hold(job, Reason::FreeSoon(release)),
        (_, Some(tier)) => {
            turn.start(task, node, tier, Reason::SoonestInput);
        }
        (_, None) => {}
    }
}

/// When enough tasks of a node are predicted to have ended for `task` to fit there.
fn release(cluster: &Cluster, node: NodeId, task: TaskId) -> Option<Duration> {
    let running = cluster[node].running();
    let mut ends: Vec<(Duration, Resources)> =
        running.filter_map(|task| Some((cluster[task].remaining?, cluster[task].demand))).collect();
    ends.sort_by_key(|(after, _)| *after);
    let mut idle = cluster.idle(node);
    ends.into_iter().find_map(|(after, released)| {
        idle = idle + released;
        cluster[task].demand.fits(&idle).then_some(after)
    })
}

/// Nodes with a free slot, and the idle share of each.
fn with_room<'a>(cluster: &'a Cluster, nodes: &'a [NodeId]) -> impl Iterator<Item = (NodeId, f64)> {
    nodes
        .iter()
        .filter(|node| cluster[**node].next_free().is_some())
        .map(|node| (*node, cluster.idle(*node).mean_share(&cluster.capacity(*node))))
}
