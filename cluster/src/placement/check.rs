//! From what a file says to a [`Cluster`], or to every fault that it has.
//!
//! Each fault names its place in the file, what was found and what belongs there. Nothing is
//! corrected: a plan for another cluster than the caller's is worse than none.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use lrs_core::model::{Label, Priority};
use lrs_core::units::Share;

use crate::placement::cluster::{
    Cluster, GroupId, Job, JobId, Network, NodeId, State, Task, TaskId,
};
use crate::placement::fault::Collected;
pub use crate::placement::fault::{Fault, Faults};
use crate::placement::group::Group;
use crate::placement::input::{
    ClusterInput, GroupInput, JobInput, NetworkInput, NodeInput, SlotsInput, TaskInput,
};
use crate::placement::passed::PassedOver;
use crate::placement::resources::Resources;
use crate::placement::shape::read;

/// Most slots of a tier of a node. A figure beyond it is a mistake, and would be memory in the
/// policies that list every slot.
pub const MOST_SLOTS: u32 = 10_000;

/// Weights and bandwidths: what is divided by them stays a number, whatever it is.
pub(crate) const MEASURES: std::ops::RangeInclusive<f64> = 1e-6..=1e18;

/// Most of a resource, so that sums over a cluster stay exact enough.
pub const MOST_RESOURCES: f64 = 1e18;

/// Most nodes that hold the input of a task. HDFS takes up to 512.
pub const MOST_REPLICAS: usize = 1_000;

/// Most levels of groups.
pub const DEEPEST: usize = 16;

/// Reads and checks a cluster.
///
/// # Errors
/// With all faults of shape ([`crate::placement::shape`]); where there is none, with all others.
pub fn parse(json: &[u8]) -> Result<Cluster, Faults> {
    let (input, unknown) = read(json)?;
    let mut cluster = check(input)?;
    cluster.unknown = unknown;
    Ok(cluster)
}

/// Checks a cluster.
pub fn check(input: ClusterInput) -> Result<Cluster, Faults> {
    let mut checker = Checker::default();
    checker.nodes(input.nodes);
    checker.groups(input.groups);
    checker.cluster.network = input.network.map(|network| checker.network(network));
    for (index, job) in input.jobs.into_iter().enumerate() {
        checker.job(format!("jobs[{index}]"), job);
    }
    checker.faults.result().map(|()| checker.cluster)
}

/// What is wrong with a node that comes to a cluster.
pub(crate) fn faults_of_node(node: &NodeInput) -> Collected {
    let mut checker = Checker::default();
    let capacity = node.capacity.unwrap_or_default();
    checker.node_itself("the node", &node.name, node.slots, capacity);
    checker.faults
}

#[derive(Default)]
struct Checker {
    cluster: Cluster,
    nodes: BTreeMap<String, NodeId>,
    groups: BTreeMap<String, GroupId>,
    /// Groups with groups below.
    parents: BTreeSet<GroupId>,
    jobs: BTreeMap<String, JobId>,
    faults: Collected,
}

impl Checker {
    fn fault(&mut self, at: impl fmt::Display, what: impl fmt::Display) {
        self.faults.push(at, what);
    }

    fn name(&mut self, at: impl fmt::Display, name: &str) {
        if let Err(error) = Label::new(name) {
            self.fault(at, error);
        }
    }

    fn nodes(&mut self, nodes: Vec<NodeInput>) {
        if nodes.is_empty() {
            self.fault("nodes", "there is none; name at least one");
        }
        for (index, NodeInput { name, rack, slots, capacity }) in nodes.into_iter().enumerate() {
            let at = format!("nodes[{index}]");
            self.node_itself(&at, &name, slots, capacity.unwrap_or_default());
            if self.nodes.insert(name.clone(), NodeId(index)).is_some() {
                self.fault(format_args!("{at}.name"), format_args!("{name:?} is there already"));
            }
            self.cluster.add_node(name, rack, slots, capacity);
        }
    }

    fn node_itself(&mut self, at: &str, name: &str, slots: SlotsInput, capacity: Resources) {
        self.name(format_args!("{at}.name"), name);
        for (tier, count) in [("active", slots.active), ("passive", slots.passive)] {
            if count > MOST_SLOTS {
                let what = format!("{count} slots; at most {MOST_SLOTS} are possible");
                self.fault(format_args!("{at}.slots.{tier}"), what);
            }
        }
        self.resources(&format!("{at}.capacity"), capacity);
    }

    fn node(&mut self, at: impl fmt::Display, name: &str) -> Option<NodeId> {
        let found = self.nodes.get(name).copied();
        if found.is_none() {
            self.fault(at, format_args!("{name:?} is not among the nodes"));
        }
        found
    }

    fn groups(&mut self, groups: Vec<GroupInput>) {
        if groups.is_empty() {
            self.cluster.groups.push(Group::without_name());
        }
        for (index, GroupInput { name, weight, .. }) in groups.iter().enumerate() {
            let at = format!("groups[{index}]");
            self.name(format_args!("{at}.name"), name);
            if !MEASURES.contains(weight) {
                let what = format!("{weight}; a weight is a number from 1e-6 to 1e18");
                self.fault(format_args!("{at}.weight"), what);
            }
            if self.groups.insert(name.clone(), GroupId(index)).is_some() {
                self.fault(format_args!("{at}.name"), format_args!("{name:?} is there already"));
            }
        }
        for (index, group) in groups.into_iter().enumerate() {
            let at = format!("groups[{index}].parent");
            let parent = group.parent.and_then(|parent| self.known_group(at, &parent));
            self.parents.extend(parent);
            let GroupInput { name, weight, min_slots, order, .. } = group;
            let raised_from = None;
            self.cluster.groups.push(Group { name, parent, weight, min_slots, raised_from, order });
        }
        for group in self.cluster.groups() {
            let above = std::iter::successors(Some(group), |group| self.cluster[*group].parent);
            if above.take(DEEPEST + 1).count() > DEEPEST {
                let what = format!("below itself, or deeper than {DEEPEST} levels");
                self.fault(format_args!("groups[{}].parent", group.0), what);
            }
        }
        self.raise_minimums();
    }

    /// A group has at least as many slots as the groups below it have together, or theirs could not be
    /// kept.
    fn raise_minimums(&mut self) {
        let depth = |group: &GroupId| {
            let above = std::iter::successors(Some(*group), |group| self.cluster[*group].parent);
            above.take(DEEPEST + 1).count()
        };
        let mut groups: Vec<GroupId> = self.cluster.groups().collect();
        groups.sort_by_cached_key(|group| Reverse(depth(group)));
        let mut below = vec![0_u32; groups.len()];
        for id in groups {
            let group = &mut self.cluster.groups[id.0];
            let sum = below[id.0];
            group.raised_from = (sum > group.min_slots).then_some(group.min_slots);
            group.min_slots = group.min_slots.max(sum);
            if let Some(parent) = group.parent {
                below[parent.0] = below[parent.0].saturating_add(group.min_slots);
            }
        }
    }

    fn known_group(&mut self, at: impl fmt::Display, name: &str) -> Option<GroupId> {
        let found = self.groups.get(name).copied();
        if found.is_none() {
            self.fault(at, format_args!("{name:?} is not among the groups"));
        }
        found
    }

    /// The group of a job; the first where there is a fault.
    fn group(&mut self, at: impl fmt::Display, name: Option<String>) -> GroupId {
        let Some(name) = name else {
            if !self.groups.is_empty() {
                self.fault(at, "missing; where there are groups, each job is in one");
            }
            return GroupId(0);
        };
        let found = self.known_group(&at, &name);
        if found.is_some_and(|group| self.parents.contains(&group)) {
            self.fault(at, format_args!("{name:?} has groups below it; jobs go into one of these"));
        }
        found.unwrap_or(GroupId(0))
    }

    fn network(&mut self, network: NetworkInput) -> Network {
        let at = "network";
        let NetworkInput { within_rack_bytes_per_sec, between_racks_bytes_per_sec, pairs } =
            network;
        self.bandwidth(format_args!("{at}.within_rack_bytes_per_sec"), within_rack_bytes_per_sec);
        self.bandwidth(
            format_args!("{at}.between_racks_bytes_per_sec"),
            between_racks_bytes_per_sec,
        );
        let mut checked = Network {
            within_rack: within_rack_bytes_per_sec,
            between_racks: between_racks_bytes_per_sec,
            pairs: BTreeMap::new(),
            is_cut: pairs.iter().any(|pair| pair.bytes_per_sec.is_none()),
        };
        for (index, pair) in pairs.into_iter().enumerate() {
            let at = format!("{at}.pairs[{index}]");
            if let Some(bytes_per_sec) = pair.bytes_per_sec {
                self.bandwidth(format_args!("{at}.bytes_per_sec"), bytes_per_sec);
            }
            let from = self.node(format_args!("{at}.from"), &pair.from);
            let to = self.node(format_args!("{at}.to"), &pair.to);
            let Some(ends) = from.zip(to) else { continue };
            if checked.pairs.insert(ends, pair.bytes_per_sec).is_some() {
                self.fault(at, format_args!("{} to {} is there already", pair.from, pair.to));
            }
        }
        checked
    }

    fn resources(&mut self, at: &str, amounts: Resources) {
        for (field, amount) in amounts.fields() {
            if !(0.0..=MOST_RESOURCES).contains(&amount) {
                let what = format!("{amount}; an amount is a number from 0 to {MOST_RESOURCES:e}");
                self.fault(format_args!("{at}.{field}"), what);
            }
        }
    }

    fn seconds(&mut self, at: impl fmt::Display, seconds: f64) -> Duration {
        Duration::try_from_secs_f64(seconds).unwrap_or_else(|_| {
            self.fault(
                at,
                format_args!("{seconds:e}; a time is a number of seconds from 0 to 1.8e19"),
            );
            Duration::ZERO
        })
    }

    fn bandwidth(&mut self, at: impl fmt::Display, bytes_per_sec: f64) {
        if !MEASURES.contains(&bytes_per_sec) {
            let what = format!("{bytes_per_sec}; a bandwidth is a number from 1e-6 to 1e18");
            self.fault(at, what);
        }
    }

    fn job(&mut self, at: String, job: JobInput) {
        let JobInput { name, group, priority, computing_rate, arrived, .. } = job;
        let JobInput { waited_seconds, offers, level, tasks, .. } = job;
        self.name(format_args!("{at}.name"), &name);
        let id = JobId(self.cluster.jobs.len());
        if self.jobs.insert(name.clone(), id).is_some() {
            self.fault(format_args!("{at}.name"), format_args!("{name:?} is there already"));
        }
        let group = self.group(format_args!("{at}.group"), group);
        if let Some(rate) = computing_rate.filter(|rate| !(0.0..=1.0).contains(rate)) {
            let what = format!("{rate}; a computing rate is a number from 0 to 1");
            self.fault(format_args!("{at}.computing_rate"), what);
        }
        let arrived = self.seconds(format_args!("{at}.arrived"), arrived);
        let waited = self.seconds(format_args!("{at}.waited_seconds"), waited_seconds);
        let priority = Priority(priority);
        let rate = computing_rate.map(Share::clamped);
        let passed = PassedOver { waited, offers, level };
        let known = Job { rate, passed, ..Job::new(name, group, priority, arrived) };
        self.cluster.jobs.push(known);
        let mut names = BTreeMap::new();
        for (index, task) in tasks.into_iter().enumerate() {
            let at = format!("{at}.tasks[{index}]");
            if let Some(first) = names.insert(task.name.clone(), index) {
                let what = format!("{:?} is the name of tasks[{first}] already", task.name);
                self.fault(format_args!("{at}.name"), what);
            }
            self.task(&at, id, task);
        }
    }

    fn task(&mut self, at: &str, job: JobId, task: TaskInput) {
        let TaskInput { name, kind, bytes, replicas: names, demand, running } = task;
        self.name(format_args!("{at}.name"), &name);
        if names.len() > MOST_REPLICAS {
            let what = format!("{} nodes; at most {MOST_REPLICAS} are possible", names.len());
            return self.fault(format_args!("{at}.replicas"), what);
        }
        let mut replicas: Vec<NodeId> = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            let at = format!("{at}.replicas[{index}]");
            match self.node(&at, name) {
                Some(node) if replicas.contains(&node) => {
                    self.fault(at, format_args!("{name:?} is there already"));
                }
                Some(node) => replicas.push(node),
                None => {}
            }
        }
        self.resources(&format!("{at}.demand"), demand);
        let remaining = running.as_ref().and_then(|running| running.remaining_seconds);
        let remaining = remaining
            .map(|left| self.seconds(format_args!("{at}.running.remaining_seconds"), left));
        let id = TaskId(self.cluster.tasks.len());
        let state = State::Waiting;
        let task = Task { name, job, kind, bytes, replicas, demand, remaining, state };
        self.cluster.tasks.push(task);
        self.cluster.jobs[job.0].tasks.push(id);
        *self.cluster.count(kind) += 1;
        let Some(running) = running else { return self.cluster.list(id) };
        let at = format!("{at}.running");
        let Some(node) = self.node(format_args!("{at}.node"), &running.node) else { return };
        if self.cluster[node].free(running.tier) == 0 {
            let what = format!("more {} tasks than slots on {}", running.tier, running.node);
            self.fault(format_args!("{at}.tier"), what);
        }
        self.cluster.seat(id, node, running.tier, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(json: &str) -> Vec<String> {
        let faults = parse(json.as_bytes()).unwrap_err();
        faults.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_fault_is_named_at_once() {
        let found = faults(
            r#"{
              "nodes": [
                {"name": "a", "slots": {"active": 10001}, "capacity": {"cpus": -1}},
                {"name": "a", "slots": {}},
                {"name": "", "slots": {}}
              ],
              "network": {
                "within_rack_bytes_per_sec": 0,
                "between_racks_bytes_per_sec": -1,
                "pairs": [
                  {"from": "a", "to": "x", "bytes_per_sec": 1},
                  {"from": "a", "to": "a", "bytes_per_sec": 1},
                  {"from": "a", "to": "a", "bytes_per_sec": 1}
                ]
              },
              "groups": [
                {"name": "g", "weight": 0}, {"name": "g", "weight": 1e300},
                {"name": "h", "weight": 2, "parent": "x"},
                {"name": "k", "weight": 1, "parent": "l"}, {"name": "l", "weight": 1, "parent": "k"}
              ],
              "jobs": [
                {"name": "j", "group": "i", "arrived": -1, "tasks": [
                  {"name": "t", "replicas": ["x", "a", "a"], "demand": {"disk_bytes": 1e19}},
                  {"name": "t", "running": {"node": "y"}},
                  {"name": "u", "running": {"node": "a", "tier": "passive"}}
                ]},
                {"name": "j", "tasks": []},
                {"name": "m", "group": "k", "computing_rate": 1.5, "waited_seconds": -1, "tasks": []}
              ]
            }"#,
        );
        let expected = [
            "nodes[0].slots.active: 10001 slots",
            "nodes[0].capacity.cpus: -1",
            "nodes[1].name: \"a\" is there already",
            "nodes[2].name: ",
            "groups[0].weight: 0;",
            "groups[1].weight: 1000",
            "groups[1].name: \"g\" is there already",
            "groups[2].parent: \"x\" is not among the groups",
            "groups[3].parent: below itself",
            "groups[4].parent: below itself",
            "network.within_rack_bytes_per_sec: 0",
            "network.between_racks_bytes_per_sec: -1",
            "network.pairs[0].to: \"x\" is not among the nodes",
            "network.pairs[2]: a to a is there already",
            "jobs[0].group: \"i\" is not among the groups",
            "jobs[0].arrived: -1",
            "jobs[0].tasks[0].replicas[0]: \"x\" is not among the nodes",
            "jobs[0].tasks[0].replicas[2]: \"a\" is there already",
            "jobs[0].tasks[0].demand.disk_bytes: 1",
            "jobs[0].tasks[1].name: \"t\" is the name of tasks[0] already",
            "jobs[0].tasks[1].running.node: \"y\" is not among the nodes",
            "jobs[0].tasks[2].running.tier: more passive tasks than slots on a",
            "jobs[1].name: \"j\" is there already",
            "jobs[1].group: missing",
            "jobs[2].group: \"k\" has groups below it",
            "jobs[2].computing_rate: 1.5",
            "jobs[2].waited_seconds: -1",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} is not {expected}");
        }
    }

    #[test]
    fn a_cluster_without_nodes_is_none() {
        assert_eq!(faults("{\"nodes\": []}"), ["nodes: there is none; name at least one"]);
    }

    #[test]
    fn numbers_that_json_cannot_say_are_refused_too() {
        let network = NetworkInput {
            within_rack_bytes_per_sec: f64::NAN,
            between_racks_bytes_per_sec: f64::INFINITY,
            pairs: Vec::new(),
        };
        let nodes = vec![NodeInput {
            name: "a".into(),
            rack: String::new(),
            slots: Default::default(),
            capacity: None,
        }];
        let input = ClusterInput { nodes, network: Some(network), ..ClusterInput::default() };
        assert_eq!(check(input).unwrap_err().0.len(), 2);
    }
}
