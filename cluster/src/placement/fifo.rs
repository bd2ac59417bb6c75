//! FIFO: Hadoop's first scheduler, the baseline of the sources (thesis 2.1).
//!
//! One queue by priority, then arrival. A heartbeat of a node starts at most one map and one
//! reduce: the map is of the first job that has any, input on the node before input in the rack
//! before any other. So a small job at the head of the queue, which has no input on most nodes, runs far from
//! its input (Zaharia et al. 2010, section 3.1: head-of-line scheduling).

use lrs_core::model::Tier;

use crate::placement::cluster::{Cluster, Locality, NodeId, TaskId};
use crate::placement::input::Kind;
use crate::placement::turn::{Policy, Reason, Turn};

/// The policy. It has no state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fifo;

impl Policy for Fifo {
    fn assign(&mut self, nodes: &[NodeId], turn: &mut Turn<'_>) {
        for node in nodes {
            for kind in [Kind::Reduce, Kind::Map] {
                let Some(tier) = turn.cluster()[*node].next_free() else { break };
                if let Some(task) = first_in_queue(turn.cluster(), *node, kind) {
                    turn.start(task, *node, tier, Reason::FirstInQueue);
                }
            }
        }
    }
}

/// The nearest task of the first job of the queue that has one of this kind.
pub(crate) fn first_in_queue(cluster: &Cluster, node: NodeId, kind: Kind) -> Option<TaskId> {
    first_within(cluster, node, kind, Locality::Remote)
}

/// The nearest task of the first job of the queue that has one of this kind within `limit`.
pub(crate) fn first_within(
    cluster: &Cluster,
    node: NodeId,
    kind: Kind,
    limit: Locality,
) -> Option<TaskId> {
    cluster.queue().find_map(|job| cluster.first(job, kind, node, limit))
}

/// Starts the first reduce of the queue, if one waits and a slot is free.
pub(crate) fn start_reduce(node: NodeId, tier: Tier, turn: &mut Turn<'_>) -> bool {
    first_in_queue(turn.cluster(), node, Kind::Reduce)
        .is_some_and(|task| turn.start(task, node, tier, Reason::OneReduce))
}
