//! One run of all tasks in one setting, measured.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::load::Task;
use super::view::View;
use crate::cli::{Column, Columns, Failure, Output, all_tasks, brief, live_row, printable};
use crate::units::BootTime;
use crate::{clock, proto};
use lrs_testbed::node::{Ticks, Use};
use lrs_testbed::private::{Daemon, last_words};
use lrs_testbed::process::{Group, settle, this_executable};

/// How often the view is renewed.
const RENEW: Duration = Duration::from_millis(500);

/// How long writing out what is dirty may take before a stage.
const SETTLE: Duration = Duration::from_secs(4);

/// The live view leaves room on a screen of 24 lines for what was said before.
const LIVE_ROWS: usize = 10;

/// Columns of the live view.
const LIVE_WIDTH: usize = 74;

/// How long the daemon may take to know of a request before the next one is made regardless.
const KNOWN: Duration = Duration::from_millis(500);

/// Who decides what runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Setting<'a> {
    /// This many at a time, all alike: what a scheduler with static slots does.
    Static(usize),
    /// All submitted at once in order with `lrsctl run --wait`; the daemon decides.
    Shaped(&'a Daemon),
}

/// What a run brought.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// From the first submission to the last exit, or to the limit.
    pub(super) lasted: Duration,
    /// The node meanwhile.
    pub(super) node: Use,
    /// From start (shaped: submission) to exit, by index of the task. `None`: not within the
    /// limit.
    pub(super) times: Vec<Option<Duration>>,
    /// Shaped: promotions.
    pub(super) promoted: u64,
    /// Shaped: the largest passive capacity seen.
    pub(super) most_passive: u32,
}

impl Outcome {
    /// Tasks that ended within the limit.
    pub(super) fn finished(&self) -> usize {
        self.times.iter().flatten().count()
    }

    /// Whether every task did.
    pub(super) fn complete(&self) -> bool {
        self.times.iter().all(Option::is_some)
    }
}

struct Running {
    index: usize,
    begun: BootTime,
    child: Group,
}

/// Runs `tasks` to the end, but no longer than `limit`: what then still runs is killed.
pub(super) async fn run(
    title: &str,
    tasks: &[Task],
    setting: Setting<'_>,
    workdir: &Path,
    limit: Duration,
    out: &mut Output,
) -> Result<Outcome, Failure> {
    settle(workdir, SETTLE).await?;
    let mut children = signal(SignalKind::child())
        .map_err(|error| Failure::failed(format!("cannot watch children: {error}")))?;
    let mut stage = Stage {
        title,
        tasks,
        setting,
        log: workdir.join("tasks.log"),
        begun: clock::boot_time(),
        next: 0,
        last_start: None,
        running: Vec::new(),
        times: vec![None; tasks.len()],
        before: None,
        most_passive: 0,
        view: View::default(),
    };
    if let Setting::Shaped(daemon) = setting {
        stage.before = daemon.status().await?.totals;
    }
    let ticks = Ticks::now()?;
    stage.begun = clock::boot_time();
    let mut renew = tokio::time::interval(RENEW);
    renew.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let ended = loop {
        let now = clock::boot_time();
        stage.reap(now)?;
        if stage.times.iter().all(Option::is_some) || now.since(stage.begun) >= limit {
            break now;
        }
        stage.start_due().await?;
        // There is no event for "the daemon knows of the request"; submission takes the first
        // moments only.
        let submitting = matches!(setting, Setting::Shaped(_)) && stage.next < tasks.len();
        tokio::select! {
            _ = children.recv() => {}
            _ = renew.tick() => stage.show(out).await?,
            () = tokio::time::sleep(Duration::from_millis(1)), if submitting => {}
        }
    };
    let node = Ticks::now()?.since(ticks);
    stage.view.clear(out)?;
    for running in stage.running.drain(..) {
        let output = &tasks[running.index].output;
        drop(running.child);
        forget_output(output);
    }
    let mut promoted = 0;
    if let Setting::Shaped(daemon) = setting {
        daemon.drained().await;
        let after = daemon.status().await?.totals.unwrap_or_default();
        promoted = after.promoted.saturating_sub(stage.before.unwrap_or_default().promoted);
    }
    Ok(Outcome {
        lasted: ended.since(stage.begun),
        node,
        times: stage.times,
        promoted,
        most_passive: stage.most_passive,
    })
}

struct Stage<'a> {
    title: &'a str,
    tasks: &'a [Task],
    setting: Setting<'a>,
    log: std::path::PathBuf,
    begun: BootTime,
    next: usize,
    last_start: Option<BootTime>,
    running: Vec<Running>,
    times: Vec<Option<Duration>>,
    before: Option<proto::Totals>,
    most_passive: u32,
    view: View,
}

impl Stage<'_> {
    /// Starts what the setting lets start now.
    async fn start_due(&mut self) -> Result<(), Failure> {
        match self.setting {
            Setting::Static(slots) => {
                while self.running.len() < slots && self.next < self.tasks.len() {
                    self.start_next()?;
                }
            }
            Setting::Shaped(daemon) => {
                if self.next < self.tasks.len() && self.all_known(daemon).await? {
                    self.start_next()?;
                }
            }
        }
        Ok(())
    }

    /// Whether the daemon knows of every task submitted, which keeps the order of the list.
    async fn all_known(&self, daemon: &Daemon) -> Result<bool, Failure> {
        let overdue = self.last_start.is_some_and(|at| clock::boot_time().since(at) > KNOWN);
        if self.next == 0 || overdue {
            return Ok(true);
        }
        let status = daemon.status().await?;
        let admitted = status.totals.unwrap_or_default().admitted;
        let before = self.before.unwrap_or_default().admitted;
        let known = admitted.saturating_sub(before) + u64::from(status.waiting);
        Ok(known >= self.next as u64)
    }

    fn start_next(&mut self) -> Result<(), Failure> {
        let Some(task) = self.tasks.get(self.next) else { return Ok(()) };
        let mut words = task.command.iter();
        let mut command = match self.setting {
            Setting::Static(_) => {
                let mut command = Command::new(words.next().cloned().unwrap_or_default());
                command.args(words);
                command
            }
            Setting::Shaped(daemon) => {
                let mut command = Command::new(this_executable());
                command.arg("--endpoint").arg(daemon.endpoint.to_string());
                command.args(["run", "--leave-unit", "--wait", "--job", "demo"]);
                command.args(["--kind", task.kind.word(), "--name", &task.name, "--"]);
                command.args(words);
                command
            }
        };
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", self.log.display()))
        })?;
        // Not /dev/null: grep notices that nobody reads and stops at the first match.
        let results = log.try_clone().map_err(|error| {
            Failure::failed(format!("cannot write {}: {error}", self.log.display()))
        })?;
        command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(results).stderr(log);
        let begun = clock::boot_time();
        let child = Group::spawn(&mut command)
            .map_err(|error| Failure::failed(format!("cannot start {}: {error}", task.name)))?;
        self.running.push(Running { index: self.next, begun, child });
        self.last_start = Some(begun);
        self.next += 1;
        Ok(())
    }

    /// Notes who ended. A task that failed makes every comparison void.
    fn reap(&mut self, now: BootTime) -> Result<(), Failure> {
        let mut still = Vec::with_capacity(self.running.len());
        for mut running in self.running.drain(..) {
            let task = &self.tasks[running.index];
            let status = running.child.try_wait().map_err(|error| {
                Failure::failed(format!("cannot wait for {}: {error}", task.name))
            })?;
            match status {
                None => still.push(running),
                Some(status) if status.success() => {
                    self.times[running.index] = Some(now.since(running.begun));
                    forget_output(&task.output);
                }
                Some(status) => {
                    return Err(Failure::failed(format!(
                        "task {} failed ({status}): {}",
                        task.name,
                        last_words(&self.log)
                    )));
                }
            }
        }
        self.running = still;
        Ok(())
    }

    async fn show(&mut self, out: &mut Output) -> Result<(), Failure> {
        let now = clock::boot_time();
        let done = self.times.iter().flatten().count();
        let title = format!(
            "{}, {:.0} s, {done} of {} done",
            self.title,
            now.since(self.begun).as_secs_f64(),
            self.tasks.len()
        );
        match self.setting {
            Setting::Static(_) => {
                let names: Vec<&str> =
                    self.running.iter().map(|running| &*self.tasks[running.index].name).collect();
                self.view.show(now, &title, &[format!("running  {}", names.join("  "))], out)
            }
            Setting::Shaped(daemon) => {
                let status = daemon.status().await?;
                let slots = status.slots.unwrap_or_default();
                self.most_passive =
                    self.most_passive.max(slots.passive.map_or(0, |passive| passive.capacity));
                let tasks = all_tasks(daemon.connection.clone())
                    .await
                    .map_err(|status| Failure::failed(printable(status.message()).into_owned()))?;
                let title = format!(
                    "{title}, {} waiting; slots: {} active, {} passive",
                    status.waiting,
                    slots.active.map_or(0, |active| active.capacity),
                    slots.passive.map_or(0, |passive| passive.capacity),
                );
                if out.can_redraw() {
                    self.view.show(now, &title, &live(&tasks), out)
                } else {
                    let tier = |tier: proto::Tier| {
                        let tasks = tasks.iter().filter(|task| task.tier == tier as i32);
                        tasks.map(brief).collect::<Vec<_>>().join("  ")
                    };
                    let rows = [
                        format!("active  {}", tier(proto::Tier::Active)),
                        format!("passive  {}", tier(proto::Tier::Passive)),
                    ];
                    self.view.show(now, &title, &rows, out)
                }
            }
        }
    }
}

/// Who runs in which tier, and what the daemon measures of them.
fn live(tasks: &[proto::Task]) -> Vec<String> {
    let mut sorted: Vec<&proto::Task> = tasks.iter().collect();
    sorted.sort_by_key(|task| task.tier);
    let mut table = Columns::new(&[
        ("TIER", Column::Text),
        ("TASK", Column::Elastic(12)),
        ("CLASS", Column::Text),
        ("CPU", Column::Figure),
        ("WRITE/s", Column::Figure),
        ("AGE", Column::Figure),
    ]);
    for task in sorted.iter().take(LIVE_ROWS) {
        table.row(live_row(task));
    }
    let mut rows: Vec<String> = table.render(LIVE_WIDTH).lines().map(str::to_owned).collect();
    if sorted.len() > LIVE_ROWS {
        rows.push(format!("and {} more", sorted.len() - LIVE_ROWS));
    }
    rows
}

/// The output has served its purpose; the working directory goes at the end in any case.
fn forget_output(path: &Path) {
    let _ = std::fs::remove_file(path);
}
