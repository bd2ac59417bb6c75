//! A suite: what a bench runs, in which settings, on which data. Read whole or refused whole,
//! like the configuration of lrsd, with every fault reported at once ([`faults`]).
//!
//! Here is the data as it is meant: counts are numbers for this node, `after` is resolved to
//! indices, commands are [`template::Template`]s that are known to have no unknown placeholder.
//! `docs/bench.md` tells users how to write one.

mod faults;
mod file;
mod read;
mod reader;
mod settings;
pub(crate) mod template;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::disk::DiskSpec;
use crate::record::{LoadClass, SettingKind};
use lrs_core::units::Bytes;
use lrs_testbed::data;
use serde::Deserialize;

pub(crate) use reader::Judge;
use template::Template;

/// A checked suite.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Suite {
    /// `[a-z0-9-]{1,64}`
    pub(crate) name: String,
    /// One sentence.
    pub(crate) about: String,
    /// Each runs every setting once.
    pub(crate) rounds: u32,
    /// Of one run.
    pub(crate) time_limit: Duration,
    /// Of random arrivals.
    pub(crate) seed: u64,
    /// Programs that have to be in PATH beside those that commands begin with.
    named_programs: Vec<String>,
    /// Free space needed in the working directory, on this node.
    pub(crate) space: Bytes,
    /// Where to work.
    pub(crate) directory: Option<PathBuf>,
    /// For `--quick`.
    pub(crate) quick: Quick,
    /// What amounts are multiplied with: 1, or that of `[quick]`.
    pub(crate) scale: f64,
    /// A modelled disk; `None`: the disk below the working directory as it is.
    pub(crate) disk: Option<DiskSpec>,
    /// In the order of the file.
    pub(crate) data: Vec<Data>,
    /// In the order of the file, at least one.
    pub(crate) loads: Vec<Load>,
    /// In the order of the file, at least one.
    pub(crate) settings: Vec<Setting>,
}

/// `[quick]`
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quick {
    /// In place of the suite's.
    pub(crate) rounds: u32,
    /// In place of 1.
    pub(crate) scale: f64,
}

/// Data made once for all runs: `{data}/NAME-0` and so on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Data {
    /// `[a-z0-9-]{1,64}`
    pub(crate) name: String,
    /// How many files.
    pub(crate) parts: u32,
    /// How they are made.
    pub(crate) made: Made,
}

/// How data is made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Made {
    /// By us; the size is that of all parts together, unscaled.
    Generated(data::Kind, Bytes),
    /// By this command, once for each part.
    Derived(Vec<Template>),
}

/// Tasks that are run together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Load {
    /// `[a-z0-9-]{1,64}`
    pub(crate) name: String,
    /// What it asks most of the node.
    pub(crate) class: LoadClass,
    /// One sentence.
    pub(crate) about: String,
    /// Run after a complete run; its failure is the run's.
    pub(crate) check: Option<Vec<Template>>,
    /// At least one.
    pub(crate) groups: Vec<Group>,
}

impl Load {
    /// Tasks of one run.
    pub(crate) fn tasks(&self) -> u32 {
        self.groups.iter().map(|group| group.count).sum()
    }
}

/// Tasks that are alike.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    /// `[a-z0-9-]{1,64}`; tasks are NAME-1 and so on.
    pub(crate) name: String,
    /// For lrsd.
    pub(crate) kind: Option<String>,
    /// For lrsd.
    pub(crate) job: Option<String>,
    /// How many, at least one.
    pub(crate) count: u32,
    /// At least one word.
    pub(crate) command: Vec<Template>,
    /// Higher runs sooner.
    pub(crate) priority: i32,
    /// How they follow each other.
    pub(crate) arrival: Arrival,
    /// When the first arrives: after the begin of the run, or after the last end of `after`.
    pub(crate) start: Duration,
    /// Groups of the same load by index, all before this one can begin.
    pub(crate) after: Vec<usize>,
    /// Beside the environment of the bench.
    pub(crate) environment: Vec<(String, Template)>,
    /// Working directory of the task; `None`: the run's.
    pub(crate) directory: Option<Template>,
}

/// How the tasks of a group follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Arrival {
    /// All together.
    AtOnce,
    /// One each.
    Every(Duration),
    /// With exponentially distributed pauses of this mean.
    Exponential(Duration),
}

/// Who decides which tasks run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    /// For people and `--setting`.
    pub(crate) name: String,
    /// For the report.
    pub(crate) kind: SettingKind,
    /// In words.
    pub(crate) about: String,
    /// The mechanism.
    pub(crate) how: How,
}

/// The mechanism of a setting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum How {
    /// So many plain processes at a time.
    Processes(u32),
    /// Through a private lrsd with these keys; so many at a time if it is static.
    Daemon {
        /// Path of the key, value as TOML.
        keys: Vec<(String, String)>,
        /// Slots, all alike; `None`: lrsd's tiers.
        slots: Option<u32>,
    },
    /// One task of each group, one after the other.
    Alone,
}

impl Setting {
    /// Whether it takes a daemon that can make cgroups.
    pub(crate) fn needs_daemon(&self) -> bool {
        matches!(self.how, How::Daemon { .. })
    }
}

impl Suite {
    /// Reads and checks the file for a node of `cpus` CPUs; answers its text too, for a pipe can
    /// be read only once. An error is every fault, a line each.
    pub(crate) fn load(
        file: &Path,
        cpus: u32,
        judge: Judge<'_>,
    ) -> Result<(Suite, String), String> {
        let cannot = |error: String| format!("cannot read {}: {error}", file.display());
        let bytes = std::fs::read(file).map_err(|error| cannot(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|error| cannot(error.to_string()))?;
        Ok((read::suite(&text, file, cpus, judge)?, text))
    }

    /// The suite of this text, as [`Suite::load`] reads it from a file.
    pub(crate) fn read(text: &str, cpus: u32, judge: Judge<'_>) -> Result<Suite, String> {
        read::suite(text, Path::new("the demo's suite"), cpus, judge)
    }

    /// The suite of `--quick`.
    pub(crate) fn make_quick(&mut self) {
        self.rounds = self.quick.rounds;
        self.scale = self.quick.scale;
    }

    /// Names who of the settings left is the reference.
    pub(crate) fn name_references(&mut self) {
        settings::name_references(&mut self.settings);
    }

    /// Programs that have to be in PATH: those the suite names, and those that the commands of
    /// its loads and data begin with.
    pub(crate) fn programs(&self) -> BTreeSet<&str> {
        let of_loads = self.loads.iter().flat_map(|load| {
            load.check.iter().chain(load.groups.iter().map(|group| &group.command))
        });
        let of_data = self.data.iter().filter_map(|data| match &data.made {
            Made::Derived(command) => Some(command),
            Made::Generated(..) => None,
        });
        let firsts = of_loads.chain(of_data).filter_map(|command| command.first()?.fixed());
        self.named_programs.iter().map(String::as_str).chain(firsts).collect()
    }
}
