//! Where the cgroup hierarchies of this node are.
//!
//! cgroups-rs names the mount of each v1 controller; `/proc/self/mountinfo` (proc(5)) is read
//! beside it because cgroups-rs neither says whether a mount is read-only, nor finds a cgroup2
//! mount of a hybrid machine, nor decodes the octal escapes of mount points.
//!
//! Of v1 only the controllers of [`V1_CONTROLLERS`] are ever used, and `name=systemd` where
//! systemd runs as PID 1: moving a task in `memory`, `pids`, `devices` or `cpuset` would take it
//! out of limits that are none of our business.

use std::path::{Path, PathBuf};

use cgroups_rs::fs::Controllers;
use cgroups_rs::fs::hierarchies::V1;

use super::{CgroupError, files};

/// The v1 controllers in which groups are made and processes moved, primary first.
pub(super) const V1_CONTROLLERS: [&str; 4] = ["cpu", "cpuacct", "blkio", "freezer"];

/// Name of the cgroup2 hierarchy in [`super::GroupRecord::origin`].
pub(super) const UNIFIED: &str = "unified";

/// Name of systemd's own v1 hierarchy in [`super::GroupRecord::origin`].
pub(super) const SYSTEMD: &str = "name=systemd";

/// One line of mountinfo about a cgroup file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Where it is mounted.
    pub(super) point: PathBuf,
    /// Which directory of the hierarchy is seen at `point`; `/` unless it is a bind mount or
    /// an old-style container.
    pub(super) root: String,
    /// `None` on cgroup2; else the controllers and `name=` of this v1 hierarchy.
    pub(super) controllers: Option<Vec<String>>,
    /// Mounted read-only.
    pub(super) read_only: bool,
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
    /// Directory of the group `path` ("/lrs/x" or "lrs/x").
    pub(super) fn dir(&self, path: &str) -> PathBuf {
        self.mount.point.join(path.trim_start_matches('/'))
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

/// All cgroup mounts of this mount namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mounts(Vec<Mount>);

impl Mounts {
    /// Reads `/proc/self/mountinfo`.
    pub(super) fn read() -> Result<Mounts, CgroupError> {
        files::read_text(Path::new("/proc/self/mountinfo")).map(|text| Mounts::parse(&text))
    }

    /// From the text of mountinfo; lines about other file systems and torn lines are skipped.
    pub(super) fn parse(text: &str) -> Mounts {
        Mounts(text.lines().filter_map(parse_line).collect())
    }

    /// The cgroup2 mount; the first one where there are several.
    pub(super) fn unified(&self) -> Option<Hierarchy> {
        let mount = self.0.iter().find(|mount| mount.controllers.is_none())?;
        Some(Hierarchy { name: UNIFIED.to_owned(), controllers: Vec::new(), mount: mount.clone() })
    }

    /// The v1 hierarchies with a controller LRS uses, each once although controllers may be
    /// mounted together; the one with `cpu` first.
    pub(super) fn v1(&self) -> Vec<Hierarchy> {
        let found = V1::new();
        let mut hierarchies: Vec<Hierarchy> = Vec::new();
        for name in V1_CONTROLLERS {
            let Some((point, _)) = controller(name).and_then(|c| found.get_mount_point(c)) else {
                continue;
            };
            self.add(name, &point, &mut hierarchies);
        }
        hierarchies
    }

    /// systemd's named v1 hierarchy.
    pub(super) fn systemd(&self) -> Option<Hierarchy> {
        let mount = self.0.iter().find(|mount| {
            mount.controllers.as_ref().is_some_and(|names| names.iter().any(|n| n == SYSTEMD))
        })?;
        Some(Hierarchy {
            name: SYSTEMD.to_owned(),
            controllers: vec![SYSTEMD.to_owned()],
            mount: mount.clone(),
        })
    }

    fn add(&self, name: &str, point: &Path, hierarchies: &mut Vec<Hierarchy>) {
        if hierarchies.iter().any(|hierarchy| hierarchy.has(name)) {
            return;
        }
        let Some(mount) = self.0.iter().find(|mount| mount.point == point) else { return };
        let controllers = mount.controllers.clone().unwrap_or_default();
        hierarchies.push(Hierarchy { name: name.to_owned(), controllers, mount: mount.clone() });
    }
}

fn controller(name: &str) -> Option<Controllers> {
    match name {
        "cpu" => Some(Controllers::Cpu),
        "cpuacct" => Some(Controllers::CpuAcct),
        "blkio" => Some(Controllers::BlkIo),
        "freezer" => Some(Controllers::Freezer),
        _ => None,
    }
}

/// `31 23 0:28 ROOT POINT OPTIONS OPTIONAL... - TYPE SOURCE SUPER_OPTIONS`
fn parse_line(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let mut right = right.split(' ');
    let kind = right.next()?;
    let super_options = right.nth(1)?;
    let controllers = match kind {
        "cgroup2" => None,
        "cgroup" => Some(
            super_options
                .split(',')
                .filter(|option| !matches!(*option, "rw" | "ro") && !is_flag(option))
                .map(str::to_owned)
                .collect(),
        ),
        _ => return None,
    };
    let mut left = left.split(' ').skip(3);
    let root = unescape(left.next()?);
    let point = PathBuf::from(unescape(left.next()?));
    let options = left.next()?;
    let read_only = options.split(',').chain(super_options.split(',')).any(|o| o == "ro");
    Some(Mount { point, root, controllers, read_only })
}

/// Super options of cgroup v1 that are no controllers (cgroups(7), kernel cgroup-v1.c).
fn is_flag(option: &str) -> bool {
    option.starts_with("release_agent=")
        || matches!(
            option,
            "none" | "noprefix" | "clone_children" | "xattr" | "cpuset_v2_mode" | "seclabel"
        )
}

/// Undoes the kernel's `\040` style escapes of blank, tab, newline and backslash.
fn unescape(text: &str) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.as_bytes();
    while let Some((&first, rest)) = bytes.split_first() {
        let code = (first == b'\\')
            .then(|| rest.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                plain.push(byte);
                bytes = &rest[3..];
            }
            None => {
                plain.push(first);
                bytes = rest;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
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
        assert!(unified.is_unified() && !unified.mount.read_only);
        assert_eq!(unified.dir("/lrs/x"), Path::new("/sys/fs/cgroup/uni fied/lrs/x"));
        let systemd = mounts.systemd().unwrap();
        assert_eq!(systemd.mount.controllers, Some(vec!["name=systemd".to_owned()]));
    }

    #[test]
    fn controllers_mounted_together_are_one_hierarchy() {
        let mounts = Mounts::parse(HYBRID);
        let mut hierarchies = Vec::new();
        let point = Path::new("/sys/fs/cgroup/cpu,cpuacct");
        mounts.add("cpu", point, &mut hierarchies);
        mounts.add("cpuacct", point, &mut hierarchies);
        mounts.add("blkio", Path::new("/sys/fs/cgroup/blkio"), &mut hierarchies);
        mounts.add("freezer", Path::new("/not/a/mount"), &mut hierarchies);
        let names: Vec<_> = hierarchies.iter().map(|h| h.name.as_str()).collect();
        assert_eq!(names, ["cpu", "blkio"]);
        assert!(hierarchies[0].has("cpuacct"));
        assert!(hierarchies[1].mount.read_only);
        assert_eq!(hierarchies[1].mount.root, "/docker/abc");
    }

    #[test]
    fn escapes() {
        assert_eq!(unescape("a\\040b\\134"), "a b\\");
        assert_eq!(unescape("a\\04"), "a\\04");
        assert_eq!(unescape("\\999"), "\\999");
    }

    proptest::proptest! {
        #[test]
        fn any_text_parses_without_panic(text in "\\PC*( - cgroup2? )?\\PC*") {
            Mounts::parse(&text);
            unescape(&text);
        }
    }
}
