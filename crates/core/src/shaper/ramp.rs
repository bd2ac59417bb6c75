//! Slots that open ahead of the cycle, as the shaper stands; the rule and its bounds are in
//! [`crate::ramp`].

use std::collections::BTreeMap;

use super::Shaper;
use crate::measured::Measured;
use crate::model::JobKey;
use crate::ramp::{GROWS, LEAST_SIZE, STILL_COMING};
use crate::task::Task;
use crate::units::{BootTime, Bytes, Moment};

/// Memory that young tasks will take.
#[derive(Clone, Copy, Debug, Default)]
struct Coming {
    all: Bytes,
    each: Bytes,
}

impl Shaper {
    /// How many slots there are, if a reading ahead of the cycle could open another.
    pub fn ramps_from(&self) -> Option<u32> {
        let may = self.waiting() > 0
            && self.may_expand()
            && !self.probe.is_trying()
            && self.ahead.room(self.slots.active_capacity) > 0;
        may.then(|| self.slots.allocated())
    }

    /// Memory that new tasks have yet to take, where one that no cycle has read yet has none. `resident`: the
    /// mean size of the tasks.
    pub(crate) fn memory_to_come(&self, resident: Option<Bytes>, now: BootTime) -> Bytes {
        let is_young = |task: &&Task| now.since(task.admitted_at.boot) < GROWS;
        let young: Vec<&Task> = self.tasks().map(|(_, task)| task).filter(is_young).collect();
        // Those without a job are as one; of that, and of a job that no cycle has read, no least is expected.
        let mut largest: BTreeMap<Option<JobKey>, Bytes> = BTreeMap::new();
        if !young.is_empty() {
            for (_, task) in self.tasks() {
                if let Some(size) = self.will_have(task, now) {
                    let job = task.job_key();
                    let least = if job.is_some() { LEAST_SIZE } else { Bytes(0) };
                    let most = largest.entry(job).or_insert(least);
                    *most = size.max(*most);
                }
            }
        }
        let to_come = |task: &Task| {
            let has = task.counts.last.and_then(|(_, last)| last.resident).unwrap_or_default();
            let job = task.job_key();
            let known = job.as_ref().and_then(|job| self.jobs.large_resident(job));
            let unknown = || largest.get(&job).copied().unwrap_or_default();
            known.unwrap_or_else(unknown).0.saturating_sub(has.0)
        };
        let of_tasks = young.into_iter().map(to_come).fold(0, u64::saturating_add);
        Bytes(of_tasks.max(self.ahead.owed(self.tasks.len(), resident).0))
    }

    /// What young tasks will take that no cycle has read yet, of jobs of which none ended, if the memory of the
    /// node goes on as it went lately: `taken` bytes a second.
    fn taken_on(&self, taken: Option<f64>, now: BootTime) -> Coming {
        let is_unread = |task: &&Task| {
            task.counts.last.is_none_or(|(_, last)| last.resident.is_none())
                && task.job_key().is_none_or(|job| self.jobs.large_resident(&job).is_none())
        };
        let tasks = self.tasks().map(|(_, task)| task).filter(is_unread);
        let left = tasks.map(|task| GROWS.saturating_sub(now.since(task.admitted_at.boot)));
        let (left, count) =
            left.fold((0.0, 0.0), |(sum, count), left| (sum + left.as_secs_f64(), count + 1.0));
        if count == 0.0 {
            return Coming::default();
        }
        let all = taken.unwrap_or(0.0).max(0.0) * left / count;
        Coming { all: Bytes(all as u64), each: Bytes((all / count) as u64) }
    }

    /// What a task is to have soon: a young one as much as its job's had; of a job of which none ended it
    /// grows on as it did last. `None`: no cycle has read it yet.
    pub(crate) fn will_have(&self, task: &Task, now: BootTime) -> Option<Bytes> {
        let has = task.counts.last.and_then(|(_, last)| last.resident)?;
        let left = GROWS.saturating_sub(now.since(task.admitted_at.boot));
        if left.is_zero() {
            return Some(has);
        }
        let of_job = task.job_key().and_then(|job| self.jobs.large_resident(&job));
        let grown = || {
            let growth = task.counts.growth.unwrap_or(0.0);
            Bytes(has.0.saturating_add((growth * left.as_secs_f64()) as u64))
        };
        Some(of_job.unwrap_or_else(grown).max(has))
    }

    /// What the first task of a job of `uid` may take: as much as the largest of the same user's tasks. Those
    /// of others say nothing of it, or one large task would keep all users from a slot.
    pub(crate) fn largest_resident(&self, uid: Option<u32>, now: BootTime) -> Bytes {
        let own = self.tasks.values().filter(|task| task.uid == uid);
        let sizes = own.filter_map(|task| self.will_have(task, now));
        sizes.max().unwrap_or_default().max(LEAST_SIZE)
    }

    /// Opens passive slots if the CPU was spare. `resident`: the mean size of the tasks.
    pub(crate) fn ramp(&mut self, node: &Measured, resident: Option<Bytes>, now: Moment) {
        let saturation = self.policy.cpu_saturation;
        if let Some(cpu) = node.cpu {
            self.opening.saturated = cpu.saturated(saturation);
        }
        let Some(cpu) = node.cpu.filter(|cpu| !cpu.saturated(saturation)) else { return };
        let coming = self.tasks.values().filter(|task| task.is_new()).count();
        if self.ramps_from().is_none() || coming * STILL_COMING > self.tasks.len() {
            return;
        }
        // Tasks without a group of their own are looked at by the cycle alone.
        let resident = resident.max(self.mean_resident(now.boot)).max(self.ahead.resident);
        let coming = self.taken_on(node.memory_taken, now.boot);
        let resident = resident.map(|Bytes(size)| Bytes(size.saturating_add(coming.each.0)));
        self.ahead.resident = resident;
        let owed = self.memory_to_come(resident, now.boot).max(coming.all);
        let memory = node.memory.clone().map(|memory| memory.less(owed));
        self.opening.memory.clone_from(&memory);
        (self.opening.resident, self.opening.ended) = (resident, 0);
        let most = self.ahead.room(self.slots.active_capacity);
        self.ahead.opened += self.expand(&cpu, memory.as_ref(), resident, most, now);
    }
}
