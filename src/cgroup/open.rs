//! Choosing a hierarchy and making the root fit for task groups.
//!
//! v2 is taken where its cpu controller is to be had, else v1. On v2 the controllers are
//! enabled from the mount down to the root, only those missing; they stay enabled when LRS
//! stops, because others may use them by then.
//!
//! A v2 group other than the real root cannot have both processes and controllers for its
//! children. In a container lrsd therefore moves *itself* into a leaf, `lrsd`, if it is alone
//! in such a group; other people's processes are never moved to make room, and then only
//! observe mode is left.

use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::lock::{self, RootLock};
use super::mounts::{Hierarchy, Mounts};
use super::process::Membership;
use super::{CgroupError, Preview, TreeSettings, Version, attach, files};
use crate::core::model::TaskId;

/// `cgroup.root = "auto"`.
const AUTO_ROOT: &str = "lrs";

/// Name of the leaf lrsd moves itself into.
const LEAF: &str = "lrsd";

/// v2 controllers: `cpu` must be had; `io` and `memory` where disk tiers are wanted (memory
/// makes the kernel attribute buffered writes, cgroup-v2.rst "Writeback").
const WANTED: [&str; 3] = ["cpu", "io", "memory"];

/// The root, ready and locked.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) version: Version,
    /// With a leading slash.
    pub(super) path: String,
    /// Primary first.
    pub(super) hierarchies: Vec<Hierarchy>,
    /// v2: controllers task groups have.
    pub(super) controllers: Vec<&'static str>,
    /// What an operator should know, one sentence each.
    pub(super) notes: Vec<String>,
    leaf: Option<Leaf>,
    _lock: RootLock,
}

/// A child group this daemon put itself into.
#[derive(Debug)]
struct Leaf {
    parent: PathBuf,
    enabled: Vec<&'static str>,
}

impl Root {
    /// Prepares the root of `settings`, or undoes what it had begun.
    pub(super) fn open(settings: &TreeSettings) -> Result<Root, CgroupError> {
        let mounts = Mounts::read()?;
        let (version, primary) = choose(settings, &mounts)?;
        let path = root_path(settings, &primary)?;
        let lock = make_and_lock(&primary, &path)?;
        let mut root = Root {
            version,
            path: format!("/{path}"),
            hierarchies: vec![primary],
            controllers: Vec::new(),
            notes: Vec::new(),
            leaf: None,
            _lock: lock,
        };
        let prepared = match version {
            Version::V1 => root.add_v1_hierarchies(&mounts),
            Version::V2 => root.enable_controllers(settings),
        };
        match prepared.and_then(|()| root.look_around()) {
            Ok(()) => Ok(root),
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
        self.hierarchies[0].dir(&self.path)
    }

    /// Removes what this or an earlier lrsd made, where it is empty.
    pub(super) fn close(&self) -> Result<(), CgroupError> {
        for hierarchy in &self.hierarchies {
            lock::remove_root(&hierarchy.mount.point, &self.path)?;
        }
        match &self.leaf {
            // A root still in use needs its controllers, and so this daemon stays in the leaf.
            Some(leaf) if !self.dir().exists() => leaf.leave(),
            _ => Ok(()),
        }
    }

    /// The other v1 hierarchies, systemd's, and the twin: each where it can be had.
    fn add_v1_hierarchies(&mut self, mounts: &Mounts) -> Result<(), CgroupError> {
        let systemd_runs = Path::new("/run/systemd/system").exists(); // sd_booted(3)
        let others = mounts
            .v1()
            .into_iter()
            .skip(1)
            .chain(mounts.systemd().filter(|_| systemd_runs))
            .chain(mounts.unified());
        for hierarchy in others {
            match lock::make_root(&hierarchy.mount.point, &self.path) {
                Ok(()) => self.hierarchies.push(hierarchy),
                Err(error) => self.notes.push(format!("not used: {} ({error})", hierarchy.name)),
            }
        }
        Ok(())
    }

    fn enable_controllers(&mut self, settings: &TreeSettings) -> Result<(), CgroupError> {
        let wanted: &[&'static str] = if settings.io { &WANTED } else { &WANTED[..1] };
        let mount = self.hierarchies[0].mount.point.clone();
        let root = self.dir();
        let mut chain: Vec<PathBuf> = root
            .ancestors()
            .take_while(|dir| dir.starts_with(&mount))
            .map(Path::to_owned)
            .collect();
        chain.reverse();
        self.controllers = wanted.to_vec();
        for dir in chain {
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
        if has_word(&files::read_text(&file)?, controller) {
            return Ok(());
        }
        if !has_word(&files::read_text(&dir.join("cgroup.controllers"))?, controller) {
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
        let (tasks, foreign): (Vec<PathBuf>, Vec<PathBuf>) =
            attach::child_groups(&dir)?.into_iter().partition(|group| task_id(group).is_some());
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
        if count > 0 {
            self.notes.push(format!(
                "{count} processes live directly in {}, beside the tasks; move them to a group \
                 of their own",
                dir.display()
            ));
        }
        for hierarchy in &self.hierarchies[1..] {
            for group in attach::child_groups(&hierarchy.dir(&self.path))? {
                let partial = task_id(&group)
                    .is_some_and(|id| !tasks.iter().any(|task| task_id(task) == Some(id)));
                if !partial {
                    continue;
                }
                if let Err(error) = std::fs::remove_dir(&group) {
                    self.notes.push(format!(
                        "{} is left of a task whose creation was cut short: {error}",
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

/// See [`super::preview`].
pub(super) fn preview(settings: &TreeSettings) -> Result<Preview, CgroupError> {
    let (version, primary) = choose(settings, &Mounts::read()?)?;
    let root = primary.dir(&root_path(settings, &primary)?);
    // Writing in the nearest ancestor that is there is what making the root needs.
    let nearest = root.ancestors().find(|dir| dir.exists()).unwrap_or(&primary.mount.point);
    let obstacle = rustix::fs::access(nearest, Access::WRITE_OK).err().map(|errno| {
        format!(
            "{} cannot be written ({errno}); run lrsd as root, have the group delegated to it, \
             or remount the cgroup file system writable",
            nearest.display()
        )
    });
    Ok(Preview { version, root, obstacle })
}

/// The version and its primary hierarchy.
fn choose(settings: &TreeSettings, mounts: &Mounts) -> Result<(Version, Hierarchy), CgroupError> {
    let unified = mounts.unified();
    let v1 = mounts.v1().into_iter().find(|hierarchy| hierarchy.has("cpu"));
    let has_cpu = |hierarchy: &Hierarchy| {
        // Not readable counts as not available: opening it says why.
        files::read_text(&hierarchy.dir("cgroup.controllers"))
            .is_ok_and(|text| has_word(&text, "cpu"))
    };
    match (settings.version, unified, v1) {
        (Some(Version::V2) | None, Some(unified), _) if has_cpu(&unified) => {
            Ok((Version::V2, unified))
        }
        (Some(Version::V1) | None, _, Some(v1)) => Ok((Version::V1, v1)),
        (Some(Version::V2), Some(unified), _) => Err(CgroupError::Unsupported(format!(
            "cgroup.version = 2, but the cgroup2 mount {} has no cpu controller (it is bound to \
             cgroup v1 or not delegated); set cgroup.version = \"auto\"",
            unified.mount.point.display()
        ))),
        (Some(Version::V2), None, _) => Err(CgroupError::Unsupported(
            "cgroup.version = 2, but no cgroup2 file system is mounted; mount it (mount -t \
             cgroup2 none /sys/fs/cgroup) or set cgroup.version = \"auto\""
                .to_owned(),
        )),
        (Some(Version::V1), _, None) => Err(CgroupError::Unsupported(
            "cgroup.version = 1, but no cgroup v1 file system with the cpu controller is \
             mounted; set cgroup.version = \"auto\""
                .to_owned(),
        )),
        (None, _, None) => Err(CgroupError::Unsupported(
            "no cgroup file system with the cpu controller is mounted here; mount one, run lrsd \
             outside of the container, or set daemon.mode = \"observe\""
                .to_owned(),
        )),
    }
}

/// The root's path below the mount. "auto": `lrs`, below this daemon's own group where that
/// may be written and the mount may not (a delegated subtree).
fn root_path(settings: &TreeSettings, primary: &Hierarchy) -> Result<String, CgroupError> {
    if let Some(path) = &settings.root {
        return Ok(path.trim_matches('/').to_owned());
    }
    let writable = |dir: &Path| rustix::fs::access(dir, Access::WRITE_OK).is_ok();
    if primary.is_unified() && !writable(&primary.mount.point) {
        let membership = Membership::own()?;
        let own = membership.path_in(primary).filter(|path| writable(&primary.dir(path)));
        if let Some(own) = own {
            return Ok(format!("{own}/{AUTO_ROOT}").trim_matches('/').to_owned());
        }
    }
    Ok(AUTO_ROOT.to_owned())
}

fn make_and_lock(primary: &Hierarchy, path: &str) -> Result<RootLock, CgroupError> {
    // A closing daemon can remove the root between the two steps, each time only once.
    for _ in 0..10 {
        lock::make_root(&primary.mount.point, path)?;
        if let Some(lock) = RootLock::take(&primary.dir(path))? {
            return Ok(lock);
        }
    }
    Err(CgroupError::Refused(format!(
        "the cgroup root {} is removed again and again by somebody else",
        primary.dir(path).display()
    )))
}

fn enabling_failed(file: &Path, value: &str, error: std::io::Error) -> CgroupError {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EOPNOTSUPP) => CgroupError::Unsupported(format!(
            "cannot write {value} to {}: processes live directly in that group or in the one above; \
             move them to a group of their own, or choose another cgroup.root",
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

/// Every group but the real root one, which alone has no `cgroup.type`.
fn has_rule_of_leaves(dir: &Path) -> bool {
    dir.join("cgroup.type").exists()
}

fn has_word(text: &str, word: &str) -> bool {
    text.split_ascii_whitespace().any(|found| found == word)
}

/// The task a group directory belongs to, by its name.
pub(super) fn task_id(group: &Path) -> Option<TaskId> {
    group.file_name()?.to_str()?.parse().ok()
}

fn group_name(group: &Path) -> String {
    group.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
