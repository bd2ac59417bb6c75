//! `kill -9` at any instant: nothing is touched, nothing is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::harness::{Daemon, Foreign, in_tier, procs};

const TWO: &str = "[slots]\nactive = 2\npassive = 2\nexpand = false\n";

#[test]
#[ignore = "needs root and cgroups"]
fn tasks_tiers_reservations_and_drain_survive_a_kill() {
    let mut daemon = Daemon::start("survive", TWO);
    let pids: Vec<i32> = (0..3).map(|_| daemon.run(&["--job", "j"], &["cat"])).collect();
    daemon.eventually("three tasks", |daemon| (daemon.tasks().len() == 3).then_some(()));
    let rid = daemon.ok(&["reserve", "--ttl", "10m", "--priority", "3"]);
    daemon.ok(&["drain"]);
    let before = daemon.tasks();
    let dirs: Vec<_> = before.iter().map(|task| daemon.cpu_dir(task)).collect();
    let modified = |dirs: &[std::path::PathBuf]| -> Vec<_> {
        dirs.iter()
            .map(|dir| std::fs::metadata(dir.join("cpu.idle")).unwrap().modified().unwrap())
            .collect()
    };
    let stamps = modified(&dirs);
    daemon.kill();
    // One of them ends while no daemon runs.
    let gone = i32::try_from(before[0]["pid"].as_i64().unwrap()).unwrap();
    daemon.finish(gone);
    daemon.join(gone);
    daemon.launch();
    let after = daemon.tasks();
    assert_eq!(after.len(), 2);
    for task in &after {
        let old = before.iter().find(|old| old["id"] == task["id"]).unwrap();
        for field in ["pid", "uid", "job", "priority", "admitted_at", "cgroup", "attachment"] {
            assert_eq!(task[field], old[field], "{field}");
        }
    }
    assert_eq!(in_tier(&after, "active").len(), 2, "the passive one was promoted");
    let unchanged = before.iter().position(|task| task["id"] == after[0]["id"]).unwrap();
    assert_eq!(modified(&dirs[unchanged..=unchanged]), stamps[unchanged..=unchanged]);
    let status = daemon.status();
    assert_eq!(status["state"], "draining");
    assert_eq!(status["totals"]["completed"], 1);
    let ended: Vec<Value> =
        daemon.events().into_iter().filter(|event| event["type"] == "completed").collect();
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0]["inputs"]["ended_at"], Value::Null);
    daemon.ok(&["resume"]);
    let redeemed = daemon.run(&["--reservation", rid.trim()], &["cat"]);
    assert_eq!(daemon.task_of(redeemed)["priority"], 3);
    for pid in pids.into_iter().filter(|pid| *pid != gone) {
        daemon.finish(pid);
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_task_that_was_moved_out_unseen_goes_on() {
    let mut daemon = Daemon::start("moved-out", TWO);
    // Older than the task: what goes into a younger group is left there.
    let foreign = Foreign::beside(&daemon);
    let pid = daemon.run(&[], &["cat"]);
    let task = daemon.task_of(pid);
    let inside = daemon.cpu_dir(&task);
    daemon.kill();
    std::fs::write(foreign.0.join("cgroup.procs"), pid.to_string()).unwrap();
    daemon.launch();
    daemon.eventually("the move back", |_| procs(&inside).contains(&pid).then_some(()));
    assert_eq!(daemon.task_of(pid)["id"], task["id"]);
    assert_eq!(daemon.status()["totals"]["completed"], 0);
    daemon.finish(pid);
    daemon.eventually("the end", |daemon| daemon.tasks().is_empty().then_some(()));
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_hundred_kills_under_load_lose_nothing() {
    let mut daemon = Daemon::start("hundred", TWO);
    // Emulated, each start takes a second of a budget that all tests share.
    let kills = if std::env::var_os("LRS_TEST_SLOW").is_some() { 20 } else { 100 };
    let tasks = 60;
    let mut started = Vec::new();
    let mut random = 12345u32;
    for kill in 0..kills {
        while kill * tasks / kills >= started.len() {
            let name = format!("n{}", started.len());
            let work = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done";
            started.push(daemon.run(&["--wait", "--name", &name], &["sh", "-c", work]));
        }
        daemon.kill();
        daemon.spawn();
        // Some kills hit recovery itself, some a daemon at work.
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if !random.is_multiple_of(3) {
            let answers = |daemon: &Daemon| {
                let output = daemon.ctl(&["status", "--json"]);
                output.status.success().then_some(())
            };
            daemon.eventually("an answer", answers);
        }
    }
    for pid in started.clone() {
        let status = daemon.join(pid);
        assert!(status.success(), "a task ended with {status}");
    }
    daemon.eventually("the end of all", |daemon| {
        let output = daemon.ctl(&["tasks", "--json"]);
        (output.status.success() && output.stdout == b"[]\n").then_some(())
    });
    let totals = daemon.status()["totals"].clone();
    assert_eq!(totals["admitted"], started.len(), "{totals}");
    assert_eq!(totals["completed"], started.len(), "{totals}");
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    let mut admissions: BTreeSet<String> = BTreeSet::new();
    let events = daemon.events();
    for event in &events {
        let id = event["task"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str() {
            Some("completed") => *ends.entry(id).or_default() += 1,
            Some("admitted") => assert!(admissions.insert(id), "admitted twice: {event}"),
            _ => {}
        }
    }
    let first = events.first().map(|event| event["seq"].clone());
    assert_eq!(admissions.len(), started.len(), "history begins at {first:?}");
    assert!(ends.values().all(|count| *count == 1), "{ends:?}");
    assert_eq!(ends.into_keys().collect::<BTreeSet<_>>(), admissions);
    let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(seqs.is_sorted_by(|a, b| a < b), "sequence numbers restarted");
}

#[test]
#[ignore = "needs root and cgroups"]
fn the_group_of_a_task_survives_restarts() {
    let mut daemon = Daemon::start("grouped", TWO);
    let pid = daemon.run(&["--group", "etl", "--job", "nightly"], &["cat"]);
    let before = daemon.task_of(pid);
    assert_eq!(before["group"], "etl");
    for how in ["stop", "kill", "kill"] {
        match how {
            "stop" => assert_eq!(daemon.stop().0, Some(0)),
            _ => daemon.kill(),
        }
        daemon.launch();
        let after = daemon.task_of(pid);
        for field in ["id", "group", "job", "uid", "cgroup", "tier", "priority", "admitted_at"] {
            assert_eq!(after[field], before[field], "{field} after {how}");
        }
    }
    daemon.finish(pid);
    daemon.join(pid);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_damaged_state_file_loses_its_facts_and_not_its_task() {
    let mut daemon = Daemon::start("damaged", TWO);
    let pid = daemon.run(&["--name", "precious"], &["cat"]);
    let task = daemon.task_of(pid);
    let id = task["id"].as_str().unwrap().to_owned();
    daemon.kill();
    let file = daemon.runtime().join("state").join(format!("task-{id}.json"));
    std::fs::write(&file, "garbage").unwrap();
    daemon.launch();
    let tasks = daemon.tasks();
    assert_eq!(tasks.len(), 1);
    assert_eq!(tasks[0]["id"], id.as_str());
    assert_eq!(tasks[0]["name"], "precious", "the history tells it");
    assert_eq!(tasks[0]["uid"], 0, "its processes tell it");
    assert_eq!(tasks[0]["priority"], Value::Null);
    assert_eq!(tasks[0]["tier"], "active");
    assert!(daemon.events().iter().any(|event| event["type"] == "recovered"));
    daemon.finish(pid);
    daemon.eventually("the end", |daemon| daemon.tasks().is_empty().then_some(()));
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_removed_runtime_directory_is_made_anew_with_all_that_is_known() {
    let quick = format!("daemon.sample_period = \"200ms\"\n{TWO}");
    let mut daemon = Daemon::start("removed", &quick);
    let pid = daemon.run(&["--name", "precious"], &["cat"]);
    let id = daemon.task_of(pid)["id"].clone();
    std::fs::remove_dir_all(daemon.runtime()).unwrap();
    daemon.serving(|daemon| daemon.ctl(&["status"]).status.success().then_some(()));
    let status = daemon.status();
    assert_eq!(status["warnings"], serde_json::json!([]), "{status}");
    daemon.kill();
    daemon.launch();
    let task = daemon.task_of(pid);
    assert_eq!((&task["id"], &task["name"]), (&id, &serde_json::json!("precious")));
    let admitted = daemon.events().into_iter().find(|event| event["type"] == "admitted");
    assert_eq!(admitted.unwrap()["task"], id, "the next daemon knows why");
    daemon.finish(pid);
    daemon.join(pid);
    daemon.nothing_left();
}

/// A group that counts no CPU time on v1, where it is in the hierarchy of `cpu` alone: what counts is what
/// /proc says of its processes, which is more than the task used.
#[test]
#[ignore = "needs root and cgroups"]
fn cpu_time_of_a_group_that_counts_none_survives_a_kill() {
    let quick = format!("daemon.sample_period = \"200ms\"\n{TWO}");
    let mut daemon = Daemon::start("counted", &quick);
    let owner = Foreign::beside(&daemon);
    let pid = daemon.process(&["sh", "-c", "while :; do :; done"]);
    std::fs::write(owner.0.join("cgroup.procs"), pid.to_string()).unwrap();
    daemon.ok(&["admit", "--in-place", &pid.to_string()]);
    let used = |daemon: &Daemon| daemon.task_of(pid)["cpu_seconds"].as_f64();
    let before = daemon
        .eventually("a second of CPU time", |daemon| used(daemon).filter(|seconds| *seconds > 1.0));
    daemon.kill();
    daemon.launch();
    let after = daemon.eventually("a reading", used);
    assert!(after >= before, "{before} s before the kill, {after} s after it");
}
