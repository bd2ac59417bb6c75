//! What all forms of a report show alike: tables, sentences, facts. The terminal leaves some
//! columns to the page.

use lrs_term::printable;

use super::figures::Figures;
use super::model::{Failed, LoadReport, Report, SettingReport};
use super::ratio::Effect;
use super::words;
use crate::record::SettingKind;

/// Where a column is shown.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum On {
    Both,
    Page,
    Terminal,
}

/// A column of the settings of a load.
pub(super) struct Column {
    pub(super) head: &'static str,
    pub(super) on: On,
    pub(super) cell: fn(&SettingReport) -> String,
}

const fn column(head: &'static str, on: On, cell: fn(&SettingReport) -> String) -> Column {
    Column { head, on, cell }
}

/// Head of the column that says whether LRS wins.
const LRS_OVER: &str = "LRS /";

/// The times of the settings.
pub(super) const TIMES: &[Column] = &[
    column("runs", On::Both, |one| format!("{}/{}", one.figures.complete, one.runs)),
    column("makespan", On::Both, |one| {
        words::seconds(one.figures.makespan.as_ref().map(|makespan| makespan.median))
    }),
    column("quartiles", On::Both, |one| words::quartiles(one.figures.makespan.as_ref())),
    column(LRS_OVER, On::Both, |one| {
        if one.is_reference() { "1".to_owned() } else { words::ratio(one.ratio.as_ref()) }
    }),
    column("interval", On::Both, |one| {
        words::interval(one.ratio.as_ref().and_then(|ratio| ratio.interval))
    }),
    column("slowdown", On::Both, |one| words::times(one.figures.slowdown.as_ref())),
    column("first tasks", On::Page, |one| {
        words::known(one.figures.first_tasks, |times| format!("{times:.2} x"))
    }),
];

/// What tasks and node did.
pub(super) const NODE: &[Column] = &[
    column("run s", On::Both, |one| words::known(one.figures.run_time_mean, words::figure)),
    column("p95 s", On::Both, |one| words::known(one.figures.run_time_p95, words::figure)),
    column("resp s", On::Both, |one| words::known(one.figures.response_mean, words::figure)),
    column("resp p95 s", On::Page, |one| words::known(one.figures.response_p95, words::figure)),
    column("CPU", On::Both, |one| words::percent(one.figures.effective)),
    column("iowait", On::Both, |one| words::percent(one.figures.iowait)),
    column("others", On::Page, |one| words::percent(one.figures.others)),
    column("slots", On::Both, |one| words::number(one.figures.slots_in_use)),
    column("/ limit", On::Page, |one| words::known(one.beside_limit, |it| words::figure(it.ratio))),
    column("idle s", On::Page, |one| words::known(one.beside_limit, |it| words::figure(it.idle))),
    column("others s", On::Page, |one| {
        words::known(one.beside_limit, |it| words::figure(it.others))
    }),
    column("more CPU s", On::Page, |one| {
        words::known(one.beside_limit, |it| words::figure(it.grown))
    }),
    column("csw/s", On::Both, |one| words::rate(one.figures.context_switches_per_second)),
    column("disk", On::Terminal, |one| {
        let Figures { read_bytes, written_bytes, .. } = one.figures;
        words::bytes(read_bytes.zip(written_bytes).map(|(read, written)| read + written))
    }),
    column("memory", On::Page, |one| words::bytes(one.figures.memory_peak_bytes)),
    column("read", On::Page, |one| words::bytes(one.figures.read_bytes)),
    column("written", On::Page, |one| words::bytes(one.figures.written_bytes)),
    column("promoted", On::Page, |one| {
        words::number(one.figures.decisions.map(|decisions| decisions.promoted))
    }),
    column("expanded", On::Page, |one| {
        words::number(one.figures.decisions.map(|decisions| decisions.expanded))
    }),
];

/// A table of a page; all texts are safe to print.
pub(super) struct Table {
    pub(super) heads: Vec<String>,
    pub(super) rows: Vec<Line>,
}

/// A row of a [`Table`]; its first cell is words.
pub(super) struct Line {
    /// Of the reference.
    pub(super) reference: bool,
    /// Each with its class in the style sheet.
    pub(super) cells: Vec<(String, &'static str)>,
}

fn safe(text: &str) -> String {
    printable(&text.replace(['\n', '\t'], " ")).into_owned()
}

/// How a verdict of LRS looks.
pub(super) fn style(verdict: Effect) -> &'static str {
    match verdict {
        Effect::Faster => "faster",
        Effect::Slower => "slower",
        Effect::NoDifference | Effect::TooFewPairs => "level",
    }
}

/// The settings of a load on a page.
pub(super) fn settings(load: &LoadReport, columns: &[Column]) -> Table {
    let columns: Vec<&Column> = columns.iter().filter(|one| one.on != On::Terminal).collect();
    let class = |one: &SettingReport, head: &str| match (head, one.verdict) {
        (LRS_OVER, Some(verdict)) => style(verdict),
        ("runs", _) if one.runs > one.figures.complete => "bad",
        _ => "",
    };
    let rows = load.settings.iter().map(|one| {
        let cells = columns.iter().map(|it| ((it.cell)(one), class(one, it.head)));
        let cells = std::iter::once((safe(&one.name), "text")).chain(cells).collect();
        Line { reference: one.is_reference(), cells }
    });
    let heads = std::iter::once("setting").chain(columns.iter().map(|column| column.head));
    Table { heads: heads.map(str::to_owned).collect(), rows: rows.collect() }
}

/// Slowdown by group, where single tasks were run.
pub(super) fn slowdowns(load: &LoadReport) -> Option<Table> {
    let heads = load.alone.iter().map(|one| {
        format!("{} (alone {})", safe(&one.group), words::seconds(Some(one.run_time.median)))
    });
    let rows = load.settings.iter().map(|one| {
        let cells = load.alone.iter().map(|alone| {
            let groups = &one.figures.slowdown_of_groups;
            let of_group = groups.iter().find(|found| found.group == alone.group);
            let cell = words::known(of_group, |found| {
                let slowdown = &found.slowdown;
                let (times, quartiles) =
                    (words::times(Some(slowdown)), words::quartiles(Some(slowdown)));
                format!("{times} ({quartiles}), {} tasks", slowdown.count)
            });
            (cell, "")
        });
        let cells = std::iter::once((safe(&one.name), "text")).chain(cells).collect();
        Line { reference: one.is_reference(), cells }
    });
    let heads = std::iter::once("setting".to_owned()).chain(heads).collect();
    let table = Table { heads, rows: rows.collect() };
    (!load.alone.is_empty()).then_some(table)
}

/// The geometric means.
pub(super) fn means(report: &Report) -> Option<Table> {
    let rows = report.means.iter().map(|mean| {
        let loads = format!("{} ({})", words::over(mean.over), mean.loads.join(", "));
        let cells = vec![
            (words::against(mean.against).to_owned(), "text"),
            (safe(&loads), "text long"),
            (words::mean(mean), style(mean.verdict)),
            (words::interval(mean.interval), ""),
            (words::interval(mean.noise), ""),
        ];
        Line { reference: false, cells }
    });
    let heads = ["geometric mean, LRS over", "loads", "ratio", "95 % interval", "LRS over itself"];
    let table = Table { heads: heads.map(str::to_owned).to_vec(), rows: rows.collect() };
    (!report.means.is_empty()).then_some(table)
}

/// A load in a sentence.
pub(super) fn head(load: &LoadReport) -> String {
    let about = safe(&load.load.about);
    format!("({}, {} tasks) {about}", words::class(load.load.class), load.load.tasks)
}

/// What the comparisons say, each with its verdict.
pub(super) fn comparisons(load: &LoadReport) -> Vec<(Effect, String)> {
    let lines = load.comparisons.iter().map(|one| {
        let sentence = format!(
            "LRS against the {} ({}): {}, {}",
            words::against(one.against),
            safe(&one.with.join(", ")),
            words::ratio_with_pairs(&one.ratio),
            one.words
        );
        (one.verdict, sentence)
    });
    let mut lines: Vec<_> = lines.collect();
    if lines.is_empty() {
        let nothing = "nothing to compare: no round has both LRS and a static setting";
        lines.push((Effect::TooFewPairs, nothing.to_owned()));
    }
    let limit = load.limit.as_ref().zip(load.reference()).and_then(|(limit, lrs)| {
        let beside = lrs.beside_limit?;
        let sentence = format!(
            "no order of these tasks takes less than {} here: LRS takes {} times that; of the rest {} are \
             idle CPUs, {} others on them, {} more CPU time than with the most sparing setting",
            words::seconds(Some(limit.seconds)),
            words::figure(beside.ratio),
            words::seconds(Some(beside.idle)),
            words::seconds(Some(beside.others)),
            words::seconds(Some(beside.grown))
        );
        Some((Effect::NoDifference, sentence))
    });
    lines.extend(limit);
    let noise = load.noise.as_ref().map(|noise| {
        (Effect::NoDifference, format!("LRS over itself: {}", words::ratio_with_pairs(noise)))
    });
    lines.extend(noise);
    lines
}

/// A run that does not count.
pub(super) fn failed(one: &Failed) -> String {
    safe(&format!("{}, round {}: {}", one.setting, one.round, one.faults.join("; ")))
}

/// The node and the settings, a fact and its value a row.
pub(super) fn facts(report: &Report) -> Vec<(String, String)> {
    let node = words::machine(&report.machine).into_iter();
    let node = node.map(|(what, value)| (what.to_owned(), safe(&value)));
    let settings = report.machine.settings.iter();
    let settings = settings.map(|one| (safe(&format!("setting {}", one.name)), safe(&one.about)));
    node.chain(settings).collect()
}

impl SettingReport {
    /// Whether ratios refer to it.
    pub(super) fn is_reference(&self) -> bool {
        self.kind == SettingKind::Lrs && self.ratio.is_none()
    }
}
