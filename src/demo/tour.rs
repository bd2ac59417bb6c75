//! The tour: data, sizes, each kind of task alone, two static settings, LRS, the table.

use std::path::Path;
use std::time::Duration;

use super::data::Data;
use super::load::{self, Kind, Task, Work};
use super::observe;
use super::report::{self, Measured};
use super::size;
use super::stage::{Setting, run};
use crate::cli::{DemoInnerArgs, Failure, Output, say, wrap};
use crate::units::BootTime;
use crate::{clock, proto};
use lrs_testbed::private::{Daemon, Private};
use lrs_testbed::process::this_executable;

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
pub(super) async fn tour(args: &DemoInnerArgs, out: &mut Output) -> Result<(), Failure> {
    let ends = clock::boot_time().after(WHOLE);
    let (kinds, missing) = load::available();
    if !missing.is_empty() {
        say(format_args!("not on this machine, so left out: {}", missing.join(", ")));
    }
    if kinds.is_empty() {
        return Err(Failure::failed("none of the demo's programs is in PATH"));
    }
    let data = Data::generate(&args.workdir)?;
    let root = &args.cgroup_root;
    match shaping_daemon(args).await {
        Ok((daemon, status)) => {
            introduce(&status, out)?;
            let round = size::fit(&kinds, &data, &args.workdir, out).await?;
            compare(&daemon, &status, args, &round, &data, ends, out).await
        }
        Err(reason) => {
            observe::introduce(&reason, out)?;
            let round = size::fit(&kinds, &data, &args.workdir, out).await?;
            observe::show(&args.workdir, root, &data, &round, ends, out).await
        }
    }
}

/// What is left until `ends`, shared by `stages` equal stages.
pub(super) fn share_of_rest(ends: BootTime, stages: u32) -> Duration {
    ends.since(clock::boot_time()) / stages.max(1)
}

/// A private daemon in `daemon.mode` `mode`, with its first status.
pub(super) async fn start(
    workdir: &Path,
    cgroup_root: &str,
    mode: &str,
) -> Result<(Daemon, proto::Status), Failure> {
    let keys = [("daemon.sample_period", CYCLE), ("daemon.mode", mode)]
        .map(|(path, value)| (path.to_owned(), format!("\"{value}\"")));
    let name = format!("lrsd-{mode}");
    let log = workdir.join(format!("{name}.log"));
    let lrsctl = &this_executable();
    Daemon::start(&Private { lrsctl, workdir, name: &name, cgroup_root, keys: &keys, log: &log })
        .await
}

/// A private daemon that shapes, or the reason why there is none.
async fn shaping_daemon(args: &DemoInnerArgs) -> Result<(Daemon, proto::Status), String> {
    if args.observe {
        return Err("--observe was given.".to_owned());
    }
    if !nix::unistd::geteuid().is_root() {
        return Err("tasks are moved between cgroups, and that needs root.".to_owned());
    }
    let started = start(&args.workdir, &args.cgroup_root, "enforce").await;
    let (daemon, status) = started.map_err(|failure| failure.to_string())?;
    let cgroup = status.cgroup.clone().unwrap_or_default();
    if status.mode == proto::Mode::Enforce as i32 && cgroup.cpu_tiers != "none" {
        Ok((daemon, status))
    } else {
        Err(format!("the private lrsd cannot make tiers: {}.", cgroup.reason))
    }
}

async fn compare(
    daemon: &Daemon,
    status: &proto::Status,
    args: &DemoInnerArgs,
    round: &[Work],
    data: &Data,
    ends: BootTime,
    out: &mut Output,
) -> Result<(), Failure> {
    let workdir = args.workdir.as_path();
    let cores = status.node.as_ref().map_or(1, |node| node.cores.max(1)) as usize;

    out.line("Each kind of task alone:")?;
    let mut alone: Vec<(Kind, Option<Duration>)> = Vec::new();
    for &work in round {
        if alone.iter().any(|(kind, _)| *kind == work.kind) {
            continue;
        }
        let one = [work.task(work.kind.word().to_owned(), data)];
        let outcome = run("alone", &one, Setting::Static(1), workdir, ALONE, out).await?;
        let shown = report::makespan(&outcome);
        out.line(format_args!("  {:<9}{shown:>6}  {}", work.kind.word(), work.story()))?;
        out.flush()?;
        alone.push((work.kind, outcome.complete().then_some(outcome.lasted)));
    }
    let alone = |kind: Kind| alone.iter().find(|(k, _)| *k == kind).and_then(|(_, time)| *time);
    let tasks = load::tasks(round, data, plan(round, cores, alone));
    out.line("")?;
    out.line(format_args!("{} tasks, the same in the same order each time:", tasks.len()))?;

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
        let slowdown = report::slowdown(&outcome, &tasks, cores, |task: &Task| alone(task.kind));
        measured.push(Measured { head, outcome, slowdown });
    }
    out.line("")?;
    if let Ok([one, two, shaped]) = <[Measured; 3]>::try_from(measured) {
        report::report([one, two], shaped, out)?;
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

fn introduce(status: &proto::Status, out: &mut Output) -> Result<(), Failure> {
    let kernel = rustix::system::uname();
    let cgroup = status.cgroup.clone().unwrap_or_default();
    let width = out.width();
    let text = format!(
        "LRS demo: {} CPUs, Linux {}, cgroup v{}, CPU tiers by {}, {}. A private \
         lrsd with a cycle of {CYCLE} (default 3s). The tasks are real programs, sized to take \
         about {:.1} s each on this machine.",
        status.node.as_ref().map_or(1, |node| node.cores),
        kernel.release().to_string_lossy(),
        cgroup.version,
        cgroup.cpu_tiers,
        match cgroup.io_tiers.as_str() {
            "none" => "disks shared equally".to_owned(),
            by => format!("disk tiers by {by}"),
        },
        size::TASK.as_secs_f64(),
    );
    out.line(wrap("", 0, &text, width))?;
    out.line("")?;
    Ok(out.flush()?)
}

/// How many tasks: a full run, or fewer where this machine would need too long for it.
fn plan(round: &[Work], cores: usize, alone: impl Fn(Kind) -> Option<Duration>) -> usize {
    let times = round.iter().map(|work| alone(work.kind).unwrap_or(ALONE));
    let each = times.sum::<Duration>().as_secs_f64() / round.len().max(1) as f64;
    let (most, fewest) = TASKS_PER_CORE;
    // each core works off its own share
    let affordable = STAGE.as_secs_f64() / each.max(0.001);
    // `as` saturates
    (affordable as usize).clamp(fewest, most) * cores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_machines_get_fewer_tasks() {
        let round = [Kind::Hash, Kind::Sort].map(|kind| Work { kind, units: 1 });
        let plan = |seconds| plan(&round, 2, |_| Some(Duration::from_secs(seconds)));
        assert_eq!((plan(1), plan(3), plan(100), plan(0)), (24, 12, 6, 24));
    }
}
