//! In which groups the kernel says on which CPUs the tasks of LRS may run, and how much of them.

use std::path::{Path, PathBuf};

use super::CgroupError;
use super::mounts::Mounts;
use super::process::Membership;

/// Groups with the cpuset that LRS's tasks may have, nearest first: on v2 the group `root` and
/// those above it, on v1 the one in which lrsd was started and those above it. `membership` is the
/// file `/proc/PID/cgroup` of lrsd. The cpuset controller is in one hierarchy, so one half has no
/// files.
///
/// # Errors
/// `membership` cannot be read.
pub(crate) fn cpuset_dirs(
    mounts: &Mounts,
    root: &str,
    membership: &Path,
) -> Result<Vec<PathBuf>, CgroupError> {
    let mut dirs = Vec::new();
    if let Some(unified) = mounts.unified() {
        dirs.extend(upwards(&unified.dir("/"), &unified.dir(root)));
    }
    if let Some(cpuset) = mounts.cpuset()
        && let Some(path) =
            Membership::read_file(membership)?.as_ref().and_then(|m| m.path_in(&cpuset))
    {
        dirs.extend(upwards(&cpuset.dir("/"), &cpuset.dir(path)));
    }
    Ok(dirs)
}

/// `dir` and the directories above it up to `top`.
pub(super) fn upwards(top: &Path, dir: &Path) -> Vec<PathBuf> {
    dir.ancestors().take_while(|dir| dir.starts_with(top)).map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs(mountinfo: &str, cgroup: &str) -> Vec<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), cgroup).unwrap();
        let dirs =
            cpuset_dirs(&Mounts::parse(mountinfo.as_bytes()), "/lrs.slice/x", file.path()).unwrap();
        dirs.iter().map(|dir| dir.display().to_string()).collect()
    }

    #[test]
    fn on_v2_from_the_root_upwards() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(
            dirs(mounts, "0::/lrsd.slice/lrsd.service\n"),
            ["/sys/fs/cgroup/lrs.slice/x", "/sys/fs/cgroup/lrs.slice", "/sys/fs/cgroup"]
        );
    }

    #[test]
    fn on_v1_from_where_lrsd_was_started() {
        let mounts = "\
            32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            33 31 0:35 /docker/a /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
        let top = "/sys/fs/cgroup/cpuset";
        assert_eq!(
            dirs(mounts, "3:cpu:/x\n2:cpuset:/docker/a/batch\n"),
            [format!("{top}/batch"), top.to_owned()]
        );
        // Outside of what the mount shows.
        assert_eq!(dirs(mounts, "2:cpuset:/docker\n"), Vec::<String>::new());
        assert_eq!(dirs(mounts, "3:cpu:/x\n"), Vec::<String>::new());
    }
}
