//! The one loop: it owns the state, decides, applies, publishes.
//!
//! ```text
//!  pidfds, cgroup.events ─┐
//!  commands (gRPC) ───────┼─► wait ─► core (pure) ─► weights ─► records ─► snapshot ─► answers
//!  worker threads, time ──┘     one Moment a turn
//! ```
//!
//! It runs on a thread of its own, not on the async runtime: between the last exit of an
//! active task and the new weight of the promoted one lie one `epoll_wait` and a few file
//! operations, and nothing another client does. Everything that may take milliseconds is begun
//! ([`job`]) and comes back as a message ([`message`]).
//!
//! It is generic over its [`world`], and has no file, process, thread or clock of its own, which its
//! `clippy.toml` sees to: `src/node` of lrsd gives it its turns on a real node,
//! `crates/sim` on one that is pretended.
//!
//! A turn takes ends of processes first, then messages, then commands, then time; carries out
//! what the core decided, weights before records; replaces the snapshot; and only then
//! answers, so that a client that was answered reads its own change.
//!
//! | file | job |
//! |---|---|
//! | `turn` | one turn of the loop, and the last one |
//! | `execute` | carries out a step of the core, in the order of its fields |
//! | `publishing` | the snapshot, then the answers |
//! | `world` | the seam: all that the loop does to the outside and asks of it |
//! | `job`, `message` | what it begins and does not wait for; what comes back |
//! | `requests` | commands of clients: rights, the core, the answer |
//! | `claim`, `admission`, `placing` | from a request to its slot; record, group, move, and the way back |
//! | `postponed` | admissions that wait for something before the core is asked |
//! | `parking` | waiters move into their groups before their turn |
//! | `tickets`, `queue` | how a waiter keeps its place over a restart; the queue as clients see it |
//! | `discovered` | tasks that a finder found running |
//! | `booked` | tasks from observe mode, attached by a daemon that enforces |
//! | `keeping` | what a process is in that must not be taken from others |
//! | `units` | tasks with the cgroup of a systemd unit |
//! | `taken` | the groups of others that are tasks, by path |
//! | `entry` | what the loop has of a task beside the task itself |
//! | `completion`, `ending` | when a task is over; how its main process ended |
//! | `measure`, `pacing`, `ramp` | the cycle; how long one lasts; readings ahead of it |
//! | `freezing`, `halts` | what the guard froze; what others froze or stopped |
//! | `root_weight` | the weight of the root among its siblings |
//! | `debts` | what could not be done when it was due, tried again each cycle |
//! | `find`, `recover` | what the daemon before left; from that to a running loop |
//! | `settings` | what core, weights and rights take from the configuration |
//! | `recorder` | each input and step, for a client that records |
//! | `view`, `log` | what clients read; the log line of each event |
//! | `command`, `rights`, `publish` | what clients may ask, who may, what they read |
//! | `found`, `refusals` | what finders propose; when what was refused is proposed again |
//! | `group`, `recovered` | cgroups as the loop knows them; what is stored of an earlier daemon |
//!
//! `tests/turns` has turns and lives on a pretended node.

mod admission;
mod booked;
mod claim;
pub mod command;
mod completion;
mod debts;
mod discovered;
mod ending;
mod entry;
mod execute;
mod find;
pub mod found;
mod freezing;
pub mod group;
mod halts;
pub mod job;
pub mod keeping;
mod log;
mod measure;
pub mod message;
mod pacing;
mod parking;
mod placing;
mod postponed;
pub mod publish;
mod publishing;
mod queue;
mod ramp;
pub mod recorder;
mod recover;
pub mod recovered;
pub mod refusals;
mod requests;
pub mod rights;
mod root_weight;
pub mod settings;
mod taken;
mod tickets;
pub mod turn;
mod units;
mod verify;
mod view;
pub mod world;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::sync::watch as watch_channel;

use crate::found::HintSender;
use crate::group::{Group, TaskSource, WeightPlan};
use crate::publish::{EventRing, Snapshot};
use crate::rights::Rights;
use claim::Requester;
use debts::Debts;
use entry::Entry;
use execute::Touched;
use lrs_config::Config;
use lrs_core::cpus::UsableCpus;
use lrs_core::inputs::Inputs;
use lrs_core::model::TaskId;
use lrs_core::ramp::Ramp;
use lrs_core::rate::NodeRates;
use lrs_core::sample::NodeSample;
use lrs_core::shaper::Shaper;
use lrs_core::step::Ticket;
use lrs_core::units::{BootTime, Moment, ProcessRef, WallTime};
use pacing::Pacing;
use postponed::Postponed;
use root_weight::RootState;
use taken::Taken;
use world::World;

pub use command::cgroup_error;
pub use recover::Resumed;
pub use recovered::OwnGroup;
pub use tickets::{KEY_BYTES, Tickets};
pub use units::unit_stopped;

/// The loop and everything it owns.
pub struct Loop<W: World> {
    core: Shaper,
    state: State<W>,
    /// `None`: no client records.
    recorder: Option<recorder::Recorder>,
}

/// Takes what happened and carries out what the core decided. It reads the core and cannot change
/// it: what it notices waits in [`Inputs`] until it is done.
struct Executor<'a, W: World> {
    core: &'a Shaper,
    state: &'a mut State<W>,
    /// When this turn began.
    now: Moment,
}

/// What the loop has beside the core.
struct State<W: World> {
    /// The node.
    world: W,
    config: Config,
    rights: Rights,
    plan: WeightPlan,
    /// Why the last write of state failed; `None` once one succeeds.
    store_problem: Option<String>,
    /// Boxed: a map filled in order is half empty, and an entry has 1.5 KiB.
    entries: BTreeMap<TaskId, Box<Entry>>,
    /// Tasks by their main process.
    mains: HashMap<ProcessRef, TaskId>,
    /// The groups of others that are tasks, or of units about to be.
    taken: Taken,
    /// Requests that have no slot and no answer yet.
    asked: BTreeMap<Ticket, Requester>,
    next_ticket: u64,
    /// Part of the ids of waiting requests; their tickets begin anew with each daemon.
    waiter_epoch: u32,
    /// By which those that wait keep their place over a restart.
    tickets: Tickets,
    /// What the core has yet to decide on.
    inputs: Inputs,
    /// Why the kernel refused the weights of a task, until its event says so.
    unwritten: BTreeMap<TaskId, String>,
    /// Main processes that ended, until it is known how.
    mains_ended: ending::Mains,
    /// Where hints of schedulers go.
    hints: HintSender,
    /// When an integration last reported; the start, before one did.
    yarn_reported: BootTime,
    /// Why no tasks are found; `None`: they are, or no finder runs.
    finder_trouble: Option<String>,
    /// Found tasks that were released while they ran: not to be found again.
    not_again: HashSet<ProcessRef>,
    /// Whether the root has its weight.
    root_weight: RootState,
    /// What could not be done when it was due.
    debts: Debts,
    /// Waiters that are to be parked once this turn's answers are out.
    to_park: VecDeque<(TaskId, Ticket)>,
    /// Admissions that wait for something before the core is asked.
    postponed: Postponed,
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
    next_cpu_look: BootTime,
    /// As of the last walk over all tasks.
    running: lrs_api::proto::Running,
    /// The task that was looked at last.
    cpu_looked: Option<TaskId>,
    /// Of the tasks that are looked at; with the group that each is of, for a task may get another one.
    cpu_files: BTreeMap<TaskId, (Arc<Group>, W::CpuFile)>,
    cycles: u64,
    /// How long the last reading took.
    reading_took: Option<std::time::Duration>,
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
    answers: Vec<Box<dyn FnOnce() + Send>>,
    /// When the slots came free that tasks put in place in this turn had waited for.
    began: Vec<BootTime>,
    /// Of the tiers.
    tests: verify::Tests,
}
