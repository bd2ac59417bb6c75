//! `lrsctl` as its users meet it: the built binary against a scripted server.

// Helper functions of tests are not tests to clippy.
#![allow(clippy::unwrap_used, missing_docs)]

mod fake;
mod metrics;
mod read;
mod run;

use fake::{Ended, Fake, Script, lrsctl};
use std::path::Path;
use tonic::Status as Failure;

/// Commands that need a daemon.
const NEED_DAEMON: &[&[&str]] = &[
    &["status"],
    &["tasks"],
    &["task", "t0000000-1"],
    &["jobs"],
    &["queue"],
    &["run", "--", "true"],
    &["release", "t0000000-1"],
    &["priority", "t0000000-1", "3"],
    &["reserve"],
    &["cancel", "r0000000-1"],
    &["events"],
    &["why", "t0000000-1"],
    &["drain"],
    &["resume"],
    &["reload"],
    &["config", "show"],
    &["record", "/nonexistent/x.lrsrec"],
];

#[test]
fn without_a_daemon_every_command_exits_3_and_says_where_it_looked() {
    for args in NEED_DAEMON {
        let ended = Ended::from(lrsctl(Path::new("/nonexistent/x.sock"), args).output().unwrap());
        let code = if args[0] == "run" { 125 } else { 3 };
        assert_eq!(ended.code, Some(code), "{args:?} {ended:?}");
        assert!(ended.err.contains("/nonexistent/x.sock"), "{ended:?}");
        assert_eq!(ended.out, "");
    }
}

#[test]
fn nothing_that_was_typed_steers_the_terminal() {
    let endpoint = ["--endpoint", "unix:/x\u{1b}[2Jy", "status"];
    for args in [&endpoint[..], &["\u{1b}[2Jx"], &["run", "--wait=\u{1b}[2J", "--", "true"]] {
        let ended = Ended::from(lrsctl(Path::new("/nonexistent/x.sock"), args).output().unwrap());
        assert!(!ended.err.contains('\u{1b}'), "{args:?}: {:?}", ended.err);
        assert!(ended.err.contains("\\u{1b}[2J"), "{args:?}: {:?}", ended.err);
    }
    let mut command = lrsctl(Path::new("/nonexistent/x.sock"), &["status"]);
    let output = command.env("LRS_ENDPOINT", "unix:/x\u{1b}[2Jy").output().unwrap();
    let ended = Ended::from(output);
    assert!(ended.err.contains("/x\\u{1b}[2Jy"), "{:?}", ended.err);
}

#[test]
fn usage_errors_exit_2_and_those_of_run_125() {
    let fake = Fake::start(Script::default());
    let long = "x".repeat(300);
    for args in [
        &["htop"][..],
        &["top", "--delay", "0"],
        &["top", "--json"],
        &["bench"],
        &["completions"],
        &["completions", "elvis"],
        &["man", "lrsctl", "--out", "x"],
        &["man", "no-such-page"],
        &[],
        &["run"],
        &["run", "--wait", "10s", "--", "true"],
        &["run", "--wait=10", "--", "true"],
        &["run", "--name", "a\nb", "--", "true"],
        &["run", "--name", &long, "--", "true"],
        &["run", "--priority", "2147483648", "--", "true"],
        &["--bogus", "run", "--", "true"],
        &["--timeout", "0", "run", "--", "true"],
        &["--timeout", "0s", "status"],
        &["events", "--type", "promotd"],
        &["admit"],
        &["admit", "0"],
        &["admit", "-4"],
        &["admit", "x"],
        &["admit", "7", "--unit", "cron"],
        &["admit", "--unit"],
        &["priority", "t0000000-1"],
        &["priority", "--job", "nightly"],
        &["priority", "--job", "nightly", "t0000000-1", "3"],
        &["priority", "--user", "0", "t0000000-1", "3"],
        &["--endpoint", "https://localhost:1", "status"],
        &["--endpoint", "localhost", "status"],
    ] {
        let ended = fake.run(args);
        let code = if args.contains(&"run") { 125 } else { 2 };
        assert_eq!(ended.code, Some(code), "{args:?} {ended:?}");
        assert_eq!(ended.out, "");
    }
    assert!(fake.script.lock().unwrap().admitted.is_empty());
}

#[test]
fn what_people_of_other_tools_type_first_gets_a_tip() {
    let fake = Fake::start(Script::default());
    for (args, tip) in [
        (&["ps"][..], "lrsctl tasks"),
        (&["stop"], "lrsctl kill"),
        (&["plan", "cluster.json"], "lrs-place plan"),
        (&["classify", "app.jar"], "lrs-place classify"),
        (&["run", "ls"], "run --wait=10s -- CMD"),
        (&["run", "--wait", "10s", "--", "true"], "run --wait=10s -- CMD"),
    ] {
        let ended = fake.run(args);
        let mut tips = ended.err.lines().filter(|line| line.starts_with("  tip: "));
        assert!(tips.any(|line| line.contains(tip)), "{args:?} {ended:?}");
    }
    let ended = fake.run(&["run", "--wiat", "--", "true"]);
    assert!(ended.err.contains("--wait") && !ended.err.contains("after `--`"), "{ended:?}");
}

#[test]
fn a_daemon_that_hangs_is_reported_after_two_seconds_and_given_up_after_the_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("lrsd.sock");
    let _never_accepts = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (args, code) in [
        (&["status"][..], 3),
        (&["events"], 3),
        (&["admit", "1"], 3),
        (&["run", "--", "true"], 125),
        (&["run", "--wait=1s", "--", "true"], 125),
    ] {
        let mut command = lrsctl(&socket, &[&["--timeout", "2.5s"], args].concat());
        let ended = Ended::from(command.output().unwrap());
        assert_eq!(ended.code, Some(code), "{args:?} {ended:?}");
        let lines: Vec<&str> = ended.err.lines().collect();
        assert!(
            lines[0].contains("no answer from lrsd") && lines[0].contains("2.5 s"),
            "{ended:?}"
        );
        let limit = if args.contains(&"--wait=1s") { "3.5 s" } else { "2.5 s" };
        assert!(lines[1].contains(&format!("did not answer within {limit}")), "{ended:?}");
    }
}

#[test]
fn the_endpoint_may_stand_anywhere_and_wins_over_the_environment() {
    let fake = Fake::start(Script::default());
    let endpoint = format!("unix:{}", fake.socket().display());
    for args in
        [["--endpoint", &endpoint, "tasks", "--json"], ["--json", "tasks", "--endpoint", &endpoint]]
    {
        let mut command = lrsctl(Path::new("/nonexistent/x.sock"), &args);
        let ended = Ended::from(command.output().unwrap());
        assert_eq!((ended.code, ended.out.as_str()), (Some(0), "[]\n"), "{args:?}");
    }
}

#[test]
fn refusals_exit_1_and_full_nodes_4() {
    let fake = Fake::start(Script {
        reserve: Some(Failure::resource_exhausted("2 of 2 active and 2 of 2 passive slots taken")),
        ..Script::default()
    });
    let ended = fake.run(&["release", "t0000000-1"]);
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.err, "lrsctl: task t0000000-1 belongs to uid 7; ask them or root\n");
    let ended = fake.run(&["reserve"]);
    assert_eq!(ended.code, Some(4), "{ended:?}");
    fake.script.lock().unwrap().reserve = None;
    let ended = fake.run(&["reserve", "--ttl", "10s", "--priority", "-3"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "r0000000-1\n"));
}

#[test]
fn priorities_may_be_negative_and_reach_the_limits_of_the_type() {
    let fake = Fake::start(Script::default());
    for args in [
        &["priority", "t0000000-1", "-5"][..],
        &["priority", "t0000000-1", "--", "-5"],
        &["priority", "t0000000-1", "-2147483648"],
        &["priority", "t0000000-1", "2147483647"],
        &["priority", "--job", "nightly", "-7"],
        &["priority", "-8", "--job=nightly", "--user", "7"],
        &["run", "--priority", "-5", "--", "true"],
        &["run", "--priority=-2147483648", "--", "true"],
    ] {
        let ended = fake.run(args);
        assert_eq!(ended.code, Some(0), "{args:?} {ended:?}");
    }
    let script = fake.script.lock().unwrap();
    let set: Vec<i32> = script.priorities.iter().map(|request| request.priority).collect();
    assert_eq!(set, [-5, -5, i32::MIN, i32::MAX]);
    let of_jobs: Vec<_> =
        script.job_priorities.iter().map(|request| (request.priority, request.uid)).collect();
    assert_eq!(of_jobs, [(-7, None), (-8, Some(7))]);
    let asked: Vec<_> = script.admitted.iter().map(|request| request.priority).collect();
    assert_eq!(asked, [Some(-5), Some(i32::MIN)]);
}

#[test]
fn units_are_admitted_by_name_and_failures_name_them() {
    let fake = Fake::start(Script::default());
    let ended = fake.run(&["admit", "--unit", "cron", "--unit", "backup.service", "--job", "x"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "t0000000-1\nt0000000-2\n"));
    let asked = std::mem::take(&mut fake.script.lock().unwrap().admitted);
    let names: Vec<_> = asked.iter().map(|request| request.unit.as_deref()).collect();
    assert_eq!(names, [Some("cron"), Some("backup.service")]);
    assert!(asked.iter().all(|request| request.pid == 0 && request.job.as_deref() == Some("x")));

    let missing = || Failure::not_found("there is no unit of that name");
    fake.script.lock().unwrap().admit = [missing(), missing()].into();
    let ended = fake.run(&["admit", "--unit", "a", "--unit", "b"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("unit a:") && ended.err.contains("unit b:"), "{ended:?}");
}

#[test]
fn a_closed_pipe_and_a_full_disk() {
    let fake = Fake::start(Script { follow: true, ..Script::default() });
    // The read end is gone before anything is written, and no event ever comes.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = Ended::from(fake.command(&["events"]).stdout(writer).output().unwrap());
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = Ended::from(fake.command(&["status", "--json"]).stdout(writer).output().unwrap());
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));

    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = Ended::from(fake.command(&["status", "--json"]).stdout(full).output().unwrap());
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("standard output"), "{ended:?}");
}
