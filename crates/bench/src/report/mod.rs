//! The report of a bench: figures, a table, a page with pictures, Markdown.
//!
//! Everything is computed from the kept runs ([`load`]), so a report can be made anew, by
//! others too, and a bench that was stopped has one. [`model`] has the figures, and each form
//! lays them out. Warnings, failures and what the figures mean are in all of them; of the
//! columns and the failures of one load the narrower forms leave some to report.html, and only
//! that has pictures.

mod compare;
mod demo;
mod figures;
mod limit;
mod make;
mod model;
mod page;
pub(crate) mod pictures;
mod ratio;
mod terminal;
mod view;
mod warnings;
mod words;

#[cfg(test)]
mod synthetic;

use std::collections::HashMap;
use std::path::Path;

use self::model::Report;
use super::record::{Machine, Run};
use lrs_term::{Failure, Output, printable, say};

/// The node and the suite.
const MACHINE: &str = "machine.json";
/// The runs, one a line.
const RUNS: &str = "runs.jsonl";
/// The report with its pictures.
const PAGE: &str = "report.html";

/// Some of its pictures by themselves.
const PICTURES: &str = "pictures";

/// Writes report.json and report.html into `dir`, and the table (with `--json` the report) to
/// `out`, of `what` that was run: a bench or the demo.
pub(crate) fn write(
    dir: &Path,
    what: &str,
    machine: &Machine,
    runs: &[Run],
    out: &mut Output,
) -> Result<(), Failure> {
    let report = Report::new(machine, runs);
    files(dir, &report, runs)?;
    if what == "demo" {
        demo::print(&report, runs, out)?;
    } else {
        print(&report, out)?;
    }
    where_it_is(dir, out)
}

/// The last line, so that the pictures are easy to find.
fn where_it_is(dir: &Path, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        return Ok(());
    }
    let page = dir.join(PAGE);
    let page = std::path::absolute(&page).unwrap_or(page);
    out.line(format_args!("Report with pictures: file://{}", printable(&page.to_string_lossy())))
}

/// `--report`: the report of what `dir` keeps, as [`write()`] makes it or as Markdown on `out`.
/// Whoever may only read `dir` gets a warning in place of the files.
pub(crate) fn again(dir: &Path, as_markdown: bool, out: &mut Output) -> Result<(), Failure> {
    // Not by clap: --json may stand before the subcommand, where it conflicts with nothing.
    if as_markdown && out.is_json() {
        return Err(Failure::usage("--markdown and --json are two forms of one report")
            .hint("give one of them"));
    }
    let (machine, runs) = load(dir)?;
    let report = Report::new(&machine, &runs);
    if as_markdown {
        return out.line(page::markdown(&report)?);
    }
    let kept = files(dir, &report, &runs);
    print(&report, out)?;
    match kept {
        Ok(()) => where_it_is(dir, out),
        Err(failure) => {
            say(format_args!("lrs-bench: warning: {failure}; the report is only printed"));
            Ok(())
        }
    }
}

fn files(dir: &Path, report: &Report, runs: &[Run]) -> Result<(), Failure> {
    let mut json = serde_json::to_vec_pretty(report)
        .map_err(|error| Failure::failed(format!("cannot make the report: {error}")))?;
    json.push(b'\n');
    keep(&dir.join("report.json"), &json)?;
    let pictures = dir.join(PICTURES);
    std::fs::create_dir_all(&pictures).map_err(|error| {
        Failure::failed(format!("cannot create {}: {error}", pictures.display()))
    })?;
    for (name, picture) in page::pictures(report) {
        keep(&pictures.join(name), picture.as_bytes())?;
    }
    keep(&dir.join(PAGE), page::html(report, runs)?.as_bytes())
}

fn print(report: &Report, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() { out.json(report) } else { terminal::print(report, out) }
}

fn keep(path: &Path, content: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, content).map_err(|error| {
        Failure::failed(format!("cannot write {}: {error}", path.display()))
            .hint("the runs are kept; `lrsctl bench --report DIR` makes the report anew")
    })
}

/// The kept runs of `dir`. A last line that was cut off, as by a kill or a full disk, is
/// dropped with a word on stderr; every other fault is named with its line, all at once.
pub(crate) fn load(dir: &Path) -> Result<(Machine, Vec<Run>), Failure> {
    let path = dir.join(MACHINE);
    let machine = serde_json::from_str(&text(&path)?).map_err(|error| {
        Failure::failed(format!("{}: {error}", path.display()))
            .hint("it is written by `lrsctl bench` and must be as it was")
    })?;
    let path = dir.join(RUNS);
    let runs = parse(&text(&path)?, &machine).map_err(|faults| {
        Failure::failed(format!("{}: {}", path.display(), faults.join("\n  ")))
            .hint("remove or mend the lines named; every line is one run")
    })?;
    if let Some(number) = runs.torn {
        say(format_args!(
            "lrs-bench: {}: line {number} was cut off when the bench was stopped; it is left out",
            path.display()
        ));
    }
    if runs.runs.is_empty() {
        return Err(Failure::failed(format!("{} has no run", path.display()))
            .hint("the bench was stopped before the end of its first run; start it again"));
    }
    Ok((machine, runs.runs))
}

/// A cut may fall into a character, which is no reason to refuse the lines before it.
fn text(path: &Path) -> Result<String, Failure> {
    let bytes = std::fs::read(path).map_err(|error| {
        Failure::failed(format!("cannot read {}: {error}", path.display()))
            .hint("name a directory that `lrsctl bench` wrote (its --out)")
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

struct Parsed {
    runs: Vec<Run>,
    /// Number of the line that was cut off.
    torn: Option<usize>,
}

fn parse(text: &str, machine: &Machine) -> Result<Parsed, Vec<String>> {
    let mut parsed = Parsed { runs: Vec::new(), torn: None };
    let mut faults = Vec::new();
    let mut seen: HashMap<(String, String, u32), usize> = HashMap::new();
    let last = text.lines().count();
    for (number, line) in (1..).zip(text.lines()) {
        match serde_json::from_str::<Run>(line) {
            _ if line.trim().is_empty() => {}
            Ok(run) => {
                faults.extend(stranger(&run, machine).map(|what| format!("line {number}: {what}")));
                let key = (run.load.clone(), run.setting.clone(), run.round);
                match seen.insert(key, number) {
                    Some(first) => faults.push(format!(
                        "line {number}: load \"{}\", setting \"{}\", round {} was on line {first} \
                         already",
                        run.load, run.setting, run.round
                    )),
                    None => parsed.runs.push(run),
                }
            }
            // Written in one piece with its newline, so only a cut-off line lacks it.
            Err(error) if number == last && error.is_eof() && !text.ends_with('\n') => {
                parsed.torn = Some(number);
            }
            Err(error) => faults.push(format!("line {number}: {error}")),
        }
    }
    if faults.is_empty() { Ok(parsed) } else { Err(faults) }
}

/// What machine.json does not know.
fn stranger(run: &Run, machine: &Machine) -> Option<String> {
    if !machine.loads.iter().any(|load| load.name == run.load) {
        return Some(format!("load \"{}\" is not in {MACHINE}", run.load));
    }
    let known = machine.settings.iter().any(|setting| setting.name == run.setting);
    (!known).then(|| format!("setting \"{}\" is not in {MACHINE}", run.setting))
}

#[cfg(test)]
mod tests;
