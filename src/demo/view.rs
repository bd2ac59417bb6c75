//! What runs now: a block redrawn in place on a terminal, a few lines every two seconds elsewhere.

use std::time::Duration;

use crate::cli::{Failure, Output};
use crate::units::BootTime;

/// Pause between two lines when nothing can be redrawn.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// The part of the screen that changes.
#[derive(Debug, Default)]
pub(super) struct View {
    drawn: usize,
    told_at: Option<BootTime>,
}

impl View {
    /// Shows `rows` under `title`.
    pub(super) fn show(
        &mut self,
        now: BootTime,
        title: &str,
        rows: &[String],
        out: &mut Output,
    ) -> Result<(), Failure> {
        if !out.can_redraw() {
            // What is over sooner needs no line of its own.
            if now.since(*self.told_at.get_or_insert(now)) < LINE_EVERY {
                return Ok(());
            }
            self.told_at = Some(now);
            out.line(format_args!("  {title}"))?;
            for row in rows {
                out.line(format_args!("    {row}"))?;
            }
            return Ok(out.flush()?);
        }
        self.clear(out)?;
        out.line(cut(&format!("  {title}"), out.width()))?;
        for row in rows {
            out.line(cut(&format!("    {row}"), out.width()))?;
        }
        self.drawn = rows.len() + 1;
        Ok(out.flush()?)
    }

    /// Takes the block away.
    pub(super) fn clear(&mut self, out: &mut Output) -> Result<(), Failure> {
        if self.drawn > 0 {
            // up to the first line of the block, then erase to the end of the screen
            out.text(format_args!("\u{1b}[{}F\u{1b}[J", self.drawn))?;
            self.drawn = 0;
        }
        Ok(())
    }
}

/// Names are ours, so characters are columns. One column short: a full line would wrap.
fn cut(text: &str, width: usize) -> String {
    let most = width.saturating_sub(1);
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_never_wrap() {
        assert_eq!(cut("short", 80), "short");
        assert_eq!(cut(&"x".repeat(80), 80).chars().count(), 79);
    }
}
