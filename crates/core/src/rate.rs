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
//!    says for which tasks looking is worth its cost. Where one long-lived thread does the
//!    task's work, its scheduler counters narrow the bounds: wall time less its CPU less its
//!    completed waits for one was blocked, but for a wait that still goes on. That also takes
//!    out the bias of looks on a busy machine: the looker gets a CPU when others sleep.
//! 2. *Waiting for a disk*: what remains is divided as `io.pressure` to `cpu.pressure`
//!    grew; both carry the same weights, which cancel. A task that never touched a disk has
//!    growth 0 and blocked 0: a starved hog reads 1.
//!
//! Measured (2 CPUs, Linux 6.18, `cpu.idle` beside two hogs, after 15 s): dd of 4 KiB
//! O_DIRECT|O_DSYNC to a fast disk 0.45, alone 0.44 by exact counters; a hog, a forking loop and
//! one busy thread of 25 1.00; a napper of 3 % CPU 0.03, alone 0.03.
//!
//! # Busy by the wall clock
//!
//! A task that computes for half a second *of wall time* and sleeps for the other half cannot
//! be distinguished, by its CPU and blocked time, from one that sleeps nearly always: starved, it
//! gets 2 ms of CPU for its half second. One that computes a *fixed amount* is right by the
//! definition (and after 15 s has not slept yet, so it reads 1: there is nothing else to see).
//! The two differ in what they are worth to a scheduler only while they starve. What tells
//! them from a napper is that they are *preempted*: the kernel takes the CPU away (involuntary
//! switches), while a task of short bursts gives it back (measured: 70 % of all switches
//! against 1 %). Waits that follow a preemption are demand for CPU, work that may or may not
//! be there once the CPU is. So for the part of blocked time that is sleep the rate is the
//! middle between two readings: those waits count as nothing (the definition), or as CPU.
//! The half-sleeper by the clock reads 0.3 (measured); one by amount, once it has slept, reads
//! between its true half and 1; nappers, sleepers and disk-bound tasks stay what they are.
//! Unstarved, the two readings are the same.
//!
//! # Without PSI
//!
//! Looks alone split the time, or, when one long-lived thread does the task's work, that
//! thread's counters. A thread that never gave the CPU up was never blocked.
//!
//! # When an interval ends
//!
//! All counters are totals, so an interval may be as long as one likes: its pressure, looks and
//! thread counters are read at its ends alone. Of a young task each cycle is one; later
//! [`RateMeter::is_due`] lets an interval grow with the history it is added to, since an eighth
//! of it can move the rate by an eighth at most, and ends it with the first reading after
//! [`LONGEST_OPEN`]: so a change of behaviour is in the rate after 48 s and up to one period.
//!
//! # Limits
//!
//! - Several threads computing at once and all sleeping at once are seen as sleeping only when
//!   looked at. CPU is not divided by threads (spec 3), so such a task reads high anyway.
//! - A starved task that sleeps less in all than it waits once for the CPU reads as if it
//!   had not slept: 2 ms of sleep between waits of half a second are below what looks and
//!   counters resolve.
//! - A starved program that is still starting computes: it looks like any hog, whatever it
//!   will do later.
//! - Of an old task that starves there is one look an interval, which stands for up to 48 s and
//!   a period. It is right in the mean, and an eighth of the history at most; the looks before it
//!   would be surer, but of what the task did then.
//! - The interval that the end of a task cuts short has pressure and looks, but no counters of
//!   threads: there are none any more. A starved task's last 48 s are split without them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::Class;
use crate::sample::{
    CpuQuota, CpuTimes, NodeSample, TaskPressure, TaskSample, ThreadCounters, ThreadLook,
};
use crate::units::{BootTime, Share};

mod node;
mod split;
pub use node::{NodeRates, PressureShares, TaskRates};
use split::{Pool, Split};

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
    /// CPUs the task may run on, over which PSI averages:
    /// [`UsableCpus::spread`](crate::cpus::UsableCpus::spread), not A, which a quota makes smaller.
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

/// Seconds of computing, blocking and waiting together below which nothing is known of a task: in so
/// short a time a program starts.
const LEAST_TIME: f64 = 0.3;

/// CPU and blocked seconds together below which nothing is known: a few turns on the CPU of
/// a starved task. A passive hog beside saturated active ones gets about 3 ms a second.
const LEAST_EVIDENCE: f64 = 0.010;

/// Computing rate, and share of disk waits, below which a task is a sleeper: what a shell that starts
/// `sleep` for a second takes.
const IDLE_BELOW: f64 = 0.02;

/// Share of an interval that may have been waiting for the CPU or not before looking at threads
/// is worth its cost.
const SLACK: f64 = 0.05;

/// The same as a share of the time without CPU. A sleeping JVM of 40 threads that waits a
/// little is not looked at; a starved task's waits are most of that time by any measure.
const SMALL_PART: f64 = 0.2;

/// Looks per interval until [`FEW_LOOKS`] were taken: 20 in the 15 s after which a class is
/// expected at the default period, so that a half-sleeper is not missed by chance.
const LOOKS_AT_FIRST: u32 = 4;

/// See [`LOOKS_AT_FIRST`].
const FEW_LOOKS: u64 = 40;

/// Seconds after which a task that cannot be looked at is no longer tried each cycle.
const LOOKS_TRIED: f64 = 120.0;

/// Seconds for which every reading ends an interval: a class is expected after 15 s.
const YOUNG: f64 = 20.0;

/// Part of the history that an interval may be while the task uses the CPU: what the rate may
/// lag behind.
const OPEN_PART: f64 = 1.0 / 8.0;

/// The same while it uses none. Such an interval adds only to what it is known for: blocked or
/// waiting.
const OPEN_PART_IDLE: f64 = 1.0 / 4.0;

/// An interval ends with the first reading after this: a change of behaviour is in the rate after
/// this and up to one period.
pub const LONGEST_OPEN: Duration = Duration::from_secs(48);

/// Share of the task's CPU one thread must have used for its counters to stand for the task.
const MAIN_THREAD: f64 = 0.9;

/// Waits for the CPU that may be missing from a thread's counters because they still go on,
/// in mean waits. Waits vary: one that is seen going on is longer than the mean.
const WAITS_GOING_ON: f64 = 3.0;

/// What was counted since admission. Serialisable: it survives the daemon in the task's state
/// file, and the first interval after a restart is a long one.
///
/// Intervals with an open split are pooled, and the pool is split as a whole when the rate is
/// asked for: bounds and thread samples of many intervals together say more than those of each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RateMeter {
    /// Seconds, all intervals.
    elapsed: f64,
    /// Seconds, all intervals.
    cpu: f64,
    /// What the counters alone say.
    known: Split,
    /// Pressure known, one thread stands for the task.
    #[serde(default, skip_serializing_if = "Pool::is_empty")]
    lone: Pool,
    /// Pressure known, no such thread.
    #[serde(default, skip_serializing_if = "Pool::is_empty")]
    many: Pool,
    /// No pressure, one thread stands for the task.
    #[serde(default, skip_serializing_if = "Pool::is_empty")]
    blind_lone: Pool,
    /// No pressure, no such thread.
    #[serde(default, skip_serializing_if = "Pool::is_empty")]
    blind_many: Pool,
    looks: Looks,
    /// Looks since the last interval.
    recent: Looks,
    /// What the last interval left open.
    ambiguous: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Looks {
    all: u64,
    disk: u64,
    asleep: u64,
}

impl Looks {
    /// Shares of looks that saw the task asleep and in disk wait.
    fn shares(self) -> Option<(f64, f64)> {
        let all = self.all as f64;
        (self.all > 0).then(|| (self.asleep as f64 / all, self.disk as f64 / all))
    }
}

/// How the time of a task, or of several, was spent, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// On CPUs.
    pub cpu: f64,
    /// Blocked.
    pub blocked: f64,
    /// Of that, waiting for a disk.
    pub disk: f64,
    /// Waiting for a CPU.
    pub waited: f64,
}

impl Spent {
    /// That of another task too.
    pub fn add(&mut self, other: Spent) {
        self.cpu += other.cpu;
        self.blocked += other.blocked;
        self.disk += other.disk;
        self.waited += other.waited;
    }

    /// CPU / (CPU + blocked); `None`: not enough evidence, that is less than 0.3 s in all, or CPU and
    /// blocked time of less than 10 ms together.
    pub fn rate(&self) -> Option<Share> {
        let known = self.cpu + self.blocked;
        let is_enough = known >= LEAST_EVIDENCE && known + self.waited >= LEAST_TIME;
        if is_enough { Share::of(self.cpu, known) } else { None }
    }

    /// Which part of CPU and blocked time was spent waiting for a disk.
    pub fn disk_share(&self) -> Option<Share> {
        Share::of(self.disk, self.cpu + self.blocked)
    }
}

impl RateMeter {
    /// How often the threads of the task should be looked at in the coming interval: not at
    /// all when its counters alone say how its time was split, several times while little has
    /// been seen, once later.
    ///
    /// Looks are taken at moments the caller jitters: a task with a period that divides the sample
    /// period would otherwise be seen in one phase for ever.
    pub fn looks_wanted(&self) -> u32 {
        match self.ambiguous {
            Some(false) => 0,
            _ if self.looks.all < FEW_LOOKS => LOOKS_AT_FIRST,
            _ => 1,
        }
    }

    /// Whether an interval that has been open for `open` should end with the coming reading,
    /// which then has to bring pressure and, as [`RateMeter::looks_wanted`] says, looks.
    /// `used_cpu`: whether the task has used CPU in it, as far as known.
    pub fn is_due(&self, open: Duration, used_cpu: bool) -> bool {
        let looked_too_little = self.ambiguous == Some(true)
            && self.looks.all < FEW_LOOKS
            && self.elapsed < LOOKS_TRIED;
        let part = if used_cpu { OPEN_PART } else { OPEN_PART_IDLE };
        self.elapsed < YOUNG
            || looked_too_little
            || open.as_secs_f64() >= (part * self.elapsed).min(LONGEST_OPEN.as_secs_f64())
    }

    /// A sample of the threads since the last interval.
    pub fn saw(&mut self, look: ThreadLook) {
        for looks in [&mut self.looks, &mut self.recent] {
            looks.all = looks.all.saturating_add(1);
            looks.disk = looks.disk.saturating_add(u64::from(look == ThreadLook::DiskWait));
            looks.asleep = looks.asleep.saturating_add(u64::from(look == ThreadLook::Asleep));
        }
    }

    /// The next interval.
    pub fn advance(&mut self, interval: &Interval) {
        let looks = self.recent.shares().or(self.looks.shares());
        self.recent = Looks::default();
        let open = Pool::of(interval, looks);
        self.elapsed += open.elapsed;
        self.cpu += open.cpu;
        let ambiguous = open.is_ambiguous(f64::from(interval.cpus), interval.pressure.is_some());
        self.ambiguous = Some(ambiguous);
        let lone = interval.thread.is_some_and(|thread| {
            thread.ran.as_secs_f64() >= MAIN_THREAD * open.cpu && open.cpu <= open.elapsed
        });
        match (ambiguous, interval.pressure.is_some(), lone) {
            (false, true, _) => self.known.add(open.split_by_pressure()),
            (_, true, true) => self.lone.add(&open),
            (_, true, false) => self.many.add(&open),
            (_, false, true) => self.blind_lone.add(&open),
            (_, false, false) => self.blind_many.add(&open),
        }
    }

    fn split(&self) -> Split {
        let mut split = self.known;
        split.add(self.lone.split_within_thread(self.lone.split_by_looks()));
        split.add(self.many.split_by_looks());
        split.add(self.blind_lone.split_by_thread());
        split.add(self.blind_many.split_blind());
        split
    }

    /// How the time since admission was spent. `None`: nothing is known, or neither pressure nor
    /// a thread sample says what it did while it had no CPU.
    pub fn spent(&self) -> Option<Spent> {
        if self.elapsed == 0.0 || self.looks.all == 0 && self.blind_many.is_unseen() {
            return None;
        }
        let split = self.split();
        let (cpu, disk, blocked) = (self.cpu, split.disk, split.asleep + split.disk);
        Some(Spent { cpu, blocked, disk, waited: (self.elapsed - cpu - blocked).max(0.0) })
    }

    /// CPU / (CPU + blocked) since admission. `None`: not enough evidence ([`Spent::rate`]).
    pub fn computing_rate(&self) -> Option<Share> {
        let defined = self.spent()?.rate()?.value();
        let split = self.split();
        let blocked = split.asleep + split.disk;
        let wanted = self.cpu + split.preempted;
        let demanded = Share::of(wanted, wanted + blocked)?.value();
        let sleep_share = Share::of(split.asleep, blocked).unwrap_or_default().value();
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

    /// Which part of CPU and blocked time it waited for a disk. `None`: not known.
    pub fn disk_share(&self) -> Option<Share> {
        self.spent()?.disk_share()
    }

    /// The class of [`RateMeter::computing_rate`]; `None` is "unknown".
    pub fn class(&self, io_below: Share, cpu_above: Share) -> Option<Class> {
        let rate = self.computing_rate()?;
        Some(class_of(rate, self.disk_share(), io_below, cpu_above))
    }
}

/// Below `io_below` I/O-bound, or a sleeper; at or above `cpu_above` CPU-bound, between them moderate.
/// `disk`: [`RateMeter::disk_share`].
pub fn class_of(rate: Share, disk: Option<Share>, io_below: Share, cpu_above: Share) -> Class {
    let is_small = |share: Share| share.value() < IDLE_BELOW;
    if rate >= cpu_above {
        Class::Cpu
    } else if rate >= io_below {
        Class::Moderate
    } else if is_small(rate) && disk.is_some_and(is_small) {
        Class::Idle
    } else {
        Class::Io
    }
}

#[cfg(test)]
mod tests;
