//! A member has its own processes managed, and no other user's through them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Daemon, Foreign, procs, signal, weight_file};
use crate::member::{MEMBER, STRANGER, stranger, with_members};

const SETTINGS: &str = "daemon.sample_period = \"100ms\"\n\
                        [slots]\nactive = 1\npassive = 7\nexpand = false\n";

fn as_member(daemon: &Daemon, arguments: &[&str]) -> Output {
    stranger(daemon, MEMBER, arguments).output().unwrap()
}

/// The member's call fails, and says `words`.
fn refused(daemon: &Daemon, arguments: &[&str], words: &[&str]) {
    let output = as_member(daemon, arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}\n{}", daemon.log());
    for words in words {
        assert!(text.contains(words), "{arguments:?}, not {words:?}: {text}");
    }
}

fn admitted(daemon: &Daemon, arguments: &[&str]) -> String {
    let output = as_member(daemon, arguments);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {text}\n{}", daemon.log());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// What the member starts; killed when the test ends.
struct Job(Child, BufReader<ChildStdout>);

impl Job {
    fn start(command: &mut Command) -> Job {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().unwrap());
        Job(child, out)
    }

    /// `sh -c script` of the member's.
    fn sh(script: &str) -> Job {
        let id = STRANGER.to_string();
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "sh", "-c", script]);
        Job::start(&mut command)
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.1.read_line(&mut line).unwrap(), 0, "the job ended early");
        line.trim().to_owned()
    }

    fn say(&mut self, text: &str) {
        self.0.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `cat` with root's rights, whoever starts it; where programs may be setuid, as in /tmp often
/// they may not.
struct RootsCat(tempfile::TempDir);

impl RootsCat {
    fn new() -> RootsCat {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let cat = RootsCat(dir);
        fs::copy("/bin/cat", cat.path()).unwrap();
        fs::set_permissions(cat.path(), fs::Permissions::from_mode(0o4755)).unwrap();
        cat
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("cat")
    }

    fn name(&self) -> String {
        self.path().display().to_string()
    }
}

fn groups_of(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default()
}

fn uids(pid: i32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    line.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

fn becomes_roots(daemon: &Daemon, pid: i32) {
    let roots = format!("{STRANGER} 0 0 0");
    daemon.eventually("root's rights", |_| (uids(pid) == roots).then_some(()));
}

fn cycles(daemon: &Daemon, count: usize) {
    let sampled = |daemon: &Daemon| daemon.status()["node"]["sampled_at"].clone();
    for _ in 0..count {
        let before = sampled(daemon);
        daemon.eventually("a cycle", |daemon| (sampled(daemon) != before).then_some(()));
    }
}

fn contested(daemon: &Daemon, id: &str) -> Option<String> {
    let events = daemon.events();
    let event = events.iter().find(|event| event["type"] == "contested" && event["task"] == id)?;
    event["reason"].as_str().map(str::to_owned)
}

/// The `cgroup.procs` of the mount below which the group is.
fn of_mount(daemon: &Daemon, dir: &Path) -> PathBuf {
    let depth = dir.components().count() - daemon.root_dirs()[0].components().count();
    dir.ancestors().nth(depth + 1).unwrap().join("cgroup.procs")
}

/// Not a test: the process of the next one.
#[test]
#[ignore = "needs root and cgroups"]
fn serving_a_user() {
    if std::env::var_os("LRS_TEST_SERVING_A_USER").is_none() {
        return;
    }
    // SAFETY: takes integers; the effective uid alone becomes the user's, of every thread.
    assert_eq!(unsafe { libc::setresuid(0, STRANGER, 0) }, 0);
    println!("\nserving");
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_daemon_of_roots_that_serves_a_user_for_a_moment_is_not_that_users() {
    let mut daemon = with_members("serving", SETTINGS);
    let mut job = Job::start(
        Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "owner::serving_a_user"])
            .env("LRS_TEST_SERVING_A_USER", "1"),
    );
    while job.line() != "serving" {}
    let pid = job.pid();
    assert_eq!(uids(pid), format!("0 {STRANGER} 0 {STRANGER}"));
    let before = groups_of(pid);
    let words = [&format!("process {pid} does not belong to uid {STRANGER} alone"), "real 0"];
    refused(&daemon, &["admit", &pid.to_string()], &words);
    assert_eq!(groups_of(pid), before);
    // While it waits for a slot it may change, too.
    daemon.run(&[], &["cat"]);
    refused(&daemon, &["admit", "--wait", &pid.to_string()], &words);
    let id = daemon.ok(&["admit", &pid.to_string()]);
    assert_eq!(daemon.task_of(pid)["id"], id.trim(), "root may");
    job.end();
}

/// Not a test: the process of the next one.
#[test]
#[ignore = "needs root and cgroups"]
fn having_a_thread_of_roots() {
    if std::env::var_os("LRS_TEST_A_THREAD_OF_ROOTS").is_none() {
        return;
    }
    extern "C" fn wait(_: *mut libc::c_void) -> libc::c_int {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    let stack = Box::leak(vec![0_u128; 4096].into_boxed_slice()).as_mut_ptr_range().end;
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    // SAFETY: the stack is that thread's for ever, and it only waits.
    let thread = unsafe { libc::clone(wait, stack.cast(), flags, std::ptr::null_mut()) };
    assert!(thread > 0);
    // SAFETY: takes integers; changes every thread that libc has made, which that one is not.
    assert_eq!(unsafe { libc::setresuid(STRANGER, STRANGER, STRANGER) }, 0);
    println!("\nmixed");
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_process_with_a_thread_of_roots_is_not_its_first_threads() {
    let daemon = with_members("threads", SETTINGS);
    let mut job = Job::start(
        Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "owner::having_a_thread_of_roots"])
            .env("LRS_TEST_A_THREAD_OF_ROOTS", "1"),
    );
    while job.line() != "mixed" {}
    let pid = job.pid();
    assert_eq!(uids(pid), [STRANGER.to_string().as_str(); 4].join(" "));
    let before = groups_of(pid);
    let words = [&format!("of process {pid} does not belong to uid {STRANGER} alone"), "real 0"];
    refused(&daemon, &["admit", &pid.to_string()], &words);
    assert_eq!(groups_of(pid), before, "all is undone");
    assert_eq!(daemon.groups_in_roots(), Vec::<PathBuf>::new());
    let id = daemon.ok(&["admit", &pid.to_string()]);
    assert_eq!(daemon.task_of(pid)["id"], id.trim(), "root may");
    job.end();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_child_that_is_setuid_root_refuses_its_family() {
    let daemon = with_members("setuid", SETTINGS);
    let cat = RootsCat::new();
    let mut job = Job::sh(&format!("exec 3<&0; {} <&3 & echo $!; wait; exec cat", cat.name()));
    let (pid, child) = (job.pid(), job.line().parse().unwrap());
    becomes_roots(&daemon, child);
    let before = [groups_of(pid), groups_of(child)];
    let words = format!("process {child} does not belong to uid {STRANGER} alone");
    refused(&daemon, &["admit", &pid.to_string()], &[&words, "effective 0", "[grpc] admins"]);
    assert_eq!([groups_of(pid), groups_of(child)], before, "all is undone");
    assert_eq!(daemon.groups_in_roots(), Vec::<PathBuf>::new());
    assert_eq!(daemon.status()["totals"]["admitted"], 0);

    // Without it, the same shell is the member's.
    signal(child, Signal::KILL);
    daemon.eventually("the end of it", |_| groups_of(child).is_empty().then_some(()));
    let id = admitted(&daemon, &["admit", &pid.to_string()]);
    assert_eq!(daemon.task_of(pid)["id"], *id);
    job.end();
    daemon.nothing_left();
}

/// A program becomes root's somewhere between the request and the answer, stays so, and tells in
/// which groups it was then. If it was outside, and the answer is that it was taken, it was moved
/// when it was root's.
#[test]
#[ignore = "needs root and cgroups"]
fn a_setuid_exec_between_the_look_and_the_move_is_noticed() {
    // Emulation takes fifty times as long for an admission.
    let slow = std::env::var_os("LRS_TEST_SLOW").is_some();
    let (tries, pause) = if slow { (50, 500) } else { (1000, 10) };
    let mut pause = Duration::from_millis(pause);
    let daemon = with_members("window", SETTINGS);
    let cat = RootsCat::new();
    let script = format!("echo ready; read go; exec {} /proc/self/cgroup -", cat.name());
    let (mut taken, mut wrongly) = (0, 0);
    for attempt in 0..tries {
        let mut job = Job::sh(&script);
        assert_eq!(job.line(), "ready");
        let pid = job.pid();
        let admit = stranger(&daemon, MEMBER, &["admit", &pid.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while begun.elapsed() < pause {
            std::thread::yield_now();
        }
        job.say("go\n");
        let answer = admit.wait_with_output().unwrap();
        // One write(2) has all of it.
        let line = String::from_utf8(job.1.fill_buf().unwrap().to_vec()).unwrap();
        assert!(line.contains(":/"), "attempt {attempt}: {line:?}");
        let was_outside = !line.contains(&daemon.root);
        if answer.status.success() {
            taken += 1;
            wrongly += usize::from(was_outside);
            assert!(groups_of(pid).contains(&daemon.root), "attempt {attempt}");
        } else {
            let text = String::from_utf8_lossy(&answer.stderr);
            let known = ["does not belong to", "belongs to uid 0"].iter().any(|w| text.contains(w));
            assert!(known, "attempt {attempt}: {text}");
            assert!(!groups_of(pid).contains(&daemon.root), "attempt {attempt}: {text}");
        }
        // Towards the instant at which either can happen.
        pause = if answer.status.success() { pause * 7 / 8 } else { pause * 9 / 8 };
        job.end();
    }
    println!("{tries} tries: {taken} taken, of which {wrongly} as root's");
    assert_eq!(wrongly, 0, "of {taken} taken in {tries} tries");
    assert!(taken > tries / 10 && taken < tries * 9 / 10, "{taken} taken in {tries} tries");
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn what_became_roots_inside_goes_on_and_is_not_moved_back() {
    let daemon = with_members("became", SETTINGS);
    let cat = RootsCat::new();
    let mut job = Job::sh(&format!("echo ready; read go; exec {}", cat.name()));
    assert_eq!(job.line(), "ready");
    let pid = job.pid();
    let id = admitted(&daemon, &["admit", &pid.to_string()]);
    let group = daemon.cpu_dir(&daemon.task_of(pid));
    job.say("go\n");
    becomes_roots(&daemon, pid);
    cycles(&daemon, 5);
    assert_eq!(procs(&group), [pid], "sudo in a task is the task's own");
    fs::write(of_mount(&daemon, &group), pid.to_string()).unwrap();
    daemon.eventually("its release", |daemon| daemon.tasks().is_empty().then_some(()));
    let reason = contested(&daemon, &id).unwrap();
    assert!(reason.contains(&format!("process {pid} does not belong to")), "{reason}");
    assert!(!groups_of(pid).contains(&daemon.root), "{}", groups_of(pid));
    job.end();
    daemon.nothing_left();
}

/// A restart must not make root's of a task what was a member's.
#[test]
#[ignore = "needs root and cgroups"]
fn a_task_that_is_limited_from_outside_is_left_there_also_after_a_restart() {
    let mut daemon = with_members("limited", SETTINGS);
    // Older than the task: what goes into a younger group is left there anyway.
    let limited = Foreign::beside(&daemon);
    let job = Job::sh("exec cat");
    let pid = job.pid();
    let id = admitted(&daemon, &["admit", &pid.to_string()]);
    let group = daemon.cpu_dir(&daemon.task_of(pid));
    daemon.kill();
    let (file, value) = match limited.0.join("cpu.max").exists() {
        true => ("cpu.max", "50000 100000"),
        false => ("cpu.cfs_quota_us", "50000"),
    };
    fs::write(limited.0.join(file), value).unwrap();
    fs::write(limited.0.join("cgroup.procs"), pid.to_string()).unwrap();
    // Without its processes the task would have ended meanwhile.
    let child = Job::sh("exec cat");
    fs::write(group.join("cgroup.procs"), child.pid().to_string()).unwrap();
    daemon.launch();
    let reason = daemon.eventually("LRS gives way", |daemon| contested(daemon, &id));
    assert!(reason.contains(file), "{reason}");
    assert_eq!(procs(&limited.0), [pid]);
    for job in [child, job] {
        job.end();
    }
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_group_in_place_that_another_user_enters_is_released() {
    let mut daemon = with_members("entered", SETTINGS);
    daemon.run(&[], &["cat"]);
    daemon.eventually("the active slot is taken", |d| (d.tasks().len() == 1).then_some(()));
    let cat = RootsCat::new();
    let foreign = Foreign::beside(&daemon);
    let file = foreign.0.join(weight_file(&foreign.0));
    let weight = || fs::read_to_string(&file).unwrap().trim().to_owned();
    fs::write(&file, "321").unwrap();
    let enter = |pid: i32| fs::write(foreign.0.join("cgroup.procs"), pid.to_string()).unwrap();
    let mut job = Job::sh(&format!("echo ready; read go; exec {}", cat.name()));
    assert_eq!(job.line(), "ready");
    let pid = job.pid();
    enter(pid);
    let admit = ["admit", "--in-place", &pid.to_string()];
    if foreign.0.join("cgroup.controllers").exists() {
        refused(&daemon, &admit, &["cgroup.procs", "is not uid 65534's to write"]);
        chown(foreign.0.join("cgroup.procs"), Some(STRANGER), Some(STRANGER)).unwrap();
    }
    // Whoever is there already, with one of four uids another's.
    let mixed = Command::new("setpriv")
        .args(["--ruid", "0", "--euid", &STRANGER.to_string(), "cat"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mixed = daemon.keep(mixed);
    let euid = format!("0 {STRANGER} {STRANGER} {STRANGER}");
    daemon.eventually("its uids", |_| (uids(mixed) == euid).then_some(()));
    enter(mixed);
    refused(&daemon, &admit, &[&format!("process {mixed} does not belong to"), "real 0"]);
    signal(mixed, Signal::KILL);
    daemon.join(mixed);
    assert_eq!(weight(), "321");

    let id = admitted(&daemon, &admit);
    assert_ne!(weight(), "321", "a passive task has its owner's weight");
    // One that was the member's and is root's now became so inside.
    cycles(&daemon, 2);
    job.say("go\n");
    becomes_roots(&daemon, pid);
    cycles(&daemon, 5);
    assert_eq!(daemon.task_of(pid)["id"], *id);
    assert_ne!(weight(), "321");

    let roots = daemon.process(&["cat"]);
    enter(roots);
    daemon.eventually("it is released", |d| (d.tasks().len() == 1).then_some(()));
    assert_eq!(weight(), "321");
    let reason = contested(&daemon, &id).unwrap();
    assert!(reason.contains("does not belong to uid 65534 alone"), "{reason}");
    assert_eq!(procs(&foreign.0).len(), 2, "no process was moved");
    assert_eq!(daemon.status()["totals"]["released"], 1);
    daemon.consistent();
}

/// Where the second hierarchy of v1 has the child; on v2 there is one alone.
fn second(daemon: &Daemon) -> PathBuf {
    let cpu = Foreign::beside(daemon).0.clone();
    let blkio = Path::new("/sys/fs/cgroup/blkio").join(cpu.file_name().unwrap());
    if blkio.parent().unwrap().is_dir() { blkio } else { cpu }
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_child_keeps_the_limit_its_parent_does_not_have_and_returns_to_it() {
    let daemon = with_members("escape", SETTINGS);
    let dir = second(&daemon);
    fs::create_dir(&dir).unwrap();
    let limited = Foreign(dir);
    let mut job = Job::sh("exec 3<&0; cat <&3 & echo $!; exec cat");
    let (pid, child) = (job.pid(), job.line().parse::<i32>().unwrap());
    fs::write(limited.0.join("cgroup.procs"), child.to_string()).unwrap();
    let before = [groups_of(pid), groups_of(child)];
    limit_disks(&limited.0);
    let id = admitted(&daemon, &["admit", &pid.to_string()]);
    assert!(groups_of(pid).contains(&daemon.root));
    assert_eq!(procs(&limited.0), [child], "it is still limited");
    let on_v1 = limited.0.join("tasks").exists();
    assert_eq!(groups_of(child).contains(&format!("/{}/", daemon.root)), on_v1, "in the others");
    assert!(as_member(&daemon, &["release", &id]).status.success());
    assert_eq!([groups_of(pid), groups_of(child)], before, "each where it came from");
    if on_v1 {
        let again = admitted(&daemon, &["admit", &pid.to_string()]);
        signal(pid, Signal::KILL);
        cycles(&daemon, 3);
        let left: Vec<Value> = daemon.tasks();
        assert_eq!(left.len(), 1, "it goes on with the child: {left:?}");
        assert_eq!(left[0]["id"], *again);
        assert_eq!(procs(&limited.0), [child]);
    }
    job.end();
    signal(child, Signal::KILL);
    daemon.nothing_left();
}

/// 1 MiB/s of writes to the disks there are.
fn limit_disks(dir: &Path) {
    let disks = fs::read_dir("/sys/block").unwrap().flatten();
    let (file, value) = match dir.join("tasks").exists() {
        true => ("blkio.throttle.write_bps_device", " 1048576"),
        false => ("io.max", " wbps=1048576"),
    };
    let devices = disks.filter_map(|disk| fs::read_to_string(disk.path().join("dev")).ok());
    let limit = |device: &String| fs::write(dir.join(file), format!("{}{value}", device.trim()));
    // Not every device takes one.
    assert!(devices.filter(|device| limit(device).is_ok()).count() > 0, "no limit is in force");
}
