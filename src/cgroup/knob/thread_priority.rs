//! Disk tiers by the I/O priority of each thread, for nodes where no cgroup file does it.
//!
//! A passive thread gets the idle class, an active one gets its default back. A thread that has
//! chosen a priority of its own (ionice(1)) is left alone: the idle priority LRS writes carries
//! a level no tool writes ([`MARK`]), so what LRS set and what the task set differ
//! without a record. Children inherit the priority of their parent; a walk in each
//! cycle in which the task used the CPU catches what was forked meanwhile.

use std::fs;
use std::io;

use crate::cgroup::process::proc_file;
use crate::cgroup::{CgroupError, files};
use crate::core::model::Tier;
use crate::units::Pid;

const CLASS_SHIFT: libc::c_int = 13;
const CLASS_IDLE: libc::c_int = 3;
/// The level within the idle class means nothing to the kernel; ionice(1) writes 7 or 0.
const MARK: libc::c_int = 5;
const IDLE_BY_LRS: libc::c_int = CLASS_IDLE << CLASS_SHIFT | MARK;
/// `IOPRIO_CLASS_NONE`: follows the nice value (ioprio_set(2)).
const UNSET: libc::c_int = 0;
const WHO_PROCESS: libc::c_int = 1;

/// Gives every thread of `pids` the priority of `tier`; answers how many were changed.
pub(in crate::cgroup) fn apply(pids: &[Pid], tier: Tier) -> Result<usize, CgroupError> {
    let mut changed = 0;
    for &pid in pids {
        // The process may have ended since it was listed.
        let Ok(threads) = fs::read_dir(proc_file(pid, "task")) else { continue };
        let ids = threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        changed += apply_to_threads(ids, tier)?;
    }
    Ok(changed)
}

/// The same for threads that are known already.
pub(in crate::cgroup) fn apply_to_threads(
    threads: impl IntoIterator<Item = libc::pid_t>,
    tier: Tier,
) -> Result<usize, CgroupError> {
    let mut changed = 0;
    for thread in threads {
        match apply_to_thread(thread, tier) {
            Ok(true) => changed += 1,
            Ok(false) => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => {
                let path = std::path::PathBuf::from(format!("/proc/{thread}"));
                return Err(files::failed("set the I/O priority of", &path, None, error));
            }
        }
    }
    Ok(changed)
}

fn apply_to_thread(thread: libc::pid_t, tier: Tier) -> io::Result<bool> {
    let present = get(thread)?;
    let wanted = match (tier, present) {
        // Older kernels report an unset priority as best effort 4 (before 5.18).
        (Tier::Passive, present) if present == UNSET || present == (2 << CLASS_SHIFT | 4) => {
            IDLE_BY_LRS
        }
        (Tier::Active, IDLE_BY_LRS) => UNSET,
        _ => return Ok(false),
    };
    set(thread, wanted)?;
    Ok(true)
}

pub(in crate::cgroup) fn get(thread: libc::pid_t) -> io::Result<libc::c_int> {
    // SAFETY: ioprio_get(2) takes two integers and touches no memory of ours.
    let answer = unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, thread) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as libc::c_int) }
}

fn set(thread: libc::pid_t, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: ioprio_set(2) takes three integers and touches no memory of ours.
    let answer = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, thread, priority) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passive_is_idle_and_active_gets_its_default_back() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::new(child.id() as i32).unwrap();
        let before = get(pid.raw()).unwrap();
        let steps = [
            apply(&[pid], Tier::Passive).unwrap(),
            apply(&[pid], Tier::Passive).unwrap(),
            usize::from(get(pid.raw()).unwrap() == IDLE_BY_LRS),
            apply(&[pid], Tier::Active).unwrap(),
            apply(&[pid], Tier::Active).unwrap(),
            usize::from(get(pid.raw()).unwrap() == before),
        ];
        // What the task chose itself stays.
        set(pid.raw(), CLASS_IDLE << CLASS_SHIFT | 7).unwrap();
        let chosen = apply(&[pid], Tier::Active).unwrap() + apply(&[pid], Tier::Passive).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(steps, [1, 0, 1, 1, 0, 1]);
        assert_eq!(chosen, 0);
        assert_eq!(apply(&[pid], Tier::Passive).unwrap(), 0, "an ended process is no error");
    }
}
