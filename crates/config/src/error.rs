//! What is wrong with a configuration file: where, what was found, what to do.

use std::fmt;
use std::path::PathBuf;

use lrs_term::printable;

/// Everything wrong with a file and its drop-ins, in the order of the files and of their lines. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    faults: Vec<Fault>,
}

impl ConfigErrors {
    /// Sorts by file, as they are read, and by line; equal lines keep their order.
    pub(super) fn new(mut faults: Vec<Fault>) -> ConfigErrors {
        faults.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        ConfigErrors { faults }
    }

    /// The faults, in the order of the lines.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }
}

impl fmt::Display for ConfigErrors {
    /// One fault a line, without a final newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

/// One fault: `lrs.toml:12: slots.active = "two": expected "auto" or 1..=4096; ...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file.
    pub file: PathBuf,
    /// From 1; `None` when the file as a whole is meant.
    pub line: Option<usize>,
    /// In characters, from 1; given for syntax errors.
    pub column: Option<usize>,
    /// Path of the key or section; `None` for syntax errors and unreadable files.
    pub key: Option<String>,
    /// The value as it is in the file, cut to one short line.
    pub found: Option<String>,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.file.to_string_lossy()))?;
        for place in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{place}")?;
        }
        f.write_str(": ")?;
        match (&self.key, &self.found) {
            (Some(key), Some(found)) => write!(f, "{key} = {found}: ")?,
            (Some(key), None) => write!(f, "{key}: ")?,
            (None, _) => {}
        }
        write!(f, "{}; {}", self.problem, self.remedy)
    }
}

/// Longest piece of a file that is quoted back, in characters.
const QUOTE_LIMIT: usize = 72;

/// `text` on one line that is safe on a terminal: control characters escaped, cut when long.
pub(super) fn excerpt(text: &str) -> String {
    let shown = printable(text);
    match shown.char_indices().nth(QUOTE_LIMIT) {
        Some((end, _)) => format!("{}...", &shown[..end]),
        None => shown.into_owned(),
    }
}
