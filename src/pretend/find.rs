//! What is left of the daemon before on a pretended node, as `node/find` finds it on a real one.

use std::collections::BTreeMap;

use super::Pretend;
use crate::core::history_state::HistoryState;
use crate::core::model::TaskId;
use crate::core::restore::{GroupUse, Known, Observation, Restore, Verdict};
use crate::core::task::Task;
use crate::driver::EarlierTasks;
use crate::driver::world::Kernel as _;
use crate::units::BootTime;

impl Pretend {
    /// What the history says, from its first event on.
    pub fn history(&self) -> HistoryState {
        let mut history = HistoryState::default();
        self.events.iter().for_each(|event| history.fold(event));
        history
    }

    /// Looks at every record and every group of a task.
    pub(super) fn find(&mut self, now: BootTime) -> EarlierTasks {
        let earlier_boot = std::mem::take(&mut self.rebooted);
        let promises = self.reservations.values();
        let promises = promises.map(|record| (record.id, record.reservation.clone())).collect();
        let mut restore = Restore::new(self.history(), false, self.tasks.values(), promises);
        let (mut groups, mut remove) = (BTreeMap::new(), Vec::new());
        for task in self.tasks.values().cloned().collect::<Vec<Task>>() {
            if earlier_boot {
                restore.earlier_boot(task);
                continue;
            }
            let stored = task.group.as_ref().map(|record| self.presumed(record));
            let made = || {
                let mut group = self.made_for(task.id)?;
                group.record.origin.clone_from(&task.who.origin);
                Some(group)
            };
            let group = stored.filter(|group| !self.is_removed(group)).or_else(made);
            let occupied = |group| self.members(group, None).is_ok_and(|pids| !pids.is_empty());
            let seen = Observation {
                group: group.as_ref().map(|group| group.record.clone()),
                occupied: group.as_ref().is_some_and(occupied),
                main_lives: task.who.process.is_some_and(|process| self.lives(process)),
            };
            let verdict = restore.judge(&task, &seen);
            let undone = match (verdict, &group) {
                (Verdict::RollBack | Verdict::FinishRelease, Some(group)) => {
                    self.release(group).is_ok()
                }
                _ => true,
            };
            let id = task.id;
            match restore.take(task, seen, verdict, undone) {
                GroupUse::InUse => groups.extend(group.map(|group| (id, group))),
                GroupUse::Unneeded => remove.extend(group),
                GroupUse::GivenBack => {}
            }
        }
        let own = self.own_groups().into_iter().filter_map(|path| path.rsplit('/').next());
        let own: Vec<TaskId> = own.filter_map(|name| name.parse().ok()).collect();
        for id in own.into_iter().filter(|id| !self.tasks.contains_key(id)) {
            let Some(group) = self.made_for(id) else { continue };
            let occupied = self.members(&group, None).is_ok_and(|pids| !pids.is_empty());
            let known = Known::from_history(id, self.events.iter());
            match restore.group(id, group.record.clone(), occupied, known) {
                GroupUse::InUse => drop(groups.insert(id, group)),
                GroupUse::Unneeded => remove.push(group),
                GroupUse::GivenBack => {}
            }
        }
        let (restored, start) = restore.finish(now);
        EarlierTasks { restored, start, groups, remove, left: Default::default(), started: None }
    }
}
