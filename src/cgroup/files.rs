//! Reading and writing the small files of cgroupfs, with errors that name the file and the
//! value.
//!
//! Values are written in one write(2) to a file that must exist: cgroupfs takes a whole value
//! a write, and creating or truncating is never meant here.

use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use super::CgroupError;
pub(super) use crate::core::weights::number;

/// Longest value file that is read in one go: a number, a word, or the `default N` line that
/// begins a per-device file.
const VALUE_BYTES: usize = 128;

/// The first line of a value file. Three system calls, for the promotion path.
pub(super) fn read_value(path: &Path) -> io::Result<String> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [0u8; VALUE_BYTES];
    let length = rustix::io::read(&file, &mut buffer)?;
    let text = String::from_utf8_lossy(&buffer[..length]);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Like [`read_value`]; `None` when this kernel or controller has no such file.
pub(super) fn read_value_if_there(path: &Path) -> Result<Option<String>, CgroupError> {
    match read_value(path) {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(failed("read", path, None, error)),
    }
}

/// Like [`read_value_if_there`], with all lines of the file.
pub(super) fn read_lines_if_there(path: &Path) -> Result<Option<String>, CgroupError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(failed("read", path, None, error)),
    }
}

/// The number in a value file, `default N` included.
pub(super) fn read_number(path: &Path) -> Result<u64, CgroupError> {
    let value = read_value(path).map_err(|error| failed("read", path, None, error))?;
    number(&value).ok_or_else(|| {
        let error = io::Error::new(io::ErrorKind::InvalidData, format!("no number in {value:?}"));
        failed("read", path, None, error)
    })
}

/// Writes `value` to an existing file.
pub(super) fn write_value(path: &Path, value: &str) -> Result<(), CgroupError> {
    write_raw(path, value).map_err(|error| failed("write", path, Some(value), error))
}

/// Makes the number in `path` `value`, unless it is.
pub(super) fn write_number(path: &Path, value: u64) -> Result<(), CgroupError> {
    if read_number(path)? == value {
        return Ok(());
    }
    write_value(path, &value.to_string())
}

/// Like [`write_value`] with the bare error, for callers that sort errors by kind.
pub(super) fn write_raw(path: &Path, value: &str) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    let written = rustix::io::write(&file, value.as_bytes())?;
    if written == value.len() {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::WriteZero, format!("only {written} bytes were taken")))
    }
}

/// The whole text of a list file.
pub(super) fn read_text(path: &Path) -> Result<String, CgroupError> {
    std::fs::read_to_string(path).map_err(|error| failed("read", path, None, error))
}

/// Whether `word` is among the words of a list file.
pub(super) fn has_word(text: &str, word: &str) -> bool {
    text.split_ascii_whitespace().any(|found| found == word)
}

/// A group or process went away between two steps: ENOENT from the path, ENODEV from a
/// cgroupfs file that was open or looked up while its group was removed.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV))
}

/// [`CgroupError::Io`].
pub(super) fn failed(
    action: &'static str,
    path: &Path,
    value: Option<&str>,
    source: io::Error,
) -> CgroupError {
    CgroupError::Io { action, path: path.to_owned(), value: value.map(str::to_owned), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_files_are_written_and_errors_name_file_and_value() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpu.weight");
        let error = write_value(&path, "7").unwrap_err().to_string();
        assert!(error.contains("cpu.weight") && error.contains("\"7\""), "{error}");
        assert!(!path.exists());
        std::fs::write(&path, "default 100\n8:0 300\n").unwrap();
        assert_eq!(read_number(&path).unwrap(), 100);
        assert_eq!(read_value_if_there(&dir.path().join("none")).unwrap(), None);
    }
}
