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

use std::collections::{BTreeMap, BTreeSet};

use lrs_core::model::Tier;

use crate::placement::cluster::{Cluster, Locality, NodeId, TaskId};
use crate::placement::groups::Groups;
use crate::placement::input::Kind;
use crate::placement::solver::{MOST, needed, prices, solve};
use crate::placement::turn::{Policy, Reason, Turn, Weight};

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

    /// What each task costs its group.
    fn of_groups(self, cluster: &Cluster, tasks: &[TaskId], nodes: &[NodeId]) -> Vec<f64> {
        match self {
            Lsap::Fair { beta, .. } => fairness(cluster, tasks, nodes, beta),
            Lsap::Uniform | Lsap::Seconds => vec![0.0; tasks.len()],
        }
    }

    /// What it costs to bring the input of a task to a node; infinite where the task cannot run.
    fn of_moving(self, cluster: &Cluster, task: TaskId, node: NodeId) -> f64 {
        if !cluster.may_run(task, node) {
            return f64::INFINITY;
        }
        let (alpha, seconds) = match self {
            Lsap::Uniform => (1.0, None),
            Lsap::Seconds => (1.0, cluster.transfer_seconds(task, node)),
            Lsap::Fair { alpha, .. } => (alpha, cluster.transfer_seconds(task, node)),
        };
        let far = cluster.locality(task, node) != Locality::Node;
        alpha * seconds.unwrap_or(f64::from(u8::from(far)))
    }
}

impl Policy for Lsap {
    fn assign(&mut self, nodes: &[NodeId], turn: &mut Turn<'_>) {
        let problem = Problem::of(*self, turn.cluster(), nodes);
        problem.left_out.iter().for_each(|what| turn.warn(what.clone()));
        for (row, slot) in problem.solve().into_iter().enumerate() {
            let Some(column) = slot else { continue };
            let node = problem.free[column];
            let Some(tier) = turn.cluster()[node].next_free() else { continue };
            let own = problem.costs.at(row, column).unwrap_or(f64::INFINITY);
            turn.start(problem.costs.tasks[row], node, tier, Reason::LeastCost(own));
        }
    }

    fn weigh(&self, cluster: &Cluster, nodes: &[NodeId], task: TaskId) -> Vec<Weight> {
        let problem = Problem::of(*self, cluster, nodes);
        let (free, costs) = (&problem.free, &problem.costs);
        let tasks: Vec<TaskId> = waiting(cluster).collect();
        let of_groups = self.of_groups(cluster, &tasks, free);
        let found = problem.solve();
        let started: Vec<(usize, usize)> =
            found.iter().enumerate().filter_map(|(row, node)| Some((row, (*node)?))).collect();
        let starts: BTreeSet<TaskId> = started.iter().map(|(row, _)| costs.tasks[*row]).collect();
        let mut least = vec![f64::INFINITY; free.len()];
        for (of_group, other) in of_groups.iter().zip(&tasks) {
            for (node, least) in free.iter().zip(&mut least).filter(|_| !starts.contains(other)) {
                *least = least.min(of_group + self.of_moving(cluster, *other, *node));
            }
        }
        let taken: Vec<usize> = started.iter().map(|(_, node)| *node).collect();
        let prices = prices(&taken, &least, |row, node| {
            costs.at(started[row].0, node).unwrap_or(f64::INFINITY)
        });
        let prices: BTreeMap<NodeId, f64> = free.iter().copied().zip(prices).collect();
        let own = tasks.iter().position(|other| *other == task).map_or(0.0, |at| of_groups[at]);
        let weight = |node: &NodeId| {
            let cost = Some(own + self.of_moving(cluster, task, *node));
            Weight { cost, price: prices.get(node).copied(), ..Weight::default() }
        };
        nodes.iter().map(weight).collect()
    }
}

/// The tasks and slots that are compared.
struct Problem {
    /// The nodes with a free slot.
    free: Vec<NodeId>,
    costs: Costs,
    /// A column for each slot: the index of its node.
    slots: Vec<usize>,
    /// What is not compared.
    left_out: Option<String>,
}

impl Problem {
    fn of(policy: Lsap, cluster: &Cluster, nodes: &[NodeId]) -> Problem {
        let free: Vec<NodeId> =
            nodes.iter().copied().filter(|node| cluster[*node].next_free().is_some()).collect();
        let all = waiting(cluster).count();
        // As many as can be compared with each free node in the time that the largest matrix takes.
        let mut kept = all.min((MOST * MOST / free.len().max(1)).max(MOST));
        let tasks: Vec<TaskId> = waiting(cluster).take(kept).collect();
        let mut slots = free_slots(cluster, &free, tasks.len());
        let free_slots = slots.len();
        let mut costs = Costs::new(policy, cluster, tasks, &free, slots.len());
        if costs.tasks.len() > MOST {
            costs.tasks.truncate(MOST);
            kept = MOST;
        }
        // Columns that no row needs are left out by the solver.
        if costs.tasks.len() == MOST {
            slots.truncate(MOST);
        }
        let left_out = (kept < all || slots.len() < free_slots).then(|| {
            let slots = slots.len();
            format!(
                "{kept} of {all} waiting tasks and {slots} of {free_slots} free slots were compared; \
                 more are beyond the solver, and the best of all may be another assignment"
            )
        });
        Problem { free, costs, slots, left_out }
    }

    /// The index of the node of each task, at the least sum.
    fn solve(&self) -> Vec<Option<usize>> {
        let cost = |row: usize, slot: usize| self.costs.at(row, self.slots[slot]);
        let solved = solve(self.costs.tasks.len(), self.slots.len(), cost);
        // The costs are finite and not negative, because sizes, bandwidths and weights are checked.
        let found = solved.unwrap_or_default().into_iter();
        found.map(|slot| slot.map(|slot| self.slots[slot])).collect()
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
        let of_groups = policy.of_groups(cluster, &tasks, nodes);
        let cost = |row: usize, column: usize| {
            of_groups[row] + policy.of_moving(cluster, tasks[row], nodes[column])
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
