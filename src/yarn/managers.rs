//! The NodeManagers of this node, and the cgroups they are or were in.
//!
//! Under DefaultContainerExecutor a container is where its NodeManager is, and only from there
//! does LRS move it. A group is remembered while the NodeManager restarts, for containers may
//! outlive it (`yarn.nodemanager.recovery.enabled`).

use std::collections::HashMap;
use std::io;

use super::classify;
use super::proc::{self, Seen};
use crate::cgroup::{Places, Whereabouts};
use crate::units::{Pid, ProcessRef};

const MAIN_CLASS: &str = "org.apache.hadoop.yarn.server.nodemanager.NodeManager";

/// Most groups that are remembered, the latest ones.
const MAX_REMEMBERED: usize = 64;

/// Longest way from a container up to its NodeManager; it has three steps.
const MAX_ANCESTORS: usize = 16;

/// Daemons that start containers.
#[derive(Debug, Default)]
pub(super) struct Managers {
    running: Vec<ProcessRef>,
    remembered: Vec<(u32, Places)>,
}

impl Managers {
    /// Looks through all processes.
    pub(super) fn refresh(&mut self, whereabouts: &Whereabouts, all: &[Seen]) {
        self.running.clear();
        for seen in all {
            let Some((owner, places)) = manager(seen.process.pid, whereabouts) else { continue };
            self.add(seen.process, owner, places);
        }
    }

    fn add(&mut self, process: ProcessRef, owner: u32, places: Places) {
        self.running.push(process);
        let found = (owner, places);
        self.remembered.retain(|old| *old != found);
        self.remembered.push(found);
        let excess = self.remembered.len().saturating_sub(MAX_REMEMBERED);
        self.remembered.drain(..excess);
    }

    /// Whether a NodeManager of `owner` is, or was seen, in these groups.
    pub(super) fn one_was_at(&self, owner: u32, places: &Places) -> bool {
        self.remembered.iter().any(|(uid, there)| *uid == owner && there == places)
    }

    /// Whether any NodeManager of `owner` was ever seen.
    pub(super) fn any_of(&self, owner: u32) -> bool {
        self.remembered.iter().any(|(uid, _)| *uid == owner)
    }

    /// The running NodeManager that `pid` descends from.
    pub(super) fn ancestor(&self, pid: Pid, all: &HashMap<Pid, Seen>) -> Option<ProcessRef> {
        let mut next = all.get(&pid)?.parent;
        for _ in 0..MAX_ANCESTORS {
            let seen = all.get(&next?)?;
            if self.running.contains(&seen.process) {
                return Some(seen.process);
            }
            next = seen.parent;
        }
        None
    }

    #[cfg(test)]
    pub(super) fn pretend(&mut self, owner: u32, places: Places) {
        self.remembered.push((owner, places));
    }
}

/// Owner and groups of `pid` if it is a NodeManager. One that runs in a container is its owner's
/// program of that name.
fn manager(pid: Pid, whereabouts: &Whereabouts) -> Option<(u32, Places)> {
    let found = || -> io::Result<Option<(u32, Places)>> {
        if !classify::has_main_class(&proc::arguments(pid)?, MAIN_CLASS)
            || proc::variable(pid, "CONTAINER_ID")?.is_some()
        {
            return Ok(None);
        }
        let places = whereabouts.of(pid).map_err(io::Error::other)?;
        Ok(proc::owner(pid).zip(places))
    };
    match found() {
        Ok(found) => found,
        Err(error) if proc::is_gone(&error) => None,
        Err(error) => {
            tracing::debug!("process {pid} cannot be asked whether it is a NodeManager: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: i32, parent: i32) -> (Pid, Seen) {
        let pid = Pid::new(pid).unwrap();
        let process = ProcessRef { pid, start_ticks: 1 };
        (pid, Seen { process, parent: Pid::new(parent), leads: false })
    }

    #[test]
    fn a_chain_reaches_its_manager_and_no_other() {
        let all = HashMap::from([seen(1, 0), seen(10, 1), seen(11, 10), seen(12, 11), seen(20, 1)]);
        let mut managers = Managers::default();
        let manager = ProcessRef { pid: Pid::new(10).unwrap(), start_ticks: 1 };
        managers.add(manager, 7, Places::made_up("/nm"));
        let ancestor = |pid: i32| managers.ancestor(Pid::new(pid).unwrap(), &all);
        assert_eq!(ancestor(12), Some(manager));
        assert_eq!((ancestor(20), ancestor(10), ancestor(99)), (None, None, None));
        assert!(managers.one_was_at(7, &Places::made_up("/nm")));
        assert!(!managers.one_was_at(8, &Places::made_up("/nm")));
        assert!(!managers.one_was_at(7, &Places::made_up("/")));
        // A circle, as recycled pids may make one, ends.
        let circle = HashMap::from([seen(5, 6), seen(6, 5)]);
        assert_eq!(managers.ancestor(Pid::new(5).unwrap(), &circle), None);
    }

    #[test]
    fn groups_outlive_their_managers_but_not_without_bound() {
        let mut managers = Managers::default();
        let manager = ProcessRef { pid: Pid::new(10).unwrap(), start_ticks: 1 };
        for i in 0..2 * MAX_REMEMBERED {
            managers.add(manager, 7, Places::made_up(&format!("/{i}")));
        }
        assert_eq!(managers.remembered.len(), MAX_REMEMBERED);
        managers.refresh(&Whereabouts::open().unwrap(), &[]);
        assert!(managers.running.is_empty());
        assert!(managers.any_of(7) && !managers.any_of(8));
    }
}
