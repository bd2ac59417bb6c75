//! `lrsctl run --each`: a task for each argument.
//!
//! Each task is a child that runs `lrsctl run --wait`, so that there is one way to become a task.
//! At any time there are only as many children as the node can run at once, and a few that wait.
//! Of the other arguments 10,000 are read ahead, so that a million of them need no memory; the time left is
//! shown once all are read.
//!
//! A child that waits holds one end of a socket (`--parent`). It gives up when this process closes
//! the other end or ends: so each request either ends or becomes a task. Through the same socket a
//! child reports that it has a slot, and whether it is one of its own or that of the task it runs in. A task
//! has one slot, so that one line runs at a time there; until that is known only the first child runs.
//! Children are in process groups of their own: Ctrl-C reaches this process alone, which then decides.
//!
//! A limit of time is timeout(1)'s, in front of the command: it begins with the slot, and what it ends has
//! the status 124.

mod joblog;
mod list;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt::Arguments;
use std::io::ErrorKind::{ArgumentListTooLong, InvalidInput};
use std::io::{IsTerminal as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::admit::{QUEUED, say_waiting};
use super::args::{RunArgs, SlotArgs};
use super::client::{Lrsd, ask};
use super::exec::Program;
use super::failure::{Exit, Failure, Purpose};
use super::output::{printable, say};
use super::show::age;
use crate::units::{Moment, WallTime};
use crate::{clock, proto};
use joblog::JobLog;
use list::{arguments, command_of};

/// Children that wait beside those that the node can run, so that a free slot is taken at once.
const AHEAD: u32 = 4;
/// Children without a slot at any time: each holds a connection, of which a user has a quota.
const WAITING: usize = 64;
/// Failures that the summary names.
const NAMED: usize = 10;
/// Characters of an argument in there.
const SHOWN: usize = 200;
/// How long after Ctrl-C requests may take to give up.
const GIVE_UP: Duration = Duration::from_secs(2);
/// How long the others wait for the first to report the slot that they would use too. An lrsd that has
/// to search for the task that this runs in takes less.
const FIRST_ALONE: Duration = Duration::from_secs(10);
/// Between SIGTERM and SIGKILL of a task that is over its limit of time.
const KILL_AFTER: &str = "5";

/// `lrsctl run --each ARG... -- CMD`
pub(super) fn each(lrsd: &Lrsd, args: &RunArgs) -> Result<(), Failure> {
    // Not found is reported once, and not by each child.
    let path = std::env::var_os("PATH");
    Program::find(&args.command, path.as_deref())?;
    let limit = args.time_limit.map(|limit| limit.as_secs_f64().to_string());
    let limit = limit.map(|limit| ["timeout", "-k", KILL_AFTER, &limit].map(OsString::from));
    if let Some(limit) = &limit {
        Program::find(limit, path.as_deref())?;
    }
    let log = args.joblog.as_ref().map(|file| JobLog::open(file, args.resume)).transpose()?;
    let status = ask(lrsd, Purpose::ForSlot, |mut lrsd| async move {
        lrsd.get_status(proto::GetStatusRequest {}).await.map(tonic::Response::into_inner)
    })?;
    let slots = status.slots.unwrap_or_default();
    let most = slots
        .active
        .map_or(1, |active| active.capacity)
        .saturating_add(slots.passive.map_or(1, |passive| passive.max))
        .saturating_add(AHEAD);
    super::runtime()?.block_on(async {
        let mut batch = Batch::new(lrsd, args, most as usize)?;
        (batch.limit, batch.log) = (limit.into_iter().flatten().collect(), log);
        batch.run(arguments(args.each.clone().unwrap_or_default())?).await?;
        batch.summary()
    })
}

/// An argument, its number and the attempts so far.
struct Line {
    index: u64,
    argument: OsString,
    attempts: u32,
}

/// A child and the line it is for.
struct Running {
    child: Child,
    line: Line,
    /// When it had its slot; `None`: that is not known.
    since: Option<WallTime>,
}

/// Which slots the children use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slots {
    /// Not known yet.
    Unknown,
    /// Each has one of its own.
    Own,
    /// That of the task in which all of this runs.
    Outer,
}

struct Batch<'a> {
    args: &'a RunArgs,
    endpoint: String,
    most: usize,
    /// Of all tasks: the index is behind it.
    name: String,
    slots: Slots,
    running: Vec<Running>,
    /// Lines to attempt once more.
    again: VecDeque<Line>,
    /// What limits the time of a task, in front of its command.
    limit: Vec<OsString>,
    log: Option<JobLog>,
    begun: Moment,
    /// The children's end of the socket and this process's; `None`: who waits gives up.
    waits: Option<(StdUnixStream, UnixStream)>,
    started: u64,
    succeeded: u64,
    skipped: u64,
    gave_up: u64,
    failed: u64,
    named: Vec<String>,
    interrupted: bool,
}

impl Batch<'_> {
    fn new<'a>(lrsd: &Lrsd, args: &'a RunArgs, most: usize) -> Result<Batch<'a>, Failure> {
        let waits = StdUnixStream::pair()
            .and_then(|(theirs, own)| {
                own.set_nonblocking(true)?;
                Ok((theirs, UnixStream::from_std(own)?))
            })
            .map_err(|error| Failure::failed(format!("cannot make a socket: {error}")).of_run())?;
        Ok(Batch {
            args,
            endpoint: lrsd.endpoint.to_string(),
            most,
            name: name(args),
            slots: Slots::Unknown,
            running: Vec::new(),
            again: VecDeque::new(),
            limit: Vec::new(),
            log: None,
            begun: clock::now(),
            waits: Some(waits),
            started: 0,
            succeeded: 0,
            skipped: 0,
            gave_up: 0,
            failed: 0,
            named: Vec::new(),
            interrupted: false,
        })
    }

    async fn run(
        &mut self,
        mut arguments: mpsc::Receiver<std::io::Result<OsString>>,
    ) -> Result<(), Failure> {
        let handler = |error| Failure::failed(format!("cannot handle signals: {error}"));
        let mut ends = signal(SignalKind::child()).map_err(handler)?;
        let mut interrupts = signal(SignalKind::interrupt()).map_err(handler)?;
        let mut terminations = signal(SignalKind::terminate()).map_err(handler)?;
        let mut more = true;
        let alone_until = Instant::now() + FIRST_ALONE;
        let mut silent_until = Some(Instant::now() + QUEUED);
        loop {
            let starts = self.waits.is_some() && (more || !self.again.is_empty());
            if !starts && self.running.is_empty() {
                return Ok(());
            }
            let waiting = self.running.iter().filter(|child| child.since.is_none()).count();
            let free = starts && waiting < WAITING && self.running.len() < self.most_now();
            tokio::select! {
                biased;
                _ = interrupts.recv() => return self.interrupt(Signal::INT, &mut ends).await,
                _ = terminations.recv() => return self.interrupt(Signal::TERM, &mut ends).await,
                _ = ends.recv() => self.reap(),
                () = heard(&self.waits) => self.hear(),
                () = sleep_until(alone_until), if self.slots == Slots::Unknown => {
                    self.slots = Slots::Own;
                }
                () = sleep_until(silent_until.unwrap_or(alone_until)), if silent_until.is_some() => {
                    silent_until = None;
                    if self.slots == Slots::Unknown {
                        over_last(format_args!(""));
                        say_waiting();
                    }
                }
                () = std::future::ready(()), if free && !self.again.is_empty() => {
                    let again = self.again.pop_front().map_or(Ok(()), |line| self.start(line));
                    self.unless_broken(again);
                }
                next = arguments.recv(), if free && more => match next {
                    Some(argument) => {
                        let begun = argument.and_then(|argument| self.begin(argument));
                        self.unless_broken(begun);
                    }
                    None => more = false,
                },
            }
            self.progress(arguments.is_closed().then(|| arguments.len()));
        }
    }

    fn unless_broken(&mut self, result: std::io::Result<()>) {
        if let Err(error) = result {
            self.name(&format!("after {} arguments: {error}", self.started));
            self.stop_asking();
        }
    }

    /// Children at once.
    fn most_now(&self) -> usize {
        match self.slots {
            Slots::Own => self.most,
            Slots::Unknown | Slots::Outer => 1,
        }
    }

    /// The next argument.
    fn begin(&mut self, argument: OsString) -> std::io::Result<()> {
        self.started += 1;
        let line = Line { index: self.started, argument, attempts: 0 };
        if self.log.as_ref().is_some_and(|log| log.has(line.index, &self.command(&line))) {
            self.skipped += 1;
            return Ok(());
        }
        self.start(line)
    }

    fn command(&self, line: &Line) -> Vec<OsString> {
        command_of(&self.args.command, &line.argument, line.index)
    }

    fn start(&mut self, mut line: Line) -> std::io::Result<()> {
        let Some((waits, _)) = &self.waits else { return Ok(()) };
        line.attempts += 1;
        let (index, argument) = (line.index, &line.argument);
        let parent = waits.as_raw_fd();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--endpoint", &self.endpoint, "run", "--parent", &parent.to_string()]);
        command.args(self.args.slot.options(Some(format!("{}[{index}]", self.name))));
        command.args(self.args.leave_unit.then_some("--leave-unit"));
        command.args(self.args.no_command.then_some("--no-command"));
        command.arg("--").args(&self.limit).args(self.command(&line));
        command.env("LRS_EACH_INDEX", index.to_string()).env("LRS_EACH_ARG", argument);
        command.stdin(Stdio::null()).process_group(0);
        // SAFETY: fcntl(2) is async-signal-safe, and the descriptor is open until the child is spawned.
        unsafe {
            let fd = std::os::fd::BorrowedFd::borrow_raw(parent);
            command.pre_exec(move || Ok(fcntl_setfd(fd, FdFlags::empty())?));
        }
        match command.spawn() {
            Ok(child) => self.running.push(Running { child, line, since: None }),
            // Too long, or with a NUL in it: the others may be well.
            Err(error) if matches!(error.kind(), ArgumentListTooLong | InvalidInput) => {
                self.note(&line, clock::now().wall, None);
                self.fail(&line, &error.to_string());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Which children have a slot.
    fn hear(&mut self) {
        let Some((_, own)) = &self.waits else { return };
        let mut words = [0; 64 * WORD];
        while let Ok(read @ 1..) = own.try_read(&mut words) {
            let now = clock::now().wall;
            for word in words[..read].as_chunks::<WORD>().0 {
                let pid = i32::from_ne_bytes(*word);
                if self.slots == Slots::Unknown {
                    self.slots = if pid > 0 { Slots::Own } else { Slots::Outer };
                }
                let has_slot = |one: &&mut Running| one.child.id() == pid.unsigned_abs();
                if let Some(one) = self.running.iter_mut().find(has_slot) {
                    one.since = Some(now);
                }
            }
        }
    }

    /// Requests that wait give up. Who has a slot by now is heard first, so that its end is a command's.
    fn stop_asking(&mut self) {
        self.hear();
        self.waits = None;
    }

    fn reap(&mut self) {
        // The words of those that ended came before their ends.
        self.hear();
        let ended = self.running.extract_if(.., |running| match running.child.try_wait() {
            Ok(status) => status.is_some(),
            Err(_) => false,
        });
        for Running { mut child, line, since } in ended.collect::<Vec<_>>() {
            // It is kept since it was asked first.
            if let Ok(Some(status)) = child.try_wait() {
                self.ended(line, since, status);
            }
        }
    }

    fn ended(&mut self, line: Line, since: Option<WallTime>, status: ExitStatus) {
        let is_out = self.waits.is_none();
        let no_slot = since.is_none()
            && (status.code() == Some(Exit::RunWithoutSlot as i32)
                || status.signal() == Some(Signal::TERM.as_raw()));
        if !status.success() && (is_out && no_slot || self.interrupted) {
            self.gave_up += 1;
            return;
        }
        if !status.success() && !is_out && line.attempts < self.args.retries {
            self.again.push_back(line);
            return;
        }
        self.note(&line, since.unwrap_or(clock::now().wall), Some(status));
        if status.success() {
            self.succeeded += 1;
            return;
        }
        let how = match status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => format!("status {}", status.code().unwrap_or_default()),
        };
        self.fail(&line, &how);
    }

    /// Into the log; one that cannot be written ends the rest, which nothing would know of later.
    fn note(&mut self, line: &Line, since: WallTime, status: Option<ExitStatus>) {
        let command = self.command(line);
        let Some(log) = &mut self.log else { return };
        if let Err(error) = log.add(line.index, (since, clock::now().wall), status, &command) {
            self.name(&format!("--joblog cannot be written: {error}"));
            self.stop_asking();
        }
    }

    fn fail(&mut self, line: &Line, how: &str) {
        self.failed += 1;
        let shown: String = line.argument.to_string_lossy().chars().take(SHOWN).collect();
        self.name(&format!("{} {}: {how}", line.index, printable(&shown)));
        if !self.args.keep_going {
            // Who waits gives up; who runs goes on to its end.
            self.stop_asking();
        }
    }

    fn name(&mut self, failure: &str) {
        if self.named.len() < NAMED {
            self.named.push(failure.to_owned());
        }
    }

    /// Requests give up; tasks are left or get the signal too.
    async fn interrupt(
        &mut self,
        with: Signal,
        ends: &mut tokio::signal::unix::Signal,
    ) -> Result<(), Failure> {
        self.stop_asking();
        self.interrupted = true;
        if !self.args.leave {
            for running in &self.running {
                if let Some(group) = Pid::from_raw(running.child.id() as i32) {
                    // It may have ended just now.
                    let _ = kill_process_group(group, with);
                }
            }
        }
        let all = async {
            while !self.running.is_empty() {
                ends.recv().await;
                self.reap();
            }
        };
        // A task may catch the signal; it is left then.
        let _ = timeout(GIVE_UP, all).await;
        Ok(())
    }

    /// `unread`: lines that are not begun; `None`: not all are read yet.
    fn progress(&self, unread: Option<usize>) {
        let Batch { succeeded, failed, started, .. } = self;
        let under_way = self.running.len();
        let ended = u32::try_from(succeeded + failed).ok().filter(|ended| *ended > 0);
        let time_left = unread.zip(ended).map_or_else(String::new, |(unread, ended)| {
            let left = unread + under_way + self.again.len();
            let took = clock::boot_time().since(self.begun.boot) / ended;
            format!(", {} left", age(took.saturating_mul(u32::try_from(left).unwrap_or(u32::MAX))))
        });
        over_last(format_args!(
            "{succeeded} done, {failed} failed, {under_way} of {started} under way{time_left}"
        ));
    }

    /// What became of all of them.
    fn summary(&self) -> Result<(), Failure> {
        over_last(format_args!(""));
        let mut text = format!("{} done, {} failed", self.succeeded, self.failed);
        if self.skipped > 0 {
            text.push_str(&format!(", {} done before", self.skipped));
        }
        let gave_up = self.gave_up + self.again.len() as u64;
        if gave_up > 0 {
            text.push_str(&format!(", {gave_up} ended or gave up"));
        }
        if !self.running.is_empty() {
            text.push_str(&format!(", {} go on", self.running.len()));
        }
        let is_well = self.failed == 0 && self.named.is_empty() && !self.interrupted;
        if !is_well || std::io::stderr().is_terminal() {
            say(format_args!("lrsctl: {text}"));
        }
        for failure in &self.named {
            say(format_args!("lrsctl: {failure}"));
        }
        if self.failed > self.named.len() as u64 {
            say(format_args!("lrsctl: and {} more", self.failed - self.named.len() as u64));
        }
        match (is_well, self.interrupted) {
            (true, _) => Ok(()),
            (_, true) => Err(Failure::ended(ExitCode::from(130))),
            _ => Err(Failure::ended(ExitCode::from(Exit::Failed as u8))),
        }
    }
}

/// The name given, else the job's, else the command's own; of the latter two no more than leaves room for
/// the index.
fn name(args: &RunArgs) -> String {
    let SlotArgs { name, job, .. } = &args.slot;
    if let Some(name) = name {
        return name.clone();
    }
    let program = args.command.first().map(Path::new).and_then(Path::file_name);
    let text = match job {
        Some(job) => Cow::Borrowed(&**job),
        None if args.no_command => Cow::Borrowed("each"),
        None => program.unwrap_or_default().to_string_lossy(),
    };
    text.chars().filter(|c| !c.is_control()).take(58).collect()
}

/// Until children have reported.
async fn heard(waits: &Option<(StdUnixStream, UnixStream)>) {
    match waits {
        Some((_, own)) if own.readable().await.is_ok() => {}
        _ => std::future::pending().await,
    }
}

/// Bytes of the word of a child with a slot: its pid, and below zero if the slot is that of the task that it
/// runs in.
const WORD: usize = size_of::<i32>();

/// A child's word to the `run --each` that started it, which holds the other end of `parent`.
pub(super) fn tell(parent: Option<i32>, outer: bool) {
    let Some(fd) = parent else { return };
    // SAFETY: only written to; who names another descriptor than run --each does harms itself.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    let pid = std::process::id() as i32;
    let word = if outer { -pid } else { pid };
    // The reader may be gone, which does no harm. A word is written whole or not at all.
    let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
    let _ = rustix::net::send(fd, &word.to_ne_bytes(), flags);
}

/// In the place of the line before, on a terminal. One that takes no more loses nothing but this.
fn over_last(text: Arguments<'_>) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
    }
}
