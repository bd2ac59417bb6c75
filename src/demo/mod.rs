//! `lrsctl demo`: LRS on this machine in under two minutes, against static slots, with
//! nothing left behind.
//!
//! Three kinds of process, all this one executable:
//!
//! ```text
//! lrsctl demo           supervisor: makes the working directory, waits, sweeps
//!   lrsctl __demo       the tour: generates data, runs the stages, draws, reports
//!     lrsctl __daemon   the private lrsd
//!     tasks             sort, grep, ...; shaped ones begin as `lrsctl run --wait`
//! ```
//!
//! Any two of the upper three may be killed with SIGKILL at any time: the tour dies with the
//! supervisor by SIGTERM and cleans up by dropping what it owns; the daemon and the tasks die
//! with the tour; the supervisor adopts what is orphaned (child subreaper, prctl(2)), ends it
//! and removes the cgroups and the directory; the daemon does so when both are gone.

mod data;
mod load;
mod node;
mod observe;
mod private;
mod process;
mod report;
mod size;
mod stage;
mod sweep;
mod tour;
mod view;

use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{DemoArgs, DemoInnerArgs, Failure, Output, runtime, say};
use crate::clock;

/// How long the tour may take to clean up after it was told to end.
const CLEAN_UP: Duration = Duration::from_secs(8);

/// When the tour is told to end if it has not by itself. It plans for less ([`tour`]); this
/// keeps the promise of two minutes when something hangs.
const HARD_LIMIT: Duration = Duration::from_secs(110);

/// The private daemon: `lrsctl __daemon --config FILE`. When it outlives both processes above
/// it, it is the one to sweep.
pub(crate) fn daemon(config: &Path) -> ExitCode {
    let parent = nix::unistd::getppid();
    let code = crate::daemon::main(config);
    if nix::unistd::getppid() != parent
        && let Some(workdir) = config.parent()
        && let Some(name) = workdir.file_name().and_then(|name| name.to_str())
        && name.starts_with(PREFIX)
    {
        // The name of the directory is the name of the cgroup root; nobody is left to be told.
        let _ = sweep::Sweep { workdir, cgroup_root: name }.everything();
    }
    code
}

/// Names of directory and cgroup root: this and the supervisor's process id.
const PREFIX: &str = "lrs-demo-";

/// `lrsctl demo`: runs the tour in a process of its own and leaves nothing behind.
pub(crate) fn supervise(args: &DemoArgs, out: &mut Output) -> Result<(), Failure> {
    if out.is_json() {
        return Err(Failure::usage("the demo's report has no JSON form"));
    }
    let workdir = Workdir::make(args.dir.as_deref())?;
    let cgroup_root = format!("{PREFIX}{}", std::process::id());
    process::adopt_orphans()?;
    let mut command = Command::new(process::this_executable()?);
    command.args(["__demo", "--cgroup-root", &cgroup_root, "--workdir"]).arg(&workdir.path);
    if args.observe {
        command.arg("--observe");
    }
    process::dies_with_us(&mut command, Signal::SIGTERM);
    let mut tour = command
        .spawn()
        .map_err(|error| Failure::failed(format!("cannot start the demo: {error}")))?;

    let ended = runtime()?.block_on(wait(&mut tour));
    let sweep = sweep::Sweep { workdir: &workdir.path, cgroup_root: &cgroup_root };
    for left in sweep.everything() {
        say(format_args!("lrsctl: left behind: {left}"));
    }
    let (status, told) = ended?;
    match (told, status.code()) {
        // as a shell reports a command that the signal ended
        (Some(signal), _) => Err(Failure::ended(ExitCode::from(128 + signal as u8))),
        (None, Some(0)) => Ok(()),
        (None, Some(code)) => Err(Failure::ended(ExitCode::from(u8::try_from(code).unwrap_or(1)))),
        (None, None) => {
            let signal = status.signal().unwrap_or_default();
            Err(Failure::failed(format!("the demo was ended by signal {signal}; cleaned up")))
        }
    }
}

/// Waits for the tour; passes a request to end on to it. Answers the signal that asked.
async fn wait(tour: &mut std::process::Child) -> Result<(ExitStatus, Option<Signal>), Failure> {
    let listen = |kind| {
        signal(kind).map_err(|error| Failure::failed(format!("cannot watch signals: {error}")))
    };
    let mut children = listen(SignalKind::child())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    let begun = clock::boot_time();
    let mut told = None;
    let mut told_at = None;
    loop {
        let status = tour
            .try_wait()
            .map_err(|error| Failure::failed(format!("cannot wait for the demo: {error}")))?;
        if let Some(status) = status {
            return Ok((status, told));
        }
        let asked = tokio::select! {
            _ = children.recv() => continue,
            _ = interrupt.recv() => Signal::SIGINT,
            _ = terminate.recv() => Signal::SIGTERM,
            _ = hang_up.recv() => Signal::SIGHUP,
            () = patience(told_at, CLEAN_UP) => {
                process::signal(tour.id(), Signal::SIGKILL);
                told_at = None;
                continue;
            }
            () = patience(told.is_none().then_some(begun), HARD_LIMIT) => {
                say(format_args!("lrsctl: the demo hangs; ending it"));
                Signal::SIGALRM
            }
        };
        if told.is_none() {
            told = Some(asked);
            told_at = Some(clock::boot_time());
        }
        process::signal(tour.id(), Signal::SIGTERM);
    }
}

/// Until `limit` after `since`; for ever without one.
async fn patience(since: Option<crate::units::BootTime>, limit: Duration) {
    match since {
        None => std::future::pending().await,
        Some(at) => {
            let passed = clock::boot_time().since(at);
            tokio::time::sleep(limit.saturating_sub(passed)).await;
        }
    }
}

/// `lrsctl __demo`: the tour itself. It sweeps too: its supervisor may be dead.
pub(crate) fn run(args: &DemoInnerArgs, out: &mut Output) -> Result<(), Failure> {
    process::adopt_orphans()?;
    let runtime = runtime()?;
    let ended = runtime.block_on(tour_or_signal(args, out));
    // A sync of a busy disk that still goes on is not waited for.
    runtime.shutdown_background();
    for left in
        (sweep::Sweep { workdir: &args.workdir, cgroup_root: &args.cgroup_root }).everything()
    {
        say(format_args!("lrsctl: left behind: {left}"));
    }
    ended
}

async fn tour_or_signal(args: &DemoInnerArgs, out: &mut Output) -> Result<(), Failure> {
    let listen = |kind| {
        signal(kind).map_err(|error| Failure::failed(format!("cannot watch signals: {error}")))
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    // Dropping the tour ends its tasks and its daemon, in that order.
    let asked = tokio::select! {
        ended = tour::tour(args, out) => return ended,
        _ = interrupt.recv() => Signal::SIGINT,
        _ = terminate.recv() => Signal::SIGTERM,
    };
    Err(Failure::ended(ExitCode::from(128 + asked as u8)))
}

/// The demo's own directory.
struct Workdir {
    path: PathBuf,
}

impl Workdir {
    /// /tmp is often a tmpfs, where no task ever waits for a disk; /var/tmp is not (FHS 5.15).
    fn make(base: Option<&Path>) -> Result<Workdir, Failure> {
        let base = base.map(Path::to_owned).unwrap_or_else(|| {
            std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
        });
        let base = std::path::absolute(&base).unwrap_or(base);
        let path = base.join(format!("{PREFIX}{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
            Failure::failed(format!("cannot create {}: {error}", path.display()))
                .hint("--dir names another place")
        })?;
        Ok(Workdir { path })
    }
}

impl Drop for Workdir {
    /// For the ways out before the sweep; the sweep tells what it could not remove.
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
