//! Where the cgroup hierarchies of this node are, and which of them carries the CPU controller.
//!
//! The one reader of `/proc/self/mountinfo` and the one rule of choice for the applier, observe
//! mode, finders and doctor. Read line by line with procfs's parser: a line of another file system
//! that it does not understand must not hide the cgroups.
//!
//! Of v1 only the controllers of [`V1_CONTROLLERS`] are ever used, and `name=systemd` where
//! systemd runs as PID 1: moving a task in `memory`, `pids`, `devices` or `cpuset` would take it
//! out of limits that are none of our business.

use std::path::{Path, PathBuf};

use procfs::process::MountInfo;

use super::{CgroupError, Version, files};
use crate::kernfs::name;

/// The v1 controllers in which groups are made and processes moved, primary first.
pub(crate) const V1_CONTROLLERS: [&str; 4] = ["cpu", "cpuacct", "blkio", "freezer"];

/// The v1 controller of which LRS only reads limits.
pub(super) const MEMORY: &str = "memory";

/// Name of the cgroup2 hierarchy in [`super::GroupRecord::origin`].
pub(super) const UNIFIED: &str = "unified";

/// Name of systemd's own v1 hierarchy in [`super::GroupRecord::origin`].
pub(super) const SYSTEMD: &str = "name=systemd";

/// Name of the v1 hierarchy of cpuset in `/proc/PID/cgroup`.
const CPUSET: &str = "cpuset";

/// One mounted cgroup file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Where it is mounted.
    pub(crate) point: PathBuf,
    /// Which directory of the hierarchy is seen at `point`; `/` unless it is a bind mount or
    /// an old-style container.
    pub(super) root: String,
    /// `None` on cgroup2; else those of [`V1_CONTROLLERS`], [`MEMORY`] and [`SYSTEMD`] of this v1
    /// hierarchy.
    pub(crate) controllers: Option<Vec<String>>,
    /// Whether it is the v1 hierarchy of cpuset, which is read and never written.
    pub(crate) has_cpuset: bool,
}

/// One hierarchy LRS works in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// First of its controllers, [`SYSTEMD`], or [`UNIFIED`].
    pub(super) name: String,
    /// All controllers mounted together here; empty on cgroup2.
    pub(super) controllers: Vec<String>,
    /// The mount.
    pub(super) mount: Mount,
}

impl Hierarchy {
    fn new(name: &str, mount: &Mount) -> Hierarchy {
        let controllers = mount.controllers.clone().unwrap_or_default();
        Hierarchy { name: name.to_owned(), controllers, mount: mount.clone() }
    }

    /// Directory of the group `path` ("/lrs/x" or "lrs/x").
    pub(super) fn dir(&self, path: &str) -> PathBuf {
        name::join(&self.mount.point, path.trim_start_matches('/'))
    }

    /// Whether this is cgroup2.
    pub(super) fn is_unified(&self) -> bool {
        self.mount.controllers.is_none()
    }

    /// Whether `controller` (v1) acts in this hierarchy.
    pub(super) fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }
}

/// The version with the hierarchy that carries the CPU controller: v2 where it is to be had,
/// unless `wanted` says otherwise. `None`: there is none.
pub(crate) fn carrier(wanted: Option<Version>, v2: bool, v1: bool) -> Option<Version> {
    let versions = [(Version::V2, v2), (Version::V1, v1)];
    let fits = |(version, there): &(Version, bool)| *there && wanted.is_none_or(|w| w == *version);
    versions.into_iter().find(fits).map(|(version, _)| version)
}

/// All cgroup mounts of this mount namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts(Vec<Mount>);

impl Mounts {
    /// Those of this process.
    pub(super) fn read() -> Result<Mounts, CgroupError> {
        Mounts::read_file(Path::new("/proc/self/mountinfo"))
    }

    /// From a file with the form of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
    pub(crate) fn read_file(mountinfo: &Path) -> Result<Mounts, CgroupError> {
        let bytes = std::fs::read(mountinfo)
            .map_err(|error| files::failed("read", mountinfo, None, error))?;
        Ok(Mounts::parse(&name::text(&bytes)))
    }

    /// From the text of mountinfo; lines about other file systems and torn lines are skipped.
    pub(super) fn parse(text: &str) -> Mounts {
        Mounts(text.lines().filter_map(parse_line).collect())
    }

    /// Each mount.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mount> {
        self.0.iter()
    }

    /// The cgroup2 mount; the first one where there are several.
    pub(super) fn unified(&self) -> Option<Hierarchy> {
        let mount = self.0.iter().find(|mount| mount.controllers.is_none())?;
        Some(Hierarchy::new(UNIFIED, mount))
    }

    /// The v1 hierarchies with a controller LRS uses, each once although controllers may be
    /// mounted together; the one with `cpu` first.
    pub(super) fn v1(&self) -> Vec<Hierarchy> {
        let mut hierarchies: Vec<Hierarchy> = Vec::new();
        for name in V1_CONTROLLERS {
            if !hierarchies.iter().any(|hierarchy| hierarchy.has(name)) {
                hierarchies.extend(self.v1_with(name));
            }
        }
        hierarchies
    }

    /// The v1 hierarchy of cpuset.
    pub(super) fn cpuset(&self) -> Option<Hierarchy> {
        let mount = self.0.iter().find(|mount| mount.has_cpuset)?;
        Some(Hierarchy::new(CPUSET, mount))
    }

    /// systemd's named v1 hierarchy.
    pub(super) fn systemd(&self) -> Option<Hierarchy> {
        self.v1_with(SYSTEMD)
    }

    /// The v1 hierarchy of memory.
    pub(super) fn memory(&self) -> Option<Hierarchy> {
        self.v1_with(MEMORY)
    }

    fn v1_with(&self, name: &str) -> Option<Hierarchy> {
        let has = |mount: &&Mount| mount.controllers.iter().flatten().any(|found| found == name);
        self.0.iter().find(has).map(|mount| Hierarchy::new(name, mount))
    }
}

fn parse_line(line: &str) -> Option<Mount> {
    // What is no cgroup is not worth the work, and there may be thousands of lines.
    if !line.contains(" - cgroup") {
        return None;
    }
    let mount = MountInfo::from_line(line).ok()?;
    let option = |name: &str| mount.super_options.get(name);
    let controllers = match mount.fs_type.as_str() {
        "cgroup2" => None,
        "cgroup" => {
            let known = V1_CONTROLLERS.into_iter().chain([MEMORY]);
            let used = known.filter(|name| option(name).is_some());
            let is_systemds = option("name").is_some_and(|name| name.as_deref() == Some("systemd"));
            Some(used.chain(is_systemds.then_some(SYSTEMD)).map(str::to_owned).collect())
        }
        _ => return None,
    };
    let point = name::join(Path::new(""), &unescape(mount.mount_point.to_str()?));
    let has_cpuset = mount.fs_type == "cgroup" && option(CPUSET).is_some();
    Some(Mount { point, root: unescape(&mount.root), controllers, has_cpuset })
}

/// Undoes the kernel's escapes (mangle() in fs/seq_file.c), which procfs leaves in; the one of the
/// backslash last.
fn unescape(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.into_iter().fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
33 31 0:35 /docker/abc /sys/fs/cgroup/blkio ro,relatime - cgroup cgroup rw,blkio
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/a,name=systemd
41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime - cgroup2 cgroup2 rw,nsdelegate
torn line - cgroup
";

    #[test]
    fn hybrid_machine() {
        let mounts = Mounts::parse(HYBRID);
        assert_eq!(mounts.0.len(), 4);
        let unified = mounts.unified().unwrap();
        assert_eq!(unified.mount.point, Path::new("/sys/fs/cgroup/uni fied"));
        assert!(unified.is_unified());
        assert_eq!(unified.dir("/lrs/x"), Path::new("/sys/fs/cgroup/uni fied/lrs/x"));
        let systemd = mounts.systemd().unwrap();
        assert_eq!(systemd.mount.controllers, Some(vec!["name=systemd".to_owned()]));
    }

    #[test]
    fn controllers_mounted_together_are_one_hierarchy() {
        let hierarchies = Mounts::parse(HYBRID).v1();
        let names: Vec<_> = hierarchies.iter().map(|h| h.name.as_str()).collect();
        assert_eq!(names, ["cpu", "blkio"]);
        assert!(hierarchies[0].has("cpuacct"));
        assert_eq!(hierarchies[1].mount.root, "/docker/abc");
    }

    #[test]
    fn v2_comes_first_where_it_has_the_controller() {
        use Version::{V1, V2};
        assert_eq!(carrier(None, true, true), Some(V2));
        assert_eq!(carrier(None, false, true), Some(V1));
        assert_eq!(carrier(Some(V1), true, true), Some(V1));
        assert_eq!(carrier(Some(V2), false, true), None);
        assert_eq!(carrier(None, false, false), None);
    }

    #[test]
    fn escapes() {
        assert_eq!(unescape("a\\040b\\134"), "a b\\");
        assert_eq!(unescape("a\\04"), "a\\04");
    }

    proptest::proptest! {
        #[test]
        fn any_text_parses_without_panic(text in "\\PC*( - cgroup2? )?\\PC*") {
            Mounts::parse(&text);
            unescape(&text);
        }
    }
}
