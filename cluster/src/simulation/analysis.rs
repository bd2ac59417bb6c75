//! The analysis of delay scheduling: figures that need no cluster.

use crate::placement::delay::skips_for;
use serde::Deserialize;

use crate::simulation::figures::Figures;

/// The analysis of delay scheduling (Zaharia et al., EuroSys 2010, sections 3.3 and 3.5).
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Analysis {
    /// M.
    pub nodes: usize,
    /// L: slots of a node.
    pub slots: u32,
    /// R.
    pub replicas: u32,
    /// N: tasks of a job.
    pub tasks: u32,
    /// The locality that is wanted, 0 to 1.
    #[serde(default)]
    pub locality: f64,
    /// D: slots that a job lets pass; none: as many as `locality` needs.
    #[serde(default)]
    pub skips: Option<u64>,
    /// f: the share of the slots that a job has.
    #[serde(default)]
    pub share: f64,
}

impl Analysis {
    /// `skips_share`: D for the wanted locality, of the nodes. `wait_share`: the most that a task waits,
    /// of its length. `expected_local`: what D gives. `sticky_local`: what a job with a share `f` of the
    /// slots has at most while each of its tasks starts where its last one ended.
    pub fn figures(&self) -> Figures {
        let Analysis { nodes, slots, replicas, tasks, locality, skips, share } = *self;
        let mut figures = Figures::default();
        let count = nodes as f64;
        let wanted = skips_for(locality, tasks, nodes, replicas).map(|skips| skips as f64);
        let given = skips.map(|skips| skips as f64).or(wanted);
        if let Some(skips) = given {
            figures.set("skips_share", skips / count);
            figures.set("wait_share", skips / (f64::from(slots) * count));
            // With K tasks left a slot is at none of their inputs with (1 - R/M)^K.
            let missed = |left: u32| {
                let one = 1.0 - f64::from(replicas) / count;
                one.powf(skips * f64::from(left))
            };
            let missed: f64 = (1..=tasks).map(missed).sum();
            figures.set("expected_local", 1.0 - missed / f64::from(tasks.max(1)));
        }
        let held = (1.0 - share).powf(f64::from(replicas) * f64::from(slots));
        figures.set("sticky_local", 1.0 - held);
        figures
    }
}
