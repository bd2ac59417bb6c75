//! `lrsctl wait` and `lrsctl kill`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::harness::Daemon;

const SLOTS: &str = "[slots]\nactive = 2\npassive = 2\n";

fn waiting(daemon: &Daemon, arguments: &[&str]) -> Child {
    let mut command = daemon.ctl_command(&[&["wait", "--verbose"], arguments].concat());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("lrsctl runs");
    // From its first line on it waits.
    let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    stderr.read_line(&mut String::new()).expect("a line");
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::stderr()));
    child
}

/// What the history knows of the task, as `wait` ends; before Linux 6.15 that may be nothing.
fn known(daemon: &Daemon, name: &str) -> i32 {
    let history = daemon.json(&["history"]);
    let end = history.as_array().expect("a list").iter().find(|end| end["name"] == name);
    end.expect("an end")["exit_status"].as_i64().unwrap_or(0) as i32
}

#[test]
#[ignore = "needs root and cgroups"]
fn wait_ends_with_the_task_and_with_its_status() {
    let mut daemon = Daemon::start("wait", SLOTS);
    let script = "read x; exit 3";
    let pids = ["one", "two"].map(|name| {
        let pid = daemon.run(&["--name", name, "--job", "pair"], &["sh", "-c", script]);
        daemon.task_of(pid);
        pid
    });
    daemon.refused(&["wait", "one", "--within", "1ms"], 124, "did not end within");
    daemon.refused(&["wait", "three"], 125, "no task and no job");
    let mut of_job = waiting(&daemon, &["pair"]);
    let mut of_one = waiting(&daemon, &["one"]);
    // Both go on with the next daemon.
    daemon.kill();
    daemon.launch();
    daemon.finish(pids[0]);
    let status = of_one.wait().expect("an end");
    assert_eq!(status.code(), Some(known(&daemon, "one")));
    assert_eq!(of_job.try_wait().expect("a child"), None, "the other of the job runs");
    daemon.finish(pids[1]);
    assert_eq!(
        of_job.wait().expect("an end").code(),
        Some(known(&daemon, "one").max(known(&daemon, "two")))
    );
    // Of what is over already, the same.
    let again = daemon.ctl(&["wait", "two", "--json"]);
    assert_eq!(again.status.code(), Some(known(&daemon, "two")));
    let ends: Value = serde_json::from_slice(&again.stdout).expect("JSON");
    assert_eq!(ends[0]["name"], "two");
}

#[test]
#[ignore = "needs root and cgroups"]
fn wait_covers_what_is_in_the_queue() {
    let mut daemon = Daemon::start("waitq", "[slots]\nactive = 1\npassive = 0\nexpand = false\n");
    let first = daemon.run(&[], &["cat"]);
    daemon.task_of(first);
    let job = ["--wait", "--job", "pair", "--name"];
    let script = ["sh", "-c", "read x; exit 3"];
    let [one, two] = ["one", "two"].map(|name| {
        let pid = daemon.run(&[&job[..], &[name]].concat(), &script);
        daemon.eventually("a place in the queue", |daemon| {
            let queue = daemon.json(&["queue"]);
            queue.as_array()?.iter().any(|queued| queued["pid"] == pid).then_some(())
        });
        pid
    });
    let mut of_job = waiting(&daemon, &["pair"]);
    let mut of_two = waiting(&daemon, &["two"]);
    daemon.finish(first);
    daemon.task_of(one);
    daemon.ok(&["cancel", "two"]);
    assert_eq!(daemon.join(two).code(), Some(125));
    assert_eq!(of_two.wait().expect("an end").code(), Some(125));
    daemon.finish(one);
    // The other never ran, which is worse than a status of 3.
    assert_eq!(of_job.wait().expect("an end").code(), Some(125));
}

#[test]
#[ignore = "needs root and cgroups"]
fn kill_reaches_every_process_of_the_task_and_no_other() {
    let mut daemon = Daemon::start("kill", SLOTS);
    let script = "sleep 600 & setsid sleep 600 & trap '' TERM; exec sleep 600";
    let victim = daemon.run(&["--name", "victim"], &["bash", "-c", script]);
    let other = daemon.run(&[], &["sleep", "600"]);
    let group = daemon.task_of(victim)["cgroup"].as_str().expect("a cgroup").to_owned();
    daemon.task_of(other);
    let members = || {
        let all = procfs::process::all_processes().expect("processes").flatten();
        let is_in = |process: &procfs::process::Process| {
            // A zombie is in its group until its parent has waited for it.
            process.stat().is_ok_and(|stat| stat.state != 'Z')
                && process.cgroups().is_ok_and(|of| of.into_iter().any(|of| of.pathname == group))
        };
        all.filter(is_in).map(|process| process.pid).collect::<Vec<_>>()
    };
    daemon.eventually("three processes", |_| (members().len() == 3).then_some(()));
    daemon.ok(&["kill", "victim"]);
    // One catches the signal.
    daemon.eventually("what is left", |_| (members().len() == 1).then_some(()));
    assert_eq!(daemon.tasks().len(), 2);
    daemon.ok(&["kill", "-s", "KILL", "victim"]);
    daemon.eventually("its end", |daemon| (daemon.tasks().len() == 1).then_some(()));
    daemon.refused(&["kill", "victim"], 1, "no task");
    assert_eq!(daemon.tasks()[0]["pid"], other);
}
