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
//! | warn | 4 | a promise is weaker than it was, or other software interferes |
//! | info | 6 | a few lines a day: start, stop, reload, drain, capacities, the all-clear |
//! | debug | 7 | what tasks and clients do |
//!
//! How much of it the journal takes is journald's to limit (`LogRateLimitIntervalSec=` and
//! `LogRateLimitBurst=` in `lrsd.service`, by priority): what a task or client can make the
//! daemon say must not fill the journal.
//!
//! No thread that logs waits for the reader of the log: a terminal that is stopped (Ctrl-S), a pipe that is
//! never emptied and a journald that hangs stop the thread `lrs-log` alone. Lines wait for it in memory
//! ([`queue`]); what finds no room there, or cannot be written, is counted, and reported by the log once it
//! flows again and by [`trouble`] until then. So the words of a panic go that way too. At the end [`flush`]
//! waits a moment for what is still on its way.
//!
//! A warning that comes again within a minute is counted, not repeated ([`repeats`]).
//!
//! Not tracing-appender, which has such a thread: it panics where the kernel refuses one, says nothing
//! of what it lost, and knows no journald.

mod journal;
mod queue;
mod repeats;

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::net::UnixDatagram;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use lrs_term::printable;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Registry, reload};

/// What the names of our own crates begin with; their messages say everything.
const OURS: &str = "lrs";

/// The lines under this are shown whatever is chosen: they say where the log has holes.
const MISSING: &str = "lrs_host::log::missing";

/// How long a daemon that ends waits for its last lines to get out, on a node with CPUs and disks
/// that are busy: two seconds are promised from the signal to the exit, and the servers may take one
/// of them.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// One log for the process, as there is one stderr and one subscriber.
static QUEUE: queue::Queue = queue::Queue::new();
static REPEATS: repeats::Repeats = repeats::Repeats::new();

/// There is a thread that writes; what it puts before a line of text that tells why the daemon ends.
static WRITER: OnceLock<&'static str> = OnceLock::new();

/// The running log.
#[derive(Clone)]
pub struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// What is wrong with the directives.
    #[error("{0}")]
    Directives(String),
    /// The kernel refused the thread that writes.
    #[error("cannot start the thread of the log: {0}")]
    Thread(#[source] io::Error),
}

impl Log {
    /// Starts logging what `directives` (`daemon.log`) choose, in the journal as `identifier`, and a
    /// thread that writes it. Only the first log of a process gets lines; daemons that share one
    /// (tests) share it.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(identifier: &str, directives: &str) -> Result<Log, StartError> {
        let filter = parse(directives).map_err(StartError::Directives)?;
        let (filter, handle) = reload::Layer::new(filter);
        if WRITER.get().is_some() {
            return Ok(Log { filter: handle });
        }
        let (sink, journal, complaint) = sink(identifier);
        start_writer(journal).map_err(StartError::Thread)?;
        let mark = if stderr_is_the_journal() { "<3>" } else { "" };
        // Two that start at the same time are two writers of one queue, which is well too.
        let _ = WRITER.set(mark);
        std::panic::set_hook(Box::new(|panic| write_last(&panic_text(panic))));
        let once = repeats::Once(&REPEATS);
        let started = tracing_subscriber::registry().with(filter).with(once).with(sink).try_init();
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

/// That lines were lost, how many and why, in a sentence for the operator; `None`: none was, or the
/// log itself has reported it since.
pub fn trouble() -> Option<String> {
    QUEUE.trouble()
}

/// Waits for what was logged to be written, a moment at most: whoever does not read must not keep the
/// process from its end.
pub fn flush() {
    if WRITER.get().is_some() {
        REPEATS.say(crate::clock::boot_time(), true);
        QUEUE.drain(FLUSH_WITHIN);
    }
}

/// Dropped, it calls [`flush`]: for whoever leaves by a panic too.
#[derive(Debug)]
pub struct FlushAtEnd;

impl Drop for FlushAtEnd {
    fn drop(&mut self) {
        flush();
    }
}

fn start_writer(journal: Option<UnixDatagram>) -> io::Result<()> {
    let write = move |line: &queue::Line| match (line, &journal) {
        (queue::Line::Journal(entry), Some(socket)) => journal::send(socket, entry),
        (queue::Line::Journal(text) | queue::Line::Text(text), _) => write_stderr(text),
    };
    let counts = || REPEATS.say(crate::clock::boot_time(), false);
    std::thread::Builder::new()
        .name("lrs-log".to_owned())
        .spawn(move || queue::write_all(&QUEUE, write, say_missing, repeats::AGAIN, counts))
        .map(drop)
}

/// That lines are missing, whatever an operator chose to see.
fn say_missing(lost: u64) {
    tracing::warn!(target: MISSING, lost, "{lost} lines of the log before this one were lost");
}

/// Past std's lock on stderr, which a line that waits would hold. Waits as long as need be, also where
/// another program has set the terminal or pipe that it shares with us not to.
fn write_stderr(mut text: &[u8]) -> io::Result<()> {
    let stderr = rustix::stdio::stderr();
    while !text.is_empty() {
        match rustix::io::write(stderr, text) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => text = &text[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None)?;
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn parse(directives: &str) -> Result<EnvFilter, String> {
    let filter = EnvFilter::builder().parse(directives).map_err(|error| error.to_string())?;
    // The longest target that fits decides.
    let always = format!("{MISSING}=warn").parse();
    Ok(filter.add_directive(always.map_err(|error| format!("{MISSING}: {error}"))?))
}

type Sink<S> = Box<dyn tracing_subscriber::Layer<S> + Send + Sync>;

/// The journal and its socket, or stderr; and why not the journal, where it should have been.
fn sink<S>(identifier: &str) -> (Sink<S>, Option<UnixDatagram>, Option<io::Error>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if !stderr_is_the_journal() {
        let colour = io::stderr().is_terminal();
        return (text(Text { time: true, priority: false }, colour), None, None);
    }
    match journal::socket() {
        Ok(socket) => {
            let journal = journal::Journal { identifier: identifier.to_owned(), queue: &QUEUE };
            (journal.boxed(), Some(socket), None)
        }
        // What is on stderr still gets there, and journald stamps it.
        Err(error) => (text(Text { time: false, priority: true }, false), None, Some(error)),
    }
}

fn text<S>(format: Text, colour: bool) -> Sink<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    tracing_subscriber::fmt::layer()
        .with_writer(|| Queued)
        .with_ansi(colour)
        .event_format(format)
        .boxed()
}

/// Takes a line of text, which the formatter writes in one go, into the queue.
struct Queued;

impl io::Write for Queued {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        QUEUE.push(queue::Line::Text(line.to_vec()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As std words it.
fn panic_text(panic: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let trace = std::backtrace::Backtrace::capture();
    let mut text = format!("thread '{}' {panic}", thread.name().unwrap_or("<unnamed>"));
    if trace.status() == std::backtrace::BacktraceStatus::Captured {
        text.push_str(&format!("\n{trace}"));
    }
    text
}

/// syslog(3)'s number of a level.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// Whether what is written to stderr ends in the journal: the variable may be inherited by a
/// process with another stderr, so the file is compared (systemd.exec(5)).
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
    if WRITER.get().is_some() {
        REPEATS.say(crate::clock::boot_time(), true);
        write_last(text);
    } else {
        write_lines(if stderr_is_the_journal() { "<3>" } else { "" }, text);
    }
}

/// For people, on stderr.
pub fn say(text: &str) {
    write_lines("", text);
}

/// A closed stderr is no reason to fail.
fn write_lines(mark: &str, text: &str) {
    let mut stderr = io::stderr().lock();
    for line in text.trim_end().lines() {
        let _ = writeln!(stderr, "{mark}{}", printable(line));
    }
}

/// The same, behind what was logged and without waiting.
fn write_last(text: &str) {
    let mark = WRITER.get().copied().unwrap_or_default();
    let lines = text.trim_end().lines().map(|line| format!("{mark}{}\n", printable(line)));
    QUEUE.push_last(queue::Line::Text(lines.collect::<String>().into_bytes()));
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
        let level = *event.metadata().level();
        let colour = match level {
            Level::ERROR => AnsiColor::Red,
            Level::WARN => AnsiColor::Yellow,
            Level::INFO => AnsiColor::Green,
            _ => AnsiColor::Blue,
        };
        if self.priority {
            write!(writer, "<{}>", priority(level))?;
        }
        if self.time {
            write!(writer, "{} ", crate::clock::now().wall)?;
        }
        let style = Style::new().fg_color(Some(colour.into()));
        let style = if writer.has_ansi_escapes() { style } else { Style::new() };
        write!(writer, "{style}{level:>5}{style:#} ")?;
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

    /// Counts what comes through.
    struct Count(std::sync::Arc<std::sync::atomic::AtomicUsize>);

    impl<S: Subscriber> tracing_subscriber::Layer<S> for Count {
        fn on_event(&self, _: &Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn that_lines_are_missing_is_said_whatever_is_chosen() {
        for directives in ["", "off", "error", "lrs_host=off", "lrs_host::log=off", "info,lrs=off"]
        {
            let said = std::sync::Arc::default();
            let count = Count(std::sync::Arc::clone(&said));
            let log = tracing_subscriber::registry().with(parse(directives).unwrap()).with(count);
            tracing::subscriber::with_default(log, || {
                say_missing(3);
                tracing::debug!("is not chosen");
            });
            assert_eq!(said.load(std::sync::atomic::Ordering::Relaxed), 1, "{directives:?}");
        }
    }

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
