//! `lrs-sim run`: reads suites, runs their cases on all CPUs, writes tables and files.
//!
//! The cases of a suite share nothing, so as many run at once as there are CPUs (`--threads`), and the
//! tables are in the order of the files whatever ends first. With more than one thread the times of
//! deciding are those of a machine that does other things too.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the program around the simulation reads files, writes files, and has threads"
)]

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use lrs_sim::bars::bars;
use lrs_sim::cluster::figures::{Figures, NAMES};
use lrs_sim::cluster::suite::{Outcome, Suite, csv, json, of_class, play, tables, work};

/// What `lrs-sim run` is told.
#[derive(Args)]
pub struct Suites {
    /// Files of suites, as in config/sim/
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Only the cases with this in their name
    #[arg(long)]
    case: Option<String>,
    /// Cases at once; by default as many as there are CPUs
    #[arg(long)]
    threads: Option<usize>,
    /// Write all figures here as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the figures of the cases here as CSV
    #[arg(long)]
    csv: Option<PathBuf>,
    /// Draw the figure of --figure here as SVG, a bar for each case
    #[arg(long, requires = "figure")]
    svg: Option<PathBuf>,
    /// A figure by its name in the JSON, such as job_mean; of a class of jobs as job_mean:small
    #[arg(long, requires = "svg", value_parser = figure)]
    figure: Option<String>,
}

/// Runs them; success, unless a file cannot be read or a case cannot be run. A published figure that
/// is missed is a finding and no failure.
pub fn run(suites: &Suites) -> ExitCode {
    match all(suites) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(wrong) => {
            eprintln!("lrs-sim: {wrong}");
            ExitCode::from(2)
        }
    }
}

fn all(suites: &Suites) -> Result<bool, String> {
    let at = |path: &Path, error: &dyn fmt::Display| format!("{}: {error}", path.display());
    let mut read = Vec::new();
    for path in &suites.files {
        let text = fs::read_to_string(path).map_err(|error| at(path, &error))?;
        let mut suite = Suite::parse(&text).map_err(|error| at(path, &error))?;
        if let Some(part) = &suites.case {
            suite.keep(part);
        }
        read.push(suite);
    }
    let (mut whole, mut rows, mut good) = (Vec::new(), String::new(), true);
    let mut drawn = Vec::new();
    for suite in &read {
        let outcome = outcome(suite, suites.threads);
        println!("{}", tables(suite, &outcome));
        good &= outcome.iter().all(Result::is_ok);
        whole.push(json(suite, &outcome));
        rows += &csv(suite, &outcome);
        if let Some((figure, class)) = suites.figure.as_deref().map(of_class) {
            let of = |figures: &Figures| figures.get(figure, class);
            let cases = suite.cases.iter().zip(&outcome);
            drawn.extend(
                cases.map(|((name, _), found)| (name.as_str(), found.as_ref().ok().and_then(of))),
            );
        }
    }
    if let Some(path) = &suites.json {
        let text = serde_json::Value::from(whole).to_string();
        fs::write(path, text).map_err(|error| at(path, &error))?;
    }
    if let Some(path) = &suites.csv {
        fs::write(path, rows).map_err(|error| at(path, &error))?;
    }
    if let (Some(path), Some(named)) = (&suites.svg, &suites.figure) {
        let (figure, class) = of_class(named);
        let what = NAMES.iter().find(|(name, _)| *name == figure).map_or("", |(_, what)| what);
        let title = class.map_or(what.to_owned(), |class| format!("{class}: {what}"));
        fs::write(path, bars(&title, &drawn)).map_err(|error| at(path, &error))?;
    }
    Ok(good)
}

fn figure(text: &str) -> Result<String, String> {
    let names = || NAMES.iter().map(|(name, _)| *name);
    if names().any(|name| name == of_class(text).0) {
        return Ok(text.to_owned());
    }
    Err(format!("no such figure; there are {}", names().collect::<Vec<_>>().join(", ")))
}

fn outcome(suite: &Suite, threads: Option<usize>) -> Outcome {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or(cpus).clamp(1, suite.cases.len().max(1));
    let bar = ProgressBar::new(suite.cases.iter().map(|(_, scenario)| work(scenario)).sum());
    bar.set_style(style());
    bar.enable_steady_tick(Duration::from_millis(500));
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((index, (name, scenario))) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    suite.cases.get(index).map(|case| (index, case))
                } {
                    bar.set_message(name.clone());
                    let told = AtomicUsize::new(0);
                    let done = |now: u64| {
                        let before = told.swap(now as usize, Ordering::Relaxed) as u64;
                        bar.inc(now.saturating_sub(before));
                    };
                    let figures = play(scenario, || lrs_host::clock::boot_time().0, &done);
                    // A thread that panicked while it held the lock has told the reason.
                    if let Ok(mut found) = found.lock() {
                        found.push((index, figures));
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, figures)| figures).collect()
}

fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {pos}/{len} {elapsed} {msg}");
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}
