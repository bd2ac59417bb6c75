//! Jobs: sets of like tasks, and what their tasks were bound by (thesis 2.3).
//!
//! One running task of a job stands for the rest until tasks have finished; from then on the
//! job's rate is the mean over its finished tasks of the same kind. Tasks that ended while
//! the daemon was away count as finished and leave the rate alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::model::JobKey;
use crate::units::Share;

/// Jobs kept at the most: a scheduler that names every task a job of its own must not fill
/// the memory. Of those without running tasks the one idle longest goes first.
pub const MAX_JOBS: usize = 4096;

/// What finished tasks of a job say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// Tasks that ended.
    pub count: u64,
    /// Sum of the computing rates of those that had one.
    pub rate_sum: f64,
    /// How many had one.
    pub rated: u64,
}

impl Finished {
    /// Mean computing rate, once a task with a rate has finished.
    pub fn mean_rate(&self) -> Option<Share> {
        Share::of(self.rate_sum, self.rated as f64)
    }
}

#[derive(Clone, Debug, Default)]
struct Job {
    running: u32,
    finished: Finished,
    last_change: u64,
}

/// All jobs this daemon knows.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    jobs: BTreeMap<JobKey, Job>,
    changes: u64,
}

impl Jobs {
    /// With the finished tasks of an earlier daemon.
    pub fn restore(finished: impl IntoIterator<Item = (JobKey, Finished)>) -> Jobs {
        let mut jobs = Jobs::default();
        for (key, finished) in finished {
            jobs.touch(key).finished = finished;
        }
        jobs
    }

    /// A task of `key` was admitted.
    pub fn started(&mut self, key: JobKey) {
        self.touch(key).running += 1;
    }

    /// A task of `key` ended; `rate` is `None` when it is not known.
    pub fn ended(&mut self, key: JobKey, rate: Option<Share>) {
        let job = self.touch(key);
        job.running = job.running.saturating_sub(1);
        job.finished.count += 1;
        if let Some(rate) = rate {
            job.finished.rate_sum += rate.value();
            job.finished.rated += 1;
        }
    }

    /// A task of `key` left without having ended.
    pub fn left(&mut self, key: JobKey) {
        let job = self.touch(key);
        job.running = job.running.saturating_sub(1);
    }

    /// How many tasks of a job run.
    pub fn running(&self, key: &JobKey) -> u32 {
        self.jobs.get(key).map_or(0, |job| job.running)
    }

    /// The mean rate of its finished tasks, once one with a rate has finished.
    pub fn mean_rate(&self, key: &JobKey) -> Option<Share> {
        self.jobs.get(key)?.finished.mean_rate()
    }

    /// Every job, how many of its tasks run, and its finished tasks; by name and kind.
    pub fn iter(&self) -> impl Iterator<Item = (&JobKey, u32, &Finished)> {
        self.jobs.iter().map(|(key, job)| (key, job.running, &job.finished))
    }

    fn touch(&mut self, key: JobKey) -> &mut Job {
        self.changes += 1;
        if self.jobs.len() >= MAX_JOBS && !self.jobs.contains_key(&key) {
            let idle_longest = self
                .jobs
                .iter()
                .filter(|(_, job)| job.running == 0)
                .min_by_key(|(_, job)| job.last_change)
                .map(|(key, _)| key.clone());
            if let Some(idle) = idle_longest {
                self.jobs.remove(&idle);
            }
        }
        let job = self.jobs.entry(key).or_default();
        job.last_change = self.changes;
        job
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Label;

    fn key(job: &str) -> JobKey {
        JobKey { job: Label::new(job).unwrap(), kind: None }
    }

    fn rate_of(jobs: &Jobs, wanted: &JobKey) -> Option<f64> {
        let (_, _, finished) = jobs.iter().find(|(key, ..)| *key == wanted)?;
        finished.mean_rate().map(Share::value)
    }

    #[test]
    fn the_rate_is_the_mean_over_finished_tasks_that_have_one() {
        let mut jobs = Jobs::default();
        for rate in [Some(0.2), None, Some(0.4)] {
            jobs.started(key("grep"));
            jobs.ended(key("grep"), rate.map(Share::clamped));
        }
        let rate = rate_of(&jobs, &key("grep")).unwrap();
        assert!((rate - 0.3).abs() < 1e-9, "{rate}");
        assert_eq!(jobs.iter().next().unwrap().2.count, 3);
    }

    #[test]
    fn the_table_is_bounded_and_keeps_what_runs() {
        let mut jobs = Jobs::default();
        jobs.started(key("keeper"));
        for number in 0..2 * MAX_JOBS {
            let key = key(&format!("job-{number}"));
            jobs.started(key.clone());
            jobs.ended(key, None);
        }
        assert_eq!(jobs.iter().count(), MAX_JOBS);
        assert!(jobs.iter().any(|(k, running, _)| *k == key("keeper") && running == 1));
    }
}
