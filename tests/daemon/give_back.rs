//! What LRS leaves behind: no weight (`lrsd --give-back`) and no offer to YARN that no program
//! looks after.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::beside::Lrs;
use crate::harness::{Daemon, Foreign, procs, weight_file, weights};
use crate::kerberos::kerberos;

const ONE: &str = "[slots]\nactive = 1\npassive = 3\nexpand = false\n";

#[test]
#[ignore = "needs root and cgroups"]
fn weights_are_given_back_once_and_a_daemon_that_comes_again_goes_on() {
    let mut daemon = Daemon::new("giveback", ONE);
    assert_eq!(daemon.give_back().0, Some(0), "no daemon has run yet");
    daemon.launch();
    let foreign = Foreign::beside(&daemon);
    let file = foreign.0.join(weight_file(&foreign.0));
    fs::write(&file, "321").unwrap();
    for _ in 0..2 {
        daemon.run(&["--wait"], &["cat"]);
    }
    daemon.eventually("two tasks", |daemon| (daemon.tasks().len() == 2).then_some(()));
    let pid = daemon.process(&["cat"]);
    fs::write(foreign.0.join("cgroup.procs"), pid.to_string()).unwrap();
    let in_place = daemon.ok(&["admit", "--in-place", "--name", "guest", &pid.to_string()]);
    let own = || daemon.tasks().into_iter().filter(|task| task["attachment"] == "own");
    let before: Vec<_> = own().map(|task| (task["id"].clone(), task["tier"].clone())).collect();
    let dirs: Vec<PathBuf> = own().map(|task| daemon.cpu_dir(&task)).collect();
    let shaped: Vec<_> = dirs.iter().map(|dir| weights(dir)).collect();
    assert_eq!((before[0].1.as_str(), before[1].1.as_str()), (Some("active"), Some("passive")));
    let found = |text: &str| fs::read_to_string(&file).unwrap().trim() == text;
    assert!(!found("321"), "a passive task has its owner's weight");

    let (code, text) = daemon.give_back();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("another lrsd (pid {})", daemon.pid())), "{text}");
    assert!(!found("321"), "touched under a running daemon");

    daemon.stop();
    let members: Vec<_> = dirs.iter().map(|dir| procs(dir)).collect();
    for attempt in ["first", "second"] {
        let (code, text) = daemon.give_back();
        assert_eq!(code, Some(0), "{attempt}: {text}");
        assert_eq!(text.contains("is released"), attempt == "first", "{text}");
        assert!(found("321"), "{attempt}: {text}");
        for (dir, members) in dirs.iter().zip(&members) {
            let neutral = if dir.join("cpu.shares").exists() { 1024 } else { 100 };
            let (idle, weight) = weights(dir);
            assert_ne!(idle, Some(1), "{attempt}: {text}");
            assert_eq!(weight, Some(neutral), "{attempt}: {text}");
            assert_eq!(procs(dir), *members, "its processes stay where they are");
        }
    }

    daemon.launch();
    let after: Vec<_> =
        daemon.tasks().iter().map(|task| (task["id"].clone(), task["tier"].clone())).collect();
    assert_eq!(after, before, "known again, each in its tier");
    let again: Vec<_> = dirs.iter().map(|dir| weights(dir)).collect();
    assert_eq!(again, shaped);
    let events = daemon.events();
    let of_guest: Vec<_> = events.iter().filter(|event| event["task"] == in_place.trim()).collect();
    let released = of_guest.last().unwrap();
    assert_eq!((&released["type"], &released["from"]), (&"released".into(), &"passive".into()));
    assert_eq!(released["inputs"]["name"], "guest");
    let numbers: Vec<_> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    daemon.consistent();
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_task_that_ended_meanwhile_is_fine_and_a_damaged_record_is_named() {
    let mut daemon = Daemon::start("gaveback", ONE);
    let pids: Vec<i32> = (0..2).map(|_| daemon.run(&["--wait"], &["cat"])).collect();
    daemon.eventually("two tasks", |daemon| (daemon.tasks().len() == 2).then_some(()));
    let ended = daemon.task_of(pids[0]);
    let damaged = daemon.task_of(pids[1]);
    daemon.stop();
    daemon.finish(pids[0]);
    daemon.join(pids[0]);
    let record = format!("task-{}.json", damaged["id"].as_str().unwrap());
    fs::write(daemon.runtime().join("state").join(&record), "{").unwrap();
    let (code, text) = daemon.give_back();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&record), "{text}");
    let line = format!("task {}: no process is left in it", ended["id"].as_str().unwrap());
    assert!(text.contains(&line), "{text}");
    daemon.launch();
    assert_eq!(daemon.tasks().len(), 1);
    daemon.consistent();
}

/// Words that report an offer in force, whichever program does.
const LEFT: [&str; 3] = [
    "for node1:45454 may still stand",
    "no ticket",
    "rmadmin -updateNodeResource node1:45454 8192 8 -1",
];

#[test]
#[ignore = "needs root and cgroups"]
fn an_offer_goes_back_by_a_command_at_the_stop_and_at_the_removal() {
    let hadoop = tempfile::tempdir().unwrap();
    let path = |name: &str| hadoop.path().join(name);
    fs::write(path("yarn-site.xml"), "<configuration/>").unwrap();
    let script = format!(
        "cd '{}'; [ -e ticket ] || {{ echo no ticket; exit 1; }}; sleep 1; echo $3 $4 >>calls",
        hadoop.path().display()
    );
    let (conf, manager) = (hadoop.path(), kerberos());
    let settings = format!(
        "{ONE}[yarn]\nenabled = true\nconf_dir = {conf:?}\nlocal_dirs = [{conf:?}]\n\
         resource_managers = [{manager:?}]\nnode_manager = {manager:?}\n\
         node_id = \"node1:45454\"\noffer_by = \"rmadmin\"\n\
         rmadmin = [\"sh\", \"-c\", {script:?}, \"rmadmin\"]\n"
    );
    let mut daemon = Lrs::new("offered", &settings);
    let state = daemon.ledger();
    fs::create_dir_all(&state).unwrap();
    let offered = r#"{"version":1,"node":"node1:45454","sent":[{"memory_mib":9216,"vcores":9}],
        "configured":{"memory_mib":8192,"vcores":8},"era":{}}"#;
    fs::write(state.join("yarn.json"), offered).unwrap();

    daemon.launch();
    daemon.eventually("a first try", |daemon| {
        daemon.events().iter().any(|event| event["type"] == "offer_failed").then_some(())
    });
    let (code, took) = daemon.stop();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(7), "{took:?}");
    let log = daemon.log();
    assert!(LEFT.iter().all(|words| log.contains(words)), "{log}");
    let (code, text) = daemon.give_offer_back();
    assert_eq!(code, Some(1), "{text}");
    assert!(LEFT.iter().all(|words| text.contains(words)), "{text}");

    fs::write(path("ticket"), "").unwrap();
    for attempt in ["first", "second"] {
        let (code, text) = daemon.give_offer_back();
        assert_eq!(code, Some(0), "{attempt}: {text}");
        assert_eq!(text.contains("has its configured resource back"), attempt == "first", "{text}");
        assert_eq!(fs::read_to_string(path("calls")).unwrap(), "8192 8\n");
    }

    fs::remove_file(path("ticket")).unwrap();
    fs::write(state.join("yarn.json"), offered).unwrap();
    let failed = |daemon: &Daemon| {
        let events = daemon.events();
        events.iter().filter(|event| event["type"] == "offer_failed").count()
    };
    daemon.launch();
    let before = daemon.eventually("another try", |daemon| Some(failed(daemon)).filter(|n| *n > 1));
    fs::write(path("ticket"), "").unwrap();
    let (code, took) = daemon.stop();
    assert_eq!(code, Some(0), "after {before} failures");
    assert!(took < Duration::from_secs(7), "{took:?}");
    assert_eq!(fs::read_to_string(path("calls")).unwrap(), "8192 8\n8192 8\n", "a run is awaited");
    let log = daemon.log();
    assert_eq!(log.matches(LEFT[0]).count(), 1, "{log}");
}
