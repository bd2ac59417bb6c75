//! `lrsctl demo`: LRS on this machine in under two minutes, against static slots, with
//! nothing left behind.
//!
//! Which processes there are, and which of them cleans up: [`lrs_testbed`].

mod report;
mod stage;
mod tour;
mod work;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Args;
use lrs_term::{Failure, Output};
use lrs_testbed::process::this_executable;
use lrs_testbed::supervise::{
    PREFIXES, Requests, Workdir, runtime, supervise as supervised, swept,
};
use lrs_testbed::sweep::{Extra, Sweep};

/// When the tour is told to end if it has not by itself. It plans for less ([`tour`]); this
/// keeps the promise of two minutes when something hangs.
const HARD_LIMIT: Duration = Duration::from_secs(110);

/// Arguments of `lrsctl demo`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DemoArgs {
    /// Where to put the data, a disk rather than a tmpfs [default: $TMPDIR or /var/tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Show observe mode even where shaping is possible
    #[arg(long)]
    observe: bool,
}

/// What the supervisor of the demo passes to the process that runs it.
#[derive(Args, Clone, Debug)]
pub(crate) struct InnerArgs {
    /// Working directory, made and removed by the supervisor
    #[arg(long)]
    workdir: PathBuf,
    /// cgroup root of the private daemon
    #[arg(long)]
    cgroup_root: String,
    /// Show observe mode only
    #[arg(long)]
    observe: bool,
}

/// `lrsctl demo`: runs the tour in a process of its own and leaves nothing behind.
pub(crate) fn supervise(args: &DemoArgs, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        return Err(Failure::usage("the demo's report has no JSON form"));
    }
    let [prefix, _] = PREFIXES;
    let workdir = Workdir::make(args.dir.as_deref(), prefix)?;
    let mut command = Command::new(this_executable());
    command.args(["__demo", "--cgroup-root", &workdir.name, "--workdir"]).arg(&workdir.path);
    if args.observe {
        command.arg("--observe");
    }
    supervised("demo", command, &workdir, Extra::default(), Some(HARD_LIMIT))
}

/// `lrsctl __demo`: the tour itself.
pub(crate) fn run(args: &InnerArgs, out: &mut Output) -> Result<(), Failure> {
    let extra = Extra::default();
    let sweep = Sweep { workdir: &args.workdir, cgroup_root: &args.cgroup_root, extra };
    swept(&sweep, || {
        let runtime = runtime()?;
        let ended = runtime.block_on(async {
            let mut requests = Requests::listen()?;
            // Dropping the tour ends its tasks and its daemon, in that order.
            tokio::select! {
                ended = tour::tour(args, out) => ended,
                asked = requests.next() => Err(Failure::ended(ExitCode::from(128 + asked as u8))),
            }
        });
        // A sync of a busy disk that still goes on is not waited for.
        runtime.shutdown_background();
        ended
    })
}
