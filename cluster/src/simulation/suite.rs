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
//! A published figure is met if ours is within `tolerance` of it (5 points of a share, a tenth of
//! anything else). `over` names a case that ours is divided by, for speed-ups.

use crate::placement::catalogue::POLICIES;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toml::Table;

use crate::simulation::Clock;
use crate::simulation::figures::Figures;
use crate::simulation::formula::solver_time;
use crate::simulation::once::decide;
use crate::simulation::run::{Refused, run};
use crate::simulation::scenario::Scenario;

/// A suite of cases.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// What it is about, in a line.
    pub title: String,
    /// Where the published figures are from, and what is not known of them.
    pub source: String,
    /// Names of the figures that its table shows.
    pub figures: Vec<String>,
    /// The cases by name.
    pub cases: Vec<(String, Scenario)>,
    /// What was published.
    pub published: Vec<Published>,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What it says.
    pub what: String,
    /// The case of ours.
    pub case: String,
    /// The class of jobs; none: all of them.
    #[serde(default)]
    pub class: Option<String>,
    /// The figure of ours.
    pub figure: String,
    /// The case that it is divided by.
    #[serde(default)]
    pub over: Option<String>,
    /// What was published.
    pub value: f64,
    /// How far ours may be off; none: 0.05 of a share, a tenth of anything else.
    #[serde(default)]
    pub tolerance: Option<f64>,
    /// Why ours is further off, where it is.
    #[serde(default)]
    pub missed: Option<String>,
}

/// What is wrong with a suite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Not TOML, or another shape.
    #[error("{at}: {what}")]
    Shape {
        /// The case, or the file.
        at: String,
        /// What the parser says.
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
}

fn parsed<T: for<'de> Deserialize<'de>>(at: &str, table: Table) -> Result<T, Wrong> {
    T::deserialize(table)
        .map_err(|error| Wrong::Shape { at: at.to_owned(), what: error.message().to_owned() })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    title: String,
    #[serde(default)]
    source: String,
    #[serde(default = "usual")]
    figures: Vec<String>,
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

impl Suite {
    /// Reads a suite.
    ///
    /// # Errors
    /// With what is wrong in it, and where.
    pub fn parse(text: &str) -> Result<Suite, Wrong> {
        let mut base: Table = text.parse().map_err(|error: toml::de::Error| Wrong::Shape {
            at: "the file".into(),
            what: error.to_string().trim_end().to_owned(),
        })?;
        let mut head = Table::new();
        for key in ["title", "source", "figures", "policies", "case", "published"] {
            head.extend(base.remove_entry(key));
        }
        let head: Head = parsed("the file", head)?;
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
            let scenario: Scenario = parsed(&at, whole)?;
            if head.policies.is_empty() {
                cases.push((name, scenario));
                continue;
            }
            for policy in &head.policies {
                let entry = POLICIES.iter().find(|entry| entry.name == *policy);
                if entry.is_none_or(|entry| scenario.suits(entry)) {
                    let name =
                        if name.is_empty() { policy.clone() } else { format!("{name}/{policy}") };
                    cases.push((name, Scenario { policy: policy.clone(), ..scenario.clone() }));
                }
            }
        }
        let known = |case: &String| cases.iter().any(|(name, _)| name == case);
        for published in &head.published {
            for case in [Some(&published.case), published.over.as_ref()].into_iter().flatten() {
                if !known(case) {
                    let (what, case) = (published.what.clone(), case.clone());
                    return Err(Wrong::NoCase { what, case });
                }
            }
        }
        let Head { title, source, figures, published, .. } = head;
        Ok(Suite { title, source, figures, cases, published })
    }
}

impl Suite {
    /// Keeps the cases with this in their name, and what was published of these.
    pub fn keep(&mut self, part: &str) {
        self.cases.retain(|(name, _)| name.contains(part));
        let known = |case: &String| self.cases.iter().any(|(name, _)| name == case);
        self.published.retain(|of| known(&of.case) && of.over.as_ref().is_none_or(known));
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

/// Runs a case; `done` hears of tasks that have ended, or of decisions.
///
/// # Errors
/// With what is wrong in it.
pub fn play(scenario: &Scenario, clock: Clock, done: &dyn Fn(u64)) -> Result<Figures, Refused> {
    match (scenario.once, scenario.analysis, scenario.solver) {
        (_, Some(analysis), _) => Ok(analysis.figures()),
        (_, None, Some(rows)) => Ok(solver_time(rows, scenario.rounds, clock, done)),
        (Some(once), None, None) => decide(scenario, once, clock, done),
        (None, None, None) => run(scenario, clock, done),
    }
}

/// How much there is to be done in a case, in the units of `done`.
pub fn work(scenario: &Scenario) -> u64 {
    let tasks = scenario
        .job
        .iter()
        .map(|class| u64::from(class.jobs) * (u64::from(class.maps) + u64::from(class.reduces)));
    let round = match (scenario.once, scenario.analysis, scenario.solver) {
        (None, None, None) => tasks.sum::<u64>() * scenario.arrivals.repeat,
        _ => 1,
    };
    round * scenario.rounds
}

/// What came out of a suite: the figures of each case, or why there are none.
pub type Outcome = Vec<Result<Figures, Refused>>;

impl Published {
    /// Ours; none where nothing was counted for it.
    pub fn ours(&self, suite: &Suite, outcome: &Outcome) -> Option<f64> {
        let of = |case: &String| {
            let index = suite.cases.iter().position(|(name, _)| name == case)?;
            outcome.get(index)?.as_ref().ok()?.get(&self.figure, self.class.as_deref())
        };
        let ours = of(&self.case)?;
        match &self.over {
            Some(over) => Some(ours / of(over)?),
            None => Some(ours),
        }
    }

    /// Whether ours is as published.
    pub fn met(&self, ours: f64) -> bool {
        let usual = if self.is_share() { 0.05 } else { self.value.abs() / 10.0 };
        (ours - self.value).abs() <= self.tolerance.unwrap_or(usual) + 1e-9
    }

    fn is_share(&self) -> bool {
        self.over.is_none() && is_share(&self.figure)
    }

    fn show(&self, value: f64) -> String {
        if self.is_share() { percent(value) } else { number(value) }
    }
}

fn is_share(figure: &str) -> bool {
    figure.ends_with("_local")
        || ["busy", "lost", "preempted", "wasted", "wait_share"].contains(&figure)
}

/// A figure, and the class of jobs that it is of, where one is named.
pub fn of_class(named: &str) -> (&str, Option<&str>) {
    named.split_once(':').map_or((named, None), |(figure, class)| (figure, Some(class)))
}

fn percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The tables of a suite, in Markdown.
pub fn tables(suite: &Suite, outcome: &Outcome) -> String {
    let mut text = format!("## {}\n\n", suite.title);
    if !suite.source.is_empty() {
        text += &format!("{}\n\n", suite.source.trim());
    }
    if !suite.published.is_empty() {
        text += "| what | published | ours | |\n|---|---|---|---|\n";
        for published in &suite.published {
            let Published { what, value, missed, .. } = published;
            let value = published.show(*value);
            let (ours, word) = match published.ours(suite, outcome) {
                None => ("-".into(), "not counted".to_owned()),
                Some(ours) if published.met(ours) => (published.show(ours), "met".to_owned()),
                Some(ours) => {
                    let why = missed.as_deref().map(|why| format!(": {why}"));
                    (published.show(ours), format!("missed{}", why.unwrap_or_default()))
                }
            };
            text += &format!("| {what} | {value} | {ours} | {word} |\n");
        }
        text.push('\n');
    }
    text += &format!("| case | {} |\n", suite.figures.join(" | "));
    text += &format!("|---|{}\n", "---|".repeat(suite.figures.len()));
    for ((name, _), outcome) in suite.cases.iter().zip(outcome) {
        text += &format!("| {name} |");
        match outcome {
            Err(refused) => text += &format!(" {refused} |"),
            Ok(figures) => {
                for named in &suite.figures {
                    let (figure, class) = of_class(named);
                    let show = if is_share(figure) { percent } else { number };
                    let value = figures.get(figure, class).map_or("-".into(), show);
                    text += &format!(" {value} |");
                }
            }
        }
        text.push('\n');
    }
    text
}

/// All of it, for programs.
pub fn json(suite: &Suite, outcome: &Outcome) -> Value {
    let cases: Vec<Value> = suite
        .cases
        .iter()
        .zip(outcome)
        .map(|((name, scenario), outcome)| {
            let (figures, refused) = match outcome {
                Ok(figures) => (figures.json(), None),
                Err(refused) => (Value::Null, Some(refused.to_string())),
            };
            let policy = &scenario.policy;
            json!({"case": name, "policy": policy, "figures": figures, "refused": refused})
        })
        .collect();
    let published: Vec<Value> = suite
        .published
        .iter()
        .map(|published| {
            let ours = published.ours(suite, outcome);
            let met = ours.map(|ours| published.met(ours));
            json!({"published": published, "ours": ours, "met": met})
        })
        .collect();
    json!({"title": suite.title, "cases": cases, "published": published})
}

/// The figures of the cases, a line each, with a head.
pub fn csv(suite: &Suite, outcome: &Outcome) -> String {
    let names = crate::simulation::figures::NAMES;
    let heads: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    let mut text = format!("case,policy,{}\n", heads.join(","));
    for ((name, scenario), outcome) in suite.cases.iter().zip(outcome) {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        text += &format!("{},{}", quoted(name), scenario.policy);
        for name in heads.iter() {
            let value = outcome.as_ref().ok().and_then(|figures| figures.get(name, None));
            text += &value.map_or(",".to_owned(), |value| format!(",{value}"));
        }
        text.push('\n');
    }
    text
}
