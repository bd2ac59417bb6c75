//! One decision for a moment that is drawn at random, many times: how lsap-sched was measured (Guo,
//! Fox, Zhou, MapReduce'12, section 5).
//!
//! So many slots are free, the others are taken by tasks without input; the waiting tasks have their
//! input somewhere. The policy is asked about all nodes, again and again until it starts nothing more.
//! Where costs vary, each pair of racks, and each rack, has its cost for an input, drawn from a normal
//! distribution, and not less than a twentieth of its mean.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::placement::cluster::{Cluster, GroupId, JobId, NodeId};
use crate::placement::groups::{Groups, unfairness};
use crate::placement::input::{Kind, NetworkInput, PairInput};
use crate::placement::live::{NewJob, NewTask};
use crate::placement::resources::Resources;
use crate::placement::turn::Turn;
use lrs_core::model::{Priority, Tier};
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Normal};
use rand_pcg::Pcg64Mcg;

use crate::simulation::Clock;
use crate::simulation::figures::Figures;
use crate::simulation::run::Refused;
use crate::simulation::scenario::{Once, Scenario};
use crate::simulation::workload::{Workload, random};

/// Size of an input: a pair of nodes moves it in as many seconds as the pair costs.
const BYTES: u64 = 1 << 27;

/// Decides all rounds of a case; `done` hears of the rounds.
///
/// # Errors
/// With what is wrong in the scenario.
pub fn decide(
    scenario: &Scenario,
    once: Once,
    clock: Clock,
    done: &dyn Fn(u64),
) -> Result<Figures, Refused> {
    let faults = scenario.check();
    if !faults.is_empty() {
        return Err(Refused::Faults(faults));
    }
    let mut figures = Figures::default();
    for round in 0..scenario.rounds {
        let seed = scenario.seed.wrapping_add(round);
        let mut rng = random(seed, 5, 0);
        let mut cluster =
            scenario.cluster(Some(network(scenario, once, &mut rng))).map_err(Refused::Faults)?;
        let (mut policy, _) = scenario.policy(&cluster).map_err(Refused::Faults)?;
        let nodes: Vec<NodeId> = cluster.nodes().collect();
        let jobs = jobs(&mut cluster);
        let free = occupy(scenario, once, &mut cluster, &jobs, &mut rng);
        let waiting = if once.waiting > 0 { once.waiting } else { free };
        let workload = Workload::new(scenario, seed, &cluster);
        for _ in 0..waiting {
            let job = jobs[rng.random_range(0..jobs.len())];
            let replicas = workload.replicas(&mut rng);
            cluster.submit(job, task(BYTES, replicas));
        }
        loop {
            let before = clock();
            let mut turn = Turn::new(&mut cluster, Duration::ZERO);
            policy.assign(&nodes, &mut turn);
            let (choices, warnings) = turn.into_outcome();
            figures.decide(clock().saturating_sub(before));
            figures.warn(warnings.into_iter());
            for choice in &choices {
                let seconds = choice.transfer_seconds.unwrap_or(0.0);
                figures.start("", Some(choice.locality), seconds);
            }
            if choices.is_empty() {
                break;
            }
        }
        if let Some(distance) = unfairness(&Groups::of(&cluster)) {
            figures.unfair(distance);
        }
        figures.round(Duration::ZERO, cluster.slots());
        done(round + 1);
    }
    Ok(figures)
}

/// A job for each group.
fn jobs(cluster: &mut Cluster) -> Vec<JobId> {
    let groups: Vec<GroupId> = cluster.groups().collect();
    let new = |group| {
        let (priority, rate, arrived) = (Priority(0), None, Duration::ZERO);
        cluster.arrive(NewJob { name: String::new(), group, priority, rate, arrived })
    };
    groups.into_iter().map(new).collect()
}

fn task(bytes: u64, replicas: Vec<NodeId>) -> NewTask {
    let (name, demand) = (String::new(), Resources::default());
    NewTask { name, kind: Kind::Map, bytes, replicas, demand }
}

/// Takes the slots that are not free, for tasks of any job; says how many are.
fn occupy(
    scenario: &Scenario,
    once: Once,
    cluster: &mut Cluster,
    jobs: &[JobId],
    rng: &mut Pcg64Mcg,
) -> usize {
    let slots = scenario.slots();
    let of_node = [(Tier::Active, slots.active), (Tier::Passive, slots.passive)];
    let mut all: Vec<(NodeId, Tier)> = cluster
        .nodes()
        .flat_map(|node| {
            of_node
                .into_iter()
                .flat_map(move |(tier, count)| std::iter::repeat_n((node, tier), count as usize))
        })
        .collect();
    all.shuffle(rng);
    let free = (all.len() as f64 * once.idle).round() as usize;
    for (node, tier) in all.into_iter().skip(free) {
        let job = jobs[rng.random_range(0..jobs.len())];
        if let Some(task) = cluster.submit(job, task(0, Vec::new())) {
            cluster.start(task, node, tier, Duration::ZERO);
        }
    }
    free
}

/// What an input costs between each pair of nodes.
fn network(scenario: &Scenario, once: Once, rng: &mut Pcg64Mcg) -> NetworkInput {
    let bytes_per_sec = |cost: f64| BYTES as f64 / cost;
    let mut pairs = Vec::new();
    if once.within_rack[1] > 0.0 || once.between_racks[1] > 0.0 {
        let racks = scenario.nodes.racks.max(1);
        let mut draw = |[mean, deviation]: [f64; 2]| {
            let drawn = Normal::new(mean, deviation).map_or(mean, |normal| normal.sample(rng));
            drawn.max(mean / 20.0)
        };
        // The lower number first.
        let costs: BTreeMap<(usize, usize), f64> = (0..racks)
            .flat_map(|to| (0..=to).map(move |from| (from, to)))
            .map(|(from, to)| {
                let of = if from == to { once.within_rack } else { once.between_racks };
                ((from, to), draw(of))
            })
            .collect();
        let nodes = 0..scenario.nodes.count;
        for (from, to) in nodes.clone().flat_map(|from| nodes.clone().map(move |to| (from, to))) {
            if from != to {
                let (one, other) = (from % racks, to % racks);
                let bytes_per_sec = Some(bytes_per_sec(costs[&(one.min(other), one.max(other))]));
                let (from, to) = (format!("n{from}"), format!("n{to}"));
                pairs.push(PairInput { from, to, bytes_per_sec });
            }
        }
    }
    NetworkInput {
        within_rack_bytes_per_sec: bytes_per_sec(once.within_rack[0]),
        between_racks_bytes_per_sec: bytes_per_sec(once.between_racks[0]),
        pairs,
    }
}
