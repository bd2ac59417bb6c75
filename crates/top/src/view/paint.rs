//! Brushes: text that stays inside its area, bars, sparklines, columns.
//!
//! Whatever has a colour has a character of its own too, so nothing is lost without colours.

use lrs_term::figures::{brief_rate, known};
use lrs_term::printable;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use crate::state::Look;

/// What parts of a bar are drawn with: tasks or used, others or reserved, iowait.
pub const GLYPHS: [char; 3] = ['#', '+', '~'];

/// Their colours.
pub const COLOURS: [Color; 3] = [Color::Green, Color::Cyan, Color::Yellow];

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII_LEVELS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

impl Look {
    /// In a colour, if there are colours.
    pub fn paint(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// Black on a colour, or reversed.
    pub fn label(self, colour: Color) -> Style {
        if self.colour {
            Style::new().fg(Color::Black).bg(colour)
        } else {
            Style::new().add_modifier(Modifier::REVERSED)
        }
    }

    /// What is less important.
    pub fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// What is more important.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn levels(self) -> [char; 8] {
        if self.ascii { ASCII_LEVELS } else { LEVELS }
    }
}

/// The row `y` of `area`, counted from its top; empty where there is none.
pub fn row(area: Rect, y: u16) -> Rect {
    let height = u16::from(y < area.height);
    Rect { y: area.y.saturating_add(y), height, ..area }
}

/// What is left of `area` behind its first `columns`.
pub fn behind(area: Rect, columns: u16) -> Rect {
    let columns = columns.min(area.width);
    Rect { x: area.x + columns, width: area.width - columns, ..area }
}

/// Text on the first row of `area`, cut at its end; answers what is left of the row.
pub fn put(buf: &mut Buffer, area: Rect, text: &str, style: Style) -> Rect {
    let area = area.intersection(buf.area);
    if area.is_empty() {
        return area;
    }
    let (x, _) = buf.set_stringn(area.x, area.y, text, usize::from(area.width), style);
    behind(area, x.saturating_sub(area.x))
}

/// The same to the right.
pub fn put_right(buf: &mut Buffer, area: Rect, text: &str, style: Style) {
    let width = u16::try_from(text.chars().count()).unwrap_or(u16::MAX);
    put(buf, behind(area, area.width.saturating_sub(width)), text, style);
}

/// `1.5M/s`
pub fn per_second(rate: Option<f64>) -> String {
    known(rate, |rate| format!("{}/s", brief_rate(Some(rate))))
}

/// Text of others, in lines that fit, broken at words.
pub fn wrapped(text: &str, width: u16) -> Vec<String> {
    let text = lrs_term::wrap("", 0, &printable(text), usize::from(width.max(1)));
    text.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// `[####++~~    text]`: parts of 1, each with its glyph.
pub fn bar(buf: &mut Buffer, area: Rect, parts: &[Option<f64>], text: &str, look: Look) {
    if area.width < 3 {
        return;
    }
    put(buf, area, "[", look.strong());
    let inner = Rect { width: area.width - 2, ..behind(area, 1) };
    put(buf, behind(area, area.width - 1), "]", look.strong());
    let (mut sum, mut from) = (0.0, 0);
    for (index, part) in parts.iter().enumerate() {
        sum += part.unwrap_or(0.0).clamp(0.0, 1.0);
        let to = (sum.min(1.0) * f64::from(inner.width)).round() as u16;
        let glyph = GLYPHS[index % GLYPHS.len()].to_string();
        let style = look.paint(COLOURS[index % COLOURS.len()]);
        for x in from..to {
            put(buf, Rect { width: 1, ..behind(inner, x) }, &glyph, style);
        }
        from = from.max(to);
    }
    put_right(buf, inner, &format!(" {text}"), look.strong());
}

/// A line of levels, the last one at the right end; a blank for what is not known.
pub fn spark(values: &[Option<f64>], most: f64, look: Look) -> String {
    let level = |value: &Option<f64>| match value {
        // A bit above 0 shows.
        Some(value) if *value > 0.0 && most > 0.0 => {
            look.levels()[((value / most * 8.0).ceil() as usize).clamp(1, 8) - 1]
        }
        Some(_) => look.levels()[0],
        None => ' ',
    };
    values.iter().map(level).collect()
}

/// Columns over the whole of `area`, the last one at its right end. Several layers are drawn one on the
/// other, each with its glyph; a single one with levels.
pub fn columns(buf: &mut Buffer, area: Rect, layers: &[Vec<Option<f64>>], most: f64, look: Look) {
    let height = f64::from(area.height);
    let count = layers.iter().map(Vec::len).max().unwrap_or(0).min(usize::from(area.width));
    for column in 0..count {
        let back = u16::try_from(count - column).unwrap_or(u16::MAX);
        let x = behind(area, area.width.saturating_sub(back));
        let part = |layer: &Vec<Option<f64>>| {
            let index = (layer.len() + column).checked_sub(count)?;
            *layer.get(index)?
        };
        for y in 0..area.height {
            let bottom = f64::from(area.height - 1 - y);
            let cell = Rect { width: 1, ..row(x, y) };
            if let [layer] = layers {
                let full = part(layer).map(|value| value / most * height - bottom);
                if let Some(full) = full.filter(|full| *full > 0.0 || bottom == 0.0) {
                    let text = spark(&[Some(full.clamp(0.0, 1.0))], 1.0, look);
                    put(buf, cell, &text, look.paint(COLOURS[0]));
                }
                continue;
            }
            let mut sum = 0.0;
            for (index, layer) in layers.iter().enumerate() {
                sum += part(layer).unwrap_or(0.0) / most * height;
                if sum >= bottom + 0.5 {
                    let glyph = GLYPHS[index % GLYPHS.len()].to_string();
                    put(buf, cell, &glyph, look.paint(COLOURS[index % COLOURS.len()]));
                    break;
                }
            }
        }
    }
}
