//! Running a suite: data, then round by round every load in every setting, then the report.
//!
//! Within a round the settings of one load follow each other directly, so that what is compared
//! is minutes apart at most; the order turns from round to round, so that none always comes
//! after the same one.

mod events;
mod machine;
mod measure;
mod prepare;
mod progress;
mod queue;
mod shared;
mod spawn;
mod stage;
mod tasks;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use super::disk::Disk;
use super::order::order;
use super::record::{Machine, Run};
use super::suite::{Load, Setting, Suite};
use super::{report, resume, runs_file};
use lrs_term::{Failure, Output};

use crate::args::InnerArgs;
use lrs_testbed::supervise::{Requests, runtime};
use lrs_testbed::sweep::child_ids;
use progress::Progress;
use shared::Bench;

/// Runs the suite and writes the report. Ends with 130 or so when it was asked to end: the run
/// at hand is lost, the report is of those before it.
pub(super) fn bench(
    args: &InnerArgs,
    suite: &Suite,
    cpus: u32,
    out: &mut Output,
) -> Result<(), Failure> {
    let runtime = runtime()?;
    let mut done: Option<(Machine, Vec<Run>)> = None;
    let ended = runtime.block_on(async {
        let mut requests = Requests::listen()?;
        // Dropping the work ends its tasks and its daemon, in that order.
        tokio::select! {
            ended = work(args, suite, cpus, &mut done) => ended,
            asked = requests.next() => {
                Err(Failure::ended(ExitCode::from(128 + asked as u8)))
            }
        }
    });
    // A sync of a busy disk that still goes on is not waited for.
    runtime.shutdown_background();
    let Some((machine, runs)) = done.filter(|(_, runs)| !runs.is_empty()) else { return ended };
    report::write(&args.out, &args.what, &machine, &runs, out)?;
    out.flush()?;
    ended?;
    let failed = runs.iter().filter(|run| !run.faults.is_empty()).count();
    if failed > 0 {
        let first = runs.iter().find(|run| !run.faults.is_empty());
        let example = first.map_or_else(String::new, |run| {
            let fault = run.faults.first().map_or("", |fault| fault.as_str());
            format!(" (the first: {} in '{}': {fault})", run.load, run.setting)
        });
        return Err(Failure::failed(format!(
            "{failed} of {} runs failed and are not compared{example}",
            runs.len()
        ))
        .hint(format!("{} has them all, and logs/ the output of the tasks", args.out.display())));
    }
    Ok(())
}

/// Everything up to the report.
async fn work(
    args: &InnerArgs,
    suite: &Suite,
    cpus: u32,
    done: &mut Option<(Machine, Vec<Run>)>,
) -> Result<(), Failure> {
    let mut disk = prepare::disk(suite, &args.workdir)?;
    let measured = disk.as_ref().map_or(args.workdir.as_path(), |disk| disk.mount.as_path());
    let places = prepare::places(measured)?;
    let mut bench = Bench {
        suite,
        disk: machine::disk_counters(&places.run),
        places,
        cpus,
        workdir: &args.workdir,
        lrsctl: &args.lrsctl,
        cgroup_root: &args.cgroup_root,
        logs: args.out.join("logs"),
        kept: Vec::new(),
    };
    let described = disk.as_ref().map(|disk| disk.describe());
    let machine = machine::describe(&bench, described, &args.command).await?;
    let (machine, kept) = match args.resume {
        true => resume::take(&args.out, &machine)?,
        false => (machine, Vec::new()),
    };
    machine::write(&machine, &args.out)?;
    // Those of the modelled disk: nothing else runs below us now.
    bench.kept = child_ids();
    prepare::data(&bench).await?;
    let first = kept.last().map_or(0, |run| run.round + 1);
    let (_, runs) = done.insert((machine, kept));
    let plan = plan(suite, first);
    let mut progress = Progress::new(plan.len());
    for Turn { load, setting, round, place } in plan {
        progress.begin(&load.name, &setting.name, round);
        let run = bench.run(load, setting, (round, place)).await;
        // Without its server all that failed in the run says little.
        disk.as_mut().map_or(Ok(()), Disk::check)?;
        let run = run?;
        keep(&run, &args.out)?;
        progress.end(&run);
        runs.push(run);
    }
    drop(disk);
    Ok(())
}

/// One run to be.
struct Turn<'s> {
    load: &'s Load,
    setting: &'s Setting,
    round: u32,
    place: u32,
}

/// All runs in their order, from round `first` on.
fn plan(suite: &Suite, first: u32) -> Vec<Turn<'_>> {
    let mut turns = Vec::new();
    for round in first..suite.rounds {
        for load in &suite.loads {
            let settings = order(suite.settings.len(), round);
            let settings = settings.into_iter().filter_map(|index| suite.settings.get(index));
            for (place, setting) in (0..).zip(settings) {
                turns.push(Turn { load, setting, round, place });
            }
        }
    }
    turns
}

/// Appends a run to those kept, and has it on disk before the next begins.
fn keep(run: &Run, output: &Path) -> Result<(), Failure> {
    let path = runs_file(output);
    let cannot = |error: std::io::Error| {
        Failure::failed(format!("cannot write {}: {error}", path.display()))
    };
    let mut line = serde_json::to_vec(run).map_err(|error| cannot(error.into()))?;
    line.push(b'\n');
    let mut file = std::fs::File::options().append(true).open(&path).map_err(cannot)?;
    file.write_all(&line).and_then(|()| file.sync_data()).map_err(cannot)
}
