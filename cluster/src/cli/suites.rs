//! `lrs-place simulate` and `tables`: run the cases of suites on all CPUs, write tables and files.
//!
//! The cases of a suite and their seeds share nothing, so as many runs are made at once as there are CPUs
//! (`--threads`), and the tables are in the order of the suites whatever ends first. With more than one thread the times of
//! deciding are those of a machine that does other things too.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the program around the simulation reads files, writes files, and has threads and a clock"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::PossibleValuesParser;
use indicatif::{ProgressBar, ProgressStyle};
use lrs_place::placement::input::GroupInput;
use lrs_place::simulation::bars::bars;
use lrs_place::simulation::figures::NAMES;
use lrs_place::simulation::queue::QueueArguments;
use lrs_place::simulation::report::{self, csv, json};
use lrs_place::simulation::run::Refused;
use lrs_place::simulation::runs::{Runs, Values};
use lrs_place::simulation::scenario::Class;
use lrs_place::simulation::suite::{MOST_SEEDS, Outcome, Suite, of_class, play, seeded, work};
use lrs_term::{Exit, Failure, Output};

use super::{files, traces};

/// The suites of `tables` by name.
const TABLES: [(&str, &str); 6] = [
    ("delay", include_str!("../../suites/tables/delay.toml")),
    ("lsap", include_str!("../../suites/tables/lsap.toml")),
    ("dla", include_str!("../../suites/tables/dla.toml")),
    ("wco", include_str!("../../suites/tables/wco.toml")),
    ("layering", include_str!("../../suites/tables/layering.toml")),
    ("lrs", include_str!("../../suites/tables/lrs.toml")),
];

/// Largest suite. The shipped ones are below 20 KiB.
const MOST_BYTES: u64 = 256 << 10;

#[derive(Args, Debug)]
pub(super) struct SimulateArgs {
    /// Files of suites, as in cluster/suites; - is stdin
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Take the jobs of this log in place of those of the suites; - is stdin
    ///
    /// A log in the Standard Workload Format: a job of n processors becomes n tasks.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    swf: Option<PathBuf>,
    /// Write into DIR what each case does with its first seed: tasks.csv, Batsim's jobs.csv and
    /// schedule.csv, gantt.svg
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    traces: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

#[derive(Args, Debug)]
pub(super) struct TablesArgs {
    /// Only these [default: all]
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(TABLES.map(|(name, _)| name)))]
    names: Vec<String>,
    #[command(flatten)]
    options: Options,
}

/// What both commands take.
#[derive(Args, Debug)]
struct Options {
    /// Only the cases with this in their name
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Seed of the first run of each case; by default as the suite says, else 1
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Runs of each case, each with a seed of its own; by default as the suite says, else 20
    ///
    /// Figures are medians, with the interval in which the median is (95 %, by order statistics). Fewer
    /// than 6 give no interval and no verdict.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_SEEDS))]
    seeds: Option<u64>,
    /// Runs at once; by default as many as there are CPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Write all figures here as JSON
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    json: Option<PathBuf>,
    /// Write the figures of the cases here as CSV
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    csv: Option<PathBuf>,
    /// Draw the figure of --figure here as SVG, a bar with its interval for each case
    #[arg(long, value_name = "FILE", requires = "figure", value_hint = clap::ValueHint::FilePath)]
    svg: Option<PathBuf>,
    /// A figure by its name in the JSON, such as job_mean; of a class of jobs as job_mean:small
    #[arg(long, value_name = "NAME", requires = "svg", value_parser = figure)]
    figure: Option<String>,
}

/// `lrs-place simulate FILE...`
pub(super) fn simulate(args: &SimulateArgs, out: &mut Output) -> Result<(), Failure> {
    let read = |path: &PathBuf| {
        let failed = |what: String| Failure::failed(format!("{}: {what}", path.display()));
        let text = String::from_utf8(files::read(path, MOST_BYTES)?)
            .map_err(|error| failed(format!("is not UTF-8: {}", error.utf8_error())))?;
        Suite::parse(&text).map_err(|error| failed(error.to_string()))
    };
    let mut suites = args.files.iter().map(read).collect::<Result<Vec<Suite>, Failure>>()?;
    if let Some(path) = &args.swf {
        let log = traces::log(path)?;
        // A million jobs, which are alike for all cases with the same groups.
        let mut last: Option<(Vec<GroupInput>, Arc<Vec<Class>>)> = None;
        for suite in &mut suites {
            suite.published.clear();
            for (_, scenario) in &mut suite.cases {
                let same = last.take().filter(|(groups, _)| *groups == scenario.groups);
                let new = || (scenario.groups.clone(), Arc::new(log.in_groups(&scenario.groups)));
                let (groups, jobs) = same.unwrap_or_else(new);
                scenario.take(Arc::clone(&jobs));
                last = Some((groups, jobs));
            }
        }
    }
    run(suites, &args.options, args.traces.as_deref(), out)
}

/// `lrs-place queue`
pub(super) fn queue(args: &QueueArguments, out: &mut Output) -> Result<(), Failure> {
    out.line(args.head())?;
    args.rows().try_for_each(|row| out.line(row))
}

/// `lrs-place tables [NAME...]`
pub(super) fn tables(args: &TablesArgs, out: &mut Output) -> Result<(), Failure> {
    let wanted = |name: &str| args.names.is_empty() || args.names.iter().any(|one| one == name);
    let parse = |(name, text): &(&str, &str)| {
        Suite::parse(text).map_err(|error| Failure::failed(format!("the suite {name}: {error}")))
    };
    let suites = TABLES.iter().filter(|(name, _)| wanted(name)).map(parse);
    run(suites.collect::<Result<Vec<Suite>, Failure>>()?, &args.options, None, out)
}

/// Runs the cases of all suites. A case that cannot be run is in its table with the reason, and fails
/// the command; a published figure that is missed is a finding and no failure.
fn run(
    mut suites: Vec<Suite>,
    options: &Options,
    dir: Option<&Path>,
    out: &mut Output,
) -> Result<(), Failure> {
    let (mut whole, mut rows, mut good) = (Vec::new(), String::new(), true);
    let mut drawn = Vec::new();
    for suite in &mut suites {
        if let Some(part) = &options.case {
            suite.keep(part);
        }
        suite.seeds = options.seeds.unwrap_or(suite.seeds);
        if let Some(seed) = options.seed {
            suite.cases.iter_mut().for_each(|(_, scenario)| scenario.seed = seed);
        }
    }
    // What cannot be written is a failure now, and not after an hour.
    let to_json = options.json.as_deref().map(files::Sink::create).transpose()?;
    let to_csv = options.csv.as_deref().map(files::Sink::create).transpose()?;
    let to_svg = options.svg.as_deref().map(files::Sink::create).transpose()?;
    dir.map(traces::make_dir).transpose()?;
    for suite in &suites {
        let outcome = outcome(suite, options.threads);
        out.line(report::tables(suite, &outcome))?;
        out.flush()?;
        good &= outcome.iter().all(Result::is_ok);
        whole.push(json(suite, &outcome));
        rows += &csv(suite, &outcome);
        if let Some((figure, class)) = options.figure.as_deref().map(of_class) {
            let of = |runs: &Runs| runs.get(figure, class);
            let cases = suite.cases.iter().zip(&outcome);
            drawn.extend(
                cases.map(|((name, _), found)| (name.as_str(), found.as_ref().ok().and_then(of))),
            );
        }
    }
    if let Some(dir) = dir {
        traces::write_all(dir, suites.iter().flat_map(|suite| &suite.cases))?;
    }
    if let Some(file) = to_json {
        file.write(&serde_json::Value::from(whole).to_string())?;
    }
    if let Some(file) = to_csv {
        file.write(&rows)?;
    }
    if let (Some(file), Some(named)) = (to_svg, &options.figure) {
        let (figure, class) = of_class(named);
        let what = NAMES.iter().find(|(name, _)| *name == figure).map_or("", |(_, what)| what);
        let title = class.map_or(what.to_owned(), |class| format!("{class}: {what}"));
        file.write(&bars(&title, &drawn))?;
    }
    if good { Ok(()) } else { Err(Failure::ended(Exit::Failed.into())) }
}

fn figure(text: &str) -> Result<String, String> {
    let names = || NAMES.iter().map(|(name, _)| *name);
    if names().any(|name| name == of_class(text).0) {
        return Ok(text.to_owned());
    }
    Err(format!("no such figure; there are {}", names().collect::<Vec<_>>().join(", ")))
}

/// Runs every case with every seed; a case that is refused with one of them has no figures.
fn outcome(suite: &Suite, threads: Option<u16>) -> Outcome {
    let all: Vec<(usize, u64)> = (0..suite.cases.len())
        .flat_map(|case| (0..suite.seeds).map(move |number| (case, number)))
        .collect();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.map_or(cpus, usize::from).clamp(1, all.len().max(1));
    let whole: u64 = suite.cases.iter().map(|(_, scenario)| work(scenario)).sum();
    let bar = ProgressBar::new(whole.saturating_mul(suite.seeds));
    bar.set_style(style());
    bar.enable_steady_tick(Duration::from_millis(500));
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((case, number)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let run = one(suite, *case, *number, &bar);
                    // A thread that panicked while it held the lock has written the reason.
                    if let Ok(mut found) = found.lock() {
                        found.push(((*case, *number), run));
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_by_key(|(at, _)| *at);
    let mut outcome: Outcome = suite.cases.iter().map(|_| Ok(Runs::default())).collect();
    for ((case, _), run) in found {
        match (&mut outcome[case], run) {
            (Ok(runs), Ok(values)) => runs.0.push(values),
            (of @ Ok(_), Err(refused)) => *of = Err(refused),
            (Err(_), _) => {}
        }
    }
    outcome
}

fn one(suite: &Suite, case: usize, number: u64, bar: &ProgressBar) -> Result<Values, Refused> {
    let (name, scenario) = &suite.cases[case];
    bar.set_message(name.clone());
    let shown = AtomicUsize::new(0);
    let done = |now: u64| {
        let before = shown.swap(now as usize, Ordering::Relaxed) as u64;
        bar.inc(now.saturating_sub(before));
    };
    play(&seeded(scenario, number), since_start, &done).map(|figures| Values::of(&figures))
}

fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {pos}/{len} {elapsed} {msg}");
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A clock that only goes forward.
pub(super) fn since_start() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}
