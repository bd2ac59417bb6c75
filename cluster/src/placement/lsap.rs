//! lsap-sched and its relatives (Guo, Fox, Zhou, "Investigation of data locality and fairness in
//! MapReduce", MapReduce'12, sections 3 and 4): all waiting tasks and all free slots at once.
//!
//! The cost of a task on a slot is what it costs to bring its input there, and the sum over all starts
//! is the least possible:
//!
//! - `lsap-uniform`: 0 on a node with the input, 1 on any other;
//! - `lsap`: the seconds of the transfer from the replica nearest in bandwidth;
//! - `lsap-fair`: the same times alpha, plus what it costs the groups. `s_i` is a group's share of what
//!   runs, `w_i` its share of the weights. As many of its tasks as it still lacks of its share of all
//!   slots cost `100 s_i / w_i`, those with input on a free node first; the others `beta (1 - w_i)`. A
//!   small alpha favours fairness, a large one locality.
//!
//! With fewer slots than tasks the cheapest tasks win: the method takes no account of age (the source
//! proposes to lower the cost with waiting and gives no formula), so an old task may wait long. Among
//! equal costs the order of the queue decides where the solver leaves a choice.
//!
//! Ours: of a node's free slots the active ones are taken first.

use std::collections::BTreeSet;

use lrs_core::model::Tier;

use crate::placement::cluster::{Cluster, Locality, NodeId, TaskId};
use crate::placement::groups::Groups;
use crate::placement::input::Kind;
use crate::placement::solver::{MOST, needed, solve};
use crate::placement::turn::{Policy, Reason, Turn};

/// The policy.
#[derive(Clone, Copy, Debug)]
pub enum Lsap {
    /// Local or not.
    Uniform,
    /// Seconds of transfer.
    Seconds,
    /// Seconds of transfer against shares of groups.
    Fair {
        /// Weight of a second of transfer.
        alpha: f64,
        /// Cost of a task beyond its group's share.
        beta: f64,
    },
}

impl Lsap {
    /// A second of transfer counts 1, a task beyond its group's share as one of a group that has
    /// twice its share.
    pub const FAIR: Lsap = Lsap::Fair { alpha: 1.0, beta: 200.0 };
}

impl Policy for Lsap {
    fn assign(&mut self, nodes: &[NodeId], turn: &mut Turn<'_>) {
        let cluster = turn.cluster();
        let free: Vec<NodeId> =
            nodes.iter().copied().filter(|node| cluster[*node].next_free().is_some()).collect();
        let all = waiting(cluster).count();
        // As many as can be compared with each free node in the time that the largest matrix takes.
        let mut kept = all.min((MOST * MOST / free.len().max(1)).max(MOST));
        let tasks: Vec<TaskId> = waiting(cluster).take(kept).collect();
        let mut slots = free_slots(cluster, &free, tasks.len());
        let free_slots = slots.len();
        let mut costs = Costs::new(*self, cluster, tasks, &free, slots.len());
        if costs.tasks.len() > MOST {
            costs.tasks.truncate(MOST);
            kept = MOST;
        }
        // Columns that no row needs are left out by the solver.
        if costs.tasks.len() == MOST {
            slots.truncate(MOST);
        }
        if kept < all || slots.len() < free_slots {
            let slots = slots.len();
            turn.warn(format!(
                "{kept} of {all} waiting tasks and {slots} of {free_slots} free slots were compared; \
                 more are beyond the solver, and the best of all may be another assignment"
            ));
        }
        let cost = |row: usize, slot: usize| costs.at(row, slots[slot]);
        let solved = solve(costs.tasks.len(), slots.len(), cost);
        // The costs are finite and not negative, because sizes, bandwidths and weights are checked.
        let Ok(found) = solved else { return };
        for (row, slot) in found.into_iter().enumerate() {
            let Some(slot) = slot else { continue };
            let node = free[slots[slot]];
            let Some(tier) = turn.cluster()[node].next_free() else { continue };
            let own = costs.at(row, slots[slot]).unwrap_or(f64::INFINITY);
            turn.start(costs.tasks[row], node, tier, Reason::LeastCost(own));
        }
    }
}

/// All waiting tasks in the order of the queue.
fn waiting(cluster: &Cluster) -> impl Iterator<Item = TaskId> {
    cluster.queue().flat_map(|job| {
        let job = &cluster[job];
        job.waiting(Kind::Map).iter().chain(job.waiting(Kind::Reduce).iter())
    })
}

/// A column for each free slot: the index of its node in `nodes`. No node needs more than `tasks`.
fn free_slots(cluster: &Cluster, nodes: &[NodeId], tasks: usize) -> Vec<usize> {
    let of = |(index, node): (usize, &NodeId)| {
        let free = cluster[*node].free(Tier::Active) + cluster[*node].free(Tier::Passive);
        std::iter::repeat_n(index, tasks.min(free as usize))
    };
    nodes.iter().enumerate().flat_map(of).collect()
}

/// What each task costs on each node.
struct Costs {
    tasks: Vec<TaskId>,
    nodes: usize,
    /// Infinite where the task cannot run.
    fields: Vec<f64>,
}

impl Costs {
    /// Of the tasks only those that a best assignment to so many slots can need.
    fn new(
        policy: Lsap,
        cluster: &Cluster,
        tasks: Vec<TaskId>,
        nodes: &[NodeId],
        slots: usize,
    ) -> Costs {
        let alpha = if let Lsap::Fair { alpha, .. } = policy { alpha } else { 1.0 };
        let fairness = match policy {
            Lsap::Fair { beta, .. } => fairness(cluster, &tasks, nodes, beta),
            Lsap::Uniform | Lsap::Seconds => vec![0.0; tasks.len()],
        };
        let cost = |row: usize, column: usize| {
            let (task, node) = (tasks[row], nodes[column]);
            if !cluster.may_run(task, node) {
                return f64::INFINITY;
            }
            let seconds = match policy {
                Lsap::Uniform => None,
                Lsap::Seconds | Lsap::Fair { .. } => cluster.transfer_seconds(task, node),
            };
            let far = cluster.locality(task, node) != Locality::Node;
            fairness[row] + alpha * seconds.unwrap_or(f64::from(u8::from(far)))
        };
        let rows = needed(tasks.len(), nodes.len(), slots, cost);
        let mut fields = Vec::with_capacity(rows.len().saturating_mul(nodes.len()));
        for row in &rows {
            fields.extend((0..nodes.len()).map(|column| cost(*row, column)));
        }
        let tasks = rows.into_iter().map(|row| tasks[row]).collect();
        Costs { tasks, nodes: nodes.len(), fields }
    }

    /// None: the task cannot run there.
    fn at(&self, row: usize, node: usize) -> Option<f64> {
        Some(self.fields[row * self.nodes + node]).filter(|cost| cost.is_finite())
    }
}

/// What each task costs its group.
fn fairness(cluster: &Cluster, tasks: &[TaskId], nodes: &[NodeId], beta: f64) -> Vec<f64> {
    let groups = Groups::of(cluster);
    let lacking = |group| groups.share(group).lacking(cluster.slots());
    let mut lacking: Vec<usize> = cluster.groups().map(lacking).collect();
    let beyond = |task: &TaskId| beta * (1.0 - groups.share(cluster.group_of(*task)).of_weights);
    let mut costs: Vec<f64> = tasks.iter().map(beyond).collect();
    let nodes: BTreeSet<NodeId> = nodes.iter().copied().collect();
    let local = |task: TaskId| {
        let replicas = &cluster[task].replicas;
        replicas.is_empty() || replicas.iter().any(|node| nodes.contains(node))
    };
    for wanted in [true, false] {
        let of_these = tasks.iter().zip(&mut costs).filter(|(task, _)| local(**task) == wanted);
        for (task, cost) in of_these {
            let group = cluster.group_of(*task);
            if lacking[group.0] > 0 {
                lacking[group.0] -= 1;
                let share = groups.share(group);
                *cost = 100.0 * share.of_running / share.of_weights;
            }
        }
    }
    costs
}
