//! Data to stdout, talk to stderr.
//!
//! Names come from other users of the node, so nothing of theirs reaches a terminal before
//! [`printable`] made it harmless, and JSON is escaped as far. Colour
//! is left to anstream: only on a terminal, and not with NO_COLOR.

use std::borrow::Cow;
use std::fmt::{Arguments, Write as _};
use std::io::{BufWriter, IsTerminal, Write};
use std::sync::OnceLock;

use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};
use serde::Serialize;

use crate::Failure;

/// Width when stdout is no terminal.
const WIDTH: usize = 80;

/// The least that is laid out for; narrower terminals break lines themselves.
const LEAST_WIDTH: usize = 40;

/// Where the data of a command goes.
pub struct Output {
    to: Box<dyn Write>,
    json: bool,
    width: usize,
    terminal: bool,
    /// Tables are cut to it.
    table_width: Option<usize>,
}

impl Output {
    /// stdout.
    pub fn stdout(json: bool) -> Output {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        let columns = rustix::termios::tcgetwinsize(&stdout)
            .map_or(WIDTH, |size| usize::from(size.ws_col).max(LEAST_WIDTH));
        Output {
            to: Box::new(BufWriter::new(anstream::AutoStream::auto(stdout))),
            json,
            width: columns,
            terminal,
            table_width: terminal.then_some(columns),
        }
    }

    /// A plain one of 80 columns that keeps what is printed, for tests.
    pub fn captured(json: bool) -> (Output, Captured) {
        let captured = Captured::default();
        let to = Box::new(captured.clone());
        let (width, table_width) = (WIDTH, Some(WIDTH));
        (Output { to, json, width, terminal: false, table_width }, captured)
    }

    /// Whether JSON is wanted.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Whether lines can be drawn anew: on a terminal that takes escape sequences.
    pub fn can_redraw(&self) -> bool {
        self.terminal && self.has_colour()
    }

    /// Whether escape sequences reach the reader (NO_COLOR, TERM=dumb, a pipe: they do not).
    pub fn has_colour(&self) -> bool {
        anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
    }

    /// Columns of a line.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Columns at which a line has to break; `None`: it may be as long as it is, for it is not read
    /// on a terminal.
    pub fn breaks_at(&self) -> Option<usize> {
        self.terminal.then_some(self.width)
    }

    /// One line.
    pub fn line(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        Ok(writeln!(self.to, "{text}")?)
    }

    /// Text without a final newline of its own, such as a cursor movement.
    pub fn text(&mut self, text: impl std::fmt::Display) -> Result<(), Failure> {
        Ok(write!(self.to, "{text}")?)
    }

    /// `value` as indented JSON on a terminal and on one line elsewhere.
    pub fn json<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        if !self.terminal {
            return self.json_line(value);
        }
        let json = serde_json::to_string_pretty(value).map_err(std::io::Error::from)?;
        self.line(harmless(json))
    }

    /// `value` as JSON on one line, for streams.
    pub fn json_line<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        let json = serde_json::to_string(value).map_err(std::io::Error::from)?;
        self.line(harmless(json))
    }

    /// Everything out now: streams, and before the end.
    pub fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }

    /// A table, each cell on one line. On a terminal it fits the width, and `elastic` columns give
    /// way; elsewhere nothing is cut, for who reads there searches.
    pub fn table(&mut self, table: &Columns) -> Result<(), Failure> {
        let text = table.render(self.table_width);
        self.line(text)
    }
}

/// What was printed to [`Output::captured`].
#[derive(Clone, Default)]
pub struct Captured(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

impl Captured {
    /// So far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.borrow()).into_owned()
    }
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Prints one line on stderr. There is nowhere to report that it failed.
pub fn say(text: Arguments<'_>) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Prints the lines of `text` on stderr, each made [`printable`].
pub fn say_lines(text: &str) {
    for line in text.trim_end().split('\n') {
        say(format_args!("{}", printable(line)));
    }
}

/// `text` with everything that could steer a terminal spelt out: control characters (C0, DEL,
/// C1), the marks and overrides of direction, which can reorder a line, and what has no width
/// (joiners, fillers, tags), which makes two names look like one. A terminal without UTF-8 gets
/// ASCII: it would take the second byte of an \u{11b} for the beginning of an escape sequence.
pub fn printable(text: &str) -> Cow<'_, str> {
    spelt_out(text, if takes_ascii_only() { beyond_ascii } else { steers })
}

fn spelt_out(text: &str, unsafe_here: fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(unsafe_here) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            // What lrsd makes of a byte of a name that is no UTF-8.
            '\u{10ff80}'..='\u{10ffff}' => {
                let _ = write!(safe, "\\x{:02x}", u32::from(c) & 0xff);
            }
            c if unsafe_here(c) => safe.extend(c.escape_default()),
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// Whether what is printed may reach a terminal that has no UTF-8.
pub fn takes_ascii_only() -> bool {
    static ASCII_ONLY: OnceLock<bool> = OnceLock::new();
    *ASCII_ONLY.get_or_init(|| {
        let terminal = std::io::stdout().is_terminal() || std::io::stderr().is_terminal();
        terminal && !speaks_utf8()
    })
}

fn beyond_ascii(c: char) -> bool {
    c.is_control() || !c.is_ascii()
}

/// Besides controls: Unicode's Default_Ignorable_Code_Point, which is what is drawn as nothing and
/// what sets the direction, and what breaks lines or annotates them.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
            | '\u{10ff80}'..='\u{10ffff}')
}

/// JSON with what steers a terminal escaped, which reads as the same text. serde escapes C0 only;
/// the line breaks left are those between the values.
fn harmless(json: String) -> String {
    escaped(json, if takes_ascii_only() { beyond_ascii } else { steers })
}

fn escaped(json: String, unsafe_here: fn(char) -> bool) -> String {
    let beyond = |c: char| c != '\n' && unsafe_here(c);
    if !json.contains(beyond) {
        return json;
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if beyond(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(c);
        }
    }
    safe
}

/// How a column is aligned in its cell, and whether it may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Words, never cut.
    Text,
    /// Figures, to the right, never cut.
    Figure,
    /// Words that may be cut to at least this many columns when the line is full.
    Elastic(u16),
}

/// A table without lines: what `grep`, `awk` and tired eyes read best.
pub struct Columns {
    kinds: Vec<Column>,
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    headless: bool,
}

impl Columns {
    /// A table of these columns.
    pub fn new(columns: &[(&'static str, Column)]) -> Columns {
        Columns {
            kinds: columns.iter().map(|(_, kind)| *kind).collect(),
            heads: columns.iter().map(|(head, _)| *head).collect(),
            rows: Vec::new(),
            headless: false,
        }
    }

    /// Without the line of column names.
    pub fn without_heads(mut self) -> Columns {
        self.headless = true;
        self
    }

    /// One row, a cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell).into_owned()).collect());
    }

    /// The lines, none wider than `width` as long as the columns that are never cut fit. Nothing is
    /// cut without a width.
    pub fn render(&self, width: Option<usize>) -> String {
        let airy = self.lay_out(width, 2);
        let fits = |width| airy.lines().all(|line| line.chars().count() <= width);
        if width.is_none_or(fits) { airy } else { self.lay_out(width, 1) }
    }

    fn lay_out(&self, width: Option<usize>, gap: u16) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        match width {
            Some(width) => table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_truncation_indicator(if speaks_utf8() { "…" } else { "~" })
                .set_width(u16::try_from(width).unwrap_or(u16::MAX)),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        if !self.headless {
            table.set_header(self.heads.clone());
        }
        for row in &self.rows {
            let mut row = comfy_table::Row::from(row.clone());
            row.max_height(1);
            table.add_row(row);
        }
        let last = self.kinds.len().saturating_sub(1);
        for (index, kind) in self.kinds.iter().enumerate() {
            let Some(column) = table.column_mut(index) else { continue };
            column.set_padding((0, if index == last { 0 } else { gap }));
            if *kind == Column::Figure {
                column.set_cell_alignment(comfy_table::CellAlignment::Right);
            }
            column.set_constraint(match kind {
                Column::Text | Column::Figure => ColumnConstraint::ContentWidth,
                Column::Elastic(least) => ColumnConstraint::LowerBoundary(Width::Fixed(*least)),
            });
        }
        let mut text = String::new();
        for line in table.lines() {
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// Whether the reader's locale takes more than ASCII (locale(7): the first of these that is set).
fn speaks_utf8() -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let locale = names.iter().filter_map(std::env::var_os).find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// `text` broken at spaces to `width` columns, the first line after `first`, the others
/// indented to `indent`. Counts characters: reasons are written by us, in plain English.
pub fn wrap(first: &str, indent: usize, text: &str, width: usize) -> String {
    let text = printable(text);
    let mut lines = format!("{first:indent$}");
    let mut column = lines.chars().count();
    let mut empty = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !empty && column + 1 + length > width {
            lines.push('\n');
            lines.extend(std::iter::repeat_n(' ', indent));
            column = indent;
            empty = true;
        }
        if !empty {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
        empty = false;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_steers_the_terminal() {
        let safe = |text| spelt_out(text, steers).into_owned();
        assert_eq!(safe("plain ü 日本"), "plain ü 日本");
        assert_eq!(safe("a\u{1b}[2Jb\nc\u{9b}d\u{202e}"), "a\\u{1b}[2Jb\\nc\\u{9b}d\\u{202e}");
    }

    #[test]
    fn what_has_no_width_is_spelt_out() {
        let none = "\u{ad}\u{34f}\u{61c}\u{1160}\u{180e}\u{200b}\u{200d}\u{2060}\u{2063}\u{206a}\
                    \u{3164}\u{fe0f}\u{feff}\u{ffa0}\u{fffb}\u{1d173}\u{e0000}\u{e0041}\u{e007f}\u{e0100}";
        for c in none.chars() {
            let safe = format!("a\\u{{{:x}}}b", u32::from(c));
            assert_eq!(spelt_out(&format!("a{c}b"), steers), safe);
        }
        let faces = "e\u{301} \u{1f600}";
        assert_eq!(spelt_out(faces, steers), faces, "accents and faces");
    }

    #[test]
    fn without_utf8_nothing_but_ascii_is_left() {
        // On an 8-bit terminal the second byte of this letter is CSI.
        assert_eq!("\u{11b}".as_bytes()[1], 0x9b);
        assert_eq!(spelt_out("a\u{11b}2J ü\n", beyond_ascii), "a\\u{11b}2J \\u{fc}\\n");
        let json = escaped("\"a\u{11b}\u{1f600}\"".to_owned(), beyond_ascii);
        assert_eq!(json, "\"a\\u011b\\ud83d\\ude00\"");
    }

    #[test]
    fn json_is_harmless_and_means_the_same() {
        let name = "\u{1b}[2J\u{9b}d\u{7f}\u{202e}\u{e0041} ü";
        let (mut out, captured) = Output::captured(true);
        out.json(&name).unwrap();
        let text = captured.text();
        assert!(!text.trim_end().contains(steers), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), name);
    }

    #[test]
    fn wrapped_text_keeps_to_its_columns() {
        let text = wrap("why", 6, &"word ".repeat(40), 30);
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
        assert!(text.starts_with("why   word"));
        assert!(text.lines().skip(1).all(|line| line.starts_with("      word")));
        assert_eq!(text.matches("word").count(), 40);
    }

    #[test]
    fn tables_cut_what_may_be_cut_and_nothing_else() {
        let mut table = Columns::new(&[
            ("ID", Column::Text),
            ("N", Column::Figure),
            ("NAME", Column::Elastic(8)),
        ]);
        table.row(vec!["t0000000-123456".into(), "7".into(), "long ".repeat(50)]);
        table.row(vec!["t0000000-1".into(), "12345".into(), "日本語".repeat(40)]);
        table.row(vec!["t0000000-2".into(), "1".into(), "two\nlines".into()]);
        let text = table.render(Some(80));
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("t0000000-123456") && text.contains(['…', '~']), "{text}");
        let whole = table.without_heads().render(None);
        assert_eq!(whole.lines().count(), 3, "{whole}");
        assert!(whole.contains("long ".repeat(50).trim_end()), "{whole}");
    }
}
