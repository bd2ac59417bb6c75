//! The one loop: it owns the state, waits, decides, applies, publishes.
//!
//! ```text
//!  pidfds, cgroup.events ─┐
//!  commands (gRPC) ───────┼─► wait ─► core (pure) ─► weights ─► records ─► snapshot ─► answers
//!  worker threads, time ──┘     one Moment a turn
//! ```
//!
//! It runs on a thread of its own, not on the async runtime: between the last exit of an
//! active task and the new weight of the promoted one lie one `epoll_wait` and a few file
//! operations, and nothing another client does. Everything that may take milliseconds is on
//! the threads of [`worker`].
//!
//! A turn takes ends of processes first, then messages, then commands, then time; carries out
//! what the core decided, weights before records; replaces the snapshot; and only then
//! answers, so that a client that was answered reads its own change.

mod admission;
mod booked;
mod completion;
mod discovered;
mod ending;
mod entry;
mod execute;
mod find;
mod freezing;
mod halts;
mod keeping;
mod log;
mod measure;
mod pacing;
mod parking;
mod placing;
pub mod process;
mod queue;
mod ramp;
mod reader;
mod recover;
mod requests;
mod root_weight;
mod taken;
mod tickets;
mod unit_worker;
mod units;
mod view;
mod watch;
mod worker;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use tokio::sync::watch as watch_channel;

use crate::cgroup::{Group, TierTree, WeightPlan};
use crate::clock;
use crate::command::CommandReceiver;
use crate::config::{Auto, Config};
use crate::core::cpus::UsableCpus;
use crate::core::guard::GuardPolicy;
use crate::core::guard::freeze::FreezePolicy;
use crate::core::model::{Priority, TaskId};
use crate::core::pace::TURN;
use crate::core::ramp::Ramp;
use crate::core::rate::NodeRates;
use crate::core::shaper::Shaper;
use crate::core::state::Policy;
use crate::core::step::{Input, Ticket};
use crate::discover::HintSender;
use crate::publish::{EventRing, LastTurn, Snapshot};
use crate::rights::Rights;
use crate::sample::{NodeSample, TaskSource};
use crate::state::Store;
use crate::systemd::notify::Watchdog;
use crate::units::{BootTime, Moment, ProcessRef, WallTime};
use admission::Asked;
use entry::Entry;
use execute::{FollowUp, Touched};
use pacing::Pacing;
use root_weight::RootState;
use taken::Taken;
use tickets::Tickets;
use watch::{Ready, Waker, Watcher};
use worker::{Message, Workers};

pub use recover::{Parts, StartError};

/// Changes the log filter; the error says what is wrong with the new directives.
pub type ReloadLog = Box<dyn Fn(&str) -> Result<(), String> + Send>;

/// Up to so many tasks, the jobs are published with every change.
const JOBS_AT_ONCE: usize = 256;

/// Commands taken in one turn: a flood of them must not keep a promotion waiting.
const COMMANDS_A_TURN: usize = 32;

/// The loop and everything it owns.
pub struct Driver {
    config: Config,
    config_file: PathBuf,
    reload_log: ReloadLog,
    core: Shaper,
    rights: Rights,
    plan: WeightPlan,
    tree: Arc<TierTree>,
    store: Store,
    /// Why the last write of state failed; `None` once one succeeds.
    store_problem: Option<String>,
    /// Boxed: a map filled in order is half empty, and an entry has 1.5 KiB.
    entries: BTreeMap<TaskId, Box<Entry>>,
    /// Tasks by their main process.
    mains: HashMap<ProcessRef, TaskId>,
    /// The groups of others that are tasks, or of units about to be.
    taken: Taken,
    /// Requests that have no slot and no answer yet.
    asked: BTreeMap<Ticket, Asked>,
    next_ticket: u64,
    /// Part of the ids of those that wait, whose tickets begin anew with each daemon.
    waiter_epoch: u32,
    /// By which those that wait keep their place over a restart.
    tickets: Tickets,
    /// What follows from the step that is carried out.
    follow_ups: VecDeque<FollowUp>,
    /// Why the kernel refused the weights of a task, until its event says so.
    unwritten: BTreeMap<TaskId, String>,
    following_up: bool,
    watcher: Watcher,
    /// Main processes that ended, until it is told how.
    mains_ended: ending::Mains,
    commands: CommandReceiver,
    workers: Workers,
    inbox: Receiver<Message>,
    /// Where hints of schedulers go.
    hints: HintSender,
    /// When an integration last reported; the start, before one did.
    yarn_reported: BootTime,
    /// Why no tasks are found; `None`: they are, or nobody looks for any.
    finder_trouble: Option<String>,
    /// Found tasks that were released while they ran: not to be found again.
    let_go: HashSet<ProcessRef>,
    /// Whether the root has its weight.
    root_weight: RootState,
    /// Groups of ended tasks that could not be removed at once.
    not_removed: Vec<(TaskId, Arc<Group>)>,
    /// Groups of released tasks that keep their processes (`halts`).
    left: BTreeMap<TaskId, Arc<Group>>,
    /// Tasks that could not be thawed.
    not_thawed: BTreeSet<TaskId>,
    /// Waiters that are to be parked once this turn's answers are out.
    to_park: VecDeque<(TaskId, Ticket)>,
    /// Waiters that could not be put back where they were at once.
    not_unparked: Vec<TaskId>,
    /// Requests for processes that are on their way back.
    held: Vec<parking::Held>,
    /// Requests of processes whose task the finders look for.
    sought: Vec<keeping::Sought>,
    /// Units of ended tasks whose weights systemd does not have back, by the record that stays.
    unrestored: BTreeMap<TaskId, units::Owed>,
    /// Admissions that are being looked up, by the uid that asked.
    looking: HashMap<u32, usize>,
    /// Tasks by the group their weights compete in.
    ratio_groups: BTreeMap<String, u32>,
    /// For the next reading.
    sources_new: BTreeMap<TaskId, TaskSource>,
    sources_gone: Vec<TaskId>,
    /// A reading is under way.
    reading: bool,
    next_cycle: BootTime,
    pacing: Pacing,
    ramp: Ramp,
    next_lane_look: BootTime,
    /// As of the last walk over all tasks.
    running: crate::proto::Running,
    /// The task in the I/O lane that was looked at last.
    lane_looked: Option<TaskId>,
    cycles: u64,
    cpus: UsableCpus,
    /// The whole disks of the node, as of the last reading.
    whole_disks: Vec<(u32, u32)>,
    hostname: String,
    /// When it started, and the same by the clock as it is set now.
    started: BootTime,
    started_at: WallTime,
    sampled_at: Option<WallTime>,
    node_last: Option<(BootTime, NodeSample)>,
    node_rates: NodeRates,
    /// The snapshot being prepared.
    view: Snapshot,
    touched: Touched,
    snapshot: watch_channel::Sender<Arc<Snapshot>>,
    events: Arc<EventRing>,
    last_turn: Arc<LastTurn>,
    answers: Vec<Box<dyn FnOnce() + Send>>,
}

/// Lets signal handlers reach the loop.
#[derive(Clone, Debug)]
pub struct Remote {
    messages: Sender<Message>,
    waker: Waker,
}

impl Remote {
    /// Ends the loop after the present turn.
    pub fn stop(&self) {
        self.send(Message::Stop);
    }

    /// Applies the configuration file anew.
    pub fn reload(&self) {
        self.send(Message::Reload);
    }

    fn send(&self, message: Message) {
        // A loop that has ended needs neither.
        let _ = self.messages.send(message);
        self.waker.wake();
    }
}

/// How the loop goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    On,
    Stop,
    /// A worker thread panicked.
    Broken,
}

impl Driver {
    /// Turns until told to stop, then leaves the node as it is for the next daemon. Each turn
    /// that has ended is a sign of life for `watchdog`.
    pub fn run(mut self, mut watchdog: Option<Watchdog>) -> Result<(), DriverError> {
        let mut ready = Vec::new();
        // The time of the recovery is none in which it hung.
        self.last_turn.ended(clock::boot_time());
        loop {
            let now = clock::boot_time();
            let mut timeout = self.until_next(now).min(TURN);
            if let Some(watchdog) = &watchdog {
                timeout = timeout.min(watchdog.patience(now));
            }
            if let Err(error) = self.watcher.wait(timeout, &mut ready) {
                self.leave_root();
                return Err(DriverError::Wait(error));
            }
            let now = clock::now();
            let flow = self.turn(&ready, now);
            self.last_turn.ended(now.boot);
            if let Some(watchdog) = &mut watchdog {
                watchdog.turned(now.boot);
            }
            match flow {
                Flow::On => {}
                Flow::Stop => return self.stop(),
                Flow::Broken => {
                    self.leave_root();
                    return Err(DriverError::WorkerPanicked);
                }
            }
        }
    }

    fn turn(&mut self, ready: &[Ready], now: Moment) -> Flow {
        let mut flow = Flow::On;
        self.processes_ended(ready, now);
        for event in ready {
            match event {
                Ready::Messages => flow = self.take_messages(now),
                Ready::Commands => self.take_commands(now),
                Ready::Exit(..) | Ready::Group(_) => {}
            }
        }
        if self.core.next_deadline().is_some_and(|deadline| deadline <= now.boot) {
            self.feed(Input::Tick, now);
        }
        self.forget_closed_waiters(now);
        if self.core.lane().members().len() > 0 && now.boot >= self.next_lane_look {
            self.look_at_lane(now);
        }
        self.follow_pace(now.boot);
        if now.boot >= self.next_cycle && !self.reading {
            self.request_cycle(now);
        }
        self.publish(now);
        // The next waiters may take a moment, the one that got a slot may not.
        self.park_next(now);
        if !self.answers.is_empty() {
            self.publish(now);
        }
        if !self.reading {
            self.pacing.took();
        }
        self.follow_ramp(now.boot);
        if self.workers.broken() { Flow::Broken } else { flow }
    }

    fn until_next(&self, now: BootTime) -> Duration {
        let cycle = if self.reading {
            // The reading's own message wakes the loop; this bounds a clock that jumped.
            self.period()
        } else {
            self.next_cycle.since(now)
        };
        let is_looked_at = self.core.lane().members().len() > 0;
        let lane = is_looked_at.then_some(self.next_lane_look);
        // One under way wakes the loop itself.
        let ramp = self.ramp.due().filter(|_| !self.reading);
        let others = [self.core.next_deadline(), lane, ramp].into_iter().flatten();
        others.fold(cycle, |first, other| first.min(other.since(now)))
    }

    fn take_messages(&mut self, now: Moment) -> Flow {
        let mut flow = Flow::On;
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Attached { task, result } => self.attached(task, result, now),
                Message::Reattached { task, result } => self.reattached(task, result, now),
                Message::Released { task, result } => self.released(task, result, now),
                Message::RootRemade => self.shape_root(),
                Message::RootShaped { result } => self.root_shaped(result),
                Message::NotRemoved { task, group, error } => {
                    tracing::debug!(%task, %error, "the cgroup of task {task}, which has ended, stays until the next cycle: {error}");
                    self.not_removed.push((task, group));
                }
                Message::UnitLooked { asking, result } => self.looked_up(*asking, result, now),
                Message::FoundLooked { found, said, reply } => {
                    self.discover_as(*found, &said, reply, now);
                }
                Message::UnitPrepared { task, result } => self.unit_prepared(task, result, now),
                Message::UnitTold { task, result } => self.unit_told(task, result),
                Message::UnitRestored { task, result, called_off } => {
                    self.unit_restored(task, result, called_off, now);
                }
                Message::EndLookedAt { unknown, found } => {
                    self.end_looked_at(*unknown, found, now);
                }
                Message::Cycle(report) => self.cycle(*report, now),
                Message::ReadAhead(ahead) => self.read_ahead(*ahead, now),
                Message::Looks(looks) => self.looked(looks, now),
                Message::Stop => flow = Flow::Stop,
                Message::Reload => {
                    if let Err(error) = self.reload(now) {
                        // Somebody asked, and each time is answered: the time makes each line its own.
                        tracing::error!(%error, asked_at = %now.wall, "the configuration was not reloaded: {error}");
                    }
                }
            }
        }
        flow
    }

    /// Replaces the snapshot if anything changed, then answers those who asked.
    fn publish(&mut self, now: Moment) {
        let Touched { tasks, all, jobs, mut status } = std::mem::take(&mut self.touched);
        status |= all || !tasks.is_empty();
        if all {
            let all: Vec<TaskId> = self.entries.keys().copied().collect();
            self.view.tasks = all
                .into_iter()
                .filter_map(|id| Some((id, Arc::new(self.published(id, now)?))))
                .collect();
        } else {
            for id in tasks {
                match self.published(id, now) {
                    Some(task) => self.view.tasks.insert(id, Arc::new(task)),
                    None => self.view.tasks.remove(&id),
                };
            }
        }
        // A walk over all tasks and jobs: on a large node once a cycle, not once an event.
        if all || jobs && self.entries.len() < JOBS_AT_ONCE {
            self.view.jobs = Arc::new(self.jobs_view());
            self.running = self.running_view(now.boot);
            status = true;
        }
        let last_event = self.events.last();
        let told = std::mem::replace(&mut self.view.last_event, last_event) != last_event;
        if status {
            self.view.status = Arc::new(self.status_view());
        }
        if status || told {
            self.snapshot.send_replace(Arc::new(self.view.clone()));
        }
        for answer in self.answers.drain(..) {
            answer();
        }
    }

    /// A task that is in place; one on its way is nobody's business yet.
    fn published(&self, id: TaskId, now: Moment) -> Option<crate::proto::Task> {
        let task = self.core.task(id).filter(|task| !task.is_new())?;
        self.task_view(task.id, now.boot)
    }

    /// Tasks keep running with the weights they have; what was measured is stored.
    fn stop(mut self) -> Result<(), DriverError> {
        let now = clock::now();
        self.commands.close();
        self.note(
            crate::core::event::EventKind::Stopped,
            None,
            format!("lrsd stops; {} tasks keep running", self.entries.len()),
            serde_json::Map::new(),
            now,
        );
        self.feed(Input::Stop, now);
        self.thaw_again();
        // Before the threads are waited for, which may take longer than the stop may; and again when
        // what they finished may have changed it.
        self.leave_root();
        self.workers.stop();
        // What the threads finished meanwhile counts; a reading does not matter any more.
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Attached { task, result } => self.attached(task, result, now),
                Message::Released { task, result } => self.released(task, result, now),
                Message::NotRemoved { task, group, .. } => self.not_removed.push((task, group)),
                Message::UnitRestored { task, result, called_off } => {
                    self.unit_restored(task, result, called_off, now);
                }
                Message::EndLookedAt { unknown, found } => {
                    self.end_looked_at(*unknown, found, now);
                }
                Message::UnitLooked { .. }
                | Message::FoundLooked { .. }
                | Message::UnitPrepared { .. }
                | Message::UnitTold { .. }
                | Message::Reattached { .. }
                | Message::RootRemade
                | Message::RootShaped { .. }
                | Message::Cycle(_)
                | Message::ReadAhead(_)
                | Message::Looks(_)
                | Message::Stop
                | Message::Reload => {}
            }
        }
        for (task, group) in std::mem::take(&mut self.not_removed) {
            if let Err(error) = worker::remove(&self.tree, &group) {
                tracing::warn!(%task, %error, "the cgroup of task {task}, which has ended, stays: {error}");
            }
        }
        self.unpark_all();
        self.leave_root();
        self.publish(now);
        let placed: Vec<TaskId> = self.entries.keys().copied().collect();
        for id in placed {
            self.store_task(id);
        }
        self.tree.close().map_err(DriverError::Close)
    }
}

/// What ends the loop other than a request to stop.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// Without its threads the loop can neither admit nor measure.
    #[error("a worker thread panicked; the tasks keep running, a restart takes them up again")]
    WorkerPanicked,
    /// epoll failed; nothing can be noticed any more.
    #[error("cannot wait for events: {0}")]
    Wait(io::Error),
    /// The cgroup root could not be left in order.
    #[error("the cgroup root could not be closed: {0}")]
    Close(crate::cgroup::CgroupError),
}

/// What the core decides by, from the settings.
pub fn policy(config: &Config) -> Policy {
    let fixed = |value: Auto<u32>| match value {
        Auto::Auto => None,
        Auto::Fixed(value) => Some(value),
    };
    let guard = &config.guard;
    Policy {
        active: fixed(config.slots.active),
        passive: fixed(config.slots.passive),
        passive_max: fixed(config.slots.passive_max),
        expand: config.slots.expand,
        formula: config.slots.formula,
        io_wait_threshold: config.slots.io_wait_threshold,
        cpu_saturation: config.slots.cpu_saturation,
        shrink_after: config.slots.shrink_after,
        order: config.slots.order,
        overtake_max: config.slots.overtake_max,
        lane_share: config.tiers.lane_share,
        reservation_ttl: config.slots.reservation_ttl,
        guard: guard.enabled.then_some(GuardPolicy {
            dry_run: guard.dry_run,
            reserve: guard.memory_reserve,
            resume: guard.memory_resume,
            memory_pressure: guard.memory_pressure,
            swap_growth: guard.swap_growth,
            enter_after: guard.enter_after,
            exit_after: guard.exit_after,
            interference: guard.interference,
            freeze: FreezePolicy {
                headroom_after: guard.headroom_after,
                headroom_dry_run: guard.headroom_dry_run,
                freeze_after: guard.freeze_after,
                freeze_dry_run: guard.freeze_dry_run,
                hold: guard.freeze_hold,
                longest: guard.freeze_max,
            },
        }),
        memory_reserve: guard.memory_reserve,
    }
}

/// What the weights have to promise, from the settings and the capacities.
fn plan(config: &Config, core: &Shaper) -> WeightPlan {
    WeightPlan {
        ratio: config.tiers.ratio,
        active_capacity: core.slots().active_capacity,
        passive_max: core.slots().passive_max,
    }
}

/// Who may do what, from the settings and the node's groups.
fn rights(config: &Config) -> Rights {
    let lrs_gid = match nix::unistd::Group::from_name("lrs") {
        Ok(group) => group.map(|group| group.gid.as_raw()),
        Err(errno) => {
            tracing::warn!("cannot look up group lrs ({errno}): only admins may ask for slots");
            None
        }
    };
    // Whoever runs a private daemon may replace it; telling it what to do is less.
    let mut admins = config.grpc.admins.clone();
    admins.push(rustix::process::geteuid().as_raw());
    let max_user_priority = Priority(config.slots.max_user_priority);
    let reservation_ttl_max = config.slots.reservation_ttl_max;
    let integrations = integrations(config);
    Rights { admins, integrations, lrs_gid, max_user_priority, reservation_ttl_max }
}

/// The account of the package's own integration.
const OWN_INTEGRATION: &str = "lrs-yarn";

fn integrations(config: &Config) -> Vec<u32> {
    let found = match &config.grpc.integrations {
        Auto::Fixed(uids) => return uids.clone(),
        Auto::Auto => nix::unistd::User::from_name(OWN_INTEGRATION),
    };
    let found = found.inspect_err(|errno| {
        tracing::warn!(
            "cannot look up the account {OWN_INTEGRATION} ({errno}): only admins may speak for a \
             scheduler"
        );
    });
    found.ok().flatten().map(|user| user.uid.as_raw()).into_iter().collect()
}
