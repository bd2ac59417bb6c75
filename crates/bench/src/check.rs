//! What is checked before a bench runs anything: a bench of an hour that fails at its last load
//! for want of a program is an hour lost.

use std::path::{Path, PathBuf};

use super::suite::Suite;
use super::{disk, runs_file};
use lrs_term::Failure;

use crate::args::BenchChoice;
use crate::lrs::in_path;
use lrs_core::units::Bytes;
use lrs_testbed::node::wall_time;

/// Makes the suite what the arguments ask of it.
pub(super) fn select(suite: &mut Suite, choice: &BenchChoice) -> Result<(), Failure> {
    if choice.quick {
        suite.make_quick();
    }
    suite.rounds = choice.rounds.unwrap_or(suite.rounds);
    let loads: Vec<String> = suite.loads.iter().map(|load| load.name.clone()).collect();
    let settings: Vec<String> = suite.settings.iter().map(|setting| setting.name.clone()).collect();
    known("--load", &choice.load, &loads)?;
    known("--setting", &choice.setting, &settings)?;
    if !choice.load.is_empty() {
        suite.loads.retain(|load| choice.load.contains(&load.name));
    }
    if !choice.setting.is_empty() {
        suite.settings.retain(|setting| choice.setting.contains(&setting.name));
        // The reference may be among those left out.
        suite.name_references();
    }
    Ok(())
}

fn known(option: &str, asked: &[String], names: &[String]) -> Result<(), Failure> {
    let unknown: Vec<String> =
        asked.iter().filter(|name| !names.contains(name)).map(|name| format!("'{name}'")).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let known: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    Err(Failure::usage(format!("{option}: the suite has no {}", unknown.join(", ")))
        .hint(format!("it has {}", known.join(", "))))
}

/// Whether all programs are there.
pub(super) fn programs(suite: &Suite) -> Result<(), Failure> {
    let missing: Vec<String> = suite
        .programs()
        .into_iter()
        .filter(|name| in_path(name).is_none())
        .map(|name| format!("{name} not found in PATH"))
        .collect();
    if missing.is_empty() {
        return suite.disk.as_ref().map_or(Ok(()), |_| disk::program().map(drop));
    }
    Err(Failure::failed(format!("the suite cannot run: {}", missing.join("; "))).hint(
        "install what is missing (--load leaves out what only its loads' commands begin with, \
             not the suite's `programs` and data); nothing was run",
    ))
}

/// Whether the settings can be had by this user.
pub(super) fn rights(suite: &Suite) -> Result<(), Failure> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let names = |needs: bool| {
        let settings = suite.settings.iter().filter(move |one| one.needs_daemon() == needs);
        settings.map(|one| format!("--setting '{}'", one.name)).collect::<Vec<_>>().join(" ")
    };
    let needs: Vec<&str> = suite
        .settings
        .iter()
        .filter(|setting| setting.needs_daemon())
        .map(|setting| &*setting.name)
        .collect();
    let disk = suite.disk.is_some();
    if needs.is_empty() && !disk {
        return Ok(());
    }
    let what = match (needs.is_empty(), disk) {
        (false, _) => format!("a private lrsd makes cgroups for '{}'", needs.join("', '")),
        (true, _) => "a modelled disk is mounted".to_owned(),
    };
    let others = names(false);
    let hint = if disk || others.is_empty() {
        "run it as root".to_owned()
    } else {
        format!("run it as root, or what needs no root: {others}")
    };
    Err(Failure::failed(format!("{what}, and that needs root; nothing was run")).hint(hint))
}

/// Whether there is room for what the suite writes.
pub(super) fn space(suite: &Suite, workdir: &Path) -> Result<(), Failure> {
    let there = rustix::fs::statvfs(workdir).map_err(|error| {
        Failure::failed(format!("cannot tell the free space of {}: {error}", workdir.display()))
    })?;
    let free = Bytes(there.f_bavail.saturating_mul(there.f_frsize));
    let need = suite.space;
    if free < need {
        let message = format!(
            "{free} are free in {}, and the suite needs {need}; nothing was run",
            workdir.display()
        );
        return Err(Failure::failed(message).hint("make room, or name another place with --dir"));
    }
    Ok(())
}

/// Makes the output directory, if it is not one to `resume`; answers its absolute path. That of a demo
/// goes where its data were, if no other is asked for: whoever tries a demo may be in a source tree.
pub(super) fn output(
    asked: Option<&Path>,
    resume: bool,
    what: &str,
    suite: &Suite,
    workdir: &Path,
) -> Result<PathBuf, Failure> {
    let name = || default_output(what, suite);
    let beside = asked.is_none().then(|| workdir.parent()).flatten().filter(|_| what == suite.name);
    let path = match (asked, beside) {
        (Some(asked), _) => asked.to_owned(),
        (None, Some(directory)) => directory.join(name()),
        (None, None) => name(),
    };
    let path = std::path::absolute(&path).unwrap_or(path);
    let cannot = |what: &str, path: &Path, error: std::io::Error| {
        Failure::failed(format!("cannot {what} {}: {error}", path.display()))
            .hint("--out names another place; nothing was run")
    };
    if beside.is_some() {
        // Others may write there too, and could have guessed its name.
        std::fs::create_dir(&path).map_err(|error| cannot("create", &path, error))?;
    }
    let logs = path.join("logs");
    std::fs::create_dir_all(&logs).map_err(|error| cannot("create", &logs, error))?;
    let runs = runs_file(&path);
    // Runs of two benches in one file would be compared with each other. A bench that ended
    // before its first run has left none.
    let file = std::fs::File::options().append(true).create(true).open(&runs);
    let kept =
        file.and_then(|file| file.metadata()).map_err(|error| cannot("write", &runs, error))?;
    if kept.len() > 0 && !resume {
        return Err(Failure::failed(format!("{} has the runs of another bench", path.display()))
            .hint(
            "--out names another place; `lrsctl bench --report` shows what is there, and --resume \
             adds rounds",
        ));
    }
    Ok(path)
}

/// `lrs-bench-six-loads-20260102-030405`, `lrs-demo-20260102-030405`, in UTC.
fn default_output(what: &str, suite: &Suite) -> PathBuf {
    let digits: String =
        wall_time().to_string().chars().filter(char::is_ascii_digit).take(14).collect();
    let (day, time) = digits.split_at(digits.len().min(8));
    let name = if what == suite.name { what.to_owned() } else { format!("{what}-{}", suite.name) };
    PathBuf::from(format!("lrs-{name}-{day}-{time}"))
}
