//! What a client means by a pid.

use super::invalid;
use crate::command::{Caller, CallerProcess, CommandError, ErrorKind};
use crate::units::Pid;

/// The process that `caller` means by `pid`, and when that started if it is the caller itself.
pub(super) fn process(pid: i32, caller: &Caller) -> Result<(Pid, Option<u64>), CommandError> {
    let refused = |message: String| Err(CommandError::new(ErrorKind::FailedPrecondition, message));
    let named = match (pid, Pid::new(pid)) {
        (0, _) => None,
        (_, Some(named)) => Some(named),
        (_, None) => {
            return Err(invalid(format!("pid {pid} is negative; give that of a process, or 0")));
        }
    };
    match (&caller.process, named) {
        (CallerProcess::Here(own) | CallerProcess::Inside(own), None) => {
            Ok((own.pid, Some(own.start_ticks)))
        }
        (CallerProcess::Here(_), Some(named)) => Ok((named, None)),
        (CallerProcess::Inside(_), Some(named)) => refused(format!(
            "pid {named} is named in another pid namespace than lrsd's (in a container, for example), \
             and lrsd would take another process for it; do it on the node itself. `lrsctl run` works \
             there too, and so does AdmitPidfd over D-Bus"
        )),
        (CallerProcess::Unseen, None) => Err(invalid(
            "pid 0 means the caller, which is not to be seen from the pid namespace of lrsd; run it \
             in that namespace (nsenter --pid --target PID_OF_LRSD), or lrsd on the node itself",
        )),
        (CallerProcess::Unseen, Some(named)) => refused(format!(
            "pid {named} is named outside of the pid namespace of lrsd, where lrsd would take another \
             process for it; run it in that namespace (nsenter --pid --target PID_OF_LRSD), or lrsd on \
             the node itself"
        )),
        (CallerProcess::Ended, _) => refused(format!(
            "the process that connected to lrsd has ended, so which process it means by pid {pid} is \
             not known; ask from a process that waits for the answer"
        )),
        (CallerProcess::Unknown(why), _) => refused(format!(
            "which process is meant by pid {pid} is not known, because the caller could not be looked \
             at: {why}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{QueueRequest, Subject};
    use crate::proto;
    use crate::server::request::{admit, admit_process, queue};
    use crate::units::ProcessRef;

    fn own() -> ProcessRef {
        ProcessRef { pid: Pid::new(42).unwrap(), start_ticks: 17 }
    }

    fn asked_by(process: CallerProcess) -> Caller {
        Caller { uid: 1, gids: vec![1], process, granted: None }
    }

    #[test]
    fn a_pid_means_what_the_caller_means_or_is_refused() {
        let asked = |pid, process: &CallerProcess| {
            let caller = asked_by(process.clone());
            let admit = admit(proto::AdmitRequest { pid, ..Default::default() }, &caller);
            let queue =
                queue(proto::ListQueueRequest { pid: Some(pid), ..Default::default() }, &caller);
            match (admit, queue) {
                (Ok(admit), Ok(queue)) => {
                    let Subject::Process(pid) = admit.subject else { panic!("{admit:?}") };
                    assert!(matches!(queue, QueueRequest::Process(queued) if queued == pid));
                    Ok((pid.raw(), admit.start_ticks))
                }
                (Err(admit), Err(queue)) => {
                    assert_eq!(admit.message, queue.message);
                    Err(admit.message)
                }
                (admit, queue) => panic!("{admit:?} but {queue:?}"),
            }
        };
        let (here, inside) = (CallerProcess::Here(own()), CallerProcess::Inside(own()));
        assert_eq!(asked(0, &here), Ok((42, Some(17))));
        assert_eq!(asked(7, &here), Ok((7, None)));
        assert_eq!(asked(0, &inside), Ok((42, Some(17))));
        let why = asked(7, &inside).unwrap_err();
        assert!(why.contains("lrsctl run") && why.contains("on the node itself"), "{why}");
        for process in [CallerProcess::Unseen, CallerProcess::Ended] {
            for pid in [0, 7] {
                assert!(asked(pid, &process).is_err(), "{pid} of {process:?}");
            }
        }
        let why = asked(7, &CallerProcess::Unknown("no /proc".into())).unwrap_err();
        assert!(why.ends_with("no /proc"), "{why}");
        assert!(asked(-1, &here).unwrap_err().contains("-1"));
        // A pidfd needs no namespace.
        let of_pidfd = admit_process(proto::AdmitRequest::default(), own()).unwrap();
        assert_eq!(
            (of_pidfd.subject, of_pidfd.start_ticks),
            (Subject::Process(own().pid), Some(17))
        );
    }
}
