//! The thread that reads: the node, the tasks, what the kernel says of their weights, and between
//! two cycles whether their threads are awake.
//!
//! A reading of thousands of tasks takes milliseconds, in which the loop could promote no task.
//! What is to be read is decided by the loop ([`ReadRequest`]); what it means is decided there too.
//! The one thing written here is the I/O priority of threads, for which they have to be listed.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::worker::{Message, Outbox};
use crate::cgroup::{
    CgroupError, Drift, Effects, Group, KernelView, OpenFiles, Reading, TierTree, WeightPlan,
};
use crate::clock;
use crate::core::model::{Level, TaskId};
use crate::core::task::Halt;
use crate::sample::{NodeSample, Sample, Sampler, TaskSource};
use crate::units::{BootTime, Bytes, Pid, ProcessRef};

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

/// A group to look at.
#[derive(Debug)]
pub struct Check {
    /// The task.
    pub task: TaskId,
    /// Its group.
    pub group: Arc<Group>,
    /// The weights it should have.
    pub level: Level,
    /// In place, for a caller without an admin's rights: the uid to which all in it must belong.
    pub owner: Option<u32>,
    /// Its main process, while that lives.
    pub main: Option<ProcessRef>,
    /// Others froze or stopped it, as far as is known.
    pub halted: bool,
    /// The guard froze it: what others did to it is not looked at.
    pub frozen: bool,
    /// Whether its weights are read back; if not, it gets I/O priorities alone, where disk
    /// tiers are made that way and it used the CPU, without which no thread is made.
    pub weights: bool,
}

/// What a group's weights are, and what of it is foreign; `None`: they were not read.
pub type Readback = (TaskId, Result<Option<(KernelView, Vec<Drift>)>, CgroupError>);

/// What a cycle read.
#[derive(Debug)]
pub struct CycleReport {
    /// The node and the tasks.
    pub sample: Sample,
    /// [`CycleRequest::asked_at`].
    pub asked_at: BootTime,
    /// [`CycleRequest::due`].
    pub due: Vec<TaskId>,
    /// What each group says, and what of it is foreign.
    pub kernel: Vec<Readback>,
    /// Tasks with their main process outside of their group.
    pub outside: Vec<TaskId>,
    /// Tasks in place that do not belong, or are not known to belong, to [`Check::owner`] alone any more.
    pub entered: Vec<(TaskId, CgroupError)>,
    /// Files kept open and the most there may be.
    pub kept_files: (u64, u64),
    /// [`Sampler::whole_disks`].
    pub disks: Vec<(u32, u32)>,
    /// What makes tiers on this node now, where that is not what it was.
    pub effects: Option<Effects>,
    /// What others did to tasks that were looked at for it.
    pub halts: Vec<(TaskId, Option<Halt>)>,
    /// The file by which others froze the root; the error says what could not be read.
    pub frozen_root: Result<Option<PathBuf>, String>,
}

/// What the reading thread keeps of a group.
struct Watched {
    files: OpenFiles,
    /// CPU time at the last look.
    cpu: Option<Duration>,
    /// It had used none since the look before.
    idle: bool,
    /// Who was in it at the last look and was the owner's, where that matters.
    known: Vec<Pid>,
}

impl Watched {
    /// Whether the task has used CPU since the last look; unknown counts as yes.
    fn ran(&mut self, cpu: Option<Duration>) -> bool {
        let before = std::mem::replace(&mut self.cpu, cpu);
        cpu.is_none() || before != cpu
    }

    /// What others did to the task; `None`: it was not looked at. One that used the CPU since the last
    /// look runs, unless it is known to be halted since; one that has slept for cycles is looked at when
    /// its weights are.
    fn halt(&mut self, tree: &TierTree, check: &Check, ran: bool) -> Option<Option<Halt>> {
        let was_idle = std::mem::replace(&mut self.idle, !ran);
        if check.frozen || ran && !check.halted || was_idle && !check.halted && !check.weights {
            return None;
        }
        // One that cannot be read is ending.
        tree.halt(&check.group, check.main).ok()
    }
}

/// CPU time of `task`; a sample has its tasks in order.
fn cpu_of(sample: &Sample, task: TaskId) -> Option<Duration> {
    let index = sample.tasks.binary_search_by_key(&task, |(id, _)| *id).ok()?;
    sample.tasks.get(index)?.1.cpu
}

/// How often it is read what makes tiers, where cycles are shorter: four files for each disk.
const EFFECTS_EVERY: Duration = Duration::from_secs(1);

/// Reads until the loop drops its end.
pub(super) fn read_all(
    tree: &TierTree,
    mut sampler: Sampler,
    requests: &Receiver<ReadRequest>,
    outbox: &Outbox,
) {
    let mut looks: VecDeque<(BootTime, Vec<TaskId>)> = VecDeque::new();
    let mut kept: HashMap<TaskId, Watched> = HashMap::new();
    let mut looked_again = clock::boot_time();
    let mut reading = Reading { descriptors: sampler.descriptors(), buffer: Vec::new() };
    loop {
        let request = match looks.front() {
            None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some((due, _)) => requests.recv_timeout(due.since(clock::boot_time())),
        };
        match request {
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                if let Some((_, tasks)) = looks.pop_front() {
                    outbox.send(Message::Looks(sampler.look(&tasks)));
                }
            }
            Ok(ReadRequest { watch, forget, cycle }) => {
                for (id, source) in watch {
                    sampler.watch(id, source);
                }
                // After the new ones: a task may have come and gone within one cycle.
                for id in forget {
                    sampler.forget(id);
                    kept.remove(&id);
                }
                let Some(request) = cycle else {
                    let (at, begun) = (clock::boot_time(), clock::thread_cpu_time());
                    let (node, sizes) = sampler.read_ahead();
                    let cost = clock::thread_cpu_time().saturating_sub(begun);
                    outbox.send(Message::ReadAhead(Box::new(Ahead { at, node, sizes, cost })));
                    continue;
                };
                let started = clock::boot_time();
                let mut sample = sampler.sample_due(started, &request.pressure, &request.look_at);
                sample.took = clock::boot_time().since(started);
                let mut entered = Vec::new();
                let mut halts = Vec::new();
                let kernel = match request.plan {
                    None => Vec::new(),
                    Some(plan) => request
                        .check
                        .into_iter()
                        .filter_map(|check| {
                            let Check { task, group, level, owner, .. } = &check;
                            let watched = kept.entry(*task).or_insert_with(|| Watched {
                                files: tree.keep(group),
                                cpu: None,
                                idle: false,
                                known: Vec::new(),
                            });
                            let known = &mut watched.known;
                            if let Some(owner) = owner
                                && let Err(error) = tree.check_owner(group, *owner, known)
                            {
                                entered.push((*task, error));
                            }
                            let ran = watched.ran(cpu_of(&sample, *task));
                            let halt = watched.halt(tree, &check, ran);
                            halts.extend(halt.map(|halt| (*task, halt)));
                            let files = &mut watched.files;
                            let found = if check.weights {
                                tree.inspect(group, files, &mut reading, *level, &plan).map(Some)
                            } else if ran {
                                tree.renew_io(group, files, &mut reading, level.tier())
                                    .map(|()| None)
                            } else {
                                return None;
                            };
                            Some((*task, found))
                        })
                        .collect(),
                };
                let outside = request
                    .members
                    .into_iter()
                    .filter(|(_, group, process)| {
                        // A process that cannot be read is ending; its pidfd will say so.
                        matches!(tree.holds(group, *process), Ok(Some(false)))
                    })
                    .map(|(id, ..)| id)
                    .collect();
                let asked_at = request.asked_at;
                looks = request
                    .looks
                    .into_iter()
                    .map(|(after, tasks)| (started.after(after), tasks))
                    .collect();
                let kept_files = sampler.kept_files();
                // After the weights were compared, and before the loop goes by it.
                let due = started.since(looked_again) >= EFFECTS_EVERY;
                let effects = due.then(|| tree.look_again()).flatten();
                if due {
                    looked_again = started;
                }
                if effects.is_some() {
                    // The files to compare may be others.
                    kept.clear();
                }
                let frozen_root = tree.frozen_root().map_err(|error| error.to_string());
                let report = CycleReport {
                    sample,
                    asked_at,
                    due: request.due,
                    kernel,
                    outside,
                    entered,
                    kept_files,
                    disks: sampler.whole_disks(),
                    effects,
                    halts,
                    frozen_root,
                };
                outbox.send(Message::Cycle(Box::new(report)));
            }
        }
    }
}
