//! Places in a TOML file, and how messages name them.

use std::ops::Range;
use std::path::Path;

use super::error::{Fault, excerpt};

/// The text and where its lines start.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    pub(super) file: &'a Path,
    line_starts: Vec<usize>,
}

impl<'a> Source<'a> {
    /// `file` names it in faults.
    pub(super) fn new(text: &'a str, file: &'a Path) -> Source<'a> {
        let after_newlines = text.match_indices('\n').map(|(index, _)| index + 1);
        let line_starts = std::iter::once(0).chain(after_newlines).collect();
        Source { text, file, line_starts }
    }

    /// Line of a byte, from 1.
    pub(super) fn line(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= offset).max(1)
    }

    fn line_text(&self, line: usize) -> &'a str {
        let start = self.line_starts.get(line - 1).copied().unwrap_or(self.text.len());
        let end = self.line_starts.get(line).copied().unwrap_or(self.text.len());
        self.text.get(start..end).unwrap_or("").trim_end()
    }

    /// Whether a section begins there.
    pub(super) fn is_header(&self, line: Option<usize>) -> bool {
        line.is_some_and(|line| self.line_text(line).trim_start().starts_with('['))
    }

    /// The piece at `span`, cut to one short line.
    pub(super) fn quote(&self, span: Range<usize>) -> String {
        excerpt(self.text.get(span).unwrap_or(""))
    }

    /// A fault of the parser.
    pub(super) fn syntax(&self, message: &str, span: Option<Range<usize>>) -> Fault {
        // Without a span the parser means the end of the file.
        let offset = span.map_or(self.text.len(), |span| span.start);
        let line = self.line(offset);
        let start = self.line_starts.get(line - 1).copied().unwrap_or(0);
        let column = self.text.get(start..offset).map_or(1, |before| before.chars().count() + 1);
        Fault {
            file: self.file.to_owned(),
            line: Some(line),
            column: Some(column),
            key: None,
            found: None,
            problem: format!("no valid TOML: {}", message.replace('\n', ", ")),
            remedy: match self.line_text(line) {
                "" => String::from("complete the line before it"),
                found => match self.section_before(line) {
                    Some(first) => format!(
                        "{} is at line {first} already: put the keys below it there",
                        excerpt(found.trim())
                    ),
                    None => format!("correct {}", excerpt(found.trim_start())),
                },
            },
        }
    }

    /// Where the section that begins at `line` began before.
    fn section_before(&self, line: usize) -> Option<usize> {
        let name = |line: usize| section(self.line_text(line));
        let wanted = name(line)?;
        (1..line).find(|earlier| name(*earlier) == Some(wanted))
    }

    /// A fault of the key at `place`.
    pub(super) fn fault(
        &self,
        key: String,
        found: Option<String>,
        place: Range<usize>,
        problem: String,
        remedy: String,
    ) -> Fault {
        Fault {
            file: self.file.to_owned(),
            line: Some(self.line(place.start)),
            column: None,
            key: Some(key),
            found,
            problem,
            remedy,
        }
    }
}

/// The name in the header of a section, which is no list of sections.
fn section(line: &str) -> Option<&str> {
    let (name, _) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    (!name.starts_with('[')).then(|| name.trim())
}

/// Jaro-Winkler similarity from which a word counts as a slip of another.
const SIMILAR: f64 = 0.84;

/// The candidate most like `word`, if any is like it at all.
pub(super) fn nearest(word: &str, candidates: &[String]) -> Option<String> {
    // Longer words than any key are no slips, and costly to compare.
    if word.len() > 64 {
        return None;
    }
    candidates
        .iter()
        .map(|candidate| (strsim::jaro_winkler(&word.to_lowercase(), candidate), candidate))
        .filter(|(similarity, _)| *similarity >= SIMILAR)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.clone())
}

/// A key as it would be written: quoted unless it is bare (TOML 1.0, "Keys").
pub(super) fn bare(name: &str) -> String {
    let plain = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if plain { excerpt(name) } else { format!("\"{}\"", excerpt(name)) }
}
