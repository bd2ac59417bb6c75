//! The thread that reads: the node, the tasks, what the kernel says of their weights, and between
//! two cycles whether their threads are awake.
//!
//! A reading of thousands of tasks takes milliseconds, in which the loop could promote no task.
//! What is to be read is decided by the loop ([`ReadRequest`]); what it means is decided there too.
//! The one thing written here is what each thread is given, for which they have to be listed.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::outbox::Outbox;
use crate::cgroup::{OpenFiles, Reading, TierTree};
use crate::clock;
use crate::core::cpus::CpuSet;
use crate::core::model::TaskId;
use crate::core::task::Halt;
use crate::executor::job::{CHECK_EVERY, Check, ReadRequest};
use crate::executor::message::{Ahead, CycleReport, Message};
use crate::sample::{Sample, Sampler};
use crate::units::{BootTime, Pid, ProcessRef};

/// What the reading thread keeps of a group.
struct Watched {
    files: OpenFiles,
    /// CPU time at the last look.
    cpu: Option<Duration>,
    /// Cycles in which it has used none.
    slept: u32,
    /// The CPUs that its main process may run on, where those are fewer than all; the outer `None`: not read yet.
    cpus: Option<Option<CpuSet>>,
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
    /// look runs, unless it is known to be halted since; one that has slept for cycles is looked at one time
    /// in four that its weights are: a dozen system calls, and before a promotion it is looked at anyway.
    fn halt(&mut self, tree: &TierTree, check: &Check, ran: bool) -> Option<Option<Halt>> {
        self.slept = if ran { 0 } else { self.slept.saturating_add(1) };
        let is_turn =
            self.slept <= 1 || check.weights && self.slept % (4 * CHECK_EVERY) < CHECK_EVERY;
        if check.frozen || !check.halted && (ran || !is_turn) {
            return None;
        }
        // One that cannot be read is ending.
        tree.halt(&check.group, check.main).ok()
    }

    /// The CPUs that its main process may run on, where those are fewer than `all`. Of a task that sleeps they
    /// are read when its weights are.
    fn narrower(&mut self, check: &Check, ran: bool, all: &CpuSet) -> Option<CpuSet> {
        if self.cpus.is_none() || ran || check.weights {
            self.cpus = Some(check.main.and_then(|main| narrower(main, all)));
        }
        self.cpus.clone().flatten()
    }
}

/// CPU time of `task`; a sample has its tasks in order.
fn cpu_of(sample: &Sample, task: TaskId) -> Option<Duration> {
    let index = sample.tasks.binary_search_by_key(&task, |(id, _)| *id).ok()?;
    sample.tasks.get(index)?.1.cpu
}

/// The CPUs that a process may run on, where those are fewer than `all` (sched_getaffinity(2)). One that
/// cannot be asked is ending. A CPU beyond those that the call has room for counts as one it may use.
fn narrower(process: ProcessRef, all: &CpuSet) -> Option<CpuSet> {
    let pid = rustix::process::Pid::from_raw(process.pid.raw())?;
    let may = rustix::thread::sched_getaffinity(Some(pid)).ok()?;
    let is_counted = |cpu: &u32| (*cpu as usize) < rustix::thread::CpuSet::MAX_CPU;
    let may_use = |cpu: &u32| !is_counted(cpu) || may.is_set(*cpu as usize);
    let cpus: CpuSet = all.iter().filter(may_use).collect();
    (cpus != *all && !cpus.is_empty()).then_some(cpus)
}

/// How often it is read what makes tiers: four files for each disk, a third of what lrsd reads without tasks.
const EFFECTS_EVERY: Duration = Duration::from_secs(10);

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
                let mut pinned = Vec::new();
                let kernel = match request.plan {
                    None => Vec::new(),
                    Some(plan) => request
                        .check
                        .into_iter()
                        .filter_map(|check| {
                            let Check { task, group, level, slice, owner, .. } = &check;
                            let watched = kept.entry(*task).or_insert_with(|| Watched {
                                files: tree.keep(group),
                                cpu: None,
                                slept: 0,
                                cpus: None,
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
                            let of_node = sample.node.cpus.as_ref();
                            let cpus = of_node.and_then(|all| watched.narrower(&check, ran, all));
                            pinned.extend(cpus.map(|cpus| (*task, cpus)));
                            let files = &mut watched.files;
                            let found = if check.weights {
                                let wanted = (*level, *slice);
                                tree.inspect(group, files, &mut reading, wanted, &plan).map(Some)
                            } else if ran {
                                let wanted = (level.tier(), *slice);
                                tree.renew_by_list(group, files, &mut reading, wanted)
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
                    pinned,
                    frozen_root,
                };
                outbox.send(Message::Cycle(Box::new(report)));
            }
        }
    }
}
