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

/// Most faults that are named: a file may have as many as bytes.
pub const MOST: usize = 1000;

/// The faults of the input, in its order; at least one. The first [`MOST`] are named, and of more the last
/// one says how many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

/// Faults while they are found.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    named: Vec<Fault>,
    more: usize,
}

impl Collected {
    pub(crate) fn push(&mut self, at: impl fmt::Display, what: impl fmt::Display) {
        if self.named.len() < MOST {
            self.named.push(Fault { at: at.to_string(), what: what.to_string() });
        } else {
            self.more += 1;
        }
    }

    /// An error if there is any.
    pub(crate) fn result(mut self) -> Result<(), Faults> {
        if self.named.is_empty() {
            return Ok(());
        }
        if self.more > 0 {
            let what = format!("{} more faults; these are the first {MOST}", self.more);
            self.named.push(Fault { at: "the file".into(), what });
        }
        Err(Faults(self.named))
    }
}

impl fmt::Display for Faults {
    /// One a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Faults {}
