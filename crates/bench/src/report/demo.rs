//! The demo's report on a terminal: first what LRS is for (what the first task on each core pays
//! for the others, and how long a task's owner waits), then the makespan, then the slots of a run; and
//! the sentence that its page begins with.
//!
//! Two rounds can show no small difference, and many nodes have time for one only: makespans that
//! overlap, or differ by less than a tenth, are called about the same.

use lrs_term::{Column, Columns, Failure, Output, wrap};

use super::model::{LoadReport, Report, SettingReport, complete};
use super::words;
use crate::record::{Machine, Point, Run, SettingKind};

/// From which share of the CPU other work counts as a distortion.
const BUSY: f64 = 0.1;

/// Percent below which two makespans are about the same: of two runs of one static setting, in one
/// round each, many are so far apart.
const LEVEL: f64 = 10.0;

/// The name of its suite.
pub(super) const SUITE: &str = "demo";

/// Columns of the picture of the slots.
const WIDTH: usize = 60;

/// Prints the report.
pub(super) fn print(report: &Report, runs: &[Run], out: &mut Output) -> Result<(), Failure> {
    let Some(load) = report.loads.first() else { return Ok(()) };
    let width = out.width();
    let machine = &report.machine;
    let intro = format!(
        "{} CPUs, {}, disk {}. {} tasks: {}. {}.",
        machine.cpus,
        machine.kernel,
        machine.disk,
        load.load.tasks,
        load.load.about,
        rounds(machine, &load.settings)
    );
    out.line(wrap("", 0, &intro, width))?;
    out.line("")?;
    table(&load.settings, out)?;
    out.line("")?;
    for sentence in sentences(&load.settings).into_iter().chain(limit(load)) {
        out.line(wrap("", 0, &sentence, width))?;
    }
    let last = load.reference().and_then(|lrs| {
        let of_lrs = complete(&runs.iter().collect::<Vec<_>>(), &lrs.name);
        of_lrs.into_iter().max_by_key(|run| run.round)
    });
    if let Some(run) = last {
        out.line("")?;
        for line in slots(run) {
            out.line(line)?;
        }
    }
    out.line("")?;
    for warning in failures(load) {
        out.line(wrap("failed: ", 8, &warning, width))?;
    }
    out.line(wrap(
        "",
        0,
        "An impression of a minute, not a benchmark: `lrsctl bench` is one.",
        width,
    ))
}

/// What it found, in a few sentences.
pub(super) fn result(report: &Report) -> String {
    let of_load = |load: &LoadReport| {
        sentences(&load.settings).into_iter().chain(limit(load)).collect::<Vec<_>>()
    };
    let sentences: Vec<String> = report.loads.iter().flat_map(of_load).collect();
    if sentences.is_empty() {
        "No comparison: see below which runs failed.".to_owned()
    } else {
        sentences.join(" ")
    }
}

/// How many rounds are complete in every setting, in words: the time limit can have cut some off.
pub(super) fn rounds(machine: &Machine, settings: &[SettingReport]) -> String {
    let has = |name: &str, round: u32| {
        let one = settings.iter().find(|it| it.name == name);
        one.is_some_and(|it| it.figures.makespans.iter().any(|run| run.round == round))
    };
    let compared = || machine.settings.iter().filter(|it| it.kind != SettingKind::Alone);
    let whole = |round: &u32| compared().all(|it| has(&it.name, *round));
    let (planned, complete) = (machine.rounds, (0..machine.rounds).filter(whole).count());
    if complete == planned as usize {
        format!("{planned} rounds")
    } else {
        format!("{complete} of {planned} rounds complete")
    }
}

fn table(settings: &[SettingReport], out: &mut Output) -> Result<(), Failure> {
    let mut table = Columns::new(&[
        ("setting", Column::Text),
        ("first tasks", Column::Figure),
        ("response", Column::Figure),
        ("all done", Column::Figure),
        ("each round", Column::Figure),
        ("CPU s", Column::Figure),
        ("CPU", Column::Figure),
        ("iowait", Column::Figure),
    ]);
    for one in settings {
        let figures = &one.figures;
        let each = figures.makespans.iter().map(|one| words::figure(one.seconds));
        table.row(vec![
            one.name.clone(),
            words::known(figures.first_tasks, |times| format!("{times:.2} x")),
            words::seconds(figures.response_mean),
            words::seconds(figures.makespan.as_ref().map(|makespan| makespan.median)),
            each.collect::<Vec<_>>().join(", "),
            words::known(figures.cpu_seconds, words::figure),
            words::percent(figures.effective),
            words::percent(figures.iowait),
        ]);
    }
    out.table(&table)?;
    let legend = "first tasks: the first task on each core, its time over that of one alone. response: \
                  from submission to end, mean of all tasks. CPU s: used by the tasks.";
    let width = out.width();
    out.line(wrap("", 0, legend, width))
}

pub(super) fn sentences(settings: &[SettingReport]) -> Vec<String> {
    let mut sentences = Vec::new();
    let of = |kind: SettingKind| settings.iter().filter(move |it| it.kind == kind);
    let Some(lrs) = of(SettingKind::Lrs).next() else { return sentences };
    let crowded = of(SettingKind::Static).max_by(|a, b| {
        let slots = |it: &SettingReport| it.figures.slots_in_use.unwrap_or(0.0);
        slots(a).total_cmp(&slots(b))
    });
    if let Some((ours, (name, theirs))) = lrs
        .figures
        .first_tasks
        .zip(crowded.and_then(|it| Some((&it.name, it.figures.first_tasks?))))
    {
        sentences.push(format!(
            "Under LRS the first tasks took {ours:.1} times their time alone, with {name} \
             {theirs:.1} times.{}",
            if ours > theirs { " LRS lost here: it was to be below the latter." } else { "" }
        ));
    }
    let makespan = |it: &SettingReport| it.figures.makespan.clone();
    let best = of(SettingKind::Static)
        .filter_map(|it| Some((it, makespan(it)?)))
        .min_by(|a, b| a.1.median.total_cmp(&b.1.median));
    if let (Some(ours), Some((best, theirs))) = (makespan(lrs), best) {
        let change = (ours.median / theirs.median.max(f64::MIN_POSITIVE) - 1.0) * 100.0;
        let apart = ours.range[1] < theirs.range[0] || theirs.range[1] < ours.range[0];
        sentences.push(match change {
            change if !apart || change.abs() < LEVEL => format!(
                "All tasks were done after about the same time as with the best number of slots \
                 ({}).",
                best.name
            ),
            change if change < 0.0 => format!(
                "All tasks were done after {:.0}% less time than with the best number of slots \
                 ({}).",
                -change, best.name
            ),
            change => format!(
                "All tasks were done after {change:.0}% more time than with the best number of \
                 slots ({}): LRS lost here.",
                best.name
            ),
        });
    }
    let others = settings.iter().filter_map(|it| it.figures.others).fold(0.0, f64::max);
    if others > BUSY {
        sentences.push(format!(
            "Other work took up to {:.0}% of this node's CPU meanwhile: the figures are distorted \
             by it.",
            others * 100.0
        ));
    }
    sentences
}

/// How near LRS came to what the node can do.
fn limit(load: &LoadReport) -> Option<String> {
    let (limit, beside) = load.limit.as_ref().zip(load.reference()?.beside_limit)?;
    Some(format!(
        "The CPUs cannot do this in less than {}: LRS took {:.2} times that.",
        words::seconds(Some(limit.seconds)),
        beside.ratio
    ))
}

/// The slots in use over the time of a run, a figure a column; `+` is more than 9.
fn slots(run: &Run) -> Vec<String> {
    let end = run.lasted_seconds.max(f64::MIN_POSITIVE);
    let line = |name: &str, value: fn(&Point) -> Option<u32>| {
        let at = |column: usize| {
            let time = (column as f64 + 0.5) * end / WIDTH as f64;
            // A value holds since the point before.
            let point = run.timeline.iter().find(|point| point.at >= time);
            match point.or(run.timeline.last()).and_then(value) {
                None => ' ',
                Some(0) => '.',
                Some(count) => char::from_digit(count, 10).unwrap_or('+'),
            }
        };
        format!("  {name:<8}{}", (0..WIDTH).map(at).collect::<String>())
    };
    vec![
        format!(
            "{} over {}: tasks in each tier, and without a slot",
            run.setting,
            words::seconds(Some(end))
        ),
        line("active", |point| point.active_used),
        line("passive", |point| point.passive_used),
        line("waiting", |point| Some(point.waiting)),
    ]
}

fn failures(load: &LoadReport) -> Vec<String> {
    load.failed.iter().map(super::view::failed).collect()
}
