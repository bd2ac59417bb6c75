//! One reading of the node and of every task, as data.
//!
//! A [`Sample`] holds *counters as read*, all at one moment; turning two of them into rates
//! is pure work and lives in [`crate::core::rate`].
//!
//! [`Sampler`] reads them, synchronously and on a thread of its own: a reading waits for the
//! kernel (PSI takes a mutex, memory.stat flushes per-CPU counters) and must not delay a
//! promotion. What it costs is bounded in three ways: files of the hot path stay open
//! ([`crate::kernfs::files`]), resident memory is refreshed for a few processes per cycle and carried over in
//! between, and threads are looked at only for tasks with a computing rate that needs it
//! ([`crate::core::rate::RateMeter::looks_wanted`]).
//!
//! Limits: in observe mode a task is the process and the descendants that were seen while
//! their parent lived; what a descendant used is lost if its parent ended before it and it
//! ends itself.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cgroup::{GroupDirs, MemoryGroups};
use crate::kernfs::files::{Descriptors, LimitError};
use crate::kernfs::name;
use crate::kernfs::parse::{self, Odd};
use crate::units::Bytes;

mod cpu;
mod group;
mod node;
mod parents;
mod sampler;
mod threads;
mod tree;

pub use crate::core::sample::{
    CpuTimes, DiskBytes, MemoryLimit, MemorySample, NodePressure, NodeSample, ParentSample, Sample,
    TaskPressure, TaskSample, ThreadCounters, ThreadLook,
};
pub use crate::executor::group::TaskSource;
pub use cpu::KeptCpuFile;
pub use node::cpus::{CpuReader, CpuReading, QuotaDirs};
pub use sampler::Sampler;

/// Where the sampler reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// procfs; a test gives a directory with captured files.
    pub proc: PathBuf,
    /// sysfs, for telling disks from partitions.
    pub sys: PathBuf,
    /// The LRS root and its ancestors in the cpu hierarchy, nearest first.
    pub quota_dirs: Vec<QuotaDirs>,
    /// Where the cpuset of tasks may be read, nearest first.
    pub cpuset_dirs: Vec<PathBuf>,
    /// The groups with the limits of memory that bound the tasks.
    pub memory_groups: Option<MemoryGroups>,
    /// How many files may stay open; see
    /// [`crate::kernfs::files::DescriptorLimit::sampler_budget`].
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
            memory_groups: None,
            kept_files,
            ticks_per_second: rustix::param::clock_ticks_per_second(),
            page_size: rustix::param::page_size() as u64,
        }
    }
}

/// Why sampling cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The descriptor limit could not be read or raised.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Without /proc there is nothing to sample.
    #[error("cannot read {path}: {source}; mount procfs there")]
    NoProc {
        /// The file tried.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
}

/// Names of files of which a row was left out: that is reported once, in the log, and not for each
/// task and cycle.
#[derive(Debug, Default)]
struct ReportedFiles(BTreeSet<OsString>);

impl ReportedFiles {
    /// `odd` is what was left out of `path`.
    fn left_out(&mut self, path: &Path, odd: &Odd) {
        let Some(row) = odd.row() else { return };
        if self.0.insert(path.file_name().unwrap_or_default().to_owned()) {
            let (path, row) = (path.display(), name::text(row));
            tracing::warn!(
                %path,
                "{path} has a row that is not understood: \"{row}\"; it is left out, and the other \
                 rows count; of other files of this name the same is not reported again"
            );
        }
    }
}

/// The counters a rate needs, read once and now: the last word of a task that has ended, the
/// first of a group that had a life before. Disk bytes and memory now are left out, and what could
/// not be read is `None`. Answers `None` when the group is gone.
pub fn read_final(dirs: &GroupDirs) -> Option<TaskSample> {
    let dirs = GroupDirs { io: None, ..dirs.clone() };
    read_now(dirs, group::GroupReader::read_times)
}

/// The last word of a task in a group that began with it: the same, and the bytes from and to `disks`,
/// the whole ones of the node; of none, how much is not known.
pub fn read_end(dirs: &GroupDirs, disks: &[(u32, u32)]) -> Option<TaskSample> {
    if disks.is_empty() {
        return read_final(dirs);
    }
    read_now(dirs.clone(), |reader, context| {
        let times = reader.read_times(context)?;
        let bytes = reader.read_bytes(context, |device| disks.contains(&device));
        let (read, written) = bytes.unzip();
        Some(TaskSample { read, written, ..times })
    })
}

/// The limits of memory in force above the tasks, read once and now, and what could not be read.
pub fn read_memory_limits(groups: Option<&MemoryGroups>) -> (Vec<MemoryLimit>, Vec<String>) {
    let mut problems = Vec::new();
    let mut reader = node::memory::LimitReader::new(groups);
    let limits = reader.read(&Descriptors::new(0), &mut Vec::new(), &mut problems);
    (limits, problems)
}

/// The most memory that a group ever had, page cache included; `None`: it is in no hierarchy of
/// `memory`, or the kernel is older than 5.19.
pub fn read_memory_peak(dirs: &GroupDirs) -> Option<Bytes> {
    let text = std::fs::read_to_string(dirs.memory.as_ref()?.join("memory.peak")).ok()?;
    text.trim().parse().ok().map(Bytes)
}

/// How many processes of a group and below it the kernel killed for want of memory, since it was made
/// (cgroup-v2.rst, "memory.events"); `None`: it is in no hierarchy of `memory`.
pub fn read_oom_kills(dirs: &GroupDirs) -> Option<u64> {
    let text = std::fs::read(dirs.memory.as_ref()?.join("memory.events")).ok()?;
    parse::keyed(&text, b"oom_kill")
}

fn read_now(
    dirs: GroupDirs,
    read: impl FnOnce(&mut group::GroupReader, &mut group::Context<'_>) -> Option<TaskSample>,
) -> Option<TaskSample> {
    let dirs = GroupDirs { memory: None, ..dirs };
    let top = dirs.cpuacct.clone();
    let (mut unreported, mut reported) = (Vec::new(), ReportedFiles::default());
    let mut context = group::Context {
        proc: std::path::Path::new("/proc"),
        page_size: 0,
        descriptors: &Descriptors::new(0),
        buffer: &mut Vec::new(),
        problems: &mut unreported,
        reported: &mut reported,
    };
    let read = read(&mut group::GroupReader::new(dirs, 0), &mut context)?;
    // Of a group without the file not even that is known, unless the group is gone.
    let is_there = || top.is_none_or(|dir| dir.exists());
    (read.cpu.is_some() || is_there()).then_some(read)
}
