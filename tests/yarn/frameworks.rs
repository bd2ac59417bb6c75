//! Frameworks beside MapReduce's own jobs: their masters and containers are distinguished.
//!
//! `tests/yarn/run frameworks` fetches them; nothing of theirs is changed or replaced either.

mod shell;
mod spark;
mod streaming;
mod tez;

pub use streaming::submit as submit_streaming;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::harness::{in_tier, signal, slot_tier};
use crate::site::{Site, check_members, kinds, session};

/// Waits until an application has its master and these containers, by their kinds, and checks
/// all that lrsd says of them. Two slots are active, and no other user runs containers.
fn check(site: &Site, application: &str, wanted: &[(&str, usize)]) {
    check_with(site, application, 1, wanted);
}

/// The same with so many masters.
fn check_with(site: &Site, application: &str, of_masters: usize, wanted: &[(&str, usize)]) {
    let wanted: BTreeMap<String, usize> =
        wanted.iter().map(|&(kind, count)| (kind.to_owned(), count)).collect();
    let count = wanted.values().sum::<usize>();
    let containers = site.all_found(of_masters + count);
    let tasks = site.daemon.tasks();
    let (masters, others): (Vec<Value>, Vec<Value>) =
        tasks.iter().cloned().partition(|task| task["slotless"] == true);
    assert_eq!((masters.len(), in_tier(&masters, "active").len()), (of_masters, of_masters));
    assert!(masters.iter().all(|task| task["kind"] == "am"), "{masters:?}");
    assert_eq!(kinds(&others), wanted, "{others:?}");
    let active = in_tier(&others, "active").len();
    assert_eq!((active, in_tier(&others, "passive").len()), (count.min(2), count.max(2) - 2));
    for task in &tasks {
        assert_eq!(task["job"], application, "{task}");
        let container = containers.iter().find(|c| task["name"] == c.id.as_str());
        assert_eq!(container.map(|c| i64::from(c.leader)), task["pid"].as_i64(), "{task}");
        check_members(&site.daemon, task);
    }
}

/// Kills the master of the first attempt and waits for that of the second, and until so many
/// containers of the first are left.
fn kill_first_master(site: &Site, application: &str, kept: usize) {
    let first = master(site, "_01_000001")["pid"].as_i64().expect("a pid");
    for pid in session(i32::try_from(first).expect("a pid")) {
        signal(pid, Signal::KILL);
    }
    master(site, "_02_000001");
    // Once it has registered it knows what it was left.
    let address = format!("{}/ws/v1/cluster/apps/{application}", site.cluster.manager_url());
    site.cluster.patiently("a master that has registered", |cluster| {
        (cluster.get(&address)?["app"]["state"] == "RUNNING").then_some(())
    });
    site.cluster.patiently("the end of an attempt", |_| {
        let tasks = site.daemon.tasks();
        let names = tasks.iter().filter_map(|task| task["name"].as_str());
        (names.filter(|name| name.contains("_01_0")).count() == kept).then_some(())
    });
}

/// The only master there is, once it is this container.
fn master(site: &Site, container: &str) -> Value {
    site.cluster.patiently("a master", |_| {
        let mut tasks = site.daemon.tasks();
        tasks.retain(|task| task["slotless"] == true);
        // One that was killed may be listed beside its successor for a moment.
        let alone = tasks.len() == 1;
        tasks
            .pop()
            .filter(|_| alone)
            .filter(|task| task["name"].as_str().is_some_and(|id| id.ends_with(container)))
    })
}

/// Holds containers until the test lets them go, each by its id.
struct HeldContainers {
    dir: PathBuf,
}

impl HeldContainers {
    fn new(cluster: &mut Cluster) -> HeldContainers {
        let dir = cluster.fresh("held");
        fs::create_dir(&dir).expect("a directory");
        HeldContainers { dir }
    }

    /// What a shell does to be held.
    fn command(&self) -> String {
        let path = format!("{}/$CONTAINER_ID", self.dir.display());
        format!("touch {path}.held; until [ -e {path} ]; do sleep 0.1; done")
    }

    /// Lets the active ones of `count` go, and the passive ones once they are active.
    fn release(&self, site: &Site, count: usize) {
        site.cluster.patiently("containers that are held", |_| {
            let files = fs::read_dir(&self.dir).expect("our directory").flatten();
            let held = |name: &OsStr| name.as_encoded_bytes().ends_with(b".held");
            (files.filter(|file| held(&file.file_name())).count() == count).then_some(())
        });
        let (passive, active) = self.split(site);
        self.let_end(&active);
        site.cluster.patiently("passive containers that are promoted", |_| {
            // Tez keeps one that was released for its next task.
            let (waiting, running) = self.split(site);
            (waiting.is_empty() && running.is_superset(&passive)).then_some(())
        });
        self.let_end(&passive);
    }

    /// Whatever `release` did not.
    fn release_all(&self, site: &Site) {
        let (passive, active) = self.split(site);
        self.let_end(&passive);
        self.let_end(&active);
    }

    fn let_end(&self, containers: &BTreeSet<String>) {
        for id in containers {
            fs::write(self.dir.join(id), "").expect("a file");
        }
    }

    /// The passive containers and the active ones that are no masters.
    fn split(&self, site: &Site) -> (BTreeSet<String>, BTreeSet<String>) {
        let mut tasks = site.daemon.tasks();
        tasks.retain(|task| task["slotless"] != true);
        let (passive, active): (Vec<Value>, Vec<Value>) =
            tasks.into_iter().partition(|task| slot_tier(task) == "passive");
        let names = |tasks: &[Value]| {
            tasks.iter().filter_map(|task| Some(task["name"].as_str()?.to_owned())).collect()
        };
        (names(&passive), names(&active))
    }
}
