//! Can this node do what LRS promises, and what has to be changed?
//!
//! [`examine`] reads the node once into facts (`probe.rs`) and lets pure functions judge the
//! facts, so that every verdict can be tested on a node that does not exist. It works without
//! root, with the daemon down and with a broken configuration, and it changes nothing: rights
//! are asked for with access(2), locks looked up in `/proc/locks`, never taken.
//!
//! Limits: it judges with the rights and limits of the process that asks. Where these say
//! nothing about lrsd's (an ordinary user asks, root would run the daemon) the verdict is
//! `unknown`, not `fail`.

mod cgroups;
mod cpus;
mod daemon;
mod disks;
mod finding;
mod neighbours;
mod node;
mod probe;
mod render;
mod services;
mod yarn;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::config::{Absent, Config, ConfigErrors, DEFAULT_FILE, Loaded};
use crate::proto;

/// How a check came out, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As LRS needs it.
    Ok,
    /// Could not be found out here.
    Unknown,
    /// LRS works, a part of its promise does not hold.
    Warn,
    /// LRS cannot work like this.
    Fail,
}

impl Verdict {
    /// The word in JSON and in the table.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Unknown => "unknown",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        }
    }
}

/// One question about the node and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable name: `kernel`, `io_tiers`, `disk.sda` ...
    pub id: String,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found, and so why.
    pub found: String,
    /// What to change; `None` where nothing needs to.
    pub remedy: Option<String>,
}

impl Check {
    fn ok(id: impl Into<String>, found: impl Into<String>) -> Check {
        Check { id: id.into(), verdict: Verdict::Ok, found: found.into(), remedy: None }
    }

    fn bad(
        verdict: Verdict,
        id: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Check {
        Check { id: id.into(), verdict, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn unknown(id: &str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check::bad(Verdict::Unknown, id, found, remedy)
    }

    fn warn(id: &str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check::bad(Verdict::Warn, id, found, remedy)
    }

    fn fail(id: &str, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check::bad(Verdict::Fail, id, found, remedy)
    }
}

/// All answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The worst of the checks' verdicts.
    pub verdict: Verdict,
    /// In a fixed order.
    pub checks: Vec<Check>,
}

/// What is known of the tiers' effect on a resource.
fn tested(id: &str, effect: &str, why: &str) -> Check {
    let found = match effect {
        "none" => "there are no tiers".to_owned(),
        _ => format!("{effect}: {why}"),
    };
    match effect {
        "without effect" => Check::warn(
            id,
            found,
            "passive tasks are as fast as active ones: end a scheduler of its own (sched_ext), or ask \
             the kernel's or the virtual machine's makers",
        ),
        _ => Check::ok(id, found),
    }
}

impl Report {
    fn new(checks: Vec<Check>) -> Report {
        let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok);
        Report { verdict, checks }
    }

    /// Adds what lrsd's own test of the tiers showed.
    pub fn add_test(&mut self, found: &proto::CgroupStatus) {
        let why = found.tested.clone().unwrap_or_default();
        let checks = [
            tested("cpu_effect", &found.cpu_effect, &why),
            tested("io_effect", &found.io_effect, "the tiers of disks are not tested"),
        ];
        *self = Report::new(std::mem::take(&mut self.checks).into_iter().chain(checks).collect());
    }

    /// Leaves out those named: the operator knows of them.
    pub fn leave_out(&mut self, named: &[String]) {
        let checks = std::mem::take(&mut self.checks).into_iter();
        *self = Report::new(checks.filter(|check| !named.contains(&check.id)).collect());
    }

    /// Leaves out all that is well, or not known.
    pub fn keep_faults(&mut self) {
        self.checks.retain(|check| check.verdict >= Verdict::Warn);
    }

    /// The lines of the checks alone.
    pub fn render_checks(&self, width: usize, colour: bool) -> String {
        render::checks(self, width, colour)
    }

    /// Whether `lrsctl doctor` exits with 1.
    pub fn has_failures(&self) -> bool {
        self.verdict == Verdict::Fail
    }

    /// The report as a table of at most `width` columns (at least 40), each line ended.
    pub fn render(&self, width: usize, colour: bool) -> String {
        render::render(self, width, colour)
    }
}

/// Where to look, and what is known already.
#[derive(Clone, Debug)]
pub struct DoctorOptions {
    /// Root of procfs.
    pub proc: PathBuf,
    /// Root of sysfs.
    pub sys: PathBuf,
    /// Where the configuration came from, or failed to come from.
    pub config_file: PathBuf,
    /// What it is of, in words.
    pub config_of: Option<String>,
    /// What is wrong with it; the checks then go by the configuration that is given.
    pub config_errors: Option<ConfigErrors>,
    /// Members of this group may use LRS.
    pub group: String,
}

impl DoctorOptions {
    /// For settings that were read from the file at `path`.
    pub fn of(loaded: &Loaded, path: &Path) -> DoctorOptions {
        let is_there = !loaded.sources.files.is_empty();
        let config_of = is_there.then(|| format!("{}: valid", loaded.sources));
        DoctorOptions { config_file: path.to_owned(), config_of, ..DoctorOptions::default() }
    }
}

impl Default for DoctorOptions {
    fn default() -> DoctorOptions {
        DoctorOptions {
            proc: PathBuf::from("/proc"),
            sys: PathBuf::from("/sys"),
            config_file: PathBuf::from(DEFAULT_FILE),
            config_of: None,
            config_errors: None,
            group: String::from("lrs"),
        }
    }
}

/// Examines this node for a daemon that runs with `config`.
pub fn examine(config: &Config, options: DoctorOptions) -> Report {
    let facts = probe::Facts::read(config, &options);
    Report::new(judge(&facts, config, &options))
}

/// [`examine`] with the configuration in `file`, which has to exist if it is given; else with
/// [`DEFAULT_FILE`], which need not. A broken file is a failed check and the others go by the
/// defaults.
pub fn examine_file(file: Option<&Path>) -> Report {
    let (path, absent) = match file {
        Some(path) => (path, Absent::IsError),
        None => (Path::new(DEFAULT_FILE), Absent::IsDefault),
    };
    let loaded = match absent {
        // As the daemon does; a file that was named and is not there is a fault here.
        Absent::IsDefault => Config::load_trusted(path),
        Absent::IsError => Config::load(path, absent).and_then(|_| Config::load_trusted(path)),
    };
    let (loaded, config_errors) = match loaded {
        Ok(loaded) => (loaded, None),
        Err(errors) => (Loaded::default(), Some(errors)),
    };
    let options = DoctorOptions { config_errors, ..DoctorOptions::of(&loaded, path) };
    examine(&loaded.config, options)
}

fn judge(facts: &probe::Facts, config: &Config, options: &DoctorOptions) -> Vec<Check> {
    let mut checks = vec![
        daemon::config(options),
        node::kernel(facts),
        cpus::check(&facts.cpus, config),
        cgroups::hierarchy(facts, config),
        cgroups::rights(facts, config),
        cgroups::cpu_tiers(facts, config),
        cgroups::promise(facts, config),
        disks::io_tiers(facts, config),
    ];
    checks.extend(disks::each(facts, config));
    checks.extend([
        node::pressure(facts),
        cgroups::task_pressure(facts),
        cgroups::task_memory(facts, config),
        node::memory(facts, config),
        node::swap(facts),
        node::autogroup(facts),
        daemon::runtime_dir(facts, config),
        daemon::group(facts, options),
        services::systemd(facts, config),
        services::dbus(facts, config),
        daemon::descriptors(facts, config),
        daemon::daemon(facts, config),
    ]);
    checks.extend(neighbours::check(facts, config));
    checks.extend(finding::check(facts, config));
    checks.extend(yarn::checks(facts, config));
    checks
}

#[cfg(test)]
mod tests;
