//! How passive tasks are held back on disks: only as `tiers.io` says, and a change of it leaves
//! nothing behind in tasks that run.

use std::process::Command;

use serde_json::Value;

use crate::harness::{Daemon, in_tier};

const ONE: &str = "[slots]\nactive = 1\npassive = 1\nexpand = false\n";

/// Class of the first thread's I/O priority: 0 none, 1 real-time, 2 best effort, 3 idle
/// (ioprio_set(2)).
fn io_class(pid: i32) -> i64 {
    // SAFETY: ioprio_get(2) takes two integers and touches no memory of ours.
    let answer = unsafe { libc::syscall(libc::SYS_ioprio_get, 1, pid) };
    assert!(answer >= 0, "ioprio_get: {}", std::io::Error::last_os_error());
    answer >> 13
}

fn passive_pid(daemon: &Daemon) -> i32 {
    let tasks = daemon.tasks();
    assert_eq!(in_tier(&tasks, "passive").len(), 1);
    let task = tasks.iter().find(|task| task["tier"] == "passive").unwrap();
    i32::try_from(task["pid"].as_i64().unwrap()).unwrap()
}

#[test]
#[ignore = "needs root and cgroups"]
fn the_idle_class_comes_and_goes_with_tiers_io() {
    let mut daemon = Daemon::start("disks", ONE);
    for _ in 0..2 {
        let pid = daemon.run(&[], &["cat"]);
        daemon.task_of(pid);
    }
    let pid = passive_pid(&daemon);
    assert_ne!(daemon.status()["cgroup"]["io_tiers"], "ioprio");
    assert_ne!(io_class(pid), 3, "the default uses no idle class");
    daemon.stop();

    daemon.configure(&format!("{ONE}[tiers]\nio = \"idle\"\n"));
    daemon.launch();
    let status = daemon.status();
    assert_eq!(passive_pid(&daemon), pid);
    if status["cgroup"]["io_tiers"] == "ioprio" {
        daemon.eventually("the idle class", |_| (io_class(pid) == 3).then_some(()));
    } else {
        println!("NOT RUN: the idle class needs mq-deadline alone: {}", status["cgroup"]["reason"]);
        assert_ne!(io_class(pid), 3, "not beside weights");
    }
    daemon.stop();

    daemon.configure(ONE);
    daemon.launch();
    assert_eq!(passive_pid(&daemon), pid);
    daemon.eventually("the task's own class", |_| (io_class(pid) != 3).then_some(()));
}

#[test]
#[ignore = "needs root and cgroups"]
fn without_disk_tiers_the_weights_of_an_earlier_daemon_are_taken_back() {
    let mut daemon = Daemon::start("disk-weights", ONE);
    let pid = daemon.run(&[], &["cat"]);
    let task = daemon.task_of(pid);
    daemon.stop();
    let cpu = daemon.cpu_dir(&task);
    // systemd mounts cpu and cpuacct together.
    let blkio =
        cpu.to_string_lossy().replace("/cpu/", "/blkio/").replace("/cpu,cpuacct/", "/blkio/");
    let blkio = std::path::PathBuf::from(blkio);
    let files = [blkio.join("blkio.bfq.weight"), cpu.join("io.bfq.weight"), cpu.join("io.weight")];
    // The kernel has one of them, or this proves nothing.
    let file = files.iter().find(|file| file.exists()).expect("a weight file for disks");
    std::fs::write(file, "10").unwrap();
    daemon.configure(&format!("{ONE}[tiers]\nio = false\n"));
    daemon.launch();
    let neutral = || std::fs::read_to_string(file).unwrap().lines().next() == Some("100");
    let default = || std::fs::read_to_string(file).unwrap().starts_with("default 100");
    daemon.eventually("the neutral weight", |_| (neutral() || default()).then_some(()));
}

/// A disk of our own, with a scheduler to choose; taken apart at the end.
struct LoopDisk {
    device: String,
    _file: tempfile::NamedTempFile,
}

impl LoopDisk {
    fn new() -> LoopDisk {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output();
        let output = output.expect("losetup of util-linux");
        let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        assert!(output.status.success() && !device.is_empty(), "{:?}", output.stderr);
        LoopDisk { device, _file: file }
    }

    fn name(&self) -> &str {
        self.device.strip_prefix("/dev/").unwrap()
    }

    /// `false`: this kernel has no such scheduler.
    fn choose(&self, scheduler: &str) -> bool {
        std::fs::write(format!("/sys/block/{}/queue/scheduler", self.name()), scheduler).is_ok()
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // It keeps its scheduler when it is taken apart.
        self.choose("none");
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

/// Every weight for disks that the group of a task has.
fn disk_weights(daemon: &Daemon, task: &Value) -> Vec<String> {
    let path = task["cgroup"].as_str().unwrap();
    let files = ["blkio.bfq.weight", "io.bfq.weight"];
    let below = daemon.root_dirs().into_iter().map(|dir| {
        let depth = daemon.root.split('/').count();
        dir.ancestors().nth(depth).unwrap().join(path.trim_start_matches('/'))
    });
    let all = below.flat_map(|dir| files.map(|file| dir.join(file)));
    all.filter_map(|file| Some(std::fs::read_to_string(file).ok()?.trim().to_owned())).collect()
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_change_of_a_disks_scheduler_is_followed() {
    let disk = LoopDisk::new();
    if !disk.choose("bfq") {
        println!("NOT RUN: this kernel has no bfq");
        return;
    }
    let mut daemon =
        Daemon::start("scheduler", &format!("daemon.sample_period = \"100ms\"\n{ONE}"));
    for _ in 0..2 {
        let pid = daemon.run(&[], &["cat"]);
        daemon.task_of(pid);
    }
    let named = |daemon: &Daemon, wanted: bool| {
        daemon.eventually("a reason", |daemon| {
            let cgroup = daemon.status()["cgroup"].clone();
            let reason = cgroup["reason"].as_str().unwrap();
            let by_bfq = reason
                .split("; ")
                .any(|part| part.starts_with("disk tiers by") && part.contains(disk.name()));
            let agrees = !wanted || cgroup["io_tiers"] == "bfq";
            (by_bfq == wanted && agrees).then_some(())
        });
    };
    let of = |tier: &str| daemon.tasks().into_iter().find(|task| task["tier"] == tier).unwrap();
    let (active, passive) = (of("active"), of("passive"));
    let shaped = |daemon: &Daemon, wanted: bool| {
        daemon.eventually("weights for disks", |daemon| {
            let (active, passive) = (disk_weights(daemon, &active), disk_weights(daemon, &passive));
            assert!(!active.is_empty(), "there is a weight to look at");
            ((active != passive) == wanted).then_some(())
        });
    };
    named(&daemon, true);
    shaped(&daemon, true);
    disk.choose("none");
    named(&daemon, false);
    // Another disk of the node may have it.
    let elsewhere = daemon.status()["cgroup"]["io_tiers"] == "bfq";
    shaped(&daemon, elsewhere);
    disk.choose("bfq");
    named(&daemon, true);
    shaped(&daemon, true);
    let report: Value = {
        let output =
            daemon.ctl(&["doctor", "--json", "--config", daemon.config().to_str().unwrap()]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["id"] == "io_tiers").unwrap();
    assert!(check["found"].as_str().unwrap().starts_with("bfq: "), "{check}");
    // After several checks of the weights no change is reported.
    for _ in 0..8 {
        let last = daemon.status()["node"]["sampled_at"].clone();
        daemon.eventually("a cycle", |daemon| {
            (daemon.status()["node"]["sampled_at"] != last).then_some(())
        });
    }
    let drifts: Vec<Value> =
        daemon.events().into_iter().filter(|event| event["type"] == "drift").collect();
    assert!(drifts.is_empty(), "{drifts:?}");
    // A promotion writes the weight of the new tier.
    let before = disk_weights(&daemon, &passive);
    daemon.ok(&["release", active["id"].as_str().unwrap()]);
    daemon.eventually("the promoted weight", |daemon| {
        (disk_weights(daemon, &passive) != before).then_some(())
    });
}
