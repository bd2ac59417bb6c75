//! Tasks that may not run on every CPU, as the shaper stands; the rule is in [`crate::pinning`].

use serde_json::{Map, json};

use super::Shaper;
use crate::cpus::CpuSet;
use crate::model::{Priority, TaskId};
use crate::pinning::{MOST, Pinned, first_beside, swaps};
use crate::units::Moment;

impl Shaper {
    /// The CPUs that a task may use; `None`: all that tasks may, as far as is known.
    pub fn pinned(&self, id: TaskId) -> Option<&CpuSet> {
        self.pinned.get(&id)
    }

    /// Who gets an active slot that came free, where `best` comes first: of those of its priority the first
    /// that can have a CPU of its own.
    pub(crate) fn first_for_cpus(&self, best: TaskId) -> TaskId {
        let Some(priority) = self.tasks.get(&best).map(|task| task.priority) else { return best };
        if self.pinned.is_empty() {
            return best;
        }
        let mut passive = vec![self.with_cpus(best)];
        passive.extend(self.passive_of(priority).filter(|(id, _)| *id != best));
        first_beside(self.cpus.spread(), &self.active_by(|_| true), &passive).unwrap_or(best)
    }

    /// Exchanges tasks of the lowest active priority, so that active ones use as many CPUs as they can.
    pub(crate) fn spread_over_cpus(&mut self, now: Moment) {
        for (down, up) in self.swaps_for_cpus() {
            self.demote(down, "an active task has each CPU that it may use", Some(up), now);
            self.promote(up, "no active task has a CPU that it may use", Some(down), now);
        }
    }

    pub(crate) fn swaps_for_cpus(&self) -> Vec<(TaskId, TaskId)> {
        let worst = self.slots.active_that_run().last().map(|(rank, _)| rank);
        let Some(worst) = worst.filter(|rank| !self.pinned.is_empty() && !rank.is_opportunistic())
        else {
            return Vec::new();
        };
        let lowest = worst.priority();
        let passive: Vec<Pinned<'_>> = self.passive_of(lowest).collect();
        let above = self.active_by(|priority| priority > lowest);
        let active = self.active_by(|priority| priority == lowest);
        swaps(self.cpus.spread(), &above, &active, &passive)
    }

    /// The CPUs of a task, for its events.
    pub(crate) fn insert_cpus(&self, id: TaskId, inputs: &mut Map<String, serde_json::Value>) {
        if let Some(cpus) = self.pinned.get(&id) {
            inputs.insert("cpus".into(), json!(cpus.to_string()));
        }
    }

    fn with_cpus(&self, id: TaskId) -> Pinned<'_> {
        (id, self.pinned.get(&id))
    }

    /// The first in active slots, of these priorities; who cannot run leaves its CPU to others.
    fn active_by(&self, is: impl Fn(Priority) -> bool) -> Vec<Pinned<'_>> {
        let active = self.slots.active_that_run().filter(|(rank, _)| is(rank.priority()));
        active.take(MOST).map(|(_, id)| self.with_cpus(id)).collect()
    }

    fn passive_of(&self, priority: Priority) -> impl Iterator<Item = Pinned<'_>> {
        let of = move |id: &TaskId| {
            let task = self.tasks.get(id);
            task.is_some_and(|task| task.priority == priority && !task.opportunistic)
        };
        self.slots.passive_that_run().filter(of).take(MOST).map(|id| self.with_cpus(id))
    }
}
