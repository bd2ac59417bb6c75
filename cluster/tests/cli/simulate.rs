//! `lrs-place simulate` and `tables`: a small suite, its files, faults.

use crate::lrs_place;

const SUITE: &str = r#"
title = "Two policies"
figures = ["makespan", "node_local"]
policies = ["fifo", "delay"]
[nodes]
count = 4
active = 2
[[case]]
name = "small"
job = [{ name = "j", jobs = 3, maps = 8, map = { seconds = 10, spread = 0.3 } }]
"#;

#[test]
fn a_suite_becomes_a_table_and_the_files_that_were_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("suite.toml"), SUITE).unwrap();
    let (json, csv, svg) = (at("all.json"), at("all.csv"), at("bars.svg"));
    let ended = lrs_place(&[
        "simulate",
        &at("suite.toml"),
        "--json",
        &json,
        "--csv",
        &csv,
        "--svg",
        &svg,
        "--figure",
        "makespan",
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("Two policies") && ended.out.contains("small/delay"), "{ended:?}");
    let read = |path| std::fs::read_to_string(path).unwrap();
    let json: serde_json::Value = serde_json::from_str(&read(json)).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 1);
    assert_eq!(read(csv).lines().filter(|line| line.contains("small/")).count(), 2);
    assert_eq!(read(svg).matches("<rect x=").count(), 2);
    assert!(ended.out.contains("20 seeds") && ended.out.contains(" to "), "{ended:?}");
    let one = lrs_place(&["simulate", &at("suite.toml"), "--case", "fifo"]);
    assert!(one.out.contains("small/fifo") && !one.out.contains("small/delay"), "{one:?}");
}

#[test]
fn seeds_are_chosen_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("suite.toml");
    std::fs::write(&file, SUITE).unwrap();
    let run = |more: &[&str]| {
        let arguments = [&["simulate", file.to_str().unwrap(), "--case", "fifo"], more].concat();
        lrs_place(&arguments)
    };
    let (first, same, other) = (
        run(&["--seeds", "1"]),
        run(&["--seeds", "1", "--seed", "1"]),
        run(&["--seeds", "1", "--seed", "9"]),
    );
    assert!(
        first.out.contains("One seed: no intervals") && !first.out.contains(" to "),
        "{first:?}"
    );
    assert_eq!(first.out, same.out);
    assert_ne!(first.out, other.out);
    assert!(run(&["--seeds", "6"]).out.contains("6 seeds: medians"));
    assert_eq!(run(&["--seeds", "0"]).code, Some(2));
}

#[test]
fn a_published_table_is_in_the_program() {
    let ended = lrs_place(&["tables", "delay", "--case", "D = 270"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("Delay scheduling"), "{ended:?}");
    assert_eq!(lrs_place(&["tables", "best"]).code, Some(2));
}

#[test]
fn what_cannot_be_read_or_run_is_named() {
    let missing = lrs_place(&["simulate", "/nonexistent.toml"]);
    assert_eq!((missing.code, missing.out.as_str()), (Some(1), ""));
    assert!(missing.err.contains("/nonexistent.toml"), "{missing:?}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bad.toml");
    std::fs::write(&file, "titel = 1").unwrap();
    let bad = lrs_place(&["simulate", file.to_str().unwrap()]);
    assert_eq!(bad.code, Some(1), "{bad:?}");
    assert!(bad.err.contains("bad.toml: the file: title: missing; write it"), "{bad:?}");
    let text = "title = ''\nnodes = { active = 0 }\n[[job]]\nname = 'j'\nmaps = 1";
    std::fs::write(&file, text).unwrap();
    let stuck = lrs_place(&["simulate", file.to_str().unwrap()]);
    assert_eq!(stuck.code, Some(1), "{stuck:?}");
    assert!(!stuck.out.is_empty(), "{stuck:?}");
    let figure = lrs_place(&["simulate", "x", "--svg", "y", "--figure", "z"]);
    assert_eq!(figure.code, Some(2), "{figure:?}");
}

#[test]
fn a_log_is_simulated_and_written_down() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let suite = "title = 'A log'\npolicies = ['fifo', 'delay']\nseeds = 1\nnodes = { count = 2 }\n";
    std::fs::write(at("suite.toml"), suite).unwrap();
    let job = |number: u32, run: i32| {
        format!("{number} {number} -1 {run} 2 1 -1 2 -1 -1 1 1 -1 -1 -1 -1 -1 -1\n")
    };
    let log = format!("; Version: 2.2\n{}{}{}", job(1, 9), job(2, -1), job(3, 5));
    std::fs::write(at("site.swf"), log).unwrap();
    let run = |log: &str| {
        lrs_place(&["simulate", &at("suite.toml"), "--swf", log, "--traces", &at("out")])
    };
    let ended = run(&at("site.swf"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.err.contains("site.swf: left out line 3: the run time is not known"),
        "{ended:?}"
    );
    for case in ["001-fifo", "002-delay"] {
        let read = |name: &str| {
            std::fs::read_to_string(directory.path().join("out").join(case).join(name)).unwrap()
        };
        assert_eq!(read("jobs.csv").lines().count(), 3);
        assert_eq!(read("tasks.csv").lines().count(), 5);
        assert_eq!(read("schedule.csv").lines().count(), 2);
        assert_eq!(read("gantt.svg").matches("<rect x=").count(), 4);
    }
    std::fs::write(at("none.swf"), "; nothing\n").unwrap();
    let none = run(&at("none.swf"));
    assert_eq!((none.code, none.out.as_str()), (Some(1), ""));
    assert!(none.err.contains("none.swf has no job that can be simulated"), "{none:?}");
    std::fs::write(at("file"), "").unwrap();
    let file = at("file");
    let ended =
        lrs_place(&["simulate", &at("suite.toml"), "--swf", &at("site.swf"), "--traces", &file]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("cannot write "), "{ended:?}");
}

/// The runs may take an hour, and end before they are over.
#[test]
fn a_file_stays_as_it_is_until_the_runs_are_over() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let suite = "title = 'A'\nseeds = 1\npolicies = ['fifo']\n[[job]]\nname = 'j'\nmaps = 1\n";
    std::fs::write(at("suite.toml"), suite).unwrap();
    std::fs::write(at("all.json"), "before").unwrap();
    std::fs::set_permissions(at("all.json"), PermissionsExt::from_mode(0o640)).unwrap();
    symlink("all.json", at("link")).unwrap();
    let run = |traces: &str| {
        lrs_place(&["simulate", &at("suite.toml"), "--json", &at("link"), "--traces", traces])
    };
    let ended = run(&at("all.json/traces"));
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "before the first run");
    assert!(ended.err.contains("cannot write ") && ended.err.contains("traces"), "{ended:?}");
    assert_eq!(std::fs::read_to_string(at("all.json")).unwrap(), "before");
    let ended = run(&at("traces"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(std::fs::read_to_string(at("all.json")).unwrap().starts_with('['));
    assert!(std::fs::symlink_metadata(at("link")).unwrap().is_symlink());
    assert_eq!(std::fs::metadata(at("all.json")).unwrap().permissions().mode() & 0o777, 0o640);
    let mut left: Vec<_> =
        directory.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["all.json", "link", "suite.toml", "traces"]);

    // A second name stays one of the same file, and a name of a directory is none of a file.
    std::fs::write(at("all.json"), "before").unwrap();
    std::fs::hard_link(at("all.json"), at("second")).unwrap();
    assert_eq!(run(&at("traces")).code, Some(0));
    assert!(std::fs::read_to_string(at("second")).unwrap().starts_with('['));
    let ended = lrs_place(&["simulate", &at("suite.toml"), "--json", &at("missing/")]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "before the first run");
}
