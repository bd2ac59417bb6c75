//! Slots that open ahead of the cycle, as the shaper stands; the rule and its bounds are in
//! [`crate::ramp`].

use std::collections::{BTreeMap, BTreeSet};

use super::Shaper;
use crate::measured::Measured;
use crate::model::JobKey;
use crate::ramp::{GROWS, LEAST_SIZE, MOST_GROWTH, STILL_COMING};
use crate::task::Task;
use crate::units::{BootTime, Bytes, Moment};

/// Who a task is like: its user, and its job if it has one.
type Kind = (Option<u32>, Option<JobKey>);

fn kind(task: &Task) -> Kind {
    (task.uid, task.job_key())
}

fn is_young(task: &Task, now: BootTime) -> bool {
    now.since(task.admitted_at.boot) < GROWS
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
        let mut sizes: BTreeMap<Kind, Vec<(bool, Bytes)>> = BTreeMap::new();
        // No kind is unknown while nothing is new, which is most of the time.
        for task in self.tasks.values().filter(|_| !kinds.is_empty()) {
            let kind = kind(task);
            if let Some(size) = self.will_have(task, now).filter(|_| kinds.contains(&kind)) {
                sizes.entry(kind).or_default().push((has_begun(task, now), size));
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

    /// What each of the young tasks that no cycle has read yet will take, of jobs of which none has ended, and
    /// what all of them will, if the memory of the node goes on as it went lately: `taken` bytes a second, by
    /// all young tasks alike.
    fn unread_growth(&self, taken: Option<f64>, now: BootTime) -> (Bytes, Bytes) {
        let (mut young, mut unread, mut left) = (0.0, 0.0, 0.0);
        for task in self.tasks.values().filter(|task| is_young(task, now)) {
            young += 1.0;
            let is_read = task.counts.last.is_some_and(|(_, last)| last.resident.is_some());
            if !is_read && self.size_of_job(task).is_none() {
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
        let has = task.counts.last.and_then(|(_, last)| last.resident)?;
        let left = GROWS.saturating_sub(now.since(task.admitted_at.boot));
        let growth =
            task.counts.growth.filter(|_| !left.is_zero() && self.size_of_job(task).is_none());
        let grown = (growth.unwrap_or(0.0) * left.as_secs_f64()) as u64;
        Some(Bytes(has.0.saturating_add(grown).min(has.0.saturating_mul(MOST_GROWTH))))
    }

    /// Notes the largest task of each user: what the first task of a job may take. Those of others say nothing
    /// of it, or one large task would keep all users from a slot.
    pub(crate) fn note_largest(&mut self, now: BootTime) {
        let mut largest: BTreeMap<Option<u32>, Bytes> = BTreeMap::new();
        for task in self.tasks.values() {
            let most = largest.entry(task.uid).or_default();
            *most = self.will_have(task, now).unwrap_or_default().max(*most);
        }
        self.opening.largest = largest;
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
        self.ahead.resident = resident;
        let (each, all) = self.unread_growth(node.memory_taken, now.boot);
        let owed = self.memory_to_come(resident, now.boot).max(all);
        let resident = resident.map(|Bytes(size)| Bytes(size.saturating_add(each.0)));
        let memory = node.memory.clone().map(|memory| memory.less(owed));
        self.opening.memory.clone_from(&memory);
        (self.opening.resident, self.opening.ended) = (resident, 0);
        self.note_largest(now.boot);
        let most = self.ahead.room(self.slots.active_capacity);
        self.ahead.opened += self.expand(&cpu, memory.as_ref(), resident, most, now);
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
