//! The lists: tasks, and what waits.

use lrs_api::words;
use lrs_term::figures::{DASH, age, brief_rate, known, percent, seconds_age};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use super::paint::{behind, put, put_right, row, spark};
use crate::figures::{Row, Waiting};
use crate::pick::SortKey;
use crate::state::{Look, Page, Target, Top};

/// Columns of a sparkline.
const TREND: usize = 8;

/// A column: heading, width, whether figures (to the right), from which width of the screen on.
struct Column(&'static str, u16, bool, u16, Option<SortKey>);

const TASKS: [Column; 13] = [
    Column("ID", 6, true, 0, Some(SortKey::Id)),
    Column("USER", 8, false, 96, Some(SortKey::User)),
    Column("TIER", 4, false, 0, Some(SortKey::Tier)),
    Column("PRI", 4, true, 76, Some(SortKey::Priority)),
    Column("CLASS", 8, false, 56, Some(SortKey::Class)),
    Column("RATE", 4, true, 66, Some(SortKey::Rate)),
    Column("CPU", 4, true, 0, Some(SortKey::Cpu)),
    Column("WRITE", 5, true, 76, Some(SortKey::Write)),
    Column("READ", 5, true, 96, Some(SortKey::Read)),
    Column("MEM", 5, true, 110, Some(SortKey::Memory)),
    Column("AGE", 6, true, 40, Some(SortKey::Age)),
    Column("TREND", TREND as u16, false, 70, None),
    Column("NAME", u16::MAX, false, 0, Some(SortKey::Name)),
];

const QUEUE: [Column; 8] = [
    Column("PLACE", 5, true, 0, None),
    Column("ID", 6, true, 0, None),
    Column("USER", 8, false, 70, None),
    Column("PRI", 4, true, 70, None),
    Column("SINCE", 6, true, 40, None),
    Column("START", 6, true, 0, None),
    Column("REASON", 17, false, 60, None),
    Column("NAME", u16::MAX, false, 0, None),
];

/// Draws the list of the page.
pub fn draw(top: &mut Top, buf: &mut Buffer, area: Rect) {
    let look = top.look;
    let columns: &[Column] = if top.page == Page::Queue { &QUEUE } else { &TASKS };
    let shown: Vec<usize> = (0..columns.len()).filter(|i| columns[*i].3 <= area.width).collect();
    heads(top, buf, row(area, 0), columns, &shown);
    let body = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    top.lines = usize::from(body.height).max(1);
    let last_top = top.order.len().saturating_sub(top.lines);
    let lowest = (top.selected + 1).saturating_sub(top.lines);
    top.scroll = top.scroll.clamp(lowest, top.selected.max(lowest)).min(last_top.max(lowest));
    if top.order.is_empty() {
        put(buf, row(body, 1), empty(top), look.faint());
    }
    for y in 0..body.height {
        let line = top.scroll + usize::from(y);
        let place = row(body, y);
        let (cells, style) = match top.page {
            Page::Queue => match top.request(line) {
                Some(one) => (request_cells(top, one), Style::new()),
                None => break,
            },
            Page::Tasks | Page::Graphs => match top.task(line) {
                Some(task) => (task_cells(top, task, area.width), style_of(task, look)),
                None => break,
            },
        };
        let selected = line == top.selected;
        let style = if selected { look.label(Color::Cyan) } else { style };
        if selected {
            buf.set_style(place.intersection(buf.area), style);
        }
        let mut rest = place;
        for index in &shown {
            let Column(_, width, right, ..) = columns[*index];
            let cell = Rect { width: width.min(rest.width), ..rest };
            if right {
                put_right(buf, cell, &cells[*index], style);
            } else if width == u16::MAX {
                put(buf, cell, &fitting(&cells[*index], usize::from(cell.width)), style);
            } else {
                put(buf, cell, &cells[*index], style);
            }
            rest = behind(rest, width.saturating_add(1));
        }
        top.hits.push((place, Target::Line(line)));
    }
}

/// A name in so many columns: of tasks of one list the end, `[12]`, is what tells them apart.
fn fitting(name: &str, columns: usize) -> String {
    if name.chars().count() <= columns {
        return name.to_owned();
    }
    let tail = name.find('[').and_then(|at| name.get(at..)).unwrap_or_default();
    let tail = if tail.chars().count() + 4 > columns { "" } else { tail };
    let left = columns.saturating_sub(tail.chars().count() + 2);
    let head: String = name.chars().take(left).collect();
    format!("{head}..{tail}")
}

fn empty(top: &Top) -> &'static str {
    match (top.now().map(|moment| moment.rows.is_some()), top.page) {
        (None, _) => "  waiting for lrsd ...",
        (Some(false), _) => "  the tasks of this moment are not kept any more",
        _ if !top.filter.is_empty() || top.tier.is_some() => {
            "  nothing matches (Esc ends the filter)"
        }
        (_, Page::Queue) => "  no request waits for a slot, and none is reserved",
        _ => "  no tasks (lrsctl run -- CMD... starts one)",
    }
}

fn heads(top: &mut Top, buf: &mut Buffer, area: Rect, columns: &[Column], shown: &[usize]) {
    let style = top.look.label(Color::Green);
    buf.set_style(area.intersection(buf.area), style);
    let mut rest = area;
    for index in shown {
        let Column(head, width, right, _, key) = columns[*index];
        let cell = Rect { width: width.min(rest.width), ..rest };
        let sorted = top.page == Page::Tasks && key == Some(top.sort.key);
        let style =
            if sorted { style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED) } else { style };
        if right {
            put_right(buf, cell, head, style);
        } else {
            put(buf, cell, head, style);
        }
        if let Some(key) = key.filter(|_| top.page == Page::Tasks) {
            top.hits.push((cell, Target::Sort(key)));
        }
        rest = behind(rest, width.saturating_add(1));
    }
}

fn style_of(task: &Row, look: Look) -> Style {
    match task.active {
        _ if task.flags.contains("starves") || task.flags.contains("frozen") => {
            look.paint(Color::Yellow)
        }
        Some(true) => look.strong(),
        _ => Style::new(),
    }
}

fn task_cells(top: &Top, task: &Row, width: u16) -> Vec<String> {
    let share = |value: Option<f32>| value.map(f64::from);
    let trend = if width >= TASKS[11].3 {
        // Against one CPU: whether a task has one to itself is what its tier decides.
        let one = lrs_api::words::cpus(&top.status).map_or(1.0, |cpus| 1.0 / cpus.max(1.0));
        spark(&top.history.cpu_of(task.who.serial, top.shown(), TREND), one, top.look)
    } else {
        String::new()
    };
    // What is odd shows on a narrow screen too, and the name before what it is.
    let title = match &*task.flags {
        "" => task.who.title.clone(),
        flags => format!("!{} [{flags}]", task.who.title),
    };
    // Bytes up to 2^53 are exact, and it is rounded anyway.
    #[allow(clippy::cast_precision_loss)]
    let resident = task.resident.map(|bytes| bytes as f64);
    vec![
        task.who.number().to_owned(),
        task.who.user.clone(),
        match task.active {
            Some(true) => "act",
            Some(false) => "pas",
            None => DASH,
        }
        .to_owned(),
        known(task.priority, |priority| priority.to_string()),
        words::class(task.class, task.hinted),
        known(task.rate, |rate| format!("{rate:.2}")),
        percent(share(task.cpu)),
        brief_rate(share(task.write)),
        brief_rate(share(task.read)),
        brief_rate(resident),
        seconds_age(share(task.elapsed)),
        format!("{trend:>TREND$}"),
        title,
    ]
}

fn request_cells(top: &Top, one: &Waiting) -> Vec<String> {
    let since = one.since.and_then(|since| {
        let micros = top.node().at.unix_micros().saturating_sub(since.unix_micros());
        u64::try_from(micros).ok()
    });
    vec![
        known(one.place, |place| place.to_string()),
        one.who.number().to_owned(),
        one.who.user.clone(),
        one.priority.to_string(),
        known(since, |micros| age(std::time::Duration::from_micros(micros))),
        seconds_age(one.expected),
        one.reason.clone(),
        one.who.title.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_keeps_its_end() {
        let cases = [
            ("night[12]", 9, "night[12]"),
            ("nightly-report[12]", 12, "nightl..[12]"),
            ("!nightly-report[7] [starves]", 20, "!nigh..[7] [starves]"),
            ("nightly-report", 8, "nightl.."),
            ("nightly[1234567]", 8, "nightl.."),
        ];
        for (name, columns, shown) in cases {
            assert!(fitting(name, columns).chars().count() <= columns, "{name}");
            assert_eq!(fitting(name, columns), shown);
        }
    }
}
