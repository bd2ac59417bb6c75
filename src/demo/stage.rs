//! One run of all tasks in one setting, measured and shown.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use lrs_api::client::all_tasks;
use lrs_api::{proto, wire};
use lrs_term::{Column, Columns, Failure, Output, printable};
use lrs_testbed::node::{Ticks, Use};
use lrs_testbed::private::{Daemon, last_words};
use lrs_testbed::process::{Group, settle, this_executable};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::work::Task;

/// How often the view is renewed on a terminal.
const RENEW: Duration = Duration::from_millis(500);

/// Pause between two lines where nothing can be drawn anew.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// How long writing out what is dirty may take before a stage.
const SETTLE: Duration = Duration::from_secs(4);

/// The live view leaves room on a screen of 24 lines for what was said before.
const LIVE_ROWS: usize = 10;

/// Columns of the live view.
const LIVE_WIDTH: usize = 74;

/// How long the daemon may take to know of a request before the next one is made regardless.
const KNOWN: Duration = Duration::from_millis(500);

/// What decides which tasks run.
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

struct Stage<'a> {
    title: &'a str,
    tasks: &'a [Task],
    setting: Setting<'a>,
    /// Of what the tasks say.
    log: PathBuf,
    begun: Instant,
    last_start: Instant,
    /// Tasks started.
    next: usize,
    /// Index and begin; dropping the group ends it.
    running: Vec<(usize, Instant, Group)>,
    times: Vec<Option<Duration>>,
    /// What the daemon had counted before.
    before: proto::Totals,
    most_passive: u32,
    /// Lines of the view on the screen.
    drawn: usize,
    shown_at: Instant,
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
    let before = match setting {
        Setting::Shaped(daemon) => daemon.status().await?.totals.unwrap_or_default(),
        Setting::Static(_) => proto::Totals::default(),
    };
    let ticks = Ticks::now()?;
    let begun = Instant::now();
    let mut stage = Stage {
        title,
        tasks,
        setting,
        log: workdir.join("tasks.log"),
        begun,
        last_start: begun,
        next: 0,
        running: Vec::new(),
        times: vec![None; tasks.len()],
        before,
        most_passive: 0,
        drawn: 0,
        shown_at: begun,
    };
    let mut renew = tokio::time::interval(RENEW);
    renew.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let ended = loop {
        let now = Instant::now();
        stage.reap(now)?;
        if stage.times.iter().all(Option::is_some) || now - begun >= limit {
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
    stage.clear(out)?;
    for (index, _, child) in stage.running.drain(..) {
        drop(child);
        forget(tasks.get(index));
    }
    let mut promoted = 0;
    if let Setting::Shaped(daemon) = setting {
        daemon.drained().await;
        let after = daemon.status().await?.totals.unwrap_or_default();
        promoted = after.promoted.saturating_sub(stage.before.promoted);
    }
    let Stage { times, most_passive, .. } = stage;
    Ok(Outcome { lasted: ended - begun, node, times, promoted, most_passive })
}

/// The output has served its purpose; the working directory goes at the end in any case.
fn forget(task: Option<&Task>) {
    let _ = task.map(|task| std::fs::remove_file(&task.output));
}

impl Stage<'_> {
    /// Starts what the setting lets start now.
    async fn start_due(&mut self) -> Result<(), Failure> {
        while let Some(task) = self.tasks.get(self.next) {
            match self.setting {
                Setting::Static(slots) if self.running.len() < slots => self.start(task, None)?,
                Setting::Shaped(daemon) if self.all_known(daemon).await? => {
                    return self.start(task, Some(daemon));
                }
                Setting::Static(_) | Setting::Shaped(_) => break,
            }
        }
        Ok(())
    }

    /// Whether the daemon knows of every task submitted, which keeps the order of the list.
    async fn all_known(&self, daemon: &Daemon) -> Result<bool, Failure> {
        if self.next == 0 || self.last_start.elapsed() > KNOWN {
            return Ok(true);
        }
        let status = daemon.status().await?;
        let admitted = status.totals.unwrap_or_default().admitted;
        let known = admitted.saturating_sub(self.before.admitted) + u64::from(status.waiting);
        Ok(known >= self.next as u64)
    }

    fn start(&mut self, task: &Task, daemon: Option<&Daemon>) -> Result<(), Failure> {
        let mut words = task.command.iter();
        let mut command = match daemon {
            None => Command::new(words.next().cloned().unwrap_or_default()),
            Some(daemon) => {
                let mut command = Command::new(this_executable());
                command.arg("--endpoint").arg(daemon.endpoint.to_string());
                command.args(["run", "--leave-unit", "--wait", "--job", "demo"]);
                command.args(["--kind", task.kind.word, "--name", &task.name, "--"]);
                command
            }
        };
        let cannot = |error: std::io::Error| {
            Failure::failed(format!("cannot write {}: {error}", self.log.display()))
        };
        let log = std::fs::File::options().create(true).append(true).open(&self.log);
        let log = log.map_err(cannot)?;
        // Not /dev/null: grep notices that nobody reads and stops at the first match.
        let results = log.try_clone().map_err(cannot)?;
        command.args(words).env("LC_ALL", "C").stdin(Stdio::null()).stdout(results).stderr(log);
        let begun = Instant::now();
        let child = Group::spawn(&mut command)
            .map_err(|error| Failure::failed(format!("cannot start {}: {error}", task.name)))?;
        self.running.push((self.next, begun, child));
        self.last_start = begun;
        self.next += 1;
        Ok(())
    }

    /// Notes which tasks ended. A task that failed makes every comparison void.
    fn reap(&mut self, now: Instant) -> Result<(), Failure> {
        let mut still = Vec::with_capacity(self.running.len());
        for (index, begun, mut child) in self.running.drain(..) {
            let name = self.tasks.get(index).map_or("", |task| &task.name);
            let status = child
                .try_wait()
                .map_err(|error| Failure::failed(format!("cannot wait for {name}: {error}")))?;
            match status {
                None => still.push((index, begun, child)),
                Some(status) if status.success() => {
                    if let Some(time) = self.times.get_mut(index) {
                        *time = Some(now - begun);
                    }
                    forget(self.tasks.get(index));
                }
                Some(status) => {
                    let said = last_words(&self.log);
                    let what = format!("task {name} failed ({status}): {said}");
                    return Err(Failure::failed(what));
                }
            }
        }
        self.running = still;
        Ok(())
    }

    /// What runs now: a block drawn anew in place on a terminal, a few lines every two seconds
    /// elsewhere.
    async fn show(&mut self, out: &mut Output) -> Result<(), Failure> {
        let now = Instant::now();
        let mut title = format!(
            "  {}, {:.0} s, {} of {} done",
            self.title,
            (now - self.begun).as_secs_f64(),
            self.times.iter().flatten().count(),
            self.tasks.len()
        );
        let rows = match self.setting {
            Setting::Static(_) => {
                let running = self.running.iter().filter_map(|(index, ..)| self.tasks.get(*index));
                let names: Vec<&str> = running.map(|task| &*task.name).collect();
                vec![format!("running  {}", names.join("  "))]
            }
            Setting::Shaped(daemon) => {
                let status = daemon.status().await?;
                let slots = status.slots.unwrap_or_default();
                let active = slots.active.map_or(0, |active| active.capacity);
                let passive = slots.passive.map_or(0, |passive| passive.capacity);
                self.most_passive = self.most_passive.max(passive);
                title += &format!(
                    ", {} waiting; slots: {active} active, {passive} passive",
                    status.waiting
                );
                let tasks = all_tasks(daemon.connection.clone())
                    .await
                    .map_err(|status| Failure::failed(printable(status.message())))?;
                if out.can_redraw() { table(&tasks) } else { tiers(&tasks) }
            }
        };
        if out.can_redraw() {
            self.clear(out)?;
            self.drawn = rows.len() + 1;
        } else if now - self.shown_at < LINE_EVERY {
            // What is over sooner needs no line of its own.
            return Ok(());
        }
        self.shown_at = now;
        // One column short: a full line would wrap. Names are ours, so characters are columns.
        let width = out.width() - 1;
        for line in std::iter::once(title).chain(rows.iter().map(|row| format!("    {row}"))) {
            let cut: String = line.chars().take(width).collect();
            out.line(if out.can_redraw() { cut } else { line })?;
        }
        Ok(out.flush()?)
    }

    /// Takes the block away.
    fn clear(&mut self, out: &mut Output) -> Result<(), Failure> {
        if self.drawn > 0 {
            // up to the first line of the block, then erase to the end of the screen
            out.text(format_args!("\u{1b}[{}F\u{1b}[J", self.drawn))?;
            self.drawn = 0;
        }
        Ok(())
    }
}

/// The names of the tasks of each tier.
fn tiers(tasks: &[proto::Task]) -> Vec<String> {
    let of = |tier: proto::Tier| {
        let tasks = tasks.iter().filter(|task| task.tier == tier as i32);
        tasks.map(|task| task.name.clone().unwrap_or_default()).collect::<Vec<_>>().join("  ")
    };
    vec![
        format!("active  {}", of(proto::Tier::Active)),
        format!("passive  {}", of(proto::Tier::Passive)),
    ]
}

/// Which task is in which tier, and what the daemon measures of it.
fn table(tasks: &[proto::Task]) -> Vec<String> {
    let mut sorted: Vec<&proto::Task> = tasks.iter().collect();
    sorted.sort_by_key(|task| task.tier);
    let mut table = Columns::new(&[
        ("TIER", Column::Text),
        ("TASK", Column::Elastic(12)),
        ("CLASS", Column::Text),
        ("CPU", Column::Figure),
        ("AGE", Column::Figure),
    ]);
    let known = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    for task in sorted.iter().take(LIVE_ROWS) {
        table.row(vec![
            known(wire::tier_word(task.tier).map(str::to_owned)),
            known(task.name.clone()),
            wire::class_word(task.class).to_owned(),
            known(task.cpu_share.map(|share| format!("{:.0}%", share * 100.0))),
            known(task.elapsed_seconds.map(|seconds| format!("{seconds:.0}s"))),
        ]);
    }
    let mut rows: Vec<String> = table.render(Some(LIVE_WIDTH)).lines().map(str::to_owned).collect();
    if sorted.len() > LIVE_ROWS {
        rows.push(format!("and {} more", sorted.len() - LIVE_ROWS));
    }
    rows
}
