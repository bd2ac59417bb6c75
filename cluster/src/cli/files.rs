//! The files that the commands are given: data of anyone's, so what is no regular file is refused before it is
//! opened, what is too large while it is read, and nothing is waited for. `-` is stdin.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a command reads and writes files"
)]

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::Path;

use lrs_host::trust::{create_without_waiting, objection_in, open_regular, read_whole};
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

/// A file that is empty until all is known that goes into it.
pub(super) struct Sink<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Sink<'a> {
    pub(super) fn create(path: &'a Path) -> Result<Sink<'a>, Failure> {
        Ok(Sink { path, file: create(path)? })
    }

    pub(super) fn write(mut self, text: &str) -> Result<(), Failure> {
        self.file.write_all(text.as_bytes()).map_err(|error| unwritable(self.path, &error))
    }
}
