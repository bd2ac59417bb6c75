//! Starting a task and telling how it ended; running what is not measured to its end.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::tasks::Planned;
use crate::record::Outcome;
use crate::suite::Group;
use lrs_term::{Failure, printable};
use lrs_testbed::private::Daemon;
use lrs_testbed::process;
use lrs_testbed::supervise::until;
use tokio::time::Instant;

/// Most of the output of a task that is kept when it failed.
const TAIL: u64 = 64 << 10;

/// Starts one task; what it says goes to `log`. With a daemon it begins as `lrsctl run --wait`.
pub(super) fn start(
    task: &Planned,
    group: &Group,
    load: &str,
    lrs: Option<(&Path, &Daemon)>,
    log: &Path,
) -> Result<std::io::Result<process::ProcessGroup>, Failure> {
    let mut words = task.command.iter();
    let mut command = match lrs {
        None => {
            let mut command = Command::new(words.next().map_or("", |program| program));
            command.args(words);
            command
        }
        Some((lrsctl, daemon)) => {
            let mut command = Command::new(lrsctl);
            command.arg("--endpoint").arg(daemon.endpoint.to_string());
            command.args(["run", "--leave-unit", "--wait", "--name", &task.name]);
            command.args(["--job", group.job.as_deref().unwrap_or(load)]);
            command.args(["--kind", group.kind.as_deref().unwrap_or(&group.name)]);
            command.arg(format!("--priority={}", group.priority)).arg("--").args(words);
            command
        }
    };
    command.envs(task.environment.iter().map(|(name, value)| (name, value)));
    spawned(&mut command, &task.directory, log)
}

/// Starts a command in `directory`, with all that it says in `log`. The outer error is that of
/// the log.
fn spawned(
    command: &mut Command,
    directory: &Path,
    log: &Path,
) -> Result<std::io::Result<process::ProcessGroup>, Failure> {
    let cannot =
        |error: std::io::Error| Failure::failed(format!("cannot write {}: {error}", log.display()));
    let output = File::create(log).map_err(cannot)?;
    // Not /dev/null: grep recognises it and stops at the first match.
    let results = output.try_clone().map_err(cannot)?;
    command.current_dir(directory).stdin(Stdio::null()).stdout(results).stderr(output);
    Ok(process::ProcessGroup::spawn(command))
}

/// How it ended.
pub(super) fn outcome(status: ExitStatus) -> Outcome {
    match (status.code(), status.signal()) {
        (Some(0), _) => Outcome::Ok,
        (Some(code), _) => Outcome::Exit(code),
        (None, signal) => Outcome::Signal(signal.unwrap_or_default()),
    }
}

/// `map-3: exit status 2: no such file`; the end of its output is kept as `keep`.
pub(super) fn complaint(name: &str, outcome: &Outcome, log: &Path, keep: &Path) -> String {
    let how = match outcome {
        Outcome::Exit(code) => format!("exit status {code}"),
        Outcome::Signal(signal) => format!("ended by signal {signal}"),
        Outcome::TimeLimit => "killed at the time limit".to_owned(),
        Outcome::LrsdFailed => "killed with the run when lrsd failed".to_owned(),
        Outcome::NotSpawned(error) => return format!("{name}: could not be started: {error}"),
        Outcome::NotStarted => "had no turn within the time limit".to_owned(),
        Outcome::Ok => "exit status 0".to_owned(),
    };
    let output = match tail(log) {
        Ok(output) => output,
        // Who had no turn wrote nothing.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return format!("{name}: {how} (cannot read {}: {error})", log.display()),
    };
    let text = String::from_utf8_lossy(&output);
    let Some(last) = text.lines().rev().find(|line| !line.trim().is_empty()) else {
        return format!("{name}: {how}, without a word");
    };
    let last: String = printable(last.trim()).chars().take(200).collect();
    match std::fs::write(keep, &output) {
        Ok(()) => format!("{name}: {how}: {last}"),
        Err(error) => format!("{name}: {how}: {last} (cannot keep {}: {error})", keep.display()),
    }
}

/// The end of a log that may be long.
fn tail(log: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut output = Vec::new();
    file.take(TAIL).read_to_end(&mut output)?;
    Ok(output)
}

/// Runs a command beside which nothing is measured, and waits for its end.
pub(super) async fn finish(
    words: &[String],
    directory: &Path,
    log: &Path,
    limit: Duration,
) -> Result<Outcome, Failure> {
    let mut children = signal(SignalKind::child())
        .map_err(|error| Failure::failed(format!("cannot watch children: {error}")))?;
    let program = words.first().map_or("", |program| program);
    let mut command = Command::new(program);
    command.args(words.iter().skip(1));
    let failed = |error| Failure::failed(format!("cannot run {program}: {error}"));
    let mut child = spawned(&mut command, directory, log)?.map_err(failed)?;
    let ends = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(outcome(status));
        }
        tokio::select! {
            _ = children.recv() => {}
            () = until(Some(ends)) => return Ok(Outcome::TimeLimit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_the_last_line_and_keeps_the_end() {
        let place = tempfile::tempdir().unwrap();
        let [log, keep] = ["log", "keep"].map(|name| place.path().join(name));
        let text = |outcome| complaint("map-1", &outcome, &log, &keep);
        assert_eq!(text(Outcome::TimeLimit), "map-1: killed at the time limit, without a word");
        assert!(!keep.exists());
        std::fs::write(&log, format!("{}no luck\n\n", "x".repeat(100_000))).unwrap();
        assert!(text(Outcome::Exit(2)).starts_with("map-1: exit status 2: xxx"));
        assert_eq!(std::fs::metadata(&keep).unwrap().len(), TAIL);
        std::fs::write(&log, "first\nno luck\n").unwrap();
        assert_eq!(
            text(Outcome::LrsdFailed),
            "map-1: killed with the run when lrsd failed: no luck"
        );
        let not_spawned = Outcome::NotSpawned("no such directory".into());
        assert_eq!(text(not_spawned), "map-1: could not be started: no such directory");
    }
}
