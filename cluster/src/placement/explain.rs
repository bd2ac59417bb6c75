//! Why a task starts where it does, and why not elsewhere: every node with its verdict and its cost.
//!
//! The nodes are those before the plan. A node is feasible if it can run the task and has a free slot; what
//! happened to that slot in the plan is in its verdict. The cost is the policy's own
//! ([`weigh`](crate::placement::turn::Policy::weigh)): by default the seconds in which the input moves. The
//! policies that solve for all tasks at once add the *price* of a slot, a dual variable of their solution:
//! what one more slot on the node would take off the least sum, with as many starts. A task is on a node at
//! which its cost and the price together are least, so a node with its input is not its place where others
//! need the slot more.
//!
//! Limits: the policy is asked anew, so this takes as long as a plan and, with prices, as long again. `dla`
//! has no prices: it solves for one task a node, again and again. Beyond ten million pairs of a task and a
//! node, and where the solver was stopped, there are none either, and the outcome says so. That a job waits
//! on purpose is shown for the job, not for each node.

use std::cmp::Ordering;

use serde::Serialize;

use crate::placement::catalogue::Entry;
use crate::placement::cluster::{Cluster, Locality, NodeId, State, TaskId};
use crate::placement::fault::Fault;
use crate::placement::input::VERSION;
use crate::placement::plan::{decide, why_unfit};
use crate::placement::resources::lacking;
use crate::placement::turn::{Choice, Reason, Weight};

/// A task and every node; the JSON of `lrs-place plan --explain TASK --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// Of the form of the file ([`VERSION`]).
    pub version: u32,
    /// Name of the policy.
    pub policy: String,
    /// Name of the job.
    pub job: String,
    /// Name of the task.
    pub task: String,
    /// What becomes of it, and why.
    pub outcome: String,
    /// Name of the feasible node with the least cost and price together.
    pub best: Option<String>,
    /// Name of the next one.
    pub second_best: Option<String>,
    /// All nodes, in the order of the input.
    pub nodes: Vec<Verdict>,
}

/// A task on a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Name of the node.
    pub node: String,
    /// Whether the task could start there before the plan.
    pub feasible: bool,
    /// Why not, or what became of the slot.
    pub verdict: String,
    /// How near the input is.
    pub locality: Locality,
    /// Until the input would be there; `None`: no network, or no connection.
    pub transfer_seconds: Option<f64>,
    /// What it costs the policy there; `None`: it cannot run there, or the policy knows no cost.
    pub cost: Option<f64>,
    /// What one more slot there would take off the least sum; `None`: the policy knows no prices, or no slot
    /// was free there.
    pub price: Option<f64>,
}

/// The task of this name, or `job/task`.
///
/// # Errors
/// Where there is none, or more than one.
pub fn find_task(cluster: &Cluster, named: &str) -> Result<TaskId, Fault> {
    let whole =
        |task: &TaskId| format!("{}/{}", cluster[cluster[*task].job].name, cluster[*task].name);
    let fault = |what: String| Fault { at: "jobs[].tasks[].name".into(), what };
    let exact = cluster.tasks().find(|task| whole(task) == named);
    let mut tasks = cluster.tasks().filter(|task| cluster[*task].name == named);
    match (exact, tasks.next(), tasks.next()) {
        (Some(task), ..) | (None, Some(task), None) => Ok(task),
        (None, None, _) => Err(fault(format!("there is no task {named:?}; name it as JOB/TASK"))),
        (None, Some(one), Some(other)) => {
            let (one, other) = (whole(&one), whole(&other));
            Err(fault(format!("{named:?} is {one:?} and {other:?}; name it as JOB/TASK")))
        }
    }
}

/// Asks a policy for a cluster, which stays as it is, and says of each node what that means for a task.
///
/// # Errors
/// With what the input has to say first.
pub fn explain(entry: &Entry, cluster: &Cluster, task: TaskId) -> Result<Explanation, Fault> {
    let mut policy = entry.policy(cluster)?;
    let all: Vec<NodeId> = cluster.nodes().collect();
    let weights = policy.weigh(cluster, &all, task);
    let mut planned = cluster.clone();
    let turn = decide(policy.as_mut(), &mut planned);
    let choice = turn.choices.iter().find(|choice| choice.task == task).cloned();
    let held = turn.held.get(&cluster[task].job).copied();
    // Such as a solver that was stopped, with what the plan may be off.
    let outcome = turn
        .warnings
        .iter()
        .fold(outcome(cluster, task, choice.as_ref(), held), |outcome, warning| {
            format!("{outcome}; {warning}")
        });
    let unpriced = weights.iter().find_map(|weight| weight.unpriced);
    let outcome = unpriced.map_or(outcome.clone(), |why| format!("{outcome}; no prices: {why}"));
    let of = |(node, weight): (&NodeId, Weight)| {
        let (node, left) = (*node, planned[*node].next_free().is_some());
        let why_not = why_not(cluster, task, node, weight.refused);
        let state = cluster[task].state();
        let feasible = why_not.is_none() && state == State::Waiting;
        let verdict = match (why_not, &choice, state) {
            (.., State::Running(on, _)) if on == node => "it runs here".to_owned(),
            (.., State::Running(..) | State::Ended) => "it does not wait".to_owned(),
            (Some(why), ..) => why,
            (None, Some(choice), _) if choice.node == node => {
                format!("it starts here: {}", choice.reason)
            }
            (None, ..) if !left => "feasible, but its free slots go to other tasks".to_owned(),
            (None, ..) => "feasible, and a slot stays free".to_owned(),
        };
        Verdict {
            node: cluster[node].name.clone(),
            feasible,
            verdict,
            locality: cluster.locality(task, node),
            transfer_seconds: cluster.transfer_seconds(task, node),
            cost: weight.cost.filter(|_| cluster.may_run(task, node)),
            price: weight.price,
        }
    };
    let nodes: Vec<Verdict> = all.iter().zip(weights).map(of).collect();
    let chosen = choice.map(|choice| choice.node.number());
    let total = |index: usize| nodes[index].cost.unwrap_or(0.0) + nodes[index].price.unwrap_or(0.0);
    let mut order: Vec<usize> = (0..nodes.len()).filter(|index| nodes[*index].feasible).collect();
    // Of equals the one that was chosen.
    order.sort_by(|a, b| {
        let key = |index: usize| (chosen != Some(index), nodes[index].locality, index);
        let (one, other) = (total(*a), total(*b));
        let is_equal = (one - other).abs() <= 1e-9 * one.abs().max(other.abs());
        let costs = if is_equal { Ordering::Equal } else { one.total_cmp(&other) };
        costs.then_with(|| key(*a).cmp(&key(*b)))
    });
    let name = |place: usize| order.get(place).map(|index| nodes[*index].node.clone());
    Ok(Explanation {
        version: VERSION,
        policy: entry.name.to_owned(),
        job: cluster[cluster[task].job].name.clone(),
        task: cluster[task].name.clone(),
        outcome,
        best: name(0),
        second_best: name(1),
        nodes,
    })
}

fn outcome(
    cluster: &Cluster,
    task: TaskId,
    choice: Option<&Choice>,
    held: Option<Reason>,
) -> String {
    if let Some(choice) = choice {
        return format!("starts on {}: {}", cluster[choice.node].name, choice.reason);
    }
    match cluster[task].state() {
        State::Running(node, _) => format!("runs on {}", cluster[node].name),
        State::Ended => "has ended".to_owned(),
        State::Waiting if cluster.unfit().any(|unfit| unfit == task) => {
            format!("waits, and can run on no node: {}", why_unfit(cluster, task))
        }
        State::Waiting if cluster.free_slots() == 0 => format!("waits: {}", Reason::NoFreeSlot),
        State::Waiting => format!("waits: {}", held.unwrap_or(Reason::NotChosen)),
    }
}

/// Why a task cannot start on a node now.
fn why_not(
    cluster: &Cluster,
    task: TaskId,
    node: NodeId,
    refused: Option<String>,
) -> Option<String> {
    if !cluster.may_run(task, node) {
        let lacks = lacking(&cluster[task].demand.fields(), &cluster.capacity(node).fields());
        return Some(match lacks.filter(|_| cluster[node].capacity.is_some()) {
            Some((wanted, has, what)) => format!("it takes {wanted} {what}, the node has {has}"),
            None => "the node is not connected with its input".to_owned(),
        });
    }
    cluster[node].next_free().is_none().then(|| "no slot is free".to_owned()).or(refused)
}
