//! Small files, written whole or not at all, and read only where no other user could have put or
//! changed them ([`crate::trust`]).

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::trust;

/// What root can do about EACCES and EPERM, which the rights of files give it no reason for.
pub const REFUSED_TO_ROOT: &str = "a security module or a seccomp filter refuses it to root: \
    `ausearch -m avc -ts recent` or the kernel log has the denial of SELinux or AppArmor";

const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();
const ENFILE: i32 = rustix::io::Errno::NFILE.raw_os_error();

/// A read or write of a daemon's own directory that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}: {source}; {}", self.remedy(), path = path.display())]
pub struct StateError {
    /// What was tried.
    pub action: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// The kernel's answer.
    pub source: io::Error,
}

impl StateError {
    /// Whether the file is not believed ([`crate::trust`]), and not one that could not be read.
    pub fn is_objection(&self) -> bool {
        trust::objection_in(&self.source).is_some()
    }

    fn remedy(&self) -> &'static str {
        if let Some(objection) = trust::objection_in(&self.source) {
            return objection.remedy();
        }
        match self.source.kind() {
            io::ErrorKind::PermissionDenied if rustix::process::geteuid().is_root() => {
                REFUSED_TO_ROOT
            }
            io::ErrorKind::NotFound if self.path.starts_with("/proc") => {
                "/proc is not mounted, or mounted with subset=pid, which leaves out what lrsd needs \
                 to know of the node: mount it whole"
            }
            _ if matches!(self.source.raw_os_error(), Some(EMFILE | ENFILE)) => {
                "the limit of open files is reached: raise LimitNOFILE= of the service (ulimit -n), or \
                 fs.file-max"
            }
            _ => "check that the runtime directory exists, is writable and has room",
        }
    }
}

/// `action` on `path` failed.
pub fn at(path: &Path, action: &'static str, source: io::Error) -> StateError {
    StateError { action, path: path.to_owned(), source }
}

impl From<trust::Untrusted> for StateError {
    fn from(error: trust::Untrusted) -> StateError {
        at(&error.path, "trust", error.source)
    }
}

impl From<serde_json::Error> for StateError {
    fn from(error: serde_json::Error) -> StateError {
        at(Path::new("state"), "encode", io::Error::other(error))
    }
}

/// No record comes near it; a larger file is something else.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// Replaces `path` by a file with these bytes: a reader sees the old one or the new one.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), StateError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = path.with_file_name(name);
    let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
    let written = create()
        .or_else(|error| match error.kind() {
            // Half of a write that was killed; or no file at all, which is not to be opened.
            io::ErrorKind::AlreadyExists => {
                std::fs::remove_file(&temporary).and_then(|()| create())
            }
            _ => Err(error),
        })
        .and_then(|mut file| file.write_all(bytes))
        .map_err(|error| at(&temporary, "write", error))
        .and_then(|()| {
            std::fs::rename(&temporary, path).map_err(|error| at(path, "replace", error))
        });
    if written.is_err() {
        // Best effort on a disk that is full already; the next write removes the rest.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Removes a file; one that is gone already is fine.
pub fn remove(path: &Path) -> Result<(), StateError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(at(path, "remove", error))
        }
        _ => Ok(()),
    }
}

/// The whole file, up to a bound.
///
/// # Errors
/// Of a file that others could have put there or changed, too.
pub fn read(path: &Path) -> Result<Vec<u8>, StateError> {
    let mut bytes = Vec::new();
    let mut file = open(path)?.take(MAX_RECORD_BYTES);
    file.read_to_end(&mut bytes).map_err(|error| at(path, "read", error))?;
    Ok(bytes)
}

/// A file of any length, to be read in parts.
///
/// # Errors
/// As [`read`].
pub fn open(path: &Path) -> Result<BufReader<File>, StateError> {
    let file = trust::open(path, OpenOptions::new().read(true));
    file.map(BufReader::new).map_err(|error| at(path, "read", error))
}
