//! `lrs-place` as its users meet it: the built binary.

// Helper functions of tests are not tests to clippy; tests start programs and read files.
#![allow(clippy::unwrap_used, clippy::disallowed_types, clippy::disallowed_methods, missing_docs)]

mod classify;
mod examples;
mod hard;
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_lrs-place"));
    command.env_remove("CLICOLOR_FORCE").args(args).stdin(Stdio::null());
    let output = command.output().unwrap();
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
