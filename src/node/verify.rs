//! The thread `lrs-verify`, which there is for the second of a test of the tiers: two processes compute on
//! one CPU in groups like those of an active and a passive task ([`TierTree::compute`]).
//!
//! It is a thread of its own because all others have something to do for tasks meanwhile. The processes are
//! gone before the answer; of a daemon that is killed in here they end with it, and the next one removes
//! their groups.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cgroup::{CgroupError, TierTree, WeightPlan};
use crate::clock;
use crate::core::cpus::CpuSet;
use crate::core::effect::CpuSplit;
use crate::core::model::Tier;
use crate::kernfs::parse::{self, Odd};
use crate::sample;
use crate::units::Pid;

/// How long the CPUs are looked at to find one with time to spare, and then the processes compete before they
/// are measured.
const BEFORE: Duration = Duration::from_millis(100);

/// How long they are measured.
const OVER: Duration = Duration::from_secs(1);

/// How long a stop of the daemon waits.
const STEP: Duration = Duration::from_millis(20);

/// What two processes get of one CPU by the weights of `plan`; an error once the daemon is stopping.
pub(super) fn split_cpu(
    tree: &TierTree,
    plan: &WeightPlan,
    stopping: &AtomicBool,
) -> Result<CpuSplit, CgroupError> {
    let refused = |what: String| CgroupError::Refused(format!("the test was not made: {what}"));
    let pause = |time: Duration| {
        let begun = clock::boot_time();
        while clock::boot_time().since(begun) < time {
            if stopping.load(Ordering::Relaxed) {
                return Err(refused("lrsd is stopping".to_owned()));
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    };
    let before = idle_times();
    pause(BEFORE)?;
    let after = idle_times();
    // Dropped last, and so ended last: the other has a copy of its pipe.
    let mut active = tree.compute(Tier::Active, plan)?;
    let mut passive = tree.compute(Tier::Passive, plan)?;
    let allowed = cpus_of(active.pid()).map_err(|error| refused(format!("its CPUs: {error}")))?;
    let idle = |cpu: u32| {
        let at = |times: &[(u32, Duration)]| times.iter().find(|(of, _)| *of == cpu).map(|it| it.1);
        at(&after).zip(at(&before)).map(|(after, before)| after.saturating_sub(before))
    };
    let cpu = allowed.iter().max_by_key(|cpu| (idle(*cpu), *cpu));
    let cpu = cpu.ok_or_else(|| refused("its process may run on no CPU".to_owned()))?;
    for process in [&active, &passive] {
        pin(process.pid(), cpu)
            .map_err(|error| refused(format!("its processes cannot be pinned: {error}")))?;
    }
    pause(BEFORE)?;
    let used = || {
        let of = |dirs| sample::read_final(dirs)?.cpu;
        let used = of(active.dirs()).zip(of(passive.dirs()));
        used.ok_or_else(|| refused("the CPU time of its groups cannot be read".to_owned()))
    };
    let (begun, first) = (clock::boot_time(), used()?);
    pause(OVER)?;
    let last = used()?;
    let over = clock::boot_time().since(begun);
    if !active.computes() || !passive.computes() {
        return Err(refused("one of its processes was ended or stopped by another".to_owned()));
    }
    // Both, before one is waited for.
    passive.let_end()?;
    active.let_end()?;
    Ok(CpuSplit {
        cpu,
        active: last.0.saturating_sub(first.0),
        passive: last.1.saturating_sub(first.1),
        over,
    })
}

/// How long each CPU was idle since boot; nothing where /proc/stat cannot be read: any CPU will do then.
fn idle_times() -> Vec<(u32, Duration)> {
    let text = std::fs::read("/proc/stat").unwrap_or_default();
    let cpus = parse::stat_cpus(&text);
    // Only compared with each other: any number of ticks in a second serves.
    let idle = |cpu: u32| {
        parse::proc_stat(&text, &[cpu].into_iter().collect(), 100, &mut Odd::default())
            .map(|times| (cpu, times.idle))
    };
    cpus.iter().filter_map(idle).collect()
}

/// Where a process may run.
fn cpus_of(process: Option<Pid>) -> rustix::io::Result<CpuSet> {
    let set = rustix::thread::sched_getaffinity(process.and_then(rustix_pid))?;
    let most = u32::try_from(rustix::thread::CpuSet::MAX_CPU).unwrap_or(u32::MAX);
    Ok((0..most).filter(|cpu| set.is_set(*cpu as usize)).collect())
}

fn pin(process: Option<Pid>, cpu: u32) -> rustix::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu as usize);
    rustix::thread::sched_setaffinity(process.and_then(rustix_pid), &set)
}

fn rustix_pid(pid: Pid) -> Option<rustix::thread::Pid> {
    rustix::thread::Pid::from_raw(pid.raw())
}
