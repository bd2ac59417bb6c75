//! LRS against what else was run: which makespans are compared, and the means over the loads.
//!
//! The best static setting is chosen after the fact by its median makespan: an operator who
//! did not try them all would not know it, so the comparison is not in favour of LRS. Only
//! those with the most rounds in common with LRS can be it, as medians over other rounds would
//! be of another machine. Whether a difference counts is a matter of the ratio ([`super::ratio`]).

use super::model::{LoadReport, SettingReport, complete};
use super::ratio::{Against, Comparison, Effect, Mean, Over, Pair, Ratio, floor, spread};
use super::words;
use crate::record::{LoadClass, Run, SettingKind};
use crate::stats::{Spread, geometric_mean, geometric_mean_interval};

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
