//! The report as Markdown tables, for docs/performance.md.

use std::fmt::Write as _;

use super::model::{LoadReport, Report};
use super::words;
use crate::record::SettingKind;
use lrs_term::printable;

/// The whole report. Cells are escaped, so that no name can break a table.
pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    row(&mut text, &["node".to_owned(), String::new()]);
    rule(&mut text, 2);
    for (what, value) in words::machine(&report.machine) {
        row(&mut text, &[what.to_owned(), value]);
    }
    text.push('\n');
    overview(&mut text, report);
    if !report.means.is_empty() {
        heads(
            &mut text,
            &["geometric mean, LRS over", "loads", "ratio", "95 % interval", "LRS over itself"],
        );
        for mean in &report.means {
            let loads = format!("{} ({})", words::over(mean.over), mean.loads.join(", "));
            let against = words::against(mean.against).to_owned();
            let [interval, noise] = [mean.interval, mean.noise].map(words::interval);
            row(&mut text, &[against, loads, words::mean(mean), interval, noise]);
        }
        text.push('\n');
    }
    for load in &report.loads {
        of_load(&mut text, load);
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "- Warning: {}", escape(warning));
    }
    let _ = writeln!(text, "- {} of {} runs complete.\n", report.complete, report.runs);
    text.push_str("What the figures mean:\n\n");
    for paragraph in words::methods(&report.machine) {
        let _ = writeln!(text, "- {}", escape(&paragraph));
    }
    text
}

fn overview(text: &mut String, report: &Report) {
    heads(
        text,
        &[
            "load",
            "class",
            "LRS",
            "LRS over",
            "ratio (95 % interval)",
            "LRS over itself",
            "verdict",
        ],
    );
    for load in &report.loads {
        let ours = load.reference().and_then(|one| one.figures.makespan.as_ref());
        for one in &load.comparisons {
            row(
                text,
                &[
                    load.load.name.clone(),
                    words::class(load.load.class).to_owned(),
                    words::seconds(ours.map(|makespan| makespan.median)),
                    format!("{} ({})", words::against(one.against), one.with.join(", ")),
                    words::ratio_with_pairs(&one.ratio),
                    words::known(load.noise.as_ref(), words::ratio_with_pairs),
                    one.words.clone(),
                ],
            );
        }
    }
    text.push('\n');
}

fn of_load(text: &mut String, load: &LoadReport) {
    let name = escape(&load.load.name);
    let class = words::class(load.load.class);
    let _ = writeln!(
        text,
        "**{name}** ({class}, {} tasks): {}\n",
        load.load.tasks,
        escape(&load.load.about)
    );
    heads(
        text,
        &[
            "setting",
            "runs",
            "makespan",
            "quartiles, s",
            "/ LRS",
            "95 % interval",
            "slowdown",
            "run time",
            "p95",
            "response",
            "CPU",
            "iowait",
            "slots",
            "switches/s",
            "read",
            "written",
        ],
    );
    for one in &load.settings {
        let figures = &one.figures;
        let makespan = figures.makespan.as_ref();
        let itself = one.kind == SettingKind::Lrs && one.ratio.is_none();
        row(
            text,
            &[
                one.name.clone(),
                format!("{}/{}", figures.complete, one.runs),
                words::seconds(makespan.map(|makespan| makespan.median)),
                words::quartiles(makespan),
                if itself { "1".to_owned() } else { words::ratio(one.ratio.as_ref()) },
                words::interval(one.ratio.as_ref().and_then(|ratio| ratio.interval)),
                words::times(figures.slowdown.as_ref()),
                words::seconds(figures.run_time_mean),
                words::seconds(figures.run_time_p95),
                words::seconds(figures.response_mean),
                words::percent(figures.effective),
                words::percent(figures.iowait),
                words::number(figures.slots_in_use),
                words::rate(figures.context_switches_per_second),
                words::bytes(figures.read_bytes),
                words::bytes(figures.written_bytes),
            ],
        );
    }
    text.push('\n');
    for warning in &load.warnings {
        let _ = writeln!(text, "- Warning: {}", escape(warning));
    }
    for one in &load.failed {
        let faults = escape(&one.faults.join("; "));
        let _ = writeln!(text, "- Failed: {}, round {}: {faults}", escape(&one.setting), one.round);
    }
    text.push('\n');
}

fn heads(text: &mut String, names: &[&str]) {
    row(text, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    rule(text, names.len());
}

fn rule(text: &mut String, columns: usize) {
    let _ = writeln!(text, "|{}", "---|".repeat(columns));
}

fn row(text: &mut String, cells: &[String]) {
    let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

/// Without what Markdown would read as its own, and what would reorder a line.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in printable(&text.replace(['\n', '\t'], " ")).chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '&' => safe.extend(['\\', c]),
            c => safe.push(c),
        }
    }
    safe
}
