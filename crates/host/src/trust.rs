//! Which files and directories a daemon trusts: those that only root or its own user could
//! have put there or changed.
//!
//! lrsd is root, and what it writes into a file that was planted, or believes of one, is done with
//! root's rights. So its files have to belong to root or to the user it runs as, and no other user
//! may write them; the same holds for every directory on the way, since whoever may write one can
//! put another file in the place of what is below. A directory for everybody with the sticky bit
//! (/tmp) is no danger to what another user than the attacker owns (unlink(2), rename(2)).
//!
//! A path is looked at from the root of the file system on, link by link. No other user can change
//! what was found good, so it can be opened by its path afterwards; what was not there may have come
//! since, so who opens it looks at its owner too. A file is opened without following a link and without
//! waiting, and looked at once it is open.
//!
//! Limits. With an access list the group's bits of a mode are its mask (acl(5)), so that they cover
//! it. In a user namespace without root's uid the directories of root's belong to the account
//! `nobody`, and are not trusted.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

/// Bits of a mode that let the group and others write.
const OTHERS_WRITE: u32 = 0o022;

/// Entries of a directory with it can be removed and renamed by their owners only.
const STICKY: u32 = 0o1000;

/// As many links as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Why a file or directory is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Objection {
    /// It belongs to this uid.
    Owner(u32),
    /// Others than its owner may write it, by this mode.
    Mode(u32),
    /// It is no regular file, or no directory where one has to be.
    Kind(&'static str),
    /// It is reached by so many names.
    Names(u64),
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Objection::Owner(uid) => {
                let me = rustix::process::geteuid().as_raw();
                write!(f, "it belongs to uid {uid}, which is neither root nor the daemon's ({me})")
            }
            Objection::Mode(mode) => {
                write!(f, "others than its owner may write it (mode {mode:o})")
            }
            Objection::Kind(kind) => write!(f, "it is {kind}"),
            Objection::Names(names) => {
                write!(f, "it has {names} names, so that it may be another's file")
            }
        }
    }
}

impl std::error::Error for Objection {}

impl Objection {
    /// What to do.
    pub fn remedy(&self) -> &'static str {
        match self {
            Objection::Owner(_) => {
                "look who put it there, then remove it or give it to root (chown root)"
            }
            Objection::Mode(_) => {
                "look who wrote it, then remove it or take their right (chmod go-w)"
            }
            Objection::Kind(_) | Objection::Names(_) => "look who put it there, then remove it",
        }
    }
}

/// Why what `found` is of could have been changed by others than `owners`.
pub fn objection(found: &Metadata, owners: &[u32]) -> Option<Objection> {
    if !owners.contains(&found.uid()) {
        return Some(Objection::Owner(found.uid()));
    }
    // The mode of a link means nothing.
    let writable = !found.is_symlink() && found.mode() & OTHERS_WRITE != 0;
    writable.then(|| Objection::Mode(found.mode() & 0o7777))
}

/// Root, and the user that this runs as.
pub fn own() -> [u32; 2] {
    [0, rustix::process::geteuid().as_raw()]
}

/// The objection that made an error of this module.
pub fn objection_in(error: &io::Error) -> Option<&Objection> {
    error.get_ref()?.downcast_ref()
}

/// Opens a file that is to be this daemon's alone.
///
/// # Errors
/// An [`Objection`] when it is a link, no regular file, another's, another's to write, or has a
/// second name.
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = options.custom_flags(flags()).open(path).map_err(|error| {
        let kind = std::fs::symlink_metadata(path).ok().and_then(|found| odd_kind(&found));
        match kind {
            // ELOOP of a link, ENXIO of a pipe or a socket, EISDIR.
            Some(kind) => io::Error::other(Objection::Kind(kind)),
            None => error,
        }
    })?;
    let found = file.metadata()?;
    let kind = odd_kind(&found).map(Objection::Kind);
    let names = || (found.nlink() > 1).then(|| Objection::Names(found.nlink()));
    match kind.or_else(|| objection(&found, &own())).or_else(names) {
        None => Ok(file),
        Some(objection) => Err(io::Error::other(objection)),
    }
}

/// Opens a regular file that anyone may have put there, to read it. A pipe may have no writer, and a device may
/// never end or do something when it is opened, so what it is is looked at before and after.
///
/// # Errors
/// Those of stat(2) and open(2); an [`Objection`] to what is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let regular = |found: Metadata| match odd_kind(&found) {
        Some(kind) => Err(io::Error::other(Objection::Kind(kind))),
        None => Ok(()),
    };
    regular(std::fs::metadata(path)?)?;
    let file =
        OpenOptions::new().read(true).custom_flags(without_waiting().bits() as i32).open(path)?;
    regular(file.metadata()?)?;
    Ok(file)
}

/// All that comes of a reader, in bytes.
///
/// # Errors
/// Those of reading; [`io::ErrorKind::FileTooLarge`] where there are more than `most` bytes.
pub fn read_whole(from: impl io::Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let what = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Opens a file to write it anew, or a pipe or a device as it is, and waits for no reader.
///
/// # Errors
/// Those of open(2); of a pipe also that no program reads from it; an [`Objection`] to a socket.
pub fn create_without_waiting(path: &Path) -> io::Result<File> {
    let flags = without_waiting().bits() as i32;
    let opened =
        OpenOptions::new().write(true).create(true).truncate(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(NXIO) => match std::fs::metadata(path).ok().and_then(|found| odd_kind(&found)) {
            Some("a pipe") => {
                io::Error::new(error.kind(), "it is a pipe from which no program reads")
            }
            // A socket, such as stdout of a service: it cannot be opened.
            Some(kind) => io::Error::other(Objection::Kind(kind)),
            None => error,
        },
        _ => error,
    })?;
    // Only the open may not wait.
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::empty())?;
    Ok(file)
}

const NXIO: i32 = rustix::io::Errno::NXIO.raw_os_error();

/// A pipe without another end is not waited for.
fn without_waiting() -> rustix::fs::OFlags {
    rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY
}

/// Nor is a link followed.
fn flags() -> i32 {
    (rustix::fs::OFlags::NOFOLLOW | without_waiting()).bits() as i32
}

/// What something is that is no regular file.
fn odd_kind(found: &Metadata) -> Option<&'static str> {
    let kind = found.file_type();
    Some(match () {
        () if kind.is_file() => return None,
        () if kind.is_dir() => "a directory",
        () if kind.is_symlink() => "a symbolic link",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    })
}

/// Looks at `path` and at everything on the way to it, links too. What is not there is not looked at.
///
/// # Errors
/// What is not to be believed, and why; or what cannot be looked at.
pub fn check_path(path: &Path) -> Result<(), Untrusted> {
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |source| Untrusted { path, source }
    };
    let whole = std::path::absolute(path).map_err(fail(path))?;
    let mut rest: VecDeque<OsString> = names(&whole).collect();
    let mut here = PathBuf::from("/");
    let mut links = 0;
    look(&here, &here.symlink_metadata().map_err(fail(&here))?)?;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&name);
        let found = match next.symlink_metadata() {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(fail(&next)(error)),
        };
        look(&next, &found)?;
        if !found.is_symlink() {
            here = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(fail(&next)(io::Error::from_raw_os_error(
                rustix::io::Errno::LOOP.raw_os_error(),
            )));
        }
        let target = next.read_link().map_err(fail(&next))?;
        if target.is_absolute() {
            here = PathBuf::from("/");
        }
        for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
            rest.push_front(name);
        }
    }
    Ok(())
}

fn names(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

fn look(path: &Path, found: &Metadata) -> Result<(), Untrusted> {
    let refused =
        |objection| Untrusted { path: path.to_owned(), source: io::Error::other(objection) };
    match objection(found, &own()) {
        Some(Objection::Mode(_)) if found.is_dir() && found.mode() & STICKY != 0 => Ok(()),
        Some(objection) => Err(refused(objection)),
        None => Ok(()),
    }
}

/// Something on the way to a file that is not to be believed, or cannot be looked at.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct Untrusted {
    /// It.
    pub path: PathBuf,
    /// Why; often an [`Objection`].
    pub source: io::Error,
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, create_dir, set_permissions, write};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_anyone_put_there_is_read_if_it_is_a_file_and_not_too_large() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let kind = |path: &Path| match objection_in(&open_regular(path).unwrap_err()) {
            Some(Objection::Kind(kind)) => *kind,
            other => panic!("{path:?}: {other:?}"),
        };
        let fifo = at("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        symlink(&fifo, at("link")).unwrap();
        assert_eq!((kind(&fifo), kind(&at("link"))), ("a pipe", "a pipe"));
        assert_eq!(
            (kind(directory.path()), kind(Path::new("/dev/zero"))),
            ("a directory", "a device")
        );
        assert_eq!(open_regular(&at("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);

        write(at("file"), "12345").unwrap();
        let read = |most| read_whole(open_regular(&at("file")).unwrap(), most);
        assert_eq!(read(5).unwrap(), b"12345");
        assert_eq!(read(u64::MAX).unwrap(), b"12345");
        let error = read(4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it has more than 4 bytes");

        let error = create_without_waiting(&fifo).unwrap_err().to_string();
        assert_eq!(error, "it is a pipe from which no program reads");
        let _listens = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let error = create_without_waiting(&at("socket")).unwrap_err().to_string();
        assert_eq!(error, "it is a socket");
        let reader = OpenOptions::new().read(true).custom_flags(flags()).open(&fifo).unwrap();
        let flags = rustix::fs::fcntl_getfl(create_without_waiting(&fifo).unwrap()).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "writes wait: {flags:?}");
        drop(reader);
        drop(create_without_waiting(&at("file")).unwrap());
        assert_eq!(std::fs::read(at("file")).unwrap(), b"");
    }

    #[test]
    fn a_file_counts_if_only_its_trusted_owner_can_write_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let objection_to = |mode: u32, owners: &[u32]| {
            chmod(file.path(), mode);
            objection(&file.as_file().metadata().unwrap(), owners)
        };
        assert_eq!(
            [0o600, 0o644, 0o755].map(|mode| objection_to(mode, &own())),
            [None, None, None]
        );
        for mode in [0o664, 0o646, 0o620, 0o602] {
            assert_eq!(objection_to(mode, &own()), Some(Objection::Mode(mode)));
        }
        let me = rustix::process::geteuid().as_raw();
        assert_eq!(objection_to(0o600, &[me + 1]), Some(Objection::Owner(me)));
    }

    #[test]
    fn every_directory_and_link_on_the_way_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["good", "open", "open/below", "sticky", "sticky/below"] {
            create_dir(at(name)).unwrap();
            // Whatever the umask is.
            chmod(&at(name), 0o755);
        }
        write(at("good/file"), "").unwrap();
        chmod(&at("good/file"), 0o644);
        chmod(&at("open"), 0o777);
        chmod(&at("sticky"), 0o1777);
        symlink("good", at("link")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink(at("open/below"), at("good/out")).unwrap();
        let bad = |name: &str| check_path(&at(name)).err().map(|bad| (bad.path, bad.source));
        for name in ["good/file", "link/file", "sticky/below/../x", "good/none/x", "./good/../good"]
        {
            assert!(bad(name).is_none(), "{name}");
        }
        for (name, place) in [
            ("open", "open"),
            ("open/below/x", "open"),
            ("good/out", "open"),
            ("link/out/x", "open"),
            ("sticky/below/../../open/x", "open"),
        ] {
            let (path, error) = bad(name).unwrap();
            assert_eq!(path, at(place), "{name}");
            assert_eq!(objection_in(&error), Some(&Objection::Mode(0o777)), "{name}");
        }
        assert_eq!(bad("loop").unwrap().1.raw_os_error(), Some(40));
    }

    #[test]
    fn what_is_no_file_of_ones_own_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let refused = |name: &str| {
            let error = open(&at(name), OpenOptions::new().read(true)).unwrap_err();
            objection_in(&error).cloned()
        };
        write(at("file"), "text").unwrap();
        chmod(&at("file"), 0o644);
        open(&at("file"), OpenOptions::new().read(true)).unwrap();
        symlink("file", at("link")).unwrap();
        create_dir(at("dir")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let mode = rustix::fs::Mode::from(0o600);
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), fifo, mode, 0).unwrap();
        for (name, kind) in [
            ("link", "a symbolic link"),
            ("dir", "a directory"),
            ("socket", "a socket"),
            ("pipe", "a pipe"),
        ] {
            assert_eq!(refused(name), Some(Objection::Kind(kind)), "{name}");
        }
        assert_eq!(refused("none"), None);
        std::fs::hard_link(at("file"), at("second")).unwrap();
        assert_eq!(refused("file"), Some(Objection::Names(2)));
        std::fs::remove_file(at("second")).unwrap();
        chmod(&at("file"), 0o666);
        assert_eq!(refused("file"), Some(Objection::Mode(0o666)));
    }
}
