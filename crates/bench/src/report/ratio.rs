//! Ratios of makespans as data: what they are of, how sure they are and what they say.
//!
//! A difference counts if the 95 % interval of the ratio excludes 1 and the ratio is farther from 1
//! than the reference may be from itself ([`floor`]). What is divided by what is chosen in
//! [`super::compare`].

use serde::Serialize;

use crate::record::{Machine, SettingKind};
use crate::stats::{Interval, LEAST_FOR_INTERVAL, Spread, median_interval};

/// Two makespans of one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Pair {
    pub(crate) round: u32,
    pub(crate) ratio: f64,
}

/// A ratio of makespans by round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Ratio {
    /// Of the pairs.
    pub(crate) median: f64,
    /// 95 %; None with too few pairs for one ([`LEAST_FOR_INTERVAL`]).
    pub(crate) interval: Option<Interval>,
    /// Every pair, in the order of the rounds.
    pub(crate) pairs: Vec<Pair>,
}

/// What a ratio says of its numerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effect {
    /// Takes less time.
    Faster,
    /// Takes more time.
    Slower,
    /// Nothing that can be distinguished from noise.
    NoDifference,
    /// Not enough pairs to say; for a mean not enough of LRS with itself either.
    TooFewPairs,
}

impl Effect {
    /// Of a median ratio; without a floor the interval alone decides.
    pub(super) fn new(median: f64, interval: Option<Interval>, floor: Option<f64>) -> Effect {
        match interval {
            None => Effect::TooFewPairs,
            Some(interval) if interval.contains(1.0) => Effect::NoDifference,
            Some(_) if floor.is_some_and(|floor| distance(median) <= floor) => Effect::NoDifference,
            Some(_) if median < 1.0 => Effect::Faster,
            Some(_) => Effect::Slower,
        }
    }
}

/// What LRS is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Against {
    /// The best static setting of plain processes.
    BestStatic,
    /// The mean of the static settings of plain processes, round by round.
    MeanStatic,
    /// The best static setting in equal-weight cgroups.
    BestStaticCgroup,
}

impl Against {
    /// What the settings of a bench let LRS be compared with.
    pub(super) fn possible(machine: &Machine) -> Vec<Against> {
        let has = |kind: SettingKind| machine.settings.iter().any(|setting| setting.kind == kind);
        let all = [
            (SettingKind::Static, Against::BestStatic),
            (SettingKind::Static, Against::MeanStatic),
            (SettingKind::StaticCgroup, Against::BestStaticCgroup),
        ];
        let possible = all.into_iter().filter(|(kind, _)| has(SettingKind::Lrs) && has(*kind));
        possible.map(|(_, against)| against).collect()
    }
}

/// LRS over something else.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) against: Against,
    /// The setting or settings.
    pub(crate) with: Vec<String>,
    /// Below 1: LRS takes less time.
    pub(crate) ratio: Ratio,
    pub(crate) verdict: Effect,
    /// The verdict in words.
    pub(crate) words: String,
}

/// Loads a mean is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Over {
    /// All of the suite.
    All,
    /// Those of class `moderate` or `io`.
    ModerateAndIo,
}

/// Geometric mean of the median ratios of several loads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Mean {
    pub(crate) against: Against,
    pub(crate) over: Over,
    /// Names of the loads that went in.
    pub(crate) loads: Vec<String>,
    pub(crate) ratio: f64,
    /// 95 %; None if a load has too few pairs.
    pub(crate) interval: Option<Interval>,
    /// The same mean of LRS over itself, 95 %; None if a load has too few such pairs.
    pub(crate) noise: Option<Interval>,
    /// [`Effect::TooFewPairs`] without `noise`.
    pub(crate) verdict: Effect,
}

impl Ratio {
    pub(super) fn new(pairs: Vec<Pair>) -> Option<Ratio> {
        let spread = spread(&pairs)?;
        let interval = (spread.count() >= LEAST_FOR_INTERVAL).then(|| median_interval(&spread));
        Some(Ratio { median: spread.median(), interval, pairs })
    }

    /// `noise` is the reference over itself.
    pub(super) fn verdict(&self, noise: Option<&Ratio>) -> Effect {
        Effect::new(self.median, self.interval, floor(noise.and_then(|noise| noise.interval)))
    }
}

/// How far the reference may be from itself, as a [`distance`]: the farther end of the interval
/// of its ratio to itself. None without that interval.
pub(super) fn floor(noise: Option<Interval>) -> Option<f64> {
    noise.map(|Interval { low, high }| distance(low).max(distance(high)))
}

pub(super) fn spread(pairs: &[Pair]) -> Option<Spread> {
    Spread::new(pairs.iter().map(|pair| pair.ratio).collect())
}

/// How far from 1, the same for a ratio and its inverse.
pub(super) fn distance(ratio: f64) -> f64 {
    ratio.ln().abs()
}
