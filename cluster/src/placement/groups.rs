//! Groups of jobs (users, queues, pools), their shares of a cluster, and which job is next.
//!
//! Groups form a forest; jobs are in its leaves. Siblings share what their parent has: each its
//! minimum first, then by weight (Zaharia et al., "Delay scheduling", EuroSys 2010, section 2 and
//! Hadoop's Fair Scheduler). A group without tasks takes nothing from the others. A parent has at least
//! the minimums of its children together. Minimums that add up to more slots than there are, are scaled
//! down, all by one factor. [`warnings`] says where a minimum is not that of the input.

use std::cmp::Ordering;

use crate::placement::cluster::{Cluster, GroupId, JobId};
pub use crate::placement::group::{Group, Order};

/// What a group, with all below it, has and is due.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Tasks that run.
    pub running: usize,
    /// Tasks that wait.
    pub waiting: usize,
    /// Its minimum in slots, scaled down where all of them are too many, as far as it has tasks for
    /// it; at least what the groups below it want of theirs.
    pub minimum: f64,
    /// Of all that runs, 0 to 1; 0 when nothing runs.
    pub of_running: f64,
    /// Of the cluster by weights, 0 to 1, as if every group with tasks had enough of them; 0 without
    /// tasks.
    pub of_weights: f64,
}

impl Share {
    /// Tasks that run or wait.
    pub fn demand(&self) -> usize {
        self.running + self.waiting
    }

    /// How many more tasks the group can run before it has its share of `slots` by weight
    /// (`sto` in Guo, Fox, Zhou, MapReduce'12, section 4).
    pub fn lacking(&self, slots: u64) -> usize {
        // A share that is a whole number must not lose a slot to the rounding of the division.
        let due = (slots as f64 * self.of_weights + 1e-9).floor() as usize;
        due.saturating_sub(self.running)
    }
}

/// The groups as a forest, and the share of each.
#[derive(Clone, Debug)]
pub struct Groups {
    roots: Vec<GroupId>,
    children: Vec<Vec<GroupId>>,
    jobs: Vec<Vec<JobId>>,
    shares: Vec<Share>,
}

impl Groups {
    /// As the cluster is now.
    pub fn of(cluster: &Cluster) -> Groups {
        let count = cluster.groups().count();
        let mut groups = Groups {
            roots: Vec::new(),
            children: vec![Vec::new(); count],
            jobs: vec![Vec::new(); count],
            shares: vec![Share::default(); count],
        };
        for group in cluster.groups() {
            match cluster[group].parent {
                Some(parent) => groups.children[parent.0].push(group),
                None => groups.roots.push(group),
            }
        }
        for job in cluster.jobs() {
            let mut group = Some(cluster[job].group);
            groups.jobs[cluster[job].group.0].push(job);
            while let Some(of) = group {
                groups.shares[of.0].running += cluster[job].running();
                groups.shares[of.0].waiting += cluster[job].waiting_tasks();
                group = cluster[of].parent;
            }
        }
        let running: usize = groups.roots.iter().map(|root| groups.shares[root.0].running).sum();
        for share in &mut groups.shares {
            share.of_running = share.running as f64 / running.max(1) as f64;
        }
        let roots = groups.roots.clone();
        let minimums: f64 = roots.iter().map(|root| f64::from(cluster[*root].min_slots)).sum();
        let scale = (cluster.slots() as f64 / minimums).min(1.0);
        groups.divide(cluster, &roots, 1.0, scale);
        groups
    }

    /// The share of a group.
    pub fn share(&self, group: GroupId) -> &Share {
        &self.shares[group.0]
    }

    /// Whether a group, or one that it is part of, has less than its minimum although it has tasks.
    pub fn is_below_minimum(&self, cluster: &Cluster, group: GroupId) -> bool {
        let above = std::iter::successors(Some(group), |group| cluster[*group].parent);
        above.map(|group| self.share(group)).any(|of| (of.running as f64) < of.minimum)
    }

    /// The groups that have jobs and no groups below.
    pub fn leaves(&self) -> impl Iterator<Item = GroupId> {
        let leaf =
            |(index, below): (usize, &Vec<GroupId>)| below.is_empty().then_some(GroupId(index));
        self.children.iter().enumerate().filter_map(leaf)
    }

    fn divide(&mut self, cluster: &Cluster, siblings: &[GroupId], part: f64, scale: f64) {
        let weights: f64 = siblings.iter().map(|group| self.weight(cluster, *group)).sum();
        for group in siblings {
            if weights > 0.0 {
                self.shares[group.0].of_weights = part * self.weight(cluster, *group) / weights;
            }
            let of_weights = self.shares[group.0].of_weights;
            let below = self.children[group.0].clone();
            self.divide(cluster, &below, of_weights, scale);
            // What a group below has no tasks for is not its sibling's.
            let of_below: f64 = below.iter().map(|group| self.shares[group.0].minimum).sum();
            let group_of = &cluster[*group];
            let own = f64::from(group_of.raised_from.unwrap_or(group_of.min_slots)) * scale;
            let share = &mut self.shares[group.0];
            share.minimum = own.min(share.demand() as f64).max(of_below);
        }
    }

    fn weight(&self, cluster: &Cluster, group: GroupId) -> f64 {
        if self.shares[group.0].demand() > 0 { cluster[group].weight } else { 0.0 }
    }

    /// The jobs with waiting tasks, the one that is due the next free slot first: on each level
    /// groups below their minimum before others, by how much of it they have; the others by what they
    /// run for their weight.
    pub fn order(&self, cluster: &Cluster) -> Vec<JobId> {
        let mut jobs = Vec::new();
        self.collect(cluster, &self.roots, &mut jobs);
        jobs
    }

    fn collect(&self, cluster: &Cluster, siblings: &[GroupId], jobs: &mut Vec<JobId>) {
        let mut siblings: Vec<GroupId> =
            siblings.iter().copied().filter(|group| self.shares[group.0].waiting > 0).collect();
        siblings.sort_by(|a, b| self.compare(cluster, *a, *b));
        for group in siblings {
            self.collect(cluster, &self.children[group.0], jobs);
            let of_group = self.jobs[group.0].iter().copied();
            let mut waiting: Vec<JobId> =
                of_group.filter(|job| cluster[*job].waiting_tasks() > 0).collect();
            match cluster[group].order {
                Order::Fair => {
                    waiting.sort_by_key(|job| (cluster[*job].running(), cluster.place(*job)))
                }
                Order::Fifo => waiting.sort_by_key(|job| cluster.place(*job)),
            }
            jobs.append(&mut waiting);
        }
    }

    fn compare(&self, cluster: &Cluster, a: GroupId, b: GroupId) -> Ordering {
        let key = |group: GroupId| {
            let share = &self.shares[group.0];
            let running = share.running as f64;
            let minimum = share.minimum;
            if running < minimum {
                (0, running / minimum)
            } else {
                (1, running / cluster[group].weight)
            }
        };
        let (a, b) = (key(a), key(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    }

    /// What each group would have of the cluster's slots if tasks could be divided: its minimum, then
    /// by weight, and never more than it has tasks for.
    pub fn fair_slots(&self, cluster: &Cluster) -> Vec<f64> {
        let mut slots = vec![0.0; self.shares.len()];
        self.fill(cluster, &self.roots, cluster.slots() as f64, &mut slots);
        slots
    }

    fn fill(&self, cluster: &Cluster, siblings: &[GroupId], total: f64, slots: &mut [f64]) {
        let heaviest = siblings.iter().map(|group| cluster[*group].weight).fold(0.0, f64::max);
        let at = |level: f64, group: GroupId| {
            let share = &self.shares[group.0];
            let weight = (cluster[group].weight / heaviest).max(1e-12);
            (weight * level).clamp(share.minimum, share.demand() as f64)
        };
        let sum = |level: f64| siblings.iter().map(|group| at(level, *group)).sum::<f64>();
        let demand: usize = siblings.iter().map(|group| self.shares[group.0].demand()).sum();
        // At this level every group has all that it has tasks for.
        let (mut low, mut high) = (0.0, demand as f64 * 1e12);
        if sum(high) > total {
            // A double has 53 bits, and the levels 40 more.
            for _ in 0..100 {
                let middle = low + (high - low) / 2.0;
                *(if sum(middle) > total { &mut high } else { &mut low }) = middle;
            }
        } else {
            low = high;
        }
        for group in siblings {
            slots[group.0] = at(low, *group);
            self.fill(cluster, &self.children[group.0], slots[group.0], slots);
        }
    }
}

/// What an operator should know of the groups: minimums that are not as the input says.
pub fn warnings(cluster: &Cluster) -> Vec<String> {
    let groups = || cluster.groups().map(|group| &cluster[group]);
    let raised = groups().filter_map(|group| {
        let (name, least, from) = (&group.name, group.min_slots, group.raised_from?);
        Some(format!(
            "min_slots of the groups below {name} add up to {least}, more than its own {from}: it has {least} too"
        ))
    });
    let roots = groups().filter(|group| group.parent.is_none());
    let sum: u64 = roots.map(|group| u64::from(group.min_slots)).sum();
    let slots = cluster.slots();
    let scaled = (sum > slots).then(|| {
        format!(
            "min_slots of the groups add up to {sum}, and there are {slots}: all are scaled down"
        )
    });
    raised.chain(scaled).collect()
}

/// How far what runs is from the weights: the mean of `|s_i - w_i| / w_i` over the leaves with tasks
/// (Guo, Fox, Zhou, section 4); `None` without tasks.
pub fn unfairness(groups: &Groups) -> Option<f64> {
    let distances: Vec<f64> = groups
        .leaves()
        .map(|group| groups.share(group))
        .filter(|share| share.of_weights > 0.0)
        .map(|share| (share.of_running - share.of_weights).abs() / share.of_weights)
        .collect();
    (!distances.is_empty()).then(|| distances.iter().sum::<f64>() / distances.len() as f64)
}
