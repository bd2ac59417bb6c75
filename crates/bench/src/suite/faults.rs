//! Reading a file by serde with every fault reported at once.
//!
//! serde stops at the first fault. So the value at fault is noted and taken away, and what is left
//! is read again, until nothing is at fault. A key that has to be there is an `Option` and asked
//! for with [`Faults::need`], which knows what was taken away.

use std::ops::Range;
use std::path::Path;

use lrs_term::printable;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

/// Longest piece of a file that is quoted back, in characters.
const QUOTED: usize = 72;

/// A file and what is wrong with it so far.
pub(super) struct Faults<'a> {
    text: &'a str,
    file: &'a Path,
    /// Where, and what.
    noted: Vec<(usize, String)>,
    /// Table, by where it begins, and key of what was taken away.
    taken_away: Vec<(usize, String)>,
}

impl<'a> Faults<'a> {
    pub(super) fn new(text: &'a str, file: &'a Path) -> Faults<'a> {
        Faults { text, file, noted: Vec::new(), taken_away: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.noted.len()
    }

    /// Notes a fault at an offset of the text: `what` is a key or a key with its value.
    pub(super) fn note(&mut self, at: usize, what: &str, problem: &str, remedy: &str) {
        self.noted.push((at, format!("{what}: {problem}; {remedy}")));
    }

    /// Notes a fault that comes with its remedy.
    pub(super) fn note_words(&mut self, at: usize, what: &str, words: &str) {
        self.noted.push((at, format!("{what}: {words}")));
    }

    /// The line of an offset, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }

    /// Every fault a line, in the order of the file.
    pub(super) fn into_text(mut self) -> String {
        self.noted.sort_by_key(|(at, _)| *at);
        let file = self.file.display().to_string();
        let lines = self.noted.iter().map(|(at, what)| {
            printable(&format!("{file}:{}: {what}", self.line(*at))).into_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Whether a value at fault was taken from the table that begins at `table`.
    pub(super) fn took_from(&self, table: usize) -> bool {
        self.taken_away.iter().any(|(at, _)| *at == table)
    }

    /// The value of a key that has to be in the table that begins at `table`.
    pub(super) fn need<T>(&mut self, table: usize, key: &str, value: Option<T>) -> Option<T> {
        let name = key.rsplit('.').next().unwrap_or(key);
        let known = self.taken_away.iter().any(|(at, taken)| *at == table && taken == name);
        if value.is_none() && !known {
            self.note(table, key, "is missing", "add it");
        }
        value
    }

    /// The file as a `T`, less what is at fault; `None` only with a fault noted.
    pub(super) fn read<T: DeserializeOwned>(&mut self) -> Option<T> {
        let (mut root, syntax) = DeTable::parse_recoverable(self.text);
        // What the parser made of the rest is its guess.
        for error in &syntax {
            let at = error.span().map_or(0, |span| span.start);
            self.noted.push((at, format!("is no TOML: {}", error.message())));
        }
        while syntax.is_empty() {
            match T::deserialize(toml::de::Deserializer::from(root.clone())) {
                Ok(value) => return Some(value),
                Err(error) => {
                    let span = error.span().unwrap_or(0..0);
                    let Some(found) = take_away(root.get_mut(), 0, "", &span) else {
                        self.note(span.start, "the file", error.message(), "correct it");
                        return None;
                    };
                    self.note_value(found, error.message());
                }
            }
        }
        None
    }

    fn note_value(&mut self, found: Removed, message: &str) {
        let Removed { table, path, key, value } = found;
        let shown = if let Some(unknown) = unknown_key(message) {
            self.noted.push((key.start, format!("{path}: {unknown}")));
            path
        } else {
            let quote = self.text.get(value.clone()).unwrap_or_default();
            let quote: String = quote.lines().next().unwrap_or_default().to_owned();
            let cut: String = quote.chars().take(QUOTED).collect();
            let dots = if cut.len() < quote.len() { "..." } else { "" };
            self.noted.push((value.start, format!("{path} = {cut}{dots}: {message}")));
            path
        };
        let name = shown.rsplit('.').next().unwrap_or_default().to_owned();
        self.taken_away.push((table, name));
    }
}

/// What was taken away.
struct Removed {
    /// Where its table begins.
    table: usize,
    /// `load.tasks.count`
    path: String,
    key: Range<usize>,
    value: Range<usize>,
}

/// Takes the entry at `span` away, or the one that has it as an element.
fn take_away(
    table: &mut DeTable<'_>,
    begins: usize,
    path: &str,
    span: &Range<usize>,
) -> Option<Removed> {
    let within = |outer: &Range<usize>| outer.start <= span.start && span.end <= outer.end;
    let mut found = None;
    for (key, value) in table.iter_mut() {
        let name = key.get_ref().to_string();
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let (key_span, value_span) = (key.span(), value.span());
        let inner = match value.get_mut() {
            DeValue::Table(inner) if value_span != *span => {
                take_away(inner, value_span.start, &path, span)
            }
            DeValue::Array(nodes) => nodes.iter_mut().find_map(|node| {
                let begins = node.span().start;
                match node.get_mut() {
                    DeValue::Table(table) => take_away(table, begins, &path, span),
                    _ => None,
                }
            }),
            _ => None,
        };
        if inner.is_some() {
            return inner;
        }
        if key_span == *span || within(&value_span) {
            found = Some((name, Removed { table: begins, path, key: key_span, value: value_span }));
            break;
        }
    }
    let (name, found) = found?;
    table.remove(name.as_str());
    Some(found)
}

/// What to do about a key that serde does not know, from its message: the names are quoted.
fn unknown_key(message: &str) -> Option<String> {
    let names = message.strip_prefix("unknown field ")?;
    let mut names = names.split('`').skip(1).step_by(2);
    let unknown = names.next()?;
    let known: Vec<&str> = names.collect();
    Some(match nearest(unknown, known.iter().copied()) {
        Some(near) => format!("unknown key; did you mean {near}?"),
        None => format!("unknown key; the keys here are {}", known.join(", ")),
    })
}

/// The known name that is most like `name`, if one is alike.
pub(super) fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let scored = known.map(|known| (strsim::jaro_winkler(name, known), known));
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0));
    best.filter(|(score, _)| *score > 0.8).map(|(_, known)| known)
}
