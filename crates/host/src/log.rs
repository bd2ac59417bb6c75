//! Where a daemon's log goes, and in which form.
//!
//! When stderr is the journal (`JOURNAL_STREAM`, systemd.exec(5)), lines go to journald by its
//! own protocol, with fields: `LRS_TASK`, `LRS_JOB`, `LRS_KIND`, `LRS_TIER`, `LRS_REASON`,
//! `LRS_EVENT`, `LRS_SEQ` and every other field of a line, each with `LRS_` before its name.
//! Elsewhere, and where journald cannot be reached that way, text goes to stderr. Each message
//! is a whole sentence with all that a person needs; the fields repeat it for programs, so text
//! leaves them out.
//!
//! What the levels mean, at 3 a.m.:
//!
//! | level | priority | meaning |
//! |---|---|---|
//! | error | 3 | a promise or the daemon is broken; an operator has to act |
//! | warn | 4 | a promise is weaker than it was, or somebody interferes |
//! | info | 6 | a few lines a day: start, stop, reload, drain, capacities, the all-clear |
//! | debug | 7 | what tasks and clients do |
//!
//! How much of it the journal takes is journald's to limit (`LogRateLimitIntervalSec=` and
//! `LogRateLimitBurst=` in `lrsd.service`, by priority): what a task or client can make the
//! daemon say must not fill the journal.
//!
//! Limits. Writing waits: for a terminal that is stopped, for a pipe without a reader, for a
//! journald that hangs with its queue full. Text on stderr has no limit.

use std::ffi::OsStr;
use std::fmt;
use std::io::{IsTerminal as _, Write as _};

use anstyle::{AnsiColor, Style};
use lrs_term::printable;
use tracing::{Event, Level, Subscriber};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Registry, reload};

/// What the names of our own crates begin with; their messages say everything.
const OURS: &str = "lrs";

/// The running log.
#[derive(Clone)]
pub struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
}

impl Log {
    /// Starts logging what `directives` (`daemon.log`) choose, in the journal as `identifier`. Only the first log of a process
    /// gets lines; daemons that share one (tests) share it.
    ///
    /// # Errors
    /// What is wrong with `directives`.
    pub fn start(identifier: &str, directives: &str) -> Result<Log, String> {
        let (filter, handle) = reload::Layer::new(parse(directives)?);
        let (sink, complaint) = sink(identifier);
        let started = tracing_subscriber::registry().with(filter).with(sink).try_init();
        if let (Ok(()), Some(error)) = (started, complaint) {
            tracing::warn!(%error, "journald takes no structured lines ({error}): the log is text");
        }
        Ok(Log { filter: handle })
    }

    /// Chooses anew.
    ///
    /// # Errors
    /// What is wrong with `directives`; the old choice stays.
    pub fn reload(&self, directives: &str) -> Result<(), String> {
        self.filter.reload(parse(directives)?).map_err(|error| error.to_string())
    }
}

fn parse(directives: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(directives).map_err(|error| error.to_string())
}

type Sink<S> = Box<dyn tracing_subscriber::Layer<S> + Send + Sync>;

/// The journal, or stderr; and why not the journal, where it should have been.
fn sink<S>(identifier: &str) -> (Sink<S>, Option<std::io::Error>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if !stderr_is_the_journal() {
        let colour = std::io::stderr().is_terminal();
        return (text(Text { time: true, priority: false }, colour), None);
    }
    match tracing_journald::layer() {
        Ok(journal) => {
            let journal = journal
                .with_syslog_identifier(identifier.to_owned())
                .with_field_prefix(Some("LRS".to_owned()))
                .with_priority_mappings(PriorityMappings {
                    info: Priority::Informational,
                    debug: Priority::Debug,
                    ..PriorityMappings::new()
                });
            (journal.boxed(), None)
        }
        // What is on stderr still gets there, and journald stamps it.
        Err(error) => (text(Text { time: false, priority: true }, false), Some(error)),
    }
}

fn text<S>(format: Text, colour: bool) -> Sink<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colour)
        .event_format(format)
        .boxed()
}

/// Whether what is written to stderr ends in the journal: the variable may be inherited by a
/// process whose stderr is something else, so the file is compared (systemd.exec(5)).
fn stderr_is_the_journal() -> bool {
    let Some(stream) = std::env::var_os("JOURNAL_STREAM") else { return false };
    // A stderr that cannot be looked at is no stream of journald's.
    rustix::fs::fstat(std::io::stderr()).is_ok_and(|stat| names(&stream, stat.st_dev, stat.st_ino))
}

/// `JOURNAL_STREAM` is device and inode, in decimal, with a colon between.
fn names(stream: &OsStr, device: u64, inode: u64) -> bool {
    let Some((dev, ino)) = stream.to_str().and_then(|text| text.split_once(':')) else {
        return false;
    };
    dev.parse() == Ok(device) && ino.parse() == Ok(inode)
}

/// What ends the daemon, on stderr, whether or not there is a log yet.
pub fn last_words(text: &str) {
    write_lines(if stderr_is_the_journal() { "<3>" } else { "" }, text);
}

/// For people, on stderr.
pub fn say(text: &str) {
    write_lines("", text);
}

/// A closed stderr is no reason to fail.
fn write_lines(mark: &str, text: &str) {
    let mut stderr = std::io::stderr().lock();
    for line in text.trim_end().lines() {
        let _ = writeln!(stderr, "{mark}{}", printable(line));
    }
}

/// One line of text for each event.
struct Text {
    /// Put the time before it.
    time: bool,
    /// Put the priority before it, as sd-daemon(3) has it: `<4>`.
    priority: bool,
}

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (priority, colour) = match *event.metadata().level() {
            Level::ERROR => (3, AnsiColor::Red),
            Level::WARN => (4, AnsiColor::Yellow),
            Level::INFO => (6, AnsiColor::Green),
            _ => (7, AnsiColor::Blue),
        };
        if self.priority {
            write!(writer, "<{priority}>")?;
        }
        if self.time {
            write!(writer, "{} ", crate::clock::now().wall)?;
        }
        let style = Style::new().fg_color(Some(colour.into()));
        let style = if writer.has_ansi_escapes() { style } else { Style::new() };
        write!(writer, "{style}{:>5}{style:#} ", event.metadata().level())?;
        let target = event.metadata().target();
        if target.starts_with(OURS) {
            event.record(&mut Message(&mut writer));
        } else {
            context.format_fields(writer.by_ref(), event)?;
        }
        writeln!(writer)
    }
}

/// Writes the message and no other field.
struct Message<'a, 'w>(&'a mut Writer<'w>);

impl tracing::field::Visit for Message<'_, '_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to the formatter's buffer, which cannot fail.
            for (index, line) in format!("{value:?}").split('\n').enumerate() {
                let line_break = if index == 0 { "" } else { "\n" };
                let _ = write!(self.0, "{line_break}{}", printable(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_known_by_its_stream() {
        let names = |stream: &str| names(OsStr::new(stream), 8, 4711);
        assert!(names("8:4711"));
        for stream in ["", "8", "8:", ":4711", "9:4711", "8:4712", "8:4711:", "0x8:4711", "8 4711"]
        {
            assert!(!names(stream), "{stream:?}");
        }
    }
}
