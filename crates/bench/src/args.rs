//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Static slots against LRS on this node, with the tasks of a suite
#[derive(Debug, Parser)]
#[command(
    name = "lrs-bench",
    version,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    after_help = "Exit codes: 0 ok; 1 a run failed, or nothing could be run; 2 usage; 128 and the \
                  signal's number after a signal."
)]
pub(crate) struct Cli {
    /// Print the report as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) bench: BenchArgs,
    #[command(subcommand)]
    pub(crate) inner: Option<Inner>,
}

/// What the bench and the packages start; no part of the command line that people see.
#[derive(Debug, Subcommand)]
pub(crate) enum Inner {
    #[command(name = "__bench", hide = true)]
    Bench(Box<InnerArgs>),
    /// The manual page on stdout
    #[command(name = "__man", hide = true)]
    Man,
    /// Completions on stdout
    #[command(name = "__completions", hide = true)]
    Completions { shell: clap_complete::Shell },
}

/// What to run, or which report to make anew.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    /// What to run and in which settings, such as config/bench/smoke.toml
    #[arg(value_name = "SUITE.toml", required_unless_present_any = ["report", "resume"])]
    pub(crate) suite: Option<PathBuf>,
    /// Where runs, report and logs go [default: lrs-bench-SUITE-TIME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Where to work, on the disk to measure [default: the suite's, $TMPDIR or /var/tmp]
    #[arg(long, value_name = "WORKDIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) choice: BenchChoice,
    /// Add rounds to those of this output directory, up to --rounds in all [default: as many as it was
    /// to have]; a round that was cut off is run again
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["suite", "out", "load", "setting", "quick", "report"]
    )]
    pub(crate) resume: Option<PathBuf>,
    /// Make the report of this output directory anew; runs nothing
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["suite", "out", "dir", "rounds", "load", "setting", "quick"]
    )]
    pub(crate) report: Option<PathBuf>,
    /// With --report: a table in Markdown on stdout instead
    #[arg(long, requires = "report")]
    pub(crate) markdown: bool,
}

/// What of a suite is wanted.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct BenchChoice {
    /// Rounds instead of the suite's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Only this load; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) load: Vec<String>,
    /// Only this setting; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) setting: Vec<String>,
    /// The short form, as the suite's `[quick]` says: shows that it works, not what it gives
    #[arg(long)]
    pub(crate) quick: bool,
}

impl BenchChoice {
    /// The words it was read from.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        words.extend(self.rounds.map(|rounds| format!("--rounds={rounds}")));
        words.extend(self.load.iter().map(|load| format!("--load={load}")));
        words.extend(self.setting.iter().map(|setting| format!("--setting={setting}")));
        words.extend(self.quick.then(|| "--quick".to_owned()));
        words
    }
}

/// What the supervisor of a bench tells the process that runs it.
#[derive(Args, Clone, Debug)]
pub struct InnerArgs {
    /// Which report the terminal gets: `bench` or `demo`
    #[arg(long)]
    pub(crate) what: String,
    /// Working directory, made and removed by the supervisor
    #[arg(long)]
    pub(crate) workdir: PathBuf,
    /// cgroup root of the private daemons
    #[arg(long)]
    pub(crate) cgroup_root: String,
    /// The lrsctl to measure
    #[arg(long)]
    pub(crate) lrsctl: PathBuf,
    /// Output directory with the suite
    #[arg(long)]
    pub(crate) out: PathBuf,
    /// The rounds in it are kept
    #[arg(long)]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) choice: BenchChoice,
    /// The command line as it was given
    #[arg(last = true)]
    pub(crate) command: Vec<String>,
}
