//! Jobs: sets of like tasks, and what their tasks were bound by (thesis 2.3).
//!
//! One running task of a job stands for the rest until tasks have finished; from then on the
//! job's rate is the mean over its finished tasks of the same kind. Of those the last [`REMEMBERED`]
//! or so decide: programs and their data change, and the thesis (2.4) argues against old history.
//! How long tasks take is remembered by the same rule. Tasks that ended while the daemon was away count
//! as finished and leave rate and duration alone; one that is known to have failed when it ends leaves
//! the duration alone, for it did not get through its work.
//!
//! A task that is too short for a rate of its own ([`super::rate`]) has one together with others: what
//! such tasks did is added up until it says enough, and then counts as one task. So a job of tasks of a
//! tenth of a second is known after three or four.
//!
//! Limit: a duration is what passed from admission to the end, the time in the passive tier included. Where tiers
//! change, so does what the next task takes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::exit::Exit;
use super::model::{JobKey, Label};
use super::rate::Spent;
use crate::units::{Bytes, Share, WallTime};

/// Jobs kept at the most: a scheduler that names every task a job of its own must not fill
/// the memory. Of those without running tasks the one idle longest goes first.
pub const MAX_JOBS: usize = 4096;

/// A mean of a job is of so many tasks at most: from then on each that finishes
/// takes the weight of one from those before it, so after 22 more these weigh half.
const REMEMBERED: u64 = 32;

/// Standard deviations above the mean of what is as large as 95 of 100 (one side of a normal distribution).
const LARGE: f64 = 1.645;

/// What finished tasks of a job say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// Tasks that ended.
    pub count: u64,
    /// Tasks with a main process that ended otherwise than with status 0, as far as that is known.
    pub failed: u64,
    /// The computing rates of those that had one.
    pub rates: Aged,
    /// What tasks without a rate of their own did since they last had one together.
    pub short: Spent,
    /// Which part of CPU and blocked time those with a rate waited for a disk.
    pub disk: Aged,
    /// How many CPUs they wanted: used and waited for.
    pub demand: Aged,
    /// How much memory they had resident, in bytes, at the most.
    pub resident: Aged,
    /// How many seconds those took that got through their work.
    pub seconds: Aged,
    /// When the last of these ended: how old `seconds` is.
    pub last_timed: Option<WallTime>,
    /// The group of the last task that named one: of the last admitted, after a restart of the last ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Label>,
}

/// A figure of the last [`REMEMBERED`] or so tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Aged {
    sum: f64,
    count: u64,
    squares: f64,
}

impl Aged {
    fn add(&mut self, value: f64) {
        if self.count >= REMEMBERED {
            let kept = (REMEMBERED - 1) as f64 / self.count as f64;
            self.sum *= kept;
            self.squares *= kept;
            self.count = REMEMBERED - 1;
        }
        self.count += 1;
        self.sum += value;
        self.squares += value * value;
    }

    /// Of how many it is.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Once there is one.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// The standard deviation, once there are two.
    pub fn spread(&self) -> Option<f64> {
        let mean = self.mean().filter(|_| self.count > 1)?;
        Some((self.squares / self.count as f64 - mean * mean).max(0.0).sqrt())
    }
}

/// What a task that ended adds to its job.
#[derive(Clone, Copy, Debug, Default)]
pub struct End {
    /// Its computing rate; `None`: not known.
    pub rate: Option<f64>,
    /// How its time was spent; `None`: not known.
    pub spent: Option<Spent>,
    /// How many CPUs it wanted; `None`: not known.
    pub demand: Option<f64>,
    /// The most memory that it had, in bytes; `None`: not known.
    pub resident: Option<f64>,
    /// What passed from its admission on; `None`: not known, or it is known to have failed.
    pub seconds: Option<f64>,
    /// When.
    pub at: WallTime,
}

impl End {
    /// What the event of an end says, which is all that a job learns of it: so the next daemon learns
    /// the same from the history. Of an end that no daemon saw nothing is known.
    pub fn noted(inputs: &Map<String, Value>, at: WallTime) -> End {
        if !inputs.get("ended_at").is_some_and(Value::is_string) {
            return End { at, ..End::default() };
        }
        let figure = |name| inputs.get(name).and_then(Value::as_f64);
        let elapsed = figure("elapsed_seconds");
        let spent = || {
            let (cpu, blocked) = (figure("cpu_seconds")?, figure("blocked_seconds")?);
            let (disk, waited) = (figure("disk_wait_seconds")?, elapsed? - cpu - blocked);
            Some(Spent { cpu, blocked, disk, waited: waited.max(0.0) })
        };
        let spent = spent();
        let wanted =
            |spent: Spent| Some((spent.cpu + spent.waited) / elapsed.filter(|s| *s > 0.0)?);
        let has_failed = Exit::noted(inputs).is_some_and(Exit::failed);
        End {
            rate: figure("computing_rate"),
            spent,
            demand: spent.and_then(wanted),
            resident: figure("resident_bytes"),
            seconds: elapsed.filter(|_| !has_failed),
            at,
        }
    }
}

impl Finished {
    /// A task ended.
    pub fn add(&mut self, end: End) {
        self.count += 1;
        if let Some((rate, disk)) = self.rate_of(&end) {
            self.rates.add(rate);
            if let Some(disk) = disk {
                self.disk.add(disk.value());
            }
        }
        let figures = [(&mut self.demand, end.demand), (&mut self.resident, end.resident)];
        for (mean, value) in figures {
            if let Some(value) = value {
                mean.add(value);
            }
        }
        if let Some(seconds) = end.seconds {
            self.seconds.add(seconds);
            self.last_timed = Some(end.at);
        }
    }

    /// A task of this group is one of the job's.
    pub fn name_group(&mut self, group: Option<&Label>) {
        if let Some(group) = group.filter(|group| self.group.as_ref() != Some(group)) {
            self.group = Some(group.clone());
        }
    }

    /// The rate of a task, or of those together that had none of their own, and their share of disk waits.
    fn rate_of(&mut self, end: &End) -> Option<(f64, Option<Share>)> {
        if let Some(rate) = end.rate {
            return Some((rate, end.spent.and_then(|spent| spent.disk_share())));
        }
        self.short.add(end.spent?);
        let rate = self.short.rate()?;
        let short = std::mem::take(&mut self.short);
        Some((rate.value(), short.disk_share()))
    }

    /// Mean computing rate, once a task with a rate has finished.
    pub fn mean_rate(&self) -> Option<Share> {
        self.rates.mean().map(Share::clamped)
    }

    /// Mean share of disk waits of those; `None`: not known.
    pub fn mean_disk(&self) -> Option<Share> {
        self.disk.mean().map(Share::clamped)
    }

    /// Standard deviation of the computing rate, once two tasks with a rate have finished.
    pub fn rate_spread(&self) -> Option<f64> {
        self.rates.spread()
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Job {
    running: u32,
    finished: Finished,
    last_change: u64,
}

/// All jobs this daemon knows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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

    /// A task of `key` was admitted, in `group`.
    pub fn started(&mut self, key: JobKey, group: Option<&Label>) {
        let job = self.touch(key);
        job.running += 1;
        job.finished.name_group(group);
    }

    /// A task of `key` ended.
    pub fn ended(&mut self, key: JobKey, end: End) {
        let job = self.touch(key);
        job.running = job.running.saturating_sub(1);
        job.finished.add(end);
    }

    /// The main process of a task of `key` failed.
    pub fn failed(&mut self, key: JobKey) {
        self.touch(key).finished.failed += 1;
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

    /// How many CPUs its finished tasks wanted, on average, once one is known to have wanted some.
    pub fn mean_demand(&self, key: &JobKey) -> Option<f64> {
        self.jobs.get(key)?.finished.demand.mean()
    }

    /// How much memory its finished tasks had, on average, once that of one is known.
    pub fn mean_resident(&self, key: &JobKey) -> Option<Bytes> {
        // Saturates, and what is not positive is 0: `as` does both.
        self.jobs.get(key)?.finished.resident.mean().map(|bytes| Bytes(bytes as u64))
    }

    /// A size that 95 of 100 of its tasks do not exceed, by the mean and the spread of those that
    /// finished; once that of one is known.
    pub fn large_resident(&self, key: &JobKey) -> Option<Bytes> {
        let resident = &self.jobs.get(key)?.finished.resident;
        let bytes = resident.mean()? + LARGE * resident.spread().unwrap_or(0.0);
        Some(Bytes(bytes as u64))
    }

    /// A running task of `key` is in this group.
    pub fn name_group(&mut self, key: &JobKey, group: Option<&Label>) {
        if let Some(job) = self.jobs.get_mut(key) {
            job.finished.name_group(group);
        }
    }

    /// How long its finished tasks took, on average, once one that got through its work has finished.
    pub fn mean_seconds(&self, key: &JobKey) -> Option<f64> {
        self.jobs.get(key)?.finished.seconds.mean()
    }

    /// How long a running task of a job has yet to run: the mean of those that finished less what has
    /// passed. `None`: none has finished, or it runs longer than the mean; then nothing is known, for
    /// with a long tail what is left grows with what has passed.
    pub fn remaining(&self, key: &JobKey, elapsed: Duration) -> Option<f64> {
        let left = self.mean_seconds(key)? - elapsed.as_secs_f64();
        (left > 0.0).then_some(left)
    }

    /// Every job, how many of its tasks run, and its finished tasks; by user, name and kind.
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
        JobKey { uid: None, job: Label::new(job).unwrap(), kind: None }
    }

    fn rated(rate: Option<f64>) -> End {
        End { rate, ..End::default() }
    }

    fn rate_of(jobs: &Jobs, wanted: &JobKey) -> Option<f64> {
        let (_, _, finished) = jobs.iter().find(|(key, ..)| *key == wanted)?;
        finished.mean_rate().map(Share::value)
    }

    #[test]
    fn the_rate_is_the_mean_over_finished_tasks_that_have_one() {
        let mut jobs = Jobs::default();
        for rate in [Some(0.2), None, Some(0.4)] {
            jobs.started(key("grep"), None);
            jobs.ended(key("grep"), rated(rate));
        }
        let rate = rate_of(&jobs, &key("grep")).unwrap();
        assert!((rate - 0.3).abs() < 1e-9, "{rate}");
        assert_eq!(jobs.iter().next().unwrap().2.count, 3);
    }

    #[test]
    fn a_large_task_is_larger_than_nearly_all() {
        let mut jobs = Jobs::default();
        for bytes in [100.0, 100.0, 300.0, 300.0] {
            jobs.ended(key("sort"), End { resident: Some(bytes), ..End::default() });
        }
        assert_eq!(jobs.large_resident(&key("sort")), Some(Bytes(364)));
        assert_eq!(jobs.mean_resident(&key("sort")), Some(Bytes(200)));
        assert_eq!(jobs.large_resident(&key("grep")), None);
    }

    #[test]
    fn tasks_too_short_for_a_rate_have_one_together() {
        let spent = |cpu, blocked, disk, waited| {
            let spent = Some(Spent { cpu, blocked, disk, waited });
            End { spent, ..End::default() }
        };
        let mut hogs = Finished::default();
        hogs.add(spent(0.24, 0.0, 0.0, 0.01));
        assert_eq!((hogs.count, hogs.rates.count()), (1, 0), "0.25 s say nothing");
        hogs.add(spent(0.24, 0.0, 0.0, 0.01));
        assert_eq!((hogs.count, hogs.rates.count()), (2, 1));
        assert_eq!(hogs.mean_rate().map(Share::value), Some(1.0));
        assert_eq!(hogs.short, Spent::default());

        let mut sleepers = Finished::default();
        (0..200).for_each(|_| sleepers.add(spent(0.001, 0.099, 0.0, 0.0)));
        assert!((40..70).contains(&sleepers.rates.count()) || sleepers.rates.count() == REMEMBERED);
        assert!(sleepers.mean_rate().unwrap().value() < 0.02, "{sleepers:?}");
        assert_eq!(sleepers.mean_disk().map(Share::value), Some(0.0));

        // One with a rate leaves what the others are about to say alone.
        let mut mixed = Finished::default();
        mixed.add(spent(0.2, 0.0, 0.0, 0.0));
        mixed.add(rated(Some(0.5)));
        assert_eq!((mixed.rates.count(), mixed.short.cpu), (1, 0.2));
    }

    proptest::proptest! {
        /// However short the tasks are, the rate is that of all of them together.
        #[test]
        fn a_job_of_equal_tasks_has_their_rate(
            cpu in 0.001f64..0.3, blocked in 0.0f64..0.3, waited in 0.0f64..0.3, count in 320u32..400,
        ) {
            let mut finished = Finished::default();
            let spent = Some(Spent { cpu, blocked, disk: blocked / 2.0, waited });
            for _ in 0..count {
                finished.add(End { spent, ..End::default() });
            }
            let expected = cpu / (cpu + blocked);
            let found = finished.mean_rate().unwrap().value();
            proptest::prop_assert!((found - expected).abs() < 1e-9, "{found} {expected}");
            let disk = finished.mean_disk().unwrap().value();
            proptest::prop_assert!((disk - blocked / 2.0 / (cpu + blocked)).abs() < 1e-9);
        }
    }

    #[test]
    fn old_rates_fade_and_the_spread_is_that_of_the_tasks() {
        let mut finished = Finished::default();
        assert_eq!(finished.rate_spread(), None);
        for task in 0..1000 {
            finished.add(rated(Some(if task % 2 == 0 { 0.2 } else { 0.4 })));
        }
        let near = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 0.01;
        assert!(near(finished.mean_rate().map(Share::value), 0.3), "{finished:?}");
        assert!(near(finished.rate_spread(), 0.1), "{finished:?}");
        for _ in 0..22 {
            finished.add(rated(Some(0.9)));
        }
        assert!(near(finished.mean_rate().map(Share::value), 0.6), "{finished:?}");
        assert_eq!(finished.count, 1022);
    }

    #[test]
    fn what_is_left_is_the_mean_less_what_passed_and_not_known_beyond_it() {
        let mut jobs = Jobs::default();
        let left =
            |jobs: &Jobs, elapsed| jobs.remaining(&key("sort"), Duration::from_secs(elapsed));
        jobs.started(key("sort"), None);
        assert_eq!(left(&jobs, 0), None, "none has finished");
        for (seconds, at) in [(Some(10.0), 1), (Some(30.0), 2), (None, 3)] {
            let at = WallTime::from_unix_micros(at);
            jobs.ended(key("sort"), End { seconds, at, ..End::default() });
        }
        assert_eq!((left(&jobs, 5), left(&jobs, 20), left(&jobs, 99)), (Some(15.0), None, None));
        let (_, _, finished) = jobs.iter().next().unwrap();
        assert_eq!((finished.count, finished.seconds.spread()), (3, Some(10.0)));
        assert_eq!(finished.last_timed, Some(WallTime::from_unix_micros(2)));
        assert_eq!(finished.group, None);
        let kept = serde_json::to_value(finished).unwrap();
        assert_eq!(serde_json::from_value::<Finished>(kept).unwrap(), *finished);
    }

    #[test]
    fn the_table_is_bounded_and_keeps_what_runs() {
        let mut jobs = Jobs::default();
        jobs.started(key("keeper"), None);
        for number in 0..2 * MAX_JOBS {
            let key = key(&format!("job-{number}"));
            jobs.started(key.clone(), None);
            jobs.ended(key, rated(None));
        }
        assert_eq!(jobs.iter().count(), MAX_JOBS);
        assert!(jobs.iter().any(|(k, running, _)| *k == key("keeper") && running == 1));
    }
}
