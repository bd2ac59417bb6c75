//! The simulated kernel's cgroups and processes: who is in which group, with which weights.
//!
//! As the kernel does it: a group's identity is its inode, which is never used again; a group that
//! has processes or groups below it cannot be removed; a child starts in its parent's group; a pid
//! may come back, with another start time. Counters belong to the group and to those above it, and
//! outlive the processes.

use std::collections::{BTreeMap, BTreeSet};

use lrs_core::units::{Pid, ProcessRef};

use crate::load::{Load, Progress};

/// A group's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub u64);

/// The group everything is below.
pub const ROOT: Inode = Inode(1);

/// The weight files of a group, as cgroup v2 has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// cpu.weight.
    pub cpu: u64,
    /// cpu.idle.
    pub idle: bool,
    /// io.weight.
    pub io: u64,
}

/// What every group starts with.
pub const NEUTRAL: Weights = Weights { cpu: 100, idle: false, io: 100 };

/// What the processes of a group have used since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// CPU time in seconds.
    pub cpu: f64,
    /// Seconds of disk service.
    pub disk: f64,
    /// Seconds in which a process had less CPU than it wanted, by how much less.
    pub cpu_some: f64,
    /// Seconds in which a process waited for a disk.
    pub io_some: f64,
}

/// A group.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its directory, below that of the root, with a leading slash; empty of the root.
    pub path: String,
    /// The one it is in.
    pub parent: Inode,
    /// Its weights.
    pub weights: Weights,
    /// Whether what is in it stands still (cgroup.freeze).
    pub frozen: bool,
    /// Its counters.
    pub used: Used,
    below: BTreeSet<Inode>,
}

impl Group {
    fn new(path: String, parent: Inode) -> Group {
        let (used, below) = (Used::default(), BTreeSet::new());
        Group { path, parent, weights: NEUTRAL, frozen: false, used, below }
    }
}

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Stands for its start time: processes count up.
    pub start_ticks: u64,
    /// Its user.
    pub uid: u32,
    /// Who started it, if that is not gone.
    pub parent: Option<Pid>,
    /// The group it is in.
    pub group: Inode,
    /// What it does.
    pub progress: Progress,
}

/// What the kernel refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No such group (ENOENT, ENODEV).
    NoGroup,
    /// No such process (ESRCH).
    NoProcess,
    /// The group is not empty (EBUSY).
    Busy,
}

/// Groups and processes.
#[derive(Clone, Debug)]
pub struct Tree {
    groups: BTreeMap<Inode, Group>,
    paths: BTreeMap<String, Inode>,
    processes: BTreeMap<Pid, Process>,
    next_inode: u64,
    next_pid: i32,
    started: u64,
}

/// Pids come back after this many, so that a number alone is soon another process.
const PIDS: i32 = 300;

impl Default for Tree {
    fn default() -> Tree {
        let root = Group::new(String::new(), ROOT);
        Tree {
            groups: BTreeMap::from([(ROOT, root)]),
            paths: BTreeMap::new(),
            processes: BTreeMap::new(),
            next_inode: ROOT.0 + 1,
            next_pid: 1,
            started: 0,
        }
    }
}

impl Tree {
    /// All groups.
    pub fn groups(&self) -> &BTreeMap<Inode, Group> {
        &self.groups
    }

    /// All processes.
    pub fn processes(&self) -> &BTreeMap<Pid, Process> {
        &self.processes
    }

    pub(crate) fn counters(&mut self, group: Inode) -> Option<&mut Used> {
        self.groups.get_mut(&group).map(|group| &mut group.used)
    }

    pub(crate) fn progress(&mut self, pid: Pid) -> Option<&mut Progress> {
        self.processes.get_mut(&pid).map(|process| &mut process.progress)
    }

    /// The group at `path`.
    pub fn at(&self, path: &str) -> Option<Inode> {
        if path.is_empty() { Some(ROOT) } else { self.paths.get(path).copied() }
    }

    /// The groups right below `parent`.
    pub fn below(&self, parent: Inode) -> impl Iterator<Item = (Inode, &Group)> {
        let below = self.groups.get(&parent).into_iter().flat_map(|group| &group.below);
        below.filter_map(|inode| Some((*inode, self.groups.get(inode)?)))
    }

    /// Whether `group` is `top` or below it.
    pub fn is_within(&self, mut group: Inode, top: Inode) -> bool {
        while group != top && group != ROOT {
            group = self.groups.get(&group).map_or(ROOT, |group| group.parent);
        }
        group == top
    }

    /// The group at `path`, made with those above it if need be.
    pub fn make(&mut self, path: &str) -> Inode {
        if let Some(found) = self.at(path) {
            return found;
        }
        let parent = self.make(path.rsplit_once('/').map_or("", |(parent, _)| parent));
        let inode = Inode(self.next_inode);
        self.next_inode += 1;
        self.groups.insert(inode, Group::new(path.to_owned(), parent));
        self.paths.insert(path.to_owned(), inode);
        if let Some(parent) = self.groups.get_mut(&parent) {
            parent.below.insert(inode);
        }
        inode
    }

    /// Removes a group.
    ///
    /// # Errors
    /// `Busy` while anything is in it, `NoGroup` if it is not there.
    pub fn remove(&mut self, group: Inode) -> Result<(), Refused> {
        if self.members(group).next().is_some() || self.below(group).next().is_some() {
            return Err(Refused::Busy);
        }
        let removed = self.groups.remove(&group).ok_or(Refused::NoGroup)?;
        self.paths.remove(&removed.path);
        if let Some(parent) = self.groups.get_mut(&removed.parent) {
            parent.below.remove(&group);
        }
        Ok(())
    }

    /// Writes the weight files of a group.
    ///
    /// # Errors
    /// `NoGroup` if it is not there.
    pub fn weigh(&mut self, group: Inode, weights: Weights) -> Result<(), Refused> {
        self.groups.get_mut(&group).ok_or(Refused::NoGroup)?.weights = weights;
        Ok(())
    }

    /// Freezes a group with all below it, or thaws it.
    ///
    /// # Errors
    /// `NoGroup` if it is not there.
    pub fn freeze(&mut self, group: Inode, on: bool) -> Result<(), Refused> {
        self.groups.get_mut(&group).ok_or(Refused::NoGroup)?.frozen = on;
        Ok(())
    }

    /// Whether what is in `group` stands still, by it or a group above it.
    pub fn is_frozen(&self, mut group: Inode) -> bool {
        loop {
            match self.groups.get(&group) {
                Some(found) if found.frozen => return true,
                Some(found) if group != ROOT => group = found.parent,
                _ => return false,
            }
        }
    }

    /// Moves one process.
    ///
    /// # Errors
    /// `NoProcess` or `NoGroup`.
    pub fn move_process(&mut self, pid: Pid, group: Inode) -> Result<(), Refused> {
        if !self.groups.contains_key(&group) {
            return Err(Refused::NoGroup);
        }
        self.processes.get_mut(&pid).ok_or(Refused::NoProcess)?.group = group;
        Ok(())
    }

    /// The processes in a group (cgroup.procs).
    pub fn members(&self, group: Inode) -> impl Iterator<Item = Pid> {
        let processes = self.processes.iter().filter(move |(_, process)| process.group == group);
        processes.map(|(pid, _)| *pid)
    }

    /// Starts a process in `group`.
    pub fn start(&mut self, group: Inode, uid: u32, load: Load) -> ProcessRef {
        self.put(group, uid, None, load)
    }

    /// A process with a number of its own, in `group`.
    pub fn adopt(&mut self, process: ProcessRef, group: Inode, uid: u32, load: Load) {
        let ProcessRef { pid, start_ticks } = process;
        let progress = Progress::new(load);
        self.processes.insert(pid, Process { start_ticks, uid, parent: None, group, progress });
    }

    /// A process that is there does something else from now on.
    pub fn begin(&mut self, pid: Pid, load: Load) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.progress = Progress::new(load);
        }
    }

    /// A child of `parent`, in its group; `None` if that has ended.
    pub fn fork(&mut self, parent: Pid, load: Load) -> Option<ProcessRef> {
        let (group, uid) = self.processes.get(&parent).map(|p| (p.group, p.uid))?;
        Some(self.put(group, uid, Some(parent), load))
    }

    fn put(&mut self, group: Inode, uid: u32, parent: Option<Pid>, load: Load) -> ProcessRef {
        let pid = loop {
            self.next_pid = self.next_pid % PIDS.max(self.processes.len() as i32 * 2) + 1;
            match Pid::new(self.next_pid) {
                Some(pid) if !self.processes.contains_key(&pid) => break pid,
                _ => {}
            }
        };
        // Not the time: here, any number of processes start within one tick.
        self.started += 1;
        let start_ticks = self.started;
        let progress = Progress::new(load);
        self.processes.insert(pid, Process { start_ticks, uid, parent, group, progress });
        ProcessRef { pid, start_ticks }
    }

    /// A process ends; its children go on without a parent.
    pub fn end(&mut self, pid: Pid) {
        self.processes.remove(&pid);
        for process in self.processes.values_mut().filter(|p| p.parent == Some(pid)) {
            process.parent = None;
        }
    }

    /// The process, if it is still the same one.
    pub fn alive(&self, process: ProcessRef) -> Option<&Process> {
        self.processes.get(&process.pid).filter(|found| found.start_ticks == process.start_ticks)
    }

    /// `pid` and its descendants that are in the same group, parents first.
    pub fn family(&self, pid: Pid) -> Vec<Pid> {
        let Some(group) = self.processes.get(&pid).map(|process| process.group) else {
            return Vec::new();
        };
        let mut family = vec![pid];
        let mut next = 0;
        while let Some(&of) = family.get(next) {
            let children = self
                .processes
                .iter()
                .filter(|(_, process)| process.parent == Some(of) && process.group == group);
            family.extend(children.map(|(pid, _)| *pid));
            next += 1;
        }
        family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_with_anything_in_it_stays() {
        let mut tree = Tree::default();
        let inner = tree.make("/lrs/t-1");
        let outer = tree.at("/lrs").unwrap();
        assert_eq!(tree.remove(outer), Err(Refused::Busy));
        let process = tree.start(inner, 7, Load::sleeper());
        assert_eq!(tree.remove(inner), Err(Refused::Busy));
        tree.end(process.pid);
        assert_eq!(tree.remove(inner), Ok(()));
        assert_eq!(tree.remove(inner), Err(Refused::NoGroup));
        assert_eq!(tree.at("/lrs/t-1"), None);
        assert_ne!(tree.make("/lrs/t-1"), inner, "an inode is not used again");
        assert_eq!(tree.below(outer).count(), 1);
    }

    #[test]
    fn a_family_is_what_shares_the_group() {
        let mut tree = Tree::default();
        let group = tree.make("/unit");
        let main = tree.start(group, 7, Load::sleeper());
        let child = tree.fork(main.pid, Load::sleeper()).unwrap();
        let grandchild = tree.fork(child.pid, Load::sleeper()).unwrap();
        let elsewhere = tree.fork(main.pid, Load::sleeper()).unwrap();
        tree.move_process(elsewhere.pid, ROOT).unwrap();
        assert_eq!(tree.family(main.pid), [main.pid, child.pid, grandchild.pid]);
        tree.end(child.pid);
        assert_eq!(tree.family(main.pid), [main.pid], "an orphan is no child of it");
        assert!(tree.alive(grandchild).is_some());
    }

    #[test]
    fn a_pid_that_comes_back_is_another_process() {
        let mut tree = Tree::default();
        let first = tree.start(ROOT, 0, Load::sleeper());
        tree.end(first.pid);
        let again = (0..)
            .map(|_| {
                let process = tree.start(ROOT, 0, Load::sleeper());
                tree.end(process.pid);
                process
            })
            .find(|process| process.pid == first.pid);
        assert!(again.is_some());
        assert!(tree.alive(first).is_none());
    }
}
