//! The nodes of a case: how many, what a node is, and what it is made of.

use std::time::Duration;

use crate::placement::resources::Resources;
use lrs_sim::node::Hardware;
use serde::Deserialize;

/// A disk request alone, where a disk is shared.
pub const REQUEST: Duration = Duration::from_millis(50);

/// The nodes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nodes {
    /// How many.
    pub count: usize,
    /// In how many racks.
    pub racks: usize,
    /// What a node is.
    pub kind: Kind,
    /// Active slots; with `lrs` there are as many as CPUs.
    pub active: u32,
    /// Passive slots; with `lrs` the base, which the core expands.
    pub passive: u32,
    /// CPUs of a node, where they are shared.
    pub cpus: u32,
    /// Requests that its disk serves at once, where it is shared.
    pub disk: u32,
    /// Spread of the speeds of nodes, as the sigma of a lognormal distribution: what a task does takes the
    /// longer the slower its node is.
    pub speed_spread: f64,
    /// What the tasks of a node may take together.
    pub capacity: Option<Resources>,
}

impl Nodes {
    /// The memory of a node, where the scenario has one.
    pub fn memory(&self) -> Option<u64> {
        self.capacity.map(|capacity| capacity.memory_bytes as u64).filter(|bytes| *bytes > 0)
    }

    /// What a node of these is made of.
    pub(crate) fn hardware(&self) -> Hardware {
        Hardware {
            cpus: self.cpus,
            channels: self.disk,
            request: REQUEST,
            request_bytes: 4096,
            memory: self.memory().unwrap_or(1 << 30),
        }
    }
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes {
            count: 10,
            racks: 1,
            kind: Kind::Static,
            active: 4,
            passive: 0,
            cpus: 4,
            disk: 4,
            speed_spread: 0.0,
            capacity: None,
        }
    }
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A slot is as fast as any, whatever runs beside it.
    Static,
    /// Slots without tiers on CPUs and a disk that their tasks share.
    Shared,
    /// The same with LRS.
    Lrs,
}
