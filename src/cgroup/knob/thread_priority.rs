//! Disk tiers by the I/O priority of each thread, for nodes where no cgroup file does it.
//!
//! A passive thread gets the idle class, an active one gets its default back. A thread that has
//! chosen a priority of its own (ionice(1)) is left alone: the idle priority LRS writes carries
//! a level no tool writes ([`MARK`]), so what LRS set and what the task set differ
//! without a record. Children inherit the priority of their parent.

use std::io;

use crate::core::model::Tier;

const CLASS_SHIFT: libc::c_int = 13;
const CLASS_IDLE: libc::c_int = 3;
/// The level within the idle class means nothing to the kernel; ionice(1) writes 7 or 0.
const MARK: libc::c_int = 5;
const IDLE_BY_LRS: libc::c_int = CLASS_IDLE << CLASS_SHIFT | MARK;
/// `IOPRIO_CLASS_NONE`: follows the nice value (ioprio_set(2)).
const UNSET: libc::c_int = 0;
const WHO_PROCESS: libc::c_int = 1;

/// Gives a thread the priority of `tier`; answers whether it had another.
pub(super) fn apply_to_thread(thread: libc::pid_t, tier: Tier) -> io::Result<bool> {
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
        let pid = child.id() as i32;
        let apply = |tier| apply_to_thread(pid, tier).unwrap();
        let before = get(pid).unwrap();
        let steps = [
            apply(Tier::Passive),
            apply(Tier::Passive),
            get(pid).unwrap() == IDLE_BY_LRS,
            apply(Tier::Active),
            apply(Tier::Active),
            get(pid).unwrap() == before,
        ];
        // What the task chose itself stays.
        set(pid, CLASS_IDLE << CLASS_SHIFT | 7).unwrap();
        let chosen = [apply(Tier::Active), apply(Tier::Passive)];
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(steps, [true, false, true, true, false, true]);
        assert_eq!(chosen, [false; 2]);
    }
}
