//! Jobs by name, of which a few have series of their own.
//!
//! Names of jobs are their users' choice, so that each is a new series for ever in the memory of Prometheus:
//! only the largest are named, the rest is [`OTHER`]. A job may come into the former and leave
//! it, which is why its figures are gauges: a counter of `other` would jump. The label is `name`, for
//! `job` is what Prometheus calls the scrape.

use std::collections::BTreeMap;

use crate::definitions::{JOB_CPU, JOB_TASKS, JOB_WAITING};
use crate::text::Samples;
use crate::{Options, Reading};

/// The label of all jobs that have no series of their own. A job of that name is among them.
const OTHER: &str = "other";

#[derive(Clone, Copy, Debug, Default)]
struct Job {
    tasks: u64,
    waiting: u64,
    cpu: Option<f64>,
}

impl Job {
    /// How it is compared: by what runs, then by what waits.
    fn size(&self) -> (u64, u64) {
        (self.tasks, self.waiting)
    }

    fn add(&mut self, other: Job) {
        self.tasks += other.tasks;
        self.waiting += other.waiting;
        self.cpu = self.cpu.zip(other.cpu).map(|(one, two)| one + two).or(self.cpu).or(other.cpu);
    }
}

/// Adds the jobs that run or wait; tasks without a job are in none.
pub(crate) fn add(reading: &Reading, options: Options, samples: &mut Samples) {
    if options.jobs == 0 {
        return;
    }
    let mut jobs = BTreeMap::<&str, Job>::new();
    for task in &reading.tasks {
        if let Some(name) = &task.job {
            let one = Job { tasks: 1, waiting: 0, cpu: task.cpu_share };
            jobs.entry(name).or_default().add(one);
        }
    }
    for queued in reading.queue.iter().filter(|queued| queued.place.is_some()) {
        if let Some(name) = &queued.job {
            jobs.entry(name).or_default().add(Job { waiting: 1, ..Job::default() });
        }
    }
    let mut rest = jobs.remove(OTHER);
    let mut jobs: Vec<(&str, Job)> = jobs.into_iter().collect();
    // Of equal ones the first by name, so that a reading is the same text again.
    jobs.sort_by(|one, two| two.1.size().cmp(&one.1.size()).then_with(|| one.0.cmp(two.0)));
    for (_, job) in jobs.drain(options.jobs.min(jobs.len())..) {
        rest.get_or_insert_default().add(job);
    }
    for (name, job) in jobs.into_iter().chain(rest.map(|rest| (OTHER, rest))) {
        samples.count(&JOB_TASKS, &[name], job.tasks);
        samples.count(&JOB_WAITING, &[name], job.waiting);
        samples.add_known(&JOB_CPU, &[name], job.cpu);
    }
}
