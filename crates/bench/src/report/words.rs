//! Figures as text, the same in the terminal, in HTML and in Markdown. Unknown is a dash.

use super::figures::Summary;
use super::model::{LoadReport, Report};
use super::ratio::{Against, Effect, Mean, Over, Ratio};
use crate::record::{LoadClass, Machine, SettingKind};
use crate::stats::Interval;
use lrs_core::units::Bytes;
use lrs_term::printable;

/// Unknown.
pub(super) const DASH: &str = "-";

pub(super) fn known<T>(value: Option<T>, show: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| DASH.to_owned(), show)
}

/// Three significant figures: `0.123`, `1.23`, `12.3`, `123`.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        size if size < 0.9995 => format!("{value:.3}"),
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// `12.3 s`
pub(super) fn seconds(value: Option<f64>) -> String {
    known(value, |value| format!("{} s", figure(value)))
}

/// `12.1 to 12.9`
pub(super) fn quartiles(summary: Option<&Summary>) -> String {
    known(summary, |summary| {
        let [low, high] = summary.quartiles;
        format!("{} to {}", figure(low), figure(high))
    })
}

/// `0.912`
pub(super) fn ratio(ratio: Option<&Ratio>) -> String {
    known(ratio, |ratio| format!("{:.3}", ratio.median))
}

/// `0.881 to 0.935`
pub(super) fn interval(interval: Option<Interval>) -> String {
    known(interval, |interval| format!("{:.3} to {:.3}", interval.low, interval.high))
}

/// `0.912 (0.881 to 0.935)`, or `0.912 (3 pairs)`; a mean has no pairs of its own.
pub(super) fn ratio_with_interval(ratio: &Ratio) -> String {
    match ratio.interval {
        Some(_) => format!("{:.3} ({})", ratio.median, interval(ratio.interval)),
        None if ratio.pairs.is_empty() => format!("{:.3}", ratio.median),
        None => format!("{:.3} ({})", ratio.median, pairs(ratio)),
    }
}

/// `0.912 (0.881 to 0.935; 10 pairs)`, or `0.912 (3 pairs)`.
pub(super) fn ratio_with_pairs(ratio: &Ratio) -> String {
    match ratio.interval {
        Some(_) => {
            format!("{:.3} ({}; {})", ratio.median, interval(ratio.interval), pairs(ratio))
        }
        None => ratio_with_interval(ratio),
    }
}

fn pairs(ratio: &Ratio) -> String {
    match ratio.pairs.len() {
        1 => "1 pair".to_owned(),
        count => format!("{count} pairs"),
    }
}

/// `+ 0.912`
pub(super) fn mean(mean: &Mean) -> String {
    format!("{} {:.3}", mark(mean.verdict), mean.ratio)
}

/// `1.23 x`
pub(super) fn times(summary: Option<&Summary>) -> String {
    known(summary, |summary| format!("{:.2} x", summary.median))
}

/// `8.7%`, `87%`
pub(super) fn percent(share: Option<f64>) -> String {
    known(share, |share| match share * 100.0 {
        percent if percent.abs() < 9.95 => format!("{percent:.1}%"),
        percent => format!("{percent:.0}%"),
    })
}

/// `1.5 GiB`
pub(super) fn bytes(count: Option<f64>) -> String {
    // A negative or absurd count saturates.
    known(count, |count| Bytes(count as u64).to_string())
}

/// `850`, `12.3k`
pub(super) fn rate(per_second: Option<f64>) -> String {
    known(per_second, |rate| {
        if rate < 999.5 { format!("{rate:.0}") } else { format!("{}k", figure(rate / 1000.0)) }
    })
}

/// `2.9`
pub(super) fn number(value: Option<f64>) -> String {
    known(value, |value| format!("{value:.1}"))
}

/// What the ratio of LRS over something says: `LRS takes 12 % less time (8.1 to 15 %)`. Without
/// a noise `floor` it says that too.
pub(super) fn verdict(ratio: &Ratio, verdict: Effect, floor: Option<f64>) -> String {
    let percent = |ratio: f64| {
        let percent = (ratio - 1.0) * 100.0;
        if percent.abs() < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
    };
    // Percent less time: the interval turns over, and minus is "more".
    let less = |ratio: f64| percent(2.0 - ratio);
    let unsure = if floor.is_none() { "; the noise floor is not known" } else { "" };
    match (verdict, ratio.interval) {
        (Effect::Faster, Some(Interval { low, high })) => format!(
            "LRS takes {} % less time ({} to {} %){unsure}",
            less(ratio.median),
            less(high),
            less(low)
        ),
        (Effect::Slower, Some(Interval { low, high })) => format!(
            "LRS takes {} % more time ({} to {} %){unsure}",
            percent(ratio.median),
            percent(low),
            percent(high)
        ),
        (Effect::TooFewPairs, _) | (_, None) => "too few pairs for a verdict".to_owned(),
        (Effect::NoDifference, _) => {
            "no difference that can be distinguished from noise".to_owned()
        }
    }
}

/// A mark for those who skim; words stand beside it.
pub(super) fn mark(verdict: Effect) -> &'static str {
    match verdict {
        Effect::Faster => "+",
        Effect::Slower => "!",
        Effect::NoDifference => "=",
        Effect::TooFewPairs => "?",
    }
}

pub(super) fn against(against: Against) -> &'static str {
    match against {
        Against::BestStatic => "best static",
        Against::MeanStatic => "mean of the static settings",
        Against::BestStaticCgroup => "best static in cgroups",
    }
}

pub(super) fn over(over: Over) -> &'static str {
    match over {
        Over::All => "all loads",
        Over::ModerateAndIo => "moderate and I/O loads",
    }
}

pub(super) fn class(class: LoadClass) -> &'static str {
    match class {
        LoadClass::Cpu => "CPU",
        LoadClass::Moderate => "moderate",
        LoadClass::Io => "I/O",
        LoadClass::Mixed => "mixed",
    }
}

/// `53 of 54 runs complete, 1 failed.`
pub(super) fn complete(report: &Report) -> String {
    let failed = report.runs - report.complete;
    format!("{} of {} runs complete, {failed} failed.", report.complete, report.runs)
}

/// Median makespan of the reference.
pub(super) fn reference(load: &LoadReport) -> String {
    let makespan = load.reference().and_then(|one| one.figures.makespan.as_ref());
    seconds(makespan.map(|makespan| makespan.median))
}

/// The noise floor of a load.
pub(super) fn noise(load: &LoadReport) -> String {
    known(load.noise.as_ref(), ratio_with_pairs)
}

/// The node, a fact and its value a row.
pub(super) fn machine(machine: &Machine) -> Vec<(&'static str, String)> {
    let tiers = machine.cgroup.as_ref().map(|cgroup| {
        let (cpu, io) = (&cgroup.cpu_tiers, &cgroup.io_tiers);
        format!("version {}, CPU tiers by {cpu}, I/O tiers by {io}", cgroup.version)
    });
    vec![
        ("suite", format!("{}: {}", machine.suite, machine.about)),
        ("began", machine.began.clone()),
        ("command", machine.command.join(" ")),
        ("LRS", machine.lrs.clone()),
        ("kernel", machine.kernel.clone()),
        ("CPU", format!("{} x {}", machine.cpus, known(machine.cpu.clone(), |cpu| cpu))),
        ("memory", known(machine.memory_bytes, |bytes| Bytes(bytes).to_string())),
        ("cgroups", known(tiers, |tiers| tiers)),
        ("disk", machine.disk.clone()),
        ("load before", known(machine.load_average, |load| format!("{load:.2}"))),
    ]
}

/// The owners of the CPU time of others.
pub(super) const NOT_THE_TASKS: &str =
    "not the tasks' own (kernel threads, write-back, the modelled disk and lrsd included)";

/// What the figures mean, a paragraph each.
pub(super) fn methods(machine: &Machine) -> Vec<String> {
    let names = |kind: SettingKind| {
        let of_kind = machine.settings.iter().filter(|setting| setting.kind == kind);
        let names: Vec<&str> = of_kind.map(|setting| &*setting.name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    vec![
        "Makespan: first arrival to last exit. Medians over complete runs; the range beside a \
         median is its quartiles."
            .to_owned(),
        "Ratios are of makespans in the same round, LRS over the other everywhere, also in the \
         column \"LRS /\": below 1 LRS takes less time. Each is the median over the rounds with its 95 % interval \
         (percentile bootstrap, 10,000 resamples, seeded), which needs 6 pairs."
            .to_owned(),
        format!(
            "Static settings, plain processes: {}; in cgroups of equal weight: {}.",
            names(SettingKind::Static),
            names(SettingKind::StaticCgroup)
        ),
        "Best static: of those with the most rounds in common with LRS the one with the lowest \
         median makespan over these rounds. It is chosen after the fact for each load, so the \
         comparison is not in favour of LRS."
            .to_owned(),
        "Noise floor: the farther end of the 95 % interval of LRS over itself; of a mean, that of \
         the mean of LRS over itself. A difference is one if the interval excludes 1 and the \
         ratio is farther from 1 than the floor. + LRS takes less time, ! LRS takes more, = no \
         difference that can be distinguished from noise, ? too few pairs (for a mean, of LRS with itself \
         too)."
            .to_owned(),
        "The order of the settings turns and is reversed from round to round, and neighbours stay \
         neighbours. In the default order the two runs of LRS are, so the floor holds less drift \
         than a comparison of settings that are farther apart."
            .to_owned(),
        "Run time: slot to exit. Response: arrival to exit. Mean and p95 (nearest rank; of fewer \
         than 20 tasks the longest) within a run, median over the runs."
            .to_owned(),
        "Limit: no order of the tasks can be done sooner, by the least CPU seconds of any setting spread over all \
         CPUs and by the longest task alone; what disks need is not in it. Beyond it are, in seconds of \
         all CPUs: idle, others, and more CPU seconds of the tasks than the least."
            .to_owned(),
        "Slowdown: run time of tasks that were active from begin to end (with static slots: all) \
         over that of one of their group by itself in the same round; median over all such tasks. First tasks: \
         the same ratio, of as many tasks of each run as there are CPUs: those that began first, \
         active or passive; mean over all."
            .to_owned(),
        format!(
            "CPU and iowait: share of all CPU time from the first arrival to the last exit. \
             Others: the part of it that was {NOT_THE_TASKS}. Slots: tasks that ran at a time, \
             mean over the run."
        ),
        "A run counts only if every task ended by itself without a fault; all others are listed."
            .to_owned(),
    ]
}

/// A text without what Markdown would read as its own, and what would reorder a line.
pub(super) fn md(text: impl AsRef<str>) -> String {
    let mut safe = String::with_capacity(text.as_ref().len());
    for c in printable(&text.as_ref().replace(['\n', '\t'], " ")).chars() {
        match c {
            '|' | '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '&' => safe.extend(['\\', c]),
            c => safe.push(c),
        }
    }
    safe
}
