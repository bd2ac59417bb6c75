//! A cluster that lives: each change, and that a restart at any moment changes no decision.

use proptest::prelude::*;
use serde_json::Value;

use crate::placement::cluster::{GroupId, JobId, State, TaskId};
use crate::placement::input::NetworkInput;
use crate::placement::live::{NewJob, NewTask};
use crate::placement::saved::{load, save};
use lrs_core::model::Priority;
use lrs_core::units::Share;

use super::*;

fn amounts(amount: f64) -> Resources {
    Resources { cpus: amount, memory_bytes: amount, disk_bytes: amount }
}

/// Four nodes in two racks, groups g and h, a network.
fn start() -> Cluster {
    let mut nodes = nodes(&[(2, 1), (1, 1), (1, 0), (2, 0)]);
    for (index, node) in nodes.iter_mut().enumerate() {
        node.rack = (index % 2).to_string();
        node.capacity = Some(amounts(4.0));
    }
    let network = NetworkInput {
        within_rack_bytes_per_sec: 100.0,
        between_racks_bytes_per_sec: 1e2 / 3.0,
        pairs: vec![],
    };
    let group = |name: &str, min_slots| GroupInput {
        name: name.into(),
        parent: None,
        weight: 1.0 + f64::from(min_slots),
        min_slots,
        order: Order::Fair,
    };
    let groups = vec![group("g", 0), group("h", 1)];
    check(ClusterInput { nodes, network: Some(network), groups, ..ClusterInput::default() })
        .unwrap()
}

fn new_task(name: &str, replicas: Vec<NodeId>, cpus: f64) -> NewTask {
    NewTask { name: name.into(), kind: Kind::Map, bytes: 1000, replicas, demand: amounts(cpus) }
}

fn new_job(group: GroupId, priority: i32, arrived: u64) -> NewJob {
    let (name, priority) = (String::new(), Priority(priority));
    NewJob { name, group, priority, rate: None, arrived: Duration::from_secs(arrived) }
}

struct World {
    entry: &'static Entry,
    cluster: Cluster,
    policy: Box<dyn Policy>,
    now: Duration,
}

fn pick<T: Copy>(all: impl Iterator<Item = T>, number: u16) -> Option<T> {
    let all: Vec<T> = all.collect();
    all.get(usize::from(number) % all.len().max(1)).copied()
}

impl World {
    fn new(entry: &'static Entry) -> World {
        let cluster = start();
        let policy = entry.policy(&cluster).unwrap();
        World { entry, cluster, policy, now: Duration::ZERO }
    }

    fn saved(&self) -> String {
        save(&self.cluster, self.entry, self.policy.as_ref()).unwrap()
    }

    fn restarted(&self) -> World {
        let (cluster, policy) = load(&self.saved(), self.entry).unwrap();
        World { entry: self.entry, cluster, policy, now: self.now }
    }

    /// What happens; what the policy starts then.
    fn step(&mut self, (kind, a, b): (u8, u16, u16)) -> String {
        let cluster = &mut self.cluster;
        let in_state = |cluster: &Cluster, waits: bool| -> Vec<TaskId> {
            let is = |state| {
                if waits { state == State::Waiting } else { matches!(state, State::Running(..)) }
            };
            cluster.tasks().filter(|task| is(cluster[*task].state())).collect()
        };
        let waiting = pick(in_state(cluster, true).into_iter(), a);
        let running = pick(in_state(cluster, false).into_iter(), a);
        let there: Vec<NodeId> = cluster.nodes().filter(|node| !cluster[*node].is_gone()).collect();
        let node = pick(there.iter().copied(), a).unwrap();
        let group = pick(cluster.groups(), b).unwrap();
        let job = pick(cluster.jobs(), a);
        let replicas = |number: u16| {
            let all = there.iter().enumerate().filter(|(index, _)| number >> index & 1 == 1);
            all.map(|(_, node)| *node).collect::<Vec<_>>()
        };
        match kind {
            0 | 1 => {
                let job = cluster.arrive(new_job(group, i32::from(a % 3), self.now.as_secs()));
                for number in 0..1 + b % 5 {
                    let mut task =
                        new_task("t", replicas(a.rotate_left(number.into())), f64::from(b % 6));
                    task.kind =
                        if a.wrapping_add(number) % 4 == 0 { Kind::Reduce } else { Kind::Map };
                    cluster.submit(job, task);
                }
            }
            2 => {
                let Some(task) = running else { return String::new() };
                cluster.finish(task);
                let job = cluster[task].job;
                cluster.learn(job, Share::clamped(f64::from(b % 10) / 9.0));
            }
            3 => running.into_iter().for_each(|task| cluster.lose(task)),
            4 => assert_eq!(waiting.is_some_and(|task| cluster.withdraw(task)), waiting.is_some()),
            5 => assert_eq!(running.is_some_and(|task| cluster.kill(task)), running.is_some()),
            6 if cluster.nodes().count() < 9 => {
                let (name, slots) = (format!("n{a}"), SlotsInput { active: 1, passive: 1 });
                let capacity = Some(amounts(f64::from(b % 6)));
                // Its name may be there.
                let _ =
                    cluster.join(NodeInput { name, rack: (b % 3).to_string(), slots, capacity });
            }
            7 if there.len() > 2 => drop(cluster.leave(node)),
            8 => assert!(cluster.drain(node, b % 2 == 0)),
            9 => job
                .into_iter()
                .for_each(|job| cluster.set_priority(job, Priority(i32::from(b % 5)))),
            10 => assert!(job.is_none_or(|job| cluster.set_group(job, group))),
            11 => waiting.into_iter().for_each(|task| cluster.move_input(task, replicas(b))),
            12 => {
                let rate = (b % 3 > 0).then_some(f64::from(b) / 7.0 + 1.0);
                assert!(cluster.set_bandwidth(node, pick(there.into_iter(), b).unwrap(), rate));
            }
            13 => cluster
                .resize(node, SlotsInput { active: u32::from(b % 3), passive: u32::from(b % 2) }),
            14 => {
                for job in cluster.jobs().collect::<Vec<JobId>>() {
                    if cluster.forget(job) {
                        self.policy.forget(job);
                    }
                }
            }
            _ => {
                self.now += Duration::from_millis(u64::from(b) % 7000);
                let nodes: Vec<NodeId> = cluster.nodes().collect();
                let mut turn = Turn::new(cluster, self.now);
                self.policy.assign(&nodes, &mut turn);
                return format!("{:?}", turn.into_choices());
            }
        }
        String::new()
    }
}

fn events() -> impl Strategy<Value = Vec<(u8, u16, u16)>> {
    prop::collection::vec((0_u8..22, any::<u16>(), any::<u16>()), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// A scheduler that was restarted between any two events decides as the one that was not; and what is
    /// found again on a restart is what was kept up to date.
    #[test]
    fn a_restart_at_any_event_changes_nothing(events in events(), cut in any::<prop::sample::Index>()) {
        for entry in POLICIES {
            let mut world = World::new(entry);
            let cut = cut.index(events.len());
            let mut other = None;
            for (index, event) in events.iter().enumerate() {
                if index == cut {
                    other = Some(world.restarted());
                }
                let started = world.step(*event);
                if let Some(other) = &mut other {
                    prop_assert_eq!(&other.step(*event), &started, "{} at {}", entry.name, index);
                }
                let again = world.restarted();
                prop_assert_eq!(format!("{:?}", again.cluster), format!("{:?}", world.cluster), "{:?}", event);
            }
            prop_assert_eq!(other.unwrap().saved(), world.saved(), "{}", entry.name);
        }
    }

    /// A saved state in which anything was changed is refused, or is another state: it ends no program.
    #[test]
    fn a_saved_state_that_was_changed_ends_no_program(events in events(), changes in prop::collection::vec((any::<u16>(), 0_u64..12), 1..4)) {
        let mut world = World::new(Entry::find("delay").unwrap());
        for event in &events {
            world.step(*event);
        }
        let mut value: Value = serde_json::from_str(&world.saved()).unwrap();
        for (place, number) in changes {
            let mut numbers = Vec::new();
            all_numbers(&mut value, &mut numbers);
            let place = usize::from(place) % numbers.len();
            *numbers.swap_remove(place) = number.into();
        }
        let Ok((mut cluster, mut policy)) = load(&value.to_string(), world.entry) else { return Ok(()) };
        let nodes: Vec<NodeId> = cluster.nodes().collect();
        policy.assign(&nodes, &mut Turn::new(&mut cluster, world.now));
    }
}

fn all_numbers<'a>(value: &'a mut Value, all: &mut Vec<&'a mut Value>) {
    match value {
        Value::Number(_) => all.push(value),
        Value::Array(items) => items.iter_mut().for_each(|item| all_numbers(item, all)),
        Value::Object(fields) => fields.values_mut().for_each(|field| all_numbers(field, all)),
        _ => {}
    }
}

/// What `fifo` starts, as `task@node`.
fn fifo(cluster: &mut Cluster) -> Vec<String> {
    let nodes: Vec<NodeId> = cluster.nodes().collect();
    let mut turn = Turn::new(cluster, Duration::ZERO);
    Entry::find("fifo").unwrap().policy(turn.cluster()).unwrap().assign(&nodes, &mut turn);
    let name = |turn: &Turn<'_>, choice: &crate::placement::turn::Choice| {
        format!("{}@{}", turn.cluster()[choice.task].name, turn.cluster()[choice.node].name)
    };
    let choices = turn.choices.clone();
    choices.iter().map(|choice| name(&turn, choice)).collect()
}

#[test]
fn each_change_is_seen_by_the_next_decision() {
    let mut cluster = start();
    let [a, b, c, d] = [0, 1, 2, 3].map(NodeId);
    let [g, h] = [0, 1].map(GroupId);
    let low = cluster.arrive(new_job(g, 0, 0));
    let high = cluster.arrive(new_job(g, 1, 0));
    let first = cluster.submit(low, new_task("low", vec![a], 1.0)).unwrap();
    let second = cluster.submit(high, new_task("high", vec![], 1.0)).unwrap();
    cluster.drain(a, true);
    cluster.drain(b, true);
    assert_eq!((cluster.slots(), cluster.free_slots()), (3, 3));
    assert!(cluster.withdraw(second) && !cluster.withdraw(second) && !cluster.kill(second));
    assert_eq!(fifo(&mut cluster), ["low@c"], "its input is on a, which drains");
    assert!(cluster.kill(first) && !cluster.kill(first));
    assert!(cluster.forget(low) && cluster.forget(high));

    let low = cluster.arrive(new_job(g, 0, 0));
    let high = cluster.arrive(new_job(g, 1, 1));
    let input = cluster.submit(low, new_task("low", vec![d], 1.0)).unwrap();
    cluster.submit(high, new_task("high", vec![], 1.0));
    cluster.set_priority(low, Priority(2));
    cluster.move_input(input, vec![c]);
    assert!(cluster.set_group(low, h));
    assert_eq!(cluster.group_of(input), h);
    assert_eq!(fifo(&mut cluster), ["low@c", "high@d"]);
    assert_eq!(cluster.leave(c), [input], "what ran there waits again");
    assert!(!cluster.drain(c, false), "it does not come back");
    assert_eq!(cluster[input].state(), State::Waiting);
    assert_eq!(fifo(&mut cluster), ["low@d"]);
}

#[test]
fn what_no_node_can_run_is_found_out_anew_with_every_change() {
    let mut cluster = start();
    let [a, b, c, d] = [0, 1, 2, 3].map(NodeId);
    let job = cluster.arrive(new_job(GroupId(0), 0, 0));
    cluster.submit(job, new_task("large", vec![], 9.0));
    assert_eq!(cluster.unfit().count(), 1);
    let node = |name: &str, cpus: f64| NodeInput {
        name: name.into(),
        rack: "0".into(),
        slots: SlotsInput { active: 1, passive: 0 },
        capacity: Some(amounts(cpus)),
    };
    assert_eq!(cluster.join(node("a", -1.0)).unwrap_err().0.len(), 4, "three amounts and the name");
    let large = cluster.join(node("e", 9.0)).unwrap();
    assert_eq!(cluster.unfit().count(), 0);
    cluster.leave(large);
    assert_eq!(cluster.unfit().count(), 1);
    assert_eq!(cluster.join(node("e", 1.0)), Ok(large), "name and number are free again");

    let near = cluster.submit(job, new_task("near", vec![a], 1.0)).unwrap();
    for to in [b, c, d, large] {
        assert!(cluster.set_bandwidth(a, to, None));
    }
    assert!(!cluster.set_bandwidth(a, b, Some(0.0)), "that is no bandwidth");
    cluster.leave(a);
    assert_eq!(cluster.unfit().count(), 2, "no way from the only replica to a node that is there");
    assert!(cluster.set_bandwidth(a, b, Some(1.0)));
    assert_eq!(cluster.unfit().count(), 1);
    assert!(cluster.may_run(near, b) && !cluster.may_run(near, c));
}

#[test]
fn a_state_of_another_kind_is_refused_with_a_sentence() {
    let world = World::new(Entry::find("delay").unwrap());
    let of =
        |text: &str, policy| load(text, Entry::find(policy).unwrap()).err().unwrap().to_string();
    let saved = world.saved();
    assert_eq!(of(&saved, "fifo"), "the saved state: is of the policy \"delay\", not of \"fifo\"");
    let later = saved.replacen("\"version\":1", "\"version\":2", 1);
    assert_eq!(of(&later, "delay"), "the saved state: is of version 2, this program reads 1");
    let renamed = saved.replacen("\"policy\":\"delay\"", "\"policy\":\"fifo\"", 1);
    assert!(of(&renamed, "fifo").starts_with("the saved policy: has a state"));
    assert!(of("{}", "delay").starts_with("the saved state: missing field"));
}

#[test]
fn a_job_that_is_forgotten_takes_no_task() {
    let mut cluster = start();
    let job = cluster.arrive(new_job(GroupId(0), 0, 0));
    assert!(cluster.forget(job));
    assert_eq!(cluster.submit(job, new_task("late", vec![], 1.0)), None);
    assert_eq!((cluster.queue().count(), cluster.tasks().count()), (0, 0));
    let next = cluster.arrive(new_job(GroupId(1), 0, 0));
    assert_eq!(next, job, "the number is used again");
    assert!(cluster.submit(next, new_task("first", vec![], 1.0)).is_some());
    assert_eq!(fifo(&mut cluster), ["first@a"]);
}

#[test]
fn a_cluster_is_as_large_as_the_nodes_that_are_there() {
    let mut cluster = start();
    let node = |name: String| NodeInput {
        name,
        rack: "0".into(),
        slots: SlotsInput { active: 1, passive: 0 },
        capacity: Some(amounts(4.0)),
    };
    let job = cluster.arrive(new_job(GroupId(0), 0, 0));
    let first = cluster.join(node("first".into())).unwrap();
    let input = cluster.submit(job, new_task("input", vec![first], 1.0)).unwrap();
    cluster.leave(first);
    for number in 0..1000 {
        let came = cluster.join(node(format!("n{number}"))).unwrap();
        assert_ne!(came, first, "a task has its input there");
        assert!(cluster.set_bandwidth(came, NodeId(0), None));
        cluster.leave(came);
    }
    assert_eq!((cluster.nodes().count(), cluster.slots()), (6, 8));
    let pairs = |cluster: &Cluster| cluster.network.as_ref().unwrap().pairs.len();
    assert_eq!(pairs(&cluster), 1, "that of the last");
    cluster.withdraw(input);
    assert_eq!(cluster.join(node("last".into())), Ok(first));
    assert_eq!(cluster.nodes().count(), 6);
}

#[test]
fn a_saved_state_is_not_believed_that_all_nodes_are_connected() {
    let mut world = World::new(Entry::find("fifo").unwrap());
    let job = world.cluster.arrive(new_job(GroupId(0), 0, 0));
    world.cluster.submit(job, new_task("near", vec![NodeId(0)], 1.0));
    for to in 1..4 {
        assert!(world.cluster.set_bandwidth(NodeId(0), NodeId(to), None));
    }
    let saved = world.saved().replacen("\"pairs\":", "\"is_cut\":false,\"pairs\":", 1);
    let (cluster, _) = load(&saved, world.entry).unwrap();
    let task = cluster.tasks().next().unwrap();
    assert!(cluster.may_run(task, NodeId(0)) && !cluster.may_run(task, NodeId(1)));
}
