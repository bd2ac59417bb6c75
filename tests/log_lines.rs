//! Every log line of ours is a sentence that says all of it (`crates/host/src/log.rs`): text logs and
//! `journalctl` show the message alone, so an error that is a field only is lost to readers.
//!
//! Reads the sources. Textual on purpose: no lint knows what a log line shows.

#![allow(clippy::unwrap_used)] // tests, helpers included

use std::fs;
use std::path::Path;

#[test]
fn errors_are_part_of_the_message() {
    let mut faults = Vec::new();
    let mut lines = 0;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let daemons =
        ["src", "crates/executor/src", "crates/host/src", "crates/yarn/src", "crates/exporter/src"]
            .map(|dir| sources(&root.join(dir)));
    for (path, text) in daemons.into_iter().flatten() {
        for call in calls(&text) {
            lines += 1;
            for field in ["error", "errno"] {
                if call.contains(&format!("%{field},")) && !call.contains(&format!("{{{field}}}")) {
                    faults.push(format!("{path}: {call}"));
                }
            }
        }
    }
    assert!(lines > 30, "only {lines} log lines found: the test is blind");
    assert!(faults.is_empty(), "fields that the message does not say:\n{}", faults.join("\n"));
}

/// The arguments of each call of a `tracing` macro, on one line.
fn calls(text: &str) -> Vec<String> {
    let levels = ["error", "warn", "info", "debug"];
    let starts = levels.iter().flat_map(|level| {
        let start = format!("tracing::{level}!(");
        text.match_indices(&start).map(|(at, found)| at + found.len()).collect::<Vec<_>>()
    });
    // All our calls are statements, or values of a match arm.
    let end = |rest: &str| [");\n", "),\n", ")\n"].iter().filter_map(|e| rest.find(e)).min();
    starts
        .map(|at| {
            let rest = &text[at..];
            let call = &rest[..end(rest).unwrap_or(rest.len())];
            call.split_whitespace().collect::<Vec<_>>().join(" ")
        })
        .collect()
}

fn sources(dir: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

#[test]
fn the_search_sees_what_is_missing() {
    let text = "a(); tracing::warn!(\n    %error,\n    \"it failed\"\n);\n tracing::info!(x, \"y {x}\");\n";
    assert_eq!(calls(text), ["%error, \"it failed\"", "x, \"y {x}\""]);
}
