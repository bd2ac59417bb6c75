//! The tour: data, each kind of task alone, two static settings, LRS, the table.

use std::time::Duration;

use super::data::{Data, PART, TEXT};
use super::load::{self, Kind, Task};
use super::node::Ticks;
use super::observe;
use super::private::{CYCLE, Daemon, Mode};
use super::report::{self, Measured};
use super::stage::{Setting, run};
use crate::cli::{DemoInnerArgs, Failure, Output, say, wrap};
use crate::proto;

/// The longest a stage is planned for; three stages and the tasks alone stay below two
/// minutes.
const STAGE: Duration = Duration::from_secs(24);

/// Tasks per core of a full run, and the fewest that still show a queue.
const TASKS_PER_CORE: (usize, usize) = (8, 3);

/// How long, and from which share of the CPU, other work counts as a distortion.
const LOOK: Duration = Duration::from_secs(1);
const BUSY: f64 = 0.1;

/// The whole tour, or observe mode where shaping is out of reach.
pub(super) async fn tour(args: &DemoInnerArgs, out: &mut Output) -> Result<(), Failure> {
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
        Ok((daemon, status)) => compare(&daemon, &status, args, &kinds, &data, out).await,
        Err(reason) => observe::show(&reason, &args.workdir, root, &data, &kinds, out).await,
    }
}

/// A private daemon that shapes, or the reason why there is none.
async fn shaping_daemon(args: &DemoInnerArgs) -> Result<(Daemon, proto::Status), String> {
    if args.observe {
        return Err("--observe was given.".to_owned());
    }
    if !nix::unistd::geteuid().is_root() {
        return Err("tasks are moved between cgroups, and that needs root.".to_owned());
    }
    let started = Daemon::start(&args.workdir, &args.cgroup_root, Mode::Enforce).await;
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
    kinds: &[Kind],
    data: &Data,
    out: &mut Output,
) -> Result<(), Failure> {
    let workdir = args.workdir.as_path();
    let cores = status.node.as_ref().map_or(1, |node| node.cores.max(1)) as usize;
    introduce(status, cores, out)?;
    warn_if_busy(out).await?;

    out.line("Each kind of task alone:")?;
    let mut alone: Vec<(Kind, Duration)> = Vec::new();
    for task in load::tasks(kinds, data, kinds.len()) {
        if alone.iter().any(|(kind, _)| *kind == task.kind) {
            continue;
        }
        let one = std::slice::from_ref(&task);
        let outcome = run("alone", one, Setting::Static(1), workdir, out).await?;
        let seconds = outcome.makespan.as_secs_f64();
        out.line(format_args!("  {:<9}{seconds:>5.1} s  {}", task.kind.word(), task.kind.story()))?;
        out.flush()?;
        alone.push((task.kind, outcome.makespan));
    }
    let alone = |kind: Kind| alone.iter().find(|(k, _)| *k == kind).map(|(_, time)| *time);
    let tasks = load::tasks(kinds, data, plan(kinds, cores, alone));
    out.line("")?;
    out.line(format_args!("{} tasks, the same in the same order each time:", tasks.len()))?;

    let mut measured = Vec::new();
    for (head, title, setting) in [
        ("1 per core", "static, 1 slot per core", Setting::Static(cores)),
        ("2 per core", "static, 2 slots per core", Setting::Static(2 * cores)),
        ("LRS", "LRS", Setting::Shaped(daemon)),
    ] {
        let outcome = run(title, &tasks, setting, workdir, out).await?;
        out.line(format_args!("  {title}: {:.1} s", outcome.makespan.as_secs_f64()))?;
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

fn introduce(status: &proto::Status, cores: usize, out: &mut Output) -> Result<(), Failure> {
    let kernel = rustix::system::uname();
    let cgroup = status.cgroup.clone().unwrap_or_default();
    let width = out.width();
    let text = format!(
        "LRS demo: {cores} CPUs, Linux {}, cgroup v{}, CPU tiers by {}, disk tiers by {}. Data: \
         {TEXT} of text, {PART} of it for the search. A private lrsd with a cycle of {CYCLE} \
         (default 3s).",
        kernel.release().to_string_lossy(),
        cgroup.version,
        cgroup.cpu_tiers,
        cgroup.io_tiers,
    );
    out.line(wrap("", 0, &text, width))?;
    out.line("")?;
    Ok(out.flush()?)
}

/// Other work on the machine distorts every figure below; whoever reads them must know.
async fn warn_if_busy(out: &mut Output) -> Result<(), Failure> {
    let before = Ticks::now()?;
    tokio::time::sleep(LOOK).await;
    let busy = Ticks::now()?.since(before).effective.unwrap_or_default();
    if busy > BUSY {
        let width = out.width();
        let text = format!(
            "Other work takes {:.0}% of this machine's CPU now. The figures below are distorted \
             by it.",
            busy * 100.0
        );
        out.line(wrap("", 0, &text, width))?;
        out.line("")?;
        out.flush()?;
    }
    Ok(())
}

/// How many tasks: a full run, or fewer where this machine would need too long for it.
fn plan(kinds: &[Kind], cores: usize, alone: impl Fn(Kind) -> Option<Duration>) -> usize {
    let round: Duration = kinds.iter().filter_map(|&kind| alone(kind)).sum();
    let each = round.as_secs_f64() / kinds.len() as f64;
    let (most, fewest) = TASKS_PER_CORE;
    let affordable = STAGE.as_secs_f64() / each.max(0.001);
    // `as` saturates; each core works off its own share
    (affordable as usize).clamp(fewest, most) * cores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_machines_get_fewer_tasks() {
        let kinds = [Kind::Hash, Kind::Sort];
        let plan = |seconds| plan(&kinds, 2, |_| Some(Duration::from_secs(seconds)));
        assert_eq!((plan(1), plan(5), plan(100), plan(0)), (16, 8, 6, 16));
    }
}
