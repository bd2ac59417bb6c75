//! What the loop begins and does not wait for.
//!
//! Moving a process makes the kernel wait for a grace period (milliseconds), a reading of thousands of
//! tasks takes as long, and systemd answers when it likes; none of that may keep a promotion waiting.
//! So the loop writes weights itself and begins the rest: each job that has an answer is answered by
//! exactly one [`Message`](super::message::Message).

use std::sync::Arc;
use std::time::Duration;

use crate::command::{AdmitRequest, Caller, CommandError, Reply};
use crate::found::DiscoveredTask as FoundProcess;
use crate::group::TaskSource;
use crate::group::{Group, Kin, Origin, Reach, WeightPlan};
use lrs_api::proto;
use lrs_core::model::{Label, Level, TaskId, Tier};
use lrs_core::slice::Slice;
use lrs_core::unit::{UnitName, UnitRecord};
use lrs_core::units::{BootTime, ProcessRef};

/// See the module.
#[derive(Debug)]
pub enum Job {
    /// On a cgroup.
    Group(GroupJob),
    /// By systemd.
    Unit(UnitJob),
    /// A reading.
    Read(ReadRequest),
    /// Whether weights of this plan split the CPU.
    VerifyTiers(WeightPlan),
}

impl From<GroupJob> for Job {
    fn from(job: GroupJob) -> Job {
        Job::Group(job)
    }
}

impl From<UnitJob> for Job {
    fn from(job: UnitJob) -> Job {
        Job::Unit(job)
    }
}

impl From<ReadRequest> for Job {
    fn from(request: ReadRequest) -> Job {
        Job::Read(request)
    }
}

/// Work on one cgroup that may take long.
#[derive(Debug)]
pub enum GroupJob {
    /// Make the group (or take `found`, in place), write the weights, move the process.
    Attach {
        /// The task.
        task: TaskId,
        /// What people know it by.
        name: Option<Label>,
        /// Its main process.
        process: ProcessRef,
        /// Which processes belong to it.
        kin: Kin,
        /// Where it was before.
        origin: Origin,
        /// In which hierarchies it is moved.
        reach: Reach,
        /// The only owner of everything that is moved.
        owner: Option<u32>,
        /// The group to manage in place, or one made for it below its unit.
        found: Option<Arc<Group>>,
        /// Its tier; `None`: it waits for one, and the group keeps the weights it is made with.
        tier: Option<Tier>,
        /// The slice of its threads.
        slice: Slice,
        /// What the weights promise.
        plan: WeightPlan,
        /// It was found, not announced: no client waits for it, and its process is only taken from
        /// `origin`.
        discovered: bool,
    },
    /// Move a process that left its group back into it.
    Reattach {
        /// The task.
        task: TaskId,
        /// Its main process.
        process: ProcessRef,
        /// Which processes belong to it.
        kin: Kin,
        /// The only owner of everything that is moved.
        owner: Option<u32>,
        /// Its group.
        group: Arc<Group>,
    },
    /// Give the processes back.
    Release {
        /// The task.
        task: TaskId,
        /// Its group.
        group: Arc<Group>,
        /// It is of a process that waits for a slot, and no task's.
        waited: bool,
    },
    /// Give every thread the I/O priority of a new tier, where disk tiers are made that way, and its slice.
    /// Threads made since get both with the next reading.
    Threads {
        /// Its group.
        group: Arc<Group>,
        /// Its tier.
        tier: Tier,
        /// Its slice.
        slice: Slice,
    },
    /// Remove the group of a task that has ended; in place, give its weights back.
    Remove {
        /// The task.
        task: TaskId,
        /// Its group.
        group: Arc<Group>,
    },
}

/// An admission on its way to be looked up, with everything needed to go on.
#[derive(Debug)]
pub struct Asking {
    /// The caller.
    pub caller: Caller,
    /// For what.
    pub request: AdmitRequest,
    /// Who waits for the answer.
    pub reply: Reply<proto::Task>,
}

/// An admission that is called off: its clients, and why. They hear of it once nothing of it is
/// left.
#[derive(Debug)]
pub struct CalledOff {
    /// Who waits for the answer.
    pub replies: Vec<Reply<proto::Task>>,
    /// The answer.
    pub error: CommandError,
}

/// Work that needs systemd.
#[derive(Debug)]
pub enum UnitJob {
    /// Find the unit of an admission: by its name, or that of a process to be managed in place.
    Look(Box<Asking>),
    /// Find the unit of a process that a rule found.
    LookFound {
        /// What was found.
        found: Box<FoundProcess>,
        /// The finder, which waits for the answer.
        reply: Reply<TaskId>,
    },
    /// Give the root its weight among its siblings, which may be systemd's to write.
    ShapeRoot {
        /// What the weights promise.
        plan: WeightPlan,
    },
    /// Let systemd give the unit weight files of its own, and open them.
    Prepare {
        /// The task.
        task: TaskId,
        /// Its main process.
        process: ProcessRef,
        /// Its unit, as recorded.
        unit: UnitRecord,
    },
    /// Tell systemd the weights that the files have.
    Tell {
        /// The task.
        task: TaskId,
        /// Its group.
        group: Arc<Group>,
        /// The weights that the group has.
        level: Level,
        /// What the weights promise.
        plan: WeightPlan,
        /// Its unit.
        unit: UnitName,
    },
    /// Give files and properties back.
    GiveBack {
        /// The task.
        task: TaskId,
        /// Its group, if its files are to be given back too.
        group: Option<Arc<Group>>,
        /// Its unit.
        unit: UnitRecord,
        /// The task is being released: its files come first, and a failure there leaves all.
        releases: bool,
        /// Set when it never became a task.
        called_off: Option<CalledOff>,
    },
}

/// What the loop asks of the thread.
#[derive(Debug)]
pub struct ReadRequest {
    /// Tasks new since the last request.
    pub watch: Vec<(TaskId, TaskSource)>,
    /// Tasks gone since the last request.
    pub forget: Vec<TaskId>,
    /// What a cycle needs; `None`: only the node and the sizes of the tasks, between two cycles.
    pub cycle: Option<CycleRequest>,
}

/// What a cycle has to do.
#[derive(Debug, Default)]
pub struct CycleRequest {
    /// Tasks for which this reading ends an interval of their meter, ascending.
    pub due: Vec<TaskId>,
    /// Tasks with their pressure read, ascending: those and what is active.
    pub pressure: Vec<TaskId>,
    /// Tasks with their threads looked at, ascending.
    pub look_at: Vec<TaskId>,
    /// When, after the reading, which of them are looked at again; jittered by the loop,
    /// earliest first.
    pub looks: Vec<(Duration, Vec<TaskId>)>,
    /// Groups to look at, ascending.
    pub check: Vec<Check>,
    /// Main processes that should be in their groups.
    pub members: Vec<(TaskId, Arc<Group>, ProcessRef)>,
    /// When this was asked for: weights written since are not judged by it.
    pub asked_at: BootTime,
    /// What the weights promise.
    pub plan: Option<WeightPlan>,
}

/// Cycles between two checks of a task's weights and of where its main process is.
pub const CHECK_EVERY: u32 = 4;

/// A group to look at.
#[derive(Debug)]
pub struct Check {
    /// The task.
    pub task: TaskId,
    /// Its group.
    pub group: Arc<Group>,
    /// The weights it should have.
    pub level: Level,
    /// The slice that its threads should have.
    pub slice: Slice,
    /// In place, for a caller without an admin's rights: the uid to which all in it must belong.
    pub owner: Option<u32>,
    /// Its main process, while that lives.
    pub main: Option<ProcessRef>,
    /// Others froze or stopped it, as far as is known.
    pub halted: bool,
    /// The guard froze it: what others did to it is not looked at.
    pub frozen: bool,
    /// Whether its weights are read back; if not, its threads get what each of them is given, if it used
    /// the CPU, without which no thread is made.
    pub weights: bool,
}
