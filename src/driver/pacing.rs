//! How long a cycle lasts: as it is set, or as the tasks want it ([`crate::core::pace`]).

use std::time::Duration;

use super::Driver;
use crate::clock;
use crate::config::Auto;
use crate::core::pace::{LONGEST, Pace, SHORTEST};
use crate::units::BootTime;

/// The pace of the loop.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    core: Pace,
    /// The cycle that is under way, or was the last.
    period: Duration,
    /// CPU time of this process when the reading under way was asked for.
    asked: Option<Duration>,
    /// When the tasks were looked at for it.
    looked: BootTime,
}

impl Pacing {
    /// A reading is asked for.
    pub(super) fn asked(&mut self) {
        self.asked = Some(clock::cpu_time());
    }

    /// What it said is decided and published; without effect if none was asked for.
    pub(super) fn took(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.core.took(clock::cpu_time().saturating_sub(asked));
        }
    }
}

impl Driver {
    /// How long the present cycle is.
    pub(super) fn period(&self) -> Duration {
        match self.config.daemon.sample_period {
            Auto::Fixed(period) => period,
            Auto::Auto => self.pacing.period.clamp(SHORTEST, LONGEST),
        }
    }

    /// Chooses the length of a cycle that begins.
    pub(super) fn set_pace(&mut self, now: BootTime) {
        if self.config.daemon.sample_period == Auto::Auto {
            self.pacing.looked = now;
            self.pacing.period = self.pacing.core.period(self.core.mean_task(now));
        }
    }

    /// Shortens a cycle that was begun for longer tasks than those that run now.
    pub(super) fn follow_pace(&mut self, now: BootTime) {
        let changed = !self.touched.tasks.is_empty();
        let is_due = changed && now.since(self.pacing.looked) >= SHORTEST;
        if is_due && self.config.daemon.sample_period == Auto::Auto {
            self.set_pace(now);
            self.next_cycle = self.next_cycle.min(now.after(self.pacing.period));
        }
    }
}
