//! cgroups of our own: where they are, who is in them, and how they go.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};
use procfs::process::{MountInfo, Process};

/// Mounts of cgroup hierarchies (proc_pid_mountinfo(5)).
fn mounts() -> impl Iterator<Item = MountInfo> {
    let mounts = Process::myself().and_then(|me| me.mountinfo());
    let mounts = mounts.into_iter().flat_map(|mounts| mounts.0);
    mounts.filter(|mount| matches!(mount.fs_type.as_str(), "cgroup" | "cgroup2"))
}

/// Where the hierarchy with the cpu controller is mounted, and whether it is one of v1. `None`
/// without cgroups.
pub fn cpu_mount() -> Option<(PathBuf, bool)> {
    let has_cpu = |mount: &MountInfo| mount.super_options.contains_key("cpu");
    let v1 = mounts().find(|mount| mount.fs_type == "cgroup" && has_cpu(mount));
    let found = v1.or_else(|| mounts().find(|mount| mount.fs_type == "cgroup2"))?;
    Some((found.mount_point, found.fs_type == "cgroup"))
}

/// The directories of the cgroup root `root`, one in each hierarchy that has it.
pub fn root_dirs(root: &str) -> Vec<PathBuf> {
    let dirs = mounts().map(|mount| mount.mount_point.join(root));
    let mut dirs: Vec<PathBuf> = dirs.filter(|dir| dir.is_dir()).collect();
    // A hierarchy may be mounted twice at one place.
    dirs.dedup();
    dirs
}

/// The group and every group below it, the deepest first. A group that goes away meanwhile is
/// left out.
pub fn groups_below(group: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
    let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut found: Vec<PathBuf> = inner.flat_map(|entry| groups_below(&entry.path())).collect();
    found.push(group.to_owned());
    found
}

/// The processes of a group; none where it is gone.
pub fn members(group: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Ends who is left in a group of ours: a task's children survive it when all else is killed.
/// Answers whether there was anybody.
pub fn kill_members(group: &Path) -> bool {
    let mut members = members(group);
    members.retain(|pid| *pid > 1 && *pid != getpid().as_raw());
    for pid in &members {
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
    !members.is_empty()
}

/// Ends what runs in a tree of groups of ours and removes the tree; says what stays.
pub fn remove_groups(tree: &Path) -> Result<(), String> {
    let groups = groups_below(tree);
    for group in &groups {
        kill_members(group);
    }
    groups.iter().try_for_each(|group| remove_group(group))
}

/// A group stays busy for a moment after its last process, so it gets some time.
fn remove_group(group: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cgroup {} ({error})", group.display());
    let mut tries = 100;
    loop {
        match std::fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy && tries > 0 => {
                tries -= 1;
                kill_members(group);
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(failed(error)),
        }
    }
}
