//! `lrs-bench`: what LRS gives on this node, with these tasks, against static slots.
//! `lrsctl bench` executes it.
//!
//! Processes and clean-up are those of [`lrs_testbed`]: the supervisor checks all that can be
//! checked before anything runs, makes the working directory and the output directory, and
//! sweeps; the second process makes the data and runs load by load ([`mod@run`]). Each run is kept
//! as one line ([`record`]) before the next begins, so that whatever ends a bench early, the
//! report can be made of what is there.
//!
//! LRS itself is another program: the `lrsctl` beside this one, of which the private lrsd is a
//! hidden command, and as whose children shaped tasks begin.
//!
//! Limits: times are those of this process, which shares the CPUs with what it measures; how
//! little it does meanwhile is said in [`mod@run`]. A package that replaces `lrsctl` during a bench
//! replaces what is measured.

mod args;
mod check;
mod disk;
mod lrs;
pub mod order;
pub mod record;
mod report;
mod run;
pub mod stats;
mod suite;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{CommandFactory, Parser};
use lrs_term::{Failure, Output};
use lrs_testbed::process::this_executable;
use lrs_testbed::supervise::{PREFIXES, Workdir, supervise as supervised, swept};
use lrs_testbed::sweep::{Extra, Sweep};

use args::{BenchArgs, Cli, Inner, InnerArgs};
use suite::Suite;

/// Name of the suite's copy in the output directory.
const SUITE: &str = "suite.toml";

/// What a bench leaves beyond processes, groups and files.
const DISK: Extra = Extra { first: Some(disk::let_go), last: Some(disk::sweep) };

/// Parses the arguments, carries the command out and says how it ended.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help on a closed pipe is as good as help that was read.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let mut out = Output::stdout(cli.json);
    let ended = match cli.inner {
        None => supervise(&cli.bench, &mut out),
        Some(Inner::Bench(args)) => run(&args, &mut out),
        Some(Inner::Disk(args)) => disk::serve(&args, &mut out),
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
    let file = args.suite.as_deref().ok_or_else(|| Failure::usage("no suite given"))?;
    let lrsctl = lrs::lrsctl()?;
    let judge = |keys: &[(String, String)]| lrs::judge(&lrsctl, keys);
    let (mut suite, text) = Suite::load(file, cpus(), &judge).map_err(Failure::failed)?;
    check::select(&mut suite, &args.choice)?;
    check::programs(&suite)?;
    check::rights(&suite)?;
    let base = args.dir.as_deref().or(suite.directory.as_deref());
    let [_, prefix] = PREFIXES;
    let workdir = Workdir::make(base, prefix)?;
    check::space(&suite, &workdir.path)?;
    let output = check::output(args.out.as_deref(), &suite)?;
    let copy = output.join(SUITE);
    // With --out where the suite is, the copy may be the suite.
    if std::fs::read_to_string(&copy).ok().as_deref() != Some(&*text) {
        std::fs::write(&copy, text).map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", copy.display()))
        })?;
    }
    let mut command = Command::new(this_executable());
    if out.is_json() {
        command.arg("--json");
    }
    command.args(["__bench", "--cgroup-root", &workdir.name, "--workdir"]).arg(&workdir.path);
    command.arg("--lrsctl").arg(&lrsctl).arg("--out").arg(&output);
    command.args(args.choice.words()).arg("--").args(std::env::args_os());
    supervised("bench", command, &workdir, DISK, None)
}

/// `lrs-bench __bench`: the bench itself.
fn run(args: &InnerArgs, out: &mut Output) -> Result<(), Failure> {
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
