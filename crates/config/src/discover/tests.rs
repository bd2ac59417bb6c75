use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::rule::{Means, Pattern, Rule};
use crate::{Absent, Config};
use lrs_core::model::{Priority, Standing};

/// A rule without any pattern, which moves what it finds.
fn rule(name: &str) -> Rule {
    Rule {
        name: Label::new(name).unwrap(),
        command: None,
        environment: Vec::new(),
        cgroup: None,
        except: None,
        users: Vec::new(),
        id: None,
        job: None,
        kind: None,
        attach: Means::Own,
        standing: Standing::Slot,
        priority: Priority(0),
    }
}

fn anywhere(text: &str) -> Option<Pattern> {
    Some(Pattern::anywhere(text).unwrap())
}

fn whole(text: &str) -> Option<Pattern> {
    Some(Pattern::whole(text).unwrap())
}

fn template(text: &str) -> Option<Template> {
    Some(Template::new(text).unwrap())
}

fn read(text: &str) -> Result<Config, String> {
    Config::from_toml(text, Path::new("lrs.toml")).map_err(|errors| errors.to_string())
}

/// The rules of the test that reads every key.
pub(crate) fn two_rules() -> Vec<Rule> {
    let full = Rule {
        command: anywhere(r"java .*\.(?<what>\w+)"),
        environment: vec![
            (String::from("A"), Pattern::anywhere(r"^\d+$").unwrap()),
            (String::from("B \" C"), Pattern::anywhere("(?<job>.*)").unwrap()),
        ],
        cgroup: whole("/(?<id>[^/]+)"),
        except: whole("/.+/own"),
        users: vec![0, 1000],
        id: template("x-${id}"),
        job: template("${job}"),
        kind: template("${what}"),
        attach: Means::InPlace,
        standing: Standing::Slotless,
        priority: Priority(-3),
        ..rule("a rule")
    };
    let short =
        Rule { cgroup: whole("/x"), users: vec![7], attach: Means::InPlace, ..rule("plain") };
    vec![full, short]
}

/// Any rules a file may have.
pub(crate) fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let pattern = || "[ -\\[\\]-~\\n\\\\é]{1,20}".prop_map(|text| regex::escape(&text));
    let any_rule = (
        proptest::option::of(pattern()),
        proptest::option::of(pattern()),
        proptest::collection::hash_map("[A-Za-z_ \"\\\\]{1,8}", pattern(), 0..3),
        proptest::collection::hash_set(0..u32::MAX, 1..4),
        proptest::option::of("[ -#%-~é]{1,19}\\$?"),
        any::<bool>(),
        proptest::sample::select(
            &[Standing::Slot, Standing::Slotless, Standing::Opportunistic][..],
        ),
        any::<i32>(),
    )
        .prop_map(|(command, cgroup, environment, users, id, in_place, standing, priority)| {
            let cgroup = cgroup.and_then(|text| whole(&text));
            Rule {
                // Without any pattern it would be refused.
                command: anywhere(&command.unwrap_or_else(|| "x".into())),
                environment: environment
                    .into_iter()
                    .map(|(name, text)| (name, Pattern::anywhere(&text).unwrap()))
                    .collect(),
                attach: if in_place && cgroup.is_some() { Means::InPlace } else { Means::Own },
                cgroup,
                users: users.into_iter().collect(),
                id: id.and_then(|text| template(&text)),
                standing,
                priority: Priority(priority),
                ..rule("x")
            }
        });
    proptest::collection::vec(any_rule, 0..3).prop_map(|mut rules| {
        for (index, rule) in rules.iter_mut().enumerate() {
            rule.name = Label::new(&format!("rule \"{index}\"")).unwrap();
        }
        rules
    })
}

/// Keys of a rule and what its only fault has to say.
const FAULTY: &[(&str, &str)] = &[
    ("cgroup = '/x'", "lrs.toml:1: discover: the rule has no name; give it one"),
    ("name = ''\ncgroup = '/x'", "lrs.toml:2: discover.name = '': expected 1 to 256 bytes"),
    (
        "name = 'x'\ncgroup = '/x'\nexcept = '/x/y'\nattach = 'own'",
        "lrs.toml:4: discover.except = '/x/y': what is moved has a group of its own, with no other process \
         in it; take it out, or set attach",
    ),
    ("name = 'x'", "lrs.toml:1: discover: the rule matches every process; set command"),
    (
        "name = 'x'\ncommand = 'x'",
        "lrs.toml:1: discover: any user could have processes moved out of their groups by this \
         rule; name the users with user",
    ),
    (
        "name = 'x'\nuser = 0\ncommand = '('",
        "lrs.toml:4: discover.command = '(': is no regular expression: unclosed group; correct it",
    ),
    ("name = 'x'\nuser = 0\ncommand = ''", "discover.command = '': is empty"),
    ("name = 'x'\nuser = 0\ncommand = '\\pL{9999}'", "is too large once compiled"),
    ("name = 'x'\ncgroup = 'a)(b'", "discover.cgroup = 'a)(b': is no regular expression"),
    ("name = 'x'\ncgroup = 7", "discover.cgroup = 7: expected a regular expression"),
    ("name = 'x'\nuser = 0\nenvironment = {}", "expected a table of 1 to 16 variables"),
    ("name = 'x'\nuser = 0\nenvironment = { A = 3 }", "discover.environment = 3: expected"),
    ("name = 'x'\nuser = 0\nenvironment.A = '['", "discover.environment = '[': is no regular"),
    (
        "name = 'x'\nuser = 0\nenvironment = { 'A=B' = 'x' }",
        "discover.environment = 'A=B': is no name of a variable",
    ),
    ("name = 'x'\ncgroup = '/x'\nuser = []", "discover.user = []: expected a uid or account name"),
    ("name = 'x'\ncgroup = '/x'\nuser = 'no-such-account-here'", "no account has this name"),
    (
        "name = 'x'\ncgroup = '/x'\nid = '${job}'",
        "lrs.toml:4: discover.id = '${job}': no pattern of the rule has a group named \"job\"",
    ),
    ("name = 'x'\ncgroup = '/x'\nid = '${'", "discover.id = '${': has a \"${\" without a \"}\""),
    ("name = 'x'\ncgroup = '/x'\nid = ''", "discover.id = '': has 0 bytes"),
    ("name = 'x'\ncgroup = '/(?<a>x)'\njob = '${1}'", "no pattern of the rule has a group named"),
    (
        "name = 'x'\ncgroup = '/(?<a>x)'\ncommand = '(?<a>x)'",
        "discover.cgroup = '/(?<a>x)': another pattern of the rule has a group named \"a\" too",
    ),
    (
        "name = 'x'\nuser = 0\ncommand = 'x'\nattach = 'in_place'",
        "lrs.toml:5: discover.attach = 'in_place': the rule names no group",
    ),
    ("name = 'x'\ncgroup = '/x'\nattach = 'inplace'", "expected \"own\" or \"in_place\""),
    ("name = 'x'\ncgroup = '/x'\nstanding = 'slots'", "expected \"slot\", \"slotless\" or"),
    (
        "name = 'x'\ncgroup = '/x'\npriority = 3000000000",
        "discover.priority = 3000000000: expected",
    ),
    (
        "name = 'x'\ncgrup = '/x'",
        "lrs.toml:3: discover.cgrup = '/x': unknown key; did you mean discover.cgroup?",
    ),
    (
        "name = 'x'\nzebra = '/x'",
        "discover.zebra = '/x': unknown key; the keys of [[discover]] are name,",
    ),
    (
        "name = 'x'\ncgroup = '/x'\n[[discover]]\ncgroup = '/y'\nname = 'x'",
        "lrs.toml:6: discover.name = 'x': another rule has this name",
    ),
    ("name = 'x'\ncgroup = \n", "lrs.toml:3:10: no valid TOML"),
];

#[test]
fn each_fault_of_a_rule_says_where_what_and_what_to_do() {
    for (keys, expected) in FAULTY {
        let found = read(&format!("[[discover]]\n{keys}")).unwrap_err();
        assert!(found.contains(expected), "{keys:?}:\n  found    {found}\n  expected {expected}");
        assert_eq!(found.lines().count(), 1, "{keys:?}: {found}");
    }
    for (text, expected) in [
        ("discover = 3", "lrs.toml:1: discover: is a list of rules; write [[discover]]"),
        ("[discover]\nname = 'x'", "discover: is a list of rules"),
        ("discover = [{ name = 'x', cgroup = '/x' }, 3]", "discover: is a list of rules"),
        ("[[discovery]]\nname = 'x'", "unknown section; did you mean [[discover]]?"),
    ] {
        let found = read(text).unwrap_err();
        assert!(found.contains(expected), "{text:?}: {found}");
    }
}

#[test]
fn all_faults_of_all_rules_are_reported() {
    let found = read(
        "[[discover]]\nname = 'a'\ncommand = '('\npriority = 'x'\nzebra = 1\n[[discover]]\n\
         name = 'b'\n",
    );
    let found = found.unwrap_err();
    let lines: Vec<&str> = found.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["lrs.toml:3", "lrs.toml:4", "lrs.toml:5", "lrs.toml:6"], "{found}");
}

#[test]
fn a_file_has_64_rules_at_most() {
    let rules = |count: usize| {
        let rule = |n| format!("[[discover]]\nname = 'r{n}'\ncgroup = '/x'\n");
        (0..count).map(rule).collect::<String>()
    };
    assert_eq!(read(&rules(64)).unwrap().discover.len(), 64);
    let found = read(&rules(65)).unwrap_err();
    assert!(found.starts_with("lrs.toml:193: discover: is one rule more than the 64"), "{found}");
}

#[test]
fn what_attach_means_if_absent_follows_from_the_patterns() {
    let means = |keys: &str| {
        read(&format!("[[discover]]\nname = 'x'\nuser = 0\n{keys}")).unwrap().discover[0].attach
    };
    assert_eq!(means("cgroup = '/x'"), Means::InPlace);
    assert_eq!(means("command = 'x'"), Means::Own);
    assert_eq!(means("cgroup = '/x'\ncommand = 'x'"), Means::Own);
    assert_eq!(means("cgroup = '/x'\nattach = 'own'"), Means::Own);
}

#[test]
fn changed_rules_need_a_restart() {
    let before = Config::default();
    let after = read("[[discover]]\nname = 'x'\ncgroup = '/x'\n").unwrap();
    let changed = before.changed_keys(&after);
    assert_eq!(changed.len(), 1);
    assert!(changed[0].key == "discover" && changed[0].needs_restart);
    assert_eq!(after.changed_keys(&after.clone()), []);
}

#[test]
fn rules_are_shown_and_checked() {
    let text = "[[discover]]\nname = 'x'\ncgroup = '/x'\n";
    let json = crate::toml_to_json(&read(text).unwrap().to_toml()).unwrap();
    assert_eq!(json["discover"][0]["cgroup"], "/x");
    assert_eq!(json["discover"][0]["attach"], "in_place");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lrs.toml");
    std::fs::write(&path, text).unwrap();
    let verdict = crate::check_file(&path).unwrap();
    assert!(verdict.ends_with(": valid; not default: [[discover]] x"), "{verdict}");
    assert_eq!(Config::load(&path, Absent::IsError).unwrap().config.discover.len(), 1);
}

#[test]
fn the_shipped_rules_can_be_read_together() {
    let config = read(&crate::example_rules()).unwrap();
    let names: Vec<&str> = config.discover.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["slurm", "htcondor", "nomad", "kubernetes-pause", "kubernetes", "render"]);
    assert!(config.discover[..5].iter().all(|rule| rule.attach == Means::InPlace));
    assert_eq!(read(&config.to_toml()), Ok(config));
}
