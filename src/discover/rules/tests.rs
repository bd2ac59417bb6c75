use proptest::prelude::*;

use super::*;
use crate::discover::made_up::{anywhere, rule, template, whole};

/// A process made of values; says what was asked of it.
#[derive(Default)]
struct Made {
    user: Option<u32>,
    command: Option<&'static [u8]>,
    cgroup: Option<&'static str>,
    environment: Vec<(&'static str, &'static [u8])>,
    asked: Vec<&'static str>,
}

impl Subject for Made {
    fn user(&mut self) -> Option<u32> {
        self.asked.push("user");
        self.user
    }
    fn command(&mut self) -> Option<&[u8]> {
        self.asked.push("command");
        self.command
    }
    fn cgroup(&mut self) -> Option<&str> {
        self.asked.push("cgroup");
        self.cgroup
    }
    fn variable(&mut self, name: &str) -> Option<&[u8]> {
        self.asked.push("environment");
        self.environment.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

fn name_of(rule: &Rule, subject: &mut Made) -> Option<String> {
    let found = first_match(std::slice::from_ref(rule), subject)?;
    Some(found.labels.name.map_or_else(|| String::from("(none)"), |name| name.to_string()))
}

#[test]
fn the_first_rule_that_matches_decides() {
    let of = |name, pattern| Rule { command: anywhere(pattern), ..rule(name) };
    let rules = [of("a", "^x$"), of("b", "y"), of("c", "y z")];
    let matched = |command| {
        first_match(&rules, &mut Made { command: Some(command), ..Made::default() })
            .map(|found| found.rule)
    };
    assert_eq!(matched(b"a y z"), Some(1));
    assert_eq!(matched(b"x"), Some(0));
    assert_eq!(matched(b"xx"), None);
    assert_eq!(first_match(&rules, &mut Made::default()), None, "nothing known matches nothing");
}

#[test]
fn all_patterns_have_to_match() {
    let rule = Rule {
        command: anywhere("run (?<task>[0-9]+)"),
        environment: vec![
            (String::from("A"), Pattern::anywhere("^(?<a>.)").unwrap()),
            (String::from("B"), Pattern::anywhere("^$").unwrap()),
        ],
        cgroup: whole("/yard/(?<yard>[^/]+)"),
        users: vec![7, 8],
        id: template("${yard}-${task}${a}$"),
        ..rule("x")
    };
    let all = || Made {
        user: Some(8),
        command: Some(b"run 12"),
        cgroup: Some("/yard/left/deep"),
        environment: vec![("B", b""), ("A", b"xyz")],
        asked: Vec::new(),
    };
    assert_eq!(name_of(&rule, &mut all()).as_deref(), Some("left-12x$"));
    let without: [fn(&mut Made); 6] = [
        |made| made.user = Some(9),
        |made| made.user = None,
        |made| made.command = Some(b"run"),
        |made| made.cgroup = Some("/other/yard/left"),
        |made| made.environment = vec![("A", b"x")],
        |made| made.environment = vec![("A", b""), ("B", b"")],
    ];
    for change in without {
        let mut made = all();
        change(&mut made);
        assert_eq!(name_of(&rule, &mut made), None);
    }
}

#[test]
fn what_is_dear_is_asked_last_and_only_if_wanted() {
    let mut made = Made { user: Some(1), command: Some(b"x"), ..Made::default() };
    let wants_all = Rule {
        users: vec![1],
        command: anywhere("y"),
        environment: vec![(String::from("A"), Pattern::anywhere("x").unwrap())],
        ..rule("x")
    };
    assert_eq!(name_of(&wants_all, &mut made), None);
    assert_eq!(made.asked, ["command"]);
    made.asked.clear();
    made.command = Some(b"y");
    assert_eq!(name_of(&Rule { users: vec![2], ..wants_all }, &mut made), None);
    assert_eq!(made.asked, ["command", "user"]);
    made.asked.clear();
    made.command = Some(b"x");
    assert_eq!(
        name_of(&Rule { command: anywhere("x"), ..rule("x") }, &mut made).as_deref(),
        Some("(none)")
    );
    assert_eq!(made.asked, ["command"]);
}

#[test]
fn the_topmost_group_that_matches_is_the_one() {
    let group = |pattern, path| {
        let rule = Rule { cgroup: whole(pattern), ..rule("x") };
        first_match(&[rule], &mut Made { cgroup: Some(path), ..Made::default() })
            .and_then(|found| found.group)
    };
    assert_eq!(group(r"/a/job_\d+", "/a/job_1/step_0/x").as_deref(), Some("/a/job_1"));
    assert_eq!(group("/.*", "/a/b/c").as_deref(), Some("/a"));
    assert_eq!(group("/a/b/c", "/a/b/c").as_deref(), Some("/a/b/c"));
    assert_eq!(group("/a|/a/b", "/a/b").as_deref(), Some("/a"));
    assert_eq!(group("/", "/").as_deref(), Some("/"));
    assert_eq!(group("/", "/a"), None, "not everything is in the root group");
    assert_eq!(group("b", "/a/b"), None, "the whole path");
    assert_eq!(group("/a|/b/c|/b", "/ab"), None);
    assert_eq!(group("/a\n", "/a"), None);
}

#[test]
fn labels_that_cannot_be_are_left_out() {
    let rule = Rule {
        command: anywhere(r"(?s-u)id=(?<id>.*)"),
        id: template("${id}"),
        job: template("fixed"),
        ..rule("x")
    };
    let labels = |command: &'static [u8]| {
        first_match(
            std::slice::from_ref(&rule),
            &mut Made { command: Some(command), ..Made::default() },
        )
        .unwrap()
        .labels
    };
    for (command, name) in [
        (&b"id=a b"[..], Some("a b")),
        (b"id=", None),
        (b"id=\xff", None),
        (b"id=a\nb", None),
        (b"id=\x1b[31m", None),
        (&[b"id=".as_slice(), &[b'x'; 257]].concat().leak()[..], None),
    ] {
        let labels = labels(command);
        assert_eq!(labels.name.as_ref().map(Label::as_str), name);
        assert_eq!(labels.job.unwrap().as_str(), "fixed", "the others stay");
    }
}

#[test]
fn a_group_that_caught_nothing_is_empty() {
    let rule = Rule { command: anywhere("a(?<x>b)?"), id: template("<${x}>"), ..rule("x") };
    assert_eq!(
        name_of(&rule, &mut Made { command: Some(b"ac"), ..Made::default() }).unwrap(),
        "<>"
    );
}

#[test]
fn templates_say_what_is_wrong_with_them() {
    for (text, problem) in [
        ("", "has 0 bytes"),
        ("${a", "without"),
        ("x${", "without"),
        ("a\nb", "control character"),
        (&"x".repeat(257), "has 257 bytes"),
    ] {
        assert!(Template::new(text).unwrap_err().contains(problem), "{text:?}");
    }
    for (text, names) in [
        ("a", &[][..]),
        ("$", &[]),
        ("${a}", &["a"]),
        ("${a}${b}-$x{}", &["a", "b"]),
        ("${}", &[""]),
    ] {
        assert_eq!(Template::new(text).unwrap().names().collect::<Vec<_>>(), names, "{text:?}");
    }
}

proptest! {
    /// What stands between the groups comes out as it was, and groups as they were caught.
    #[test]
    fn templates_put_together_what_was_caught(
        parts in proptest::collection::vec(("[a-z$} ]{0,5}", "[a-z]{1,3}", "[!-~é]{0,9}"), 0..6),
    ) {
        let mut text = String::new();
        let mut expected = String::new();
        let mut caught = Caught::new();
        for (index, (literal, name, value)) in parts.iter().enumerate() {
            // A literal that ends with "$" would open a group with what follows.
            let literal = literal.trim_end_matches('$');
            text.push_str(&format!("{literal}${{{name}{index}}}"));
            expected.push_str(&format!("{literal}{value}"));
            caught.insert(format!("{name}{index}"), value.clone().into_bytes());
        }
        match Template::new(&text) {
            Ok(template) => prop_assert_eq!(
                fill(&template, &caught).map(|label| label.to_string()),
                Label::new(&expected).ok().map(|label| label.to_string())
            ),
            Err(problem) => prop_assert!(text.is_empty() || text.len() > 256, "{}: {}", text, problem),
        }
    }

    /// Whatever others write, and whatever the operator writes that compiles.
    #[test]
    fn no_text_upsets_a_rule(
        pattern in "\\PC{0,20}|[()|*+?<>a-c\\\\.]{0,12}",
        command in proptest::collection::vec(any::<u8>(), 0..200),
        path in "/[a-c/\\PC]{0,30}",
    ) {
        let (command, path): (&'static [u8], &'static str) = (command.leak(), path.leak());
        let mut made = Made { command: Some(command), cgroup: Some(path), ..Made::default() };
        if let (Ok(anywhere), Ok(whole)) = (Pattern::anywhere(&pattern), Pattern::whole(&pattern)) {
            let rule = Rule { command: Some(anywhere), cgroup: Some(whole), ..rule("x") };
            if let Some(found) = first_match(&[rule], &mut made) {
                let group = found.group.unwrap();
                prop_assert!(path.starts_with(&group));
                let below = &path[group.len()..];
                prop_assert!(below.is_empty() || below.starts_with('/'), "{} {}", path, group);
            }
        }
    }

    /// A path written out matches itself and what is below, and nothing else.
    #[test]
    fn an_escaped_path_matches_itself(path in "(/[a-z.*+()é ]{1,8}){1,4}", other in "[a-z]{1,4}") {
        let rule = Rule { cgroup: whole(&regex::escape(&path)), ..rule("x") };
        let rules = [rule];
        let group = |path: String| {
            let mut made = Made { cgroup: Some(path.leak()), ..Made::default() };
            first_match(&rules, &mut made).and_then(|found| found.group)
        };
        prop_assert_eq!(group(path.clone()), Some(path.clone()));
        prop_assert_eq!(group(format!("{path}/{other}")), Some(path.clone()));
        prop_assert_eq!(group(format!("{path}{other}")), None);
        let longer = format!("/{other}{path}");
        prop_assume!(!longer.starts_with(&format!("{path}/")));
        prop_assert_eq!(group(longer), None);
    }
}
