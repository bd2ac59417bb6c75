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

use crate::config::rule::{Part, Pattern, Rule, Template};
use crate::core::model::{Label, Labels};
use crate::kernfs::name;

/// What the named groups caught.
type Caught = HashMap<String, Vec<u8>>;

/// Whether `pattern` matches; adds to `caught` what its named groups caught.
fn catch(pattern: &Pattern, text: &[u8], caught: &mut Caught) -> bool {
    if pattern.names().next().is_none() {
        return pattern.regex().is_match(text);
    }
    let Some(found) = pattern.regex().captures(text) else { return false };
    for name in pattern.names() {
        let value = found.name(name).map_or(&b""[..], |group| group.as_bytes());
        caught.insert(name.to_owned(), value.to_vec());
    }
    true
}

/// The label that `template` makes of what was caught.
fn fill(template: &Template, caught: &Caught) -> Option<Label> {
    let mut filled = Vec::new();
    for part in template.parts() {
        match part {
            Part::Literal(text) => filled.extend_from_slice(text.as_bytes()),
            Part::Group(name) => filled.extend_from_slice(caught.get(name)?),
        }
    }
    Label::new(std::str::from_utf8(&filled).ok()?).ok()
}

/// A process as rules see it. `None`: not to be had, and then nothing that asks for it matches.
pub trait Subject {
    /// Its effective uid.
    fn user(&mut self) -> Option<u32>;
    /// Its arguments, joined by single spaces.
    fn command(&mut self) -> Option<&[u8]>;
    /// Its path in the hierarchy with the cpu controller, with a leading slash, as [`name`] keeps
    /// it.
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
        let (labels, group) = matches(wanted, subject)?;
        Some(Match { rule, labels, group })
    })
}

fn matches(rule: &Rule, subject: &mut impl Subject) -> Option<(Labels, Option<String>)> {
    let mut caught = Caught::new();
    let mut group = None;
    if let Some(pattern) = &rule.cgroup {
        let path = subject.cgroup()?;
        // From the top: what the pattern names is the task, with all that is below it.
        let matched = groups(path).find(|group| catch(pattern, &name::bytes(group), &mut caught));
        group = Some(matched?.to_owned());
        if rule.excepts(&name::bytes(path)) {
            return None;
        }
    }
    if let Some(pattern) = &rule.command
        && !catch(pattern, subject.command()?, &mut caught)
    {
        return None;
    }
    // The kernel takes longer to write a status file than a command line, which says more.
    if !rule.users.is_empty() && !rule.users.contains(&subject.user()?) {
        return None;
    }
    for (name, pattern) in &rule.environment {
        if !catch(pattern, subject.variable(name)?, &mut caught) {
            return None;
        }
    }
    let made = |template: &Option<Template>| fill(template.as_ref()?, &caught);
    let (name, job, kind) = (made(&rule.id), made(&rule.job), made(&rule.kind));
    let labels = Labels { name, job, kind, ..Labels::default() };
    Some((labels, group))
}

/// `/a`, `/a/b` and `/a/b/c` of `/a/b/c`; `/` of `/`, which holds everything and is below nothing.
fn groups(path: &str) -> impl Iterator<Item = &str> {
    let inner = path.match_indices('/').map(|(at, _)| at).filter(|&at| at > 0);
    inner.filter_map(|at| path.get(..at)).chain(std::iter::once(path))
}

#[cfg(test)]
mod tests;
