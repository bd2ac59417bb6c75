//! From `daemon.mode = "observe"` to `"enforce"` and back: tasks that run stay who they are, and get
//! or give back their weights.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::Foreign;
use crate::harness::{Daemon, in_tier, procs, signal, weight_file, weights};

const OBSERVE: &str = "daemon.mode = \"observe\"\n";
const SLOTS: &str =
    "daemon.sample_period = \"100ms\"\n[slots]\nactive = 1\npassive = 2\nexpand = false\n";

/// A rule for processes of root that sleep for `seconds`.
fn sleepers(seconds: u32) -> String {
    format!("[[discover]]\nname = \"sleepers\"\nuser = [0]\ncommand = '^sleep {seconds}$'\n")
}

/// Seconds that no other test's process sleeps.
fn seconds(test: u32) -> u32 {
    1_000_000 + std::process::id() * 10 + test
}

fn sleep(daemon: &mut Daemon, seconds: u32, count: usize) -> Vec<i32> {
    let seconds = seconds.to_string();
    (0..count).map(|_| daemon.process(&["sleep", &seconds])).collect()
}

/// Waits until so many tasks are there, all with this attachment.
fn all_are(daemon: &Daemon, count: usize, attachment: &str) -> Vec<Value> {
    daemon.eventually(&format!("{count} tasks with attachment {attachment}"), |daemon| {
        let tasks = daemon.tasks();
        let all = tasks.iter().all(|task| task["attachment"] == attachment);
        (tasks.len() == count && all).then_some(tasks)
    })
}

/// What a change of mode must leave as it is.
fn identities(tasks: &[Value]) -> Vec<Value> {
    let fields = ["id", "pid", "tier", "priority", "admitted_at", "overflow", "found_by"];
    let identity = |task: &Value| fields.iter().map(|field| task[*field].clone()).collect();
    tasks.iter().map(identity).collect()
}

fn cgroups(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap()
}

fn restart(daemon: &mut Daemon, settings: &str) {
    assert_eq!(daemon.stop().0, Some(0));
    daemon.configure(settings);
    daemon.launch();
}

/// Each process is alone in the group of its task, and the group has the weights of its tier.
fn check_shaped(daemon: &Daemon, tasks: &[Value]) {
    let light = |task: &Value| {
        let (idle, weight) = weights(&daemon.cpu_dir(task));
        idle == Some(1) || weight.is_some_and(|weight| weight < 50)
    };
    for task in tasks {
        let dir = daemon.cpu_dir(task);
        assert_eq!(procs(&dir), [task["pid"].as_i64().unwrap() as i32], "{task}");
        assert_eq!(light(task), task["tier"] == "passive", "{task}: {:?}", weights(&dir));
    }
}

fn warning(daemon: &Daemon, words: &str) -> Option<String> {
    let warnings = daemon.status()["warnings"].clone();
    let mut all = warnings.as_array().unwrap().iter().filter_map(Value::as_str);
    all.find(|warning| warning.contains(words)).map(str::to_owned)
}

fn of_kind(daemon: &Daemon, kind: &str) -> usize {
    daemon.events().iter().filter(|event| event["type"] == kind).count()
}

#[test]
#[ignore = "needs root and cgroups"]
fn found_tasks_are_attached_once_the_daemon_enforces_and_given_back_once_it_observes() {
    let seconds = seconds(1);
    let enforce = format!("{SLOTS}{}", sleepers(seconds));
    let observe = format!("{OBSERVE}{enforce}");
    let mut daemon = Daemon::new("modes", &observe);
    let pids = sleep(&mut daemon, seconds, 4);
    daemon.launch();
    let booked = all_are(&daemon, 4, "none");
    let homes: Vec<String> = pids.iter().map(|pid| cgroups(*pid)).collect();
    assert_eq!(in_tier(&booked, "active").len(), 1);
    assert_eq!(booked.iter().filter(|task| task["overflow"] == true).count(), 1);
    assert!(daemon.groups_in_roots().is_empty(), "observe mode made a group");

    for round in 1..=2 {
        restart(&mut daemon, &enforce);
        all_are(&daemon, 4, "own");
        // What is attached is so in the records, too.
        daemon.kill();
        daemon.launch();
        let shaped = all_are(&daemon, 4, "own");
        assert_eq!(identities(&shaped), identities(&booked), "round {round}");
        check_shaped(&daemon, &shaped);
        daemon.eventually("no warning", |d| warning(d, "observe").is_none().then_some(()));
        assert_eq!((of_kind(&daemon, "admitted"), of_kind(&daemon, "attached")), (4, 4 * round));

        daemon.configure(&observe);
        daemon.refused(&["reload"], 1, "daemon.mode can only change with a restart");
        restart(&mut daemon, &observe);
        let back = all_are(&daemon, 4, "none");
        assert_eq!(identities(&back), identities(&booked), "round {round}");
        let now: Vec<String> = pids.iter().map(|pid| cgroups(*pid)).collect();
        assert_eq!(now, homes, "round {round}: each where it came from");
        assert!(daemon.groups_in_roots().is_empty(), "a group stayed");
    }

    restart(&mut daemon, &enforce);
    let shaped = all_are(&daemon, 4, "own");
    let passive = shaped.iter().find(|task| task["tier"] == "passive").unwrap();
    let pid = passive["pid"].as_i64().unwrap() as i32;
    daemon.ok(&["release", passive["id"].as_str().unwrap()]);
    let index = pids.iter().position(|of| *of == pid).unwrap();
    assert_eq!(cgroups(pid), homes[index], "released to where it came from");
    all_are(&daemon, 3, "own");
    for pid in pids {
        signal(pid, Signal::KILL);
    }
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn tasks_below_a_root_that_changed_in_the_same_restart_are_given_back_too() {
    let seconds = seconds(6);
    let enforce = format!("{SLOTS}{}", sleepers(seconds));
    let mut daemon = Daemon::new("modes-root", &enforce);
    let pids = sleep(&mut daemon, seconds, 3);
    let homes: Vec<String> = pids.iter().map(|pid| cgroups(*pid)).collect();
    daemon.launch();
    let shaped = all_are(&daemon, 3, "own");
    let former = daemon.root.clone();
    daemon.stop();
    daemon.root.push_str("-other");
    daemon.configure(&format!("{OBSERVE}{enforce}"));
    daemon.launch();
    assert_eq!(identities(&all_are(&daemon, 3, "none")), identities(&shaped));
    let now: Vec<String> = pids.iter().map(|pid| cgroups(*pid)).collect();
    assert_eq!(now, homes, "each where it came from");
    assert!(daemon.root_dirs().is_empty(), "observe mode left a root");
    daemon.root = former;
    for pid in pids {
        signal(pid, Signal::KILL);
    }
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn groups_without_records_are_given_back_too() {
    let seconds = seconds(7);
    let enforce = format!("{SLOTS}{}", sleepers(seconds));
    let mut daemon = Daemon::new("modes-lost", &enforce);
    let pids = sleep(&mut daemon, seconds, 2);
    daemon.launch();
    let shaped = all_are(&daemon, 2, "own");
    daemon.stop();
    let record = |task: &Value| {
        daemon.runtime().join("state").join(format!("task-{}.json", task["id"].as_str().unwrap()))
    };
    fs::write(record(&shaped[0]), "{").unwrap();
    fs::remove_file(record(&shaped[1])).unwrap();
    daemon.configure(&format!("{OBSERVE}{enforce}"));
    daemon.launch();
    assert!(daemon.groups_in_roots().is_empty(), "a group stayed");
    for pid in pids {
        signal(pid, Signal::KILL);
    }
    daemon.nothing_left();
}

/// A cgroup of an owner's with this process in it and a weight of its own.
fn owned(daemon: &Daemon, pid: i32) -> (Foreign, PathBuf) {
    let foreign = Foreign::beside(daemon);
    let file = foreign.0.join(weight_file(&foreign.0));
    fs::write(&file, "321").unwrap();
    fs::write(foreign.0.join("cgroup.procs"), pid.to_string()).unwrap();
    (foreign, file)
}

fn content(file: &Path) -> String {
    fs::read_to_string(file).unwrap().trim().to_owned()
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_group_that_a_rule_takes_in_place_has_its_weight_while_the_daemon_enforces() {
    let mut daemon = Daemon::new("modes-in-place", "");
    let rule = format!(
        "[[discover]]\nname = \"owners\"\ncgroup = '/{}-owner'\nattach = \"in_place\"\n",
        daemon.root
    );
    let enforce = format!("{SLOTS}{}{rule}", sleepers(seconds(2)));
    let first = sleep(&mut daemon, seconds(2), 1);
    daemon.configure(&format!("{OBSERVE}{enforce}"));
    daemon.launch();
    // The active slot is taken, so that the group's task is passive.
    all_are(&daemon, 1, "none");
    let pid = daemon.process(&["cat"]);
    let (foreign, file) = owned(&daemon, pid);
    let booked = all_are(&daemon, 2, "none");
    let in_place = |tasks: &[Value]| tasks.iter().find(|task| task["pid"] == pid).cloned().unwrap();
    assert_eq!(in_place(&booked)["tier"], "passive");
    for _ in 0..2 {
        restart(&mut daemon, &enforce);
        let shaped = daemon.eventually("both shaped", |daemon| {
            let tasks = daemon.tasks();
            let shaped = |of: i32, how: &str| {
                tasks.iter().any(|task| task["pid"] == of && task["attachment"] == how)
            };
            (shaped(first[0], "own") && shaped(pid, "in_place")).then_some(tasks.clone())
        });
        assert_eq!(identities(&shaped), identities(&booked));
        assert_ne!(content(&file), "321", "a passive task has its owner's weight");
        restart(&mut daemon, &format!("{OBSERVE}{enforce}"));
        assert_eq!(identities(&all_are(&daemon, 2, "none")), identities(&booked));
        assert_eq!(content(&file), "321", "what was found is back");
        assert_eq!(procs(&foreign.0), [pid]);
    }
    daemon.finish(pid);
    signal(first[0], Signal::KILL);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn what_clients_admitted_while_the_daemon_observed_is_attached_or_named() {
    let mut daemon = Daemon::start("modes-admit", &format!("{OBSERVE}{SLOTS}"));
    let run = daemon.run(&["--wait"], &["cat"]);
    daemon.task_of(run);
    let guests = [daemon.process(&["cat"]), daemon.process(&["cat"])];
    let (foreign, file) = owned(&daemon, guests[0]);
    fs::write(foreign.0.join("cgroup.procs"), guests[1].to_string()).unwrap();
    for guest in guests {
        daemon.ok(&["admit", "--in-place", &guest.to_string()]);
    }
    let booked = all_are(&daemon, 3, "none");

    restart(&mut daemon, SLOTS);
    let attached = |daemon: &Daemon, pid: i32, how: &str| {
        daemon.eventually(&format!("{pid} {how}"), |daemon| {
            (daemon.task_of(pid)["attachment"] == how).then_some(())
        });
    };
    attached(&daemon, run, "own");
    attached(&daemon, guests[0], "in_place");
    assert_eq!(identities(&daemon.tasks()), identities(&booked));
    assert_eq!(procs(&daemon.cpu_dir(&daemon.task_of(run))), [run]);
    assert_ne!(content(&file), "321", "a passive task has its owner's weight");
    // One task a group, as at an admission: the second one is reported, not forgotten.
    let first = daemon.task_of(guests[0])["id"].as_str().unwrap().to_owned();
    let second = daemon.task_of(guests[1])["id"].as_str().unwrap().to_owned();
    let reason = daemon.eventually("a warning", |d| warning(d, "is managed already"));
    for words in ["1 tasks from observe mode", second.as_str(), first.as_str()] {
        assert!(reason.contains(words), "{reason}");
    }
    let log = daemon.log();
    assert_eq!(log.matches(&format!("task {second}, from observe mode")).count(), 1, "{log}");
    daemon.ok(&["release", &first]);
    // What was found is back, unless the second one's turn has come already; its own release shows
    // which value it found.
    let is_back = content(&file) == "321";
    assert!(is_back || daemon.task_of(guests[1])["attachment"] == "in_place");
    attached(&daemon, guests[1], "in_place");
    assert!(warning(&daemon, "observe").is_none());
    // One is left below the root: released ones do not count.
    daemon.eventually("a warning", |d| warning(d, "2 ratio groups"));
    daemon.ok(&["release", &second]);
    assert_eq!(content(&file), "321");
    daemon.eventually("no warning", |d| warning(d, "ratio groups").is_none().then_some(()));
    for pid in [run, guests[0], guests[1]] {
        daemon.finish(pid);
    }
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_found_task_that_cannot_be_attached_is_named_and_tried_again() {
    let seconds = seconds(4);
    let enforce = format!("{SLOTS}{}", sleepers(seconds));
    let mut daemon = Daemon::new("modes-limit", &format!("{OBSERVE}{enforce}"));
    let pid = sleep(&mut daemon, seconds, 1)[0];
    daemon.launch();
    let booked = all_are(&daemon, 1, "none");
    let foreign = Foreign::beside(&daemon);
    fs::write(foreign.0.join("cgroup.procs"), pid.to_string()).unwrap();
    restart(&mut daemon, &enforce);
    let reason = daemon.eventually("the reason", |d| warning(d, "would not find it"));
    assert!(reason.contains("1 tasks from observe mode"), "{reason}");
    assert!(reason.contains(booked[0]["id"].as_str().unwrap()), "{reason}");
    let is_logged = |daemon: &Daemon| daemon.log().contains("found by [[discover]] rule sleepers");
    daemon.eventually("a line in the log", |daemon| is_logged(daemon).then_some(()));
    assert_eq!(daemon.tasks()[0]["attachment"], "none");
    assert_eq!(procs(&foreign.0), [pid]);
    // Its owner lets it go.
    let root = foreign.0.parent().unwrap().join("cgroup.procs");
    fs::write(root, pid.to_string()).unwrap();
    let shaped = all_are(&daemon, 1, "own");
    assert_eq!(identities(&shaped), identities(&booked));
    assert!(warning(&daemon, "observe").is_none());
    signal(pid, Signal::KILL);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_kill_in_the_middle_of_attaching_loses_no_task_and_no_process() {
    const TASKS: usize = 6;
    let seconds = seconds(5);
    let enforce = format!("{SLOTS}{}", sleepers(seconds));
    let observe = format!("{OBSERVE}{enforce}");
    let mut daemon = Daemon::new("modes-kill", &observe);
    // Families, so that a move takes more than one step.
    let mut pids = Vec::new();
    for _ in 0..TASKS {
        let script = format!("for i in 1 2 3 4 5 6 7 8; do sleep 300 & done; exec sleep {seconds}");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script]).stdin(std::process::Stdio::piped()).process_group(0);
        pids.push(daemon.keep(command.spawn().unwrap()));
    }
    daemon.launch();
    let booked = all_are(&daemon, TASKS, "none");
    let homes: Vec<String> = pids.iter().map(|pid| cgroups(*pid)).collect();
    let records = daemon.runtime().join("state");
    let mut cut_short = 0;
    for round in 0..8 {
        daemon.stop();
        daemon.configure(&enforce);
        daemon.spawn();
        // Killed while so many of them have a group.
        let wanted = round % TASKS;
        daemon.eventually("an attach", |daemon| {
            let groups = daemon.groups_in_roots();
            let mut names: Vec<_> = groups.iter().filter_map(|group| group.file_name()).collect();
            names.sort();
            names.dedup();
            (names.len() > wanted).then_some(())
        });
        daemon.kill();
        let files = fs::read_dir(&records).unwrap().flatten();
        let half = files.filter(|file| {
            fs::read_to_string(file.path()).unwrap_or_default().contains("\"booked\":{")
        });
        cut_short += half.count();
        // Whichever mode comes next makes one thing or the other of it.
        if round % 2 == 0 {
            daemon.launch();
            let shaped = all_are(&daemon, TASKS, "own");
            assert_eq!(identities(&shaped), identities(&booked), "round {round}");
            for task in &shaped {
                assert_eq!(procs(&daemon.cpu_dir(task)).len(), 9, "round {round}: {task}");
            }
            daemon.stop();
        }
        daemon.configure(&observe);
        daemon.launch();
        assert_eq!(identities(&all_are(&daemon, TASKS, "none")), identities(&booked));
        let now: Vec<String> = pids.iter().map(|pid| cgroups(*pid)).collect();
        assert_eq!(now, homes, "round {round}");
        assert!(daemon.groups_in_roots().is_empty(), "round {round}");
    }
    assert!(cut_short > 0, "no kill hit an attach");
    for pid in pids {
        if let Some(group) = rustix::process::Pid::from_raw(pid) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
    daemon.eventually("the end", |daemon| daemon.tasks().is_empty().then_some(()));
}
