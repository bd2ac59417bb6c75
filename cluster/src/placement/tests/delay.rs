//! Delay scheduling, shares of pools, preemption.

use super::*;
use crate::placement::delay::{Delay, Patience, skips_for};
use crate::placement::preempt::Preemption;

#[test]
fn a_job_waits_for_its_node_then_for_its_rack_then_takes_what_it_gets() {
    let run = |waited_seconds| {
        let waits = JobInput { waited_seconds, ..job("j", 0, &[("m0", "a")]) };
        let mut input = two_racks(vec![waits]);
        input.nodes[0].slots.active = 0;
        input.nodes[1].slots.active = u32::from(waited_seconds < 15.0);
        planned("delay", &check(input).unwrap())
    };
    assert_eq!(run(0.0).waiting[0].reason, "waits for a slot on a node with its input");
    assert_eq!(run(10.0).assigned[0].locality, Locality::Rack);
    assert_eq!(run(15.0).waiting[0].reason, "waits for a slot in a rack with its input");
    assert_eq!(run(20.0).assigned[0].locality, Locality::Remote);
}

#[test]
fn while_one_job_waits_the_next_takes_the_slot() {
    let jobs = vec![job("j", 0, &[("m0", "b")]), job("k", 0, &[("m0", "a")])];
    assert_eq!(starts("delay", &cluster(&[(1, 0), (0, 0)], jobs)), ["k/m0@a+"]);
}

/// One job of `wanted` tasks ahead of much work without input, on nodes of one slot that become free
/// in random order: its share of starts at its input, and the slots that were given until its last
/// start. `anew`: it waits again after a start elsewhere.
fn delayed(seed: u64, skips: u64, wanted: usize, replicas: usize, anew: bool) -> (f64, usize) {
    let count = 100;
    let mut random = fastrand::Rng::with_seed(seed);
    let slots = SlotsInput { active: 1, passive: 0 };
    let nodes = (0..count).map(|n| NodeInput {
        name: n.to_string(),
        rack: String::new(),
        slots,
        capacity: None,
    });
    let mut first = job("first", 1, &[]);
    for n in 0..wanted {
        let on = random.choose_multiple(0..count, replicas).iter().map(usize::to_string).collect();
        first.tasks.push(TaskInput { replicas: on, ..task(&format!("m{n}"), "") });
    }
    let mut rest = job("rest", 0, &[]);
    let running = |n: usize| on(&n.to_string());
    rest.tasks = (0..count + wanted * (skips as usize + 2))
        .map(|n| TaskInput {
            running: (n < count).then(|| running(n)),
            ..task(&format!("m{n}"), "")
        })
        .collect();
    // the order of the queue decides, so that the first job is always at its head
    let only = GroupInput { order: Order::Fifo, ..group("only", 1.0) };
    let jobs = [first, rest].map(|job| JobInput { group: Some("only".into()), ..job }).to_vec();
    let input = ClusterInput {
        nodes: nodes.collect(),
        groups: vec![only],
        jobs,
        ..ClusterInput::default()
    };
    let mut cluster = check(input).unwrap();
    let job = cluster.jobs().next().unwrap();
    let mut delay = Delay::new(Patience::Skips(skips));
    let (mut local, mut given) = (0, 0);
    while cluster[job].waiting_tasks() > 0 {
        let node = cluster.nodes().nth(random.usize(0..count)).unwrap();
        let ended = cluster[node].running().next().unwrap();
        cluster.finish(ended);
        let mut turn = Turn::new(&mut cluster, Duration::from_secs(given as u64));
        delay.assign(&[node], &mut turn);
        let of_first = turn.choices.iter().find(|one| turn.cluster()[one.task].job == job);
        match of_first.map(|one| one.locality) {
            Some(Locality::Node) => local += 1,
            Some(_) if anew => delay = Delay::new(Patience::Skips(skips)),
            _ => {}
        }
        given += 1;
    }
    (local as f64 / wanted as f64, given)
}

#[test]
fn the_bound_of_delay_scheduling_holds() {
    // section 3.5: l = 0.95, N = 20, R = 3 gives D = 0.23 M
    assert_eq!(skips_for(0.95, 20, 1000, 3), Some(232));
    assert_eq!((skips_for(1.0, 20, 1000, 3), skips_for(0.9, 20, 1000, 0)), (None, None));
    // The analysis has the job wait for each task. Alg. 2 does not after a start elsewhere: 70 % of
    // 20 tasks are local where 80 % were wanted, and 93 % for 95 %.
    let cases = [(0.95, 20, 3), (0.8, 20, 3), (0.9, 5, 2), (0.9, 60, 3)];
    for (anew, misses, cases) in [(true, 1.0, &cases[..]), (false, 2.0, &cases[..2])] {
        for (locality, tasks, replicas) in cases.iter().copied() {
            let skips = skips_for(locality, tasks as u32, 100, replicas as u32).unwrap();
            let most = tasks * (skips as usize + 1);
            let rounds = 40;
            let mut reached = 0.0;
            for seed in 0..rounds {
                let (local, given) = delayed(seed, skips, tasks, replicas, anew);
                assert!(given <= most, "{given} slots were given, {most} are the bound");
                reached += local / rounds as f64;
            }
            let least = 1.0 - misses * (1.0 - locality);
            assert!(reached >= least, "{reached} of {tasks} are local, not {least}");
        }
    }
}

/// Three pools on 60 slots: `a` and `b` with weights 1 and 2, and `c` of weight 3 with two below it.
fn three_pools() -> Cluster {
    let slots = SlotsInput { active: 4, passive: 2 };
    let node =
        |n: usize| NodeInput { name: n.to_string(), rack: String::new(), slots, capacity: None };
    let below = |name: &str| GroupInput { parent: Some("c".into()), ..group(name, 1.0) };
    let job = |name: &str| JobInput {
        group: Some(name.into()),
        tasks: (0..600).map(|n| task(&format!("m{n}"), "")).collect(),
        ..job(name, 0, &[])
    };
    let groups = vec![group("a", 1.0), group("b", 2.0), group("c", 3.0), below("c1"), below("c2")];
    let jobs = ["a", "b", "c1", "c2"].map(job).to_vec();
    check(ClusterInput {
        nodes: (0..10).map(node).collect(),
        groups,
        jobs,
        ..ClusterInput::default()
    })
    .unwrap()
}

#[test]
fn shares_of_pools_are_fair_within_a_slot() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut cluster = three_pools();
    let mut delay = Delay::new(Patience::WAITS);
    let nodes: Vec<_> = cluster.nodes().collect();
    for second in 0..600 {
        delay.assign(&nodes, &mut Turn::new(&mut cluster, Duration::from_secs(second)));
        let groups = Groups::of(&cluster);
        for (group, due) in cluster.groups().zip([10, 20, 30, 15, 15]) {
            let running = groups.share(group).running;
            assert!(
                running.abs_diff(due) <= 1,
                "{} runs {running}, not {due}",
                cluster[group].name
            );
        }
        let running: Vec<_> = nodes.iter().flat_map(|node| cluster[*node].running()).collect();
        cluster.finish(running[random.usize(0..running.len())]);
    }
}

#[test]
fn minimums_come_before_weights_and_are_scaled_down_when_too_many() {
    let mut input = two_racks(vec![]);
    input.groups = vec![group("a", 100.0), group("b", 1.0)];
    input.groups[1].min_slots = 3;
    input.jobs = ["a", "b"]
        .map(|name| JobInput {
            group: Some(name.into()),
            ..job(name, 0, &[("m0", ""), ("m1", ""), ("m2", ""), ("m3", "")])
        })
        .to_vec();
    let of = |input: &ClusterInput| {
        let plan = planned("delay", &check(input.clone()).unwrap());
        (plan.assigned.iter().filter(|task| task.job == "b").count(), plan.warnings)
    };
    assert_eq!(of(&input), (3, vec![]));
    input.groups[0].min_slots = 9;
    let (of_b, warnings) = of(&input);
    assert_eq!(of_b, 1, "a quarter of the minimums, a quarter of the slots");
    assert!(warnings[0].contains("add up to 12, and there are 4"), "{warnings:?}");
}

#[test]
fn what_a_group_cannot_use_goes_to_the_others() {
    let mut cluster = three_pools();
    let nodes: Vec<_> = cluster.nodes().collect();
    let fair = |cluster: &Cluster| -> Vec<f64> {
        Groups::of(cluster).fair_slots(cluster).into_iter().map(f64::round).collect()
    };
    assert_eq!(fair(&cluster), [10.0, 20.0, 30.0, 15.0, 15.0]);
    // b keeps five tasks
    let b = cluster.jobs().nth(1).unwrap();
    let mut left = 600;
    while left > 5 {
        let task = cluster[b].waiting(Kind::Map).iter().next().unwrap();
        assert!(cluster.start(task, nodes[0], Tier::Active, Duration::ZERO));
        cluster.finish(task);
        left -= 1;
    }
    assert_eq!(fair(&cluster), [14.0, 5.0, 41.0, 21.0, 21.0]);
}

#[test]
fn the_last_started_tasks_of_groups_above_their_share_are_preempted() {
    let mut cluster = three_pools();
    let nodes: Vec<_> = cluster.nodes().collect();
    // all slots to a: one a second
    let a = cluster.jobs().next().unwrap();
    for second in 0..60 {
        let task = cluster[a].waiting(Kind::Map).iter().next().unwrap();
        let node = nodes.iter().find(|node| cluster[**node].next_free().is_some()).unwrap();
        let tier = cluster[*node].next_free().unwrap();
        assert!(cluster.start(task, *node, tier, Duration::from_secs(second)));
    }
    let mut preemption = Preemption::new(Duration::from_secs(30), Duration::from_secs(60));
    let mut at = |second| preemption.choose(&cluster, Duration::from_secs(second));
    assert_eq!(at(100), [], "the clock starts with the first look");
    assert_eq!(at(160), []);
    let chosen = at(161);
    let mut last: Vec<_> = cluster.tasks().filter(|task| cluster[*task].job == a).collect();
    last.truncate(60);
    last.reverse();
    assert_eq!(chosen, last[..50], "a keeps its ten, the oldest");
}

/// A job that waits in a pool below its minimum takes any slot; with no minimum it waits for its node.
#[test]
fn a_pool_below_its_minimum_gives_up_locality() {
    let of = |min_slots| {
        let mut input = two_racks(vec![job("j", 0, &[("m0", "d"), ("m1", "d")])]);
        input.jobs[0].group = Some("g".into());
        input.groups = vec![GroupInput { min_slots, ..group("g", 1.0) }];
        input.nodes.truncate(1);
        input.nodes[0].slots.active = 2;
        input.nodes.push(NodeInput {
            name: "d".into(),
            rack: "y".into(),
            ..nodes(&[(0, 0)]).remove(0)
        });
        planned("delay", &check(input).unwrap()).assigned.len()
    };
    assert_eq!([of(0), of(1), of(2)], [0, 1, 2]);
}

#[test]
fn a_plan_says_how_long_a_job_waits_for_the_next_file() {
    let mut waits = job("j", 0, &[("m0", "d")]);
    (waits.waited_seconds, waits.offers, waits.level) = (5.0, 7, Locality::Rack);
    let mut input = two_racks(vec![waits]);
    input.nodes[2].slots.active = 0;
    input.nodes[3].slots.active = 0;
    let plan = planned("delay", &check(input).unwrap());
    let json = serde_json::to_value(&plan.waiting[0]).unwrap();
    assert_eq!((&json["waited_seconds"], &json["level"]), (&5.0.into(), &"rack".into()));
    assert_eq!(json["offers"], 9, "two nodes have a free slot");
    let plan = planned("fifo", &cluster(&[(0, 0)], vec![job("j", 0, &[("m0", "a")])]));
    assert_eq!(serde_json::to_value(&plan.waiting[0]).unwrap().get("offers"), None);
}

proptest::proptest! {
    /// Section 4.1: a job that was passed over for W1 + W2 takes the next free slot that is offered to it,
    /// and one in its rack after W1, however rarely slots are freed.
    #[test]
    fn no_job_is_passed_over_for_longer_than_both_waits(
        homes in proptest::collection::vec(proptest::collection::vec(0_usize..6, 1..9), 4),
        waits in (0_u64..30, 0_u64..30),
        events in proptest::collection::vec((0_usize..6, 0_u64..12), 1..150),
    ) {
        let jobs = homes.iter().enumerate().map(|(index, homes)| {
            let mut job = job(&format!("j{index}"), 0, &[]);
            job.group = Some(["g", "h"][index % 2].into());
            job.tasks = homes.iter().enumerate().map(|(n, home)| TaskInput {
                replicas: vec![home.to_string()],
                ..task(&format!("m{n}"), "")
            }).collect();
            job
        });
        let slots = SlotsInput { active: 1, passive: 0 };
        let node = |n: usize| NodeInput {
            name: n.to_string(), rack: (n % 3).to_string(), slots, capacity: None,
        };
        let mut cluster = check(ClusterInput {
            nodes: (0..6).map(node).collect(),
            groups: vec![group("g", 1.0), group("h", 2.0)],
            jobs: jobs.collect(),
            ..ClusterInput::default()
        }).unwrap();
        let [w1, w2] = [waits.0, waits.1].map(Duration::from_secs);
        let mut delay = Delay::new(Patience::Waits { node: w1, rack: w2 });
        let mut since = std::collections::BTreeMap::new();
        let mut now = Duration::ZERO;
        for (node, seconds) in events {
            now += Duration::from_secs(seconds);
            let node = NodeId(node);
            let ended: Vec<_> = cluster[node].running().collect();
            ended.into_iter().for_each(|task| cluster.finish(task));
            let mut turn = Turn::new(&mut cluster, now);
            delay.assign(&[node], &mut turn);
            for job in turn.held.keys() {
                let first = *since.entry(*job).or_insert(now);
                proptest::prop_assert!(now - first < w1 + w2 || w1 + w2 == Duration::ZERO);
            }
            for choice in turn.into_choices() {
                since.remove(&cluster[choice.task].job);
            }
        }
    }
}

/// A check from outside: `top` (weight 1) with `a1` (20 slots at least) and `a2` below, `b` (weight 5).
#[test]
fn a_parent_has_at_least_the_minimums_of_its_children() {
    let mut input = ClusterInput { nodes: nodes(&[(60, 0)]), ..ClusterInput::default() };
    let below = |group: GroupInput| GroupInput { parent: Some("top".into()), ..group };
    let a1 = GroupInput { min_slots: 20, ..group("a1", 1.0) };
    input.groups = vec![group("top", 1.0), below(a1), below(group("a2", 1.0)), group("b", 5.0)];
    let names: Vec<String> = (0..60).map(|number| format!("m{number}")).collect();
    let tasks: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let of =
        |name: &str, group: &str| JobInput { group: Some(group.into()), ..job(name, 0, &tasks) };
    input.jobs = vec![of("ja", "a1"), of("jb", "b")];
    let started = |plan: &Plan, job: &str| plan.assigned.iter().filter(|of| of.job == job).count();
    let plan = planned("delay", &check(input.clone()).unwrap());
    assert_eq!([started(&plan, "ja"), started(&plan, "jb")], [20, 40]);
    assert!(
        plan.warnings[0].starts_with("min_slots of the groups below top add up to 20"),
        "{plan:?}"
    );
    let fair = |input: &ClusterInput| {
        let cluster = check(input.clone()).unwrap();
        Groups::of(&cluster).fair_slots(&cluster).into_iter().map(f64::round).collect::<Vec<_>>()
    };
    assert_eq!(fair(&input), [20.0, 20.0, 0.0, 40.0]);
    // What a1 has no tasks for is not a2's.
    input.jobs[0].group = Some("a2".into());
    assert_eq!(fair(&input), [10.0, 0.0, 10.0, 50.0]);
    // Two minimums that are too many are scaled by one factor, on every level.
    input.jobs[0].group = Some("a1".into());
    input.groups[1].min_slots = 60;
    input.groups[3].min_slots = 60;
    assert_eq!(fair(&input), [30.0, 30.0, 0.0, 30.0]);
}
