//! What is below a directory.

use std::path::{Path, PathBuf};

use procfs::process::{MountInfo, Process};

/// Of loop devices (admin-guide/devices.txt).
const LOOP_MAJOR: &str = "7:";

/// File system, device and I/O scheduler below `directory`, for the description of the machine:
/// `ext4 on /dev/vda, mq-deadline`.
pub(crate) fn describe_directory(directory: &Path) -> String {
    let Some(mount) = mount_of(directory) else {
        return format!("unknown: /proc/self/mountinfo has no mount of {}", directory.display());
    };
    let source = mount.mount_source.as_deref().unwrap_or("no device");
    match scheduler(Path::new("/sys/dev/block"), &mount.majmin) {
        Some(scheduler) => format!("{} on {source}, {scheduler}", mount.fs_type),
        None => format!("{} on {source}, no I/O scheduler", mount.fs_type),
    }
}

/// The mount with the longest path above `directory`; of several at one place the last.
fn mount_of(directory: &Path) -> Option<MountInfo> {
    let directory = directory.canonicalize().ok()?;
    let mounts = Process::myself().and_then(|me| me.mountinfo()).ok()?;
    mounts
        .0
        .into_iter()
        .filter(|mount| directory.starts_with(&mount.mount_point))
        .max_by_key(|mount| mount.mount_point.components().count())
}

/// The scheduler file of the loop device that is mounted at `point`, an absolute path; `None`
/// where none is.
pub(super) fn scheduler_of_loop(point: &Path) -> Option<PathBuf> {
    // The directory above it is there without the disk.
    let point = point.parent()?.canonicalize().ok()?.join(point.file_name()?);
    let mounts = Process::myself().and_then(|me| me.mountinfo()).ok()?;
    let mount = mounts.0.into_iter().rfind(|mount| mount.mount_point == point)?;
    let is_loop = mount.majmin.starts_with(LOOP_MAJOR);
    is_loop.then(|| Path::new("/sys/dev/block").join(mount.majmin).join("queue/scheduler"))
}

/// The bracketed word of `queue/scheduler`; a partition's queue is its disk's.
fn scheduler(devices: &Path, number: &str) -> Option<String> {
    let device = devices.join(number).canonicalize().ok()?;
    let queue = |device: &Path| std::fs::read_to_string(device.join("queue/scheduler")).ok();
    let list = queue(&device).or_else(|| queue(device.parent()?))?;
    chosen(&list).map(str::to_owned)
}

/// The word in brackets of `queue/scheduler` (block/switching-sched.rst).
fn chosen(offered: &str) -> Option<&str> {
    offered.split_once('[')?.1.split_once(']').map(|(chosen, _)| chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_the_scheduler_of_its_disk() {
        let root = tempfile::tempdir().unwrap();
        let disk = root.path().join("sda");
        std::fs::create_dir_all(disk.join("queue")).unwrap();
        std::fs::create_dir_all(disk.join("sda1")).unwrap();
        std::fs::write(disk.join("queue/scheduler"), "none mq-deadline [bfq]\n").unwrap();
        std::os::unix::fs::symlink(&disk, root.path().join("8:0")).unwrap();
        std::os::unix::fs::symlink(disk.join("sda1"), root.path().join("8:1")).unwrap();
        let found = ["8:0", "8:1", "9:9"].map(|number| scheduler(root.path(), number));
        assert_eq!(found, [Some("bfq".to_owned()), Some("bfq".to_owned()), None]);
    }

    #[test]
    fn what_is_no_loop_device_has_no_scheduler_of_one() {
        assert_eq!(scheduler_of_loop(Path::new("/proc")), None, "another mount");
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(scheduler_of_loop(directory.path()), None, "no mount");
        assert_eq!(scheduler_of_loop(&directory.path().join("none/disk")), None);
    }

    #[test]
    fn every_directory_is_on_something() {
        let text = describe_directory(Path::new("/proc"));
        assert!(text.starts_with("proc on "), "{text}");
    }
}
