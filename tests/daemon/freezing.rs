//! Stages 2 and 3 of the guard: passive tasks are frozen, and thawed whatever becomes of them or of
//! the daemon.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Daemon, signal};

const SLOTS: &str = "daemon.sample_period = \"100ms\"\n\
                     [slots]\nactive = 1\npassive = 1\nexpand = false\n";

/// No node has half of that.
fn short(dry_run: bool) -> String {
    format!(
        "{SLOTS}[guard]\nmemory_reserve = \"1024TiB\"\nheadroom_after = \"0s\"\n\
         freeze_after = \"0s\"\nfreeze_dry_run = {dry_run}\nfreeze_hold = \"1s\"\n"
    )
}

fn well() -> String {
    format!("{SLOTS}[guard]\nenabled = false\n")
}

/// What the kernel's files say, with or without a daemon.
fn is_frozen(daemon: &Daemon, task: &Value) -> bool {
    let group = task["cgroup"].as_str().expect("a cgroup").rsplit('/').next().expect("a name");
    daemon.root_dirs().iter().any(|root| {
        let read = |file| fs::read_to_string(root.join(group).join(file)).unwrap_or_default();
        read("cgroup.freeze").trim() == "1"
            || ["FROZEN", "FREEZING"].contains(&read("freezer.state").trim())
    })
}

/// An active and a frozen passive task; their processes.
fn frozen(name: &str) -> (Daemon, i32, i32) {
    let mut daemon = Daemon::start(name, &well());
    let pids = [1, 2].map(|count| {
        let pid = daemon.run(&[], &["sleep", "600"]);
        daemon.eventually("its task", |daemon| (daemon.tasks().len() == count).then_some(()));
        pid
    });
    freeze(&daemon, pids[1]);
    (daemon, pids[0], pids[1])
}

fn freeze(daemon: &Daemon, pid: i32) {
    daemon.configure(&short(false));
    daemon.ok(&["reload"]);
    daemon.eventually("a frozen task", |daemon| {
        (daemon.task_of(pid)["frozen"] == true).then_some(())
    });
    assert!(is_frozen(daemon, &daemon.task_of(pid)));
}

fn runs(daemon: &Daemon, pid: i32) {
    daemon.eventually("a task that runs", |daemon| {
        (daemon.task_of(pid)["frozen"] == false).then_some(())
    });
    assert!(!is_frozen(daemon, &daemon.task_of(pid)));
}

#[test]
#[ignore = "needs root and cgroups"]
fn the_passive_task_is_frozen_and_shown_and_thawed_for_its_promotion() {
    let (daemon, active, passive) = frozen("freeze");
    assert_eq!(daemon.task_of(active)["frozen"], false);
    let id = daemon.task_of(passive)["id"].clone();
    let guard = daemon.status()["guard"].clone();
    assert_eq!((&guard["stage"], &guard["frozen"]), (&Value::from(3), &Value::from(vec![id])));
    assert!(guard["reason"].as_str().is_some_and(|r| r.contains("half of the reserve")), "{guard}");
    let why = daemon.ok(&["why", "guard"]);
    assert!(why.contains("frozen") && why.contains("half of the reserve"), "{why}");
    signal(active, Signal::KILL);
    daemon.eventually("a promotion", |daemon| {
        (daemon.task_of(passive)["tier"] == "active").then_some(())
    });
    runs(&daemon, passive);
    assert!(daemon.ok(&["why", "guard"]).contains("it becomes active"));
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_reload_a_drain_and_a_release_thaw() {
    let (daemon, _, passive) = frozen("freezereload");
    // Nothing changed, so nothing is thawed.
    daemon.ok(&["reload"]);
    assert!(!daemon.ok(&["why", "guard"]).contains("the settings freeze no task"));
    daemon.configure(&short(true));
    daemon.ok(&["reload"]);
    runs(&daemon, passive);
    daemon.eventually("stage 3 as a dry run", |daemon| {
        let guard = daemon.status()["guard"].clone();
        (guard["stage"] == 3 && guard["dry_run"] == true).then_some(())
    });
    assert_eq!(daemon.task_of(passive)["frozen"], false, "a dry run freezes nothing");
    freeze(&daemon, passive);
    daemon.ok(&["drain"]);
    runs(&daemon, passive);
    daemon.ok(&["resume"]);
    freeze(&daemon, passive);
    let task = daemon.task_of(passive);
    daemon.ok(&["release", task["id"].as_str().expect("an id")]);
    assert!(!is_frozen(&daemon, &task));
    signal(passive, Signal::TERM);
    daemon.eventually("its end", |_| {
        let stat = fs::read_to_string(format!("/proc/{passive}/stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z")).then_some(())
    });
}

#[test]
#[ignore = "needs root and cgroups"]
fn no_end_of_the_daemon_leaves_a_task_frozen() {
    let (mut daemon, _, passive) = frozen("freezestop");
    let task = daemon.task_of(passive);
    daemon.stop();
    assert!(!is_frozen(&daemon, &task), "a stop thaws");

    daemon.launch();
    freeze(&daemon, passive);
    daemon.kill();
    assert!(is_frozen(&daemon, &task));
    daemon.configure(&well());
    daemon.launch();
    runs(&daemon, passive);
    assert!(daemon.ok(&["why", "guard"]).contains("an earlier lrsd froze it"));

    freeze(&daemon, passive);
    daemon.kill();
    let (code, text) = daemon.give_back();
    assert_eq!(code, Some(0), "{text}");
    assert!(!is_frozen(&daemon, &task), "{text}");

    daemon.launch();
    freeze(&daemon, passive);
    daemon.kill();
    daemon.configure(&format!("daemon.mode = \"observe\"\n{}", well()));
    daemon.launch();
    assert_eq!(daemon.task_of(passive)["attachment"], "none");
    assert_ne!(daemon.task_of(passive)["frozen"], true);
    signal(passive, Signal::TERM);
    daemon.eventually("its end", |daemon| (daemon.tasks().len() == 1).then_some(()));
}
