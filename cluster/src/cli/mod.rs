//! The command line of `lrs-place`: data goes to stdout, all else to stderr.

mod classify;
mod files;
mod plan;
mod suites;
mod traces;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use lrs_place::simulation::queue::QueueArguments;
use lrs_term::{Failure, Output};

/// Decide which task goes to which node of a cluster, and simulate whole clusters.
///
/// Needs no daemon and changes nothing but the files that an option names.
#[derive(Debug, Parser)]
#[command(
    name = "lrs-place",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes: 0 ok; 1 refused or failed; 2 usage.\n\
                  docs/placement.md has the policies, the files and what comes out."
)]
struct Cli {
    #[command(subcommand)]
    command: All,
}

/// What people see, and what the packages start.
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "there is one of it")]
enum All {
    #[command(flatten)]
    Visible(Command),
    /// The manual pages, into a directory
    #[command(name = "__man", hide = true)]
    Man { directory: PathBuf },
    /// Completions on stdout
    #[command(name = "__completions", hide = true)]
    Completions { shell: clap_complete::Shell },
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Which waiting task a placement policy would start on which node of a cluster
    ///
    /// The cluster is a JSON file: nodes with slots and racks, jobs with tasks, where their input
    /// lies, bandwidths (docs/placement.md).
    #[command(after_help = "Examples:\n  \
        lrs-place plan cluster/examples/two-racks.json\n  \
        lrs-place plan cluster/examples/two-racks.json --explain\n  \
        lrs-place plan cluster/examples/two-racks.json --policy lsap --explain sort/m3")]
    Plan(plan::PlanArgs),
    /// The class of the map and reduce programs in a jar, predicted from their bytecode
    ///
    /// For a job that has never run and has no computing rate: a program is predicted to wait for
    /// its input (io) if the longest path through its bytecode is short, and to compute (cpu) if it is
    /// long. PATH counts instructions, with those of the jar's methods that are called; LIMIT is
    /// what it is compared with, 500 for map and 1,000 for reduce; RATE is a computing rate to
    /// assume in the file for `plan` until `lrsctl jobs` has one. A measured rate is better.
    /// Finds subclasses of Hadoop's Mapper and Reducer, old API and new, in the jar. Runs nothing of it.
    #[command(after_help = "Examples:\n  \
        lrs-place classify app.jar\n  \
        lrs-place classify app.jar --class 'WordCount$TokenizerMapper' --json")]
    Classify(classify::ClassifyArgs),
    /// Simulate clusters with the policies, from suites: tables of what comes out
    ///
    /// A suite is a TOML file, such as those of cluster/suites; jobs arrive, nodes report, input lies
    /// somewhere and takes its time to move. Everything but the time of deciding follows from a seed.
    #[command(after_help = "Examples:\n  \
        lrs-place simulate cluster/suites/million.toml\n  \
        lrs-place simulate cluster/suites/cross.toml --svg bars.svg --figure job_mean\n  \
        lrs-place simulate cluster/suites/log.toml --swf site.swf --seeds 1 --traces out")]
    Simulate(suites::SimulateArgs),
    /// Queues of jobs on one node: makespan and response with LRS and with fixed numbers of slots
    Queue(QueueArguments),
    /// The tables that the policies' sources published, beside what the simulation gives
    ///
    /// Runs the suites of cluster/suites/tables, which are in the program.
    #[command(after_help = "Examples:\n  \
        lrs-place tables\n  \
        lrs-place tables delay wco --csv tables.csv")]
    Tables(suites::TablesArgs),
}

/// Parses the arguments, carries the command out and says how it ended.
pub fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        All::Man { directory } => clap_mangen::generate_to(visible(), &directory)
            .map_err(|error| files::unwritable(&directory, &error)),
        All::Completions { shell } => with_output(false, |out| {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut visible(), "lrs-place", &mut script);
            out.text(String::from_utf8_lossy(&script))
        }),
        All::Visible(command) => run(command),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report("lrs-place");
            failure.exit()
        }
    }
}

/// The command line without what is hidden: manual and completions would offer it.
fn visible() -> clap::Command {
    let all = Cli::command();
    let mut shown = clap::Command::new("lrs-place").version(env!("CARGO_PKG_VERSION"));
    if let Some(about) = all.get_long_about() {
        shown = shown.long_about(about.clone());
    }
    if let Some(about) = all.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(help) = all.get_after_help() {
        shown = shown.after_help(help.clone());
    }
    Command::augment_subcommands(shown)
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Plan(args) => with_output(args.json, |out| plan::plan_file(&args, out)),
        Command::Classify(args) => with_output(args.json, |out| classify::classify(&args, out)),
        Command::Simulate(args) => with_output(false, |out| suites::simulate(&args, out)),
        Command::Queue(args) => with_output(false, |out| suites::queue(&args, out)),
        Command::Tables(args) => with_output(false, |out| suites::tables(&args, out)),
    }
}

fn with_output(
    json: bool,
    command: impl FnOnce(&mut Output) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut out = Output::stdout(json);
    command(&mut out)?;
    Ok(out.flush()?)
}
