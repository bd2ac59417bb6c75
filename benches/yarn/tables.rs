//! The runs as tables in Markdown.
//!
//! The best static setting is chosen after the fact by its median, for each load and scheduler:
//! an operator who did not try them all would not know it, so the comparison is not in favour of
//! LRS. Ratios are of the same round.

use std::fmt::Write as _;

use lrs_bench::stats::{LEAST_FOR_INTERVAL, Spread, median_interval};

use crate::loads::Load;
use crate::options::Scheduling;
use crate::overall;
use crate::record::{Machine, Records, Run};
use crate::settings::Setting;

/// The runs of one load under one scheduler.
pub struct LoadRuns<'a> {
    load: Load,
    runs: Vec<&'a Run>,
}

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
            group.details(text, setting)?;
        }
    }
    Ok(())
}

pub fn settings() -> impl Iterator<Item = &'static str> {
    Setting::STATICS.into_iter().chain([Setting::LRS])
}

impl LoadRuns<'_> {
    fn of(&self, setting: &str) -> impl Iterator<Item = &Run> {
        self.runs.iter().copied().filter(move |run| run.setting == setting)
    }

    fn spread(&self, setting: &str, figure: impl Fn(&Run) -> f64) -> Option<Spread> {
        Spread::new(self.of(setting).map(figure).collect())
    }

    pub fn seconds(&self, setting: &str, round: u32) -> Option<f64> {
        self.of(setting).find(|run| run.round == round).map(|run| run.seconds)
    }

    /// Of the static settings the fastest, by the rounds in which all of them and LRS have run.
    fn best(&self) -> Option<&'static str> {
        let whole = |run: &&Run| self.mean_static(run.round).is_some();
        let rounds: Vec<u32> = self.of(Setting::LRS).filter(whole).map(|run| run.round).collect();
        let median = |name: &'static str| {
            let seconds = rounds.iter().filter_map(|&round| self.seconds(name, round));
            Some((Spread::new(seconds.collect())?.median(), name))
        };
        let medians = Setting::STATICS.into_iter().filter_map(median);
        medians.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, name)| name)
    }

    fn mean_static(&self, round: u32) -> Option<f64> {
        let of_round: Option<Vec<f64>> =
            Setting::STATICS.into_iter().map(|name| self.seconds(name, round)).collect();
        Some(Spread::new(of_round?)?.mean())
    }

    /// LRS over `other`, round by round.
    pub fn pairs(&self, other: impl Fn(u32) -> Option<f64>) -> impl Iterator<Item = f64> {
        self.of(Setting::LRS).filter_map(move |run| Some(run.seconds / other(run.round)?))
    }

    /// The median of a setting over that of the best static one.
    pub fn loss(&self, setting: &str) -> Option<f64> {
        let median = |name| Some(self.spread(name, |run| run.seconds)?.median());
        Some(median(setting)? / median(self.best()?)?)
    }

    /// LRS over `other`, as `0.950 (0.911 to 0.981)`.
    fn ratio(&self, other: impl Fn(u32) -> Option<f64>) -> Option<String> {
        let ratios = Spread::new(self.pairs(other).collect())?;
        let median = ratios.median();
        if ratios.count() < LEAST_FOR_INTERVAL {
            return Some(format!("{median:.3}, too few pairs"));
        }
        let interval = median_interval(&ratios);
        Some(format!("{median:.3} ({:.3} to {:.3})", interval.low, interval.high))
    }

    fn details(&self, text: &mut String, setting: &str) -> std::fmt::Result {
        let median = |figure: fn(&Run) -> f64| self.spread(setting, figure).map(|s| s.median());
        let Some(seconds) = self.spread(setting, |run| run.seconds) else { return Ok(()) };
        let [low, high] = seconds.quartiles();
        let client = median(|run| run.client_seconds).unwrap_or_default();
        let containers = self.spread(setting, |run| run.containers_most as f64);
        // A modelled disk alone is looked at.
        let shares: Vec<f64> = self.of(setting).filter_map(|run| run.disk_busy).collect();
        let disk = Spread::new(shares);
        let percent = |figure| median(figure).unwrap_or_default() * 100.0;
        writeln!(
            text,
            "| {} | {setting} | {} | {low:.1} to {high:.1} s | {client:.1} s | {} | {:.0} % | {:.1} % \
             | {:.1} % | {} |",
            self.load.name(),
            seconds.count(),
            containers.map_or("-".to_owned(), |c| range(c.min(), c.max())),
            percent(|run| run.cpu_busy),
            percent(|run| run.cpu_iowait),
            percent(|run| run.cpu_stolen),
            disk.map_or("-".to_owned(), |share| format!("{:.0} %", share.median() * 100.0)),
        )
    }
}

/// `5`, or `5 to 7`.
fn range(low: f64, high: f64) -> String {
    if low == high { format!("{low}") } else { format!("{low} to {high}") }
}
