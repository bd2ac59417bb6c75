//! The node over time, a column a moment.

use lrs_term::figures::percent;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use super::paint::{behind, columns, per_second, put, put_right, row};
use crate::figures::Node;
use crate::state::Top;

/// Columns of the scale on the left.
const SCALE: u16 = 6;

type Values = Vec<Option<f64>>;

/// Columns of the title of a small graph.
const TITLE: u16 = 24;

struct Graph {
    title: String,
    layers: Vec<Values>,
    /// What the full height means; `None`: the greatest value there is.
    most: Option<f64>,
}

/// CPU and slots get most of the room; the others a row each, or more on a high screen.
pub fn draw(top: &Top, buf: &mut Buffer, area: Rect) {
    let count = usize::from(area.width.saturating_sub(SCALE));
    let nodes: Vec<&Node> = top.history.nodes(top.shown(), count).collect();
    let now = top.node();
    let (large, small) = (large(&nodes, &now), small(&nodes, &now));
    let each = if area.height >= 30 { 3 } else { 1 };
    let fit = (area.height.saturating_sub(6) / each).min(small.len() as u16);
    let mut left = area;
    let mut take = |height: u16| {
        let place = Rect { height: height.min(left.height), ..left };
        left = Rect { y: left.y + place.height, height: left.height - place.height, ..left };
        place
    };
    let over = area.height - fit * each;
    for (graph, height) in large.iter().zip([over - over / 2, over / 2]) {
        let place = take(height);
        put(buf, row(place, 0), &graph.title, top.look.strong());
        let body = below(place);
        let most = graph.most.unwrap_or(1.0);
        let text = if most > 1.0 { format!("{most:.0}") } else { "100%".to_owned() };
        put_right(buf, Rect { width: SCALE - 1, ..row(body, 0) }, &text, top.look.faint());
        columns(buf, behind(body, SCALE), &graph.layers, most, top.look);
    }
    for graph in small.iter().take(usize::from(fit)) {
        let place = take(each);
        put(buf, Rect { width: TITLE, ..row(place, 0) }, &graph.title, top.look.strong());
        let greatest = graph.layers.iter().flatten().flatten().copied().fold(1.0, f64::max);
        let most = graph.most.unwrap_or(greatest);
        columns(buf, behind(place, TITLE), &graph.layers, most, top.look);
    }
}

fn below(area: Rect) -> Rect {
    let title = area.height.min(1);
    Rect { y: area.y + title, height: area.height - title, ..area }
}

fn of(nodes: &[&Node], value: impl Fn(&Node) -> Option<f64>) -> Values {
    nodes.iter().map(|node| value(node)).collect()
}

fn large(nodes: &[&Node], now: &Node) -> [Graph; 2] {
    let [tasks, others, iowait] = now.cpu.map(percent);
    let slots = nodes.iter().map(|node| node.active.capacity + node.passive.capacity);
    let (active, passive) = (now.active, now.passive);
    let free = |node: &Node| {
        let used = node.active.used + node.passive.used;
        Some((node.active.capacity + node.passive.capacity).saturating_sub(used).into())
    };
    let cpu = Graph {
        title: format!(
            "CPU  #tasks {tasks} +others {others} ~iowait {iowait} spare {}",
            percent(now.spare)
        ),
        layers: (0..3).map(|part| of(nodes, |node| node.cpu[part])).collect(),
        most: Some(1.0),
    };
    let slots = Graph {
        title: format!(
            "Slots  #active {} of {} +passive {} of {} ~free; {} wait",
            active.used, active.capacity, passive.used, passive.capacity, now.waiting
        ),
        layers: vec![
            of(nodes, |node| Some(node.active.used.into())),
            of(nodes, |node| Some(node.passive.used.into())),
            of(nodes, free),
        ],
        most: Some(slots.max().unwrap_or(0).max(1).into()),
    };
    [cpu, slots]
}

fn small(nodes: &[&Node], now: &Node) -> Vec<Graph> {
    let stalls = |name: &str, index: usize| Graph {
        title: format!("Stalls {name:<7}{:>8}", percent(now.stalls[index])),
        layers: vec![of(nodes, |node| node.stalls[index])],
        most: Some(1.0),
    };
    let disk = |name: &str, index: usize| Graph {
        title: format!("Disk {name:<9}{:>8}", per_second(now.disk[index])),
        layers: vec![of(nodes, |node| node.disk[index])],
        most: None,
    };
    vec![
        stalls("CPU", 0),
        stalls("disk", 1),
        disk("written", 1),
        disk("read", 0),
        stalls("memory", 2),
    ]
}
