//! One process as the kernel shows it: its `stat`, its owner, and the pidfd that pins it.
//!
//! The one reader of these files for the loop, the applier, the sampler and the finders. The name
//! of a process is any 15 bytes, cut by the kernel in the middle of a letter or chosen by a thief,
//! so nothing here is decoded: fields are found by position, and numbers are read from bytes.
//!
//! [`PinError`] says "does not exist" only of what does not exist: a process that may not be seen,
//! one that has ended, and a daemon without descriptors have words of their own.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use super::files::Explained;
use super::parse::{number, status_field, words};
use crate::units::{BootTime, Pid, ProcessRef};

/// The fields of `/proc/PID/stat` (proc_pid_stat(5)) that anybody asks for, of a process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Letter of its state; of a process, that of its first thread.
    pub state: u8,
    /// Its parent's number; 0: none that can be seen.
    pub parent: i32,
    /// The number of its session's leader; -1: it is just ending.
    pub session: i32,
    /// `PF_*` of include/linux/sched.h.
    pub flags: u64,
    /// Threads that have not ended, and the first one until all have.
    pub threads: u32,
    /// When it began, in clock ticks since boot.
    pub start_ticks: u64,
    /// Scheduling policy (sched(7)) of the first thread.
    pub policy: Option<u32>,
}

/// `PF_KTHREAD` of include/linux/sched.h; part of the stat file's ABI since 2.6.
const PF_KTHREAD: u64 = 0x0020_0000;

/// `PF_EXITING`, likewise.
const PF_EXITING: u64 = 0x4;

impl Stat {
    /// The name may hold anything, also `)` and blanks: fields count from the last `)`. `None`: the
    /// text is not what the manual page says.
    pub fn parse(text: &[u8]) -> Option<Stat> {
        let name_end = text.iter().rposition(|&byte| byte == b')')?;
        let mut fields = words(text.get(name_end + 1..)?);
        Some(Stat {
            state: *fields.next()?.first()?, // field 3 of the manual page
            parent: signed(fields.next()?)?,
            session: signed(fields.nth(1)?)?, // 6
            flags: number(fields.nth(2)?)?,   // 9
            threads: u32::try_from(number(fields.nth(10)?)?).ok()?, // 20
            start_ticks: number(fields.nth(1)?)?, // 22
            policy: fields.nth(18).and_then(number).and_then(|policy| u32::try_from(policy).ok()), // 41
        })
    }

    /// That of process `pid`; `None`: it is gone.
    ///
    /// # Errors
    /// The file cannot be read, or is not what the manual page says (`InvalidData`).
    pub fn of(pid: Pid) -> io::Result<Option<Stat>> {
        match read_proc(&proc_file(pid, "stat")) {
            Ok(text) => Stat::parse(&text).map(Some).ok_or(io::ErrorKind::InvalidData.into()),
            Err(error) if vanished(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A thread of the kernel.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// The first thread has ended or is about to: the kernel takes no orders to move it.
    pub fn main_thread_ends(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') || self.flags & PF_EXITING != 0
    }

    /// All of it ends; a process still runs after its first thread alone has ended.
    pub fn ended(&self) -> bool {
        self.main_thread_ends() && self.threads <= 1
    }
}

fn signed(text: &[u8]) -> Option<i32> {
    let (sign, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    Some(sign * i32::try_from(number(digits)?).ok()?)
}

/// The name in a stat file, without its brackets.
fn name(stat: &[u8]) -> &[u8] {
    let place = |wanted| stat.iter().position(move |&byte| byte == wanted);
    let end = stat.iter().rposition(|&byte| byte == b')');
    place(b'(').zip(end).and_then(|(start, end)| stat.get(start + 1..end)).unwrap_or_default()
}

/// When `process` started, in time since boot.
pub fn started(process: ProcessRef) -> BootTime {
    let ticks = procfs::ticks_per_second().max(1);
    BootTime(Duration::from_micros(process.start_ticks.saturating_mul(1_000_000) / ticks))
}

/// `/proc/PID/FILE`.
pub fn proc_file(pid: Pid, file: &str) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(file)
}

/// A file of /proc or of a cgroup.
///
/// # Errors
/// It cannot be read; [`vanished`] tells whether the process is gone.
pub fn read_proc(path: &Path) -> io::Result<Vec<u8>> {
    // Beyond the longest such file, a list of as many pids as there can be (PID_MAX_LIMIT, 4 Mi of them).
    beginning(path, 1 << 26)
}

/// The first `most` bytes of such a file, in two read(2): it tells no size, and what fs::read does then
/// (asking for it, growing from 32 bytes on) is four system calls more.
///
/// # Errors
/// As of [`read_proc`].
pub fn beginning(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    const ROOM: usize = 4096;
    let mut text = Vec::with_capacity(ROOM);
    // With a limit the size is not asked for.
    std::fs::File::open(path)?.take(most as u64).read_to_end(&mut text)?;
    Ok(text)
}

/// ENOENT: no such process; ESRCH: it went while the file was open.
pub fn vanished(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// Why a process cannot be pinned.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// There is none of this number.
    #[error("process {0} does not exist; give the pid of a running process")]
    Absent(Pid),
    /// It is a zombie, without any other thread.
    #[error("process {0} has ended and only waits for its parent")]
    Ended(Pid),
    /// The number is a thread's.
    #[error(
        "{pid} is a thread, not a process; give the pid of its process{}",
        leader.map_or_else(|| format!(" (Tgid in /proc/{pid}/status)"), |leader| format!(", {leader}"))
    )]
    Thread {
        /// The number given.
        pid: Pid,
        /// Its process, as far as it is known.
        leader: Option<Pid>,
    },
    /// It runs, but not for this daemon's eyes (proc(5), `hidepid`).
    #[error(
        "process {0} runs, but /proc does not show it to lrsd: it is mounted with hidepid, or for \
         another pid namespace; run lrsd as root, or mount /proc without hidepid"
    )]
    Hidden(Pid),
    /// A thread of the kernel.
    #[error("process {pid} ({}) is a kernel thread and cannot be a task", super::name::text(name))]
    Kernel {
        /// Its number.
        pid: Pid,
        /// Its name.
        name: Vec<u8>,
    },
    /// No kernel that LRS runs on.
    #[error("this kernel has no pidfd_open; Linux 5.4 or newer is needed")]
    NoPidfd,
    /// The kernel refused.
    #[error("cannot {action} process {pid}: {}", Explained(source))]
    Failed {
        /// What was tried.
        action: &'static str,
        /// Of which process.
        pid: Pid,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Opens a pidfd of the living process `pid` and reads what it is. What was read is of the process
/// that is pinned.
///
/// # Errors
/// See [`PinError`].
pub fn pin(pid: Pid) -> Result<(OwnedFd, Stat), PinError> {
    let failed = |action| move |source| PinError::Failed { action, pid, source };
    let raw = rustix::process::Pid::from_raw(pid.raw()).ok_or(PinError::Absent(pid))?;
    let fd = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::SRCH) => return Err(PinError::Absent(pid)),
        Err(rustix::io::Errno::NOSYS) => return Err(PinError::NoPidfd),
        // The number is that of no first thread: ENOENT since Linux 6.15, EINVAL before.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {
            return Err(PinError::Thread { pid, leader: leader(pid) });
        }
        Err(errno) => return Err(failed("open a pidfd of")(errno.into())),
    };
    let mut looks = 0;
    loop {
        let text = match read_proc(&proc_file(pid, "stat")) {
            Ok(text) => text,
            Err(error) if vanished(&error) && has_exited(&fd) => return Err(PinError::Absent(pid)),
            Err(error) if vanished(&error) || is_forbidden(&error) => {
                return Err(PinError::Hidden(pid));
            }
            Err(error) => return Err(failed("read the stat file of")(error)),
        };
        let stat = Stat::parse(&text)
            .ok_or_else(|| failed("read the stat file of")(io::ErrorKind::InvalidData.into()))?;
        if stat.is_kernel_thread() {
            return Err(PinError::Kernel { pid, name: name(&text).to_vec() });
        }
        if !stat.ended() {
            return Ok((fd, stat));
        }
        looks += 1;
        // A thread that calls exec takes the place of the first one, of which the look may have
        // been, dead and alone by then: the pidfd knows that the process goes on.
        if looks == 2 || has_exited(&fd) {
            return Err(PinError::Ended(pid));
        }
    }
}

/// What `hidepid=1` answers; a security module may too.
fn is_forbidden(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}

/// Whether the process of a pidfd has exited: it turns readable then (pidfd_open(2)).
pub fn has_exited(pidfd: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    !matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

/// The process that `tid` is a thread of; `None`: not to be read, or gone.
fn leader(tid: Pid) -> Option<Pid> {
    let status = read_proc(&proc_file(tid, "status")).ok()?;
    Pid::new(i32::try_from(number(status_field(&status, b"Tgid:")?)?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_file_is_read_behind_any_name() {
        let stat =
            b"42 (a) R 1 (b\xc3) S 7 42 41 0 -1 2097216 1 0 0 0 2 3 0 0 -11 0 5 0 1234 1 1 1 \
            1 1 1 1 1 0 0 0 0 0 0 0 17 1 0 2 0 0 0\n";
        let read = Stat::parse(stat).unwrap();
        let expected = Stat {
            state: b'S',
            parent: 7,
            session: 41,
            flags: 2_097_216,
            threads: 5,
            start_ticks: 1234,
            policy: Some(2),
        };
        assert_eq!(read, expected);
        assert!(read.is_kernel_thread() && !read.ended());
        assert_eq!(name(stat), b"a) R 1 (b\xc3");
        for broken in ["", "42 (a", "42 (a) S", "42 (a) S x 42 41 0 -1 1 1", ")", "("] {
            assert_eq!(Stat::parse(broken.as_bytes()), None, "{broken}");
            name(broken.as_bytes());
        }
    }

    #[test]
    fn a_process_has_ended_with_its_last_thread() {
        let stat = |state: &str, flags: u64, threads: u32| {
            let text =
                format!("7 (x) {state} 1 7 -1 0 -1 {flags} 1 0 0 0 2 3 0 0 20 0 {threads} 0 9");
            Stat::parse(text.as_bytes()).unwrap()
        };
        let ended = |state, threads| stat(state, 0, threads).ended();
        assert!(ended("Z", 1) && ended("X", 0) && ended("x", 1));
        assert!(!ended("Z", 2) && !ended("S", 1));
        // In do_exit(): out of its cgroup, still `R`, its pidfd not readable yet.
        assert!(stat("R", PF_EXITING, 1).ended() && !stat("R", PF_EXITING, 2).ended());
    }

    #[test]
    fn each_reason_has_its_words() {
        let pid = |raw| Pid::new(raw).unwrap();
        let words = |raw| pin(pid(raw)).unwrap_err().to_string();
        assert!(words(i32::MAX).contains("does not exist"), "{}", words(i32::MAX));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let raw = child.id() as i32;
        let fd = pidfd_open(rustix::process::Pid::from_raw(raw).unwrap(), PidfdFlags::empty());
        poll(&mut [PollFd::new(&fd.unwrap(), PollFlags::IN)], None).unwrap();
        assert!(words(raw).contains("has ended and only waits"), "{}", words(raw));
        child.wait().unwrap();
        assert!(words(raw).contains("does not exist"), "{}", words(raw));
        let source = io::Error::from_raw_os_error(libc::EMFILE);
        let failed = PinError::Failed { action: "open a pidfd of", pid: pid(7), source };
        assert!(failed.to_string().contains("LimitNOFILE"), "{failed}");
    }
}
