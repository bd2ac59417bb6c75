//! Tiers on the real kernel: who is where, what the files say, what follows from an exit.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::harness::{Daemon, in_tier};

const TWO: &str = "[slots]\nactive = 2\npassive = 2\nexpand = false\n";

fn number(dir: &std::path::Path, file: &str) -> Option<u64> {
    fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
}

#[test]
#[ignore = "needs root and cgroups"]
fn weights_on_disk_match_what_is_shown() {
    let mut daemon = Daemon::start("weights", TWO);
    let pids: Vec<i32> = (0..4).map(|_| daemon.run(&["--wait"], &["cat"])).collect();
    daemon.eventually("four tasks", |daemon| (daemon.tasks().len() == 4).then_some(()));
    let check = |daemon: &Daemon, active: usize| {
        let tasks = daemon.tasks();
        assert_eq!(in_tier(&tasks, "active").len(), active);
        let mut weights = Vec::new();
        for task in &tasks {
            let dir = daemon.cpu_dir(task);
            let idle = number(&dir, "cpu.idle").map(|idle| idle == 1);
            assert_eq!(task["kernel"]["cpu_idle"], Value::from(idle), "{task}");
            let file = if dir.join("cpu.shares").exists() { "cpu.shares" } else { "cpu.weight" };
            let weight = number(&dir, file);
            assert_eq!(task["kernel"]["cpu_weight"], Value::from(weight), "{task}");
            weights.push((task["tier"] == "active", idle == Some(true), weight));
        }
        for (active, idle, weight) in weights {
            assert_eq!(idle, !active, "passive tasks of own groups are idle where it exists");
            let neutral = weight.is_some_and(|weight| weight >= 100);
            assert!(!active || neutral, "an active weight below neutral: {weight:?}");
        }
        tasks
    };
    let before = check(&daemon, 2);
    let active_pid = before.iter().find(|t| t["tier"] == "active").unwrap()["pid"].clone();
    daemon.finish(i32::try_from(active_pid.as_i64().unwrap()).unwrap());
    daemon.eventually("a promotion", |daemon| (daemon.tasks().len() == 3).then_some(()));
    let after = check(&daemon, 2);
    let promoted: Vec<&Value> = after.iter().filter(|t| !t["promoted_at"].is_null()).collect();
    assert_eq!(promoted.len(), 1);
    assert_eq!(promoted[0]["id"], before[2]["id"], "the earliest admitted passive task");
    for pid in pids {
        daemon.finish(pid);
    }
    daemon.eventually("the end of all", |daemon| daemon.tasks().is_empty().then_some(()));
    daemon.eventually("no cgroup left", |daemon| daemon.groups_in_roots().is_empty().then_some(()));
    let roots = daemon.root_dirs();
    assert!(!roots.is_empty());
    let (code, took) = daemon.stop();
    assert_eq!(code, Some(0));
    assert!(took.as_secs() < 30, "{took:?}");
    assert_eq!(daemon.root_dirs(), Vec::<std::path::PathBuf>::new(), "the root went with lrsd");
}

#[test]
#[ignore = "needs root and cgroups"]
fn three_tasks_a_core_never_exceed_their_tiers_and_promote_in_order() {
    let mut daemon = Daemon::start("order", TWO);
    let pids: Vec<i32> = (0..6).map(|_| daemon.run(&["--wait"], &["cat"])).collect();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut left = pids.clone();
    while !left.is_empty() {
        let tasks = daemon.eventually("full tiers", |daemon| {
            // Ids are older than admissions: a request that waits has one already.
            let mut tasks = daemon.tasks();
            tasks.sort_by_key(|task| task["admitted_at"].as_str().map(str::to_owned));
            // The end of the last one may be on its way to the loop still.
            let known = |task: &Value| left.iter().any(|pid| task["pid"] == *pid);
            (tasks.len() == left.len().min(4) && tasks.iter().all(known)).then_some(tasks)
        });
        let active = in_tier(&tasks, "active");
        let passive = in_tier(&tasks, "passive");
        assert!(active.len() <= 2 && passive.len() <= 2, "{active:?} {passive:?}");
        assert_eq!(active.len(), left.len().min(2), "a passive task waits beside a free slot");
        let last_active = tasks.iter().rposition(|task| task["tier"] == "active").unwrap();
        let first_passive = tasks.iter().position(|task| task["tier"] == "passive");
        assert!(first_passive.is_none_or(|first| first > last_active), "first come, first served");
        seen.extend(tasks.iter().map(|task| task["id"].as_str().unwrap().to_owned()));
        let pid = i32::try_from(tasks[0]["pid"].as_i64().unwrap()).unwrap();
        daemon.finish(pid);
        assert!(daemon.join(pid).success());
        left.retain(|other| *other != pid);
    }
    daemon.eventually("the end of all", |daemon| daemon.tasks().is_empty().then_some(()));
    assert_eq!(seen.len(), 6, "every task had its turn");
    let totals = &daemon.status()["totals"];
    assert_eq!(totals["admitted"], 6);
    assert_eq!(totals["completed"], 6);
    assert_eq!(totals["demoted"], 0);
    let events = daemon.events();
    assert!(events.iter().map(|event| event["seq"].as_u64()).is_sorted());
    let promoted = events.iter().filter(|event| event["type"] == "promoted").count();
    assert_eq!(totals["promoted"], promoted);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_higher_priority_takes_an_active_slot_and_set_priority_gives_it_back() {
    let mut daemon = Daemon::start("priority", TWO);
    // One after the other: of two that ask at once either may be the later.
    let [_, later] = [(), ()].map(|()| {
        let pid = daemon.run(&[], &["cat"]);
        daemon.task_of(pid)
    });
    let urgent = daemon.run(&["--priority", "5"], &["cat"]);
    let urgent = daemon.task_of(urgent);
    assert_eq!(urgent["tier"], "active");
    let tasks = daemon.tasks();
    assert_eq!(in_tier(&tasks, "passive"), [later["id"].as_str().unwrap()]);
    assert_eq!(daemon.status()["lowest_active_priority"], 0);
    daemon.ok(&["priority", urgent["id"].as_str().unwrap(), "-5"]);
    let tasks = daemon.tasks();
    assert_eq!(in_tier(&tasks, "passive"), [urgent["id"].as_str().unwrap()]);
    let why = daemon.ok(&["why", urgent["id"].as_str().unwrap()]);
    assert!(why.contains("demoted") && why.contains("priority"), "{why}");
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_task_lives_as_long_as_its_last_process() {
    let mut daemon = Daemon::start("last", TWO);
    // The main process ends at once, its child reads until its input closes. (A shell gives
    // background commands an empty stdin; descriptor 3 is the real one.)
    let pid = daemon.run(&[], &["sh", "-c", "exec 3<&0; cat <&3 & exit 0"]);
    let task = daemon.task_of(pid);
    daemon.eventually("the main process has ended", |daemon| {
        daemon.tasks().iter().any(|task| task["main_exited"] == true).then_some(())
    });
    assert_eq!(daemon.status()["slots"]["active"]["used"], 1);
    daemon.finish(pid);
    daemon.eventually("the end", |daemon| daemon.tasks().is_empty().then_some(()));
    assert_eq!(daemon.status()["totals"]["completed"], 1);
    let dir = daemon.cpu_dir(&task);
    daemon.eventually("its cgroup goes", |_| (!dir.exists()).then_some(()));
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_foreign_change_of_weights_is_repaired_and_then_left_alone() {
    let mut daemon = Daemon::start("drift", &format!("daemon.sample_period = \"100ms\"\n{TWO}"));
    let pid = daemon.run(&[], &["cat"]);
    let task = daemon.task_of(pid);
    let dir = daemon.cpu_dir(&task);
    let file = if dir.join("cpu.shares").exists() { "cpu.shares" } else { "cpu.weight" };
    let right = number(&dir, file).unwrap();
    for repair in 1..=3 {
        fs::write(dir.join(file), "77").unwrap();
        daemon.eventually("a repair", |daemon| {
            let drifts = daemon.events().iter().filter(|e| e["type"] == "drift").count();
            (drifts == repair && number(&dir, file) == Some(right)).then_some(())
        });
    }
    fs::write(dir.join(file), "77").unwrap();
    daemon.eventually("LRS gives in", |daemon| {
        daemon.tasks().iter().any(|task| task["contested"] == true).then_some(())
    });
    assert_eq!(number(&dir, file), Some(77));
    let shown = &daemon.tasks()[0]["kernel"]["cpu_weight"];
    assert_eq!(*shown, 77, "what is, not what was wished");
}

#[test]
#[ignore = "needs root and cgroups"]
fn in_place_edits_weights_only_and_release_gives_them_back() {
    let mut daemon = Daemon::start("inplace", TWO);
    assert_eq!(daemon.groups_in_roots(), Vec::<std::path::PathBuf>::new());
    // A foreign group, beside ours.
    let base = daemon.cpu_dir(&serde_json::json!({"cgroup": format!("/{}", daemon.root)}));
    let foreign = base.with_file_name(format!("{}-owner", daemon.root));
    fs::create_dir(&foreign).unwrap();
    let file = if foreign.join("cpu.shares").exists() { "cpu.shares" } else { "cpu.weight" };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        if !foreign.join(file).exists() {
            panic!("the cpu controller is not enabled for {}", foreign.display());
        }
        fs::write(foreign.join(file), "321").unwrap();
        let pid = daemon.process(&["cat"]);
        fs::write(foreign.join("cgroup.procs"), pid.to_string()).unwrap();
        let id = daemon.ok(&["admit", "--in-place", &pid.to_string()]);
        let task = daemon.task_of(pid);
        assert_eq!(task["id"], id.trim());
        assert_eq!(task["attachment"], "in_place");
        assert!(number(&foreign, file).unwrap() >= 321);
        assert_eq!(crate::harness::procs(&foreign), [pid], "no process was moved");
        let again = daemon.ctl(&["admit", "--in-place", &pid.to_string()]);
        assert!(again.status.success(), "the same caller asking again gets the same task");
        daemon.ok(&["release", id.trim()]);
        assert_eq!(number(&foreign, file), Some(321));
        daemon.finish(pid);
        daemon.join(pid);
    }));
    for pid in crate::harness::procs(&foreign) {
        crate::harness::signal(pid, rustix::process::Signal::KILL);
    }
    for _ in 0..1000 {
        if fs::remove_dir(&foreign).is_ok() {
            break;
        }
    }
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}
