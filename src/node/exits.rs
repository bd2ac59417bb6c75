//! How main processes ended, for [`Watch::how_ended`](crate::executor::world::Watch::how_ended).
//!
//! lrsd is not its parent, so that wait(2) does not serve. Two other places have the status:
//!
//! | the process is | the status is in |
//! |---|---|
//! | a zombie: its parent has not waited for it | field 52 of /proc/PID/stat (proc_pid_stat(5)) |
//! | gone, and its pidfd was open by then | `PIDFD_GET_INFO` with `PIDFD_INFO_EXIT`, Linux 6.15 and later (include/uapi/linux/pidfd.h) |
//!
//! A pidfd says `EPOLLIN` when the process has ended. From then until its parent has waited for it
//! it is a zombie, so that one place or the other has the status: on 6.15 and later it is found,
//! also where a parent never waits. On an earlier kernel it is found where lrsd is faster than the
//! parent. What is not found stays unknown; there is no event, and nothing is guessed.
//!
//! The loop asks the pidfd alone. /proc/PID is read on a thread of its own ([`serve`]): a read that
//! meets the kernel's own removal of it spins until that is done, and what removes it may wait for the
//! CPU on which the reader spins. 25 ms were measured, in which a promotion would have waited.
//!
//! The kernel writes 0 into field 52 for a reader that may not trace the process, so a 0 counts only
//! where the same check (`PTRACE_MODE_READ_FSCREDS`) lets lrsd read the link /proc/PID/ns/user. Where
//! it does not, the pidfd is kept until `EPOLLHUP`, which says that the parent has waited.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::mpsc::Receiver;

use procfs::process::Process;

use super::outbox::{ExitLookup, Inward, Outbox, Unknown};
use super::watch::Ended;
use crate::core::exit::Exit;
use crate::units::ProcessRef;

/// Looks at ends until the loop drops its end of the queue.
pub(super) fn serve(ends: &Receiver<Unknown>, outbox: &Outbox) {
    for unknown in ends {
        let found = found(unknown.process, &unknown.ended);
        outbox.send(Inward::Exit { unknown, found });
    }
}

/// /proc and then the pidfd: a zombie that is gone by now has left the status there.
fn found(process: ProcessRef, ended: &Ended) -> ExitLookup {
    if let Some(exit) = of_zombie(process) {
        return ExitLookup::Exit(exit);
    }
    match of_pidfd(ended.pidfd()) {
        Ok(Some(exit)) => ExitLookup::Exit(exit),
        Ok(None) => ExitLookup::NotYet,
        // ENOTTY and EINVAL: an earlier kernel; ESRCH: reaped, which an earlier kernel forgets.
        Err(_) => ExitLookup::Never,
    }
}

/// Field 52 of a process that has ended and was not waited for.
pub fn of_zombie(process: ProcessRef) -> Option<Exit> {
    // What is gone is the other place's.
    let ended = Process::new(process.pid.raw()).ok()?;
    let stat = ended.stat().ok()?;
    // X: its parent ignores SIGCHLD, and it goes by itself.
    if stat.starttime != process.start_ticks || !matches!(stat.state, 'Z' | 'X') {
        return None;
    }
    let status = stat.exit_code?;
    let readable = status != 0
        || std::fs::read_link(format!("/proc/{}/ns/user", process.pid)).is_ok()
            // It was the same process until the link was read.
            && Process::new(process.pid.raw())
                .and_then(|process| process.stat())
                .is_ok_and(|stat| stat.starttime == process.start_ticks);
    readable.then(|| Exit::from_wait(status)).flatten()
}

/// `struct pidfd_info` as it was first published, 64 bytes; later fields are left out.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    /// pid, tgid, ppid, and four uids and gids.
    ids: [u32; 11],
    exit_code: i32,
}

/// `PIDFD_INFO_EXIT`
const INFO_EXIT: u64 = 1 << 3;

nix::ioctl_readwrite!(pidfd_get_info, 0xff, 11, PidfdInfo);

/// What the kernel keeps at a pidfd; `None`: its parent has not waited for it yet.
pub fn of_pidfd(pidfd: BorrowedFd<'_>) -> nix::Result<Option<Exit>> {
    let mut info = PidfdInfo { mask: INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the descriptor is open, and the request's size is that of `info`.
    unsafe { pidfd_get_info(pidfd.as_raw_fd(), &raw mut info) }?;
    Ok((info.mask & INFO_EXIT != 0).then(|| Exit::from_wait(info.exit_code)).flatten())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::process::Command;

    use rustix::process::{PidfdFlags, pidfd_open};

    use super::*;
    use crate::units::Pid;

    /// What the zombie says, and the pidfd before and after it was waited for.
    fn ways(script: &str) -> (Option<Exit>, nix::Result<Option<Exit>>, nix::Result<Option<Exit>>) {
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let pinned = super::super::process::pin(Pid::new(child.id() as i32).unwrap()).unwrap();
        let fd = pinned.pin.0.unwrap();
        let mut ready = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut ready, None).unwrap();
        let before = (of_zombie(pinned.process), of_pidfd(fd.as_fd()));
        child.wait().unwrap();
        assert_eq!(of_zombie(pinned.process), None, "reaped");
        (before.0, before.1, of_pidfd(fd.as_fd()))
    }

    #[test]
    fn the_zombie_has_the_status_and_then_its_pidfd() {
        let signal = |number| Exit::Signal { number, core: false };
        for (script, exit) in [
            ("exit 0", Exit::Status(0)),
            ("exit 3", Exit::Status(3)),
            ("kill -TERM $$", signal(15)),
        ] {
            // The shell is pinned before it ends.
            let (zombie, early, late) = ways(&format!("sleep 0.1; {script}"));
            assert_eq!(zombie, Some(exit), "{script}");
            assert!(!matches!(early, Ok(Some(_))), "{script}: {early:?}");
            match late {
                Ok(found) => assert_eq!(found, Some(exit), "{script}"),
                Err(errno) => {
                    assert!(kernel_is_older(), "{script}: {errno}");
                    eprintln!("this kernel keeps no status at a pidfd ({errno})");
                }
            }
        }
    }

    fn kernel_is_older() -> bool {
        let uname = rustix::system::uname();
        let release = uname.release().to_string_lossy().into_owned();
        let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (6, 15)
    }

    #[test]
    fn a_process_that_runs_has_no_status() {
        let me = Pid::new(std::process::id() as i32).unwrap();
        let start_ticks = Process::myself().unwrap().stat().unwrap().starttime;
        assert_eq!(of_zombie(ProcessRef { pid: me, start_ticks }), None);
        let raw = rustix::process::Pid::from_raw(me.raw()).unwrap();
        let fd = pidfd_open(raw, PidfdFlags::empty()).unwrap();
        assert!(!matches!(of_pidfd(fd.as_fd()), Ok(Some(_))));
    }
}
