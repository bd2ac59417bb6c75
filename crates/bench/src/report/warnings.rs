//! What makes figures doubtful, written beside them: a disturbed node, runs that are missing, a
//! noise floor that is not known or too high, and notes of the runs themselves.

use super::figures::Figures;
use super::model::{LoadReport, SettingReport, kind_name};
use super::ratio::{self, Against, Comparison, Effect, Ratio};
use super::words::{self, NOT_THE_TASKS};
use crate::record::{Load, Machine, Run, SettingKind};
use crate::stats::LEAST_FOR_INTERVAL;

/// Pairs from which on a comparison is held to be sound (spec 9).
const ENOUGH_PAIRS: usize = 10;
/// Share of CPU time from which on others disturb the figures.
const BUSY: f64 = 0.05;
/// The same where the server of a modelled disk is one of the others: it copies every byte.
const BUSY_WITH_DISK: f64 = 0.15;
/// Share of CPU time from which on the hypervisor disturbs the figures.
const STOLEN: f64 = 0.02;
/// Runs that are named for one note; runs.jsonl has them all.
const NOTED_SHOWN: usize = 6;

/// Of one load.
pub(super) fn of_load(
    machine: &Machine,
    load: &Load,
    settings: &[SettingReport],
    comparisons: &[Comparison],
    noise: Option<&Ratio>,
    runs: &[&Run],
) -> Vec<String> {
    let mut warnings = disturbed(machine, settings);
    let failed: usize = settings.iter().map(|one| one.runs - one.figures.complete).sum();
    if failed > 0 {
        warnings.push(format!("runs that did not complete and count in no figure: {failed}"));
    }
    for against in Against::possible(machine) {
        if !comparisons.iter().any(|one| one.against == against) {
            let with = match against {
                Against::BestStatic => "a static setting",
                Against::MeanStatic => "all static settings",
                Against::BestStaticCgroup => "a static setting in cgroups",
            };
            warnings.push(format!(
                "no comparison with the {}: no round has complete runs of LRS and {with}",
                words::against(against)
            ));
        }
    }
    for kind in [SettingKind::Static, SettingKind::StaticCgroup] {
        warnings.extend(no_candidates(settings, kind));
    }
    let fewest = comparisons.iter().map(|one| one.ratio.pairs.len()).min();
    // Fewer rounds are reported once, of the whole.
    let asked = ENOUGH_PAIRS.min(machine.rounds as usize);
    if let Some(fewest) = fewest.filter(|fewest| *fewest < asked) {
        warnings.push(format!("fewer than {ENOUGH_PAIRS} complete pairs ({fewest})"));
    }
    let best = comparisons.iter().find(|one| one.against == Against::BestStatic);
    if let Some(best) = best.filter(|best| best.verdict != Effect::TooFewPairs) {
        warnings.extend(noisy(best, noise));
    }
    warnings.extend(notes(load, runs));
    warnings
}

/// Of the whole.
pub(super) fn of_report(machine: &Machine, loads: &[LoadReport], runs: &[Run]) -> Vec<String> {
    let mut warnings = Vec::new();
    if kind_name(machine, SettingKind::Lrs).is_none() {
        warnings.push("no setting of LRS was run, so there is nothing to compare with".to_owned());
    }
    if (machine.rounds as usize) < ENOUGH_PAIRS {
        let what = if (machine.rounds as usize) < LEAST_FOR_INTERVAL {
            format!("no verdict: an interval needs {LEAST_FOR_INTERVAL}")
        } else {
            format!("a sound comparison has {ENOUGH_PAIRS}")
        };
        warnings.push(format!("rounds: {}; {what}", machine.rounds));
    }
    let missing = machine.loads.iter().filter(|load| !runs.iter().any(|run| run.load == load.name));
    let missing: Vec<&str> = missing.map(|load| &*load.name).collect();
    if !missing.is_empty() {
        warnings.push(format!("stopped before a run of {}", missing.join(", ")));
    }
    for against in Against::possible(machine) {
        let without = loads.iter().filter(|load| {
            !load.comparisons.iter().any(|comparison| comparison.against == against)
        });
        let without: Vec<&str> = without.map(|load| &*load.load.name).collect();
        if !without.is_empty() {
            warnings.push(format!(
                "no comparison with the {}, so in none of its means: {}",
                words::against(against),
                without.join(", ")
            ));
        }
    }
    warnings
}

fn disturbed(machine: &Machine, settings: &[SettingReport]) -> Vec<String> {
    let busy = if machine.has_modelled_disk() { BUSY_WITH_DISK } else { BUSY };
    let above = |share: fn(&Figures) -> Option<f64>, limit: f64, origin: &str| {
        let shares = settings.iter().filter_map(|one| Some((share(&one.figures)?, &one.name)));
        let (most, name) = shares.max_by(|one, other| one.0.total_cmp(&other.0))?;
        (most > limit).then(|| {
            format!(
                "up to {:.1} % of the CPU time (median of \"{name}\") was {origin}: the figures \
                 may be disturbed",
                most * 100.0
            )
        })
    };
    let found = [
        above(|figures| figures.others, busy, NOT_THE_TASKS),
        above(|figures| figures.steal, STOLEN, "taken by the hypervisor"),
    ];
    found.into_iter().flatten().collect()
}

/// Settings that could not be the best for want of rounds.
fn no_candidates(settings: &[SettingReport], kind: SettingKind) -> Option<String> {
    let of_kind = settings.iter().filter(|one| one.kind == kind);
    let rounds = |one: &SettingReport| one.ratio.as_ref().map_or(0, |ratio| ratio.pairs.len());
    let counts: Vec<(usize, &str)> = of_kind.map(|one| (rounds(one), &*one.name)).collect();
    let most = counts.iter().map(|(count, _)| *count).max()?;
    let fewer = counts.iter().filter(|(count, _)| *count < most);
    let fewer: Vec<String> = fewer.map(|(count, name)| format!("{name} ({count})")).collect();
    (!fewer.is_empty()).then(|| {
        format!(
            "the best was chosen among settings with {most} rounds complete beside LRS, so not \
             among {}",
            fewer.join(", ")
        )
    })
}

/// `best` is a comparison with an interval of its ratio.
fn noisy(best: &Comparison, noise: Option<&Ratio>) -> Option<String> {
    let Some(noise) = noise else {
        let text = "the noise floor is not known: no round has LRS complete twice";
        return Some(text.to_owned());
    };
    let Some(floor) = ratio::floor(noise.interval) else {
        return Some(format!(
            "the noise floor is not known: LRS over itself has too few complete pairs ({}, an \
             interval needs {LEAST_FOR_INTERVAL})",
            noise.pairs.len()
        ));
    };
    let excludes = best.ratio.interval.is_some_and(|interval| !interval.contains(1.0));
    let shown = ratio::distance(best.ratio.median);
    (excludes && shown <= floor).then(|| {
        format!(
            "the machine is too noisy for the difference shown: LRS over itself may be off by \
             {:.1} %, LRS over {} is by {:.1} %",
            floor.exp_m1() * 100.0,
            best.with.join(", "),
            shown.exp_m1() * 100.0
        )
    })
}

/// Every note once, with the runs that have it.
fn notes(load: &Load, runs: &[&Run]) -> Vec<String> {
    let mut noted: Vec<(&str, Vec<String>)> = Vec::new();
    for run in runs {
        for note in &run.notes {
            let place = format!("{} round {}", run.setting, run.round);
            match noted.iter_mut().find(|(known, _)| *known == note.as_str()) {
                Some((_, places)) => places.push(place),
                None => noted.push((note.as_str(), vec![place])),
            }
        }
    }
    let lines = noted.into_iter().map(|(note, mut places)| {
        let more = places.len().saturating_sub(NOTED_SHOWN);
        places.truncate(NOTED_SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{note} ({}: {}{more})", load.name, places.join(", "))
    });
    lines.collect()
}
