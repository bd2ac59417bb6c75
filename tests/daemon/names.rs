//! Processes with names that are no UTF-8, because the kernel cut them inside a letter, and
//! processes with a first thread that has ended while others run: both are processes like any
//! other.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use lrs_testbed::groups::cpu_mount;
use rustix::process::Signal;

use crate::harness::{Daemon, procs, signal};
use crate::member::{MEMBER, STRANGER, stranger, with_members};

const SETTINGS: &str = "daemon.sample_period = \"100ms\"\n[slots]\nactive = 8\npassive = 0\n\
    expand = false\n[[discover]]\nname = \"reports\"\nattach = \"own\"\nuser = [\"root\"]\n\
    command = \"/nightly-reportäöü 301$\"\n";

/// A program with a name of 15 bytes that ends within a letter, for every user.
fn cut_name(daemon: &Daemon) -> String {
    let program = daemon.dir.path().join("nightly-reportäöü");
    fs::copy("/bin/sleep", &program).unwrap();
    fs::set_permissions(daemon.dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    program.to_str().unwrap().to_owned()
}

fn assert_name_is_no_text(pid: i32) {
    let name = fs::read(format!("/proc/{pid}/comm")).unwrap();
    assert!(String::from_utf8(name.clone()).is_err(), "{}", name.escape_ascii());
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_name_that_is_no_text_makes_no_difference() {
    let mut daemon = with_members("cut-names", SETTINGS);
    let program = cut_name(&daemon);
    let program = program.as_str();

    // Admitted, as a task on its own and as part of a member's.
    let alone = daemon.process(&[program, "300"]);
    daemon.eventually("its name", |_| {
        fs::read(format!("/proc/{alone}/comm")).ok().filter(|name| name.starts_with(b"nightly"))
    });
    assert_name_is_no_text(alone);
    daemon.ok(&["admit", &alone.to_string()]);
    let id = STRANGER.to_string();
    let shell = Command::new("setpriv")
        .args(["--reuid", &id, "--regid", &id, "--groups", MEMBER, "sh", "-c"])
        .args(["\"$0\" 300 & wait", program])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let shell = daemon.keep(shell);
    let child = daemon.eventually("the member's child", |_| {
        let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).ok()?;
        let child = children.trim().parse::<i32>().ok()?;
        let name = fs::read(format!("/proc/{child}/comm")).ok()?;
        name.starts_with(b"nightly").then_some(child)
    });
    let admitted = stranger(&daemon, MEMBER, &["admit", &shell.to_string()]).output().unwrap();
    assert!(admitted.status.success(), "{}", String::from_utf8_lossy(&admitted.stderr));
    let group = daemon.cpu_dir(&daemon.task_of(shell));
    assert!(procs(&group).contains(&child), "the child is in the task");

    // Found by a rule.
    let found = daemon.process(&[program, "301"]);
    assert_eq!(daemon.task_of(found)["attachment"], "own");

    // Moved out by hand, it is moved back.
    let group = daemon.cpu_dir(&daemon.task_of(alone));
    fs::write(cpu_mount().unwrap().0.join("cgroup.procs"), alone.to_string()).unwrap();
    daemon.eventually("the way back", |_| procs(&group).contains(&alone).then_some(()));
    daemon.eventually("the event", |daemon| {
        daemon.events().iter().any(|event| event["type"] == "drift").then_some(())
    });
    assert!(!daemon.events().iter().any(|event| event["type"] == "contested"));
    for pid in [alone, shell, child, found] {
        signal(pid, Signal::KILL);
    }
    daemon.nothing_left();
}

/// The first thread ends at once, the other one computes; with a command it becomes that, at the
/// end of the time given.
const LEADERLESS: &str = "import ctypes, os, platform, sys, threading, time
def work():
    end = time.time() + float(sys.argv[1])
    while time.time() < end: pass
    os.execvp(sys.argv[2], sys.argv[2:])
threading.Thread(target=work).start()
number = {'x86_64': 60, 'aarch64': 93}[platform.machine()]
ctypes.CDLL(None).syscall(number, 0)";

#[test]
#[ignore = "needs root and cgroups"]
fn a_process_lives_as_long_as_one_of_its_threads() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("NOT TESTED: a process without its first thread; there is no python3 here");
        return;
    }
    let mut daemon = Daemon::start("leaderless", SETTINGS);
    let leaderless = |daemon: &mut Daemon, seconds: &str| {
        let pid = daemon.process(&["python3", "-c", LEADERLESS, seconds, "sleep", "300"]);
        daemon.eventually("the end of its first thread", |_| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            (stat.contains(") Z ") || stat.contains("(sleep)")).then_some(())
        });
        pid
    };
    let busy = leaderless(&mut daemon, "300");
    daemon.ok(&["admit", &busy.to_string()]);
    let task = daemon.task_of(busy);
    assert!(procs(&daemon.cpu_dir(&task)).contains(&busy));
    // A thread that calls exec takes the number of the first one, while it is admitted.
    for milliseconds in 0..10 {
        let pid = leaderless(&mut daemon, &format!("0.{:03}", 50 + milliseconds * 3));
        daemon.ok(&["admit", &pid.to_string()]);
        daemon.eventually("the exec", |_| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
            (name == "sleep\n").then_some(())
        });
        let group = daemon.cpu_dir(&daemon.task_of(pid));
        assert!(procs(&group).contains(&pid), "inside after the exec");
        signal(pid, Signal::KILL);
        daemon.join(pid);
    }
    signal(busy, Signal::KILL);
    daemon.nothing_left();
}
