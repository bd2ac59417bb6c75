//! The thread `lrs-yarn`: agent and client, and nothing of the loop's.
//!
//! It wakes when the snapshot's slots change, when a look is due and when the daemon stops. The
//! calls block, which costs nobody anything but this thread; the pauses between are timers of a
//! runtime of its own.
//!
//! On a stop the offer is taken back ([`give_back`]), within what [`Handle::join`] is given. A call
//! that hangs just then is not waited for: the process ends, what stands is in the ledger, and the
//! log says what it is.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

use super::Endpoints;
use super::agent::{Agent, Told, View};
use super::client::Client;
use super::give_back::{self, Left, Witness};
use super::hints::Hints;
use super::http::CertificateError;
use super::ledger::LedgerFile;
use super::offer::{NodeMemory, SlotSize, Slots};
use crate::clock;
use crate::command::{Caller, Command, CommandSender};
use crate::config::{Config, Mode};
use crate::discover::rest::Alive;
use crate::proto;
use crate::publish::Snapshot;
use crate::units::{BootTime, Bytes};

/// How long to wait at most for the first reading of the node; it wakes us by itself.
const FIRST_READING: Duration = Duration::from_secs(60);

/// How long a look for hints may go on; a slow ResourceManager would else have the offer wait for
/// dozens of calls. What is not read then is in one of the next looks.
const HINTS_WITHIN: Duration = Duration::from_secs(2);

/// How often it is reported how things stand, although nothing changed: the loop warns of silence.
const REPORT_EVERY: Duration = Duration::from_secs(20);

const PANICKED: &str = "the thread that talks to YARN panicked";

/// What the thread needs.
#[derive(Debug)]
pub struct Parts {
    /// Where the managers are.
    pub endpoints: Endpoints,
    /// The settings at the start; those that may change later are read from the snapshot.
    pub config: Arc<Config>,
    /// The newest snapshot.
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    /// To the loop.
    pub commands: CommandSender,
    /// Becomes true, or loses its sender, when the daemon stops. It comes from whoever began the
    /// stop, so that no other thread has to pass it on.
    pub stopping: watch::Receiver<bool>,
    /// Dropped when the thread has ended, and told why it could not take the offer back.
    pub alive: Alive,
}

/// Why it does not run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum ThreadError {
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    #[error("cannot start the thread that talks to YARN: {0}")]
    Start(std::io::Error),
}

/// The running thread.
#[derive(Debug)]
pub struct Handle {
    ended: mpsc::Receiver<Result<(), String>>,
    thread: JoinHandle<()>,
    witness: Witness,
}

impl Handle {
    /// Whether it is over: it was told to stop, or it ended by itself ([`Self::fate`]).
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Of one that is over though nobody told it to be: why (`None`: it panicked), and what was
    /// offered and may still stand.
    pub fn fate(self) -> (Option<String>, Result<(), Left>) {
        let why = match self.ended.try_recv() {
            Ok(Err(why)) => Some(why),
            Ok(Ok(())) => Some("it does not say why".into()),
            Err(mpsc::TryRecvError::Empty | mpsc::TryRecvError::Disconnected) => None,
        };
        let left = self.witness.check(why.as_deref().unwrap_or(PANICKED));
        (why, left)
    }

    /// Waits for its end once it was told to stop, at most this long.
    ///
    /// # Errors
    /// What was offered may still stand.
    pub fn join(self, at_most: Duration) -> Result<(), Left> {
        let outcome = self.ended.recv_timeout(at_most);
        if outcome != Err(mpsc::RecvTimeoutError::Timeout) && self.thread.join().is_err() {
            tracing::error!("{PANICKED}");
        }
        match outcome {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => self.witness.check(&why),
            Err(mpsc::RecvTimeoutError::Timeout) => self.witness.check_what_hangs(at_most),
            Err(mpsc::RecvTimeoutError::Disconnected) => self.witness.check(PANICKED),
        }
    }
}

/// Starts it.
///
/// # Errors
/// `yarn.ca_file` is of no use, or there are no threads left.
pub fn start(parts: Parts) -> Result<Handle, ThreadError> {
    let Parts { endpoints, config, snapshot, commands, stopping, alive } = parts;
    let client = Client::of(&config.yarn, endpoints.clone())?;
    let witness = Witness::of(&config);
    let file = LedgerFile::in_runtime_dir(&config.daemon.runtime_dir);
    let (agent, damage) = Agent::new(endpoints, config.yarn.offer_by, file);
    if let Some(error) = damage {
        tracing::warn!(%error, "what LRS offered YARN before is not known: {error}");
    }
    let (end, ended) = mpsc::channel();
    let talker = Talker {
        client,
        agent,
        known: Hints::default(),
        hint_problem: None,
        config,
        snapshot,
        commands,
        stopping,
        reported: Reported::default(),
    };
    let thread = std::thread::Builder::new()
        .name("lrs-yarn".into())
        .spawn(move || {
            // Made here: whoever starts this thread runs in a runtime, and could not drop another
            // one if there were no thread.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let outcome = match runtime {
                Ok(runtime) => talker.run(&runtime),
                Err(error) => Err(format!("the thread that talks to YARN cannot wait: {error}")),
            };
            // Who started this may be lost by now, or hang: its keeper hears of it too.
            if let Err(why) = &outcome {
                alive.left(why);
            }
            // Nobody waits any more when the time to stop was up.
            let _ = end.send(outcome);
            drop(alive);
        })
        .map_err(ThreadError::Start)?;
    Ok(Handle { ended, thread, witness })
}

struct Talker {
    client: Client,
    agent: Agent,
    known: Hints,
    /// What was last said about hints that cannot be read.
    hint_problem: Option<String>,
    config: Arc<Config>,
    snapshot: watch::Receiver<Arc<Snapshot>>,
    commands: CommandSender,
    stopping: watch::Receiver<bool>,
    reported: Reported,
}

/// What the loop was told last, and when.
#[derive(Default)]
struct Reported {
    last: Option<proto::YarnStatus>,
    at: BootTime,
}

impl Talker {
    /// Until the daemon stops. An error: what was offered may still stand, and why.
    fn run(mut self, runtime: &tokio::runtime::Runtime) -> Result<(), String> {
        while !self.is_stopping() {
            let Some(view) = self.view() else {
                runtime.block_on(self.wait(FIRST_READING));
                continue;
            };
            let now = clock::now();
            let report_due = self.reported.at.after(REPORT_EVERY);
            let next = self.agent.next(&view);
            if next > now.boot && report_due <= now.boot {
                self.reported.tell(&self.agent, Told::default(), &self.commands, runtime);
                continue;
            }
            if next > now.boot {
                runtime.block_on(self.wait(next.min(report_due).since(now.boot)));
                continue;
            }
            let polls = self.agent.is_poll(now.boot);
            self.client.set_timeouts(self.config.yarn.timeout, self.config.yarn.timeout);
            let told = self.agent.pass(&mut self.client, &view, now);
            self.reported.tell(&self.agent, told, &self.commands, runtime);
            if polls && !self.is_stopping() {
                self.look_for_hints(now.boot, runtime);
            }
        }
        self.give_back(runtime)
    }

    fn is_stopping(&self) -> bool {
        is_stopping(&self.stopping)
    }

    /// Until something happened, or this long.
    async fn wait(&self, at_most: Duration) {
        let (mut snapshot, mut stopping) = (self.snapshot.clone(), self.stopping.clone());
        let changed = async {
            if snapshot.changed().await.is_err() {
                // The loop has ended; the word to stop follows.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            // An error means the sender is gone: the daemon stops.
            _ = stopping.wait_for(|stop| *stop) => {}
            () = changed => {}
            () = tokio::time::sleep(at_most) => {}
        }
    }

    /// The newest slots and settings; `None` before the node was read for the first time: to a
    /// daemon that restarts, a node without memory would be a reason to take the offer back.
    fn view(&mut self) -> Option<View> {
        let snapshot = Arc::clone(&self.snapshot.borrow_and_update());
        if let Some(config) = &snapshot.config {
            self.config = Arc::clone(config);
        }
        let read = snapshot.status.node.as_ref().is_some_and(|node| node.sampled_at.is_some());
        read.then(|| view(&snapshot.status, &self.config))
    }

    fn look_for_hints(&mut self, now: BootTime, runtime: &tokio::runtime::Runtime) {
        let Talker { client, agent, known, config, snapshot, stopping, commands, .. } = self;
        let until = clock::boot_time().after(HINTS_WITHIN);
        let enough = || {
            let newest = snapshot.borrow();
            let config = newest.config.as_ref().unwrap_or(config);
            is_stopping(stopping)
                || clock::boot_time() > until
                || agent.asks_for_less(&view(&newest.status, config))
        };
        let (hints, problem) = known.look(client, &enough, now);
        if !hints.is_empty() {
            let hint = |reply| Command::Hint { caller: caller(), hints, reply };
            if let Err(error) = runtime.block_on(commands.ask(hint)) {
                tracing::debug!("hints are told again with the next look: {error}");
                known.tell_all_again();
            }
        }
        let problem = problem.map(|problem| problem.to_string());
        if let Some(problem) =
            problem.as_ref().filter(|new| self.hint_problem.as_ref() != Some(*new))
        {
            tracing::info!("YARN: {problem}");
        }
        self.hint_problem = problem;
    }

    fn give_back(&mut self, runtime: &tokio::runtime::Runtime) -> Result<(), String> {
        // Without a reading nothing was sent, though an earlier daemon may have sent something.
        let snapshot = Arc::clone(&self.snapshot.borrow());
        let view = View { offer: false, ..view(&snapshot.status, &self.config) };
        let Talker { agent, client, config, commands, reported, .. } = self;
        give_back::at_stop(agent, client, &view, config, |agent, told| {
            reported.tell(agent, told, commands, runtime);
        })
    }
}

impl Reported {
    /// Tells the loop of a pass, if there is news or it is time, and the log of what is no event.
    fn tell(
        &mut self,
        agent: &Agent,
        told: Told,
        commands: &CommandSender,
        runtime: &tokio::runtime::Runtime,
    ) {
        for error in &told.complaints {
            tracing::warn!(%error, "YARN: {error}");
        }
        let (report, now) = (agent.report(), clock::boot_time());
        let due = self.at.after(REPORT_EVERY) <= now;
        if !due && told.changes.is_empty() && self.last.as_ref() == Some(&report) {
            return;
        }
        (self.last, self.at) = (Some(report.clone()), now);
        let (yarn, changes) = (Some(Box::new(report)), told.changes);
        // The loop takes nothing more once it stops, and nobody reads it then.
        let (reply, _) = tokio::sync::oneshot::channel();
        let report = Command::ReportIntegration { caller: caller(), yarn, changes, reply };
        let _ = runtime.block_on(commands.send(report));
    }
}

/// The daemon itself, which is an admin.
fn caller() -> Caller {
    let uid = rustix::process::geteuid().as_raw();
    Caller { uid, gids: Vec::new(), pid: None, granted: None }
}

/// Without a sender nobody is left who could say it: a panic, and the daemon ends.
fn is_stopping(stopping: &watch::Receiver<bool>) -> bool {
    *stopping.borrow() || stopping.has_changed().is_err()
}

/// What of status and settings the agent goes by.
fn view(status: &proto::Status, config: &Config) -> View {
    let slots = status.slots.unwrap_or_default();
    let (active, passive) = (slots.active.unwrap_or_default(), slots.passive.unwrap_or_default());
    let total = status.node.as_ref().and_then(|node| node.memory).and_then(|m| m.total_bytes);
    let total = total.map(Bytes);
    View {
        slots: Slots {
            active: active.capacity,
            passive: passive.capacity,
            base: passive.base,
            given_out: status.state == proto::NodeState::Accepting as i32,
        },
        memory: NodeMemory {
            total,
            reserve: config.guard.memory_reserve.of(total.unwrap_or_default()),
        },
        slot: SlotSize { memory: config.yarn.slot_memory, vcores: config.yarn.slot_vcores },
        offer: config.yarn.offer,
        enforce: config.daemon.mode == Mode::Enforce,
        poll: config.yarn.poll,
    }
}

#[cfg(test)]
mod tests;
