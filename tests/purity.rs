//! The decision core is pure: no clock, file, socket, async or log (spec 10).
//!
//! Reads the sources under `src/core/` and looks at every path they name, in `use` trees
//! (groups expanded) and in expressions. Textual on purpose: it needs no compiler plugin and
//! says where; a macro that hides a path from it would be seen in review.

#![allow(clippy::unwrap_used)] // tests, helpers included

use std::fs;
use std::path::{Path, PathBuf};

/// What the core must not name, itself or anything below it.
const FORBIDDEN: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "cgroups_rs",
    "libc",
    "nix",
    "procfs",
    "rustix",
    "tokio",
    "tonic",
    "tracing",
    "crate::cgroup",
    "crate::clock",
    "crate::config",
    "crate::log",
    "crate::publish",
    "crate::wire",
];

#[test]
fn the_core_is_pure() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/core");
    let mut sources = Vec::new();
    collect(&core, &mut sources);
    assert!(!sources.is_empty(), "no source found below {}", core.display());

    let mut faults = Vec::new();
    for source in &sources {
        // Tests of the core may use what they like: `tests.rs`, `proptests.rs`, `tests/`.
        if source.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"))
            || source.components().any(|part| part.as_os_str() == "tests")
        {
            continue;
        }
        let text = fs::read_to_string(source).unwrap();
        for (line, path) in impure(production_part(&text)) {
            faults.push(format!("{}:{line}: {path}", source.display()));
        }
    }
    assert!(faults.is_empty(), "src/core/ must stay pure, but names\n{}", faults.join("\n"));
}

fn collect(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// Everything before an inline test module, which by the house style closes a file.
fn production_part(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod tests {").map_or(text, |end| &text[..end])
}

/// Line number (from 1) and path of everything forbidden in `text`.
fn impure(text: &str) -> Vec<(usize, String)> {
    let tokens = tokens(text);
    let mut paths = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let (line, token) = (tokens[at].0, tokens[at].1.as_str());
        if is_name(token) && token != "use" {
            expand(&tokens, &mut at, line, Vec::new(), &mut paths);
        } else {
            at += 1;
        }
    }
    paths.retain(|(_, path)| {
        FORBIDDEN.iter().any(|forbidden| {
            path.strip_prefix(forbidden)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        })
    });
    paths
}

/// Reads one path at `at`, through `{}` groups, and pushes each full path it stands for.
fn expand(
    tokens: &[(usize, String)],
    at: &mut usize,
    line: usize,
    mut prefix: Vec<String>,
    into: &mut Vec<(usize, String)>,
) {
    while let Some((_, token)) = tokens.get(*at) {
        if is_name(token) {
            prefix.push(token.clone());
            *at += 1;
            if tokens.get(*at).is_some_and(|(_, next)| next == "::") {
                *at += 1;
                continue;
            }
        } else if token == "{" && !prefix.is_empty() {
            *at += 1;
            while let Some((line, token)) = tokens.get(*at) {
                match token.as_str() {
                    "}" => {
                        *at += 1;
                        return;
                    }
                    name if is_name(name) => expand(tokens, at, *line, prefix.clone(), into),
                    "{" => expand(tokens, at, *line, prefix.clone(), into),
                    _ => *at += 1,
                }
            }
            return;
        }
        break;
    }
    if prefix.last().is_some_and(|last| last == "self") {
        prefix.pop();
    }
    into.push((line, prefix.join("::")));
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::` and single characters, without comments and string contents.
fn tokens(text: &str) -> Vec<(usize, String)> {
    let mut tokens = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let length = if rest.starts_with("//") {
                break;
            } else if is_name(rest) {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else if let Some(string) = rest.strip_prefix('"') {
                rest = &string[string_end(string)..];
                continue;
            } else {
                first.len_utf8()
            };
            if !first.is_whitespace() {
                tokens.push((number + 1, rest[..length].to_owned()));
            }
            rest = &rest[length..];
        }
    }
    tokens
}

/// Index after the closing quote of a literal on one line; the line's end if there is none.
fn string_end(literal: &str) -> usize {
    let mut escaped = false;
    for (index, c) in literal.char_indices() {
        match c {
            '"' if !escaped => return index + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    literal.len()
}

#[test]
fn every_way_to_name_a_forbidden_path_is_seen() {
    for (source, expected) in [
        ("use std::fs;", "std::fs"),
        ("use std::fs::File;", "std::fs::File"),
        ("use std::{collections::BTreeMap, fs::{self, File}};", "std::fs"),
        ("use std::time::{Duration, Instant};", "std::time::Instant"),
        ("use crate::{clock, units::Pid};", "crate::clock"),
        ("use ::tokio::sync::watch;", "tokio::sync::watch"),
        ("fn f() { let x = std::fs::read(\"x\"); }", "std::fs::read"),
        ("fn f() { tracing::info!(\"x\"); }", "tracing::info"),
        ("fn f() -> crate::units::Moment { crate::clock::now() }", "crate::clock::now"),
        ("use std::{\n    collections::BTreeMap,\n    net::IpAddr,\n};", "std::net::IpAddr"),
    ] {
        let found = impure(source);
        assert!(found.iter().any(|(_, path)| path == expected), "{source:?} gave {found:?}");
    }
}

#[test]
fn pure_sources_are_left_alone() {
    for source in [
        "use std::time::Duration;",
        "use std::fmt;\nuse std::collections::{BTreeMap, BTreeSet};",
        "// std::fs is not for us\n/// see std::time::Instant\n",
        "const TEXT: &str = \"std::fs \\\" tokio::spawn\";",
        "use crate::units::{BootTime, Moment};",
        "struct S { nix_like: u8 }\nfn clock(time: u8) -> S { S { nix_like: time } }",
    ] {
        assert_eq!(impure(source), [], "{source:?}");
    }
}
