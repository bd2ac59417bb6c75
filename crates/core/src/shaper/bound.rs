//! What keeps slots from opening, as the shaper stands: how a [`Bound`] is found.

use super::Shaper;
use crate::bound::Bound;
use crate::capacity::CpuShares;
use crate::probe::slots_carried;

impl Shaper {
    /// Why no further passive slot opens; `None`: nothing keeps it from opening, a slot is free, the node
    /// drains, or it is not known yet.
    pub fn bound(&self) -> Option<Bound> {
        self.bound.filter(|_| self.is_full() && !self.draining())
    }

    /// What keeps slots closed whatever the CPUs do.
    pub(crate) fn bound_by_state(&self) -> Option<Bound> {
        if !self.policy.expand {
            Some(Bound::Off)
        } else if self.holding() {
            Some(Bound::Memory)
        } else if self.room() == 0 {
            Some(Bound::Max)
        } else if self.backs_off() {
            Some(Bound::ActiveTier)
        } else {
            None
        }
    }

    /// The same on CPUs that were used so; `wanted`: the slots that these could carry, `sizes_known`: of tasks
    /// and of the memory available.
    pub(crate) fn bound_by_cpu(
        &self,
        cpu: &CpuShares,
        wanted: u32,
        sizes_known: bool,
    ) -> Option<Bound> {
        if wanted > 0 {
            // They were wanted and did not open.
            sizes_known.then_some(Bound::Memory)
        } else if slots_carried(cpu, self.slots.allocated()) == 0 {
            Some(Bound::Compute)
        } else if self.probe.gained_nothing() {
            Some(Bound::Throughput)
        } else {
            // A trial is to come or runs, or the formula of the source ends before the CPUs do.
            None
        }
    }
}
