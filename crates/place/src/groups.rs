//! Groups of jobs (users, queues, pools) and their shares of a cluster.
//!
//! A group has a share by its weight, of the weights of all groups that have tasks: a group without
//! any takes nothing from the others.

use crate::cluster::{Cluster, GroupId, State};

/// A group of jobs.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its weight, above 0.
    pub weight: f64,
}

/// What a group has, and what it is due.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Tasks that run.
    pub running: usize,
    /// Tasks that wait.
    pub waiting: usize,
    /// Of all that runs, 0 to 1; 0 when nothing runs.
    pub of_running: f64,
    /// Of the weights of all groups with tasks, 0 to 1; 0 without tasks.
    pub of_weights: f64,
}

impl Share {
    /// How many more tasks the group can run before it has its share of `slots`
    /// (`sto` in Guo, Fox, Zhou, MapReduce'12, section 4).
    pub fn lacking(&self, slots: u64) -> usize {
        // A share that is a whole number must not lose a slot to the rounding of the division.
        let due = (slots as f64 * self.of_weights + 1e-9).floor() as usize;
        due.saturating_sub(self.running)
    }
}

/// The shares of all groups, in the order of their ids.
pub fn shares(cluster: &Cluster) -> Vec<Share> {
    let mut shares = vec![Share::default(); cluster.groups().count()];
    for task in cluster.tasks() {
        let share = &mut shares[cluster.group_of(task).0];
        match cluster[task].state() {
            State::Waiting => share.waiting += 1,
            State::Running(..) => share.running += 1,
            State::Ended => {}
        }
    }
    let running: usize = shares.iter().map(|share| share.running).sum();
    let weight = |group: GroupId, share: &Share| {
        if share.running + share.waiting > 0 { cluster[group].weight } else { 0.0 }
    };
    let weights: Vec<f64> =
        cluster.groups().zip(&shares).map(|(group, share)| weight(group, share)).collect();
    // The largest is 1, so that no sum of weights is beyond a double.
    let largest = weights.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let sum: f64 = weights.iter().map(|weight| weight / largest).sum();
    for (share, weight) in shares.iter_mut().zip(weights) {
        share.of_running = share.running as f64 / running.max(1) as f64;
        share.of_weights = if sum > 0.0 { weight / largest / sum } else { 0.0 };
    }
    shares
}

/// How far what runs is from the weights: the mean of `|s_i - w_i| / w_i` over the groups with tasks
/// (Guo, Fox, Zhou, section 4); `None` without tasks.
pub fn unfairness(shares: &[Share]) -> Option<f64> {
    let distances: Vec<f64> = shares
        .iter()
        .filter(|share| share.of_weights > 0.0)
        .map(|share| (share.of_running - share.of_weights).abs() / share.of_weights)
        .collect();
    (!distances.is_empty()).then(|| distances.iter().sum::<f64>() / distances.len() as f64)
}
