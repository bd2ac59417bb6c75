//! How near a setting comes to what the node can do at most, and where the rest goes.
//!
//! No order of the tasks is faster than their CPU seconds spread over all CPUs, nor than the longest of them
//! alone. The CPU seconds are the least that any setting needed, so that caches that are refilled count
//! as loss; disks have no such figure here, so where they are the limit it is too low.
//!
//! What a makespan has beyond the CPU seconds is of three kinds, each over all CPUs: idle, used by others than the
//! tasks, and more CPU seconds than the least.

use serde::Serialize;

use super::figures::{Alone, Figures};

/// The lower bound of a load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Limit {
    /// No setting can take less, seconds.
    pub(crate) seconds: f64,
    /// The least CPU seconds of any setting.
    pub(crate) cpu_seconds: f64,
    /// The longest task alone, seconds; None: none was run alone.
    pub(crate) longest_task: Option<f64>,
}

/// A setting beside the lower bound of its load. Seconds are of wall time, over all CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Beside {
    /// Makespan over the limit.
    pub(crate) ratio: f64,
    /// In which CPUs were idle.
    pub(crate) idle: f64,
    /// In which others used them.
    pub(crate) others: f64,
    /// In which tasks used more than the least.
    pub(crate) grown: f64,
}

impl Limit {
    /// Of the settings of a load; `None`: what the tasks used is not known.
    pub(super) fn new<'a>(
        settings: impl Iterator<Item = &'a Figures>,
        alone: &[Alone],
        cpus: u32,
    ) -> Option<Limit> {
        let known = settings.filter_map(|figures| figures.cpu_seconds);
        let cpu_seconds = known.min_by(f64::total_cmp).filter(|seconds| *seconds > 0.0)?;
        let longest_task = alone.iter().map(|one| one.run_time.median).max_by(f64::total_cmp);
        let spread = cpu_seconds / f64::from(cpus.max(1));
        Some(Limit { seconds: spread.max(longest_task.unwrap_or(0.0)), cpu_seconds, longest_task })
    }

    /// A setting beside it.
    pub(super) fn beside(&self, figures: &Figures, cpus: u32) -> Option<Beside> {
        let makespan = figures.makespan.as_ref()?.median;
        let used = figures.effective?;
        Some(Beside {
            ratio: makespan / self.seconds,
            idle: (1.0 - used - figures.steal.unwrap_or(0.0)).max(0.0) * makespan,
            others: figures.others? * makespan,
            grown: (figures.cpu_seconds? - self.cpu_seconds) / f64::from(cpus.max(1)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figures::Summary;
    use crate::stats::Spread;

    fn summary(seconds: f64) -> Summary {
        Summary::from(&Spread::new(vec![seconds]).unwrap())
    }

    fn setting(makespan: f64, effective: f64, cpu_seconds: f64) -> Figures {
        Figures {
            makespan: Some(summary(makespan)),
            effective: Some(effective),
            others: Some(0.05),
            cpu_seconds: Some(cpu_seconds),
            ..Figures::default()
        }
    }

    #[test]
    fn what_is_beyond_the_limit_is_idle_of_others_or_grown() {
        // 20 CPU seconds on two CPUs; once half as many again, for caches that are refilled.
        let settings = [setting(12.0, 0.883, 20.0), setting(16.0, 0.9875, 30.0)];
        let limit = Limit::new(settings.iter(), &[], 2).unwrap();
        assert_eq!((limit.seconds, limit.longest_task), (10.0, None));
        let beside = settings.map(|one| limit.beside(&one, 2).unwrap());
        assert!((beside[0].ratio - 1.2).abs() < 1e-9 && beside[0].grown == 0.0, "{beside:?}");
        assert!((beside[0].idle - 1.404).abs() < 1e-9, "{beside:?}");
        assert!((beside[1].grown - 5.0).abs() < 1e-9 && (beside[1].idle - 0.2).abs() < 1e-9);
        let sum = beside[1].idle + beside[1].others + beside[1].grown;
        assert!((limit.seconds + sum - 16.0).abs() < 1e-9, "{beside:?}");
    }

    #[test]
    fn one_long_task_is_a_limit() {
        let alone = [Alone { group: "long".to_owned(), run_time: summary(30.0) }];
        let limit = Limit::new([setting(40.0, 0.5, 20.0)].iter(), &alone, 2).unwrap();
        assert_eq!(limit.seconds, 30.0);
        assert_eq!(Limit::new([Figures::default()].iter(), &alone, 2), None);
    }
}
