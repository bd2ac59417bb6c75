//! Files that are read again and again.
//!
//! Opening a cgroup file costs four to seven times as much as reading it (measured: 8 to 10 us
//! against 1.1 to 2.5 us), so files of the hot path stay open and are re-read with pread(2) from
//! offset 0, which makes procfs and kernfs produce their text anew. How many may stay open is
//! bounded ([`Descriptors`]): beyond that a file is opened for each reading, slower and
//! otherwise the same.
//!
//! A descriptor pins what it names: a removed cgroup answers ENODEV, an ended process ESRCH,
//! never the content of a successor under the same path.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use lrs_host::spare::Explained;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors left to everything else (sockets, pidfds, watches), at the least.
const HEADROOM: u64 = 1024;

/// What the descriptor limit allows, for status and doctor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// Soft limit as found.
    pub soft_before: u64,
    /// Soft limit now.
    pub soft: u64,
    /// Hard limit.
    pub hard: u64,
}

impl DescriptorLimit {
    /// How many files may be kept open: the limit less 1024, and never more than
    /// half of it, because each task also needs a pidfd, a watch and perhaps a client.
    pub fn sampler_budget(&self) -> u64 {
        self.soft.saturating_sub(HEADROOM).min(self.soft / 2)
    }
}

/// The descriptor limit could not be read or raised.
#[derive(Debug, thiserror::Error)]
#[error("{call}(RLIMIT_NOFILE) failed: {source}")]
pub struct LimitError {
    call: &'static str,
    source: io::Error,
}

/// Raises the soft limit of descriptors to the hard one (getrlimit(2), RLIMIT_NOFILE).
pub fn raise_descriptor_limit() -> Result<DescriptorLimit, LimitError> {
    let failed = |call| move |errno: nix::Error| LimitError { call, source: errno.into() };
    let (soft_before, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed("getrlimit"))?;
    if soft_before < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(failed("setrlimit"))?;
    }
    Ok(DescriptorLimit { soft_before, soft: hard.max(soft_before), hard })
}

/// The descriptors that files read again and again may keep. Clones share the count.
#[derive(Clone, Debug)]
pub struct Descriptors {
    free: Arc<AtomicU64>,
    budget: u64,
}

impl Descriptors {
    /// Room for `budget` kept files.
    pub fn new(budget: u64) -> Descriptors {
        Descriptors { free: Arc::new(AtomicU64::new(budget)), budget }
    }

    /// How many files may be kept open.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// How many are kept open now.
    pub fn kept(&self) -> u64 {
        self.budget.saturating_sub(self.free.load(Ordering::Relaxed))
    }

    fn take(&self) -> Option<Hold> {
        self.free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1))
            .ok()
            .map(|_| Hold(Arc::clone(&self.free)))
    }
}

/// One descriptor of the budget; given back when dropped.
#[derive(Debug)]
struct Hold(Arc<AtomicU64>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A file read again and again.
#[derive(Debug)]
pub struct KeptFile {
    path: PathBuf,
    open: Option<(File, Hold)>,
}

impl KeptFile {
    /// Opened at the first reading.
    pub fn new(path: PathBuf) -> KeptFile {
        KeptFile { path, open: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it says now, in `buffer`. After an error the next reading opens it anew.
    pub fn read<'b>(
        &mut self,
        descriptors: &Descriptors,
        buffer: &'b mut Vec<u8>,
    ) -> io::Result<&'b [u8]> {
        if let Some((file, _)) = &self.open {
            return match read_record(file, buffer) {
                Ok(length) => Ok(&buffer[..length]),
                Err(error) => {
                    self.open = None;
                    Err(error)
                }
            };
        }
        let file = File::open(&self.path)?;
        let length = read_record(&file, buffer)?;
        self.open = descriptors.take().map(|hold| (file, hold));
        Ok(&buffer[..length])
    }
}

/// Smallest buffer a file is read into: what the kernel gives for a small file in one go.
const BUFFER: usize = 16 * 1024;

/// Reads a file that the kernel writes as one record. One pread(2) when the buffer is large
/// enough: procfs and kernfs then give all of it.
fn read_record(file: &File, buffer: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        if buffer.len() < BUFFER {
            buffer.resize(BUFFER, 0);
        }
        let length = file.read_at(buffer, 0)?;
        if length < buffer.len() {
            return Ok(length);
        }
        buffer.resize(buffer.len() * 2, 0);
    }
}

/// Reads a file that the kernel gives a page of records at a time (cgroup.procs, /proc/diskstats).
pub fn read_list<'b>(path: &Path, buffer: &'b mut Vec<u8>) -> io::Result<&'b [u8]> {
    let file = File::open(path)?;
    let mut length = 0;
    loop {
        if buffer.len() < length + BUFFER {
            buffer.resize(length + BUFFER, 0);
        }
        match file.read_at(&mut buffer[length..], length as u64)? {
            0 => return Ok(&buffer[..length]),
            more => length += more,
        }
    }
}

/// Reads a small file once.
pub fn read_once<'b>(path: &Path, buffer: &'b mut Vec<u8>) -> io::Result<&'b [u8]> {
    let length = read_record(&File::open(path)?, buffer)?;
    Ok(&buffer[..length])
}

/// The cgroup or process ended between two readings, which happens to every task once: removed
/// cgroups answer ENODEV (open files) or ENOENT, ended processes ESRCH or ENOENT.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT) | Some(libc::ENODEV) | Some(libc::ESRCH) | Some(libc::ENOTDIR)
    )
}

/// The kernel was booted without PSI (EOPNOTSUPP on open), built without it (ENOENT), or it is
/// off for this group: its absence is a `None`, not as a problem of each reading.
pub fn is_without_psi(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP)) || is_gone(error)
}

/// Another user's process may not be looked into: in observe mode without rights that is
/// how most processes are, and `None` says so.
pub fn is_not_ours(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_file_shows_new_content_and_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("value");
        let descriptors = Descriptors::new(1);
        let mut buffer = Vec::new();
        let mut kept = KeptFile::new(path.clone());
        assert!(is_gone(&kept.read(&descriptors, &mut buffer).unwrap_err()));
        std::fs::write(&path, "1\n").unwrap();
        assert_eq!(kept.read(&descriptors, &mut buffer).unwrap(), b"1\n");
        std::fs::write(&path, "22\n").unwrap();
        assert_eq!(kept.read(&descriptors, &mut buffer).unwrap(), b"22\n");
        assert_eq!(descriptors.kept(), 1);

        // Beyond the budget a file still reads, and keeps nothing.
        let mut further = KeptFile::new(path.clone());
        assert_eq!(further.read(&descriptors, &mut buffer).unwrap(), b"22\n");
        assert!(further.open.is_none());
        assert_eq!(descriptors.kept(), 1);

        drop(kept);
        assert_eq!(descriptors.kept(), 0);
    }

    #[test]
    fn long_files_are_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long");
        let text = "x".repeat(3 * BUFFER + 17);
        std::fs::write(&path, &text).unwrap();
        let mut buffer = Vec::new();
        let mut kept = KeptFile::new(path.clone());
        assert_eq!(kept.read(&Descriptors::new(0), &mut buffer).unwrap(), text.as_bytes());
        assert_eq!(read_list(&path, &mut Vec::new()).unwrap(), text.as_bytes());
    }

    #[test]
    fn the_budget_leaves_headroom() {
        let limit = |soft| DescriptorLimit { soft_before: soft, soft, hard: soft };
        assert_eq!(limit(256).sampler_budget(), 0);
        assert_eq!(limit(1024).sampler_budget(), 0);
        assert_eq!(limit(1536).sampler_budget(), 512);
        assert_eq!(limit(20_000).sampler_budget(), 10_000);
    }

    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        let limit = raise_descriptor_limit().unwrap();
        assert_eq!(limit.soft, limit.hard);
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, limit.hard);
    }
}
