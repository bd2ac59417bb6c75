//! One daemon for one runtime directory: an exclusive flock(2) on `<runtime_dir>/lock`.
//!
//! The kernel drops the lock when the daemon ends, however it ends. The file stays; its
//! content, the holder's pid, is for people.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::files::{StateError, at};
use crate::trust;

/// Held for as long as it lives.
#[derive(Debug)]
pub struct RuntimeLock {
    _file: File,
}

/// Why the lock was not had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another daemon has it.
    #[error("another lrsd (pid {pid}) uses the runtime directory {dir}; stop it, or give this one another daemon.runtime_dir", dir = dir.display())]
    Held {
        /// As its holder wrote it, or "unknown".
        pid: String,
        /// The directory.
        dir: PathBuf,
    },
    /// The file could not be used.
    #[error(transparent)]
    State(#[from] StateError),
}

impl RuntimeLock {
    /// Takes the lock of `dir`, which must exist.
    pub fn take(dir: &Path) -> Result<RuntimeLock, LockError> {
        let path = dir.join("lock");
        let mut options = OpenOptions::new();
        // Whoever can open it can lock it, for reading too (flock(2)): no other user may.
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file =
            trust::open(&path, &mut options).map_err(|error| at(&path, "open", error))?;
        let mode = file.metadata().map_err(|error| at(&path, "stat", error))?.mode() & 0o7777;
        if mode & 0o077 != 0 {
            let path = path.display();
            tracing::warn!(
                "{path} had mode {mode:o}, so that others could hold it and keep lrsd down; it gets \
                 600, which does not end what holds it already (`lsof {path}`)"
            );
            file.set_permissions(std::fs::Permissions::from_mode(0o600))
                .map_err(|error| at(&dir.join("lock"), "change the mode of", error))?;
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                let read = file.read_to_string(&mut pid).is_ok() && !pid.trim().is_empty();
                let pid = if read { pid.trim().to_owned() } else { "unknown".to_owned() };
                return Err(LockError::Held { pid, dir: dir.to_owned() });
            }
            Err(errno) => return Err(at(&path, "lock", errno.into()).into()),
        }
        let named = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(error) = named {
            // The lock is held all the same; on a full disk its holder stays nameless.
            let path = path.display();
            tracing::debug!(%path, %error, "our pid is not in {path}: {error}");
        }
        Ok(RuntimeLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_daemon_is_refused_with_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let held = RuntimeLock::take(dir.path()).unwrap();
        let Err(LockError::Held { pid, .. }) = RuntimeLock::take(dir.path()) else {
            panic!("two holders")
        };
        assert_eq!(pid, std::process::id().to_string());
        drop(held);
        RuntimeLock::take(dir.path()).unwrap();
    }

    #[test]
    fn no_other_user_can_open_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let mode = || path.metadata().unwrap().mode() & 0o7777;
        std::fs::write(&path, "7").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        drop(RuntimeLock::take(dir.path()).unwrap());
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        let error = RuntimeLock::take(dir.path()).unwrap_err().to_string();
        assert!(error.contains("mode 666") && error.contains("remove it"), "{error}");
    }

    #[test]
    fn what_was_planted_as_the_lock_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("lock"), dir.path().join("victim"));
        std::fs::write(&victim, "precious").unwrap();
        std::fs::set_permissions(&victim, std::fs::Permissions::from_mode(0o600)).unwrap();
        let refused = |words: &str| {
            let error = RuntimeLock::take(dir.path()).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("remove it"), "{error}");
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
            std::fs::remove_file(&path).unwrap();
        };
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        refused("is a symbolic link");
        std::fs::hard_link(&victim, &path).unwrap();
        refused("has 2 names");
        let mode = rustix::fs::Mode::from(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        refused("is a pipe");
        RuntimeLock::take(dir.path()).unwrap();
    }
}
