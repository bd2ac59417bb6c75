//! Memory that tasks will take: what is kept free for those that run, and what a new one is expected to need.
//!
//! A task of which a slot was given has not taken its memory yet: it reads its input in, its runtime warms up.
//! Slots that open by what is free at that moment, or by the sizes of the moment, are too many. So for its
//! first [`GROWS`] a task counts as much as 95 of 100 of its job had. Where none of its job has ended:
//!
//! - as it grows itself: for the rest of [`GROWS`] as between the last two readings, to [`MOST_GROWTH`] times
//!   what it has, or as on the mean since it began;
//! - as the largest of its job that runs, at least [`LEAST_SIZE`]. Tasks of a user without a job need not be
//!   alike: as their mean, without those that have just begun.
//! - Before readings show how each grows, young tasks together as if the memory available fell on as between
//!   the last two readings ahead of the cycle.
//!
//! Between two readings each request that gets a slot counts as well, unless it takes the place of one that
//! ended.
//!
//! Limits. What a task takes after [`GROWS`] is seen only as it takes it, and then the guard acts. A slot that is
//! reserved counts until the next reading alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Shaper;
use crate::memory::Memory;
use crate::model::{JobKey, Labels};
use crate::task::Task;
use crate::units::{BootTime, Bytes};

/// Time in which a new task may still take its memory.
const GROWS: Duration = Duration::from_secs(10);

/// A task that does not grow steadily is expected to have so many times what it has, at the most: one that was
/// read just as it took its memory would be expected to take all there is.
const MOST_GROWTH: u64 = 4;

/// The least that a task of a job counts as of which nothing is known.
const LEAST_SIZE: Bytes = Bytes(64 << 20);

/// Who a task is like: its user, and its job if it has one.
type Kind = (Option<u32>, Option<JobKey>);

fn kind(task: &Task) -> Kind {
    (task.uid, task.job_key())
}

fn is_young(task: &Task, now: BootTime) -> bool {
    now.since(task.admitted_at.boot) < GROWS
}

impl Shaper {
    /// Memory that new tasks have yet to take, where one that no cycle has read yet has none. `resident`: the
    /// mean size of the tasks.
    pub(crate) fn memory_to_come(&self, resident: Option<Bytes>, now: BootTime) -> Bytes {
        let young: Vec<&Task> =
            self.tasks.values().map(Box::as_ref).filter(|task| is_young(task, now)).collect();
        let unknown = young.iter().filter(|task| self.size_of_job(task).is_none());
        let unknown: BTreeSet<_> = unknown.map(|task| kind(task)).collect();
        let sizes = self.sizes_of(&unknown, now);
        let to_come = |task: &Task| {
            let has = task.counts.last.and_then(|(_, last)| last.resident).unwrap_or_default();
            let of_others = || sizes.get(&kind(task)).copied().unwrap_or_default();
            let most = self.size_of_job(task).unwrap_or_else(of_others);
            most.max(self.will_have(task, now).unwrap_or_default()).0.saturating_sub(has.0)
        };
        let of_tasks = young.into_iter().map(to_come).fold(0, u64::saturating_add);
        Bytes(of_tasks.max(self.ahead.owed(self.tasks.len(), resident).0))
    }

    /// What a task of each of these kinds is expected to have, of which none has ended: as much as the largest
    /// of a job that runs, at least [`LEAST_SIZE`]. Those of a user that have no job need not be alike: the mean.
    fn sizes_of(&self, kinds: &BTreeSet<Kind>, now: BootTime) -> BTreeMap<Kind, Bytes> {
        if kinds.is_empty() {
            return BTreeMap::new();
        }
        let none = |kind: &Kind| (kind.clone(), Vec::new());
        let mut sizes: BTreeMap<Kind, Vec<(bool, Bytes)>> = kinds.iter().map(none).collect();
        for task in self.tasks.values() {
            if let Some(sizes) = sizes.get_mut(&kind(task))
                && let Some(size) = self.will_have(task, now)
            {
                sizes.push((has_begun(task, now), size));
            }
        }
        let expected = |(kind, sizes): (Kind, Vec<(bool, Bytes)>)| {
            let size = match kind.1 {
                Some(_) => sizes.iter().map(|(_, size)| *size).max().max(Some(LEAST_SIZE)),
                None => mean_of_begun(&sizes),
            };
            Some((kind, size?))
        };
        sizes.into_iter().filter_map(expected).collect()
    }

    /// Of the young tasks of which no reading shows how they grow, and no task of their jobs has ended: what each
    /// will take, and all of them, if the memory of the node goes on as it went lately. That is `taken` bytes a
    /// second, by all young tasks alike.
    pub(crate) fn unread_growth(&self, taken: Option<f64>, now: BootTime) -> (Bytes, Bytes) {
        let (mut young, mut unread, mut left) = (0.0, 0.0, 0.0);
        for task in self.tasks.values().filter(|task| is_young(task, now)) {
            young += 1.0;
            if !has_begun(task, now) && self.size_of_job(task).is_none() {
                unread += 1.0;
                left += GROWS.saturating_sub(now.since(task.admitted_at.boot)).as_secs_f64();
            }
        }
        if unread == 0.0 {
            return (Bytes(0), Bytes(0));
        }
        let each = taken.unwrap_or(0.0).max(0.0) / young * left / unread;
        (Bytes(each as u64), Bytes((each * unread) as u64))
    }

    /// How large tasks of its job become; `None`: none has ended.
    fn size_of_job(&self, task: &Task) -> Option<Bytes> {
        self.jobs.large_resident(&task.job_key()?)
    }

    /// What a task is to have soon: a young one of a job of which none has ended grows on as it did last.
    /// `None`: no cycle has read it yet.
    pub(crate) fn will_have(&self, task: &Task, now: BootTime) -> Option<Bytes> {
        let (at, last) = task.counts.last?;
        let has = last.resident?;
        let Some(growth) = task.counts.growth else { return Some(has) };
        if !is_young(task, now) || self.size_of_job(task).is_some() {
            return Some(has);
        }
        let age = task.counts.resident_at.unwrap_or(at).since(task.admitted_at.boot);
        let left = GROWS.saturating_sub(age).as_secs_f64();
        let steadily = (has.0 as f64 / age.as_secs_f64() * left) as u64;
        let most = steadily.max(has.0.saturating_mul(MOST_GROWTH - 1));
        Some(Bytes(has.0.saturating_add(((growth * left) as u64).min(most))))
    }

    /// Takes what a reading says of memory, of which tasks have yet to take `owed`.
    pub(crate) fn note_memory(&mut self, memory: Option<&Memory>, owed: Bytes, now: BootTime) {
        self.opening.memory = memory.cloned().map(|memory| memory.less(owed));
        self.opening.ended = 0;
        self.opening.largest.clear();
        for task in self.tasks.values() {
            let size = self.will_have(task, now).unwrap_or_default();
            let most = self.opening.largest.entry(task.uid).or_default();
            *most = size.max(*most);
        }
    }

    /// A request got a slot: what its task will take is as good as used until the next reading, unless it takes
    /// the place of one that ended.
    pub(crate) fn charge_new(&mut self, labels: &Labels, uid: u32) {
        if let Some(left) = self.opening.ended.checked_sub(1) {
            self.opening.ended = left;
        } else if let Some(memory) = self.opening.memory.take() {
            let size = self.size_of_new(labels.job_key(Some(uid)).as_ref(), Some(uid));
            self.opening.memory = Some(memory.less(size));
        }
    }

    /// What a new task of `job` is to have; the first one of a job as much as the largest of the same user's.
    /// Those of others say nothing of it, or one large task would keep all users from a slot; but as long as no
    /// task of the user was read, the mean of all as read ahead of the cycle.
    pub(crate) fn size_of_new(&self, job: Option<&JobKey>, uid: Option<u32>) -> Bytes {
        let of_job = job.and_then(|job| self.jobs.large_resident(job));
        let of_user = || match self.opening.largest.get(&uid) {
            Some(Bytes(0)) => self.ahead.resident.unwrap_or_default(),
            size => size.copied().unwrap_or_default(),
        };
        of_job.unwrap_or_else(|| of_user().max(LEAST_SIZE))
    }

    /// The mean size of the tasks, a young one being as those of its job were, or as it is to be soon.
    pub(crate) fn mean_resident(&self, now: BootTime) -> Option<Bytes> {
        let size = |task: &Task| {
            let will_have = self.will_have(task, now);
            if !is_young(task, now) && will_have.is_some() {
                return will_have.map(|size| (true, size));
            }
            let of_job = task.job_key().and_then(|job| self.jobs.mean_resident(&job));
            let begun = of_job.is_some() || has_begun(task, now);
            will_have.max(of_job).map(|size| (begun, size))
        };
        let sizes: Vec<_> = self.tasks.values().filter_map(|task| size(task)).collect();
        mean_of_begun(&sizes)
    }
}

/// Whether its size says what tasks like it need: it is not young, or it was read often enough to see how it grows.
fn has_begun(task: &Task, now: BootTime) -> bool {
    !is_young(task, now) || task.counts.growth.is_some()
}

/// The mean of the sizes of tasks of which it is true; where it is of none, of all: those that have just begun
/// are small.
fn mean_of_begun(sizes: &[(bool, Bytes)]) -> Option<Bytes> {
    let all =
        |begun: bool| sizes.iter().filter(move |(is, _)| *is || !begun).map(|(_, size)| *size);
    Bytes::mean(all(true)).or_else(|| Bytes::mean(all(false)))
}
