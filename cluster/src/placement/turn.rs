//! One turn of a policy: what it reads, and the only way in which it starts a task.
//!
//! A policy changes nothing but through [`Turn::start`], which takes a waiting task and a free slot
//! and nothing else. So no policy can give a slot twice, and every start has its reason. What it
//! keeps waiting on purpose it says with [`Turn::hold`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use lrs_core::model::Tier;
use serde_json::Value;

use crate::placement::cluster::{Cluster, JobId, Locality, NodeId, TaskId};
pub use crate::placement::passed::PassedOver;
use crate::placement::solver::{Answer, MOST_STEPS};

/// A policy: decides which waiting tasks start on which free slots.
///
/// Those of this crate are made by it, and so is one's own: with a
/// [`crate::placement::catalogue::Entry`] it is planned and simulated like them. It finds waiting tasks by
/// [`Cluster::queue`] and [`Cluster::first`].
pub trait Policy {
    /// Starts tasks on `nodes`, which have reported in this order. A policy that decides at each
    /// heartbeat takes them one after the other; one that solves for the cluster, together.
    fn assign(&mut self, nodes: &[NodeId], turn: &mut Turn<'_>);

    /// How a job with waiting tasks was passed over so far, for a policy that counts it: what the next
    /// file has to say, for the next decision to go on from this one.
    fn passed_over(&self, _turn: &Turn<'_>, _job: JobId) -> Option<PassedOver> {
        None
    }

    /// What each node costs a task that waits, before the policy is asked about it: for
    /// [`crate::placement::explain`]. By default the seconds in which the input moves.
    fn weigh(&self, cluster: &Cluster, nodes: &[NodeId], task: TaskId) -> Vec<Weight> {
        let cost = |node: &NodeId| cluster.transfer_seconds(task, *node);
        nodes.iter().map(|node| Weight { cost: cost(node), ..Weight::default() }).collect()
    }

    /// What it keeps from turn to turn, for [`crate::placement::saved`]; null: nothing.
    fn save(&self) -> Value {
        Value::Null
    }

    /// Takes what [`Policy::save`] wrote.
    ///
    /// # Errors
    /// With what does not fit.
    fn load(&mut self, state: &Value) -> Result<(), String> {
        if state.is_null() { Ok(()) } else { Err("has a state, and this policy keeps none".into()) }
    }

    /// A job is over and is forgotten; its number may come back as another job's.
    fn forget(&mut self, _job: JobId) {}
}

/// What a policy has to say of a task on a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weight {
    /// What the policy makes as small as it can.
    pub cost: Option<f64>,
    /// What one more slot there would take off the sum of all costs.
    pub price: Option<f64>,
    /// Why the policy has no prices this time, where it has them otherwise.
    pub unpriced: Option<&'static str>,
    /// Why the policy would not start it there, although the node can run it.
    pub refused: Option<String>,
}

/// What a policy decides on, and what it has decided.
pub struct Turn<'a> {
    cluster: &'a mut Cluster,
    now: Duration,
    most_steps: u64,
    /// What has started, in order.
    pub(crate) choices: Vec<Choice>,
    /// Why jobs wait although slots are free.
    pub(crate) held: BTreeMap<JobId, Reason>,
    /// What the policy could not take into account.
    pub(crate) warnings: BTreeSet<String>,
}

impl<'a> Turn<'a> {
    /// A turn at `now`, on the clock of the jobs' arrivals.
    pub fn new(cluster: &'a mut Cluster, now: Duration) -> Turn<'a> {
        let (choices, held, warnings) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        Turn { cluster, now, most_steps: MOST_STEPS, choices, held, warnings }
    }

    /// Allows a solver so many steps for the turn, instead of [`MOST_STEPS`]; 25 to 75 million are a second.
    pub fn with_most_steps(self, most_steps: u64) -> Turn<'a> {
        Turn { most_steps, ..self }
    }

    /// How many steps a solver may take: not seconds, so that the same cluster has the same plan.
    pub fn most_steps(&self) -> u64 {
        self.most_steps
    }

    /// The cluster, with what has started so far.
    pub fn cluster(&self) -> &Cluster {
        self.cluster
    }

    /// What has started, in order.
    pub fn into_choices(self) -> Vec<Choice> {
        self.choices
    }

    /// What has started, in order, and what the policy could not take into account.
    pub fn into_outcome(self) -> (Vec<Choice>, BTreeSet<String>) {
        (self.choices, self.warnings)
    }

    /// When this is.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Starts a task; `false` and nothing done when it does not wait or no slot of `tier` is free.
    pub fn start(&mut self, task: TaskId, node: NodeId, tier: Tier, reason: Reason) -> bool {
        let locality = self.cluster.locality(task, node);
        let transfer_seconds = self.cluster.transfer_seconds(task, node);
        let started = self.cluster.start(task, node, tier, self.now);
        if started {
            self.held.remove(&self.cluster[task].job);
            self.choices.push(Choice { task, node, tier, locality, transfer_seconds, reason });
        }
        started
    }

    /// Says what the policy could not take into account: the plan has it as a warning.
    pub fn warn(&mut self, what: String) {
        self.warnings.insert(what);
    }

    /// Says that a solver was stopped with `answer` for so many tasks, if it was.
    pub(crate) fn warn_if_stopped(&mut self, answer: &Answer, tasks: usize) {
        if answer.hasty > 0 {
            self.warn(format!(
                "the solver was stopped with {} of {tasks} tasks left, which took what was free: the sum of costs is {:.6}, and \
                 no plan with as many starts of these has less than {:.6}",
                answer.hasty, answer.cost, answer.bound,
            ));
        }
    }

    /// Keeps the waiting tasks of a job waiting; the last reason counts.
    pub fn hold(&mut self, job: JobId, reason: Reason) {
        self.held.insert(job, reason);
    }
}

/// A task that starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The task.
    pub task: TaskId,
    /// Where it starts.
    pub node: NodeId,
    /// The slot it takes.
    pub tier: Tier,
    /// How near that is to its input.
    pub locality: Locality,
    /// Until its input is there; `None`: the network is not known.
    pub transfer_seconds: Option<f64>,
    /// Why.
    pub reason: Reason,
}

/// Why a task starts, or why a job waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The next of its kind, of the first job that has one.
    FirstInQueue,
    /// The first of any job with its input this near.
    Nearest(Locality),
    /// One reduce task at each heartbeat, before the maps.
    OneReduce,
    /// A map for a free active slot.
    ActiveSlot,
    /// A map of any job with its input on the node, for a passive slot.
    PassiveLocal,
    /// A map for a passive slot, when none has its input on the node.
    PassiveAny,
    /// The sum over all starts is least; this is its own part.
    LeastCost(f64),
    /// It is its group's and its job's turn, and the input is on the node.
    DueAtInput,
    /// Its job has let enough slots pass; this one is not at its input.
    WaitedLongEnough,
    /// The first task of a job without a rate.
    Sample,
    /// Nothing runs on the node.
    AloneOnNode,
    /// With it the mean rate on the node is this.
    SuitsNode(f64),
    /// There are slots for all that waits.
    MoreSlotsThanTasks,
    /// Matched with a node that holds its input and is idle to this share.
    Matched(f64),
    /// Its input reaches this node first.
    SoonestInput,
    /// Its job's priority is above the lowest active one: the node makes it active.
    AboveLowestActive,
    /// The maps have as many slots of the node as their share of all tasks.
    MapsHaveTheirShare,
    /// The node is full of work of the same or a higher priority.
    NotAboveLowestActive,
    /// It waits for a slot this near to its input.
    WaitsForInput(Locality),
    /// The last free node would be bound by one resource with it.
    SuitsNoNode,
    /// Its rate is not known, and one of its tasks runs to be measured.
    SampleRuns,
    /// A node with its input is free in so many seconds, before the input could be moved.
    FreeSoon(f64),
    /// Every slot is taken.
    NoFreeSlot,
    /// The policy started none of its tasks on what is free.
    NotChosen,
    /// What a policy that is not of this crate says.
    Own(&'static str),
}

impl fmt::Display for Reason {
    /// Short for what starts, since it is a column; a sentence for what waits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::LeastCost(own) => return write!(f, "least sum of costs, its own {own:.2}"),
            Reason::SuitsNode(rate) => return write!(f, "suits, mean rate there {rate:.2}"),
            Reason::Matched(idle) => return write!(f, "matched with its input, idle {idle:.2}"),
            Reason::FreeSoon(seconds) => {
                return write!(
                    f,
                    "a node with its input is free in {seconds:.1} s, before it moves"
                );
            }
            Reason::Own(reason) => reason,
            Reason::FirstInQueue => "next of the first job in the queue",
            Reason::Nearest(Locality::Node) => "input on the node, any job",
            Reason::Nearest(Locality::Rack) => "input in the rack, none on the node",
            Reason::Nearest(Locality::Remote) => "no input in the rack; first in queue",
            Reason::OneReduce => "one reduce a heartbeat",
            Reason::ActiveSlot => "free active slot, first job first",
            Reason::PassiveLocal => "passive slot, input on the node",
            Reason::PassiveAny => "passive slot, no input on the node",
            Reason::DueAtInput => "its turn, and input on the node",
            Reason::WaitedLongEnough => "its turn, has waited long enough",
            Reason::Sample => "sample, its job has no rate",
            Reason::AloneOnNode => "suits, nothing runs there",
            Reason::MoreSlotsThanTasks => "more free slots than tasks",
            Reason::SoonestInput => "input is there soonest",
            Reason::AboveLowestActive => "priority above the lowest active",
            Reason::MapsHaveTheirShare => "the maps have their share of the free slots",
            Reason::NotAboveLowestActive => {
                "no active slot is free, and its priority is not above the lowest active one"
            }
            Reason::WaitsForInput(Locality::Node) => "waits for a slot on a node with its input",
            Reason::WaitsForInput(_) => "waits for a slot in a rack with its input",
            Reason::SuitsNoNode => "the nodes with free slots would be bound by one resource",
            Reason::SampleRuns => {
                "has no computing rate yet; waits until its first task is measured"
            }
            Reason::NoFreeSlot => "no slot is free",
            Reason::NotChosen => "the policy starts none of its tasks on the free slots",
        })
    }
}
