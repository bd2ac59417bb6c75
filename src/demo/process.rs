//! Child processes that end with us.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::cli::Failure;

/// This executable, also after its file was replaced.
pub(super) fn this_executable() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find this executable: {error}")))
}

/// Orphans below this process become its children instead of init's.
pub(super) fn adopt_orphans() -> Result<(), Failure> {
    prctl::set_child_subreaper(true)
        .map_err(|error| Failure::failed(format!("cannot become a subreaper: {error}")))
}

/// The child gets `signal` when this process ends, however it ends. Children are started from
/// the main thread only, for the kernel means the thread that forked (PR_SET_PDEATHSIG(2const)).
pub(super) fn dies_with_us(command: &mut Command, signal: Signal) {
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
pub(super) fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// A running child in a process group of its own; dropping it kills the group.
#[derive(Debug)]
pub(super) struct Group(Child);

impl Group {
    /// Starts `command`, out of reach of the terminal's Ctrl-C: the order in which things
    /// end is ours.
    pub(super) fn spawn(command: &mut Command) -> std::io::Result<Group> {
        command.process_group(0);
        dies_with_us(command, Signal::SIGKILL);
        command.spawn().map(Group)
    }

    /// The exit status, once there is one.
    pub(super) fn try_wait(&mut self) -> std::io::Result<Option<std::process::ExitStatus>> {
        self.0.try_wait()
    }
}

impl Drop for Group {
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
