//! How much CPU all tasks used over a cycle, with those that came and went within it.
//!
//! A task shorter than a cycle is seen by no reading of tasks. So the counter of the LRS root group
//! counts: every task in a group of LRS's own is below it, from its first process to its last. A task
//! elsewhere (in place, below a unit that it may not leave, in observe mode) counts by its own counter,
//! from one cycle to the next and from the last one to its end. Where the root counts nothing, or its
//! counter went back because the group was made anew, all tasks count that way.
//!
//! Limits. Whatever runs below the root counts as a task: a process that waits for its slot there, which
//! is about to be one, and what others put there. Of a task elsewhere the last part is missing where its
//! owner removes its group before it is read, and where its group counts no CPU time (cgroup v1 without
//! cpuacct for it, observe mode) and its processes are gone by then.

use std::time::Duration;

use crate::units::{BootTime, Share};

/// The sums of the cycle under way, and what the last one came to.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// When the last cycle was read; `None`: there was none yet.
    read_at: Option<BootTime>,
    /// CPU time since then that the counters of tasks below the root show.
    below_root: Duration,
    /// The same of the other tasks.
    elsewhere: Duration,
    share: Option<Share>,
}

impl Usage {
    /// What tasks used over the last cycle, as a share of the CPUs that they may use; `None`: not known
    /// (yet).
    pub fn share(&self) -> Option<Share> {
        self.share
    }

    /// The counter of a task grew.
    pub(super) fn add(&mut self, is_below_root: bool, grown: Duration) {
        let sum = if is_below_root { &mut self.below_root } else { &mut self.elsewhere };
        *sum = sum.saturating_add(grown);
    }

    /// A cycle was read at `at`, after its readings were added. `root`: what the root used in it.
    /// `cpus`: [`UsableCpus::total`](crate::cpus::UsableCpus::total).
    pub(super) fn end_cycle(&mut self, at: BootTime, root: Option<Duration>, cpus: f64) {
        let used = root.unwrap_or(self.below_root).saturating_add(self.elsewhere);
        let before = self.read_at.replace(at);
        (self.below_root, self.elsewhere) = (Duration::ZERO, Duration::ZERO);
        self.share = before.and_then(|before| {
            Share::of(used.as_secs_f64(), at.since(before).as_secs_f64() * cpus)
        });
    }
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

    #[test]
    fn the_root_counts_what_no_reading_saw_and_the_sums_count_without_it() {
        let mut usage = Usage::default();
        usage.add(true, ms(900));
        usage.end_cycle(at(0), Some(ms(900)), 2.0);
        assert_eq!(usage.share(), None, "over which time is not known");

        usage.add(true, ms(100));
        usage.add(false, ms(600));
        usage.end_cycle(at(3000), Some(ms(2400)), 2.0);
        assert_eq!(usage.share(), Some(Share::clamped(0.5)), "of a root of tasks of 0.1 s");

        // The root was made anew.
        usage.add(true, ms(750));
        usage.end_cycle(at(6000), None, 2.0);
        assert_eq!(usage.share(), Some(Share::clamped(0.125)));

        // Time that stands still says nothing.
        usage.end_cycle(at(6000), Some(ms(5)), 2.0);
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
            usage.end_cycle(at(0), Some(Duration::ZERO), cpus);
            let (mut now, mut used, mut counted) = (0, 0, 0.0);
            for (millis, grown) in cycles {
                let below: u64 = grown.iter().filter(|(below, _)| *below).map(|(_, ms)| ms).sum();
                for (below, millis) in grown {
                    usage.add(below, ms(millis));
                    used += millis;
                }
                now += millis;
                usage.end_cycle(at(now), has_root.then(|| ms(below)), cpus);
                counted += usage.share().unwrap().value() * cpus * millis as f64;
            }
            prop_assert!((counted - used as f64).abs() < 1e-3 * (1.0 + used as f64));
        }
    }
}
