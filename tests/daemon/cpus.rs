//! Which CPUs count: those of the tasks, whatever lrsd itself may run on.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Daemon, signal};

const QUICK: &str = "daemon.sample_period = \"200ms\"\nslots.passive = 1\n";

/// CPUs that this test may use, which nothing has narrowed; they have to be two at the least.
fn cpus() -> u64 {
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    assert!(cpus >= 2, "this test needs two CPUs; run it where there are two");
    cpus
}

fn with_wrapper(name: &str, settings: &str, wrapper: &[&str]) -> Daemon {
    let mut daemon = Daemon::new(name, settings);
    daemon.wrapper = wrapper.iter().map(|word| (*word).to_owned()).collect();
    daemon.launch();
    daemon
}

fn capacity(status: &Value) -> (u64, u64) {
    let number = |path| status.pointer(path).and_then(Value::as_u64).unwrap();
    (number("/node/cores"), number("/slots/active/capacity"))
}

fn until_capacity(daemon: &Daemon, cpus: u64) -> Value {
    daemon.eventually(&format!("{cpus} CPUs"), |daemon| {
        Some(daemon.status()).filter(|status| capacity(status) == (cpus, cpus))
    })
}

/// What doctor finds about CPUs for this daemon, started through `wrapper`.
fn doctor(daemon: &Daemon, wrapper: &[&str]) -> String {
    let program = env!("CARGO_BIN_EXE_lrsctl");
    let words = [wrapper, &[program, "doctor", "--json", "--config"]].concat();
    let output = std::process::Command::new(words[0])
        .args(&words[1..])
        .arg(daemon.config())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["id"] == "cpus").unwrap();
    check["found"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs root and cgroups"]
fn the_affinity_of_lrsd_does_not_count() {
    let cpus = cpus();
    let daemon = with_wrapper("affinity", QUICK, &["taskset", "-c", "0"]);
    assert_eq!(capacity(&daemon.status()), (cpus, cpus));
    let found = doctor(&daemon, &["taskset", "-c", "0"]);
    assert!(found.starts_with(&format!("{cpus} to be used")), "{found}");
}

/// A file over the kernel's list of CPUs online, as far as lrsd sees. Counters of a CPU that is
/// "back" are those of its whole life.
#[test]
#[ignore = "needs root and cgroups"]
fn a_cpu_that_goes_takes_a_slot_and_one_that_returns_opens_none_by_its_past() {
    let cpus = cpus();
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("online");
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    fs::write(&list, &online).unwrap();
    let script = "mount --bind \"$1\" /sys/devices/system/cpu/online && shift && exec \"$@\"";
    let list_path = list.to_str().unwrap();
    let wrapper =
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", list_path];
    let mut daemon = with_wrapper("hotplug", QUICK, &wrapper);
    assert_eq!(capacity(&daemon.status()), (cpus, cpus));
    for _ in 0..=cpus {
        daemon.run(&[], &["sh", "-c", "while :; do :; done"]);
    }
    daemon.eventually("all slots in use", |daemon| {
        (daemon.tasks().len() as u64 == cpus + 1).then_some(())
    });

    fs::write(&list, "0\n").unwrap();
    until_capacity(&daemon, 1);
    // The next cycle has figures again: of the CPU that is left.
    daemon.eventually("figures of the CPU that is left", |daemon| {
        daemon.status().pointer("/node/cpu/effective").and_then(Value::as_f64).map(drop)
    });
    let at_return = daemon.events().last().unwrap()["seq"].as_u64().unwrap();
    fs::write(&list, &online).unwrap();
    until_capacity(&daemon, cpus);
    let events = daemon.events();
    let resized = events.iter().filter(|event| event["type"] == "resized").collect::<Vec<_>>();
    let reason = |event: &Value| event["reason"].as_str().unwrap().to_owned();
    assert_eq!(reason(resized[0]), format!("LRS's tasks may run on 1 CPUs, {cpus} before"));
    assert_eq!(reason(resized[1]), format!("LRS's tasks may run on {cpus} CPUs, 1 before"));
    let expanded = events.iter().filter(|event| event["type"] == "expanded");
    let since = expanded.filter(|event| event["seq"].as_u64().unwrap() > at_return).count();
    assert_eq!(since, 0, "{events:?}");
}

/// A group of cpuset of our own on v1, with CPU 0 alone.
struct Cpuset(PathBuf);

impl Cpuset {
    fn new(mount: &Path) -> Cpuset {
        let dir = mount.join(format!("lrs-test-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let cpuset = Cpuset(dir);
        let mems = fs::read_to_string(mount.join("cpuset.effective_mems")).unwrap();
        fs::write(cpuset.0.join("cpuset.mems"), mems).unwrap();
        fs::write(cpuset.0.join("cpuset.cpus"), "0").unwrap();
        cpuset
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        // The daemon was in it, and has ended.
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("left behind: {}: {error}", self.0.display());
        }
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn the_cpuset_group_in_which_lrsd_was_started_counts_on_v1() {
    let cpus = cpus();
    let mount = Path::new("/sys/fs/cgroup/cpuset");
    if !mount.join("cpuset.effective_cpus").exists() {
        // With cpuset on v2 tests/vm/guest/checks/package-cpus.sh has the same.
        println!("no cpuset on v1 here: nothing to try");
        return;
    }
    let cpuset = Cpuset::new(mount);
    let script = "echo $$ >\"$1/cgroup.procs\" && shift && exec \"$@\"";
    let group = cpuset.0.to_str().unwrap();
    let daemon = with_wrapper("cpuset", QUICK, &["sh", "-c", script, "sh", group]);
    assert_eq!(capacity(&daemon.status()), (1, 1));
    let found = doctor(&daemon, &[]);
    assert!(found.starts_with("1 to be used (0)"), "{found}");
    fs::write(cpuset.0.join("cpuset.cpus"), "0-1").unwrap();
    until_capacity(&daemon, cpus.min(2));
    drop(daemon);
}

/// A quota of one CPU: two hogs use all of it, whatever the CPUs have left.
#[test]
#[ignore = "needs root and cgroups"]
fn cpu_that_a_quota_forbids_is_not_spare() {
    let cpus = cpus();
    let mut daemon = Daemon::start("quota", QUICK);
    for _ in 0..=cpus {
        daemon.run(&[], &["sh", "-c", "while :; do :; done"]);
    }
    daemon.eventually("all slots in use", |daemon| {
        (daemon.tasks().len() as u64 == cpus + 1).then_some(())
    });
    let before = daemon.events().last().unwrap()["seq"].as_u64().unwrap();
    let (mount, v1) = lrs_testbed::groups::cpu_mount().unwrap();
    let root = mount.join(&daemon.root);
    match v1 {
        true => fs::write(root.join("cpu.cfs_quota_us"), "100000").unwrap(),
        false => fs::write(root.join("cpu.max"), "100000 100000").unwrap(),
    }
    let status = daemon.eventually("a node with a used-up quota", |daemon| {
        let status = daemon.status();
        let busy = status.pointer("/node/cpu/effective").and_then(Value::as_f64)?;
        (capacity(&status) == (1, 1) && busy > 0.95).then_some(status)
    });
    assert_eq!(status.pointer("/node/cpu_quota").and_then(Value::as_f64), Some(1.0));
    let text = daemon.ok(&["status"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("1.00 CPUs that a quota above the tasks allows"), "{text}");
    let found = doctor(&daemon, &[]);
    assert!(found.contains("allows 1.00, so 1 active slots"), "{found}");
    // Some cycles under it, with every slot taken.
    let seen = status.pointer("/node/sampled_at").unwrap().clone();
    daemon.eventually("more cycles", |daemon| {
        (daemon.status().pointer("/node/sampled_at") != Some(&seen)).then_some(())
    });
    let events = daemon.events();
    let since = |event: &&Value| event["seq"].as_u64().unwrap() > before;
    let kinds: Vec<_> = events.iter().filter(since).map(|event| &event["type"]).collect();
    assert!(kinds.iter().any(|kind| **kind == "resized"), "{events:?}");
    assert!(!kinds.iter().any(|kind| **kind == "expanded"), "{events:?}");
}

#[test]
#[ignore = "needs root and cgroups"]
fn each_cpu_that_pinned_tasks_use_has_an_active_one() {
    cpus();
    let settings = "daemon.sample_period = \"200ms\"\n\
         [slots]\nactive = 2\npassive = 2\nexpand = false\n";
    let mut daemon = Daemon::start("pinned", settings);
    let tasks = ["0", "0", "1", "1"].map(|cpu| {
        let hog = daemon.run(&[], &["taskset", "-c", cpu, "bash", "-c", "while :; do :; done"]);
        // The next one comes after it.
        daemon.task_of(hog);
        hog
    });
    let tiers = |daemon: &Daemon| tasks.map(|pid| daemon.task_of(pid)["tier"] == "active");
    daemon.eventually("an active task on each CPU", |daemon| {
        (tiers(daemon) == [true, false, true, false]).then_some(())
    });
    let second = daemon.task_of(tasks[1]);
    assert_eq!(second["cpus"], "0", "{second}");
    let why = daemon.ok(&["why", second["id"].as_str().expect("an id")]);
    assert!(why.contains("an active task has each CPU that it may use"), "{why}");
    let table = daemon.ok(&["tasks"]);
    assert!(table.lines().next().is_some_and(|heads| heads.contains("CPUS")), "{table}");
    // The one that came after it on its CPU has the slot, and not the one that came first of all.
    signal(tasks[2], Signal::KILL);
    daemon.eventually("the next on the second CPU", |daemon| {
        let active = |pid| daemon.task_of(pid)["tier"] == "active";
        (active(tasks[3]) && !active(tasks[1])).then_some(())
    });
}
