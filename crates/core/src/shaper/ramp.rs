//! Slots that open ahead of the cycle, as the shaper stands; the rule and its bounds are in
//! [`crate::ramp`].

use super::Shaper;
use crate::measured::Measured;
use crate::ramp::STILL_COMING;
use crate::units::{Bytes, Moment};

impl Shaper {
    /// How many slots there are, if a reading ahead of the cycle could open another.
    pub fn ramps_from(&self) -> Option<u32> {
        let may = self.waiting() > 0
            && self.may_expand()
            && !self.probe.is_trying()
            && self.ahead.room(self.slots.active_capacity) > 0;
        may.then(|| self.slots.allocated())
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
        self.note_memory(node.memory.as_ref(), owed, now.boot);
        let resident = resident.map(|Bytes(size)| Bytes(size.saturating_add(each.0)));
        let memory = self.opening.memory.clone();
        let most = self.ahead.room(self.slots.active_capacity);
        self.ahead.opened += self.expand(&cpu, memory.as_ref(), resident, most, now);
    }
}
