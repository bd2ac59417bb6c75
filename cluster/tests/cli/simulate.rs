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
