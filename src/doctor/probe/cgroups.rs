//! The cgroup mounts, and which of them carries the CPU controller.

use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::place::{DirFacts, nearest, place, writable};
use super::reading::Reading;
use super::services::Services;
use crate::cgroup::mounts::{self, Mount, Mounts};
use crate::cgroup::obstacle::{self, Obstacle};
use crate::cgroup::{OwnGroups, Version};
use crate::config::{Auto, Config};

/// The cgroup mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::doctor) struct Cgroups {
    pub(in crate::doctor) v1: Vec<Hierarchy>,
    pub(in crate::doctor) v2: Option<Unified>,
}

impl Cgroups {
    /// The v1 hierarchy with `controller`.
    pub(in crate::doctor) fn v1_with(&self, controller: &str) -> Option<&Hierarchy> {
        self.v1.iter().find(|h| h.controllers.iter().any(|name| name == controller))
    }
}

/// One mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) struct Hierarchy {
    /// The mount point.
    pub(in crate::doctor) point: PathBuf,
    /// v1: those that LRS uses.
    pub(in crate::doctor) controllers: Vec<String>,
    /// Where the LRS root is or would be.
    pub(in crate::doctor) root: DirFacts,
    /// Whether this process may make and use it.
    pub(in crate::doctor) usable: Result<(), Obstacle>,
    /// Whether the mount shows the group this process is in.
    pub(in crate::doctor) in_sight: Result<(), Obstacle>,
    /// Which of [`FILES`] the mount's own group has.
    pub(in crate::doctor) own_files: Vec<&'static str>,
    /// Which of [`FILES`] a group one below has.
    pub(in crate::doctor) child_files: Vec<&'static str>,
}

impl Hierarchy {
    /// Whether the file is in the mount's own group or in one below.
    pub(in crate::doctor) fn has(&self, file: &str) -> bool {
        self.own_files.contains(&file) || self.child_has(file)
    }

    /// Whether the file is in a group below the mount.
    pub(in crate::doctor) fn child_has(&self, file: &str) -> bool {
        self.child_files.contains(&file)
    }
}

/// The cgroup2 mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) struct Unified {
    pub(in crate::doctor) hierarchy: Hierarchy,
    /// `cgroup.controllers`: what is to be had.
    pub(in crate::doctor) available: Vec<String>,
    /// `cgroup.subtree_control`: what groups below have.
    pub(in crate::doctor) enabled: Vec<String>,
    /// Whether `cgroup.subtree_control` may be written.
    pub(in crate::doctor) delegable: Reading<()>,
    /// Processes live in the mount's own group and it is not the hierarchy's real root, so
    /// that controllers cannot be enabled below (cgroup-v2.rst, "No Internal Process
    /// Constraint").
    pub(in crate::doctor) internal_processes: bool,
    /// Devices ("8:0") with `enable=1` in `io.cost.qos`.
    pub(in crate::doctor) iocost: Vec<String>,
}

/// Files that exist if the kernel can do something, and, for those that groups only have
/// with a controller, whether there is a group to look at.
const FILES: [&str; 8] = [
    "cpu.idle",
    "cpu.shares",
    "cpu.weight",
    "cpu.pressure",
    "io.stat",
    "io.bfq.weight",
    "blkio.throttle.io_serviced",
    "blkio.bfq.weight",
];

/// Groups looked at below a mount: they are alike, a few suffice.
const CHILDREN: usize = 32;

/// Path of the LRS root below the mount.
pub(in crate::doctor) fn root_name<'a>(config: &'a Config, services: &Services) -> &'a str {
    match &config.cgroup.root {
        Auto::Auto if services.use_scope(config) => crate::systemd::SCOPE_PATH,
        Auto::Auto => "lrs",
        Auto::Fixed(root) => &root.0,
    }
}

pub(in crate::doctor) fn read(
    proc: &Path,
    sys: &Path,
    config: &Config,
    services: &Services,
) -> Reading<Cgroups> {
    let mounts = Mounts::read_file(&proc.join("self/mountinfo")).map_err(|e| e.to_string())?;
    let root = root_name(config, services);
    let own = OwnGroups::read_file(&proc.join("self/cgroup"));
    let own = own.map_err(|error| error.to_string())?;
    let mut cgroups = Cgroups::default();
    for mount in mounts.iter() {
        let dir = below_sys(&mount.point, sys);
        match &mount.controllers {
            Some(_) => cgroups.v1.push(hierarchy(mount, &dir, &own, root)),
            None if cgroups.v2.is_none() => {
                let hierarchy = hierarchy(mount, &dir, &own, root);
                cgroups.v2 = Some(unified(&dir, hierarchy));
            }
            None => {}
        }
    }
    Ok(cgroups)
}

/// Mounts below /sys move with its root; others are taken as they are.
pub(super) fn below_sys(dir: &Path, sys: &Path) -> PathBuf {
    match dir.strip_prefix("/sys") {
        Ok(below) => sys.join(below),
        Err(_) => dir.to_owned(),
    }
}

fn hierarchy(mount: &Mount, dir: &Path, own: &OwnGroups, root: &str) -> Hierarchy {
    let seen = |dirs: &[PathBuf]| -> Vec<&'static str> {
        let seen = |file: &&str| dirs.iter().any(|dir| dir.join(file).exists());
        FILES.into_iter().filter(seen).collect()
    };
    let below: Vec<PathBuf> = match std::fs::read_dir(dir) {
        Ok(entries) => entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir())
            .take(CHILDREN)
            .collect(),
        // No children to look at; why is seen where the LRS root would be made.
        Err(_) => Vec::new(),
    };
    let root = dir.join(root);
    Hierarchy {
        point: mount.point.clone(),
        controllers: mount.controllers.clone().unwrap_or_default(),
        usable: usable(&root).and_then(|()| match mount.controllers {
            Some(_) => Ok(()),
            None => obstacle::no_thread_root(nearest(&root)),
        }),
        in_sight: own.in_sight(mount),
        root: place(&root),
        own_files: seen(&[dir.to_owned()]),
        child_files: seen(&below),
    }
}

fn unified(dir: &Path, hierarchy: Hierarchy) -> Unified {
    // Each of these files is missing somewhere (the real root has no cgroup.type, io.cost.qos
    // comes with a kernel option); then there is nothing in them.
    let words = |file: &str| -> Vec<String> {
        let text = std::fs::read_to_string(dir.join(file)).unwrap_or_default();
        text.split_whitespace().map(str::to_owned).collect()
    };
    let qos = std::fs::read_to_string(dir.join("io.cost.qos")).unwrap_or_default();
    Unified {
        available: words("cgroup.controllers"),
        enabled: words("cgroup.subtree_control"),
        delegable: writable(&dir.join("cgroup.subtree_control")),
        internal_processes: dir.join("cgroup.type").exists() && !words("cgroup.procs").is_empty(),
        iocost: crate::cgroup::probe::iocost_devices(&qos),
        hierarchy,
    }
}

/// Whether the LRS root may be made at `root`, and its groups filled.
fn usable(root: &Path) -> Result<(), Obstacle> {
    let asked = rustix::fs::access(nearest(root), Access::WRITE_OK);
    asked.map_err(|errno| obstacle::unusable(root, &errno.into()))
}

/// The hierarchy that carries the CPU controller for this configuration.
pub(in crate::doctor) enum Carrier<'a> {
    V2(&'a Unified),
    V1(&'a Hierarchy),
}

impl Carrier<'_> {
    /// The hierarchy as a mount.
    pub(in crate::doctor) fn hierarchy(&self) -> &Hierarchy {
        match self {
            Carrier::V2(unified) => &unified.hierarchy,
            Carrier::V1(hierarchy) => hierarchy,
        }
    }
}

/// Chosen as the daemon does.
pub(in crate::doctor) fn carrier<'a>(cgroups: &'a Cgroups, config: &Config) -> Option<Carrier<'a>> {
    let has_cpu = |unified: &&Unified| unified.available.iter().any(|name| name == "cpu");
    let v2 = cgroups.v2.as_ref().filter(has_cpu);
    let v1 = cgroups.v1_with("cpu");
    match mounts::carrier(wanted(config), v2.is_some(), v1.is_some())? {
        Version::V2 => v2.map(Carrier::V2),
        Version::V1 => v1.map(Carrier::V1),
    }
}

/// The version that the configuration asks for.
pub(in crate::doctor) fn wanted(config: &Config) -> Option<Version> {
    match config.cgroup.version {
        Auto::Auto => None,
        Auto::Fixed(version) => Some(version),
    }
}
