//! What one run brought, as it is kept: one JSON object a line in `runs.jsonl`, so that a bench
//! that is stopped loses nothing and every figure of a report can be checked or computed anew.
//!
//! Times are seconds on the monotonic clock since the run began, unless the name says otherwise.
//! Shares are of all CPU time of the node, 0 to 1. Unknown is null.

use serde::{Deserialize, Serialize};

/// The node and the suite of a set of runs (`machine.json`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the suite.
    pub suite: String,
    /// What it is for, in a sentence.
    pub about: String,
    /// Version of LRS.
    pub lrs: String,
    /// `uname -sr`.
    pub kernel: String,
    /// Model name of the first CPU (proc_cpuinfo(5)).
    pub cpu: Option<String>,
    /// CPUs the tasks may use.
    pub cpus: u32,
    /// MemTotal.
    pub memory_bytes: Option<u64>,
    /// cgroup version, how the tiers of CPU and disk are made, as lrsd reports them.
    pub cgroup: Option<Cgroup>,
    /// File system, device and I/O scheduler below the working directory; of a modelled disk its
    /// model, which begins with `modelled`.
    pub disk: String,
    /// Load average over a minute before the first run (proc_loadavg(5)).
    pub load_average: Option<f64>,
    /// Wall time of the first run, RFC 3339.
    pub began: String,
    /// The command line.
    pub command: Vec<String>,
    /// Rounds that were asked for.
    pub rounds: u32,
    /// Names of the settings in the order of the suite.
    pub settings: Vec<Setting>,
    /// Names of the loads in the order of the suite.
    pub loads: Vec<Load>,
}

impl Machine {
    /// Whether the disk was a model, with a server that takes CPU time of its own.
    pub fn has_modelled_disk(&self) -> bool {
        self.disk.starts_with("modelled")
    }
}

/// How lrsd holds tiers apart on this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cgroup {
    /// `1`, `2` or `hybrid`.
    pub version: String,
    /// `idle`, `weight` or `none`.
    pub cpu_tiers: String,
    /// `bfq`, `iocost`, `ioprio` or `none`.
    pub io_tiers: String,
}

/// A setting as the report needs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// As the suite has it.
    pub name: String,
    /// What decides which tasks run.
    pub kind: SettingKind,
    /// In words: `1.5 slots a core, plain processes`.
    pub about: String,
}

/// What decides which tasks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingKind {
    /// A fixed number at a time, plain processes.
    Static,
    /// A fixed number at a time, in equal-weight cgroups through the same admission.
    StaticCgroup,
    /// LRS: what ratios refer to. The first of this kind is the reference.
    Lrs,
    /// The reference once more, for the noise floor.
    LrsAgain,
    /// LRS with other settings.
    LrsVariant,
    /// One task of each kind by itself on an idle node: what slowdown refers to.
    Alone,
}

/// A load as the report needs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// As the suite has it.
    pub name: String,
    /// What it asks most of the node; results are grouped by it.
    pub class: LoadClass,
    /// In a sentence.
    pub about: String,
    /// Tasks of one run.
    pub tasks: u32,
}

/// What a load asks most of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadClass {
    /// Computing.
    Cpu,
    /// Computing and disk by turns.
    Moderate,
    /// Disk.
    Io,
    /// Several of these.
    Mixed,
}

/// One run of one load in one setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Name of the load.
    pub load: String,
    /// Name of the setting.
    pub setting: String,
    /// From 0. Runs of one load and round are compared with each other.
    pub round: u32,
    /// Place among the runs of its load and round, from 0.
    pub place: u32,
    /// Wall time of the begin, RFC 3339.
    pub began: String,
    /// From the first arrival to the last exit; null unless every task ended by itself.
    pub makespan_seconds: Option<f64>,
    /// How long it took, complete or not.
    pub lasted_seconds: f64,
    /// What went wrong: a task that failed, the time limit, a check that did not hold.
    pub faults: Vec<String>,
    /// What makes it doubtful, though it is complete: shown as warnings.
    #[serde(default)] // runs kept in docs/figures from before there were notes
    pub notes: Vec<String>,
    /// In the order of the suite.
    pub tasks: Vec<Task>,
    /// The node from the first arrival to the last exit.
    pub node: Node,
    /// Every half second or so.
    pub timeline: Vec<Point>,
    /// Slots of the setting, if they are fixed.
    pub static_slots: Option<u32>,
    /// Changes lrsd counted; null without lrsd.
    pub decisions: Option<Decisions>,
}

/// One task of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// `map-3`
    pub name: String,
    /// The name of its group in the suite: tasks of one group are alike.
    pub group: String,
    /// As submitted.
    pub priority: i32,
    /// When it arrived.
    pub arrived: f64,
    /// When its slot was given: its process started, or LRS admitted it. Null: never, or not
    /// known, which the run's notes say.
    pub started: Option<f64>,
    /// When it exited. Null: not within the time limit.
    pub ended: Option<f64>,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether it was active when it began; null without tiers.
    pub began_active: Option<bool>,
    /// When it was promoted, if it was.
    pub promoted: Option<f64>,
    /// Whether it was ever demoted; null without tiers.
    pub demoted: Option<bool>,
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Exit status 0.
    Ok,
    /// Another exit status.
    Exit(i32),
    /// Ended by a signal.
    Signal(i32),
    /// Killed at the time limit of the run.
    TimeLimit,
    /// Not ended when lrsd failed, and killed with the run.
    LrsdFailed,
    /// It could not be started; the system's words.
    NotSpawned(String),
    /// The run ended before its turn.
    NotStarted,
}

/// What the node did during a run (proc_stat(5), proc_diskstats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// user + nice + system + irq + softirq.
    pub effective: Option<f64>,
    /// Idle with I/O outstanding.
    pub iowait: Option<f64>,
    /// Taken by the hypervisor.
    pub steal: Option<f64>,
    /// The part of `effective` that was not the tasks': other work of the machine, kernel
    /// threads, write-back, a modelled disk, lrsd. What makes a run doubtful.
    pub others: Option<f64>,
    /// Of all CPUs.
    pub context_switches: Option<u64>,
    /// Of the disk of the working directory.
    pub read_bytes: Option<u64>,
    /// Of the disk of the working directory.
    pub written_bytes: Option<u64>,
    /// The most that MemAvailable (proc_meminfo(5)) was below its value at the begin, of the points of the
    /// timeline.
    pub memory_peak_bytes: Option<u64>,
}

/// One point of a timeline: the node since the point before, the slots now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// When.
    pub at: f64,
    /// As in [`Node`].
    pub effective: Option<f64>,
    /// As in [`Node`].
    pub iowait: Option<f64>,
    /// Tasks that run now.
    pub running: u32,
    /// Arrived, and without a slot.
    pub waiting: u32,
    /// Slots in use; null without tiers.
    pub active_used: Option<u32>,
    /// Slots there are.
    pub active_capacity: Option<u32>,
    /// Slots in use.
    pub passive_used: Option<u32>,
    /// Slots there are.
    pub passive_capacity: Option<u32>,
}

/// What lrsd decided during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisions {
    /// Tasks that became active.
    pub promoted: u64,
    /// Tasks that became passive.
    pub demoted: u64,
    /// Times passive slots were added.
    pub expanded: u64,
    /// Times passive slots were withdrawn.
    pub shrunk: u64,
}
