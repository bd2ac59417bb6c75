//! A rule of `[[discover]]` as data: checked expressions and templates.
//!
//! What a rule means is in lrsd (`src/discover/rules.rs`). Expressions are compiled here, because a
//! file with one that cannot be compiled is refused.

use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize, Serializer};

use lrs_core::model::{Label, Priority, Standing};

/// One `[[discover]]` table, checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// What the history calls it; no other rule has it.
    pub name: Label,
    /// On the arguments joined by single spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Pattern>,
    /// On the values of these variables; all must be there.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "show_environment")]
    pub environment: Vec<(String, Pattern)>,
    /// On the whole path of the process's group or of one above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<Pattern>,
    /// On the whole path of a process's group: one in such a group is not the task's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub except: Option<Pattern>,
    /// The users of the processes that count, by effective uid; empty: any user.
    #[serde(rename = "user", skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<u32>,
    /// The task's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Template>,
    /// The job it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<Template>,
    /// What kind of task of that job it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Template>,
    /// How it is taken.
    pub attach: Means,
    /// What kind of place it needs.
    pub standing: Standing,
    /// Its place among others.
    pub priority: Priority,
}

impl Rule {
    /// Every pattern it has.
    pub fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        let values = self.environment.iter().map(|(_, pattern)| pattern);
        self.command.iter().chain(&self.cgroup).chain(values)
    }

    /// Whether processes in the group at this path are not the task's.
    pub fn excepts(&self, path: &[u8]) -> bool {
        self.except.as_ref().is_some_and(|pattern| pattern.regex().is_match(path))
    }

    /// Whether every part of the task's name that varies is from the path of its cgroup. Names
    /// from command lines and environments are the user's choice, so nothing that is reported by
    /// such a name may change a priority.
    pub fn is_named_by_cgroup(&self) -> bool {
        let from_cgroup = |group: &str| {
            self.cgroup.as_ref().is_some_and(|pattern| pattern.names().any(|name| name == group))
                && !self
                    .command
                    .iter()
                    .chain(self.environment.iter().map(|(_, p)| p))
                    .any(|pattern| pattern.names().any(|name| name == group))
        };
        self.id.as_ref().is_some_and(|id| {
            id.parts().iter().all(|part| match part {
                Part::Literal(_) => true,
                Part::Group(group) => from_cgroup(group),
            })
        })
    }
}

/// `attach` of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Means {
    /// The process and its descendants move into a group of LRS's.
    Own,
    /// The weights of the group that `cgroup` matched are edited.
    InPlace,
}

/// A regular expression, equal to another by its text.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    regex: Regex,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

/// Most memory one compiled expression may take, and again what its search may keep: 64 rules of
/// several expressions stay within what a daemon may use.
const MAX_COMPILED: usize = 1 << 20;

impl Pattern {
    /// Longest expression in bytes.
    pub const MAX_BYTES: usize = 4096;

    /// An expression that may match anywhere in the text; the error says what is wrong with it.
    pub fn anywhere(text: &str) -> Result<Pattern, String> {
        Pattern::compile(text, text)
    }

    /// An expression that has to match the whole text; the error as above.
    pub fn whole(text: &str) -> Result<Pattern, String> {
        // By itself first: what closes the group that is put around it is an error of its own.
        Pattern::compile(text, text)?;
        Pattern::compile(text, &format!(r"\A(?:{text})\z"))
    }

    fn compile(text: &str, regex: &str) -> Result<Pattern, String> {
        if text.is_empty() {
            return Err(String::from("is empty, which matches everything"));
        }
        if text.len() > Pattern::MAX_BYTES {
            return Err(format!("has {} bytes; at most 4096 are taken", text.len()));
        }
        let built =
            RegexBuilder::new(regex).size_limit(MAX_COMPILED).dfa_size_limit(MAX_COMPILED).build();
        match built {
            Ok(regex) => Ok(Pattern { text: text.to_owned(), regex }),
            Err(regex::Error::CompiledTooBig(_)) => {
                Err(String::from("is too large once compiled; its repetitions are too many"))
            }
            Err(error) => {
                // The last line of several is the reason; those before point at the place.
                let shown = error.to_string();
                let reason = shown.lines().last().unwrap_or_default();
                let reason = reason.strip_prefix("error: ").unwrap_or(reason);
                Err(format!("is no regular expression: {reason}"))
            }
        }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Names of its groups.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.regex.capture_names().flatten()
    }

    /// To match with.
    pub fn regex(&self) -> &Regex {
        &self.regex
    }
}

/// A text with `${name}` where the group of that name goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text that stands for itself.
    Literal(String),
    /// What the group of this name caught.
    Group(String),
}

impl Template {
    /// Reads a template. A `$` without a brace after it stands for itself. The error says what is
    /// wrong.
    pub fn new(text: &str) -> Result<Template, String> {
        if text.is_empty() || text.len() > Label::MAX_BYTES {
            return Err(format!("has {} bytes; a template has 1 to 256", text.len()));
        }
        if text.chars().any(char::is_control) {
            return Err(String::from("has a control character"));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else {
                return Err(String::from("has a \"${\" without a \"}\""));
            };
            if !before.is_empty() {
                parts.push(Part::Literal(before.to_owned()));
            }
            parts.push(Part::Group(name.to_owned()));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Literal(rest.to_owned()));
        }
        Ok(Template { text: text.to_owned(), parts })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Names it uses.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Group(name) => Some(name.as_str()),
            Part::Literal(_) => None,
        })
    }

    /// In their order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// As a table.
pub(super) fn show_environment<S: Serializer>(
    variables: &[(String, Pattern)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(variables.iter().map(|(name, pattern)| (name, pattern)))
}
