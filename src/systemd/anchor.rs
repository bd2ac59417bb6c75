//! The process that keeps `lrs-tasks.scope` alive while no task does.
//!
//! systemd ends a scope with its last process. Without an anchor the scope would come and go
//! with the tasks of a quiet node: each admission would wait for a job of systemd (tens of
//! milliseconds, the price of `systemd-run --scope`), and a task could be admitted into a scope
//! that is just being taken down. The anchor is this program itself in another role: it reads
//! from a pipe without a writer and ends when the daemon does, however that ends. A scope with
//! tasks then lives on by them; an empty one goes.

use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::units::Pid;

/// The hidden option of `lrsd` that makes it an anchor.
pub const OPTION: &str = "--anchor";

/// A running anchor; ends when dropped.
#[derive(Debug)]
pub struct Anchor {
    child: Child,
    pid: Pid,
}

impl Anchor {
    /// Starts one, in the cgroup of this process.
    ///
    /// # Errors
    /// As of fork(2) and execve(2).
    pub fn start() -> io::Result<Anchor> {
        let child = Command::new("/proc/self/exe")
            .arg0("lrs-anchor")
            .arg(OPTION)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::new);
        let pid = pid.ok_or_else(|| io::Error::other("the kernel gave the anchor no pid"))?;
        Ok(Anchor { child, pid })
    }

    /// Its process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Lets it end, and waits for that at most `patience`: its group may be frozen.
    /// Answers whether it has ended.
    pub fn end(mut self, patience: Duration) -> bool {
        self.dismiss();
        // Without a pidfd there is nothing to wait on; what matters is asked below.
        let _ = rustix::process::Pid::from_raw(self.pid.raw())
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()))
            .and_then(|pidfd| {
                let timeout = Timespec {
                    tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: i64::from(patience.subsec_nanos()),
                };
                poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout))
            });
        !self.alive()
    }

    /// Closes the pipe it reads from.
    fn dismiss(&mut self) {
        drop(self.child.stdin.take());
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        self.dismiss();
        // Reaped if it is quick, and else by init once this process has ended.
        let _ = self.child.try_wait();
    }
}

/// The anchor's life: until the other end of standard input is closed.
pub fn run() -> ExitCode {
    // The kernel took "exe" from the path. A name is for people; without it this works too.
    let _ = rustix::thread::set_name(c"lrs-anchor");
    let mut nothing = [0; 64];
    loop {
        match io::stdin().read(&mut nothing) {
            Ok(0) => return ExitCode::SUCCESS,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return ExitCode::FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lives_until_it_is_released() {
        // The test binary takes the option for a filter that no test matches, and ends at once;
        // `cat` has the anchor's behaviour.
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = Pid::new(child.id() as i32).unwrap();
        let mut anchor = Anchor { child, pid };
        assert!(anchor.alive());
        assert!(anchor.end(Duration::from_secs(60)));
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
