//! The root among the other groups of the node: it weighs what active tasks want.

use std::fs;
use std::path::{Path, PathBuf};

use lrs_testbed::groups::cpu_mount;

use crate::harness::Daemon;

/// Without loans: on a slow machine one would begin before the root is seen idle.
const QUICK: &str = "daemon.sample_period = \"100ms\"\n\
                     [slots]\nactive = 1\npassive = 1\nexpand = false\nlend = false\n";

const HOG: [&str; 3] = ["sh", "-c", "while :; do :; done"];

fn root(daemon: &Daemon) -> PathBuf {
    cpu_mount().expect("cgroups").0.join(&daemon.root)
}

fn text(root: &Path, file: &str) -> Option<String> {
    Some(fs::read_to_string(root.join(file)).ok()?.trim().to_owned())
}

/// Its weight in units of cpu.weight; 0 is idle.
fn weight(root: &Path) -> u64 {
    let number = |file: &str| text(root, file).and_then(|text| text.parse::<u64>().ok());
    match (number("cpu.idle"), number("cpu.weight"), number("cpu.shares")) {
        (Some(1), ..) => 0,
        (_, Some(weight), _) => weight,
        // The smallest there is, where the kernel has no idle groups.
        (None, None, Some(2)) => 0,
        (_, None, shares) => shares.expect("a weight") * 100 / 1024,
    }
}

fn weighs(daemon: &Daemon, expected: u64) {
    daemon.eventually(&format!("a root that weighs {expected}"), |daemon| {
        let shown = daemon.status()["cgroup"]["root_weight"].as_u64();
        (shown == Some(expected) && weight(&root(daemon)) == expected).then_some(())
    });
}

#[test]
#[ignore = "needs root and cgroups"]
fn passive_work_alone_is_behind_every_other_group() {
    let mut daemon = Daemon::start("beside", QUICK);
    let sleeper = daemon.run(&[], &["cat"]);
    daemon.task_of(sleeper);
    let hog = daemon.run(&[], &HOG);
    daemon.task_of(hog);
    weighs(&daemon, 0);

    // The next daemon finds it so, and writes nothing before it knows better.
    daemon.kill();
    daemon.launch();
    assert_eq!(weight(&root(&daemon)), 0);
    weighs(&daemon, 0);

    // The hog is active now, and wants one CPU.
    daemon.finish(sleeper);
    weighs(&daemon, 100);

    let dir = root(&daemon);
    let file = if dir.join("cpu.shares").exists() { "cpu.shares" } else { "cpu.weight" };
    fs::write(dir.join(file), "77").expect("the weight");
    let reason = daemon.eventually("an event", |daemon| {
        let drift = |event: &serde_json::Value| event["type"] == "drift" && event["task"].is_null();
        daemon.events().into_iter().find(drift)?["reason"].as_str().map(str::to_owned)
    });
    assert!(reason.contains("77"), "{reason}");
    weighs(&daemon, 100);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_number_is_in_force_whatever_is_wanted_and_a_stop_leaves_the_most() {
    let fixed = format!("tiers.root_weight = 50\n{QUICK}");
    let mut daemon = Daemon::start("fixed", &fixed);
    let sleeper = daemon.run(&[], &["cat"]);
    daemon.task_of(sleeper);
    let hog = daemon.run(&[], &HOG);
    daemon.task_of(hog);
    weighs(&daemon, 50);
    daemon.stop();
    assert_eq!(weight(&root(&daemon)), 50);

    daemon.configure(QUICK);
    daemon.launch();
    weighs(&daemon, 0);
    daemon.stop();
    assert_eq!(weight(&root(&daemon)), 100, "nothing follows the tasks while no daemon runs");
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_root_left_idle_is_woken_by_a_number_and_by_what_gives_weights_back() {
    let mut daemon = Daemon::start("woken", QUICK);
    let sleeper = daemon.run(&[], &["cat"]);
    daemon.task_of(sleeper);
    weighs(&daemon, 0);
    daemon.kill();
    assert_eq!(weight(&root(&daemon)), 0, "nothing wakes it while no daemon runs");

    daemon.configure(&format!("tiers.root_weight = 50\n{QUICK}"));
    daemon.launch();
    weighs(&daemon, 50);

    daemon.stop();
    daemon.configure(QUICK);
    daemon.launch();
    weighs(&daemon, 0);
    daemon.kill();
    let (code, text) = daemon.give_back();
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(weight(&root(&daemon)), 100);
}
