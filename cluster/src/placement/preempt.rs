//! What to preempt for groups that do not get their share (Zaharia et al., EuroSys 2010, section 2.1;
//! Hadoop's Fair Scheduler).
//!
//! A group that was below its minimum for the first timeout, or below half of its fair share for the
//! second, is due what it lacks. For it the tasks go that started last, of groups above their fair
//! share and never below it: these lose the least work. This only names the tasks. LRS ends none.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::placement::cluster::{Cluster, GroupId, State, TaskId};
use crate::placement::groups::Groups;

/// Groups that lack slots, and since when.
#[derive(Clone, Debug)]
pub struct Preemption {
    /// How long a group may be below its minimum (T_min).
    pub minimum_after: Duration,
    /// How long it may be below half of its fair share (T_fair).
    pub fair_after: Duration,
    /// The tasks go that have run longest and not those that started last, to compare.
    pub oldest_first: bool,
    served: BTreeMap<GroupId, Served>,
}

/// When a group last had enough.
#[derive(Clone, Copy, Debug)]
struct Served {
    minimum: Duration,
    fair: Duration,
}

impl Preemption {
    /// Counts from the first look on.
    pub fn new(minimum_after: Duration, fair_after: Duration) -> Preemption {
        Preemption { minimum_after, fair_after, oldest_first: false, served: BTreeMap::new() }
    }

    /// The tasks to end now, the last started first.
    pub fn choose(&mut self, cluster: &Cluster, now: Duration) -> Vec<TaskId> {
        let groups = Groups::of(cluster);
        let fair = groups.fair_slots(cluster);
        let due = groups.leaves().map(|group| self.due(&groups, group, fair[group.0], now)).sum();
        let mut above: Vec<usize> = groups
            .leaves()
            .map(|group| (group, fair[group.0].ceil() as usize))
            .fold(vec![0; fair.len()], |mut above, (group, fair)| {
                above[group.0] = groups.share(group).running.saturating_sub(fair);
                above
            });
        let mut running: Vec<(Reverse<Duration>, Reverse<TaskId>)> = cluster
            .tasks()
            .filter_map(|task| match cluster[task].state() {
                State::Running(_, since) => Some((Reverse(since), Reverse(task))),
                State::Waiting | State::Ended => None,
            })
            .collect();
        running.sort_unstable();
        if self.oldest_first {
            running.reverse();
        }
        let mut chosen = Vec::new();
        for (_, Reverse(task)) in running {
            let above = &mut above[cluster.group_of(task).0];
            if chosen.len() < due && *above > 0 {
                *above -= 1;
                chosen.push(task);
            }
        }
        chosen
    }

    /// The slots that a group has lacked for too long.
    fn due(&mut self, groups: &Groups, group: GroupId, fair: f64, now: Duration) -> usize {
        let share = groups.share(group);
        let minimum = (share.minimum.floor() as usize).min(share.demand());
        let served = self.served.entry(group).or_insert(Served { minimum: now, fair: now });
        if share.running >= minimum {
            served.minimum = now;
        }
        if share.running as f64 >= fair / 2.0 {
            served.fair = now;
        }
        let late = |since: Duration, after| now.saturating_sub(since) > after;
        let mut wanted = 0;
        if late(served.minimum, self.minimum_after) {
            wanted = minimum;
        }
        if late(served.fair, self.fair_after) {
            wanted = wanted.max(fair.floor() as usize);
        }
        wanted.saturating_sub(share.running)
    }
}
