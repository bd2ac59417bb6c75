//! Files of cases, and what the sources published beside what comes out.
//!
//! A suite is TOML. What is at its top holds for all cases; a case changes keys of it, tables key
//! by key, lists as a whole. `policies` makes a case of each for every case, named `case/policy`, but
//! for those that the scenario lacks something for.
//!
//! ```toml
//! title = "..."
//! replicas = 3
//! [[job]]
//! name = "small"
//! maps = 3
//! [[case]]
//! name = "without delay"
//! policy = "fifo"
//! [[published]]
//! what = "maps on a node with their input"
//! case = "without delay"
//! figure = "node_local"
//! value = 0.02
//! missed = "why ours differs, if it does"
//! ```
//!
//! In `figures`, `job_p95:small` is the figure of the class `small` alone.
//!
//! Every case is run with `seeds` seeds, 20 unless the suite says otherwise, and its figures are medians
//! with intervals ([`crate::simulation::spread`]). `over` names a case that ours is divided by, seed by
//! seed, for speed-ups. [`crate::simulation::published`] has when a published figure is met.

use std::collections::BTreeSet;

use crate::placement::catalogue::{Entry, POLICIES};
use serde::Deserialize;
use toml::Table;

use crate::simulation::Clock;
use crate::simulation::figures::{Figures, is_known};
use crate::simulation::once::decide;
use crate::simulation::published::Published;
use crate::simulation::run::{Refused, run};
use crate::simulation::runs::{Runs, Values};
use crate::simulation::scenario::{Class, Scenario};
use crate::simulation::solving::solver_time;

/// Most cases of a suite, each of which has a copy of what holds for all.
const MOST_CASES: usize = 1000;

/// Most seeds of a case.
pub const MOST_SEEDS: u64 = 10_000;

/// A suite of cases.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// What it is about, in a line.
    pub title: String,
    /// Where the published figures are from, and what is not known of them.
    pub source: String,
    /// Names of the figures that its table shows.
    pub figures: Vec<String>,
    /// With how many seeds each case is run.
    pub seeds: u64,
    /// The cases by name.
    pub cases: Vec<(String, Scenario)>,
    /// What was published.
    pub published: Vec<Published>,
}

/// What is wrong with a suite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Not TOML, or another shape.
    #[error("{at}: {what}")]
    Shape {
        /// The case, or the file.
        at: String,
        /// The key, what is there and what belongs there; of what is no TOML what the parser says.
        what: String,
    },
    /// A case that is not there.
    #[error("published figure {what:?}: there is no case {case:?}")]
    NoCase {
        /// The figure.
        what: String,
        /// The case.
        case: String,
    },
    /// Two cases of one name: a published figure would be of the first alone.
    #[error("case {0:?}: is there twice")]
    Twice(String),
    /// A figure that is not there.
    #[error("{at}: there is no figure {figure:?}")]
    NoFigure {
        /// The published figure, or the list.
        at: String,
        /// The figure.
        figure: String,
    },
}

fn parsed<T: for<'de> Deserialize<'de>>(at: &str, table: Table) -> Result<T, Wrong> {
    T::deserialize(table)
        .map_err(|error| Wrong::Shape { at: at.to_owned(), what: sentence(&error.to_string()) })
}

/// What serde finds wrong in a table as a sentence: the key, what is there, what is wanted.
fn sentence(error: &str) -> String {
    let (message, key) = error.trim_end().split_once("\nin `").unwrap_or((error.trim_end(), ""));
    let key = key.trim_end_matches('`');
    let inside = |name: &str| match key {
        "" => name.to_owned(),
        _ if key == name || key.ends_with(&format!(".{name}")) => key.to_owned(),
        _ => format!("{key}.{name}"),
    };
    let quoted = |rest: &str| rest.split('`').nth(1).unwrap_or("").to_owned();
    let words = |rest: &str| rest.replace('`', "").replace("one of ", "");
    if let Some(rest) = message.strip_prefix("missing field ") {
        return format!("{}: missing; write it", inside(&quoted(rest)));
    }
    let (there, wanted) = message.split_once(", expected ").unwrap_or((message, ""));
    if let Some(rest) = there.strip_prefix("unknown field ") {
        let known = words(wanted);
        return format!("{}: there is no such key; there are {known}", inside(&quoted(rest)));
    }
    let at = if key.is_empty() { String::new() } else { format!("{key}: ") };
    if let Some(rest) = there.strip_prefix("unknown variant ") {
        return format!("{at}{:?} is none of {}", quoted(rest), words(wanted));
    }
    let wanted = match wanted.trim_start_matches("a map or ").trim_start_matches("struct ") {
        "" => return format!("{at}{message}"),
        "usize" | "u64" | "u32" => "a whole number from 0 on",
        "i64" | "i32" => "a whole number",
        "f64" => "a number",
        "a string" | "string" => "text in quotes",
        "a sequence" => "a list",
        other if other.starts_with(char::is_uppercase) => "a table",
        other => other,
    };
    let there = ["invalid type: ", "invalid value: ", "invalid length "]
        .into_iter()
        .fold(there, |there, prefix| there.strip_prefix(prefix).unwrap_or(there));
    format!("{at}{there}; {wanted} is wanted")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    title: String,
    #[serde(default)]
    source: String,
    #[serde(default = "usual")]
    figures: Vec<String>,
    #[serde(default = "enough")]
    seeds: u64,
    #[serde(default)]
    policies: Vec<String>,
    #[serde(default)]
    case: Vec<Table>,
    #[serde(default)]
    published: Vec<Published>,
}

fn usual() -> Vec<String> {
    ["job_mean", "job_p50", "job_p95", "job_p99", "node_local", "decide_us"].map(Into::into).into()
}

/// Enough for an interval that does not hang on the smallest and the largest.
fn enough() -> u64 {
    20
}

impl Suite {
    /// Reads a suite.
    ///
    /// # Errors
    /// With what is wrong in it, and where.
    pub fn parse(text: &str) -> Result<Suite, Wrong> {
        Suite::with_own(text, &[])
    }

    /// Reads a suite that may name policies of one's own.
    ///
    /// # Errors
    /// With what is wrong in it, and where; and where one has the name of a shipped policy.
    pub fn with_own(text: &str, own: &[Entry]) -> Result<Suite, Wrong> {
        if let Some(entry) = own.iter().find(|entry| POLICIES.contains(entry)) {
            let what = format!("{:?} is shipped; give the own policy another name", entry.name);
            return Err(Wrong::Shape { at: "the own policies".into(), what });
        }
        let mut base: Table = text.parse().map_err(|error: toml::de::Error| Wrong::Shape {
            at: "the file".into(),
            what: error.to_string().trim_end().to_owned(),
        })?;
        let mut head = Table::new();
        for key in ["title", "source", "figures", "seeds", "policies", "case", "published"] {
            head.extend(base.remove_entry(key));
        }
        let head: Head = parsed("the file", head)?;
        let count = head.case.len().max(1).saturating_mul(head.policies.len().max(1));
        if count > MOST_CASES {
            let what =
                format!("{count} cases with their policies; at most {MOST_CASES} are possible");
            return Err(Wrong::Shape { at: "the file".into(), what });
        }
        let mut cases = Vec::new();
        let alone = vec![Table::new()];
        for mut case in if head.case.is_empty() { alone } else { head.case } {
            let name = match case.remove("name") {
                Some(toml::Value::String(name)) => name,
                Some(other) => other.to_string(),
                None => String::new(),
            };
            let mut whole = base.clone();
            merge(&mut whole, case);
            let at = if name.is_empty() { "the file".into() } else { format!("case {name:?}") };
            let scenario = Scenario { own: own.to_vec(), ..parsed(&at, whole)? };
            if head.policies.is_empty() {
                cases.push((name, scenario));
                continue;
            }
            for policy in &head.policies {
                if Entry::among(own, policy).map_or(true, |entry| scenario.suits(entry)) {
                    let name =
                        if name.is_empty() { policy.clone() } else { format!("{name}/{policy}") };
                    cases.push((name, Scenario { policy: policy.clone(), ..scenario.clone() }));
                }
            }
        }
        let mut names = BTreeSet::new();
        if let Some((twice, _)) = cases.iter().find(|(name, _)| !names.insert(name.as_str())) {
            return Err(Wrong::Twice(twice.clone()));
        }
        let listed = head.figures.iter().map(|named| ("figures".to_owned(), of_class(named).0));
        let published = head.published.iter();
        let published =
            published.map(|of| (format!("published figure {:?}", of.what), of.figure.as_str()));
        if let Some((at, figure)) = listed.chain(published).find(|(_, figure)| !is_known(figure)) {
            return Err(Wrong::NoFigure { at, figure: figure.to_owned() });
        }
        let known = |case: &String| names.contains(case.as_str());
        for published in &head.published {
            for case in [Some(&published.case), published.over.as_ref()].into_iter().flatten() {
                if !known(case) {
                    let (what, case) = (published.what.clone(), case.clone());
                    return Err(Wrong::NoCase { what, case });
                }
            }
        }
        let Head { title, source, figures, seeds, published, .. } = head;
        if !(1..=MOST_SEEDS).contains(&seeds) {
            let what = format!("seeds: {seeds}; a number from 1 to {MOST_SEEDS} is wanted");
            return Err(Wrong::Shape { at: "the file".into(), what });
        }
        Ok(Suite { title, source, figures, seeds, cases, published })
    }
}

impl Suite {
    /// Keeps the cases with this in their name, and what was published of these.
    pub fn keep(&mut self, part: &str) {
        self.cases.retain(|(name, _)| name.contains(part));
        let known = |case: &String| self.cases.iter().any(|(name, _)| name == case);
        self.published.retain(|of| known(&of.case) && of.over.as_ref().is_none_or(known));
    }

    /// What came out of a case; none where it is not there or was refused.
    pub fn runs<'a>(&self, outcome: &'a Outcome, case: &str) -> Option<&'a Runs> {
        let index = self.cases.iter().position(|(name, _)| name == case)?;
        outcome.get(index)?.as_ref().ok()
    }
}

/// Puts `over` on top of `base`: tables key by key.
fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(base)), toml::Value::Table(over)) => merge(base, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// A case as its run with this number is, from 0 on: no two runs have the seed of a round in common.
pub fn seeded(scenario: &Scenario, number: u64) -> Scenario {
    let seed = scenario.seed.wrapping_add(number.wrapping_mul(scenario.rounds));
    Scenario { seed, ..scenario.clone() }
}

/// Runs a case with its seed; `done` hears of tasks that have ended, or of decisions.
///
/// # Errors
/// With what is wrong in it.
pub fn play(scenario: &Scenario, clock: Clock, done: &dyn Fn(u64)) -> Result<Figures, Refused> {
    let faults = scenario.check();
    if !faults.is_empty() {
        return Err(Refused::Faults(faults));
    }
    match (scenario.once, scenario.analysis, scenario.solver) {
        (_, Some(analysis), _) => Ok(analysis.figures()),
        (_, None, Some(rows)) => Ok(solver_time(rows, scenario, clock, done)),
        (Some(once), None, None) => decide(scenario, once, clock, done),
        (None, None, None) => run(scenario, clock, done),
    }
}

/// How much there is to be done in a case, in the units of `done`.
pub fn work(scenario: &Scenario) -> u64 {
    let tasks = scenario.jobs().iter().map(Class::tasks).fold(0, u64::saturating_add);
    let round = match (scenario.once, scenario.analysis, scenario.solver) {
        (None, None, None) => tasks.saturating_mul(scenario.arrivals.repeat),
        _ => 1,
    };
    round.saturating_mul(scenario.rounds)
}

/// What came out of a suite: the runs of each case, or why there are none.
pub type Outcome = Vec<Result<Runs, Refused>>;

/// Runs every case with every seed, one after the other; a case that is refused with one of them has no
/// figures. `lrs-place simulate` makes the same runs on all CPUs.
pub fn outcome(suite: &Suite, clock: Clock) -> Outcome {
    let one = |scenario: &Scenario, number| {
        play(&seeded(scenario, number), clock, &|_| {}).map(|figures| Values::of(&figures))
    };
    let case = |(_, scenario): &(String, Scenario)| {
        (0..suite.seeds).map(|number| one(scenario, number)).collect::<Result<_, _>>().map(Runs)
    };
    suite.cases.iter().map(case).collect()
}

/// A figure, and the class of jobs that it is of, where one is named.
pub fn of_class(named: &str) -> (&str, Option<&str>) {
    named.split_once(':').map_or((named, None), |(figure, class)| (figure, Some(class)))
}
