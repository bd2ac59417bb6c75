//! A node that lacks what LRS needs, or would like to have: what no task could be admitted without
//! stops a start in the words of `lrsctl doctor`; all else is reported once and costs no admission.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lrs_testbed::groups::{cpu_mount, remove_groups};
use serde_json::Value;

use crate::harness::{Daemon, procs};

const TWO: &str = "[slots]\nactive = 2\npassive = 2\nexpand = false\n";
const QUICK: &str = "daemon.sample_period = \"100ms\"\n";

/// Becomes the command after a filter answers pidfd_open(2) with the errno given first
/// (seccomp(2); x86_64 and aarch64 have one number for it).
const DENY: &str = r#"
import ctypes, os, struct, sys
errno, libc = int(sys.argv[1]), ctypes.CDLL(None, use_errno=True)
op = lambda code, yes, no, k: struct.pack('HBBI', code, yes, no, k)
program = op(0x20, 0, 0, 0) + op(0x15, 0, 1, 434) + op(0x06, 0, 0, 0x50000 | errno) + op(0x06, 0, 0, 0x7fff0000)
buffer = ctypes.create_string_buffer(program)
class Filter(ctypes.Structure): _fields_ = [('length', ctypes.c_ushort), ('program', ctypes.c_void_p)]
it = Filter(4, ctypes.addressof(buffer))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(it)) == 0
os.execvp(sys.argv[2], sys.argv[2:])
"#;

fn deny(errno: i32) -> Vec<String> {
    ["python3", "-c", DENY, &errno.to_string()].map(str::to_owned).to_vec()
}

/// In a mount namespace of its own, after `script`.
fn privately(script: &str) -> Vec<String> {
    let script = format!("set -e; {script}; exec \"$@\"");
    let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &script, "sh"];
    words.map(str::to_owned).to_vec()
}

fn warning(daemon: &Daemon, words: &str) -> Option<String> {
    let status = daemon.status();
    let mut all = status["warnings"].as_array().unwrap().iter().filter_map(Value::as_str);
    all.find(|warning| warning.contains(words)).map(str::to_owned)
}

/// Waits for so many cycles more.
fn cycles(daemon: &Daemon, count: usize) {
    for _ in 0..count {
        let last = daemon.status()["node"]["sampled_at"].clone();
        daemon.eventually("a cycle", |daemon| {
            (daemon.status()["node"]["sampled_at"] != last).then_some(())
        });
    }
}

/// No move of a task and no change of its weights was reported.
fn undisturbed(daemon: &Daemon) {
    cycles(daemon, 6);
    let odd = ["drift", "contested", "released"];
    let events = daemon.events();
    let found = events.iter().find(|event| odd.iter().any(|kind| event["type"] == *kind));
    assert_eq!(found, None, "{}", daemon.log());
}

fn times_in_log(daemon: &Daemon, words: &str) -> usize {
    daemon.log().lines().filter(|line| line.contains(words)).count()
}

/// The mount of cgroup2 beside the hierarchies of v1; `None`: it carries the controllers itself.
fn twin_mount() -> Option<PathBuf> {
    let (_, is_v1) = cpu_mount().expect("cgroups");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mut all = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = all.find(|words| words[2] == "cgroup2").map(|words| PathBuf::from(words[1]));
    found.filter(|_| is_v1)
}

/// A group of ours, gone with this.
struct Made(PathBuf);

impl Made {
    fn new(dir: PathBuf) -> Made {
        fs::create_dir(&dir).unwrap();
        Made(dir)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Err(stays) = remove_groups(&self.0) {
            eprintln!("left behind: {stays}");
        }
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn without_pidfds_a_start_is_refused_as_doctor_says_unless_tasks_run() {
    let mut daemon = Daemon::new("pidfd", &format!("{QUICK}{TWO}"));
    for errno in [libc::EPERM, libc::ENOSYS] {
        daemon.wrapper = deny(errno);
        daemon.spawn();
        assert_eq!(daemon.wait_exit(), Some(1), "{}", daemon.log());
        let report = Command::new("python3")
            .args(&deny(errno)[1..])
            .args([env!("CARGO_BIN_EXE_lrsctl"), "doctor", "--json", "--config"])
            .arg(daemon.config())
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        let checks = report["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["id"] == "kernel").unwrap();
        assert_eq!(check["verdict"], "fail", "{check}");
        let (_, found) = check["found"].as_str().unwrap().split_once("but ").unwrap();
        let same = format!("{found}; {}", check["remedy"].as_str().unwrap());
        assert!(daemon.log().contains(&same), "{same} not in {}", daemon.log());
        assert!(daemon.root_dirs().is_empty(), "nothing was begun");
    }
    daemon.wrapper.clear();
    daemon.launch();
    let pid = daemon.run(&[], &["cat"]);
    let task = daemon.task_of(pid);
    daemon.kill();
    daemon.wrapper = deny(libc::EPERM);
    daemon.launch();
    assert_eq!(daemon.task_of(pid)["id"], task["id"]);
    assert!(warning(&daemon, "pidfd_open is refused").is_some(), "{}", daemon.status());
    daemon.refused(&["run", "--", "true"], 125, "pidfd");
    daemon.finish(pid);
    daemon.join(pid);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_part_of_a_hierarchy_on_top_of_the_whole_is_seen() {
    let mut daemon = Daemon::new("part", &format!("{QUICK}{TWO}"));
    let part = format!("{}-part", daemon.root);
    let (mount, _) = cpu_mount().unwrap();
    let over = |mount: &Path| privately(&format!("mount --bind {0}/{part} {0}", mount.display()));
    let _made = Made::new(mount.join(&part));
    daemon.wrapper = over(&mount);
    daemon.spawn();
    assert_eq!(daemon.wait_exit(), Some(1), "{}", daemon.log());
    let words = format!("{} shows the groups from /{part} on", mount.display());
    assert!(daemon.log().contains(&words), "{}", daemon.log());

    // With tasks it goes on, and says so.
    daemon.wrapper.clear();
    daemon.launch();
    let pid = daemon.run(&[], &["cat"]);
    daemon.task_of(pid);
    daemon.kill();
    daemon.wrapper = over(&mount);
    daemon.launch();
    assert!(warning(&daemon, &words).is_some(), "{}", daemon.status());
    assert_eq!(daemon.stop().0, Some(0));
    daemon.finish(pid);
    daemon.join(pid);
    // Its group was out of sight; a daemon that sees it takes it away.
    daemon.wrapper.clear();
    daemon.launch();
    daemon.nothing_left();
    assert_eq!(daemon.stop().0, Some(0));

    let Some(twin) = twin_mount() else { return };
    let _made = Made::new(twin.join(&part));
    daemon.wrapper = over(&twin);
    daemon.launch();
    let words = format!("tasks get no group in {}", twin.display());
    assert!(warning(&daemon, &words).is_some(), "{}", daemon.status());
    let pid = daemon.run(&[], &["cat"]);
    daemon.task_of(pid);
    undisturbed(&daemon);
    daemon.finish(pid);
    daemon.join(pid);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_limit_on_groups_is_named_and_costs_the_twin_alone() {
    let mut daemon = Daemon::start("limit", &format!("{QUICK}{TWO}"));
    let Some(twin) = twin_mount() else {
        let (mount, _) = cpu_mount().unwrap();
        fs::write(mount.join(&daemon.root).join("cgroup.max.descendants"), "0").unwrap();
        daemon.refused(&["run", "--", "true"], 125, "cgroup.max.descendants is 0");
        return daemon.nothing_left();
    };
    let root = twin.join(&daemon.root);
    fs::write(root.join("cgroup.max.descendants"), "1").unwrap();
    let pids: Vec<i32> = (0..3).map(|_| daemon.run(&[], &["cat"])).collect();
    for pid in &pids {
        let task = daemon.task_of(*pid);
        assert_eq!(procs(&daemon.cpu_dir(&task)), [*pid]);
    }
    let words = format!("{} is 1", root.join("cgroup.max.descendants").display());
    assert!(warning(&daemon, &words).is_some(), "{}", daemon.status());
    assert_eq!(times_in_log(&daemon, &words), 1, "{}", daemon.log());
    undisturbed(&daemon);
    daemon.kill();
    daemon.launch();
    assert_eq!(daemon.tasks().len(), 3);
    undisturbed(&daemon);
    // One that was moved out comes back without a twin too.
    let (mount, _) = cpu_mount().unwrap();
    let last = daemon.task_of(pids[2]);
    fs::write(mount.join("cgroup.procs"), pids[2].to_string()).unwrap();
    daemon.eventually("it is moved back", |daemon| {
        (procs(&daemon.cpu_dir(&last)) == [pids[2]]).then_some(())
    });
    fs::write(root.join("cgroup.max.descendants"), "max").unwrap();
    fs::write(root.join("cgroup.max.depth"), "0").unwrap();
    let other = daemon.run(&[], &["cat"]);
    daemon.task_of(other);
    for pid in pids.into_iter().chain([other]) {
        daemon.finish(pid);
        daemon.join(pid);
    }
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_root_below_a_threaded_group_is_named() {
    let mut daemon = Daemon::new("threads", "");
    let top = format!("{}-top", daemon.root);
    let twin = twin_mount();
    let mount = twin.clone().unwrap_or_else(|| cpu_mount().unwrap().0);
    let made = Made::new(mount.join(&top));
    fs::create_dir(made.0.join("t")).unwrap();
    fs::write(made.0.join("t/cgroup.type"), "threaded").unwrap();
    daemon.root = format!("{top}/t/lrs");
    daemon.configure(&format!("{QUICK}{TWO}"));
    if twin.is_none() {
        daemon.spawn();
        assert_eq!(daemon.wait_exit(), Some(1), "{}", daemon.log());
        assert!(daemon.log().contains("below a threaded group"), "{}", daemon.log());
        return;
    }
    daemon.launch();
    assert!(warning(&daemon, "below a threaded group").is_some(), "{}", daemon.status());
    let pid = daemon.run(&[], &["cat"]);
    daemon.task_of(pid);
    undisturbed(&daemon);
    daemon.finish(pid);
    daemon.join(pid);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn used_up_inotify_is_named_and_refuses_nothing() {
    for (file, words) in [
        ("max_inotify_instances", "fs.inotify.max_user_instances"),
        ("max_inotify_watches", "fs.inotify.max_user_watches"),
    ] {
        let mut daemon = Daemon::new("inotify", &format!("{QUICK}{TWO}"));
        // The limit of a user namespace of its own, so that no other program meets it.
        let script = format!("echo 0 >/proc/sys/user/{file} && exec \"$@\"");
        let words_of = ["unshare", "--user", "--map-root-user", "sh", "-c", &script, "sh"];
        daemon.wrapper = words_of.map(str::to_owned).to_vec();
        daemon.launch();
        let pids: Vec<i32> = (0..3).map(|_| daemon.run(&[], &["cat"])).collect();
        for pid in &pids {
            daemon.task_of(*pid);
        }
        if words.contains("instances") || twin_mount().is_some() {
            assert!(warning(&daemon, words).is_some(), "{}", daemon.status());
            assert_eq!(times_in_log(&daemon, words), 1, "{}", daemon.log());
        }
        for pid in pids {
            daemon.finish(pid);
            daemon.join(pid);
        }
        daemon.nothing_left();
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_scheduler_in_bpf_is_named_while_it_is_there() {
    let mut daemon = Daemon::new("scx", &format!("{QUICK}{TWO}"));
    let sys = daemon.dir.path().join("kernel");
    fs::create_dir_all(sys.join("sched_ext/root")).unwrap();
    let put = |file: &str, text: &str| fs::write(sys.join("sched_ext").join(file), text).unwrap();
    put("state", "disabled\n");
    put("root/ops", "scx_example\n");
    daemon.wrapper = privately(&format!("mount --bind {} /sys/kernel", sys.display()));
    daemon.launch();
    assert_eq!(warning(&daemon, "sched_ext"), None);
    put("state", "enabled\n");
    daemon.eventually("the warning", |daemon| warning(daemon, "scheduled by scx_example"));
    put("state", "disabled\n");
    daemon.eventually("no warning", |d| warning(d, "sched_ext").is_none().then_some(()));
}

#[test]
#[ignore = "needs root and cgroups"]
fn the_trial_at_the_start_leaves_nothing_and_counts_nowhere() {
    let mut daemon = Daemon::new("trial", TWO);
    // What a daemon leaves that is killed in the middle of it.
    let (mount, _) = cpu_mount().unwrap();
    let root = Made::new(mount.join(&daemon.root));
    fs::create_dir(root.0.join("trial")).unwrap();
    daemon.launch();
    assert!(daemon.groups_in_roots().is_empty());
    let status = daemon.status();
    assert_eq!(
        (&status["totals"]["admitted"], &status["totals"]["completed"]),
        (&0.into(), &0.into())
    );
    let kinds: Vec<Value> = daemon.events().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(kinds, ["started"]);
    let children = format!("/proc/{0}/task/{0}/children", daemon.pid());
    assert_eq!(fs::read_to_string(children).unwrap_or_default(), "", "its process has ended");
    assert_eq!(daemon.stop().0, Some(0));
}
