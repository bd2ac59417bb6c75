//! Which process a pidfd means.
//!
//! The kernel tells the pid in `/proc/self/fdinfo/FD` (pidfd_open(2)). The start time is read
//! next and the pidfd looked at last: if its process lives then, it lived all the while, so
//! pid and start time are its own.

use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::event::{PollFd, PollFlags, poll};

use crate::command::{CommandError, ErrorKind};
use crate::server::request::invalid;
use crate::units::{Pid, ProcessRef};

/// What the kernel tells of a pidfd has some hundred bytes.
const MAX_INFO_BYTES: u64 = 4096;

/// The process behind `pidfd`.
///
/// # Errors
/// InvalidArgument when the descriptor is none of a process seen from here, NotFound when the
/// process has ended.
pub(super) fn process(pidfd: impl AsFd) -> Result<ProcessRef, CommandError> {
    let pidfd = pidfd.as_fd();
    let no_pidfd = || invalid("the descriptor is no pidfd; make it with pidfd_open(2)");
    let failed = |path: &str, error: std::io::Error| {
        CommandError::new(ErrorKind::Internal, format!("cannot read {path}: {error}"))
    };
    let path = format!("/proc/self/fd/{}", pidfd.as_raw_fd());
    let target = std::fs::read_link(&path).map_err(|error| failed(&path, error))?;
    if !names_pidfd(target.as_os_str().as_bytes()) {
        return Err(no_pidfd());
    }
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let mut info = String::new();
    std::fs::File::open(&path)
        .and_then(|file| file.take(MAX_INFO_BYTES).read_to_string(&mut info))
        .map_err(|error| failed(&path, error))?;
    let pid = match pid(&info) {
        None => return Err(no_pidfd()),
        Some(-1) => return Err(ended()),
        Some(raw) => Pid::new(raw).ok_or_else(|| {
            invalid(
                "the process of the pidfd is not to be seen from the pid namespace of lrsd; ask \
                 from inside it",
            )
        })?,
    };
    let stat = procfs::process::Process::new(pid.raw()).and_then(|process| process.stat());
    let start_ticks = match stat {
        Ok(stat) => stat.starttime,
        Err(procfs::ProcError::NotFound(_)) => return Err(ended()),
        Err(error) => {
            return Err(CommandError::new(
                ErrorKind::Internal,
                format!("cannot read /proc/{pid}/stat: {error}"),
            ));
        }
    };
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    match poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(0) => Ok(ProcessRef { pid, start_ticks }),
        Ok(_) => Err(ended()),
        Err(errno) => Err(CommandError::new(
            ErrorKind::Internal,
            format!("cannot poll the pidfd of process {pid}: {errno}"),
        )),
    }
}

/// An inode of no file system before Linux 6.9, one of pidfs since. Others are not looked at
/// further: what the kernel tells of an inotify or epoll descriptor may be megabytes.
fn names_pidfd(target: &[u8]) -> bool {
    target == b"anon_inode:[pidfd]" || target.starts_with(b"pidfd:")
}

/// The number after `Pid:`; `None` where there is none, as for any other kind of descriptor.
fn pid(fdinfo: &str) -> Option<i32> {
    fdinfo.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}

fn ended() -> CommandError {
    CommandError::new(
        ErrorKind::NotFound,
        "the process of the pidfd has ended; give one of a running process",
    )
}

#[cfg(test)]
mod tests {
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::*;

    #[test]
    fn a_pidfd_names_its_process_while_it_lives() {
        let me = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        assert_eq!(process(&me).unwrap().pid.raw(), std::process::id() as i32);

        let mut child = std::process::Command::new("true").spawn().unwrap();
        let raw = rustix::process::Pid::from_child(&child);
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        assert_eq!(process(&pidfd).unwrap_err().kind, ErrorKind::NotFound);
    }

    #[test]
    fn another_descriptor_is_no_pidfd() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert_eq!(process(&file).unwrap_err().kind, ErrorKind::InvalidArgument);
        let eventfd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        assert_eq!(process(&eventfd).unwrap_err().kind, ErrorKind::InvalidArgument);
        assert!(names_pidfd(b"anon_inode:[pidfd]") && names_pidfd(b"pidfd:[4711]"));
        assert_eq!(pid("pos:\t0\nPid:\t-1\nNSpid:\t-1\n"), Some(-1));
        assert_eq!(pid("pos:\t0\nflags:\t02\n"), None);
    }
}
