//! What is counted of a case, in memory that does not grow with it.
//!
//! Times of jobs go into histograms with three significant digits (hdrhistogram). A figure has a name
//! by which suites and tables ask for it: [`Figures::get`].

use std::collections::BTreeMap;
use std::time::Duration;

use crate::placement::cluster::Locality;
use crate::placement::input::Kind;
use hdrhistogram::Histogram;

/// The figures that are there, in the order in which they are shown, with what they are.
pub const NAMES: &[(&str, &str)] = &[
    ("makespan", "seconds until the last job was over"),
    ("job_mean", "seconds from arrival to end of a job, mean"),
    ("job_p50", "the same, median"),
    ("job_p95", "the same, 95th percentile"),
    ("job_p99", "the same, 99th percentile"),
    ("map_mean", "seconds that a map held its slot, mean"),
    ("throughput", "tasks that ended a second"),
    ("node_local", "share of the starts with input that were on a node that holds it"),
    ("rack_local", "share of these on such a node or in its rack"),
    ("transfer_mean", "seconds of moving input for each start with input"),
    ("unfairness", "mean distance of groups from their shares, of their shares (Guo, Fox, Zhou)"),
    ("busy", "share of the time of the slots at the start that a task held one"),
    ("decide_us", "microseconds of deciding for each start"),
    ("decide_p99_us", "microseconds that a policy was asked for, 99th percentile of all times"),
    ("lost", "tasks lost with their nodes, for each task"),
    ("preempted", "tasks preempted, for each task"),
    ("starved", "tasks ended because their node was short of memory, for each task"),
    ("wasted", "time in slots of tasks that were lost, preempted or starved, of all time in slots"),
    (
        "forecast_mean",
        "how far a task's time in its slot was from the mean of its job so far, of that time",
    ),
    ("forecast_median", "the same from the median"),
    ("tasks", "tasks that ended"),
    ("jobs", "jobs that ended"),
];

/// Why a task did not get to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its node went down.
    Node,
    /// For another group.
    Preempted,
    /// Its node was short of memory.
    Memory,
}

/// Counts of one class of jobs, or of all.
#[derive(Clone, Debug)]
pub struct Counts {
    times: Histogram<u64>,
    seconds: f64,
    local: [u64; 3],
    /// Number of maps that have ended, and how long these held their slots.
    maps: (u64, f64),
}

impl Default for Counts {
    fn default() -> Counts {
        let times = histogram();
        Counts { times, seconds: 0.0, local: [0; 3], maps: (0, 0.0) }
    }
}

/// Three significant digits, from 1 on, as large as what comes.
fn histogram() -> Histogram<u64> {
    let Ok(histogram) = Histogram::new(3) else { unreachable!("3 digits are possible") };
    histogram
}

/// Sums of seconds over the tasks that were not the first of their job and kind to end.
#[derive(Clone, Copy, Debug, Default)]
struct Forecast {
    held: f64,
    off_mean: f64,
    off_median: f64,
}

/// Everything that is counted, over all rounds of a case.
#[derive(Clone, Debug)]
pub struct Figures {
    all: Counts,
    classes: BTreeMap<String, Counts>,
    rounds: u64,
    makespan: f64,
    tasks: u64,
    held: f64,
    offered: f64,
    transfer: f64,
    unfairness: (f64, u64),
    asked: Histogram<u64>,
    deciding: f64,
    starts: u64,
    /// By [`Loss`].
    lost: [u64; 3],
    wasted: f64,
    forecast: Forecast,
    /// How often a policy could not take something into account, and the first warning.
    warned: u64,
    warning: Option<String>,
    /// Figures that are not counted.
    set: BTreeMap<&'static str, f64>,
}

impl Default for Figures {
    fn default() -> Figures {
        Figures {
            all: Counts::default(),
            classes: BTreeMap::new(),
            rounds: 0,
            makespan: 0.0,
            tasks: 0,
            held: 0.0,
            offered: 0.0,
            transfer: 0.0,
            unfairness: (0.0, 0),
            asked: histogram(),
            deciding: 0.0,
            starts: 0,
            lost: [0; 3],
            wasted: 0.0,
            forecast: Forecast::default(),
            warned: 0,
            warning: None,
            set: BTreeMap::new(),
        }
    }
}

impl Figures {
    /// A task with or without input starts.
    pub fn start(&mut self, class: &str, locality: Option<Locality>, transfer: f64) {
        self.starts += 1;
        self.transfer += transfer;
        let Some(locality) = locality else { return };
        self.all.local[locality as usize] += 1;
        self.class(class).local[locality as usize] += 1;
    }

    /// An input took so long to move, which was not known at the start.
    pub(crate) fn moved(&mut self, took: Duration) {
        self.transfer += took.as_secs_f64();
    }

    /// A task ended, and held its slot for so long.
    pub fn end(&mut self, class: &str, kind: Kind, held: Duration) {
        self.tasks += 1;
        self.held += held.as_secs_f64();
        if kind == Kind::Map {
            for counts in [&mut self.all, self.classes.entry(class.to_owned()).or_default()] {
                counts.maps = (counts.maps.0 + 1, counts.maps.1 + held.as_secs_f64());
            }
        }
    }

    /// A task held its slot for so long, where the others of its job let expect `mean` or `median`.
    pub fn forecast(&mut self, held: Duration, mean: Duration, median: Duration) {
        self.forecast.held += held.as_secs_f64();
        self.forecast.off_mean += held.abs_diff(mean).as_secs_f64();
        self.forecast.off_median += held.abs_diff(median).as_secs_f64();
    }

    /// A task that held its slot for so long has to begin anew.
    pub fn lose(&mut self, why: Loss, held: Duration) {
        self.lost[why as usize] += 1;
        self.wasted += held.as_secs_f64();
    }

    /// A job is over.
    pub fn job(&mut self, class: &str, took: Duration) {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
        for counts in [&mut self.all, self.classes.entry(class.to_owned()).or_default()] {
            counts.seconds += took.as_secs_f64();
            // Without an upper bound every value can be recorded.
            let _ = counts.times.record(millis);
        }
    }

    /// A policy was asked.
    pub fn decide(&mut self, took: Duration) {
        self.deciding += took.as_secs_f64();
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        // As above.
        let _ = self.asked.record(nanos);
    }

    /// Seconds in which policies were asked.
    pub(crate) fn deciding(&self) -> f64 {
        self.deciding
    }

    /// A decision had warnings. The texts have numbers in them that differ from decision to decision,
    /// so only the first is kept.
    pub fn warn(&mut self, mut warnings: impl Iterator<Item = String>) {
        let Some(first) = warnings.next() else { return };
        self.warned += 1;
        self.warning.get_or_insert(first);
    }

    /// How many decisions had warnings, and the first one.
    pub fn warnings(&self) -> Option<(u64, &str)> {
        Some((self.warned, self.warning.as_deref()?))
    }

    /// How far the groups are from their shares at a moment.
    pub fn unfair(&mut self, distance: f64) {
        self.unfairness.0 += distance;
        self.unfairness.1 += 1;
    }

    /// A round is over: its length and its slots.
    pub fn round(&mut self, makespan: Duration, slots: u64) {
        self.rounds += 1;
        self.makespan += makespan.as_secs_f64();
        self.offered += makespan.as_secs_f64() * slots as f64;
    }

    /// Sets a figure that is not counted.
    pub fn set(&mut self, name: &'static str, value: f64) {
        self.set.insert(name, value);
    }

    /// Tasks that have ended so far.
    pub fn tasks(&self) -> u64 {
        self.tasks
    }

    fn class(&mut self, class: &str) -> &mut Counts {
        if !self.classes.contains_key(class) {
            self.classes.insert(class.to_owned(), Counts::default());
        }
        self.classes.entry(class.to_owned()).or_default()
    }

    /// A figure by its name, of all jobs or of a class; none where nothing was counted for it.
    pub fn get(&self, name: &str, class: Option<&str>) -> Option<f64> {
        let counts = match class {
            Some(class) => self.classes.get(class)?,
            None => &self.all,
        };
        let ratio = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let jobs = counts.times.len() as f64;
        let located = counts.local.iter().sum::<u64>() as f64;
        let at = |share: f64| {
            (jobs > 0.0).then(|| counts.times.value_at_quantile(share) as f64 / 1000.0)
        };
        let rounds = self.rounds as f64;
        match name {
            "job_mean" => ratio(counts.seconds, jobs),
            "job_p50" => at(0.5),
            "job_p95" => at(0.95),
            "job_p99" => at(0.99),
            "jobs" => Some(jobs),
            "map_mean" => ratio(counts.maps.1, counts.maps.0 as f64),
            "node_local" => ratio(counts.local[0] as f64, located),
            "rack_local" => ratio((counts.local[0] + counts.local[1]) as f64, located),
            _ if class.is_some() => None,
            "makespan" => ratio(self.makespan, rounds),
            "throughput" => ratio(self.tasks as f64, self.makespan),
            "transfer_mean" => ratio(self.transfer, located),
            "unfairness" => ratio(self.unfairness.0, self.unfairness.1 as f64),
            "busy" => ratio(self.held, self.offered),
            "decide_us" => ratio(self.deciding * 1e6, self.starts as f64),
            "decide_p99_us" => {
                (!self.asked.is_empty()).then(|| self.asked.value_at_quantile(0.99) as f64 / 1000.0)
            }
            "lost" => ratio(self.lost[0] as f64, self.tasks as f64),
            "preempted" => ratio(self.lost[1] as f64, self.tasks as f64),
            "starved" => ratio(self.lost[2] as f64, self.tasks as f64),
            "wasted" => ratio(self.wasted, self.held + self.wasted),
            "forecast_mean" => ratio(self.forecast.off_mean, self.forecast.held),
            "forecast_median" => ratio(self.forecast.off_median, self.forecast.held),
            "tasks" => Some(self.tasks as f64),
            _ => self.set.get(name).copied(),
        }
    }

    /// The classes of jobs.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.classes.keys().map(String::as_str)
    }

    /// All figures that something was counted for, of all jobs or of a class.
    pub fn values(&self, class: Option<&str>) -> BTreeMap<&'static str, f64> {
        let counted = NAMES.iter().map(|(name, _)| *name);
        let set = self.set.keys().copied().filter(|_| class.is_none());
        counted.chain(set).filter_map(|name| Some((name, self.get(name, class)?))).collect()
    }
}

/// Figures of cases that run no cluster ([`crate::simulation::analysis`], [`crate::simulation::solving`]).
const OF_FORMULAS: [&str; 5] =
    ["skips_share", "wait_share", "expected_local", "sticky_local", "solve_ms"];

/// Whether there is a figure of this name.
pub fn is_known(figure: &str) -> bool {
    NAMES.iter().any(|(name, _)| *name == figure) || OF_FORMULAS.contains(&figure)
}

/// Whether a figure is a part of a whole, 0 to 1.
pub fn is_share(figure: &str) -> bool {
    figure.ends_with("_local")
        || ["busy", "lost", "preempted", "wasted", "wait_share"].contains(&figure)
}
