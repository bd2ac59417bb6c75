//! From the kept runs to the report: pure, so that a report can be made anew at any time.
//!
//! A run counts only if it is complete: every task ended by itself and nothing was at fault.
//! All others are counted and listed, never left out in silence. Figures of a setting are
//! medians over its complete runs; ratios are medians over rounds in which both sides were
//! complete ([`super::compare`]).

use super::figures::{self, Figures};
use super::limit::Limit;
use super::model::{Failed, LoadReport, Report, SettingReport, complete, is_complete, kind_name};
use super::{compare, warnings};
use crate::record::{Load, Machine, Run, SettingKind};

impl Report {
    /// The report of `runs`.
    pub(crate) fn new(machine: &Machine, runs: &[Run]) -> Report {
        let loads: Vec<LoadReport> = machine
            .loads
            .iter()
            .filter_map(|load| {
                let of_load: Vec<&Run> = runs.iter().filter(|run| run.load == load.name).collect();
                (!of_load.is_empty()).then(|| LoadReport::new(machine, load, &of_load))
            })
            .collect();
        let alone = kind_name(machine, SettingKind::Alone);
        let counts = |run: &&Run| {
            if Some(&*run.setting) == alone { alone_is_complete(run) } else { is_complete(run) }
        };
        Report {
            means: compare::means(&loads),
            warnings: warnings::of_report(machine, &loads, runs),
            complete: runs.iter().filter(counts).count(),
            runs: runs.len(),
            machine: machine.clone(),
            loads,
        }
    }
}

impl LoadReport {
    fn new(machine: &Machine, load: &Load, runs: &[&Run]) -> LoadReport {
        let reference = kind_name(machine, SettingKind::Lrs);
        let alone_name = kind_name(machine, SettingKind::Alone);
        let alone_runs: Vec<&Run> =
            runs.iter().copied().filter(|run| Some(&*run.setting) == alone_name).collect();
        let noise = reference.and_then(|reference| {
            let again = kind_name(machine, SettingKind::LrsAgain)?;
            compare::ratio(&complete(runs, reference), &complete(runs, again))
        });
        let shaped = machine.settings.iter().filter(|setting| setting.kind != SettingKind::Alone);
        let mut settings: Vec<SettingReport> = shaped
            .filter_map(|setting| {
                let made = runs.iter().filter(|run| run.setting == setting.name).count();
                let counted = complete(runs, &setting.name);
                let ratio = reference
                    .filter(|reference| *reference != setting.name)
                    .and_then(|reference| compare::ratio(&complete(runs, reference), &counted));
                (made > 0).then(|| SettingReport {
                    name: setting.name.clone(),
                    kind: setting.kind,
                    runs: made,
                    figures: Figures::new(&counted, &alone_runs, machine.cpus),
                    verdict: ratio.as_ref().map(|ratio| ratio.verdict(noise.as_ref())),
                    ratio,
                    beside_limit: None,
                })
            })
            .collect();
        let alone = figures::alone(&alone_runs);
        let limit = Limit::new(settings.iter().map(|one| &one.figures), &alone, machine.cpus);
        for one in &mut settings {
            one.beside_limit =
                limit.as_ref().and_then(|limit| limit.beside(&one.figures, machine.cpus));
        }
        let comparisons = reference
            .map(|reference| compare::comparisons(reference, &settings, runs, noise.as_ref()))
            .unwrap_or_default();
        let failed = runs.iter().filter_map(|run| {
            let is_alone = Some(&*run.setting) == alone_name;
            failed(run, is_alone)
        });
        LoadReport {
            load: load.clone(),
            warnings: warnings::of_load(
                machine,
                load,
                &settings,
                &comparisons,
                noise.as_ref(),
                runs,
            ),
            comparisons,
            noise,
            alone,
            limit,
            failed: failed.collect(),
            shown_round: shown_round(runs, reference, &settings),
            settings,
        }
    }
}

/// Single tasks one after the other have no makespan worth a name.
fn alone_is_complete(run: &Run) -> bool {
    run.faults.is_empty()
}

fn failed(run: &Run, is_alone: bool) -> Option<Failed> {
    if if is_alone { alone_is_complete(run) } else { is_complete(run) } {
        return None;
    }
    let faults = if run.faults.is_empty() {
        vec!["not every task ended by itself".to_owned()]
    } else {
        run.faults.clone()
    };
    Some(Failed { setting: run.setting.clone(), round: run.round, faults })
}

fn shown_round(runs: &[&Run], reference: Option<&str>, all: &[SettingReport]) -> Option<u32> {
    let in_round = |round: u32| {
        let of_round = runs.iter().filter(|run| run.round == round && is_complete(run));
        of_round.filter(|run| all.iter().any(|setting| setting.name == run.setting)).count()
    };
    let rounds: std::collections::BTreeSet<u32> = runs.iter().map(|run| run.round).collect();
    let most = rounds.iter().map(|round| in_round(*round)).max()?;
    let of_reference = reference.and_then(|name| all.iter().find(|one| one.name == name));
    let median = of_reference.and_then(|one| one.figures.makespan.as_ref()).map(|one| one.median);
    let distance = |round: u32| {
        let run = runs
            .iter()
            .find(|run| run.round == round && Some(&*run.setting) == reference && is_complete(run));
        match (run.and_then(|run| run.makespan_seconds), median) {
            (Some(makespan), Some(median)) => (makespan - median).abs(),
            _ => f64::INFINITY,
        }
    };
    rounds
        .into_iter()
        .filter(|round| in_round(*round) == most)
        .min_by(|one, other| distance(*one).total_cmp(&distance(*other)))
}

#[cfg(test)]
mod tests;
