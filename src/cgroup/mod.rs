//! Task groups and their tiers: the only code that writes below the LRS root.
//!
//! One cgroup for each task; a tier is that cgroup's weights, changed in place: rewriting a
//! weight takes microseconds and is atomic for all processes of the task, moving 40 threads
//! takes milliseconds and races with fork (spec 4).
//!
//! | file | job |
//! |---|---|
//! | `mounts` | which hierarchies there are |
//! | `open`, `lock` | choosing one, making the root, controllers, one daemon a root |
//! | `probe` | what the kernel and the disks can do, with reasons |
//! | `effects` | the same read anew while the daemon runs |
//! | `weights` | pure: plan and ranges to numbers |
//! | `tree`, `tiers` | [`TierTree`] on the kernel's files; what a tier is in them |
//! | `inspect` | the look at every group's weights, every few cycles |
//! | `process`, `attach`, `evacuate` | identity and kind of a process; moving it and its descendants, and back |
//! | `in_place`, `limits`, `ioprio` | groups of others; limits a move escapes; thread priorities |
//! | `surroundings` | who holds a process: none, a unit of systemd's, or another manager |
//! | `kin`, `quota`, `memory` | the processes of a session; what a quota lets a group have; which limits of memory bound tasks |
//! | `owner` | who owns the processes |
//! | `members` | who is in a group, whether they are frozen |
//! | `obstacle` | what makes admissions impossible, in words that doctor shares |
//! | `trial` | an admission before any task is: the start's proof |
//! | `observe` | what [`TierTree`] answers where nothing is written |
//! | `freeze` | a group frozen and thawed, for the guard |
//! | `halts` | what others froze or stopped |
//! | `disk_lines` | weights of single devices, kept for the owner |
//! | `give_back` | groups of records without a tree, for the removal of LRS |
//!
//! **One directory for v1, v2 and hybrid.** A task has the same path in every hierarchy in use; the
//! code differs only in names and ranges of files. On v1 that is cpu, cpuacct, blkio, freezer, a
//! twin in the cgroup2 mount if there is one (for `cgroup.events` and pressure), and systemd's
//! hierarchy where systemd runs. Never memory, pids, devices, cpuset: a move would lift limits that
//! are not ours.
//!
//! **`cpu.idle` for passive tasks** where the kernel has it and the group is ours: a waking active
//! task preempts them at once, which weights alone do not give. An idle group refuses weights and
//! forgets them when it leaves; `tiers.rs` therefore compares `cpu.idle` first.
//! `tests/kernel_facts.rs` asserts this and the next facts on the kernel at hand.
//!
//! Limits. Groups of processes LRS cannot see (pid namespaces above its own) are listed by the
//! kernel as pid 0 and left out. Controllers enabled on the way to the root stay enabled.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crate::core::task::{Attachment, GroupRecord, Kin, Origin};
use crate::kernfs::files::Explained;
use crate::units::{Pid, ProcessRef};

mod attach;
pub(crate) mod cpus;
mod dirs;
mod disk_lines;
mod effects;
mod evacuate;
mod files;
mod freeze;
mod give_back;
mod halts;
mod in_place;
mod inspect;
mod ioprio;
mod kin;
mod limits;
mod lock;
mod members;
mod memory;
pub(crate) mod mounts;
mod name;
mod observe;
pub(crate) mod obstacle;
mod open;
mod owner;
pub mod probe;
mod process;
mod quota;
mod scope;
mod surroundings;
mod tiers;
mod tree;
mod trial;
mod weights;
mod whereabouts;

pub use effects::Effects;
pub use give_back::RecordedGroups;
pub use in_place::has_least_cpu_weight;
pub use inspect::{OpenFiles, Reading};
pub(crate) use lock::LOCK;
pub use memory::MemoryGroups;
pub use name::task_group;
pub(crate) use owner::denied;
pub(crate) use process::{Membership, below, is_within};
pub use quota::CpuQuota;
pub use surroundings::{HeldBy, Members, Surroundings, UnitPlace};
pub use tree::TierTree;
pub(crate) use whereabouts::OwnGroups;
pub use whereabouts::{Places, Whereabouts};

/// The tree of enforce mode: finds the hierarchy, makes and locks the root.
///
/// # Errors
/// `Unsupported` when this node or these rights do not allow it, `Refused` when another daemon
/// holds the root; both say what to do. What was begun is undone.
pub fn open(settings: &TreeSettings) -> Result<TierTree, CgroupError> {
    TierTree::open(settings, false)
}

/// The same for a daemon that comes back to tasks it has records of: what makes admissions
/// impossible does not refuse it, but is among [`TierTree::warnings`].
///
/// # Errors
/// As [`open()`], for other reasons.
pub fn take_over(settings: &TreeSettings) -> Result<TierTree, CgroupError> {
    TierTree::open(settings, true)
}

/// What [`open()`] would use, looked up without any write: for doctor and observe mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// Version of the hierarchy with the cpu controller.
    pub version: Version,
    /// Directory of the root, which need not exist yet.
    pub root: PathBuf,
    /// Why the root could not be made or written; `None` when it could.
    pub obstacle: Option<String>,
}

/// See [`Preview`].
///
/// # Errors
/// `Unsupported` when no hierarchy fits `settings`; the text says what to do.
pub fn preview(settings: &TreeSettings) -> Result<Preview, CgroupError> {
    open::preview(settings)
}

/// The tree of observe mode: no writes, attachment `none`.
pub fn observe(settings: &TreeSettings) -> TierTree {
    TierTree::observe(settings)
}

/// The paths of `pid` in every hierarchy of the node, as [`crate::kernfs::name`] keeps them.
///
/// # Errors
/// `ProcessGone`, or its file cannot be read.
pub fn paths(pid: Pid) -> Result<Vec<String>, CgroupError> {
    process::paths(pid)
}

/// Whether weights of `unit`, the path of a unit's cgroup, are what `pid` competes with: it is
/// there, and in the hierarchy of the cpu controller too or, as long as systemd has made it no
/// group there (v1), above. One that has ended is nowhere.
pub fn is_shaped_by(pid: Pid, unit: &str) -> bool {
    let Ok(Some(membership)) = process::Membership::read(pid) else { return false };
    membership.paths().any(|path| path == unit)
        && membership.with_cpu().is_some_and(|cpu| is_within(unit, cpu))
}

/// Whether `process` has ended: it is gone, a zombie, dead, another one by its start time, or
/// exiting with no other thread alive (it may have left its cgroup then while its state is
/// still `R` and its pidfd not yet readable). A process that cannot be looked at has not.
pub fn has_ended(process: ProcessRef) -> bool {
    process::has_ended(process)
}

/// Which kernel interface carries the controllers. Hybrid machines (v1 controllers beside an
/// empty cgroup2 mount) are `V1`; the twin group in the cgroup2 mount is an extra.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Version {
    V1,
    V2,
}

/// What the operator asked for, already checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeSettings {
    /// Path below the mount, without leading slash; `None` is "auto".
    pub root: Option<String>,
    /// `None` is "auto".
    pub version: Option<Version>,
    /// How passive tasks of own cgroups are held back on the CPU.
    pub passive_cpu: PassiveCpu,
    /// How passive tasks are held back on disks.
    pub io: DiskTiers,
    /// v2: whether the groups of tasks have the memory controller.
    pub memory: bool,
    /// CPU weight of the root among its siblings; `None` is "auto": it follows what active tasks
    /// want, up to A times neutral.
    pub root_weight: Option<u32>,
}

/// `tiers.io`.
///
/// The idle I/O class is no default, because it loses: mq-deadline serves it only while nothing
/// of a higher class is queued or in flight (`dd_dispatch_request`, block/mq-deadline.c), so
/// passive writers leave the disk idle, and an active task with a commit that waits for a passive
/// request in the same journal transaction waits as long (docs/experiments/disk-tiers.md has the figures).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskTiers {
    /// Weights on disks where they act (BFQ, iocost); other disks are shared equally.
    Weights,
    /// Weights on disks where they act; on a node without any the idle I/O class.
    Idle,
    /// All disks are shared equally.
    Off,
}

/// `tiers.passive_cpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PassiveCpu {
    /// `cpu.idle` where the kernel has it, else weights.
    Auto,
    /// `cpu.idle`; refuse to start without it.
    Idle,
    /// Weights only.
    Weight,
}

/// What the weights have to promise: `ratio` between the full tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightPlan {
    /// `tiers.ratio`.
    pub ratio: u32,
    /// A.
    pub active_capacity: u32,
    /// `passive_max`.
    pub passive_max: u32,
}

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
    pub task: Option<crate::core::model::TaskId>,
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

/// What must hold of processes for an attach to move them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conditions<'a> {
    /// The main process is where it was when it was judged, in every hierarchy in use: what
    /// [`TierTree::position`] answered then. `None`: it is moved from wherever it is.
    pub from: Option<&'a [(String, String)]>,
    /// Every process that is moved belongs to this uid alone (all four uids), before and after the
    /// move. `None`: it may be anybody's.
    pub owner: Option<u32>,
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
        crate::kernfs::name::of_path(path),
        value.as_ref().map(|v| format!(" (value {v:?})")).unwrap_or_default(),
        Explained(source),
        files::limit_of(action, source)
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
    /// Others moved the process, after LRS judged it ([`Conditions::from`]; it is left there) or moved it.
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
