//! How many slots come free a second: from it follows how long delay scheduling waits for a node
//! (Zaharia et al., EuroSys 2010, section 3.5).
//!
//! Tasks that held a slot and left it are counted, and the count is kept at each cycle for a minute. The
//! rate is what was added since, and is not known before that minute is over.
//!
//! Limits. A reservation that ends without a task is not counted. With cycles of more than a minute the
//! rate is that of the last cycle.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::BootTime;

/// Over how long the rate is taken.
const WINDOW: Duration = Duration::from_secs(60);

/// Readings are kept at least so far apart, however short the cycles are.
const APART: Duration = Duration::from_secs(1);

/// Slots that came free.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Freed {
    count: u64,
    /// The count at earlier cycles, the first one a window or more before the last.
    readings: VecDeque<(BootTime, u64)>,
    rate: Option<f64>,
}

impl Freed {
    /// A slot came free.
    pub fn add(&mut self) {
        self.count += 1;
    }

    /// A cycle. Time that runs backwards begins anew.
    pub fn cycle(&mut self, now: BootTime) {
        if self.readings.back().is_some_and(|(last, _)| *last > now) {
            self.readings.clear();
        }
        let is_old = |at: &BootTime| now.since(*at) >= WINDOW;
        while self.readings.get(1).is_some_and(|(at, _)| is_old(at)) {
            self.readings.pop_front();
        }
        let first = self.readings.front().filter(|(at, _)| is_old(at));
        self.rate = first.map(|(at, count)| {
            self.count.saturating_sub(*count) as f64 / now.since(*at).as_secs_f64()
        });
        if self.readings.back().is_none_or(|(last, _)| now.since(*last) >= APART) {
            self.readings.push_back((now, self.count));
        }
    }

    /// As of the last cycle; `None`: not known yet.
    pub fn per_second(&self) -> Option<f64> {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootTime {
        BootTime(Duration::from_millis(millis))
    }

    #[test]
    fn the_rate_is_that_of_the_last_minute_and_not_known_before() {
        let mut freed = Freed::default();
        // Two slots a second, then none.
        for second in 0..=180 {
            freed.cycle(at(second * 1000));
            let expected = match second {
                0..60 => None,
                60..=100 => Some(2.0),
                _ => Some(2.0 * 160_u64.saturating_sub(second) as f64 / 60.0),
            };
            assert_eq!(freed.per_second(), expected, "{second}");
            if second < 100 {
                (0..2).for_each(|_| freed.add());
            }
        }
        freed.cycle(at(5));
        assert_eq!(freed.per_second(), None, "the clock ran backwards");
    }

    #[test]
    fn short_cycles_keep_no_more_and_long_ones_have_a_rate() {
        let mut freed = Freed::default();
        (0..2000).for_each(|cycle| freed.cycle(at(cycle * 100)));
        assert_eq!((freed.per_second(), freed.readings.len()), (Some(0.0), 61));
        let mut freed = Freed::default();
        for minute in [0, 2, 4] {
            freed.cycle(at(minute * 60_000));
            (0..6).for_each(|_| freed.add());
        }
        assert_eq!(freed.per_second(), Some(0.05));
    }
}
