//! Who a pid is: start time, owner, and the pidfd that pins it.

use std::io;
use std::os::fd::OwnedFd;

use procfs::process::Process;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::command::{CommandError, ErrorKind};
use crate::units::{Pid, ProcessRef, Uids};

/// A process that cannot be taken for another one while this lives.
#[derive(Debug)]
pub struct Pinned {
    /// Pid and start time.
    pub process: ProcessRef,
    /// Whose it is; the effective one counts as its owner.
    pub uids: Uids,
    /// Becomes readable when it ends.
    pub pidfd: OwnedFd,
    /// Whether it leads its session.
    pub leads_session: bool,
}

/// There is no such process, or not any more.
pub fn gone(pid: Pid) -> CommandError {
    CommandError::new(
        ErrorKind::NotFound,
        format!("process {pid} does not exist; give the pid of a running process"),
    )
}

/// Pins `pid`, or says why it cannot be a task.
pub fn pin(pid: Pid) -> Result<Pinned, CommandError> {
    let gone = || gone(pid);
    let refused = |what: String| CommandError::new(ErrorKind::FailedPrecondition, what);
    if pid.raw() == 1 {
        return Err(refused("process 1 is the init process and cannot be a task".into()));
    }
    if pid.raw().unsigned_abs() == std::process::id() {
        return Err(refused(format!("process {pid} is lrsd itself and cannot be a task")));
    }
    let raw = rustix::process::Pid::from_raw(pid.raw()).ok_or_else(gone)?;
    let pidfd = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::SRCH) => return Err(gone()),
        // The pid exists but is no thread group leader: ENOENT since Linux 6.15, EINVAL before.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {
            return Err(refused(format!(
                "{pid} is a thread, not a process; give the pid of its process (Tgid in /proc/{pid}/status)"
            )));
        }
        Err(errno) => {
            return Err(CommandError::new(
                ErrorKind::Internal,
                format!("cannot open a pidfd of process {pid}: {}", io::Error::from(errno)),
            ));
        }
    };
    // Read after the pidfd was opened: what is read now is of the process that is pinned, as
    // long as that one has not ended; if it has, the task ends at once.
    let process = Process::new(pid.raw()).map_err(|_| gone())?;
    let stat = process.stat().map_err(|_| gone())?;
    const PF_KTHREAD: u32 = 0x0020_0000;
    if stat.flags & PF_KTHREAD != 0 {
        return Err(refused(format!(
            "process {pid} ({}) is a kernel thread and cannot be a task",
            stat.comm
        )));
    }
    if matches!(stat.state, 'Z' | 'X') {
        return Err(CommandError::new(
            ErrorKind::NotFound,
            format!("process {pid} has ended and only waits for its parent"),
        ));
    }
    let status = process.status().map_err(|_| gone())?;
    let uids = Uids {
        real: status.ruid,
        effective: status.euid,
        saved: status.suid,
        filesystem: status.fuid,
    };
    let process = ProcessRef { pid, start_ticks: stat.starttime };
    Ok(Pinned { process, uids, pidfd, leads_session: stat.session == pid.raw() })
}

/// Whether `process` still runs: not a zombie, and not on its way to be one.
pub fn alive(process: ProcessRef) -> bool {
    !crate::cgroup::has_ended(process)
}

/// When `process` started, in time since boot.
pub fn started(process: ProcessRef) -> std::time::Duration {
    let ticks = procfs::ticks_per_second().max(1);
    std::time::Duration::from_micros(process.start_ticks.saturating_mul(1_000_000) / ticks)
}

/// The cgroup paths of a process, one per hierarchy.
pub fn cgroup_paths(pid: Pid) -> Vec<String> {
    // A process that ended meanwhile is in no group; its admission fails right after.
    Process::new(pid.raw())
        .and_then(|process| process.cgroups())
        .map(|groups| groups.0.into_iter().map(|group| group.pathname).collect())
        .unwrap_or_default()
}

/// Whether `pid` may be in the cgroup of a unit of systemd's, one that systemd writes weights
/// to; the names of cgroups tell. One that ended meanwhile is in none.
pub fn may_be_in_unit(pid: Pid) -> bool {
    let unit = |path: &&String| path.ends_with(".service") || path.ends_with(".scope");
    cgroup_paths(pid).iter().filter(unit).any(|unit| is_shaped_by(pid, unit))
}

/// Whether weights of `unit`, the path of a unit's cgroup, are what `pid` competes with: it is
/// there, and in the hierarchy of the cpu controller too or, as long as systemd has made it no
/// group there (v1), above.
pub fn is_shaped_by(pid: Pid, unit: &str) -> bool {
    let groups = Process::new(pid.raw()).and_then(|process| process.cgroups());
    // As above.
    let groups = groups.map(|groups| groups.0).unwrap_or_default();
    let there = groups.iter().any(|group| group.pathname == unit);
    let with_cpu = groups.iter().find(|group| group.controllers.iter().any(|name| name == "cpu"));
    let unified = || groups.iter().find(|group| group.hierarchy == 0);
    let cpu = with_cpu.or_else(unified).map(|group| group.pathname.as_str());
    there && cpu.is_some_and(|cpu| crate::cgroup::is_within(unit, cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unfit_are_refused_with_the_reason() {
        let kind = |pid: i32| pin(Pid::new(pid).unwrap()).unwrap_err();
        assert_eq!(kind(1).kind, ErrorKind::FailedPrecondition);
        assert_eq!(kind(i32::MAX).kind, ErrorKind::NotFound);
        let me = kind(std::process::id() as i32);
        assert!(me.message.contains("lrsd itself"), "{me}");
    }

    #[test]
    fn a_thread_is_not_a_process() {
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = stopped.recv();
        });
        let tid = told.recv().unwrap();
        let error = pin(Pid::new(tid).unwrap()).unwrap_err();
        assert!(error.message.contains("is a thread"), "{error}");
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn a_child_is_pinned_with_its_owner_and_start() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pinned = pin(Pid::new(child.id() as i32).unwrap()).unwrap();
        assert!(pinned.uids.all_are(rustix::process::geteuid().as_raw()));
        assert!(alive(pinned.process));
        assert!(!alive(ProcessRef {
            start_ticks: pinned.process.start_ticks + 1,
            ..pinned.process
        }));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!alive(pinned.process));
    }
}
