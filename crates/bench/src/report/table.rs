//! The report on a terminal: for each load two tables and what they say, in 80 columns.

use super::compare::Verdict;
use super::model::{Failed, LoadReport, Report};
use super::words;
use crate::record::SettingKind;
use lrs_term::{Column, Columns, Failure, Output, printable, wrap};

/// Failed runs listed for each load; report.json and report.html have them all.
const FAILED_SHOWN: usize = 10;

/// Least and most columns for the name of a setting that are never cut.
const NAME: [usize; 2] = [8, 21];

/// Prints the whole report.
pub(super) fn print(report: &Report, out: &mut Output) -> Result<(), Failure> {
    for load in &report.loads {
        print_load(load, out)?;
    }
    if !report.means.is_empty() {
        out.line("Geometric means: LRS over what is named, below 1 LRS takes less time")?;
        let mut table = Columns::new(&[
            ("OVER", Column::Text),
            ("LOADS", Column::Text),
            ("RATIO", Column::Figure),
            ("95 % INTERVAL", Column::Text),
        ]);
        for mean in &report.means {
            table.row(vec![
                words::against(mean.against).to_owned(),
                format!("{} ({})", words::over(mean.over), mean.loads.len()),
                words::mean(mean),
                words::interval(mean.interval),
            ]);
        }
        out.table(&table)?;
        out.line("")?;
    }
    for warning in &report.warnings {
        paragraph("warning: ", warning, out)?;
    }
    let failed = report.runs - report.complete;
    paragraph(
        "",
        &format!("{} of {} runs complete, {failed} failed.", report.complete, report.runs),
        out,
    )?;
    out.line("")?;
    for text in words::methods(&report.machine) {
        paragraph("  ", &text, out)?;
    }
    Ok(())
}

fn print_load(load: &LoadReport, out: &mut Output) -> Result<(), Failure> {
    let head = format!(
        "{} ({}, {} tasks): ",
        load.load.name,
        words::class(load.load.class),
        load.load.tasks
    );
    let width = out.width();
    out.line(wrap("", 0, &format!("{head}{}", load.load.about), width))?;
    out.line("")?;
    let name = name_width(load);
    let mut times = Columns::new(&[
        ("SETTING", Column::Elastic(name)),
        ("RUNS", Column::Figure),
        ("MAKESPAN", Column::Figure),
        ("QUARTILES", Column::Text),
        ("/ LRS", Column::Figure),
        ("INTERVAL", Column::Text),
        ("SLOWDOWN", Column::Figure),
    ]);
    let mut node = Columns::new(&[
        ("SETTING", Column::Elastic(name)),
        ("RUN s", Column::Figure),
        ("P95 s", Column::Figure),
        ("RESP s", Column::Figure),
        ("CPU", Column::Figure),
        ("IOWAIT", Column::Figure),
        ("SLOTS", Column::Figure),
        ("CSW/s", Column::Figure),
        ("DISK", Column::Figure),
    ]);
    for one in &load.settings {
        let figures = &one.figures;
        let makespan = figures.makespan.as_ref();
        let itself = one.kind == SettingKind::Lrs && one.ratio.is_none();
        times.row(vec![
            one.name.clone(),
            format!("{}/{}", figures.complete, one.runs),
            words::seconds(makespan.map(|makespan| makespan.median)),
            words::quartiles(makespan).replace(" to ", "-"),
            if itself { "1".to_owned() } else { words::ratio(one.ratio.as_ref()) },
            words::interval(one.ratio.as_ref().and_then(|ratio| ratio.interval))
                .replace(" to ", "-"),
            words::times(figures.slowdown.as_ref()),
        ]);
        let disk =
            figures.read_bytes.zip(figures.written_bytes).map(|(read, written)| read + written);
        node.row(vec![
            one.name.clone(),
            words::known(figures.run_time_mean, words::figure),
            words::known(figures.run_time_p95, words::figure),
            words::known(figures.response_mean, words::figure),
            words::percent(figures.effective),
            words::percent(figures.iowait),
            words::number(figures.slots_in_use),
            words::rate(figures.context_switches_per_second),
            words::bytes(disk),
        ]);
    }
    out.table(&times)?;
    out.line("")?;
    out.table(&node)?;
    out.line("")?;
    for one in &load.comparisons {
        let sentence = format!(
            "LRS against the {} ({}): {}, {}",
            words::against(one.against),
            one.with.join(", "),
            words::ratio_with_pairs(&one.ratio),
            one.words
        );
        paragraph(&format!("{} ", words::mark(one.verdict)), &sentence, out)?;
    }
    if load.comparisons.is_empty() {
        out.line("nothing to compare: no round has both LRS and a static setting")?;
    }
    if let Some(noise) = &load.noise {
        let sentence = format!("LRS over itself: {}", words::ratio_with_pairs(noise));
        paragraph(&format!("{} ", words::mark(Verdict::NoDifference)), &sentence, out)?;
    }
    for warning in &load.warnings {
        paragraph("warning: ", warning, out)?;
    }
    print_failed(&load.failed, out)?;
    out.line("")
}

/// Columns the names get: settings are told apart by the ends of their names.
fn name_width(load: &LoadReport) -> u16 {
    let longest = load.settings.iter().map(|one| one.name.chars().count()).max();
    u16::try_from(longest.unwrap_or_default().clamp(NAME[0], NAME[1])).unwrap_or_default()
}

fn print_failed(failed: &[Failed], out: &mut Output) -> Result<(), Failure> {
    for one in failed.iter().take(FAILED_SHOWN) {
        let text = format!("{}, round {}: {}", one.setting, one.round, one.faults.join("; "));
        paragraph("failed: ", &text, out)?;
    }
    if failed.len() > FAILED_SHOWN {
        let more = failed.len() - FAILED_SHOWN;
        paragraph("failed: ", &format!("{more} more, see report.html"), out)?;
    }
    Ok(())
}

fn paragraph(first: &str, text: &str, out: &mut Output) -> Result<(), Failure> {
    let (indent, width) = (first.chars().count(), out.width());
    out.line(wrap(&printable(first), indent, text, width))
}
