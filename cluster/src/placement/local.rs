//! Data-local: Hadoop's slot-by-slot choice by place, the baseline "dl-sched" of Guo, Fox and Zhou
//! (MapReduce'12, section 2).
//!
//! A heartbeat of a node with a free slot starts one task: the first waiting one, of any job, with
//! its input on the node; without one, the first with it in the rack; else the first of the queue.
//! Slot by slot is not optimal: with T1 on nodes A and B, T2 on A, slot A may take T1, and T2 then runs
//! away from its input. [`crate::placement::lsap`] solves for all slots together.

use crate::placement::cluster::{Locality, NodeId};
use crate::placement::fifo::first_within;
use crate::placement::input::Kind;
use crate::placement::turn::{Policy, Reason, Turn};

/// The policy. It has no state.
#[derive(Clone, Copy, Debug, Default)]
pub struct DataLocal;

impl Policy for DataLocal {
    fn assign(&mut self, nodes: &[NodeId], turn: &mut Turn<'_>) {
        for node in nodes {
            let Some(tier) = turn.cluster()[*node].next_free() else { continue };
            let nearest = [Locality::Node, Locality::Rack, Locality::Remote]
                .into_iter()
                .flat_map(|limit| [(limit, Kind::Map), (limit, Kind::Reduce)])
                .find_map(|(limit, kind)| {
                    Some((limit, first_within(turn.cluster(), *node, kind, limit)?))
                });
            // Another node may be able to run what this one cannot.
            let Some((limit, task)) = nearest else { continue };
            turn.start(task, *node, tier, Reason::Nearest(limit));
        }
    }
}
