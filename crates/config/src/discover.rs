//! `[[discover]]`: what a rule must have so that it can mean something.
//!
//! Its keys are in [`super::keys::RULE`]; what a rule means is in lrsd (`src/discover/rules.rs`). Here
//! its expressions, templates and variables are read, and it is made sure that templates use
//! groups there are, and that the rule says which processes may be moved.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use super::error::excerpt;
pub use super::keys::Draft;
use super::rule::{Means, Pattern, Rule, Template};
use super::value::{Node, Rejection, Taken, Wrong, because, text};
use lrs_core::model::Label;

/// The name of the tables.
pub const TABLE: &str = "discover";

/// What rules have in common, for the manual and the shipped file.
pub const ABOUT: &str = "Tasks that no client announced: each [[discover]] table is a rule by which running processes \
     become tasks. All patterns of a rule must match; the first rule that matches decides. Beyond \
     capacity what is found runs in overflow, it is never refused. docs/discover.md says how to \
     write a rule and what it can be fooled by. A change needs a restart of lrsd.";

/// Most rules of a file.
pub const MAX_RULES: usize = 64;

/// A fault of a rule as a whole: the key it is about (`None`: the rule), what is wrong, what to do.
pub(super) type RuleFault = (Option<&'static str>, String, String);

impl Draft {
    /// The rule; or what is wrong with keys that are taken each by itself. `names` are those of
    /// the rules before it.
    pub(super) fn finish(self, names: &mut HashSet<Label>) -> Result<Rule, Vec<RuleFault>> {
        let faults = self.check(names);
        let attach = self.means();
        let Some(name) = self.name.filter(|_| faults.is_empty()) else { return Err(faults) };
        Ok(Rule {
            name,
            command: self.command,
            environment: self.environment,
            cgroup: self.cgroup,
            except: self.except,
            users: self.user,
            id: self.id,
            job: self.job,
            kind: self.kind,
            attach,
            standing: self.standing,
            priority: self.priority,
        })
    }

    fn check(&self, names: &mut HashSet<Label>) -> Vec<RuleFault> {
        let mut faults = Vec::new();
        let mut fault = |key, problem: &str, remedy: &str| {
            faults.push((key, problem.to_owned(), remedy.to_owned()));
        };
        match &self.name {
            None => fault(None, "the rule has no name", "give it one, such as name = \"render\""),
            Some(name) if !names.insert(name.clone()) => {
                fault(Some("name"), "another rule has this name", "give each its own");
            }
            Some(_) => {}
        }
        let has_other = self.command.is_some() || !self.environment.is_empty();
        match self.means() {
            _ if self.cgroup.is_none() && !has_other => {
                fault(None, "the rule matches every process", "set command, environment or cgroup");
            }
            Means::Own if self.user.is_empty() && self.cgroup.is_none() => fault(
                None,
                "any user could have processes moved out of their groups by this rule",
                "name the users with user, or where they have to be with cgroup",
            ),
            Means::InPlace if self.cgroup.is_none() => fault(
                Some("attach"),
                "the rule names no group with weights that may be edited",
                "set cgroup, or attach = \"own\"",
            ),
            Means::Own if self.except.is_some() => fault(
                Some("except"),
                "what is moved has a group of its own, with no other process in it",
                "take it out, or set attach = \"in_place\"",
            ),
            Means::Own | Means::InPlace => {}
        }
        let mut caught = HashSet::new();
        for (key, pattern) in self.patterns() {
            for name in pattern.names() {
                if !caught.insert(name) {
                    let problem =
                        format!("another pattern of the rule has a group named {name:?} too");
                    fault(Some(key), &problem, "rename one of the two");
                }
            }
        }
        let templates = [("id", &self.id), ("job", &self.job), ("kind", &self.kind)];
        for (key, template) in templates {
            for name in template.iter().flat_map(Template::names) {
                if !caught.contains(name) {
                    let problem =
                        format!("no pattern of the rule has a group named {:?}", excerpt(name));
                    fault(Some(key), &problem, "add one, \"(?<name>...)\", or correct the name");
                }
            }
        }
        faults
    }

    fn means(&self) -> Means {
        let by_group_alone =
            self.cgroup.is_some() && self.command.is_none() && self.environment.is_empty();
        self.attach.unwrap_or(if by_group_alone { Means::InPlace } else { Means::Own })
    }

    fn patterns(&self) -> impl Iterator<Item = (&'static str, &Pattern)> {
        let command = self.command.iter().map(|pattern| ("command", pattern));
        let cgroup = self.cgroup.iter().map(|pattern| ("cgroup", pattern));
        let values = self.environment.iter().map(|(_, pattern)| ("environment", pattern));
        command.chain(cgroup).chain(values)
    }
}

/// A regular expression of a rule.
pub(super) fn pattern(
    node: &Node<'_>,
    compile: fn(&str) -> Result<Pattern, String>,
) -> Taken<Pattern> {
    compile(text(node)?).or_else(|problem| {
        because(
            excerpt(&problem),
            "correct it; the syntax is that of the Rust crate regex, best written in single quotes",
        )
    })
}

/// A label of a rule, with what groups caught.
pub(super) fn template(node: &Node<'_>) -> Taken<Template> {
    Template::new(text(node)?)
        .or_else(|problem| because(problem, "write it as \"${name}\", with text around it or not"))
}

/// Variables and what their values have to match.
pub(super) fn environment(
    node: &Node<'_>,
    lengths: RangeInclusive<usize>,
) -> Result<Vec<(String, Pattern)>, Vec<Wrong>> {
    let table = node.get_ref().as_table().filter(|table| lengths.contains(&table.len()));
    let mut variables = Vec::new();
    let mut wrong = Vec::new();
    for (name, node) in table.ok_or(Rejection::OutOfRange)? {
        let fits = |c: char| c != '=' && !c.is_control();
        let text = name.get_ref();
        if text.is_empty() || text.len() > 256 || !text.chars().all(fits) {
            let problem = String::from("is no name of a variable");
            let why = Rejection::Because(problem, "use 1 to 256 bytes without \"=\"".into());
            wrong.push(Wrong { span: Some(name.span()), why });
            continue;
        }
        match pattern(node, Pattern::anywhere) {
            Ok(pattern) => variables.push((text.to_string(), pattern)),
            Err(why) => wrong.push(Wrong { span: Some(node.span()), why }),
        }
    }
    if wrong.is_empty() { Ok(variables) } else { Err(wrong) }
}

#[cfg(test)]
pub(crate) mod tests;
