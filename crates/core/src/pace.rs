//! How long a cycle lasts where it follows the tasks: a fifteenth of the mean time of those that run,
//! so that a short task too is seen by several cycles (the source looks every 3 s at tasks of 45 s).
//!
//! Not so short that cycles cost more than [`MOST_COST`]: that is what the contract lets 100 tasks
//! cost at [`LONGEST`]. Other rules count in cycles, so they follow the tasks too.
//!
//! A task of a job without finished tasks counts with what it has taken so far: cycles are short while it
//! is young, and grow with it.
//!
//! Limit. The mean is over what runs now, so one long task beside many short ones makes cycles longer.

use std::time::Duration;

/// Bounds of a cycle.
pub const SHORTEST: Duration = Duration::from_millis(100);
/// What `daemon.sample_period` is if it is not set.
pub const LONGEST: Duration = Duration::from_secs(3);

/// Cycles in the mean time of a task.
const CYCLES_A_TASK: f64 = 15.0;

/// Part of a CPU that the cycles may cost.
const MOST_COST: f64 = 0.001;

/// Weight of the newest cycle in the mean cost.
const NEWEST: f64 = 0.125;

/// The loop turns at least so often, whatever the cycle.
pub const TURN: Duration = Duration::from_secs(1);

/// Whether the loop hangs that finished its last turn so long ago: for 10 s, or for three cycles where
/// those are longer.
pub fn hangs(last_turn: Duration, period: Duration) -> bool {
    last_turn > Duration::from_secs(10).max(period.saturating_mul(3))
}

/// What cycles cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    cost: Option<Duration>,
}

impl Pace {
    /// A cycle took so much CPU time.
    pub fn took(&mut self, cpu: Duration) {
        // One that was slow once, for it read much for the first time, must not count for long.
        let before = self.cost.unwrap_or(cpu);
        self.cost = Some(before.mul_f64(1.0 - NEWEST) + cpu.min(4 * before).mul_f64(NEWEST));
    }

    /// The length of the next cycle. `mean_task`: [`Shaper::mean_task`](super::shaper::Shaper::mean_task).
    pub fn period(&self, mean_task: Option<Duration>) -> Duration {
        let Some(mean) = mean_task else { return LONGEST };
        mean.div_f64(CYCLES_A_TASK).max(self.at_cost(MOST_COST)).clamp(SHORTEST, LONGEST)
    }

    /// Time between two, such that they cost `most` of a CPU; zero while their cost is not known.
    pub(super) fn at_cost(&self, most: f64) -> Duration {
        self.cost.map_or(Duration::ZERO, |cost| cost.div_f64(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_loop_hangs_after_ten_seconds_and_three_cycles() {
        let seconds = Duration::from_secs;
        assert!(!hangs(seconds(10), SHORTEST));
        assert!(hangs(seconds(11), SHORTEST));
        assert!(!hangs(seconds(30), seconds(10)));
        assert!(hangs(seconds(31), seconds(10)));
        assert!(!hangs(Duration::MAX, Duration::MAX));
    }

    #[test]
    fn a_cycle_is_a_fifteenth_of_a_task_within_its_bounds() {
        let pace = Pace::default();
        assert_eq!(pace.period(Some(Duration::from_secs(15))), Duration::from_secs(1));
        assert_eq!(pace.period(Some(Duration::from_millis(300))), SHORTEST);
        assert_eq!(pace.period(Some(Duration::from_secs(3600))), LONGEST);
        assert_eq!(pace.period(Some(Duration::MAX)), LONGEST);
        assert_eq!(pace.period(None), LONGEST);
    }

    #[test]
    fn cycles_never_cost_more_than_a_thousandth_of_a_cpu() {
        let mut pace = Pace::default();
        pace.took(MS / 2);
        assert_eq!(pace.period(Some(MS)), 500 * MS);
        (0..100).for_each(|_| pace.took(2 * MS));
        let period = pace.period(Some(MS));
        assert!((1990 * MS..=2000 * MS).contains(&period), "{period:?}");
        pace.took(Duration::from_secs(5));
        assert!(pace.period(Some(MS)) <= 2800 * MS);
        (0..100).for_each(|_| pace.took(Duration::from_secs(5)));
        assert_eq!(pace.period(Some(MS)), LONGEST);
    }
}
