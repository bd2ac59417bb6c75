//! Containers as tasks: tiers, kinds, promotions, and slots the scheduler gets to know.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::beside::Lrs;
use crate::cluster::Cluster;
use crate::conf::{CONTAINER, Options};
use crate::hadoop::{NEWEST, OLDER};
use crate::harness::{in_tier, signal, slot_tier};
use crate::jobs;
use crate::site::{GROWING, Site, check_members, group_of, kinds, offering, settings};

/// Two active slots, and passive ones for everything else.
pub const TWO: &str = "[slots]\nactive = 2\npassive = 8\nexpand = false";

fn containers_are_tasks_in_tiers(version: &'static str, name: &str) {
    let options = Options { version, containers: 6, ..Options::default() };
    let site = &mut Site::start(name, options, TWO, "");
    let job = jobs::sleep(&mut site.cluster, 4, 1, 12);
    let application = job.application(&site.cluster);
    let containers = site.all_found(6);

    let tasks = site.daemon.tasks();
    let (masters, others): (Vec<Value>, Vec<Value>) =
        tasks.iter().cloned().partition(|task| task["slotless"] == true);
    assert_eq!(masters.len(), 1, "{masters:?}");
    assert_eq!(masters[0]["tier"], "active");
    assert!(masters[0]["name"].as_str().is_some_and(|id| id.ends_with("_000001")));
    assert_eq!(kinds(&others), BTreeMap::from([("map".into(), 4), ("reduce".into(), 1)]));
    assert_eq!((in_tier(&others, "active").len(), in_tier(&others, "passive").len()), (2, 3));
    for task in &tasks {
        assert_eq!(task["job"], application.as_str());
        let container = containers.iter().find(|c| task["name"] == c.id.as_str());
        assert_eq!(container.map(|c| i64::from(c.leader)), task["pid"].as_i64());
        check_members(&site.daemon, task);
    }
    let weight = |task: &Value| task["kernel"]["cpu_weight"].as_u64();
    for task in others.iter().filter(|task| task["tier"] == "active") {
        assert_eq!(weight(task), weight(&masters[0]), "a master weighs what an active task does");
    }

    job.succeeded(&site.cluster);
    site.nothing_left();
    let events = site.daemon.events();
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((of("admitted"), of("completed")), (6, 6));
    // Maps that end in the same instant take no successor's place from each other: between one
    // and three of the passive tasks were promoted, and the one that stayed last was.
    assert!((1..=3).contains(&of("promoted")), "{events:?}");
    let last = events.iter().rev().find(|event| event["type"] == "completed");
    let last = last.map_or(&Value::Null, |event| &event["task"]);
    let promoted = |event: &&Value| event["type"] == "promoted" && event["task"] == *last;
    let master = masters[0]["id"] == *last;
    assert!(master || events.iter().any(|event| promoted(&event)), "{events:?}");
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn containers_of_the_newest_hadoop_are_tasks_in_tiers() {
    containers_are_tasks_in_tiers(NEWEST, "newest");
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn containers_of_an_older_hadoop_are_tasks_in_tiers() {
    containers_are_tasks_in_tiers(OLDER, "older");
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn every_job_is_right_beside_lrs() {
    let options = Options { containers: 5, ..Options::default() };
    let site = &mut Site::start("jobs", options, TWO, "");
    jobs::check_word_count(&mut site.cluster, 3);
    jobs::check_grep(&mut site.cluster);
    jobs::check_pi(&mut site.cluster);
    jobs::check_terasort(&mut site.cluster, 20_000);
    jobs::check_sort(&mut site.cluster);
    site.nothing_left();
    let totals = site.daemon.status()["totals"].clone();
    assert!(totals["completed"].as_u64().is_some_and(|count| count > 20), "{totals}");
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn expanded_slots_become_containers_and_are_taken_back() {
    let site = &mut Site::start("offer", Options::default(), GROWING, &offering());
    assert_eq!(site.cluster.advertised(0), Some(3), "a master and one for each slot of the base");
    // Tasks that wait leave the node idle, which is what slots are added for.
    let job = jobs::sleep(&mut site.cluster, 6, 1, 10);
    site.advertises(5);
    site.cluster.patiently("containers beyond the configured", |c| {
        (c.containers().len() == 5).then_some(())
    });
    job.succeeded(&site.cluster);
    site.nothing_left();
    site.daemon.stop();
    assert_eq!(site.cluster.advertised(0), Some(3), "what lrsd offered went with it");
}

/// Gives a node so many containers by hand.
fn set(cluster: &mut Cluster, id: &str, containers: u32) {
    let memory = (containers * CONTAINER).to_string();
    cluster.administer(&["-updateNodeResource", id, &memory, &containers.to_string(), "-1"]);
    let what = format!("a node of {containers} containers");
    cluster.patiently(&what, |c| (c.advertised(0) == Some(containers)).then_some(()));
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn a_node_that_was_raised_before_is_built_on() {
    let mut cluster = Cluster::start(Options::default());
    let id = cluster.patiently("the node", |c| Some(c.node(0)?["id"].as_str()?.to_owned()));
    let configured = cluster.advertised(0).expect("a node");
    let raised = configured + 3;
    set(&mut cluster, &id, raised);
    let job = jobs::sleep(&mut cluster, 5, 0, 40);
    cluster.patiently("a full node", |c| (c.containers().len() == 6).then_some(()));

    let daemon = Lrs::start("raised", &settings(&cluster, GROWING, &offering()));
    let site = &mut Site { daemon, cluster };
    site.all_found(raised as usize);
    let verified = |site: &Site| {
        site.cluster.patiently("a verified figure", |_| {
            let status = site.yarn();
            (status["verified"] == true).then_some(status)
        })
    };
    let status = verified(site);
    let memory = |key: &str| status[key]["memory_mib"].as_u64();
    let of = |containers: u32| Some(u64::from(containers * CONTAINER));
    assert_eq!((memory("configured"), memory("site")), (of(raised), of(configured)), "{status}");
    assert!(memory("advertised") >= of(raised), "{status}");
    println!("{}", site.daemon.ok(&["yarn", "status"]));
    let config = site.daemon.config().display().to_string();
    let doctor = site.daemon.ctl(&["doctor", "--config", &config]).stdout;
    let doctor = String::from_utf8_lossy(&doctor);
    println!("{doctor}");
    let words: Vec<&str> = doctor.split_whitespace().collect();
    let doctor = words.join(" ");
    for words in ["lrs-yarn runs", "3.0 GiB set by another client", "yarn.resource_manager"] {
        assert!(doctor.contains(words), "{words}: {doctor}");
    }
    job.succeeded(&site.cluster);
    site.nothing_left();
    let events: Vec<Value> = site.daemon.events();
    assert!(events.iter().all(|event| event["type"] != "offer_failed"), "{events:?}");
    site.daemon.stop();
    assert_eq!(site.cluster.advertised(0), Some(raised), "what it had before stands again");
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn two_node_managers_share_the_slots_of_their_node() {
    let options = Options { node_managers: 2, ..Options::default() };
    let cluster = crate::cluster::Cluster::start(options);
    let dirs = [cluster.local_dir(0), cluster.local_dir(1)];
    let settings = crate::site::settings(&cluster, TWO, &format!("local_dirs = {dirs:?}"));
    let site = &mut Site { daemon: crate::beside::Lrs::start("two", &settings), cluster };
    let job = jobs::sleep(&mut site.cluster, 4, 1, 12);
    site.all_found(6);
    let tasks = site.daemon.tasks();
    let active = tasks.iter().filter(|t| slot_tier(t) == "active" && t["slotless"] != true).count();
    assert_eq!(active, 2, "two active slots, whoever starts the containers");
    job.succeeded(&site.cluster);
    site.nothing_left();
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn a_container_id_that_is_made_up_changes_nothing() {
    let site = &mut Site::start("fake", Options::default(), TWO, "");
    let job = jobs::sleep(&mut site.cluster, 1, 1, 8);
    let application = job.application(&site.cluster);
    let real = site.all_found(3);
    // A user's process with the id of a container that runs, and one with an id of its own.
    let invented = application.replace("application", "container") + "_01_000099";
    let mut strangers = Vec::new();
    for id in [real[1].id.as_str(), invented.as_str()] {
        let child = std::process::Command::new("setsid")
            .args(["sleep", "600"])
            .env("CONTAINER_ID", id)
            .env("JVM_PID", "1")
            .spawn()
            .expect("setsid");
        strangers.push(site.daemon.keep(child));
    }
    let before: Vec<_> = strangers.iter().map(|&pid| group_of(pid)).collect();
    job.succeeded(&site.cluster);
    // A second job has gone through all of discovery since.
    jobs::check_word_count(&mut site.cluster, 1);
    let after: Vec<_> = strangers.iter().map(|&pid| group_of(pid)).collect();
    assert_eq!(after, before, "a process was moved for what its environment says");
    let tasks = site.daemon.tasks();
    assert!(tasks.iter().all(|task| strangers.iter().all(|&pid| task["pid"] != pid)), "{tasks:?}");
    for pid in strangers {
        signal(pid, rustix::process::Signal::KILL);
    }
    site.nothing_left();
}

#[test]
#[ignore = "needs root, cgroups and Hadoop"]
fn observe_mode_finds_all_and_moves_nothing() {
    let slots = format!("daemon.mode = \"observe\"\n{TWO}");
    let site = &mut Site::start("observe", Options::default(), &slots, &offering());
    let job = jobs::sleep(&mut site.cluster, 2, 0, 8);
    let containers = site.all_found(3);
    let own = group_of(site.cluster.pid(crate::cluster::Role::NodeManager(0)));
    for container in containers {
        assert_eq!(group_of(container.leader), own, "{} was moved", container.id);
    }
    job.succeeded(&site.cluster);
    assert_eq!(site.cluster.advertised(0), Some(3));
    assert!(site.daemon.groups_in_roots().is_empty());
}
