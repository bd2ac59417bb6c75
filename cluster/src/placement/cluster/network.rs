//! How fast input moves from node to node: two bandwidths, and pairs of nodes that differ.
//!
//! A transfer takes its size by the bandwidth, however many there are at once; only a simulation can have
//! links that are shared (`simulation/links.rs`).

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Cluster;
use crate::placement::ids::{Locality, NodeId, TaskId};

/// How fast input moves from node to node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Network {
    pub(crate) within_rack: f64,
    pub(crate) between_racks: f64,
    /// None: the pair has no connection.
    #[serde(with = "pairs")]
    pub(crate) pairs: BTreeMap<(NodeId, NodeId), Option<f64>>,
    /// Whether a pair has none.
    #[serde(skip)]
    pub(crate) is_cut: bool,
}

impl Network {
    /// Finds out whether a pair has no connection.
    pub(crate) fn find_cuts(&mut self) {
        self.is_cut = self.pairs.values().any(Option::is_none);
    }
}

impl Cluster {
    /// Whether the input says how fast data moves.
    pub fn knows_network(&self) -> bool {
        self.network.is_some()
    }

    /// Seconds in which the input of `task` gets to `node`, from the replica that is nearest in
    /// bandwidth (Guo, Fox, Zhou 2012, section 3); `None` without a network in the input, and where no
    /// replica is connected with the node.
    pub fn transfer_seconds(&self, task: TaskId, node: NodeId) -> Option<f64> {
        if self.locality(task, node) == Locality::Node {
            return Some(0.0);
        }
        self.source(task, node).map(|(_, rate)| self[task].bytes as f64 / rate)
    }

    /// The replica that is nearest in bandwidth to a node, with the bandwidth.
    pub(crate) fn source(&self, task: TaskId, node: NodeId) -> Option<(NodeId, f64)> {
        let network = self.network.as_ref()?;
        self[task]
            .replicas
            .iter()
            .map(|replica| {
                let usual = if self[*replica].rack == self[node].rack {
                    network.within_rack
                } else {
                    network.between_racks
                };
                let pair = network.pairs.get(&(*replica, node));
                (*replica, pair.map_or(usual, |pair| pair.unwrap_or(0.0)))
            })
            .filter(|(_, rate)| *rate > 0.0)
            .reduce(|best, other| if other.1 > best.1 { other } else { best })
    }

    pub(crate) fn is_reachable(&self, task: TaskId, node: NodeId) -> bool {
        let cut = self.network.as_ref().is_some_and(|network| network.is_cut);
        !cut || self.transfer_seconds(task, node).is_some()
    }
}

/// A map with keys that JSON cannot have, as a list.
mod pairs {
    use super::*;

    type Pairs = BTreeMap<(NodeId, NodeId), Option<f64>>;

    pub(crate) fn serialize<S: Serializer>(
        pairs: &Pairs,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(pairs)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Pairs, D::Error> {
        let pairs = Vec::<((NodeId, NodeId), Option<f64>)>::deserialize(deserializer)?;
        Ok(pairs.into_iter().collect())
    }
}
