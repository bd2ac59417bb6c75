//! How far the bench is, on stderr: a bar with the time left on a terminal, a line per run
//! elsewhere. It is drawn between runs, never during one.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::record::Run;
use lrs_term::say;
use tokio::time::Instant;

/// What is reported of the runs.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    all: usize,
    done: usize,
    begun: Instant,
}

impl Progress {
    /// Of so many runs.
    pub(super) fn new(all: usize) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(Some(all as u64), target);
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Progress { bar, all, done: 0, begun: Instant::now() }
    }

    /// What begins now.
    pub(super) fn begin(&mut self, load: &str, setting: &str, round: u32) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!(
                "{} left; round {}: {load}, {setting}",
                self.left().map_or_else(|| "?".to_owned(), words),
                round + 1
            ));
        }
    }

    /// What it brought.
    pub(super) fn end(&mut self, run: &Run) {
        self.done += 1;
        let brought = match (run.makespan_seconds, run.faults.first()) {
            (_, Some(fault)) => format!("failed: {fault}"),
            (Some(seconds), None) => format!("{seconds:.2} s"),
            (None, None) => format!("{:.2} s", run.lasted_seconds),
        };
        match &self.bar {
            Some(bar) => {
                if !run.faults.is_empty() {
                    bar.println(format!("{}, {}: {brought}", run.load, run.setting));
                }
                bar.set_position(self.done as u64);
            }
            None => say(format_args!(
                "[{}/{}] round {}: {}, {}: {brought}; {} left",
                self.done,
                self.all,
                run.round + 1,
                run.load,
                run.setting,
                self.left().map_or_else(|| "?".to_owned(), words)
            )),
        }
    }

    /// At the pace so far, what is done between the runs included.
    fn left(&self) -> Option<Duration> {
        let passed = self.begun.elapsed();
        let each = passed.checked_div(u32::try_from(self.done).ok()?)?;
        each.checked_mul(u32::try_from(self.all - self.done).ok()?)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// `2 h 5 min`, `5 min`, `40 s`
fn words(left: Duration) -> String {
    let seconds = left.as_secs();
    match (seconds / 3_600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{} min", minutes + 1),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}
