//! Ratios of makespans, what they say, and when they say nothing.
//!
//! The best static setting is chosen after the fact by its median makespan: an operator who
//! did not try them all would not know it, so the comparison is not in favour of LRS. A
//! difference counts if the 95 % interval of the ratio excludes 1 and the ratio is farther
//! from 1 than the reference is from itself (the noise floor).

use serde::Serialize;

use super::figures::Figures;
use super::model::{LoadReport, SettingReport, complete};
use super::words;
use crate::bench::record::{LoadClass, Run, SettingKind};
use crate::bench::stats::{
    Interval, LEAST_FOR_INTERVAL, Spread, geometric_mean, geometric_mean_interval, median_interval,
};

/// Pairs from which on a comparison is held to be sound (spec 9).
const ENOUGH_PAIRS: usize = 10;
/// Share of CPU time from which on others disturb the figures.
const BUSY: f64 = 0.05;
/// Share of CPU time from which on the hypervisor disturbs the figures.
const STOLEN: f64 = 0.02;

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
pub(crate) enum Verdict {
    /// Takes less time.
    Faster,
    /// Takes more time.
    Slower,
    /// Nothing that can be told from noise.
    NoDifference,
    /// Not enough pairs to say.
    TooFewPairs,
}

impl Verdict {
    /// What it says of the denominator.
    pub(super) fn of_the_other(self) -> Verdict {
        match self {
            Verdict::Faster => Verdict::Slower,
            Verdict::Slower => Verdict::Faster,
            Verdict::NoDifference | Verdict::TooFewPairs => self,
        }
    }
}

/// What LRS is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Against {
    /// The static setting of plain processes with the lowest median makespan.
    BestStatic,
    /// The mean of the static settings of plain processes, round by round.
    MeanStatic,
    /// The static setting in equal-weight cgroups with the lowest median makespan.
    BestStaticCgroup,
}

/// LRS over something else.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) against: Against,
    /// The setting or settings.
    pub(crate) with: Vec<String>,
    /// Below 1: LRS takes less time.
    pub(crate) ratio: Ratio,
    pub(crate) verdict: Verdict,
    /// The verdict in words.
    pub(crate) words: String,
}

/// Loads a mean is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Over {
    /// All of the suite.
    All,
    /// Those whose class is `moderate` or `io`.
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
}

impl Ratio {
    fn new(pairs: Vec<Pair>) -> Option<Ratio> {
        let spread = spread(&pairs)?;
        let interval = (spread.count() >= LEAST_FOR_INTERVAL).then(|| median_interval(&spread));
        Some(Ratio { median: spread.median(), interval, pairs })
    }

    /// `noise` is the reference over itself.
    pub(super) fn verdict(&self, noise: Option<&Ratio>) -> Verdict {
        let floor = noise.map_or(0.0, |noise| distance(noise.median));
        match self.interval {
            None => Verdict::TooFewPairs,
            Some(interval) if interval.contains(1.0) => Verdict::NoDifference,
            Some(_) if distance(self.median) <= floor => Verdict::NoDifference,
            Some(_) if self.median < 1.0 => Verdict::Faster,
            Some(_) => Verdict::Slower,
        }
    }
}

fn spread(pairs: &[Pair]) -> Option<Spread> {
    Spread::new(pairs.iter().map(|pair| pair.ratio).collect())
}

/// How far from 1, the same for a ratio and its inverse.
fn distance(ratio: f64) -> f64 {
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

fn best(settings: &[SettingReport], kind: SettingKind) -> Option<&SettingReport> {
    let median = |one: &SettingReport| one.figures.makespan.as_ref().map(|one| one.median);
    settings.iter().filter(|one| one.kind == kind && median(one).is_some()).min_by(|one, other| {
        median(one).partial_cmp(&median(other)).unwrap_or(std::cmp::Ordering::Equal)
    })
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
    let told = made.into_iter().flatten().map(|(against, with, ratio)| {
        let verdict = ratio.verdict(noise);
        Comparison { words: words::verdict(&ratio, verdict), against, with, ratio, verdict }
    });
    told.collect()
}

/// What makes the figures of a load doubtful.
pub(super) fn warnings(
    settings: &[SettingReport],
    comparisons: &[Comparison],
    noise: Option<&Ratio>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut above = |share: fn(&Figures) -> Option<f64>, limit: f64, who: &str| {
        let shares = settings.iter().filter_map(|one| Some((share(&one.figures)?, &one.name)));
        let most = shares.max_by(|one, other| one.0.total_cmp(&other.0));
        if let Some((most, name)) = most.filter(|(most, _)| *most > limit) {
            warnings.push(format!(
                "{who} took up to {:.1} % of the CPU time (median of \"{name}\"): the figures are \
                 disturbed",
                most * 100.0
            ));
        }
    };
    above(|figures| figures.others, BUSY, "other work of the machine");
    above(|figures| figures.steal, STOLEN, "the hypervisor");
    let failed: usize = settings.iter().map(|one| one.runs - one.figures.complete).sum();
    if failed > 0 {
        warnings.push(format!("runs that did not complete and count in no figure: {failed}"));
    }
    let fewest = comparisons.iter().map(|one| one.ratio.pairs.len()).min();
    if let Some(fewest) = fewest.filter(|fewest| *fewest < ENOUGH_PAIRS) {
        warnings.push(format!("fewer than {ENOUGH_PAIRS} complete pairs ({fewest})"));
    }
    let floor = noise
        .and_then(|noise| noise.interval)
        .map(|interval| distance(interval.low).max(distance(interval.high)));
    let told = comparisons.iter().filter(|one| one.against == Against::BestStatic);
    for one in told.filter(|one| one.verdict != Verdict::TooFewPairs) {
        match floor {
            Some(floor) if floor > distance(one.ratio.median) => warnings.push(format!(
                "the machine is too noisy for the difference shown: LRS over itself may be off by \
                 {:.1} %, LRS over {} is by {:.1} %",
                floor.exp_m1() * 100.0,
                one.with.join(", "),
                distance(one.ratio.median).exp_m1() * 100.0
            )),
            Some(_) => {}
            None => warnings.push("the noise floor is not known: LRS did not run twice".to_owned()),
        }
    }
    warnings
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
    let found = ours.filter_map(|one| {
        let comparison = one.comparisons.iter().find(|found| found.against == against)?;
        Some((one.load.name.clone(), spread(&comparison.ratio.pairs)?))
    });
    let (names, groups): (Vec<String>, Vec<Spread>) = found.unzip();
    let medians: Vec<f64> = groups.iter().map(Spread::median).collect();
    Some(Mean {
        against,
        over,
        loads: names,
        ratio: geometric_mean(&medians)?,
        interval: geometric_mean_interval(&groups),
    })
}
