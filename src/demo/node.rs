//! What the node did between two readings of /proc/stat (proc_stat(5)), all CPUs together.

use procfs::{CurrentSI, KernelStats};

use crate::cli::Failure;

/// Cumulative times, in clock ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticks {
    effective: u64,
    iowait: u64,
    all: u64,
}

/// Shares of the CPU time between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Use {
    /// user + nice + system + irq + softirq.
    pub(super) effective: Option<f64>,
    /// Idle with I/O outstanding.
    pub(super) iowait: Option<f64>,
}

impl Ticks {
    /// Reads now.
    pub(super) fn now() -> Result<Ticks, Failure> {
        let stat = KernelStats::current()
            .map_err(|error| Failure::failed(format!("cannot read /proc/stat: {error}")))?;
        let total = stat.total;
        let known = |value: Option<u64>| value.unwrap_or(0);
        let effective =
            total.user + total.nice + total.system + known(total.irq) + known(total.softirq);
        let iowait = known(total.iowait);
        let all = effective + iowait + total.idle + known(total.steal);
        Ok(Ticks { effective, iowait, all })
    }

    /// The shares since `before`. Unknown when no tick passed.
    pub(super) fn since(self, before: Ticks) -> Use {
        let all = self.all.saturating_sub(before.all);
        let share =
            |now: u64, then: u64| (all > 0).then(|| now.saturating_sub(then) as f64 / all as f64);
        Use {
            effective: share(self.effective, before.effective),
            iowait: share(self.iowait, before.iowait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between() {
        let before = Ticks { effective: 100, iowait: 50, all: 1_000 };
        let after = Ticks { effective: 250, iowait: 60, all: 1_200 };
        assert_eq!(after.since(before), Use { effective: Some(0.75), iowait: Some(0.05) });
        assert_eq!(after.since(after), Use { effective: None, iowait: None });
    }
}
