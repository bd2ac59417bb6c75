//! The thread `lrs-find`: finders at work, between the node and the loop.
//!
//! It hosts the finder of `[yarn]` and that of the `[[discover]]` rules, asks the loop about what
//! they find and brings them the answers. Reading /proc and directories may take milliseconds,
//! which here keeps nobody waiting. A container is noticed by inotify at once; what only rules
//! can tell, once in a sample period.
//!
//! It is also what waits for Hadoop's configuration. A node whose files cannot be read yet (a disk
//! that is not mounted, a package that is being installed) is shaped without YARN meanwhile, and
//! the reason is what `lrsctl yarn status` says.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::finder::RuleFinder;
use super::keeper::Pulse;
use super::processes::Proc;
use super::rest::{Alive, Rest};
use super::scan::Node;
use super::{Found, Hint, HintReceiver};
use crate::clock;
use crate::command::{Command, CommandError, ErrorKind, YarnFound};
use crate::config::Config;
use crate::core::model::TaskId;
use crate::publish::Access;
use crate::units::{BootTime, Moment, Pid, ProcessRef, WallTime};
use crate::yarn::finder::NodeFinder;
use crate::yarn::join::{self, Joined};
use crate::yarn::rm;
use crate::yarn::rm::give_back::{Left, Witness, within};

/// When what was seen once by a rule is looked at again: an exec may follow a fork.
const SECOND_LOOK: Duration = Duration::from_millis(200);

/// How often a configuration that could not be read is tried again.
const CONFIGURATION_AGAIN: Duration = Duration::from_secs(10);

/// Shortest time between two lists of containers for clients: a thousand may start in a second.
const LISTS_EVERY: Duration = Duration::from_millis(200);

/// Questions the loop is asked at once. A client's command comes behind those that were asked
/// before it, and a thousand containers may start together; one after the other is put in place
/// anyway.
const ASKED_AT_ONCE: usize = 16;

/// Hints that are kept of containers not found yet.
const EARLY_HINTS: usize = 1024;

/// What a thread that is told to stop may need beside what it waits for: a pass under way.
const STOP_SLACK: Duration = Duration::from_millis(100);

/// What the thread needs.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The settings of the start. Rules and places change with a restart only.
    pub config: Arc<Config>,
    /// Snapshots to read, and where commands go.
    pub access: Access,
    /// LRS's root below the mount, with a leading slash; `None` in observe mode.
    pub lrs_root: Option<String>,
    /// What schedulers say of containers.
    pub hints: HintReceiver,
}

/// The running thread.
#[derive(Debug)]
pub struct Handle {
    stop: watch::Sender<bool>,
    ended: std_mpsc::Receiver<()>,
    thread: JoinHandle<Result<(), Lost>>,
    pulse: Pulse,
    /// The thread that talks to YARN for it.
    rest: Rest,
}

/// A thread that finds tasks or talks to YARN ended by itself. Without it the node would be shaped
/// as if nothing new ran on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Lost {
    #[error("the thread {0} panicked")]
    Panicked(&'static str),
    #[error("the thread lrs-yarn ended, though nobody told it to: {0}")]
    Talker(String),
    #[error("the thread lrs-find cannot wait for anything: {0}")]
    Runtime(String),
    #[error(
        "the thread lrs-find hangs, in a read of /proc or of a NodeManager's directory; a stop does \
         not wait for it"
    )]
    Hangs,
}

impl Lost {
    /// The one that finds.
    pub(super) const FINDER: Lost = Lost::Panicked("lrs-find");
}

impl Handle {
    /// Starts a thread that does `work`. `alive` is dropped with it, and with what it hands a
    /// clone to; `rest` is the other end of that.
    pub(super) fn of(
        name: &str,
        (alive, rest): (Alive, Rest),
        work: impl FnOnce(Pulse, watch::Receiver<bool>) -> Result<(), Lost> + Send + 'static,
    ) -> std::io::Result<Handle> {
        let (stop, stopping) = watch::channel(false);
        let (end, ended) = std_mpsc::channel();
        let pulse = Pulse::default();
        let own = pulse.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _alive = alive;
            let outcome = work(own, stopping);
            // Nobody waits any more when the time to stop was up.
            let _ = end.send(());
            outcome
        })?;
        Ok(Handle { stop, ended, thread, pulse, rest })
    }

    /// Whether it works or waits.
    pub(super) fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Begins to stop, at YARN too: what it was offered is taken back meanwhile.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Whether it is over: it was told to stop, or it or what it started panicked.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end, which is bounded: a read of /proc or of a dead disk that hangs is given
    /// up with the process. An error: it has not ended in order, and what it started is there
    /// still or has ended with nobody listening.
    pub(super) fn join(self) -> (Result<(), Lost>, Rest) {
        self.stop();
        let outcome = match self.ended.recv_timeout(self.rest.within() + STOP_SLACK) {
            Err(std_mpsc::RecvTimeoutError::Timeout) => Err(Lost::Hangs),
            // Sent, or dropped in a panic: either way it is over.
            Ok(()) | Err(std_mpsc::RecvTimeoutError::Disconnected) => {
                self.thread.join().unwrap_or(Err(Lost::FINDER))
            }
        };
        (outcome, self.rest)
    }
}

/// Starts the thread; `None` where nothing is to be found.
///
/// # Errors
/// There are no threads or descriptors left.
pub fn start(parts: Parts) -> std::io::Result<Option<Handle>> {
    if !parts.config.yarn.enabled && parts.config.discover.is_empty() {
        return Ok(None);
    }
    let witness = parts.config.yarn.enabled.then(|| Witness::of(&parts.config));
    let (alive, rest) = Rest::begin(talker_within(&parts.config), witness);
    let shared = alive.clone();
    let run = move |pulse, stopping| {
        // Made here: the runtime of who starts this thread anew would not let it be dropped there.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Lost::Runtime(error.to_string()))?;
        runtime.block_on(Finding::new(parts, pulse, shared, stopping).run())
    };
    Handle::of("lrs-find", (alive, rest), run).map(Some)
}

/// How long the thread that talks to YARN is waited for at a stop. It takes the offer back from
/// the moment the doors begin to close.
fn talker_within(config: &Config) -> Duration {
    within(config.yarn.offer_by) + STOP_SLACK
}

/// Whose find it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Yarn,
    Rules,
}

type Answer = (Source, ProcessRef, Result<TaskId, CommandError>);

/// The YARN side, once Hadoop's files were read.
struct Yarn {
    finder: NodeFinder,
    ready: AsyncFd<OwnedFd>,
    /// `None`: it could not be started yet.
    talker: Option<rm::thread::Handle>,
    /// What the cluster said of each container, for the list.
    told: HashMap<String, Hint>,
}

impl Yarn {
    /// Begins to look; nobody talks yet.
    fn new(joined: &Joined) -> Result<Yarn, String> {
        let finder = NodeFinder::new(&joined.finder)
            .map_err(|error| format!("containers cannot be watched: {error}"))?;
        let waited =
            |error: &dyn std::fmt::Display| format!("containers cannot be waited for: {error}");
        let fd = finder.fd().try_clone_to_owned().map_err(|error| waited(&error))?;
        // SAFETY: the descriptor is owned by what registers it, which takes it out of the reactor
        // before it closes it.
        let ready = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }
            .map_err(|error| waited(&error))?;
        Ok(Yarn { finder, ready, talker: None, told: HashMap::new() })
    }
}

struct Finding {
    parts: Parts,
    pulse: Pulse,
    /// For the thread that talks to YARN, which may outlive this one.
    alive: Alive,
    stopping: watch::Receiver<bool>,
    rules: Option<RuleFinder>,
    rules_due: BootTime,
    yarn: Option<Yarn>,
    /// When Hadoop's files are read; `None`: all that follows from them has begun, or nobody
    /// wants it.
    join_due: Option<BootTime>,
    /// Why they could not be read.
    join_error: Option<(String, WallTime)>,
    asked: JoinSet<Answer>,
    turns: Arc<Semaphore>,
    /// The list of containers may have changed since it was last sent.
    list_changed: bool,
    listed_at: BootTime,
    /// What was sent then.
    listed: YarnFound,
}

impl Finding {
    fn new(parts: Parts, pulse: Pulse, alive: Alive, stopping: watch::Receiver<bool>) -> Finding {
        let own = i32::try_from(std::process::id()).ok().and_then(Pid::new);
        let rules = parts.config.discover.clone();
        let rules = own.filter(|_| !rules.is_empty()).map(|daemon| {
            let node = Node { proc: Proc::default(), daemon, lrs_root: parts.lrs_root.clone() };
            RuleFinder::with_rules(node, rules)
        });
        let join_due = parts.config.yarn.enabled.then(BootTime::default);
        Finding {
            parts,
            pulse,
            alive,
            stopping,
            rules,
            rules_due: BootTime::default(),
            yarn: None,
            join_due,
            join_error: None,
            asked: JoinSet::new(),
            turns: Arc::new(Semaphore::new(ASKED_AT_ONCE)),
            list_changed: false,
            listed_at: BootTime::default(),
            listed: YarnFound::default(),
        }
    }

    async fn run(mut self) -> Result<(), Lost> {
        let mut stopping = self.stopping.clone();
        let mut hints = Arc::clone(&self.parts.hints).lock_owned().await;
        while !is_stopping(&stopping) {
            if let Some(lost) = self.lost_talker() {
                return Err(lost);
            }
            let now = clock::now();
            self.pulse.works();
            self.join_yarn(now);
            self.look(now);
            self.list_containers(now).await;
            self.pulse.rests();
            let pause = self.next_due(now).since(clock::boot_time());
            let Finding { yarn, asked, .. } = &mut self;
            tokio::select! {
                // An error means the sender is gone: the daemon stops.
                _ = stopping.wait_for(|stop| *stop) => {}
                Some(answer) = asked.join_next() => self.answered(answer),
                Some(hints) = hints.recv() => self.hinted(hints),
                () = readable(yarn) => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        if let Err(left) = self.leave_yarn() {
            tracing::warn!("{left}");
        }
        Ok(())
    }

    /// That the thread that talks to YARN ended by itself; what stands there is said at once.
    fn lost_talker(&mut self) -> Option<Lost> {
        let talker = &mut self.yarn.as_mut()?.talker;
        // It ends at the word to stop too, which may have come just now.
        let talker = talker.take_if(|it| it.has_ended() && !is_stopping(&self.stopping))?;
        let (why, left) = talker.fate();
        if let Err(left) = left {
            tracing::warn!("{left}");
        }
        Some(why.map_or(Lost::Panicked("lrs-yarn"), Lost::Talker))
    }

    /// Waits for the thread that talks to YARN. Where there is none, an offer of the one before or
    /// of an lrsd that was killed may stand all the same.
    fn leave_yarn(self) -> Result<(), Left> {
        let config = &self.parts.config;
        match self.yarn.and_then(|yarn| yarn.talker) {
            Some(talker) => talker.join(talker_within(config)),
            None if config.yarn.enabled => {
                let why = self.join_error.as_ref().map(|(why, _)| why.as_str());
                Witness::of(config).check(why.unwrap_or("the ResourceManager was not called yet"))
            }
            None => Ok(()),
        }
    }

    /// Reads Hadoop's files when it is time, and begins to look and to talk.
    fn join_yarn(&mut self, now: Moment) {
        if self.join_due.is_none_or(|due| due > now.boot) {
            return;
        }
        match self.join() {
            Ok(()) => {
                (self.join_due, self.join_error) = (None, None);
                self.list_changed = true;
            }
            Err(reason) => {
                self.join_due = Some(now.boot.after(CONFIGURATION_AGAIN));
                if self.join_error.as_ref().is_some_and(|(said, _)| *said == reason) {
                    return;
                }
                let what = match &self.yarn {
                    Some(_) => "YARN's managers are not called",
                    None => "YARN is not joined",
                };
                tracing::error!("{what}, which is tried again: {reason}");
                self.join_error = Some((reason, now.wall));
                self.list_changed = true;
            }
        }
    }

    /// Begins what has not begun. Without the managers containers are shaped all the same.
    fn join(&mut self) -> Result<(), String> {
        let joined = join::read(&self.parts.config.yarn, self.parts.lrs_root.as_deref())
            .map_err(|error| error.to_string())?;
        let yarn = match &mut self.yarn {
            Some(yarn) => yarn,
            none => {
                let yarn = none.insert(Yarn::new(&joined)?);
                tracing::info!("Hadoop's configuration is read; containers are looked for");
                yarn
            }
        };
        let parts = rm::thread::Parts {
            endpoints: joined.endpoints,
            config: Arc::clone(&self.parts.config),
            snapshot: self.parts.access.snapshot.clone(),
            commands: self.parts.access.commands.clone(),
            stopping: self.stopping.clone(),
            alive: self.alive.clone(),
        };
        yarn.talker = Some(rm::thread::start(parts).map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Lets the finders look whose time has come, and asks the loop about what they found.
    fn look(&mut self, now: Moment) {
        if let Some(yarn) = &mut self.yarn
            && (yarn.finder.next_due() <= now.boot || is_readable(&yarn.ready))
        {
            let found = yarn.finder.pass(now);
            self.list_changed = true;
            self.ask(Source::Yarn, found);
        }
        if let Some(rules) = &mut self.rules
            && self.rules_due <= now.boot
        {
            let found = rules.pass(now.boot);
            let pause = match rules.wants_pass_soon() {
                true => SECOND_LOOK,
                false => self.parts.config.daemon.sample_period,
            };
            self.rules_due = now.boot.after(pause);
            self.ask(Source::Rules, found);
        }
    }

    fn ask(&mut self, source: Source, found: Vec<Found>) {
        for found in found {
            let (process, commands) = (found.process, self.parts.access.commands.clone());
            let turns = Arc::clone(&self.turns);
            self.asked.spawn(async move {
                // First come, first served; an error is of a semaphore that was closed, and this
                // one never is.
                let _turn = turns.acquire_owned().await.ok();
                let ask = |reply| Command::Discover { found: Box::new(found), reply };
                (source, process, commands.ask(ask).await)
            });
        }
    }

    fn answered(&mut self, answer: Result<Answer, tokio::task::JoinError>) {
        let now = clock::now();
        match answer {
            Ok((Source::Yarn, process, answer)) => {
                if let Some(yarn) = &mut self.yarn {
                    yarn.finder.answered(process, now, answer);
                    self.list_changed = true;
                }
            }
            Ok((Source::Rules, process, answer)) => {
                if let Some(rules) = &mut self.rules {
                    rules.answered(process, answer);
                }
            }
            // It waits for an answer and nothing else.
            Err(error) => tracing::error!("a question to the control loop panicked: {error}"),
        }
    }

    fn hinted(&mut self, hints: Vec<Hint>) {
        for hint in hints {
            if let Some(rules) = &mut self.rules {
                rules.set_hint(&hint);
            }
            let Some(yarn) = &mut self.yarn else { continue };
            if let Ok(container) = hint.container.parse() {
                yarn.finder.set_hint(&container, join::hint(&hint));
                yarn.told.insert(hint.container.clone(), hint);
                self.list_changed = true;
            }
        }
    }

    async fn list_containers(&mut self, now: Moment) {
        if !self.list_changed || now.boot < self.listed_at.after(LISTS_EVERY) {
            return;
        }
        let containers = self.yarn.as_mut().map(|yarn| {
            let containers = join::containers(yarn.finder.containers(), &yarn.told);
            if yarn.told.len() > 2 * containers.len() + EARLY_HINTS {
                yarn.told.retain(|id, _| containers.iter().any(|container| container.id == *id));
            }
            containers
        });
        (self.list_changed, self.listed_at) = (false, now.boot);
        let containers = containers.unwrap_or_default();
        let found = YarnFound { containers, problem: self.join_error.clone() };
        // A pass without news is the rule, and each list is a turn of the loop.
        if self.listed != found {
            self.listed = found.clone();
            self.tell(Command::YarnFound(found)).await;
        }
    }

    /// What nobody waits for; the loop takes nothing more once it stops, and nobody reads it then.
    async fn tell(&self, command: Command) {
        match self.parts.access.commands.send(command).await {
            Ok(()) | Err(CommandError { kind: ErrorKind::Unavailable, .. }) => {}
            Err(error) => tracing::error!("the control loop refused a report: {error}"),
        }
    }

    fn next_due(&self, now: Moment) -> BootTime {
        let yarn = self.yarn.as_ref().map(|yarn| match is_readable(&yarn.ready) {
            true => now.boot,
            false => yarn.finder.next_due(),
        });
        let rules = self.rules.as_ref().map(|_| self.rules_due);
        let list = self.list_changed.then(|| self.listed_at.after(LISTS_EVERY));
        let due = [yarn, rules, list, self.join_due].into_iter().flatten().min();
        due.unwrap_or_else(|| now.boot.after(self.parts.config.daemon.sample_period))
    }
}

/// Whether the daemon stops; a sender that is gone says so too.
fn is_stopping(stopping: &watch::Receiver<bool>) -> bool {
    *stopping.borrow() || stopping.has_changed().is_err()
}

/// When a pass of YARN's finder is due.
async fn readable(yarn: &mut Option<Yarn>) {
    let Some(Yarn { ready, .. }) = yarn else { return std::future::pending().await };
    if let Ok(mut guard) = ready.readable().await {
        // Whether something is left is asked of the descriptor itself, after the pass.
        guard.clear_ready();
    }
}

/// Whether a pass would find events; readiness of the runtime is told once for several.
fn is_readable(fd: &AsyncFd<OwnedFd>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut watched = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    // EINTR is asked again with the next turn; a pass too many is harmless.
    poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests;
