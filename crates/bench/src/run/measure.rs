//! One run of one load in one setting, measured.
//!
//! The run shares the CPUs with what it measures. So ends are SIGCHLD and arrivals are a timer;
//! twice a second the node's counters and, with lrsd, its status are read, and the history of
//! lrsd after the end ([`events`]).
//!
//! With lrsd every task is started when it arrives and waits as `lrsctl run --wait`. Tasks that
//! arrive together are started in order, but their requests may overtake each other by the few
//! milliseconds that a process takes to begin: to wait for each would make arrivals a queue of
//! ours. With plain processes nothing is started before its turn.

use std::path::Path;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::events::{self, History};
use super::machine::disk_bytes;
use super::queue::Queue;
use super::shared::Bench;
use super::spawn;
use super::stage::{Began, Memory, Stage};
use super::tasks::{self, Extent, Planned};
use crate::record::{self, Outcome};
use crate::suite::template::Template;
use crate::suite::{How, Load, Setting};
use lrs_term::Failure;
use lrs_testbed::node::{Ticks, wall_time};
use lrs_testbed::private::Daemon;
use lrs_testbed::process::write_back;
use lrs_testbed::sweep::end_processes;
use tokio::time::Instant;

/// How long writing out what the run before left dirty may take.
const WRITE_BACK: Duration = Duration::from_secs(60);

/// Complaints about single tasks that a run keeps, and the output of each: when all fail, they fail
/// alike.
const COMPLAINTS: usize = 8;

/// How far the wall clock may go apart from the monotonic clock in a run. lrsd's events have
/// the time of the one, and the run's times are those of the other.
const STEP: Duration = Duration::from_millis(50);

impl Bench<'_> {
    /// Runs `load` in `setting`. An error is one of the bench itself; what the tasks do wrong
    /// is in the record.
    pub(crate) async fn run(
        &self,
        load: &Load,
        setting: &Setting,
        (round, place): (u32, u32),
    ) -> Result<record::Run, Failure> {
        empty(&self.places.run)?;
        let mut notes = Vec::new();
        if !write_back(&self.places.run, WRITE_BACK).await? {
            notes.push(format!(
                "began while what was written before was still on its way to the disk after {} s",
                WRITE_BACK.as_secs()
            ));
        }
        let (daemon, slots) = match &setting.how {
            How::Processes(slots) => (None, Some(*slots)),
            How::Alone => (None, Some(1)),
            How::Daemon { keys, slots } => (Some(self.daemon(keys).await?.0), *slots),
        };
        let extent = if setting.how == How::Alone { Extent::Alone } else { Extent::Whole };
        let tasks = tasks::plan(self.suite, load, &self.places, self.cpus, extent);
        for index in 0..tasks.len() {
            // the output of a task of the run before, if there was one
            let _ = std::fs::remove_file(self.log_of(index));
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
            began: Began { at: Instant::now(), wall: wall_time() },
            running: Vec::new(),
            faults: Vec::new(),
            lrsd_failed: false,
            history: History::default(),
            timeline: Vec::new(),
            last: ticks,
            memory: Memory::now(),
        };
        stage.work(&mut children).await?;
        let lasted = stage.began.at.elapsed();
        let wall_lasted = wall_time().unix_micros().saturating_sub(stage.began.wall.unix_micros());
        let used = Ticks::now()?.since(ticks);
        let disk_after = self.disk.as_deref().and_then(disk_bytes);
        let Stage {
            mut records,
            mut faults,
            timeline,
            memory,
            began,
            running,
            lrsd_failed,
            mut history,
            ..
        } = stage;
        drop(running);
        // A task may have left something behind: it must not run beside the next.
        let mut kept = self.kept.clone();
        kept.extend(daemon.as_ref().map(Daemon::id));
        faults.extend(does_not_end(&kept));
        let mut decisions = None;
        if let Some(daemon) = &daemon {
            daemon.drained().await;
            let stepped = stepped(lasted, wall_lasted);
            if let Some(micros) = stepped {
                notes.push(format!(
                    "the clock was set by {:.3} s during the run: when tasks were admitted and \
                     promoted is not known",
                    micros as f64 / 1e6
                ));
            }
            let zero = Some(began.wall).filter(|_| stepped.is_none());
            match events::since(daemon.connection.clone(), history.next()).await {
                Ok(events) => {
                    history.extend(events);
                    decisions = Some(events::apply(&history, zero, &mut records));
                }
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
            lasted_seconds: lasted.as_secs_f64(),
            faults,
            notes,
            tasks: records,
            node: record::Node {
                effective: used.effective,
                iowait: used.iowait,
                steal: used.steal,
                others: used.others,
                context_switches: Some(used.context_switches),
                read_bytes: bytes(|(read, _)| read),
                written_bytes: bytes(|(_, written)| written),
                memory_peak_bytes: memory.map(|memory| memory.peak()),
            },
            timeline,
            static_slots: slots.filter(|_| setting.how != How::Alone),
            decisions,
        };
        self.judge(&mut run, lrsd_failed);
        if run.faults.is_empty() && extent == Extent::Whole {
            let place = logs_of(&run);
            run.faults.extend(self.check(load, &place).await?);
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
    fn judge(&self, run: &mut record::Run, lrsd_failed: bool) {
        let place = logs_of(run);
        let mut complaints = Vec::new();
        let mut more = 0;
        for (index, task) in run.tasks.iter_mut().enumerate() {
            if task.outcome == Outcome::NotStarted {
                // An admission has no time when the clock was set.
                let begun = task.started.is_some() || task.began_active.is_some();
                match (lrsd_failed, begun) {
                    (true, _) => task.outcome = Outcome::LrsdFailed,
                    (false, true) => task.outcome = Outcome::TimeLimit,
                    (false, false) => {}
                }
            }
            if task.outcome == Outcome::Ok {
                continue;
            }
            if complaints.len() == COMPLAINTS {
                more += 1;
                continue;
            }
            let keep = self.logs.join(format!("{place}-{}.log", task.name));
            let log = self.log_of(index);
            complaints.push(spawn::complaint(&task.name, &task.outcome, &log, &keep));
        }
        run.faults.extend(complaints);
        if more > 0 {
            run.faults.push(format!("and {more} more tasks"));
        }
    }

    /// Runs the load's check; answers what did not hold. What it says then is kept as `place`.
    async fn check(&self, load: &Load, place: &str) -> Result<Vec<String>, Failure> {
        let Some(check) = &load.check else { return Ok(Vec::new()) };
        let run = &self.places.run;
        let fill = tasks::fill(self.suite, &self.places, (0, run), self.cpus);
        let words = Template::fill_all(check, &fill);
        let log = self.workdir.join("log-of-check");
        let limit = self.suite.time_limit;
        let mut faults = Vec::new();
        let how = spawn::finish(&words, run, &log, limit).await?;
        if how != Outcome::Ok {
            let keep = self.logs.join(format!("{place}-check.log"));
            faults.push(spawn::complaint("the check", &how, &log, &keep));
        }
        // It must not leave anything behind that runs beside the next.
        faults.extend(does_not_end(&self.kept));
        Ok(faults)
    }
}

/// Ends what is left below us but for `kept`; says what cannot be ended.
fn does_not_end(kept: &[u32]) -> impl Iterator<Item = String> {
    end_processes(kept).into_iter().map(|left| format!("{left} does not end"))
}

/// What the logs of a run are called, up to the task.
fn logs_of(run: &record::Run) -> String {
    format!("{}-{}-{}", run.load, run.setting.replace(['/', ' '], "-"), run.round)
}

/// By how many microseconds the wall clock went apart from the other, if by more than [`STEP`].
fn stepped(lasted: Duration, wall_micros: i64) -> Option<i64> {
    let apart = wall_micros.saturating_sub(i64::try_from(lasted.as_micros()).unwrap_or(i64::MAX));
    Some(apart).filter(|apart| u128::from(apart.unsigned_abs()) > STEP.as_micros())
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

/// Makes the directory, or makes it empty.
fn empty(directory: &Path) -> Result<(), Failure> {
    let emptied = match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => std::fs::create_dir(directory),
    };
    emptied
        .map_err(|error| Failure::failed(format!("cannot empty {}: {error}", directory.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_noticed() {
        let two_seconds = Duration::from_secs(2);
        assert_eq!(stepped(two_seconds, 2_040_000), None, "adjusted little by little");
        assert_eq!(stepped(two_seconds, 102_000_000), Some(100_000_000));
        assert_eq!(stepped(two_seconds, 1_000_000), Some(-1_000_000));
    }
}
