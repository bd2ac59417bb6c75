//! What the operator may choose of the cgroups: hierarchy, root, how tiers are made.

use std::time::Duration;

use serde::{Deserialize, Serialize};

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
    /// How long the slices of tasks that compute are.
    pub slice: SliceSetting,
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

/// `tiers.slice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceSetting {
    /// The longest that the kernel takes, if it has slices at all.
    Auto,
    /// The kernel's own.
    Off,
    /// So long, 1 to 100 ms.
    Fixed(Duration),
}

impl SliceSetting {
    /// The longest slice that the kernel takes (`__setparam_fair`, kernel/sched/fair.c).
    const LONGEST: Duration = Duration::from_millis(100);

    /// How long a slice is to be; `None`: slices are the kernel's.
    pub fn length(self) -> Option<Duration> {
        match self {
            SliceSetting::Auto => Some(SliceSetting::LONGEST),
            SliceSetting::Off => None,
            SliceSetting::Fixed(length) => Some(length),
        }
    }
}
