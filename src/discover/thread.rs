//! The thread `lrs-find`: finders at work, between the node and the loop.
//!
//! It hosts the finder of `[yarn]` and that of the `[[discover]]` rules, asks the loop about what
//! they find and brings them the answers. Reading /proc and directories may take milliseconds,
//! which here delays no other thread. A container is noticed by inotify at once; what only rules
//! find, once in a sample period.
//!
//! It is also what waits for Hadoop's configuration. A node with files that cannot be read yet (a disk
//! that is not mounted, a package that is being installed) is shaped without YARN meanwhile, and the
//! reason is what `lrsctl yarn status` says. They are read again when a NodeManager has come, which
//! runs with what they say then: where that is something else, containers are looked for anew, as after
//! a restart of lrsd. What is a task stays one.
//!
//! The loop shapes what is a task whatever becomes of this thread, so neither a panic nor a hang ends
//! the daemon or delays its end: each is a line of the log and a warning in status
//! ([`Finder::news`]). It is not started again after a panic; a restart of lrsd does that, under which
//! tasks run on.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::finder::RuleFinder;
use super::looks::Looks;
use super::processes::Proc;
use super::scan::Node;
use super::{DiscoveredTask, Hint, HintReceiver, Hints};
use crate::access::Access;
use crate::clock;
use crate::command::{Command, CommandError, ErrorKind, YarnFound};
use crate::config::Config;
use crate::core::model::TaskId;
use crate::discover::yarn::finder::{NodeFinder, Settings};
use crate::discover::yarn::join;
use crate::units::{BootTime, Moment, Pid, ProcessRef, WallTime};

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

/// How long one round may take before it counts as hanging: a listing of thousands of processes takes
/// a tenth of a second.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// What the thread needs.
#[derive(Debug)]
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

/// The running thread. It only reads, so nothing waits for its end.
#[derive(Debug)]
pub struct Finder {
    thread: JoinHandle<()>,
    busy: Busy,
    /// What was last reported of it.
    reported: Option<&'static str>,
}

/// Since when a round has been under way, in ms since the boot; 0: none is.
type Busy = Arc<AtomicU64>;

fn millis(time: BootTime) -> u64 {
    u64::try_from(time.0.as_millis()).unwrap_or(u64::MAX)
}

impl Finder {
    /// Starts the thread; `None` where nothing is to be found.
    ///
    /// # Errors
    /// There are no threads or descriptors left.
    pub fn start(parts: Parts) -> std::io::Result<Option<Finder>> {
        if !parts.config.yarn.enabled && parts.config.discover.is_empty() {
            return Ok(None);
        }
        let runtime = crate::runtime::on_this_thread()?;
        Finder::of(move |busy| runtime.block_on(Finding::new(parts, busy).run())).map(Some)
    }

    fn of(work: impl FnOnce(Busy) + Send + 'static) -> std::io::Result<Finder> {
        let busy = Busy::default();
        let own = Arc::clone(&busy);
        let thread =
            std::thread::Builder::new().name("lrs-find".into()).spawn(move || work(own))?;
        Ok(Finder { thread, busy, reported: None })
    }

    /// To be called from time to time: why no task is found, a sentence for the operator, or that all
    /// is well again. `None`: that was reported already.
    pub fn news(&mut self, now: BootTime) -> Option<Option<String>> {
        let since = self.busy.load(Ordering::Relaxed);
        let trouble = if self.thread.is_finished() {
            Some(
                "tasks that no client announces are not found: the thread lrs-find panicked, and the \
                 journal says where; those that are known are shaped. Restart lrsd: tasks run on",
            )
        } else if since != 0 && millis(now).saturating_sub(since) >= millis(BootTime(HANGS_AFTER)) {
            Some(
                "tasks that no client announces are not found: the thread lrs-find hangs, in a read of \
                 /proc, of Hadoop's files or of a NodeManager's directory; those that are known are \
                 shaped. Look for a dead disk or mount",
            )
        } else {
            None
        };
        if self.reported == trouble {
            return None;
        }
        self.reported = trouble;
        match trouble {
            Some(trouble) => tracing::error!("{trouble}"),
            None => tracing::info!("the thread lrs-find goes on"),
        }
        Some(trouble.map(str::to_owned))
    }
}

/// Which finder found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Yarn,
    Rules,
}

/// The number is that of the question.
type Answer = (u64, Source, ProcessRef, Result<TaskId, CommandError>);

/// The YARN side, once Hadoop's files were read.
struct Yarn {
    /// What they reported.
    settings: Settings,
    finder: NodeFinder,
    ready: AsyncFd<OwnedFd>,
}

impl Yarn {
    fn new(settings: Settings) -> Result<Yarn, String> {
        let finder = NodeFinder::new(&settings)
            .map_err(|error| format!("containers cannot be watched: {error}"))?;
        let waited =
            |error: &dyn std::fmt::Display| format!("containers cannot be waited for: {error}");
        let fd = finder.fd().try_clone_to_owned().map_err(|error| waited(&error))?;
        // SAFETY: the descriptor is owned by what registers it, which takes it out of the reactor
        // before it closes it.
        let ready = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }
            .map_err(|error| waited(&error))?;
        Ok(Yarn { settings, finder, ready })
    }
}

struct Finding {
    parts: Parts,
    busy: Busy,
    rules: Option<RuleFinder>,
    rules_due: BootTime,
    looks: Looks,
    yarn: Option<Yarn>,
    /// When Hadoop's files are read; `None`: they were, or YARN is off.
    join_due: Option<BootTime>,
    /// Why they could not be read.
    join_error: Option<(String, WallTime)>,
    /// What schedulers reported, also before Hadoop's files were read.
    hints: Hints,
    asked: JoinSet<Answer>,
    turns: Arc<Semaphore>,
    /// The list of containers may have changed since it was last sent.
    list_changed: bool,
    listed_at: BootTime,
    /// What was sent then.
    listed: YarnFound,
}

impl Finding {
    fn new(parts: Parts, busy: Busy) -> Finding {
        let own = i32::try_from(std::process::id()).ok().and_then(Pid::new);
        let rules = parts.config.discover.clone();
        let rules = own.filter(|_| !rules.is_empty()).map(|daemon| {
            let node = Node { proc: Proc::default(), daemon, lrs_root: parts.lrs_root.clone() };
            RuleFinder::with_rules(node, rules)
        });
        let join_due = parts.config.yarn.enabled.then(BootTime::default);
        Finding {
            parts,
            busy,
            rules,
            rules_due: BootTime::default(),
            looks: Looks::default(),
            yarn: None,
            join_due,
            join_error: None,
            hints: Hints::default(),
            asked: JoinSet::new(),
            turns: Arc::new(Semaphore::new(ASKED_AT_ONCE)),
            list_changed: false,
            listed_at: BootTime::default(),
            listed: YarnFound::default(),
        }
    }

    async fn run(mut self) {
        loop {
            let now = clock::now();
            self.busy.store(millis(now.boot), Ordering::Relaxed);
            self.join_yarn(now);
            self.look(now);
            self.list_containers(now).await;
            self.say_looked().await;
            self.busy.store(0, Ordering::Relaxed);
            let pause = self.next_due(now).since(clock::boot_time());
            let Finding { yarn, asked, parts, .. } = &mut self;
            let HintReceiver { hints, looks } = &mut parts.hints;
            tokio::select! {
                Some(answer) = asked.join_next() => self.answered(answer),
                hinted = hints.recv() => match hinted {
                    Some(hints) => self.hinted(hints),
                    // The loop has ended, and the daemon with it.
                    None => return std::future::pending().await,
                },
                wanted = looks.changed() => match wanted {
                    Ok(()) => {
                        self.looks.want(*self.parts.hints.looks.borrow_and_update());
                        self.rules_due = BootTime::default();
                    }
                    Err(_) => return std::future::pending().await,
                },
                () = readable(yarn) => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Reads Hadoop's files when it is time, and begins to look.
    fn join_yarn(&mut self, now: Moment) {
        if self.join_due.is_none_or(|due| due > now.boot) {
            return;
        }
        self.list_changed = true;
        match self.join() {
            Ok(found) => {
                if let Some(found) = found {
                    tracing::info!("Hadoop's configuration is read; containers are looked for");
                    self.yarn = Some(match self.yarn.take() {
                        Some(Yarn { finder, .. }) => {
                            Yarn { finder: found.finder.after(finder), ..found }
                        }
                        None => found,
                    });
                }
                self.join_due = None;
                if self.join_error.take().is_some() {
                    tracing::info!("Hadoop's configuration can be read again");
                }
            }
            Err(reason) => {
                self.join_due = Some(now.boot.after(CONFIGURATION_AGAIN));
                let reason = match &self.yarn {
                    Some(_) => format!(
                        "a NodeManager started, and containers are looked for by what Hadoop's \
                         files contained before: {reason}"
                    ),
                    None => reason,
                };
                if self.join_error.as_ref().is_none_or(|(before, _)| *before != reason) {
                    tracing::error!("YARN is not joined anew, which is tried again: {reason}");
                    self.join_error = Some((reason, now.wall));
                }
            }
        }
    }

    /// What is to be gone by from now on; `None`: what is already.
    fn join(&self) -> Result<Option<Yarn>, String> {
        let settings = join::read(&self.parts.config.yarn, self.parts.lrs_root.as_deref());
        let settings = settings.map_err(|error| error.to_string())?;
        if self.yarn.as_ref().is_some_and(|yarn| yarn.settings == settings) {
            return Ok(None);
        }
        Yarn::new(settings).map(Some)
    }

    /// Lets the finders that are due look, and asks the loop about what they found.
    fn look(&mut self, now: Moment) {
        if let Some(yarn) = &mut self.yarn
            && (yarn.finder.next_due() <= now.boot || is_readable(&yarn.ready))
        {
            let found = yarn.finder.pass(&self.hints, now);
            self.list_changed = true;
            if yarn.finder.manager_came() {
                self.join_due = Some(now.boot);
            }
            self.ask(Source::Yarn, found);
        }
        if let Some(rules) = &mut self.rules
            && self.rules_due <= now.boot
        {
            self.looks.begin_pass();
            let found = rules.pass(&self.hints, now.boot);
            let steady = !rules.wants_pass_soon();
            self.ask(Source::Rules, found);
            self.looks.end_pass(steady);
            let pause = match steady && !self.looks.wants_pass() {
                true => self.parts.config.daemon.longest_period(),
                false => SECOND_LOOK,
            };
            self.rules_due = now.boot.after(pause);
        }
    }

    fn ask(&mut self, source: Source, found: Vec<DiscoveredTask>) {
        for found in found {
            let (process, commands) = (found.process, self.parts.access.commands.clone());
            let (turns, question) = (Arc::clone(&self.turns), self.looks.ask());
            self.asked.spawn(async move {
                // First come, first served; an error is of a semaphore that was closed, and this
                // one never is.
                let _turn = turns.acquire_owned().await.ok();
                let ask = |reply| Command::Discover { found: Box::new(found), reply };
                (question, source, process, commands.ask(ask).await)
            });
        }
    }

    fn answered(&mut self, answer: Result<Answer, tokio::task::JoinError>) {
        let now = clock::now();
        if let Ok((question, ..)) = &answer {
            self.looks.answered(*question);
        }
        match answer {
            Ok((_, Source::Yarn, process, answer)) => {
                if let Some(yarn) = &mut self.yarn {
                    yarn.finder.answered(process, now, answer);
                    self.list_changed = true;
                }
            }
            Ok((_, Source::Rules, process, answer)) => {
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
            if let Some(yarn) = &mut self.yarn
                // Else it is of a rule's task.
                && let Ok(container) = hint.container.parse()
            {
                yarn.finder.hinted(&container, (&hint).into());
                self.list_changed = true;
            }
            self.hints.insert(hint);
        }
    }

    /// Tells the loop which looks are over.
    async fn say_looked(&mut self) {
        if let Some(look) = self.looks.over() {
            self.tell(Command::Looked(look)).await;
        }
    }

    async fn list_containers(&mut self, now: Moment) {
        if !self.list_changed || now.boot < self.listed_at.after(LISTS_EVERY) {
            return;
        }
        (self.list_changed, self.listed_at) = (false, now.boot);
        let mut found = YarnFound { problem: self.join_error.clone(), ..YarnFound::default() };
        if let Some(Yarn { finder, .. }) = &self.yarn {
            found.containers = join::containers(finder.containers(), &self.hints);
            found.node_managers = finder.node_managers();
        }
        // A pass without news is the rule, and each list is a turn of the loop.
        if self.listed != found {
            self.listed = found.clone();
            self.tell(Command::YarnFound(found)).await;
        }
    }

    /// Without waiting for an answer; once the loop stops, it takes nothing more, and nothing is
    /// lost.
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
        due.unwrap_or_else(|| now.boot.after(self.parts.config.daemon.longest_period()))
    }
}

/// When a pass of YARN's finder is due.
async fn readable(yarn: &mut Option<Yarn>) {
    let Some(Yarn { ready, .. }) = yarn else { return std::future::pending().await };
    if let Ok(mut guard) = ready.readable().await {
        // Whether something is left is asked of the descriptor itself, after the pass.
        guard.clear_ready();
    }
}

/// Whether a pass would find events; the runtime reports readiness once for several.
fn is_readable(fd: &AsyncFd<OwnedFd>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut watched = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    // EINTR is asked again with the next turn; a pass too many is harmless.
    poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// The next news at `now`, when the thread has come so far.
    fn news(finder: &mut Finder, now: BootTime) -> Option<String> {
        loop {
            if let Some(news) = finder.news(now) {
                return news;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_panic_is_reported_once() {
        let mut finder = Finder::of(|_| panic!("of the test")).unwrap();
        let now = clock::boot_time();
        assert!(news(&mut finder, now).unwrap().contains("lrs-find panicked"));
        assert_eq!(finder.news(now), None);
    }

    #[test]
    fn a_hang_is_reported_once_and_so_is_its_end() {
        let (go, wait) = mpsc::channel::<()>();
        let begun = clock::boot_time();
        let mut finder = Finder::of(move |busy| {
            busy.store(millis(begun), Ordering::Relaxed);
            wait.recv().unwrap();
            busy.store(0, Ordering::Relaxed);
            // Until the test is over.
            let _ = wait.recv();
        })
        .unwrap();
        let later = |seconds| begun.after(Duration::from_secs(seconds));
        assert_eq!(finder.news(later(29)), None);
        assert!(news(&mut finder, later(31)).unwrap().contains("hangs"));
        assert_eq!(finder.news(later(600)), None, "once");
        go.send(()).unwrap();
        assert_eq!(news(&mut finder, later(601)), None, "it goes on");
    }
}
