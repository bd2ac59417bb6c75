//! The threads beside the loop: one that puts processes in place, one that reads
//! ([`super::reader`]), one that asks systemd ([`super::unit_worker`]), and one that finds out how
//! processes ended ([`super::ending`]).
//!
//! Moving a process makes the kernel wait for a grace period (milliseconds), and a reading of
//! thousands of tasks takes as long; neither may keep a promotion waiting. So the loop only
//! ever writes weights itself, and sends the rest here. Each thread has one queue in and one
//! common queue back, and ends when the loop drops its end.
//!
//! The placing thread does first what a client waits for: tasks that were found, of which hundreds
//! may come at once and no client waits for, are put in place when nothing else is to be done.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::ending::{self, ExitLookup, Unknown};
use super::keeping::UnitReport;
use super::reader::{Ahead, CycleReport, ReadRequest, read_all};
use super::unit_worker::{AskError, Asking, CalledOff, Looked, Prepared, UnitJob, serve_units};
use super::watch::Waker;
use crate::cgroup::{
    Attached, Attachment, CgroupError, Conditions, Group, Kin, Origin, Reach, TierTree, WeightPlan,
};
use crate::command::{CommandError, Reply};
use crate::core::model::{Label, TaskId, Tier};
use crate::core::task::Halt;
use crate::discover::DiscoveredTask as FoundProcess;
use crate::sample::{Sampler, ThreadLook};
use crate::systemd::unit::UnitRecord;
use crate::units::ProcessRef;

/// Work on one cgroup that may take long.
#[derive(Debug)]
pub enum Job {
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
    /// Give every thread the I/O priority of a new tier, where disk tiers are made that way.
    /// Threads made since get it with the next reading.
    Io {
        /// Its group.
        group: Arc<Group>,
        /// Its tier.
        tier: Tier,
    },
    /// Remove the group of a task that has ended; in place, give its weights back.
    Remove {
        /// The task.
        task: TaskId,
        /// Its group.
        group: Arc<Group>,
    },
}

/// The group of a task, and the tier that its weights are of; `None`: those it was made with.
pub type AttachResult = Result<(Arc<Group>, Attached, Option<Tier>), CgroupError>;

/// What the threads tell the loop.
#[derive(Debug)]
pub enum Message {
    /// Answer to [`Job::Attach`].
    Attached {
        /// The task.
        task: TaskId,
        /// How it went.
        result: AttachResult,
    },
    /// Answer to [`Job::Reattach`].
    Reattached {
        /// The task.
        task: TaskId,
        /// How it went.
        result: Result<Attached, CgroupError>,
    },
    /// Answer to [`Job::Release`].
    Released {
        /// The task.
        task: TaskId,
        /// How it went.
        result: Result<Option<Halt>, CgroupError>,
    },
    /// The root had to be made anew, and needs its weight.
    RootRemade,
    /// Answer to [`UnitJob::ShapeRoot`].
    RootShaped {
        /// How it went.
        result: Result<(), CgroupError>,
    },
    /// Answer to [`Job::Remove`], only when it failed.
    NotRemoved {
        /// The task.
        task: TaskId,
        /// Its group, for another try.
        group: Arc<Group>,
        /// Why.
        error: CgroupError,
    },
    /// Answer to [`UnitJob::Look`].
    UnitLooked {
        /// The admission.
        asking: Box<Asking>,
        /// Who is to be admitted.
        result: Result<Looked, CommandError>,
    },
    /// Answer to [`UnitJob::LookFound`].
    FoundLooked {
        /// What was found.
        found: Box<FoundProcess>,
        /// What systemd reported of its unit.
        report: UnitReport,
        /// The finder, which waits for the answer.
        reply: Reply<TaskId>,
    },
    /// Answer to [`UnitJob::Prepare`].
    UnitPrepared {
        /// The task.
        task: TaskId,
        /// Its files.
        result: Result<Prepared, CommandError>,
    },
    /// Answer to [`UnitJob::Tell`].
    UnitAnswered {
        /// The task.
        task: TaskId,
        /// How it went.
        result: Result<(), AskError>,
    },
    /// Answer to [`UnitJob::GiveBack`]; for a release before [`Message::Released`]. An error comes
    /// with the unit, and how it was.
    UnitRestored {
        /// The task.
        task: TaskId,
        /// How it went.
        result: Result<(), (Box<UnitRecord>, AskError)>,
        /// Who still has to hear that it never became one.
        called_off: Option<CalledOff>,
    },
    /// Answer to [`Workers::look_at_end`].
    EndLookedAt {
        /// What was looked at.
        unknown: Box<Unknown>,
        /// How it ended.
        found: ExitLookup,
    },
    /// A cycle's readings.
    Cycle(Box<CycleReport>),
    /// What was read between two cycles.
    ReadAhead(Box<Ahead>),
    /// Threads seen between two cycles.
    Looks(Vec<(TaskId, ThreadLook)>),
    /// Stop, from the signal handler.
    Stop,
    /// Reload, from the signal handler.
    Reload,
}

/// The threads and the queues to them.
#[derive(Debug)]
pub struct Workers {
    jobs: Option<Sender<Job>>,
    unit_jobs: Option<Sender<UnitJob>>,
    reads: Option<Sender<ReadRequest>>,
    ends: Option<Sender<Box<Unknown>>>,
    threads: Vec<JoinHandle<()>>,
    /// The one that may be waiting for systemd.
    units_thread: Option<JoinHandle<()>>,
    /// Disconnected once that one has ended.
    units_ended: Receiver<Never>,
    stopping: Arc<AtomicBool>,
}

/// A channel of these carries only its own end.
#[derive(Debug, PartialEq)]
enum Never {}

/// How long a stop waits for systemd: well within the two seconds it may take in all.
const SYSTEMD_PATIENCE: Duration = Duration::from_millis(500);

impl Workers {
    /// Starts the threads. Their messages arrive at the receiver; `waker` is called for each.
    pub fn start(
        tree: Arc<TierTree>,
        sampler: Sampler,
        waker: Waker,
    ) -> io::Result<(Workers, Sender<Message>, Receiver<Message>)> {
        let (messages, inbox) = channel();
        let (jobs, job_queue) = channel();
        let (reads, read_queue) = channel();
        let (unit_jobs, unit_queue) = channel();
        let (ends, end_queue) = channel();
        let (units_end, units_ended) = channel();
        let outbox = Outbox { messages: messages.clone(), waker };
        let stopping = Arc::new(AtomicBool::new(false));
        let placer = {
            let (tree, outbox, stopping) =
                (Arc::clone(&tree), outbox.clone(), Arc::clone(&stopping));
            std::thread::Builder::new()
                .name("lrs-attach".into())
                .spawn(move || place_all(&tree, &job_queue, &outbox, &stopping))?
        };
        let units_thread = {
            let (tree, outbox, stopping) =
                (Arc::clone(&tree), outbox.clone(), Arc::clone(&stopping));
            std::thread::Builder::new().name("lrs-units".into()).spawn(move || {
                let _ended: Sender<Never> = units_end;
                serve_units(&tree, &unit_queue, &outbox, &stopping);
            })?
        };
        let ends_thread = {
            let outbox = outbox.clone();
            std::thread::Builder::new()
                .name("lrs-ends".into())
                .spawn(move || ending::serve(&end_queue, &outbox))?
        };
        let reader = std::thread::Builder::new()
            .name("lrs-sample".into())
            .spawn(move || read_all(&tree, sampler, &read_queue, &outbox))?;
        let workers = Workers {
            jobs: Some(jobs),
            unit_jobs: Some(unit_jobs),
            reads: Some(reads),
            ends: Some(ends),
            threads: vec![placer, reader, ends_thread],
            units_thread: Some(units_thread),
            units_ended,
            stopping,
        };
        Ok((workers, messages, inbox))
    }

    /// Queues work on a cgroup.
    pub fn place(&self, job: Job) {
        // The thread only ends after this end of its queue does.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }

    /// The same, if there is any.
    pub fn place_all(&self, jobs: impl IntoIterator<Item = Job>) {
        jobs.into_iter().for_each(|job| self.place(job));
    }

    /// Queues work that needs systemd.
    pub fn ask(&self, job: UnitJob) {
        if let Some(jobs) = &self.unit_jobs {
            let _ = jobs.send(job);
        }
    }

    /// Asks for a reading.
    pub fn read(&self, request: ReadRequest) {
        if let Some(reads) = &self.reads {
            let _ = reads.send(request);
        }
    }

    /// Asks how a process ended.
    pub(super) fn look_at_end(&self, end: Box<Unknown>) {
        if let Some(ends) = &self.ends {
            let _ = ends.send(end);
        }
    }

    /// Whether a thread has ended and was not asked to: it panicked.
    pub fn broken(&self) -> bool {
        self.threads.iter().chain(&self.units_thread).any(JoinHandle::is_finished)
    }

    /// Lets the threads finish what they are doing, not what is queued, and ends them.
    /// Admissions that were queued are rolled back by the next daemon; their clients ask again.
    pub fn stop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.jobs = None;
        self.unit_jobs = None;
        self.reads = None;
        self.ends = None;
        let mut threads = std::mem::take(&mut self.threads);
        match self.units_ended.recv_timeout(SYSTEMD_PATIENCE) {
            // It goes with the process; what it has not done is in the records.
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("systemd does not answer; the next lrsd tells it what is left");
            }
            _ => threads.extend(self.units_thread.take()),
        }
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a worker thread panicked; its last work may be unfinished");
            }
        }
    }
}

/// The threads' way to the loop.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    messages: Sender<Message>,
    waker: Waker,
}

impl Outbox {
    pub(super) fn send(&self, message: Message) {
        // There is no receiver once the loop has ended; there is nothing left to do then.
        let _ = self.messages.send(message);
        self.waker.wake();
    }
}

/// The jobs of a thread, those that come after all others apart. The rest stay in order: the loop
/// sends none for a task before the answer to its attach or look-up, the only ones that let others
/// go first.
pub(super) struct Queue<'a, T> {
    jobs: &'a Receiver<T>,
    comes_last: fn(&T) -> bool,
    first: VecDeque<T>,
    last: VecDeque<T>,
}

impl<T> Queue<'_, T> {
    pub(super) fn new(jobs: &Receiver<T>, comes_last: fn(&T) -> bool) -> Queue<'_, T> {
        Queue { jobs, comes_last, first: VecDeque::new(), last: VecDeque::new() }
    }

    /// Waits for the next job; `None` once the loop has dropped its end and nothing is left.
    pub(super) fn next(&mut self) -> Option<T> {
        if self.first.is_empty() && self.last.is_empty() {
            let job = self.jobs.recv().ok()?;
            self.sort(job);
        }
        while let Ok(job) = self.jobs.try_recv() {
            self.sort(job);
        }
        self.first.pop_front().or_else(|| self.last.pop_front())
    }

    fn sort(&mut self, job: T) {
        if (self.comes_last)(&job) {
            self.last.push_back(job);
        } else {
            self.first.push_back(job);
        }
    }
}

fn place_queue(jobs: &Receiver<Job>) -> Queue<'_, Job> {
    Queue::new(jobs, |job| matches!(job, Job::Attach { discovered: true, .. }))
}

fn place_all(tree: &TierTree, jobs: &Receiver<Job>, outbox: &Outbox, stopping: &AtomicBool) {
    let mut queue = place_queue(jobs);
    while let Some(job) = queue.next() {
        let only_removals = stopping.load(Ordering::Relaxed);
        match job {
            job if only_removals && !matches!(job, Job::Remove { .. }) => {}
            Job::Attach {
                task,
                name,
                process,
                kin,
                origin,
                reach,
                owner,
                found,
                tier,
                plan,
                discovered: _,
            } => {
                let result = match found {
                    Some(group) => weigh(tree, &group, tier, &plan)
                        .map(|()| (group, Attached { moved: 0 }, tier)),
                    None => tree.create(task, name.as_ref(), reach).and_then(|group| {
                        // It may have been put under a limit, or taken by another manager, since it was
                        // looked at.
                        let from = origin.clone();
                        let group = with_origin(group, origin);
                        let conditions = Conditions { from: Some(&from), owner };
                        attach(tree, task, group, (process, kin), conditions, (tier, &plan))
                    }),
                };
                outbox.send(Message::Attached { task, result });
                if tree.take_remade() {
                    outbox.send(Message::RootRemade);
                }
            }
            Job::Reattach { task, process, kin, owner, group } => {
                let conditions = Conditions { owner, ..Conditions::default() };
                let result = match tree.went_to(&group, process) {
                    // Since the loop looked it has gone into a group of its own making: no move
                    // back, and the next look says what it is.
                    Ok(Some(_)) => Err(CgroupError::ProcessGone(process.pid)),
                    Ok(None) | Err(_) => tree.attach_if(&group, process, kin, conditions),
                };
                outbox.send(Message::Reattached { task, result });
            }
            Job::Io { group, tier } => {
                if let Err(error) = tree.reapply_io(&group, tier) {
                    // Threads come and go; the next cycle tries again.
                    let cgroup = &group.record.path;
                    tracing::debug!(cgroup, %error, "the threads in {cgroup} did not get their I/O priority: {error}");
                }
            }
            Job::Release { task, group, waited } => {
                let result = if waited { tree.release(&group) } else { tree.release_task(&group) };
                outbox.send(Message::Released { task, result });
            }
            Job::Remove { task, group } => {
                if let Err(error) = remove(tree, &group) {
                    outbox.send(Message::NotRemoved { task, group, error });
                }
            }
        }
    }
}

/// Cleans up after a task: its own group goes, one in place gets its weights back.
pub fn remove(tree: &TierTree, group: &Group) -> Result<(), CgroupError> {
    match group.record.attachment {
        Attachment::Own => tree.remove(group),
        Attachment::InPlace => tree.release(group).map(drop),
        Attachment::None => Ok(()),
    }
}

fn weigh(
    tree: &TierTree,
    group: &Group,
    tier: Option<Tier>,
    plan: &WeightPlan,
) -> Result<(), CgroupError> {
    tier.map_or(Ok(()), |tier| tree.write_tier(group, tier, plan).map(drop))
}

fn with_origin(mut group: Group, origin: Origin) -> Group {
    group.record.origin = origin;
    group
}

fn attach(
    tree: &TierTree,
    task: TaskId,
    group: Group,
    (process, kin): (ProcessRef, Kin),
    conditions: Conditions<'_>,
    (tier, plan): (Option<Tier>, &WeightPlan),
) -> AttachResult {
    let group = Arc::new(group);
    let placed = weigh(tree, &group, tier, plan)
        .and_then(|()| tree.attach_if(&group, process, kin, conditions))
        .map(|attached| (Arc::clone(&group), attached, tier));
    if placed.is_err()
        && let Err(error) = tree.remove(&group)
    {
        tracing::warn!(%task, %error, "the admission of task {task} failed, and the cgroup made for it stays: {error}");
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Pid;

    fn attach_job(number: u64, discovered: bool) -> Job {
        Job::Attach {
            task: TaskId { epoch: 1, number },
            name: None,
            process: ProcessRef { pid: Pid::new(1).unwrap(), start_ticks: 0 },
            kin: Kin::Descendants,
            origin: Origin::default(),
            reach: Reach::All,
            owner: None,
            found: None,
            tier: Some(Tier::Passive),
            plan: WeightPlan { ratio: 100, active_capacity: 1, passive_max: 1 },
            discovered,
        }
    }

    fn number(job: Option<Job>) -> Option<u64> {
        match job {
            Some(Job::Attach { task, .. }) => Some(task.number),
            _ => None,
        }
    }

    #[test]
    fn what_a_client_waits_for_comes_before_what_was_found() {
        let (sender, receiver) = channel();
        let mut queue = place_queue(&receiver);
        for found in 1..=300 {
            sender.send(attach_job(found, true)).unwrap();
        }
        assert_eq!(number(queue.next()), Some(1));
        sender.send(attach_job(1000, false)).unwrap();
        sender.send(attach_job(1001, false)).unwrap();
        assert_eq!(number(queue.next()), Some(1000), "behind the one under way, no more");
        assert_eq!(number(queue.next()), Some(1001));
        drop(sender);
        let rest: Vec<u64> = std::iter::from_fn(|| number(queue.next())).collect();
        assert_eq!(rest, (2..=300).collect::<Vec<_>>(), "each once and in order");
    }
}
