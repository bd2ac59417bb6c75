//! The finder of the `[yarn]` section: says which processes are containers, and how they stand.
//!
//! Waking it late loses nothing: pid files stay as long as their container, and a listing finds
//! what no event reported. It holds no thread; its owner waits for [`NodeFinder::fd`] and
//! [`NodeFinder::next_due`] and calls [`NodeFinder::pass`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use super::classify::{self, Kind, Launch};
use super::containers::{ContainerInfo, Entry, Hint, State};
use super::ids::ContainerId;
use super::managers::Managers;
use super::proc::{self, Process};
use super::verify::{self, Claim, Decision, Rules};
use super::watch::{PidFile, Watch};
use crate::cgroup::Whereabouts;
use crate::command::{CommandError, ErrorKind};
use crate::core::model::TaskId;
use crate::discover::{DiscoveredTask, Hints};
use crate::units::{BootTime, Moment, Pid, ProcessRef};
use lrs_hadoop_conf::site::{CgroupLayout, ExecutorClass};

/// Shortest time between two listings, if no event was lost.
const MIN_PAUSE: Duration = Duration::from_millis(250);

/// What the finder gets to know of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Local directories of all NodeManagers.
    pub local_dirs: Vec<PathBuf>,
    /// Who starts containers.
    pub executor: ExecutorClass,
    /// Where they have groups of their own, if they do.
    pub layout: Option<CgroupLayout>,
    /// LRS's root below the mount, `/lrs`: containers that an earlier daemon moved are there.
    pub own_root: Option<String>,
    /// How often everything is listed.
    pub rescan: Duration,
}

/// Finds the containers of a node. See the module.
#[derive(Debug)]
pub struct NodeFinder {
    rules: Rules,
    rescan: Duration,
    whereabouts: Whereabouts,
    watch: Watch,
    managers: Managers,
    entries: BTreeMap<ContainerId, Entry>,
    by_process: HashMap<ProcessRef, ContainerId>,
    /// Containers with a changed hint.
    changed: BTreeSet<ContainerId>,
    last_list: BootTime,
    next_list: BootTime,
}

impl NodeFinder {
    /// A finder that has found nothing; everything is listed with the first pass.
    pub fn new(settings: &Settings) -> io::Result<NodeFinder> {
        Ok(NodeFinder {
            rules: Rules {
                same_user: settings.executor == ExecutorClass::Default,
                layout: settings.layout.clone(),
                own_root: settings.own_root.clone(),
            },
            rescan: settings.rescan.max(MIN_PAUSE),
            whereabouts: Whereabouts::open().map_err(io::Error::other)?,
            watch: Watch::new(&settings.local_dirs)?,
            managers: Managers::default(),
            entries: BTreeMap::new(),
            by_process: HashMap::new(),
            changed: BTreeSet::new(),
            last_list: BootTime::default(),
            next_list: BootTime::default(),
        })
    }

    /// Takes over what `before`, which looked by other settings, knows of NodeManagers: containers may
    /// outlive the one they were started by.
    #[must_use]
    pub fn after(mut self, before: NodeFinder) -> NodeFinder {
        self.managers = before.managers;
        self
    }

    /// Whether a NodeManager came since this was last asked, which may run with other files than those
    /// the settings are from.
    pub fn manager_came(&mut self) -> bool {
        self.managers.one_came()
    }

    /// Readable (epoll, level-triggered) when a pass is due at once.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.watch.fd()
    }

    /// When a pass is due although nothing is readable.
    pub fn next_due(&self) -> BootTime {
        let entries = self.entries.values().filter_map(Entry::due).min();
        let hint = self.changed.first().map(|_| BootTime::default());
        [entries, hint].into_iter().flatten().fold(self.next_list, BootTime::min)
    }

    /// Looks at what is due at `now` and says what is to become a task, or stand otherwise than
    /// before. Each is to be [answered](NodeFinder::answered). `hints`: what was reported of
    /// containers, found or not.
    pub fn pass(&mut self, hints: &Hints, now: Moment) -> Vec<DiscoveredTask> {
        let mut sighted = BTreeSet::new();
        let missed = self.watch.events(&mut sighted);
        let listing = missed || now.boot >= self.next_list;
        let all = if listing { self.processes() } else { None };
        let all = all.as_deref();
        let mut due: BTreeSet<ContainerId> = self
            .entries
            .values()
            .filter(|entry| entry.due().is_some_and(|due| due <= now.boot))
            .map(|entry| entry.id)
            .collect();
        if listing {
            self.watch.list(&mut sighted);
            if let Some(all) = all {
                self.managers.refresh(&self.whereabouts, all, &self.watch.owners(), now.boot);
            }
            self.forget(&sighted);
            due.extend(all.map(|all| self.search(all, hints)).unwrap_or_default());
            self.last_list = now.boot;
            self.next_list = now.boot.after(self.rescan);
        }
        let living: Option<HashSet<ProcessRef>> =
            all.map(|all| all.iter().map(|seen| seen.process).collect());
        for container in sighted {
            self.entry(container, hints).has_file = true;
            due.insert(container);
        }
        let examined = due.into_iter().filter(|id| !self.is_as_it_was(id, living.as_ref()));
        let examined: Vec<ContainerId> = examined.collect();
        let mut found: Vec<DiscoveredTask> =
            examined.into_iter().filter_map(|container| self.examine(container, now)).collect();
        for container in std::mem::take(&mut self.changed) {
            found.extend(self.entries.get(&container).and_then(Entry::found));
        }
        found
    }

    /// What became of a [`DiscoveredTask`] of this finder.
    pub fn answered(
        &mut self,
        process: ProcessRef,
        now: Moment,
        answer: Result<TaskId, CommandError>,
    ) {
        let entry = self.by_process.get(&process).and_then(|id| self.entries.get_mut(id));
        match (entry, answer) {
            (Some(entry), Ok(task)) => entry.state = State::Taken(task),
            (Some(entry), Err(error)) => match error.kind {
                ErrorKind::AlreadyExists(task) => entry.state = State::Taken(task),
                // It ended before it was taken; a relaunch has another process.
                ErrorKind::NotFound => entry.state = State::Expected,
                _ => entry.refuse(now.boot, &error),
            },
            // Forgotten meanwhile: it has ended.
            (None, _) => {}
        }
    }

    /// What the ResourceManager or NodeManager says now of a container, if it is found. With the
    /// next pass it is proposed again if it stands otherwise.
    pub fn hinted(&mut self, container: &ContainerId, hint: Hint) {
        let Some(entry) = self.entries.get_mut(container) else { return };
        if entry.hint != hint {
            entry.hint = hint;
            if entry.is_decided() {
                self.changed.insert(*container);
            }
        }
    }

    /// All containers that are known, in the order of their ids.
    pub fn containers(&self) -> impl Iterator<Item = ContainerInfo> {
        self.entries.values().map(Entry::info)
    }

    /// How many NodeManagers run here, as of the last listing; `None`: not known.
    pub fn node_managers(&self) -> Option<u32> {
        self.managers.count().and_then(|count| u32::try_from(count).ok())
    }

    /// The directories that cannot be listed, and why.
    pub fn troubles(&self) -> impl Iterator<Item = (&std::path::Path, &str)> {
        self.watch.troubles()
    }

    /// `None`: not known just now; what was known of them stands.
    fn processes(&self) -> Option<Vec<Process>> {
        let all = proc::all();
        all.inspect_err(|error| {
            tracing::warn!("/proc cannot be listed: {error}; new NodeManagers are not recognised");
        })
        .ok()
    }

    /// Whether it is decided, and its process and pid file are those of the decision. At each
    /// listing this is so for nearly all, and costs one call instead of a dozen.
    fn is_as_it_was(&self, id: &ContainerId, living: Option<&HashSet<ProcessRef>>) -> bool {
        let Some(entry) = self.entries.get(id).filter(|entry| entry.is_decided()) else {
            return false;
        };
        let (Some(process), Some(file)) = (entry.process, &entry.file) else { return false };
        let lives = match living {
            Some(living) => living.contains(&process),
            None => proc::is_there(process),
        };
        lives && self.watch.is_unchanged(*id, file)
    }

    /// Containers among the processes, where a directory that would tell of them cannot be read:
    /// leaders of sessions that have an id and descend from a NodeManager. The NodeManager's user
    /// is one that owns a local directory ([`Managers::refresh`]), so where none can be looked at,
    /// nothing is found.
    fn search(&mut self, all: &[Process], hints: &Hints) -> Vec<ContainerId> {
        if self.watch.troubles().next().is_none() {
            return Vec::new();
        }
        let by_pid: HashMap<Pid, Process> =
            all.iter().map(|seen| (seen.process.pid, *seen)).collect();
        let mut found = Vec::new();
        for seen in all.iter().filter(|seen| seen.leads) {
            let pid = seen.process.pid;
            let Some(owner) = self.managers.user_above(pid, &by_pid) else { continue };
            // Gone, or not readable: then its entry could not be judged either.
            let Ok(Some(id)) = proc::variable(pid, "CONTAINER_ID") else { continue };
            let Ok(id) = id.parse() else { continue };
            let entry = self.entry(id, hints);
            if !entry.has_file && entry.process != Some(seen.process) {
                entry.running = Some((pid, owner));
                found.push(id);
            }
        }
        found
    }

    /// Drops what has ended: its directory is gone, and so is its process.
    fn forget(&mut self, listed: &BTreeSet<ContainerId>) {
        self.entries.retain(|id, entry| {
            listed.contains(id)
                || entry.process.is_some_and(proc::is_there)
                || entry.due().is_some()
        });
        let entries = &self.entries;
        self.by_process.retain(|process, id| {
            entries.get(id).is_some_and(|entry| entry.process == Some(*process))
        });
    }

    fn entry(&mut self, container: ContainerId, hints: &Hints) -> &mut Entry {
        let hint = || hints.get(&container.to_string()).map(Hint::from).unwrap_or_default();
        self.entries.entry(container).or_insert_with(|| Entry::new(container, hint()))
    }

    /// Looks at one container; what is to be proposed, if anything.
    fn examine(&mut self, container: ContainerId, now: Moment) -> Option<DiscoveredTask> {
        let mut entry = self.entries.remove(&container)?;
        let found = self.look_at(&mut entry, now);
        if let Some(process) = entry.process {
            self.by_process.insert(process, container);
        }
        self.entries.insert(container, entry);
        found
    }

    fn look_at(&mut self, entry: &mut Entry, now: Moment) -> Option<DiscoveredTask> {
        let (pid, claim, file) = self.claim(entry, now)?;
        let evidence = match verify::evidence(pid, &self.whereabouts) {
            Ok(Some(evidence)) => evidence,
            Ok(None) => {
                // It ended, or its pid file is about to be replaced.
                entry.state = State::Expected;
                return None;
            }
            Err(why) => {
                if entry.is_decided() {
                    tracing::debug!("{} is left as it is: {why}", entry.id);
                } else {
                    entry.ignore(why);
                }
                return None;
            }
        };
        entry.is(evidence.seen.process);
        entry.file = file;
        if entry.is_decided() {
            return None;
        }
        match verify::judge(&claim, &evidence, &self.rules, &self.managers) {
            Decision::Wait(why) => entry.wait(now.boot, why),
            Decision::Ignore(why) => entry.ignore(why),
            Decision::Foreign(why) if self.last_list == now.boot => entry.ignore(why),
            Decision::Foreign(why) => {
                // Its NodeManager may have come since NodeManagers were last looked for.
                entry.wait(now.boot, why);
                self.next_list = self.next_list.min(self.last_list.after(MIN_PAUSE));
            }
            Decision::Take(attach) => {
                let (launch, is_proven) = self.launch(entry, pid);
                entry.launch = Some(launch);
                entry.masters = is_proven
                    && entry.kind() == Some(Kind::ApplicationMaster)
                    && !self.has_master_beside(entry.id);
                entry.attach = Some(attach);
                entry.state = State::Proposed;
                return entry.found();
            }
        }
        None
    }

    /// Which process the pid file names as this container.
    fn claim(&self, entry: &mut Entry, now: Moment) -> Option<(Pid, Claim, Option<PidFile>)> {
        let container = entry.id;
        if let Some((pid, manager_uid)) = entry.running.filter(|_| !entry.has_file) {
            return Some((pid, Claim { container, known: None, manager_uid }, None));
        }
        match self.watch.pid_file(container) {
            Ok(Some(file)) => {
                let known = Some(entry.first_read(&file));
                let claim = Claim { container, known, manager_uid: file.manager_uid };
                Some((file.pid, claim, Some(file)))
            }
            Ok(None) => {
                if !entry.is_decided() {
                    entry.state = State::Expected;
                }
                None
            }
            Err(error) if entry.is_decided() => {
                tracing::debug!("the pid file of {container} cannot be read: {error}");
                None
            }
            Err(error) => {
                entry.wait(now.boot, format!("its pid file cannot be read: {error}"));
                None
            }
        }
    }

    /// What it does: by the NodeManager's script, else by its own arguments. And whether the
    /// NodeManager vouches for a master: by its script, or by the pid file of a container with the
    /// number that only masters get. Arguments alone give no process weights without a slot.
    fn launch(&self, entry: &Entry, pid: Pid) -> (Launch, bool) {
        const MASTER: u64 = 1;
        let container = entry.id;
        match self.watch.script(container) {
            Ok(Some(script)) => return (classify::launch(&script, &container), true),
            Ok(None) => {}
            Err(error) => tracing::debug!("the script of {container} cannot be read: {error}"),
        }
        // Gone meanwhile: then it will not become a task either.
        let arguments = proc::arguments(pid).unwrap_or_default();
        let variable = |name: &str| proc::variable(pid, name).ok().flatten();
        let is_proven = entry.has_file && container.sequence == MASTER;
        (classify::running(&arguments, variable, &container), is_proven)
    }

    /// Whether its attempt has a running master on this node. There is one at most, so another
    /// that says it is one is a container like any other.
    fn has_master_beside(&self, id: ContainerId) -> bool {
        let of_attempt = |other: &&Entry| {
            let same = (other.id.application, other.id.attempt) == (id.application, id.attempt);
            same && other.id.epoch == id.epoch && other.id != id && other.masters
        };
        self.entries
            .values()
            .filter(of_attempt)
            .any(|other| other.process.is_some_and(proc::is_there))
    }
}

#[cfg(test)]
mod tests;
