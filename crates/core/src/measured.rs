//! What one reading of the node comes to for a decision.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::capacity::CpuShares;
use super::cpus::UsableCpus;
use super::memory::Memory;
use super::rate::NodeRates;
use super::sample::{NodeSample, ParentSample};
use crate::units::Share;

/// What one cycle measured of the node. `None`: not known (yet).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// CPUs LRS's tasks may use.
    pub cpus: Option<UsableCpus>,
    /// How they spent the cycle.
    pub cpu: Option<CpuShares>,
    /// CPU time that the LRS root group used in it.
    pub root_cpu: Option<Duration>,
    /// The groups right above tasks in place.
    pub parents: Vec<ParentSample>,
    /// Memory for tasks.
    pub memory: Option<Memory>,
    /// Share of the cycle in which all tasks stalled for memory.
    pub memory_full: Option<Share>,
    /// Bytes a second by which the swap in use grew.
    pub swap_growth: Option<f64>,
    /// Bytes a second by which the memory available fell.
    #[serde(default)]
    pub memory_taken: Option<f64>,
}

impl Measured {
    /// What `node` and the rates up to it say.
    pub fn of(rates: &NodeRates, node: &NodeSample) -> Measured {
        let cpu = rates.effective.zip(rates.iowait).zip(rates.steal);
        Measured {
            cpus: node.usable_cpus(),
            cpu: cpu.map(|((effective, iowait), steal)| CpuShares { effective, iowait, steal }),
            root_cpu: rates.root_cpu,
            parents: node.parents.clone(),
            memory: Memory::of(node.memory, &node.memory_limits),
            memory_full: rates.pressure.and_then(|pressure| pressure.memory_full),
            swap_growth: rates.swap_growth,
            memory_taken: rates.memory_taken,
        }
    }
}
