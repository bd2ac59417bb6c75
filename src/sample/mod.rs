//! One reading of the node and of every task, as data.
//!
//! A [`Sample`] holds *counters as read*, all at one moment; turning two of them into rates
//! is pure work and lives in [`crate::core::rate`].
//!
//! [`Sampler`] reads them, synchronously and on a thread of its own: a reading waits for the
//! kernel (PSI takes a mutex, memory.stat flushes per-CPU counters) and must not delay a
//! promotion. What it costs is bounded in three ways: files of the hot path stay open
//! ([`files`]), resident memory is refreshed for a few processes per cycle and carried over in
//! between, and threads are looked at only for tasks whose computing rate needs it
//! ([`crate::core::rate::RateMeter::looks_wanted`]).
//!
//! Limits: in observe mode a task is the process and the descendants that were seen while
//! their parent lived; what a descendant used whose parent ended before it is lost when it
//! ends itself.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cgroup::GroupDirs;
use crate::core::model::TaskId;
use crate::units::{BootTime, Bytes, ProcessRef};

pub mod files;
mod group;
mod node;
pub mod parse;
mod sampler;
mod threads;
mod tree;

pub use files::{DescriptorLimit, raise_descriptor_limit};
pub use node::usable_cpus;
pub use sampler::Sampler;

/// Where the sampler reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// procfs; a test gives a directory with captured files.
    pub proc: PathBuf,
    /// sysfs, for telling disks from partitions.
    pub sys: PathBuf,
    /// Directories of the LRS root and its ancestors in the cpu hierarchy: the smallest quota
    /// among them bounds A. See [`Settings::ancestors`].
    pub quota_dirs: Vec<PathBuf>,
    /// The same in the hierarchy with cpuset files; empty where LRS's tasks have the daemon's.
    pub cpuset_dirs: Vec<PathBuf>,
    /// How many files may stay open; see [`DescriptorLimit::sampler_budget`].
    pub kept_files: u64,
    /// sysconf(_SC_CLK_TCK).
    pub ticks_per_second: u64,
    /// sysconf(_SC_PAGESIZE), bytes.
    pub page_size: u64,
}

impl Settings {
    /// This machine, without a cgroup root.
    pub fn of_this_machine(kept_files: u64) -> Settings {
        Settings {
            proc: "/proc".into(),
            sys: "/sys".into(),
            quota_dirs: Vec::new(),
            cpuset_dirs: Vec::new(),
            kept_files,
            ticks_per_second: rustix::param::clock_ticks_per_second(),
            page_size: rustix::param::page_size() as u64,
        }
    }

    /// `dir` and every directory above it down to `mount`, both included; only `dir` when it
    /// is not below `mount`.
    pub fn ancestors(mount: &std::path::Path, dir: &std::path::Path) -> Vec<PathBuf> {
        if !dir.starts_with(mount) {
            return vec![dir.to_path_buf()];
        }
        dir.ancestors().take_while(|path| path.starts_with(mount)).map(Into::into).collect()
    }
}

/// What a task is made of, for the sampler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskSource {
    /// Everything in these groups and below.
    Group(GroupDirs),
    /// A process and its descendants (observe mode).
    Processes(ProcessRef),
}

/// Why sampling cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The descriptor limit could not be read or raised.
    #[error("{call}(RLIMIT_NOFILE) failed: {source}")]
    Limit {
        /// The system call.
        call: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// Without /proc there is nothing to sample.
    #[error("cannot read {path}: {source}; mount procfs there")]
    NoProc {
        /// The file tried.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// The counters a rate needs, read once and now: the last word of a task that has ended, the
/// first of a group that had a life before. Disk bytes and memory are left out, and what could
/// not be read is `None`. Answers `None` when the group is gone.
pub fn read_final(dirs: &GroupDirs) -> Option<TaskSample> {
    let dirs = GroupDirs { io: None, memory: None, ..dirs.clone() };
    let mut unsaid = Vec::new();
    let mut context = group::Context {
        proc: std::path::Path::new("/proc"),
        page_size: 0,
        descriptors: &files::Descriptors::new(0),
        buffer: &mut Vec::new(),
        problems: &mut unsaid,
    };
    group::GroupReader::new(dirs, 0).read_times(&mut context)
}

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
    /// CPUs the tasks of LRS may use: affinity of the daemon, cpuset and quota of the root.
    pub cpus: Option<u32>,
    /// The same without the quota: those they may be spread over.
    pub allowed_cpus: Option<u32>,
    /// Time counters summed over those CPUs.
    pub cpu: Option<CpuTimes>,
    /// Bytes read and written by whole disks since boot.
    pub disk: Option<DiskBytes>,
    /// Stall totals of /proc/pressure.
    pub pressure: Option<NodePressure>,
    /// /proc/meminfo.
    pub memory: Option<MemorySample>,
    /// What could not be read, one sentence each.
    pub problems: Vec<String>,
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

/// `total=` of each line of /proc/pressure/* (Documentation/accounting/psi.rst).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct NodePressure {
    pub cpu_some: Duration,
    pub memory_some: Duration,
    pub memory_full: Duration,
    pub io_some: Duration,
    pub io_full: Duration,
}

/// /proc/meminfo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MemorySample {
    pub total: Bytes,
    pub available: Bytes,
    pub swap_used: Bytes,
}

/// Counters of one task, cumulative over the life of its cgroup (own) or as its owner's
/// cgroup has them (in place: the caller keeps the value at admission).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskSample {
    /// CPU time, user + system, exited children included.
    pub cpu: Option<Duration>,
    /// Bytes read from disks.
    pub read: Option<Bytes>,
    /// Bytes written to disks.
    pub written: Option<Bytes>,
    /// Resident memory now, page cache not included.
    pub resident: Option<Bytes>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
