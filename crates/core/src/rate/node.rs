//! Rates of the node and of one task over one cycle.

use serde::{Deserialize, Serialize};

use super::*;

/// Shares and speeds of the node between two readings. `None`: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeRates {
    /// E: user + nice + system + irq + softirq. All four are of
    /// [`UsableCpus::total`](crate::cpus::UsableCpus::total).
    pub effective: Option<Share>,
    /// W.
    pub iowait: Option<Share>,
    /// S.
    pub steal: Option<Share>,
    /// What is left.
    pub idle: Option<Share>,
    /// CPU time that the LRS root group used.
    pub root_cpu: Option<Duration>,
    /// Bytes a second read from whole disks.
    pub disk_read_per_sec: Option<f64>,
    /// Bytes a second written to whole disks.
    pub disk_write_per_sec: Option<f64>,
    /// Bytes a second by which the swap in use grew; below 0, it shrank.
    pub swap_growth: Option<f64>,
    /// Bytes a second by which the memory available fell; below 0, it rose.
    pub memory_taken: Option<f64>,
    /// Shares of wall time under pressure.
    pub pressure: Option<PressureShares>,
}

/// Shares of wall time in which some (or all non-idle) tasks of the node were stalled. `None`: the
/// kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)] // the kernel's own words
pub struct PressureShares {
    pub cpu_some: Option<Share>,
    pub memory_some: Option<Share>,
    pub memory_full: Option<Share>,
    pub io_some: Option<Share>,
    pub io_full: Option<Share>,
}

impl NodeRates {
    /// Each figure on its own: one counter that is missing or went backwards takes away only
    /// what rests on it. A change of the CPUs that tasks may use, or of a quota, gives no CPU
    /// shares for one cycle.
    pub fn between(earlier: (BootTime, &NodeSample), later: (BootTime, &NodeSample)) -> NodeRates {
        let (old, new) = (earlier.1, later.1);
        let elapsed = later.0.since(earlier.0);
        let cpu = CpuShared::between(old, new, elapsed);
        let disk = old.disk.zip(new.disk);
        NodeRates {
            effective: cpu.map(|delta| delta.effective),
            iowait: cpu.map(|delta| delta.iowait),
            steal: cpu.map(|delta| delta.steal),
            idle: cpu.map(|delta| delta.idle),
            // One that went back is of a group made anew.
            root_cpu: old.root_cpu.zip(new.root_cpu).and_then(|(old, new)| new.checked_sub(old)),
            disk_read_per_sec: disk
                .and_then(|(old, new)| per_second(old.read.0, new.read.0, elapsed)),
            disk_write_per_sec: disk
                .and_then(|(old, new)| per_second(old.written.0, new.written.0, elapsed)),
            swap_growth: old.memory.zip(new.memory).and_then(|(old, new)| {
                let grown = new.swap_used?.0 as f64 - old.swap_used?.0 as f64;
                (!elapsed.is_zero()).then(|| grown / elapsed.as_secs_f64())
            }),
            memory_taken: old.memory.zip(new.memory).and_then(|(old, new)| {
                let taken = old.available.0 as f64 - new.available.0 as f64;
                (!elapsed.is_zero()).then(|| taken / elapsed.as_secs_f64())
            }),
            pressure: old.pressure.zip(new.pressure).and_then(|(old, new)| {
                let share = |old: Option<Duration>, new: Option<Duration>| {
                    share_of_time(old?, new?, elapsed)
                };
                let shares = PressureShares {
                    cpu_some: share(old.cpu_some, new.cpu_some),
                    memory_some: share(old.memory_some, new.memory_some),
                    memory_full: share(old.memory_full, new.memory_full),
                    io_some: share(old.io_some, new.io_some),
                    io_full: share(old.io_full, new.io_full),
                };
                (shares != PressureShares::default()).then_some(shares)
            }),
        }
    }
}

#[derive(Clone, Copy)]
struct CpuShared {
    effective: Share,
    iowait: Share,
    steal: Share,
    idle: Share,
}

impl CpuShared {
    /// `None` also where what tasks may use is not the same in both readings: a CPU that comes back
    /// brings the counters of its whole life.
    fn between(old: &NodeSample, new: &NodeSample, elapsed: Duration) -> Option<CpuShared> {
        let limit = |quota: &CpuQuota| (quota.group.clone(), quota.cpus);
        let same_quotas = old.quotas.iter().map(limit).eq(new.quotas.iter().map(limit));
        if old.cpus != new.cpus || !same_quotas {
            return None;
        }
        let mut cpu = CpuDelta::between(old.cpu.as_ref()?, new.cpu.as_ref()?)?;
        if let Some(cpus) = &new.cpus
            && cpu.all() > most_counted(elapsed, cpus.len())
        {
            return None;
        }
        for (old, new) in old.quotas.iter().zip(&new.quotas) {
            let used = new.used?.checked_sub(old.used?)?;
            cpu = cpu.within(new.cpus * elapsed.as_secs_f64(), used.as_secs_f64());
        }
        let all = cpu.all();
        Some(CpuShared {
            effective: Share::of(cpu.effective, all)?,
            iowait: Share::of(cpu.iowait, all)?,
            steal: Share::of(cpu.steal, all)?,
            idle: Share::of(cpu.idle, all)?,
        })
    }
}

/// The most CPU seconds that `cpus` can have counted: ticks are rounded, and the counters are read a
/// little later than the clock. More is a counter that jumped.
fn most_counted(elapsed: Duration, cpus: u32) -> f64 {
    (1.25 * elapsed.as_secs_f64() + 0.1) * f64::from(cpus)
}

/// CPU seconds between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CpuDelta {
    effective: f64,
    iowait: f64,
    steal: f64,
    idle: f64,
}

impl CpuDelta {
    /// The kernel lets idle and iowait go back by a tick now and then (proc_stat(5)); either
    /// then counts as unchanged. A larger step, or one of another field, is another set of
    /// CPUs, and there is no share.
    fn between(old: &CpuTimes, new: &CpuTimes) -> Option<CpuDelta> {
        const JITTER: Duration = Duration::from_millis(100);
        let wobbling = |old: Duration, new: Duration| {
            (new + JITTER >= old).then(|| new.saturating_sub(old).as_secs_f64())
        };
        let steady = |old: Duration, new: Duration| new.checked_sub(old).map(|d| d.as_secs_f64());
        let effective = steady(old.user, new.user)?
            + steady(old.nice, new.nice)?
            + steady(old.system, new.system)?
            + steady(old.irq, new.irq)?
            + steady(old.softirq, new.softirq)?;
        let steal = wobbling(old.steal, new.steal)?;
        let iowait = wobbling(old.iowait, new.iowait)?;
        let idle = wobbling(old.idle, new.idle)?;
        Some(CpuDelta { effective, iowait, steal, idle })
    }

    fn all(&self) -> f64 {
        self.effective + self.steal + self.iowait + self.idle
    }

    /// What is left of it below a quota of `most` CPU seconds, of which its group used `used`: the
    /// total is the least of both, and so is what is spare. The rest is in use, by the group or by
    /// others on its CPUs. Which part of it was stolen, and which part of the spare time waited for
    /// a disk, is as on the CPUs.
    fn within(self, most: f64, used: f64) -> CpuDelta {
        let total = self.all().min(most);
        let (busy, spare) = (self.effective + self.steal, self.iowait + self.idle);
        let spare_left = spare.min((most - used).max(0.0)).min(total);
        let busy_left = total - spare_left;
        let part = |part: f64, of: f64| if of > 0.0 { part / of } else { 0.0 };
        let (steal, iowait) =
            (busy_left * part(self.steal, busy), spare_left * part(self.iowait, spare));
        CpuDelta { effective: busy_left - steal, iowait, steal, idle: spare_left - iowait }
    }
}

/// What one task did over one cycle. `None`: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskRates {
    /// Share of the CPUs that tasks may use, or of a quota below them.
    pub cpu_share: Option<Share>,
    /// Bytes a second read from disks.
    pub read_per_sec: Option<f64>,
    /// Bytes a second written to disks.
    pub write_per_sec: Option<f64>,
}

impl TaskRates {
    /// `cpus`: [`UsableCpus::total`](crate::cpus::UsableCpus::total).
    pub fn between(
        earlier: (BootTime, &TaskSample),
        later: (BootTime, &TaskSample),
        cpus: f64,
    ) -> TaskRates {
        let (old, new) = (earlier.1, later.1);
        let elapsed = later.0.since(earlier.0);
        let cpu = old.cpu.zip(new.cpu).and_then(|(old, new)| new.checked_sub(old));
        let whole = elapsed.as_secs_f64() * cpus;
        let bytes = |old: Option<crate::units::Bytes>, new: Option<crate::units::Bytes>| {
            per_second(old?.0, new?.0, elapsed)
        };
        TaskRates {
            cpu_share: cpu.and_then(|cpu| Share::of(cpu.as_secs_f64(), whole)),
            read_per_sec: bytes(old.read, new.read),
            write_per_sec: bytes(old.written, new.written),
        }
    }
}

fn per_second(old: u64, new: u64, elapsed: Duration) -> Option<f64> {
    let grown = new.checked_sub(old)?;
    (!elapsed.is_zero()).then(|| grown as f64 / elapsed.as_secs_f64())
}

fn share_of_time(old: Duration, new: Duration, elapsed: Duration) -> Option<Share> {
    Share::of(new.checked_sub(old)?.as_secs_f64(), elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests;
