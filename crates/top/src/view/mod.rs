//! From state to screen. Pure: it draws into a buffer of any size, the smallest included.
//!
//! The head is which node and how it does, below it the page, its keys at the bottom. What does not fit is left
//! out from the least important on: columns by the width of the screen, graphs and rows of the head by its
//! height.

mod detail;
mod graphs;
mod header;
mod paint;
mod table;

use crossterm::event::KeyCode;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Style};

use crate::ask::Dialog;
use crate::keys::{FUNCTIONS, HELP};
use crate::pick::SortKey;
use crate::state::{Page, Target, Top};
use paint::{behind, put, put_right, row, wrapped};

/// The least that has room for a head, a line and a footer.
const LEAST: (u16, u16) = (20, 4);

/// Draws all of it.
pub fn draw(top: &mut Top, buf: &mut Buffer) {
    let area = buf.area;
    top.hits.clear();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        put(buf, row(area, 0), "too small", Style::new());
        put(buf, row(area, 1), "q ends", Style::new());
        return;
    }
    let head = header::height(top, area);
    header::draw(top, buf, Rect { height: head, ..area });
    let tabs = u16::from(area.height >= 8);
    if tabs > 0 {
        pages(top, buf, row(area, head));
    }
    let body = Rect { y: area.y + head + tabs, height: area.height - head - tabs - 1, ..area };
    match top.page {
        _ if top.detail.is_some() => detail::draw(top, buf, body),
        Page::Graphs => graphs::draw(top, buf, body),
        Page::Tasks | Page::Queue => table::draw(top, buf, body),
    }
    let foot = row(area, area.height - 1);
    footer(top, buf, foot);
    dialog(top, buf, Rect { height: area.height - 1, ..area });
}

/// The time that is shown.
fn clock(top: &Top) -> String {
    top.now().map_or_else(String::new, |moment| (top.time_of)(moment.node.at))
}

/// How long ago that was.
fn ago(top: &Top) -> String {
    let at = |number: usize| top.history.at(number).map_or(0, |m| m.node.at.unix_micros());
    let micros = at(top.history.last()).saturating_sub(at(top.shown()));
    let ago = std::time::Duration::from_micros(u64::try_from(micros).unwrap_or(0));
    format!("{} ago, Esc: now", lrs_term::figures::age(ago))
}

/// The line between head and page: pages, filter, order.
fn pages(top: &mut Top, buf: &mut Buffer, area: Rect) {
    let look = top.look;
    let tasks = top.now().map_or(0, |moment| moment.tasks().len());
    let queue = top.node().waiting;
    let names = [
        (Page::Tasks, '1', format!(" 1 Tasks {tasks} ")),
        (Page::Queue, '2', format!(" 2 Queue {queue} ")),
        (Page::Graphs, '3', " 3 Graphs ".to_owned()),
    ];
    let mut rest = area;
    for (page, key, text) in names {
        let style = if page == top.page { look.label(Color::Green) } else { look.faint() };
        let before = rest;
        rest = put(buf, rest, &text, style);
        let place = Rect { width: before.width - rest.width, ..before };
        top.hits.push((place, Target::Key(KeyCode::Char(key))));
    }
    let sort =
        SortKey::ALL.iter().find(|(key, _)| *key == top.sort.key).map_or("", |(_, name)| name);
    let tier = match top.tier {
        None => "",
        Some(true) => " [active only]",
        Some(false) => " [passive only]",
    };
    let filter = match &*top.filter {
        "" => String::new(),
        filter => format!(" filter: {}", lrs_term::printable(filter)),
    };
    let narrowed = format!("{tier}{filter}");
    if let Some((text, bad)) = &top.note {
        put(
            buf,
            rest,
            &format!(" {text}"),
            look.label(if *bad { Color::Red } else { Color::Green }),
        );
    } else if let Some(why) = &top.lost {
        put(buf, rest, &format!(" {why}"), look.paint(Color::Red));
    } else if top.detail.is_some() {
        put_right(buf, rest, "arrows: scroll  Esc: back", look.faint());
    } else if !narrowed.is_empty() {
        put(buf, rest, &narrowed, look.paint(Color::Yellow).patch(look.strong()));
    } else if top.page == Page::Tasks {
        let way = if top.sort.descending { "greatest first" } else { "" };
        put_right(buf, rest, &format!("by {sort} {way}"), look.faint());
    } else if top.page == Page::Graphs {
        put_right(buf, rest, &format!("a column is {} s", top.interval_seconds), look.faint());
    }
}

fn footer(top: &mut Top, buf: &mut Buffer, area: Rect) {
    let look = top.look;
    if let Some(Dialog::Filter(_)) = &top.dialog {
        let rest = put(buf, area, "Filter", look.label(Color::Cyan));
        let text = format!(" {}_", lrs_term::printable(&top.filter));
        let rest = put(buf, rest, &text, look.strong());
        put(buf, rest, "  Enter: keep  Esc: as before  (job: user: tier:)", look.faint());
        return;
    }
    let each = (area.width / FUNCTIONS.len() as u16).min(10);
    if each < 5 {
        put(buf, area, "F1 help  q ends", look.label(Color::Cyan));
        return;
    }
    for (index, name) in (0..).zip(FUNCTIONS) {
        let place = Rect { width: each, ..behind(area, each * index) };
        let number = index as u8 + 1;
        // Six columns have room for two digits, not for the F too.
        let key = if each == 6 && number == 10 { "10".to_owned() } else { format!("F{number}") };
        let rest = put(buf, place, &key, Style::new());
        let label = Rect { width: rest.width.saturating_sub(u16::from(each > 6)), ..rest };
        buf.set_style(label.intersection(buf.area), look.label(Color::Cyan));
        put(buf, label, name, look.label(Color::Cyan));
        top.hits.push((place, Target::Key(KeyCode::F(number))));
    }
}

/// A box in the middle, as high as its lines.
fn dialog(top: &mut Top, buf: &mut Buffer, area: Rect) {
    let look = top.look;
    let (title, lines, marked) = match &top.dialog {
        None | Some(Dialog::Filter(_)) => return,
        Some(Dialog::Help(from)) => {
            let lines = HELP.iter().skip(*from).map(|(keys, what)| match *keys {
                "" => format!("-- {what}"),
                keys => format!("{keys:<17} {what}"),
            });
            ("Keys (Esc goes back)", lines.collect::<Vec<_>>(), None)
        }
        Some(Dialog::Sort(index)) => {
            let names = SortKey::ALL.iter().map(|(_, name)| (*name).to_owned());
            ("Sort by (Enter)", names.collect(), Some(*index))
        }
        Some(Dialog::Priority(_, title, text)) => {
            let mut lines = wrapped(title, area.width.saturating_sub(6));
            lines.push(format!("Priority: {text}_"));
            lines.push("Enter: set  arrows: change  Esc: leave as it is".to_owned());
            ("Priority: higher is seated sooner", lines, None)
        }
        Some(Dialog::Confirm(text, choices)) => {
            let mut lines = wrapped(text, area.width.saturating_sub(6));
            let mut keys: Vec<&str> = choices.iter().map(|(_, label, _)| *label).collect();
            keys.push("any other key: no");
            lines.push(keys.join("   "));
            ("Are you sure?", lines, None)
        }
    };
    let widest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0).max(title.len());
    let width = u16::try_from(widest + 4).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let skip = marked.map_or(0, |index| (index + 3).saturating_sub(usize::from(height)));
    let blank = " ".repeat(usize::from(width));
    for y in 0..height {
        put(buf, row(place, y), &blank, Style::reset());
    }
    buf.set_style(row(place, 0), look.label(Color::Cyan));
    put(buf, row(place, 0), &format!(" {title}"), look.label(Color::Cyan));
    buf.set_style(row(place, height - 1), look.label(Color::Cyan));
    let inside = Rect { width: width.saturating_sub(4), ..behind(place, 2) };
    for (y, (index, line)) in (1..height.saturating_sub(1)).zip(lines.iter().enumerate().skip(skip))
    {
        let style = if marked == Some(index) { look.label(Color::Green) } else { Style::new() };
        put(buf, row(inside, y), line, style);
    }
}
