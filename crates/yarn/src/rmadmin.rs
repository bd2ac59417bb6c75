//! `yarn rmadmin -updateNodeResource`: for ResourceManagers without the node-resource call
//! (before 3.3) and for those behind Kerberos, since the site's own command brings the ticket.
//!
//! The command starts a JVM and may hang on a ResourceManager that does; it runs in a process
//! group of its own, which is killed when the time is up. The end of what it prints is
//! shown when it fails.
//!
//! Limit: a process that another program starts for the command is not in that group. A command that
//! begins with `systemd-run` is killed and the unit with the JVM runs on; lrs-yarn's user may start no unit anyway.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::Resource;
use super::http::excerpt;
use lrs_hadoop_conf::NodeId;
use lrs_host::clock;

/// What is looked at of what the command prints: its last lines say what went wrong, Hadoop's log
/// lines come before.
const SHOWN_BYTES: u64 = 8 << 10;

/// The command.
#[derive(Clone, Debug)]
pub struct Rmadmin {
    words: Vec<String>,
    timeout: Duration,
}

/// A run that did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum RmadminError {
    #[error("yarn.rmadmin is empty; set it to the command, such as [\"yarn\", \"rmadmin\"]")]
    Empty,
    #[error("cannot run {command} of yarn.rmadmin: {reason}; give its full path?")]
    NotRun { command: String, reason: String },
    #[error(
        "{command} was killed: it did not end within {timeout:.1?} (yarn.timeout, or what is left \
         of a stop); its output: {output}"
    )]
    TimedOut { command: String, timeout: Duration, output: String },
    #[error("{command} ended with {how}; its output: {output}")]
    Failed { command: String, how: String, output: String },
}

/// The words of a run for this node, the program among them.
fn words(rmadmin: &[String], id: &NodeId, resource: Resource) -> Vec<String> {
    let Resource { memory_mib, vcores } = resource;
    let update = ["-updateNodeResource", id.as_str(), &memory_mib.to_string(), &vcores.to_string()]
        .map(str::to_owned);
    // Never anything else: a timeout of 0 or more kills containers, and stays set.
    let over_commit_timeout = String::from("-1");
    [rmadmin, &update, &[over_commit_timeout]].concat()
}

/// What an operator types into a shell to do the same as a run of `rmadmin`.
pub fn command_line(rmadmin: &[String], id: &NodeId, resource: Resource) -> String {
    let quoted = |word: String| {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"_-./:=,@%+".contains(&b);
        match !word.is_empty() && word.bytes().all(fits) {
            true => word,
            false => format!("'{}'", word.replace('\'', r"'\''")),
        }
    };
    words(rmadmin, id, resource).into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

impl Rmadmin {
    /// Runs `words`, each time for at most `timeout`.
    pub fn new(words: Vec<String>, timeout: Duration) -> Rmadmin {
        Rmadmin { words, timeout }
    }

    /// How long a run may take from now on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Runs the command for this node, and waits for it.
    pub fn update(&self, id: &NodeId, resource: Resource) -> Result<(), RmadminError> {
        let words = words(&self.words, id, resource);
        let Some((program, arguments)) = words.split_first().filter(|_| !self.words.is_empty())
        else {
            return Err(RmadminError::Empty);
        };
        let command = self.words.join(" ");
        let not_run = |error: std::io::Error| RmadminError::NotRun {
            command: command.clone(),
            reason: error.to_string(),
        };
        // A file and no pipe: nothing has to read it while the command runs.
        let output = memfd_create("rmadmin", MemfdFlags::CLOEXEC).map(File::from);
        let output = output.map_err(|errno| not_run(errno.into()))?;
        crate::notify::alive();
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(not_run)?)
            .stderr(output.try_clone().map_err(not_run)?)
            .process_group(0)
            .spawn()
            .map_err(not_run)?;
        let mut run = Run { child, output, finished: false };
        match run.wait(self.timeout).map_err(not_run)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(RmadminError::Failed {
                command,
                how: status.to_string(),
                output: run.last_lines(),
            }),
            None => Err(RmadminError::TimedOut {
                command,
                timeout: self.timeout,
                output: run.last_lines(),
            }),
        }
    }
}

/// A running command; dropped, it and its group are gone.
struct Run {
    child: Child,
    output: File,
    finished: bool,
}

impl Run {
    /// Its end; `None`: the time was up, and it is killed.
    fn wait(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = clock::boot_time().after(timeout);
        let ended = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        loop {
            let left = deadline.since(clock::boot_time());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            match poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return self.finish().map(|_| None),
                Ok(_) => return self.finish().map(Some),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The last lines, newest first: that is where the reason is.
    fn last_lines(&mut self) -> String {
        let mut bytes = Vec::new();
        let length = self.output.metadata().map_or(0, |file| file.len());
        let start = length.saturating_sub(SHOWN_BYTES);
        let read = self.output.seek(SeekFrom::Start(start));
        if let Err(error) = read.and_then(|_| self.output.read_to_end(&mut bytes)) {
            return format!("what cannot be read: {error}");
        }
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().rev().filter(|line| !line.trim().is_empty()).collect();
        excerpt(&lines.join(" | "))
    }

    /// Ends what is left of the group, children the command left behind too, and then takes the
    /// leader's status: while that is not taken, no other group gets its number.
    fn finish(&mut self) -> std::io::Result<ExitStatus> {
        let group = Pid::from_child(&self.child);
        if let Err(errno) = kill_process_group(group, Signal::KILL)
            && errno != rustix::io::Errno::SRCH
        {
            tracing::warn!("a run of yarn.rmadmin may be left over: {errno}");
        }
        self.finished = true;
        self.child.wait()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.finished
            && let Err(error) = self.finish()
        {
            tracing::warn!(%error, "a run of yarn.rmadmin cannot be waited for: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFER: Resource = Resource { memory_mib: 9216, vcores: 9 };

    fn run(script: &str, timeout: Duration) -> Result<(), RmadminError> {
        let words = ["sh", "-c", script, "rmadmin"].map(str::to_owned).to_vec();
        Rmadmin::new(words, timeout).update(&"node1:45454".parse().unwrap(), OFFER)
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn the_arguments_are_those_of_rmadmin() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("arguments");
        run(&format!("echo \"$@\" > {}", file.display()), LONG).unwrap();
        let arguments = std::fs::read_to_string(file).unwrap();
        assert_eq!(arguments, "-updateNodeResource node1:45454 9216 9 -1\n");
    }

    #[test]
    fn an_operator_can_type_the_same() {
        let line = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            command_line(&words, &"node1:45454".parse().unwrap(), OFFER)
        };
        let rest = "-updateNodeResource node1:45454 9216 9 -1";
        assert_eq!(line(&["yarn", "rmadmin"]), format!("yarn rmadmin {rest}"));
        assert_eq!(line(&["sh", "-c", "it's"]), format!(r"sh -c 'it'\''s' {rest}"));
    }

    #[test]
    fn a_failure_shows_the_last_words() {
        let error = run("seq 10000; echo 'no ticket' >&2; exit 255", LONG).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("255") && text.contains("output: no ticket"), "{text}");
        let missing = Rmadmin::new(vec!["/nonexistent/yarn".into()], LONG);
        let text = missing.update(&"n:1".parse().unwrap(), OFFER).unwrap_err().to_string();
        assert!(text.contains("/nonexistent/yarn"), "{text}");
        let empty = Rmadmin::new(Vec::new(), LONG).update(&"n:1".parse().unwrap(), OFFER);
        assert_eq!(empty, Err(RmadminError::Empty));
    }

    #[test]
    fn a_run_that_hangs_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("sleep 1000 & echo $! > {}; echo waiting; wait", file.display());
        let error = run(&script, Duration::from_millis(500)).unwrap_err();
        assert!(matches!(error, RmadminError::TimedOut { .. }), "{error}");
        assert!(error.to_string().contains("output: waiting"), "{error}");
        let pid = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        match pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) {
            Err(errno) => assert_eq!(errno, rustix::io::Errno::SRCH),
            Ok(child) => {
                let soon = Timespec { tv_sec: 10, tv_nsec: 0 };
                let ended = poll(&mut [PollFd::new(&child, PollFlags::IN)], Some(&soon));
                assert_eq!(ended, Ok(1), "the child of the command runs on");
            }
        }
    }

    #[test]
    fn a_child_that_keeps_the_pipe_does_not_keep_us() {
        let before = clock::boot_time();
        run("sleep 1000 & exit 0", LONG).unwrap();
        assert!(clock::boot_time().since(before) < Duration::from_secs(10));
    }
}
