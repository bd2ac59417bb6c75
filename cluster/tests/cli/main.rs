//! `lrs-place` as its users meet it: the built binary.

// Helper functions of tests are not tests to clippy; tests start programs and read files.
#![allow(clippy::unwrap_used, clippy::disallowed_types, clippy::disallowed_methods, missing_docs)]

mod classify;
mod examples;
mod hard;
mod odd_files;
mod pages;
mod plan;
mod simulate;

use std::process::{Command, Stdio};

/// How a run ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

fn lrs_place(args: &[&str]) -> Ended {
    ended(Command::new(env!("CARGO_BIN_EXE_lrs-place")).args(args))
}

/// The same with up to a GiB of memory and two minutes: what takes more fails.
fn lrs_place_within_bounds(args: &[&str]) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 1048576; exec timeout 120 \"$0\" \"$@\""]);
    ended(command.arg(env!("CARGO_BIN_EXE_lrs-place")).args(args))
}

fn ended(command: &mut Command) -> Ended {
    let output = command.env_remove("CLICOLOR_FORCE").stdin(Stdio::null()).output().unwrap();
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
