//! The head of the screen: which node, how it does, its slots and its CPUs.

use lrs_api::{proto, wire};
use lrs_term::figures::{DASH, age, brief_rate, known, percent};
use lrs_term::printable;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::Color;

use super::paint::{bar, behind, columns, per_second, put, put_right, row};
use super::{ago, clock};
use crate::figures::{Node, Slots};
use crate::state::Top;

/// Rows of the head on a screen of this size.
pub fn height(top: &Top, area: Rect) -> u16 {
    match area.height {
        0..12 => 1,
        12..20 => 4,
        _ if top.status.warnings.is_empty() => 6,
        _ => 7,
    }
}

/// Draws it.
pub fn draw(top: &Top, buf: &mut Buffer, area: Rect) {
    let count = top.status.warnings.len();
    let few = if area.height < 7 && count > 0 { warnings(count) } else { String::new() };
    title(top, buf, row(area, 0), &few);
    if let Some(warning) = top.status.warnings.first().filter(|_| area.height >= 7) {
        let more =
            if count > 1 { format!(" (and {})", warnings(count - 1)) } else { String::new() };
        let text = format!("! {}{more}", printable(warning));
        put(buf, row(area, 6), &text, top.look.paint(Color::Yellow));
    }
    let node = top.node();
    match area.height {
        0..2 => {}
        2..6 => narrow(top, &node, buf, area),
        _ => wide(top, &node, buf, area),
    }
}

fn warnings(count: usize) -> String {
    if count == 1 { "1 warning".to_owned() } else { format!("{count} warnings") }
}

fn title(top: &Top, buf: &mut Buffer, area: Rect, few: &str) {
    let status = &top.status;
    let look = top.look;
    let node = status.node.clone().unwrap_or_default();
    let time = match (&top.lost, top.moment) {
        (Some(_), _) => " no answer ".to_owned(),
        (None, Some(_)) => format!(" {} {} ", clock(top), ago(top)),
        (None, None) => clock(top),
    };
    let style = match (&top.lost, top.moment) {
        (Some(_), _) => look.label(Color::Red),
        (None, Some(_)) => look.label(Color::Yellow),
        (None, None) => look.faint(),
    };
    let room = area.width.saturating_sub(u16::try_from(time.chars().count()).unwrap_or(u16::MAX));
    let left = Rect { width: room.saturating_sub(1), ..area };
    let rest = put(buf, left, &printable(&node.hostname), look.strong());
    let state = wire::node_state_word(status.state).unwrap_or("no answer yet");
    let word = match (status.mode == proto::Mode::Observe as i32, status.state) {
        (true, _) => format!("{state}, observes only"),
        _ => state.to_owned(),
    };
    let calm = status.state == proto::NodeState::Accepting as i32;
    let rest = put(
        buf,
        rest,
        &format!("  {word}"),
        if calm {
            look.paint(Color::Green)
        } else {
            look.paint(Color::Yellow).patch(look.strong())
        },
    );
    let at = status.started_at.as_ref().map(wire::wall_time);
    let up = at.and_then(|at| {
        let micros = top.node().at.unix_micros().checked_sub(at.unix_micros())?;
        Some(std::time::Duration::from_micros(u64::try_from(micros).ok()?))
    });
    let text = format!("  {} CPUs  up {}", node.cores, known(up, age));
    let rest = put(buf, rest, &text, look.faint());
    put(buf, rest, &format!("  {few}"), look.paint(Color::Yellow));
    put_right(buf, area, &time, style);
}

/// `2 of 2, 1 reserved`
fn slots_text(slots: Slots) -> String {
    let reserved = match slots.reserved {
        0 => String::new(),
        reserved => format!("+{reserved}"),
    };
    format!("{}{reserved}/{}", slots.used, slots.capacity)
}

fn slots_bar(slots: Slots) -> [Option<f64>; 2] {
    let of = f64::from(slots.capacity.max(1));
    [slots.used, slots.reserved].map(|count| Some(f64::from(count) / of))
}

/// The part of the CPUs that does something.
fn busy(node: &Node) -> Option<f64> {
    node.cpu[0].zip(node.cpu[1]).map(|(tasks, others)| tasks + others)
}

fn bars(top: &Top, node: &Node, buf: &mut Buffer, areas: [Rect; 4]) {
    let look = top.look;
    let memory = node.memory.map(|(used, total)| {
        // For people: rounded.
        #[allow(clippy::cast_precision_loss)]
        let part = |bytes: u64| bytes as f64;
        let text = [used, total].map(|bytes| brief_rate(Some(part(bytes)))).join("/");
        (part(used) / part(total.max(1)), text)
    });
    let (memory, memory_text) =
        memory.map_or((None, DASH.to_owned()), |(share, text)| (Some(share), text));
    let rows: [(&str, &[Option<f64>], String); 4] = [
        ("CPU ", &node.cpu, percent(busy(node))),
        ("Act ", &slots_bar(node.active), slots_text(node.active)),
        ("Pas ", &slots_bar(node.passive), slots_text(node.passive)),
        ("Mem ", &[memory], memory_text),
    ];
    for ((name, parts, text), area) in rows.into_iter().zip(areas) {
        let rest = put(buf, area, name, look.paint(Color::Cyan));
        bar(buf, rest, parts, &text, look);
    }
}

fn stalls(node: &Node) -> String {
    let [cpu, io, memory] = node.stalls.map(percent);
    format!("stalls cpu {cpu} io {io} memory {memory}")
}

fn disk(node: &Node) -> String {
    let [read, write] = node.disk.map(per_second);
    format!("disk   read {read} write {write}")
}

fn queue(node: &Node) -> String {
    let reserved = node.active.reserved + node.passive.reserved;
    format!("queue  {} wait, {reserved} reserved", node.waiting)
}

/// What keeps slots from opening, the guard first.
fn slots(top: &Top) -> String {
    if let Some(guard) = top.status.guard.as_ref().filter(|guard| guard.stage > 0) {
        let reason = guard.reason.as_deref().unwrap_or("passive slots are held back");
        return format!("guard  stage {}: {}", guard.stage, printable(reason));
    }
    let passive = top.status.slots.unwrap_or_default().passive.unwrap_or_default();
    match wire::bound_word(passive.bound) {
        Some(word) => format!("slots  no more open: {}", word.replace('_', " ")),
        None => format!("slots  passive ones up to {}", passive.max),
    }
}

fn legend(node: &Node) -> String {
    let [tasks, others, iowait] = node.cpu.map(percent);
    format!("#tasks {tasks} +others {others} ~iowait {iowait} spare {}", percent(node.spare))
}

fn narrow(top: &Top, node: &Node, buf: &mut Buffer, area: Rect) {
    let half = area.width / 2;
    let left = |y| Rect { width: half.saturating_sub(1), ..row(area, y) };
    let right = |y| behind(row(area, y), half);
    bars(top, node, buf, [left(1), left(2), right(2), right(1)]);
    put(buf, row(area, 3), &legend(node), top.look.faint());
}

fn wide(top: &Top, node: &Node, buf: &mut Buffer, area: Rect) {
    let left = if area.width >= 120 { area.width / 3 } else { area.width / 2 - 4 };
    let bar_of = |y| Rect { width: left.saturating_sub(2), ..row(area, y) };
    bars(top, node, buf, [bar_of(1), bar_of(2), bar_of(3), bar_of(4)]);
    let texts = [legend(node), queue(node), slots(top), stalls(node), disk(node)];
    let width = if area.width >= 120 { 52 } else { area.width - left };
    for (y, text) in (1..).zip(texts) {
        put(
            buf,
            Rect { width, ..behind(row(area, y), left) },
            &text,
            ratatui_core::style::Style::new(),
        );
    }
    let graph = behind(area, left + width + 2);
    if area.width < 120 || graph.width < 12 {
        return;
    }
    let nodes = || top.history.nodes(top.shown(), usize::from(graph.width));
    let layers: Vec<Vec<Option<f64>>> =
        (0..3).map(|part| nodes().map(|node| node.cpu[part]).collect()).collect();
    let place = Rect { y: graph.y + 1, height: area.height.min(6).saturating_sub(1), ..graph };
    columns(buf, place, &layers, 1.0, top.look);
}
