//! `lrsd --pretend`: real clients and processes on a node that is pretended, without root and cgroups.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // test helpers

#[allow(dead_code, clippy::disallowed_methods)] // the harness also serves tests/daemon
#[path = "daemon/harness.rs"]
mod harness;

use harness::Daemon;

fn pretending(settings: &str) -> Daemon {
    let daemon_settings = format!("slots.active = 1\nslots.passive = 1\n{settings}");
    let mut daemon = Daemon::observing("");
    daemon.configure(&daemon_settings);
    daemon.wrapper = ["sh", "-c", "exec \"$@\" --pretend", "sh"].map(str::to_owned).into();
    daemon.launch();
    daemon
}

#[test]
fn tasks_run_and_are_promoted_with_their_statuses() {
    let mut daemon = pretending("");
    let first = daemon.run(&[], &["cat"]);
    // Once it is there: the two would ask side by side.
    assert_eq!(daemon.task_of(first)["tier"], "active");
    let second = daemon.run(&[], &["sh", "-c", "cat; exit 3"]);
    assert_eq!(daemon.task_of(second)["tier"], "passive");
    daemon.finish(first);
    let promoted = |daemon: &Daemon| (daemon.task_of(second)["tier"] == "active").then_some(());
    daemon.eventually("the second task is promoted", promoted);
    assert_eq!(daemon.join(second).code(), Some(3));
    let ended = |daemon: &Daemon| daemon.tasks().is_empty().then_some(());
    daemon.eventually("both are over", ended);
    let kinds: Vec<_> = daemon.events().iter().map(|event| event["type"].clone()).collect();
    for kind in ["admitted", "promoted", "completed"] {
        assert!(kinds.iter().any(|found| found == kind), "{kind} in {kinds:?}");
    }
    let exits = daemon.events().into_iter().filter(|event| event["type"] == "exit");
    let statuses: Vec<_> = exits.map(|event| event["inputs"]["exit_status"].clone()).collect();
    assert_eq!(statuses, [0, 3], "of the first and of the second");
}

#[test]
fn what_is_expected_of_a_task_is_marked() {
    // No reading measures them meanwhile, and no slot opens for the third as a sample.
    let mut daemon = pretending("slots.expand = false\ndaemon.sample_period = \"30s\"\n");
    let hinted = |of: &serde_json::Value| (of["class"].clone(), of["hinted"].clone());
    let first = daemon.run(&["--class", "io", "--job", "reads"], &["cat"]);
    assert_eq!(hinted(&daemon.task_of(first)), ("io".into(), true.into()));
    let second = daemon.run(&["--job", "plain"], &["cat"]);
    assert_eq!(hinted(&daemon.task_of(second)), ("unknown".into(), false.into()));
    let third = daemon.run(&["--wait", "--rate=0.5", "--job", "waits"], &["cat"]);
    let json = |daemon: &Daemon, of: &str| -> serde_json::Value {
        serde_json::from_str(&daemon.ok(&["--json", of])).unwrap()
    };
    daemon.eventually("the third waits", |daemon| {
        let queue = json(daemon, "queue");
        let waits = queue.as_array()?.first()?.clone();
        (hinted(&waits) == ("moderate".into(), true.into())).then_some(())
    });
    assert!(daemon.ok(&["queue"]).contains("moderate?"));
    assert!(daemon.ok(&["tasks"]).contains("io?"));
    let jobs = json(&daemon, "jobs");
    let job = |name: &str| jobs.as_array().unwrap().iter().find(|job| job["job"] == name).unwrap();
    assert_eq!(hinted(job("reads")), ("io".into(), true.into()));
    assert_eq!(hinted(job("waits")), ("moderate".into(), true.into()));
    assert_eq!(hinted(job("plain")), ("unknown".into(), false.into()));
    daemon.refused(&["run", "--class", "io", "--rate", "0.1", "--", "true"], 125, "cannot be used");
    daemon.refused(&["run", "--rate", "1.5", "--", "true"], 125, "0 to 1");
    [first, second, third].into_iter().for_each(|task| daemon.finish(task));
}

#[test]
fn why_says_what_happened_of_late_and_to_a_job() {
    let mut daemon = pretending("");
    for (job, exit) in [("day", 0), ("day", 1), ("night", 0)] {
        let task = daemon.run(&["--job", job], &["sh", "-c", &format!("exit {exit}")]);
        assert_eq!(daemon.join(task).code(), Some(exit));
    }
    daemon.eventually("all three are over", |daemon| {
        let ended = |event: &serde_json::Value| event["type"] == "exit";
        (daemon.events().into_iter().filter(ended).count() == 3).then_some(())
    });
    let lately = daemon.ok(&["why"]);
    assert!(lately.contains("day: 2 admitted, 2 completed, 1 failed"), "{lately}");
    assert!(lately.contains("started"), "{lately}");
    let of_job = daemon.ok(&["why", "night"]);
    assert!(of_job.contains("admitted -> active") && !of_job.contains("job day"), "{of_job}");
    daemon.refused(&["why", "weekly"], 1, "nothing is known about weekly");
}

#[test]
fn it_says_that_it_is_pretended_takes_a_reload_and_stops() {
    let mut daemon = pretending("");
    let status = daemon.status();
    assert_eq!(status["slots"]["active"]["capacity"], 1);
    assert!(status["warnings"][0].as_str().unwrap().contains("pretended"), "{status}");
    daemon.configure("slots.active = 3\n");
    daemon.ok(&["reload"]);
    assert_eq!(daemon.status()["slots"]["active"]["capacity"], 3);
    let (code, _) = daemon.stop();
    assert_eq!(code, Some(0));
}

/// `lrsctl record`, which has begun.
fn record(daemon: &Daemon, args: &[&str]) -> std::process::Child {
    let mut command = daemon.ctl_command(&[&["record"], args].concat());
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut talk = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut talk, &mut line).unwrap();
    assert!(line.starts_with("recording into"), "{line}");
    child.stderr = Some(talk.into_inner());
    child
}

/// Ends it, and what it wrote is what a replay says.
fn end_and_replay(daemon: &Daemon, mut child: std::process::Child, file: &str) -> String {
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());
    let text = daemon.ok(&["replay", file]);
    assert!(text.contains("this version decides the same, bit for bit"), "{text}");
    text
}

#[test]
fn what_is_recorded_is_played_again_also_over_a_crash_and_without_names() {
    let mut daemon = pretending("");
    let config = daemon.config();
    let path = |name: &str| config.with_file_name(name).to_str().unwrap().to_owned();
    let (file, anonymous) = (path("plain.lrsrec"), path("anonymous.lrsrec"));
    let mut recording = record(&daemon, &[&file]);
    // One at a time, and nothing is written over.
    let refused = daemon.ctl(&["record", &path("second.lrsrec")]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("another client records"), "{error}");
    assert!(!std::path::Path::new(&path("second.lrsrec")).exists());
    let first = daemon.run(&["--name", "payroll"], &["cat"]);
    assert_eq!(daemon.task_of(first)["tier"], "active");
    daemon.kill();
    daemon.launch();
    // The recording goes on once it is back.
    let mut talk = std::io::BufReader::new(recording.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("lrsd is back") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut talk, &mut line).unwrap() > 0, "it ended");
    }
    let next = daemon.run(&["--name", "payroll"], &["cat"]);
    assert_eq!(daemon.task_of(next)["tier"], "active");
    daemon.finish(next);
    let text = end_and_replay(&daemon, recording, &file);
    assert!(text.contains("2 daemons") && text.contains("ended with Ctrl-C"), "{text}");
    let other = daemon.ok(&["replay", &file, "--set", "slots.active=2"]);
    assert!(other.contains("with the others") && other.contains("What cannot be known"), "{other}");

    let recording = record(&daemon, &["--anonymous", &anonymous]);
    let last = daemon.run(&["--name", "payroll"], &["cat"]);
    assert_eq!(daemon.task_of(last)["tier"], "active");
    end_and_replay(&daemon, recording, &anonymous);
    let mut reader = lrs_recording::Reader::new(std::fs::File::open(&anonymous).unwrap());
    while let Some(entry) = reader.entry().unwrap() {
        assert!(!format!("{entry:?}").contains("payroll"), "{entry:?}");
    }
    daemon.finish(last);
}

#[test]
fn a_pretended_node_has_no_tiers_to_test() {
    let daemon = pretending(&format!("grpc.admins = [{}]\n", rustix::process::geteuid().as_raw()));
    daemon.refused(&["doctor", "--verify"], 1, "no kernel of which tiers could be tested");
    assert_eq!(daemon.status()["cgroup"]["cpu_effect"], "claimed");
}
