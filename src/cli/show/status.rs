//! `lrsctl status`: is the node doing well, and who gets what? The mechanism is for `-v`. Warnings
//! come last, so that they stand right above the prompt.

use std::time::Duration;

use super::tasks::{OnNode, title};
use super::{DASH, age, bytes, bytes_per_sec, known, percent, seconds_age};
use crate::cli::failure::Failure;
use crate::cli::output::{Output, printable, wrap};
use crate::proto;
use crate::units::WallTime;
use crate::wire;
use lrs_api::words::cpus;

/// Columns of the words in front.
const INDENT: usize = 9;

/// The whole screen; `now` turns times into ages.
pub(crate) fn status(
    status: &proto::Status,
    tasks: &[proto::Task],
    now: WallTime,
    verbose: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    let bold = anstyle::Style::new().bold();
    let node = status.node.clone().unwrap_or_default();
    let state = wire::node_state_word(status.state).unwrap_or(DASH);
    let observe = status.mode == proto::Mode::Observe as i32;
    let up = status.started_at.as_ref().map(|at| since(now, wire::wall_time(at)));
    out.line(format_args!(
        "{bold}{}{bold:#}  {} CPUs  {bold}{state}{bold:#}  up {}",
        printable(&node.hostname),
        node.cores,
        known(up, age),
    ))?;
    let width = out.width();
    let mut field = |name: &str, text: String| out.line(wrap(name, INDENT, &text, width));
    if observe {
        field("mode", "observe: LRS writes nothing".to_owned())?;
    }
    field("slots", slots(status))?;
    field("cpu", cpu(&node))?;
    field("memory", memory(&node, status.guard.as_ref()))?;
    if let Some(longest) = longest_passive(tasks, cpus(status)) {
        field("passive", longest)?;
    }
    if verbose {
        for (name, text) in mechanism(status, &node, now) {
            field(name, text)?;
        }
    }
    let yellow = anstyle::AnsiColor::Yellow.on_default().bold();
    for warning in &status.warnings {
        let text = wrap("warning:", INDENT, warning, width);
        let rest = text.strip_prefix("warning:").unwrap_or(&text);
        out.line(format_args!("{yellow}warning:{yellow:#}{rest}"))?;
    }
    if status.warnings.is_empty() {
        let more = if verbose { "" } else { "   (-v: tiers, guard, pressure, totals)" };
        let word = match proto::NodeState::try_from(status.state) {
            Ok(proto::NodeState::Draining) => {
                "draining: no new tasks until `lrsctl resume`".to_owned()
            }
            Ok(proto::NodeState::Holding) => "holding: the guard opens no passive slots".to_owned(),
            Ok(proto::NodeState::Accepting | proto::NodeState::Unspecified) | Err(_) => {
                format!("{bold}ok{bold:#}")
            }
        };
        out.line(format_args!("{word}{more}"))?;
    }
    Ok(())
}

/// `active 2 of 2, passive 4 of 4 (no more open: the CPUs are busy), 4 requests wait for a slot`
fn slots(status: &proto::Status) -> String {
    let slots = status.slots.unwrap_or_default();
    let (active, passive) = (slots.active.unwrap_or_default(), slots.passive.unwrap_or_default());
    let mut text = format!(
        "active {} of {}, passive {} of {}",
        active.used, active.capacity, passive.used, passive.capacity
    );
    match bound(passive.bound()) {
        Some(why) => text += &format!(" (no more open: {why})"),
        None if passive.max > passive.capacity => {
            text += &format!(" (may grow to {})", passive.max);
        }
        None => {}
    }
    if active.reserved + passive.reserved > 0 {
        text += &format!(", {} reserved", active.reserved + passive.reserved);
    }
    if passive.overflow > 0 {
        text += &format!(", {} found beyond capacity", passive.overflow);
    }
    if status.waiting > 0 {
        text += &format!(", {} {} for a slot", status.waiting, requests_wait(status.waiting));
    }
    text
}

/// Why no further passive slot opens, in a sentence; nothing where one is free or may open.
pub(in crate::cli) fn no_more_slots(status: &proto::Status) -> Option<String> {
    let passive = status.slots.unwrap_or_default().passive.unwrap_or_default();
    bound(passive.bound()).map(|why| format!("every slot is taken, and no more open: {why}"))
}

/// Why no further passive slot opens.
fn bound(bound: proto::Bound) -> Option<&'static str> {
    match bound {
        proto::Bound::Unspecified => None,
        proto::Bound::Off => Some("slots.expand is false"),
        proto::Bound::Max => Some("slots.passive_max is reached"),
        proto::Bound::Memory => Some("memory is short"),
        proto::Bound::ActiveTier => Some("active tasks waited more with the last ones"),
        proto::Bound::Throughput => Some("the last ones raised nothing"),
        proto::Bound::Compute => Some("the CPUs are busy"),
    }
}

fn requests_wait(count: u32) -> &'static str {
    if count == 1 { "request waits" } else { "requests wait" }
}

/// Who uses the CPUs: tasks, and everybody else.
fn cpu(node: &proto::Node) -> String {
    let cpu = node.cpu.unwrap_or_default();
    let Some(busy) = cpu.effective else { return "not sampled yet".to_owned() };
    let mut text = format!(
        "{} busy (tasks {}, others {}), {} waits for disk",
        percent(Some(busy)),
        percent(cpu.tasks),
        percent(cpu.tasks.map(|tasks| (busy - tasks).max(0.0))),
        percent(cpu.iowait),
    );
    if let Some(quota) = node.cpu_quota {
        text += &format!("; of the {quota:.2} CPUs that a quota above the tasks allows");
    }
    text
}

fn memory(node: &proto::Node, guard: Option<&proto::Guard>) -> String {
    let memory = node.memory.clone().unwrap_or_default();
    let mut text = format!(
        "{} of {} available",
        known(memory.available_bytes, bytes),
        known(memory.total_bytes, bytes)
    );
    if let Some(file) = &memory.limit_file {
        text += &format!(" (the limit in {})", printable(file));
    }
    if let Some(guard) = guard.filter(|guard| guard.stage > 0) {
        let reason = guard.reason.as_deref().unwrap_or("the guard holds passive slots back");
        text += &format!("; guard: {reason}");
    }
    text
}

/// The passive task that has been there longest, and what it gets.
fn longest_passive(tasks: &[proto::Task], cpus: Option<f64>) -> Option<String> {
    let passive = tasks.iter().filter(|task| task.tier == proto::Tier::Passive as i32);
    let age = |task: &proto::Task| task.elapsed_seconds.unwrap_or(0.0);
    let longest = passive.max_by(|one, other| age(one).total_cmp(&age(other)))?;
    Some(format!(
        "the longest is {} {}: {}, gets {} of the CPUs",
        longest.id,
        title(OnNode { task: longest, cpus }),
        seconds_age(longest.elapsed_seconds),
        percent(longest.cpu_share)
    ))
}

/// How it is done, for `-v`.
fn mechanism(
    status: &proto::Status,
    node: &proto::Node,
    now: WallTime,
) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let sampled = node.sampled_at.as_ref().map(|at| since(now, wire::wall_time(at)));
    let disk = node.disk.unwrap_or_default();
    lines.push((
        "disk",
        format!(
            "{} written, {} read; sampled {}",
            bytes_per_sec(disk.write_bytes_per_sec),
            bytes_per_sec(disk.read_bytes_per_sec),
            sampled.map_or_else(|| "not yet".to_owned(), |ago| format!("{} ago", age(ago))),
        ),
    ));
    if let Some(stall) = node.pressure {
        let text = format!(
            "cpu {}, io {} (all {}), memory {} (all {})",
            percent(stall.cpu_some),
            percent(stall.io_some),
            percent(stall.io_full),
            percent(stall.memory_some),
            percent(stall.memory_full),
        );
        lines.push(("stalls", text));
    }
    let cpu = node.cpu.unwrap_or_default();
    lines.push(("idle", format!("{}, steal {}", percent(cpu.idle), percent(cpu.steal))));
    let swap = node.memory.as_ref().and_then(|memory| memory.swap_used_bytes);
    lines.push(("swap", format!("{} used", known(swap, bytes))));
    if let Some(guard) = &status.guard {
        lines.push(("guard", guard_text(guard, now)));
    }
    if let Some(cgroup) = &status.cgroup {
        lines.push(("tiers", tiers_text(cgroup)));
        if !cgroup.reason.is_empty() {
            lines.push(("", cgroup.reason.clone()));
        }
    }
    if !node.labels.is_empty() {
        let labels = node.labels.iter().map(|(name, text)| format!("{name}={text}"));
        lines.push(("labels", labels.collect::<Vec<_>>().join(", ")));
    }
    if let Some(running) = status.running {
        let text = format!(
            "{} tasks, the rates of {} sum up to {:.2}; next slot expected in {}, {} freed a second",
            running.tasks,
            running.rated,
            running.rate_sum,
            seconds_age(running.next_free_slot_seconds),
            known(running.slots_freed_per_second, |freed| format!("{freed:.2}")),
        );
        lines.push(("running", text));
    }
    let base = status.slots.unwrap_or_default().passive.unwrap_or_default().base;
    let lowest = known(status.lowest_active_priority, |lowest| lowest.to_string());
    lines.push(("base", format!("{base} passive; lowest active priority {lowest}")));
    if let Some(totals) = &status.totals {
        let text = format!(
            "{} admitted, {} completed, {} released, {} refused, {} promoted, {} demoted",
            totals.admitted,
            totals.completed,
            totals.released,
            totals.refused,
            totals.promoted,
            totals.demoted
        );
        lines.push(("totals", text));
    }
    lines.push(("version", status.version.clone()));
    lines
}

/// Why a request waits, for the one who made it.
pub(crate) fn why_queued(status: &proto::Status, place: Option<u32>) -> String {
    let before = match place {
        Some(place) => format!("{} ahead", place.saturating_sub(1)),
        None => format!("{} {}", status.waiting, requests_wait(status.waiting)),
    };
    if status.state == proto::NodeState::Draining as i32 {
        return format!("{before}, the node is draining; `lrsctl resume` ends that");
    }
    let slots = status.slots.unwrap_or_default();
    let (active, passive) = (slots.active.unwrap_or_default(), slots.passive.unwrap_or_default());
    let held = if status.state == proto::NodeState::Holding as i32 {
        "; the guard holds passive slots back"
    } else {
        ""
    };
    format!(
        "{before}, {} of {} active and {} of {} passive slots are taken{held}",
        active.used + active.reserved,
        active.capacity,
        passive.used + passive.reserved,
        passive.capacity,
    )
}

fn guard_text(guard: &proto::Guard, now: WallTime) -> String {
    if !guard.enabled {
        return "off".to_owned();
    }
    let mut text = match (guard.stage, guard.dry_run) {
        (0, _) => "nothing held".to_owned(),
        (1, false) => "stage 1: passive slots are held back".to_owned(),
        (1, true) => "stage 1, dry run: would hold passive slots back".to_owned(),
        (stage, dry_run) => {
            let most = if stage == 2 { ", half of them at most" } else { "" };
            match dry_run {
                false => format!("stage {stage}: passive tasks are frozen one by one{most}"),
                true => {
                    format!("stage {stage}, dry run: would freeze passive tasks one by one{most}")
                }
            }
        }
    };
    if let Some(since_at) = guard.since.as_ref().filter(|_| guard.stage > 0) {
        text += &format!(" for {}", age(since(now, wire::wall_time(since_at))));
    }
    if let Some(reason) = &guard.reason {
        text += &format!("; {reason}");
    }
    if !guard.frozen.is_empty() {
        text += &format!("; frozen: {}", guard.frozen.join(", "));
    }
    if !guard.missing_signals.is_empty() {
        text += &format!("; blind to {}", guard.missing_signals.join(", "));
    }
    text
}

fn tiers_text(cgroup: &proto::CgroupStatus) -> String {
    let place = match cgroup.version {
        0 => "no cgroup hierarchy".to_owned(),
        version => format!("cgroup v{version} {}", cgroup.root),
    };
    // An lrsd before 0.2 does not say.
    let known = |effect: &str| match effect {
        "" | "none" => String::new(),
        effect => format!(" ({effect})"),
    };
    let disks = match cgroup.io_tiers.as_str() {
        "none" => "disks shared equally".to_owned(),
        by => format!("disk by {by}{}", known(&cgroup.io_effect)),
    };
    let beside = match cgroup.root_weight {
        None => String::new(),
        Some(0) => ", behind all other groups".to_owned(),
        Some(weight) => format!(", weight {weight} beside other groups"),
    };
    let cpu = known(&cgroup.cpu_effect);
    format!("cpu by {}{cpu}, {disks}, {place}{beside}", cgroup.cpu_tiers)
}

fn since(now: WallTime, then: WallTime) -> Duration {
    let micros = now.unix_micros().saturating_sub(then.unix_micros());
    // a clock set back makes the past look like the future: no age then
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
