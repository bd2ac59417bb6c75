//! How much CPU all tasks used over a cycle, with those that came and went within it.
//!
//! A task shorter than a cycle is seen by no reading of tasks. So the counter of the LRS root group
//! counts: every task in a group of LRS's own is below it, from its first process to its last. A task
//! elsewhere (in place, below a unit that it may not leave, in observe mode) counts by its own counter,
//! from one cycle to the next and from the last one to its end. Where the root counts nothing, or its
//! counter went back because the group was made anew, all tasks count that way.
//!
//! The owner of a group may remove it at once when its task has ended, so that no counter of the end is
//! left. Its use is in the counter of the group above for good, which so counts in place of the tasks in it
//! while only groups of tasks are in it. Whether that is so is seen at each reading: a group that was there
//! at one and is no task's at the next is another's, and so is one that was a task's and is so no more.
//!
//! Limits. Whatever runs below the root counts as a task: a process that waits for its slot there, which
//! is about to be one, and what others put there. Of a task elsewhere the last part is missing where its
//! owner removes its group before it is read and other groups or processes are beside it, and where its group
//! counts no CPU time (cgroup v1 without cpuacct for it, observe mode) and its processes are gone by
//! then. Beside tasks in place, what others do in a new group counts as a task's up to the reading that
//! finds it for the second time, and all of what they do in one that comes and goes between two.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::TaskId;
use crate::sample::ParentSample;
use crate::units::{BootTime, Share};

/// The sums of the cycle under way, and what the last one came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// When the last cycle was read; `None`: there was none yet.
    read_at: Option<BootTime>,
    /// CPU time since then that the counters of tasks below the root show.
    below_root: Duration,
    /// The same of each other task.
    elsewhere: BTreeMap<TaskId, Duration>,
    /// Groups above tasks in place as the last cycle read them.
    #[serde(with = "crate::history_state::pairs")]
    parents: BTreeMap<Arc<Path>, ParentSample>,
    share: Option<Share>,
}

impl Usage {
    /// What tasks used over the last cycle, as a share of the CPUs that they may use; `None`: not known
    /// (yet).
    pub fn share(&self) -> Option<Share> {
        self.share
    }

    /// The counter of a task grew.
    pub(super) fn add(&mut self, task: TaskId, is_below_root: bool, grown: Duration) {
        let sum = match is_below_root {
            true => &mut self.below_root,
            false => self.elsewhere.entry(task).or_default(),
        };
        *sum = sum.saturating_add(grown);
    }

    /// A cycle was read at `at`, after its readings were added. `root`: what the root used in it.
    /// `cpus`: [`UsableCpus::total`](crate::cpus::UsableCpus::total).
    pub(super) fn end_cycle(
        &mut self,
        at: BootTime,
        root: Option<Duration>,
        parents: Vec<ParentSample>,
        cpus: f64,
    ) {
        let mut elsewhere = std::mem::take(&mut self.elsewhere);
        let mut used = root.unwrap_or(self.below_root);
        for parent in &parents {
            let before = self.parents.get(&parent.group);
            let Some(grown) = before.and_then(|before| used_by_tasks(before, parent)) else {
                continue;
            };
            used = used.saturating_add(grown);
            for (task, _) in &parent.tasks {
                elsewhere.remove(task);
            }
        }
        let used = elsewhere.into_values().fold(used, Duration::saturating_add);
        let by_group = |parent: ParentSample| (Arc::clone(&parent.group), parent);
        self.parents = parents.into_iter().map(by_group).collect();
        self.below_root = Duration::ZERO;
        let before = self.read_at.replace(at);
        self.share = before.and_then(|before| {
            Share::of(used.as_secs_f64(), at.since(before).as_secs_f64() * cpus)
        });
    }
}

/// What was used between two readings of a group, if only groups of tasks were in it.
fn used_by_tasks(before: &ParentSample, now: &ParentSample) -> Option<Duration> {
    let named = |tasks: &[(TaskId, Arc<OsStr>)], other: &Arc<OsStr>| {
        tasks.iter().any(|(_, name)| name == other)
    };
    let of_others = before.others.as_ref()?.iter().any(|group| !named(&now.tasks, group))
        || now.others.as_ref()?.iter().any(|group| named(&before.tasks, group));
    if of_others || now.tasks.is_empty() {
        return None;
    }
    now.cpu.checked_sub(before.cpu)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> BootTime {
        BootTime(Duration::from_millis(millis))
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn task(number: u64) -> TaskId {
        TaskId { epoch: 1, number }
    }

    #[test]
    fn the_root_counts_what_no_reading_saw_and_the_sums_count_without_it() {
        let mut usage = Usage::default();
        usage.add(task(1), true, ms(900));
        usage.end_cycle(at(0), Some(ms(900)), Vec::new(), 2.0);
        assert_eq!(usage.share(), None, "over which time is not known");

        usage.add(task(1), true, ms(100));
        usage.add(task(2), false, ms(600));
        usage.end_cycle(at(3000), Some(ms(2400)), Vec::new(), 2.0);
        assert_eq!(usage.share(), Some(Share::clamped(0.5)), "of a root of tasks of 0.1 s");

        // The root was made anew.
        usage.add(task(1), true, ms(750));
        usage.end_cycle(at(6000), None, Vec::new(), 2.0);
        assert_eq!(usage.share(), Some(Share::clamped(0.125)));

        // Time that stands still says nothing.
        usage.end_cycle(at(6000), Some(ms(5)), Vec::new(), 2.0);
        assert_eq!(usage.share(), None);
    }

    proptest! {
        /// Cut anyhow into cycles, by readings and ends, all that tasks used is counted, once.
        #[test]
        fn nothing_is_lost_between_cycles(
            cycles in prop::collection::vec(
                (1u64..10_000, prop::collection::vec((any::<bool>(), 0u64..5_000), 0..8)), 1..12),
            has_root in any::<bool>(),
        ) {
            // So many that no share is cut at 1.
            let cpus = 1e6;
            let mut usage = Usage::default();
            usage.end_cycle(at(0), Some(Duration::ZERO), Vec::new(), cpus);
            let (mut now, mut used, mut counted) = (0, 0, 0.0);
            for (millis, grown) in cycles {
                let below: u64 = grown.iter().filter(|(below, _)| *below).map(|(_, ms)| ms).sum();
                for (below, millis) in grown {
                    usage.add(task(1), below, ms(millis));
                    used += millis;
                }
                now += millis;
                usage.end_cycle(at(now), has_root.then(|| ms(below)), Vec::new(), cpus);
                counted += usage.share().unwrap().value() * cpus * millis as f64;
            }
            prop_assert!((counted - used as f64).abs() < 1e-3 * (1.0 + used as f64));
        }

        /// Of a group with tasks in place in it, either what readings saw of them counts or all that it used:
        /// the second where nothing but tasks was in it, and never where another's group was in it at both
        /// readings.
        #[test]
        fn a_parent_counts_for_its_tasks_alone(
            cycles in prop::collection::vec(prop::collection::vec(happens(), 0..12), 2..12),
        ) {
            let cpus = 1e6;
            let (mut usage, mut parent) = (Usage::default(), Parent::default());
            for (number, all) in cycles.into_iter().enumerate() {
                let (cpu_before, others_before) = (parent.cpu, parent.others());
                (parent.by_tasks, parent.read) = (0, 0);
                let mut others_used = false;
                for happens in all {
                    others_used |= parent.happens(happens, &mut usage);
                }
                for group in parent.groups.values_mut() {
                    parent.read += group.read_to(&mut usage);
                }
                let (now, grown) = (1000 * number as u64, parent.cpu - cpu_before);
                let sample = parent.sample();
                let was_task = |group: &&Arc<OsStr>| sample.tasks.iter().any(|(_, name)| name == *group);
                let stayed = others_before.iter().filter(|group| !was_task(group));
                let stayed = stayed.filter(|group| parent.others().contains(group)).count() > 0;
                usage.end_cycle(at(now), Some(Duration::ZERO), vec![sample], cpus);
                let Some(share) = usage.share() else { continue };
                let counted = (share.value() * cpus * 1000.0).round() as u64;
                prop_assert!(counted == parent.read || counted == grown, "{counted}");
                let mixed = !others_before.is_empty() || !parent.others().is_empty() || others_used;
                if stayed {
                    prop_assert_eq!(counted, parent.read);
                } else if !mixed {
                    prop_assert_eq!(counted, parent.by_tasks);
                }
            }
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Happens {
        Made { as_task: bool },
        Uses(usize, u64),
        BecomesTask(usize),
        Released(usize),
        Ends { pick: usize, is_read: bool },
    }

    fn happens() -> impl Strategy<Value = Happens> {
        let pick = any::<usize>;
        prop_oneof![
            4 => prop::bool::weighted(0.8).prop_map(|as_task| Happens::Made { as_task }),
            6 => (pick(), 1u64..1000).prop_map(|(pick, millis)| Happens::Uses(pick, millis)),
            1 => pick().prop_map(Happens::BecomesTask),
            1 => pick().prop_map(Happens::Released),
            3 => (pick(), any::<bool>()).prop_map(|(pick, is_read)| Happens::Ends { pick, is_read }),
        ]
    }

    /// A group with others in it, some of them tasks.
    #[derive(Default)]
    struct Parent {
        cpu: u64,
        /// Used by tasks in this cycle, and what of it was read.
        by_tasks: u64,
        read: u64,
        groups: BTreeMap<u64, Member>,
        /// Of tasks since the last reading.
        tasks: Vec<(TaskId, Arc<OsStr>)>,
        made: u64,
    }

    #[derive(Default)]
    struct Member {
        task: Option<TaskId>,
        unread: u64,
    }

    impl Member {
        fn read_to(&mut self, usage: &mut Usage) -> u64 {
            let Some(task) = self.task else { return 0 };
            let grown = std::mem::take(&mut self.unread);
            usage.add(task, false, ms(grown));
            grown
        }
    }

    fn name(number: u64) -> Arc<OsStr> {
        Arc::from(OsStr::new(&number.to_string()))
    }

    impl Parent {
        /// Answers whether another's group used CPU.
        fn happens(&mut self, happens: Happens, usage: &mut Usage) -> bool {
            let nth =
                |pick: usize| self.groups.keys().nth(pick % self.groups.len().max(1)).copied();
            let picked = match happens {
                Happens::Made { as_task } => {
                    self.made += 1;
                    self.groups.insert(self.made, Member::default());
                    as_task.then_some(self.made)
                }
                Happens::Uses(pick, _) | Happens::BecomesTask(pick) | Happens::Released(pick) => {
                    nth(pick)
                }
                Happens::Ends { pick, .. } => nth(pick),
            };
            let Some(number) = picked else { return false };
            let Some(member) = self.groups.get_mut(&number) else { return false };
            match happens {
                Happens::Made { .. } | Happens::BecomesTask(_) => {
                    if member.task.is_none() {
                        // What it used before counts as no task's.
                        (member.task, member.unread) = (Some(task(number)), 0);
                        self.tasks.push((task(number), name(number)));
                    }
                }
                Happens::Uses(_, millis) => {
                    self.cpu += millis;
                    match member.task {
                        None => return true,
                        Some(_) => {
                            (self.by_tasks, member.unread) =
                                (self.by_tasks + millis, member.unread + millis)
                        }
                    }
                }
                Happens::Released(_) => {
                    self.read += member.read_to(usage);
                    member.task = None;
                }
                Happens::Ends { is_read, .. } => {
                    if let Some(mut member) = self.groups.remove(&number).filter(|_| is_read) {
                        self.read += member.read_to(usage);
                    }
                }
            }
            false
        }

        fn others(&self) -> Vec<Arc<OsStr>> {
            let others = self.groups.iter().filter(|(_, member)| member.task.is_none());
            others.map(|(number, _)| name(*number)).collect()
        }

        /// A reading.
        fn sample(&mut self) -> ParentSample {
            let running = self.groups.iter().filter(|(_, member)| member.task.is_some());
            let running = running.map(|(number, _)| (task(*number), name(*number))).collect();
            let tasks = std::mem::replace(&mut self.tasks, running);
            let named = |other: &Arc<OsStr>| tasks.iter().any(|(_, name)| name == other);
            // One that was released since is an other at the next reading.
            let others = self.others().into_iter().filter(|other| !named(other)).collect();
            ParentSample {
                group: Path::new("/owner").into(),
                cpu: ms(self.cpu),
                others: Some(others),
                tasks,
            }
        }
    }
}
