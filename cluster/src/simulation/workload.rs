//! Jobs and their tasks, drawn from a seed when they arrive.
//!
//! Nothing is kept of a job before it arrives, so a million tasks cost what waits and runs of them.
//! Each job has random numbers of its own (PCG, which is the same on every machine and in every
//! version), drawn in the same order whatever the policy does.

use std::time::Duration;

use crate::placement::cluster::{Cluster, GroupId, NodeId, RackId};
use crate::placement::input::Kind;
use crate::placement::live::NewTask;
use lrs_core::units::Share;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp, LogNormal};
use rand_pcg::Pcg64Mcg;

use crate::simulation::scenario::{Class, Placement, Scenario, Work};

/// What a task has to do, in seconds alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Todo {
    /// Computing.
    pub cpu: f32,
    /// Waiting for a disk.
    pub disk: f32,
}

impl Todo {
    /// Both.
    pub fn seconds(self) -> f64 {
        f64::from(self.cpu) + f64::from(self.disk)
    }
}

/// A job that arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// Its number, from 0 on.
    pub serial: u64,
    /// Its class.
    pub class: usize,
    /// Its group.
    pub group: GroupId,
    /// When.
    pub at: Duration,
    /// The rate that it comes with, right or wrong.
    pub hint: Option<Share>,
}

/// The jobs of a round, one after the other.
#[derive(Clone, Debug)]
pub struct Workload<'a> {
    scenario: &'a Scenario,
    seed: u64,
    rng: Pcg64Mcg,
    /// Classes of the jobs of this repetition that have not come, the next one last.
    left: Vec<usize>,
    repeats: u64,
    serial: u64,
    at: Duration,
    groups: Vec<Option<GroupId>>,
    racks: Vec<(RackId, Vec<NodeId>)>,
    nodes: Vec<NodeId>,
    turn: usize,
}

/// Random numbers of a thing: a job, a node, the arrivals.
pub(crate) fn random(seed: u64, stream: u64, of: u64) -> Pcg64Mcg {
    // Odd multipliers spread neighbours over the seeds; PCG mixes its seed no further.
    let mixed = seed
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(stream.wrapping_mul(0xbf58_476d_1ce4_e5b9))
        .wrapping_add(of.wrapping_mul(0x94d0_49bb_1331_11eb));
    let mut rng = Pcg64Mcg::seed_from_u64(mixed);
    let _: u64 = rng.random();
    rng
}

/// An exponentially distributed time; none for a mean of 0.
pub(crate) fn exponential(rng: &mut Pcg64Mcg, mean: f64) -> Duration {
    // The mean is checked, so the rate is above 0.
    let seconds = Exp::new(1.0 / mean).map_or(0.0, |exp| exp.sample(rng));
    Duration::from_secs_f64(if mean > 0.0 { seconds.min(1e12) } else { 0.0 })
}

/// A factor with a mean of 1.
pub(crate) fn spread(rng: &mut Pcg64Mcg, sigma: f64) -> f64 {
    if sigma <= 0.0 {
        return 1.0;
    }
    LogNormal::new(-sigma * sigma / 2.0, sigma).map_or(1.0, |factor| factor.sample(rng))
}

impl<'a> Workload<'a> {
    /// The jobs of the round with this seed.
    pub fn new(scenario: &'a Scenario, seed: u64, cluster: &Cluster) -> Workload<'a> {
        let named = |class: &Class| {
            cluster.groups().find(|group| Some(&cluster[*group].name) == class.group.as_ref())
        };
        let mut racks: Vec<(RackId, Vec<NodeId>)> = Vec::new();
        for node in cluster.nodes() {
            let rack = cluster[node].rack;
            match racks.iter_mut().find(|(of, _)| *of == rack) {
                Some((_, nodes)) => nodes.push(node),
                None => racks.push((rack, vec![node])),
            }
        }
        Workload {
            scenario,
            seed,
            rng: random(seed, 1, 0),
            left: Vec::new(),
            repeats: scenario.arrivals.repeat,
            serial: 0,
            at: Duration::ZERO,
            groups: scenario.jobs().iter().map(named).collect(),
            racks,
            nodes: cluster.nodes().collect(),
            turn: 0,
        }
    }

    /// The next job; none: all have come.
    pub fn next(&mut self, cluster: &Cluster) -> Option<Arrival> {
        if self.left.is_empty() && self.repeats > 0 {
            self.repeats -= 1;
            let mut classes: Vec<(usize, &Class)> =
                self.scenario.jobs().iter().enumerate().collect();
            let at = |class: &Class| class.at_seconds.unwrap_or(0.0);
            classes.sort_by(|(_, one), (_, other)| at(one).total_cmp(&at(other)));
            self.left = classes
                .into_iter()
                .rev()
                .flat_map(|(index, class)| std::iter::repeat_n(index, class.jobs as usize))
                .collect();
            let timed = self.scenario.jobs().iter().any(|class| class.at_seconds.is_some());
            if !self.scenario.arrivals.in_order && !timed {
                self.left.shuffle(&mut self.rng);
            }
        }
        let class = self.left.pop()?;
        if let Some(at) = self.scenario.jobs()[class].at_seconds {
            self.at = Duration::from_secs_f64(at);
        } else if self.serial > 0 {
            self.at += exponential(&mut self.rng, self.scenario.arrivals.mean_seconds);
        }
        let group = self.groups[class].or_else(|| {
            self.turn += 1;
            cluster.groups().nth((self.turn - 1) % cluster.groups().count().max(1))
        })?;
        self.serial += 1;
        let (serial, at) = (self.serial - 1, self.at);
        Some(Arrival { serial, class, group, at, hint: self.hint(serial, class) })
    }

    fn hint(&self, serial: u64, class: usize) -> Option<Share> {
        let wrong = self.scenario.hints_wrong?;
        let rate = self.scenario.jobs()[class].rate();
        let is_wrong = random(self.seed, 7, serial).random::<f64>() < wrong;
        Some(Share::clamped(if is_wrong { 1.0 - rate } else { rate }))
    }

    /// The tasks of one kind of a job.
    pub fn tasks(&self, arrival: &Arrival, kind: Kind) -> Vec<(NewTask, Todo)> {
        let class = &self.scenario.jobs()[arrival.class];
        let (count, work, stream) = match kind {
            Kind::Map => (class.maps, class.map, 2),
            Kind::Reduce => (class.reduces, class.reduce, 3),
        };
        let mut rng = random(self.seed, stream, arrival.serial);
        (0..count).map(|_| self.task(&mut rng, kind, work)).collect()
    }

    fn task(&self, rng: &mut Pcg64Mcg, kind: Kind, work: Work) -> (NewTask, Todo) {
        let replicas = if work.bytes > 0 { self.replicas(rng) } else { Vec::new() };
        let mut seconds = work.seconds * spread(rng, work.spread);
        if rng.random::<f64>() < self.scenario.stragglers.share {
            seconds *= self.scenario.stragglers.factor;
        }
        let cpu = seconds * work.computing;
        let todo = Todo { cpu: cpu as f32, disk: (seconds - cpu) as f32 };
        (
            NewTask { name: String::new(), kind, bytes: work.bytes, replicas, demand: work.demand },
            todo,
        )
    }

    /// The nodes that hold an input, each once.
    pub(crate) fn replicas(&self, rng: &mut Pcg64Mcg) -> Vec<NodeId> {
        let wanted = self.scenario.replicas as usize;
        let mut found: Vec<NodeId> = Vec::with_capacity(wanted);
        let racks = self.scenario.placement == Placement::Racks && self.racks.len() > 1;
        let mut home = None;
        while found.len() < wanted {
            let pool = match (racks, found.len()) {
                (true, 1) => {
                    let other = (0..self.racks.len()).filter(|rack| Some(*rack) != home);
                    let other: Vec<usize> = other.collect();
                    let rack = other[rng.random_range(0..other.len())];
                    home = Some(rack);
                    &self.racks[rack].1
                }
                (true, 2) => home.map_or(&self.nodes, |rack| &self.racks[rack].1),
                _ => &self.nodes,
            };
            let node = pool[rng.random_range(0..pool.len())];
            if found.is_empty() {
                // Nodes take turns in the racks.
                home = Some(node.number() % self.racks.len());
            }
            if !found.contains(&node) {
                found.push(node);
            } else if pool.iter().all(|node| found.contains(node)) {
                // A rack of so few nodes has no other.
                home = None;
            }
        }
        found
    }
}
