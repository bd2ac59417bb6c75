//! Reading tables of a suite: each field once, with its range, and at the end what nobody asked
//! for. All faults are collected; a value that is refused is `None` and the reading goes on.

use std::ops::Range;
use std::rc::Rc;

use toml::de::{DeTable, DeValue};

use super::template::{Place, Template};
use crate::config::error::Fault;
use crate::config::source::{Source, bare, nearest};
use crate::config::value::{self, Node, Rejection, Taken, because};

/// The file and what is wrong with it so far.
pub(super) struct Reader<'a> {
    pub(super) source: Source<'a>,
    pub(super) faults: Vec<Fault>,
    /// CPUs of the node, for counts per core.
    pub(super) cpus: u32,
    /// Names of the data sets.
    pub(super) sets: Rc<[String]>,
}

impl Reader<'_> {
    /// Notes a fault of the key at `place`; the text there is quoted.
    pub(super) fn fault(
        &mut self,
        key: impl Into<String>,
        place: Range<usize>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        // tables are long and say nothing
        let found = self.source.quote(place.clone());
        let table = |found: &str| found.starts_with('[') || found.contains('=');
        let found = Some(found).filter(|found| !found.is_empty() && !table(found));
        let fault = self.source.fault(key.into(), found, place, problem.into(), remedy.into());
        self.faults.push(fault);
    }
}

/// One table of the file.
pub(super) struct Fields<'t> {
    /// `load.tasks`, to be followed by a dot and the name of a key; empty at the top.
    path: String,
    table: &'t DeTable<'t>,
    /// Where it stands.
    pub(super) place: Range<usize>,
    asked: Vec<&'static str>,
}

impl<'t> Fields<'t> {
    pub(super) fn new(path: &str, table: &'t DeTable<'t>, place: Range<usize>) -> Fields<'t> {
        Fields { path: path.to_owned(), table, place, asked: Vec::new() }
    }

    /// The path of a key of this table.
    pub(super) fn key(&self, name: &str) -> String {
        if self.path.is_empty() { bare(name) } else { format!("{}.{}", self.path, bare(name)) }
    }

    /// The value of a key as it stands in the file.
    pub(super) fn node(&mut self, name: &'static str) -> Option<&'t Node<'t>> {
        self.asked.push(name);
        self.table.iter().find(|(key, _)| key.get_ref().as_ref() == name).map(|(_, node)| node)
    }

    /// A text of the table as it is, unchecked.
    pub(super) fn text(&self, name: &str) -> Option<&'t str> {
        let found = self.table.iter().find(|(key, _)| key.get_ref().as_ref() == name);
        found.and_then(|(_, node)| node.get_ref().as_str())
    }

    /// The value of a key that may be absent; `range` follows "expected".
    pub(super) fn take<T>(
        &mut self,
        reader: &mut Reader<'_>,
        name: &'static str,
        range: &str,
        read: impl FnOnce(&Node<'_>) -> Taken<T>,
    ) -> Option<T> {
        let node = self.node(name)?;
        let (problem, remedy) = match read(node) {
            Ok(value) => return Some(value),
            Err(Rejection::OutOfRange) => (format!("expected {range}"), "correct it".to_owned()),
            Err(Rejection::Because(problem, remedy)) => (problem, remedy),
        };
        reader.fault(self.key(name), node.span(), problem, remedy);
        None
    }

    /// The same of a key that has to be there.
    pub(super) fn need<T>(
        &mut self,
        reader: &mut Reader<'_>,
        name: &'static str,
        range: &str,
        read: impl FnOnce(&Node<'_>) -> Taken<T>,
    ) -> Option<T> {
        if self.node(name).is_none() {
            reader.fault(self.key(name), self.place.clone(), "is missing", format!("add {range}"));
            return None;
        }
        self.take(reader, name, range, read)
    }

    /// The tables of `[[name]]`, or the one of `[name]` with `single`.
    pub(super) fn tables(
        &mut self,
        reader: &mut Reader<'_>,
        name: &'static str,
        single: bool,
    ) -> Vec<Fields<'t>> {
        let path = self.key(name);
        let Some(node) = self.node(name) else { return Vec::new() };
        let (form, nodes): (_, Vec<&Node<'t>>) = match node.get_ref() {
            DeValue::Table(_) if single => ("", vec![node]),
            DeValue::Array(nodes) if !single => ("", nodes.iter().collect()),
            _ if single => ("a table", Vec::new()),
            _ => ("an array of tables", Vec::new()),
        };
        if !form.is_empty() {
            let header = if single { format!("[{path}]") } else { format!("[[{path}]]") };
            reader.fault(&path, node.span(), format!("is {form}"), format!("write {header}"));
        }
        let mut tables = Vec::new();
        for node in nodes {
            match node.get_ref().as_table() {
                Some(table) => tables.push(Fields::new(&path, table, node.span())),
                None => {
                    reader.fault(&path, node.span(), "is no table", format!("write [[{path}]]"))
                }
            }
        }
        tables
    }

    /// Faults for the keys nobody asked for.
    pub(super) fn finish(self, reader: &mut Reader<'_>) {
        let names: Vec<String> = self.asked.iter().map(|&name| name.to_owned()).collect();
        for (key, node) in self.table {
            let name = key.get_ref().as_ref();
            if self.asked.contains(&name) {
                continue;
            }
            let remedy = match nearest(name, &names) {
                Some(near) => format!("did you mean {near}?"),
                None => {
                    let mut names = names.clone();
                    names.sort();
                    names.dedup();
                    format!("the keys here are {}", names.join(", "))
                }
            };
            let place = if node.get_ref().is_str() { node.span() } else { key.span() };
            let found = node.get_ref().is_str().then(|| reader.source.quote(node.span()));
            let path = self.key(name);
            let fault = reader.source.fault(path, found, place, "unknown key".into(), remedy);
            reader.faults.push(fault);
        }
    }
}

/// A name that is part of file names and of `--load`.
pub(super) fn name(node: &Node<'_>) -> Taken<String> {
    let text = value::text(node)?;
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
        Ok(text.to_owned())
    } else {
        Err(Rejection::OutOfRange)
    }
}

/// What [`name`] takes.
pub(super) const NAME: &str = "1 to 64 of a-z, 0-9 and -";

/// A text of one line.
pub(super) fn line(node: &Node<'_>) -> Taken<String> {
    let text = value::text(node)?;
    if text.is_empty() || text.len() > 256 || text.chars().any(char::is_control) {
        return Err(Rejection::OutOfRange);
    }
    Ok(text.to_owned())
}

/// What [`line()`] takes.
pub(super) const LINE: &str = "a text of 1 to 256 bytes on one line";

/// A list of texts.
pub(super) fn texts(node: &Node<'_>) -> Taken<Vec<String>> {
    let nodes = node.get_ref().as_array().ok_or(Rejection::OutOfRange)?;
    nodes.iter().map(|node| value::text(node).map(str::to_owned)).collect()
}

/// A command: words, the first not empty.
pub(super) fn command(node: &Node<'_>, place: Place, sets: &[String]) -> Taken<Vec<Template>> {
    let words = texts(node)?;
    let Some(program) = words.first().filter(|program| !program.is_empty()) else {
        return because("is empty", "write a program and its arguments, each a word");
    };
    if program.contains('/') && !program.starts_with(['/', '{']) {
        let program = crate::config::error::excerpt(program);
        return because(
            format!("{program} depends on where one is, and tasks are in directories of the run"),
            "write its absolute path, or the name of a program in PATH",
        );
    }
    words.iter().map(|word| template(word, place, sets)).collect()
}

/// What [`command`] takes.
pub(super) const COMMAND: &str = "a list of words, such as [\"sort\", \"{data}/text-{part}\"]";

/// One word with placeholders; `sets` are the data sets there are.
pub(super) fn template(word: &str, place: Place, sets: &[String]) -> Taken<Template> {
    if word.contains('\0') {
        return because("holds a NUL byte", "remove it");
    }
    let template = Template::parse(word, place).or_else(|unknown| {
        because(
            format!("unknown placeholder {}", crate::config::error::excerpt(&unknown)),
            format!("there are {} here; a brace is written {{{{", place.names()),
        )
    })?;
    if let Some(unknown) = template.sets().find(|name| !sets.iter().any(|set| set == name)) {
        let remedy = match nearest(unknown, sets) {
            Some(near) => format!("did you mean {near}?"),
            None => "add it as [[data]]".to_owned(),
        };
        return because(format!("there are no data \"{unknown}\""), remedy);
    }
    Ok(template)
}

/// A count: a number, or `"8 per core"`.
pub(super) fn count(node: &Node<'_>, cpus: u32) -> Taken<u32> {
    const MOST: u32 = 10_000;
    let Some(text) = node.get_ref().as_str() else {
        return value::number(node, 1..=MOST);
    };
    let per_core = text.strip_suffix("per core").map(str::trim_end);
    let each: Option<u32> = per_core.and_then(|number| number.parse().ok());
    each.and_then(|each| each.checked_mul(cpus))
        .filter(|count| (1..=MOST).contains(count))
        .ok_or(Rejection::OutOfRange)
}

/// What [`count`] takes.
pub(super) const COUNT: &str = "1..=10000, or \"N per core\"";
