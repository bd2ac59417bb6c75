//! What the sources published, beside what comes out.
//!
//! A published figure is one number; what its author would have found another time is not known. Ours is
//! a median with an interval ([`Spread`]). The verdict:
//!
//! - *missed*: the interval does not reach the published figure, give or take the tolerance;
//! - *met*: it does. Of a ratio (`over`) what counts is the effect, how far it is from 1: the interval
//!   must not reach "no effect", and be narrower than half of the published effect. A published ratio of 1 says
//!   that there is no effect; it is met if the whole interval is that near to 1;
//! - *open*: anything else. These seeds do not tell a published effect from none, or are too few for an
//!   interval.
//!
//! The tolerance of a share is 5 points, of a ratio a tenth of its effect, 0.05 where that is none, of
//! anything else a tenth; an entry with a published range has its own.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::simulation::figures::is_share;
use crate::simulation::runs::Runs;
use crate::simulation::spread::Spread;

/// A published figure.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What it says.
    pub what: String,
    /// The case of ours.
    pub case: String,
    /// The class of jobs; none: all of them.
    #[serde(default)]
    pub class: Option<String>,
    /// The figure of ours.
    pub figure: String,
    /// The case that it is divided by.
    #[serde(default)]
    pub over: Option<String>,
    /// What was published.
    pub value: f64,
    /// How far ours may be off; none: see the page of this module.
    #[serde(default)]
    pub tolerance: Option<f64>,
    /// Why ours is not as published, where it is not.
    #[serde(default)]
    pub missed: Option<String>,
}

/// Whether ours is as published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is.
    Met,
    /// The seeds do not say.
    Open,
    /// It is not.
    Missed,
}

impl Verdict {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Open => "open",
            Verdict::Missed => "missed",
        }
    }
}

impl Published {
    /// Ours, from the runs `of` a case by its name; none where nothing was counted for it.
    pub fn ours<'a>(&self, of: impl Fn(&str) -> Option<&'a Runs>) -> Option<Spread> {
        let (ours, class) = (of(&self.case)?, self.class.as_deref());
        match &self.over {
            Some(over) => ours.ratio(of(over)?, &self.figure, class),
            None => ours.get(&self.figure, class),
        }
    }

    /// Whether ours is as published.
    pub fn verdict(&self, ours: &Spread) -> Verdict {
        let Some(interval) = ours.interval() else { return Verdict::Open };
        let tolerance = self.tolerance.unwrap_or_else(|| self.usual_tolerance()) + 1e-9;
        let near = self.value - tolerance..=self.value + tolerance;
        if interval.end() < near.start() || interval.start() > near.end() {
            return Verdict::Missed;
        }
        match self.effect() {
            Some(0.0) if !within(&interval, &near) => Verdict::Open,
            Some(effect) if effect != 0.0 && !tells(&interval, effect) => Verdict::Open,
            _ => Verdict::Met,
        }
    }

    /// How far a ratio is from 1; none of other figures.
    fn effect(&self) -> Option<f64> {
        self.over.as_ref().map(|_| (self.value - 1.0).abs())
    }

    fn usual_tolerance(&self) -> f64 {
        match self.effect() {
            Some(0.0) => 0.05,
            Some(effect) => effect / 10.0,
            None if self.is_share() => 0.05,
            None => self.value.abs() / 10.0,
        }
    }

    /// Whether it is a part of a whole, 0 to 1.
    pub fn is_share(&self) -> bool {
        self.over.is_none() && is_share(&self.figure)
    }
}

fn within(inner: &RangeInclusive<f64>, outer: &RangeInclusive<f64>) -> bool {
    outer.contains(inner.start()) && outer.contains(inner.end())
}

/// Whether an interval of a ratio tells such an effect from none.
fn tells(interval: &RangeInclusive<f64>, effect: f64) -> bool {
    !interval.contains(&1.0) && interval.end() - interval.start() < effect / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published(figure: &str, over: Option<&str>, value: f64) -> Published {
        let (figure, over) = (figure.to_owned(), over.map(str::to_owned));
        let (what, case) = (String::new(), String::new());
        Published { what, case, class: None, figure, over, value, tolerance: None, missed: None }
    }

    fn verdict(of: &Published, low: f64, high: f64) -> Verdict {
        let median = (low + high) / 2.0;
        of.verdict(&Spread { median, low: Some(low), high: Some(high), seeds: 20 })
    }

    #[test]
    fn no_effect_never_meets_a_small_one() {
        // two I/O jobs, two computing jobs, LRS by FIFO with 8 slots, as a check from outside found them
        for (value, low, high) in [(0.98, 0.996, 1.011), (0.95, 0.990, 1.001), (0.91, 0.972, 0.985)]
        {
            let ratio = published("makespan", Some("fifo"), value);
            assert_eq!(verdict(&ratio, low, high), Verdict::Missed, "{value}");
        }
        let small = published("makespan", Some("fifo"), 0.98);
        assert_eq!(verdict(&small, 0.979, 1.001), Verdict::Open, "it may be either");
        assert_eq!(verdict(&small, 0.980, 0.985), Verdict::Met);
        assert_eq!(verdict(&small, 1.015, 1.025), Verdict::Missed, "the other direction");
    }

    #[test]
    fn an_effect_is_met_where_the_interval_reaches_it_and_is_much_narrower() {
        let ratio = published("makespan", Some("fifo"), 0.90);
        assert_eq!(verdict(&ratio, 0.90, 0.93), Verdict::Met);
        assert_eq!(verdict(&ratio, 0.92, 0.95), Verdict::Missed);
        assert_eq!(verdict(&ratio, 0.89, 0.95), Verdict::Open, "wider than half of the effect");
        let slower = published("job_mean", Some("alone"), 1.76);
        assert_eq!(verdict(&slower, 1.83, 1.9), Verdict::Met);
        assert_eq!(verdict(&slower, 1.84, 1.9), Verdict::Missed);
    }

    #[test]
    fn a_published_one_says_that_there_is_no_effect() {
        let same = published("throughput", Some("once"), 1.0);
        assert_eq!(verdict(&same, 0.97, 1.02), Verdict::Met);
        assert_eq!(verdict(&same, 0.90, 1.02), Verdict::Open);
        assert_eq!(verdict(&same, 1.06, 1.08), Verdict::Missed);
    }

    #[test]
    fn shares_and_times_have_their_tolerance_and_few_seeds_no_verdict() {
        let share = published("node_local", None, 0.75);
        assert_eq!(verdict(&share, 0.79, 0.81), Verdict::Met);
        assert_eq!(verdict(&share, 0.81, 0.83), Verdict::Missed);
        let time = published("decide_us", None, 100.0);
        assert_eq!(
            (verdict(&time, 105.0, 120.0), verdict(&time, 111.0, 120.0)),
            (Verdict::Met, Verdict::Missed)
        );
        let range =
            Published { tolerance: Some(0.1), ..published("transfer_mean", Some("dl"), 0.2) };
        assert_eq!(verdict(&range, 0.11, 0.13), Verdict::Met);
        let few = Spread { median: 0.75, low: None, high: None, seeds: 5 };
        assert_eq!(share.verdict(&few), Verdict::Open);
    }
}
