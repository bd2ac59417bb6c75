//! Groups as the loop knows them: what the world answers about cgroups, and what it is asked to make of
//! them. Plain data; the files behind it are the world's.

use std::path::PathBuf;

use lrs_config::Version;
use lrs_core::errno::Explained;
use lrs_core::leaving::Manager;
use lrs_core::name;
pub use lrs_core::task::{Attachment, GroupRecord, Kin, Origin};
use lrs_core::units::{Pid, ProcessRef, Uids};
use lrs_core::weights::Scale;
pub use lrs_core::weights::WeightPlan;

/// What this node can do, for status and doctor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// `None` in observe mode without any hierarchy.
    pub version: Option<Version>,
    /// Path of the root below the controllers' mount, with a leading slash.
    pub root: String,
    /// How CPU tiers are made.
    pub cpu_tiers: CpuTiers,
    /// How disk tiers are made; the best of several ways.
    pub io_tiers: IoTiers,
    /// Whether each thread gets an I/O priority of its own.
    pub io_by_thread: bool,
    /// Why they are what they are; one or more sentences.
    pub reason: String,
}

/// `cgroup.cpu_tiers` of status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CpuTiers {
    Idle,
    Weight,
    None,
}

/// `cgroup.io_tiers` of status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum IoTiers {
    Bfq,
    IoCost,
    IoPrio,
    None,
}

/// An open task group. Cheap to clone; all paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What is stored about it.
    pub record: GroupRecord,
    /// Its directories.
    pub dirs: GroupDirs,
}

impl Group {
    /// Whether other software owns it, so that its weights are edited.
    pub fn is_in_place(&self) -> bool {
        self.record.attachment == Attachment::InPlace
    }
}

/// Where the sampler and the watcher find the files of a group. `None`: not there on this
/// machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupDirs {
    /// Directory with the CPU weight (v1 cpu, or v2).
    pub cpu: Option<PathBuf>,
    /// Directory with cpuacct.usage (v1) or cpu.stat (v2).
    pub cpuacct: Option<PathBuf>,
    /// Directory with blkio.* (v1) or io.stat (v2, where the io controller is enabled).
    pub io: Option<PathBuf>,
    /// Directory with memory.* - v2 only; LRS never touches v1 memory.
    pub memory: Option<PathBuf>,
    /// The group in a cgroup2 hierarchy: the group itself on v2, the twin on hybrid. Has
    /// cgroup.events and, where the kernel has per-cgroup PSI, cpu.pressure and io.pressure.
    pub unified: Option<PathBuf>,
}

/// Where a process is.
#[derive(Clone, Debug, Default)]
pub struct Position {
    /// Its group in each hierarchy in use, the one with the cpu controller first.
    pub origin: Origin,
    /// Its paths in all hierarchies of the node.
    pub paths: Vec<String>,
    /// The task of LRS's own tree that it is in.
    pub task: Option<lrs_core::model::TaskId>,
}

/// What a group's files say now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelView {
    /// cpu.weight (v2) or cpu.shares (v1).
    pub cpu_weight: Option<u64>,
    /// cpu.idle.
    pub cpu_idle: Option<bool>,
    /// io.bfq.weight, io.weight or blkio.bfq.weight.
    pub io_weight: Option<u64>,
    /// What the owner of an in-place group caps it at; `None`: no cap, or an own group, which
    /// has none.
    pub cpu_quota: Option<CpuQuota>,
    /// Whether all its processes are frozen, by whomever: `cgroup.events` of the cgroup2 group
    /// or twin, `freezer.state` on v1. `None` where neither is there. It is read with the weights,
    /// so what clients see of it may be four cycles old.
    pub frozen: Option<bool>,
}

/// A value found that LRS did not write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// File name.
    pub file: String,
    /// Content found.
    pub found: String,
    /// Content that should be there.
    pub expected: String,
}

/// How an attach ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Processes moved (0 in place).
    pub moved: usize,
}

/// What a task is made of, for the sampler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskSource {
    /// Everything in these groups and below.
    Group(GroupDirs),
    /// A process and its descendants (observe mode).
    Processes(ProcessRef),
}

/// CPU time a group may use in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    /// In microseconds.
    pub quota: u64,
    /// In microseconds.
    pub period: u64,
}

impl CpuQuota {
    /// In CPUs.
    pub fn cpus(self) -> f64 {
        self.quota as f64 / self.period.max(1) as f64
    }
}

/// Who holds a process, and whether its group could be a task as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// Who manages the groups that the process is in.
    pub held_by: HeldBy,
    /// Its group and those below hold no other process than the task's.
    pub alone: bool,
    /// Its group has a CPU weight of its own.
    pub weighed: bool,
}

/// Who manages the groups of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// No manager: it is in the root of each hierarchy or in LRS's own tree.
    None,
    /// systemd, in this unit, which is not delegated.
    Systemd(UnitPlace),
    /// Another manager.
    Manager(Manager),
}

/// Which processes make up the task that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// The process alone: it asks for itself, and execs.
    Itself,
    /// The process and its descendants.
    Family,
}

/// A unit, as the path of a cgroup names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitPlace {
    /// With its type.
    pub name: String,
    /// Its cgroup, from the root of systemd's hierarchy.
    pub path: String,
    /// It is one of a user's own service manager.
    pub of_user: bool,
}

impl UnitPlace {
    /// Whether it is a service; else it is a scope.
    pub fn is_service(&self) -> bool {
        self.name.ends_with(".service")
    }

    /// Whether it is the session of a login (systemd-logind.service(8)).
    pub fn is_login(&self) -> bool {
        self.name.starts_with("session-") && self.path.starts_with("/user.slice/user-")
    }
}

/// Something that makes a disk tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKnob {
    /// A weight file.
    Weight(Scale),
    /// `io.prio.class` (cgroup-v2.rst, 5.14+).
    PriorityClass,
    /// ioprio_set(2) on every thread, re-applied as threads come.
    ThreadPriority,
}

/// How disk tiers are made, and why so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoFinding {
    /// For status.
    pub tiers: IoTiers,
    /// One or more sentences.
    pub reason: String,
    /// What makes them, in this order.
    pub knobs: Vec<IoKnob>,
}

impl IoFinding {
    /// No disk tiers, for this reason.
    pub fn none(reason: impl Into<String>) -> IoFinding {
        IoFinding { tiers: IoTiers::None, reason: reason.into(), knobs: Vec::new() }
    }
}

/// What was found on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effects {
    /// What makes disk tiers.
    pub io: IoFinding,
    /// The scheduler in BPF that all tasks run under.
    pub sched_ext: Option<String>,
}

/// In which hierarchies the processes of a task are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// In all that LRS uses.
    #[default]
    All,
    /// On v1, in those of cpu, cpuacct and blkio alone: another manager holds them in the others.
    Weights,
}

/// What failed, on which file, with which value.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// A read or write failed.
    #[error(
        "cannot {action} {}{}: {}{}",
        name::of_path(path),
        value.as_ref().map(|v| format!(" (value {v:?})")).unwrap_or_default(),
        Explained(source),
        limit_of(action, source)
    )]
    Io {
        /// "write", "read", "create", ...
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What was written.
        value: Option<String>,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The process ended, or is another one now.
    #[error("process {0} has ended")]
    ProcessGone(Pid),
    /// The process or its group must not or cannot be moved or managed; the text says why and
    /// what to do.
    #[error("{0}")]
    Refused(String),
    /// Others moved the process, after LRS judged it (it is left there) or moved it.
    #[error("{0}")]
    MovedMeanwhile(String),
    /// The process or its group is not the caller's to have managed; the text names the owner
    /// and who may.
    #[error("{0}")]
    Denied(String),
    /// The node cannot do it at all; the text says what is missing and what to do.
    #[error("{0}")]
    Unsupported(String),
}
/// Which limit it is that the kernel means (cgroup-v2.rst, "Organizing Processes and Threads").
fn limit_of(action: &str, error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{StorageFull, WouldBlock};
    match (action, error.kind()) {
        ("create", WouldBlock) => {
            ": cgroup.max.descendants or cgroup.max.depth of a group above is reached"
        }
        ("create", StorageFull) => {
            ": the kernel has no room for another group with these controllers; groups that were \
             removed count until their memory is given back"
        }
        _ => "",
    }
}

/// Why a process with these `uids` is not `owner`'s to have managed, and what helps.
pub fn denied(pid: Pid, uids: Uids, owner: u32) -> CgroupError {
    CgroupError::Denied(format!(
        "process {pid} does not belong to uid {owner} alone (its uids: {uids}), and without an \
         admin's rights only processes that do can be managed: admit yours before they start it, \
         or ask root or a uid listed in [grpc] admins"
    ))
}

/// Whether `path` is `group` or below it.
pub fn is_within(path: &str, group: &str) -> bool {
    let below = path.strip_prefix(group.trim_end_matches('/'));
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
