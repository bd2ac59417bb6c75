//! `lrsctl run --each`: a task for each argument.
//!
//! Each task is a child that runs `lrsctl run --wait`, so that there is one way to become a task.
//! At any time there are only as many children as the node can run at once, and a few that wait.
//! The other arguments are read as slots come free, so that a hundred thousand of them need no
//! memory.
//!
//! A child that waits holds one end of a socket (`--parent`). It gives up when this process closes
//! the other end or ends: so each request either ends or becomes a task. Through the same socket a
//! child reports whether it has a slot of its own or runs inside a task. A task has one slot, so
//! that one line runs at a time there; until that is known only the first child runs. Children are
//! in process groups of their own: Ctrl-C reaches this process alone, which then decides.

use std::ffi::{OsStr, OsString};
use std::fmt::Arguments;
use std::io::ErrorKind::{ArgumentListTooLong, InvalidInput};
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::args::RunArgs;
use super::client::{Lrsd, ask};
use super::exec::Program;
use super::failure::{Exit, Failure, Purpose};
use super::output::{printable, say};
use crate::proto;

/// Children that wait beside those that the node can run, so that a free slot is taken at once.
const AHEAD: u32 = 4;
/// Failures that the summary names.
const NAMED: usize = 10;
/// Characters of an argument in there.
const SHOWN: usize = 200;
/// How long after Ctrl-C requests may take to give up.
const GIVE_UP: Duration = Duration::from_secs(2);
/// How long the others wait for the first to report the slot that they would use too. An lrsd that has
/// to search for the task that this runs in takes less.
const FIRST_ALONE: Duration = Duration::from_secs(10);
/// Arguments read ahead from standard input.
const READ_AHEAD: usize = 64;

/// `lrsctl run --each ARG... -- CMD`
pub(super) fn each(lrsd: &Lrsd, args: &RunArgs) -> Result<(), Failure> {
    // Not found is reported once, and not by each child.
    Program::find(&args.command, std::env::var_os("PATH").as_deref())?;
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
        batch.run(arguments(args.each.clone().unwrap_or_default())?).await?;
        batch.summary()
    })
}

/// The arguments of the line, or else the lines of standard input.
fn arguments(given: Vec<OsString>) -> Result<mpsc::Receiver<std::io::Result<OsString>>, Failure> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    // Reading may block for as long as it likes. The thread ends with the input or the process.
    let read = move || {
        let lines =
            || std::io::stdin().lock().split(b'\n').map(|line| line.map(OsString::from_vec));
        let mut send = |argument| sender.blocking_send(argument).is_ok();
        if given.is_empty() {
            lines().all(&mut send)
        } else {
            given.into_iter().map(Ok).all(&mut send)
        };
    };
    std::thread::Builder::new().spawn(read).map_err(|error| {
        Failure::failed(format!("cannot start a thread: {error}"))
            .hint("a limit of processes is reached: `ulimit -u`, or pids.max of a cgroup above")
    })?;
    Ok(receiver)
}

/// A child and the argument it is for.
struct Running {
    child: Child,
    index: u64,
    argument: OsString,
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
    slots: Slots,
    running: Vec<Running>,
    /// The children's end of the socket and this process's; `None`: who waits gives up.
    waits: Option<(StdUnixStream, UnixStream)>,
    started: u64,
    succeeded: u64,
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
            slots: Slots::Unknown,
            running: Vec::new(),
            waits: Some(waits),
            started: 0,
            succeeded: 0,
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
        loop {
            let starts = more && self.waits.is_some();
            if !starts && self.running.is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                _ = interrupts.recv() => return self.interrupt(Signal::INT, &mut ends).await,
                _ = terminations.recv() => return self.interrupt(Signal::TERM, &mut ends).await,
                _ = ends.recv() => self.reap(),
                slots = heard(&mut self.waits), if self.slots == Slots::Unknown => self.slots = slots,
                () = sleep_until(alone_until), if self.slots == Slots::Unknown => {
                    self.slots = Slots::Own;
                }
                next = arguments.recv(), if starts && self.running.len() < self.most_now() => match next {
                    Some(argument) => match argument.and_then(|argument| self.start(argument)) {
                        Ok(()) => {}
                        Err(error) => {
                            self.name(&format!("after {} arguments: {error}", self.started));
                            self.waits = None;
                        }
                    },
                    None => more = false,
                },
            }
            self.progress();
        }
    }

    /// Children at once.
    fn most_now(&self) -> usize {
        match self.slots {
            Slots::Own => self.most,
            Slots::Unknown | Slots::Outer => 1,
        }
    }

    fn start(&mut self, argument: OsString) -> std::io::Result<()> {
        let Some((waits, _)) = &self.waits else { return Ok(()) };
        self.started += 1;
        let index = self.started;
        let parent = waits.as_raw_fd();
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--endpoint", &self.endpoint, "run", "--parent", &parent.to_string()]);
        // A name has the index behind it.
        let name = self.args.slot.name.as_ref().map(|name| format!("{name}-{index}"));
        command.args(self.args.slot.options(name));
        command.args(self.args.leave_unit.then_some("--leave-unit"));
        command.args(self.args.no_command.then_some("--no-command"));
        command.arg("--").args(command_of(&self.args.command, &argument));
        command.env("LRS_EACH_INDEX", index.to_string()).env("LRS_EACH_ARG", &argument);
        command.stdin(Stdio::null()).process_group(0);
        // SAFETY: fcntl(2) is async-signal-safe, and the descriptor is open until the child is spawned.
        unsafe {
            let fd = std::os::fd::BorrowedFd::borrow_raw(parent);
            command.pre_exec(move || Ok(fcntl_setfd(fd, FdFlags::empty())?));
        }
        match command.spawn() {
            Ok(child) => self.running.push(Running { child, index, argument }),
            // Too long, or with a NUL in it: the others may be well.
            Err(error) if matches!(error.kind(), ArgumentListTooLong | InvalidInput) => {
                self.fail(index, &argument, &error.to_string());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn reap(&mut self) {
        let mut ended = Vec::new();
        self.running.retain_mut(|running| match running.child.try_wait() {
            Ok(Some(status)) => {
                ended.push((running.index, std::mem::take(&mut running.argument), status));
                false
            }
            Ok(None) | Err(_) => true,
        });
        for (index, argument, status) in ended {
            self.ended(index, &argument, status);
        }
    }

    fn ended(&mut self, index: u64, argument: &OsStr, status: ExitStatus) {
        let gave_up = status.code() == Some(Exit::RunWithoutSlot as i32) && self.waits.is_none();
        if status.success() {
            self.succeeded += 1;
        } else if gave_up || self.interrupted {
            self.gave_up += 1;
        } else {
            let how = match status.signal() {
                Some(signal) => format!("signal {signal}"),
                None => format!("status {}", status.code().unwrap_or_default()),
            };
            self.fail(index, argument, &how);
        }
    }

    fn fail(&mut self, index: u64, argument: &OsStr, how: &str) {
        self.failed += 1;
        let shown: String = argument.to_string_lossy().chars().take(SHOWN).collect();
        self.name(&format!("{index} {}: {how}", printable(&shown)));
        if !self.args.keep_going {
            // Who waits gives up; who runs goes on to its end.
            self.waits = None;
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
        self.waits = None;
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

    fn progress(&self) {
        let Batch { succeeded, failed, started, .. } = self;
        let under_way = self.running.len();
        over_last(format_args!(
            "{succeeded} done, {failed} failed, {under_way} of {started} under way"
        ));
    }

    /// What became of all of them.
    fn summary(&self) -> Result<(), Failure> {
        over_last(format_args!(""));
        let mut text = format!("{} done, {} failed", self.succeeded, self.failed);
        if self.gave_up > 0 {
            text.push_str(&format!(", {} ended or gave up", self.gave_up));
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

/// What the first child says of its slot.
async fn heard(waits: &mut Option<(StdUnixStream, UnixStream)>) -> Slots {
    let Some((_, own)) = waits else { return std::future::pending().await };
    match own.read_u8().await {
        Ok(OUTER) => Slots::Outer,
        Ok(_) => Slots::Own,
        // The children's end is open here too, so this is no end; without a word all are started.
        Err(_) => Slots::Own,
    }
}

/// What a child with a slot of its own writes, and one that runs inside a task.
const OWN: u8 = b'o';
const OUTER: u8 = b'i';

/// A child's word to the `run --each` that started it, which holds the other end of `parent`.
pub(super) fn tell(parent: Option<i32>, outer: bool) {
    let Some(fd) = parent else { return };
    // SAFETY: only written to; who names another descriptor than run --each does harms itself.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    // The reader may be gone, which does no harm. The first word is the one that is read.
    let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
    let _ = rustix::net::send(fd, &[if outer { OUTER } else { OWN }], flags);
}

/// In the place of the line before, on a terminal. One that takes no more loses nothing but this.
fn over_last(text: Arguments<'_>) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
    }
}

/// The command with `{}` replaced by the argument, or with the argument at its end.
fn command_of(command: &[OsString], argument: &OsStr) -> Vec<OsString> {
    let mut replaced = false;
    let mut words: Vec<OsString> = command
        .iter()
        .map(|word| {
            let mut parts = split(word.as_bytes());
            let mut text = parts.next().unwrap_or_default().to_vec();
            for part in parts {
                replaced = true;
                text.extend_from_slice(argument.as_bytes());
                text.extend_from_slice(part);
            }
            OsString::from_vec(text)
        })
        .collect();
    if !replaced {
        words.push(argument.to_owned());
    }
    words
}

/// What stands between the `{}` of a word.
fn split(word: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(word);
    std::iter::from_fn(move || {
        let word = rest?;
        let at = word.windows(2).position(|pair| pair == b"{}");
        rest = at.map(|at| &word[at + 2..]);
        Some(at.map_or(word, |at| &word[..at]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_stands_where_the_braces_are_or_last() {
        let command = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let words = command_of(&words, OsStr::new("a b"));
            words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(command(&["gzip", "-k"]), ["gzip", "-k", "a b"]);
        assert_eq!(command(&["cp", "{}", "out/{}.{}"]), ["cp", "a b", "out/a b.a b"]);
        assert_eq!(command(&["echo", "{", "}{", "{}"]), ["echo", "{", "}{", "a b"]);
    }
}
