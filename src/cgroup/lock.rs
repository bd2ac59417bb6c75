//! One daemon for each cgroup root.
//!
//! The lock is flock(2) on the root directory itself. cgroupfs takes it (verified on v1 and
//! v2), the kernel drops it however the daemon ends, it needs no file anywhere else, and two
//! daemons in different mount or PID namespaces still meet when they mean the same root. Whoever
//! could take the lock could also write the weights, so it gives no one new powers.
//!
//! A root that lrsd made is marked with an extended attribute, so that a daemon started after
//! a `kill -9` still knows that it may remove it. Kernels without user attributes on cgroupfs
//! (before 5.7) forget it: the empty root then stays.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, XattrFlags};

use super::{CgroupError, files};

/// The mark on directories made by lrsd.
const MADE_BY_LRSD: &str = "user.lrs.made";

/// Held as long as the daemon uses the root.
#[derive(Debug)]
pub(super) struct RootLock {
    _directory: OwnedFd,
}

impl RootLock {
    /// Locks `root`. `Ok(None)`: the directory was removed meanwhile; make it again.
    pub(super) fn take(root: &Path) -> Result<Option<RootLock>, CgroupError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(root, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(files::failed("open", root, None, errno.into())),
        };
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(CgroupError::Refused(format!(
                    "another lrsd uses the cgroup root {}; stop it, or give this one its own \
                     cgroup.root and daemon.runtime_dir",
                    root.display()
                )));
            }
            Err(errno) => return Err(files::failed("lock", root, None, errno.into())),
        }
        // A daemon that was just closing may have removed the directory that is locked now.
        let locked = rustix::fs::fstat(&directory)
            .map_err(|e| files::failed("stat", root, None, e.into()))?;
        match rustix::fs::stat(root) {
            Ok(there) if (there.st_dev, there.st_ino) == (locked.st_dev, locked.st_ino) => {
                Ok(Some(RootLock { _directory: directory }))
            }
            Ok(_) | Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(errno) => Err(files::failed("stat", root, None, errno.into())),
        }
    }
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
/// said in the module's page.
fn mark(directory: &Path) {
    if let Err(errno) = rustix::fs::setxattr(directory, MADE_BY_LRSD, b"1", XattrFlags::empty()) {
        tracing::debug!(directory = %directory.display(), %errno, "cannot mark as made by lrsd");
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

/// Somebody has groups or processes there: leaving it is right, not an error.
fn is_in_use(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENOTEMPTY))
}

fn creation_failed(directory: &Path, error: io::Error) -> CgroupError {
    let remedy = match error.raw_os_error() {
        Some(libc::EROFS) => "the cgroup file system is mounted read-only: remount it writable",
        Some(libc::EACCES | libc::EPERM) => "run lrsd as root or have the group delegated to it",
        Some(libc::EAGAIN) => "cgroup.max.descendants or cgroup.max.depth of a parent is reached",
        _ => return files::failed("create", directory, None, error),
    };
    CgroupError::Unsupported(format!(
        "cannot create or use the cgroup {}: {error}; {remedy}, or set daemon.mode = \"observe\"",
        directory.display()
    ))
}
