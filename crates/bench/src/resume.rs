//! Taking a bench up again: rounds are added to those of an output directory.
//!
//! Only whole rounds are kept, since makespans are compared round by round: of one that was cut off all
//! runs are dropped and run again. Node, version of LRS, loads and settings have to be the same, or the
//! rounds would not be comparable. Limit: that of a build is not known, nor whether a command of the suite
//! was changed.

use std::path::Path;
use std::time::Duration;

use lrs_term::{Failure, say};

use crate::args::BenchChoice;
use crate::record::{Machine, Run};
use crate::{report, runs_file};

/// What the earlier bench was asked for, with `rounds` in all.
pub(crate) fn choice(dir: &Path, rounds: Option<u32>) -> Result<BenchChoice, Failure> {
    let (machine, _) = report::load(dir)?;
    Ok(BenchChoice {
        rounds: Some(rounds.unwrap_or(machine.rounds)),
        load: machine.loads.into_iter().map(|load| load.name).collect(),
        setting: machine.settings.into_iter().map(|setting| setting.name).collect(),
        quick: machine.command.iter().any(|word| word == "--quick"),
    })
}

/// The description to go on with and the runs of whole rounds, which alone are left in the directory.
pub(crate) fn take(dir: &Path, now: &Machine) -> Result<(Machine, Vec<Run>), Failure> {
    let (earlier, mut runs) = report::load(dir)?;
    let differs = differences(&earlier, now);
    if !differs.is_empty() {
        let text = format!("{} cannot be resumed: {}", dir.display(), differs.join("; "));
        return Err(Failure::failed(text).hint("begin anew with another --out"));
    }
    let each = now.loads.len() * now.settings.len();
    let whole = (0..).find(|round| runs.iter().filter(|run| run.round == *round).count() != each);
    let whole = whole.unwrap_or(0);
    let all = runs.len();
    runs.retain(|run| run.round < whole);
    if runs.len() < all {
        say(format_args!(
            "lrs-bench: {} runs of an unfinished round are run again",
            all - runs.len()
        ));
    }
    // A line that was cut off goes too.
    rewrite(dir, &runs)?;
    let seconds: f64 = runs.iter().map(|run| run.lasted_seconds).sum();
    let left = (now.rounds.saturating_sub(whole)) as usize * each;
    let left = seconds / runs.len().max(1) as f64 * left as f64;
    if let Ok(left) = Duration::try_from_secs_f64(left) {
        say(format_args!(
            "lrs-bench: {whole} of {} rounds are there; the others take about {} min, and a little between",
            now.rounds,
            left.as_secs() / 60 + 1
        ));
    }
    Ok((Machine { rounds: now.rounds.max(whole), ..earlier }, runs))
}

fn differences(earlier: &Machine, now: &Machine) -> Vec<String> {
    let mut differs = Vec::new();
    let mut same = |what: &str, earlier: String, now: String| {
        if earlier != now {
            differs.push(format!("{what} was {earlier} and is {now}"));
        }
    };
    same("LRS", earlier.lrs.clone(), now.lrs.clone());
    same("the kernel", earlier.kernel.clone(), now.kernel.clone());
    same("the CPU", format!("{:?}", earlier.cpu), format!("{:?}", now.cpu));
    same("the number of CPUs", earlier.cpus.to_string(), now.cpus.to_string());
    same("how tiers are made", format!("{:?}", earlier.cgroup), format!("{:?}", now.cgroup));
    same("the memory", format!("{:?}", earlier.memory_bytes), format!("{:?}", now.memory_bytes));
    same("the loads", format!("{:?}", earlier.loads), format!("{:?}", now.loads));
    same("the settings", format!("{:?}", earlier.settings), format!("{:?}", now.settings));
    same("the disk", earlier.disk.clone(), now.disk.clone());
    differs
}

fn rewrite(dir: &Path, runs: &[Run]) -> Result<(), Failure> {
    let path = runs_file(dir);
    let cannot = |error: std::io::Error| {
        Failure::failed(format!("cannot write {}: {error}", path.display()))
    };
    let mut text = Vec::new();
    for run in runs {
        serde_json::to_writer(&mut text, run).map_err(|error| cannot(error.into()))?;
        text.push(b'\n');
    }
    let new = path.with_extension("new");
    std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path)).map_err(cannot)
}
