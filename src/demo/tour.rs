//! The tour: sizes, each kind of task alone, two static settings, LRS, the table. Where LRS may
//! not or shall not shape: what it would do.

use std::process::Command;
use std::time::Duration;

use lrs_api::proto;
use lrs_term::{Failure, Output, wrap};
use lrs_testbed::private::{Daemon, Private};
use lrs_testbed::process::this_executable;
use tokio::time::Instant;

use super::InnerArgs;
use super::report::{self, Measured};
use super::stage::{Setting, run};
use super::work::{self, Kind, Work};

/// One cycle. Shorter than the default of 3 s, because the whole demo is only a few of those
/// long; the report says so.
const CYCLE: &str = "500ms";

/// When the last stage has to be over, counted from the start; what is left after it is
/// cleaning up. The promise is two minutes.
const WHOLE: Duration = Duration::from_secs(100);

/// The longest a stage is planned for, by the times alone.
const STAGE: Duration = Duration::from_secs(18);

/// Tasks per core of a full run, and the fewest that still show a queue.
const TASKS_PER_CORE: (usize, usize) = (12, 3);

/// How long one task may take alone; four times what it was fitted to.
const ALONE: Duration = Duration::from_secs(6);

/// The whole tour, or observe mode where shaping is out of reach.
pub(super) async fn tour(args: &InnerArgs, out: &mut Output) -> Result<(), Failure> {
    let ends = Instant::now() + WHOLE;
    work::write_text(&args.workdir)?;
    match shaping_daemon(args).await {
        Ok((daemon, status)) => {
            introduce(&status, out)?;
            let round = work::fit(&args.workdir, out).await?;
            compare(&daemon, &status, args, &round, ends, out).await
        }
        Err(reason) => observe(args, &reason, ends, out).await,
    }
}

/// What is left until `ends`, shared by `stages` equal stages.
fn share_of_rest(ends: Instant, stages: u32) -> Duration {
    ends.saturating_duration_since(Instant::now()) / stages.max(1)
}

/// A private daemon in `daemon.mode` `mode`, with its first status.
async fn start(args: &InnerArgs, mode: &str) -> Result<(Daemon, proto::Status), Failure> {
    let InnerArgs { workdir, cgroup_root, .. } = args;
    let keys = [("daemon.sample_period", CYCLE), ("daemon.mode", mode)]
        .map(|(path, value)| (path.to_owned(), format!("\"{value}\"")));
    let (name, lrsctl) = (format!("lrsd-{mode}"), this_executable());
    let log = workdir.join(format!("{name}.log"));
    let private =
        Private { lrsctl: &lrsctl, workdir, name: &name, cgroup_root, keys: &keys, log: &log };
    Daemon::start(&private).await
}

/// A private daemon that shapes, or the reason why there is none.
async fn shaping_daemon(args: &InnerArgs) -> Result<(Daemon, proto::Status), String> {
    if args.observe {
        return Err("--observe was given.".to_owned());
    }
    if !nix::unistd::geteuid().is_root() {
        return Err("tasks are moved between cgroups, and that needs root.".to_owned());
    }
    let started = start(args, "enforce").await;
    let (daemon, status) = started.map_err(|failure| failure.to_string())?;
    let cgroup = status.cgroup.clone().unwrap_or_default();
    if status.mode == proto::Mode::Enforce as i32 && cgroup.cpu_tiers != "none" {
        Ok((daemon, status))
    } else {
        Err(format!("the private lrsd cannot make tiers: {}.", cgroup.reason))
    }
}

fn paragraph(text: &str, out: &mut Output) -> Result<(), Failure> {
    let width = out.width();
    out.line(wrap("", 0, text, width))?;
    out.line("")?;
    Ok(out.flush()?)
}

fn introduce(status: &proto::Status, out: &mut Output) -> Result<(), Failure> {
    let kernel = rustix::system::uname();
    let cgroup = status.cgroup.clone().unwrap_or_default();
    let text = format!(
        "LRS demo: {} CPUs, Linux {}, cgroup v{}, CPU tiers by {}, {}. A private lrsd with a cycle \
         of {CYCLE} (default 3s). The tasks are real programs, sized to take about {:.1} s each on \
         this machine.",
        cores(status),
        kernel.release().to_string_lossy(),
        cgroup.version,
        cgroup.cpu_tiers,
        match cgroup.io_tiers.as_str() {
            "none" => "disks shared equally".to_owned(),
            by => format!("disk tiers by {by}"),
        },
        work::TASK.as_secs_f64(),
    );
    paragraph(&text, out)
}

fn cores(status: &proto::Status) -> usize {
    status.node.as_ref().map_or(1, |node| node.cores.max(1)) as usize
}

async fn compare(
    daemon: &Daemon,
    status: &proto::Status,
    args: &InnerArgs,
    round: &[Work],
    ends: Instant,
    out: &mut Output,
) -> Result<(), Failure> {
    let workdir = args.workdir.as_path();
    let cores = cores(status);
    out.line("Each kind of task alone:")?;
    let mut alone: Vec<(&Kind, Option<Duration>)> = Vec::new();
    for one in work::kinds(round) {
        let task = [one.task(one.kind.word.to_owned(), workdir)];
        let outcome = run("alone", &task, Setting::Static(1), workdir, ALONE, out).await?;
        let shown = report::makespan(&outcome);
        out.line(format_args!("  {:<9}{shown:>6}  {}", one.kind.word, one.story()))?;
        out.flush()?;
        alone.push((one.kind, outcome.complete().then_some(outcome.lasted)));
    }
    let alone = |kind: &Kind| alone.iter().find(|(k, _)| *k == kind).and_then(|(_, time)| *time);
    let times: Vec<_> = round.iter().map(|work| alone(work.kind)).collect();
    let tasks = work::tasks(round, workdir, plan(&times, cores));
    out.line(format_args!("\n{} tasks, the same in the same order each time:", tasks.len()))?;

    let mut measured = Vec::new();
    for (stages_left, head, title, setting) in [
        (3, "1 per core", "static, 1 slot per core", Setting::Static(cores)),
        (2, "2 per core", "static, 2 slots per core", Setting::Static(2 * cores)),
        (1, "LRS", "LRS", Setting::Shaped(daemon)),
    ] {
        // One that died is noticed before the static stages are run for nothing.
        daemon.status().await?;
        let limit = share_of_rest(ends, stages_left);
        let outcome = run(title, &tasks, setting, workdir, limit, out).await?;
        out.line(format_args!("  {title}: {}", report::makespan(&outcome)))?;
        out.flush()?;
        let times = outcome.times.iter().zip(&tasks).map(|(time, task)| (*time, alone(task.kind)));
        let slowdown = report::slowdown(times.take(cores));
        measured.push(Measured { head, outcome, slowdown });
    }
    out.line("")?;
    if let Ok([one, two, shaped]) = <[Measured; 3]>::try_from(measured) {
        report::report(&[one, two], &shaped, out)?;
    }
    let width = out.width();
    out.line(wrap(
        "",
        0,
        "One run of each on a machine that may do other things as well: an impression, not a \
         benchmark.",
        width,
    ))
}

/// How many tasks: a full run, or fewer where this machine would need too long for it. `alone`:
/// the times of a round's tasks.
fn plan(alone: &[Option<Duration>], cores: usize) -> usize {
    let all: Duration = alone.iter().map(|time| time.unwrap_or(ALONE)).sum();
    let each = all.as_secs_f64() / alone.len().max(1) as f64;
    let (most, fewest) = TASKS_PER_CORE;
    // Each core works off its own share; `as` saturates.
    ((STAGE.as_secs_f64() / each.max(0.001)) as usize).clamp(fewest, most) * cores
}

/// Runs a few tasks under a daemon that only watches, and shows what it decided.
async fn observe(
    args: &InnerArgs,
    reason: &str,
    ends: Instant,
    out: &mut Output,
) -> Result<(), Failure> {
    paragraph(&format!("Nothing can be shaped here: {reason}"), out)?;
    paragraph(
        "So this is observe mode: a private lrsd does its bookkeeping, places every task and \
         writes no cgroup. The tasks run side by side as the kernel likes.",
        out,
    )?;
    let round = work::fit(&args.workdir, out).await?;
    let (daemon, status) = start(args, "observe").await?;
    let tasks = work::tasks(&round, &args.workdir, 3 * cores(&status));
    let (setting, limit) = (Setting::Shaped(&daemon), share_of_rest(ends, 1));
    let outcome = run("observed", &tasks, setting, &args.workdir, limit, out).await?;
    out.line(format_args!(
        "{} of {} tasks ended in {:.1} s. What LRS decided:",
        outcome.finished(),
        tasks.len(),
        outcome.lasted.as_secs_f64()
    ))?;
    out.flush()?;
    events(&daemon)?;
    out.line("\nWith root and a writable cgroup tree the same command shapes them.")
}

/// Prints the daemon's history as `lrsctl events` does.
fn events(daemon: &Daemon) -> Result<(), Failure> {
    let mut command = Command::new(this_executable());
    command.arg("--endpoint").arg(daemon.endpoint.to_string());
    command.args(["events", "--since", "1", "--no-follow"]);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::failed(format!("cannot read the events: {status}"))),
        Err(error) => Err(Failure::failed(format!("cannot read the events: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_machines_get_fewer_tasks() {
        let plan = |seconds| plan(&[Some(Duration::from_secs(seconds)); 2], 2);
        assert_eq!((plan(1), plan(3), plan(100), plan(0)), (24, 12, 6, 24));
    }
}
