//! What several users want at once, without an admin's rights.

use std::process::Stdio;

use serde_json::Value;

use crate::ending::pidfds_keep_status;
use crate::harness::Daemon;
use crate::member::{MEMBER, OTHER_STRANGER, STRANGER, as_user, with_members};

/// Until so many wait; in the order in which they are served.
fn waiting(daemon: &Daemon, count: usize) -> Vec<Value> {
    daemon.eventually("a queue", |daemon| {
        let queue = daemon.json(&["queue"]);
        let waiting = queue.as_array().unwrap().iter().filter(|one| !one["place"].is_null());
        let waiting: Vec<Value> = waiting.cloned().collect();
        (waiting.len() == count).then_some(waiting)
    })
}

/// `lrsctl run --wait -- cat` of a user, which ends when its input is closed.
fn waits(daemon: &mut Daemon, uid: u32) -> i32 {
    let mut run = as_user(uid, daemon, MEMBER, &["run", "--wait", "--", "cat"]);
    let run = run.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    daemon.keep(run)
}

#[test]
#[ignore = "needs root and cgroups"]
fn many_requests_of_one_user_keep_no_other_user_back() {
    let slots = "slots.active = 1\nslots.passive = 1\nslots.expand = false\n";
    let mut daemon = with_members("turns", slots);
    let tasks = [(); 2].map(|()| daemon.run(&[], &["cat"]));
    tasks.iter().for_each(|pid| drop(daemon.task_of(*pid)));
    let many: Vec<i32> = (0..20).map(|_| waits(&mut daemon, STRANGER)).collect();
    waiting(&daemon, many.len());
    let one = waits(&mut daemon, OTHER_STRANGER);
    let queue = waiting(&daemon, many.len() + 1);
    let uids: Vec<_> = queue[..3].iter().map(|one| one["uid"].as_u64().unwrap() as u32).collect();
    assert_eq!(uids, [STRANGER, OTHER_STRANGER, STRANGER], "{queue:?}");
    assert_eq!((&queue[1]["pid"], &queue[1]["place"]), (&one.into(), &2.into()));
    // As shown, so it is done.
    let first = queue[0]["pid"].as_i64().unwrap() as i32;
    daemon.finish(tasks[0]);
    daemon.task_of(first);
    daemon.finish(tasks[1]);
    daemon.task_of(one);
    waiting(&daemon, many.len() - 1);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_member_who_reserved_every_slot_yields_to_root_and_to_another_member() {
    let slots = "slots.active = 2\nslots.passive = 2\nslots.expand = false\n";
    let mut daemon = with_members("yields", slots);
    let long = ["reserve", "--ttl", "11m"];
    let refused = as_user(STRANGER, &daemon, MEMBER, &long).output().unwrap();
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && words.contains("up to 10m"), "{words}");
    let all = ["reserve", "--ttl", "10m", "--count", "4"];
    let reserved = as_user(STRANGER, &daemon, MEMBER, &all).output().unwrap();
    let reserved = String::from_utf8(reserved.stdout).unwrap();
    let ids: Vec<&str> = reserved.lines().collect();
    assert_eq!(ids.len(), 4, "{reserved}");
    daemon.refused(&["run", "--priority", "100", "--", "true"], 124, "no free slot");
    // Both come within the first seconds of the reservations, and get their slots after these.
    let root = daemon.run(&["--wait", "--priority", "100"], &["cat"]);
    let other = waits(&mut daemon, OTHER_STRANGER);
    daemon.task_of(root);
    daemon.task_of(other);
    // Two of four are a share of two users.
    let one_more = waits(&mut daemon, OTHER_STRANGER);
    waiting(&daemon, 1);
    let held = daemon.json(&["queue"]);
    let held = held.as_array().unwrap().iter().filter(|one| one["reason"] == "reserved").count();
    assert_eq!(held, 2);
    let used = |id: &str| {
        as_user(STRANGER, &daemon, MEMBER, &["run", "--reservation", id, "--", "true"])
            .output()
            .unwrap()
    };
    let late = used(ids[3]);
    let words = String::from_utf8(late.stderr).unwrap();
    assert_eq!(late.status.code(), Some(125), "{words}");
    assert!(words.contains("was withdrawn: uid 0 waits for a slot"), "{words}");
    assert!(used(ids[0]).status.success());
    let why = daemon.ok(&["why", ids[2]]);
    assert!(why.contains("withdrawn") && why.contains("uid 65533 waits for a slot"), "{why}");
    let events = daemon.events();
    let withdrawn = events.iter().filter(|event| event["type"] == "withdrawn");
    let uids: Vec<_> = withdrawn.map(|event| event["inputs"]["uid"].as_u64()).collect();
    assert_eq!(uids, [Some(u64::from(STRANGER)); 2]);
    // Its slot came free with the end of the task that used it.
    daemon.task_of(one_more);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_flood_of_one_user_leaves_what_others_ask_of_the_past() {
    let slots = "slots.active = 512\nslots.passive = 512\nslots.expand = false\n";
    let mut daemon = with_members("flood", slots);
    let running = daemon.run(&["--job", "nightly"], &["cat"]);
    let running = daemon.task_of(running)["id"].as_str().unwrap().to_owned();
    let over = daemon.run(&["--name", "over"], &["true"]);
    daemon.join(over);
    let history = |daemon: &Daemon| daemon.json(&["history"]);
    // Its end may be all that a kernel without statuses in pidfds tells.
    let may_lack_it = !pidfds_keep_status();
    let history = daemon.eventually("an end", |daemon| {
        let history = history(daemon);
        let ended = history[0]["name"] == "over";
        (ended && (may_lack_it || history[0]["exit_status"] == 0)).then_some(history)
    });
    let over = history[0]["id"].as_str().unwrap().to_owned();
    let why = |daemon: &Daemon, id: &str| daemon.json(&["why", id]);
    let (why_running, why_over) = (why(&daemon, &running), why(&daemon, &over));
    // Each is reserved, and expires.
    let mut reserved = 0;
    while reserved < 5_200 {
        let asks = ["reserve", "--ttl", "100ms", "--count", "256"];
        let answer = as_user(STRANGER, &daemon, MEMBER, &asks).output().unwrap();
        reserved += String::from_utf8(answer.stdout).unwrap().lines().count();
    }
    let gone = daemon.ok(&["events", "--since", "1", "--no-follow"]);
    assert!(gone.contains("expired"), "the newest of the flood are there");
    assert_eq!(why(&daemon, &running), why_running);
    assert_eq!(why(&daemon, &over), why_over);
    assert_eq!(daemon.json(&["history"])[0], history[0]);
    // On the disk, too, what runs is whole.
    daemon.kill();
    daemon.launch();
    assert_eq!(why(&daemon, &running), why_running);
}
