//! The outermost process: it does nothing that can fail half way, so it is there to clean up.

use std::future::Future;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::process;
use super::sweep::Sweep;
use crate::cli::{Failure, runtime, say};
use crate::clock;
use crate::units::BootTime;

/// How long the process below may take to clean up after it was told to end.
/// The modelled disk of a bench writes out what is dirty.
const CLEAN_UP: Duration = Duration::from_secs(15);

/// Working directories and cgroup roots are called one of these and the supervisor's process
/// id, so that no sweep can match what is somebody else's.
pub(crate) const PREFIXES: [&str; 2] = ["lrs-demo-", "lrs-bench-"];

/// `lrsctl __daemon --config FILE`: the private daemon. When it outlives both processes above
/// it, it is the one to sweep.
pub(crate) fn daemon(config: &Path) -> ExitCode {
    let parent = nix::unistd::getppid();
    let code = crate::daemon::main(config);
    if nix::unistd::getppid() != parent
        && let Some(workdir) = config.parent()
        && let Some(name) = workdir.file_name().and_then(|name| name.to_str())
        && PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    {
        // The name of the directory is the name of the cgroup root; nobody is left to be told.
        let _ = Sweep { workdir, cgroup_root: name }.everything();
    }
    code
}

/// A working directory of our own, and the name of the cgroup root that goes with it.
#[derive(Debug)]
pub(crate) struct Workdir {
    /// Where it is, absolute.
    pub(crate) path: PathBuf,
    /// Its last component.
    pub(crate) name: String,
}

impl Workdir {
    /// Makes it in `base`. Without one in $TMPDIR, or else in /var/tmp: /tmp is often a tmpfs,
    /// where no task ever waits for a disk; /var/tmp is not (FHS 5.15).
    pub(crate) fn make(base: Option<&Path>, prefix: &str) -> Result<Workdir, Failure> {
        let base = base.map(Path::to_owned).unwrap_or_else(|| {
            std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from)
        });
        let base = std::path::absolute(&base).unwrap_or(base);
        let name = format!("{prefix}{}", std::process::id());
        let path = base.join(&name);
        std::fs::DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
            Failure::failed(format!("cannot create {}: {error}", path.display()))
                .hint("--dir names another place")
        })?;
        Ok(Workdir { path, name })
    }

    fn sweep(&self) -> Sweep<'_> {
        Sweep { workdir: &self.path, cgroup_root: &self.name }
    }
}

impl Drop for Workdir {
    /// For the ways out before the sweep; the sweep tells what it could not remove.
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Runs `command` as the process that does the work, `what` to people, and sweeps when it has
/// ended. It is told to end when `limit` is over.
pub(crate) fn supervise(
    what: &str,
    mut command: Command,
    workdir: &Workdir,
    limit: Option<Duration>,
) -> Result<(), Failure> {
    process::adopt_orphans()?;
    process::dies_with_us(&mut command, Signal::SIGTERM);
    let mut worker = command
        .spawn()
        .map_err(|error| Failure::failed(format!("cannot start the {what}: {error}")))?;
    let ended = runtime()?.block_on(wait(what, &mut worker, limit));
    tell_left(workdir.sweep());
    let (status, told) = ended?;
    match (told, status.code()) {
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
pub(crate) fn swept(
    workdir: &Path,
    cgroup_root: &str,
    work: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    process::adopt_orphans()?;
    let ended = work();
    tell_left(Sweep { workdir, cgroup_root });
    ended
}

fn tell_left(sweep: Sweep<'_>) {
    for left in sweep.everything() {
        say(format_args!("lrsctl: left behind: {left}"));
    }
}

/// The first request to end from outside. It is heard from the call on, not from the first
/// poll on.
pub(crate) fn asked_to_end() -> Result<impl Future<Output = Signal>, Failure> {
    let listen = |kind| {
        signal(kind).map_err(|error| Failure::failed(format!("cannot watch signals: {error}")))
    };
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    // A terminal that goes away tells its whole foreground group, so us too.
    let mut hang_up = listen(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => Signal::SIGINT,
            _ = terminate.recv() => Signal::SIGTERM,
            _ = hang_up.recv() => Signal::SIGHUP,
        }
    })
}

/// Waits for the worker; passes a request to end on to it. Answers the signal that asked.
async fn wait(
    what: &str,
    worker: &mut Child,
    limit: Option<Duration>,
) -> Result<(ExitStatus, Option<Signal>), Failure> {
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
        let status = worker
            .try_wait()
            .map_err(|error| Failure::failed(format!("cannot wait for the {what}: {error}")))?;
        if let Some(status) = status {
            return Ok((status, told));
        }
        let ends = limit.filter(|_| told.is_none()).map(|limit| begun.after(limit));
        let asked = tokio::select! {
            _ = children.recv() => continue,
            _ = interrupt.recv() => Signal::SIGINT,
            _ = terminate.recv() => Signal::SIGTERM,
            _ = hang_up.recv() => Signal::SIGHUP,
            () = until(told_at.map(|at: BootTime| at.after(CLEAN_UP))) => {
                process::signal(worker.id(), Signal::SIGKILL);
                told_at = None;
                continue;
            }
            () = until(ends) => {
                say(format_args!("lrsctl: the {what} hangs; ending it"));
                Signal::SIGALRM
            }
        };
        if told.is_none() {
            told = Some(asked);
            told_at = Some(clock::boot_time());
        }
        process::signal(worker.id(), Signal::SIGTERM);
    }
}

/// Until `moment`; for ever without one.
pub(crate) async fn until(moment: Option<BootTime>) {
    match moment {
        None => std::future::pending().await,
        Some(at) => tokio::time::sleep(at.since(clock::boot_time())).await,
    }
}
