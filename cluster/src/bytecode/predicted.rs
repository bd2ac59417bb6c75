//! What is predicted of one map or reduce class, from what is known of its methods.

use serde::Serialize;

use crate::bytecode::evidence::{Evidence, Open};
use crate::bytecode::flow::Path;

/// The kinds of program for which the thesis predicts the class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Map.
    Map,
    /// Reduce, and combine.
    Reduce,
}

impl Kind {
    /// The name of the method, and of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Map => "map",
            Kind::Reduce => "reduce",
        }
    }

    /// Instructions; a program with a shorter longest path waits for input (thesis 2.4.1.1).
    #[must_use]
    pub fn threshold(self) -> u64 {
        match self {
            Kind::Map => 500,
            Kind::Reduce => 1_000,
        }
    }

    /// How the names of Hadoop's classes of this kind end.
    pub(crate) fn is_of(self, class: &str) -> bool {
        match self {
            Kind::Map => {
                ["Mapper", "MapRunnable", "MapRunner"].iter().any(|end| class.ends_with(end))
            }
            Kind::Reduce => class.ends_with("Reducer"),
        }
    }
}

/// The classes that the thesis predicts. It has no third one between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Predicts {
    /// Waits for its input: computing rate below 0.2.
    Io,
    /// Computes.
    Cpu,
}

impl Predicts {
    /// The name, as tasks have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Predicts::Io => "io",
            Predicts::Cpu => "cpu",
        }
    }

    /// The middle of the rates of the class, 0 to 0.2 and 0.2 to 1: what stands for the rate of a
    /// job without one.
    #[must_use]
    pub fn rate(self) -> f64 {
        match self {
            Predicts::Io => 0.1,
            Predicts::Cpu => 0.6,
        }
    }
}

/// What is predicted of one map or reduce class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// The class, spelt as in Java (`org.example.Count$Map`).
    pub class: String,
    /// Map or reduce.
    pub kind: Kind,
    /// Instructions; None: not known, see `note`. 0 where it passes its input on unchanged.
    pub longest_path: Option<u64>,
    /// See [`Kind::threshold`].
    pub threshold: u64,
    /// Loops inside loops, those of called methods included: evidence beside the path.
    pub loops: Option<u32>,
    /// None where too little is known: see `note`.
    pub predicted: Option<Predicts>,
    /// A computing rate to assume until one is measured.
    pub assumed_computing_rate: Option<f64>,
    /// Calls that were not followed, as far as the class hangs on them: the first of each sort.
    pub not_followed: Vec<String>,
    /// Why nothing is predicted, or what is special about it.
    pub note: Option<String>,
}

impl Predicted {
    /// Where no path is known.
    pub(crate) fn unknown(class: String, kind: Kind, note: String) -> Predicted {
        Predicted {
            class,
            kind,
            longest_path: None,
            threshold: kind.threshold(),
            loops: None,
            predicted: None,
            assumed_computing_rate: None,
            not_followed: Vec::new(),
            note: Some(note),
        }
    }

    /// From what runs for each record, and what runs once in a task.
    pub(crate) fn new(class: String, kind: Kind, each: &Evidence, once: &Evidence) -> Predicted {
        let mut all = each.clone();
        all.take(once, false);
        let uncounted = each.path.uncounted || once.path.uncounted;
        all.path = Path { uncounted, ..each.path.or(once.path) };
        let predicted = predicts(kind, &all, each);
        let mut not_followed = Vec::new();
        let mut note = None;
        if predicted.is_none() {
            for open in [Open::Foreign, Open::Unknown, Open::Plain] {
                // What is ordinary is named where there is nothing else.
                if open != Open::Plain || not_followed.is_empty() {
                    not_followed.extend(all.names(open).map(str::to_owned));
                }
            }
            note = Some(reasons(kind, &all, &not_followed));
        }
        Predicted {
            class,
            kind,
            longest_path: Some(all.path.longest),
            threshold: kind.threshold(),
            loops: Some(all.path.loops),
            predicted,
            assumed_computing_rate: predicted.map(Predicts::rate),
            not_followed,
            note,
        }
    }
}

/// Loops inside loops from which a program computes.
const NESTED: u32 = 2;

/// A long path computes unless something on it may wait. A short one waits where all of it was
/// followed, or where each record waits and the rest is ordinary work: what was not followed makes
/// a short path a lower bound.
fn predicts(kind: Kind, all: &Evidence, each: &Evidence) -> Option<Predicts> {
    let is_long = |one: &Evidence| one.path.sure >= kind.threshold();
    let may_wait = |one: &Evidence| one.has(Open::Waits) || one.has(Open::MayWait);
    if is_long(all) {
        let computes = !may_wait(all) || is_long(each) && !may_wait(each);
        return computes.then_some(Predicts::Cpu);
    }
    // A loop in a loop computes, whatever the path once through both, unless it waits.
    if all.path.loops >= NESTED && !may_wait(all) && !all.has(Open::Foreign) {
        return Some(Predicts::Cpu);
    }
    let is_bounded = all.path.longest < kind.threshold()
        && !all.path.uncounted
        && !all.has(Open::Foreign)
        && !all.has(Open::Unknown);
    let waits = each.path.waits || !may_wait(all) && !all.has(Open::Plain);
    (is_bounded && waits).then_some(Predicts::Io)
}

/// Names that a note has; the JSON has more.
const NAMED: usize = 3;

/// Why nothing is predicted.
fn reasons(kind: Kind, all: &Evidence, not_followed: &[String]) -> String {
    let some = |mut names: &mut dyn Iterator<Item = &str>| {
        let shown: Vec<&str> = (&mut names).take(NAMED).collect();
        let more = names.count();
        let rest = if more > 0 { " and others" } else { "" };
        format!("{}{rest}", shown.join(", "))
    };
    let mut reasons = Vec::new();
    let mut waits = all.names(Open::Waits).chain(all.names(Open::MayWait)).peekable();
    if waits.peek().is_some() {
        reasons.push(format!("may wait in {}", some(&mut waits)));
    }
    if all.path.sure >= kind.threshold() {
        return reasons.concat();
    }
    if all.path.longest >= kind.threshold() {
        let mut several = all.names(Open::Several);
        reasons.push(format!("it is not known which method runs for {}", some(&mut several)));
    }
    if all.path.uncounted {
        reasons.push("a loop has no known count".to_owned());
    }
    if !not_followed.is_empty() {
        let mut names = not_followed.iter().map(String::as_str);
        reasons.push(format!("not followed: {}", some(&mut names)));
    }
    reasons.join("; ")
}
