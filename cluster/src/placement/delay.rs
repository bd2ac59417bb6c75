//! Delay scheduling (Zaharia et al., "Delay scheduling: a simple technique for achieving locality and
//! fairness in cluster scheduling", EuroSys 2010, sections 3 and 4).
//!
//! A free slot goes to the job that is next by [`crate::placement::groups`]. If that job has no map with
//! its input near enough, it is passed over and the next job is asked; once it was passed over long
//! enough, it takes what it gets:
//!
//! - [`Patience::Skips`], the simple form (Alg. 2): after that many skips a job may start anywhere; a
//!   start at its input sets the count back to 0;
//! - [`Patience::Waits`], the form for racks (Alg. 3): after the first wait a job may start in a rack with
//!   its input, after the second anywhere. It stays at that level, until a start nearer to its input lowers
//!   it again. A wait is the time since the job was first passed over after its last start of a map, so
//!   that it ends with the first slot that is free after both waits, however rarely slots are freed (4.1:
//!   "within a predictable time"). The listing adds up the times from a heartbeat that passes the job over
//!   to the next one instead, of any node: on N nodes an Nth of a period for each free slot, which is no
//!   bound in seconds;
//! - [`Patience::Offers`], the same counted in slots that pass, as YARN's Capacity scheduler does
//!   (`node-locality-delay`).
//!
//! Reduces are not delayed (4.1). A group below its minimum gives up locality: its jobs take any slot, as
//! in Hadoop's Fair Scheduler those of a starved pool do. Ours: each free slot of a heartbeat is one of its
//! own.
//!
//! [`skips_for`] is the analysis of section 3.5. It has a job wait anew for each task; the simple form
//! does not after a start elsewhere, and so misses up to half as often again: 93 % local where 95 % are
//! wanted, 70 where 80 (`tests`).

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::placement::cluster::{Cluster, JobId, Locality, NodeId, TaskId};
use crate::placement::groups::Groups;
use crate::placement::input::Kind;
use crate::placement::turn::{PassedOver, Policy, Reason, Turn};

/// How long a job waits for a slot near its input.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Patience {
    /// In slots that it lets pass, for its node and not for its rack.
    Skips(u64),
    /// In time.
    Waits {
        /// For a node that holds the input (W1).
        node: Duration,
        /// After that, for a rack that holds it (W2).
        rack: Duration,
    },
    /// In slots that it lets pass.
    Offers {
        /// For a node that holds the input.
        node: u64,
        /// After that, for a rack that holds it.
        rack: u64,
    },
}

impl Patience {
    /// The waits of the source's example (section 4.1): ten seconds each.
    pub const WAITS: Patience =
        Patience::Waits { node: Duration::from_secs(10), rack: Duration::from_secs(10) };

    /// The skips with which a job of 20 tasks with three replicas, the source's example, starts 95 %
    /// of them at their input on this cluster.
    pub fn skips(cluster: &Cluster) -> Patience {
        // Never without an answer for these figures.
        Patience::Skips(skips_for(0.95, 20, cluster.nodes().count(), 3).unwrap_or(u64::MAX))
    }

    /// As many slots as there are nodes, twice: what YARN's documentation advises for a node.
    pub fn offers(cluster: &Cluster) -> Patience {
        let nodes = cluster.nodes().count() as u64;
        Patience::Offers { node: nodes, rack: nodes }
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Delay {
    patience: Patience,
    jobs: BTreeMap<JobId, Passed>,
}

/// How a job was passed over since it last started a map.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Passed {
    #[serde(with = "crate::placement::passed")]
    before: PassedOver,
    /// Since when it waits, beyond what was before.
    since: Option<Duration>,
}

impl Passed {
    fn at(&self, now: Duration) -> PassedOver {
        let more = self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        PassedOver { waited: self.before.waited.saturating_add(more), ..self.before }
    }
}

impl Delay {
    /// No job has waited yet, but for what the input says.
    pub fn new(patience: Patience) -> Delay {
        Delay { patience, jobs: BTreeMap::new() }
    }

    fn passed(&mut self, turn: &Turn<'_>, job: JobId) -> &mut Passed {
        self.jobs.entry(job).or_insert_with(|| {
            let before = turn.cluster()[job].passed;
            let waits = !before.waited.is_zero();
            Passed { before, since: waits.then(|| turn.now()) }
        })
    }

    /// How far from its input a job may start now.
    fn limit(&self, passed: PassedOver) -> Locality {
        let PassedOver { level, waited, offers } = passed;
        match self.patience {
            Patience::Skips(most) if offers >= most => Locality::Remote,
            Patience::Skips(_) => Locality::Node,
            Patience::Waits { node, rack } => {
                reached(level, waited, [node, rack, node.saturating_add(rack)])
            }
            Patience::Offers { node, rack } => {
                reached(level, offers, [node, rack, node.saturating_add(rack)])
            }
        }
    }

    /// The task for a free slot of `node`: of the first job in turn that may start here.
    fn next(&mut self, node: NodeId, turn: &mut Turn<'_>) -> Option<(TaskId, Locality)> {
        let now = turn.now();
        let groups = Groups::of(turn.cluster());
        for job in groups.order(turn.cluster()) {
            let passed = self.passed(turn, job).at(now);
            let cluster = turn.cluster();
            let starved = groups.is_below_minimum(cluster, cluster[job].group);
            let limit = if starved { Locality::Remote } else { self.limit(passed) };
            let task = [Kind::Map, Kind::Reduce]
                .into_iter()
                .find_map(|kind| cluster.first(job, kind, node, limit));
            let Some(task) = task else {
                let passed = self.passed(turn, job);
                passed.before.offers = passed.before.offers.saturating_add(1);
                passed.since.get_or_insert(now);
                turn.hold(job, Reason::WaitsForInput(limit));
                continue;
            };
            let locality = cluster.locality(task, node);
            // Map and reduce slots are assigned independently (section 4.1).
            let is_map = cluster[task].kind == Kind::Map;
            let goes_on = matches!(self.patience, Patience::Skips(_)) && locality != Locality::Node;
            if is_map && !goes_on {
                // Only a wait opens a level; without one a start can close it.
                let level = if starved { locality.min(passed.level) } else { locality };
                let before = PassedOver { level, ..PassedOver::default() };
                self.jobs.insert(job, Passed { before, since: None });
            }
            return Some((task, locality));
        }
        None
    }
}

/// How far a job at `level` may start that has waited so long, with what it has to wait for its node,
/// its rack and both.
fn reached<T: PartialOrd>(level: Locality, waited: T, [node, rack, both]: [T; 3]) -> Locality {
    match level {
        Locality::Node if waited >= both => Locality::Remote,
        Locality::Node if waited >= node => Locality::Rack,
        Locality::Rack if waited >= rack => Locality::Remote,
        level => level,
    }
}

impl Policy for Delay {
    fn assign(&mut self, nodes: &[NodeId], turn: &mut Turn<'_>) {
        for node in nodes {
            while let Some(tier) = turn.cluster()[*node].next_free() {
                let Some((task, locality)) = self.next(*node, turn) else { break };
                let reason = match locality {
                    Locality::Node => Reason::DueAtInput,
                    Locality::Rack | Locality::Remote => Reason::WaitedLongEnough,
                };
                turn.start(task, *node, tier, reason);
            }
        }
    }

    fn passed_over(&self, turn: &Turn<'_>, job: JobId) -> Option<PassedOver> {
        let known = self.jobs.get(&job).map(|passed| passed.at(turn.now()));
        Some(known.unwrap_or(turn.cluster()[job].passed))
    }

    fn save(&self) -> Value {
        let jobs: Vec<(JobId, Passed)> = self.jobs.iter().map(|(job, of)| (*job, *of)).collect();
        // The patience may follow from a number of nodes that has changed. Numbers and names have no fault.
        serde_json::to_value((self.patience, jobs)).unwrap_or_default()
    }

    fn load(&mut self, state: &Value) -> Result<(), String> {
        let (patience, jobs): (Patience, Vec<(JobId, Passed)>) =
            Deserialize::deserialize(state).map_err(|error| error.to_string())?;
        (self.patience, self.jobs) = (patience, jobs.into_iter().collect());
        Ok(())
    }

    fn forget(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }
}

/// The skips with which a job of `tasks` tasks, each with `replicas` replicas, starts the share
/// `locality` of them at their input on a cluster of `nodes` nodes (section 3.5):
/// `D >= -(M / R) ln((1 - l) N / (1 + (1 - l) N))`.
///
/// The wait is then at most `D T / (L M)` for each task, with L slots a node and tasks of length T.
/// `None` for a locality of 1 or more, which no number of skips gives, and without replicas.
pub fn skips_for(locality: f64, tasks: u32, nodes: usize, replicas: u32) -> Option<u64> {
    let missed = (1.0 - locality) * f64::from(tasks);
    let skips = -(nodes as f64 / f64::from(replicas)) * (missed / (1.0 + missed)).ln();
    (skips.is_finite() && skips >= 0.0).then_some(skips.ceil() as u64)
}
