//! What is wrong with an input, place by place.

use std::fmt;

/// What is wrong at one place of the input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {what}")]
pub struct Fault {
    /// The place: `jobs[2].tasks[0].replicas[1]`.
    pub at: String,
    /// What was found there and what belongs there.
    pub what: String,
}

/// Every fault of the input, in its order; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    /// One a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Faults {}
