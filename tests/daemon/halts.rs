//! Tasks that others froze or stopped, and a root that others froze.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Daemon, groups_below, procs, signal, weights};

const SLOTS: &str = "slots.active = 1\nslots.passive = 3\nslots.expand = false\nguard.enabled = \
                     false\ndaemon.sample_period = \"500ms\"\n";

/// The two ways to freeze a group; each is tried where the machine has it.
const KNOBS: [(&str, &str, &str); 2] =
    [("freezer.state", "FROZEN", "THAWED"), ("cgroup.freeze", "1", "0")];

/// Freezes `dir` in one hierarchy until dropped.
struct Frozen {
    file: PathBuf,
    off: &'static str,
}

impl Frozen {
    fn new(file: PathBuf, (_, on, off): (&str, &'static str, &'static str)) -> Frozen {
        fs::write(&file, on).unwrap();
        Frozen { file, off }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Gone with the group is fine.
        let _ = fs::write(&self.file, self.off);
    }
}

/// The files by which the group `below` the root of the daemon (itself: "") can be frozen.
fn knobs(
    daemon: &Daemon,
    below: &str,
) -> Vec<(PathBuf, (&'static str, &'static str, &'static str))> {
    let roots = daemon.root_dirs();
    let all = roots.iter().flat_map(|root| KNOBS.map(|knob| (root.join(below).join(knob.0), knob)));
    let found: Vec<_> = all.filter(|(file, _)| file.exists()).collect();
    assert!(!found.is_empty(), "no group of {roots:?} can be frozen");
    found
}

fn name_of(task: &Value) -> String {
    let path = Path::new(task["cgroup"].as_str().unwrap());
    String::from_utf8(path.file_name().unwrap().as_bytes().to_vec()).unwrap()
}

fn has(daemon: &Daemon, pid: i32, field: &str, value: bool) {
    daemon.eventually(&format!("{field} = {value} of {pid}"), |daemon| {
        (daemon.task_of(pid)[field] == value).then_some(())
    });
}

fn state(pid: i32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.trim_start()[..1].to_owned()
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_frozen_task_is_shown_and_passed_over_until_it_is_thawed() {
    let mut daemon = Daemon::start("halt", SLOTS);
    let first = daemon.run(&[], &["cat"]);
    daemon.task_of(first);
    let second = daemon.run(&[], &["cat"]);
    let name = name_of(&daemon.task_of(second));
    for (file, knob) in knobs(&daemon, &name) {
        let frozen = Frozen::new(file, knob);
        has(&daemon, second, "frozen", true);
        drop(frozen);
        has(&daemon, second, "frozen", false);
    }
    let third = daemon.run(&[], &["cat"]);
    daemon.task_of(third);
    let (file, knob) = knobs(&daemon, &name).remove(0);
    let frozen = Frozen::new(file, knob);
    // No cycle need have seen it: the one that is due is looked at.
    daemon.finish(first);
    daemon.eventually("a promotion", |daemon| {
        (daemon.task_of(third)["tier"] == "active").then_some(())
    });
    assert_eq!(daemon.task_of(second)["tier"], "passive");
    daemon.finish(third);
    daemon.eventually("the end", |daemon| (daemon.tasks().len() == 1).then_some(()));
    has(&daemon, second, "frozen", true);
    assert_eq!(daemon.task_of(second)["tier"], "passive", "a free slot is of no use to it");
    drop(frozen);
    daemon.eventually("its slot", |daemon| {
        (daemon.task_of(second)["tier"] == "active").then_some(())
    });
    daemon.finish(second);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_group_above_or_all_below_frozen_is_the_task_frozen() {
    let mut daemon = Daemon::start("haltup", SLOTS);
    let pid = daemon.run(&[], &["cat"]);
    let name = name_of(&daemon.task_of(pid));
    for (file, knob) in knobs(&daemon, "") {
        let frozen = Frozen::new(file, knob);
        has(&daemon, pid, "frozen", true);
        drop(frozen);
        has(&daemon, pid, "frozen", false);
    }
    for (file, knob) in knobs(&daemon, &name) {
        let below = file.parent().unwrap().join("below");
        fs::create_dir(&below).unwrap();
        fs::write(below.join("cgroup.procs"), pid.to_string()).unwrap();
        let frozen = Frozen::new(below.join(knob.0), knob);
        has(&daemon, pid, "frozen", true);
        drop(frozen);
        has(&daemon, pid, "frozen", false);
        fs::write(below.parent().unwrap().join("cgroup.procs"), pid.to_string()).unwrap();
        fs::remove_dir(below).unwrap();
    }
    daemon.finish(pid);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_stopped_task_is_shown_and_passed_over() {
    let mut daemon = Daemon::start("haltstop", SLOTS);
    let first = daemon.run(&[], &["cat"]);
    daemon.task_of(first);
    let second = daemon.run(&[], &["cat"]);
    daemon.task_of(second);
    signal(second, Signal::STOP);
    has(&daemon, second, "stopped", true);
    assert!(daemon.ok(&["tasks"]).contains("stopped"));
    daemon.finish(first);
    daemon.eventually("the end", |daemon| (daemon.tasks().len() == 1).then_some(()));
    assert_eq!(daemon.task_of(second)["tier"], "passive");
    signal(second, Signal::CONT);
    daemon.eventually("its slot", |daemon| {
        (daemon.task_of(second)["tier"] == "active").then_some(())
    });
    // One that is active keeps its slot.
    signal(second, Signal::STOP);
    has(&daemon, second, "stopped", true);
    let third = daemon.run(&[], &["cat"]);
    assert_eq!(daemon.task_of(third)["tier"], "passive");
    assert_eq!(daemon.task_of(second)["tier"], "active");
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_halted_task_that_is_released_stays_where_it_is() {
    let mut daemon = Daemon::start("haltrel", SLOTS);
    let active = daemon.run(&[], &["cat"]);
    daemon.task_of(active);
    let pid = daemon.run(&[], &["cat"]);
    let task = daemon.task_of(pid);
    let (file, knob) = knobs(&daemon, &name_of(&task)).remove(0);
    let dir = daemon.cpu_dir(&task);
    let frozen = Frozen::new(file.clone(), knob);
    has(&daemon, pid, "frozen", true);
    let output = daemon.ctl(&["release", task["id"].as_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("stay"), "{text}");
    let stays = |daemon: &Daemon| {
        assert_eq!(procs(&dir), [pid], "{}", daemon.log());
        assert_eq!(fs::read_to_string(&file).unwrap().trim(), knob.1, "still frozen");
        let (idle, weight) = weights(&dir);
        assert_ne!(idle, Some(1));
        assert!(matches!(weight, Some(100 | 1024)), "{weight:?}");
    };
    assert_eq!(daemon.tasks().len(), 1);
    stays(&daemon);
    // Whatever daemon comes knows that it is no task.
    for _ in 0..2 {
        daemon.stop();
        daemon.launch();
        assert_eq!(daemon.tasks().len(), 1, "{}", daemon.log());
        stays(&daemon);
    }
    drop(frozen);
    daemon.finish(pid);
    daemon.eventually("its group gone", |_| (!dir.exists()).then_some(()));
    daemon.finish(active);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn the_removal_of_lrs_leaves_frozen_what_is() {
    let mut daemon = Daemon::start("haltgone", SLOTS);
    let pid = daemon.run(&[], &["cat"]);
    let task = daemon.task_of(pid);
    let (file, knob) = knobs(&daemon, &name_of(&task)).remove(0);
    let _frozen = Frozen::new(file.clone(), knob);
    has(&daemon, pid, "frozen", true);
    daemon.stop();
    let (code, output) = daemon.give_back();
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("others froze or stopped it"), "{output}");
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), knob.1);
    assert_eq!(procs(&daemon.cpu_dir(&task)), [pid]);
}

#[test]
#[ignore = "needs root and cgroups"]
fn into_a_frozen_root_no_process_is_moved() {
    let mut daemon = Daemon::start("haltroot", SLOTS);
    let pid = daemon.run(&[], &["cat"]);
    daemon.task_of(pid);
    for (file, knob) in knobs(&daemon, "") {
        let frozen = Frozen::new(file, knob);
        let begun = Instant::now();
        daemon.refused(&["run", "--wait=1s", "--", "true"], 124, "is frozen by others");
        assert!(begun.elapsed() < Duration::from_secs(30));
        daemon.refused(&["run", "--", "true"], 124, "is frozen by others");
        let warnings = daemon.status()["warnings"].to_string();
        assert!(warnings.contains("is frozen by others"), "{warnings}");
        // One that waits longer runs once it is thawed.
        let waiter = daemon.run(&["--wait=60s"], &["cat"]);
        daemon.eventually("a waiter", |daemon| (daemon.status()["waiting"] == 1).then_some(()));
        // A frozen one never sleeps; the client may have something to do just now.
        daemon.eventually("its sleep", |_| (state(waiter) == "S").then_some(()));
        drop(frozen);
        daemon.task_of(waiter);
        daemon.finish(waiter);
        daemon.eventually("its end", |daemon| (daemon.tasks().len() == 1).then_some(()));
        let left = daemon.root_dirs().iter().flat_map(|root| groups_below(root)).count();
        assert!(left > 0, "the task that was there stays");
    }
    daemon.finish(pid);
    daemon.nothing_left();
}
