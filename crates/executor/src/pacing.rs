//! How long a cycle lasts: as it is set, or as the tasks want it ([`lrs_core::pace`]).

use std::time::Duration;

use super::Executor;
use super::world::World;
use lrs_config::Auto;
use lrs_core::pace::{LONGEST, Pace, SHORTEST};
use lrs_core::units::BootTime;

/// There is one warning of slow cycles within this time, for each cycle may be slow.
const SLOW_AGAIN: Duration = Duration::from_secs(60);

/// The pace of the loop.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    core: Pace,
    /// The cycle that is under way, or was the last.
    period: Duration,
    /// CPU time of this process when this turn began.
    cpu: Duration,
    /// And when the one began in which the reading under way was asked for.
    asked: Option<Duration>,
    /// The same of a reading that was taken in this turn.
    taken: Option<Duration>,
    /// When the tasks were looked at for it.
    looked: BootTime,
    /// Cycles that took long.
    pub(super) slow: Slow,
}

/// Warnings of slow cycles.
#[derive(Debug, Default)]
pub(super) struct Slow {
    warned_at: Option<BootTime>,
    unwarned: u32,
}

impl Slow {
    /// One more: whether to warn of it, and how many came without one since the last warning.
    pub(super) fn one_more(&mut self, now: BootTime) -> Option<u32> {
        if self.warned_at.is_some_and(|warned_at| now.since(warned_at) < SLOW_AGAIN) {
            self.unwarned = self.unwarned.saturating_add(1);
            return None;
        }
        self.warned_at = Some(now);
        Some(std::mem::take(&mut self.unwarned))
    }
}

impl Pacing {
    /// A turn begins, and this process has used `cpu` by now.
    pub(super) fn begin_turn(&mut self, cpu: Duration) {
        self.cpu = cpu;
    }

    /// What was read is decided and published; without effect if nothing was asked for.
    pub(super) fn took(&mut self) {
        self.taken = self.asked.take();
    }

    /// The turn in which that was so has ended, and this process has used `cpu` by now.
    pub(super) fn end_turn(&mut self, cpu: Duration) {
        if let Some(asked) = self.taken.take() {
            self.core.took(cpu.saturating_sub(asked));
        }
    }

    /// A reading is asked for in this turn.
    pub(super) fn asked(&mut self) {
        self.asked = Some(self.cpu);
    }
}

impl<W: World> Executor<'_, W> {
    /// How long the present cycle is.
    pub(super) fn period(&self) -> Duration {
        match self.state.config.daemon.sample_period {
            Auto::Fixed(period) => period,
            Auto::Auto => self.state.pacing.period.clamp(SHORTEST, LONGEST),
        }
    }

    /// Chooses the length of a cycle that begins.
    pub(super) fn set_pace(&mut self, now: BootTime) {
        if self.state.config.daemon.sample_period == Auto::Auto {
            self.state.pacing.looked = now;
            self.state.pacing.period = self.state.pacing.core.period(self.core.mean_task(now));
        }
    }

    /// Shortens a cycle that was begun for longer tasks than those that run now.
    pub(super) fn follow_pace(&mut self, now: BootTime) {
        let changed = !self.state.touched.tasks.is_empty();
        let is_due = changed && now.since(self.state.pacing.looked) >= SHORTEST;
        if is_due && self.state.config.daemon.sample_period == Auto::Auto {
            self.set_pace(now);
            self.state.next_cycle = self.state.next_cycle.min(now.after(self.state.pacing.period));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_cycles_are_warned_of_once_a_minute_and_counted_meanwhile() {
        let mut slow = Slow::default();
        let after = |seconds| BootTime::default().after(Duration::from_secs(seconds));
        assert_eq!(slow.one_more(after(100)), Some(0));
        for second in [101, 130, 159] {
            assert_eq!(slow.one_more(after(second)), None);
        }
        assert_eq!(slow.one_more(after(160)), Some(3));
        assert_eq!(slow.one_more(after(161)), None);
        assert_eq!(slow.one_more(after(900)), Some(1));
        assert_eq!(slow.one_more(after(1000)), Some(0));
    }
}
