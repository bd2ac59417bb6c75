//! `run --each --joblog FILE`: a line for each task that ended, in the columns of GNU parallel's log, so that
//! what reads those reads these.
//!
//! A task that another attempt follows has no line yet, nor has one that was ended by Ctrl-C: so `--resume`
//! runs both. A task is known by its number and its command, so a list that was changed in between has its new
//! lines run.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;

use crate::cli::failure::Failure;
use crate::cli::output::printable;
use crate::units::WallTime;

const HEAD: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

/// Exitval of a command that cannot be started.
const NOT_STARTED: ExitVal = ExitVal { status: 126, signal: 0 };

/// The log.
pub(super) struct JobLog {
    file: File,
    /// Commands that ended with 0, by number.
    done: HashMap<u64, String>,
}

struct ExitVal {
    status: i32,
    signal: i32,
}

impl JobLog {
    /// Written anew, or with `resume` continued.
    ///
    /// # Errors
    /// The file cannot be opened, read or written.
    pub(super) fn open(path: &Path, resume: bool) -> Result<JobLog, Failure> {
        let begin = || {
            let mut options = File::options();
            let mut file =
                options.read(true).write(true).create(true).truncate(!resume).open(path)?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            file.seek(SeekFrom::End(0))?;
            // The last line of one that was interrupted may be cut.
            if text.is_empty() {
                file.write_all(HEAD.as_bytes())?;
            } else if !text.ends_with(b"\n") {
                file.write_all(b"\n")?;
            }
            Ok(JobLog { file, done: done(&String::from_utf8_lossy(&text)) })
        };
        begin().map_err(|error: std::io::Error| {
            let file = path.to_string_lossy();
            Failure::failed(format!("--joblog {}: {error}", printable(&file))).of_run()
        })
    }

    /// Whether the task `seq` of this command ended with 0.
    pub(super) fn has(&self, seq: u64, command: &[OsString]) -> bool {
        self.done.get(&seq).is_some_and(|done| *done == text(command))
    }

    /// Adds a task that ended; `status` is `None` where it could not be started.
    pub(super) fn add(
        &mut self,
        seq: u64,
        (from, to): (WallTime, WallTime),
        status: Option<ExitStatus>,
        command: &[OsString],
    ) -> std::io::Result<()> {
        let ExitVal { status, signal } = status.map_or(NOT_STARTED, |status| ExitVal {
            status: status.code().unwrap_or(0),
            signal: status.signal().unwrap_or(0),
        });
        let seconds = |micros: i64| micros as f64 / 1e6;
        let started = seconds(from.unix_micros());
        let ran = seconds(to.unix_micros().saturating_sub(from.unix_micros()).max(0));
        let command = text(command);
        // One write, so that a line is whole or not there.
        let line =
            format!("{seq}\t:\t{started:.3}\t{ran:10.3}\t0\t0\t{status}\t{signal}\t{command}\n");
        self.file.write_all(line.as_bytes())
    }
}

/// The command on one line.
fn text(command: &[OsString]) -> String {
    let words = command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    words.chars().map(escaped).collect()
}

fn done(log: &str) -> HashMap<u64, String> {
    let row = |line: &str| {
        let mut cells = line.splitn(9, '\t');
        let seq = cells.next()?.parse().ok()?;
        let ended = (cells.nth(5)?, cells.next()?);
        let command = cells.next()?;
        (ended == ("0", "0")).then(|| (seq, command.to_owned()))
    };
    log.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_with_0_is_known_again_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let command = |text: &str| vec![OsString::from("echo"), OsString::from(text)];
        let span = (WallTime::from_unix_micros(1_500_000), WallTime::from_unix_micros(3_750_000));
        let mut log = JobLog::open(&path, true).unwrap();
        for (seq, argument, status) in
            [(1, "a\nb", Some(0)), (2, "c", Some(3 << 8)), (3, "d", Some(9)), (4, "e", None)]
        {
            log.add(seq, span, status.map(ExitStatus::from_raw), &command(argument)).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let rows: Vec<_> = text.lines().collect();
        assert_eq!(rows[1], "1\t:\t1.500\t     2.250\t0\t0\t0\t0\techo a\\nb");
        assert!(rows[2].contains("\t3\t0\t") && rows[3].contains("\t0\t9\t"), "{text}");
        std::fs::write(&path, text + "5\t:\t1.5").unwrap();
        let mut log = JobLog::open(&path, true).unwrap();
        log.add(6, span, Some(ExitStatus::from_raw(0)), &command("f")).unwrap();
        let log = JobLog::open(&path, true).unwrap();
        let has = |seq, argument| log.has(seq, &command(argument));
        assert!(has(1, "a\nb") && has(6, "f"));
        assert!(!has(1, "other") && !has(2, "c") && !has(3, "d") && !has(4, "e") && !has(5, ""));
        assert!(!JobLog::open(&path, false).unwrap().has(1, &command("a\nb")), "written anew");
    }
}
