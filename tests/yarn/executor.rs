//! LinuxContainerExecutor: containers of another user's, in groups of YARN's own or in none.
//!
//! Its helper is in no Maven artifact: `tests/yarn/run --executor SOURCES` builds it.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use crate::cluster::Role;
use crate::conf::{Helper, Options, Quota};
use crate::hadoop::container_executor;
use crate::harness::{in_tier, weights};
use crate::jobs;
use crate::opportunistic::lose_their_slots;
use crate::shaped::TWO;
use crate::site::{Site, check_members, group_of, kinds};

fn options(cgroups: Option<Quota>) -> Options {
    let helper = Some(Helper { path: container_executor(), cgroups });
    Options { containers: 6, helper, ..Options::default() }
}

/// What YARN gives a container of one vcore: cpu.idle and cpu.shares.
const GIVEN: (Option<u64>, Option<u64>) = (Some(0), Some(1024));

/// The tasks with a slot, as soon as two are active.
fn two_are_active(site: &Site) -> Vec<Value> {
    site.cluster.patiently("two active tasks", |_| {
        let mut tasks = site.daemon.tasks();
        tasks.retain(|task| task["slotless"] != true);
        (in_tier(&tasks, "active").len() == 2).then_some(tasks)
    })
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and its container-executor"]
fn containers_in_groups_of_yarn_stay_there_and_are_weighed_in_place() {
    let site = &mut Site::start("executor", options(Some(Quota::None)), TWO, "");
    let hierarchy = site.cluster.hierarchy();
    let job = jobs::sleep(&mut site.cluster, 4, 0, 60);
    let containers = site.all_found(5);
    let in_groups_of_yarn = |site: &Site| {
        for container in &containers {
            let group = format!("{hierarchy}/{}", container.id);
            assert_eq!(group_of(container.leader), Some(group.clone()));
            let tasks = site.daemon.tasks();
            let task = tasks.iter().find(|task| task["name"] == container.id.as_str());
            assert_eq!(task.map(|task| &task["cgroup"]), Some(&Value::from(group)), "{tasks:?}");
        }
    };
    in_groups_of_yarn(site);

    let tasks = two_are_active(site);
    assert_eq!(kinds(&tasks), BTreeMap::from([("map".into(), 4)]));
    for task in &tasks {
        let (idle, weight) = weights(&site.daemon.cpu_dir(task));
        let shown = &task["kernel"];
        let shown = (shown["cpu_idle"].as_bool(), shown["cpu_weight"].as_u64());
        assert_eq!(shown, (idle.map(|idle| idle == 1), weight), "{task}");
        // A foreign group is never made idle.
        assert_eq!((idle, weight == GIVEN.1), (GIVEN.0, task["tier"] == "active"), "{task}");
    }

    site.daemon.kill();
    site.daemon.launch();
    site.all_found(5);
    site.cluster.kill(Role::NodeManager(0));
    site.cluster.launch(Role::NodeManager(0));
    site.cluster.wait_running();
    in_groups_of_yarn(site);
    // The least weight is also what YARN gives opportunistic ones; here it is LRS's.
    assert!(two_are_active(site).iter().all(|task| task["opportunistic"] != true));

    assert_eq!(site.daemon.stop().0, Some(0));
    let (code, output) = site.daemon.give_back();
    assert_eq!(code, Some(0), "{output}");
    for task in &tasks {
        assert_eq!(weights(&site.daemon.cpu_dir(task)), GIVEN, "{output}");
    }
    site.daemon.launch();
    site.all_found(1);
    job.succeeded(&site.cluster);
    site.nothing_left();
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and its container-executor"]
fn a_strict_quota_is_reported() {
    let site = &mut Site::start("strict", options(Some(Quota::Strict)), TWO, "");
    let job = jobs::sleep(&mut site.cluster, 1, 0, 15);
    site.all_found(2);
    for task in site.daemon.tasks() {
        let dir = site.daemon.cpu_dir(&task);
        let number = |file: &str| -> f64 {
            let text = fs::read_to_string(dir.join(file)).expect(file);
            text.trim().parse().expect("a number")
        };
        let cpus = number("cpu.cfs_quota_us") / number("cpu.cfs_period_us");
        assert!(cpus > 0.0, "YARN set no quota");
        site.daemon.eventually("the quota of a task", |daemon| {
            let shown = daemon.tasks().into_iter().find(|shown| shown["id"] == task["id"])?;
            (shown["cpu_quota"].as_f64() == Some(cpus)).then_some(())
        });
    }
    job.succeeded(&site.cluster);
    site.nothing_left();
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and its container-executor"]
fn without_groups_of_yarn_sessions_are_moved() {
    let site = &mut Site::start("moved", options(None), TWO, "");
    let job = jobs::sleep(&mut site.cluster, 4, 1, 15);
    site.all_found(6);
    for task in two_are_active(site) {
        check_members(&site.daemon, &task);
    }
    job.succeeded(&site.cluster);
    site.nothing_left();
}

#[test]
#[ignore = "needs root, cgroups, Hadoop and its container-executor"]
fn opportunistic_containers_have_the_last_turn() {
    let options = Options { containers: 8, opportunistic: 4, ..options(Some(Quota::None)) };
    let site = &mut Site::start("last", options, TWO, "");
    let [behind, before] = lose_their_slots(site);
    before.succeeded(&site.cluster);
    behind.succeeded(&site.cluster);
    site.nothing_left();
}
