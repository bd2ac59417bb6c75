//! The terminal: taken over, drawn on, given back.
//!
//! The other screen is used, so what was there before is there again at the end, after a panic too. A picture is
//! written as the difference to the one before, in one piece between the marks of a synchronized update, which
//! terminals and tmux that know them show at once: nothing flickers. Of the mouse only clicks and the wheel are
//! asked for, since moves would wake this for nothing.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Stdout, Write as _, stdout};

use crossterm::terminal::{disable_raw_mode, enable_raw_mode, size};
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use ratatui_core::terminal::Terminal;

use crate::shell::Problem;
use crate::state::Top;
use crate::view;

/// Other screen, no cursor, clicks.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[?1006h";
/// The same back, and neutral colours.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?1006l\x1b[?1000l\x1b[?25h\x1b[?1049l";

/// Whether there is a terminal to draw on.
///
/// # Errors
/// There is none, or it cannot be drawn on.
pub fn usable() -> Result<(), Problem> {
    if !stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Problem::NoTerminal);
    }
    match std::env::var("TERM") {
        Ok(term) if !term.is_empty() && term != "dumb" => Ok(()),
        term => Err(Problem::NoCapabilities(term.unwrap_or_default())),
    }
}

/// The terminal while it is top's; dropped, it is as before.
pub struct Screen(Terminal<Ansi>);

impl Screen {
    /// Takes it over.
    ///
    /// # Errors
    /// It cannot be switched, or its size is not known.
    pub fn open() -> Result<Screen, Problem> {
        let failed = |error| Problem::Terminal("take over", error);
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        take_over().map_err(failed)?;
        let terminal = Terminal::new(Ansi { out: stdout(), text: String::new() });
        terminal.map(Screen).map_err(|error| {
            give_back();
            failed(error)
        })
    }

    /// Draws the state.
    ///
    /// # Errors
    /// The terminal does not take it.
    pub fn draw(&mut self, top: &mut Top) -> Result<(), Problem> {
        let drawn = self.0.draw(|frame| view::draw(top, frame.buffer_mut()));
        drawn.map(drop).map_err(|error| Problem::Terminal("draw on", error))
    }

    /// Takes it over anew, whatever others did to it, and forgets what is on it.
    ///
    /// # Errors
    /// It cannot be switched.
    pub fn renew(&mut self) -> Result<(), Problem> {
        let _ = disable_raw_mode();
        take_over()
            .and_then(|()| self.0.clear())
            .map_err(|error| Problem::Terminal("take over", error))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take_over() -> io::Result<()> {
    enable_raw_mode()?;
    let mut out = stdout().lock();
    out.write_all(ENTER)?;
    out.flush()
}

/// As it was before. There is nowhere to report that it failed.
pub fn give_back() {
    let mut out = stdout().lock();
    let _ = out.write_all(LEAVE).and_then(|()| out.flush());
    let _ = disable_raw_mode();
}

/// A terminal that takes the control sequences of ECMA-48, as all of today do.
struct Ansi {
    out: Stdout,
    /// What is to be written.
    text: String,
}

impl Backend for Ansi {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut next = None;
        let mut style = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                let _ = write!(self.text, "\x1b[{};{}H", u32::from(y) + 1, u32::from(x) + 1);
            }
            next = Some((x + 1, y));
            let wanted = (cell.fg, cell.bg, cell.modifier);
            if style != Some(wanted) {
                sgr(&mut self.text, wanted);
                style = Some(wanted);
            }
            self.text.push_str(cell.symbol());
        }
        if next.is_some() {
            self.text.push_str("\x1b[0m");
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        let text = format!("\x1b[?2026h{}\x1b[?2026l", self.text);
        self.text.clear();
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    fn clear(&mut self) -> io::Result<()> {
        self.text.push_str("\x1b[0m\x1b[2J");
        Ok(())
    }

    fn clear_region(&mut self, _: ClearType) -> io::Result<()> {
        self.clear()
    }

    fn size(&self) -> io::Result<Size> {
        size().map(|(width, height)| Size { width, height })
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::default() })
    }

    // The cursor is never shown, so where it is does not matter.
    fn hide_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::default())
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, _: P) -> io::Result<()> {
        Ok(())
    }
}

/// Select Graphic Rendition, from neutral on.
fn sgr(text: &mut String, (fg, bg, modifier): (Color, Color, Modifier)) {
    text.push_str("\x1b[0");
    let modifiers = [
        (Modifier::BOLD, ";1"),
        (Modifier::DIM, ";2"),
        (Modifier::UNDERLINED, ";4"),
        (Modifier::REVERSED, ";7"),
    ];
    for (one, code) in modifiers {
        if modifier.contains(one) {
            text.push_str(code);
        }
    }
    for (colour, base) in [(fg, 30), (bg, 40)] {
        let number = match colour {
            Color::Black => 0,
            Color::Red => 1,
            Color::Green => 2,
            Color::Yellow => 3,
            Color::Cyan => 6,
            // The view uses no others.
            _ => continue,
        };
        let _ = write!(text, ";{}", base + number);
    }
    text.push('m');
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set by the test below, which has a terminal for this one.
    const ON_A_TERMINAL: &str = "LRS_TOP_ON_A_TERMINAL";

    #[test]
    fn panics_on_a_terminal() {
        if std::env::var_os(ON_A_TERMINAL).is_none() {
            return;
        }
        let _screen = Screen::open().unwrap();
        panic!("for the test");
    }

    #[test]
    fn a_panic_is_read_on_the_terminal_as_it_was() {
        let own = std::env::current_exe().unwrap();
        let test = "screen::tests::panics_on_a_terminal --exact --nocapture";
        // script(1) runs it on a pseudo terminal and copies what is written there.
        let output = Command::new("script")
            .args([
                "-qec",
                &format!("{ON_A_TERMINAL}=1 '{}' {test}; stty -a", own.display()),
                "/dev/null",
            ])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let at = |wanted: &str| {
            text.find(wanted).unwrap_or_else(|| panic!("{wanted:?} is missing in {text:?}"))
        };
        let (enter, leave) = (str::from_utf8(ENTER).unwrap(), str::from_utf8(LEAVE).unwrap());
        assert!(at(enter) < at(leave) && at(leave) < at("for the test"), "{text:?}");
        assert!(at(" icanon") > 0 && at(" echo ") > 0 && !text.contains("-icanon"), "{text:?}");
    }

    #[test]
    fn a_picture_is_one_piece_and_names_a_style_once() {
        let mut ansi = Ansi { out: stdout(), text: String::new() };
        let cells: Vec<Cell> = ["a", "b", "c"].map(Cell::new).into();
        let mut bold = cells[2].clone();
        bold.set_style(ratatui_core::style::Style::new().fg(Color::Green));
        bold.modifier = Modifier::BOLD;
        let content = [(0, 0, &cells[0]), (1, 0, &cells[1]), (0, 2, &bold)];
        ansi.draw(content.into_iter()).unwrap();
        let wanted = "\x1b[1;1H\x1b[0mab\x1b[3;1H\x1b[0;1;32mc\x1b[0m";
        assert_eq!(ansi.text, wanted);
    }
}
