//! From the texts of files to a checked [`Config`], or to everything that is wrong with them.
//!
//! The files are read in order into one configuration: a key that is in two has the value of the later one.
//! Rules over two keys are checked when all are read. [`super::files`] says which files there are.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::discover::{Draft, MAX_RULES, TABLE};
use super::error::{Fault, excerpt};
use super::files::{Line, Loaded, Sources};
use super::keys::{self, Key, RULE, SECTIONS};
use super::source::{Source, bare, nearest};
use super::value::{Node, Rejection, Wrong, socket_length};
use super::{Auto, Config, default_socket};
use lrs_core::model::Label;
use lrs_core::units::MemoryAmount;

/// The settings in `texts`, each with the file that it is of. Without `all` of the files rules over two keys
/// are left out: one of them may be in another file.
pub(super) fn merged(texts: &[(&Path, &str)], all: bool) -> Result<Loaded, Vec<Fault>> {
    let mut config = Config::default();
    let mut reader = KeyReader::default();
    let mut broken = Vec::new();
    for (file, text) in texts {
        let (root, syntax) = DeTable::parse_recoverable(text);
        let source = Source::new(text, file);
        let syntax = syntax.iter().map(|error| source.syntax(error.message(), error.span()));
        let syntax: Vec<Fault> = syntax.collect();
        reader.sources.push(source);
        reader.document(root.get_ref(), &mut config, syntax.is_empty());
        if !syntax.is_empty() {
            broken.push((reader.sources.len() - 1, syntax));
        }
    }
    reader.derive_defaults(&mut config);
    if all {
        reader.check_together(&config);
    }
    let KeyReader { sources, mut faults, places, rules, .. } = reader;
    for (source, syntax) in broken {
        let source = &sources[source];
        // What the parser made of a broken line is its guess, and so is the section of the
        // keys that follow a broken header.
        let broken_header =
            syntax.iter().map(|fault| fault.line).find(|&line| source.is_header(line));
        faults.retain(|fault| {
            let guessed = syntax.iter().any(|broken| broken.line == fault.line);
            let displaced = broken_header.is_some_and(|header| fault.line >= header)
                && [UNKNOWN_KEY, UNKNOWN_SECTION].contains(&fault.problem.as_str());
            fault.file != source.file || !guessed && !displaced
        });
        faults.extend(syntax);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let line = |place: &Place| {
        let source = &sources[place.source];
        Line { file: source.file.to_owned(), line: source.line(place.span.start) }
    };
    let taken = places.iter().filter_map(|(key, place)| Some((*key, line(place.as_ref()?))));
    let sources = Sources {
        files: texts.iter().map(|(file, _)| file.to_path_buf()).collect(),
        keys: taken.collect(),
        rules: rules.iter().map(line).collect(),
    };
    Ok(Loaded { config, sources })
}

const UNKNOWN_KEY: &str = "unknown key";
const UNKNOWN_SECTION: &str = "unknown section";

/// Where a key has its value: the number of its source, and the place in it.
#[derive(Clone, Debug)]
struct Place {
    source: usize,
    span: Range<usize>,
}

/// Where each key of the files has its value, `None` where that value was not taken.
type Places = HashMap<&'static str, Option<Place>>;

#[derive(Default)]
struct KeyReader<'a> {
    /// Those begun; the last one is being read.
    sources: Vec<Source<'a>>,
    faults: Vec<Fault>,
    places: Places,
    /// Names of the rules that are taken, and where these are.
    names: HashSet<Label>,
    rules: Vec<Place>,
    /// How many there were, those that are not taken too.
    rules_seen: usize,
}

impl KeyReader<'_> {
    /// In a file that is not `complete` rules are not judged as a whole: what seems to be missing
    /// may stand on a line that could not be read.
    fn document(&mut self, root: &DeTable<'_>, config: &mut Config, complete: bool) {
        let mut places = std::mem::take(&mut self.places);
        for (name, node) in root {
            let (name, place) = (name.get_ref().as_ref(), name.span());
            let section = SECTIONS.iter().find(|section| section.name == name);
            match (section, node.get_ref().as_table()) {
                _ if name == TABLE => self.rules(place, node, config, complete),
                (None, _) => self.unknown_at_top(name, place, node),
                (Some(section), Some(table)) => {
                    let header = format!("[{name}]");
                    self.table(&header, section.keys, table, config, &mut places);
                }
                (Some(_), None) => {
                    let remedy = format!("write [{name}] on a line of its own and its keys below");
                    let found = Some(node).filter(|node| !node.get_ref().is_array());
                    self.fault(bare(name), found, place, "is a section", remedy);
                }
            }
        }
        self.places = places;
    }

    /// Reads the keys of one table into `root`.
    fn table<R: Default>(
        &mut self,
        header: &str,
        keys: &'static [Key<R>],
        table: &DeTable<'_>,
        root: &mut R,
        places: &mut Places,
    ) {
        let section = keys.first().map_or("", Key::section);
        for (name, node) in table {
            let Some(key) = keys.iter().find(|key| key.name() == name.get_ref()) else {
                let path = format!("{section}.{}", bare(name.get_ref()));
                // Tables are not quoted.
                let found = Some(node).filter(|node| !node.get_ref().is_table());
                let remedy = unknown_remedy(header, keys, name.get_ref());
                self.fault(path, found, name.span(), UNKNOWN_KEY, remedy);
                continue;
            };
            let read = (key.read)(node, root);
            places.insert(key.path, read.is_ok().then(|| self.here(node.span())));
            for Wrong { span, why } in read.err().unwrap_or_default() {
                let (problem, remedy) = match why {
                    Rejection::Because(problem, remedy) => (problem, remedy),
                    Rejection::OutOfRange => {
                        (format!("expected {}", key.range), self.range_remedy(key, node))
                    }
                };
                let place = self.here(span.unwrap_or(node.span()));
                self.fault_at(key.path, &place, problem, remedy);
            }
        }
    }

    fn rules(&mut self, place: Range<usize>, node: &Node<'_>, config: &mut Config, complete: bool) {
        let tables = node.get_ref().as_array().and_then(|items| {
            let tables = items.iter().map(|item| Some((item.get_ref().as_table()?, item.span())));
            tables.collect::<Option<Vec<_>>>()
        });
        let Some(tables) = tables else {
            let remedy = "write [[discover]] on a line of its own and the rule's keys below";
            return self.fault(TABLE, None, place, "is a list of rules", remedy);
        };
        for (table, place) in &tables {
            self.rules_seen += 1;
            if self.rules_seen > MAX_RULES {
                let problem = format!("is one rule more than the {MAX_RULES} that are taken");
                let remedy = "join rules, for example with \"a|b\" in a pattern";
                return self.fault(TABLE, None, place.clone(), problem, remedy);
            }
            self.rule(table, place, config, complete);
        }
    }

    fn rule(
        &mut self,
        table: &DeTable<'_>,
        rule: &Range<usize>,
        config: &mut Config,
        complete: bool,
    ) {
        let (mut draft, mut places) = (Draft::default(), Places::new());
        let faults = self.faults.len();
        self.table("[[discover]]", RULE, table, &mut draft, &mut places);
        // Where a part of a rule was refused, more checks would report faults it may not have.
        if !complete || self.faults.len() > faults {
            return;
        }
        match draft.finish(&mut self.names) {
            Ok(taken) => {
                config.discover.push(taken);
                let place = self.here(rule.clone());
                self.rules.push(place);
            }
            Err(faults) => {
                for (key, problem, remedy) in faults {
                    let path = key.map_or(TABLE.to_owned(), |key| format!("{TABLE}.{key}"));
                    match places.get(path.as_str()) {
                        Some(Some(place)) => self.fault_at(path, place, problem, remedy),
                        _ => self.fault(path, None, rule.clone(), problem, remedy),
                    }
                }
            }
        }
    }

    /// What to do about a value that is not in the key's range: mind the quotes if they are
    /// all that is wrong.
    fn range_remedy<R: Default>(&self, key: &Key<R>, node: &Node<'_>) -> String {
        let written = self.source().text.get(node.span()).unwrap_or("");
        let (other, advice) = match node.get_ref() {
            DeValue::String(inner) => (inner.to_string(), "remove the quotes"),
            _ => (format!("\"{written}\""), "put it in quotes"),
        };
        let taken = other.len() < 100
            && DeValue::parse(&other)
                .is_ok_and(|value| (key.read)(&value, &mut R::default()).is_ok());
        match Config::default().show(key.path).as_str() {
            _ if taken => advice.to_owned(),
            "" => String::from("correct it"),
            default => format!("correct it, or remove the key for the default {default}"),
        }
    }

    /// Defaults that follow from other keys.
    fn derive_defaults(&mut self, config: &mut Config) {
        if !self.places.contains_key("grpc.listen") {
            let socket = default_socket(&config.daemon.runtime_dir);
            let fits = socket_length(socket.as_os_str().len());
            config.grpc.listen = vec![socket];
            if let (Some(Some(place)), Err(Rejection::Because(problem, _))) =
                (self.places.get("daemon.runtime_dir").cloned(), fits)
            {
                let problem = format!("{problem} (<runtime_dir>/lrsd.sock)");
                let remedy = "choose a shorter directory, or set grpc.listen";
                self.fault_at("daemon.runtime_dir", &place, problem, remedy);
            }
        }
        let is_the_services = config.daemon.runtime_dir == Config::default().daemon.runtime_dir;
        if !self.places.contains_key("history.directory") && !is_the_services {
            config.history.directory.clear();
        }
        if !self.places.contains_key("guard.memory_resume") {
            config.guard.memory_resume = super::default_resume(config.guard.memory_reserve);
        }
    }

    /// Rules over two keys. A rule is left out where one of the values was refused.
    fn check_together(&mut self, config: &Config) {
        let Config { slots, classify, guard, .. } = config;
        let below_base = matches!(
            (slots.passive, slots.passive_max),
            (Auto::Fixed(base), Auto::Fixed(max)) if max < base
        );
        let crossed = classify.io_below > classify.cpu_above;
        let freezes_early = guard.freeze_after < guard.headroom_after;
        let resumes_early = match (guard.memory_reserve, guard.memory_resume) {
            (MemoryAmount::Bytes(reserve), MemoryAmount::Bytes(resume)) => resume < reserve,
            (MemoryAmount::OfTotal(reserve), MemoryAmount::OfTotal(resume)) => resume < reserve,
            // How many bytes a share is depends on the node.
            _ => false,
        };
        for (broken, small, large) in [
            (below_base, "slots.passive", "slots.passive_max"),
            (crossed, "classify.io_below", "classify.cpu_above"),
            (resumes_early, "guard.memory_reserve", "guard.memory_resume"),
            (freezes_early, "guard.headroom_after", "guard.freeze_after"),
        ] {
            // One of the two is in a file: the defaults are in order.
            let (path, place, problem) =
                match (broken, self.places.get(small), self.places.get(large)) {
                    (false, ..) | (_, Some(None), _) | (_, _, Some(None)) | (_, None, None) => {
                        continue;
                    }
                    (_, lower, Some(Some(place))) => {
                        let elsewhere = self.elsewhere(lower.and_then(Option::as_ref), place);
                        (
                            large,
                            place,
                            format!("is below {small} = {}{elsewhere}", config.show(small)),
                        )
                    }
                    (_, Some(Some(place)), None) => {
                        (small, place, format!("is above {large} = {}", config.show(large)))
                    }
                };
            let remedy = format!("set {large} to {small} or more");
            self.fault_at(path, &place.clone(), problem, remedy);
        }
    }

    fn unknown_at_top(&mut self, name: &str, place: Range<usize>, node: &Node<'_>) {
        let all = || {
            let sections = SECTIONS.iter().map(|section| format!("[{}]", section.name));
            sections.chain([format!("[[{TABLE}]]")]).collect::<Vec<_>>().join(", ")
        };
        if node.get_ref().is_table() || node.get_ref().is_array() {
            let names = SECTIONS.iter().map(|section| section.name).chain([TABLE]);
            let remedy = match nearest(name, &names.map(str::to_owned).collect::<Vec<_>>()) {
                Some(near) if near == TABLE => format!("did you mean [[{near}]]?"),
                Some(near) => format!("did you mean [{near}]?"),
                None => format!("the sections are {}", all()),
            };
            self.fault(bare(name), None, place, UNKNOWN_SECTION, remedy);
        } else {
            let remedy = match keys::keys().find(|key| key.name() == name) {
                Some(key) => {
                    format!("did you mean {}? put it below [{}]", key.path, key.section())
                }
                None => format!("every key is in one of {}", all()),
            };
            self.fault(bare(name), Some(node), place, UNKNOWN_KEY, remedy);
        }
    }

    /// The one that is being read; there is one before anything is read of it.
    fn source(&self) -> &Source<'_> {
        &self.sources[self.sources.len() - 1]
    }

    fn here(&self, span: Range<usize>) -> Place {
        Place { source: self.sources.len() - 1, span }
    }

    /// Where `other` is, if it is in another file than `place`.
    fn elsewhere(&self, other: Option<&Place>, place: &Place) -> String {
        let Some(other) = other.filter(|other| other.source != place.source) else {
            return String::new();
        };
        let source = &self.sources[other.source];
        let file = excerpt(&source.file.to_string_lossy());
        format!(" in {file}:{}", source.line(other.span.start))
    }

    /// A fault at `place`, with the value `found`.
    fn fault(
        &mut self,
        key: impl Into<String>,
        found: Option<&Node<'_>>,
        place: Range<usize>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let found = found.map(|node| self.source().quote(node.span()));
        let fault = self.source().fault(key.into(), found, place, problem.into(), remedy.into());
        self.faults.push(fault);
    }

    /// A fault of the value at `place`.
    fn fault_at(
        &mut self,
        key: impl Into<String>,
        place: &Place,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let (source, span) = (&self.sources[place.source], place.span.clone());
        let found = Some(source.quote(span.clone()));
        let fault = source.fault(key.into(), found, span, problem.into(), remedy.into());
        self.faults.push(fault);
    }
}

/// What the writer of an unknown key may have meant: a like name in the table, the same or a like
/// name elsewhere, or else the names there are.
fn unknown_remedy<R>(header: &str, keys: &[Key<R>], name: &str) -> String {
    let names: Vec<String> = keys.iter().map(|key| key.name().to_owned()).collect();
    let near_here = nearest(name, &names);
    let near =
        near_here.and_then(|near| keys.iter().find(|key| key.name() == near)).map(|key| key.path);
    let near = near.or_else(|| {
        let elsewhere: Vec<String> = keys::keys().map(|key| key.name().to_owned()).collect();
        let near = nearest(name, &elsewhere)?;
        keys::keys().find(|key| key.name() == near).map(|key| key.path)
    });
    match near {
        Some(path) => format!("did you mean {path}?"),
        None => format!("the keys of {header} are {}", names.join(", ")),
    }
}
