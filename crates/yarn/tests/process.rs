//! The program itself, without any lrsd.

#![allow(clippy::unwrap_used)] // tests, helpers included

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn program(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lrs-yarn"));
    command.arg("--state-dir").arg(dir.join("state")).arg("--socket").arg(dir.join("lrsd.sock"));
    command.stdin(Stdio::null()).stderr(Stdio::piped()).env_remove("NOTIFY_SOCKET");
    command
}

/// One that waits for its lrsd.
fn started(dir: &Path) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut child = program(dir).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("lrsd is not followed") {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "it ended");
    }
    (child, log)
}

#[test]
fn it_waits_for_lrsd_alone_and_ends_well() {
    let dir = tempfile::tempdir().unwrap();
    let (mut first, _log) = started(dir.path());
    for option in [None, Some("--give-back")] {
        let second = program(dir.path()).args(option).output().unwrap();
        let text = String::from_utf8(second.stderr).unwrap();
        assert_eq!(second.status.code(), Some(1), "{text}");
        assert!(text.contains(&format!("another lrs-yarn (pid {})", first.id())), "{text}");
    }
    let pid = Pid::from_child(&first);
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(0));
}

#[test]
fn without_an_offer_nothing_is_given_back_and_a_remaining_one_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let give_back = || {
        let output = program(dir.path()).arg("--give-back").output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(give_back(), (Some(0), String::new()), "not even a directory");
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    assert_eq!(give_back(), (Some(0), String::new()));
    let ledger = r#"{"version":1,"node":"node1:45454","sent":[{"memory_mib":9216,"vcores":9}],
        "configured":{"memory_mib":8192,"vcores":8},"era":{"resource_manager":1,"node_manager":null},
        "given_back":null,"decommissioning":null}"#;
    std::fs::write(state.join("yarn.json"), ledger).unwrap();
    let (code, text) = give_back();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("settings of lrs-yarn are gone"), "{text}");
    assert!(text.contains("yarn rmadmin -updateNodeResource node1:45454 8192 8 -1"), "{text}");
}
