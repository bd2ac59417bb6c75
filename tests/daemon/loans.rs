//! Active slots on loan: a passive task that computes has the weights of an active one that sleeps.

use rustix::process::Signal;

use crate::harness::{Daemon, signal, weights};

const SETTINGS: &str = "daemon.sample_period = \"500ms\"\n\
     [slots]\nactive = 1\npassive = 1\nexpand = false\n";

#[test]
#[ignore = "needs root and cgroups"]
fn a_task_that_sleeps_lends_its_slot_until_it_wakes() {
    let mut daemon = Daemon::start("loans", SETTINGS);
    // It computes once it was sent a signal.
    let script = "trap 'awake=1' USR1; while [ -z \"$awake\" ]; do sleep 1000 & wait; kill $!; done; while :; do :; done";
    let sleeper = daemon.run(&[], &["bash", "-c", script]);
    let lender = daemon.task_of(sleeper);
    let hog = daemon.run(&[], &["bash", "-c", "while :; do :; done"]);
    daemon.eventually("a loan", |daemon| (daemon.task_of(hog)["loan"] == true).then_some(()));
    let borrower = daemon.task_of(hog);
    assert_eq!(borrower["tier"], "active", "{borrower}");
    assert_eq!(weights(&daemon.cpu_dir(&borrower)), weights(&daemon.cpu_dir(&lender)));
    assert_eq!(daemon.task_of(sleeper)["lends"], true);
    let status = daemon.status();
    assert_eq!(status["slots"]["passive"]["used"], 1, "the counts know no loans: {status}");
    assert_eq!(status["slots"]["active"]["used"], 1, "{status}");
    let id = borrower["id"].as_str().expect("an id").to_owned();
    let why = daemon.ok(&["why", &id]);
    assert!(why.contains("an active task is idle, and this one computes"), "{why}");

    // The next daemon knows of no loan, and makes it again.
    daemon.kill();
    daemon.launch();
    daemon.eventually("a loan again", |daemon| (daemon.task_of(hog)["loan"] == true).then_some(()));

    signal(sleeper, Signal::USR1);
    daemon.eventually("the end of the loan", |daemon| {
        (daemon.task_of(hog)["tier"] == "passive").then_some(())
    });
    assert_ne!(weights(&daemon.cpu_dir(&borrower)), weights(&daemon.cpu_dir(&lender)));
    let events = daemon.events();
    let of_hog = events.iter().filter(|event| event["task"] == id.as_str());
    let kinds: Vec<&str> = of_hog.filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds, ["admitted", "loan", "loan", "loan_end"]);
}
