//! Slots that open ahead of the cycle, as the shaper stands; the rule and its bounds are in
//! [`crate::ramp`].

use super::Shaper;
use crate::measured::Measured;
use crate::ramp::{GROWS, LEAST_SIZE, STILL_COMING};
use crate::task::Task;
use crate::units::{BootTime, Bytes, Moment};

impl Shaper {
    /// How many slots there are, if a reading ahead of the cycle could open another.
    pub fn ramps_from(&self) -> Option<u32> {
        let may = self.waiting() > 0
            && self.may_expand()
            && !self.probe.is_trying()
            && self.ahead.room(self.slots.active_capacity) > 0;
        may.then(|| self.slots.allocated())
    }

    /// Memory that new tasks have yet to take. `resident`: the mean size of the tasks.
    pub(crate) fn memory_to_come(&self, resident: Option<Bytes>, now: BootTime) -> Bytes {
        let to_come = |task: &Task| {
            // What no cycle has read yet took the place of one that ended, or a new slot.
            let has = task.counts.last.and_then(|(_, last)| last.resident)?;
            let will_have = match task.job_key() {
                Some(job) => self.jobs.large_resident(&job).or(resident.max(Some(LEAST_SIZE)))?,
                None => resident?,
            };
            Some(will_have.0.saturating_sub(has.0))
        };
        let young = self.tasks().map(|(_, task)| task);
        let young = young.filter(|task| now.since(task.admitted_at.boot) < GROWS);
        let of_tasks = young.filter_map(to_come).fold(0, u64::saturating_add);
        Bytes(of_tasks.max(self.ahead.owed(self.tasks.len(), resident).0))
    }

    /// What the first task of a job of `uid` may take: as much as the largest of the same user's tasks has. Those
    /// of others say nothing of it, or one large task would keep all users from a slot.
    pub(crate) fn largest_resident(&self, uid: Option<u32>) -> Bytes {
        let own = self.tasks.values().filter(|task| task.uid == uid);
        let sizes = own.filter_map(|task| task.counts.last.and_then(|(_, last)| last.resident));
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
        let resident = resident.max(self.mean_resident()).max(self.ahead.resident);
        self.ahead.resident = resident;
        let owed = self.memory_to_come(resident, now.boot);
        let memory = node.memory.clone().map(|memory| memory.less(owed));
        self.opening.memory.clone_from(&memory);
        self.opening.resident = resident;
        let most = self.ahead.room(self.slots.active_capacity);
        self.ahead.opened += self.expand(&cpu, memory.as_ref(), resident, most, now);
    }
}
