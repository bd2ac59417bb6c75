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
//!
//! Limits. A task has a cost for each size of nodes ([`crate::placement::sizes`]) in each rack with its
//! input, and for each pair with a bandwidth of its own. Where these are more than five million together,
//! as where thousands of nodes and of tasks have each a memory figure of its own, the first tasks of the
//! queue are compared, as many as that is enough for, and a warning says so; the others come when these
//! have started.

use std::collections::{BTreeMap, BTreeSet};

use crate::placement::cluster::{Cluster, Locality, NodeId, RackId, TaskId};
use crate::placement::groups::Groups;
use crate::placement::input::Kind;
use crate::placement::resources::Resources;
use crate::placement::sizes::Sizes;
use crate::placement::solver::{Answer, Costs, MOST_STEPS, needed, prices};
use crate::placement::task::Task;
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
        let problem = Problem::of(*self, turn.cluster(), nodes, MOST_ENTRIES);
        if problem.later > 0 {
            turn.warn(format!(
                "the first {} tasks of the queue were compared, and {} come after them: with sizes of nodes by the demands that \
                 fit, racks and pairs with a bandwidth of their own there are too many costs to compare all",
                problem.tasks.len(),
                problem.later,
            ));
        }
        let answer = problem.solve(turn.most_steps());
        turn.warn_if_stopped(&answer, problem.tasks.len());
        for (row, column) in answer.columns.into_iter().enumerate() {
            let Some(column) = column else { continue };
            let node = problem.free[column];
            let Some(tier) = turn.cluster()[node].next_free() else { continue };
            let own = problem.at(turn.cluster(), row, column);
            turn.start(problem.tasks[row], node, tier, Reason::LeastCost(own));
        }
    }

    fn weigh(&self, cluster: &Cluster, nodes: &[NodeId], task: TaskId) -> Vec<Weight> {
        self.weigh_within((MOST_STEPS, MOST_ENTRIES), cluster, nodes, task)
    }
}

impl Lsap {
    fn weigh_within(
        &self,
        (most_steps, most_entries): (u64, usize),
        cluster: &Cluster,
        nodes: &[NodeId],
        task: TaskId,
    ) -> Vec<Weight> {
        let problem = Problem::of(*self, cluster, nodes, most_entries);
        let free = &problem.free;
        let tasks: Vec<TaskId> = waiting(cluster).collect();
        let of_groups = self.of_groups(cluster, &tasks, free);
        let answer = problem.solve(most_steps);
        let unpriced = if answer.hasty > 0 {
            Some("the solver was stopped, and prices are of a least sum")
        } else if problem.later > 0 {
            Some("not all tasks were compared, and prices are of a least sum")
        } else {
            // What the prices take is each of these with each node, more than once.
            let is_large = tasks.len().saturating_mul(free.len()) > MOST_PRICED;
            is_large.then_some("there are too many pairs of a task and a node")
        };
        let is_priced = unpriced.is_none();
        let started = answer.columns.iter().enumerate();
        let started: Vec<(usize, usize)> =
            started.filter_map(|(row, node)| Some((row, (*node)?))).collect();
        let starts: BTreeSet<TaskId> = started.iter().map(|(row, _)| problem.tasks[*row]).collect();
        let mut least = vec![f64::INFINITY; free.len()];
        for (of_group, other) in of_groups.iter().zip(&tasks).filter(|_| is_priced) {
            for (node, least) in free.iter().zip(&mut least).filter(|_| !starts.contains(other)) {
                *least = least.min(of_group + self.of_moving(cluster, *other, *node));
            }
        }
        let taken: Vec<usize> = started.iter().map(|(_, node)| *node).collect();
        let cost = |row: usize, node| problem.at(cluster, started[row].0, node);
        let prices = if is_priced { prices(&taken, &least, cost) } else { Vec::new() };
        let prices: BTreeMap<NodeId, f64> = free.iter().copied().zip(prices).collect();
        let own = tasks.iter().position(|other| *other == task).map_or(0.0, |at| of_groups[at]);
        let weight = |node: &NodeId| {
            let cost = Some(own + self.of_moving(cluster, task, *node));
            Weight { cost, price: prices.get(node).copied(), unpriced, ..Weight::default() }
        };
        nodes.iter().map(weight).collect()
    }
}

/// Most pairs of a task and a node for which prices are shown.
const MOST_PRICED: usize = 10_000_000;

/// Most pairs of a task and a node that are all compared, to leave out tasks that no best assignment needs.
const MOST_COMPARED: usize = 1_000_000;

/// Most costs of tasks on nodes and on sets of nodes. A solver takes about 50 bytes for each.
const MOST_ENTRIES: usize = 5_000_000;

/// The tasks and slots that are compared.
struct Problem {
    policy: Lsap,
    /// The nodes with a free slot: the columns.
    free: Vec<NodeId>,
    /// The rows, with what each costs its group.
    tasks: Vec<TaskId>,
    of_groups: Vec<f64>,
    costs: Costs,
    /// Tasks that are left out, since there would be too many costs.
    later: usize,
}

impl Problem {
    fn of(policy: Lsap, cluster: &Cluster, nodes: &[NodeId], most_entries: usize) -> Problem {
        let free: Vec<NodeId> =
            nodes.iter().copied().filter(|node| cluster[*node].next_free().is_some()).collect();
        let mut tasks: Vec<TaskId> = Vec::new();
        if !free.is_empty() {
            tasks.extend(waiting(cluster));
        }
        let most = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        let slots: Vec<u32> = free.iter().map(|node| cluster[*node].all_free().min(most)).collect();
        let mut of_groups = policy.of_groups(cluster, &tasks, &free);
        if tasks.len().saturating_mul(free.len()) <= MOST_COMPARED {
            let all = slots.iter().map(|slots| *slots as usize).sum();
            let rows = needed(tasks.len(), free.len(), all, |row, column| {
                of_groups[row] + policy.of_moving(cluster, tasks[row], free[column])
            });
            (tasks, of_groups) = rows.iter().map(|row| (tasks[*row], of_groups[*row])).unzip();
        }
        let shape = Shape::of(policy, cluster, &free, &tasks);
        let mut costs = Costs::new(slots, shape.sets.clone());
        let mut compared = 0;
        while compared < tasks.len() && costs.entries() < most_entries {
            shape.add(&mut costs, tasks[compared], of_groups[compared]);
            compared += 1;
        }
        let later = tasks.len() - compared;
        tasks.truncate(compared);
        of_groups.truncate(compared);
        Problem { policy, free, tasks, of_groups, costs, later }
    }

    fn solve(&self, most_steps: u64) -> Answer {
        // The costs are finite and not negative, because sizes, bandwidths and weights are checked.
        self.costs.solve(None, most_steps).unwrap_or_default()
    }

    /// What a task costs on a node; infinite where it cannot run.
    fn at(&self, cluster: &Cluster, row: usize, column: usize) -> f64 {
        self.of_groups[row] + self.policy.of_moving(cluster, self.tasks[row], self.free[column])
    }
}

/// The nodes of a rack that are of one size cost a task the same, but for those with its input and pairs
/// with a bandwidth of their own; so do all that are in no rack with its input.
struct Shape<'a> {
    policy: Lsap,
    cluster: &'a Cluster,
    free: &'a [NodeId],
    /// The column of each node that is free.
    columns: BTreeMap<NodeId, usize>,
    /// The capacity of one node of each size, with the set of all nodes of it.
    sizes: Vec<(Option<Resources>, usize)>,
    /// The nodes of a rack that are of a size.
    racks: BTreeMap<(RackId, usize), usize>,
    /// All sets: columns.
    sets: Vec<Vec<usize>>,
}

impl<'a> Shape<'a> {
    fn of(policy: Lsap, cluster: &'a Cluster, free: &'a [NodeId], tasks: &[TaskId]) -> Shape<'a> {
        let columns = free.iter().enumerate().map(|(column, node)| (*node, column)).collect();
        let (sizes, racks, sets) = (Vec::new(), BTreeMap::new(), Vec::new());
        let mut shape = Shape { policy, cluster, free, columns, sizes, racks, sets };
        let of_nodes = Sizes::of(tasks.iter().map(|task| cluster[*task].demand));
        let mut found: BTreeMap<[u64; 3], usize> = BTreeMap::new();
        for (column, node) in free.iter().enumerate() {
            let capacity = cluster[*node].capacity;
            let next = shape.sizes.len();
            let size = *found.entry(of_nodes.size(capacity)).or_insert(next);
            if size == next {
                shape.sizes.push((capacity, shape.sets.len()));
                shape.sets.push(Vec::new());
            }
            let all = shape.sizes[size].1;
            shape.sets[all].push(column);
            let next = shape.sets.len();
            let of_rack = *shape.racks.entry((cluster[*node].rack, size)).or_insert(next);
            if of_rack == next {
                shape.sets.push(Vec::new());
            }
            shape.sets[of_rack].push(column);
        }
        shape
    }

    /// What a task costs: on the nodes that are a case of their own, in the racks with its input, and
    /// anywhere.
    fn add(&self, costs: &mut Costs, task: TaskId, of_group: f64) {
        let (cluster, policy) = (self.cluster, self.policy);
        let Task { replicas, demand, bytes, .. } = &cluster[task];
        let may = |capacity: &Option<Resources>| capacity.is_none_or(|room| demand.fits(&room));
        let sizes = (0..self.sizes.len()).filter(|size| may(&self.sizes[*size].0));
        let network = cluster.network.as_ref().filter(|_| !matches!(policy, Lsap::Uniform));
        let alpha = if let Lsap::Fair { alpha, .. } = policy { alpha } else { 1.0 };
        let moved = |rate: Option<f64>| {
            let cost = match rate {
                _ if replicas.is_empty() => 0.0,
                Some(rate) => alpha * (*bytes as f64 / rate),
                None => alpha,
            };
            of_group + cost
        };
        let mut racks: Vec<RackId> = replicas.iter().map(|node| cluster[*node].rack).collect();
        racks.sort_unstable();
        racks.dedup();
        let (mut own, mut shared) = (replicas.clone(), Vec::new());
        let rates = network.map(|network| (network.within_rack, network.between_racks));
        for size in sizes {
            shared.push((self.sizes[size].1, moved(rates.map(|(_, between)| between))));
            for rack in &racks {
                let Some(set) = self.racks.get(&(*rack, size)).copied() else { continue };
                match rates {
                    Some((within, between)) if within > between => {
                        shared.push((set, moved(Some(within))));
                    }
                    // Nearer than anywhere is what the sets can say.
                    Some((within, between)) if within < between => {
                        own.extend(self.sets[set].iter().map(|column| self.free[*column]));
                    }
                    _ => {}
                }
            }
        }
        let pairs = cluster.network.iter().flat_map(|network| {
            let of = |from: &NodeId| {
                network.pairs.range((*from, NodeId(0))..=(*from, NodeId(usize::MAX)))
            };
            replicas.iter().flat_map(of).map(|((_, to), _)| *to)
        });
        own.extend(pairs);
        // What does not fit is in no set of the task.
        own.retain(|node| may(&cluster[*node].capacity));
        let own = own.into_iter().filter_map(|node| {
            let column = *self.columns.get(&node)?;
            let cost = of_group + policy.of_moving(cluster, task, node);
            Some((column, Some(cost).filter(|cost| cost.is_finite())))
        });
        costs.add(own, shared);
    }
}

/// All waiting tasks in the order of the queue.
fn waiting(cluster: &Cluster) -> impl Iterator<Item = TaskId> {
    cluster.queue().flat_map(|job| {
        let job = &cluster[job];
        job.waiting(Kind::Map).iter().chain(job.waiting(Kind::Reduce).iter())
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::check::parse;

    /// Racks, three sizes of nodes, pairs that differ or are cut, bandwidths in a rack above and below
    /// those between racks.
    fn cluster(rng: &mut fastrand::Rng) -> Cluster {
        let some = |rng: &mut fastrand::Rng, count: u32| {
            let count_of = rng.usize(0..4);
            let names = rng.choose_multiple(0..8, count_of).into_iter();
            let names: Vec<String> = names.map(|node: u32| format!("\"n{node}\"")).collect();
            let (cpus, bytes) = (rng.u32(0..4), rng.u32(0..9));
            format!(
                r#"{{"name": "{count}", "bytes": {bytes}, "replicas": [{}], "demand": {{"cpus": {cpus}}}}}"#,
                names.join(",")
            )
        };
        let node = |node: u32| {
            let (rack, slots, cpus) = (node % 3, node % 2 + 1, node % 4 + 1);
            let room = if cpus == 4 {
                String::new()
            } else {
                format!(r#", "capacity": {{"cpus": {cpus}}}"#)
            };
            format!(
                r#"{{"name": "n{node}", "rack": "{rack}", "slots": {{"active": {slots}}}{room}}}"#
            )
        };
        let mut pairs = Vec::new();
        for (from, to) in [(0, 1), (1, 2), (2, 7), (4, 3)] {
            let rate = ["null", "1", "100", "100"][rng.usize(0..4)];
            pairs.push(format!(r#"{{"from": "n{from}", "to": "n{to}", "bytes_per_sec": {rate}}}"#));
        }
        let tasks: Vec<String> = (0..12).map(|count| some(rng, count)).collect();
        let nodes: Vec<String> = (0..8).map(node).collect();
        let (within, between) = [(10, 2), (2, 10), (3, 3)][rng.usize(0..3)];
        let text = format!(
            r#"{{"nodes": [{}], "groups": [{{"name": "g", "weight": 1}}],
                "network": {{"within_rack_bytes_per_sec": {within}, "between_racks_bytes_per_sec": {between}, "pairs": [{}]}},
                "jobs": [{{"name": "j", "group": "g", "tasks": [{}]}}]}}"#,
            nodes.join(","),
            pairs.join(","),
            tasks.join(",")
        );
        parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn racks_and_exceptions_say_what_each_pair_costs() {
        let mut rng = fastrand::Rng::with_seed(21);
        for round in 0..500 {
            let cluster = cluster(&mut rng);
            let nodes: Vec<NodeId> = cluster.nodes().collect();
            for policy in [Lsap::Uniform, Lsap::Seconds, Lsap::FAIR] {
                let problem = Problem::of(policy, &cluster, &nodes, MOST_ENTRIES);
                for row in 0..problem.tasks.len() {
                    for column in 0..problem.free.len() {
                        let (sparse, pair) =
                            (problem.costs.at(row, column), problem.at(&cluster, row, column));
                        assert_eq!(sparse, pair, "{round}: {policy:?} {row} {column}");
                    }
                }
            }
        }
    }

    /// Nodes with a memory figure each, and tasks with these demands of memory.
    fn sized(nodes: u32, demands: &[u32]) -> Cluster {
        let node = |node: u32| {
            let memory = 1000 + node;
            format!(
                r#"{{"name": "n{node}", "slots": {{"active": 1}}, "capacity": {{"memory_bytes": {memory}}}}}"#
            )
        };
        let task = |(task, memory): (usize, &u32)| {
            format!(
                r#"{{"name": "{task}", "replicas": ["n0"], "demand": {{"memory_bytes": {memory}}}}}"#
            )
        };
        let nodes: Vec<String> = (0..nodes).map(node).collect();
        let tasks: Vec<String> = demands.iter().enumerate().map(task).collect();
        let text = format!(
            r#"{{"nodes": [{}], "jobs": [{{"name": "j", "tasks": [{}]}}]}}"#,
            nodes.join(","),
            tasks.join(",")
        );
        parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn nodes_with_a_figure_each_are_of_as_many_sizes_as_the_tasks_tell_apart() {
        for (demands, sizes) in [(vec![0; 100], 1), (vec![500; 100], 1), (vec![1050, 500], 2)] {
            let cluster = sized(200, &demands);
            let nodes: Vec<NodeId> = cluster.nodes().collect();
            let problem = Problem::of(Lsap::Uniform, &cluster, &nodes, MOST_ENTRIES);
            // With the node that has its input.
            assert!(problem.costs.entries() <= demands.len() * (sizes + 1), "{demands:?}");
        }
    }

    #[test]
    fn where_there_are_too_many_sizes_the_first_tasks_are_compared_and_the_others_come_next() {
        let demands: Vec<u32> = (0..100).map(|task| 1000 + task).collect();
        let mut cluster = sized(100, &demands);
        let nodes: Vec<NodeId> = cluster.nodes().collect();
        let problem = Problem::of(Lsap::Uniform, &cluster, &nodes, 1000);
        assert!((10..20).contains(&problem.tasks.len()), "{}", problem.tasks.len());
        assert_eq!(problem.tasks.len() + problem.later, 100);
        assert!(problem.costs.entries() < 1200, "{}", problem.costs.entries());
        let answer = problem.solve(MOST_STEPS);
        assert!(answer.columns.iter().all(Option::is_some), "{answer:?}");
        let mut turn = Turn::new(&mut cluster, std::time::Duration::ZERO);
        Lsap::Uniform.assign(&nodes, &mut turn);
        assert_eq!(turn.into_choices().len(), 100);
    }

    /// A row with nothing dearer than its sets is searched for together with others.
    #[test]
    fn a_node_with_the_input_that_is_too_small_is_no_case_of_its_own() {
        let cluster = sized(200, &[1050; 3]);
        let nodes: Vec<NodeId> = cluster.nodes().collect();
        let problem = Problem::of(Lsap::Uniform, &cluster, &nodes, MOST_ENTRIES);
        assert_eq!(problem.costs.entries(), 3, "one set each, and not n0");
    }

    #[test]
    fn a_solver_that_was_stopped_or_had_not_all_tasks_has_no_prices_and_says_why() {
        let cluster = sized(5, &[0; 3]);
        let nodes: Vec<NodeId> = cluster.nodes().collect();
        let task = waiting(&cluster).next().unwrap();
        let weigh = |most| Lsap::Uniform.weigh_within(most, &cluster, &nodes, task);
        for (most, why) in [((0, MOST_ENTRIES), "stopped"), ((MOST_STEPS, 1), "not all tasks")] {
            for weight in weigh(most) {
                assert!(weight.cost.is_some() && weight.price.is_none(), "{weight:?}");
                assert!(weight.unpriced.unwrap().contains(why), "{weight:?}");
            }
        }
        for weight in weigh((MOST_STEPS, MOST_ENTRIES)) {
            assert!(weight.price.is_some() && weight.unpriced.is_none(), "{weight:?}");
        }
    }
}
