//! Long slices (`tiers.slice`, off by default): passive tasks that compute get them, and keep none when
//! they are passive no more or LRS shapes them no more.

use crate::harness::{Daemon, signal};
use crate::schedule::slice_of;
use rustix::process::Signal;

/// 100 ms, with the mark by which LRS knows its own.
const LONG: u64 = 99_999_937;

fn settings(slice: &str) -> String {
    format!(
        "daemon.sample_period = \"500ms\"\ntiers.slice = {slice:?}\n\
         [slots]\nactive = 1\npassive = 2\nexpand = false\n"
    )
}

#[test]
#[ignore = "needs root and cgroups"]
fn long_slices_are_those_of_passive_tasks_that_compute_and_go_with_the_setting_and_the_daemon() {
    let mut daemon = Daemon::start("slices", &settings("auto"));
    let reason = daemon.status()["cgroup"]["reason"].clone();
    let reason = reason.as_str().expect("a reason");
    if reason.contains("slices are the kernel's own") {
        eprintln!("NOT TESTED: slices of threads: {reason}");
        return;
    }
    let [active, next, last] = [(); 3].map(|()| {
        let pid = daemon.run(&[], &["sh", "-c", "while :; do :; done"]);
        // Before the next one, which comes behind it.
        daemon.task_of(pid);
        pid
    });
    let own = slice_of(active);
    let becomes = |daemon: &Daemon, what: &str, pid, slice| {
        daemon.eventually(what, |_| (slice_of(pid) == slice).then_some(()));
    };
    for passive in [next, last] {
        becomes(&daemon, "a long slice", passive, LONG);
    }
    assert_eq!(slice_of(active), own, "it shares its CPU with no active task");

    signal(active, Signal::KILL);
    becomes(&daemon, "the slice of an active task", next, own);
    assert_eq!(daemon.task_of(next)["tier"], "active");

    // A daemon with another setting takes back what the one before gave.
    daemon.kill();
    daemon.configure(&settings("off"));
    daemon.launch();
    becomes(&daemon, "the kernel's slice", last, own);

    daemon.kill();
    daemon.configure(&settings("auto"));
    daemon.launch();
    becomes(&daemon, "a long slice again", last, LONG);
    daemon.stop();
    let (code, text) = daemon.give_back();
    assert_eq!((code, slice_of(last)), (Some(0), own), "{text}");
}
