//! `lrsctl demo`: LRS on this machine in under two minutes, against static slots, with
//! nothing left behind.
//!
//! Which processes there are, and who cleans up: [`lrs_testbed`].

mod data;
mod load;
mod observe;
mod report;
mod size;
mod stage;
mod tour;
mod view;

use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::cli::{DemoArgs, DemoInnerArgs, Failure, Output, runtime};
use lrs_testbed::process::this_executable;
use lrs_testbed::supervise::{PREFIXES, Requests, Workdir, supervise as supervised, swept};
use lrs_testbed::sweep::{Extra, Sweep};

/// When the tour is told to end if it has not by itself. It plans for less ([`tour`]); this
/// keeps the promise of two minutes when something hangs.
const HARD_LIMIT: Duration = Duration::from_secs(110);

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
pub(crate) fn run(args: &DemoInnerArgs, out: &mut Output) -> Result<(), Failure> {
    let extra = Extra::default();
    let sweep = Sweep { workdir: &args.workdir, cgroup_root: &args.cgroup_root, extra };
    swept(&sweep, || {
        let runtime = runtime()?;
        let ended = runtime.block_on(tour_or_signal(args, out));
        // A sync of a busy disk that still goes on is not waited for.
        runtime.shutdown_background();
        ended
    })
}

async fn tour_or_signal(args: &DemoInnerArgs, out: &mut Output) -> Result<(), Failure> {
    let mut requests = Requests::listen()?;
    // Dropping the tour ends its tasks and its daemon, in that order.
    tokio::select! {
        ended = tour::tour(args, out) => ended,
        asked = requests.next() => Err(Failure::ended(ExitCode::from(128 + asked as u8))),
    }
}
