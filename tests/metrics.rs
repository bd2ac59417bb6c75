//! The exporter's pages of a real `lrsd --pretend`: figures, and a daemon that goes away and comes back.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // test helpers

#[allow(dead_code, clippy::disallowed_methods)] // the harness also serves tests/daemon
#[path = "daemon/harness.rs"]
mod harness;

use std::sync::Arc;

use harness::Daemon;
use lrs_api::client::Endpoint;
use lrs_exporter::link::Lrsd;
use lrs_exporter::pages::Pages;
use lrs_metrics::Format;

fn pretending() -> Daemon {
    let mut daemon = Daemon::observing("");
    daemon.configure("slots.active = 1\nslots.passive = 1\nmetrics.jobs = 1\n");
    daemon.wrapper = ["sh", "-c", "exec \"$@\" --pretend", "sh"].map(str::to_owned).into();
    daemon.launch();
    daemon
}

#[test]
fn figures_follow_tasks_and_the_daemon_goes_away_and_comes_back() {
    let mut daemon = pretending();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lrsd = Arc::new(Lrsd::new(Endpoint::unix(&daemon.socket()).unwrap()));
    let pages = Pages::new(lrsd);
    let text = |format| {
        let page = runtime.block_on(pages.page());
        String::from_utf8(page.text(format).to_vec()).unwrap()
    };
    let has = |line: &str| {
        let text = text(Format::Prometheus);
        text.lines().any(|found| found == line).then_some(())
    };

    let first = daemon.run(&["--job", "nightly"], &["cat"]);
    daemon.task_of(first);
    let second = daemon.run(&["--job", "nightly"], &["sh", "-c", "cat; exit 3"]);
    daemon.task_of(second);
    for line in [
        "lrs_up 1",
        "lrs_slots{tier=\"active\",state=\"used\"} 1",
        "lrs_slots{tier=\"passive\",state=\"used\"} 1",
        "lrs_tasks_admitted_total 2",
        "lrs_promotions_total 0",
        "lrs_job_tasks{name=\"nightly\"} 2",
        "lrs_mode{mode=\"enforce\"} 1",
    ] {
        daemon.eventually(line, |_| has(line));
    }
    // Of the process itself, as of the answer.
    let open = text(Format::OpenMetrics);
    for name in [
        "lrs_daemon_cpu_seconds_total ",
        "lrs_daemon_resident_bytes ",
        "lrs_last_turn_age_seconds ",
    ] {
        assert!(open.lines().any(|line| line.starts_with(name)), "{name} is not in {open}");
    }
    // `lrsctl metrics` has the same lines.
    assert!(daemon.ok(&["metrics"]).contains("\nlrs_job_tasks{name=\"nightly\"} 2\n"));

    daemon.finish(first);
    daemon.eventually("the promotion is counted", |_| has("lrs_promotions_total 1"));
    daemon.join(second);
    daemon.eventually("the failure is counted", |_| has("lrs_tasks_failed_total 1"));
    daemon.eventually("the queue is empty", |_| has("lrs_tasks_completed_total 2"));

    daemon.stop();
    daemon.eventually("it is away", |_| has("lrs_up 0"));
    assert!(!text(Format::Prometheus).contains("lrs_slots"), "no older figures");
    assert!(runtime.block_on(pages.page()).health().is_err());
    daemon.launch();
    daemon.eventually("it is back", |_| has("lrs_up 1"));
    assert_eq!(runtime.block_on(pages.page()).health(), Ok(()));
}
