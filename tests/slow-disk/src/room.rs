//! Whether there is memory for the bytes of a disk.
//!
//! The whole disk may be written to, and its bytes are charged to the group of the server: beyond
//! that group's limit the kernel ends the server in the middle of a request.
//!
//! Limits: what others in the same group use is not subtracted, for most of it may be page cache.

use std::path::{Path, PathBuf};

use procfs::process::{MountInfo, Process};
use procfs::{Current, Meminfo, ProcessCGroup};

use lrs_core::units::Bytes;
use lrs_term::Failure;

/// The files with a group's limit in bytes: cgroup-v2.rst, and v1's memory.rst. Without one they
/// say `max`, or a number no machine has.
const LIMITS: [&str; 2] = ["memory.max", "memory.limit_in_bytes"];

/// Refuses a disk that memory or a limit on it would not hold.
pub(super) fn enough_memory(size: Bytes) -> Result<(), Failure> {
    // unknown before Linux 3.14
    let available = Meminfo::current().ok().and_then(|memory| memory.mem_available).map(Bytes);
    if let Some(available) = available.filter(|available| *available < size) {
        return Err(Failure::failed(format!(
            "the modelled disk needs up to {size} of memory, and {available} are available"
        ))
        .hint("a smaller `size` in [disk], or a node with more memory"));
    }
    match least(&memory_groups()) {
        Some((file, limit)) if limit < size => Err(Failure::failed(format!(
            "the modelled disk needs up to {size} of memory, and {} allows {limit}",
            file.display()
        ))
        .hint("a smaller `size` in [disk], or run it outside that group")),
        Some(_) | None => Ok(()),
    }
}

/// The smallest limit among `groups`, and the file that says it.
fn least(groups: &[PathBuf]) -> Option<(PathBuf, Bytes)> {
    let files = groups.iter().flat_map(|group| LIMITS.map(|file| group.join(file)));
    let limits = files.filter_map(|file| {
        let limit = std::fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        Some((file, Bytes(limit)))
    });
    limits.min_by_key(|(_, limit)| *limit)
}

/// The group that this process's memory is charged to, and those above it. None where procfs
/// does not say.
fn memory_groups() -> Vec<PathBuf> {
    let read = Process::myself().and_then(|me| Ok((me.cgroups()?, me.mountinfo()?)));
    let Ok((groups, mounts)) = read else { return Vec::new() };
    let above = |group: &ProcessCGroup| {
        let mount = mounts.iter().find(|mount| has_memory_of(mount, group))?;
        // Where a part of the hierarchy is mounted, paths begin above it.
        let below = Path::new(&group.pathname).strip_prefix(&mount.root).ok()?;
        Some(ancestors(&mount.mount_point, &mount.mount_point.join(below)))
    };
    groups.0.iter().filter_map(above).flatten().collect()
}

/// `group` and the groups above it, up to the mount.
fn ancestors(mount: &Path, group: &Path) -> Vec<PathBuf> {
    let up = group.ancestors().take_while(|group| group.starts_with(mount));
    up.map(Path::to_owned).collect()
}

fn has_memory_of(mount: &MountInfo, group: &ProcessCGroup) -> bool {
    match mount.fs_type.as_str() {
        "cgroup2" => group.hierarchy == 0,
        "cgroup" => {
            group.controllers.iter().any(|name| name == "memory")
                && mount.super_options.contains_key("memory")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let groups = ancestors(root.path(), &inner);
        assert_eq!(least(&groups), None);
        std::fs::write(inner.join("memory.max"), "max\n").unwrap();
        std::fs::write(root.path().join("a/memory.max"), "4096\n").unwrap();
        std::fs::write(root.path().join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        assert_eq!(least(&groups), Some((root.path().join("a/memory.max"), Bytes(4096))));
    }
}
