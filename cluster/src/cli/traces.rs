//! What `lrs-place simulate` reads of a log, and the files of a case for other programs.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a command reads and writes files"
)]

use std::fs;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::Path;

use lrs_place::simulation::scenario::Scenario;
use lrs_place::simulation::swf::{self, Log};
use lrs_place::simulation::trace::{Files, Untraced, trace};
use lrs_term::{Failure, printable, say};

use super::files;
use super::suites::since_start;

/// Reads a log, and names the lines that it leaves out.
pub(super) fn log(path: &Path) -> Result<Log, Failure> {
    let failed = |fault: swf::Fault| Failure::failed(format!("{} {fault}", path.display()));
    let log = files::open(path)
        .map_err(|error| files::unreadable(path, &error))
        .and_then(|file| swf::read(BufReader::new(file)).map_err(failed))?;
    for reason in &log.left_out {
        say(format_args!("lrs-place: {}: left out {}", path.display(), printable(reason)));
    }
    if log.more > 0 {
        say(format_args!("lrs-place: {}: left out {} more lines", path.display(), log.more));
    }
    Ok(log)
}

/// Makes the directory of the traces.
pub(super) fn make_dir(dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(|error| files::unwritable(dir, &error))
}

/// A directory for each case that is a run, by its number and name.
pub(super) fn write_all<'a>(
    dir: &Path,
    cases: impl Iterator<Item = &'a (String, Scenario)>,
) -> Result<(), Failure> {
    for (number, (name, scenario)) in cases.enumerate() {
        if scenario.once.is_some() || scenario.analysis.is_some() || scenario.solver.is_some() {
            continue;
        }
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        let short: String = name.chars().map(plain).take(100).collect();
        let short = format!("{:03}-{short}", number + 1);
        one(&dir.join(short.trim_end_matches('-')), name, scenario)?;
    }
    Ok(())
}

fn one(dir: &Path, name: &str, scenario: &Scenario) -> Result<(), Failure> {
    let failed = |what: &str, error: io::Error| {
        Failure::failed(format!("cannot write {}: {error}", dir.join(what).display()))
    };
    fs::create_dir_all(dir).map_err(|error| failed("", error))?;
    let open = |what: &str| {
        let file = files::create(&dir.join(what))?;
        Ok::<_, Failure>(BufWriter::new(file))
    };
    let (mut tasks, mut jobs) = (open("tasks.csv")?, open("jobs.csv")?);
    let files = Files { tasks: &mut tasks, jobs: &mut jobs };
    let traced = match trace(scenario, name, since_start, files) {
        Ok(traced) => traced,
        Err(Untraced::Io(error)) => return Err(failed("tasks.csv and jobs.csv", error)),
        Err(Untraced::Refused(refused)) => {
            return Err(Failure::failed(format!("case {name:?}: {refused}")));
        }
    };
    tasks.flush().map_err(|error| failed("tasks.csv", error))?;
    jobs.flush().map_err(|error| failed("jobs.csv", error))?;
    files::write(&dir.join("schedule.csv"), &traced.schedule)?;
    files::write(&dir.join("gantt.svg"), &traced.gantt)
}
