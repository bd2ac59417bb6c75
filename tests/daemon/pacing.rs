//! Cycles that follow the tasks. Not under emulation, where a cycle costs more CPU than shorter ones may.

use crate::harness::Daemon;

const AUTO: &str = "daemon.sample_period = \"auto\"\n[slots]\nactive = 2\n";

/// The longest, in milliseconds.
const LONGEST: u64 = 3000;

fn period(daemon: &Daemon) -> u64 {
    daemon.status()["node"]["period_ms"].as_u64().expect("a period")
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_young_task_shortens_the_cycle_and_without_tasks_it_is_the_longest() {
    let mut daemon = Daemon::start("pace", AUTO);
    assert_eq!(period(&daemon), LONGEST);
    let cat = daemon.run(&[], &["cat"]);
    daemon.task_of(cat);
    let short = |daemon: &Daemon| {
        let period = period(daemon);
        (100..LONGEST).contains(&period).then_some(())
    };
    daemon.eventually("cycles that suit a young task", short);
    daemon.finish(cat);
    let long = |daemon: &Daemon| (period(daemon) == LONGEST).then_some(());
    daemon.eventually("the longest cycle", long);
}
