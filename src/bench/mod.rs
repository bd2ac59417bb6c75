//! `lrsctl bench`: what LRS gives on this node, with these tasks, against static slots.
//!
//! Processes and clean-up are those of [`crate::rig`]: the supervisor checks all that can be
//! checked before anything runs, makes the working directory and the output directory, and
//! sweeps; the second process makes the data and runs load by load ([`mod@run`]). Each run is kept
//! as one line ([`record`]) before the next begins, so that whatever ends a bench early, the
//! report can be made of what is there.
//!
//! Limit: times are those of this process, which shares the CPUs with what it measures; how
//! little it does meanwhile is told in [`mod@run`].

mod check;
pub(crate) mod data;
pub(crate) mod disk;
pub mod order;
pub mod record;
mod report;
mod run;
pub mod stats;
mod suite;

use std::path::PathBuf;
use std::process::Command;

use crate::cli::{BenchArgs, BenchInnerArgs, Failure, Output};
use crate::rig::process::this_executable;
use crate::rig::supervise::{PREFIXES, Workdir, supervise as supervised, swept};
use suite::Suite;

/// Name of the suite's copy in the output directory.
const SUITE: &str = "suite.toml";

/// `lrsctl bench`: checks, then runs the bench in a process of its own.
pub(crate) fn supervise(args: &BenchArgs, out: &mut Output) -> Result<(), Failure> {
    if let Some(directory) = &args.report {
        return report::again(directory, args.markdown, out);
    }
    let file = args.suite.as_deref().ok_or_else(|| Failure::usage("no suite given"))?;
    let (mut suite, text) = Suite::load_with_text(file, cpus())
        .map_err(|errors| Failure::failed(errors.to_string()))?;
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
    command.arg("--out").arg(&output);
    command.args(args.choice.words()).arg("--").args(std::env::args_os());
    supervised("bench", command, &workdir, None)
}

/// `lrsctl __bench`: the bench itself.
pub(crate) fn run(args: &BenchInnerArgs, out: &mut Output) -> Result<(), Failure> {
    swept(&args.workdir, &args.cgroup_root, || {
        let file = args.out.join(SUITE);
        let mut suite =
            Suite::load(&file, cpus()).map_err(|errors| Failure::failed(errors.to_string()))?;
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
fn runs_file(output: &std::path::Path) -> PathBuf {
    output.join("runs.jsonl")
}
