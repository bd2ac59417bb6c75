//! The threads beside the loop: one that puts processes in place, one that reads
//! ([`super::reader`]), one that asks systemd ([`super::units`]), and one that finds out how
//! processes ended ([`super::exits`]).
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

use super::exits::{self, ExitLookup, Unknown};
use super::reader::read_all;
use super::units::serve_units;
use super::watch::Waker;
use crate::cgroup::{
    Attached, Attachment, CgroupError, Conditions, Group, Kin, Origin, TierTree, WeightPlan,
};
use crate::core::model::Tier;
use crate::executor::job::{GroupJob, ReadRequest, UnitJob};
use crate::executor::message::{Message, Placed};
use crate::sample::Sampler;
use crate::units::ProcessRef;

/// What comes from other threads.
#[derive(Debug)]
pub(super) enum Inward {
    /// To the loop.
    Loop(Message),
    /// From `lrs-ends`.
    Exit {
        /// What was looked at.
        unknown: Unknown,
        /// How it ended.
        found: ExitLookup,
    },
    /// The loop is to end.
    Stop,
}

impl From<Message> for Inward {
    fn from(message: Message) -> Inward {
        Inward::Loop(message)
    }
}

/// The threads and the queues to them.
#[derive(Debug)]
pub struct Workers {
    jobs: Option<Sender<GroupJob>>,
    unit_jobs: Option<Sender<UnitJob>>,
    reads: Option<Sender<ReadRequest>>,
    ends: Option<Sender<Unknown>>,
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
    ) -> io::Result<(Workers, Sender<Inward>, Receiver<Inward>)> {
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
                .spawn(move || exits::serve(&end_queue, &outbox))?
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
    pub fn place(&self, job: GroupJob) {
        // The thread only ends after this end of its queue does.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
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
    pub(super) fn look_at_end(&self, end: Unknown) {
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
    messages: Sender<Inward>,
    waker: Waker,
}

impl Outbox {
    pub(super) fn send(&self, message: impl Into<Inward>) {
        // There is no receiver once the loop has ended; there is nothing left to do then.
        let _ = self.messages.send(message.into());
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

fn place_queue(jobs: &Receiver<GroupJob>) -> Queue<'_, GroupJob> {
    Queue::new(jobs, |job| matches!(job, GroupJob::Attach { discovered: true, .. }))
}

fn place_all(tree: &TierTree, jobs: &Receiver<GroupJob>, outbox: &Outbox, stopping: &AtomicBool) {
    let mut queue = place_queue(jobs);
    while let Some(job) = queue.next() {
        let only_removals = stopping.load(Ordering::Relaxed);
        match job {
            job if only_removals && !matches!(job, GroupJob::Remove { .. }) => {}
            GroupJob::Attach {
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
                        let placed = attach(tree, group, (process, kin), conditions, (tier, &plan));
                        placed.map_err(|(group, error)| {
                            // What was made for it goes at once, or later.
                            if let Err(error) = remove(tree, &group) {
                                tracing::warn!(%task, %error, "the admission of task {task} failed, and the cgroup made for it stays until it can be removed: {error}");
                                outbox.send(Message::NotRemoved { task, group, error });
                            }
                            error
                        })
                    }),
                };
                outbox.send(Message::Attached { task, result });
                if tree.take_remade() {
                    outbox.send(Message::RootRemade);
                }
            }
            GroupJob::Reattach { task, process, kin, owner, group } => {
                let conditions = Conditions { owner, ..Conditions::default() };
                let result = match tree.went_to(&group, process) {
                    // Since the loop looked it has gone into a group of its own making: no move
                    // back, and the next look says what it is.
                    Ok(Some(_)) => Err(CgroupError::ProcessGone(process.pid)),
                    Ok(None) | Err(_) => tree.attach_if(&group, process, kin, conditions),
                };
                outbox.send(Message::Reattached { task, result });
            }
            GroupJob::Io { group, tier } => {
                if let Err(error) = tree.reapply_io(&group, tier) {
                    // Threads come and go; the next cycle tries again.
                    let cgroup = &group.record.path;
                    tracing::debug!(cgroup, %error, "the threads in {cgroup} did not get their I/O priority: {error}");
                }
            }
            GroupJob::Release { task, group, waited } => {
                let result = if waited { tree.release(&group) } else { tree.release_task(&group) };
                outbox.send(Message::Released { task, result });
            }
            GroupJob::Remove { task, group } => {
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
    group: Group,
    (process, kin): (ProcessRef, Kin),
    conditions: Conditions<'_>,
    (tier, plan): (Option<Tier>, &WeightPlan),
) -> Result<Placed, (Arc<Group>, CgroupError)> {
    let group = Arc::new(group);
    let placed = weigh(tree, &group, tier, plan)
        .and_then(|()| tree.attach_if(&group, process, kin, conditions));
    match placed {
        Ok(attached) => Ok((group, attached, tier)),
        Err(error) => Err((group, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Reach;
    use crate::core::model::TaskId;
    use crate::units::Pid;

    fn attach_job(number: u64, discovered: bool) -> GroupJob {
        GroupJob::Attach {
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

    fn number(job: Option<GroupJob>) -> Option<u64> {
        match job {
            Some(GroupJob::Attach { task, .. }) => Some(task.number),
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
