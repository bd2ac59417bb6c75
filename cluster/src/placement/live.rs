//! What a cluster goes through beside starts and ends: jobs arrive and are forgotten, tasks are lost
//! and wait again, nodes get other slots. For a simulator: `lrs-place plan` has one moment only.
//!
//! A job that is forgotten gives its number and those of its tasks to later ones, so that a cluster
//! is as large as what waits and runs in it, however many tasks it has seen.

use std::time::Duration;

use lrs_core::model::Priority;
use lrs_core::units::Share;

use crate::placement::cluster::{Cluster, GroupId, Job, JobId, NodeId, State, Task, TaskId};
use crate::placement::input::{Kind, SlotsInput};
use crate::placement::resources::Resources;

/// A job that arrives, without tasks as yet.
#[derive(Clone, Copy, Debug)]
pub struct NewJob {
    /// Its group.
    pub group: GroupId,
    /// Higher is sooner.
    pub priority: Priority,
    /// Its computing rate, if it is known.
    pub rate: Option<Share>,
    /// When it arrives.
    pub arrived: Duration,
}

/// A task that is asked for.
#[derive(Clone, Debug)]
pub struct NewTask {
    /// Map or reduce.
    pub kind: Kind,
    /// Size of its input.
    pub bytes: u64,
    /// The nodes that hold its input, each once; none: it runs equally well anywhere.
    pub replicas: Vec<NodeId>,
    /// What it takes.
    pub demand: Resources,
}

impl Cluster {
    /// A job arrives.
    pub fn arrive(&mut self, new: NewJob) -> JobId {
        let job =
            Job { rate: new.rate, ..Job::new(String::new(), new.group, new.priority, new.arrived) };
        let Some(id) = self.spare_jobs.pop() else {
            self.jobs.push(job);
            return JobId(self.jobs.len() - 1);
        };
        self.jobs[id.0] = job;
        id
    }

    /// A task of a job waits from now on.
    pub fn submit(&mut self, job: JobId, new: NewTask) -> TaskId {
        let NewTask { kind, bytes, replicas, demand } = new;
        let (name, remaining, state) = (String::new(), None, State::Waiting);
        let task = Task { name, job, kind, bytes, replicas, demand, remaining, state };
        let id = match self.spare_tasks.pop() {
            Some(id) => {
                self.tasks[id.0] = task;
                id
            }
            None => {
                self.tasks.push(task);
                TaskId(self.tasks.len() - 1)
            }
        };
        self.jobs[job.0].tasks.push(id);
        *self.count(kind) += 1;
        self.list(id);
        id
    }

    /// A running task is lost with what it has done, and waits again.
    pub fn lose(&mut self, task: TaskId) {
        if self.unseat(task) {
            self.tasks[task.0].state = State::Waiting;
            self.list(task);
        }
    }

    /// Forgets a job once all its tasks have ended; `false`, and nothing done, while one has not.
    pub fn forget(&mut self, job: JobId) -> bool {
        let of = &self.jobs[job.0];
        let waits = of.waiting_tasks() > 0 || self.unfit.iter().any(|task| self[*task].job == job);
        if of.forgotten || of.running > 0 || waits {
            return false;
        }
        let tasks = std::mem::take(&mut self.jobs[job.0].tasks);
        for task in &tasks {
            self.tasks[task.0].replicas = Vec::new();
        }
        // The first of them is the next one used.
        self.spare_tasks.extend(tasks.into_iter().rev());
        self.jobs[job.0].forgotten = true;
        self.spare_jobs.push(job);
        true
    }

    /// A node has other slots from now on; what runs there goes on.
    pub fn resize(&mut self, node: NodeId, slots: SlotsInput) {
        self.change(node, |node| node.resize(slots));
    }

    /// A running task is predicted to end in this time.
    pub fn predict(&mut self, task: TaskId, remaining: Option<Duration>) {
        self.tasks[task.0].remaining = remaining;
    }
}
