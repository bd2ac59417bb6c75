//! What the active tier wants of the CPUs, for the weight of the root ([`crate::neighbours`]).

use super::Shaper;
use crate::neighbours::RootWeight;

impl Shaper {
    /// What the root is to weigh among its siblings, where it follows the active tier; `None` before
    /// anything is known.
    pub fn root_weight(&self) -> Option<RootWeight> {
        self.follow.weight()
    }

    /// A cycle was read.
    pub(crate) fn follow_cycle(&mut self) {
        if self.follow.end_cycle() {
            self.follow_active();
        }
    }

    /// Follows what the active tier wants; of a task that is not known yet what those of its job wanted,
    /// else one CPU.
    pub(crate) fn follow_active(&mut self) {
        let wanted: f64 = self
            .slots
            .active_tier()
            .chain(self.loans.borrowers().iter().copied())
            .filter_map(|id| self.tasks.get(&id))
            // On its way it may become either.
            .filter(|task| {
                let on_its_way = task.group.is_none() && task.who.stays_because.is_none();
                on_its_way || task.is_below_root()
            })
            .map(|task| {
                let of_job = || self.jobs.mean_demand(&task.job_key()?);
                task.counts.demand.or_else(of_job).unwrap_or(1.0)
            })
            .sum();
        self.follow.step(wanted, self.slots.active_capacity.max(1));
    }
}
