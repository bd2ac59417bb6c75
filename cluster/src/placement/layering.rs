//! The layering-aware scheduler (thesis 3.3.3, Alg. 1): slots in two tiers, jobs with priorities.
//!
//! At each heartbeat of a node, jobs by priority, then arrival:
//!
//! 1. at most one reduce, of the first job that has one: if an active slot is free, or the job is above
//!    the lowest active one, so that the node makes it active;
//! 2. maps, until those on the node are its slots times the share of maps among all tasks, so that
//!    reduces keep room: first for the free active slots, in order;
//! 3. only if step 2 started nothing: for the passive slots, first maps of jobs above the lowest active
//!    one, then maps of any job with input on the node, then the rest. Both tiers are never filled in
//!    one heartbeat, so that work spreads over the active slots of all nodes.
//!
//! The lowest active job is the one at the heartbeat. Of jobs with equal priorities the earlier is
//! above the later: the source takes the time of arrival for a priority where a user gives none.
//!
//! Nothing is preempted. Ours, where the source is silent: the tasks are those that wait or run, the
//! limit is rounded down but not to zero, and a job's maps with input on the node come first in every
//! stage.

use lrs_core::model::Tier;

use crate::placement::cluster::{Cluster, JobId, Locality, NodeId, TaskId};
use crate::placement::fifo::first_in_queue;
use crate::placement::input::Kind;
use crate::placement::turn::{Policy, Reason, Turn};

/// The policy. It has no state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layering;

impl Policy for Layering {
    fn assign(&mut self, nodes: &[NodeId], turn: &mut Turn<'_>) {
        let share = turn.cluster().share_of_maps();
        for node in nodes {
            let lowest = turn.cluster().lowest_active(*node);
            reduce(*node, lowest, turn);
            maps(*node, lowest, share, turn);
        }
    }
}

fn reduce(node: NodeId, lowest: Option<JobId>, turn: &mut Turn<'_>) {
    let cluster = turn.cluster();
    let Some(tier) = cluster[node].next_free() else { return };
    let Some(task) = first_in_queue(cluster, node, Kind::Reduce) else { return };
    let job = cluster[task].job;
    if tier == Tier::Active || is_above(cluster, job, lowest) {
        turn.start(task, node, tier, Reason::OneReduce);
    } else {
        turn.hold(job, Reason::NotAboveLowestActive);
    }
}

fn maps(node: NodeId, lowest: Option<JobId>, share: f64, turn: &mut Turn<'_>) {
    let cluster = turn.cluster();
    let most = (f64::from(cluster[node].slots()) * share).floor().max(1.0) as usize;
    let running = cluster[node].running().filter(|task| cluster[*task].kind == Kind::Map).count();
    let Some(tier) = cluster[node].next_free() else { return };
    for _ in running..most {
        let Some((task, reason)) = next_map(turn.cluster(), node, tier, lowest) else { return };
        if !turn.start(task, node, tier, reason) {
            return;
        }
    }
    if turn.cluster()[node].free(tier) > 0 {
        let cluster = turn.cluster();
        let held: Vec<_> = cluster.queue().filter(|job| !cluster[*job].maps.is_empty()).collect();
        held.into_iter().for_each(|job| turn.hold(job, Reason::MapsHaveTheirShare));
    }
}

/// The map for a free slot of `tier`.
fn next_map(
    cluster: &Cluster,
    node: NodeId,
    tier: Tier,
    lowest: Option<JobId>,
) -> Option<(TaskId, Reason)> {
    let of = |above: bool, limit| {
        cluster
            .queue()
            .take_while(|job| !above || is_above(cluster, *job, lowest))
            .find_map(|job| cluster.first(job, Kind::Map, node, limit))
    };
    if tier == Tier::Active {
        return of(false, Locality::Remote).map(|task| (task, Reason::ActiveSlot));
    }
    of(true, Locality::Remote)
        .map(|task| (task, Reason::AboveLowestActive))
        .or_else(|| of(false, Locality::Node).map(|task| (task, Reason::PassiveLocal)))
        .or_else(|| of(false, Locality::Remote).map(|task| (task, Reason::PassiveAny)))
}

/// Whether a job is above the lowest active one, if there is one.
fn is_above(cluster: &Cluster, job: JobId, lowest: Option<JobId>) -> bool {
    lowest.is_some_and(|lowest| cluster.place(job) < cluster.place(lowest))
}
