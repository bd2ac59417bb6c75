//! Whether the kernel still gives a thread or descriptors: libraries take them for granted and panic
//! without (tokio's runtime the pair of sockets for signals, and its pool its first thread).
//!
//! Limit. Another process, or thread, may take the last one between the look and the use.

use std::{fmt, io};

pub use lrs_core::errno::Explained;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

/// What tokio's first runtime of a process opens, and a socket for it to wait for.
const RUNTIME: usize = 8;

/// A runtime can be made.
///
/// # Errors
/// EMFILE, ENFILE: there are not enough descriptors left.
pub fn for_runtime() -> io::Result<()> {
    let one = || eventfd(0, EventfdFlags::CLOEXEC);
    let held: Result<Vec<_>, _> = (0..RUNTIME).map(|_| one()).collect();
    Ok(held.map(drop)?)
}

/// A thread can be started.
///
/// # Errors
/// EAGAIN: a limit of processes is reached (pids.max, RLIMIT_NPROC).
pub fn thread() -> io::Result<()> {
    let thread = std::thread::Builder::new().name("lrs-spare".to_owned()).spawn(|| ())?;
    // It does nothing, so it cannot have panicked.
    drop(thread.join());
    Ok(())
}

/// The same where a thread, or what it needs, was refused (clone(2)).
#[derive(Clone, Copy, Debug)]
pub struct NoThread<'e>(pub &'e io::Error);

impl fmt::Display for NoThread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Explained(self.0).fmt(f)?;
        match Errno::from_io_error(self.0) {
            Some(Errno::AGAIN) => f.write_str(
                ": pids.max of a cgroup above (TasksMax= of lrsd.service) or the limit of processes \
                 of its user (ulimit -u) is reached",
            ),
            _ => Ok(()),
        }
    }
}
