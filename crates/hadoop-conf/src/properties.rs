//! Hadoop's configuration files: `<configuration>` of properties, as
//! `org.apache.hadoop.conf.Configuration` reads them (3.4).
//!
//! Kept of its rules: a later file overrides an earlier one unless the property was `final`
//! there; `<xi:include>` with a file and `<xi:fallback>`; `${name}` stands for another property.
//! `${env.NAME:-default}` is its default. Not kept: `${env.NAME}` and system properties such as `${user.name}` are those of a Java
//! process that LRS is not, so they are reported as unknown instead of guessed; includes of
//! anything but files, and entities declared in a DTD, are errors.
//!
//! Sizes are bounded: the files are an administrator's, but an include may name any file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use lrs_host::trust::{open_regular, read_whole};
use quick_xml::Reader;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesRef, BytesStart, Event};

use crate::trust::Trust;

/// Largest file; the defaults Hadoop comes with are 250 KB.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Most files, includes counted.
const MAX_FILES: usize = 64;
/// Deepest nesting of includes; deeper is a circle.
const MAX_INCLUDES: usize = 8;
/// Deepest nesting of variables, `Configuration.MAX_SUBST`; deeper is a circle.
const MAX_DEPTH: usize = 20;
/// Most variables replaced in one value: those that name two others each would double for ever.
const MAX_EXPANSIONS: usize = 1000;

/// Why a configuration cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ConfError {
    /// The file is not there or not readable.
    #[error("cannot read {path}: {source}; {advice}", path = path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// It is not XML, or not Hadoop's.
    #[error("{path}, line {line}: {what}", path = path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong there.
        what: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Property {
    value: String,
    is_final: bool,
    from: PathBuf,
}

/// The properties of some files, later ones over earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    set: BTreeMap<String, Property>,
    defaults: &'static [(&'static str, &'static str)],
    trust: Trust,
    files: usize,
}

/// A value with its variables replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expanded {
    /// Unknown variables stand in it as they were written.
    pub text: String,
    /// The first variable that is no property, without `${}`.
    pub unknown: Option<String>,
    /// Where the value is written; `None` for a default.
    pub from: Option<PathBuf>,
}

/// How far the expansion of a value has come.
struct Expansion {
    left: usize,
    unknown: Option<String>,
}

impl Properties {
    /// Nothing set; `defaults` answer for keys that no file has. `trust`: which files are read.
    pub fn new(defaults: &'static [(&'static str, &'static str)], trust: Trust) -> Properties {
        Properties { set: BTreeMap::new(), defaults, trust, files: 0 }
    }

    /// Adds the properties of a file. `Ok(false)`: there is no such file.
    pub fn add(&mut self, path: &Path) -> Result<bool, ConfError> {
        match read(path, &self.trust) {
            Ok(text) => self.parse(path, &text, 0).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(unreadable(path, source)),
        }
    }

    /// Adds the properties in `text`; `path` is what errors and includes refer to.
    pub fn add_text(&mut self, path: &Path, text: &str) -> Result<(), ConfError> {
        self.parse(path, text, 0)
    }

    /// The value of `key`, variables replaced. Blanks around it are dropped, as those of Hadoop's
    /// getters do that are used for what LRS asks.
    pub fn get(&self, key: &str) -> Option<Expanded> {
        let written = self.written(key)?;
        let mut expansion = Expansion { left: MAX_EXPANSIONS, unknown: None };
        let text = self.expand(written, 0, &mut expansion);
        let unknown = expansion.unknown;
        let from = self.set.get(key).map(|property| property.from.clone());
        Some(Expanded { text: text.trim().to_owned(), unknown, from })
    }

    fn written(&self, key: &str) -> Option<&str> {
        let default = || self.defaults.iter().find(|(name, _)| *name == key).map(|(_, v)| *v);
        self.set.get(key).map(|property| property.value.as_str()).or_else(default)
    }

    fn expand(&self, text: &str, depth: usize, expansion: &mut Expansion) -> String {
        let mut whole = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, name, after)) = next_variable(rest) {
            whole.push_str(before);
            match self.written(name) {
                Some(value) if depth < MAX_DEPTH && expansion.left > 0 => {
                    expansion.left -= 1;
                    whole.push_str(&self.expand(value, depth + 1, expansion));
                }
                None if let Some(default) = default_of_environment(name) => {
                    whole.push_str(default);
                }
                _ => {
                    expansion.unknown.get_or_insert_with(|| name.to_owned());
                    whole.push_str(&format!("${{{name}}}"));
                }
            }
            rest = after;
        }
        whole.push_str(rest);
        whole
    }

    fn parse(&mut self, path: &Path, text: &str, depth: usize) -> Result<(), ConfError> {
        self.files += 1;
        if self.files > MAX_FILES {
            let what = format!("more than {MAX_FILES} files are included; merge some of them");
            return Err(ConfError::Malformed { path: path.to_owned(), line: 1, what });
        }
        Parser { path, text, depth, reader: Reader::from_str(text), open: Vec::new(), begun: false }
            .run(self)
    }

    fn put(&mut self, name: String, property: Property) {
        // As Hadoop does: what is final stays, without an error.
        if self.set.get(&name).is_none_or(|set| !set.is_final) {
            self.set.insert(name, property);
        }
    }
}

/// What `${env.NAME:-default}` and `${env.NAME-default}` are where NAME is not set. Whether the
/// NodeManager has it set is not known; whoever writes a default mostly means it.
fn default_of_environment(name: &str) -> Option<&str> {
    name.strip_prefix("env.")?.split_once('-').map(|(_, default)| default)
}

/// What stands before the first `${name}`, the name, and what stands after.
fn next_variable(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let start = from + text.get(from..)?.find("${")?;
        let inner = text.get(start + 2..)?;
        let end = inner.find(|c: char| matches!(c, '}' | '$') || c.is_whitespace())?;
        if end > 0 && inner.as_bytes().get(end) == Some(&b'}') {
            return Some((text.get(..start)?, inner.get(..end)?, inner.get(end + 1..)?));
        }
        from = start + 2;
    }
}

fn read(path: &Path, trust: &Trust) -> io::Result<String> {
    let file = open_regular(path)?;
    if let Some(objection) = trust.objection(&file.metadata()?) {
        return Err(io::Error::other(objection));
    }
    let text = read_whole(file, MAX_FILE_BYTES)?;
    String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn unreadable(path: &Path, source: io::Error) -> ConfError {
    let advice = match source.kind() {
        io::ErrorKind::PermissionDenied => "let the users that lrsd and lrs-yarn run as read it",
        io::ErrorKind::NotFound => "correct the include, or give it an xi:fallback",
        io::ErrorKind::InvalidData => "save it as UTF-8",
        _ => "see whether Hadoop itself can read it",
    };
    ConfError::Io { path: path.to_owned(), source, advice }
}

/// One file being read.
struct Parser<'a> {
    path: &'a Path,
    text: &'a str,
    depth: usize,
    reader: Reader<&'a [u8]>,
    /// The elements around what is read next.
    open: Vec<Element>,
    /// Whether the outermost element has come.
    begun: bool,
}

/// An element without its end yet.
enum Element {
    Configuration,
    Property(Draft),
    /// `name`, `value`, `final` or any other element of a property, and its text so far.
    Field(String, String),
    /// An include of a missing file, and whether it has a fallback.
    Include(PathBuf, bool),
    Fallback,
    /// Within a description, mostly.
    Markup,
}

#[derive(Default)]
struct Draft {
    name: Option<String>,
    value: Option<String>,
    is_final: bool,
}

impl Parser<'_> {
    fn run(mut self, properties: &mut Properties) -> Result<(), ConfError> {
        loop {
            let event = match self.reader.read_event() {
                Ok(event) => event,
                Err(error) => return Err(self.error(error.to_string())),
            };
            match event {
                Event::Start(tag) => self.start(&tag, properties)?,
                Event::Empty(tag) => {
                    let before = self.open.len();
                    self.start(&tag, properties)?;
                    if self.open.len() > before {
                        self.end(properties)?;
                    }
                }
                Event::End(_) => self.end(properties)?,
                Event::Text(text) => self.append(&text.xml_content(XmlVersion::default())),
                Event::CData(text) => self.append(&text.into_inner()),
                Event::GeneralRef(reference) => {
                    let text = self.entity(&reference)?;
                    self.append(text.encode_utf8(&mut [0; 4]));
                }
                Event::Eof if self.open.is_empty() && self.begun => return Ok(()),
                Event::Eof if self.open.is_empty() => {
                    return Err(self.error("there is no <configuration> in it".into()));
                }
                Event::Eof => return Err(self.error("it ends in the middle of an element".into())),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
            }
        }
    }

    fn start(
        &mut self,
        tag: &BytesStart<'_>,
        properties: &mut Properties,
    ) -> Result<(), ConfError> {
        let name = tag.local_name().into_inner().to_owned();
        let element = match (self.open.last_mut(), name.as_str()) {
            (None | Some(Element::Configuration | Element::Fallback), "configuration") => {
                Element::Configuration
            }
            (Some(Element::Configuration | Element::Fallback), "property") => {
                Element::Property(self.draft(tag)?)
            }
            (Some(Element::Configuration | Element::Fallback), "include") => {
                match self.include(tag, properties)? {
                    Some(missing) => Element::Include(missing, false),
                    None => return self.skip(tag),
                }
            }
            (Some(Element::Include(_, has_fallback)), "fallback") => {
                *has_fallback = true;
                Element::Fallback
            }
            (Some(Element::Property(_)), _) => Element::Field(name, String::new()),
            (Some(Element::Field(..) | Element::Markup), _) => Element::Markup,
            (None, _) => {
                return Err(self.error(format!(
                    "the outermost element is <{name}>, not <configuration>: this is no file of Hadoop's"
                )));
            }
            _ => return Err(self.error(format!("<{name}> is not expected here"))),
        };
        self.begun = true;
        self.open.push(element);
        Ok(())
    }

    /// What a start tag opened is not wanted: the file was included instead of its fallback.
    fn skip(&mut self, tag: &BytesStart<'_>) -> Result<(), ConfError> {
        // An empty element has no end to read to.
        let end = usize::try_from(self.reader.buffer_position()).unwrap_or(usize::MAX);
        if self.text.get(..end).is_some_and(|read| read.ends_with("/>")) {
            return Ok(());
        }
        match self.reader.read_to_end(tag.name()) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.error(error.to_string())),
        }
    }

    fn end(&mut self, properties: &mut Properties) -> Result<(), ConfError> {
        match self.open.pop() {
            Some(Element::Property(Draft { name: Some(name), value: Some(value), is_final })) => {
                let from = self.path.to_owned();
                properties.put(name, Property { value, is_final, from });
            }
            Some(Element::Field(field, text)) => {
                if let Some(Element::Property(draft)) = self.open.last_mut() {
                    match field.as_str() {
                        "name" => draft.name = Some(text.trim().to_owned()),
                        "value" => draft.value = Some(text),
                        "final" => draft.is_final = text.trim() == "true",
                        _ => {}
                    }
                }
            }
            Some(Element::Include(missing, false)) => {
                return Err(unreadable(&missing, io::ErrorKind::NotFound.into()));
            }
            // A property without a name or a value sets nothing, as in Hadoop.
            Some(_) | None => {}
        }
        Ok(())
    }

    /// Properties may be written as attributes too.
    fn draft(&self, tag: &BytesStart<'_>) -> Result<Draft, ConfError> {
        let mut draft = Draft::default();
        for (name, value) in self.attributes(tag)? {
            match name.as_str() {
                "name" => draft.name = Some(value.trim().to_owned()),
                "value" => draft.value = Some(value),
                "final" => draft.is_final = value.trim() == "true",
                _ => {}
            }
        }
        Ok(draft)
    }

    fn attributes(&self, tag: &BytesStart<'_>) -> Result<Vec<(String, String)>, ConfError> {
        let mut found = Vec::new();
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|error| self.error(error.to_string()))?;
            let value = attribute
                .normalized_value(XmlVersion::default())
                .map_err(|error| self.error(error.to_string()))?;
            found.push((attribute.key.local_name().into_inner().to_owned(), value.into_owned()));
        }
        Ok(found)
    }

    /// The path of the file where there is none.
    fn include(
        &mut self,
        tag: &BytesStart<'_>,
        properties: &mut Properties,
    ) -> Result<Option<PathBuf>, ConfError> {
        let attributes = self.attributes(tag)?;
        let Some((_, href)) = attributes.into_iter().find(|(name, _)| name == "href") else {
            return Err(self.error("an include has no href".into()));
        };
        let file = href.strip_prefix("file://").or_else(|| href.strip_prefix("file:"));
        let file = file.unwrap_or(&href);
        if file.contains("://") {
            return Err(self.error(format!("the include {href:?} is no file; copy it to one")));
        }
        if self.depth >= MAX_INCLUDES {
            return Err(self.error(format!("includes nest deeper than {MAX_INCLUDES}: a circle?")));
        }
        let path = self.path.parent().unwrap_or(Path::new("/")).join(file);
        match read(&path, &properties.trust) {
            Ok(text) => properties.parse(&path, &text, self.depth + 1).map(|()| None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(path)),
            Err(source) => Err(unreadable(&path, source)),
        }
    }

    fn append(&mut self, more: &str) {
        if let Some(Element::Field(_, text)) = self.open.last_mut() {
            text.push_str(more);
        }
    }

    fn entity(&self, reference: &BytesRef<'_>) -> Result<char, ConfError> {
        match reference.resolve_char_ref() {
            Ok(Some(character)) => return Ok(character),
            Ok(None) => {}
            Err(error) => return Err(self.error(error.to_string())),
        }
        match reference.xml_content(XmlVersion::default()).as_ref() {
            "amp" => Ok('&'),
            "lt" => Ok('<'),
            "gt" => Ok('>'),
            "quot" => Ok('"'),
            "apos" => Ok('\''),
            name => Err(self.error(format!("the entity &{name}; is none of XML's own"))),
        }
    }

    fn error(&self, what: String) -> ConfError {
        let end = self.reader.buffer_position().max(self.reader.error_position());
        let end = usize::try_from(end).unwrap_or(usize::MAX).min(self.text.len());
        let read = self.text.as_bytes().get(..end).unwrap_or_default();
        let line = 1 + read.iter().filter(|&&byte| byte == b'\n').count();
        ConfError::Malformed { path: self.path.to_owned(), line, what }
    }
}

#[cfg(test)]
mod tests;
