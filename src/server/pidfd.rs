//! Which process a pidfd means, and in which pid namespace it is.
//!
//! The kernel tells the pid in `/proc/self/fdinfo/FD` (pidfd_open(2)). What else is to be known is
//! read next and the pidfd looked at last: if its process lives then, it lived all the while, so
//! all of that is its own.
//!
//! `NSpid` of `/proc/PID/status` lists the pids of a process from the pid namespace of /proc, which is
//! lrsd's, inwards (proc_pid_status(5)). One alone: the process is in lrsd's own. Unlike
//! /proc/PID/ns/pid everybody may read that.

use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::command::{Caller, CallerProcess, CommandError, ErrorKind};
use crate::kernfs::files::is_gone;
use crate::kernfs::parse;
use crate::kernfs::process::Stat;
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
    let pid = pid_of(pidfd)?;
    let process = ProcessRef { pid, start_ticks: start_ticks(pid)? };
    lives(pidfd, pid)?;
    Ok(process)
}

/// The process behind `pidfd`, which asks.
pub(super) fn caller(pidfd: impl AsFd) -> CallerProcess {
    let pidfd = pidfd.as_fd();
    let looked_at = || -> Result<CallerProcess, CommandError> {
        let pid = pid_of(pidfd)?;
        let process = ProcessRef { pid, start_ticks: start_ticks(pid)? };
        let status = read(pid, "status")?;
        lives(pidfd, pid)?;
        // Left out by a kernel without pid namespaces (CONFIG_PID_NS).
        let pids = parse::status_field(&status, b"NSpid:");
        let namespaces = pids.map_or(1, |pids| {
            pids.split(u8::is_ascii_whitespace).filter(|pid| !pid.is_empty()).count()
        });
        Ok(match namespaces {
            1 => CallerProcess::Here(process),
            _ => CallerProcess::Inside(process),
        })
    };
    match looked_at() {
        Ok(caller) => caller,
        Err(error) => match error.kind {
            ErrorKind::NotFound => CallerProcess::Ended,
            // Pid 0 or none: it is outside of this pid namespace.
            ErrorKind::InvalidArgument => CallerProcess::Unseen,
            _ => CallerProcess::Unknown(error.message),
        },
    }
}

/// The process with the number `pid`, which asks.
pub(super) fn caller_by_number(pid: Pid) -> CallerProcess {
    let Some(raw) = rustix::process::Pid::from_raw(pid.raw()) else {
        return CallerProcess::Unseen;
    };
    match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(pidfd) => caller(&pidfd),
        Err(rustix::io::Errno::SRCH) => CallerProcess::Ended,
        Err(errno) => CallerProcess::Unknown(format!(
            "cannot open a pidfd of process {pid}: {}",
            std::io::Error::from(errno)
        )),
    }
}

/// `caller` as it is now: a process that ended since it was looked at means nothing any more.
pub(super) fn still(caller: &Caller) -> Caller {
    let ended = match &caller.process {
        CallerProcess::Here(known) | CallerProcess::Inside(known) => {
            !start_ticks(known.pid).is_ok_and(|start_ticks| start_ticks == known.start_ticks)
        }
        CallerProcess::Unseen | CallerProcess::Ended | CallerProcess::Unknown(_) => false,
    };
    if ended {
        return Caller { process: CallerProcess::Ended, ..caller.clone() };
    }
    caller.clone()
}

fn pid_of(pidfd: BorrowedFd<'_>) -> Result<Pid, CommandError> {
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
    match pid(&info) {
        None => Err(no_pidfd()),
        Some(-1) => Err(ended()),
        Some(raw) => Pid::new(raw).ok_or_else(|| {
            invalid(
                "the process of the pidfd is not to be seen from the pid namespace of lrsd; ask \
                 from inside it",
            )
        }),
    }
}

fn read(pid: Pid, file: &str) -> Result<Vec<u8>, CommandError> {
    std::fs::read(format!("/proc/{pid}/{file}")).map_err(|error| {
        if is_gone(&error) {
            return ended();
        }
        CommandError::new(ErrorKind::Internal, format!("cannot read /proc/{pid}/{file}: {error}"))
    })
}

fn start_ticks(pid: Pid) -> Result<u64, CommandError> {
    match Stat::of(pid) {
        Ok(Some(stat)) => Ok(stat.start_ticks),
        Ok(None) => Err(ended()),
        Err(error) => {
            let what = format!("cannot read /proc/{pid}/stat: {error}");
            Err(CommandError::new(ErrorKind::Internal, what))
        }
    }
}

fn lives(pidfd: BorrowedFd<'_>, pid: Pid) -> Result<(), CommandError> {
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    match poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(0) => Ok(()),
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
        assert_eq!(caller(&pidfd), CallerProcess::Ended);
    }

    #[test]
    fn a_caller_is_here_while_it_lives() {
        let me = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let known = process(&me).unwrap();
        assert_eq!(caller(&me), CallerProcess::Here(known));
        assert_eq!(caller_by_number(known.pid), CallerProcess::Here(known));
        let asked_by = |process| Caller { uid: 1, gids: Vec::new(), process, granted: None };
        let me = asked_by(CallerProcess::Here(known));
        assert_eq!(still(&me), me);
        let reused = ProcessRef { start_ticks: known.start_ticks + 1, ..known };
        let ended = still(&asked_by(CallerProcess::Here(reused)));
        assert_eq!(ended.process, CallerProcess::Ended, "the number is another process's");
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
