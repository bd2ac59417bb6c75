//! The outermost process: it does nothing that can fail half way, so it is there to clean up.

use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use lrs_term::{Failure, say};
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::process;
use crate::sweep::{Extra, Sweep};

/// How long the process below may take to clean up after the signal to end.
/// The modelled disk of a bench writes out what is dirty.
const CLEAN_UP: Duration = Duration::from_secs(15);

/// Working directories and cgroup roots are called one of these and the supervisor's process
/// id, so that no sweep can match what others own.
pub const PREFIXES: [&str; 2] = ["lrs-demo-", "lrs-bench-"];

/// Runs the private daemon with `run`. When it outlives both processes above it, it is the one
/// to sweep.
pub fn daemon(config: &Path, run: impl FnOnce(&Path) -> ExitCode) -> ExitCode {
    let parent = nix::unistd::getppid();
    let code = run(config);
    if nix::unistd::getppid() != parent
        && let Some(workdir) = config.parent()
        && let Some(name) = workdir.file_name().and_then(|name| name.to_str())
        && PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    {
        // The name of the directory is the name of the cgroup root. Nothing waits for a word of
        // what is left; a modelled disk ends by itself.
        let _ = Sweep { workdir, cgroup_root: name, extra: Extra::default() }.everything();
    }
    code
}

/// A working directory of our own, and the name of the cgroup root that goes with it.
#[derive(Debug)]
pub struct Workdir {
    /// Where it is, absolute.
    pub path: PathBuf,
    /// Its last component.
    pub name: String,
}

impl Workdir {
    /// Makes it in `base`. Without one in $TMPDIR, or else in /var/tmp: /tmp is often a tmpfs,
    /// where no task ever waits for a disk; /var/tmp is not (FHS 5.15).
    pub fn make(base: Option<&Path>, prefix: &str) -> Result<Workdir, Failure> {
        let base = base.map(Path::to_owned).unwrap_or_else(|| {
            std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
        });
        let base = std::path::absolute(&base).unwrap_or(base);
        let name = format!("{prefix}{}", std::process::id());
        let path = base.join(&name);
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
            Failure::failed(format!("cannot create {}: {error}", path.display()))
                .hint("--dir names a directory that is there")
        })?;
        Ok(Workdir { path, name })
    }
}

impl Drop for Workdir {
    /// For the ways out before the sweep; the sweep says what it could not remove.
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Runs `command` as the process that does the work, `what` to people, and sweeps when it has
/// ended. It gets the signal to end when `limit` is over.
pub fn supervise(
    what: &str,
    mut command: Command,
    workdir: &Workdir,
    extra: Extra,
    limit: Option<Duration>,
) -> Result<(), Failure> {
    process::adopt_orphans()?;
    process::dies_with_us(&mut command, Signal::SIGTERM);
    let mut worker = command
        .spawn()
        .map_err(|error| Failure::failed(format!("cannot start the {what}: {error}")))?;
    let ended = runtime()?.block_on(wait(what, &mut worker, limit));
    say_left(&Sweep { workdir: &workdir.path, cgroup_root: &workdir.name, extra });
    let (status, signal) = ended?;
    match (signal, status.code()) {
        // as a shell reports a command that the signal ended
        (Some(signal), _) => Err(Failure::ended(ExitCode::from(128 + signal as u8))),
        (None, Some(0)) => Ok(()),
        (None, Some(code)) => Err(Failure::ended(ExitCode::from(u8::try_from(code).unwrap_or(1)))),
        (None, None) => {
            let signal = status.signal().unwrap_or_default();
            Err(Failure::failed(format!("the {what} was ended by signal {signal}; cleaned up")))
        }
    }
}

/// Does the work in the second process and sweeps too: its supervisor may be dead.
pub fn swept(sweep: &Sweep<'_>, work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    process::adopt_orphans()?;
    let ended = work();
    say_left(sweep);
    ended
}

fn say_left(sweep: &Sweep<'_>) {
    for left in sweep.everything() {
        say(format_args!("left behind: {left}"));
    }
}

/// One thread and no other: children end with the thread that started them.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::failed(format!("cannot set up the event loop: {error}; raise `ulimit -n`?"))
    })
}

/// The requests to end from outside, heard from [`Requests::listen`] on.
#[derive(Debug)]
pub struct Requests([(Signal, tokio::signal::unix::Signal); 3]);

impl Requests {
    /// Listens to what a terminal or a service manager sends. A terminal that goes away tells
    /// its whole foreground group, so this process too.
    pub fn listen() -> Result<Requests, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::failed(format!("cannot watch signals: {error}")))
        };
        Ok(Requests([
            (Signal::SIGINT, listen(SignalKind::interrupt())?),
            (Signal::SIGTERM, listen(SignalKind::terminate())?),
            (Signal::SIGHUP, listen(SignalKind::hangup())?),
        ]))
    }

    /// The next request.
    pub async fn next(&mut self) -> Signal {
        let [interrupt, terminate, hang_up] = &mut self.0;
        tokio::select! {
            _ = interrupt.1.recv() => interrupt.0,
            _ = terminate.1.recv() => terminate.0,
            _ = hang_up.1.recv() => hang_up.0,
        }
    }
}

/// Waits until `moment`; for ever without one.
pub async fn until(moment: Option<Instant>) {
    match moment {
        None => std::future::pending().await,
        Some(at) => tokio::time::sleep_until(at).await,
    }
}

/// Waits for the worker; passes a request to end on to it. Answers the signal that asked.
async fn wait(
    what: &str,
    worker: &mut Child,
    limit: Option<Duration>,
) -> Result<(ExitStatus, Option<Signal>), Failure> {
    let mut children = signal(SignalKind::child())
        .map_err(|error| Failure::failed(format!("cannot watch signals: {error}")))?;
    let mut requests = Requests::listen()?;
    let begun = Instant::now();
    let mut signal = None;
    let mut ending_at = None;
    loop {
        let status = worker
            .try_wait()
            .map_err(|error| Failure::failed(format!("cannot wait for the {what}: {error}")))?;
        if let Some(status) = status {
            return Ok((status, signal));
        }
        let ends = limit.filter(|_| signal.is_none()).map(|limit| begun + limit);
        let asked = tokio::select! {
            _ = children.recv() => continue,
            asked = requests.next() => asked,
            () = until(ending_at.map(|at: Instant| at + CLEAN_UP)) => {
                process::signal(worker.id(), Signal::SIGKILL);
                ending_at = None;
                continue;
            }
            () = until(ends) => {
                let limit = limit.unwrap_or_default().as_secs();
                say(format_args!("the {what} is not over after {limit} s, its limit; ending it"));
                Signal::SIGALRM
            }
        };
        if signal.is_none() {
            signal = Some(asked);
            ending_at = Some(Instant::now());
        }
        process::signal(worker.id(), Signal::SIGTERM);
    }
}
