//! How long a thread computes before the CPU goes to the next one of its kind: its slice (EEVDF,
//! sched-eevdf.rst; `sched_setattr(2)`).
//!
//! Each switch between tasks that fill a cache costs the time in which the cache is filled again:
//! a millisecond, beside slices of 4 ms (docs/experiments/slices.md). So with long slices, which
//! `tiers.slice` asks for, these are for what computes and would share a CPU with others like it:
//!
//! - A passive task with a computing rate of [`COMPUTES`] or more. Active ones preempt it at once, since
//!   its group is idle.
//! - An active one like that, while more active tasks have slots than there are CPUs.
//!
//! A task in the I/O lane, one that waits, and one of which nothing is known yet keep the kernel's own
//! slice: short slices come first when they wake.
//!
//! Limits. What a task is known by is its mean since its admission, or its job's: one that changes from
//! waiting to computing gets its slice when the mean says so. Tasks that are pinned to one CPU do not
//! count as more than there are CPUs.

use super::model::Level;
use crate::units::Share;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slice {
    /// The kernel's own.
    #[default]
    Default,
    /// As long as `tiers.slice` says.
    Long,
}

/// The computing rate from which a task computes more than it wakes: that of a class `cpu` or `moderate`
/// with the default `classify.io_below`.
pub const COMPUTES: f64 = 0.2;

/// The slice of a task with the weights of `level`. `rate`: its computing rate; `None`: not known.
/// `crowded`: more active tasks than CPUs.
pub fn slice_of(level: Level, rate: Option<Share>, crowded: bool) -> Slice {
    let computes = rate.is_some_and(|rate| rate.value() >= COMPUTES);
    match level {
        Level::Passive if computes => Slice::Long,
        Level::Active if computes && crowded => Slice::Long,
        Level::Passive | Level::Active | Level::Lane | Level::SlowLane => Slice::Default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_computes_and_shares_a_cpu_has_a_long_slice() {
        let (hog, writer) = (Some(Share::clamped(0.97)), Some(Share::clamped(0.05)));
        let half = Some(Share::clamped(0.5));
        for (level, rate, crowded, expected) in [
            (Level::Passive, hog, false, Slice::Long),
            (Level::Passive, half, true, Slice::Long),
            (Level::Passive, writer, true, Slice::Default),
            (Level::Passive, None, true, Slice::Default),
            (Level::Active, hog, false, Slice::Default),
            (Level::Active, hog, true, Slice::Long),
            (Level::Active, writer, true, Slice::Default),
            (Level::Active, None, true, Slice::Default),
            (Level::Lane, hog, true, Slice::Default),
            (Level::SlowLane, hog, true, Slice::Default),
        ] {
            assert_eq!(slice_of(level, rate, crowded), expected, "{level} {rate:?} {crowded}");
        }
    }
}
