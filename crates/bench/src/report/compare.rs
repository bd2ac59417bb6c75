//! Ratios of makespans, what they say, and when they say nothing.
//!
//! The best static setting is chosen after the fact by its median makespan: an operator who
//! did not try them all would not know it, so the comparison is not in favour of LRS. Only
//! those with the most rounds in common with LRS can be it, as medians over other rounds would
//! be of another machine. A difference counts if the 95 % interval of the ratio excludes 1 and
//! the ratio is farther from 1 than the reference may be from itself ([`floor`]).

use serde::Serialize;

use super::model::{LoadReport, SettingReport, complete};
use super::words;
use crate::record::{LoadClass, Machine, Run, SettingKind};
use crate::stats::{
    Interval, LEAST_FOR_INTERVAL, Spread, geometric_mean, geometric_mean_interval, median_interval,
};

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
    fn new(median: f64, interval: Option<Interval>, floor: Option<f64>) -> Effect {
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
    fn new(pairs: Vec<Pair>) -> Option<Ratio> {
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

fn spread(pairs: &[Pair]) -> Option<Spread> {
    Spread::new(pairs.iter().map(|pair| pair.ratio).collect())
}

/// How far from 1, the same for a ratio and its inverse.
pub(super) fn distance(ratio: f64) -> f64 {
    ratio.ln().abs()
}

/// Makespans of `ours` over those of `theirs`, by round; both complete.
pub(super) fn ratio(ours: &[&Run], theirs: &[&Run]) -> Option<Ratio> {
    against(ours, |round| makespan(theirs, round))
}

fn against(ours: &[&Run], theirs: impl Fn(u32) -> Option<f64>) -> Option<Ratio> {
    let mut pairs: Vec<Pair> = ours
        .iter()
        .filter_map(|run| {
            Some(Pair { round: run.round, ratio: run.makespan_seconds? / theirs(run.round)? })
        })
        .collect();
    pairs.sort_by_key(|pair| pair.round);
    Ratio::new(pairs)
}

fn makespan(runs: &[&Run], round: u32) -> Option<f64> {
    runs.iter().find(|run| run.round == round)?.makespan_seconds
}

/// The makespans of a setting in the rounds in which LRS is complete too.
fn in_common(one: &SettingReport) -> Option<Spread> {
    let pairs = &one.ratio.as_ref()?.pairs;
    let both = |round| pairs.iter().any(|pair| pair.round == round);
    let common = one.figures.makespans.iter().filter(|makespan| both(makespan.round));
    Spread::new(common.map(|makespan| makespan.seconds).collect())
}

fn best(settings: &[SettingReport], kind: SettingKind) -> Option<&SettingReport> {
    let of_kind = settings.iter().filter(|one| one.kind == kind);
    let known: Vec<_> = of_kind.filter_map(|one| Some((one, in_common(one)?))).collect();
    let most = known.iter().map(|(_, makespans)| makespans.count()).max()?;
    let candidates = known.iter().filter(|(_, makespans)| makespans.count() == most);
    let best = candidates.min_by(|(_, one), (_, other)| one.median().total_cmp(&other.median()));
    best.map(|(one, _)| *one)
}

/// LRS against what else was run.
pub(super) fn comparisons(
    reference: &str,
    settings: &[SettingReport],
    runs: &[&Run],
    noise: Option<&Ratio>,
) -> Vec<Comparison> {
    let ours = complete(runs, reference);
    let with_best = |what: Against, kind: SettingKind| {
        let best = best(settings, kind)?;
        Some((what, vec![best.name.clone()], ratio(&ours, &complete(runs, &best.name))?))
    };
    let statics: Vec<&SettingReport> =
        settings.iter().filter(|one| one.kind == SettingKind::Static).collect();
    let with_mean = || {
        let made: Vec<_> = statics.iter().map(|one| complete(runs, &one.name)).collect();
        let mean = |round| {
            let of_round: Option<Vec<f64>> =
                made.iter().map(|runs| makespan(runs, round)).collect();
            Spread::new(of_round?).map(|spread| spread.mean())
        };
        let names = statics.iter().map(|one| one.name.clone()).collect();
        Some((Against::MeanStatic, names, against(&ours, mean)?))
    };
    let made = [
        with_best(Against::BestStatic, SettingKind::Static),
        with_mean(),
        with_best(Against::BestStaticCgroup, SettingKind::StaticCgroup),
    ];
    let comparisons = made.into_iter().flatten().map(|(against, with, ratio)| {
        let verdict = ratio.verdict(noise);
        let floor = floor(noise.and_then(|noise| noise.interval));
        Comparison { words: words::verdict(&ratio, verdict, floor), against, with, ratio, verdict }
    });
    comparisons.collect()
}

/// Geometric means over the loads.
pub(super) fn means(loads: &[LoadReport]) -> Vec<Mean> {
    let wanted = [Against::BestStatic, Against::MeanStatic, Against::BestStaticCgroup];
    let mut means = Vec::new();
    for over in [Over::All, Over::ModerateAndIo] {
        for against in wanted {
            means.extend(mean(loads, over, against));
        }
    }
    means
}

fn mean(loads: &[LoadReport], over: Over, against: Against) -> Option<Mean> {
    let ours = loads.iter().filter(|one| match over {
        Over::All => true,
        Over::ModerateAndIo => matches!(one.load.class, LoadClass::Moderate | LoadClass::Io),
    });
    let found: Vec<(&LoadReport, Spread)> = ours
        .filter_map(|one| {
            let comparison = one.comparisons.iter().find(|found| found.against == against)?;
            Some((one, spread(&comparison.ratio.pairs)?))
        })
        .collect();
    let names = found.iter().map(|(one, _)| one.load.name.clone()).collect();
    let of_noise = |one: &LoadReport| spread(&one.noise.as_ref()?.pairs);
    let noise: Option<Vec<Spread>> = found.iter().map(|(one, _)| of_noise(one)).collect();
    let noise = noise.and_then(|noise| geometric_mean_interval(&noise));
    let groups: Vec<Spread> = found.into_iter().map(|(_, ratios)| ratios).collect();
    let medians: Vec<f64> = groups.iter().map(Spread::median).collect();
    let (ratio, interval) = (geometric_mean(&medians)?, geometric_mean_interval(&groups));
    let verdict = match floor(noise) {
        None => Effect::TooFewPairs,
        floor => Effect::new(ratio, interval, floor),
    };
    Some(Mean { against, over, loads: names, ratio, interval, noise, verdict })
}
