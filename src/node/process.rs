//! Who a pid is: start time, owner, and the pidfd that pins it.

pub use crate::cgroup::is_shaped_by;
use crate::command::{CommandError, ErrorKind};
use crate::executor::world::{Identity, Pin};
use crate::kernfs::files::Explained;
use crate::kernfs::process::{self, PinError, has_exited, proc_file, read_proc, started};
use crate::units::{Pid, ProcessRef, Uids};

fn not_pinned(error: PinError) -> CommandError {
    let kind = match error {
        PinError::Absent(_) | PinError::Ended(_) => ErrorKind::NotFound,
        PinError::Thread { .. } | PinError::Kernel { .. } | PinError::Hidden(_) => {
            ErrorKind::FailedPrecondition
        }
        PinError::NoPidfd | PinError::Failed { .. } => ErrorKind::Internal,
    };
    CommandError::new(kind, error.to_string())
}

/// Pins `pid`, or says why it cannot be a task.
pub fn pin(pid: Pid) -> Result<Identity, CommandError> {
    let refused = |what: String| CommandError::new(ErrorKind::FailedPrecondition, what);
    if pid.raw() == 1 {
        return Err(refused("process 1 is the init process and cannot be a task".into()));
    }
    if pid.raw().unsigned_abs() == std::process::id() {
        return Err(refused(format!("process {pid} is lrsd itself and cannot be a task")));
    }
    let (pidfd, stat) = process::pin(pid).map_err(not_pinned)?;
    // Of the process that is pinned; one that has ended since has no uids to read.
    let path = proc_file(pid, "status");
    let status = match read_proc(&path) {
        Ok(status) => status,
        Err(_) if has_exited(&pidfd) => return Err(not_pinned(PinError::Absent(pid))),
        Err(error) => {
            let what = format!("cannot read {}: {}", path.display(), Explained(&error));
            return Err(CommandError::new(ErrorKind::Internal, what));
        }
    };
    let uids = Uids::parse(&status).ok_or_else(|| {
        let what = format!("{} does not name the owner of the process", path.display());
        CommandError::new(ErrorKind::Internal, what)
    })?;
    let process = ProcessRef { pid, start_ticks: stat.start_ticks };
    let (leads_session, pin) = (stat.session == pid.raw(), Pin(Some(pidfd)));
    Ok(Identity { process, uids, leads_session, started: started(process), pin })
}

/// Whether `process` still runs: not a zombie, and not on its way to be one.
pub fn alive(process: ProcessRef) -> bool {
    !crate::cgroup::has_ended(process)
}

/// Whether `pid` may be in the cgroup of a unit of systemd's, one that systemd writes weights
/// to; the names of cgroups tell.
pub fn may_be_in_unit(pid: Pid) -> bool {
    let unit = |path: &&String| path.ends_with(".service") || path.ends_with(".scope");
    // One that ended meanwhile is in no group.
    let paths = crate::cgroup::paths(pid).unwrap_or_default();
    paths.iter().filter(unit).any(|unit| is_shaped_by(pid, unit))
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
        let (sender, receiver) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            sender.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let _ = stopped.recv();
        });
        let tid = receiver.recv().unwrap();
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
