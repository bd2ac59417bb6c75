//! `lrsctl bench` as its users meet it: suites that cannot be run, tasks that misbehave, and a
//! tiny bench in every kind of setting.
//!
//! Times are held against each other, never against a figure: the machine may be busy.

// Helper functions of tests are not tests to clippy.
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod bad;
#[path = "../../../../tests/daemon/panics.rs"]
mod panics;
mod smoke;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lrs_bench::record::Run;

/// `lrsctl`, which cargo puts beside the program that is tested here.
pub fn lrsctl() -> PathBuf {
    let lrsctl = Path::new(env!("CARGO_BIN_EXE_lrs-bench")).with_file_name("lrsctl");
    assert!(lrsctl.exists(), "no {}: run `cargo build` first", lrsctl.display());
    lrsctl
}

/// A directory with a suite; the working directories and the output go there too.
pub struct SuiteDir {
    dir: tempfile::TempDir,
}

/// What came of a bench.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl SuiteDir {
    pub fn new(suite: &str) -> SuiteDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("suite.toml"), suite).unwrap();
        SuiteDir { dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn output(&self) -> PathBuf {
        self.path().join("out")
    }

    /// `lrsctl bench suite.toml --out out --dir . ARGS`
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(lrsctl());
        command.args(["bench", "suite.toml", "--out", "out", "--dir", "."]).args(args);
        command.current_dir(self.path()).env_remove("LRS_ENDPOINT");
        command
    }

    pub fn bench(&self, args: &[&str]) -> Ended {
        Ended::from(self.command(args).output().unwrap())
    }

    /// The runs kept.
    pub fn runs(&self) -> Vec<Run> {
        let text = std::fs::read_to_string(self.output().join("runs.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Working directories that are still there.
    pub fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("lrs-bench-")).collect()
    }
}

impl Drop for SuiteDir {
    fn drop(&mut self) {
        // Of a bench without lrsd there is none.
        let log = std::fs::read_to_string(self.output().join("logs/lrsd.log"));
        panics::none_in(&log.unwrap_or_default());
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        Ended {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
