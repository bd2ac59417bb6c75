//! One daemon for one runtime directory: an exclusive flock(2) on `<runtime_dir>/lock`.
//!
//! The kernel drops the lock when the daemon ends, however it ends. The file stays; its
//! content, the holder's pid, is for people.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::files::{StateError, at};

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
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            // Whoever can open it can lock it, for reading too (flock(2)): nobody else may.
            .mode(0o600)
            .open(&path)
            .map_err(|error| at(&path, "open", error))?;
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
    fn the_second_daemon_is_refused_and_told_who_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let held = RuntimeLock::take(dir.path()).unwrap();
        let Err(LockError::Held { pid, .. }) = RuntimeLock::take(dir.path()) else {
            panic!("two holders")
        };
        assert_eq!(pid, std::process::id().to_string());
        drop(held);
        RuntimeLock::take(dir.path()).unwrap();
    }
}
