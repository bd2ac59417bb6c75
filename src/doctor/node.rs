//! The kernel, the CPUs, memory and pressure.

use super::Check;
use super::probe::Facts;
use crate::cgroup::obstacle::Obstacle;
use crate::config::Config;
use crate::core::memory::{Memory, Room};
use crate::core::sample::MemorySample;
use crate::units::Bytes;

/// Oldest kernel on which ends of tasks are noticed without polling: pidfds that poll
/// (pidfd_open(2): 5.3) and are held to a stable behaviour (spec 4).
const MINIMUM: (u32, u32) = (5, 4);

/// First kernel with `cpu.idle` (Documentation/admin-guide/cgroup-v2.rst).
pub(super) const CPU_IDLE_SINCE: (u32, u32) = (5, 15);

pub(super) fn kernel(facts: &Facts) -> Check {
    const ID: &str = "kernel";
    let kernel = match &facts.kernel {
        Ok(kernel) => kernel,
        Err(reason) => return Check::unknown(ID, reason, "mount procfs at /proc"),
    };
    let release = format!("Linux {}", kernel.text);
    if kernel.version < MINIMUM {
        let (major, minor) = MINIMUM;
        return Check::fail(
            ID,
            format!("{release}; LRS needs {major}.{minor} for pidfds"),
            "boot a newer kernel",
        );
    }
    if let Err(Obstacle { found, remedy }) = &facts.pidfd {
        return Check::fail(ID, format!("{release}, but {found}"), remedy);
    }
    if kernel.version < CPU_IDLE_SINCE {
        return Check::warn(
            ID,
            format!("{release}: pidfds work; cpu.idle came with 5.15"),
            "boot Linux 5.15 or later to have passive tasks give way at once",
        );
    }
    Check::ok(ID, format!("{release}: pidfds work, new enough for cpu.idle"))
}

pub(super) fn pressure(facts: &Facts) -> Check {
    const ID: &str = "pressure";
    const REMEDY: &str = "boot with psi=1 on a kernel with CONFIG_PSI; until then status has no \
                          pressure and classes are less certain";
    match &facts.pressure {
        Ok(names) if names.len() == 3 => Check::ok(ID, "/proc/pressure has cpu, io and memory"),
        Ok(names) => {
            Check::warn(ID, format!("/proc/pressure has only {}", names.join(", ")), REMEDY)
        }
        Err(reason) => Check::warn(ID, format!("no pressure figures: {reason}"), REMEDY),
    }
}

pub(super) fn memory(facts: &Facts, config: &Config) -> Check {
    const ID: &str = "memory";
    let memory = match &facts.memory {
        Ok(memory) => memory,
        Err(reason) => return Check::unknown(ID, reason, "mount procfs at /proc"),
    };
    let Some(available) = memory.available else {
        return Check::fail(
            ID,
            "/proc/meminfo has no MemAvailable; expansion and guard need it",
            "boot a kernel with MemAvailable (3.14 or later)",
        );
    };
    let node = MemorySample { total: memory.total, available, swap_used: Some(Bytes(0)) };
    let limits = &facts.memory_limits;
    let Some(memory) = Memory::of(Some(node), &limits.found) else {
        return Check::unknown(ID, "nothing is known of it", "mount procfs at /proc");
    };
    let (reserved, resumed) = (config.guard.memory_reserve, config.guard.memory_resume);
    let text = |room: &Room, reserve: Bytes| {
        let (available, total, limit) = (room.available, room.total, room.limit_in_words());
        format!("{available} of {total} available{limit}, guard.memory_reserve is {reserve}")
    };
    // Of every limit, not only of the one that binds now.
    let never = |room: &&Room| reserved.of(room.total) >= room.total;
    if let Some(room) = memory.rooms().find(never) {
        let found = text(room, reserved.of(room.total));
        return Check::fail(
            ID,
            format!("{found}: no passive slot is ever offered"),
            match &room.limit {
                None => "lower guard.memory_reserve".to_owned(),
                Some(file) => {
                    format!("lower guard.memory_reserve, best to a percentage, or raise {file}")
                }
            },
        );
    }
    let for_ever = |room: &&Room| resumed.of(room.total) >= room.total;
    if let Some(room) = memory.rooms().find(for_ever) {
        let (found, resume) = (text(room, reserved.of(room.total)), resumed.of(room.total));
        return Check::warn(
            ID,
            format!("{found}; once the guard holds, guard.memory_resume ({resume}) keeps it so"),
            "lower guard.memory_resume",
        );
    }
    let (room, reserve) = memory.least_above(|total| reserved.of(total));
    let (available, resume) = (room.available, resumed.of(room.total));
    let found = text(room, reserve);
    if resume < reserve {
        return Check::warn(
            ID,
            format!("{found}, but guard.memory_resume is less: {resume}"),
            "set guard.memory_resume to guard.memory_reserve or more",
        );
    }
    if available < reserve {
        return Check::warn(
            ID,
            format!("{found}: no passive slot is opened now"),
            "free memory, or lower guard.memory_reserve",
        );
    }
    if let Some(problem) = limits.problems.first() {
        return Check::warn(
            ID,
            format!("{found}; a limit above the tasks is left out: {problem}"),
            "run doctor as root; lrsd does without that limit until it can be read",
        );
    }
    Check::ok(ID, found)
}

pub(super) fn swap(facts: &Facts) -> Check {
    const ID: &str = "swap";
    let memory = match &facts.memory {
        Ok(memory) => memory,
        Err(reason) => return Check::unknown(ID, reason, "mount procfs at /proc"),
    };
    if memory.swap_total == Bytes(0) {
        return Check::ok(ID, "none: a node short of memory kills instead of slowing down");
    }
    let used = Bytes(memory.swap_total.0.saturating_sub(memory.swap_free.0));
    let found = format!("{used} of {} in use", memory.swap_total);
    if used.0 > memory.swap_total.0 / 2 {
        return Check::warn(ID, found, "give the node less work or more memory");
    }
    Check::ok(ID, found)
}

pub(super) fn autogroup(facts: &Facts) -> Check {
    const ID: &str = "autogroup";
    match &facts.autogroup {
        Ok(None) => Check::ok(ID, "not in this kernel"),
        Ok(Some(false)) => Check::ok(ID, "off"),
        Ok(Some(true)) => Check::ok(
            ID,
            "on: sessions in the root cgroup share among themselves; the tasks of LRS have \
             groups of their own and are not concerned",
        ),
        Err(reason) => Check::unknown(ID, reason, "read it as root"),
    }
}
