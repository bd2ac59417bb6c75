//! What came out of a suite: tables in Markdown, JSON, CSV.
//!
//! A figure is shown as its median, and in brackets the interval in which the median is
//! ([`crate::simulation::spread`]); the interval is left out where it has the same digits.

use serde_json::{Value, json};

use crate::simulation::figures::is_share;
use crate::simulation::published::{Published, Verdict};
use crate::simulation::runs::Runs;
use crate::simulation::spread::Spread;
use crate::simulation::suite::{Outcome, Suite, of_class};

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

/// Three digits after the point: what counts is how far it is from 1.
fn ratio(value: f64) -> String {
    format!("{value:.3}")
}

/// Median and interval, each written by `show`.
fn spread(of: &Spread, show: fn(f64) -> String) -> String {
    let median = show(of.median);
    match of.low.zip(of.high).map(|(low, high)| (show(low), show(high))) {
        Some((low, high)) if low != median || high != median => {
            format!("{median} ({low} to {high})")
        }
        _ => median,
    }
}

impl Published {
    fn shown(&self) -> fn(f64) -> String {
        match (&self.over, self.is_share()) {
            (Some(_), _) => ratio,
            (None, true) => percent,
            (None, false) => number,
        }
    }

    fn row(&self, suite: &Suite, outcome: &Outcome) -> String {
        let Published { what, value, missed, .. } = self;
        let show = self.shown();
        let (ours, word) = match self.ours(|case| suite.runs(outcome, case)) {
            None => ("-".into(), "not counted".to_owned()),
            Some(ours) => {
                let verdict = self.verdict(&ours);
                let why = missed.as_deref().filter(|_| verdict != Verdict::Met);
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                (spread(&ours, show), format!("{}{why}", verdict.word()))
            }
        };
        format!("| {what} | {} | {ours} | {word} |\n", show(*value))
    }
}

/// The tables of a suite, in Markdown.
pub fn tables(suite: &Suite, outcome: &Outcome) -> String {
    let mut text = format!("## {}\n\n", suite.title);
    if !suite.source.is_empty() {
        text += &format!("{}\n\n", suite.source.trim());
    }
    text += &match suite.seeds {
        1 => "One seed: no intervals.\n\n".to_owned(),
        seeds => format!("{seeds} seeds: medians, and the interval in which the median is.\n\n"),
    };
    if !suite.published.is_empty() {
        text += "| what | published | ours | |\n|---|---|---|---|\n";
        text.extend(suite.published.iter().map(|published| published.row(suite, outcome)));
        text.push('\n');
    }
    text += &format!("| case | {} |\n", suite.figures.join(" | "));
    text += &format!("|---|{}\n", "---|".repeat(suite.figures.len()));
    for ((name, _), outcome) in suite.cases.iter().zip(outcome) {
        text += &format!("| {name} |");
        match outcome {
            Err(refused) => text += &format!(" {refused} |"),
            Ok(runs) => text.extend(suite.figures.iter().map(|named| cell(runs, named))),
        }
        text.push('\n');
    }
    let cases = suite.cases.iter().zip(outcome);
    let warned = cases.filter_map(|((name, _), runs)| Some((name, runs.as_ref().ok()?.warning()?)));
    for (number, (name, warning)) in warned.enumerate() {
        text += if number == 0 { "\n" } else { "" };
        text += &format!("- warning, {name}: {warning}\n");
    }
    text
}

fn cell(runs: &Runs, named: &str) -> String {
    let (figure, class) = of_class(named);
    let show = if is_share(figure) { percent } else { number };
    let value = runs.get(figure, class).map_or("-".into(), |of| spread(&of, show));
    format!(" {value} |")
}

/// All of it, for programs.
pub fn json(suite: &Suite, outcome: &Outcome) -> Value {
    let cases: Vec<Value> = suite
        .cases
        .iter()
        .zip(outcome)
        .map(|((name, scenario), outcome)| {
            let (figures, warning, refused) = match outcome {
                Ok(runs) => (runs.json(), runs.warning(), None),
                Err(refused) => (Value::Null, None, Some(refused.to_string())),
            };
            let policy = &scenario.policy;
            json!({"case": name, "policy": policy, "figures": figures, "warning": warning,
                "refused": refused})
        })
        .collect();
    let published: Vec<Value> = suite
        .published
        .iter()
        .map(|published| {
            let ours = published.ours(|case| suite.runs(outcome, case));
            let verdict = ours.map(|ours| published.verdict(&ours));
            json!({"published": published, "ours": ours, "verdict": verdict})
        })
        .collect();
    json!({"title": suite.title, "seeds": suite.seeds, "cases": cases, "published": published})
}

/// The figures of the cases, a line each, with a head: of each figure the median and the interval.
pub fn csv(suite: &Suite, outcome: &Outcome) -> String {
    let names = crate::simulation::figures::NAMES;
    let heads: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    let columns: Vec<String> =
        heads.iter().map(|name| format!("{name},{name}_low,{name}_high")).collect();
    let mut text = format!("case,policy,seeds,{}\n", columns.join(","));
    for ((name, scenario), outcome) in suite.cases.iter().zip(outcome) {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        text += &format!("{},{},{}", quoted(name), scenario.policy, suite.seeds);
        for name in heads.iter() {
            let of = outcome.as_ref().ok().and_then(|runs| runs.get(name, None));
            let parts =
                [of.map(|of| of.median), of.and_then(|of| of.low), of.and_then(|of| of.high)];
            text.extend(parts.map(|part| part.map_or(",".to_owned(), |value| format!(",{value}"))));
        }
        text.push('\n');
    }
    text
}
