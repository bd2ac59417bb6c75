//! A cluster with a private lrsd beside it, and what both sides say of the same containers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::beside::Lrs;
use crate::cluster::Cluster;
use crate::conf::{CONTAINER, Options};
use crate::harness::{Daemon, procs};
use crate::process::Container;

/// Slots that grow while the node is idle: one of each tier, and up to two more passive ones.
pub const GROWING: &str = "[slots]\nactive = 1\npassive = 1\npassive_max = 3";

/// The same with all of them in the base.
pub const GROWN: &str = "[slots]\nactive = 1\npassive = 3\npassive_max = 3";

/// Lines of `[yarn]`: each slot more is a container more.
pub fn offering() -> String {
    format!("offer = true\nslot_memory = \"{CONTAINER}MiB\"\n")
}

/// lrsd with lrs-yarn, and the cluster with the containers that are its tasks.
///
/// The order of the fields is that of their end: lrsd goes first, so that it sees no container die
/// of the cluster's end.
pub struct Site {
    pub daemon: Lrs,
    pub cluster: Cluster,
}

impl Site {
    /// Starts the cluster, then lrsd with these slots and lines of `[yarn]`.
    pub fn start(name: &str, options: Options, slots: &str, yarn: &str) -> Site {
        let cluster = Cluster::start(options);
        let daemon = Lrs::start(name, &settings(&cluster, slots, yarn));
        Site { daemon, cluster }
    }

    /// Waits until lrsd has exactly the containers that run, and at least `count`.
    pub fn all_found(&self, count: usize) -> Vec<Container> {
        self.cluster.patiently("a task for each container", |cluster| {
            let containers = cluster.containers();
            let fits =
                containers.len() >= count && pids(&self.daemon.tasks()) == leaders(&containers);
            fits.then_some(containers)
        })
    }

    /// Other slots from now on; the lines of `[yarn]` are as before.
    pub fn reload(&mut self, slots: &str, yarn: &str) {
        self.daemon.configure(&settings(&self.cluster, slots, yarn));
        self.daemon.ok(&["reload"]);
    }

    /// `lrsctl yarn status`.
    pub fn yarn(&self) -> Value {
        self.daemon.json(&["yarn", "status"])
    }

    /// Waits until the active ResourceManager may place so many containers on the node.
    pub fn advertises(&self, count: u32) {
        let what = format!("a node of {count} containers");
        self.cluster.patiently(&what, |c| (c.advertised(0) == Some(count)).then_some(()));
    }

    /// All containers and tasks are over, and no group of a task is left.
    pub fn nothing_left(&self) {
        self.cluster
            .patiently("the end of all containers", |c| c.containers().is_empty().then_some(()));
        self.daemon.nothing_left();
    }
}

/// The settings of lrsd beside a cluster. `slots` comes first: it may hold dotted keys.
pub fn settings(cluster: &Cluster, slots: &str, yarn: &str) -> String {
    let conf = cluster.conf(0);
    format!(
        "daemon.sample_period = \"1s\"\n{slots}\n\
         [yarn]\nenabled = true\nconf_dir = {conf:?}\npoll = \"1s\"\n{yarn}\n"
    )
}

fn leaders(containers: &[Container]) -> BTreeSet<i64> {
    containers.iter().map(|container| i64::from(container.leader)).collect()
}

fn pids(tasks: &[Value]) -> BTreeSet<i64> {
    tasks.iter().filter_map(|task| task["pid"].as_i64()).collect()
}

/// How many tasks there are of each kind.
pub fn kinds(tasks: &[Value]) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for task in tasks {
        *found.entry(task["kind"].as_str().unwrap_or("none").to_owned()).or_insert(0) += 1;
    }
    found
}

/// The members of a session, which is all a container consists of.
pub fn session(leader: i32) -> BTreeSet<i32> {
    let pids = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        // Gone between the listing and here is no member.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
        rest.split(' ').nth(3).and_then(|field| field.parse().ok()) == Some(leader)
    })
    .collect()
}

/// The task's group has the session's processes, all of them and no other.
pub fn check_members(daemon: &Daemon, task: &Value) {
    let leader = i32::try_from(task["pid"].as_i64().expect("a pid")).expect("a pid");
    daemon.eventually(&format!("a whole session in {}", task["cgroup"]), |daemon| {
        let members: BTreeSet<i32> = procs(&daemon.cpu_dir(task)).into_iter().collect();
        (!members.is_empty() && members == session(leader)).then_some(())
    });
}

/// The group of a process in the hierarchy with the cpu controller.
pub fn group_of(pid: i32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let line = text
        .lines()
        .find(|line| line.split(':').nth(1).is_some_and(|c| c.split(',').any(|c| c == "cpu")))
        .or_else(|| text.lines().find(|line| line.starts_with("0::")))?;
    line.splitn(3, ':').nth(2).map(str::to_owned)
}
