//! One reading of the node and of every task, as data: counters as read, all at one moment.
//! Turning two of them into rates is [`crate::rate`].

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cpus::{CpuSet, UsableCpus};
use crate::model::TaskId;
use crate::units::{BootTime, Bytes};

/// Everything read in one cycle.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// When the reading began.
    pub at: BootTime,
    /// The node as a whole.
    pub node: NodeSample,
    /// Each watched task that could be read at all.
    pub tasks: Vec<(TaskId, TaskSample)>,
    /// How long the reading took.
    pub took: Duration,
}

/// Counters of the node. `None`: the kernel does not give it, or it could not be read
/// (then [`NodeSample::problems`] says why).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSample {
    /// CPUs the tasks of LRS may be spread over.
    pub cpus: Option<CpuSet>,
    /// The CPU quotas of the LRS root and the groups above it, nearest first.
    pub quotas: Vec<CpuQuota>,
    /// Time counters summed over those CPUs.
    pub cpu: Option<CpuTimes>,
    /// CPU time of the LRS root group and all below it, cumulative; `None` also where there is no such
    /// group (observe mode) or its hierarchy counts none.
    pub root_cpu: Option<Duration>,
    /// The groups right above tasks in place.
    pub parents: Vec<ParentSample>,
    /// Bytes read and written by whole disks since boot.
    pub disk: Option<DiskBytes>,
    /// Stall totals of /proc/pressure.
    pub pressure: Option<NodePressure>,
    /// /proc/meminfo.
    pub memory: Option<MemorySample>,
    /// Limits of cgroups above the tasks, from where tasks live upwards.
    pub memory_limits: Vec<MemoryLimit>,
    /// What could not be read, one sentence each.
    pub problems: Vec<String>,
}

impl NodeSample {
    /// The CPUs that tasks may use, within the least quota; `None`: the CPUs are not known.
    pub fn usable_cpus(&self) -> Option<UsableCpus> {
        let least = self.quotas.iter().map(|quota| quota.cpus).min_by(f64::total_cmp);
        Some(UsableCpus::new(self.cpus.as_ref()?.len(), least))
    }
}

/// A group of another owner, right above groups of tasks in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentSample {
    /// Its directory.
    pub group: Arc<Path>,
    /// CPU time of it and all below, cumulative.
    pub cpu: Duration,
    /// Tasks that were in it at any time since the reading before, and the names of their groups.
    pub tasks: Vec<(TaskId, Arc<OsStr>)>,
    /// Groups right in it that are no task's, by name. `None`: processes are in it beside groups, or it
    /// cannot be read.
    pub others: Option<Vec<Arc<OsStr>>>,
}

/// A CPU quota above the tasks (`cpu.max`; v1 `cpu.cfs_quota_us`).
#[derive(Clone, Debug, PartialEq)]
pub struct CpuQuota {
    /// The directory of the group that has it.
    pub group: String,
    /// What it allows, in CPUs.
    pub cpus: f64,
    /// CPU time that the group has used, cumulative.
    pub used: Option<Duration>,
}

/// /proc/stat, cumulative (proc_stat(5)); guest time is already inside user and nice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // the kernel's own words
pub struct CpuTimes {
    pub user: Duration,
    pub nice: Duration,
    pub system: Duration,
    pub idle: Duration,
    pub iowait: Duration,
    pub irq: Duration,
    pub softirq: Duration,
    pub steal: Duration,
}

/// Cumulative bytes of all whole disks (no partitions; a device that sits on others, such as
/// dm, md or loop, is not counted again).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DiskBytes {
    pub read: Bytes,
    pub written: Bytes,
}

/// `total=` of each line of /proc/pressure/* (Documentation/accounting/psi.rst). `None`: that file
/// or line is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct NodePressure {
    pub cpu_some: Option<Duration>,
    pub memory_some: Option<Duration>,
    pub memory_full: Option<Duration>,
    pub io_some: Option<Duration>,
    pub io_full: Option<Duration>,
}

/// /proc/meminfo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MemorySample {
    pub total: Bytes,
    pub available: Bytes,
    /// `None`: the node does not say.
    pub swap_used: Option<Bytes>,
}

/// A limit of memory in force above the tasks, and what its group uses of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The file it is in: `memory.max`, `memory.high` or `memory.limit_in_bytes` of a group.
    pub file: Arc<str>,
    /// Its value.
    pub limit: Bytes,
    /// What the group and all below it use.
    pub used: Bytes,
    /// What of that the kernel takes back before it lets the group go without.
    pub reclaimable: Bytes,
}

/// Counters of one task, cumulative over the life of its cgroup (own) or as its owner's
/// cgroup has them (in place: the caller keeps the value at admission).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskSample {
    /// CPU time, user + system, exited children included.
    pub cpu: Option<Duration>,
    /// Bytes read from disks.
    pub read: Option<Bytes>,
    /// Bytes written to disks.
    pub written: Option<Bytes>,
    /// Resident memory now, page cache not included.
    pub resident: Option<Bytes>,
    /// The most memory its own group ever had, page cache included (`memory.peak`); read once, at
    /// the end.
    pub memory_peak: Option<Bytes>,
    /// Processes in it that the kernel killed for want of memory, ever; read at the admission and at the
    /// end.
    pub oom_kills: Option<u64>,
    /// The task's own stall totals, where its cgroup has PSI.
    pub pressure: Option<TaskPressure>,
    /// Whether every thread was asleep (neither running, runnable nor in uninterruptible
    /// wait) at the moment of the reading. `None`: not looked at.
    pub asleep: Option<bool>,
    /// Whether no thread was running or runnable but at least one in uninterruptible wait.
    /// `None`: not looked at.
    pub disk_wait: Option<bool>,
    /// Counters of the thread last seen awake. `None`: never looked at, or it has ended and
    /// no other was seen awake since.
    pub thread: Option<ThreadCounters>,
}

impl TaskSample {
    /// What the reading saw of the threads.
    pub fn look(&self) -> Option<ThreadLook> {
        match (self.asleep?, self.disk_wait?) {
            (true, _) => Some(ThreadLook::Asleep),
            (false, true) => Some(ThreadLook::DiskWait),
            (false, false) => Some(ThreadLook::Runnable),
        }
    }
}

/// What the threads of a task did at one moment, taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThreadLook {
    /// At least one was running or runnable (R).
    Runnable,
    /// None was, and at least one waited uninterruptibly (D).
    DiskWait,
    /// None of either.
    Asleep,
}

/// Counters of the threads seen awake, one after the other: each adds what it did from the
/// moment it was first seen (/proc/PID/task/TID/schedstat and status).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCounters {
    /// Time on a CPU.
    pub ran: Duration,
    /// Time waited for one, waits that ended.
    pub waited: Duration,
    /// Times it gave the CPU up to wait for something.
    pub voluntary: u64,
    /// Times the CPU was taken from it.
    pub involuntary: u64,
}

/// `some ... total=` of the task's cpu.pressure and io.pressure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct TaskPressure {
    pub cpu_some: Duration,
    pub io_some: Duration,
}
