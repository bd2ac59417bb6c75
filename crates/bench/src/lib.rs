//! `lrs-bench`: what LRS gives on this node, with these tasks, against static slots.
//! `lrsctl bench` executes it.
//!
//! Processes and clean-up are those of [`lrs_testbed`]: the supervisor checks all that can be
//! checked before anything runs, makes the working directory and the output directory, and
//! sweeps; the second process makes the data and runs load by load ([`mod@run`]). Each run is kept
//! as one line ([`record`]) before the next begins, so that whatever ends a bench early, the
//! report can be made of what is there.
//!
//! LRS itself is another program, the `lrsctl` beside this one: the private lrsd is a hidden
//! command of it, and shaped tasks begin as its children.
//!
//! Limits: times are those of this process, which shares the CPUs with what it measures; how
//! little it does meanwhile is described in [`mod@run`]. A package that replaces `lrsctl` during a
//! bench replaces what is measured.

mod args;
mod check;
mod demo;
mod disk;
mod lrs;
pub mod order;
pub mod record;
mod report;
mod resume;
mod run;
pub mod stats;
mod suite;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{CommandFactory, Parser};
use lrs_term::{Failure, Output};
use lrs_testbed::process::this_executable;
use lrs_testbed::supervise::{PREFIXES, Workdir, supervise as supervised, swept};
use lrs_testbed::sweep::{Extra, Sweep};

pub use args::InnerArgs;
use args::{BenchArgs, BenchChoice, Cli, Inner};
pub use demo::{DemoArgs, demo};
pub use report::pictures::{Figures, node as node_picture};
use suite::Suite;

/// Name of the suite's copy in the output directory.
const SUITE: &str = "suite.toml";

/// What a bench leaves beyond processes, groups and files.
const DISK: Extra = Extra { first: Some(disk::release), last: Some(disk::sweep) };

/// Parses the arguments, carries the command out and says how it ended.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            if error.exit_code() == 0 {
                // Help on a closed pipe is as good as help that was read.
                let _ = error.print();
            } else {
                lrs_term::say_lines(&error.render().to_string());
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let mut out = Output::stdout(cli.json);
    let ended = match cli.inner {
        None => supervise(&cli.bench, &mut out),
        Some(Inner::Bench(args)) => run(&args, &mut out),
        Some(Inner::Man) => man(&mut out),
        Some(Inner::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut visible(), "lrs-bench", &mut script);
            out.text(String::from_utf8_lossy(&script))
        }
    };
    match ended.and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report("lrs-bench");
            failure.exit()
        }
    }
}

/// The command line without what is hidden: manual and completions would offer it.
fn visible() -> clap::Command {
    let all = Cli::command();
    let mut shown = clap::Command::new("lrs-bench").version(env!("CARGO_PKG_VERSION"));
    shown = shown.args(all.get_arguments().cloned());
    if let Some(about) = all.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(help) = all.get_after_help() {
        shown = shown.after_help(help.clone());
    }
    shown
}

fn man(out: &mut Output) -> Result<(), Failure> {
    let man = clap_mangen::Man::new(visible()).manual("Local Resource Shaper");
    let mut page = Vec::new();
    man.render(&mut page)?;
    out.text(String::from_utf8_lossy(&page))
}

/// Checks, then runs the bench in a process of its own.
fn supervise(args: &BenchArgs, out: &mut Output) -> Result<(), Failure> {
    if let Some(directory) = &args.report {
        return report::again(directory, args.markdown, out);
    }
    let (kept, choice) = match &args.resume {
        Some(dir) => (Some(dir.join(SUITE)), resume::choice(dir, args.choice.rounds)?),
        None => (None, args.choice.clone()),
    };
    let file = args.suite.as_deref().or(kept.as_deref());
    let file = file.ok_or_else(|| Failure::usage("no suite given"))?;
    let lrsctl = lrs::lrsctl()?;
    let judge = |keys: &[(String, String)]| lrs::judge(&lrsctl, keys);
    let (mut suite, text) = Suite::load(file, cpus(), &judge).map_err(Failure::failed)?;
    check::select(&mut suite, &choice)?;
    check::programs(&suite)?;
    check::rights(&suite)?;
    start(&Start {
        what: "bench",
        suite: &suite,
        text: &text,
        dir: args.dir.as_deref().or(suite.directory.as_deref()),
        out: args.resume.as_deref().or(args.out.as_deref()),
        resume: args.resume.is_some(),
        lrsctl: &lrsctl,
        choice: &choice,
        json: out.is_json(),
        limit: None,
    })
}

/// A bench that is to be started.
struct Start<'a> {
    /// `bench` or `demo`.
    what: &'static str,
    suite: &'a Suite,
    /// Of the suite.
    text: &'a str,
    dir: Option<&'a Path>,
    out: Option<&'a Path>,
    resume: bool,
    lrsctl: &'a Path,
    choice: &'a BenchChoice,
    json: bool,
    limit: Option<Duration>,
}

/// Makes the directories and starts the process that runs the bench.
fn start(it: &Start<'_>) -> Result<(), Failure> {
    let [demo, bench] = PREFIXES;
    let workdir = Workdir::make(it.dir, if it.what == "demo" { demo } else { bench })?;
    check::space(it.suite, &workdir.path)?;
    let output = check::output(it.out, it.resume, it.what, it.suite, &workdir.path)?;
    let copy = output.join(SUITE);
    // With --out where the suite is, the copy may be the suite.
    if std::fs::read_to_string(&copy).ok().as_deref() != Some(it.text) {
        std::fs::write(&copy, it.text).map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", copy.display()))
        })?;
    }
    let mut command = Command::new(this_executable());
    if it.json {
        command.arg("--json");
    }
    command.args(["__bench", "--what", it.what, "--cgroup-root", &workdir.name, "--workdir"]);
    command.arg(&workdir.path).arg("--lrsctl").arg(it.lrsctl).arg("--out").arg(&output);
    command.args(it.resume.then_some("--resume"));
    command.args(it.choice.words()).arg("--").args(std::env::args_os());
    supervised(it.what, command, &workdir, DISK, it.limit)
}

/// `lrs-bench __bench`, of the demo `lrsctl __bench`: the bench itself.
///
/// # Errors
/// A run failed, or the bench could not go on; the message says which and why.
pub fn run(args: &InnerArgs, out: &mut Output) -> Result<(), Failure> {
    let sweep = Sweep { workdir: &args.workdir, cgroup_root: &args.cgroup_root, extra: DISK };
    swept(&sweep, || {
        // The supervisor has checked the keys of lrsd.
        let (mut suite, _) =
            Suite::load(&args.out.join(SUITE), cpus(), &|_| Vec::new()).map_err(Failure::failed)?;
        check::select(&mut suite, &args.choice)?;
        run::bench(args, &suite, cpus(), out)
    })
}

/// CPUs that tasks may use: affinity and quota count (sched_setaffinity(2), cgroups(7)).
fn cpus() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cpus).unwrap_or(u32::MAX)
}

/// Where the runs of a bench are kept, a line each.
fn runs_file(output: &Path) -> PathBuf {
    output.join("runs.jsonl")
}
