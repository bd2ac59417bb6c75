//! Start, stop, locks, reload, modes.

use std::io::Read as _;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Daemon, signal};

#[test]
#[ignore = "needs root and cgroups"]
fn a_second_daemon_on_either_lock_refuses() {
    let daemon = Daemon::start("first", "");
    let mut same_root = Daemon::new("second", "");
    same_root.root = daemon.root.clone();
    same_root.configure("");
    same_root.spawn();
    assert_eq!(same_root.wait_exit(), Some(1));
    assert!(same_root.log().contains("uses the cgroup root"), "{}", same_root.log());
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_lrsd"))
        .arg("--config")
        .arg(daemon.config())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(&format!("pid {}", daemon.pid())), "{text}");
    daemon.status();
    // The first one's root is not the second's to remove.
    same_root.root = "lrs-test-none".into();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_clean_stop_leaves_tasks_and_weights_and_is_quick_with_streams_open() {
    let mut daemon = Daemon::start("stop", "[slots]\nactive = 1\npassive = 1\n");
    let pid = daemon.run(&[], &["cat"]);
    let task = daemon.task_of(pid);
    let dir = daemon.cpu_dir(&task);
    let idle = std::fs::read_to_string(dir.join("cpu.idle")).unwrap();
    let mut follower = daemon
        .ctl_command(&["events", "--json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let silent = daemon.connect();
    let (code, took) = daemon.stop();
    assert_eq!(code, Some(0));
    // Two seconds are promised; a loaded test machine gets some slack.
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(!follower.wait().unwrap().success(), "the stream ended with an error");
    let mut text = String::new();
    follower.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(!text.is_empty());
    drop(silent);
    assert_eq!(crate::harness::procs(&dir), [pid]);
    assert_eq!(std::fs::read_to_string(dir.join("cpu.idle")).unwrap(), idle);
    assert!(!daemon.socket().exists());
    daemon.launch();
    assert_eq!(daemon.task_of(pid)["id"], task["id"]);
}

#[test]
#[ignore = "needs root and cgroups"]
fn sighup_applies_all_of_a_good_file_and_nothing_of_a_bad_one() {
    let daemon = Daemon::start("reload", "[slots]\nactive = 1\npassive = 1\nexpand = false\n");
    let capacity =
        |daemon: &Daemon| daemon.status()["slots"]["active"]["capacity"].as_u64().unwrap();
    assert_eq!(capacity(&daemon), 1);
    daemon.configure("[slots]\nactive = 3\npassive = 1\nexpand = false\n");
    signal(daemon.pid(), Signal::HUP);
    daemon.eventually("three active slots", |daemon| (capacity(daemon) == 3).then_some(()));
    daemon.configure("[slots]\nactive = 2\nzebra = 1\n");
    let refused = daemon.ctl(&["reload"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("zebra") && text.contains("old settings stay"), "{text}");
    daemon.configure("[slots]\nactive = 2\n[tiers]\nio = false\n");
    let refused = daemon.ctl(&["reload"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("tiers.io"), "{text}");
    assert_eq!(capacity(&daemon), 3);
    let shown = daemon.ok(&["config", "show"]);
    assert!(shown.contains("active = 3"), "{shown}");
}

#[test]
#[ignore = "needs root and cgroups"]
fn observe_mode_records_and_touches_nothing() {
    let mut daemon =
        Daemon::start("observe", "daemon.mode = \"observe\"\n[slots]\nactive = 1\npassive = 1\n");
    let first = daemon.run(&[], &["cat"]);
    let first_task = daemon.task_of(first);
    let second = daemon.run(&[], &["cat"]);
    let task = daemon.task_of(second);
    assert_eq!(task["tier"], "passive");
    assert_eq!(task["attachment"], "none");
    assert_eq!(first_task["tier"], "active");
    assert!(daemon.root_dirs().is_empty(), "{:?}", daemon.root_dirs());
    assert_eq!(daemon.status()["mode"], "observe");
    daemon.finish(first);
    daemon.join(first);
    daemon.eventually("a promotion", |daemon| {
        (daemon.task_of(second)["tier"] == "active").then_some(())
    });
}

#[test]
#[ignore = "needs root and cgroups"]
fn bad_configuration_exits_78_and_says_why() {
    let mut daemon = Daemon::new("badconfig", "[slots]\nactive = \"two\"\n");
    daemon.spawn();
    assert_eq!(daemon.wait_exit(), Some(78));
    assert!(daemon.log().contains("slots.active"), "{}", daemon.log());
}

#[test]
#[ignore = "needs root and cgroups"]
fn it_leaves_the_directory_it_was_started_in_and_finds_its_configuration_again() {
    let mut daemon = Daemon::new("cwd", "");
    let script = format!("cd {} && exec \"$1\" --config lrs.toml", daemon.dir.path().display());
    daemon.wrapper = ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
    daemon.launch();
    let cwd = std::fs::read_link(format!("/proc/{}/cwd", daemon.pid())).unwrap();
    assert_eq!(cwd, std::path::Path::new("/"));
    daemon.configure("slots.active = 3\n");
    daemon.ok(&["reload"]);
    assert_eq!(daemon.status()["slots"]["active"]["capacity"], 3);
    assert_eq!(daemon.stop().0, Some(0));
}
