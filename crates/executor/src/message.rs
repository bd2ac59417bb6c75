//! What comes back to the loop: answers to what it began ([`super::job`]), and what an operator wants.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::job::{Asking, CalledOff};
use super::keeping::UnitReport;
use crate::command::{CommandError, Reply};
use crate::found::DiscoveredTask as FoundProcess;
use crate::group::{Attached, CgroupError, Drift, Effects, Group, KernelView};
use lrs_core::cpus::CpuSet;
use lrs_core::effect::CpuSplit;
use lrs_core::exit::Exit;
use lrs_core::model::{TaskId, Tier};
use lrs_core::sample::{NodeSample, Sample, ThreadLook};
use lrs_core::task::Halt;
use lrs_core::unit::{UnitRecord, Weights};
use lrs_core::units::{BootTime, Bytes, Pid, ProcessRef};

/// The group of a task, and the tier that its weights are of; `None`: those it was made with.
pub type Placed = (Arc<Group>, Attached, Option<Tier>);

/// How an attach ended.
pub type AttachResult = Result<Placed, CgroupError>;

/// What the threads tell the loop.
#[derive(Debug)]
pub enum Message {
    /// Answer to [`GroupJob::Attach`](super::job::GroupJob::Attach).
    Attached {
        /// The task.
        task: TaskId,
        /// How it went.
        result: AttachResult,
    },
    /// Answer to [`GroupJob::Reattach`](super::job::GroupJob::Reattach).
    Reattached {
        /// The task.
        task: TaskId,
        /// How it went.
        result: Result<Attached, CgroupError>,
    },
    /// Answer to [`GroupJob::Release`](super::job::GroupJob::Release).
    Released {
        /// The task.
        task: TaskId,
        /// How it went.
        result: Result<Option<Halt>, CgroupError>,
    },
    /// The root had to be made anew, and needs its weight.
    RootRemade,
    /// Answer to [`UnitJob::ShapeRoot`](super::job::UnitJob::ShapeRoot).
    RootShaped {
        /// How it went.
        result: Result<(), CgroupError>,
    },
    /// Answer to [`GroupJob::Remove`](super::job::GroupJob::Remove), only when it failed.
    NotRemoved {
        /// The task.
        task: TaskId,
        /// Its group, for another try.
        group: Arc<Group>,
        /// Why.
        error: CgroupError,
    },
    /// Answer to [`UnitJob::Look`](super::job::UnitJob::Look).
    UnitLooked {
        /// The admission.
        asking: Box<Asking>,
        /// Who is to be admitted.
        result: Result<Looked, CommandError>,
    },
    /// Answer to [`UnitJob::LookFound`](super::job::UnitJob::LookFound).
    FoundLooked {
        /// What was found.
        found: Box<FoundProcess>,
        /// What systemd reported of its unit.
        report: UnitReport,
        /// The finder, which waits for the answer.
        reply: Reply<TaskId>,
    },
    /// Answer to [`UnitJob::Prepare`](super::job::UnitJob::Prepare).
    UnitPrepared {
        /// The task.
        task: TaskId,
        /// Its files.
        result: Result<Prepared, CommandError>,
    },
    /// Answer to [`UnitJob::Tell`](super::job::UnitJob::Tell).
    UnitAnswered {
        /// The task.
        task: TaskId,
        /// Why systemd did not take them.
        result: Result<(), String>,
    },
    /// Answer to [`UnitJob::GiveBack`](super::job::UnitJob::GiveBack); for a release before [`Message::Released`]. An error comes
    /// with the unit, and how it was.
    UnitRestored {
        /// The task.
        task: TaskId,
        /// How it went.
        result: Result<(), (Box<UnitRecord>, String)>,
        /// Who still has to hear that it never became one.
        called_off: Option<CalledOff>,
    },
    /// How a main process ended, where that was not known at once.
    Exit {
        /// The task that it was of.
        task: TaskId,
        /// Which.
        process: ProcessRef,
        /// `None`: nothing tells.
        exit: Option<Exit>,
    },
    /// A cycle's readings.
    Cycle(Box<CycleReport>),
    /// What was read between two cycles.
    ReadAhead(Box<Ahead>),
    /// Threads seen between two cycles.
    Looks(Vec<(TaskId, ThreadLook)>),
    /// Reload, from the signal handler.
    Reload,
    /// Answer to [`Job::VerifyTiers`](super::job::Job::VerifyTiers).
    TiersTested {
        /// What was measured.
        result: Result<CpuSplit, CgroupError>,
    },
}

/// What [`UnitJob::Look`](super::job::UnitJob::Look) found.
#[derive(Debug)]
pub struct Looked {
    /// The process: of a unit, what it calls its main process, else its oldest.
    pub process: Pid,
    /// What systemd reported of the unit it is in.
    pub report: UnitReport,
    /// systemd could not be asked: the weights are taken for a unit's, and its stop for one that
    /// ends all.
    pub unasked: Option<String>,
}

/// What [`UnitJob::Prepare`](super::job::UnitJob::Prepare) came to.
#[derive(Debug)]
pub enum Prepared {
    /// Its files.
    Group(Box<Group>),
    /// Its weights are others than those recorded: to be recorded, before they are touched.
    Changed(Weights),
}

/// What is read between two cycles.
#[derive(Debug)]
pub struct Ahead {
    /// When it was read.
    pub at: BootTime,
    /// The node.
    pub node: NodeSample,
    /// Resident memory of the tasks.
    pub sizes: Vec<Bytes>,
    /// CPU time that it took.
    pub cost: Duration,
}

/// What a group's weights are, and what of it is foreign; `None`: they were not read.
pub type Readback = (TaskId, Result<Option<(KernelView, Vec<Drift>)>, CgroupError>);

/// What a cycle read.
#[derive(Debug)]
pub struct CycleReport {
    /// The node and the tasks.
    pub sample: Sample,
    /// [`CycleRequest::asked_at`](super::job::CycleRequest::asked_at).
    pub asked_at: BootTime,
    /// [`CycleRequest::due`](super::job::CycleRequest::due).
    pub due: Vec<TaskId>,
    /// What each group says, and what of it is foreign.
    pub kernel: Vec<Readback>,
    /// Tasks with their main process outside of their group.
    pub outside: Vec<TaskId>,
    /// Tasks in place that do not belong, or are not known to belong, to [`Check::owner`](super::job::Check::owner) alone any more.
    pub entered: Vec<(TaskId, CgroupError)>,
    /// Files kept open and the most there may be.
    pub kept_files: (u64, u64),
    /// The whole disks of the node, by device number.
    pub disks: Vec<(u32, u32)>,
    /// What makes tiers on this node now, where that is not what it was.
    pub effects: Option<Effects>,
    /// What others did to tasks that were looked at for it.
    pub halts: Vec<(TaskId, Option<Halt>)>,
    /// Tasks that may not run on every CPU, and the CPUs that they may.
    pub pinned: Vec<(TaskId, CpuSet)>,
    /// The file by which others froze the root; the error says what could not be read.
    pub frozen_root: Result<Option<PathBuf>, String>,
}
