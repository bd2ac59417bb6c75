//! What a cluster goes through beside starts and ends: jobs arrive, change and are forgotten, tasks are
//! withdrawn, killed, or lost and wait again, nodes come, drain, go and get other slots, input and
//! bandwidths change. For a scheduler and a simulator: `lrs-place plan` has one moment only.
//! `cluster/examples/living_cluster.rs` has a loop.
//!
//! A caller says what has happened. What cannot have, a task that ends and does not run, changes nothing
//! and is answered with `false`. What may change which nodes can run a task costs a step for each task that
//! waits.
//!
//! A job that is forgotten gives its number and those of its tasks to later ones, so that a cluster
//! is as large as what waits and runs in it, however many tasks it has seen.
//!
//! So does a node that has gone, once no task that waits or runs names it as the place of its input.
//!
//! Limit. Names of racks are kept for good.

use std::time::Duration;

use lrs_core::model::Priority;
use lrs_core::units::Share;

use crate::placement::check::{Faults, MEASURES, faults_of_node};
use crate::placement::cluster::{Cluster, GroupId, Job, JobId, NodeId, State, Task, TaskId};
use crate::placement::input::{Kind, NodeInput, SlotsInput};
use crate::placement::node::Duty;
use crate::placement::resources::Resources;

/// A job that arrives, without tasks as yet.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Its name, for people; a simulator needs none.
    pub name: String,
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
    /// Its name, for people; a simulator needs none.
    pub name: String,
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
        let NewJob { name, group, priority, rate, arrived } = new;
        let job = Job { rate, ..Job::new(name, group, priority, arrived) };
        let Some(id) = self.spare_jobs.pop() else {
            self.jobs.push(job);
            return JobId(self.jobs.len() - 1);
        };
        self.jobs[id.0] = job;
        id
    }

    /// A task of a job waits from now on; `None`, and nothing done, if the job is forgotten.
    pub fn submit(&mut self, job: JobId, new: NewTask) -> Option<TaskId> {
        if self[job].forgotten {
            return None;
        }
        let NewTask { name, kind, bytes, replicas, demand } = new;
        let (remaining, state) = (None, State::Waiting);
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
        Some(id)
    }

    /// A running task is lost with what it has done, and waits again.
    pub fn lose(&mut self, task: TaskId) {
        if self.unseat(task) {
            self.tasks[task.0].state = State::Waiting;
            self.list(task);
        }
    }

    /// A task that waits is not to run any more.
    pub fn withdraw(&mut self, task: TaskId) -> bool {
        if self[task].state != State::Waiting {
            return false;
        }
        self.take_off(task);
        *self.count(self[task].kind) -= 1;
        self.tasks[task.0].state = State::Ended;
        true
    }

    /// A running task is ended by its user: nothing is learned of it, and it does not wait again.
    pub fn kill(&mut self, task: TaskId) -> bool {
        let runs = matches!(self[task].state, State::Running(..));
        self.finish(task);
        runs
    }

    /// Takes a waiting task off the list that it is on, as if a node could run it.
    fn take_off(&mut self, task: TaskId) {
        if self.unfit.remove(&task) {
            *self.count(self[task].kind) += 1;
        } else {
            self.unlist(task);
        }
    }

    /// Asks anew which of the waiting tasks some node can run.
    fn list_again(&mut self) {
        let waiting: Vec<TaskId> =
            self.tasks().filter(|task| self[*task].state == State::Waiting).collect();
        for task in waiting {
            self.take_off(task);
            self.list(task);
        }
    }

    /// A node comes. One of the name of a node that has gone is another node; its number may be that of a
    /// node that has gone.
    ///
    /// # Errors
    /// With all that is wrong with it.
    pub fn join(&mut self, node: NodeInput) -> Result<NodeId, Faults> {
        let mut faults = faults_of_node(&node);
        if self.nodes.iter().any(|other| other.name == node.name && !other.is_gone()) {
            faults.push("the node.name", format_args!("{:?} is there already", node.name));
        }
        faults.result()?;
        let NodeInput { name, rack, slots, capacity } = node;
        self.add_node(name, rack, slots, capacity);
        let mut number = NodeId(self.nodes.len() - 1);
        if let Some(spare) = self.spare_node() {
            self.nodes.swap_remove(spare.0);
            if let Some(network) = &mut self.network {
                network.pairs.retain(|(from, to), _| *from != spare && *to != spare);
                network.find_cuts();
            }
            number = spare;
        }
        self.list_again();
        Ok(number)
    }

    /// A node that has gone, and that no task needs to be known any more.
    fn spare_node(&self) -> Option<NodeId> {
        let needed = |node: &NodeId| {
            let live = self.tasks.iter().filter(|task| task.state != State::Ended);
            live.into_iter().any(|task| task.replicas.contains(node))
        };
        self.nodes().find(|node| self[*node].is_gone() && !needed(node))
    }

    /// Nothing starts on a node from now on, and what runs goes on; or it serves again. `false` if it has
    /// gone.
    pub fn drain(&mut self, node: NodeId, drains: bool) -> bool {
        let duty = if drains { Duty::Drains } else { Duty::Serves };
        let is_there = !self[node].is_gone();
        if is_there {
            self.change(node, |node| node.set_duty(duty));
        }
        is_there
    }

    /// A node goes for good; what ran there waits again, and is answered. The input that it held is taken
    /// to be readable from it, as from a copy made elsewhere, until [`Cluster::move_input`] says where it
    /// is. That is for the tasks that are there: once none of them names it, its number may be a later
    /// node's, so whoever submits a task afterwards must not name it.
    pub fn leave(&mut self, node: NodeId) -> Vec<TaskId> {
        let lost: Vec<TaskId> = self[node].running().collect();
        self.change(node, |node| node.set_duty(Duty::Gone));
        for task in &lost {
            self.lose(*task);
        }
        self.list_again();
        lost
    }

    /// A job has another priority. What runs keeps its tier, until something ends there.
    pub fn set_priority(&mut self, job: JobId, priority: Priority) {
        self.move_in_queue(job, |job| job.priority = priority);
    }

    /// A job is in another group; `false`, and nothing done, if that has groups below it.
    pub fn set_group(&mut self, job: JobId, group: GroupId) -> bool {
        let is_leaf = self.groups.iter().all(|other| other.parent != Some(group));
        if is_leaf {
            self.jobs[job.0].group = group;
        }
        is_leaf
    }

    fn move_in_queue(&mut self, job: JobId, change: impl FnOnce(&mut Job)) {
        let was = self.queue.remove(&self.place(job));
        change(&mut self.jobs[job.0]);
        if was {
            self.queue.insert(self.place(job));
        }
    }

    /// The input of a task is on these nodes from now on, each named once; none: it has no input.
    pub fn move_input(&mut self, task: TaskId, replicas: Vec<NodeId>) {
        let waits = self[task].state == State::Waiting;
        if waits {
            self.take_off(task);
        }
        self.tasks[task.0].replicas = replicas;
        if waits {
            self.list(task);
        }
    }

    /// A pair of nodes has another bandwidth in this direction; `None`: no connection. `false`, and nothing
    /// done, if that is no bandwidth, or no network is known.
    pub fn set_bandwidth(&mut self, from: NodeId, to: NodeId, bytes_per_sec: Option<f64>) -> bool {
        let is_one = bytes_per_sec.is_none_or(|rate| MEASURES.contains(&rate));
        let Some(network) = self.network.as_mut().filter(|_| is_one) else { return false };
        network.pairs.insert((from, to), bytes_per_sec);
        let was_cut = network.is_cut;
        network.find_cuts();
        if was_cut || network.is_cut {
            self.list_again();
        }
        true
    }

    /// Forgets a job once all its tasks have ended; `false`, and nothing done, while one has not. Its number
    /// may become a later job's, so tell the policy too
    /// ([`Policy::forget`](crate::placement::turn::Policy::forget)), and use it no more.
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
