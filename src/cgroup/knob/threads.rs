//! What each thread of a task is given, where no file of its cgroup does it: an I/O priority and a slice.
//!
//! Threads come and go under the walk: one that has ended is passed over, and one that
//! came meanwhile gets its own with the next walk.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::slice::{self, SliceLength};
use super::thread_priority;
use crate::cgroup::process::proc_file;
use crate::cgroup::{CgroupError, files};
use crate::core::model::Tier;
use crate::core::slice::Slice;
use crate::units::Pid;

/// What a thread is given.
#[derive(Clone, Copy, Debug)]
pub(in crate::cgroup) struct ThreadTier {
    /// The tier of its I/O priority, that of the active one being the thread's own; `None`: none was ever
    /// given.
    pub(in crate::cgroup) io: Option<Tier>,
    /// Its slice.
    pub(in crate::cgroup) slice: Slice,
    /// How long a long one is; `None`: none are given.
    pub(in crate::cgroup) length: Option<SliceLength>,
}

impl ThreadTier {
    /// What a thread has without LRS: only what carries a mark of LRS's is changed.
    pub(in crate::cgroup) const NEUTRAL: ThreadTier =
        ThreadTier { io: Some(Tier::Active), slice: Slice::Default, length: None };

    /// Gives it to every thread of `pids`; answers how many were changed.
    pub(in crate::cgroup) fn apply(self, pids: &[Pid]) -> Result<usize, CgroupError> {
        let mut changed = 0;
        for &pid in pids {
            // The process may have ended since it was listed.
            let Ok(threads) = fs::read_dir(proc_file(pid, "task")) else { continue };
            let ids =
                threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            changed += self.apply_to_threads(ids)?;
        }
        Ok(changed)
    }

    /// The same for threads that are known already.
    pub(in crate::cgroup) fn apply_to_threads(
        self,
        threads: impl IntoIterator<Item = libc::pid_t>,
    ) -> Result<usize, CgroupError> {
        let mut changed = 0;
        for thread in threads {
            if let Some(tier) = self.io {
                let priority = thread_priority::apply_to_thread(thread, tier);
                changed += usize::from(done("set the I/O priority of", thread, priority)?);
            }
            let slice = slice::apply_to_thread(thread, self.slice, self.length);
            changed += usize::from(done("set the slice of", thread, may_lack(slice))?);
        }
        Ok(changed)
    }
}

/// A daemon without CAP_SYS_NICE sets slices of its own user's threads alone. A task goes without one then,
/// for its tier does not depend on it.
fn may_lack(slice: io::Result<bool>) -> io::Result<bool> {
    match slice {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(false),
        known => known,
    }
}

/// Whether something was changed; a thread that has ended is no error.
fn done(
    action: &'static str,
    thread: libc::pid_t,
    outcome: io::Result<bool>,
) -> Result<bool, CgroupError> {
    match outcome {
        Ok(changed) => Ok(changed),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        Err(error) => {
            let path = PathBuf::from(format!("/proc/{thread}"));
            Err(files::failed(action, &path, None, error))
        }
    }
}
