//! How the wall time of a task without CPU divides: the arithmetic behind [`super::RateMeter`].

use serde::{Deserialize, Serialize};

use super::{Interval, SLACK, SMALL_PART, WAITS_GOING_ON};
use crate::units::Share;

/// Seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Split {
    /// Blocked, no disk involved.
    pub(super) asleep: f64,
    /// Blocked on a disk.
    pub(super) disk: f64,
    /// Waits for the CPU that followed a preemption.
    pub(super) preempted: f64,
}

impl Split {
    pub(super) fn add(&mut self, other: Split) {
        self.asleep += other.asleep;
        self.disk += other.disk;
        self.preempted += other.preempted;
    }
}

/// Sums over intervals, in seconds if not documented otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Pool {
    pub(super) elapsed: f64,
    pub(super) cpu: f64,
    /// Wall time less CPU, never below 0.
    without_cpu: f64,
    /// Wall time asleep and in disk wait as the looks have it.
    asleep_seen: f64,
    disk_seen: f64,
    /// Least and most time asleep that the other counters allow.
    least_asleep: f64,
    most_asleep: f64,
    cpu_some: f64,
    io_some: f64,
    /// Completed waits for the CPU and switches (counts) of the thread that stands for the task.
    waited: f64,
    voluntary: f64,
    involuntary: f64,
}

impl Pool {
    /// One interval. `looks`: shares of looks that saw the task asleep and in disk wait.
    pub(super) fn of(interval: &Interval, looks: Option<(f64, f64)>) -> Pool {
        let elapsed = interval.elapsed.as_secs_f64();
        let cpu = interval.cpu.as_secs_f64();
        let cpus = f64::from(interval.cpus.max(1));
        let without_cpu = (elapsed - cpu).max(0.0);
        let pressure = interval.pressure.unwrap_or_default();
        let cpu_some = pressure.cpu_some.as_secs_f64().min(elapsed);
        let io_some = pressure.io_some.as_secs_f64().min(elapsed);
        let least_asleep = if interval.pressure.is_some() {
            (without_cpu - cpus * (cpu_some + io_some)).max(0.0)
        } else {
            0.0
        };
        // Without looks nothing is asleep that need not be.
        let (asleep, disk) = looks.unwrap_or((0.0, 0.0));
        let thread = interval.thread.unwrap_or_default();
        Pool {
            elapsed,
            cpu,
            without_cpu,
            asleep_seen: asleep * elapsed,
            disk_seen: disk * elapsed,
            least_asleep,
            most_asleep: (elapsed - cpu_some.max(io_some).max(cpu / cpus)).max(least_asleep),
            cpu_some,
            io_some,
            waited: thread.waited.as_secs_f64(),
            voluntary: thread.voluntary as f64,
            involuntary: thread.involuntary as f64,
        }
    }

    pub(super) fn add(&mut self, other: &Pool) {
        self.elapsed += other.elapsed;
        self.cpu += other.cpu;
        self.without_cpu += other.without_cpu;
        self.asleep_seen += other.asleep_seen;
        self.disk_seen += other.disk_seen;
        self.least_asleep += other.least_asleep;
        self.most_asleep += other.most_asleep;
        self.cpu_some += other.cpu_some;
        self.io_some += other.io_some;
        self.waited += other.waited;
        self.voluntary += other.voluntary;
        self.involuntary += other.involuntary;
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Pool::default()
    }

    /// Whether it has time without CPU of which nothing but looks could say what it was.
    pub(super) fn is_unseen(&self) -> bool {
        self.without_cpu > SLACK * self.elapsed
    }

    /// Whether the counters leave open how much of the time without CPU was spent waiting for it.
    pub(super) fn is_ambiguous(&self, cpus: f64, has_pressure: bool) -> bool {
        // Computing on several CPUs at once leaves more time without CPU than `elapsed - cpu`.
        let parallel = self.cpu > self.elapsed * (1.0 + SLACK)
            && self.cpu < self.elapsed * cpus * (1.0 - SLACK);
        let most_waiting =
            if has_pressure { cpus * self.cpu_some } else { f64::INFINITY }.min(self.without_cpu);
        parallel || most_waiting > (SLACK * self.elapsed).max(SMALL_PART * self.without_cpu)
    }

    /// Disk and CPU waits share what is not sleep as their pressure grew.
    fn with_asleep(&self, asleep: f64) -> Split {
        let stalled = (self.without_cpu - asleep).max(0.0);
        let disk_share = Share::of(self.io_some, self.io_some + self.cpu_some);
        Split { asleep, disk: stalled * disk_share.unwrap_or_default().value(), preempted: 0.0 }
    }

    /// When there is next to no wait for the CPU.
    pub(super) fn split_by_pressure(&self) -> Split {
        self.with_asleep((self.without_cpu - self.cpu_some - self.io_some).max(0.0))
    }

    /// Looks within the bounds of pressure.
    pub(super) fn split_by_looks(&self) -> Split {
        let least = self.least_asleep;
        self.with_asleep(self.asleep_seen.clamp(least, self.most_asleep.max(least)))
    }

    /// `split`, narrowed by the counters of the one thread that stands for the task.
    pub(super) fn split_within_thread(&self, split: Split) -> Split {
        let (least, most) = self.thread_blocked();
        let asleep = split.asleep.min(most - split.disk).max(least - split.disk).max(0.0);
        self.with_preempted(Split { asleep, disk: split.disk.min(most), ..split })
    }

    /// No pressure: the counters of the one thread that stands for the task. What is blocked
    /// is a disk's as far as looks saw it there.
    pub(super) fn split_by_thread(&self) -> Split {
        let (least, most) = self.thread_blocked();
        let blocked = (self.asleep_seen + self.disk_seen).min(most).max(least);
        let asleep = Share::of(self.asleep_seen, self.asleep_seen + self.disk_seen);
        // Blocks too short to be seen are more like a fast disk's than like sleep.
        let asleep = blocked * asleep.unwrap_or_default().value();
        self.with_preempted(Split { asleep, disk: blocked - asleep, preempted: 0.0 })
    }

    /// No pressure and no such thread: looks alone.
    pub(super) fn split_blind(&self) -> Split {
        let asleep = self.asleep_seen.min(self.most_asleep);
        let disk = self.disk_seen.min(self.most_asleep - asleep);
        Split { asleep, disk, preempted: 0.0 }
    }

    /// Least and most blocked time by the thread's own counters.
    fn thread_blocked(&self) -> (f64, f64) {
        if self.voluntary == 0.0 {
            // It never gave the CPU up, so it never blocked.
            return (0.0, 0.0);
        }
        let most = (self.elapsed - self.cpu - self.waited).max(0.0);
        let mean_wait = self.waited / (self.voluntary + self.involuntary);
        ((most - WAITS_GOING_ON * mean_wait).max(0.0), most)
    }

    fn with_preempted(&self, split: Split) -> Split {
        let waiting = (self.without_cpu - split.asleep - split.disk).max(0.0);
        let share = Share::of(self.involuntary, self.voluntary + self.involuntary);
        Split { preempted: waiting * share.unwrap_or_default().value(), ..split }
    }
}
