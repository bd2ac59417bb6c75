//! What the node did between two readings of /proc/stat (proc_stat(5)), all CPUs together, and
//! how much of it was not our tasks'.

use lrs_core::units::WallTime;
use lrs_term::Failure;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use procfs::{CurrentSI, KernelStats};
use rustix::time::{ClockId, clock_gettime};

/// Cumulative times, in clock ticks.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    effective: u64,
    iowait: u64,
    steal: u64,
    all: u64,
    context_switches: u64,
    /// CPU of the children that were waited for, and of theirs (getrusage(2)).
    children: u64,
}

/// Shares of the CPU time between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    /// user + nice + system + irq + softirq.
    pub effective: Option<f64>,
    /// Idle with I/O outstanding.
    pub iowait: Option<f64>,
    /// Taken by the hypervisor.
    pub steal: Option<f64>,
    /// The part of `effective` that was not the tasks': other work of the machine, the kernel's
    /// own threads, and lrsd.
    pub others: Option<f64>,
    /// Of all CPUs.
    pub context_switches: u64,
}

impl Ticks {
    /// Reads now.
    pub fn now() -> Result<Ticks, Failure> {
        let stat = KernelStats::current()
            .map_err(|error| Failure::failed(format!("cannot read /proc/stat: {error}")))?;
        let total = stat.total;
        let known = |value: Option<u64>| value.unwrap_or(0);
        let effective =
            total.user + total.nice + total.system + known(total.irq) + known(total.softirq);
        let iowait = known(total.iowait);
        let steal = known(total.steal);
        let all = effective + iowait + total.idle + steal;
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN)
            .map_err(|error| Failure::failed(format!("cannot read the CPU time used: {error}")))?;
        let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
        let micros = u64::try_from(micros).unwrap_or(0);
        let children = micros.saturating_mul(procfs::ticks_per_second()) / 1_000_000;
        let context_switches = stat.ctxt;
        Ok(Ticks { effective, iowait, steal, all, context_switches, children })
    }

    /// The shares since `before`. Unknown when no tick passed.
    pub fn since(self, before: Ticks) -> Use {
        let all = self.all.saturating_sub(before.all);
        let share = |ticks: u64| (all > 0).then(|| ticks as f64 / all as f64);
        let effective = self.effective.saturating_sub(before.effective);
        let ours = self.children.saturating_sub(before.children);
        Use {
            effective: share(effective),
            iowait: share(self.iowait.saturating_sub(before.iowait)),
            steal: share(self.steal.saturating_sub(before.steal)),
            others: share(effective.saturating_sub(ours)),
            context_switches: self.context_switches.saturating_sub(before.context_switches),
        }
    }
}

/// The wall clock now (`CLOCK_REALTIME`).
pub fn wall_time() -> WallTime {
    let now = clock_gettime(ClockId::Realtime);
    WallTime::from_unix_micros(now.tv_sec * 1_000_000 + now.tv_nsec / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between() {
        let before = Ticks {
            effective: 100,
            iowait: 50,
            steal: 0,
            all: 1_000,
            context_switches: 7,
            children: 10,
        };
        let after = Ticks {
            effective: 250,
            iowait: 60,
            steal: 20,
            all: 1_200,
            context_switches: 10,
            children: 110,
        };
        let between = Use {
            effective: Some(0.75),
            iowait: Some(0.05),
            steal: Some(0.1),
            others: Some(0.25),
            context_switches: 3,
        };
        assert_eq!(after.since(before), between);
        assert_eq!(after.since(after), Use::default());
    }
}
