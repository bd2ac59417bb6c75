//! The LRS task dispatcher (thesis ch. 4, Alg. 2).
//!
//! At each heartbeat of a node:
//!
//! 1. at most one reduce, of the first job that has one, if a slot of either tier is free;
//! 2. maps for the free *active* slots, in the order of the queue, input on the node first;
//! 3. only if step 2 started nothing: maps for the *passive* slots, first those of any job with input
//!    on the node, then any.
//!
//! Both tiers are never filled in one heartbeat, so that a few tasks spread over the active slots of
//! all nodes before any passive slot is used.

use lrs_core::model::Tier;

use crate::placement::cluster::{Locality, NodeId};
use crate::placement::fifo::{first_within, start_reduce};
use crate::placement::input::Kind;
use crate::placement::turn::{Policy, Reason, Turn};

/// The policy. It has no state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dispatcher;

impl Policy for Dispatcher {
    fn assign(&mut self, nodes: &[NodeId], turn: &mut Turn<'_>) {
        for node in nodes {
            heartbeat(*node, turn);
        }
    }
}

fn heartbeat(node: NodeId, turn: &mut Turn<'_>) {
    if let Some(tier) = turn.cluster()[node].next_free() {
        start_reduce(node, tier, turn);
    }
    if fill(node, Tier::Active, Locality::Remote, Reason::ActiveSlot, turn) == 0 {
        fill(node, Tier::Passive, Locality::Node, Reason::PassiveLocal, turn);
        fill(node, Tier::Passive, Locality::Remote, Reason::PassiveAny, turn);
    }
}

/// Starts maps on all free slots of a tier, and counts them.
fn fill(node: NodeId, tier: Tier, limit: Locality, reason: Reason, turn: &mut Turn<'_>) -> usize {
    let mut started = 0;
    while let Some(task) = first_within(turn.cluster(), node, Kind::Map, limit)
        && turn.start(task, node, tier, reason)
    {
        started += 1;
    }
    started
}
