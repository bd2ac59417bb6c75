use std::path::Path;
use std::time::Duration;

use super::*;

fn read(text: &str) -> Result<Suite, String> {
    read::suite(text, Path::new("s.toml"), 2, &|_| Vec::new())
}

const SMALL: &str = r#"
name = "small"
[[load]]
name = "one"
class = "cpu"
[[load.tasks]]
name = "map"
command = ["true"]
"#;

#[test]
fn what_is_left_out_has_a_default() {
    let suite = read(SMALL).unwrap();
    assert_eq!((suite.rounds, suite.time_limit), (10, Duration::from_secs(300)));
    assert!(suite.programs().into_iter().eq(["true"]));
    let names: Vec<&str> = suite.settings.iter().map(|setting| &*setting.name).collect();
    assert_eq!(
        names,
        [
            "static 1",
            "static 1.5",
            "static 2",
            "cgroup 1",
            "cgroup 1.5",
            "cgroup 2",
            "lrs",
            "lrs again",
            "lrs no expansion",
            "alone"
        ]
    );
    assert!(matches!(suite.settings[1].how, How::Processes(3)));
    assert_eq!(suite.loads[0].tasks(), 1);
}

#[test]
fn counts_follow_the_node_and_settings_have_their_keys() {
    let text = format!(
        r#"{SMALL}
count = "8 per core"
arrival = "exponential 2s"
[[load.tasks]]
name = "reduce"
command = ["cat", "{{run}}/map-1"]
after = ["map"]
[lrsd]
"daemon.sample_period" = "500ms"
[[setting]]
name = "a"
lrs = {{}}
[[setting]]
name = "b"
lrs = {{ "slots.expand" = false }}
[[setting]]
name = "c"
lrs = {{}}
[[setting]]
name = "d"
slots_per_core = 1.5
how = "cgroup"
"#
    );
    let suite = read(&text).unwrap();
    let [map, reduce] = &*suite.loads[0].groups else { panic!() };
    assert_eq!((map.count, map.arrival), (16, Arrival::Exponential(Duration::from_secs(2))));
    assert_eq!(reduce.after, [0]);
    use SettingKind::*;
    let kinds: Vec<SettingKind> = suite.settings.iter().map(|setting| setting.kind).collect();
    assert_eq!(kinds, [Lrs, LrsVariant, LrsAgain, StaticCgroup]);
    let How::Daemon { keys, slots } = &suite.settings[3].how else { panic!() };
    assert_eq!(*slots, Some(3));
    assert!(keys.contains(&("daemon.sample_period".to_owned(), "\"500ms\"".to_owned())));
    assert!(keys.contains(&("slots.active".to_owned(), "3".to_owned())));
}

#[test]
fn every_fault_is_reported_with_its_line() {
    let text = r#"name = "Bad Name"
round = 3
time_limit = 5
[[data]]
name = "d"
kind = "text"
[[load]]
name = "one"
class = "fast"
[[load.tasks]]
name = "a"
count = 0
command = ["sh", "-c", "echo {file}"]
after = ["b"]
[[load]]
name = "two"
class = "cpu"
[[load]]
name = "three"
class = "cpu"
[[load.tasks]]
name = "a"
command = ["true"]
after = ["b"]
[[load.tasks]]
name = "b"
command = ["true"]
after = ["a", "z"]
[[load]]
name = "three"
class = "cpu"
[[load.tasks]]
name = "a"
command = ["true"]
[[load.tasks]]
name = "a"
command = []
[[setting]]
name = "s"
slots = 2
lrs = { "slots.expnad" = false, "daemon.sample_period" = "1ms", "dbus.bus" = "off" }
"#;
    let message = read(text).unwrap_err();
    for (line, words) in [
        (1, "name = \"Bad Name\": expected 1 to 64 of a-z"),
        (2, "round: unknown key; did you mean rounds?"),
        (3, "time_limit = 5: a duration needs a unit"),
        (4, "give kind and size, or a command"),
        (9, "load.class = \"fast\": unknown variant `fast`, expected one of `cpu`"),
        (12, "load.tasks.count = 0: expected 1..=10000"),
        (13, "unknown placeholder {file}"),
        (15, "the load has no task"),
        (21, "\"a\" waits for itself"),
        (25, "\"z\" is no group of this load"),
        (29, "the name \"three\" is taken by line 18"),
        (35, "the name \"a\" is taken by line 32"),
        (37, "is empty; write a program"),
        (38, "2 things decide what runs"),
        (41, "setting.lrs.\"dbus.bus\""),
    ] {
        let found = message
            .lines()
            .any(|fault| fault.starts_with(&format!("s.toml:{line}:")) && fault.contains(words));
        assert!(found, "line {line}, {words}, in\n{message}");
    }
}

#[test]
fn needs_grow_with_the_node() {
    let text = format!(
        "space = \"1GiB\"\nspace_per_core = \"10MiB\"\n{SMALL}[disk]\nsize = \"64MiB\"\n\
         size_per_core = \"1MiB\"\nbandwidth = \"1MiB\"\n"
    );
    let suite = read(&text).unwrap();
    assert_eq!(suite.space.0, (1 << 30) + (20 << 20));
    assert_eq!(suite.disk.unwrap().size_bytes, 66 << 20);
}

#[test]
fn the_first_setting_of_lrs_that_is_left_is_the_reference() {
    let mut suite = read(SMALL).unwrap();
    suite.settings.retain(|setting| ["lrs again", "lrs no expansion"].contains(&&*setting.name));
    suite.name_references();
    let kinds: Vec<SettingKind> = suite.settings.iter().map(|setting| setting.kind).collect();
    assert_eq!(kinds, [SettingKind::Lrs, SettingKind::LrsVariant]);
}

#[test]
fn lrsd_judges_its_keys_with_those_of_the_setting() {
    let text = format!(
        "{SMALL}[lrsd]\n\"slots.passive\" = 6\n[lrsd.slots]\nexpand = true\n[[setting]]\n\
         name = \"a\"\nlrs = {{ \"slots.passive_max\" = 4 }}\n"
    );
    let judge = |keys: &[(String, String)]| {
        let names: Vec<&str> = keys.iter().map(|(path, _)| &**path).collect();
        match &*names {
            ["slots.expand", "slots.passive"] => Vec::new(),
            ["slots.expand", "slots.passive", "slots.passive_max"] => {
                vec![(Some(2), "is too small; raise it".to_owned()), (Some(1), "is odd; no".into())]
            }
            other => panic!("{other:?}"),
        }
    };
    let message = read::suite(&text, Path::new("s.toml"), 2, &judge).unwrap_err();
    let message: Vec<&str> = message.lines().collect();
    assert_eq!(
        message,
        [
            "s.toml:13: setting.lrs.\"slots.passive\": is odd; no",
            "s.toml:15: setting.lrs.\"slots.passive_max\": is too small; raise it"
        ]
    );
    let text = format!("{SMALL}[[setting]]\nname = \"a\"\nhow = \"cgroup\"\nlrs = {{}}\n");
    let message = read(&text).unwrap_err();
    assert!(message.contains("a setting of LRS decides by itself how"), "{message}");
}

#[test]
fn what_no_task_would_find_is_refused() {
    let message = read(&SMALL.replace("\"true\"", "\"bin/true\"")).unwrap_err();
    assert!(
        message.contains("s.toml:8:") && message.contains("bin/true depends on where"),
        "{message}"
    );
    let data = "[[data]]\nname = \"text\"\nkind = \"text\"\nsize = \"1KiB\"\n";
    let command =
        |name: &str| SMALL.replace("\"true\"", &format!("\"wc\", \"{{data}}/{name}-{{part}}\""));
    assert!(read(&format!("{}{data}", command("text"))).is_ok());
    let message = read(&format!("{}{data}", command("txt"))).unwrap_err();
    assert!(message.contains("no data \"txt\"; did you mean text?"), "{message}");
}

#[test]
fn broken_toml_and_empty_files_are_reported() {
    assert!(read("name = \n").unwrap_err().contains("s.toml:1:"));
    let message = read("").unwrap_err();
    assert!(message.contains("name: is missing"), "{message}");
}

#[test]
fn every_shipped_suite_can_be_read_on_small_and_large_nodes() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/bench");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        for cpus in [1, 2, 256] {
            let suite = Suite::load(&path, cpus, &|_| Vec::new());
            let (suite, _) = suite.unwrap_or_else(|errors| panic!("{errors}"));
            assert_eq!(Some(&*suite.name), path.file_stem().and_then(|stem| stem.to_str()));
            assert!(suite.loads.iter().all(|load| load.check.is_some()), "{}", suite.name);
            names.push(suite.name.clone());
            if suite.name == "demo" {
                // Two minutes leave no time for more than what an operator would choose from.
                continue;
            }
            let kinds: Vec<SettingKind> = suite.settings.iter().map(|one| one.kind).collect();
            for kind in [SettingKind::Static, SettingKind::StaticCgroup, SettingKind::LrsAgain] {
                assert!(kinds.contains(&kind), "{kind:?} in {}", suite.name);
            }
        }
    }
    names.dedup();
    for name in [
        "six-loads",
        "six-loads-slow",
        "mixes",
        "facebook",
        "priority",
        "dfsio",
        "smoke",
        "disk-tiers",
        "disk-tiers-slow",
        "queue",
    ] {
        assert!(names.iter().any(|other| other == name), "{name} in {names:?}");
    }
}
