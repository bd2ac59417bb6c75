//! `lrsctl kill`: a signal to every process of a task, with the rights of the caller.
//!
//! The daemon ends no task; this is kill(1) for a group. The processes are those with the task's
//! cgroup or one below it in `/proc/PID/cgroup`, in the hierarchy of the tiers. Each is opened as a
//! pidfd and checked again before the signal, so that a recycled pid is never hit. The search
//! repeats until it finds no new process, since a task may fork meanwhile. Limits: in a task
//! without a cgroup (observe mode) only the main process gets the signal; a caller in another
//! cgroup namespace than lrsd's sees no process of a task.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use lrs_api::proto::{GetTaskRequest, Task};
use nix::sys::signal;
use procfs::process::Process;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::args::KillArgs;
use super::client::{Lrsd, ask};
use super::failure::{Failure, Purpose};
use super::handle::with_id;
use super::output::{Talk, say};
use crate::cgroup::{Membership, task_group};
use crate::clock;
use crate::kernfs::name;
use crate::kernfs::process::read_proc;

/// A task that forks faster than it is signalled: SIGKILL ends that after a few.
const PASSES: usize = 100;

/// `lrsctl kill TASK...`
pub(super) fn kill(lrsd: &Lrsd, args: KillArgs, talk: Talk) -> Result<(), Failure> {
    let mut refused = Vec::new();
    for word in args.tasks {
        let task = ask(lrsd, Purpose::Other, |lrsd| {
            with_id(lrsd, word, |mut lrsd, id| async move {
                lrsd.get_task(GetTaskRequest { id }).await.map(tonic::Response::into_inner)
            })
        });
        let sent = task.and_then(|task| {
            let sent = send(&task, args.signal, &mut |text| say(format_args!("lrsctl: {text}")))?;
            talk.detail(format_args!("{}: {sent} processes have the signal", task.id));
            Ok(())
        });
        match sent {
            Ok(()) => {}
            Err(failure) => refused.push(failure),
        }
    }
    let last = refused.pop();
    refused.iter().for_each(|failure| failure.report("lrsctl"));
    last.map_or(Ok(()), Err)
}

/// A name with or without SIG, or a number.
pub(super) fn parse(text: &str) -> Result<Signal, String> {
    let by_name = || format!("SIG{}", text.to_uppercase().trim_start_matches("SIG")).parse();
    let known = match text.parse::<i32>() {
        Ok(number) => signal::Signal::try_from(number),
        Err(_) => by_name(),
    };
    let known = known.ok().and_then(|signal| Signal::from_named_raw(signal as i32));
    known.ok_or_else(|| "expected a signal: TERM, KILL, INT, STOP, CONT, 9 ...".to_owned())
}

/// Signals all of a task; answers how many processes have it. `say` gets what is to be known about it.
pub(super) fn send(
    task: &Task,
    signal: Signal,
    say: &mut dyn FnMut(String),
) -> Result<usize, Failure> {
    let place = task.cgroup.as_deref().unwrap_or("its cgroup");
    if !sees_main(task) {
        let text = format!("the main process of {} is not in {place} as seen from here", task.id);
        return Err(Failure::failed(text).hint("from a container, signal it on the node itself"));
    }
    let Sent { sent, refused } = signal_all(&|process| is_of(task, process), signal)?;
    if task.stopped && signal != Signal::KILL && signal != Signal::CONT {
        say(format!(
            "{} is stopped, and acts on the signal once it goes on (lrsctl kill --signal=CONT)",
            task.id
        ));
    }
    if task.frozen {
        say(format!("{} is frozen, and acts on the signal once it runs again", task.id));
    }
    if !refused.is_empty() {
        return Err(Failure::failed(format!(
            "{} of {} processes of {} did not take the signal: pid {}",
            refused.len(),
            refused.len() + sent,
            task.id,
            refused.join(", ")
        )));
    }
    if sent == 0 {
        return Err(Failure::failed(format!("no process of {} is in {place}", task.id))
            .hint("it may have ended just now; from a container, signal it on the node itself"));
    }
    Ok(sent)
}

/// What became of a signal.
struct Sent {
    /// So many processes have it.
    sent: usize,
    /// Pids of those that did not take it, with the reason.
    refused: Vec<String>,
}

/// Signals all processes that are meant, until there is none that is new.
fn signal_all(is_meant: &dyn Fn(&Process) -> bool, signal: Signal) -> Result<Sent, Failure> {
    let me = std::process::id() as i32;
    let (mut sent, mut refused, mut met) = (0, Vec::new(), HashSet::new());
    for _ in 0..PASSES {
        let mut new = 0;
        for process in living()? {
            let Ok(stat) = process.stat() else { continue };
            if process.pid == me || !is_meant(&process) || !met.insert((stat.pid, stat.starttime)) {
                continue;
            }
            new += 1;
            match pidfd(stat.pid).filter(|_| is_meant(&process)) {
                None => {}
                Some(pidfd) => match pidfd_send_signal(&pidfd, signal) {
                    Ok(()) => sent += 1,
                    Err(Errno::SRCH) => {}
                    Err(error) => refused.push(format!("{} ({error})", stat.pid)),
                },
            }
        }
        if new == 0 {
            break;
        }
    }
    Ok(Sent { sent, refused })
}

/// Without zombies: they take no signal.
fn living() -> Result<impl Iterator<Item = Process>, Failure> {
    let all = procfs::process::all_processes()
        .map_err(|error| Failure::failed(format!("cannot look at /proc: {error}")))?;
    // One that ended meanwhile is none any more.
    Ok(all.flatten().filter(|process| process.stat().is_ok_and(|stat| stat.state != 'Z')))
}

/// Ends the task that process `main` is in: SIGTERM to all of it, and after `patience` SIGKILL. Asks
/// no daemon, for the name of the group names the task. A process in no task (waits for a slot, or
/// lrsd only observes) is still in its service, named `unit` and more, and all of that is ended; a
/// process in neither is left alone.
pub(super) fn end(main: i32, unit: &str, patience: Duration) -> Result<(), Failure> {
    let place = Process::new(main).ok().and_then(|main| place(&main)).unwrap_or_default();
    let of_service = || {
        let name = place.rsplit('/').next()?;
        (name.starts_with(unit) && name.ends_with(".service")).then_some(&*place)
    };
    let Some(group) = task_group(&place).or_else(of_service) else { return Ok(()) };
    // This process is in the service too.
    let me = std::process::id() as i32;
    let is_meant = |process: &Process| process.pid != me && is_in(group, process);
    signal_all(&is_meant, Signal::TERM)?;
    // As systemd does, so that stopped processes see it.
    signal_all(&is_meant, Signal::CONT)?;
    if !until_none(&is_meant, patience)? {
        signal_all(&is_meant, Signal::KILL)?;
        until_none(&is_meant, patience)?;
    }
    Ok(())
}

/// False: some are still there.
fn until_none(is_meant: &dyn Fn(&Process) -> bool, patience: Duration) -> Result<bool, Failure> {
    let begun = clock::boot_time();
    loop {
        let Some(one) = living()?.find(|process| is_meant(process)) else { return Ok(true) };
        let left = patience.saturating_sub(clock::boot_time().since(begun));
        if left.is_zero() {
            return Ok(false);
        }
        if let Some(pidfd) = pidfd(one.pid).filter(|_| is_meant(&one)) {
            let left = rustix::event::Timespec::try_from(left).ok();
            let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
            match poll(&mut fds, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(Failure::failed(format!(
                        "cannot wait for pid {}: {error}",
                        one.pid
                    )));
                }
            }
        }
    }
}

fn is_of(task: &Task, process: &Process) -> bool {
    match &task.cgroup {
        None => task.pid == Some(process.pid),
        Some(group) => is_in(group, process),
    }
}

fn is_in(group: &str, process: &Process) -> bool {
    let place = place(process);
    let below = place.as_deref().and_then(|place| place.strip_prefix(group));
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Its group in the hierarchy with the CPU controller, as lrsd shows it.
fn place(process: &Process) -> Option<String> {
    let text = read_proc(&Path::new("/proc").join(process.pid.to_string()).join("cgroup")).ok()?;
    Some(name::shown(Membership::parse(&text).with_cpu()?).into_owned())
}

/// Whether the same path is the same group here: the main process, if it lives, has to be in it.
fn sees_main(task: &Task) -> bool {
    let main = task.pid.filter(|_| !task.main_exited).map(Process::new);
    !main.is_some_and(|main| main.is_ok_and(|main| !is_of(task, &main)))
}

fn pidfd(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_a_name_or_a_number() {
        for text in ["TERM", "term", "SIGTERM", "15"] {
            assert_eq!(parse(text), Ok(Signal::TERM), "{text}");
        }
        for text in ["", "0", "-9", "SIG", "NOPE", "64000"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
