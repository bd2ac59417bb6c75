//! The report as text for people.

use std::fmt::Write;

use anstyle::{AnsiColor, Color, Style};

use super::{Check, Report, Verdict};

/// Columns of the verdict, the longest of which is "unknown".
const VERDICT: usize = 7;

/// Fewest columns that leave room for text beside the names.
const NARROWEST: usize = 40;

/// See [`Report::render`].
pub(super) fn render(report: &Report, width: usize, colour: bool) -> String {
    let mut out = checks(report, width, colour);
    let count = |verdict| report.checks.iter().filter(|check| check.verdict == verdict).count();
    let word = paint(report.verdict, report.verdict.word(), colour);
    let _ = writeln!(
        out,
        "\n{word}: {} ok, {} unknown, {} warn, {} fail",
        count(Verdict::Ok),
        count(Verdict::Unknown),
        count(Verdict::Warn),
        count(Verdict::Fail)
    );
    out
}

/// The checks alone. Widths are counted in characters.
pub(super) fn checks(report: &Report, width: usize, colour: bool) -> String {
    let width = width.max(NARROWEST);
    // Disks are named by their drivers; a very long name must not squeeze the text.
    let longest = report.checks.iter().map(|check| check.id.chars().count()).max().unwrap_or(0);
    let names = longest.min((width / 3).clamp(16, 24));
    let indent = VERDICT + 2 + names + 2;
    let mut out = String::new();
    for check in &report.checks {
        let lines = body(check, width - indent);
        for (index, line) in lines.iter().enumerate() {
            if index == 0 {
                let word = paint(check.verdict, check.verdict.word(), colour);
                let pad = " ".repeat(VERDICT - check.verdict.word().len());
                let id: String = check.id.chars().take(names).collect();
                // Writing to a String cannot fail.
                let _ = writeln!(out, "{word}{pad}  {id:names$}  {line}");
            } else {
                let _ = writeln!(out, "{:indent$}{line}", "");
            }
        }
    }
    out
}

/// What was found and what to do, wrapped to `width`.
fn body(check: &Check, width: usize) -> Vec<String> {
    let mut lines: Vec<String> =
        check.found.lines().flat_map(|line| wrap(line, width, "")).collect();
    if lines.is_empty() {
        lines.push(String::new());
    }
    if let Some(remedy) = &check.remedy {
        lines.extend(wrap(remedy, width, "-> "));
    }
    lines
}

/// Words of `text` in lines of at most `width` characters; the first line starts with `lead`,
/// the others with as many blanks. Words longer than a line are cut.
fn wrap(text: &str, width: usize, lead: &str) -> Vec<String> {
    let lead_width = lead.chars().count();
    let room = width - lead_width;
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let mut letters: Vec<char> = word.chars().filter(|c| !c.is_control()).collect();
        if used > 0 && used + 1 + letters.len() > room {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        while letters.len() > room {
            let rest = letters.split_off(room);
            lines.push(letters.into_iter().collect());
            letters = rest;
        }
        used += letters.len();
        line.extend(letters);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
        .into_iter()
        .enumerate()
        .map(
            |(index, line)| {
                if index == 0 {
                    format!("{lead}{line}")
                } else {
                    format!("{:lead_width$}{line}", "")
                }
            },
        )
        .collect()
}

fn paint(verdict: Verdict, word: &str, colour: bool) -> String {
    if !colour {
        return word.to_owned();
    }
    let colour = match verdict {
        Verdict::Ok => AnsiColor::Green,
        Verdict::Unknown => AnsiColor::Cyan,
        Verdict::Warn => AnsiColor::Yellow,
        Verdict::Fail => AnsiColor::Red,
    };
    let style = Style::new().fg_color(Some(Color::Ansi(colour))).bold();
    format!("{style}{word}{style:#}")
}
