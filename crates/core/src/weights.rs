//! Which numbers the tiers are: pure arithmetic on a [`WeightPlan`] and the kernel's ranges.
//!
//! `ratio` is promised between the two *tiers* when both are full. There may be k passive
//! tasks for each active one, k = ceil(passive_max / A), so one active task must weigh
//! `ratio * k` times a passive one (spec 4). It also never weighs less than the neutral value
//! every cgroup starts with, so that being in LRS does not cost an active task anything
//! against its siblings.
//!
//! Within the range the passive weight is the largest that keeps the promise: a tier that is
//! held back further than asked gains the active one nothing and only slows the passive one.
//! An idle group (`cpu.idle`) has no choice of weight; the kernel counts it as 3 of 1024
//! (`WEIGHT_IDLEPRIO`, kernel/sched/sched.h).

use crate::lane;
use crate::model::Level;
use crate::task::GroupRecord;

/// What the weights have to promise: `ratio` between the full tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightPlan {
    /// `tiers.ratio`.
    pub ratio: u32,
    /// A.
    pub active_capacity: u32,
    /// `passive_max`.
    pub passive_max: u32,
}

/// A weight file: its name, its range, and the value every group starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// File name.
    pub file: &'static str,
    /// Smallest value the kernel takes.
    pub min: u64,
    /// Largest value the kernel takes.
    pub max: u64,
    /// What a new group has.
    pub neutral: u64,
    /// What the kernel counts an idle group as, in units of this scale times 1024; `None`
    /// where the file has no idle state.
    idle_times_1024: Option<u64>,
    /// Smallest active value that is chosen: neutral, or the top of a narrow range.
    active_floor: u64,
}

/// v1 `cpu.shares` (kernel/sched/sched.h: MIN_SHARES 2, MAX_SHARES 1 << 18).
pub const CPU_SHARES: Scale = Scale {
    file: "cpu.shares",
    min: 2,
    max: 262_144,
    neutral: 1024,
    idle_times_1024: Some(3 * 1024),
    active_floor: 1024,
};

/// v2 `cpu.weight` (cgroup-v2.rst); the scheduler counts `weight * 1024 / 100`.
pub const CPU_WEIGHT: Scale = Scale {
    file: "cpu.weight",
    min: 1,
    max: 10_000,
    neutral: 100,
    idle_times_1024: Some(3 * 100),
    active_floor: 100,
};

/// v2 `io.bfq.weight`. The range is narrow, so the active end is its top: 1000 against 10 or
/// less at the default ratio (spec 4).
pub const IO_BFQ_WEIGHT: Scale = Scale {
    file: "io.bfq.weight",
    min: 1,
    max: 1000,
    neutral: 100,
    idle_times_1024: None,
    active_floor: 1000,
};

/// v1 name of [`IO_BFQ_WEIGHT`].
pub const BLKIO_BFQ_WEIGHT: Scale = Scale { file: "blkio.bfq.weight", ..IO_BFQ_WEIGHT };

/// v2 `io.weight`, acted on where iocost is enabled (cgroup-v2.rst).
pub const IO_WEIGHT: Scale = Scale {
    file: "io.weight",
    min: 1,
    max: 10_000,
    neutral: 100,
    idle_times_1024: None,
    active_floor: 100,
};

/// What is written for each tier, and for the I/O lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Of an active task.
    pub active: u64,
    /// Of a passive task that is not idle.
    pub passive: u64,
}

impl Pair {
    /// The one of `level`; in the I/O lane no less than of another passive task.
    pub fn of(self, level: impl Into<Level>) -> u64 {
        match level.into() {
            Level::Active => self.active,
            Level::Lane => self.part(lane::WEIGHT),
            Level::SlowLane => self.part(lane::SLOW_WEIGHT),
            Level::Passive => self.passive,
        }
    }

    fn part(self, of_active: f64) -> u64 {
        ((self.active as f64 * of_active).round() as u64).max(self.passive)
    }

    /// Beside `found`, what the group's owner had given it: no tier is between the two. An
    /// active task gets no less, and a passive one no more (YARN gives opportunistic containers 2
    /// of 1024 shares). 0 is what an idle group shows on v2. Unless it `rises`, an active task gets
    /// no more either: only an administrator may take from the owner's other groups.
    pub fn beside(self, found: Option<u64>, rises: bool) -> Pair {
        let Some(found) = found.filter(|found| *found > 0) else { return self };
        let active = if rises { self.active.max(found) } else { found };
        Pair { active, passive: self.passive.min(found) }
    }
}

impl WeightPlan {
    /// `cpu.weight` and `io.weight` of an own group at `level`, on cgroup v2 without `cpu.idle` and with
    /// iocost.
    pub fn weights(&self, level: Level) -> (u64, u64) {
        // The lane is one of the CPU's.
        (CPU_WEIGHT.pair(self).of(level), IO_WEIGHT.pair(self).of(level.tier()))
    }

    /// Passive tasks there may be for one active task, rounded up; at least 1.
    fn passive_per_active(&self) -> u64 {
        u64::from(self.passive_max).div_ceil(u64::from(self.active_capacity.max(1))).max(1)
    }

    /// How many times a passive task's weight an active one needs.
    fn factor(&self) -> u64 {
        u64::from(self.ratio.max(1)) * self.passive_per_active()
    }
}

impl Scale {
    /// Weights for `plan` when passive tasks have one.
    pub fn pair(&self, plan: &WeightPlan) -> Pair {
        let wanted = plan.factor().saturating_mul(self.min);
        let active = wanted.clamp(self.active_floor, self.max);
        let passive = (active / plan.factor()).clamp(self.min, self.max);
        Pair { active, passive }
    }

    /// Weights for `plan` when passive tasks are idle; `passive` is then only what an idle
    /// group falls back to.
    pub fn pair_beside_idle(&self, plan: &WeightPlan) -> Pair {
        let Some(idle) = self.idle_times_1024 else { return self.pair(plan) };
        let wanted = plan.factor().saturating_mul(idle).div_ceil(1024);
        Pair { active: wanted.clamp(self.neutral, self.max), ..self.pair(plan) }
    }

    /// What the range makes impossible under `plan`, in a sentence.
    pub fn shortfall(&self, plan: &WeightPlan, idle: bool) -> Option<String> {
        let (active, passive_times_1024) = match self.idle_times_1024.filter(|_| idle) {
            Some(idle) => (self.pair_beside_idle(plan).active, idle),
            None => {
                let pair = self.pair(plan);
                (pair.active, pair.passive * 1024)
            }
        };
        if active.saturating_mul(1024) >= plan.factor().saturating_mul(passive_times_1024) {
            return None;
        }
        // Shares of full tiers: one active task against the passive tasks it faces.
        let kept =
            active as f64 * 1024.0 / passive_times_1024 as f64 / plan.passive_per_active() as f64;
        Some(format!(
            "{} reaches {} only, so full tiers are {kept:.1}:1 instead of tiers.ratio = {} with \
             slots.passive_max = {} beside {} active; lower tiers.ratio or slots.passive_max",
            self.file, self.max, plan.ratio, plan.passive_max, plan.active_capacity
        ))
    }

    /// `weight`, in units of cpu.weight (100 is neutral), on this scale; not yet within range.
    fn converted(&self, weight: u32) -> u64 {
        u64::from(weight) * self.neutral / CPU_WEIGHT.neutral
    }

    /// The same within range.
    pub fn within(&self, weight: u32) -> u64 {
        self.converted(weight).clamp(self.min, self.max)
    }

    /// The most the LRS root weighs among its siblings, within range: `wanted` in units of
    /// cpu.weight, or A times neutral.
    pub fn root(&self, plan: &WeightPlan, wanted: Option<u32>) -> u64 {
        let auto = plan.active_capacity.max(1).saturating_mul(CPU_WEIGHT.neutral as u32);
        self.within(wanted.unwrap_or(auto))
    }

    /// That [`Scale::root`] had to clamp `wanted`, in a sentence.
    pub fn root_shortfall(&self, plan: &WeightPlan, wanted: Option<u32>) -> Option<String> {
        let wanted = wanted?;
        let (asked, written) = (self.converted(wanted), self.root(plan, Some(wanted)));
        (asked != written).then(|| {
            format!(
                "tiers.root_weight = {wanted} means {} = {asked}, which is outside of its range \
                 ({}..={}); {written} is used",
                self.file, self.min, self.max
            )
        })
    }
}

/// `100` or `default 100`, whatever lines come after.
pub fn number(value: &str) -> Option<u64> {
    let value = value.lines().next()?;
    value.strip_prefix("default ").unwrap_or(value).trim().parse().ok()
}

/// What the owner had in `file`.
pub fn found_number(record: &GroupRecord, file: &str) -> Option<u64> {
    let (_, value) = record.found.iter().find(|(name, _)| name == file)?;
    number(value)
}

/// Whether its owner gave it the least CPU weight the kernel takes. An idle group has none.
pub fn has_least_cpu_weight(group: &GroupRecord) -> bool {
    [CPU_SHARES, CPU_WEIGHT].iter().any(|scale| found_number(group, scale.file) == Some(scale.min))
}

#[cfg(test)]
mod tests;
