//! Who arrives when, and who is next with a fixed number of slots: pure, so that it can be
//! tested without a process. Time is that since the run began.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::tasks::Planned;
use crate::suite::Group;

/// Arrivals to come and the tasks that wait for a slot, by index of the task.
#[derive(Debug)]
pub(super) struct Queue {
    /// Group by group: priority, groups to wait for, tasks not ended.
    groups: Vec<Waiting>,
    /// Time of arrival and index.
    to_come: BTreeSet<(Duration, usize)>,
    /// By priority, the highest first, then by arrival.
    waiting: BTreeMap<(Reverse<i32>, usize), usize>,
    arrived: usize,
}

#[derive(Debug)]
struct Waiting {
    priority: i32,
    after: Vec<usize>,
    begun: bool,
    /// Tasks that have not ended.
    left: usize,
}

impl Queue {
    /// All tasks of a run; groups without a task count as ended.
    pub(super) fn new(groups: &[Group], tasks: &[Planned]) -> Queue {
        let mut queue = Queue {
            groups: groups
                .iter()
                .enumerate()
                .map(|(index, group)| Waiting {
                    priority: group.priority,
                    after: group.after.clone(),
                    begun: false,
                    left: tasks.iter().filter(|task| task.group == index).count(),
                })
                .collect(),
            to_come: BTreeSet::new(),
            waiting: BTreeMap::new(),
            arrived: 0,
        };
        queue.begin_groups(tasks, Duration::ZERO);
        queue
    }

    /// Lets the groups begin after their forerunners have ended.
    fn begin_groups(&mut self, tasks: &[Planned], now: Duration) {
        let ended: Vec<bool> = self.groups.iter().map(|group| group.left == 0).collect();
        for (index, group) in self.groups.iter_mut().enumerate() {
            let ready = group.after.iter().all(|&before| ended.get(before) == Some(&true));
            if group.begun || !ready {
                continue;
            }
            group.begun = true;
            let own = tasks.iter().enumerate().filter(|(_, task)| task.group == index);
            self.to_come.extend(own.map(|(task, planned)| (now + planned.arrives, task)));
        }
    }

    /// Moves who is due into the queue; answers them in order.
    pub(super) fn arrive(&mut self, tasks: &[Planned], now: Duration) -> Vec<usize> {
        let mut due = Vec::new();
        while let Some(&(at, task)) = self.to_come.first()
            && at <= now
        {
            self.to_come.pop_first();
            let group = tasks.get(task).and_then(|planned| self.groups.get(planned.group));
            let priority = group.map_or(0, |group| group.priority);
            self.waiting.insert((Reverse(priority), self.arrived), task);
            self.arrived += 1;
            due.push(task);
        }
        due
    }

    /// When the next one arrives.
    pub(super) fn next_arrival(&self) -> Option<Duration> {
        self.to_come.first().map(|&(at, _)| at)
    }

    /// The next one.
    pub(super) fn next(&mut self) -> Option<usize> {
        self.waiting.pop_first().map(|(_, task)| task)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A task has ended, however: what follows its group may begin.
    pub(super) fn ended(&mut self, tasks: &[Planned], task: usize, now: Duration) {
        let group = tasks.get(task).and_then(|planned| self.groups.get_mut(planned.group));
        if let Some(group) = group {
            group.left = group.left.saturating_sub(1);
            if group.left == 0 {
                self.begin_groups(tasks, now);
            }
        }
    }

    /// Whether every task has ended.
    pub(super) fn is_over(&self) -> bool {
        self.groups.iter().all(|group| group.left == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::suite::Arrival;

    fn group(name: &str, count: u32, priority: i32, after: &[usize]) -> Group {
        Group {
            name: name.into(),
            kind: None,
            job: None,
            count,
            command: Vec::new(),
            priority,
            arrival: Arrival::AtOnce,
            start: Duration::ZERO,
            after: after.to_vec(),
            environment: Vec::new(),
            directory: None,
        }
    }

    fn task(group: usize, arrives: u64) -> Planned {
        Planned {
            name: String::new(),
            group,
            arrives: Duration::from_millis(arrives),
            command: Vec::new(),
            environment: Vec::new(),
            directory: PathBuf::new(),
        }
    }

    #[test]
    fn turns_go_by_priority_and_then_by_arrival() {
        let ms = Duration::from_millis;
        let groups = [group("low", 2, 0, &[]), group("high", 1, 5, &[]), group("last", 1, 0, &[0])];
        let tasks = [task(0, 0), task(0, 0), task(1, 10), task(2, 5)];
        let mut queue = Queue::new(&groups, &tasks);
        assert_eq!(queue.arrive(&tasks, ms(0)), [0, 1]);
        assert_eq!(queue.next_arrival(), Some(ms(10)));
        assert_eq!(queue.next(), Some(0));
        assert_eq!(queue.arrive(&tasks, ms(10)), [2]);
        assert_eq!((queue.next(), queue.next(), queue.next()), (Some(2), Some(1), None));
        assert_eq!(queue.next_arrival(), None, "the last group waits for the first");
        queue.ended(&tasks, 0, ms(20));
        queue.ended(&tasks, 1, ms(30));
        assert_eq!(queue.next_arrival(), Some(ms(35)));
        queue.ended(&tasks, 2, ms(31));
        assert!(!queue.is_over());
        assert_eq!(queue.arrive(&tasks, ms(40)), [3]);
        queue.ended(&tasks, 3, ms(50));
        assert!(queue.is_over());
    }
}
