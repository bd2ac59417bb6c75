//! Delay scheduling (Zaharia et al., "Delay scheduling: a simple technique for achieving locality and
//! fairness in cluster scheduling", EuroSys 2010, sections 3 and 4).
//!
//! A free slot goes to the job that is next by [`crate::placement::groups`]. If that job has no task with its
//! input near enough, it is passed over and the next job is looked at; once it was passed over long
//! enough, it takes what it gets:
//!
//! - [`Patience::Skips`], the simple form (Alg. 2): after that many skips a job may start anywhere; a
//!   start at its input sets the count back to 0;
//! - [`Patience::Waits`], the form for racks (Alg. 3): after the first wait a job may start in a rack
//!   with its input, after the second anywhere. It stays at that level, until a start nearer to its
//!   input lowers it again. The wait grows by the time between two heartbeats in which it was passed
//!   over.
//!
//! [`skips_for`] is the analysis of section 3.5. It has a job wait anew for each task; the simple form
//! does not after a start elsewhere, and so misses up to half as often again: 93 % local where 95 % are
//! wanted, 70 where 80 (`tests`).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::placement::cluster::{Cluster, JobId, Locality, NodeId, TaskId};
use crate::placement::groups::Groups;
use crate::placement::input::Kind;
use crate::placement::turn::{Policy, Reason, Turn};

/// How long a job waits for a slot near its input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Patience {
    /// In slots that it lets pass.
    Skips(u64),
    /// In time.
    Waits {
        /// For a node that holds the input (W1).
        node: Duration,
        /// After that, for a rack that holds it (W2).
        rack: Duration,
    },
}

impl Patience {
    /// The waits of the source's example (section 4.3): ten seconds each.
    pub const WAITS: Patience =
        Patience::Waits { node: Duration::from_secs(10), rack: Duration::from_secs(10) };

    /// The skips with which a job of 20 tasks with three replicas, the source's example, starts 95 %
    /// of them at their input on this cluster.
    pub fn skips(cluster: &Cluster) -> Patience {
        // Never without an answer for these figures.
        Patience::Skips(skips_for(0.95, 20, cluster.nodes().count(), 3).unwrap_or(u64::MAX))
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Delay {
    patience: Patience,
    jobs: BTreeMap<JobId, Passed>,
    /// The jobs that were passed over at the last heartbeat.
    skipped: Vec<JobId>,
    /// When that was.
    last: Option<Duration>,
}

/// How a job was passed over since it last started a task.
#[derive(Clone, Copy, Debug)]
struct Passed {
    level: Locality,
    waited: Duration,
    skips: u64,
    skipped: bool,
}

impl Delay {
    /// No job has waited yet, but for what the input says.
    pub fn new(patience: Patience) -> Delay {
        Delay { patience, jobs: BTreeMap::new(), skipped: Vec::new(), last: None }
    }

    /// Time passes for the jobs that were passed over.
    fn pass(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.last.unwrap_or(now));
        self.last = Some(now);
        for job in self.skipped.drain(..) {
            let Some(job) = self.jobs.get_mut(&job) else { continue };
            job.waited = job.waited.saturating_add(elapsed);
            job.skipped = false;
        }
    }

    fn passed(&mut self, cluster: &Cluster, job: JobId) -> &mut Passed {
        self.jobs.entry(job).or_insert(Passed {
            level: Locality::Node,
            waited: cluster[job].waited,
            skips: 0,
            skipped: false,
        })
    }

    /// How far from its input a job may start now.
    fn limit(&self, passed: Passed) -> Locality {
        match self.patience {
            Patience::Skips(most) if passed.skips >= most => Locality::Remote,
            Patience::Skips(_) => Locality::Node,
            Patience::Waits { node, rack } => match passed.level {
                Locality::Node if passed.waited >= node.saturating_add(rack) => Locality::Remote,
                Locality::Node if passed.waited >= node => Locality::Rack,
                Locality::Rack if passed.waited >= rack => Locality::Remote,
                level => level,
            },
        }
    }

    /// The task for a free slot of `node`: of the first job in turn that may start here.
    fn next(&mut self, node: NodeId, turn: &mut Turn<'_>) -> Option<(TaskId, Locality)> {
        for job in Groups::of(turn.cluster()).order(turn.cluster()) {
            let cluster = turn.cluster();
            let passed = *self.passed(cluster, job);
            let limit = self.limit(passed);
            let task = [Kind::Map, Kind::Reduce]
                .into_iter()
                .find_map(|kind| cluster[job].waiting(kind).first(node, cluster[node].rack, limit));
            let Some(task) = task else {
                let passed = self.passed(cluster, job);
                passed.skips = passed.skips.saturating_add(1);
                if !std::mem::replace(&mut passed.skipped, true) {
                    self.skipped.push(job);
                }
                turn.hold(job, Reason::WaitsForInput(limit));
                continue;
            };
            let locality = cluster.locality(task, node);
            // Map and reduce slots are assigned independently (section 4.1).
            if cluster[task].kind == Kind::Reduce {
                return Some((task, locality));
            }
            let passed = self.passed(cluster, job);
            passed.level = locality;
            passed.waited = Duration::ZERO;
            if locality == Locality::Node {
                passed.skips = 0;
            }
            return Some((task, locality));
        }
        None
    }
}

impl Policy for Delay {
    fn assign(&mut self, nodes: &[NodeId], turn: &mut Turn<'_>) {
        self.pass(turn.now());
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
