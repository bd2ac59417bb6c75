//! What a case of a suite says: the cluster, the workload, the policy.
//!
//! Durations are seconds, sizes bytes. An unknown key is an error. What makes no sense is refused
//! with its key by [`Scenario::check`]; the rest of the cluster is checked where `lrs-place plan` checks
//! its file ([`crate::placement::check`]).

use std::sync::Arc;
use std::time::Duration;

use crate::placement::catalogue::{Entry, Needs};
use crate::placement::check::{Fault, check};
use crate::placement::cluster::Cluster;
use crate::placement::delay::{Delay, Patience};
use crate::placement::input::{ClusterInput, GroupInput, NetworkInput, NodeInput, SlotsInput};
use crate::placement::lsap::Lsap;
use crate::placement::resources::Resources;
use crate::placement::turn::Policy;
use crate::placement::wco::{MeanOf, Wco};
use serde::Deserialize;

use crate::simulation::analysis::Analysis;
pub use crate::simulation::nodes::{Kind, Nodes};

/// A case: what is simulated.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Name of the policy, as in `lrs-place plan --policy`, or of one's own.
    pub policy: String,
    /// Policies of one's own, beside the shipped ones.
    #[serde(skip)]
    pub own: Vec<Entry>,
    /// What the policy is set to, where that differs from what it is by itself.
    pub set: Settings,
    /// Seed of the first round; the others have the next ones.
    pub seed: u64,
    /// How often it is run; figures are over all rounds.
    pub rounds: u64,
    /// The nodes.
    pub nodes: Nodes,
    /// Bandwidths; without them moving input takes no time.
    pub network: Option<NetworkInput>,
    /// Transfers at one time share the links of their nodes: each has one in and one out.
    pub shared_links: bool,
    /// How many nodes hold the input of a task.
    pub replicas: u32,
    /// Which nodes hold it.
    pub placement: Placement,
    /// How often a node reports.
    pub heartbeat_seconds: f64,
    /// Groups of jobs.
    pub groups: Vec<GroupInput>,
    /// When jobs come.
    pub arrivals: Arrivals,
    /// Whether the computing rate of a job is known when it arrives.
    pub rates_known: bool,
    /// Jobs come with hinted rates, for the policy and for nodes with LRS, each until it is measured; of this
    /// share of the jobs the hint is wrong: 1 less the rate.
    pub hints_wrong: Option<f64>,
    /// The jobs.
    pub job: Vec<Class>,
    /// Those of a log in their place ([`Scenario::take`]), which may be of many cases.
    #[serde(skip)]
    pub log: Option<Arc<Vec<Class>>>,
    /// Tasks that take longer than their like.
    pub stragglers: Stragglers,
    /// Nodes that go down.
    pub failures: Option<Failures>,
    /// What is preempted for groups below their share.
    pub preempt: Option<Preempt>,
    /// One decision instead of a run.
    pub once: Option<Once>,
    /// Figures of the analysis of delay scheduling instead of a run.
    pub analysis: Option<Analysis>,
    /// The time of the solver for so many tasks and slots instead of a run.
    pub solver: Option<usize>,
}

impl Default for Scenario {
    fn default() -> Scenario {
        Scenario {
            policy: "lrs".into(),
            own: Vec::new(),
            set: Settings::default(),
            seed: 1,
            rounds: 1,
            nodes: Nodes::default(),
            network: None,
            shared_links: false,
            replicas: 3,
            placement: Placement::Random,
            heartbeat_seconds: 3.0,
            groups: Vec::new(),
            arrivals: Arrivals::default(),
            rates_known: false,
            hints_wrong: None,
            job: Vec::new(),
            log: None,
            stragglers: Stragglers::default(),
            failures: None,
            preempt: None,
            once: None,
            analysis: None,
            solver: None,
        }
    }
}

/// Settings of policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// `delay`: waits for a node and for a rack.
    pub waits: Option<[f64; 2]>,
    /// `delay-simple`: slots that a job lets pass.
    pub skips: Option<u64>,
    /// `delay-offers`: slots that it lets pass for a node and for a rack.
    pub offers: Option<[u64; 2]>,
    /// `lsap-fair`: weight of a second of transfer.
    pub alpha: Option<f64>,
    /// `lsap-fair`: cost of a task beyond its group's share.
    pub beta: Option<f64>,
    /// `wco`: slack of its test.
    pub threshold: Option<f64>,
    /// `wco`: jobs that are looked at.
    pub pool: Option<usize>,
    /// `wco`: what M is the mean of, `pool`, `running-jobs` or `running-tasks`.
    pub mean: Option<MeanOf>,
}
/// Which nodes hold the input of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Any.
    Random,
    /// The second in another rack than the first, the third beside the second (HDFS).
    Racks,
}

/// When jobs come.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Arrivals {
    /// Mean time between two, exponentially distributed; 0: all at once.
    pub mean_seconds: f64,
    /// How often the jobs of the mix come, each time in another order.
    pub repeat: u64,
    /// In the order of the file, first all of the first class; else shuffled.
    pub in_order: bool,
}

impl Default for Arrivals {
    fn default() -> Arrivals {
        Arrivals { mean_seconds: 0.0, repeat: 1, in_order: false }
    }
}

/// Jobs that are alike.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Class {
    /// Its name, for figures.
    pub name: String,
    /// How many in the mix.
    #[serde(default = "one")]
    pub jobs: u32,
    /// Maps of a job.
    #[serde(default)]
    pub maps: u32,
    /// Reduces of a job.
    #[serde(default)]
    pub reduces: u32,
    /// A map.
    #[serde(default)]
    pub map: Work,
    /// A reduce.
    #[serde(default)]
    pub reduce: Work,
    /// Name of the group; none with groups: they take turns.
    #[serde(default)]
    pub group: Option<String>,
    /// Higher is sooner.
    #[serde(default)]
    pub priority: i32,
    /// When its jobs arrive; none, of all classes: as [`Arrivals`] says.
    #[serde(default)]
    pub at_seconds: Option<f64>,
    /// The number of the job in a log.
    #[serde(skip)]
    pub number: Option<u64>,
}

impl Class {
    /// The computing rate of its first tasks.
    pub fn rate(&self) -> f64 {
        if self.maps > 0 { self.map.computing } else { self.reduce.computing }
    }

    /// Tasks of all of its jobs.
    pub fn tasks(&self) -> u64 {
        u64::from(self.jobs).saturating_mul(u64::from(self.maps) + u64::from(self.reduces))
    }
}

fn one() -> u32 {
    1
}

/// The work of a task.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Work {
    /// How long it takes alone, at its input.
    pub seconds: f64,
    /// Spread of that, as the sigma of a lognormal distribution with this mean.
    pub spread: f64,
    /// How much of it computes, 0 to 1; the rest is a disk's.
    pub computing: f64,
    /// Size of the input; 0: it has none, and runs equally well anywhere.
    pub bytes: u64,
    /// What it takes of a node.
    pub demand: Resources,
}

impl Default for Work {
    fn default() -> Work {
        Work { seconds: 10.0, spread: 0.0, computing: 1.0, bytes: 0, demand: Resources::default() }
    }
}

/// Tasks that take longer than their like.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stragglers {
    /// How many of them, 0 to 1.
    pub share: f64,
    /// How much longer.
    pub factor: f64,
}

impl Default for Stragglers {
    fn default() -> Stragglers {
        Stragglers { share: 0.0, factor: 5.0 }
    }
}

/// Nodes that go down, with what runs on them.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failures {
    /// Mean time until a node goes down, exponentially distributed.
    pub after_seconds: f64,
    /// How long it is down.
    pub down_seconds: f64,
}

/// Preemption, as Hadoop's Fair Scheduler has it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preempt {
    /// How long a group may be below its minimum.
    pub minimum_seconds: f64,
    /// How long it may be below half of its fair share.
    pub fair_seconds: f64,
    /// The tasks go that have run longest, to compare.
    #[serde(default)]
    pub oldest_first: bool,
}

/// One decision for a moment that is drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Once {
    /// The share of slots that are free.
    pub idle: f64,
    /// Tasks that wait; 0: as many as slots are free.
    pub waiting: usize,
    /// Mean and standard deviation of the seconds that an input takes within a rack.
    pub within_rack: [f64; 2],
    /// The same between racks.
    pub between_racks: [f64; 2],
}

impl Default for Once {
    fn default() -> Once {
        Once { idle: 0.5, waiting: 0, within_rack: [1.0, 0.0], between_racks: [1.0, 0.0] }
    }
}

/// Most tasks and slots for the solver alone.
const MOST_ROWS: f64 = 1e6;

/// Most jobs of a mix, and most tasks of all of them together: what waits is in memory.
pub(crate) const MOST_JOBS: u64 = 1_000_000;
const MOST_TASKS: u64 = 10_000_000;

/// Most slots of all nodes together.
const MOST_SLOTS: f64 = 1e7;

/// Most nodes with LRS: each has the core in it, and takes 0.1 MB.
const MOST_CORES: f64 = 50_000.0;

/// Most nodes that hold one input, of up to [`MOST_TASKS`].
const MOST_REPLICAS: usize = 100;

impl Scenario {
    /// The classes of jobs: those of a log, else those of the suite.
    pub fn jobs(&self) -> &[Class] {
        self.log.as_deref().map_or(&self.job, |log| log)
    }

    /// Takes the jobs of a log, [in groups](super::swf::Log::in_groups), in place of those of the suite.
    pub fn take(&mut self, jobs: Arc<Vec<Class>>) {
        self.log = Some(jobs);
        // They have no input.
        self.replicas = 1;
        self.arrivals = Arrivals { in_order: true, ..Arrivals::default() };
    }

    /// Every number that makes no sense, with its key.
    pub fn check(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut fault = |at: &str, what: String| faults.push(Fault { at: at.to_owned(), what });
        let mut number = |at: &str, value: f64, least: f64, most: f64| {
            if !(least..=most).contains(&value) {
                fault(at, format!("{value}; a number from {least} to {most:e} is wanted"));
            }
        };
        let long = 1e9;
        // What takes more than a node has would never start; or be killed for ever, where memory is
        // simulated.
        let room = self.nodes.capacity;
        let memory = match self.nodes.kind {
            Kind::Static => f64::MAX,
            Kind::Shared | Kind::Lrs => self.nodes.hardware().memory as f64,
        };
        let most = if self.nodes.kind == Kind::Lrs { MOST_CORES } else { 1e6 };
        number("nodes.count", self.nodes.count as f64, 1.0, most);
        let slots = self.slots();
        let slots = f64::from(slots.active) + f64::from(slots.passive);
        number(
            "nodes.active and nodes.passive of all",
            slots * self.nodes.count as f64,
            0.0,
            MOST_SLOTS,
        );
        number("nodes.racks", self.nodes.racks as f64, 1.0, 1e6);
        number("nodes.cpus", f64::from(self.nodes.cpus), 1.0, 1e4);
        number("nodes.disk", f64::from(self.nodes.disk), 1.0, 1e4);
        number("nodes.speed_spread", self.nodes.speed_spread, 0.0, 10.0);
        number("rounds", self.rounds as f64, 1.0, 1e6);
        let most = self.nodes.count.min(MOST_REPLICAS) as f64;
        number("replicas", f64::from(self.replicas), 1.0, most);
        number("heartbeat_seconds", self.heartbeat_seconds, 0.001, long);
        number("arrivals.mean_seconds", self.arrivals.mean_seconds, 0.0, long);
        number("arrivals.repeat", self.arrivals.repeat as f64, 0.0, 1e6);
        number("hints_wrong", self.hints_wrong.unwrap_or(0.0), 0.0, 1.0);
        number("stragglers.share", self.stragglers.share, 0.0, 1.0);
        number("stragglers.factor", self.stragglers.factor, 0.0, long);
        for (index, class) in self.job.iter().enumerate() {
            number(&format!("job[{index}].at_seconds"), class.at_seconds.unwrap_or(0.0), 0.0, long);
            for (kind, work) in [("map", class.map), ("reduce", class.reduce)] {
                let at = |field: &str| format!("job[{index}].{kind}.{field}");
                number(&at("seconds"), work.seconds, 0.0, long);
                number(&at("spread"), work.spread, 0.0, 10.0);
                number(&at("computing"), work.computing, 0.0, 1.0);
                let most = room.map(|room| room.fields()).unwrap_or([("", f64::MAX); 3]);
                for ((field, amount), (_, most)) in work.demand.fields().into_iter().zip(most) {
                    let most = if field == "memory_bytes" { most.min(memory) } else { most };
                    number(&at(&format!("demand.{field}")), amount, 0.0, most);
                }
            }
        }
        for wait in self.set.waits.into_iter().flatten() {
            number("set.waits", wait, 0.0, long);
        }
        for (at, value) in [("set.alpha", self.set.alpha), ("set.beta", self.set.beta)] {
            number(at, value.unwrap_or(0.0), 0.0, long);
        }
        if let Some(Failures { after_seconds, down_seconds }) = self.failures {
            number("failures.after_seconds", after_seconds, 0.001, long);
            number("failures.down_seconds", down_seconds, 0.0, long);
        }
        if let Some(Preempt { minimum_seconds, fair_seconds, .. }) = self.preempt {
            number("preempt.minimum_seconds", minimum_seconds, 0.0, long);
            number("preempt.fair_seconds", fair_seconds, 0.0, long);
        }
        if let Some(once) = self.once {
            number("once.idle", once.idle, 0.0, 1.0);
            number("once.waiting", once.waiting as f64, 0.0, 1e6);
            for [mean, deviation] in [once.within_rack, once.between_racks] {
                number("once.within_rack and once.between_racks", mean, 0.001, long);
                number("once.within_rack and once.between_racks", deviation, 0.0, long);
            }
        }
        if let Some(analysis) = self.analysis {
            number("analysis.nodes", analysis.nodes as f64, 1.0, 1e9);
            number("analysis.tasks", f64::from(analysis.tasks), 0.0, 1e7);
        }
        if let Some(rows) = self.solver {
            number("solver", rows as f64, 1.0, MOST_ROWS);
        }
        let timed = self.jobs().iter().filter(|class| class.at_seconds.is_some()).count();
        if timed > 0 && (timed < self.jobs().len() || self.arrivals.repeat != 1) {
            let what = "with this of one class all need it, and arrivals.repeat is 1";
            fault("job[].at_seconds", what.into());
        }
        let jobs: u64 = self.jobs().iter().map(|class| u64::from(class.jobs)).sum();
        let tasks = self.jobs().iter().map(Class::tasks).fold(0, u64::saturating_add);
        for (what, count, most) in [("jobs", jobs, MOST_JOBS), ("tasks", tasks, MOST_TASKS)] {
            if count > most {
                fault(
                    "job",
                    format!("{count} {what} in all classes together; at most {most} are possible"),
                );
            }
        }
        let is_run = self.once.is_none() && self.analysis.is_none() && self.solver.is_none();
        if is_run && self.jobs().is_empty() {
            fault("job", "there is none; name at least one class of jobs".into());
        }
        for (index, class) in self.jobs().iter().enumerate() {
            if class.tasks() == 0 {
                fault(&format!("job[{index}]"), "it has no jobs, or these have no tasks".into());
            }
            let named = class.group.as_ref();
            if named.is_some_and(|name| self.groups.iter().all(|group| group.name != *name)) {
                let what = format!("{:?} is not among the groups", class.group);
                fault(&format!("job[{index}].group"), what);
            }
        }
        if self.jobs().iter().any(|class| class.group.is_none())
            && self.groups.iter().any(|group| group.parent.is_some())
        {
            let what = "with groups below groups, each class of jobs needs its group";
            fault("job[].group", what.into());
        }
        faults
    }

    /// The cluster with nothing on it, or every fault.
    pub fn cluster(&self, network: Option<NetworkInput>) -> Result<Cluster, Vec<Fault>> {
        let slots = self.slots();
        let node = |index: usize| NodeInput {
            name: format!("n{index}"),
            rack: format!("r{}", index % self.nodes.racks.max(1)),
            slots,
            capacity: self.nodes.capacity,
        };
        let nodes = (0..self.nodes.count).map(node).collect();
        let (groups, jobs) = (self.groups.clone(), Vec::new());
        let network = network.or_else(|| self.network.clone());
        check(ClusterInput { nodes, network, groups, jobs, ..ClusterInput::default() })
            .map_err(|faults| faults.0)
    }

    /// The slots of a node at its start.
    pub fn slots(&self) -> SlotsInput {
        let Nodes { kind, active, passive, cpus, .. } = self.nodes;
        SlotsInput { active: if kind == Kind::Lrs { cpus } else { active }, passive }
    }

    /// The policy and whether it decides for all nodes together; or what is missing for it.
    pub fn policy(&self, cluster: &Cluster) -> Result<(Box<dyn Policy>, bool), Vec<Fault>> {
        let fault = |at: &str, what: String| vec![Fault { at: at.to_owned(), what }];
        let entry = Entry::among(&self.own, &self.policy)
            .map_err(|error| fault("policy", error.to_string()))?;
        let usual = entry.policy(cluster).map_err(|fault| vec![fault])?;
        let Settings { waits, skips, offers, alpha, beta, threshold, pool, mean } = self.set;
        let policy: Box<dyn Policy> = match (entry.name, waits, skips) {
            ("delay", Some([node, rack]), _) => {
                let [node, rack] = [node, rack].map(Duration::from_secs_f64);
                Box::new(Delay::new(Patience::Waits { node, rack }))
            }
            ("delay-offers", ..) if let Some([node, rack]) = offers => {
                Box::new(Delay::new(Patience::Offers { node, rack }))
            }
            ("delay-simple", _, Some(skips)) => Box::new(Delay::new(Patience::Skips(skips))),
            ("lsap-fair", ..) if alpha.is_some() || beta.is_some() => {
                let (alpha, beta) = (alpha.unwrap_or(1.0), beta.unwrap_or(200.0));
                Box::new(Lsap::Fair { alpha, beta })
            }
            ("wco", ..) => {
                let usual = Wco::default();
                let threshold = threshold.unwrap_or(usual.threshold);
                let (pool, mean) = (pool.unwrap_or(usual.pool), mean.unwrap_or(usual.mean));
                Box::new(Wco { threshold, pool, mean })
            }
            _ => usual,
        };
        Ok((policy, entry.together))
    }

    /// Whether a policy can be asked in this scenario at all.
    pub fn suits(&self, entry: &Entry) -> bool {
        entry.needs.iter().all(|needs| match needs {
            Needs::Network => self.network.is_some() || self.once.is_some(),
            Needs::Groups => !self.groups.is_empty(),
            Needs::Capacity => self.nodes.capacity.is_some(),
        })
    }
}
