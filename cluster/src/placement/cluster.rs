//! A cluster as the policies see it: checked, indexed, and changed only by [`Cluster::start`],
//! [`Cluster::finish`] and what is in [`crate::placement::live`].
//!
//! Made from a [`crate::placement::input::ClusterInput`] by [`crate::placement::check`]. Everything is
//! numbered, and `cluster[id]` is the thing itself. The waiting tasks of a job are indexed by the nodes and
//! racks that hold their input ([`crate::placement::waiting`]).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Index;
use std::time::Duration;

pub use lrs_core::model::{Priority, Tier};
pub use lrs_core::units::Share;
use serde::{Deserialize, Serialize};

use crate::placement::group::Group;
pub use crate::placement::ids::{GroupId, JobId, Locality, NodeId, RackId, TaskId};
use crate::placement::input::{Kind, SlotsInput};
pub use crate::placement::node::Node;
use crate::placement::passed::{self, PassedOver};
use crate::placement::resources::Resources;
pub use crate::placement::task::{State, Task};
pub use crate::placement::waiting::Waiting;

mod network;
pub(crate) use network::Network;

macro_rules! indexed {
    ($($name:ident of $thing:ident in $list:ident;)*) => {$(
        impl Index<$name> for Cluster {
            type Output = $thing;

            fn index(&self, id: $name) -> &$thing {
                &self.$list[id.0]
            }
        }
    )*};
}

indexed! {
    NodeId of Node in nodes;
    JobId of Job in jobs;
    TaskId of Task in tasks;
    GroupId of Group in groups;
}

/// A job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: GroupId,
    /// Higher is sooner.
    pub priority: Priority,
    /// Its computing rate; none: never measured.
    pub rate: Option<Share>,
    /// Ended tasks that the rate is the mean of.
    pub(crate) measured: u32,
    /// When it arrived.
    pub arrived: Duration,
    /// How it was passed over, as far as the input says.
    #[serde(with = "passed")]
    pub passed: PassedOver,
    #[serde(skip)]
    pub(crate) maps: Waiting,
    #[serde(skip)]
    pub(crate) reduces: Waiting,
    #[serde(skip)]
    pub(crate) running: usize,
    /// All of its tasks, whatever their state.
    pub(crate) tasks: Vec<TaskId>,
    /// Its number waits for another job.
    pub(crate) forgotten: bool,
}

impl Job {
    /// One without tasks.
    pub(crate) fn new(name: String, group: GroupId, priority: Priority, arrived: Duration) -> Job {
        Job {
            name,
            group,
            priority,
            rate: None,
            measured: 0,
            arrived,
            passed: PassedOver::default(),
            maps: Waiting::default(),
            reduces: Waiting::default(),
            running: 0,
            tasks: Vec::new(),
            forgotten: false,
        }
    }

    /// Its waiting tasks of a kind.
    pub fn waiting(&self, kind: Kind) -> &Waiting {
        match kind {
            Kind::Map => &self.maps,
            Kind::Reduce => &self.reduces,
        }
    }

    /// How many of its tasks wait.
    pub fn waiting_tasks(&self) -> usize {
        self.maps.len() + self.reduces.len()
    }

    /// How many of its tasks run.
    pub fn running(&self) -> usize {
        self.running
    }

    fn waiting_mut(&mut self, kind: Kind) -> &mut Waiting {
        match kind {
            Kind::Map => &mut self.maps,
            Kind::Reduce => &mut self.reduces,
        }
    }
}

/// A checked cluster.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) tasks: Vec<Task>,
    /// At least one: that of the jobs in no group, when the input has none.
    pub(crate) groups: Vec<Group>,
    pub(crate) network: Option<Network>,
    /// Jobs with waiting tasks: highest priority, then earliest arrival, first.
    #[serde(skip)]
    pub(crate) queue: BTreeSet<(Reverse<Priority>, Duration, JobId)>,
    /// Tasks that wait and that no node can run; no policy sees them.
    #[serde(skip)]
    pub(crate) unfit: BTreeSet<TaskId>,
    /// Slots of all nodes, and what of them is free: sums that policies ask for at every heartbeat.
    #[serde(skip)]
    slots: u64,
    #[serde(skip)]
    free: u64,
    /// Tasks that wait for a node that can run them, or run, by kind.
    #[serde(skip)]
    maps: usize,
    #[serde(skip)]
    reduces: usize,
    /// Names of racks.
    pub(crate) racks: BTreeMap<String, RackId>,
    /// Fields of the input that are not known.
    #[serde(skip)]
    pub(crate) unknown: Vec<String>,
    /// Numbers to be used again.
    pub(crate) spare_jobs: Vec<JobId>,
    pub(crate) spare_tasks: Vec<TaskId>,
}

impl Cluster {
    /// All nodes, in the order of the input.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len()).map(NodeId)
    }

    /// All jobs, in the order of the input.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> {
        let jobs = self.jobs.iter().enumerate().filter(|(_, job)| !job.forgotten);
        jobs.map(|(index, _)| JobId(index))
    }

    /// All tasks, in the order of the input.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> + use<> {
        (0..self.tasks.len()).map(TaskId)
    }

    /// Slots of all nodes, free or not.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Whether the input says what each node has.
    pub fn knows_capacity(&self) -> bool {
        self.nodes.iter().all(|node| node.capacity.is_some())
    }

    /// What the tasks of a node may take together; nothing where the input does not say.
    pub fn capacity(&self, node: NodeId) -> Resources {
        self[node].capacity.unwrap_or_default()
    }

    /// What of it no task takes.
    pub fn idle(&self, node: NodeId) -> Resources {
        let used = self[node].running().map(|task| self[task].demand).sum();
        self.capacity(node) - used
    }

    /// Free slots of all nodes.
    pub fn free_slots(&self) -> u64 {
        self.free
    }

    /// Maps among the tasks that wait or run, 0 to 1; 1 without tasks.
    pub(crate) fn share_of_maps(&self) -> f64 {
        let all = self.maps + self.reduces;
        if all == 0 { 1.0 } else { self.maps as f64 / all as f64 }
    }

    pub(crate) fn count(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Map => &mut self.maps,
            Kind::Reduce => &mut self.reduces,
        }
    }

    pub(crate) fn add_node(
        &mut self,
        name: String,
        rack: String,
        slots: SlotsInput,
        capacity: Option<Resources>,
    ) {
        let next = RackId(self.racks.len());
        let rack = *self.racks.entry(rack).or_insert(next);
        let node = Node::new(name, rack, slots, capacity);
        self.slots += u64::from(node.slots());
        self.free += u64::from(node.all_free());
        self.nodes.push(node);
    }

    /// The only way to a node that changes, so that the sums stay right.
    pub(crate) fn change(&mut self, node: NodeId, change: impl FnOnce(&mut Node)) {
        let node = &mut self.nodes[node.0];
        self.slots -= u64::from(node.slots());
        self.free -= u64::from(node.all_free());
        change(node);
        self.slots += u64::from(node.slots());
        self.free += u64::from(node.all_free());
    }

    /// A task of the job ended, with this rate: its rate is the mean over the ended ones (thesis 2.3).
    /// One from the input counts until then.
    pub fn learn(&mut self, job: JobId, rate: Share) {
        let of = &mut self.jobs[job.0];
        let before = of.rate.filter(|_| of.measured > 0).map_or(0.0, Share::value);
        let sum = before * f64::from(of.measured) + rate.value();
        of.measured = of.measured.saturating_add(1);
        of.rate = Share::of(sum, f64::from(of.measured));
    }

    /// All groups, in the order of the input.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.groups.len()).map(GroupId)
    }

    /// The group of a task's job.
    pub fn group_of(&self, task: TaskId) -> GroupId {
        self[self[task].job].group
    }

    /// Whether the input has groups.
    pub fn has_groups(&self) -> bool {
        self.groups.iter().any(|group| !group.name.is_empty())
    }

    /// Jobs with waiting tasks: highest priority, then earliest arrival, first.
    pub fn queue(&self) -> impl Iterator<Item = JobId> {
        self.queue.iter().map(|(_, _, job)| *job)
    }

    /// How near `task` would be to its input on `node`.
    pub fn locality(&self, task: TaskId, node: NodeId) -> Locality {
        let replicas = &self[task].replicas;
        let rack = self[node].rack;
        if replicas.is_empty() || replicas.contains(&node) {
            Locality::Node
        } else if replicas.iter().any(|replica| self[*replica].rack == rack) {
            Locality::Rack
        } else {
            Locality::Remote
        }
    }

    /// The first waiting task of a kind of a job that may run on `node`, its input no further than
    /// `limit`; the nearest wins.
    pub fn first(&self, job: JobId, kind: Kind, node: NodeId, limit: Locality) -> Option<TaskId> {
        let may = |task| self.may_run(task, node);
        self[job].waiting(kind).first(node, self[node].rack, limit, may)
    }

    /// Whether a node has, with nothing else on it, what a task takes, and the input gets there. This is
    /// in front of every policy: [`Cluster::start`] refuses anything else.
    pub fn may_run(&self, task: TaskId, node: NodeId) -> bool {
        let of = &self[node];
        let fits = of.capacity.is_none_or(|room| self[task].demand.fits(&room));
        fits && !of.is_gone() && self.is_reachable(task, node)
    }

    /// The tasks that wait and that no node can run.
    pub fn unfit(&self) -> impl Iterator<Item = TaskId> {
        self.unfit.iter().copied()
    }

    /// The job that is last in the queue's order of those with an active task on `node` (thesis 3.3.3).
    pub fn lowest_active(&self, node: NodeId) -> Option<JobId> {
        let jobs = self[node].seated(Tier::Active).map(|(_, task)| self[task].job);
        jobs.max_by_key(|job| self.place(*job))
    }

    /// Puts a waiting task on a free slot; `false`, and nothing done, when the task does not wait, the slot
    /// is not free or the node can not run it. A node makes a passive task of higher priority than its
    /// lowest active one active in that one's place (thesis 3.3.2), and so does this.
    pub fn start(&mut self, task: TaskId, node: NodeId, tier: Tier, now: Duration) -> bool {
        let is_free = self[task].state == State::Waiting && self[node].free(tier) > 0;
        if !is_free || !self.may_run(task, node) {
            return false;
        }
        self.unlist(task);
        let priority = self[self[task].job].priority;
        let lower = (tier == Tier::Passive)
            .then(|| self.last_active(node).filter(|(lowest, _)| *lowest < priority))
            .flatten();
        match lower {
            Some((_, index)) => {
                self.change(node, |node| node.move_to(Tier::Passive, index));
                self.seat(task, node, Tier::Active, now);
            }
            None => self.seat(task, node, tier, now),
        }
        true
    }

    /// A running task is over; the earliest of the highest passive priority moves up.
    pub fn finish(&mut self, task: TaskId) {
        if self.unseat(task) {
            self.tasks[task.0].state = State::Ended;
            *self.count(self[task].kind) -= 1;
        }
    }

    /// Takes a running task off its node; `false` if it does not run.
    pub(crate) fn unseat(&mut self, task: TaskId) -> bool {
        let State::Running(node, _) = self[task].state else { return false };
        let job = self[task].job;
        self.jobs[job.0].running -= 1;
        self.change(node, |node| node.remove(task));
        if self[node].is_free(Tier::Active)
            && let Some((_, index)) = self
                .seated(node, Tier::Passive)
                .max_by_key(|(priority, index)| (*priority, Reverse(*index)))
        {
            self.change(node, |node| node.move_to(Tier::Active, index));
        }
        true
    }

    /// Puts a task, which is on no list, on a node.
    pub(crate) fn seat(&mut self, task: TaskId, node: NodeId, tier: Tier, now: Duration) {
        let job = self[task].job;
        self.jobs[job.0].running += 1;
        self.change(node, |node| node.add(task, tier));
        self.tasks[task.0].state = State::Running(node, now);
    }

    /// Lists a task as waiting, for the policies if a node can run it.
    pub(crate) fn list(&mut self, task: TaskId) {
        if !self.nodes().any(|node| self.may_run(task, node)) {
            self.unfit.insert(task);
            *self.count(self[task].kind) -= 1;
            return;
        }
        let racks = self.racks(task);
        let of = &self.tasks[task.0];
        let (job, kind) = (of.job, of.kind);
        self.jobs[job.0].waiting_mut(kind).add(task, of, &racks);
        self.queue.insert(self.place(job));
    }

    pub(crate) fn unlist(&mut self, task: TaskId) {
        let racks = self.racks(task);
        let of = &self.tasks[task.0];
        let (job, kind) = (of.job, of.kind);
        self.jobs[job.0].waiting_mut(kind).remove(task, of, &racks);
        if self[job].waiting_tasks() == 0 {
            self.queue.remove(&self.place(job));
        }
    }

    /// Finds what is not saved: sums, and which tasks wait where.
    pub(crate) fn find_again(&mut self) {
        self.nodes.iter_mut().for_each(Node::count);
        self.network.iter_mut().for_each(Network::find_cuts);
        self.slots = self.nodes.iter().map(|node| u64::from(node.slots())).sum();
        self.free = self.nodes.iter().map(|node| u64::from(node.all_free())).sum();
        for task in self.tasks() {
            let Task { state, kind, job, .. } = self[task];
            match state {
                State::Waiting => {
                    *self.count(kind) += 1;
                    self.list(task);
                }
                State::Running(..) => {
                    *self.count(kind) += 1;
                    self.jobs[job.0].running += 1;
                }
                State::Ended => {}
            }
        }
    }

    /// The place of a job in the queue.
    pub(crate) fn place(&self, job: JobId) -> (Reverse<Priority>, Duration, JobId) {
        (Reverse(self[job].priority), self[job].arrived, job)
    }

    fn racks(&self, task: TaskId) -> BTreeSet<RackId> {
        self[task].replicas.iter().map(|node| self[*node].rack).collect()
    }

    /// The active task that would go passive first: of the lowest priority, started last.
    fn last_active(&self, node: NodeId) -> Option<(Priority, usize)> {
        self.seated(node, Tier::Active).min_by_key(|(priority, index)| (*priority, Reverse(*index)))
    }

    /// Priority and place of what runs in a tier of a node.
    fn seated(&self, node: NodeId, tier: Tier) -> impl Iterator<Item = (Priority, usize)> {
        self[node].seated(tier).map(|(index, task)| (self[self[task].job].priority, index))
    }
}
