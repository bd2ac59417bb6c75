//! The report on a terminal: for each load two tables and what they say, in 80 columns.

use lrs_term::{Column as Kind, Columns, Failure, Output, printable, wrap};

use super::model::{LoadReport, Report};
use super::view::{self, Column, On};
use super::words;

/// Failed runs listed for each load; report.json and report.html have them all.
const FAILED_SHOWN: usize = 10;

/// Least and most columns for the name of a setting that are never cut: settings are distinguished
/// by the ends of their names.
const NAME: [usize; 2] = [8, 21];

/// Prints the whole report.
pub(super) fn print(report: &Report, out: &mut Output) -> Result<(), Failure> {
    for load in &report.loads {
        print_load(load, out)?;
    }
    if !report.means.is_empty() {
        out.line("Geometric means: LRS over what is named, below 1 LRS takes less time")?;
        let mut table = Columns::new(&[
            ("OVER", Kind::Text),
            ("LOADS", Kind::Text),
            ("RATIO", Kind::Figure),
            ("95 % INTERVAL", Kind::Text),
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
    paragraph("", &words::complete(report), out)?;
    out.line("")?;
    for text in words::methods(&report.machine) {
        paragraph("  ", &text, out)?;
    }
    Ok(())
}

fn print_load(load: &LoadReport, out: &mut Output) -> Result<(), Failure> {
    paragraph("", &format!("{} {}", load.load.name, view::head(load)), out)?;
    out.line("")?;
    for columns in [view::TIMES, view::NODE] {
        settings(load, columns, out)?;
        out.line("")?;
    }
    for (verdict, sentence) in view::comparisons(load) {
        paragraph(&format!("{} ", words::mark(verdict)), &sentence, out)?;
    }
    for warning in &load.warnings {
        paragraph("warning: ", warning, out)?;
    }
    for one in load.failed.iter().take(FAILED_SHOWN) {
        paragraph("failed: ", &view::failed(one), out)?;
    }
    if load.failed.len() > FAILED_SHOWN {
        let more = load.failed.len() - FAILED_SHOWN;
        paragraph("failed: ", &format!("{more} more, see report.html"), out)?;
    }
    out.line("")
}

fn settings(load: &LoadReport, columns: &[Column], out: &mut Output) -> Result<(), Failure> {
    let longest = load.settings.iter().map(|one| one.name.chars().count()).max();
    let name = longest.unwrap_or_default().clamp(NAME[0], NAME[1]);
    let columns: Vec<&Column> = columns.iter().filter(|one| one.on != On::Page).collect();
    let mut heads = vec![("setting", Kind::Elastic(u16::try_from(name).unwrap_or_default()))];
    heads.extend(columns.iter().map(|column| (column.head, Kind::Figure)));
    let mut table = Columns::new(&heads);
    for one in &load.settings {
        let cells = columns.iter().map(|column| (column.cell)(one).replace(" to ", "-"));
        table.row(std::iter::once(one.name.clone()).chain(cells).collect());
    }
    out.table(&table)
}

fn paragraph(first: &str, text: &str, out: &mut Output) -> Result<(), Failure> {
    let (indent, width) = (first.chars().count(), out.width());
    out.line(wrap(&printable(first), indent, text, width))
}
