//! The runs of one load under all settings, compared.
//!
//! The best static setting is chosen after the fact by its median, for each load and scheduler:
//! an operator who did not try them all would not know it, so the comparison is not in favour of
//! LRS. Ratios are of the same round.

use lrs_bench::stats::{LEAST_FOR_INTERVAL, Spread, median_interval};

use crate::loads::Load;
use crate::record::Run;
use crate::settings::Setting;

/// The runs of one load under one scheduler.
pub struct LoadRuns<'a> {
    pub load: Load,
    pub runs: Vec<&'a Run>,
}

pub fn settings() -> impl Iterator<Item = &'static str> {
    Setting::STATICS.into_iter().chain([Setting::LRS])
}

impl LoadRuns<'_> {
    pub fn of(&self, setting: &str) -> impl Iterator<Item = &Run> {
        self.runs.iter().copied().filter(move |run| run.setting == setting)
    }

    pub fn spread(&self, setting: &str, figure: impl Fn(&Run) -> f64) -> Option<Spread> {
        Spread::new(self.of(setting).map(figure).collect())
    }

    pub fn seconds(&self, setting: &str, round: u32) -> Option<f64> {
        self.of(setting).find(|run| run.round == round).map(|run| run.seconds)
    }

    /// Of the static settings the fastest, by the rounds in which all of them and LRS have run.
    pub fn best(&self) -> Option<&'static str> {
        let whole = |run: &&Run| self.mean_static(run.round).is_some();
        let rounds: Vec<u32> = self.of(Setting::LRS).filter(whole).map(|run| run.round).collect();
        let median = |name: &'static str| {
            let seconds = rounds.iter().filter_map(|&round| self.seconds(name, round));
            Some((Spread::new(seconds.collect())?.median(), name))
        };
        let medians = Setting::STATICS.into_iter().filter_map(median);
        medians.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, name)| name)
    }

    pub fn mean_static(&self, round: u32) -> Option<f64> {
        let of_round: Option<Vec<f64>> =
            Setting::STATICS.into_iter().map(|name| self.seconds(name, round)).collect();
        Some(Spread::new(of_round?)?.mean())
    }

    /// LRS over `other`, round by round.
    pub fn pairs(&self, other: impl Fn(u32) -> Option<f64>) -> impl Iterator<Item = f64> {
        self.of(Setting::LRS).filter_map(move |run| Some(run.seconds / other(run.round)?))
    }

    /// The median of a setting over that of the best static one.
    pub fn loss(&self, setting: &str) -> Option<f64> {
        let median = |name| Some(self.spread(name, |run| run.seconds)?.median());
        Some(median(setting)? / median(self.best()?)?)
    }

    /// LRS over `other`, as `0.950 (0.911 to 0.981)`.
    pub fn ratio(&self, other: impl Fn(u32) -> Option<f64>) -> Option<String> {
        let ratios = Spread::new(self.pairs(other).collect())?;
        let median = ratios.median();
        if ratios.count() < LEAST_FOR_INTERVAL {
            return Some(format!("{median:.3}, too few pairs"));
        }
        let interval = median_interval(&ratios);
        Some(format!("{median:.3} ({:.3} to {:.3})", interval.low, interval.high))
    }
}
