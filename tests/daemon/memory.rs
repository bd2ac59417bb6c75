//! A limit of memory above the tasks. On v1 the files of this test's own group of `memory` are covered by
//! plain files, in a mount namespace that the daemon alone is in: no group is made, moved or limited. On v2
//! the root is the test's to limit.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::Daemon;

const SETTINGS: &str = "daemon.sample_period = \"200ms\"\n[slots]\nactive = 1\npassive = 1\n\
                        [guard]\nenter_after = \"0s\"\nexit_after = \"0s\"\n";

const MIB: u64 = 1 << 20;

/// This process's group of v1's `memory`; `None`: it is not mounted.
fn own_v1_group() -> Option<PathBuf> {
    let member = fs::read_to_string("/proc/self/cgroup").unwrap();
    let path = member.lines().find_map(|line| line.split_once(":memory:"))?.1.to_owned();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_memory = |line: &&str| {
        line.split_once(" - cgroup ").is_some_and(|(_, kind)| kind.ends_with(",memory"))
    };
    let point = mounts.lines().find(is_memory)?.split(' ').nth(4)?;
    Some(Path::new(point).join(path.trim_start_matches('/')))
}

fn memory(status: &Value) -> &Value {
    &status["node"]["memory"]
}

/// Until a cycle has seen what makes `is` true of the status.
fn until(daemon: &Daemon, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    daemon.eventually(what, |daemon| Some(daemon.status()).filter(&is))
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_limit_above_the_tasks_is_what_is_free_and_holds_the_guard() {
    match own_v1_group() {
        Some(group) => on_v1(&group),
        None => on_v2(),
    }
}

fn on_v1(group: &Path) {
    let mut daemon = Daemon::new("memory", SETTINGS);
    let put = |dir: &Path, name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
    let dir = daemon.dir.path().to_owned();
    put(&dir, "memory.limit_in_bytes", "9223372036854771712\n");
    put(&dir, "memory.usage_in_bytes", &format!("{}\n", 340 * MIB));
    let cache = (4 * MIB, 6 * MIB);
    put(
        &dir,
        "memory.stat",
        &format!("total_inactive_file {}\ntotal_active_file {}\n", cache.0, cache.1),
    );
    let bind = "for f in limit_in_bytes usage_in_bytes stat; do \
                mount --bind \"$0/memory.$f\" \"$1/memory.$f\" || exit; done; shift; exec \"$@\"";
    let (from, to) = (dir.to_str().unwrap(), group.to_str().unwrap());
    daemon.wrapper = ["unshare", "--mount", "sh", "-c", bind, from, to].map(str::to_owned).to_vec();
    daemon.launch();
    let status = until(&daemon, "a sample", |status| memory(status)["total_bytes"].is_u64());
    assert_eq!(memory(&status)["limit_file"], Value::Null, "none yet: {status}");
    assert_eq!(memory(&status)["total_bytes"], memory(&status)["node_total_bytes"]);

    put(&dir, "memory.limit_in_bytes", &format!("{}\n", 400 * MIB));
    let file = format!("{to}/memory.limit_in_bytes");
    let status = until(&daemon, "the limit", |status| memory(status)["limit_file"] == *file);
    assert_eq!(memory(&status)["total_bytes"], 400 * MIB);
    assert_eq!(memory(&status)["available_bytes"], 70 * MIB, "with 10 MiB of cache");
    assert!(memory(&status)["node_available_bytes"].as_u64() > Some(400 * MIB));
    assert_eq!(status["state"], "accepting");
    let text = daemon.ok(&["status"]).split_whitespace().collect::<Vec<_>>().join(" ");
    let output = format!("70.0 MiB of 400.0 MiB available (the limit in {file})");
    assert!(text.contains(&output), "{text}");

    put(&dir, "memory.usage_in_bytes", &format!("{}\n", 395 * MIB));
    let status = until(&daemon, "the guard", |status| status["state"] == "holding");
    let reason = status["guard"]["reason"].as_str().unwrap();
    assert!(reason.contains(&file) && reason.contains("below the reserve of 20.0 MiB"), "{reason}");
    let events = daemon.events();
    let held = events.iter().find(|event| event["type"] == "guard").unwrap();
    assert_eq!(held["inputs"]["memory_limit_file"], *file, "{held}");
    assert_eq!(held["inputs"]["memory_limit_bytes"], 400 * MIB, "{held}");

    // What cannot be read costs the limit, is reported, and is no 0.
    put(&dir, "memory.usage_in_bytes", "plenty\n");
    let named = |status: &Value| status["warnings"].to_string().contains("memory.usage_in_bytes");
    let status =
        until(&daemon, "a warning", |status| named(status) && status["state"] == "accepting");
    assert_eq!(memory(&status)["limit_file"], Value::Null);
    assert_eq!(memory(&status)["available_bytes"], memory(&status)["node_available_bytes"]);
    put(&dir, "memory.usage_in_bytes", &format!("{}\n", 340 * MIB));
    until(&daemon, "no warning", |status| !named(status) && memory(status)["limit_file"] == *file);
}

fn on_v2() {
    let mut daemon = Daemon::start("memory", SETTINGS);
    let cat = daemon.run(&[], &["cat"]);
    let task = daemon.task_of(cat);
    let root = daemon.cpu_dir(&task).parent().unwrap().to_owned();
    for name in ["memory.high", "memory.max"] {
        fs::write(root.join(name), format!("{}\n", 400 * MIB)).unwrap();
        let file = root.join(name).display().to_string();
        let status = until(&daemon, name, |status| memory(status)["limit_file"] == *file);
        assert_eq!(memory(&status)["total_bytes"], 400 * MIB);
        assert!(memory(&status)["available_bytes"].as_u64() < Some(400 * MIB), "{status}");
        fs::write(root.join(name), "max\n").unwrap();
        until(&daemon, "no limit", |status| memory(status)["limit_file"].is_null());
    }
    daemon.finish(cat);
}

/// The kernel counts that in the task's own group, where that has the memory controller.
#[test]
#[ignore = "needs root and cgroups"]
fn what_the_kernel_kills_in_a_task_for_want_of_memory_is_reported() {
    let mut daemon = Daemon::start("oom", "slots.active = 2\n");
    // Of a pipe it keeps the last bytes that it was asked for: 200 MB of them.
    let script = "read go; head -c 300000000 /dev/zero | tail -c 200000000 >/dev/null; exit 3";
    let pid = daemon.run(&["--name", "eater"], &["sh", "-c", script]);
    let dir = daemon.cpu_dir(&daemon.task_of(pid));
    let counted = dir.join("memory.events").exists();
    if counted {
        fs::write(dir.join("memory.max"), (32 * MIB).to_string()).unwrap();
        // Else it goes to the swap.
        let _ = fs::write(dir.join("memory.swap.max"), "0");
    }
    if !counted {
        println!("NOT RUN: no memory controller in the group of a task");
        daemon.ok(&["kill", "-s", "KILL", "eater"]);
        daemon.join(pid);
        let end = daemon.eventually("the end", |daemon| daemon.json(&["history"]).get(0).cloned());
        assert_eq!(end["oom_kills"], Value::Null, "not known");
        return;
    }
    daemon.finish(pid);
    assert_eq!(daemon.join(pid).code(), Some(3));
    let end = daemon.eventually("the end", |daemon| daemon.json(&["history"]).get(0).cloned());
    assert!(end["oom_kills"].as_u64() >= Some(1), "{end}");
    let text = daemon.ok(&["history"]);
    // Behind the status, which kernels before 6.15 do not tell.
    assert!(text.contains("oom  ") || text.contains("3+oom"), "{text}");
    let output = daemon.ok(&["events", "--no-follow", "--since", "1"]);
    assert!(output.contains("for want of memory"), "{output}");
}
