//! Transfers that share links (`shared_links` of a suite): each node has one link in and one out.
//!
//! A transfer has the bandwidth of its pair of nodes, divided by the number of transfers on the busier of its two
//! links, and is reckoned anew whenever one begins or ends. What one leaves unused at its busier link
//! is not given to others, so this is somewhat slower than links that share by need (max-min). The links between racks are
//! not shared. Policies do not know of it: they weigh transfers as if each were alone.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::placement::cluster::{NodeId, TaskId};

/// When an input arrives of which the transfer goes on: not before this.
pub(crate) const FAR: Duration = Duration::from_secs(1 << 40);

/// So many seconds after `from`. A transfer that would take longer than the 17,000 years takes these.
pub(crate) fn after(from: Duration, seconds: f64) -> Duration {
    from + Duration::try_from_secs_f64(seconds).unwrap_or(FAR).min(FAR / 2)
}

/// An input on its way.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    from: NodeId,
    to: NodeId,
    /// Seconds alone that are left of it, since `since`.
    left: f64,
    since: Duration,
    /// How many times slower it is than alone.
    slower: f64,
    began: Duration,
}

/// All transfers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    moving: BTreeMap<TaskId, Transfer>,
    /// How often the transfers have changed: what was expected before is out of date.
    pub(crate) changes: u64,
}

impl Links {
    /// A transfer begins that takes so many seconds alone.
    pub(crate) fn begin(&mut self, task: TaskId, ends: (NodeId, NodeId), left: f64, now: Duration) {
        let (from, to) = ends;
        let transfer = Transfer { from, to, left, since: now, slower: 1.0, began: now };
        self.moving.insert(task, transfer);
        self.share(now);
    }

    /// The task is no more.
    pub(crate) fn drop(&mut self, task: TaskId, now: Duration) {
        if self.moving.remove(&task).is_some() {
            self.share(now);
        }
    }

    /// When the next one ends, if none begins before.
    pub(crate) fn next(&self) -> Option<Duration> {
        let end = |one: &Transfer| after(one.since, one.left * one.slower);
        self.moving.values().map(end).min()
    }

    /// Takes those that have ended, each with the time that it took.
    pub(crate) fn ended(&mut self, now: Duration) -> Vec<(TaskId, Duration)> {
        let is_over = |one: &Transfer| after(one.since, one.left * one.slower) <= now;
        let over: Vec<(TaskId, Duration)> = self
            .moving
            .iter()
            .filter(|(_, one)| is_over(one))
            .map(|(task, one)| (*task, now.saturating_sub(one.began)))
            .collect();
        over.iter().for_each(|(task, _)| {
            self.moving.remove(task);
        });
        self.share(now);
        over
    }

    fn share(&mut self, now: Duration) {
        self.changes += 1;
        let (mut outs, mut ins) = (BTreeMap::new(), BTreeMap::new());
        for one in self.moving.values() {
            *outs.entry(one.from).or_insert(0_u32) += 1;
            *ins.entry(one.to).or_insert(0_u32) += 1;
        }
        for one in self.moving.values_mut() {
            let passed = now.saturating_sub(one.since).as_secs_f64();
            one.left = (one.left - passed / one.slower).max(0.0);
            one.since = now;
            one.slower = f64::from(outs[&one.from].max(ins[&one.to]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_transfer_that_never_ends_is_far_and_no_panic() {
        for seconds in [1e30, f64::INFINITY, f64::NAN, FAR.as_secs_f64()] {
            assert_eq!(after(at(5.0), seconds), at(5.0) + FAR / 2, "{seconds}");
        }
        assert_eq!(after(at(5.0), 2.0), at(7.0));
    }

    fn next(links: &Links, seconds: f64) -> bool {
        links.next().is_some_and(|next| (next.as_secs_f64() - seconds).abs() < 1e-2)
    }

    #[test]
    fn a_transfer_is_slower_while_another_has_a_link_of_it() {
        let [a, b, c] = [0, 1, 2].map(NodeId);
        let mut links = Links::default();
        links.begin(TaskId(0), (a, b), 10.0, at(0.0));
        assert!(next(&links, 10.0));
        // Out of the same node, after half of the first one's time: each has half of the link.
        links.begin(TaskId(1), (a, c), 6.0, at(5.0));
        assert!(next(&links, 15.0));
        // Out of a node and into one that no other has: not slower.
        links.begin(TaskId(2), (b, a), 1.0, at(7.0));
        assert!(next(&links, 8.0));
        let over = |links: &mut Links, seconds: f64| -> Vec<usize> {
            links.ended(at(seconds)).into_iter().map(|(task, _)| task.0).collect()
        };
        assert_eq!(over(&mut links, 7.9), [0; 0]);
        assert_eq!(over(&mut links, 8.001), [2]);
        assert_eq!(over(&mut links, 15.001), [0]);
        assert!(next(&links, 16.0), "the last second alone: {:?}", links.next());
        // One that is dropped leaves its part to the other.
        links.begin(TaskId(3), (c, b), 10.0, at(20.0));
        assert_eq!(over(&mut links, 20.0), [1]);
        links.begin(TaskId(4), (c, a), 10.0, at(20.0));
        links.drop(TaskId(4), at(24.0));
        assert!(next(&links, 32.0));
        let (task, took) = links.ended(at(32.001)).remove(0);
        assert!(task == TaskId(3) && (took.as_secs_f64() - 12.0).abs() < 0.01, "{took:?}");
        assert_eq!(links.next(), None);
    }
}
