//! A private `lrsd` with an `lrs-yarn` beside it: they start and stop together, as their units do.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Daemon, signal};

/// Both. What is asked of lrsd alone is its own.
pub struct Lrs {
    lrsd: Daemon,
    yarn: Option<Child>,
}

impl Deref for Lrs {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.lrsd
    }
}

impl DerefMut for Lrs {
    fn deref_mut(&mut self) -> &mut Daemon {
        &mut self.lrsd
    }
}

/// Both are installed in one directory, and built into one.
fn program() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_lrsd")).with_file_name("lrs-yarn");
    assert!(path.exists(), "{} is not built: cargo build -p lrs-yarn", path.display());
    path
}

impl Lrs {
    pub fn start(name: &str, settings: &str) -> Lrs {
        let mut lrs = Lrs::new(name, settings);
        lrs.launch();
        lrs
    }

    pub fn new(name: &str, settings: &str) -> Lrs {
        Lrs { lrsd: Daemon::new(name, settings), yarn: None }
    }

    /// Directory of the ledger.
    pub fn ledger(&self) -> PathBuf {
        self.lrsd.dir.path().join("yarn")
    }

    fn yarn(&self) -> Command {
        let mut command = Command::new(program());
        command.arg("--socket").arg(self.lrsd.socket()).arg("--state-dir").arg(self.ledger());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// lrsd alone.
    pub fn lrsd(&mut self) -> &mut Daemon {
        &mut self.lrsd
    }

    /// Starts both. The log is one.
    pub fn launch(&mut self) {
        self.lrsd.launch();
        self.launch_yarn();
    }

    pub fn launch_yarn(&mut self) {
        let log = fs::File::options().append(true).open(self.lrsd.dir.path().join("log"));
        let child = self.yarn().stderr(log.expect("the log")).spawn();
        assert!(self.yarn.replace(child.expect("lrs-yarn starts")).is_none());
    }

    /// SIGTERM to lrs-yarn and then to lrsd: the exit code of lrsd, and how long both took.
    pub fn stop(&mut self) -> (Option<i32>, Duration) {
        let begun = Instant::now();
        if let Some(mut yarn) = self.yarn.take() {
            signal(yarn.id() as i32, Signal::TERM);
            let status = yarn.wait().expect("wait");
            assert_eq!(status.code(), Some(0), "lrs-yarn:\n{}", self.log());
        }
        let (code, took) = self.lrsd.stop();
        assert!(took < Duration::from_secs(2), "lrsd: {took:?}");
        (code, begun.elapsed())
    }

    /// SIGKILL to both.
    pub fn kill(&mut self) {
        self.kill_yarn();
        self.lrsd.kill();
    }

    pub fn kill_yarn(&mut self) {
        let mut yarn = self.yarn.take().expect("lrs-yarn runs");
        yarn.kill().expect("kill");
        yarn.wait().expect("wait");
    }

    /// `lrs-yarn --give-back`: the exit code and its output.
    pub fn give_offer_back(&self) -> (Option<i32>, String) {
        let output = self.yarn().arg("--give-back").output().expect("lrs-yarn");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    }
}

impl Drop for Lrs {
    fn drop(&mut self) {
        if let Some(mut yarn) = self.yarn.take() {
            // What it offered goes with the cluster.
            let _ = yarn.kill();
            let _ = yarn.wait();
        }
    }
}
