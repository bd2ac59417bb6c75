//! The directories of a daemon and small files in them, written whole or not at all, and read only where no other user could have put or
//! changed them ([`crate::trust`]).

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
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

/// Makes the directory `path`, with those on the way, unless it is there, and looks at it and at
/// everything on the way to it. It may not be a link itself.
///
/// # Errors
/// As [`trust::check_path`].
pub fn make_dir(path: &Path) -> Result<(), StateError> {
    let refused = |objection| at(path, "trust", io::Error::other(objection));
    // Before anything is made below a directory of others.
    trust::check_path(path)?;
    // Also one that leads nowhere.
    if path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
        return Err(refused(trust::Objection::Kind("a symbolic link")));
    }
    // Whatever the umask.
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .map_err(|error| at(path, "create", error))?;
    let found = path.symlink_metadata().map_err(|error| at(path, "look at", error))?;
    if let Some(objection) = trust::objection(&found, &trust::own()) {
        return Err(refused(objection));
    }
    Ok(trust::check_path(path)?)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;
    use crate::trust::{Objection, objection_in};

    fn chmod(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_of_ones_own_is_made_and_is_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        make_dir(&at("a/b")).unwrap();
        make_dir(&at("a/b")).unwrap();
        assert_eq!(at("a/b").metadata().unwrap().mode() & 0o7777, 0o755);
        symlink("a", at("link")).unwrap();
        make_dir(&at("link/b")).unwrap();
        symlink("nowhere", at("broken")).unwrap();
        make_dir(&at("broken")).unwrap_err();
        let refused = make_dir(&at("link")).unwrap_err();
        assert_eq!(objection_in(&refused.source), Some(&Objection::Kind("a symbolic link")));
        chmod(&at("a"), 0o1777);
        make_dir(&at("a/b")).unwrap();
        let refused = make_dir(&at("a")).unwrap_err();
        assert_eq!(objection_in(&refused.source), Some(&Objection::Mode(0o1777)));
        chmod(&at("a"), 0o775);
        assert_eq!(make_dir(&at("a/c")).unwrap_err().path, at("a"));
        assert!(!at("a/c").exists());
    }
}
