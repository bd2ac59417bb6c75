//! Sizes of nodes: those on which the same of the waiting tasks fit are of one size, whatever else they have.
//!
//! What a node has matters to a solver only by what fits there, so nodes that each have a memory figure of
//! their own are of as many sizes as the tasks tell apart: of one where no task takes anything.
//!
//! Up to 64 different demands, a size is which of them fit. With more, it is how many of the different
//! amounts of each resource are there: looking takes a search in three sorted lists and not a comparison
//! with each demand, and some nodes on which the same tasks fit are of two sizes.

use std::collections::BTreeSet;

use crate::placement::resources::{Resources, is_there};

/// As many demands as there are bits in a size.
const MOST_COMPARED: usize = 64;

/// The different demands of the waiting tasks.
pub(super) struct Sizes {
    demands: Vec<Resources>,
    /// The different amounts of each resource, the least first, where the demands are too many to compare
    /// each.
    amounts: Option<[Vec<f64>; 3]>,
}

impl Sizes {
    pub(super) fn of(demands: impl Iterator<Item = Resources>) -> Sizes {
        let bits = |demand: Resources| demand.fields().map(|(_, amount)| amount.to_bits());
        let different: BTreeSet<[u64; 3]> = demands.map(bits).collect();
        let of = |bits: &[u64; 3]| {
            let [cpus, memory_bytes, disk_bytes] = bits.map(f64::from_bits);
            Resources { cpus, memory_bytes, disk_bytes }
        };
        let demands: Vec<Resources> = different.iter().map(of).collect();
        let amounts_of = |field: usize| {
            let all = demands.iter().map(|demand| demand.fields()[field].1);
            let mut all: Vec<f64> = all.collect();
            all.sort_unstable_by(f64::total_cmp);
            all.dedup();
            all
        };
        let is_many = demands.len() > MOST_COMPARED;
        let amounts = is_many.then(|| [0, 1, 2].map(amounts_of));
        Sizes { demands, amounts }
    }

    /// The size of a node with this capacity; `None`: all fit.
    pub(super) fn size(&self, capacity: Option<Resources>) -> [u64; 3] {
        let Some(amounts) = &self.amounts else {
            let all = self.demands.iter().enumerate();
            let fits = |demand: &Resources| capacity.is_none_or(|room| demand.fits(&room));
            return [all.map(|(at, demand)| u64::from(fits(demand)) << at).sum(), 0, 0];
        };
        let rank = |field: usize| {
            let room = capacity.map_or(f64::INFINITY, |room| room.fields()[field].1);
            amounts[field].partition_point(|wanted| is_there(*wanted, room)) as u64
        };
        [0, 1, 2].map(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources([cpus, memory_bytes, disk_bytes]: [f64; 3]) -> Resources {
        Resources { cpus, memory_bytes, disk_bytes }
    }

    #[test]
    fn on_nodes_of_one_size_the_same_demands_fit() {
        let mut rng = fastrand::Rng::with_seed(36);
        // Below and above what are compared one by one.
        for different in [1, 8, MOST_COMPARED, 300] {
            let mut amount = || f64::from(rng.u32(0..20)) * 1e9 / 3.0;
            let demands: Vec<Resources> =
                (0..different).map(|_| resources([amount(), amount(), amount()])).collect();
            let sizes = Sizes::of(demands.iter().copied());
            let mut nodes: Vec<Option<Resources>> =
                (0..120).map(|_| Some(resources([amount(), amount(), amount()]))).collect();
            nodes.push(None);
            let fits = |node: &Option<Resources>| -> Vec<bool> {
                demands.iter().map(|demand| node.is_none_or(|room| demand.fits(&room))).collect()
            };
            for (index, node) in nodes.iter().enumerate() {
                for other in &nodes[..index] {
                    if sizes.size(*node) == sizes.size(*other) {
                        assert_eq!(fits(node), fits(other), "{different}: {node:?} {other:?}");
                    } else if different <= MOST_COMPARED {
                        assert_ne!(fits(node), fits(other), "{different}: {node:?} {other:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_no_task_asks_for_makes_no_size() {
        let node = |node: u32| Some(resources([4.0, 16e9 + f64::from(node), 1e12]));
        let asked = |demands: Vec<[f64; 3]>| {
            let sizes = Sizes::of(demands.into_iter().map(resources));
            (0..1000).map(|at| sizes.size(node(at))).collect::<BTreeSet<_>>().len()
        };
        assert_eq!(asked(Vec::new()), 1);
        assert_eq!(asked(vec![[1.0, 0.0, 0.0]; 5]), 1);
        assert_eq!(asked(vec![[1.0, 1e9, 0.0], [1.0, 32e9, 0.0], [1.0, 16e9 + 500.0, 0.0]]), 2);
        let many = (0..100).map(|at| [f64::from(at), 0.0, 0.0]).collect();
        assert_eq!(asked(many), 1);
    }
}
