//! What a report holds, as data, and which runs count in it. It is made in [`super::make`].

use serde::Serialize;

use super::figures::{Alone, Figures};
use super::limit::{Beside, Limit};
use super::ratio::{Comparison, Effect, Mean, Ratio};
use crate::record::{Load, Machine, Run, SettingKind};

/// Everything a report shows but the pictures' raw points (`report.json`).
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// The node and the suite.
    pub(crate) machine: Machine,
    /// Runs that were made, those of single tasks included.
    pub(crate) runs: usize,
    /// Runs that count.
    pub(crate) complete: usize,
    /// In the order of the suite; only those that were run.
    pub(crate) loads: Vec<LoadReport>,
    /// Over the loads.
    pub(crate) means: Vec<Mean>,
    /// What makes the whole doubtful.
    pub(crate) warnings: Vec<String>,
}

/// One load under all settings.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LoadReport {
    /// Which.
    pub(crate) load: Load,
    /// In the order of the suite; without the one that runs single tasks.
    pub(crate) settings: Vec<SettingReport>,
    /// LRS against the static settings.
    pub(crate) comparisons: Vec<Comparison>,
    /// The same setting against itself; None if the suite does not run it.
    pub(crate) noise: Option<Ratio>,
    /// Each group's task by itself.
    pub(crate) alone: Vec<Alone>,
    /// What no setting can be faster than; None: not known.
    pub(crate) limit: Option<Limit>,
    /// What makes the figures doubtful.
    pub(crate) warnings: Vec<String>,
    /// Every run that does not count.
    pub(crate) failed: Vec<Failed>,
    /// The round the timelines show: the one with the makespan of the reference nearest to
    /// its median, among those with the most complete runs.
    pub(crate) shown_round: Option<u32>,
}

/// One load under one setting.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SettingReport {
    /// As the suite has it.
    pub(crate) name: String,
    /// What decides which tasks run.
    pub(crate) kind: SettingKind,
    /// Runs that were made.
    pub(crate) runs: usize,
    /// Medians over the complete ones.
    pub(crate) figures: Figures,
    /// Makespan of the reference over that of the setting, by round. None for the reference.
    pub(crate) ratio: Option<Ratio>,
    /// What the ratio says about the reference.
    pub(crate) verdict: Option<Effect>,
    /// How near it comes to the limit.
    pub(crate) beside_limit: Option<Beside>,
}

/// A run that does not count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Failed {
    /// Under which setting.
    pub(crate) setting: String,
    /// From 0.
    pub(crate) round: u32,
    /// Why, at least one reason.
    pub(crate) faults: Vec<String>,
}

/// Whether a run counts.
pub(crate) fn is_complete(run: &Run) -> bool {
    run.faults.is_empty() && run.makespan_seconds.is_some_and(|seconds| seconds > 0.0)
}

/// The runs of one load that a figure may be made of.
pub(super) fn complete<'a>(runs: &[&'a Run], setting: &str) -> Vec<&'a Run> {
    runs.iter().copied().filter(|run| run.setting == setting && is_complete(run)).collect()
}

impl LoadReport {
    /// The reference, if it was run.
    pub(crate) fn reference(&self) -> Option<&SettingReport> {
        self.settings.iter().find(|setting| setting.kind == SettingKind::Lrs)
    }
}

/// The first setting of this kind: of LRS, what ratios refer to.
pub(super) fn kind_name(machine: &Machine, kind: SettingKind) -> Option<&str> {
    machine.settings.iter().find(|setting| setting.kind == kind).map(|setting| &*setting.name)
}
