//! `run` and `admit`: asking for slots.
//!
//! Admission is idempotent for one process and caller, so a request with a lost answer is
//! simply sent again. A waiting request gets a ticket of the daemon's, and brings it to the next one; that
//! keeps its place in the queue (spec 5).

use std::cell::RefCell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::FdFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::args::{AdmitArgs, RunArgs, SlotArgs};
use super::client::{self, Lrsd, in_time};
use super::exec::Program;
use super::failure::{Exit, Failure, Purpose, from_status};
use super::output::{Output, Talk, printable, say};
use super::values::{Patience, millis};
use crate::units::BootTime;
use crate::{clock, proto};

/// First and longest pause between two attempts to reach a daemon that is away. lrsd serves
/// again within a second of its start, so the first pauses are short; half a second is a
/// bearable delay after a long absence and no load for a node full of waiters.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// How long `admit` without `--wait` rides through a restart of the daemon.
const RESTART: Duration = Duration::from_secs(3);

/// What the answer to a `--wait=DUR` may take beyond DUR before the daemon counts as stuck, unless
/// `--timeout` says otherwise.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// After so long without a slot a command says that it waits, for silence looks like a fault of the command.
pub(super) const QUEUED: Duration = Duration::from_secs(1);

/// So often it looks whether much of that has changed.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// `lrsctl run`: a slot for this process, then the command in its place.
pub(super) fn run(lrsd: &Lrsd, args: RunArgs, talk: Talk) -> Result<Infallible, Failure> {
    let program = Program::find(&args.command, std::env::var_os("PATH").as_deref())?;
    let request = proto::AdmitRequest {
        keep_unit: !args.leave_unit,
        leave_unit: args.leave_unit,
        command: (!args.no_command).then(|| beginning(&args.command)).flatten(),
        ..request(&args.slot, 0, false)
    };
    let away = match args.slot.wait {
        None => Away::Fail,
        Some(patience) => Away::Retry(patience),
    };
    let runtime = super::runtime()?;
    let slot = runtime.block_on(async {
        let parent = Parent::new(args.parent)?;
        tokio::select! {
            slot = ask(lrsd, request, args.slot.wait, away, talk, args.parent.is_some()) => slot,
            () = parent.gone() => Err(gave_up()),
        }
    });
    // Closes the connection and the event loop; this is the only thread again.
    drop(runtime);
    let slot = slot?;
    super::each::tell(args.parent, matches!(slot, Slot::Outer(_)));
    match slot {
        Slot::Own(task) => {
            if is_elsewhere(&task) {
                return Err(not_this_one(lrsd, *task));
            }
            if let Some(because) = &task.stays_because {
                say(format_args!("lrsctl: warning: {}", stays(&task, because)));
            }
            talk.detail(format_args!(
                "task {}, {} slot",
                task.id,
                super::show::tier_word(task.tier)
            ));
        }
        Slot::Outer(message) => {
            talk.detail(format_args!("runs inside the outer slot ({message})"));
        }
    }
    program.execute()
}

/// Whether lrsd has put another process into the slot than this one: its group is not where this is. In
/// a container the pid differs and the group does not.
fn is_elsewhere(task: &proto::Task) -> bool {
    let is_own = task.attachment == proto::Attachment::Own as i32;
    let group = task.cgroup.as_deref().filter(|_| is_own).and_then(|path| path.rsplit('/').next());
    let pid = i32::try_from(std::process::id()).ok();
    // Without /proc it is not known.
    let (Some(group), Ok(here)) = (group, std::fs::read_to_string("/proc/self/cgroup")) else {
        return false;
    };
    task.pid != pid && !here.lines().any(|line| line.rsplit('/').next() == Some(group))
}

/// The slot is another process's: it is given back.
fn not_this_one(lrsd: &Lrsd, task: proto::Task) -> Failure {
    let pid = task.pid.map_or_else(String::new, |pid| format!(", pid {pid},"));
    let kept = super::manage::release(lrsd, task.id).err();
    let kept =
        kept.map_or_else(String::new, |failure| format!("; and it keeps the slot: {failure}"));
    Failure::failed(format!(
        "lrsd at {lrsd} gave the slot to another process{pid} and not to this one: that socket is \
         forwarded from another machine{kept}"
    ))
    .hint("a task runs on the node of its lrsd: ssh NODE lrsctl run ...")
}

/// `lrsctl admit`: each process or unit becomes a task; one id a line.
pub(super) fn admit(
    lrsd: &Lrsd,
    args: &AdmitArgs,
    talk: Talk,
    out: &mut Output,
) -> Result<(), Failure> {
    let runtime = super::runtime()?;
    let away = Away::Retry(args.slot.wait.unwrap_or(Patience::For(RESTART)));
    let mut failures = Vec::new();
    let processes = args
        .pids
        .iter()
        .map(|&pid| (format!("pid {pid}"), request(&args.slot, pid, args.in_place)))
        .map(|(subject, request)| {
            (subject, proto::AdmitRequest { leave_unit: args.leave_unit, ..request })
        });
    let units = args.units.iter().map(|unit| {
        let request = request(&args.slot, 0, false);
        (format!("unit {unit}"), proto::AdmitRequest { unit: Some(unit.clone()), ..request })
    });
    for (subject, request) in processes.chain(units) {
        match runtime.block_on(ask(lrsd, request, args.slot.wait, away, talk, false)) {
            Ok(Slot::Own(task)) => {
                if let Some(because) = &task.stays_because {
                    say(format_args!("lrsctl: warning: {}", stays(&task, because)));
                }
                if let Some(other) = other_labels(&args.slot, &task) {
                    say(format_args!("lrsctl: warning: {subject}: {other}"));
                }
                if let Some(lost) = &task.lost_by_move {
                    let (id, lost) = (&task.id, printable(lost));
                    say(format_args!("lrsctl: warning: task {id} left its unit: {lost}"));
                }
                if out.is_json() {
                    out.json_line(&*task)?;
                } else {
                    out.line(&task.id)?;
                }
                out.flush()?;
            }
            Ok(Slot::Outer(message)) => failures.push((subject, Failure::failed(message))),
            // The others would only wait for the same silence.
            Err(failure) if failure.is(Exit::Unreachable) => return Err(failure),
            Err(failure) => failures.push((subject, failure)),
        }
    }
    match <[_; 1]>::try_from(failures) {
        Ok([(_, failure)]) => Err(failure),
        Err(failures) if failures.is_empty() => Ok(()),
        Err(failures) => {
            for (subject, failure) in &failures {
                say(format_args!("lrsctl: {subject}:"));
                failure.report("lrsctl");
            }
            let full = failures.iter().all(|(_, failure)| failure.is(Exit::NoFreeSlot));
            Err(Failure::ended(if full { Exit::NoFreeSlot } else { Exit::Failed }.into()))
        }
    }
}

/// What it means to a task that it stays in its unit.
fn stays(task: &proto::Task, because: &str) -> String {
    format!(
        "task {} stays in its cgroup and ranks only among the groups in {}, not among the other \
         tasks here: {} (--leave-unit gives that up, in another manager's group for an administrator)",
        task.id,
        printable(task.ratio_group.as_deref().unwrap_or("its cgroup")),
        printable(because)
    )
}

/// Which labels and priority asked for the task does not have: it was there before, and keeps its own.
fn other_labels(asked: &SlotArgs, task: &proto::Task) -> Option<String> {
    let labels = [
        ("name", &asked.name, &task.name),
        ("job", &asked.job, &task.job),
        ("kind", &asked.kind, &task.kind),
        ("group", &asked.group, &task.group),
    ];
    let others = labels.iter().filter(|(_, asked, has)| asked.is_some() && asked != has);
    let others = others.map(|(label, _, has)| match has {
        Some(has) => format!("the {label} {}", printable(has)),
        None => format!("no {label}"),
    });
    let priority = task.priority.filter(|has| asked.priority.is_some_and(|asked| asked != *has));
    let others = others.chain(priority.map(|has| format!("the priority {has}")));
    let others = others.collect::<Vec<_>>();
    let id = &task.id;
    (!others.is_empty()).then(|| {
        format!(
            "is task {id} already and keeps what it has: {}; `lrsctl release {id}`, then admit it again",
            others.join(", ")
        )
    })
}

fn request(args: &SlotArgs, pid: i32, in_place: bool) -> proto::AdmitRequest {
    proto::AdmitRequest {
        pid,
        name: args.name.clone(),
        job: args.job.clone(),
        kind: args.kind.clone(),
        group: args.group.clone(),
        hinted_rate: args.hint.rate(),
        priority: args.priority,
        reservation: args.reservation.clone(),
        in_place,
        keep_unit: false,
        leave_unit: false,
        wait_ms: 0,
        wait_forever: false,
        ticket: None,
        unit: None,
        command: None,
    }
}

/// What lrsd takes of a command line: 80 bytes without control characters.
fn beginning(command: &[OsString]) -> Option<String> {
    let mut text = String::new();
    let words = command.iter().map(|word| word.to_string_lossy());
    for c in words.collect::<Vec<_>>().join(" ").chars() {
        if text.len() + c.len_utf8() > 80 {
            break;
        }
        text.push(if c.is_control() { ' ' } else { c });
    }
    (!text.is_empty()).then_some(text)
}

/// The `run --each` that started this one: what it closes ends the waiting.
struct Parent(Option<AsyncFd<OwnedFd>>);

impl Parent {
    fn new(fd: Option<i32>) -> Result<Parent, Failure> {
        let Some(fd) = fd else { return Ok(Parent(None)) };
        let usage = |error| Failure::usage(format!("--parent {fd} is no socket: {error}"));
        // SAFETY: only duplicated; who names another descriptor than run --each does harms itself.
        let pipe = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().map_err(usage)?;
        // The command must not have it.
        rustix::io::fcntl_setfd(unsafe { BorrowedFd::borrow_raw(fd) }, FdFlags::CLOEXEC)
            .map_err(|error| usage(error.into()))?;
        // SAFETY: the duplicate is ours alone, and the `AsyncFd` owns it until it is dropped.
        let watched = unsafe { AsyncFd::register_with_interest(pipe, Interest::READABLE) };
        Ok(Parent(Some(watched.map_err(|error| usage(error.into()))?)))
    }

    /// Nothing is ever written: readable means that the other end is closed.
    async fn gone(&self) {
        match &self.0 {
            Some(pipe) if pipe.readable().await.is_ok() => {}
            _ => std::future::pending().await,
        }
    }
}

/// The end of one that the `run --each` before it ended. lrsd may have made a task of this process just
/// now, and keeps how it ends: a signal is an end by others, where a status would be the command's, which
/// never ran.
fn gave_up() -> Failure {
    use nix::sys::signal::{SigHandler, Signal, raise, signal};
    // SAFETY: the default runs no code of ours.
    let ended = unsafe { signal(Signal::SIGTERM, SigHandler::SigDfl) };
    // Under a parent that blocks the signal the status is left.
    let _ = ended.and_then(|_| raise(Signal::SIGTERM));
    Failure::ended(Exit::RunWithoutSlot.into())
}

/// An answer that is no failure.
#[derive(Debug)]
enum Slot {
    /// A task of its own.
    Own(Box<proto::Task>),
    /// The process is in a task already; the message says in which.
    Outer(String),
}

/// What to do while the daemon is away.
#[derive(Clone, Copy, Debug)]
enum Away {
    Fail,
    Retry(Patience),
}

/// Why an attempt brought no slot.
enum Miss {
    /// Asking again may help.
    Away { failure: Failure, reached: bool },
    /// It will not.
    Final(Failure),
}

/// Asks until there is an answer or patience ends.
async fn ask(
    lrsd: &Lrsd,
    mut request: proto::AdmitRequest,
    wait: Option<Patience>,
    away: Away,
    talk: Talk,
    quiet: bool,
) -> Result<Slot, Failure> {
    let begun = clock::now();
    let left = |patience: Patience| match patience {
        Patience::Forever => None,
        Patience::For(limit) => Some(limit.saturating_sub(clock::boot_time().since(begun.boot))),
    };
    let mut pause = BACKOFF.0;
    let mut reported = false;
    let ticket = RefCell::new(None);
    // Of those that a `run --each` starts many wait, and it shows how many. A log has one line of a wait.
    let says = match quiet {
        true => Says::Nothing,
        false if talk.verbose || std::io::stderr().is_terminal() => Says::Changes,
        false => Says::Once,
    };
    loop {
        let attempt = async {
            let Some(patience) = wait else {
                let answer = in_time(lrsd, attempt(lrsd, request.clone(), None, &ticket)).await;
                return answer.map_err(Miss::Final)?;
            };
            let left = left(patience);
            request.wait_forever = left.is_none();
            request.wait_ms = left.map_or(0, millis);
            let grace = lrsd.timeout.unwrap_or(ANSWER_GRACE);
            let within = left.map(|left| left.saturating_add(grace));
            request.ticket.clone_from(&ticket.borrow());
            let mut answer = std::pin::pin!(attempt(lrsd, request.clone(), within, &ticket));
            let mut why = std::pin::pin!(say_why_queued(lrsd, request.pid, says));
            tokio::select! {
                biased;
                answer = answer.as_mut() => answer,
                never = why.as_mut() => match never {},
            }
        };
        let (failure, reached) = match attempt.await {
            Ok(slot) => return Ok(slot),
            Err(Miss::Final(failure)) => return Err(failure),
            Err(Miss::Away { failure, reached }) => {
                if reached {
                    pause = BACKOFF.0;
                }
                (failure, reached)
            }
        };
        let Away::Retry(patience) = away else { return Err(failure) };
        let left = left(patience);
        if left.is_some_and(|left| left.is_zero()) {
            return Err(failure);
        }
        if !reported && is_long(begun.boot) {
            reported = true;
            match reached {
                true => say(format_args!("lrsctl: {failure}; asking again until there is a slot")),
                false => {
                    say(format_args!("lrsctl: lrsd at {lrsd} is away; asking until it is back"))
                }
            }
        }
        talk.detail(format_args!("no answer yet, asking again in {} ms", pause.as_millis()));
        tokio::time::sleep(left.map_or(pause, |left| pause.min(left))).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

/// How often a request that waits says why.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    Nothing,
    Once,
    /// Again when much of it has changed.
    Changes,
}

/// What stands between the request and a slot. A daemon that
/// does not say is no reason to stop waiting for its other answer; that it says nothing at all is worth
/// a word.
async fn say_why_queued(lrsd: &Lrsd, pid: i32, says: Says) -> Infallible {
    let mut shown: Option<(i32, u32)> = None;
    let mut pause = QUEUED;
    loop {
        tokio::time::sleep(pause).await;
        pause = LOOK_AGAIN;
        let asked = in_time(lrsd, async {
            let mut connection = client::connect(lrsd).await.ok()?;
            let status = connection.get_status(proto::GetStatusRequest {}).await.ok()?.into_inner();
            if says == Says::Nothing {
                // The queue is a turn of the loop's.
                return None;
            }
            // 0 is this process, also in another pid namespace.
            let asked = proto::ListQueueRequest { pid: Some(pid), ..Default::default() };
            let queue = connection.list_queue(asked).await.ok().map(tonic::Response::into_inner);
            Some((status, queue.and_then(|page| page.queue.first()?.place)))
        });
        let Ok(Some((status, place))) = asked.await else {
            return std::future::pending().await;
        };
        let ahead = place.map_or(status.waiting, |place| place.saturating_sub(1));
        if shown.is_some_and(|(state, before)| state == status.state && ahead > before / 2) {
            continue;
        }
        let first = shown.replace((status.state, ahead)).is_none();
        let why = super::show::status::why_queued(&status, place);
        let way_out = if first { " (Ctrl-C gives up)" } else { "" };
        say(format_args!("lrsctl: waiting for a slot: {why}{way_out}"));
        if says == Says::Once {
            return std::future::pending().await;
        }
    }
}

/// The same of what is no process of its own in the queue.
pub(super) fn say_waiting() {
    say(format_args!(
        "lrsctl: waiting for a slot: `lrsctl queue` has the reason (Ctrl-C gives up)"
    ));
}

/// A restart is not worth a word; an absence is.
fn is_long(begun: BootTime) -> bool {
    clock::boot_time().since(begun) > RESTART
}

async fn attempt(
    lrsd: &Lrsd,
    request: proto::AdmitRequest,
    answer_within: Option<Duration>,
    ticket: &RefCell<Option<String>>,
) -> Result<Slot, Miss> {
    let channel =
        client::channel(lrsd).await.map_err(|failure| Miss::Away { failure, reached: false })?;
    // By which it keeps its place over a restart of the daemon.
    let keep = |given: &str| drop(ticket.replace(Some(given.to_owned())));
    let answer = lrs_api::client::admit(channel, request, keep);
    let answer = match answer_within {
        None => answer.await,
        Some(limit) => match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer,
            Err(_) => return Err(Miss::Final(client::no_answer(limit))),
        },
    };
    match answer {
        Ok(response) => match response.task {
            Some(task) => Ok(Slot::Own(Box::new(task))),
            None => {
                Err(Miss::Final(Failure::failed("lrsd admitted the process but named no task")))
            }
        },
        Err(status) if status.code() == tonic::Code::AlreadyExists => {
            Ok(Slot::Outer(printable(status.message()).into_owned()))
        }
        Err(status) => {
            let failure = from_status(&status, Purpose::ForSlot);
            Err(if failure.is(Exit::Unreachable) {
                Miss::Away { failure, reached: true }
            } else {
                Miss::Final(failure)
            })
        }
    }
}
