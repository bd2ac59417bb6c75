//! `lrs-place classify`: a jar that javac made (`Count.java`), what is no jar.

use crate::{Ended, lrs_place};

const JAR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/Count.jar");

const HARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/measured/Hard.jar");

fn classify(args: &[&str]) -> Ended {
    lrs_place(&[&["classify"], args].concat())
}

#[test]
fn map_and_reduce_classes_are_listed() {
    let text = classify(&[JAR]);
    assert_eq!((text.code, text.err.as_str()), (Some(0), ""), "{text:?}");
    let rows = text.out.lines().take_while(|line| !line.starts_with("note"));
    assert_eq!(rows.count(), 3, "{text:?}");
    let json: serde_json::Value = serde_json::from_str(&classify(&[JAR, "--json"]).out).unwrap();
    assert_eq!(json["skipped"].as_array().unwrap().len(), 0);
    let words = &json["programs"][1];
    assert_eq!((&words["class"], &words["kind"]), (&"Count$Words".into(), &"map".into()));
    // Counted in what `javap -c` shows: 13 before the loop's body, 16 in it, 1 behind.
    assert_eq!((&words["longest_path"], &words["threshold"]), (&30.into(), &500.into()));
    assert_eq!(words["loops"], 1);
    // A loop over the words of a line, which Java splits.
    assert!(words["predicted"].is_null() && words["assumed_computing_rate"].is_null());
    assert_eq!(words["not_followed"][0], "java.lang.String.split");
    let text = classify(&[JAR, "--class", "Words"]);
    assert!(text.out.contains("note  Count$Words: a loop has no known count"), "{text:?}");
}

#[test]
fn a_class_is_chosen_by_the_end_of_its_name() {
    let text = classify(&[JAR, "--class", "Sum"]);
    assert_eq!(text.code, Some(0), "{text:?}");
    assert!(text.out.lines().nth(1).unwrap().starts_with("Count$Sum"), "{text:?}");
    let text = classify(&[JAR, "--class", "Count"]);
    assert_eq!(text.code, Some(1), "{text:?}");
    assert!(text.err.contains("is no map or reduce class"), "{text:?}");
    let text = classify(&[JAR, "--class", "Average"]);
    assert!(text.err.contains("has no class Average"), "{text:?}");
}

#[test]
fn a_hint_is_an_option_of_run_or_nothing() {
    let hint = classify(&[HARD, "--class", "CpuLoop", "--job-hint"]);
    assert_eq!((hint.code, hint.out.as_str()), (Some(0), "--rate=0.6\n"));
    let unknown = classify(&[JAR, "--class", "Words", "--job-hint"]);
    assert_eq!((unknown.code, unknown.out.as_str()), (Some(0), ""), "{unknown:?}");
    assert!(unknown.err.contains("no hint of Count$Words: a loop"), "{unknown:?}");
    let many = classify(&[JAR, "--job-hint"]);
    assert_eq!(many.code, Some(1), "{many:?}");
    assert!(many.err.contains("--class names it"), "{many:?}");
}

#[test]
fn what_is_no_jar_is_named() {
    for (file, says) in [
        (concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "is not a jar"),
        ("/nonexistent.jar", "cannot be read"),
    ] {
        for text in [classify(&[file]), classify(&[JAR, "--class-path", file])] {
            assert_eq!((text.code, text.out.as_str()), (Some(1), ""), "{text:?}");
            assert!(text.err.contains(file) && text.err.contains(says), "{text:?}");
        }
    }
}
