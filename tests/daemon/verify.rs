//! `lrsctl doctor --verify`: whether this kernel heeds the weights of the tiers; and drop-ins.

use std::fs;

use serde_json::Value;

use crate::harness::{Daemon, procs};
use crate::member::{MEMBER, stranger, with_members};

const TWO: &str = "[slots]\nactive = 2\npassive = 2\nexpand = false\n";

fn trials(daemon: &Daemon) -> Vec<std::path::PathBuf> {
    let groups = daemon.groups_in_roots().into_iter();
    groups.filter(|group| group.to_string_lossy().contains("/trial-")).collect()
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_test_shows_that_this_kernel_heeds_the_tiers_and_disturbs_no_task() {
    for way in ["auto", "weight"] {
        let settings = format!("{TWO}[tiers]\npassive_cpu = {way:?}\n");
        let mut daemon = Daemon::start("verify", &settings);
        let task = daemon.run(&[], &["cat"]);
        let before = daemon.task_of(task);
        assert_eq!(daemon.status()["cgroup"]["cpu_effect"], "claimed");
        // A CPU that others use shows nothing, so that a test is to be made again.
        let verified = daemon.eventually("a CPU to spare", |daemon| {
            let output = daemon.ctl(&["doctor", "--verify", "--json"]);
            let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
            let checks = report["checks"].as_array().unwrap();
            let check = checks.iter().find(|check| check["id"] == "cpu_effect").unwrap();
            let found = check["found"].as_str().unwrap().to_owned();
            assert!(!found.starts_with("without effect"), "{found}");
            found.starts_with("verified: on CPU ").then_some(found)
        });
        let cgroup = &daemon.status()["cgroup"];
        assert_eq!(cgroup["cpu_effect"], "verified");
        assert_eq!(verified, format!("verified: {}", cgroup["tested"].as_str().unwrap()));
        assert!(cgroup["tested_at"].is_string(), "{cgroup}");
        assert!(daemon.ok(&["status", "-v"]).contains("(verified)"));
        assert!(trials(&daemon).is_empty());
        let after = daemon.task_of(task);
        for field in ["id", "tier", "cgroup", "repaired", "attachment"] {
            assert_eq!(after[field], before[field], "{field}");
        }
        let metrics = daemon.ok(&["metrics"]);
        assert!(metrics.contains("lrs_tier_verified{resource=\"cpu\"} 1"), "{metrics}");
        // It is known until the daemon starts again.
        daemon.stop();
        daemon.launch();
        assert_eq!(daemon.status()["cgroup"]["cpu_effect"], "claimed");
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn only_an_admin_may_have_the_tiers_tested() {
    let daemon = with_members("verify-member", TWO);
    let output = stranger(&daemon, MEMBER, &["doctor", "--verify"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let why = "uid 65534 may not have the tiers tested: that takes root or a uid listed in";
    assert!(text.contains(why), "{text}");
    assert!(output.stdout.is_empty());
    assert_eq!(daemon.status()["cgroup"]["cpu_effect"], "claimed");
}

#[test]
#[ignore = "needs root and cgroups"]
fn a_daemon_that_is_killed_or_stopped_in_a_test_leaves_nothing() {
    let mut daemon = Daemon::start("verify-killed", TWO);
    for kill in [true, false] {
        let mut asking = daemon.ctl_command(&["doctor", "--verify"]);
        let null = std::process::Stdio::null;
        let mut asking = asking.stdout(null()).stderr(null()).spawn().unwrap();
        let processes = daemon.eventually("two processes on trial", |daemon| {
            let all: Vec<i32> = trials(daemon).iter().flat_map(|group| procs(group)).collect();
            let all: std::collections::BTreeSet<i32> = all.into_iter().collect();
            (all.len() == 2).then_some(all)
        });
        if kill {
            daemon.kill();
        } else {
            let (code, took) = daemon.stop();
            assert_eq!(code, Some(0));
            assert!(took < std::time::Duration::from_secs(2), "{took:?}");
        }
        asking.wait().unwrap();
        daemon.eventually("their end", |_| {
            let lives = |pid: &i32| {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                !stat.is_empty() && !stat.contains(") Z ")
            };
            (!processes.iter().any(lives)).then_some(())
        });
        if !kill {
            assert!(trials(&daemon).is_empty());
        }
        daemon.launch();
        assert!(trials(&daemon).is_empty(), "the next daemon removes them");
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn drop_ins_count_at_the_start_and_at_a_reload() {
    let mut daemon = Daemon::new("dropins", TWO);
    let dir = daemon.dir.path().join("lrs.toml.d");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("10-site.toml"), "[slots]\nactive = 3\n").unwrap();
    daemon.launch();
    let active = |daemon: &Daemon| daemon.status()["slots"]["active"]["capacity"].clone();
    assert_eq!(active(&daemon), 3);
    assert!(daemon.log().contains("lrs.toml with lrs.toml.d/10-site.toml"), "{}", daemon.log());
    let file = daemon.config().display().to_string();
    let diff = |daemon: &Daemon, arguments: &[&str]| {
        daemon.json(&[&["config", "diff"], arguments].concat())["differences"].clone()
    };
    assert_eq!(diff(&daemon, &["--running"]), serde_json::json!([]));
    let of_defaults = diff(&daemon, &[&file]);
    let of_defaults = of_defaults.as_array().unwrap();
    let slots = of_defaults.iter().find(|it| it["key"] == "slots.active").unwrap();
    assert_eq!((&slots["value"], &slots["default"]), (&3.into(), &"auto".into()));
    assert!(slots["file"].as_str().unwrap().ends_with("lrs.toml.d/10-site.toml"), "{slots}");

    fs::write(dir.join("20-now.toml"), "[slots]\nactive = 4\n[daemon]\nmode = \"observe\"\n")
        .unwrap();
    let pending = diff(&daemon, &["--running"]);
    assert_eq!(pending[0]["key"], "daemon.mode");
    assert_eq!(pending[0]["needs_restart"], true);
    assert_eq!((&pending[1]["value"], &pending[1]["in_force"]), (&4.into(), &3.into()));
    daemon.refused(&["reload"], 1, "daemon.mode can only change with a restart");
    fs::write(dir.join("20-now.toml"), "[slots]\nactive = 4\nactve = 1\n").unwrap();
    fs::write(dir.join("30-bad.toml"), "[slots]\npassive = -1\n").unwrap();
    daemon.refused(&["reload"], 1, "lrs.toml.d/20-now.toml:3: slots.actve = 1: unknown key");
    daemon.refused(&["reload"], 1, "lrs.toml.d/30-bad.toml:2: slots.passive = -1");
    daemon.refused(&["config", "check", &file], 1, "30-bad.toml:2: slots.passive");
    assert_eq!(active(&daemon), 3);
    fs::remove_file(dir.join("30-bad.toml")).unwrap();
    fs::write(dir.join("20-now.toml"), "[slots]\nactive = 4\n").unwrap();
    assert_eq!(daemon.ok(&["reload"]), "slots.active\n");
    assert_eq!(active(&daemon), 4);
}
