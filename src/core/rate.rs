//! From counters to rates: how much of a task's time is computing, how busy the node is.
//!
//! # The computing rate
//!
//! CR = CPU / (CPU + blocked), `blocked` = wall time in which no thread of the task was
//! running or runnable (spec 3, after thesis 2.3). CPU is a counter. Blocked is not: of the
//! wall time without CPU one has to know which part was spent waiting *for* the CPU. A passive
//! task beside saturated active ones waits for it nearly always, and must not look I/O-bound.
//!
//! Each interval of `dt` wall time in which the task used `cpu` leaves `dt - cpu`. It is split
//! in two steps:
//!
//! 1. *Asleep* (timers, pipes, sockets; nothing the kernel totals). Its bounds come from the
//!    growth of the task's own pressure totals. PSI averages the stall over CPUs, weighted by
//!    the time the group is busy on each, so the true wait for CPU is between `cpu.pressure` and
//!    `cpus` times it, and what even that does not explain was sleep. With little pressure
//!    the bounds meet and the rate is exact. Between them the share of *looks* decides in
//!    which no thread was running, runnable or in uninterruptible wait. [`RateMeter::looks_wanted`]
//!    says for which tasks looking is worth its cost.
//! 2. *Waiting for a disk*: what remains is divided as `io.pressure` to `cpu.pressure`
//!    grew; both carry the same weights, which cancel. A task that never touched a disk has
//!    growth 0 and blocked 0: a starved hog reads 1.
//!
//! Measured (2 CPUs, Linux 6.18, `cpu.idle` beside two hogs, after 15 s): dd of 4 KiB
//! O_DIRECT|O_DSYNC to a fast disk 0.45, alone 0.44 by exact counters; a hog, a forking loop and
//! one busy thread of 25 1.00; a napper of 2 % CPU 0.04, alone 0.03.
//!
//! # Busy by the wall clock
//!
//! A task that computes for half a second *of wall time* and sleeps for the other half cannot
//! be told, by its CPU and blocked time, from one that sleeps nearly always: starved, it gets
//! 2 ms of CPU for its half second. One that computes a *fixed amount* is right by the
//! definition (and after 15 s has not slept yet, so it reads 1: there is nothing else to see).
//! The two differ in what they are worth to a scheduler only while they starve. What tells
//! them from a napper is that they are *preempted*: the kernel takes the CPU away (involuntary
//! switches), while a task of short bursts gives it back (measured: 70 % of all switches
//! against 1 %). Waits that follow a preemption are demand for CPU, work that may or may not
//! be there once the CPU is. So for the part of blocked time that is sleep the rate is the
//! middle between two readings: those waits count as nothing (the definition), or as CPU.
//! Both half-sleepers come out moderate, nappers, sleepers and disk-bound tasks stay what they
//! are. Unstarved, the two readings are the same.
//!
//! # Without PSI
//!
//! Looks alone split the time, or, when one long-lived thread does the task's work, that
//! thread's scheduler counters: elapsed less CPU less completed waits for it. A wait still
//! going on is missing there; when the last look saw the thread runnable, one mean wait is
//! taken off.
//!
//! # Limits
//!
//! Several threads computing at once and all sleeping at once are seen as sleeping only when
//! looked at. CPU is not divided by threads (spec 3), so such a task reads high anyway.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::core::model::Class;
use crate::sample::{CpuTimes, NodeSample, TaskPressure, TaskSample, ThreadCounters, ThreadLook};
use crate::units::{BootTime, Share};

mod node;
pub use node::{NodeRates, PressureShares, TaskRates};

/// What happened to a task between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Wall time between them.
    pub elapsed: Duration,
    /// CPU time used.
    pub cpu: Duration,
    /// Growth of its pressure totals, where it has them.
    pub pressure: Option<TaskPressure>,
    /// Growth of the counters of the threads seen awake.
    pub thread: Option<ThreadCounters>,
    /// CPUs the task may run on.
    pub cpus: u32,
}

impl Interval {
    /// `None` when no time passed, the CPU counter is unknown, or it went backwards (another
    /// group took the name; the next interval is good again). Pressure or thread counters that
    /// went backwards or appeared in between are left out.
    pub fn between(
        earlier: (BootTime, &TaskSample),
        later: (BootTime, &TaskSample),
        cpus: u32,
    ) -> Option<Interval> {
        let elapsed = later.0.since(earlier.0);
        if elapsed.is_zero() {
            return None;
        }
        let (old, new) = (earlier.1, later.1);
        let pressure = old.pressure.zip(new.pressure).and_then(|(old, new)| {
            Some(TaskPressure {
                cpu_some: new.cpu_some.checked_sub(old.cpu_some)?,
                io_some: new.io_some.checked_sub(old.io_some)?,
            })
        });
        let thread = old.thread.zip(new.thread).and_then(|(old, new)| {
            Some(ThreadCounters {
                ran: new.ran.checked_sub(old.ran)?,
                waited: new.waited.checked_sub(old.waited)?,
                voluntary: new.voluntary.checked_sub(old.voluntary)?,
                involuntary: new.involuntary.checked_sub(old.involuntary)?,
            })
        });
        Some(Interval {
            elapsed,
            cpu: new.cpu?.checked_sub(old.cpu?)?,
            pressure,
            thread,
            cpus: cpus.max(1),
        })
    }
}

/// Wall time below which nothing is known of a task.
const LEAST_ELAPSED: f64 = 1.0;

/// CPU and blocked seconds together below which nothing is known: a few turns on the CPU of
/// a starved task. A passive hog beside saturated active ones gets about 3 ms a second.
const LEAST_EVIDENCE: f64 = 0.010;

/// Share of an interval that may stay unexplained before looking at threads is worth it.
const SLACK: f64 = 0.05;

/// Looks per interval until [`FEW_LOOKS`] were taken: 20 in the 15 s after which a class is
/// expected at the default period, so that a half-sleeper is not missed by chance.
const LOOKS_AT_FIRST: u32 = 4;

/// See [`LOOKS_AT_FIRST`].
const FEW_LOOKS: u64 = 40;

/// Share of the task's CPU one thread must have used for its counters to stand for the task.
const MAIN_THREAD: f64 = 0.9;

/// Seconds, summed since admission. Serialisable: it survives the daemon in the task's state
/// file, and the first interval after a restart is a long one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RateMeter {
    elapsed: f64,
    cpu: f64,
    /// Blocked, no disk involved.
    asleep: f64,
    /// Blocked on a disk.
    disk: f64,
    /// Waits for the CPU that followed a preemption.
    preempted: f64,
    looks: Looks,
    /// Looks since the last interval.
    recent: Looks,
    last_look_runnable: bool,
    /// Intervals for which one thread stands.
    lone: LoneThread,
    /// What the last interval left open.
    ambiguous: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Looks {
    all: u64,
    disk: u64,
    asleep: u64,
}

impl Looks {
    fn shares(self) -> Option<(f64, f64)> {
        let all = self.all as f64;
        (self.all > 0).then(|| (self.asleep as f64 / all, self.disk as f64 / all))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct LoneThread {
    elapsed: f64,
    cpu: f64,
    waited: f64,
    voluntary: u64,
    involuntary: u64,
}

impl LoneThread {
    /// Blocked seconds of the intervals it covers.
    fn blocked(&self, runnable_now: bool) -> f64 {
        if self.voluntary == 0 {
            // It never gave the CPU up, so it never blocked.
            return 0.0;
        }
        let runs = self.voluntary.saturating_add(self.involuntary) as f64;
        let going_on = if runnable_now { self.waited / runs } else { 0.0 };
        (self.elapsed - self.cpu - self.waited - going_on).max(0.0)
    }
}

impl RateMeter {
    /// How often the threads of the task should be looked at in the coming interval: not at
    /// all when its counters alone say how its time was split, several times while little has
    /// been seen, once later.
    ///
    /// Looks are taken at moments the caller jitters: a task whose period divides the sample
    /// period would otherwise be seen in one phase for ever.
    pub fn looks_wanted(&self) -> u32 {
        match self.ambiguous {
            Some(false) => 0,
            _ if self.looks.all < FEW_LOOKS => LOOKS_AT_FIRST,
            _ => 1,
        }
    }

    /// A look at the threads since the last interval.
    pub fn saw(&mut self, look: ThreadLook) {
        for looks in [&mut self.looks, &mut self.recent] {
            looks.all = looks.all.saturating_add(1);
            looks.disk = looks.disk.saturating_add(u64::from(look == ThreadLook::DiskWait));
            looks.asleep = looks.asleep.saturating_add(u64::from(look == ThreadLook::Asleep));
        }
        self.last_look_runnable = look == ThreadLook::Runnable;
    }

    /// The next interval.
    pub fn advance(&mut self, interval: &Interval) {
        let split = Split::of(interval, self.recent.shares().or(self.looks.shares()));
        self.recent = Looks::default();
        self.elapsed += interval.elapsed.as_secs_f64();
        self.cpu += interval.cpu.as_secs_f64();
        self.ambiguous = Some(split.ambiguous);
        let lone = interval.thread.filter(|thread| {
            interval.pressure.is_none()
                && thread.ran.as_secs_f64() >= MAIN_THREAD * interval.cpu.as_secs_f64()
        });
        if let Some(thread) = lone {
            self.lone.elapsed += interval.elapsed.as_secs_f64();
            self.lone.cpu += interval.cpu.as_secs_f64();
            self.lone.waited += thread.waited.as_secs_f64();
            self.lone.voluntary = self.lone.voluntary.saturating_add(thread.voluntary);
            self.lone.involuntary = self.lone.involuntary.saturating_add(thread.involuntary);
        } else {
            self.asleep += split.asleep;
            self.disk += split.disk;
        }
        let Some(thread) = interval.thread else { return };
        let switches = thread.voluntary.saturating_add(thread.involuntary);
        if let Some(share) = Share::of(thread.involuntary as f64, switches as f64) {
            self.preempted += split.waiting * share.value();
        }
    }

    /// CPU / (CPU + blocked) since admission. `None`: not enough evidence, that is less than
    /// 1 s of wall time, or CPU and blocked time of less than 10 ms together.
    pub fn computing_rate(&self) -> Option<Share> {
        let lone = self.lone.blocked(self.last_look_runnable);
        // A lone thread's blocked time has no kind; looks say how much of it was a disk's.
        let (asleep, disk) = self.looks.shares().unwrap_or((0.0, 0.0));
        let lone_asleep = lone * Share::of(asleep, asleep + disk).unwrap_or_default().value();
        let asleep = (self.asleep + lone_asleep).max(0.0);
        let blocked = (self.asleep + self.disk + lone).max(0.0);
        if self.elapsed < LEAST_ELAPSED || self.cpu + blocked < LEAST_EVIDENCE {
            return None;
        }
        let defined = Share::of(self.cpu, self.cpu + blocked)?.value();
        let wanted = self.cpu + self.preempted.max(0.0);
        let demanded = Share::of(wanted, wanted + blocked)?.value();
        let sleep_share = Share::of(asleep, blocked).unwrap_or_default().value();
        Some(Share::clamped(defined + sleep_share * (demanded - defined) / 2.0))
    }

    /// CPU / elapsed since admission. `None` before the first interval.
    pub fn computing_rate_raw(&self) -> Option<Share> {
        Share::of(self.cpu, self.elapsed)
    }

    /// Seconds of CPU since admission, over the intervals seen.
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu
    }

    /// The class of [`RateMeter::computing_rate`]; `None` is "unknown".
    pub fn class(&self, io_below: Share, cpu_above: Share) -> Option<Class> {
        self.computing_rate().map(|rate| class_of(rate, io_below, cpu_above))
    }
}

/// Below `io_below` I/O-bound, at or above `cpu_above` CPU-bound, between them moderate.
pub fn class_of(rate: Share, io_below: Share, cpu_above: Share) -> Class {
    if rate >= cpu_above {
        Class::Cpu
    } else if rate < io_below {
        Class::Io
    } else {
        Class::Moderate
    }
}

/// How the time of one interval was spent, seconds.
struct Split {
    asleep: f64,
    disk: f64,
    /// For the CPU.
    waiting: f64,
    ambiguous: bool,
}

impl Split {
    /// `looks`: shares of looks that saw the task asleep and in disk wait.
    fn of(interval: &Interval, looks: Option<(f64, f64)>) -> Split {
        let elapsed = interval.elapsed.as_secs_f64();
        let cpu = interval.cpu.as_secs_f64();
        let cpus = f64::from(interval.cpus);
        let without_cpu = (elapsed - cpu).max(0.0);
        // Computing on several CPUs at once leaves more time without CPU than `elapsed - cpu`.
        let parallel = cpu > elapsed * (1.0 + SLACK) && cpu < elapsed * cpus * (1.0 - SLACK);
        let Some(pressure) = interval.pressure else {
            let most = (elapsed - cpu / cpus).max(0.0);
            let (asleep, disk) = looks.unwrap_or((0.0, 0.0));
            let asleep = (asleep * elapsed).min(most);
            let disk = (disk * elapsed).min(most - asleep);
            return Split {
                asleep,
                disk,
                waiting: (without_cpu - asleep - disk).max(0.0),
                ambiguous: parallel || without_cpu > SLACK * elapsed,
            };
        };
        let cpu_some = pressure.cpu_some.as_secs_f64().min(elapsed);
        let io_some = pressure.io_some.as_secs_f64().min(elapsed);
        let least = (without_cpu - cpus * (cpu_some + io_some)).max(0.0);
        let most = (elapsed - cpu_some.max(io_some).max(cpu / cpus)).max(least);
        let asleep = match looks {
            Some((asleep, _)) => (asleep * elapsed).clamp(least, most),
            None => least,
        };
        let stalled = (without_cpu - asleep).max(0.0);
        let disk = stalled * Share::of(io_some, io_some + cpu_some).unwrap_or_default().value();
        let open = (cpus * cpu_some).min(without_cpu);
        Split {
            asleep,
            disk,
            waiting: stalled - disk,
            ambiguous: parallel || open > SLACK * elapsed,
        }
    }
}

#[cfg(test)]
mod tests;
