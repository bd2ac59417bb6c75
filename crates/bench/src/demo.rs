//! `lrsctl demo`: a small bench of the jobs of a user under LRS and under static slots, in under
//! two minutes. It is a suite like any other (`config/bench/demo.toml`) with a report of its own
//! for the terminal (`report/demo.rs`); the page with the pictures is that of every bench.
//!
//! Limits. The amounts of work are fixed, so a slow node takes longer; it has to end after
//! [`HARD_LIMIT`] and reports what it has. Two rounds are an impression, no benchmark.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lrs_term::{Failure, Output};

use crate::args::BenchChoice;
use crate::suite::Suite;
use crate::{Start, check, cpus, lrs, start};

/// The suite.
const SUITE: &str = include_str!("../../../config/bench/demo.toml");

/// What keeps the promise of two minutes, less the time to clean up.
const HARD_LIMIT: Duration = Duration::from_secs(105);

/// Arguments of `lrsctl demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Where to work, a disk rather than a tmpfs [default: $TMPDIR or /var/tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where the report with its pictures goes [default: lrs-demo-TIME beside the data]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs the demo in a process of its own. It leaves nothing behind but the report.
///
/// # Errors
/// It needs root and the programs of the suite.
pub fn demo(args: &DemoArgs, out: &Output) -> Result<(), Failure> {
    if out.is_json() {
        return Err(Failure::usage("the demo's report has no JSON form")
            .hint("report.json, beside the page that it leaves, has the figures"));
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(Failure::failed("the demo moves tasks between cgroups, and that needs root")
            .hint("run it as root; `lrsctl doctor` says without root what LRS can do here"));
    }
    let lrsctl = lrs::lrsctl()?;
    let judge = |keys: &[(String, String)]| lrs::judge(&lrsctl, keys);
    let suite = Suite::read(SUITE, cpus(), &judge).map_err(Failure::failed)?;
    check::programs(&suite)?;
    start(&Start {
        what: "demo",
        suite: &suite,
        text: SUITE,
        dir: args.dir.as_deref(),
        out: args.out.as_deref(),
        resume: false,
        lrsctl: &lrsctl,
        choice: &BenchChoice::default(),
        json: false,
        limit: Some(HARD_LIMIT),
    })
}
