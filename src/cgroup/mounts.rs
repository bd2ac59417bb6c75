//! Where the cgroup hierarchies of this node are, and which of them carries the CPU controller.
//!
//! The one reader of `/proc/self/mountinfo` and the one rule of choice for the applier, observe
//! mode, finders and doctor. A line that cannot be understood costs that line, never the cgroups.
//!
//! A mount that others cover is left out: paths lead to what is on top, and the kernel lists the
//! covered one first. The ids of parents (proc_pid_mountinfo(5)) show what covers a mount, at the
//! same place or at one above it; the order of lines does not, which is that of ids.
//!
//! Of v1 only the controllers of [`V1_CONTROLLERS`] are ever used, and `name=systemd` where
//! systemd runs as PID 1: moving a task in `memory`, `pids`, `devices` or `cpuset` would take it
//! out of limits that are none of our business.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

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
        Ok(Mounts::parse(&bytes))
    }

    /// From the text of mountinfo: the cgroup file systems that paths lead to, in its order.
    pub(super) fn parse(text: &[u8]) -> Mounts {
        let lines: Vec<Line> = text.split(|byte| *byte == b'\n').filter_map(Line::parse).collect();
        let seen = lines.iter().filter(|line| !line.is_covered(&lines));
        Mounts(seen.filter_map(Line::cgroups).collect())
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

/// One line of mountinfo: any mount, for any may cover another.
struct Line<'t> {
    id: u32,
    parent: u32,
    root: &'t [u8],
    point: PathBuf,
    kind: &'t [u8],
    options: &'t [u8],
}

impl Line<'_> {
    /// `None`: it does not have the documented form.
    fn parse(line: &[u8]) -> Option<Line<'_>> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = number(fields.next()?)?;
        let parent = number(fields.next()?)?;
        let _device = fields.next()?;
        let root = fields.next()?;
        let point = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
        // Options of the mount, then any number of tags, then a hyphen.
        fields.find(|field| *field == b"-")?;
        let kind = fields.next()?;
        let options = fields.nth(1).unwrap_or_default();
        Some(Line { id, parent, root, point, kind, options })
    }

    /// Whether no path leads to it: another mount is on top of it, or of a place above it.
    fn is_covered(&self, all: &[Line<'_>]) -> bool {
        // The root of all may be its own parent, and lies on nothing.
        let on = |id: u32| all.iter().filter(move |line| line.parent == id && line.id != id);
        if on(self.id).any(|other| other.point == self.point) {
            return true;
        }
        let mut mount = self;
        // As many steps as there are mounts: an odd file may go round in circles.
        for _ in all {
            let mut beside = on(mount.parent).filter(|other| other.id != mount.id);
            if beside.any(|other| mount.point.starts_with(&other.point)) {
                return true;
            }
            match all.iter().find(|other| other.id == mount.parent) {
                Some(parent) => mount = parent,
                None => return false,
            }
        }
        false
    }

    /// As a cgroup file system; `None` for any other.
    fn cgroups(&self) -> Option<Mount> {
        let mut words = self.options.split(|byte| *byte == b',');
        let controllers = match self.kind {
            b"cgroup2" => None,
            b"cgroup" => {
                let has = |name: &str| words.clone().any(|word| word == name.as_bytes());
                let known = V1_CONTROLLERS.into_iter().chain([MEMORY]);
                let used = known.filter(|name| has(name));
                let used: Vec<&str> = used.collect();
                let is_systemds = words.any(|word| word == SYSTEMD.as_bytes());
                Some(
                    used.into_iter()
                        .chain(is_systemds.then_some(SYSTEMD))
                        .map(str::to_owned)
                        .collect(),
                )
            }
            _ => return None,
        };
        let root = name::text(&unescape(self.root));
        let mut words = self.options.split(|byte| *byte == b',');
        let has_cpuset = self.kind == b"cgroup" && words.any(|word| word == CPUSET.as_bytes());
        Some(Mount { point: self.point.clone(), root, controllers, has_cpuset })
    }
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Undoes the kernel's escapes, a backslash and three octal digits (mangle() in fs/seq_file.c).
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| first == b'\\');
        let code =
            code.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match code {
            Some(byte) => {
                plain.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
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
43 31 0:36 / /sys/fs/cgroup/torn rw - cgroup2
44
";

    fn parse(text: &str) -> Mounts {
        Mounts::parse(text.as_bytes())
    }

    fn points(mounts: &Mounts) -> Vec<(&str, &str)> {
        mounts.iter().map(|mount| (mount.point.to_str().unwrap(), mount.root.as_str())).collect()
    }

    #[test]
    fn hybrid_machine() {
        let mounts = parse(HYBRID);
        assert_eq!(mounts.0.len(), 5, "a line without options is one of cgroup2 all the same");
        let unified = mounts.unified().unwrap();
        assert_eq!(unified.mount.point, Path::new("/sys/fs/cgroup/uni fied"));
        assert!(unified.is_unified());
        assert_eq!(unified.dir("/lrs/x"), Path::new("/sys/fs/cgroup/uni fied/lrs/x"));
        let systemd = mounts.systemd().unwrap();
        assert_eq!(systemd.mount.controllers, Some(vec!["name=systemd".to_owned()]));
    }

    #[test]
    fn controllers_mounted_together_are_one_hierarchy() {
        let hierarchies = parse(HYBRID).v1();
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

    /// What the kernel lists after `mount --bind /sys/fs/cgroup/cpu/sub /sys/fs/cgroup/cpu`.
    const BOUND: &str = "\
23 30 0:22 / /sys rw - sysfs sysfs rw
30 1 8:1 / / rw - ext4 /dev/sda1 rw
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
33 31 0:30 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio
50 32 0:29 /sub /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
51 33 0:31 / /sys/fs/cgroup/blkio rw - tmpfs tmpfs rw
";

    #[test]
    fn of_two_mounts_at_one_place_the_topmost_counts() {
        assert_eq!(points(&parse(BOUND)), [("/sys/fs/cgroup/cpu", "/sub")]);
        // Three high, and a mount that was moved to its place keeps its low id.
        let three = format!("{BOUND}9 50 0:29 /a /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n");
        assert_eq!(points(&parse(&three)), [("/sys/fs/cgroup/cpu", "/a")]);
    }

    #[test]
    fn what_covers_a_place_above_covers_all_below_it() {
        let covered = format!("{HYBRID}60 31 0:99 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n");
        assert_eq!(parse(&covered).0, [], "mounted on top of the directory they are in");
        let above = "\
30 1 8:1 / / rw - ext4 /dev/sda1 rw
32 30 0:29 / /c/cpu rw - cgroup cgroup rw,cpu
33 30 0:31 / /c rw - tmpfs tmpfs rw
34 33 0:29 / /c/cpu rw - cgroup cgroup rw,cpu
35 30 0:32 / /c/cpus rw - cgroup cgroup rw,blkio
";
        assert_eq!(points(&parse(above)), [("/c/cpu", "/")], "the upper one alone");
        // A neighbour with a name that begins alike, and a child, cover nothing.
        let beside = "\
30 1 8:1 / / rw - ext4 /dev/sda1 rw
32 30 0:29 / /c/cpu rw - cgroup cgroup rw,cpu
33 30 0:30 / /c/cpuacct rw - cgroup cgroup rw,cpuacct
34 32 0:31 / /c/cpu/x rw - tmpfs tmpfs rw
";
        assert_eq!(parse(beside).0.len(), 2);
    }

    #[test]
    fn odd_lines_cost_themselves() {
        let odd = b"1 1 0:2 / / rw - ext4 x rw\n7 7 0:1 / /l rw - cgroup2 c rw\nx\n\n\
                    8 1 0:3 / /m\xff rw - tmpfs t rw\n9 1 0:4 / /c rw a:1 b:2 - cgroup2 c\xfe rw\n";
        let mounts = Mounts::parse(odd);
        let points: Vec<_> = mounts.iter().map(|mount| mount.point.as_path()).collect();
        assert_eq!(points, [Path::new("/l"), Path::new("/c")], "its own parent covers nothing");
    }

    #[test]
    fn escapes() {
        assert_eq!(unescape(b"a\\040b\\134"), b"a b\\");
        assert_eq!(unescape(b"a\\04\\099\\777"), b"a\\04\\099\\777");
    }

    proptest::proptest! {
        #[test]
        fn any_text_parses_without_panic(text in "\\PC*( - cgroup2? )?\\PC*") {
            Mounts::parse(text.as_bytes());
            unescape(text.as_bytes());
        }

        /// Of a valid file with any bytes in one line more, the rest is read as before.
        #[test]
        fn a_line_of_any_bytes_hides_nothing(line in "[^\n]*") {
            let whole = format!("{line}\n{BOUND}");
            let found = Mounts::parse(whole.as_bytes());
            let expected = parse(BOUND);
            proptest::prop_assert!(expected.iter().all(|mount| found.iter().any(|m| m == mount)));
        }
    }
}
