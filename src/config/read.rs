//! From the text of a file to a checked [`Config`], or to everything that is wrong with it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::discover::{self, MAX_RULES, ReadRule, RuleFault, RuleReader};
use super::error::{ConfigErrors, Fault, excerpt};
use super::schema::{self, Key, REMOVED, SECTIONS, Wrong};
use super::source::{Source, bare, nearest};
use super::value::{Node, Rejection, socket_length};
use super::{Auto, Config, MemoryAmount, default_socket};

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

/// The text of a file of settings; `None` when it is absent and may be.
pub(crate) fn read_text(path: &Path, absent: Absent) -> Result<Option<String>, ConfigErrors> {
    let whole_file = |problem: String, remedy: &str| {
        ConfigErrors::new(vec![Fault {
            file: path.to_owned(),
            line: None,
            column: None,
            key: None,
            found: None,
            problem,
            remedy: remedy.to_owned(),
        }])
    };
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
/// verdict and the keys that differ from their defaults, and one for each key that is ignored.
pub fn check_file(path: &Path) -> Result<String, ConfigErrors> {
    let config = load(path, Absent::IsError)?;
    let mut changed: Vec<String> = Config::default()
        .changed_keys(&config)
        .iter()
        .filter_map(|changed| schema::key(changed.key))
        .map(|key| format!("{} = {}", key.path, (key.write)(&config)))
        .collect();
    let rules = config.discover.iter();
    changed.extend(rules.map(|rule| format!("[[discover]] {}", excerpt(rule.name.as_str()))));
    let file = excerpt(&path.to_string_lossy());
    let verdict = if changed.is_empty() {
        format!("{file}: valid; every key has its default")
    } else {
        format!("{file}: valid; not default: {}", changed.join(", "))
    };
    let warnings = config.ignored.iter().map(|ignored| format!("\nwarning: {ignored}"));
    Ok(std::iter::once(verdict).chain(warnings).collect())
}

/// See [`Config::from_toml`].
pub(super) fn from_toml(text: &str, file: &Path) -> Result<Config, ConfigErrors> {
    let (root, syntax) = DeTable::parse_recoverable(text);
    let mut reader = Reader {
        source: Source::new(text, file),
        config: Config::default(),
        faults: Vec::new(),
        set: HashMap::new(),
        complete: syntax.is_empty(),
    };
    reader.document(root.get_ref());
    reader.derive_defaults();
    reader.check_together();
    let mut faults = reader.faults;
    if !syntax.is_empty() {
        let syntax: Vec<Fault> = syntax
            .iter()
            .map(|error| reader.source.syntax(error.message(), error.span()))
            .collect();
        // What the parser made of a broken line is its guess, and so is the section of the
        // keys that follow a broken header.
        let broken_header =
            syntax.iter().map(|fault| fault.line).find(|&line| reader.source.is_header(line));
        faults.retain(|fault| {
            let guessed = syntax.iter().any(|broken| broken.line == fault.line);
            let displaced = broken_header.is_some_and(|header| fault.line >= header)
                && [UNKNOWN_KEY, UNKNOWN_SECTION].contains(&fault.problem.as_str());
            !guessed && !displaced
        });
        faults.extend(syntax);
    }
    if faults.is_empty() { Ok(reader.config) } else { Err(ConfigErrors::new(faults)) }
}

const UNKNOWN_KEY: &str = "unknown key";
const UNKNOWN_SECTION: &str = "unknown section";

struct Reader<'a> {
    source: Source<'a>,
    config: Config,
    faults: Vec<Fault>,
    /// Where each key of the file has its value, `None` where that value was not taken.
    set: HashMap<&'static str, Option<Range<usize>>>,
    /// Whether every line could be read: else what seems to be missing may stand there.
    complete: bool,
}

impl Reader<'_> {
    fn document(&mut self, root: &DeTable<'_>) {
        for (name, node) in root {
            let (name, place) = (name.get_ref().as_ref(), name.span());
            if name == discover::TABLE {
                self.rules(place, node);
            } else if !SECTIONS.iter().any(|section| section.name == name) {
                self.unknown_at_top(name, place, node);
            } else if let Some(table) = node.get_ref().as_table() {
                self.section(name, table);
            } else {
                let found = self.source.quote(node.span());
                self.fault(
                    bare(name),
                    Some(found).filter(|_| !node.get_ref().is_array()),
                    place,
                    String::from("is a section"),
                    format!("write [{name}] on a line of its own and its keys below"),
                );
            }
        }
    }

    fn rules(&mut self, place: Range<usize>, node: &Node<'_>) {
        let items = node.get_ref().as_array().map_or(&[][..], |items| items);
        let tables: Vec<_> = items
            .iter()
            .filter_map(|item| Some((item.get_ref().as_table()?, item.span())))
            .collect();
        if !node.get_ref().is_array() || tables.len() != items.len() {
            self.fault(
                discover::TABLE.to_owned(),
                None,
                place,
                String::from("is a list of rules"),
                String::from("write [[discover]] on a line of its own and the rule's keys below"),
            );
            return;
        }
        let mut rules = RuleReader::new(self.complete);
        for (index, (table, place)) in tables.into_iter().enumerate() {
            if index == MAX_RULES {
                let problem = format!("is one rule more than the {MAX_RULES} that are taken");
                let remedy = String::from("join rules, for example with \"a|b\" in a pattern");
                self.fault(discover::TABLE.to_owned(), None, place, problem, remedy);
                return;
            }
            let read = rules.read(table);
            self.rule(read, place);
        }
    }

    fn rule(&mut self, read: ReadRule, rule: Range<usize>) {
        let path = |key: &str| format!("{}.{key}", discover::TABLE);
        for (key, Wrong { span, why }, whole) in read.wrong {
            let place = span.unwrap_or(whole);
            let found = Some(self.source.quote(place.clone()));
            let (problem, remedy) = match why {
                Rejection::Because(problem, remedy) => (problem, remedy),
                Rejection::OutOfRange => {
                    (format!("expected {}", key.range), String::from("correct it"))
                }
            };
            self.fault(path(key.name), found, place, problem, remedy);
        }
        for (name, place) in read.unknown {
            let names: Vec<String> = discover::KEYS.iter().map(|key| key.name.to_owned()).collect();
            let remedy = match nearest(&name, &names) {
                Some(near) => format!("did you mean {}?", path(&near)),
                None => format!("the keys of [[discover]] are {}", names.join(", ")),
            };
            self.fault(path(&bare(&name)), None, place, UNKNOWN_KEY.to_owned(), remedy);
        }
        for RuleFault { key, place, problem, remedy } in read.faults {
            let found = place.clone().map(|place| self.source.quote(place));
            let path = key.map_or_else(|| discover::TABLE.to_owned(), path);
            self.fault(path, found, place.unwrap_or_else(|| rule.clone()), problem, remedy);
        }
        self.config.discover.extend(read.rule);
    }

    fn section(&mut self, section: &str, table: &DeTable<'_>) {
        for (name, node) in table {
            let path = format!("{section}.{}", bare(name.get_ref()));
            if let Some(key) = schema::key(&path) {
                self.key(key, node);
            } else if let Some((_, remedy)) = REMOVED.iter().find(|(key, _)| *key == path) {
                let (found, problem) = (self.found(node), String::from("is ignored"));
                let fault = self.source.fault(path, found, name.span(), problem, (*remedy).into());
                self.config.ignored.push(fault);
            } else {
                let found = self.found(node);
                let remedy = unknown_remedy(section, name.get_ref());
                self.fault(path, found, name.span(), UNKNOWN_KEY.to_owned(), remedy);
            }
        }
    }

    fn key(&mut self, key: &'static Key, node: &Node<'_>) {
        match (key.read)(node, &mut self.config) {
            Ok(()) => {
                self.set.insert(key.path, Some(node.span()));
            }
            Err(wrong) => {
                self.set.insert(key.path, None);
                for Wrong { span, why } in wrong {
                    let place = span.unwrap_or(node.span());
                    let found = Some(self.source.quote(place.clone()));
                    let path = key.path.to_owned();
                    match why {
                        Rejection::OutOfRange => {
                            let remedy = self.range_remedy(key, node);
                            self.fault(
                                path,
                                found,
                                place,
                                format!("expected {}", key.range),
                                remedy,
                            );
                        }
                        Rejection::Because(problem, remedy) => {
                            self.fault(path, found, place, problem, remedy);
                        }
                    }
                }
            }
        }
    }

    /// What to do about a value that is not in the key's range: mind the quotes if they are
    /// all that is wrong.
    fn range_remedy(&self, key: &Key, node: &Node<'_>) -> String {
        let default = (key.write)(&Config::default());
        let written = self.source.text.get(node.span()).unwrap_or("");
        let (other, advice) = match node.get_ref() {
            DeValue::String(inner) => (inner.to_string(), "remove the quotes"),
            _ => (format!("\"{written}\""), "put it in quotes"),
        };
        let taken = other.len() < 100
            && DeValue::parse(&other)
                .is_ok_and(|value| (key.read)(&value, &mut Config::default()).is_ok());
        if taken {
            return advice.to_owned();
        }
        format!("correct it, or remove the key for the default {default}")
    }

    /// Defaults that follow from other keys.
    fn derive_defaults(&mut self) {
        if !self.set.contains_key("grpc.listen") {
            let socket = default_socket(&self.config.daemon.runtime_dir);
            let length = socket.as_os_str().len();
            self.config.grpc.listen = vec![socket];
            let place = self.place("daemon.runtime_dir");
            if let (Some(place), Err(Rejection::Because(problem, _))) =
                (place, socket_length(length))
            {
                let found = Some(self.source.quote(place.clone()));
                self.fault(
                    String::from("daemon.runtime_dir"),
                    found,
                    place,
                    format!("{problem} (<runtime_dir>/lrsd.sock)"),
                    String::from("choose a shorter directory, or set grpc.listen"),
                );
            }
        }
        if !self.set.contains_key("guard.memory_resume") {
            self.config.guard.memory_resume =
                super::default_resume(self.config.guard.memory_reserve);
        }
    }

    /// Rules over two keys. A rule is left out where one of the values was refused.
    fn check_together(&mut self) {
        let Config { slots, classify, guard, .. } = &self.config;
        let below_base = matches!(
            (slots.passive, slots.passive_max),
            (Auto::Fixed(base), Auto::Fixed(max)) if max < base
        );
        let crossed = classify.io_below > classify.cpu_above;
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
        ] {
            let refused = [small, large].iter().any(|&path| self.set.get(path) == Some(&None));
            if broken && !refused {
                self.not_in_order(small, large);
            }
        }
    }

    fn not_in_order(&mut self, small: &'static str, large: &'static str) {
        let value =
            |path| schema::key(path).map_or_else(String::new, |key| (key.write)(&self.config));
        let (small_value, large_value) = (value(small), value(large));
        // One of the two is in the file: the defaults are in order.
        let (path, found, problem) = match self.place(large) {
            Some(place) => (large, place, format!("is below {small} = {small_value}")),
            None => (
                small,
                self.place(small).unwrap_or(0..0),
                format!("is above {large} = {large_value}"),
            ),
        };
        let quoted = Some(self.source.quote(found.clone()));
        let remedy = format!("set {large} to {small} or more");
        self.fault(path.to_owned(), quoted, found, problem, remedy);
    }

    fn place(&self, path: &str) -> Option<Range<usize>> {
        self.set.get(path).cloned().flatten()
    }

    fn unknown_at_top(&mut self, name: &str, place: Range<usize>, node: &Node<'_>) {
        let is_section = node.get_ref().is_table() || node.get_ref().is_array();
        let (found, problem, candidates): (_, _, Vec<String>) = if is_section {
            let names = SECTIONS.iter().map(|section| section.name);
            let names = names.chain([discover::TABLE]);
            (None, UNKNOWN_SECTION, names.map(str::to_owned).collect())
        } else {
            let keys = schema::keys().filter(|key| key.name() == name);
            (self.found(node), UNKNOWN_KEY, keys.map(|key| key.path.to_owned()).collect())
        };
        let remedy = match (is_section, nearest(name, &candidates), candidates.first()) {
            (true, Some(near), _) if near == discover::TABLE => {
                String::from("did you mean [[discover]]?")
            }
            (true, Some(near), _) => format!("did you mean [{near}]?"),
            (true, None, _) => format!("the sections are {}", section_names()),
            (false, _, Some(path)) => {
                let section = path.split('.').next().unwrap_or_default();
                format!("did you mean {path}? put it below [{section}]")
            }
            (false, _, None) => format!("every key stands in one of {}", section_names()),
        };
        self.fault(bare(name), found, place, problem.to_owned(), remedy);
    }

    /// The value as it stands in the file; tables are not quoted.
    fn found(&self, node: &Node<'_>) -> Option<String> {
        (!node.get_ref().is_table()).then(|| self.source.quote(node.span()))
    }

    fn fault(
        &mut self,
        key: String,
        found: Option<String>,
        place: Range<usize>,
        problem: String,
        remedy: String,
    ) {
        self.faults.push(self.source.fault(key, found, place, problem, remedy));
    }
}

fn section_names() -> String {
    let sections = SECTIONS.iter().map(|section| format!("[{}]", section.name));
    sections.chain([String::from("[[discover]]")]).collect::<Vec<_>>().join(", ")
}

/// What the writer of an unknown key may have meant: a like name in the section, the same or
/// a like name elsewhere, or else the names there are.
fn unknown_remedy(section: &str, name: &str) -> String {
    let keys = |here: bool| schema::keys().filter(move |key| (key.section() == section) == here);
    let names = |here| keys(here).map(|key| key.name().to_owned()).collect::<Vec<_>>();
    let near_here = nearest(name, &names(true));
    let near = near_here.map(|near| format!("{section}.{near}")).or_else(|| {
        let near = nearest(name, &names(false))?;
        keys(false).find(|key| key.name() == near).map(|key| key.path.to_owned())
    });
    match near {
        Some(path) => format!("did you mean {path}?"),
        None => format!("the keys of [{section}] are {}", names(true).join(", ")),
    }
}
