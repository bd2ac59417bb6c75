//! One run of one load in one setting, measured.
//!
//! The run shares the CPUs with what it measures. So ends are SIGCHLD and arrivals are a timer;
//! twice a second the node's counters and, with lrsd, its status are read, and the history of
//! lrsd after the end.
//!
//! With lrsd every task is started when it arrives and waits as `lrsctl run --wait`. Tasks that
//! arrive together are started in order, but their requests may overtake each other by the few
//! milliseconds that a process takes to begin: to wait for each would make arrivals a queue of
//! ours. With plain processes nothing is started before its turn.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use super::queue::Queue;
use super::tasks::{self, Extent, Places, Planned};
use super::{events, spawn};
use crate::bench::record::{self, Outcome, Point};
use crate::bench::suite::{How, Load, Setting, Suite};
use crate::cli::Failure;
use crate::rig::node::Ticks;
use crate::rig::private::{Daemon, Private, last_words};
use crate::rig::process::{Group, settle};
use crate::rig::supervise::until;
use crate::rig::sweep::end_processes;
use crate::units::{BootTime, Moment};
use crate::{clock, proto};

/// Time between two points of the timeline.
const POINT: Duration = Duration::from_millis(500);

/// How long writing out what the run before left dirty may take.
const SETTLE: Duration = Duration::from_secs(60);

/// Complaints about single tasks that a run keeps: when all fail, they fail alike.
const COMPLAINTS: usize = 8;

/// What all runs of a bench share.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    pub(crate) suite: &'a Suite,
    /// On the disk that is measured.
    pub(crate) places: Places,
    /// CPUs tasks may use.
    pub(crate) cpus: u32,
    /// For what belongs to no measured disk: sockets, what tasks say.
    pub(crate) workdir: &'a Path,
    /// Of every private lrsd, one after the other.
    pub(crate) cgroup_root: &'a str,
    /// What is kept when something failed, and lrsd's logs.
    pub(crate) logs: PathBuf,
    /// Children that outlive a run.
    pub(crate) kept: Vec<u32>,
    /// Counters of the measured disk.
    pub(crate) disk: Option<PathBuf>,
}

impl Bench<'_> {
    /// A private lrsd with these keys.
    pub(crate) async fn daemon(
        &self,
        keys: &[(&'static str, String)],
    ) -> Result<(Daemon, proto::Status), Failure> {
        let private = Private {
            workdir: self.workdir,
            name: "lrsd",
            cgroup_root: self.cgroup_root,
            keys,
            log: &self.logs.join("lrsd.log"),
        };
        Daemon::start(&private).await
    }

    /// Runs `load` in `setting`. An error is one of the bench itself; what the tasks do wrong
    /// is in the record.
    pub(crate) async fn run(
        &self,
        load: &Load,
        setting: &Setting,
        (round, place): (u32, u32),
    ) -> Result<record::Run, Failure> {
        empty(&self.places.run)?;
        settle(&self.places.run, SETTLE).await?;
        let (daemon, slots) = match &setting.how {
            How::Processes(slots) => (None, Some(*slots)),
            How::Alone => (None, Some(1)),
            How::Daemon { keys, slots } => (Some(self.daemon(keys).await?.0), *slots),
        };
        let extent = if setting.how == How::Alone { Extent::OneEach } else { Extent::Whole };
        let tasks = tasks::plan(self.suite, load, &self.places, self.cpus, extent);
        for index in 0..tasks.len() {
            // what a task of the run before said; there may have been none
            let _ = std::fs::remove_file(self.said(index));
        }
        let mut children = signal(SignalKind::child())
            .map_err(|error| Failure::failed(format!("cannot watch children: {error}")))?;
        let disk_before = self.disk.as_deref().and_then(disk_bytes);
        let ticks = Ticks::now()?;
        let mut stage = Stage {
            bench: self,
            load,
            daemon: daemon.as_ref(),
            // with lrsd the waiting is its business
            slots: slots.filter(|_| daemon.is_none()).map_or(usize::MAX, |slots| slots as usize),
            queue: Queue::new(&load.groups, &tasks),
            records: tasks.iter().map(|task| unborn(task, load)).collect(),
            tasks: &tasks,
            began: clock::now(),
            running: Vec::new(),
            faults: Vec::new(),
            timeline: Vec::new(),
            last: ticks,
        };
        stage.work(&mut children).await?;
        let ended = clock::boot_time();
        let used = Ticks::now()?.since(ticks);
        let disk_after = self.disk.as_deref().and_then(disk_bytes);
        let Stage { mut records, mut faults, timeline, began, running, .. } = stage;
        drop(running);
        // A task may have left something behind: it must not run beside the next.
        let mut kept = self.kept.clone();
        kept.extend(daemon.as_ref().map(Daemon::id));
        faults.extend(end_processes(&kept).into_iter().map(|left| format!("{left} does not end")));
        let mut decisions = None;
        if let Some(daemon) = &daemon {
            daemon.drained().await;
            match events::all(daemon).await {
                Ok(events) => decisions = Some(events::apply(&events, began.wall, &mut records)),
                Err(failure) => faults.push(failure.to_string()),
            }
        }
        if let Some(daemon) = daemon {
            daemon.stop().await;
        }
        let bytes =
            |of: fn((u64, u64)) -> u64| Some(of(disk_after?).saturating_sub(of(disk_before?)));
        let mut run = record::Run {
            load: load.name.clone(),
            setting: setting.name.clone(),
            round,
            place,
            began: began.wall.to_string(),
            makespan_seconds: None,
            lasted_seconds: ended.since(began.boot).as_secs_f64(),
            faults,
            notes: Vec::new(),
            tasks: records,
            node: record::Node {
                effective: used.effective,
                iowait: used.iowait,
                steal: used.steal,
                others: used.others,
                context_switches: Some(used.context_switches),
                read_bytes: bytes(|(read, _)| read),
                written_bytes: bytes(|(_, written)| written),
            },
            timeline,
            static_slots: slots.filter(|_| setting.how != How::Alone),
            decisions,
        };
        self.judge(&mut run);
        if run.faults.is_empty() && extent == Extent::Whole {
            run.faults.extend(self.check(load).await?);
        }
        if run.faults.is_empty() {
            let first = run.tasks.iter().map(|task| task.arrived).reduce(f64::min);
            let last = run.tasks.iter().filter_map(|task| task.ended).reduce(f64::max);
            run.makespan_seconds = first.zip(last).map(|(first, last)| last - first);
        }
        empty(&self.places.run)?;
        Ok(run)
    }

    /// Says of every task that did not end well what became of it.
    fn judge(&self, run: &mut record::Run) {
        let place = format!("{}-{}-{}", run.load, run.setting.replace(['/', ' '], "-"), run.round);
        let mut complaints = Vec::new();
        for (index, task) in run.tasks.iter_mut().enumerate() {
            if task.ended.is_none() && task.started.is_some() {
                task.outcome = Outcome::TimeLimit;
            }
            if task.outcome != Outcome::Ok {
                let keep = self.logs.join(format!("{place}-{}.log", task.name));
                let log = self.said(index);
                complaints.push(spawn::complaint(&task.name, &task.outcome, &log, &keep));
            }
        }
        let more = complaints.len().saturating_sub(COMPLAINTS);
        complaints.truncate(COMPLAINTS);
        run.faults.extend(complaints);
        if more > 0 {
            run.faults.push(format!("and {more} more tasks"));
        }
    }

    /// Where the task with this index says what it says.
    fn said(&self, index: usize) -> PathBuf {
        self.workdir.join(format!("said-{index}"))
    }

    /// Runs the load's check; answers what did not hold.
    async fn check(&self, load: &Load) -> Result<Option<String>, Failure> {
        let Some(check) = &load.check else { return Ok(None) };
        let run = &self.places.run;
        let words = tasks::fill_words(check, self.suite, &self.places, (0, run), self.cpus);
        let log = self.workdir.join("said-by-check");
        let limit = self.suite.time_limit;
        let told = match finish(&words, run, &log, limit).await? {
            Outcome::Ok => None,
            how => {
                let keep = self.logs.join(format!("{}-check.log", load.name));
                Some(spawn::complaint("the check", &how, &log, &keep))
            }
        };
        Ok(told)
    }
}

/// Runs a command beside which nothing is measured, and waits for its end.
pub(super) async fn finish(
    words: &[String],
    directory: &Path,
    log: &Path,
    limit: Duration,
) -> Result<Outcome, Failure> {
    let mut children = signal(SignalKind::child())
        .map_err(|error| Failure::failed(format!("cannot watch children: {error}")))?;
    let cannot =
        |error: std::io::Error| Failure::failed(format!("cannot write {}: {error}", log.display()));
    let said = std::fs::File::create(log).map_err(cannot)?;
    let mut command = Command::new(words.first().map_or("", |program| program));
    command.args(words.iter().skip(1)).current_dir(directory).stdin(Stdio::null());
    command.stdout(said.try_clone().map_err(cannot)?).stderr(said);
    let program = words.first().cloned().unwrap_or_default();
    let failed = |error| Failure::failed(format!("cannot run {program}: {error}"));
    let mut child = Group::spawn(&mut command).map_err(failed)?;
    let ends = clock::boot_time().after(limit);
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(spawn::outcome(status));
        }
        tokio::select! {
            _ = children.recv() => {}
            () = until(Some(ends)) => return Ok(Outcome::TimeLimit),
        }
    }
}

struct Running {
    index: usize,
    child: Group,
}

struct Stage<'a> {
    bench: &'a Bench<'a>,
    load: &'a Load,
    daemon: Option<&'a Daemon>,
    slots: usize,
    tasks: &'a [Planned],
    queue: Queue,
    began: Moment,
    running: Vec<Running>,
    records: Vec<record::Task>,
    faults: Vec<String>,
    timeline: Vec<Point>,
    last: Ticks,
}

type Asked = tokio::task::JoinHandle<Result<tonic::Response<proto::Status>, tonic::Status>>;

impl Stage<'_> {
    /// Until every task has ended, or the time is over.
    async fn work(&mut self, children: &mut tokio::signal::unix::Signal) -> Result<(), Failure> {
        let began = self.began.boot;
        let ends = began.after(self.bench.suite.time_limit);
        let mut points = tokio::time::interval_at(tokio::time::Instant::now() + POINT, POINT);
        points.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // Asked beside the rest: an end must not be noticed late because lrsd is busy.
        let mut asked: Option<Asked> = None;
        loop {
            let now = clock::boot_time();
            self.reap(now)?;
            let passed = now.since(began);
            for index in self.queue.arrive(self.tasks, passed) {
                if let Some(record) = self.records.get_mut(index) {
                    record.arrived = passed.as_secs_f64();
                }
            }
            self.start_due()?;
            if self.queue.is_over() {
                return Ok(());
            }
            if now >= ends {
                let limit = self.bench.suite.time_limit.as_secs_f64();
                self.faults.push(format!("not over after {limit:.0} s, the time limit"));
                return Ok(());
            }
            let next = self.queue.next_arrival().map(|at| began.after(at));
            tokio::select! {
                _ = children.recv() => {}
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
                        let mut connection = daemon.connection.clone();
                        asked = Some(tokio::spawn(async move {
                            connection.get_status(proto::GetStatusRequest {}).await
                        }));
                    }
                },
            }
        }
    }

    /// Starts whose turn it is.
    fn start_due(&mut self) -> Result<(), Failure> {
        while self.running.len() < self.slots
            && let Some(index) = self.queue.next()
        {
            let (Some(task), Some(record)) = (self.tasks.get(index), self.records.get_mut(index))
            else {
                continue;
            };
            let Some(group) = self.load.groups.get(task.group) else { continue };
            let log = self.bench.said(index);
            let now = clock::boot_time();
            match spawn::start(task, group, &self.load.name, self.daemon, &log)? {
                Ok(child) => {
                    if self.daemon.is_none() {
                        record.started = Some(now.since(self.began.boot).as_secs_f64());
                    }
                    self.running.push(Running { index, child });
                }
                Err(error) => {
                    self.faults.push(format!("cannot start {}: {error}", task.name));
                    self.queue.ended(self.tasks, index, now.since(self.began.boot));
                }
            }
        }
        Ok(())
    }

    /// Notes who ended.
    fn reap(&mut self, now: BootTime) -> Result<(), Failure> {
        let passed = now.since(self.began.boot);
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
        let mut point = Point {
            at: clock::boot_time().since(self.began.boot).as_secs_f64(),
            effective: used.effective,
            iowait: used.iowait,
            running: count(self.running.len()),
            waiting: count(self.queue.len()),
            ..Point::default()
        };
        match answer {
            None => {}
            Some(Ok(Ok(status))) => {
                let status = status.into_inner();
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

type Answer = Result<Result<tonic::Response<proto::Status>, tonic::Status>, tokio::task::JoinError>;

/// The answer that was asked for; for ever without one.
async fn answer(asked: &mut Option<Asked>) -> Option<Answer> {
    match asked {
        Some(asked) => Some(asked.await),
        None => std::future::pending().await,
    }
}

fn unborn(task: &Planned, load: &Load) -> record::Task {
    let group = load.groups.get(task.group);
    record::Task {
        name: task.name.clone(),
        group: group.map_or_else(String::new, |group| group.name.clone()),
        priority: group.map_or(0, |group| group.priority),
        arrived: task.arrives.as_secs_f64(),
        started: None,
        ended: None,
        outcome: Outcome::NotStarted,
        began_active: None,
        promoted: None,
        demoted: None,
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Makes the directory, or makes it empty.
fn empty(directory: &Path) -> Result<(), Failure> {
    let emptied = match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => std::fs::create_dir(directory),
    };
    emptied
        .map_err(|error| Failure::failed(format!("cannot empty {}: {error}", directory.display())))
}

/// Bytes read and written by a block device since boot, from its file in sysfs: sectors of 512
/// bytes in the third and the seventh field (Documentation/block/stat.rst).
fn disk_bytes(stat: &Path) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(stat).ok()?;
    let field = |index: usize| text.split_whitespace().nth(index)?.parse::<u64>().ok();
    Some((field(2)? * 512, field(6)? * 512))
}
