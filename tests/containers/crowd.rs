//! Many containers at once, as at the start of a large job.

use std::time::Instant;

use serde_json::Value;

use crate::harness::{Daemon, in_tier, signal};
use crate::node::{MAP, Node, pid_of};
use crate::private::privately;

/// As many as the machine can start in a few seconds.
fn crowd() -> u32 {
    if std::env::var_os("LRS_TEST_SLOW").is_some() { 40 } else { 300 }
}

#[test]
#[ignore = "needs root and cgroups"]
fn containers_of_a_crowd_are_all_tasks() {
    privately("crowd::containers_of_a_crowd_are_all_tasks", || {
        let crowd = crowd();
        let mut node = Node::start();
        let slots = "[slots]\nactive = 4\npassive = 400\nexpand = false";
        let daemon = Daemon::start("crowd", &node.settings(slots, None));
        for number in 1..=crowd {
            node.prepare(number, MAP, 0);
            node.session(number, 1, "sleep 600");
        }
        let sessions = node.dir.path().join("work");
        let begun = Instant::now();
        node.run(&format!("for s in {}/*.session; do /bin/bash $s & done", sessions.display()));
        daemon.eventually("all pid files", |_| {
            (1..=crowd).all(|n| node.pid(n).is_some()).then_some(())
        });
        let started = begun.elapsed();
        daemon.eventually("all tasks", |daemon| {
            (daemon.status()["totals"]["admitted"] == u64::from(crowd)).then_some(())
        });
        println!(
            "{crowd} containers started within {started:?}, all tasks after {:?}",
            begun.elapsed()
        );
        let tasks = daemon.tasks();
        assert_eq!(tasks.len() as u32, crowd);
        assert_eq!(in_tier(&tasks, "active").len(), 4);
        assert!(tasks.iter().all(|task| task["kind"] == "map" && task["attachment"] == "own"));
        let mut names: Vec<&Value> = tasks.iter().map(|task| &task["name"]).collect();
        names.sort_by_key(|name| name.as_str());
        names.dedup();
        assert_eq!(names.len() as u32, crowd, "each once");
        for task in &tasks {
            signal(pid_of(task), rustix::process::Signal::KILL);
        }
        daemon.nothing_left();
    });
}
