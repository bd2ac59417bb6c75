//! The NodeManagers of this node, and the cgroups they are or were in.
//!
//! Under DefaultContainerExecutor a container is where its NodeManager is, and only from there
//! does LRS move it. A group is remembered while the NodeManager restarts, for containers may
//! outlive it (`yarn.nodemanager.recovery.enabled`).
//!
//! Anybody may run a program under a NodeManager's name. It counts only if its user owns a local
//! directory of the node's NodeManagers; until one of these can be looked at, no process counts.
//! What runs as that same user (all containers do, under DefaultContainerExecutor) is not
//! distinguished: it could do by itself whatever LRS does for it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::time::Duration;

use super::classify;
use super::proc::{self, Process};
use crate::cgroup::{Places, Whereabouts};
use crate::units::{BootTime, Pid, ProcessRef};

const MAIN_CLASS: &str = "org.apache.hadoop.yarn.server.nodemanager.NodeManager";

/// Most groups that are remembered of one user, the latest ones.
const MAX_REMEMBERED: usize = 64;

/// Longest way from a container up to its NodeManager; it has three steps.
const MAX_ANCESTORS: usize = 16;

/// How long a grown process that is no NodeManager is not asked again. A shell that waited for
/// its disks before it became one is found that much later.
const ASKED_AGAIN: Duration = Duration::from_secs(60);

/// Daemons that start containers.
#[derive(Debug, Default)]
pub(super) struct Managers {
    /// Each with its user.
    running: HashMap<ProcessRef, u32>,
    remembered: HashMap<u32, Vec<Places>>,
    /// Grown processes that are none, and when they were asked: thousands of command lines do
    /// not change between two listings.
    others: HashMap<ProcessRef, BootTime>,
    /// How many there are: see [`Managers::count`].
    count: Option<usize>,
    /// All of the name at the last look, whoever's they are.
    named: HashSet<ProcessRef>,
    /// One of them was not there at the look before.
    came: bool,
}

impl Managers {
    /// Looks through all processes. `owners`: who owns a local directory.
    pub(super) fn refresh(
        &mut self,
        whereabouts: &Whereabouts,
        all: &[Process],
        owners: &BTreeSet<u32>,
        now: BootTime,
    ) {
        let living: HashSet<ProcessRef> = all.iter().map(|seen| seen.process).collect();
        self.others
            .retain(|process, asked| living.contains(process) && now < asked.after(ASKED_AGAIN));
        self.running.clear();
        self.remembered.retain(|owner, _| owners.contains(owner));
        let mut counted = HashMap::new();
        let mut named = HashSet::new();
        let mut all_known = true;
        for Process { process, parent, .. } in all.iter().copied() {
            if self.others.contains_key(&process) {
                continue;
            }
            match has_the_name(process.pid) {
                Ok(true) => {
                    named.insert(process);
                }
                Ok(false) => {
                    if now.since(proc::started(process)) > proc::GROWN {
                        self.others.insert(process, now);
                    }
                    continue;
                }
                Err(error) => {
                    all_known &= proc::is_gone(&error);
                    unknown(process.pid, &error);
                    continue;
                }
            }
            match standing(process, whereabouts) {
                Ok(Some((owner, places))) if owners.contains(&owner) => {
                    self.add(process, owner, places);
                    counted.insert(process.pid, parent);
                }
                Ok(Some((owner, _))) => {
                    if owners.is_empty() {
                        counted.insert(process.pid, parent);
                    }
                    tracing::debug!(
                        "process {} of user {owner} looks like a NodeManager, but no local \
                         directory is that user's",
                        process.pid
                    );
                }
                Ok(None) => {}
                Err(error) => {
                    all_known &= proc::is_gone(&error);
                    unknown(process.pid, &error);
                }
            }
        }
        self.count = all_known.then(|| unrelated(&counted));
        self.came |= !named.is_subset(&self.named);
        self.named = named;
    }

    /// Whether a process of that name came since this was last asked: it has read Hadoop's files as
    /// they were then. Its owner does not matter, for the directories that show it may be
    /// what the files have changed.
    pub(super) fn one_came(&mut self) -> bool {
        std::mem::take(&mut self.came)
    }

    /// How many run here, as of the last pass: processes of that name with a user who owns a local
    /// directory. Where no such directory can be looked at anybody's count, for one too many is safe.
    /// `None`: not looked for yet, or a process could not be asked, so that there may be more.
    pub(super) fn count(&self) -> Option<usize> {
        self.count
    }

    fn add(&mut self, process: ProcessRef, owner: u32, places: Places) {
        self.running.insert(process, owner);
        let remembered = self.remembered.entry(owner).or_default();
        remembered.retain(|old| *old != places);
        remembered.push(places);
        let excess = remembered.len().saturating_sub(MAX_REMEMBERED);
        remembered.drain(..excess);
    }

    /// Whether a NodeManager of `owner` is, or was seen, in these groups.
    pub(super) fn one_was_at(&self, owner: u32, places: &Places) -> bool {
        self.remembered.get(&owner).is_some_and(|remembered| remembered.contains(places))
    }

    /// Whether any NodeManager of `owner` was ever seen.
    pub(super) fn any_of(&self, owner: u32) -> bool {
        self.remembered.contains_key(&owner)
    }

    /// The user of the running NodeManager that `pid` descends from.
    pub(super) fn user_above(&self, pid: Pid, all: &HashMap<Pid, Process>) -> Option<u32> {
        let mut next = all.get(&pid)?.parent;
        for _ in 0..MAX_ANCESTORS {
            let seen = all.get(&next?)?;
            if let Some(owner) = self.running.get(&seen.process) {
                return Some(*owner);
            }
            next = seen.parent;
        }
        None
    }

    #[cfg(test)]
    pub(super) fn pretend(&mut self, owner: u32, places: Places) {
        self.remembered.entry(owner).or_default().push(places);
    }
}

/// Processes that say they are NodeManagers, whoever's they are, and that can be asked.
///
/// # Errors
/// /proc cannot be listed.
pub fn named_node_managers() -> io::Result<Vec<Pid>> {
    let named = |seen: &Process| has_the_name(seen.process.pid).unwrap_or(false);
    let found: HashMap<Pid, Option<Pid>> = proc::all()?
        .into_iter()
        .filter(named)
        .map(|seen| (seen.process.pid, seen.parent))
        .collect();
    let child = |parent: &Option<Pid>| parent.is_some_and(|parent| found.contains_key(&parent));
    Ok(found.iter().filter(|(_, parent)| !child(parent)).map(|(pid, _)| *pid).collect())
}

/// Whether `pid` says it is a NodeManager. One that runs in a container is its owner's program of
/// that name.
fn has_the_name(pid: Pid) -> io::Result<bool> {
    Ok(classify::has_main_class(&proc::arguments(pid)?, MAIN_CLASS)
        && proc::variable(pid, "CONTAINER_ID")?.is_none())
}

/// Those without a parent among them: what a NodeManager starts has its command line until it has
/// become a program of its own.
fn unrelated(found: &HashMap<Pid, Option<Pid>>) -> usize {
    let child = |parent: &&Option<Pid>| parent.is_some_and(|parent| found.contains_key(&parent));
    found.values().filter(|parent| !child(parent)).count()
}

/// User and groups of a process; `None` when it is gone.
pub(super) fn standing(
    process: ProcessRef,
    whereabouts: &Whereabouts,
) -> io::Result<Option<(u32, Places)>> {
    let places = whereabouts.of(process.pid).map_err(io::Error::other)?;
    let owner = proc::owner(process.pid)?;
    // All that is its own only if it is the same process still.
    let same = proc::look(process.pid)?.is_some_and(|seen| seen.process == process);
    Ok(owner.zip(places).filter(|_| same))
}

fn unknown(pid: Pid, error: &io::Error) {
    if !proc::is_gone(error) {
        tracing::debug!("process {pid} cannot be asked whether it is a NodeManager: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: i32, parent: i32) -> (Pid, Process) {
        let pid = Pid::new(pid).unwrap();
        let process = ProcessRef { pid, start_ticks: 1 };
        (pid, Process { process, parent: Pid::new(parent), leads: false })
    }

    #[test]
    fn a_chain_reaches_its_manager_and_no_other() {
        let all = HashMap::from([seen(1, 0), seen(10, 1), seen(11, 10), seen(12, 11), seen(20, 1)]);
        let mut managers = Managers::default();
        let manager = ProcessRef { pid: Pid::new(10).unwrap(), start_ticks: 1 };
        managers.add(manager, 7, Places::made_up("/nm"));
        let above = |pid: i32| managers.user_above(Pid::new(pid).unwrap(), &all);
        assert_eq!(above(12), Some(7));
        assert_eq!((above(20), above(10), above(99)), (None, None, None));
        assert!(managers.one_was_at(7, &Places::made_up("/nm")));
        assert!(!managers.one_was_at(8, &Places::made_up("/nm")));
        assert!(!managers.one_was_at(7, &Places::made_up("/")));
        // A circle, as recycled pids may make one, ends.
        let circle = HashMap::from([seen(5, 6), seen(6, 5)]);
        assert_eq!(managers.user_above(Pid::new(5).unwrap(), &circle), None);
    }

    #[test]
    fn groups_outlive_their_managers_but_not_without_bound() {
        let mut managers = Managers::default();
        let manager = ProcessRef { pid: Pid::new(10).unwrap(), start_ticks: 1 };
        managers.add(manager, 8, Places::made_up("/other"));
        for i in 0..2 * MAX_REMEMBERED {
            managers.add(manager, 7, Places::made_up(&format!("/{i}")));
        }
        let remembered = managers.remembered.values().map(Vec::len).sum::<usize>();
        assert_eq!(remembered, MAX_REMEMBERED + 1, "one user's do not drive out another's");
        let now = BootTime::default();
        let whereabouts = Whereabouts::open().unwrap();
        managers.refresh(&whereabouts, &[], &BTreeSet::from([7, 8]), now);
        assert!(managers.running.is_empty());
        assert!(managers.any_of(7) && managers.any_of(8) && !managers.any_of(9));
        // The directories were given to another user.
        managers.refresh(&whereabouts, &[], &BTreeSet::from([7]), now);
        assert!(managers.any_of(7) && !managers.any_of(8));
    }

    #[test]
    fn the_name_alone_makes_no_manager() {
        use std::io::{Read as _, Write as _};
        use std::os::unix::process::CommandExt as _;
        let mut child = std::process::Command::new("/bin/bash")
            .arg0("/usr/lib/jvm/bin/java")
            .args(["-s", MAIN_CLASS])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // Its arguments may come a moment after the exec that spawn() waits for.
        child.stdin.as_mut().unwrap().write_all(b"echo up\n").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
        let pid = Pid::new(child.id() as i32).unwrap();
        let seen = proc::look(pid).unwrap().unwrap();
        let whereabouts = Whereabouts::open().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let now = crate::clock::boot_time();
        let mut managers = Managers::default();
        assert_eq!(managers.count(), None);
        for (owners, count) in [(BTreeSet::new(), 1), (BTreeSet::from([own + 1]), 0)] {
            managers.refresh(&whereabouts, &[seen], &owners, now);
            assert_eq!(managers.count(), Some(count), "{owners:?}");
            assert!(managers.running.is_empty() && managers.remembered.is_empty());
        }
        managers.refresh(&whereabouts, &[seen], &BTreeSet::from([own]), now);
        assert_eq!(managers.running, HashMap::from([(seen.process, own)]));
        assert_eq!(managers.count(), Some(1));
        assert!(named_node_managers().unwrap().contains(&pid));
        assert!(managers.one_came() && !managers.one_came(), "once");
        managers.refresh(&whereabouts, &[seen], &BTreeSet::new(), now);
        assert!(!managers.one_came());
        let restarted = Process { process: ProcessRef { start_ticks: 1, ..seen.process }, ..seen };
        managers.refresh(&whereabouts, &[restarted], &BTreeSet::new(), now);
        assert!(managers.one_came());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_program_of_that_name_in_a_container_is_no_manager() {
        use std::os::unix::process::CommandExt as _;
        let mut child = std::process::Command::new("/bin/bash")
            .arg0("/usr/lib/jvm/bin/java")
            .args(["-s", MAIN_CLASS])
            .env("CONTAINER_ID", "container_1_0001_01_000002")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let seen = proc::look(Pid::new(child.id() as i32).unwrap()).unwrap().unwrap();
        let mut managers = Managers::default();
        let whereabouts = Whereabouts::open().unwrap();
        managers.refresh(&whereabouts, &[seen], &BTreeSet::new(), crate::clock::boot_time());
        assert_eq!(managers.count(), Some(0));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_a_manager_is_about_to_start_is_not_counted() {
        let pid = |number: i32| Pid::new(number).unwrap();
        let found = HashMap::from([
            (pid(10), Pid::new(1)),
            (pid(11), Some(pid(10))),
            (pid(12), Some(pid(10))),
            (pid(20), Pid::new(0)),
        ]);
        assert_eq!(unrelated(&found), 2);
        assert_eq!(unrelated(&HashMap::new()), 0);
    }

    #[test]
    fn a_grown_process_is_asked_once_in_a_while() {
        let own = proc::look(Pid::new(std::process::id() as i32).unwrap()).unwrap().unwrap();
        let whereabouts = Whereabouts::open().unwrap();
        let grown = proc::started(own.process).after(proc::GROWN * 2);
        let mut managers = Managers::default();
        let mut asked_at = |now: BootTime| {
            managers.refresh(&whereabouts, &[own], &BTreeSet::new(), now);
            managers.others.get(&own.process).copied()
        };
        assert_eq!(asked_at(proc::started(own.process)), None, "it may exec yet");
        assert_eq!(asked_at(grown), Some(grown));
        assert_eq!(asked_at(grown.after(ASKED_AGAIN / 2)), Some(grown));
        let later = grown.after(ASKED_AGAIN);
        assert_eq!(asked_at(later), Some(later));
    }
}
