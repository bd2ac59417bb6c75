//! The threads beside the loop: one that puts processes in place ([`super::placer`]), one that
//! reads ([`super::reader`]), one that asks systemd ([`super::units`]), and one that finds out how
//! processes ended ([`super::exits`]).
//!
//! Moving a process makes the kernel wait for a grace period (milliseconds), and a reading of
//! thousands of tasks takes as long; neither may keep a promotion waiting. So the loop only
//! ever writes weights itself, and sends the rest here. Each thread has one queue in and one
//! common queue back ([`super::outbox`]), and ends when the loop drops its end.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use lrs_host::spare::NoThread;

use super::exits;
use super::outbox::{Inward, Outbox, Unknown};
use super::placer::place_all;
use super::reader::read_all;
use super::units::serve_units;
use super::verify::split_cpu;
use super::watch::Waker;
use crate::cgroup::{CgroupError, TierTree, WeightPlan};
use crate::executor::job::{GroupJob, ReadRequest, UnitJob};
use crate::executor::message::Message;
use crate::sample::Sampler;

/// The threads and the queues to them.
#[derive(Debug)]
pub struct Workers {
    jobs: Option<Sender<GroupJob>>,
    unit_jobs: Option<Sender<UnitJob>>,
    reads: Option<Sender<ReadRequest>>,
    ends: Option<Sender<Unknown>>,
    threads: Vec<JoinHandle<()>>,
    /// The last test of the tiers, which tells the loop how it went.
    test: Option<JoinHandle<()>>,
    outbox: Outbox,
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
        let shared = outbox.clone();
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
            test: None,
            outbox: shared,
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

    /// Tests the tiers of `tree`.
    pub fn verify(&mut self, tree: Arc<TierTree>, plan: WeightPlan) {
        let (outbox, stopping) = (self.outbox.clone(), Arc::clone(&self.stopping));
        let test = move || {
            // A panic has its message on stderr; who asked is answered all the same.
            let split = AssertUnwindSafe(|| split_cpu(&tree, &plan, &stopping));
            let result = catch_unwind(split).unwrap_or_else(|_| {
                Err(CgroupError::Unsupported("the test of the tiers panicked".to_owned()))
            });
            outbox.send(Message::TiersTested { result });
        };
        match std::thread::Builder::new().name("lrs-verify".into()).spawn(test) {
            Ok(thread) => self.test = Some(thread),
            Err(error) => {
                let why = format!("cannot start a thread: {}", NoThread(&error));
                let result = Err(CgroupError::Unsupported(why));
                self.outbox.send(Message::TiersTested { result });
            }
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
        threads.extend(self.test.take());
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
