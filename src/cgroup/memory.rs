//! The groups with the limits of memory that bound the tasks. They are only read: LRS writes no limit,
//! and on v1 moves nothing in `memory`.

use std::path::{Path, PathBuf};

use super::Version;
use super::mounts::Mounts;
use super::process::Membership;

/// Groups from where tasks live upwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryGroups {
    /// Which names the files have.
    pub version: Version,
    /// The nearest first. One without the files of `memory` has no limit.
    pub dirs: Vec<PathBuf>,
}

impl MemoryGroups {
    /// v2: tasks live in `root` (`/lrs`, or the mount's own group) of the hierarchy mounted at `mount`.
    pub(crate) fn v2(mount: &Path, root: &str) -> MemoryGroups {
        MemoryGroups { version: Version::V2, dirs: upwards(mount, root) }
    }

    /// v1: tasks live in the group of the process with this `/proc/PID/cgroup`, for LRS leaves them in
    /// the group of `memory` that they were started in. Where systemd started the daemon that is not the
    /// daemon's own, which has the limits of its service, but the one that everything descends
    /// from: init's. `None`: no `memory` is mounted.
    pub(crate) fn v1(mounts: &Mounts, cgroup_file: &Path) -> Option<MemoryGroups> {
        let memory = mounts.memory()?;
        // Outside of what the mount shows, its topmost group is what is known to be above.
        let member = Membership::read_file(cgroup_file).ok().flatten();
        let path = member.as_ref().and_then(|member| member.path_in(&memory)).unwrap_or("/");
        Some(MemoryGroups { version: Version::V1, dirs: upwards(&memory.mount.point, path) })
    }

    /// Those of a daemon: `root` is the one it makes groups in, `None` where it makes none.
    pub(super) fn of_daemon(
        version: Option<Version>,
        (mount, root): (&Path, Option<&str>),
        started_by_systemd: bool,
    ) -> Option<MemoryGroups> {
        match version? {
            Version::V2 => Some(MemoryGroups::v2(mount, root.unwrap_or("/"))),
            Version::V1 => MemoryGroups::v1(&Mounts::read().ok()?, cgroup_file(started_by_systemd)),
        }
    }
}

fn cgroup_file(started_by_systemd: bool) -> &'static Path {
    Path::new(if started_by_systemd { "/proc/1/cgroup" } else { "/proc/self/cgroup" })
}

fn upwards(mount: &Path, path: &str) -> Vec<PathBuf> {
    let path = path.trim_matches('/');
    let dir = if path.is_empty() { mount.to_owned() } else { mount.join(path) };
    dir.ancestors().take_while(|dir| dir.starts_with(mount)).map(Path::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(groups: &MemoryGroups) -> Vec<&str> {
        groups.dirs.iter().map(|dir| dir.to_str().unwrap()).collect()
    }

    #[test]
    fn on_v2_from_the_root_up_to_the_mount() {
        let groups = MemoryGroups::v2(Path::new("/cg"), "/lrs.slice/lrs-tasks.scope");
        assert_eq!(paths(&groups), ["/cg/lrs.slice/lrs-tasks.scope", "/cg/lrs.slice", "/cg"]);
        assert_eq!(paths(&MemoryGroups::v2(Path::new("/cg"), "/")), ["/cg"]);
    }

    #[test]
    fn on_v1_from_the_group_of_a_process_as_the_mount_shows_it() {
        let mounts = Mounts::parse(b"31 1 0:2 /box /cg/memory rw - cgroup cgroup rw,memory\n");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cgroup");
        for (text, expected) in [
            ("4:memory:/box/a/b\n1:cpu:/\n", vec!["/cg/memory/a/b", "/cg/memory/a", "/cg/memory"]),
            ("4:memory:/box\n", vec!["/cg/memory"]),
            ("4:memory:/elsewhere\n", vec!["/cg/memory"]),
            ("", vec!["/cg/memory"]),
        ] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(paths(&MemoryGroups::v1(&mounts, &file).unwrap()), expected, "{text}");
        }
        assert_eq!(MemoryGroups::v1(&Mounts::parse(b""), &file), None);
    }
}
