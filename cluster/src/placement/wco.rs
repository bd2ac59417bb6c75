//! WCO: jobs that compute beside jobs that read and write (thesis ch. 2, Fig. 2.5).
//!
//! For a free slot of a node:
//!
//! 1. the first job without a rate, of which nothing runs, gets one task to be measured by (sampling):
//!    the first to arrive, which the source calls random (2.4.1); its other way is static analysis;
//! 2. the first job with a rate that suits what runs on the node, by the same test that lrsd applies
//!    ([`lrs_core::colocation`]);
//! 3. where more slots are free than tasks wait, the next task of the queue: waiting gains nothing.
//!
//! Only the first jobs of the queue are looked at, those that run included ([`Wco::pool`]): so no job is
//! passed over for ever by later ones that suit better. [`crate::placement::cluster::Cluster::learn`]
//! corrects a rate with every task that ends (adjustment).

use lrs_core::colocation::{Advice, Question, Running, evaluate};
use lrs_core::units::Share;
use serde::Deserialize;

use crate::placement::cluster::{Cluster, JobId, Locality, NodeId, TaskId};
use crate::placement::fifo::first_in_queue;
use crate::placement::input::Kind;
use crate::placement::turn::{Policy, Reason, Turn};

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Wco {
    /// Slack of the co-location test.
    pub threshold: f64,
    /// Jobs that are looked at, at most.
    pub pool: usize,
    /// What M, the rate that a node is compared with, is the mean of.
    pub mean: MeanOf,
}

/// What M is the mean of. Fig. 2.5 says "all running jobs", the text of 2.5 once "all running tasks".
///
/// The source calls the jobs of its pool the running ones: the pool has a "maximum number of concurrently
/// running jobs", the others "wait in the queue", and the caption of Fig. 2.2 has the two queues as "running
/// jobs and waiting jobs". So a job of the pool counts before its first task runs, and
/// [`MeanOf::Pool`] is the default. This was once chosen by a figure of one seed; docs/placement.md has the
/// figures of all three over 20 seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeanOf {
    /// The jobs of the pool.
    #[default]
    Pool,
    /// The jobs of which a task runs.
    RunningJobs,
    /// The running tasks: a job counts as often as it has some.
    RunningTasks,
}

impl Default for Wco {
    /// The threshold of the source (2.5), which is lrsd's default too, and a pool of 10 jobs.
    fn default() -> Wco {
        Wco { threshold: 0.1, pool: 10, mean: MeanOf::default() }
    }
}

impl Wco {
    fn next(&self, node: NodeId, turn: &mut Turn<'_>) -> Option<(TaskId, Reason)> {
        let cluster = turn.cluster();
        let mut pool = self.pool_of(cluster);
        let mean_rate = self.mean_rate(cluster, &pool);
        pool.retain(|job| cluster[*job].waiting_tasks() > 0);
        let unmeasured =
            |job: &&JobId| cluster[**job].rate.is_none() && cluster[**job].running() == 0;
        if let Some(job) = pool.iter().find(unmeasured) {
            return sample(cluster, *job, node).map(|task| (task, Reason::Sample));
        }
        let on_node = cluster[node].running();
        let running: Running = on_node.map(|task| cluster[cluster[task].job].rate).collect();
        let mut unsuited = Vec::new();
        for job in pool {
            let threshold = self.threshold;
            let job_rate = cluster[job].rate;
            match evaluate(&Question { job_rate, running, mean_rate, threshold }) {
                Advice::Suits { new_rate, .. } => {
                    let reason = new_rate.map_or(Reason::AloneOnNode, Reason::SuitsNode);
                    return nearest(cluster, job, node).map(|task| (task, reason));
                }
                Advice::DoesNotSuit { .. } => unsuited.push((job, Reason::SuitsNoNode)),
                Advice::SampleFirst => unsuited.push((job, Reason::SampleRuns)),
            }
        }
        unsuited.into_iter().for_each(|(job, reason)| turn.hold(job, reason));
        None
    }

    /// The first jobs that wait or run.
    fn pool_of(&self, cluster: &Cluster) -> Vec<JobId> {
        let mut jobs: Vec<JobId> = cluster
            .jobs()
            .filter(|job| cluster[*job].running() + cluster[*job].waiting_tasks() > 0)
            .collect();
        jobs.sort_by_key(|job| cluster.place(*job));
        jobs.truncate(self.pool);
        jobs
    }

    /// M: the mean of the rates that are known; none where none is. A job beyond the pool of which a
    /// task runs counts too.
    fn mean_rate(&self, cluster: &Cluster, pool: &[JobId]) -> Option<Share> {
        let (mut sum, mut count) = (0.0, 0.0);
        for job in cluster.jobs() {
            let running = cluster[job].running();
            let weight = match self.mean {
                MeanOf::Pool => usize::from(running > 0 || pool.contains(&job)),
                MeanOf::RunningJobs => usize::from(running > 0),
                MeanOf::RunningTasks => running,
            } as f64;
            if let Some(rate) = cluster[job].rate.map(Share::value) {
                sum += rate * weight;
                count += weight;
            }
        }
        Share::of(sum, count)
    }
}

impl Policy for Wco {
    fn assign(&mut self, nodes: &[NodeId], turn: &mut Turn<'_>) {
        // Each start takes one of both, so this holds for the whole turn.
        let cluster = turn.cluster();
        let waiting: usize = cluster.queue().map(|job| cluster[job].waiting_tasks()).sum();
        let plenty = cluster.free_slots() > waiting as u64;
        for node in nodes {
            while let Some(tier) = turn.cluster()[*node].next_free() {
                let rest = |turn: &Turn<'_>| {
                    let kinds = [Kind::Map, Kind::Reduce].into_iter();
                    let mut first =
                        kinds.filter_map(|kind| first_in_queue(turn.cluster(), *node, kind));
                    first.next().map(|task| (task, Reason::MoreSlotsThanTasks))
                };
                let next = self.next(*node, turn);
                let next = next.or_else(|| plenty.then(|| rest(turn)).flatten());
                let Some((task, reason)) = next else { break };
                turn.start(task, *node, tier, reason);
            }
        }
    }
}

/// The first task of a job to arrive, of those that the node can run.
fn sample(cluster: &Cluster, job: JobId, node: NodeId) -> Option<TaskId> {
    [Kind::Map, Kind::Reduce].into_iter().find_map(|kind| {
        cluster[job].waiting(kind).iter().find(|task| cluster.may_run(*task, node))
    })
}

fn nearest(cluster: &Cluster, job: JobId, node: NodeId) -> Option<TaskId> {
    let kinds = [Kind::Map, Kind::Reduce].into_iter();
    kinds.map(|kind| cluster.first(job, kind, node, Locality::Remote)).find_map(|found| found)
}
