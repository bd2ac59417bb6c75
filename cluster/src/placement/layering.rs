//! The layering-aware scheduler (thesis ch. 3, Alg. 1): slots in two tiers, jobs with priorities.
//!
//! At each heartbeat of a node, jobs by priority, then arrival:
//!
//! 1. at most one reduce, of the job of the highest priority that has one: if an active slot is free,
//!    or the job's priority is above the lowest active one, so that the node makes it active;
//! 2. maps, until those on the node are its slots times the share of maps among all tasks, so that
//!    reduces keep room: active slots first, in order; then passive slots, first for jobs above the
//!    lowest active priority, then for maps of any job with input on the node, then for the rest.
//!
//! Nothing is preempted. Ours, where the source is silent: the tasks are those that wait or run, the
//! limit is rounded down but not to zero, and a job's maps with input on the node come first in every
//! stage.

use lrs_core::model::{Priority, Tier};

use crate::placement::cluster::{Cluster, Locality, NodeId, TaskId};
use crate::placement::input::Kind;
use crate::placement::turn::{Policy, Reason, Turn};

/// The policy. It has no state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layering;

impl Policy for Layering {
    fn assign(&mut self, nodes: &[NodeId], turn: &mut Turn<'_>) {
        let share = turn.cluster().share_of_maps();
        for node in nodes {
            reduce(*node, turn);
            maps(*node, share, turn);
        }
    }
}

fn reduce(node: NodeId, turn: &mut Turn<'_>) {
    let cluster = turn.cluster();
    let Some(tier) = cluster[node].next_free() else { return };
    let Some(job) = cluster.queue().find(|job| !cluster[*job].reduces.is_empty()) else { return };
    let Some(task) = cluster[job].reduces.iter().next() else { return };
    if tier == Tier::Active || above(cluster[job].priority, cluster, node) {
        turn.start(task, node, tier, Reason::OneReduce);
    } else {
        turn.hold(job, Reason::NotAboveLowestActive);
    }
}

fn maps(node: NodeId, share: f64, turn: &mut Turn<'_>) {
    let slots = f64::from(turn.cluster()[node].slots());
    let most = (slots * share).floor().max(1.0) as usize;
    let cluster = turn.cluster();
    let running = cluster[node].running().filter(|task| cluster[*task].kind == Kind::Map).count();
    for _ in running..most {
        let Some(tier) = turn.cluster()[node].next_free() else { return };
        let Some((task, reason)) = next_map(turn.cluster(), node, tier) else { return };
        turn.start(task, node, tier, reason);
    }
    if turn.cluster()[node].next_free().is_some() {
        let cluster = turn.cluster();
        let held: Vec<_> = cluster.queue().filter(|job| !cluster[*job].maps.is_empty()).collect();
        held.into_iter().for_each(|job| turn.hold(job, Reason::MapsHaveTheirShare));
    }
}

/// The map for a free slot of `tier`.
fn next_map(cluster: &Cluster, node: NodeId, tier: Tier) -> Option<(TaskId, Reason)> {
    let of = |least: Option<Priority>, limit| {
        cluster
            .queue()
            .filter(|job| least.is_none_or(|least| cluster[*job].priority > least))
            .find_map(|job| cluster[job].maps.first(node, cluster[node].rack, limit))
    };
    if tier == Tier::Active {
        return of(None, Locality::Remote).map(|task| (task, Reason::ActiveSlot));
    }
    let lowest = cluster.lowest_active(node);
    let higher = lowest.and_then(|lowest| of(Some(lowest), Locality::Remote));
    higher
        .map(|task| (task, Reason::AboveLowestActive))
        .or_else(|| of(None, Locality::Node).map(|task| (task, Reason::PassiveLocal)))
        .or_else(|| of(None, Locality::Remote).map(|task| (task, Reason::PassiveAny)))
}

/// Whether a task of this priority on a passive slot would be made active.
fn above(priority: Priority, cluster: &Cluster, node: NodeId) -> bool {
    cluster.lowest_active(node).is_some_and(|lowest| priority > lowest)
}
