//! `[[discover]]` rules: what the operator says of a process that is to be a task.
//!
//! A rule is a set of regular expressions, all of which must match, and templates that make
//! labels of what their named groups caught. The first rule of the file that matches a process
//! decides. Everything here is pure; what a rule wants to know of a process it asks of a
//! [`Subject`], cheapest first, so that an environment is read only where all else matched.
//!
//! Expressions work on bytes, since command lines and environments need not be UTF-8, and take
//! time linear in the text (crate `regex`), since others write that text. A value caught that
//! makes no [`Label`] (not UTF-8, too long, empty, control characters) leaves the label out: what
//! a user writes on a command line must not decide whether the operator's rule works.

use std::collections::HashMap;

use regex::bytes::{Regex, RegexBuilder};

use super::Standing;
use crate::core::model::{Label, Labels, Priority};

/// One `[[discover]]` table, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What the history calls it; no other rule has it.
    pub name: Label,
    /// On the arguments joined by single spaces.
    pub command: Option<Pattern>,
    /// On the values of these variables; all must be there.
    pub environment: Vec<(String, Pattern)>,
    /// On the whole path of the process's group or of one above it.
    pub cgroup: Option<Pattern>,
    /// Whose processes count, by effective uid; empty: anybody's.
    pub users: Vec<u32>,
    /// The task's name.
    pub id: Option<Template>,
    /// The job it belongs to.
    pub job: Option<Template>,
    /// What kind of task of that job it is.
    pub kind: Option<Template>,
    /// How it is taken.
    pub attach: Means,
    /// What kind of place it needs.
    pub standing: Standing,
    /// Its place among others.
    pub priority: Priority,
}

/// `attach` of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// Whether it matches; adds to `caught` what its named groups caught.
    fn catch(&self, text: &[u8], caught: &mut Caught) -> bool {
        if self.names().next().is_none() {
            return self.regex.is_match(text);
        }
        let Some(found) = self.regex.captures(text) else { return false };
        for name in self.names() {
            let value = found.name(name).map_or(&b""[..], |group| group.as_bytes());
            caught.insert(name.to_owned(), value.to_vec());
        }
        true
    }
}

/// What the named groups caught.
type Caught = HashMap<String, Vec<u8>>;

/// A text with `${name}` where the group of that name goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
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

    fn fill(&self, caught: &Caught) -> Option<Label> {
        let mut filled = Vec::new();
        for part in &self.parts {
            match part {
                Part::Literal(text) => filled.extend_from_slice(text.as_bytes()),
                Part::Group(name) => filled.extend_from_slice(caught.get(name)?),
            }
        }
        Label::new(std::str::from_utf8(&filled).ok()?).ok()
    }
}

/// A process as rules see it. `None`: not to be had, and then nothing that asks for it matches.
pub trait Subject {
    /// Its effective uid.
    fn user(&mut self) -> Option<u32>;
    /// Its arguments, joined by single spaces.
    fn command(&mut self) -> Option<&[u8]>;
    /// Its path in the hierarchy with the cpu controller, with a leading slash.
    fn cgroup(&mut self) -> Option<&str>;
    /// The value of a variable of its environment.
    fn variable(&mut self, name: &str) -> Option<&[u8]>;
}

/// What a rule made of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Index of the rule.
    pub rule: usize,
    /// What the templates made.
    pub labels: Labels,
    /// The group that `cgroup` matched, where the rule has one: the process's or one above.
    pub group: Option<String>,
}

/// What the first rule that matches makes of `subject`.
pub fn first_match(rules: &[Rule], subject: &mut impl Subject) -> Option<Match> {
    rules.iter().enumerate().find_map(|(rule, wanted)| {
        let (labels, group) = wanted.matches(subject)?;
        Some(Match { rule, labels, group })
    })
}

impl Rule {
    /// Every pattern it has.
    pub fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        let values = self.environment.iter().map(|(_, pattern)| pattern);
        self.command.iter().chain(&self.cgroup).chain(values)
    }

    fn matches(&self, subject: &mut impl Subject) -> Option<(Labels, Option<String>)> {
        let mut caught = Caught::new();
        let mut group = None;
        if let Some(pattern) = &self.cgroup {
            let path = subject.cgroup()?;
            // From the top: what the pattern names is the task, with all that is below it.
            let matched = groups(path).find(|group| pattern.catch(group.as_bytes(), &mut caught));
            group = Some(matched?.to_owned());
        }
        if let Some(pattern) = &self.command
            && !pattern.catch(subject.command()?, &mut caught)
        {
            return None;
        }
        // The kernel takes longer to write a status file than a command line, which says more.
        if !self.users.is_empty() && !self.users.contains(&subject.user()?) {
            return None;
        }
        for (name, pattern) in &self.environment {
            if !pattern.catch(subject.variable(name)?, &mut caught) {
                return None;
            }
        }
        let fill = |template: &Option<Template>| template.as_ref()?.fill(&caught);
        let labels = Labels { name: fill(&self.id), job: fill(&self.job), kind: fill(&self.kind) };
        Some((labels, group))
    }
}

/// `/a`, `/a/b` and `/a/b/c` of `/a/b/c`; `/` of `/`, which holds everything and is below nothing.
fn groups(path: &str) -> impl Iterator<Item = &str> {
    let inner = path.match_indices('/').map(|(at, _)| at).filter(|&at| at > 0);
    inner.filter_map(|at| path.get(..at)).chain(std::iter::once(path))
}

#[cfg(test)]
mod tests;
