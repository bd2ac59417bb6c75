//! From the text of a file to a checked [`Config`], or to everything that is wrong with it.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::Path;

use lrs_host::trust;
use toml::de::{DeTable, DeValue};

use super::discover::{Draft, MAX_RULES, TABLE};
use super::error::{ConfigErrors, Fault, excerpt};
use super::keys::{self, Key, RULE, SECTIONS};
use super::source::{Source, bare, nearest};
use super::value::{Node, Rejection, Wrong, socket_length};
use super::{Auto, Config, default_socket};
use lrs_core::model::Label;
use lrs_core::units::MemoryAmount;

/// What a missing file means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// The defaults.
    IsDefault,
    /// A fault, like any other unreadable file.
    IsError,
}

/// Largest file read: a configuration is a few KiB, and a mistaken path must not fill memory.
const MAX_FILE: u64 = 1 << 20;

/// See [`Config::load`].
pub(super) fn load(path: &Path, absent: Absent) -> Result<Config, ConfigErrors> {
    match read_text(path, absent)? {
        Some(text) => from_toml(&text, path),
        None => Ok(Config::default()),
    }
}

/// See [`Config::load_trusted`].
pub(super) fn load_trusted(path: &Path) -> Result<Config, ConfigErrors> {
    match distrust(path) {
        Some((problem, remedy)) => Err(ConfigErrors::new(vec![whole_file(path, problem, remedy)])),
        None => load(path, Absent::IsDefault),
    }
}

/// Why a daemon of this user does not believe the file at `path`, and what to do. What cannot be looked
/// at is for whoever reads it to say.
fn distrust(path: &Path) -> Option<(String, &'static str)> {
    let refused = trust::check_path(path).err()?;
    let remedy = trust::objection_in(&refused.source)?.remedy();
    let place = refused.path.display();
    Some((format!("is not believed, because of {place}: {}", refused.source), remedy))
}

fn whole_file(path: &Path, problem: String, remedy: &str) -> Fault {
    Fault {
        file: path.to_owned(),
        line: None,
        column: None,
        key: None,
        found: None,
        problem,
        remedy: remedy.to_owned(),
    }
}

/// The text of a file of settings; `None` when it is absent and may be.
fn read_text(path: &Path, absent: Absent) -> Result<Option<String>, ConfigErrors> {
    let whole_file =
        |problem: String, remedy: &str| ConfigErrors::new(vec![whole_file(path, problem, remedy)]);
    let unreadable = |error: std::io::Error| {
        let remedy = match error.kind() {
            ErrorKind::NotFound => "create the file or correct its path",
            ErrorKind::PermissionDenied => "run as root or make the file readable",
            _ => "give the path of a readable TOML file",
        };
        whole_file(format!("cannot read the file: {error}"), remedy)
    };
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound && absent == Absent::IsDefault => {
            // A link that leads nowhere was meant to lead somewhere.
            if path.is_symlink() {
                return Err(whole_file(
                    String::from("is a symbolic link to nothing"),
                    "repair or remove the link",
                ));
            }
            return Ok(None);
        }
        Err(error) => return Err(unreadable(error)),
    };
    // Opening a FIFO would wait for a writer, and a device may never end.
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "a directory" } else { "not a regular file" };
        return Err(whole_file(format!("is {what}"), "give the path of a TOML file"));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(whole_file(
            String::from("has more than 1 MiB"),
            "give the path of a file of settings",
        ));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        let problem = format!("byte {} of the file is not UTF-8", error.valid_up_to() + 1);
        whole_file(problem, "save the file as UTF-8 text").at_line(line + 1)
    })?;
    Ok(Some(text.to_owned()))
}

/// Reads and checks the file at `path`, which has to exist. `Ok` is for people: one line with the
/// verdict and the keys that differ from their defaults, and a warning if lrsd would not believe the file.
pub fn check_file(path: &Path) -> Result<String, ConfigErrors> {
    let config = load(path, Absent::IsError)?;
    let changed = Config::default().changed_keys(&config).into_iter();
    let mut changed: Vec<String> = changed
        .filter(|changed| changed.key != TABLE)
        .map(|changed| format!("{} = {}", changed.key, config.show(changed.key)))
        .collect();
    let rules = config.discover.iter();
    changed.extend(rules.map(|rule| format!("[[discover]] {}", excerpt(rule.name.as_str()))));
    let file = excerpt(&path.to_string_lossy());
    let verdict = if changed.is_empty() {
        format!("{file}: valid; every key has its default")
    } else {
        format!("{file}: valid; not default: {}", changed.join(", "))
    };
    let distrust = distrust(path).map(|(problem, remedy)| {
        format!("\nwarning: lrsd does not start with {file}: it {problem}; {remedy}")
    });
    Ok(std::iter::once(verdict).chain(distrust).collect())
}

/// See [`Config::from_toml`].
pub(super) fn from_toml(text: &str, file: &Path) -> Result<Config, ConfigErrors> {
    let (root, syntax) = DeTable::parse_recoverable(text);
    let mut config = Config::default();
    let source = Source::new(text, file);
    let mut reader = KeyReader { source, faults: Vec::new() };
    reader.document(root.get_ref(), &mut config, syntax.is_empty());
    let KeyReader { source, mut faults } = reader;
    if !syntax.is_empty() {
        let syntax = syntax.iter().map(|error| source.syntax(error.message(), error.span()));
        let syntax: Vec<Fault> = syntax.collect();
        // What the parser made of a broken line is its guess, and so is the section of the
        // keys that follow a broken header.
        let broken_header =
            syntax.iter().map(|fault| fault.line).find(|&line| source.is_header(line));
        faults.retain(|fault| {
            let guessed = syntax.iter().any(|broken| broken.line == fault.line);
            let displaced = broken_header.is_some_and(|header| fault.line >= header)
                && [UNKNOWN_KEY, UNKNOWN_SECTION].contains(&fault.problem.as_str());
            !guessed && !displaced
        });
        faults.extend(syntax);
    }
    if faults.is_empty() { Ok(config) } else { Err(ConfigErrors::new(faults)) }
}

const UNKNOWN_KEY: &str = "unknown key";
const UNKNOWN_SECTION: &str = "unknown section";

/// Where each key of the file has its value, `None` where that value was not taken.
type Places = HashMap<&'static str, Option<Range<usize>>>;

struct KeyReader<'a> {
    source: Source<'a>,
    faults: Vec<Fault>,
}

impl KeyReader<'_> {
    /// In a file that is not `complete` rules are not judged as a whole: what seems to be missing
    /// may stand on a line that could not be read.
    fn document(&mut self, root: &DeTable<'_>, config: &mut Config, complete: bool) {
        let mut places = Places::new();
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
        self.derive_defaults(config, &places);
        self.check_together(config, &places);
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
            places.insert(key.path, read.is_ok().then(|| node.span()));
            for Wrong { span, why } in read.err().unwrap_or_default() {
                let (problem, remedy) = match why {
                    Rejection::Because(problem, remedy) => (problem, remedy),
                    Rejection::OutOfRange => {
                        (format!("expected {}", key.range), self.range_remedy(key, node))
                    }
                };
                self.fault_at(key.path, span.unwrap_or(node.span()), problem, remedy);
            }
        }
    }

    fn rules(&mut self, place: Range<usize>, node: &Node<'_>, config: &mut Config, complete: bool) {
        let mut names = HashSet::new();
        let tables = node.get_ref().as_array().and_then(|items| {
            let tables = items.iter().map(|item| Some((item.get_ref().as_table()?, item.span())));
            tables.collect::<Option<Vec<_>>>()
        });
        let Some(tables) = tables else {
            let remedy = "write [[discover]] on a line of its own and the rule's keys below";
            return self.fault(TABLE, None, place, "is a list of rules", remedy);
        };
        for (index, (table, place)) in tables.iter().enumerate() {
            if index == MAX_RULES {
                let problem = format!("is one rule more than the {MAX_RULES} that are taken");
                let remedy = "join rules, for example with \"a|b\" in a pattern";
                return self.fault(TABLE, None, place.clone(), problem, remedy);
            }
            self.rule(table, place, &mut names, config, complete);
        }
    }

    fn rule(
        &mut self,
        table: &DeTable<'_>,
        rule: &Range<usize>,
        names: &mut HashSet<Label>,
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
        match draft.finish(names) {
            Ok(rule) => config.discover.push(rule),
            Err(faults) => {
                for (key, problem, remedy) in faults {
                    let path = key.map_or(TABLE.to_owned(), |key| format!("{TABLE}.{key}"));
                    match places.get(path.as_str()) {
                        Some(Some(place)) => self.fault_at(path, place.clone(), problem, remedy),
                        _ => self.fault(path, None, rule.clone(), problem, remedy),
                    }
                }
            }
        }
    }

    /// What to do about a value that is not in the key's range: mind the quotes if they are
    /// all that is wrong.
    fn range_remedy<R: Default>(&self, key: &Key<R>, node: &Node<'_>) -> String {
        let written = self.source.text.get(node.span()).unwrap_or("");
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
    fn derive_defaults(&mut self, config: &mut Config, places: &Places) {
        if !places.contains_key("grpc.listen") {
            let socket = default_socket(&config.daemon.runtime_dir);
            let fits = socket_length(socket.as_os_str().len());
            config.grpc.listen = vec![socket];
            if let (Some(Some(place)), Err(Rejection::Because(problem, _))) =
                (places.get("daemon.runtime_dir"), fits)
            {
                let problem = format!("{problem} (<runtime_dir>/lrsd.sock)");
                let remedy = "choose a shorter directory, or set grpc.listen";
                self.fault_at("daemon.runtime_dir", place.clone(), problem, remedy);
            }
        }
        let is_the_services = config.daemon.runtime_dir == Config::default().daemon.runtime_dir;
        if !places.contains_key("history.directory") && !is_the_services {
            config.history.directory.clear();
        }
        if !places.contains_key("guard.memory_resume") {
            config.guard.memory_resume = super::default_resume(config.guard.memory_reserve);
        }
    }

    /// Rules over two keys. A rule is left out where one of the values was refused.
    fn check_together(&mut self, config: &Config, places: &Places) {
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
            // One of the two is in the file: the defaults are in order.
            let (path, place, problem) = match (broken, places.get(small), places.get(large)) {
                (false, ..) | (_, Some(None), _) | (_, _, Some(None)) | (_, None, None) => continue,
                (_, _, Some(Some(place))) => {
                    (large, place, format!("is below {small} = {}", config.show(small)))
                }
                (_, Some(Some(place)), None) => {
                    (small, place, format!("is above {large} = {}", config.show(large)))
                }
            };
            let remedy = format!("set {large} to {small} or more");
            self.fault_at(path, place.clone(), problem, remedy);
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

    /// A fault at `place`, with the value `found`.
    fn fault(
        &mut self,
        key: impl Into<String>,
        found: Option<&Node<'_>>,
        place: Range<usize>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let found = found.map(|node| self.source.quote(node.span()));
        let fault = self.source.fault(key.into(), found, place, problem.into(), remedy.into());
        self.faults.push(fault);
    }

    /// A fault of the value at `place`.
    fn fault_at(
        &mut self,
        key: impl Into<String>,
        place: Range<usize>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let found = Some(self.source.quote(place.clone()));
        let fault = self.source.fault(key.into(), found, place, problem.into(), remedy.into());
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
