//! Pids named in another pid namespace than lrsd's.

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::harness::{Daemon, signal};

const SLOTS: &str =
    "slots.active = 2\nslots.passive = 2\nslots.expand = false\nguard.enabled = false\n";

/// A shell script in a pid namespace of its own, with its own /proc.
fn inside(daemon: &Daemon, script: &str) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script])
        .env("LRS_ENDPOINT", format!("unix:{}", daemon.socket().display()))
        .env("LRSCTL", env!("CARGO_BIN_EXE_lrsctl"))
        .stdin(Stdio::null());
    command
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_pid_of_another_namespace_is_refused_and_the_callers_own_is_not() {
    let mut daemon = Daemon::start("pidns", SLOTS);
    let outside = daemon.process(&["cat"]);
    // The number of a process out here, and that of one in there.
    for script in
        [format!("\"$LRSCTL\" admit {outside}"), "sleep 1000 & \"$LRSCTL\" admit $!".to_owned()]
    {
        let output = inside(&daemon, &script).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{script}: {text}");
        assert!(text.contains("another pid namespace") && text.contains("lrsctl run"), "{text}");
    }
    assert!(daemon.tasks().is_empty());
    assert_eq!(
        daemon.ok(&["admit", &outside.to_string()]).lines().count(),
        1,
        "out here it is right"
    );

    let output = inside(&daemon, "\"$LRSCTL\" run -- cat /proc/self/cgroup").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains(&daemon.root), "{output:?}");
    // One that has to wait learns why: pid 0 is itself here too.
    daemon.run(&[], &["cat"]);
    daemon.run(&[], &["cat"]);
    daemon.run(&[], &["cat"]);
    daemon.eventually("full slots", |daemon| (daemon.tasks().len() == 4).then_some(()));
    let output = inside(&daemon, "\"$LRSCTL\" -v run --wait=3s -- true").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(124), "{text}");
    assert!(text.contains("0 ahead"), "{text}");
}

/// A daemon in a pid namespace of its own; ended by a signal to itself, since `unshare` blocks those.
struct Contained(Daemon);

impl Drop for Contained {
    fn drop(&mut self) {
        let unshare = self.0.pid();
        let children = format!("/proc/{unshare}/task/{unshare}/children");
        let inner = fs::read_to_string(children).unwrap_or_default();
        if let Ok(pid) = inner.trim().parse() {
            signal(pid, Signal::TERM);
        }
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_daemon_that_cannot_see_its_callers_says_so() {
    let mut daemon = Daemon::new("pidnsd", SLOTS);
    daemon.wrapper =
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"].map(str::to_owned).to_vec();
    daemon.launch();
    let mut contained = Contained(daemon);
    let daemon = &mut contained.0;
    let pid = daemon.process(&["cat"]).to_string();
    daemon.refused(&["admit", &pid], 1, "outside of the pid namespace of lrsd");
    let output = daemon.ctl(&["run", "--", "true"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(text.contains("pid 0 means the caller"), "{text}");
}
