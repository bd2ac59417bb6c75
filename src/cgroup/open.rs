//! Making the root fit for task groups, in the hierarchies that [`super::layout`] chooses.
//!
//! On v2 the controllers are
//! enabled from the mount down to the root, only those missing; they stay enabled when LRS
//! stops, because others may use them by then.
//!
//! A v2 group other than the real root cannot have both processes and controllers for its
//! children. In a container lrsd therefore moves *itself* into a leaf, `lrsd`, if it is alone
//! in such a group; other people's processes are never moved to make room, and then only
//! observe mode is left.
//!
//! A root that is removed while the daemon runs is made anew with the next admission.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::layout::{Layout, hierarchies, is_scope, root_path};
use super::lock::{self, RootLock};
use super::mounts::Hierarchy;
use super::name::{self, TRIAL, TRIAL_ACTIVE, TRIAL_PASSIVE};
use super::obstacle;
use super::scope::{self, Scope};
use super::whereabouts::OwnGroups;
use super::{CgroupError, DiskTiers, Origin, TreeSettings, Version, files, walk};
use crate::core::model::TaskId;
use crate::units::Pid;

/// Name of the leaf lrsd moves itself into.
const LEAF: &str = "lrsd";

/// The root, ready and locked.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) layout: Layout,
    /// v2: controllers task groups have.
    pub(super) controllers: Vec<&'static str>,
    /// What an operator should know, one sentence each.
    pub(super) notes: Vec<String>,
    /// What is worse than it could be, one sentence each.
    pub(super) warnings: Vec<String>,
    /// Tasks of an earlier daemon go on here.
    pub(super) takes_over: bool,
    leaf: Option<Leaf>,
    held: Mutex<Ownership>,
}

/// The lock and the scope of the root. They are renewed when the root was removed.
#[derive(Debug)]
struct Ownership {
    lock: Option<RootLock>,
    /// Where systemd owns the root.
    scope: Option<Scope>,
}

/// A child group this daemon put itself into.
#[derive(Debug)]
struct Leaf {
    parent: PathBuf,
    enabled: Vec<&'static str>,
}

impl Root {
    /// Prepares the root of `settings`, or undoes what it had begun. `recorded`: an earlier daemon
    /// left records of tasks. With those, or with groups of tasks in the root, what makes admissions
    /// impossible is a warning: the tasks that run want to be looked after all the same.
    pub(super) fn open(settings: &TreeSettings, recorded: bool) -> Result<Root, CgroupError> {
        let (version, mut hierarchies) = hierarchies(settings)?;
        let path = root_path(settings, &hierarchies[0])?;
        let scope = is_scope(settings).then(Scope::default);
        let is_scope = scope.is_some();
        let has_tasks = |dir: &Path| {
            walk::child_groups(dir)
                .map(|all| all.iter().any(|group| name::task_at(group).is_some()))
        };
        let takes_over = recorded || has_tasks(&hierarchies[0].dir(&path))?;
        let mut warnings = Vec::new();
        let own = OwnGroups::read_file(Path::new("/proc/self/cgroup"))?;
        for obstacle in [obstacle::pidfd(), own.in_sight(&hierarchies[0].mount)]
            .into_iter()
            .filter_map(Result::err)
        {
            if !takes_over {
                return Err(obstacle.into());
            }
            warnings.push(obstacle.to_string());
        }
        for other in hierarchies.split_off(1) {
            match own.in_sight(&other.mount) {
                Ok(()) => hierarchies.push(other),
                Err(obstacle) => warnings.push(not_used(&other, &obstacle)),
            }
        }
        let mut held = Ownership { lock: None, scope };
        match held.take(&hierarchies, &path) {
            Ok(()) => {}
            // Tried again with the next admission.
            Err(CgroupError::Unsupported(why)) if takes_over => warnings.push(why),
            Err(error) => return Err(error),
        }
        let mut root = Root {
            layout: Layout { version, path: format!("/{path}"), hierarchies, is_scope },
            controllers: Vec::new(),
            notes: Vec::new(),
            warnings,
            takes_over,
            leaf: None,
            held: Mutex::new(held),
        };
        let prepared = match version {
            Version::V1 => {
                root.make_in_the_others();
                Ok(())
            }
            Version::V2 => root.enable_controllers(settings),
        };
        match prepared.and_then(|()| root.look_around()) {
            Ok(()) => Ok(root),
            Err(error) if takes_over => {
                root.warnings.push(error.to_string());
                Ok(root)
            }
            Err(error) => match root.close() {
                Ok(()) => Err(error),
                Err(undo) => Err(CgroupError::Unsupported(format!(
                    "{error}; and undoing what was begun failed: {undo}"
                ))),
            },
        }
    }

    /// Directory of the root in the primary hierarchy.
    pub(super) fn dir(&self) -> PathBuf {
        self.layout.hierarchies[0].dir(&self.layout.path)
    }

    /// Makes the root anew if it was removed or the scope was stopped. Answers
    /// whether it had to be made.
    pub(super) fn restore(&self) -> Result<bool, CgroupError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.holds(&self.dir()) {
            return Ok(false);
        }
        held.take(&self.layout.hierarchies, self.layout.path.trim_start_matches('/'))?;
        for hierarchy in &self.layout.hierarchies[1..] {
            match lock::make_root(&hierarchy.mount.point, &self.layout.path) {
                // Tasks do without a twin, which is logged as they are made.
                Err(_) if hierarchy.is_unified() => {}
                made => made?,
            }
        }
        for dir in self.chain() {
            for controller in &self.controllers {
                let file = dir.join("cgroup.subtree_control");
                if !files::has_word(&files::read_text(&file)?, controller) {
                    let value = format!("+{controller}");
                    files::write_raw(&file, &value)
                        .map_err(|error| enabling_failed(&file, &value, error))?;
                }
            }
        }
        Ok(true)
    }

    /// Moves the processes of a task with no home any more to a scope of their own. Without
    /// systemd, or without its help, they go where the kernel takes them.
    pub(super) fn rehome(&self, id: TaskId, origin: &Origin, processes: &[Pid]) {
        let of_systemd = scope::tracked(&self.layout.hierarchies).find_map(|hierarchy| {
            origin.iter().find(|(name, _)| *name == hierarchy.name).map(|(_, path)| path.as_str())
        });
        if crate::systemd::is_running()
            && let Err(error) = scope::rehome(id, of_systemd.unwrap_or_default(), processes)
        {
            tracing::warn!(task = %id, %error, "the processes of task {id}, released, get no scope of their own: {error}");
        }
    }

    /// Removes what this or an earlier lrsd made, where it is empty.
    pub(super) fn close(&self) -> Result<(), CgroupError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scope) = &mut held.scope {
            scope.release();
        }
        if let Some(lock) = &held.lock
            && lock.is_of(&self.dir())
        {
            lock::remove_lock(&self.dir())?;
        }
        for hierarchy in &self.layout.hierarchies {
            lock::remove_root(&hierarchy.mount.point, &self.layout.path)?;
        }
        match &self.leaf {
            // A root still in use needs its controllers, and so this daemon stays in the leaf.
            Some(leaf) if !self.dir().exists() => leaf.leave(),
            _ => Ok(()),
        }
    }

    /// The root in the other v1 hierarchies; those where it cannot be made are not used.
    fn make_in_the_others(&mut self) {
        for hierarchy in self.layout.hierarchies.split_off(1) {
            let made = lock::make_root(&hierarchy.mount.point, &self.layout.path);
            match made.and_then(|()| takes_processes(&hierarchy, &self.layout.path)) {
                Ok(()) => self.layout.hierarchies.push(hierarchy),
                Err(error) => self.warnings.push(not_used(&hierarchy, &error)),
            }
        }
    }

    /// Unified directories from the mount to the root.
    fn chain(&self) -> Vec<PathBuf> {
        let mount = &self.layout.hierarchies[0].mount.point;
        let root = self.dir();
        let mut chain: Vec<PathBuf> =
            root.ancestors().take_while(|dir| dir.starts_with(mount)).map(Path::to_owned).collect();
        chain.reverse();
        chain
    }

    fn enable_controllers(&mut self, settings: &TreeSettings) -> Result<(), CgroupError> {
        obstacle::no_thread_root(&self.dir())?;
        let root = self.dir();
        self.controllers = wanted(settings);
        for dir in self.chain() {
            let mut had = Vec::new();
            for &controller in &self.controllers.clone() {
                match self.enable(&dir, controller, dir == root) {
                    Ok(()) => had.push(controller),
                    Err(error) if controller == "cpu" => return Err(error),
                    Err(error) => {
                        self.notes.push(format!("no {controller} controller: {error}"));
                    }
                }
            }
            self.controllers = had;
        }
        let has = |name| self.controllers.contains(&name);
        if has("io") && !settings.memory {
            self.notes.push(
                "the io controller (tiers.io) brings the kernel's memory controller along: groups of \
                 ended tasks stay while their files are cached, whatever cgroup.memory_controller says"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Makes `controller` act on the children of `dir`; no write where it does already.
    fn enable(
        &mut self,
        dir: &Path,
        controller: &'static str,
        is_root: bool,
    ) -> Result<(), CgroupError> {
        let file = dir.join("cgroup.subtree_control");
        if files::has_word(&files::read_text(&file)?, controller) {
            return Ok(());
        }
        if !files::has_word(&files::read_text(&dir.join("cgroup.controllers"))?, controller) {
            return Err(CgroupError::Unsupported(format!(
                "the {controller} controller is not available in {}; enable it in the parent's \
                 cgroup.subtree_control, or set daemon.mode = \"observe\"",
                dir.display()
            )));
        }
        // Asked beforehand: the kernel accepts +cpu beside processes, but then makes the group
        // the root of a threaded subtree, in which no task group can live (cgroup-v2.rst).
        if has_rule_of_leaves(dir) && !files::read_text(&dir.join("cgroup.procs"))?.is_empty() {
            if is_root || self.leaf.is_some() {
                return Err(CgroupError::Unsupported(format!(
                    "processes live directly in {}, so it cannot have controllers for task groups \
                     (cgroup v2 rule); move them to a group of their own, or choose another \
                     cgroup.root",
                    dir.display()
                )));
            }
            self.leaf = Some(Leaf::enter(dir)?);
        }
        let value = format!("+{controller}");
        files::write_raw(&file, &value).map_err(|error| enabling_failed(&file, &value, error))?;
        if let Some(leaf) = self.leaf.as_mut().filter(|leaf| leaf.parent == dir) {
            leaf.enabled.push(controller);
        }
        Ok(())
    }

    /// Foreign groups and processes in the root, and leftovers of a creation cut short.
    fn look_around(&mut self) -> Result<(), CgroupError> {
        let dir = self.dir();
        let groups = walk::child_groups(&dir)?;
        let tasks: HashSet<TaskId> =
            groups.iter().filter_map(|group| name::task_at(group)).collect();
        let foreign: Vec<PathBuf> = groups
            .into_iter()
            .filter(|group| name::task_at(group).is_none())
            .filter(|group| !group.ends_with(lock::LOCK))
            .filter(|group| {
                ![TRIAL, TRIAL_ACTIVE, TRIAL_PASSIVE].iter().any(|it| group.ends_with(it))
            })
            .filter(|group| !(self.layout.is_scope && group.ends_with(scope::LEAF)))
            .collect();
        if !foreign.is_empty() {
            let names: Vec<_> = foreign.iter().map(|group| group_name(group)).collect();
            self.notes.push(format!(
                "{} holds groups LRS did not make, which take part of its share and are left \
                 alone: {}",
                dir.display(),
                names.join(", ")
            ));
        }
        let procs = files::read_text(&dir.join("cgroup.procs"))?;
        let count = procs.lines().count();
        // On v1 the anchor is where systemd put it.
        if count > usize::from(self.layout.is_scope) {
            self.notes.push(format!(
                "{count} processes live directly in {}, beside the tasks; move them to a group \
                 of their own",
                dir.display()
            ));
        }
        for hierarchy in &self.layout.hierarchies[1..] {
            for group in walk::child_groups(&hierarchy.dir(&self.layout.path))? {
                if name::task_at(&group).is_none_or(|id| tasks.contains(&id)) {
                    continue;
                }
                if let Err(error) = std::fs::remove_dir(&group) {
                    self.notes.push(format!(
                        "{} is left of an admission that was cut short: {error}",
                        group.display()
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Leaf {
    /// Moves this process from `parent`, where it must be alone, into a leaf of it.
    fn enter(parent: &Path) -> Result<Leaf, CgroupError> {
        let own = std::process::id().to_string();
        let procs = files::read_text(&parent.join("cgroup.procs"))?;
        let others: Vec<&str> = procs.lines().filter(|pid| *pid != own).take(5).collect();
        if !others.is_empty() || !procs.lines().any(|pid| pid == own) {
            return Err(CgroupError::Unsupported(format!(
                "{} holds processes (among them {}), so it cannot have controllers for child \
                 groups (cgroup v2 rule), and LRS does not move other people's processes; start \
                 lrsd in a group of its own, or set daemon.mode = \"observe\"",
                parent.display(),
                others.join(", ")
            )));
        }
        let mount_relative = parent.join(LEAF);
        lock::make_root(parent, LEAF)?;
        files::write_value(&mount_relative.join("cgroup.procs"), &own)?;
        Ok(Leaf { parent: parent.to_owned(), enabled: Vec::new() })
    }

    /// Gives the parent back as it was: controllers off, this process in it, no leaf.
    fn leave(&self) -> Result<(), CgroupError> {
        for controller in self.enabled.iter().rev() {
            let file = self.parent.join("cgroup.subtree_control");
            files::write_value(&file, &format!("-{controller}"))?;
        }
        let own = std::process::id().to_string();
        files::write_value(&self.parent.join("cgroup.procs"), &own)?;
        lock::remove_root(&self.parent, LEAF)
    }
}

/// Whether groups below the root at `path` take processes: that of cgroup2 may be threaded.
fn takes_processes(hierarchy: &Hierarchy, path: &str) -> Result<(), CgroupError> {
    if hierarchy.is_unified() {
        Ok(obstacle::no_thread_root(&hierarchy.dir(path))?)
    } else {
        Ok(())
    }
}

/// A hierarchy that tasks can do without, and why they do.
fn not_used(hierarchy: &Hierarchy, why: &dyn std::fmt::Display) -> String {
    format!("tasks get no group in {}: {why}", hierarchy.mount.point.display())
}

impl Ownership {
    /// Makes and locks the root.
    fn take(&mut self, hierarchies: &[Hierarchy], path: &str) -> Result<(), CgroupError> {
        let primary = &hierarchies[0];
        // A daemon that is closing, or `systemctl stop`, can remove the root between two
        // steps, each time only once.
        for _ in 0..10 {
            if let Some(scope) = &mut self.scope {
                scope.hold(hierarchies)?;
            }
            // A scope is systemd's to make; on v1 it may have left out the cpu controller.
            if self.scope.is_none() || !primary.is_unified() {
                lock::make_root(&primary.mount.point, path)?;
            }
            let root = primary.dir(path);
            // A second lock beside the one that is held would be refused.
            if self.lock.as_ref().is_some_and(|lock| lock.is_of(&root)) {
                return Ok(());
            }
            self.lock = RootLock::take(&root)?;
            if self.lock.is_some() {
                return Ok(());
            }
        }
        Err(CgroupError::Refused(format!(
            "the cgroup root {} is removed again and again by other software",
            primary.dir(path).display()
        )))
    }

    /// Whether the locked directory is still the one at `root`, and the scope is held.
    fn holds(&mut self, root: &Path) -> bool {
        self.lock.as_ref().is_some_and(|lock| lock.is_of(root))
            && self.scope.as_mut().is_none_or(Scope::held)
    }
}

fn enabling_failed(file: &Path, value: &str, error: std::io::Error) -> CgroupError {
    match error.raw_os_error() {
        Some(libc::EBUSY) => CgroupError::Unsupported(format!(
            "cannot write {value} to {}: processes live directly in that group or in the one above; \
             move them to a group of their own, or choose another cgroup.root",
            file.display()
        )),
        Some(libc::EOPNOTSUPP) => CgroupError::Unsupported(format!(
            "cannot write {value} to {}: that group or one above it has threaded groups below \
             (cgroup.type), where this controller does not act; make those domains again by \
             removing them, or choose another cgroup.root",
            file.display()
        )),
        Some(libc::EROFS | libc::EACCES | libc::EPERM) => CgroupError::Unsupported(format!(
            "cannot write {value} to {}: {error}; run lrsd as root, have the group delegated to \
             it, or set daemon.mode = \"observe\"",
            file.display()
        )),
        _ => files::failed("write", file, Some(value), error),
    }
}

/// v2 controllers: `cpu` must be had; `io` where disk tiers are wanted; `memory` unless its key says
/// otherwise. With `io` the kernel has memory groups all the same, without files (`depends_on` of
/// block/blk-cgroup.c), by which it attributes buffered writes.
fn wanted(settings: &TreeSettings) -> Vec<&'static str> {
    let io = (settings.io != DiskTiers::Off).then_some("io");
    let memory = settings.memory.then_some("memory");
    ["cpu"].into_iter().chain(io).chain(memory).collect()
}

/// Every group but the real root one, which alone has no `cgroup.type`.
fn has_rule_of_leaves(dir: &Path) -> bool {
    dir.join("cgroup.type").exists()
}

fn group_name(group: &Path) -> String {
    group.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
