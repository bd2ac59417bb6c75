//! How passive tasks are held back on disks: only as `tiers.io` says, and a change of it leaves
//! nothing behind in tasks that run.

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
