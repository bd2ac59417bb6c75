//! The runs as tables in Markdown.
//!
//! Which setting is the best and what ratios are of: [`crate::runs`].

use std::fmt::Write as _;

use lrs_bench::stats::Spread;

use crate::loads::Load;
use crate::options::Scheduling;
use crate::overall;
use crate::record::{Machine, Records, Run};
use crate::runs::{LoadRuns, settings};
use crate::settings::Setting;

pub fn of(records: &Records) -> String {
    let mut text = node(&records.machine);
    let mut all = Vec::new();
    for scheduling in [Scheduling::Capacity, Scheduling::Fair] {
        let groups: Vec<LoadRuns> = Load::ALL
            .into_iter()
            .map(|load| {
                let ours = |run: &&Run| run.scheduler == scheduling && run.load == load;
                LoadRuns { load, runs: records.runs.iter().filter(ours).collect() }
            })
            .filter(|group| !group.runs.is_empty())
            .collect();
        if !groups.is_empty() {
            section(&mut text, scheduling, &groups).expect("a String takes all");
        }
        all.extend(groups);
    }
    overall::table(&mut text, &all).expect("a String takes all");
    text
}

fn node(machine: &Machine) -> String {
    let mut text = String::from("| node | |\n|---|---|\n");
    let mut row = |name: &str, value: String| {
        writeln!(text, "| {name} | {value} |").expect("a String takes all");
    };
    let unknown = || "unknown".to_owned();
    row("command", machine.command.join(" "));
    row("LRS", machine.lrs.clone());
    row("Hadoop", format!("{}, Java with {}", machine.hadoop, machine.java_options));
    row("kernel", machine.kernel.clone());
    row("CPUs", format!("{} x {}", machine.cpus, machine.cpu.as_deref().unwrap_or("unknown")));
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1_u32 << 30));
    row("memory", machine.memory_bytes.map_or_else(unknown, gib));
    if let Some(disk) = &machine.disk {
        row("disk of local directories and data", disk.clone());
    }
    row("load average at start", machine.load_average.map_or_else(unknown, |l| format!("{l:.2}")));
    if machine.quick {
        text += "\n**Quick: not for publication.**\n";
    }
    text
}

fn section(text: &mut String, scheduling: Scheduling, groups: &[LoadRuns]) -> std::fmt::Result {
    writeln!(text, "\n#### {}\n", scheduling.title())?;
    writeln!(
        text,
        "| load | {} | {} | LRS / best static | LRS / mean static |",
        Setting::STATICS.join(" | "),
        Setting::LRS
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|")?;
    for group in groups {
        write!(text, "| {} |", group.load.name())?;
        for setting in settings() {
            let median = group.spread(setting, |run| run.seconds).map(|spread| spread.median());
            write!(
                text,
                " {} |",
                median.map_or("-".to_owned(), |median| format!("{median:.1} s"))
            )?;
        }
        let best = group.best().map_or("-".to_owned(), |name| {
            let ratio = group.ratio(|round| group.seconds(name, round));
            format!("{} ({name})", ratio.unwrap_or_default())
        });
        let mean = group.ratio(|round| group.mean_static(round));
        writeln!(text, " {best} | {} |", mean.unwrap_or("-".to_owned()))?;
    }
    writeln!(
        text,
        "\n| load | setting | runs | quartiles | with the client | containers at most \
        | CPU busy | iowait | stolen | disk busy |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|---|---|---|")?;
    for group in groups {
        for setting in settings() {
            details(text, group, setting)?;
        }
    }
    Ok(())
}

fn details(text: &mut String, group: &LoadRuns, setting: &str) -> std::fmt::Result {
    let median = |figure: fn(&Run) -> f64| group.spread(setting, figure).map(|s| s.median());
    let Some(seconds) = group.spread(setting, |run| run.seconds) else { return Ok(()) };
    let [low, high] = seconds.quartiles();
    let client = median(|run| run.client_seconds).unwrap_or_default();
    let containers = group.spread(setting, |run| run.containers_most as f64);
    // A modelled disk alone is looked at.
    let shares: Vec<f64> = group.of(setting).filter_map(|run| run.disk_busy).collect();
    let disk = Spread::new(shares);
    let percent = |figure| median(figure).unwrap_or_default() * 100.0;
    writeln!(
        text,
        "| {} | {setting} | {} | {low:.1} to {high:.1} s | {client:.1} s | {} | {:.0} % | {:.1} % \
         | {:.1} % | {} |",
        group.load.name(),
        seconds.count(),
        containers.map_or("-".to_owned(), |c| range(c.min(), c.max())),
        percent(|run| run.cpu_busy),
        percent(|run| run.cpu_iowait),
        percent(|run| run.cpu_stolen),
        disk.map_or("-".to_owned(), |share| format!("{:.0} %", share.median() * 100.0)),
    )
}

/// `5`, or `5 to 7`.
fn range(low: f64, high: f64) -> String {
    if low == high { format!("{low}") } else { format!("{low} to {high}") }
}
