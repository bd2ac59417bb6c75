//! Who waits, in which order and why, and how a wait ends.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::Daemon;

const ONE: &str = "[slots]\nactive = 1\npassive = 1\nexpand = false\n";

fn queue(daemon: &Daemon) -> Vec<Value> {
    daemon.json(&["queue"]).as_array().unwrap().clone()
}

/// Until `count` entries are there.
fn of_length(daemon: &Daemon, count: usize) -> Vec<Value> {
    daemon.eventually("a queue", |daemon| {
        let queue = queue(daemon);
        (queue.len() == count).then_some(queue)
    })
}

#[test]
#[ignore = "needs root and cgroups"]
fn spare_cpu_opens_a_slot_for_a_request_that_waits_long_before_the_cycle() {
    const CYCLE: &str = "daemon.sample_period = \"60s\"\n[slots]\nactive = 1\npassive = 1\n";
    let mut daemon = Daemon::start("ahead", CYCLE);
    for _ in 0..2 {
        let pid = daemon.run(&[], &["cat"]);
        daemon.task_of(pid);
    }
    let begun = Instant::now();
    let waited = daemon.run(&["--wait"], &["cat"]);
    daemon.task_of(waited);
    assert!(begun.elapsed() < Duration::from_secs(50), "that was the cycle");
    let events = daemon.events();
    let opened = events.iter().find(|event| event["type"] == "expanded").unwrap();
    assert_eq!((&opened["from"], &opened["to"]), (&"1".into(), &"2".into()), "{opened}");
    assert!(opened["inputs"]["mean_resident_bytes"].as_u64() > Some(0), "{opened}");
    // One for each active slot, until a cycle has looked at it.
    daemon.run(&["--wait"], &["cat"]);
    of_length(&daemon, 1);
}

#[test]
#[ignore = "needs root and cgroups"]
fn the_queue_says_who_waits_and_why_and_a_wait_can_be_ended() {
    let mut daemon = Daemon::start("queue", ONE);
    let tasks = [daemon.run(&[], &["cat"]), daemon.run(&[], &["cat"])];
    tasks.iter().for_each(|pid| drop(daemon.task_of(*pid)));
    let first = daemon.run(&["--wait", "--job", "nightly"], &["cat"]);
    of_length(&daemon, 1);
    let second = daemon.run(&["--wait=1h"], &["cat"]);
    of_length(&daemon, 2);
    let urgent = daemon.run(&["--wait", "--priority", "5"], &["cat"]);
    let shown = of_length(&daemon, 3);
    let pids: Vec<_> = shown.iter().map(|one| one["pid"].as_i64().unwrap()).collect();
    assert_eq!(pids, [urgent, first, second].map(i64::from));
    for (index, one) in shown.iter().enumerate() {
        assert_eq!(one["place"], index + 1);
        assert_eq!(one["reason"], if index == 0 { "full" } else { "order" });
        assert_eq!(one["expires_at"].is_null(), index < 2, "{one}");
    }
    assert_eq!(shown[1]["job"], "nightly");
    for (priority, place) in [("9", 0), ("0", 1)] {
        let changed = daemon.json(&["priority", "--job", "nightly", priority]);
        assert_eq!((&changed["tasks"], &changed["waiting"]), (&0.into(), &1.into()));
        assert_eq!(queue(&daemon)[place]["pid"], first);
    }
    daemon.refused(&["priority", "--job", "hourly", "9"], 1, "nothing of job");
    let id = shown[2]["id"].as_str().unwrap();
    let shown = daemon.ok(&["task", id]);
    assert!(shown.contains("place 3 in the queue"), "{shown}");
    daemon.ok(&["cancel", id]);
    assert_eq!(daemon.join(second).code(), Some(125));
    daemon.refused(&["cancel", id], 1, "no request waits");
    assert_eq!(of_length(&daemon, 2)[0]["pid"], urgent);
    daemon.finish(tasks[0]);
    daemon.task_of(urgent);
    assert_eq!(of_length(&daemon, 1)[0]["place"], 1);
    daemon.finish(tasks[1]);
    daemon.task_of(first);
    assert!(queue(&daemon).is_empty());
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_place_is_kept_over_a_restart_by_a_ticket_and_not_by_what_a_client_says() {
    let mut daemon = Daemon::start("tickets", ONE);
    let tasks = [daemon.run(&[], &["cat"]), daemon.run(&[], &["cat"])];
    tasks.iter().for_each(|pid| drop(daemon.task_of(*pid)));
    for count in 1..=3 {
        daemon.run(&["--wait"], &["cat"]);
        of_length(&daemon, count);
    }
    let shown = |daemon: &Daemon| {
        let of = |one: &Value| (one["pid"].as_i64(), one["since"].as_str().map(str::to_owned));
        of_length(daemon, 3).iter().map(of).collect::<Vec<_>>()
    };
    let before = shown(&daemon);
    // By then each has asked for its ticket.
    let begun = Instant::now();
    daemon.eventually("tickets", |_| (begun.elapsed() > Duration::from_secs(1)).then_some(()));
    for _ in 0..2 {
        daemon.kill();
        daemon.launch();
        assert_eq!(shown(&daemon), before);
        let begun = Instant::now();
        daemon.eventually("tickets", |_| (begun.elapsed() > Duration::from_secs(1)).then_some(()));
    }
    assert!(of_length(&daemon, 3).iter().all(|entry| entry["ticket"].is_null()), "not of all");
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_drain_queues_who_waits_until_it_ends() {
    let mut daemon = Daemon::start("drained", ONE);
    daemon.ok(&["drain"]);
    daemon.refused(&["run", "--", "true"], 125, "draining");
    daemon.refused(&["run", "--wait=100ms", "--", "true"], 124, "the node is draining");
    let pid = daemon.run(&["--wait"], &["cat"]);
    assert_eq!(of_length(&daemon, 1)[0]["reason"], "draining");
    // Who waits comes back after a restart, and waits on.
    daemon.kill();
    daemon.launch();
    assert_eq!(of_length(&daemon, 1)[0]["pid"], pid);
    daemon.ok(&["resume"]);
    daemon.task_of(pid);
    // A promise is listed with its end, and goes by its id.
    let reservation = daemon.ok(&["reserve", "--ttl", "1h"]).trim().to_owned();
    let shown = of_length(&daemon, 1);
    assert_eq!(
        (&shown[0]["id"], &shown[0]["reason"]),
        (&reservation.clone().into(), &"reserved".into())
    );
    assert!(!shown[0]["expires_at"].is_null() && shown[0]["place"].is_null());
    daemon.ok(&["cancel", &reservation]);
    assert!(queue(&daemon).is_empty());
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_wait_has_an_expected_end_once_the_job_is_known_and_slots_can_be_waited_for() {
    let mut daemon = Daemon::start("expected", ONE);
    let known = daemon.run(&["--job", "nightly"], &["sleep", "1"]);
    daemon.task_of(known);
    daemon.join(known);
    let long = ["sleep", "600"];
    let tasks = [(); 2].map(|()| daemon.run(&["--job", "nightly"], &long));
    tasks.iter().for_each(|pid| drop(daemon.task_of(*pid)));
    daemon.run(&["--wait"], &["cat"]);
    let wait = of_length(&daemon, 1)[0]["expected_wait_seconds"].clone();
    // A second after both began they have run longer than expected.
    assert!(wait.as_f64().is_none_or(|wait| wait < 60.0), "{wait}");

    let args = ["reserve", "--count", "2", "--wait", "--ttl", "1h"];
    let reserves = daemon.ctl_command(&args).stdout(Stdio::piped()).spawn().unwrap();
    of_length(&daemon, 2);
    daemon.refused(&["reserve", "--active"], 4, "");
    for pid in tasks {
        crate::harness::signal(pid, rustix::process::Signal::KILL);
    }
    let reserved = String::from_utf8(reserves.wait_with_output().unwrap().stdout).unwrap();
    let ids: Vec<&str> = reserved.lines().collect();
    assert!(!ids.is_empty() && ids.len() <= 2, "{reserved}");
    ids.iter().for_each(|id| drop(daemon.ok(&["cancel", id])));
}
