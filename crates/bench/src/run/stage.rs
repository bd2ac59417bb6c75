//! The tasks of one run, from the first arrival to the last end.

use std::time::Duration;

use procfs::Current as _;
use tokio::time::MissedTickBehavior;

use super::events::{self, History};
use super::queue::Queue;
use super::shared::Bench;
use super::spawn;
use super::tasks::Planned;
use crate::record::{self, Outcome, Point};
use crate::suite::Load;
use lrs_api::client::Connection;
use lrs_api::proto;
use lrs_core::units::WallTime;
use lrs_term::Failure;
use lrs_testbed::node::Ticks;
use lrs_testbed::private::{Daemon, last_words};
use lrs_testbed::process::ProcessGroup;
use lrs_testbed::supervise::until;
use tokio::time::Instant;

/// Time between two points of the timeline.
const POINT: Duration = Duration::from_millis(500);

/// Tasks started between two readings of the clock, the arrivals and the ends.
const BURST: usize = 64;

/// The zero of a run's times, on both clocks.
#[derive(Clone, Copy)]
pub(super) struct Began {
    pub(super) at: Instant,
    pub(super) wall: WallTime,
}

/// A task that has begun.
pub(super) struct Running {
    index: usize,
    child: ProcessGroup,
}

/// What a run is made of, and what came of it so far.
pub(super) struct Stage<'a> {
    pub(super) bench: &'a Bench<'a>,
    pub(super) load: &'a Load,
    /// `None`: plain processes.
    pub(super) daemon: Option<&'a Daemon>,
    /// Processes at a time; with lrsd all are started.
    pub(super) slots: usize,
    pub(super) tasks: &'a [Planned],
    pub(super) queue: Queue,
    /// The zero of all times.
    pub(super) began: Began,
    /// Dropping it ends them.
    pub(super) running: Vec<Running>,
    pub(super) records: Vec<record::Task>,
    pub(super) faults: Vec<String>,
    /// Whether that is why it ended.
    pub(super) lrsd_failed: bool,
    /// What was read of lrsd's during the run.
    pub(super) history: History,
    pub(super) timeline: Vec<Point>,
    /// At the last point of the timeline.
    pub(super) last: Ticks,
    /// Of the node; `None`: the kernel does not say.
    pub(super) memory: Option<Memory>,
}

/// Bytes of memory that were available: MemAvailable (proc_meminfo(5)).
#[derive(Clone, Copy)]
pub(super) struct Memory {
    first: u64,
    least: u64,
}

impl Memory {
    /// As a run begins.
    pub(super) fn now() -> Option<Memory> {
        let first = available()?;
        Some(Memory { first, least: first })
    }

    /// Reads it again; what cannot be read now changes nothing.
    fn refresh(&mut self) {
        self.least = available().map_or(self.least, |now| self.least.min(now));
    }

    /// The most that was taken since the begin.
    pub(super) fn peak(self) -> u64 {
        self.first - self.least
    }
}

fn available() -> Option<u64> {
    procfs::Meminfo::current().ok()?.mem_available
}

/// lrsd's status, and what happened since the one before where that is asked for.
type Reply = Result<(proto::Status, Vec<proto::Event>), tonic::Status>;

type Question = tokio::task::JoinHandle<Reply>;

impl Stage<'_> {
    /// Until every task has ended, or the time is over.
    pub(super) async fn work(
        &mut self,
        children: &mut tokio::signal::unix::Signal,
    ) -> Result<(), Failure> {
        let began = self.began.at;
        let ends = began + self.bench.suite.time_limit;
        let mut points = tokio::time::interval_at(Instant::now() + POINT, POINT);
        points.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // Asked beside the rest: an end must not be noticed late because lrsd is busy.
        let mut asked: Option<Question> = None;
        let mut task_ended = false;
        loop {
            let now = Instant::now();
            if std::mem::take(&mut task_ended) || now >= ends {
                self.reap(now)?;
            }
            let passed = now - began;
            for index in self.queue.arrive(self.tasks, passed) {
                if let Some(record) = self.records.get_mut(index) {
                    record.arrived = passed.as_secs_f64();
                }
            }
            let more = self.start_due()?;
            if self.queue.is_over() {
                return Ok(());
            }
            if now >= ends {
                let limit = self.bench.suite.time_limit.as_secs_f64();
                self.faults.push(format!("not over after {limit:.0} s, the time limit"));
                return Ok(());
            }
            let next = self.queue.next_arrival().map(|at| began + at);
            tokio::select! {
                _ = children.recv() => task_ended = true,
                () = tokio::task::yield_now(), if more => {}
                () = until(next) => {}
                () = until(Some(ends)) => {}
                answer = answer(&mut asked) => {
                    asked = None;
                    if !self.point(answer)? {
                        return Ok(());
                    }
                }
                _ = points.tick(), if asked.is_none() => match self.daemon {
                    None => { self.point(None)?; }
                    Some(daemon) => {
                        let many = self.tasks.len() >= events::MANY;
                        let next = many.then(|| self.history.next());
                        asked = Some(tokio::spawn(ask(daemon.connection.clone(), next)));
                    }
                },
            }
        }
    }

    /// Starts the next tasks, [`BURST`] at most; answers whether others are due too.
    fn start_due(&mut self) -> Result<bool, Failure> {
        let mut started = 0;
        while self.running.len() < self.slots {
            if started == BURST {
                return Ok(true);
            }
            started += 1;
            let Some(index) = self.queue.next() else { break };
            let (Some(task), Some(record)) = (self.tasks.get(index), self.records.get_mut(index))
            else {
                continue;
            };
            let Some(group) = self.load.groups.get(task.group) else { continue };
            let log = self.bench.log_of(index);
            let now = Instant::now();
            let lrs = self.daemon.map(|daemon| (self.bench.lrsctl, daemon));
            match spawn::start(task, group, &self.load.name, lrs, &log)? {
                Ok(child) => {
                    if self.daemon.is_none() {
                        record.started = Some(now.duration_since(self.began.at).as_secs_f64());
                    }
                    self.running.push(Running { index, child });
                }
                Err(error) => {
                    record.outcome = Outcome::NotSpawned(error.to_string());
                    self.queue.ended(self.tasks, index, now - self.began.at);
                }
            }
        }
        Ok(false)
    }

    /// Notes who ended.
    fn reap(&mut self, now: Instant) -> Result<(), Failure> {
        let passed = now - self.began.at;
        let mut still = Vec::with_capacity(self.running.len());
        for mut running in self.running.drain(..) {
            let status = running.child.try_wait().map_err(|error| {
                Failure::failed(format!("cannot wait for a task of {}: {error}", self.load.name))
            })?;
            let Some(status) = status else {
                still.push(running);
                continue;
            };
            if let Some(record) = self.records.get_mut(running.index) {
                record.ended = Some(passed.as_secs_f64());
                record.outcome = spawn::outcome(status);
            }
            self.queue.ended(self.tasks, running.index, passed);
        }
        self.running = still;
        Ok(())
    }

    /// One point of the timeline; false when lrsd does not answer any more.
    fn point(&mut self, answer: Option<Answer>) -> Result<bool, Failure> {
        let ticks = Ticks::now()?;
        let used = ticks.since(self.last);
        self.last = ticks;
        if let Some(memory) = &mut self.memory {
            memory.refresh();
        }
        let mut point = Point {
            at: self.began.at.elapsed().as_secs_f64(),
            effective: used.effective,
            iowait: used.iowait,
            running: count(self.running.len()),
            waiting: count(self.queue.len()),
            ..Point::default()
        };
        match answer {
            None => {}
            Some(Ok(Ok((status, events)))) => {
                self.history.extend(events);
                let slots = status.slots.unwrap_or_default();
                let (active, passive) =
                    (slots.active.unwrap_or_default(), slots.passive.unwrap_or_default());
                point.running = active.used + passive.used;
                point.waiting = status.waiting;
                point.active_used = Some(active.used);
                point.active_capacity = Some(active.capacity);
                point.passive_used = Some(passive.used);
                point.passive_capacity = Some(passive.capacity);
            }
            Some(Ok(Err(status))) => {
                let words = last_words(&self.bench.logs.join("lrsd.log"));
                self.faults.push(format!("lrsd failed ({}): {words}", status.message()));
                self.lrsd_failed = true;
                return Ok(false);
            }
            Some(Err(error)) => {
                return Err(Failure::failed(format!("cannot ask lrsd: {error}")));
            }
        }
        self.timeline.push(point);
        Ok(true)
    }
}

type Answer = Result<Reply, tokio::task::JoinError>;

/// Asks lrsd for its status, and for the events from `next` on.
async fn ask(mut connection: Connection, next: Option<u64>) -> Reply {
    let status = connection.get_status(proto::GetStatusRequest {}).await?.into_inner();
    let events = match next {
        // What cannot be read now is read after the run, or reported then.
        Some(next) => events::since(connection, next).await.unwrap_or_default(),
        None => Vec::new(),
    };
    Ok((status, events))
}

/// The answer that was asked for; for ever without one.
async fn answer(asked: &mut Option<Question>) -> Option<Answer> {
    match asked {
        Some(asked) => Some(asked.await),
        None => std::future::pending().await,
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
