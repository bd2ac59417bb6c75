//! The I/O lane: a passive task of short bursts computes promptly beside an active one.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Daemon, signal, weights};

/// On whatever node: one CPU is full, and the test's tasks are on it.
fn settings(share: &str) -> String {
    format!(
        "daemon.sample_period = \"1s\"\ntiers.lane_share = {share}\n\
         [slots]\nactive = 1\npassive = 1\nexpand = false\ncpu_saturation = 0.01\n"
    )
}

fn pinned(daemon: &mut Daemon, script: &str) -> i32 {
    daemon.run(&[], &["taskset", "-c", "0", "bash", "-c", script])
}

fn lane(daemon: &Daemon, pid: i32) -> Option<String> {
    daemon.task_of(pid)["cpu_lane"].as_str().map(str::to_owned)
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_passive_task_of_short_bursts_is_in_the_lane_until_it_is_promoted() {
    let mut daemon = Daemon::start("lane", &settings("0.2"));
    let hog = pinned(&mut daemon, "while :; do :; done");
    let active = daemon.task_of(hog);
    // Nothing is written to its stdin, so that `read` waits its 10 ms out.
    let napper = pinned(&mut daemon, "while :; do read -t 0.01; done");
    daemon.eventually("a task in the lane", |daemon| {
        (lane(daemon, napper).as_deref() == Some("io")).then_some(())
    });
    let task = daemon.task_of(napper);
    assert_eq!(task["tier"], "passive", "{task}");
    let (of_active, of_lane) = (weights(&daemon.cpu_dir(&active)), weights(&daemon.cpu_dir(&task)));
    let tenth = of_active.1.map(|weight| (weight as f64 / 10.0).round() as u64);
    assert_eq!(of_lane.1, tenth);
    assert_ne!(of_lane.0, Some(1), "idle");
    assert_eq!(task["kernel"]["cpu_weight"], Value::from(tenth), "{task}");
    let id = task["id"].as_str().expect("an id").to_owned();
    assert!(daemon.ok(&["why", &id]).contains("short bursts"), "{}", daemon.ok(&["why", &id]));

    // What the next daemon finds is no foreign change, and the task passive again.
    daemon.kill();
    daemon.launch();
    assert_eq!(lane(&daemon, napper), None);
    daemon.eventually("a task in the lane again", |daemon| lane(daemon, napper).map(drop));

    // Nothing looks at what it uses while no daemon runs.
    daemon.stop();
    assert_ne!(weights(&daemon.cpu_dir(&task)), of_lane);
    daemon.launch();
    daemon.eventually("a task in the lane once more", |daemon| lane(daemon, napper).map(drop));

    daemon.configure(&settings("0.0"));
    daemon.ok(&["reload"]);
    daemon.eventually("a passive task", |daemon| lane(daemon, napper).is_none().then_some(()));
    let idle = weights(&daemon.cpu_dir(&task)).0;
    assert_ne!(idle, Some(0), "it is as passive as before");
    signal(hog, Signal::KILL);
    daemon.eventually("a promotion", |daemon| {
        (daemon.task_of(napper)["tier"] == "active").then_some(())
    });
    let kinds: Vec<String> = daemon
        .events()
        .iter()
        .filter(|event| event["task"] == id.as_str())
        .filter_map(|event| event["type"].as_str().map(str::to_owned))
        .collect();
    let in_and_out = ["lane_in", "lane_in", "lane_out", "lane_in", "lane_out"];
    assert_eq!(kinds, [&["admitted"], &in_and_out[..], &["promoted"]].concat());
    assert_eq!(daemon.task_of(napper)["repaired"], 0);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_task_that_computes_once_it_is_in_the_lane_is_out_and_costs_little() {
    let mut daemon = Daemon::start("lane-cheat", &settings("0.025"));
    let hog = pinned(&mut daemon, "while :; do :; done");
    daemon.task_of(hog);
    let cheat = "trap c=1 USR1; while [ -z \"$c\" ]; do read -t 0.01; done; while :; do :; done";
    let cheat = pinned(&mut daemon, cheat);
    daemon.eventually("a task in the lane", |daemon| lane(daemon, cheat).map(drop));
    let used = |daemon: &Daemon| daemon.task_of(cheat)["cpu_seconds"].as_f64().expect("CPU time");
    let (begun, before) = (Instant::now(), used(&daemon));
    signal(cheat, Signal::USR1);
    daemon.eventually("a task that is slow", |daemon| {
        (lane(daemon, cheat).as_deref() == Some("slow")).then_some(())
    });
    let out = daemon.eventually("a task out of the lane", |daemon| {
        daemon.events().into_iter().find(|event| event["type"] == "lane_out")
    });
    assert!(out["reason"].as_str().expect("a reason").contains("not in short bursts"), "{out}");
    assert_eq!(lane(&daemon, cheat), None);
    // Twice of what it may have.
    let (cost, most) = (used(&daemon) - before, 0.1 + 0.05 * begun.elapsed().as_secs_f64());
    assert!(cost < most, "{cost} s, more than {most} s");
}

/// Hog and writer in turn, each for so long.
fn alternating(seconds: f64) -> String {
    format!(
        "now() {{ t=${{EPOCHREALTIME/[.,]/}}; }}; while :; do \
         now; e=$((t + {micros})); while [ $t -lt $e ]; do read -t 0.002; now; done; \
         now; e=$((t + {micros})); while [ $t -lt $e ]; do now; done; done",
        micros = (seconds * 1e6) as u64
    )
}

#[test]
#[ignore = "needs root and cgroups"]
fn tasks_that_alternate_take_little_from_an_active_one() {
    let settings = settings("0.025").replace("passive = 1", "passive = 3");
    let mut daemon = Daemon::start("lane-alternating", &settings);
    let hog = pinned(&mut daemon, "while :; do :; done");
    // The first one to be admitted is active.
    assert_eq!(daemon.task_of(hog)["tier"], "active");
    let cheats = [0.2, 1.0, 5.0].map(|seconds| pinned(&mut daemon, &alternating(seconds)));
    // One of them, or none; they wait and compute in turn. A share of time has no event to await, and as a
    // ratio on one CPU it does not depend on how busy the machine is.
    std::thread::sleep(Duration::from_secs(10));
    let used = |daemon: &Daemon, pid| daemon.task_of(pid)["cpu_seconds"].as_f64().unwrap_or(0.0);
    let of_all = |daemon: &Daemon| cheats.iter().map(|pid| used(daemon, *pid)).sum::<f64>();
    let before = (of_all(&daemon), used(&daemon, hog));
    std::thread::sleep(Duration::from_secs(20));
    let cheated = of_all(&daemon) - before.0;
    let worked = used(&daemon, hog) - before.1;
    // What idle tasks get beside them is in it; with the weight of the lane alone it is 0.23.
    assert!(cheated <= 0.06 * (cheated + worked), "{cheated} s beside {worked} s");
}
