//! The files that the commands are given: data of anyone's, so what is no regular file is refused before it is
//! opened, what is too large while it is read, and nothing is waited for. `-` is stdin.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a command reads and writes files"
)]

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use lrs_host::trust::{create_without_waiting, objection_in, open_regular, own, read_whole};
use lrs_term::Failure;

/// Opens a file to read it.
pub(super) fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    Ok(Box::new(open_regular(path)?))
}

/// All of a file of up to so many bytes.
pub(super) fn read(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    open(path).and_then(|file| read_whole(file, most)).map_err(|error| unreadable(path, &error))
}

/// Why a file cannot be read, and what to do where it is no file.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let failure = Failure::failed(format!("cannot read {}: {error}", path.display()));
    match objection_in(error) {
        Some(_) => failure.hint("give the path of a regular file, or - for stdin"),
        None => failure,
    }
}

/// Opens a file to write it.
pub(super) fn create(path: &Path) -> Result<File, Failure> {
    create_without_waiting(path).map_err(|error| unwritable(path, &error))
}

/// Writes a file.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    Sink::create(path)?.write(text)
}

/// Why a file cannot be written.
pub(super) fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", path.display()))
}

/// A file that stays as it is until all is known that goes into it: a regular one is replaced as a whole
/// then, or written anew where it is another's, has several names or its directory takes no other file. What
/// is no regular file is open until then.
pub(super) struct Sink<'a> {
    path: &'a Path,
    to: To,
}

enum To {
    Opened(File),
    /// A regular file, to be emptied first.
    Kept(File),
    /// The file, past links, and its mode where there is one now.
    Replaced(PathBuf, Option<Permissions>),
}

impl<'a> Sink<'a> {
    /// What cannot be written is a failure now.
    pub(super) fn create(path: &'a Path) -> Result<Sink<'a>, Failure> {
        let is_named = !path.as_os_str().as_bytes().ends_with(b"/");
        let to = match (fs::metadata(path), fs::symlink_metadata(path)) {
            (Ok(found), _) if found.is_file() => existing(path, &found),
            (Err(error), Err(_)) if error.kind() == io::ErrorKind::NotFound && is_named => {
                try_beside(path, None).map(|()| To::Replaced(path.to_owned(), None))
            }
            _ => create_without_waiting(path).map(To::Opened),
        };
        let to = to.map_err(|error| unwritable(path, &error))?;
        Ok(Sink { path, to })
    }

    pub(super) fn write(self, text: &str) -> Result<(), Failure> {
        let written = match self.to {
            To::Opened(mut file) => file.write_all(text.as_bytes()),
            To::Kept(mut file) => file.set_len(0).and_then(|()| file.write_all(text.as_bytes())),
            To::Replaced(path, mode) => match replace(&path, mode.as_ref(), text) {
                // A mount of its own cannot be replaced, only written. After any other error the file stays as it was.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => fs::write(&path, text),
                replaced => replaced,
            },
        };
        written.map_err(|error| unwritable(self.path, &error))
    }
}

/// A regular file that is there.
fn existing(path: &Path, found: &Metadata) -> io::Result<To> {
    let file = OpenOptions::new().write(true).open(path)?;
    let is_ours = found.uid() == own()[1] && found.nlink() == 1;
    let mode = found.permissions();
    let path = path.canonicalize()?;
    Ok(match is_ours && try_beside(&path, Some(&mode)).is_ok() {
        true => To::Replaced(path, Some(mode)),
        false => To::Kept(file),
    })
}

/// Whether a file can be made in the directory of another.
fn try_beside(path: &Path, mode: Option<&Permissions>) -> io::Result<()> {
    let (beside, _) = open_beside(path, mode)?;
    fs::remove_file(beside)
}

/// A new file in the directory of another, of this process.
fn open_beside(path: &Path, mode: Option<&Permissions>) -> io::Result<(PathBuf, File)> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    let file = OpenOptions::new().write(true).create_new(true).open(&beside)?;
    if let Some(mode) = mode {
        file.set_permissions(mode.clone())?;
    }
    Ok((beside, file))
}

fn replace(path: &Path, mode: Option<&Permissions>, text: &str) -> io::Result<()> {
    let (beside, mut file) = open_beside(path, mode)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // What was wrong first is the fault.
        let _ = fs::remove_file(&beside);
    }
    written
}
