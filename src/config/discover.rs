//! `[[discover]]`: the table of a rule's keys, how rules are read and how they are written.
//!
//! What a rule means is in [`crate::discover::rules`]; here it is made sure that one can mean
//! something: that its patterns compile, that its templates use groups there are, and that it says
//! whose processes may be moved.

use std::collections::HashSet;
use std::ops::Range;

use super::schema::{self, Wrong};
use super::value::{self, Node, Rejection, Taken, because};
use crate::core::model::{Label, Priority};
use crate::discover::Standing;
use crate::discover::rules::{Means, Pattern, Rule, Template};

/// The name of the tables.
pub const TABLE: &str = "discover";

/// What rules have in common, for the manual and the shipped file.
pub const ABOUT: &str = "Tasks nobody announced: each [[discover]] table is a rule by which running processes \
     become tasks. All patterns of a rule must match; the first rule that matches decides. Beyond \
     capacity what is found runs in overflow, it is never refused. docs/discover.md tells how to \
     write a rule and what it can be fooled by. A change needs a restart of lrsd.";

/// Most rules of a file.
pub const MAX_RULES: usize = 64;

/// Most entries of `environment` and of `user`.
const MAX_VARIABLES: usize = 16;
const MAX_USERS: usize = 1024;

/// One key of a rule.
pub struct RuleKey {
    /// As it stands in the file.
    pub name: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// What may be written, to follow "expected".
    pub range: &'static str,
    /// Puts the value into the draft, or says all that is wrong with it.
    read: fn(&Node<'_>, &mut Draft) -> Result<(), Vec<Wrong>>,
    /// The value of a rule as TOML; `None` where the rule has none.
    write: fn(&Rule) -> Option<String>,
}

/// A rule that is being read.
#[derive(Default)]
struct Draft {
    name: Option<Label>,
    command: Option<Pattern>,
    environment: Vec<(String, Pattern)>,
    cgroup: Option<Pattern>,
    users: Vec<u32>,
    id: Option<Template>,
    job: Option<Template>,
    kind: Option<Template>,
    attach: Option<Means>,
    standing: Option<Standing>,
    priority: Priority,
}

const ATTACH: &[(&str, Means)] = &[("own", Means::Own), ("in_place", Means::InPlace)];

const STANDING: &[(&str, Standing)] = &[
    ("slot", Standing::Slot),
    ("slotless", Standing::Slotless),
    ("opportunistic", Standing::Opportunistic),
];

const TEMPLATE: &str = "1 to 256 bytes, with \"${name}\" for what the group of that name caught";

/// The keys of a rule.
pub static KEYS: &[RuleKey] = &[
    RuleKey {
        name: "name",
        doc: "What the history calls the rule. Required; no two rules have the same.",
        range: "1 to 256 bytes without control characters",
        read: |v, draft| {
            let label = Label::new(value::text(v)?).map_err(|_| Rejection::OutOfRange)?;
            draft.name = Some(label);
            Ok(())
        },
        write: |rule| Some(value::show_text(rule.name.as_str())),
    },
    RuleKey {
        name: "command",
        doc: "Matched anywhere in the arguments of the process, joined by single spaces. \
              Spaces and newlines within an argument stand there as they are, so that an argument \
              cannot be told from two; \".\" matches no newline.",
        range: "a regular expression",
        read: |v, draft| {
            draft.command = Some(pattern(v, Pattern::anywhere)?);
            Ok(())
        },
        write: |rule| rule.command.as_ref().map(|pattern| value::show_text(pattern.as_str())),
    },
    RuleKey {
        name: "environment",
        doc: "Variables the process must have been started with, each matched anywhere in its \
              value.",
        range: "a table of 1 to 16 variables, { NAME = 'regular expression' }",
        read: |v, draft| {
            draft.environment = environment(v)?;
            Ok(())
        },
        write: |rule| {
            let entry = |(name, pattern): &(String, Pattern)| {
                format!("{} = {}", value::show_text(name), value::show_text(pattern.as_str()))
            };
            let entries: Vec<String> = rule.environment.iter().map(entry).collect();
            (!entries.is_empty()).then(|| format!("{{ {} }}", entries.join(", ")))
        },
    },
    RuleKey {
        name: "cgroup",
        doc: "Has to match the whole path, below the mount of the hierarchy with the cpu \
              controller, of the process's group or of one above it; of several the topmost \
              counts.",
        range: "a regular expression",
        read: |v, draft| {
            draft.cgroup = Some(pattern(v, Pattern::whole)?);
            Ok(())
        },
        write: |rule| rule.cgroup.as_ref().map(|pattern| value::show_text(pattern.as_str())),
    },
    RuleKey {
        name: "user",
        doc: "Whose processes count, by effective uid. A rule that moves processes needs it or \
              cgroup: command lines and environments are what any user makes them.",
        range: "a uid or account name, or a list of 1 to 1024",
        read: |v, draft| {
            draft.users = match v.get_ref().is_array() {
                true => schema::list(v, 1..=MAX_USERS, value::account)?,
                false => vec![value::account(v)?],
            };
            Ok(())
        },
        write: |rule| {
            let users = &rule.users;
            (!users.is_empty()).then(|| schema::show_list(users, u32::to_string))
        },
    },
    RuleKey {
        name: "id",
        doc: "The task's name. Processes of one rule and one name, one below the other, are one \
              task.",
        range: TEMPLATE,
        read: |v, draft| {
            draft.id = Some(template(v)?);
            Ok(())
        },
        write: |rule| rule.id.as_ref().map(|template| value::show_text(template.as_str())),
    },
    RuleKey {
        name: "job",
        doc: "The job it belongs to, whose tasks are alike.",
        range: TEMPLATE,
        read: |v, draft| {
            draft.job = Some(template(v)?);
            Ok(())
        },
        write: |rule| rule.job.as_ref().map(|template| value::show_text(template.as_str())),
    },
    RuleKey {
        name: "kind",
        doc: "What kind of task of that job it is.",
        range: TEMPLATE,
        read: |v, draft| {
            draft.kind = Some(template(v)?);
            Ok(())
        },
        write: |rule| rule.kind.as_ref().map(|template| value::show_text(template.as_str())),
    },
    RuleKey {
        name: "attach",
        doc: "\"own\": the process and its descendants are moved into a group of LRS's. \
              \"in_place\": nothing moves, the weights of the group that cgroup matched are \
              edited. If absent: \"in_place\" where cgroup is the only pattern, else \"own\".",
        range: "\"own\" or \"in_place\"",
        read: |v, draft| {
            draft.attach = Some(value::choice(v, ATTACH)?);
            Ok(())
        },
        write: |rule| Some(value::show_choice(&rule.attach, ATTACH)),
    },
    RuleKey {
        name: "standing",
        doc: "\"slot\": an active or passive slot, or overflow. \"slotless\": active weights \
              without a slot, for what must never wait. \"opportunistic\": behind every task that \
              is not, whatever the priorities. If absent: \"slot\".",
        range: "\"slot\", \"slotless\" or \"opportunistic\"",
        read: |v, draft| {
            draft.standing = Some(value::choice(v, STANDING)?);
            Ok(())
        },
        write: |rule| Some(value::show_choice(&rule.standing, STANDING)),
    },
    RuleKey {
        name: "priority",
        doc: "Higher runs sooner. If absent: 0.",
        range: "-2147483648..=2147483647",
        read: |v, draft| {
            draft.priority = Priority(value::integer(v, i32::MIN..=i32::MAX)?);
            Ok(())
        },
        write: |rule| Some(rule.priority.to_string()),
    },
];

fn pattern(node: &Node<'_>, compile: fn(&str) -> Result<Pattern, String>) -> Taken<Pattern> {
    compile(value::text(node)?).or_else(|problem| {
        because(
            super::error::excerpt(&problem),
            "correct it; the syntax is that of the Rust crate regex, best written in single quotes",
        )
    })
}

fn template(node: &Node<'_>) -> Taken<Template> {
    Template::new(value::text(node)?)
        .or_else(|problem| because(problem, "write it as \"${name}\", with text around it or not"))
}

fn environment(node: &Node<'_>) -> Result<Vec<(String, Pattern)>, Vec<Wrong>> {
    let table = node.get_ref().as_table().ok_or(Rejection::OutOfRange)?;
    if !(1..=MAX_VARIABLES).contains(&table.len()) {
        return Err(Rejection::OutOfRange.into());
    }
    let mut variables = Vec::new();
    let mut wrong = Vec::new();
    for (name, node) in table {
        let read = variable(name.get_ref()).map_err(|why| (name.span(), why)).and_then(|name| {
            let pattern = pattern(node, Pattern::anywhere).map_err(|why| (node.span(), why))?;
            Ok((name, pattern))
        });
        match read {
            Ok(variable) => variables.push(variable),
            Err((span, why)) => wrong.push(Wrong { span: Some(span), why }),
        }
    }
    if wrong.is_empty() { Ok(variables) } else { Err(wrong) }
}

fn variable(name: &str) -> Taken<String> {
    let fits = |c: char| c != '=' && !c.is_control();
    if name.is_empty() || name.len() > 256 || !name.chars().all(fits) {
        return because("is no name of a variable", "use 1 to 256 bytes without \"=\"");
    }
    Ok(name.to_owned())
}

/// A fault of a rule as a whole.
pub(super) struct RuleFault {
    /// The key it is about; `None`: the rule.
    pub(super) key: Option<&'static str>,
    /// Where; `None`: where the rule begins.
    pub(super) place: Option<Range<usize>>,
    pub(super) problem: String,
    pub(super) remedy: String,
}

/// Rules as they are read one after the other.
pub(super) struct RuleReader {
    names: HashSet<Label>,
    /// Whether every line of the file could be read.
    complete: bool,
}

/// What a table of the file came to.
pub(super) struct ReadRule {
    /// `None` where anything is wrong.
    pub(super) rule: Option<Rule>,
    /// Values that were not taken.
    pub(super) wrong: Vec<(&'static RuleKey, Wrong, Range<usize>)>,
    /// Names that are no keys, with their places.
    pub(super) unknown: Vec<(String, Range<usize>)>,
    /// What is wrong with keys that were taken.
    pub(super) faults: Vec<RuleFault>,
}

impl RuleReader {
    /// No rule yet. In a file that is not `complete` rules are not judged as a whole.
    pub(super) fn new(complete: bool) -> RuleReader {
        RuleReader { names: HashSet::new(), complete }
    }

    /// Reads one table.
    pub(super) fn read(&mut self, table: &toml::de::DeTable<'_>) -> ReadRule {
        let mut read =
            ReadRule { rule: None, wrong: Vec::new(), unknown: Vec::new(), faults: Vec::new() };
        let mut draft = Draft::default();
        let mut places: Vec<(&'static str, Range<usize>)> = Vec::new();
        for (name, node) in table {
            let Some(key) = KEYS.iter().find(|key| key.name == name.get_ref().as_ref()) else {
                read.unknown.push((name.get_ref().to_string(), name.span()));
                continue;
            };
            places.push((key.name, node.span()));
            if let Err(wrong) = (key.read)(node, &mut draft) {
                read.wrong.extend(wrong.into_iter().map(|wrong| (key, wrong, node.span())));
            }
        }
        // A rule of which a part was refused would be told of faults it may not have.
        if self.complete && read.wrong.is_empty() && read.unknown.is_empty() {
            let place = |key: &str| {
                places.iter().find(|(name, _)| *name == key).map(|(_, place)| place.clone())
            };
            let faults = self.check(&draft);
            read.faults = faults
                .into_iter()
                .map(|(key, problem, remedy)| {
                    let place = key.and_then(place);
                    RuleFault { key, place, problem, remedy }
                })
                .collect();
            if read.faults.is_empty() {
                read.rule = draft.finish();
            }
        }
        read
    }

    fn check(&mut self, draft: &Draft) -> Vec<(Option<&'static str>, String, String)> {
        let mut faults = Vec::new();
        let mut fault = |key, problem: &str, remedy: &str| {
            faults.push((key, problem.to_owned(), remedy.to_owned()));
        };
        match &draft.name {
            None => fault(None, "the rule has no name", "give it one, such as name = \"render\""),
            Some(name) if !self.names.insert(name.clone()) => {
                fault(Some("name"), "another rule has this name", "give each its own");
            }
            Some(_) => {}
        }
        let has_other = draft.command.is_some() || !draft.environment.is_empty();
        match draft.means() {
            _ if draft.cgroup.is_none() && !has_other => {
                fault(None, "the rule matches every process", "set command, environment or cgroup");
            }
            Means::Own if draft.users.is_empty() && draft.cgroup.is_none() => fault(
                None,
                "any user could have processes moved out of their groups by this rule",
                "say whose processes count with user, or where they have to be with cgroup",
            ),
            Means::InPlace if draft.cgroup.is_none() => fault(
                Some("attach"),
                "the rule names no group whose weights may be edited",
                "set cgroup, or attach = \"own\"",
            ),
            Means::Own | Means::InPlace => {}
        }
        let mut caught = HashSet::new();
        for (key, pattern) in draft.patterns() {
            for name in pattern.names() {
                if !caught.insert(name) {
                    let problem =
                        format!("another pattern of the rule has a group named {name:?} too");
                    fault(Some(key), &problem, "rename one of the two");
                }
            }
        }
        let templates = [("id", &draft.id), ("job", &draft.job), ("kind", &draft.kind)];
        for (key, template) in templates {
            for name in template.iter().flat_map(Template::names) {
                if !caught.contains(name) {
                    let problem = format!(
                        "no pattern of the rule has a group named {:?}",
                        super::error::excerpt(name)
                    );
                    fault(Some(key), &problem, "add one, \"(?<name>...)\", or correct the name");
                }
            }
        }
        faults
    }
}

impl Draft {
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

    fn finish(self) -> Option<Rule> {
        let attach = self.means();
        Some(Rule {
            name: self.name?,
            command: self.command,
            environment: self.environment,
            cgroup: self.cgroup,
            users: self.users,
            id: self.id,
            job: self.job,
            kind: self.kind,
            attach,
            standing: self.standing.unwrap_or(Standing::Slot),
            priority: self.priority,
        })
    }
}

/// `rules` as TOML that reads back to them.
pub(super) fn to_toml(rules: &[Rule]) -> String {
    let mut text = String::new();
    for rule in rules {
        text.push_str("\n[[discover]]\n");
        for key in KEYS {
            if let Some(value) = (key.write)(rule) {
                text.push_str(&format!("{} = {value}\n", key.name));
            }
        }
    }
    text
}

#[cfg(test)]
pub(crate) mod tests;
