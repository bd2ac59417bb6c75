//! Active tasks on as many CPUs as they can use, where some may not run on every CPU (taskset, numactl,
//! `ConstrainCores=yes` of Slurm, a cpuset).
//!
//! With two tasks pinned to the first CPU active and two pinned to the second passive, the active ones
//! share a CPU and passive ones have another alone. So of tasks of the same priority those are active that
//! can each have a CPU of their own: a matching of tasks and CPUs that grows by augmenting paths (Kuhn;
//! exact). Tasks with active slots are matched first, so that no more of them move than must.
//!
//! A task that may run on every CPU needs no place of its own in the matching: it takes what is left.
//!
//! Limits. At most [`MOST`] tasks of each tier are looked at, first those that come first. What counts is
//! the affinity of a task's main process, once a cycle, of one that sleeps each fourth: threads that pin themselves are not seen, and a
//! new task counts as pinned to nothing until the cycle after its admission.

use std::collections::{BTreeMap, BTreeSet};

use super::cpus::CpuSet;
use super::model::TaskId;

/// Tasks of a tier that are looked at.
pub const MOST: usize = 64;

/// A task and the CPUs it may use; `None`: all.
pub type Pinned<'a> = (TaskId, Option<&'a CpuSet>);

/// Tasks that each have a CPU of their own.
struct Matching<'a> {
    /// CPUs there are.
    cpus: usize,
    /// Tasks that may use each of them.
    anywhere: usize,
    pinned: Vec<&'a CpuSet>,
    /// Which of `pinned` has a CPU.
    on: BTreeMap<u32, usize>,
    /// CPUs from which no free one can be reached, and never will be: so all searches that find nothing
    /// look at each CPU once together.
    dead: BTreeSet<u32>,
}

impl<'a> Matching<'a> {
    fn new(cpus: u32, tasks: &[Pinned<'a>]) -> Matching<'a> {
        let mut matching = Matching {
            cpus: cpus as usize,
            anywhere: 0,
            pinned: Vec::new(),
            on: BTreeMap::new(),
            dead: BTreeSet::new(),
        };
        tasks.iter().for_each(|(_, set)| {
            matching.add(*set);
        });
        matching
    }

    /// Adds a task, if it can have a CPU of its own beside the others.
    fn add(&mut self, set: Option<&'a CpuSet>) -> bool {
        if self.pinned.len() + self.anywhere >= self.cpus {
            return false;
        }
        let Some(set) = set else {
            self.anywhere += 1;
            return true;
        };
        self.pinned.push(set);
        let mut seen = BTreeSet::new();
        let added = self.find(self.pinned.len() - 1, &mut seen);
        if !added {
            self.pinned.pop();
            self.dead.append(&mut seen);
        }
        added
    }

    /// Gives a task a CPU; others that can go elsewhere make room.
    fn find(&mut self, task: usize, seen: &mut BTreeSet<u32>) -> bool {
        let set = self.pinned[task];
        for cpu in set.iter() {
            if self.dead.contains(&cpu) || !seen.insert(cpu) {
                continue;
            }
            let holder = self.on.get(&cpu).copied();
            if holder.is_none_or(|other| self.find(other, seen)) {
                self.on.insert(cpu, task);
                return true;
            }
        }
        false
    }
}

/// Pairs of an active task that goes down and a passive one that comes up, all of one priority.
/// `above`: active tasks of higher priorities. Each list in the order of its tasks.
pub fn swaps(
    cpus: u32,
    above: &[Pinned<'_>],
    active: &[Pinned<'_>],
    passive: &[Pinned<'_>],
) -> Vec<(TaskId, TaskId)> {
    let mut matching = Matching::new(cpus, above);
    let mut without: Vec<TaskId> = Vec::new();
    for (task, set) in active {
        if !matching.add(*set) {
            without.push(*task);
        }
    }
    let mut pairs = Vec::new();
    for (task, set) in passive {
        if without.is_empty() {
            break;
        }
        // The latest goes first.
        if matching.add(*set)
            && let Some(down) = without.pop()
        {
            pairs.push((down, *task));
        }
    }
    pairs
}

/// The first passive task that can have a CPU of its own beside the active ones.
pub fn first_beside(cpus: u32, active: &[Pinned<'_>], passive: &[Pinned<'_>]) -> Option<TaskId> {
    let mut matching = Matching::new(cpus, active);
    passive.iter().find(|(_, set)| matching.add(*set)).map(|(task, _)| *task)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> TaskId {
        TaskId { epoch: 1, number }
    }

    fn set(cpus: &[u32]) -> CpuSet {
        cpus.iter().copied().collect()
    }

    #[test]
    fn of_two_on_one_cpu_the_later_makes_room() {
        let (first, second) = (set(&[0]), set(&[1]));
        let active = [(id(1), Some(&first)), (id(2), Some(&first))];
        let passive = [(id(3), Some(&second)), (id(4), Some(&second))];
        assert_eq!(swaps(2, &[], &active, &passive), [(id(2), id(3))]);
        assert_eq!(first_beside(2, &active[..1], &passive), Some(id(3)));
        // One that may run everywhere has the second CPU.
        let active = [(id(1), Some(&first)), (id(2), None)];
        assert_eq!(swaps(2, &[], &active, &passive), []);
        assert_eq!(first_beside(2, &active, &passive), None);
        // The CPU is taken by one of a higher priority.
        let above = [(id(9), Some(&second))];
        let active = [(id(1), Some(&first)), (id(2), Some(&first))];
        assert_eq!(swaps(2, &above, &active, &passive), []);
    }

    #[test]
    fn who_can_go_elsewhere_makes_room() {
        let (both, first) = (set(&[0, 1]), set(&[0]));
        // The active one has CPU 0 and can have the other.
        let active = [(id(1), Some(&both)), (id(2), Some(&both)), (id(3), Some(&both))];
        assert_eq!(swaps(2, &[], &active, &[(id(4), Some(&first))]), [], "both CPUs are taken");
        assert_eq!(first_beside(2, &active[..1], &[(id(4), Some(&first))]), Some(id(4)));
        let third = set(&[2]);
        let passive = [(id(4), Some(&first)), (id(5), Some(&third))];
        assert_eq!(swaps(3, &[], &active, &passive), [(id(3), id(5))]);
    }

    /// Against all choices, of two active and two passive tasks on three CPUs.
    #[test]
    fn no_other_choice_uses_more_cpus() {
        let sets: Vec<CpuSet> =
            [&[0][..], &[1], &[2], &[0, 1], &[1, 2]].into_iter().map(set).collect();
        let of = |number: usize, code: usize| {
            let kind = code % 6;
            (id(number as u64), (kind < 5).then(|| &sets[kind]))
        };
        let most = |chosen: &[Pinned<'_>]| {
            let mut orders = Matching::new(3, chosen);
            orders.pinned.len() + std::mem::take(&mut orders.anywhere)
        };
        for code in 0..6usize.pow(4) {
            let kinds = [code, code / 6, code / 36, code / 216];
            let all: Vec<_> = kinds.iter().enumerate().map(|(n, kind)| of(n, *kind)).collect();
            let (active, passive) = all.split_at(2);
            let pairs = swaps(3, &[], active, passive);
            let mut chosen: Vec<_> = active.to_vec();
            for (down, up) in pairs {
                let at = chosen.iter().position(|(task, _)| *task == down).unwrap();
                chosen[at] = *all.iter().find(|(task, _)| *task == up).unwrap();
            }
            let best = (0..4)
                .flat_map(|a| (0..a).map(move |b| (a, b)))
                .map(|(a, b)| most(&[all[a], all[b]]))
                .max();
            assert_eq!(Some(most(&chosen)), best, "{all:?}");
        }
    }
}
