//! How long a task is going to hold its slot, by those of its job and kind that have ended.
//!
//! Mean and median are kept beside each other and held against what came out, task by task, each before
//! it is learnt from (`forecast_mean`, `forecast_median`). Policies get the median, which errs less:
//! docs/placement.md has the figures, also those of the sources' multilayer perceptron.

use std::time::Duration;

/// The median is that of so many tasks that ended last.
const KEPT: usize = 32;

/// The times of the tasks of a job, of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TaskTimes {
    sum: Duration,
    count: u32,
    last: [Duration; KEPT],
}

impl TaskTimes {
    pub(crate) fn learn(&mut self, held: Duration) {
        self.last[self.count as usize % KEPT] = held;
        self.sum = self.sum.saturating_add(held);
        self.count = self.count.saturating_add(1);
    }

    /// None: no task has ended yet.
    pub(crate) fn mean(&self) -> Option<Duration> {
        self.sum.checked_div(self.count)
    }

    /// None: no task has ended yet. Between two, the upper one.
    pub(crate) fn median(&self) -> Option<Duration> {
        let mut last = self.last;
        let last = &mut last[..KEPT.min(self.count as usize)];
        last.sort_unstable();
        last.get(last.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_before_the_first_end() {
        assert_eq!((TaskTimes::default().mean(), TaskTimes::default().median()), (None, None));
    }

    #[test]
    fn mean_and_median_follow_what_ended() {
        let mut held = TaskTimes::default();
        [4, 1, 10].into_iter().for_each(|seconds| held.learn(Duration::from_secs(seconds)));
        assert_eq!(held.mean(), Some(Duration::from_secs(5)));
        assert_eq!(held.median(), Some(Duration::from_secs(4)));
        (0..40).for_each(|_| held.learn(Duration::from_secs(7)));
        assert_eq!(held.median(), Some(Duration::from_secs(7)), "of the last {KEPT}");
    }
}
