//! Task groups and their tiers: the only code that writes below the LRS root.
//!
//! One cgroup for each task; a tier is that cgroup's weights, changed in place: rewriting a
//! weight takes microseconds and is atomic for all processes of the task, moving 40 threads
//! takes milliseconds and races with fork (spec 4).
//!
//! | file | job |
//! |---|---|
//! | `mounts` | which hierarchies there are |
//! | `layout` | which of them are used, and where the root is |
//! | `open`, `lock` | making the root, controllers, one daemon a root |
//! | `probe` | what the kernel and the disks can do, with reasons |
//! | `effects` | what of that makes tiers at present |
//! | `tree`, `tiers`, `release` | [`TierTree`] on the kernel's files; what a tier is in them; tasks given back |
//! | `look` | what it answers of processes and groups without writing |
//! | `inspect` | the look at every group's weights, every few cycles |
//! | `process`, `mover` | identity and kind of a process; moving one |
//! | `attach`, `evacuate` | moving it and its descendants, and back |
//! | `walk`, `dirs` | groups below a group; making and removing those of a task |
//! | `knob` | the files that make a tier, one module for each; thread priorities; the freezer |
//! | `in_place`, `limits` | groups of others; limits a move escapes |
//! | `surroundings` | who holds a process: none, a unit of systemd's, or another manager |
//! | `kin`, `quota`, `memory` | the processes of a session; what a quota lets a group have; which limits of memory bound tasks |
//! | `owner` | who owns the processes |
//! | `members` | who is in a group, whether they are frozen |
//! | `obstacle` | what makes admissions impossible, in words that doctor shares |
//! | `trial` | an admission before any task is: the start's proof |
//! | `observe` | what [`TierTree`] answers where nothing is written |
//! | `halts` | what others froze or stopped |
//! | `disk_lines` | weights of single devices, kept for the owner |
//! | `neutral` | the values of a new group |
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
//! forgets them when it leaves; `knob.rs` therefore compares `cpu.idle` first.
//! `tests/kernel_facts.rs` asserts this and the next facts on the kernel at hand.
//!
//! Limits. Groups of processes LRS cannot see (pid namespaces above its own) are listed by the
//! kernel as pid 0 and left out. Controllers enabled on the way to the root stay enabled.

use std::path::PathBuf;

pub use crate::core::task::{Attachment, GroupRecord, Kin, Origin};
pub use crate::executor::group::{
    Attached, Capabilities, CgroupError, CpuQuota, CpuTiers, Drift, Effects, Group, GroupDirs,
    HeldBy, IoFinding, IoKnob, IoTiers, KernelView, Members, Position, Reach, Surroundings,
    UnitPlace, WeightPlan,
};
pub(crate) use crate::executor::group::{denied, is_within};
use crate::units::{Pid, ProcessRef};

mod attach;
pub(crate) mod cpus;
mod dirs;
mod disk_lines;
mod effects;
mod evacuate;
mod files;
mod give_back;
mod halts;
mod in_place;
mod inspect;
mod kin;
mod knob;
mod layout;
mod limits;
mod lock;
mod look;
mod members;
mod memory;
pub(crate) mod mounts;
mod mover;
mod name;
mod neutral;
mod observe;
pub(crate) mod obstacle;
mod open;
mod owner;
pub mod probe;
mod process;
mod quota;
mod release;
mod scope;
mod surroundings;
mod tiers;
mod tree;
mod trial;
mod walk;
mod whereabouts;

pub use give_back::RecordedGroups;
pub use inspect::{OpenFiles, Reading};
pub(crate) use lock::LOCK;
pub use lrs_config::{DiskTiers, PassiveCpu, SliceSetting, TreeSettings, Version};
pub use memory::MemoryGroups;
pub use name::task_group;
pub(crate) use process::{Membership, below};
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
    layout::preview(settings)
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
