//! Too few threads or descriptors: an end in words, or service; never a panic.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use lrs_testbed::groups::remove_groups;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::harness::Daemon;

const TWO: &str = "[slots]\nactive = 2\npassive = 2\nexpand = false\n";

/// A group below the mount that has the controller pids, with a limit; gone with this.
struct Pids(PathBuf);

impl Pids {
    fn new(name: &str) -> Pids {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mut all = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let v1 = all
            .clone()
            .find(|words| words[2] == "cgroup" && words[3].split(',').any(|o| o == "pids"));
        let mount = v1.or_else(|| all.find(|words| words[2] == "cgroup2")).expect("cgroups");
        let dir = PathBuf::from(mount[1]).join(name);
        fs::create_dir(&dir).unwrap();
        Pids(dir)
    }

    fn limit(&self, most: u32) {
        fs::write(self.0.join("pids.max"), most.to_string()).unwrap();
    }
}

impl Drop for Pids {
    fn drop(&mut self) {
        if let Err(stays) = remove_groups(&self.0) {
            eprintln!("left behind: {stays}");
        }
    }
}

/// Its descriptors, and what each is of.
fn descriptors(pid: i32) -> BTreeMap<u64, String> {
    let dir = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(Result::unwrap);
    let of = |fd: fs::DirEntry| {
        let link = fs::read_link(fd.path()).ok()?.display().to_string();
        Some((fd.file_name().to_str()?.parse().ok()?, link))
    };
    dir.filter_map(of).collect()
}

/// Starts it: it serves and ends in order (true), or ends by itself with a reason.
fn serves(daemon: &mut Daemon) -> bool {
    let _ = fs::remove_file(daemon.dir.path().join("log"));
    daemon.spawn();
    loop {
        if daemon.ctl(&["status", "--json"]).status.success() {
            assert_eq!(daemon.stop().0, Some(0), "{}", daemon.log());
            return true;
        }
        if daemon.has_ended() {
            assert_eq!(daemon.wait_exit(), Some(1), "{}", daemon.log());
            return false;
        }
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_start_without_threads_names_the_limit() {
    let mut daemon = Daemon::new("pids", TWO);
    let group = Pids::new(&format!("{}-pids", daemon.root));
    let script = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.0.display());
    daemon.wrapper = ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec();
    let mut served = Vec::new();
    for most in 1..=16 {
        group.limit(most);
        let serves = serves(&mut daemon);
        let log = daemon.log();
        assert!(!log.contains("panicked"), "{most}: {log}");
        assert!(serves || log.contains("pids.max"), "{most}: {log}");
        assert!(serves || !log.contains("is ready"), "{most}: {log}");
        served.push(serves);
    }
    assert!(!served[0] && served[15], "{served:?}");
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_start_without_descriptors_says_so() {
    let mut daemon = Daemon::new("nofile", TWO);
    let mut served = Vec::new();
    for most in (4..=40).chain([64]) {
        let limit = format!("--nofile={most}:{most}");
        daemon.wrapper = ["prlimit", &limit].map(str::to_owned).to_vec();
        let serves = serves(&mut daemon);
        let log = daemon.log();
        assert!(!log.contains("panicked"), "{most}: {log}");
        let words = ["os error 24", "file descriptors", "error while loading"];
        assert!(serves || words.iter().any(|words| log.contains(words)), "{most}: {log}");
        served.push(serves);
    }
    assert_eq!(served.last(), Some(&true), "{served:?}");
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_running_daemon_without_descriptors_tells_its_clients_and_its_log_once() {
    let settings = format!("daemon.sample_period = \"60s\"\n{TWO}");
    // The descriptor that it keeps for this has to be below the limit that is set here, which it
    // is not if something else had a lower one for a moment as it started.
    let start = |n| {
        let daemon = Daemon::start(&format!("full-{n}"), &settings);
        let held = descriptors(daemon.pid());
        let free = (0..).find(|fd| !held.contains_key(fd))?;
        // It is another one of the socket that lrsd listens on (flags 00010000).
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        let path = daemon.socket().display().to_string();
        let listens = |row: &&str| row.contains(" 00010000 ") && row.ends_with(&path);
        let row = sockets.lines().find(listens).expect("a socket that is listened on");
        let link = format!("socket:[{}]", row.split_whitespace().nth(6).unwrap());
        let same: Vec<u64> =
            held.iter().filter(|(_, of)| **of == link).map(|(fd, _)| *fd).collect();
        assert_eq!(same.len(), 2, "{held:?}");
        (same[1] < free).then_some((daemon, free))
    };
    let (daemon, free) = (0..10).find_map(start).expect("a spare descriptor below those in use");
    let pid = Pid::from_raw(daemon.pid());
    let before = getrlimit(Resource::Nofile);
    let fewer = Rlimit { current: Some(free), ..before };
    let before = prlimit(pid, Resource::Nofile, fewer).unwrap();
    for _ in 0..20 {
        daemon.refused(&["status"], 3, "out of file descriptors");
    }
    daemon.refused(&["run", "--", "/bin/true"], 125, "out of file descriptors");
    let lines = daemon.log().matches("cannot accept connections").count();
    assert_eq!(lines, 1, "{}", daemon.log());
    prlimit(pid, Resource::Nofile, before).unwrap();
    daemon.ok(&["run", "--", "/bin/true"]);
    daemon.nothing_left();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_client_without_descriptors_says_so() {
    let daemon = Daemon::start("client", TWO);
    for most in 3..=16 {
        for (command, codes) in [
            (&["run", "--", "/bin/true"][..], &[0, 125][..]),
            (&["run", "--each", "/dev/null", "--", "/bin/true"], &[0, 1, 125]),
            (&["status"], &[0, 1, 3]),
            (&["tasks"], &[0, 1, 3]),
        ] {
            let output = Command::new("prlimit")
                .arg(format!("--nofile={most}:{most}"))
                .arg(env!("CARGO_BIN_EXE_lrsctl"))
                .args(command)
                .env("LRS_ENDPOINT", format!("unix:{}", daemon.socket().display()))
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(!stderr.contains("panicked"), "{most} {command:?}: {stderr}");
            // Below four the program cannot even be loaded.
            let code = output.status.code().unwrap();
            let loads = !stderr.contains("error while loading shared libraries");
            assert!(!loads || codes.contains(&code), "{most} {command:?}: {code} {stderr}");
            assert!(
                code == 0 || stderr.contains("open files") || !loads,
                "{most} {command:?}: {stderr}"
            );
        }
    }
    daemon.nothing_left();
}
