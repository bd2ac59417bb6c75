//! One task: what it is and does, and what was decided about it.

use lrs_api::{proto, wire, words};
use lrs_term::figures::{DASH, brief_rate, known, percent, seconds_age};
use lrs_term::printable;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::paint::{per_second, put, row, spark, wrapped};
use crate::figures::Who;
use crate::state::{Detail, Top};

/// Columns of the names of facts.
const NAMES: usize = 10;

/// Draws it; sets how far it scrolls.
pub fn draw(top: &mut Top, buf: &mut Buffer, area: Rect) {
    let Some((who, detail)) = &top.detail else { return };
    let lines = lines(top, who, detail, area.width);
    top.lines = usize::from(area.height).max(1);
    top.scroll = top.scroll.min(lines.len().saturating_sub(top.lines));
    for (y, (text, style)) in (0..area.height).zip(lines.iter().skip(top.scroll)) {
        put(buf, row(area, y), text, *style);
    }
}

fn lines(top: &Top, who: &Who, detail: &Detail, width: u16) -> Vec<(String, Style)> {
    let look = top.look;
    let mut lines = vec![(format!("{} {}", who.id, who.title), look.strong())];
    let room = usize::from(width).saturating_sub(NAMES + 2);
    let cpu = top.history.cpu_of(who.serial, top.shown(), room);
    let one = words::cpus(&top.status).map_or(1.0, |cpus| 1.0 / cpus.max(1.0));
    if let Some(task) = &detail.task {
        for (name, value) in facts(task, words::cpus(&top.status)) {
            let value = format!("{name:<NAMES$}{}", printable(&value));
            lines.push((value, Style::new()));
        }
    }
    lines.push((format!("{:<NAMES$}{}", "trend", spark(&cpu, one, look)), Style::new()));
    if let Some(problem) = &detail.problem {
        let problem = wrapped(problem, width);
        lines.extend(
            problem.into_iter().map(|line| (line, look.paint(ratatui_core::style::Color::Red))),
        );
    }
    lines.push((String::new(), Style::new()));
    lines.push(("Decisions, the latest first".to_owned(), look.strong()));
    for event in detail.story.iter().rev() {
        let at = known(event.at.as_ref(), |at| (top.time_of)(wire::wall_time(at)));
        let text = format!("{at}  {}{}", event.r#type, words::change(event));
        lines.push((printable(&text).into_owned(), look.strong()));
        let reason = event.reason.clone().unwrap_or_default();
        for text in [reason, words::inputs(event)].iter().filter(|text| !text.is_empty()) {
            let text = wrapped(text, width.saturating_sub(4));
            lines.extend(text.into_iter().map(|line| (format!("    {line}"), Style::new())));
        }
    }
    lines
}

fn facts(task: &proto::Task, cpus: Option<f64>) -> Vec<(&'static str, String)> {
    let rate = |rate: Option<f64>| known(rate, |rate| format!("{rate:.2}"));
    let flags = words::oddities(task, cpus);
    // Rounded for people.
    #[allow(clippy::cast_precision_loss)]
    let resident = task.resident_bytes.map(|bytes| bytes as f64);
    vec![
        (
            "tier",
            format!(
                "{}, priority {}, {}",
                wire::tier_word(task.tier).unwrap_or(DASH),
                known(task.priority, |priority| priority.to_string()),
                if flags.is_empty() { "no flags".to_owned() } else { flags.join(", ") }
            ),
        ),
        (
            "class",
            format!(
                "{}, computing rate {}",
                words::class(task.class, task.hinted),
                rate(task.computing_rate)
            ),
        ),
        (
            "cpu",
            format!(
                "{} of the node, {} used",
                percent(task.cpu_share),
                known(task.cpu_seconds, |seconds| format!("{seconds:.1} s"))
            ),
        ),
        (
            "disk",
            format!(
                "{} written, {} read; memory {}",
                per_second(task.write_bytes_per_sec),
                per_second(task.read_bytes_per_sec),
                brief_rate(resident)
            ),
        ),
        (
            "age",
            format!(
                "{}, expected to go on for {}",
                seconds_age(task.elapsed_seconds),
                seconds_age(task.expected_remaining_seconds)
            ),
        ),
        ("process", known(task.pid, |pid| pid.to_string())),
        ("cgroup", known(task.cgroup.clone(), |cgroup| cgroup)),
    ]
}
