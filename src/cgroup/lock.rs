//! One daemon for each cgroup root.
//!
//! The lock is flock(2) on a group of its own in the root, `lock`, which only its owner may open:
//! a lock on anything that everybody may open would let any user of the node keep the daemon
//! down. cgroupfs takes locks (verified on v1 and v2), the kernel drops them however the daemon
//! ends, and two daemons in different mount or PID namespaces still meet when they mean the
//! same root.
//!
//! A root that lrsd made is marked with an extended attribute, so that a daemon started after
//! a `kill -9` still knows that it may remove it. Kernels without user attributes on cgroupfs
//! (before 5.7) forget it: the empty root then stays.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, XattrFlags};

use super::{CgroupError, files, obstacle};

/// Name of the group that is locked.
pub(crate) const LOCK: &str = "lock";

/// The mark on directories made by lrsd.
const MADE_BY_LRSD: &str = "user.lrs.made";

/// Held as long as the daemon uses the root.
#[derive(Debug)]
pub(super) struct RootLock {
    directory: OwnedFd,
}

impl RootLock {
    /// Locks `root`. `Ok(None)`: the directory was removed meanwhile; make it again.
    pub(super) fn take(root: &Path) -> Result<Option<RootLock>, CgroupError> {
        let path = root.join(LOCK);
        let directory = match open_private(&path) {
            Ok(directory) => directory,
            Err(error) if files::is_gone(&error) => return Ok(None),
            Err(error) => return Err(creation_failed(&path, error)),
        };
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let who = holder(&directory).map(|pid| format!(" (pid {pid})"));
                return Err(CgroupError::Refused(format!(
                    "another lrsd{} uses the cgroup root {}; stop it, or give this one its own \
                     cgroup.root and daemon.runtime_dir",
                    who.unwrap_or_default(),
                    root.display()
                )));
            }
            Err(errno) => return Err(files::failed("lock", &path, None, errno.into())),
        }
        // A daemon that was just closing may have removed the directory that is locked now.
        let lock = RootLock { directory };
        Ok(lock.is_of(root).then_some(lock))
    }

    /// Whether `root` is still the root that this locks.
    pub(super) fn is_of(&self, root: &Path) -> bool {
        match (rustix::fs::fstat(&self.directory), rustix::fs::stat(root.join(LOCK))) {
            (Ok(locked), Ok(there)) => {
                (locked.st_dev, locked.st_ino) == (there.st_dev, there.st_ino)
            }
            // Gone, or not to be looked at: making it anew says which.
            _ => false,
        }
    }
}

/// Opens the directory `path`, made if it is not there, closed to everybody but its owner.
fn open_private(path: &Path) -> io::Result<OwnedFd> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => mark(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Removes the lock's group. The lock is still held then: whoever opened it before finds out
/// that it is not the root's any more.
pub(super) fn remove_lock(root: &Path) -> Result<(), CgroupError> {
    let path = root.join(LOCK);
    match std::fs::remove_dir(&path) {
        Ok(()) => Ok(()),
        Err(error) if files::is_gone(&error) => Ok(()),
        Err(error) => Err(files::failed("remove", &path, None, error)),
    }
}

/// The pid of the holder of the lock on `directory`, for people; `None` when the kernel does
/// not show it, because it is outside of this pid namespace or took the lock for another process.
fn holder(directory: &OwnedFd) -> Option<i32> {
    let stat = rustix::fs::fstat(directory).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    locks.lines().find_map(|line| flock_on(line, device, stat.st_ino))
}

/// The pid of a line of `/proc/locks` (proc(5)) if it is about a lock held on this inode:
/// `1: FLOCK  ADVISORY  WRITE 1234 00:1f:567 0 EOF`, device numbers in hexadecimal.
fn flock_on(line: &str, device: (u32, u32), inode: u64) -> Option<i32> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    if fields.next()? != "FLOCK" {
        return None;
    }
    let pid: i32 = fields.nth(2)?.parse().ok()?;
    let mut file = fields.next()?.split(':');
    let mut number = || u32::from_str_radix(file.next()?, 16).ok();
    let same = (number()?, number()?) == device && file.next()?.parse() == Ok(inode);
    (same && pid > 0).then_some(pid)
}

/// Makes the directory `path` below `mount`, parents included; those made are marked.
pub(super) fn make_root(mount: &Path, path: &str) -> Result<(), CgroupError> {
    let mut directory = mount.to_owned();
    for component in path.split('/').filter(|component| !component.is_empty()) {
        directory.push(component);
        match std::fs::create_dir(&directory) {
            Ok(()) => mark(&directory),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(creation_failed(&directory, error)),
        }
    }
    // One that was there before tells nothing about the rights to use it.
    let access = rustix::fs::access(directory.join("cgroup.procs"), rustix::fs::Access::WRITE_OK);
    match access {
        // Read-only or not ours: every admission would fail.
        Err(errno @ (rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS)) => {
            Err(creation_failed(&directory, errno.into()))
        }
        _ => Ok(()),
    }
}

/// Without the mark an empty root stays behind after a crash and a restart: harmless, and
/// described on the module's page.
fn mark(directory: &Path) {
    if let Err(errno) = rustix::fs::setxattr(directory, MADE_BY_LRSD, b"1", XattrFlags::empty()) {
        let directory = directory.display();
        tracing::debug!(%directory, %errno, "cannot mark {directory} as made by lrsd: {errno}");
    }
}

/// Whether lrsd made it.
pub(super) fn is_marked(directory: &Path) -> bool {
    rustix::fs::getxattr(directory, MADE_BY_LRSD, &mut [0u8; 8]).is_ok()
}

/// Removes `path` below `mount` and its parents as far as lrsd made them and they are empty.
pub(super) fn remove_root(mount: &Path, path: &str) -> Result<(), CgroupError> {
    let mut directory = mount.join(path.trim_start_matches('/'));
    while directory != mount && is_marked(&directory) {
        match std::fs::remove_dir(&directory) {
            Ok(()) => {}
            Err(error) if is_in_use(&error) => return Ok(()),
            Err(error) => return Err(files::failed("remove", &directory, None, error)),
        }
        if !directory.pop() {
            break;
        }
    }
    Ok(())
}

/// Others have groups or processes there: leaving it is right, not an error.
fn is_in_use(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENOTEMPTY))
}

fn creation_failed(directory: &Path, error: io::Error) -> CgroupError {
    match error.raw_os_error() {
        Some(libc::EROFS | libc::EACCES | libc::EPERM | libc::EAGAIN | libc::ENOSPC) => {
            obstacle::unusable(directory, &error).into()
        }
        _ => files::failed("create", directory, None, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_locks() {
        let line = "3: FLOCK  ADVISORY  WRITE 1234 00:1f:567 0 EOF";
        assert_eq!(flock_on(line, (0, 0x1f), 567), Some(1234));
        assert_eq!(flock_on(line, (0, 0x1f), 568), None);
        assert_eq!(flock_on(line, (1, 0x1f), 567), None);
        for other in [
            "3: -> FLOCK  ADVISORY  WRITE 9 00:1f:567 0 EOF", // waits for it
            "3: POSIX  ADVISORY  WRITE 9 00:1f:567 0 EOF",
            "3: FLOCK  ADVISORY  WRITE 0 00:1f:567 0 EOF", // of another pid namespace
            "3: FLOCK  ADVISORY",
            "",
        ] {
            assert_eq!(flock_on(other, (0, 0x1f), 567), None, "{other:?}");
        }
    }

    #[test]
    fn no_advice_to_root_to_become_root() {
        let error = io::Error::from_raw_os_error(libc::EACCES);
        let message = creation_failed(Path::new("/c/lrs"), error).to_string();
        let root = rustix::process::geteuid().is_root();
        assert_eq!(message.contains("security module"), root, "{message}");
        assert_eq!(message.contains("run lrsd as root"), !root, "{message}");
    }

    #[test]
    fn the_holder_is_named_where_the_kernel_tells() {
        let dir = tempfile::tempdir().unwrap();
        let held = RootLock::take(dir.path()).unwrap().unwrap();
        assert!(held.is_of(dir.path()));
        let again = RootLock::take(dir.path()).unwrap_err().to_string();
        // On an overlay file system the kernel lists the lock under another device.
        let who = holder(&held.directory).map(|pid| format!(" (pid {pid})"));
        let words = format!("another lrsd{} uses the cgroup root", who.unwrap_or_default());
        assert!(again.contains(&words), "{again}");
        remove_lock(dir.path()).unwrap();
        assert!(!held.is_of(dir.path()));
        assert!(RootLock::take(dir.path()).unwrap().is_some(), "made anew");
    }
}
