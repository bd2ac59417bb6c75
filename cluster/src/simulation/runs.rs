//! The figures of a case over its seeds.
//!
//! Of each run only the figures are kept, not what they were counted from, so that many seeds take
//! little memory. Two cases with the same seed have the same jobs (`workload`), so a ratio is taken
//! seed by seed and then its median: what the jobs of a seed have in common does not widen it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::simulation::figures::Figures;
use crate::simulation::spread::Spread;

/// The figures of one run by name, and of its classes of jobs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    all: BTreeMap<&'static str, f64>,
    classes: BTreeMap<String, BTreeMap<&'static str, f64>>,
    /// Decisions with warnings, and the first one.
    warnings: Option<(u64, String)>,
}

impl Values {
    /// What a run counted.
    pub fn of(figures: &Figures) -> Values {
        let classes =
            figures.classes().map(|class| (class.to_owned(), figures.values(Some(class))));
        let warnings = figures.warnings().map(|(count, first)| (count, first.to_owned()));
        Values { all: figures.values(None), classes: classes.collect(), warnings }
    }

    /// A figure of all jobs or of a class; none where nothing was counted for it.
    pub fn get(&self, figure: &str, class: Option<&str>) -> Option<f64> {
        let values = match class {
            Some(class) => self.classes.get(class)?,
            None => &self.all,
        };
        values.get(figure).copied()
    }
}

/// The runs of a case, in the order of their seeds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Runs(pub Vec<Values>);

impl Runs {
    /// A figure over the seeds; none where a run has not counted it.
    pub fn get(&self, figure: &str, class: Option<&str>) -> Option<Spread> {
        let values: Option<Vec<f64>> = self.0.iter().map(|run| run.get(figure, class)).collect();
        Spread::of(&values?)
    }

    /// What the policy could not take into account, in a sentence; none where it took all.
    pub fn warning(&self) -> Option<String> {
        let mut warnings = self.0.iter().filter_map(|run| run.warnings.as_ref()).peekable();
        let (_, first) = warnings.peek()?;
        let first = first.clone();
        let decisions: u64 = warnings.map(|(count, _)| count).sum();
        Some(format!("in {decisions} decisions of {} runs; the first: {first}", self.0.len()))
    }

    /// The same, divided by that of another case, seed by seed.
    pub fn ratio(&self, over: &Runs, figure: &str, class: Option<&str>) -> Option<Spread> {
        if self.0.len() != over.0.len() {
            return None;
        }
        let pairs = self.0.iter().zip(&over.0);
        let ratios: Option<Vec<f64>> = pairs
            .map(|(run, over)| Some(run.get(figure, class)? / over.get(figure, class)?))
            .collect();
        Spread::of(&ratios?)
    }

    /// All figures.
    pub fn json(&self) -> Value {
        let of = |class: Option<&str>, names: BTreeSet<&'static str>| -> Map<String, Value> {
            let spread = |name| (String::from(name), json!(self.get(name, class)));
            names.into_iter().map(spread).collect()
        };
        let names = |values: &BTreeMap<&'static str, f64>| values.keys().copied().collect();
        let Some(first) = self.0.first() else { return Value::Null };
        let mut all = of(None, names(&first.all));
        let classes = first.classes.iter();
        let classes: Map<String, Value> = classes
            .map(|(class, values)| (class.clone(), of(Some(class), names(values)).into()))
            .collect();
        all.insert("classes".into(), classes.into());
        all.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(makespans: &[f64]) -> Runs {
        let run = |makespan: &f64| {
            let all = BTreeMap::from([("makespan", *makespan)]);
            Values { all, ..Values::default() }
        };
        Runs(makespans.iter().map(run).collect())
    }

    #[test]
    fn a_ratio_is_that_of_the_same_seed() {
        let (ours, over) = (runs(&[9.0, 90.0, 900.0]), runs(&[10.0, 100.0, 1000.0]));
        let ratio = ours.ratio(&over, "makespan", None).unwrap();
        assert!((ratio.median - 0.9).abs() < 1e-12, "{ratio:?}");
        assert_eq!(ours.ratio(&runs(&[1.0]), "makespan", None), None);
        assert_eq!(ours.get("busy", None), None);
        assert_eq!(ours.get("makespan", Some("small")), None);
        assert_eq!(ours.json()["makespan"]["median"], 90.0);
    }
}
