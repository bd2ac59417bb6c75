//! Child processes that end with us, and what is to be done between two runs of them.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use lrs_term::Failure;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// This executable, also after its file was replaced or removed: the kernel follows the name to
/// the image of whoever opens it, and a child has ours until it is another (proc_pid_exe(5)).
pub fn this_executable() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// Orphans below this process become its children instead of init's.
pub fn adopt_orphans() -> Result<(), Failure> {
    prctl::set_child_subreaper(true)
        .map_err(|error| Failure::failed(format!("cannot become a subreaper: {error}")))
}

/// The child gets `signal` when this process ends, however it ends. Children are started from
/// the main thread only, for the kernel means the thread that forked (PR_SET_PDEATHSIG(2const)).
pub fn dies_with_us(command: &mut Command, signal: Signal) {
    let parent = nix::unistd::getpid();
    let before_exec = move || {
        prctl::set_pdeathsig(signal)?;
        // it may have ended before the line above
        if nix::unistd::getppid() == parent {
            Ok(())
        } else {
            Err(std::io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: between fork and exec it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(before_exec) };
}

/// Sends a signal; a process that is gone needs none.
pub fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// A running child in a process group of its own; dropping it kills the group.
#[derive(Debug)]
pub struct ProcessGroup(Child);

impl ProcessGroup {
    /// Starts `command`, out of reach of the terminal's Ctrl-C: the order in which things
    /// end is ours.
    pub fn spawn(command: &mut Command) -> std::io::Result<ProcessGroup> {
        command.process_group(0);
        dies_with_us(command, Signal::SIGKILL);
        command.spawn().map(ProcessGroup)
    }

    /// The exit status, once there is one.
    pub fn try_wait(&mut self) -> std::io::Result<Option<std::process::ExitStatus>> {
        self.0.try_wait()
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // Reaped already: its number may be another's by now.
        if matches!(self.0.try_wait(), Ok(None)) {
            if let Ok(pid) = i32::try_from(self.0.id()) {
                let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
            }
            let _ = self.0.wait();
        }
    }
}

/// Writes out what earlier work left dirty in the file system of `directory`, so that it does not
/// slow what follows; answers whether it was done within `limit`. On a disk that others keep busy
/// it may not be; then it goes on in the background.
pub async fn write_back(directory: &Path, limit: Duration) -> Result<bool, Failure> {
    let failed = |error: std::io::Error| {
        Failure::failed(format!("cannot sync {}: {error}", directory.display()))
    };
    let opened = std::fs::File::open(directory).map_err(failed)?;
    let synced = tokio::task::spawn_blocking(move || rustix::fs::syncfs(&opened));
    match tokio::time::timeout(limit, synced).await {
        Ok(Ok(synced)) => synced.map(|()| true).map_err(|error| failed(error.into())),
        Ok(Err(_)) | Err(_) => Ok(false),
    }
}
