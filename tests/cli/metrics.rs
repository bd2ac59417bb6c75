//! `lrsctl metrics`.

use lrs::proto::*;

use super::fake::{Fake, Script, lrsctl};

fn script() -> Script {
    let task = |job: &str| Task {
        job: Some(job.into()),
        tier: Tier::Passive as i32,
        class: Class::Cpu as i32,
        cpu_share: Some(0.25),
        ..Task::default()
    };
    Script {
        status: Status { version: "9.8.7".into(), waiting: 3, ..Status::default() },
        pages: vec![vec![task("a\"b")], vec![task("a\"b"), task("small")]],
        toml: "[metrics]\njobs = 1\n".into(),
        ..Script::default()
    }
}

#[test]
fn metrics_are_a_text_over_all_pages_with_the_jobs_of_the_settings() {
    let ended = Fake::start(script()).run(&["metrics"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for line in [
        "lrs_up 1",
        "lrs_build_info{version=\"9.8.7\"} 1",
        "lrs_queue_length 3",
        "lrs_tasks{tier=\"passive\",class=\"cpu\"} 3",
        "lrs_job_tasks{name=\"a\\\"b\"} 2",
        "lrs_job_tasks{name=\"other\"} 1",
    ] {
        assert!(ended.out.lines().any(|found| found == line), "{line} in {}", ended.out);
    }
    assert!(!ended.out.contains("# EOF"), "the textfile collector takes no OpenMetrics");
    let open = Fake::start(script()).run(&["metrics", "--openmetrics"]);
    assert!(open.out.ends_with("# EOF\n"), "{open:?}");
}

#[test]
fn without_lrsd_the_text_says_so_and_the_status_is_that_of_an_unreachable_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let output = lrsctl(&dir.path().join("none.sock"), &["metrics"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let out = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = out.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["lrs_up 0"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot reach lrsd"));
}
