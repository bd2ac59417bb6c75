//! `lrsctl status`: node, slots, guard, tiers and warnings on one screen, warnings last so
//! that they stand right above the prompt.

use std::time::Duration;

use super::{DASH, age, bytes, bytes_per_sec, known, percent};
use crate::cli::failure::Failure;
use crate::cli::output::{Output, printable, wrap};
use crate::proto;
use crate::units::WallTime;
use crate::wire;

/// Columns of the words in front.
const INDENT: usize = 10;

/// The whole screen; `now` turns times into ages.
pub(crate) fn status(
    status: &proto::Status,
    now: WallTime,
    out: &mut Output,
) -> Result<(), Failure> {
    let bold = anstyle::Style::new().bold();
    let node = status.node.clone().unwrap_or_default();
    let state = wire::node_state_word(status.state).unwrap_or(DASH);
    let observe = status.mode == proto::Mode::Observe as i32;
    let up = status.started_at.as_ref().map(|at| since(now, wire::wall_time(at)));
    out.line(format_args!(
        "{bold}{}{bold:#}  {} CPUs  {bold}{state}{bold:#}{}  lrsd {}, up {}",
        printable(&node.hostname),
        node.cores,
        if observe { ", observe mode: nothing is written" } else { "" },
        printable(&status.version),
        known(up, age),
    ))?;
    slots(status, out)?;
    load(&node, now, out)?;
    let mut field = |name: &str, text: String| {
        let width = out.width();
        out.line(wrap(name, INDENT, &text, width))
    };
    if let Some(guard) = &status.guard {
        field("guard", guard_text(guard, now))?;
    }
    if let Some(cgroup) = &status.cgroup {
        field("tiers", tiers_text(cgroup))?;
        if !cgroup.reason.is_empty() {
            field("", cgroup.reason.clone())?;
        }
    }
    if let Some(totals) = &status.totals {
        field(
            "totals",
            format!(
                "{} admitted, {} completed, {} released, {} refused, {} promoted, {} demoted",
                totals.admitted,
                totals.completed,
                totals.released,
                totals.refused,
                totals.promoted,
                totals.demoted
            ),
        )?;
    }
    let yellow = anstyle::AnsiColor::Yellow.on_default().bold();
    for warning in &status.warnings {
        let text = wrap("warning:", INDENT, warning, out.width());
        let rest = text.strip_prefix("warning:").unwrap_or(&text);
        out.line(format_args!("{yellow}warning:{yellow:#}{rest}"))?;
    }
    Ok(())
}

fn slots(status: &proto::Status, out: &mut Output) -> Result<(), Failure> {
    let slots = status.slots.unwrap_or_default();
    if let Some(active) = slots.active {
        out.line(format_args!(
            "active    {:>4} of {:<4} used  {:>4} reserved  {:>4} free{}",
            active.used,
            active.capacity,
            active.reserved,
            active.free,
            status
                .lowest_active_priority
                .map_or_else(String::new, |lowest| format!("   lowest priority {lowest}")),
        ))?;
    }
    if let Some(passive) = slots.passive {
        out.line(format_args!(
            "passive   {:>4} of {:<4} used  {:>4} reserved  {:>4} free   base {}, max {}",
            passive.used,
            passive.capacity,
            passive.reserved,
            passive.free,
            passive.base,
            passive.max,
        ))?;
        if passive.overflow > 0 {
            out.line(format_args!(
                "overflow  {:>4} discovered tasks beyond capacity",
                passive.overflow
            ))?;
        }
    }
    if status.waiting > 0 {
        let requests = if status.waiting == 1 { "request" } else { "requests" };
        out.line(format_args!("waiting   {:>4} {requests} for a slot", status.waiting))?;
    }
    Ok(())
}

/// Why a request waits, for the one who made it.
pub(crate) fn why_queued(status: &proto::Status) -> String {
    if status.state == proto::NodeState::Draining as i32 {
        return "the node is draining; `lrsctl resume` ends that".to_owned();
    }
    let slots = status.slots.unwrap_or_default();
    let (active, passive) = (slots.active.unwrap_or_default(), slots.passive.unwrap_or_default());
    let held = if status.state == proto::NodeState::Holding as i32 {
        "; the guard holds passive slots back"
    } else {
        ""
    };
    format!(
        "{} of {} active and {} of {} passive slots are taken, {} {}{held}",
        active.used + active.reserved,
        active.capacity,
        passive.used + passive.reserved,
        passive.capacity,
        status.waiting,
        if status.waiting == 1 { "request waits" } else { "requests wait" },
    )
}

fn load(node: &proto::Node, now: WallTime, out: &mut Output) -> Result<(), Failure> {
    let cpu = node.cpu.unwrap_or_default();
    let sampled = node.sampled_at.as_ref().map(|at| since(now, wire::wall_time(at)));
    out.line(format_args!(
        "cpu       {} effective  {} iowait  {} idle  {} steal   sampled {}",
        percent(cpu.effective),
        percent(cpu.iowait),
        percent(cpu.idle),
        percent(cpu.steal),
        sampled.map_or_else(|| "not yet".to_owned(), |ago| format!("{} ago", age(ago))),
    ))?;
    let disk = node.disk.unwrap_or_default();
    out.line(format_args!(
        "disk      {} written  {} read",
        bytes_per_sec(disk.write_bytes_per_sec),
        bytes_per_sec(disk.read_bytes_per_sec),
    ))?;
    let memory = node.memory.unwrap_or_default();
    out.line(format_args!(
        "memory    {} available of {}  {} swap used",
        known(memory.available_bytes, bytes),
        known(memory.total_bytes, bytes),
        known(memory.swap_used_bytes, bytes),
    ))?;
    if let Some(stall) = node.pressure {
        out.line(format_args!(
            "stalls    cpu {}  io {} (all {})  memory {} (all {})",
            percent(stall.cpu_some),
            percent(stall.io_some),
            percent(stall.io_full),
            percent(stall.memory_some),
            percent(stall.memory_full),
        ))?;
    }
    Ok(())
}

fn guard_text(guard: &proto::Guard, now: WallTime) -> String {
    if !guard.enabled {
        return "off".to_owned();
    }
    let mut text = match (guard.stage, guard.dry_run) {
        (0, _) => "nothing held".to_owned(),
        (stage, false) => format!("stage {stage}: passive slots are held back"),
        (stage, true) => format!("stage {stage}, dry run: would hold passive slots back"),
    };
    if let Some(since_at) = guard.since.as_ref().filter(|_| guard.stage > 0) {
        text += &format!(" for {}", age(since(now, wire::wall_time(since_at))));
    }
    if let Some(reason) = &guard.reason {
        text += &format!("; {reason}");
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
    let disks = match cgroup.io_tiers.as_str() {
        "none" => "disks shared equally".to_owned(),
        by => format!("disk by {by}"),
    };
    let beside = match cgroup.root_weight {
        None => String::new(),
        Some(0) => ", behind all other groups".to_owned(),
        Some(weight) => format!(", weight {weight} beside other groups"),
    };
    format!("cpu by {}, {disks}, {place}{beside}", cgroup.cpu_tiers)
}

fn since(now: WallTime, then: WallTime) -> Duration {
    let micros = now.unix_micros().saturating_sub(then.unix_micros());
    // a clock set back makes the past look like the future: no age then
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
