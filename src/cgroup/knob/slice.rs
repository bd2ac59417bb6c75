//! The slice of each thread: how long it computes before the CPU goes to the next one (`sched_runtime` of
//! sched_setattr(2) for ordinary tasks, Linux 6.12 and newer; sched-eevdf.rst).
//!
//! The kernel takes 0.1 to 100 ms, and 0 for its own default. A group's slice is that of its runnable
//! thread with the least, so all threads of a task get it; children inherit it, and a walk in each cycle in
//! which the task used the CPU catches what others started in the group.
//!
//! A thread that has chosen a slice of its own is left alone: what LRS writes has nanoseconds that no tool
//! writes ([`MARK`]), so what LRS set and what the task set differ without a record, and what is
//! given back is the default. Policy, nice value and flags are set in the same call: they are read
//! and written back as they are, and only threads of SCHED_OTHER and SCHED_BATCH are touched.
//!
//! Limits. A thread that changes its own nice value between the reading and the writing, some
//! microseconds, loses that change. The kernel's default is read on the calling thread each
//! time; a thread that has slept since the number of CPUs changed may still have the one before, and
//! then counts as having chosen it.

use std::io;
use std::time::Duration;

use crate::core::slice::Slice;
use crate::schedule::{Attributes, get, set};

/// A slice of LRS's leaves this rest when it is divided by a microsecond.
const MARK: u64 = 937;

/// How long the slices are that LRS gives, with its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cgroup) struct SliceLength(u64);

impl SliceLength {
    /// `slice`, at most a microsecond shorter.
    fn marked(slice: Duration) -> SliceLength {
        let microseconds = u64::try_from(slice.as_micros()).unwrap_or(u64::MAX / 1000);
        SliceLength(microseconds.saturating_sub(1) * 1000 + MARK)
    }

    /// What is given to threads when slices are to be `slice`, if this kernel has slices. Leaves
    /// the calling thread with the default: a daemon inside of a task of LRS has a long one.
    pub(in crate::cgroup) fn probe(slice: Duration) -> Result<SliceLength, String> {
        let refused = |error| format!("this thread's slice cannot be set: {error} (sched_setattr)");
        let length = SliceLength::marked(slice);
        let own = get(0).map_err(refused)?;
        if !is_ordinary(&own) {
            return Err(format!("lrsd runs under scheduling policy {}", own.policy));
        }
        let set_to = |runtime| set(0, Attributes { runtime, ..own }).map_err(refused);
        set_to(length.0)?;
        let found = get(0).map_err(refused)?.runtime;
        set_to(0)?;
        if found == length.0 {
            Ok(length)
        } else {
            Err("this kernel has no slices (Linux 6.12 or newer does)".to_owned())
        }
    }
}

/// Gives a thread its slice; answers whether it had another. `length`: of a long one; `None`: none are
/// given.
pub(super) fn apply_to_thread(
    thread: libc::pid_t,
    slice: Slice,
    length: Option<SliceLength>,
) -> io::Result<bool> {
    let found = get(thread)?;
    if !is_ordinary(&found) {
        return Ok(false);
    }
    let is_ours = found.runtime % 1000 == MARK;
    let wanted = match (slice, length) {
        (Slice::Long, Some(SliceLength(long))) => {
            let may = is_ours || found.runtime == get(0)?.runtime;
            if found.runtime == long || !may {
                return Ok(false);
            }
            long
        }
        (Slice::Default, _) | (Slice::Long, None) if is_ours => 0,
        (Slice::Default, _) | (Slice::Long, None) => return Ok(false),
    };
    set(thread, Attributes { runtime: wanted, ..found })?;
    Ok(true)
}

/// Whether it is of SCHED_OTHER or SCHED_BATCH.
fn is_ordinary(found: &Attributes) -> bool {
    [libc::SCHED_OTHER, libc::SCHED_BATCH].iter().any(|policy| *policy as u32 == found.policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_slice_comes_and_goes_and_a_tasks_own_stays() {
        let long = match SliceLength::probe(Duration::from_millis(100)) {
            Ok(long) => long,
            Err(why) => {
                eprintln!("NOT TESTED: slices of threads: {why}");
                return;
            }
        };
        assert_eq!(long.0, 99_999_937);
        let default = get(0).unwrap();
        assert_ne!(default.runtime % 1000, MARK);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let apply = |slice| apply_to_thread(pid, slice, Some(long)).unwrap();
        let given = (apply(Slice::Long), apply(Slice::Long), get(pid).unwrap());
        let back = (apply(Slice::Default), apply(Slice::Default), get(pid).unwrap());
        // Another length since.
        let shorter = SliceLength::marked(Duration::from_millis(20));
        apply(Slice::Long);
        apply_to_thread(pid, Slice::Long, Some(shorter)).unwrap();
        let renewed = get(pid).unwrap().runtime;
        // None are given any more.
        apply_to_thread(pid, Slice::Long, None).unwrap();
        let ended = get(pid).unwrap().runtime;
        // What the task chose itself stays, and so do nice value and policy.
        let own = Attributes { runtime: 5_000_000, nice: 7, policy: 3, ..default };
        set(pid, own).unwrap();
        let chosen = (apply(Slice::Long), apply(Slice::Default), get(pid).unwrap());
        set(pid, Attributes { runtime: 0, ..own }).unwrap();
        apply(Slice::Long);
        let batch = get(pid).unwrap();
        let idle = Attributes { policy: libc::SCHED_IDLE as u32, nice: 0, ..default };
        set(pid, idle).unwrap();
        let left = apply(Slice::Long);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((given.0, given.1, given.2.runtime), (true, false, long.0));
        assert_eq!((back.0, back.1, back.2.runtime), (true, false, default.runtime));
        assert_eq!((renewed, ended), (19_999_937, default.runtime));
        assert_eq!((chosen.0, chosen.1, chosen.2.runtime), (false, false, 5_000_000));
        assert_eq!((batch.policy, batch.nice, batch.runtime), (3, 7, long.0));
        assert!(!left, "SCHED_IDLE");
        let gone = apply_to_thread(pid, Slice::Long, Some(long));
        assert_eq!(gone.unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
