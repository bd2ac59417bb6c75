//! `lrsctl run --each`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::harness::{Daemon, signal};

const SLOTS: &str = "[slots]\nactive = 1\npassive = 1\nexpand = false\n";

fn each(daemon: &Daemon, options: &[&str], command: &[&str]) -> Command {
    let mut each =
        daemon.ctl_command(&[&["run", "--job", "batch"], options, &["--"], command].concat());
    each.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    each
}

/// What the descriptors above 2 of the process are.
fn descriptors(pid: &str) -> BTreeSet<String> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors").flatten();
    let number =
        |entry: &fs::DirEntry| entry.file_name().into_string().unwrap().parse::<i32>().unwrap();
    let link =
        |entry: fs::DirEntry| fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok();
    all.filter(|entry| number(entry) > 2).filter_map(link).collect()
}

fn ended(child: Child) -> (Option<i32>, String, String) {
    let output = child.wait_with_output().expect("an end");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
#[ignore = "needs root and cgroups"]
fn each_argument_is_a_task_and_failures_are_reported() {
    let daemon = Daemon::start("each", SLOTS);
    let script = "echo $LRS_EACH_INDEX $LRS_EACH_ARG $1; test \"$1\" != bad";
    let command = ["sh", "-c", script, "sh", "{}"];

    // From standard input, more than there are slots.
    let mut child = each(&daemon, &["--name", "n", "--each"], &command).spawn().expect("lrsctl");
    let mut input = child.stdin.take().expect("a pipe");
    (1..=30).for_each(|n| writeln!(input, "line {n}").expect("a line"));
    drop(input);
    let (code, out, err) = ended(child);
    assert_eq!((code, out.lines().count()), (Some(0), 30), "{err}");
    assert!(out.lines().any(|line| line == "30 line 30 line 30"), "{out}");
    let history = daemon.json(&["history", "--job", "batch"]);
    let names = history
        .as_array()
        .expect("a list")
        .iter()
        .filter(|end| end["name"] == "n[30]" && end["index"] == 30);
    assert_eq!(names.count(), 1);

    let failing = ["--keep-going", "--each", "a", "bad", "c"];
    let (code, out, err) = ended(each(&daemon, &failing, &command).spawn().expect("lrsctl"));
    assert_eq!((code, out.lines().count()), (Some(1), 3), "{err}");
    assert!(err.contains("2 done, 1 failed") && err.contains("2 bad: status 1"), "{err}");
    // A line that is no argument of any program costs that line.
    let mut child = each(&daemon, &["--keep-going", "--each"], &command).spawn().expect("lrsctl");
    let mut input = child.stdin.take().expect("a pipe");
    let long = "x".repeat(200_000);
    writeln!(input, "first\n{long}\nwith \0 inside\nlast").expect("lines");
    drop(input);
    let (code, out, err) = ended(child);
    assert_eq!((code, out.lines().count()), (Some(1), 2), "{err}");
    assert!(err.contains("2 done, 2 failed") && err.contains("x: Argument list too long"), "{err}");
    assert!(err.len() < 2000, "{err}");
    daemon.eventually("no task", |daemon| daemon.tasks().is_empty().then_some(()));
}

#[test]
#[ignore = "needs root and cgroups"]
fn an_interrupt_ends_what_waits_and_ends_or_leaves_what_runs() {
    let daemon = Daemon::start("eachint", SLOTS);
    for leave in [false, true] {
        let options: &[&str] = if leave { &["--leave"] } else { &[] };
        let options = [options, &["--each", "1", "2", "3", "4", "5"]].concat();
        // What is left keeps the pipes open.
        let quiet = ["sh", "-c", "exec sleep 600 >/dev/null 2>&1"];
        let child = each(&daemon, &options, &quiet).spawn().expect("lrsctl");
        daemon.eventually("two tasks and three that wait", |daemon| {
            let waiting = daemon.status()["waiting"].as_u64()?;
            (daemon.tasks().len() == 2 && waiting == 3).then_some(())
        });
        signal(child.id() as i32, Signal::INT);
        let (code, _, err) = ended(child);
        assert_eq!(code, Some(130), "{err}");
        daemon.eventually("no request waits", |daemon| {
            (daemon.status()["waiting"] == 0).then_some(())
        });
        if leave {
            assert!(err.contains("3 ended or gave up, 2 go on"), "{err}");
            assert_eq!(daemon.tasks().len(), 2);
            for task in daemon.tasks() {
                let pid = task["pid"].as_i64().expect("a pid") as i32;
                let inherited = descriptors(&pid.to_string());
                let ours = descriptors("self");
                let strange: Vec<_> = inherited.difference(&ours).collect();
                assert!(strange.is_empty(), "the task has {strange:?}");
                signal(pid, Signal::KILL);
            }
        }
        daemon.eventually("no task", |daemon| daemon.tasks().is_empty().then_some(()));
    }
    // Whoever waits does not outlive the one who asked.
    let mut child = each(&daemon, &["--leave", "--each", "1", "2", "3"], &["sleep", "600"])
        .spawn()
        .expect("lrsctl");
    daemon.eventually("one that waits", |daemon| {
        (daemon.tasks().len() == 2 && daemon.status()["waiting"] == 1).then_some(())
    });
    child.kill().expect("a signal");
    child.wait().expect("an end");
    daemon.eventually("no request waits", |daemon| (daemon.status()["waiting"] == 0).then_some(()));
    for task in daemon.tasks() {
        signal(task["pid"].as_i64().expect("a pid") as i32, Signal::KILL);
    }
}
