//! From what an earlier daemon left to a running loop.
//!
//! Whatever instant it was killed at, each task is in one of these states (spec 4):
//!
//! | found | then |
//! |---|---|
//! | record placed, group with processes | goes on, weights compared, nothing written that fits |
//! | record placed, group empty or gone | ended while nobody looked: `completed`, end unknown |
//! | record attaching, its process in the group | the admission is finished |
//! | record attaching, otherwise | rolled back; the client asks again |
//! | record whose end is in the history | cleaned up |
//! | record the history does not know | goes on if its processes do: the history was lost |
//! | group with processes, no usable record | goes on with what is known: null, and said |
//! | group without processes, no record | removed |
//! | record of another boot | ended with that boot |

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, json};
use tokio::sync::watch as watch_channel;

use super::entry::{Entry, Placement};
use super::watch::Watcher;
use super::worker::Workers;
use super::{Driver, ReloadLog, Remote, plan, policy, rights};
use crate::cgroup::{Attachment, CgroupError, Group, TierTree};
use crate::clock;
use crate::command::CommandReceiver;
use crate::config::Config;
use crate::core::event::EventKind;
use crate::core::model::{Labels, Order, Priority, TaskId};
use crate::core::rate::NodeRates;
use crate::core::shaper::Shaper;
use crate::core::slots::Seat;
use crate::core::state::{Ending, Phase, Restored, Task};
use crate::publish::{EventRing, Snapshot};
use crate::sample::Sampler;
use crate::state::record::{RecordPhase, TaskRecord};
use crate::state::{Recovered, Store};
use crate::units::Moment;

/// Everything a loop is made of.
pub struct Parts {
    /// The settings.
    pub config: Config,
    /// Where they came from, for reloading.
    pub config_file: PathBuf,
    /// Changes the log filter; the error says what is wrong with the new one.
    pub reload_log: ReloadLog,
    /// The applier.
    pub tree: Arc<dyn TierTree>,
    /// The state directory and what was in it.
    pub store: Store,
    /// See `store`.
    pub recovered: Recovered,
    /// Reads the node.
    pub sampler: Sampler,
    /// The loop's end of the command queue.
    pub commands: CommandReceiver,
    /// Where snapshots go.
    pub snapshot: watch_channel::Sender<Arc<Snapshot>>,
    /// Where events go; holds the recovered ones already.
    pub events: Arc<EventRing>,
}

/// Why the loop cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// epoll, inotify or eventfd.
    #[error("cannot set up waiting for events: {0}")]
    Watch(io::Error),
    /// A thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The cgroup tree.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

/// What is done about the stored tasks.
#[derive(Default)]
struct Findings {
    /// In their slots, as the core takes them.
    tasks: Vec<(TaskId, Task)>,
    /// The same, as the loop keeps them.
    entries: BTreeMap<TaskId, Entry>,
    /// Of those, the ones that have ended.
    ended: Vec<TaskId>,
    /// Of those, the ones the history does not know as admitted.
    unrecorded: Vec<TaskId>,
    /// Reservations of admissions that are rolled back.
    given_back: Vec<crate::state::record::ReservationRecord>,
    /// Records to delete.
    forget: Vec<TaskId>,
    /// Groups nobody needs any more.
    remove: Vec<Group>,
    /// Tasks found without a usable record.
    adopted: Vec<TaskId>,
}

impl Driver {
    /// Recovers and publishes the first snapshot. Serving may begin when this returns.
    pub fn start(parts: Parts) -> Result<(Driver, Remote), StartError> {
        let Parts { config, config_file, reload_log, tree, store, mut recovered, .. } = parts;
        let mut sampler = parts.sampler;
        let now = clock::now();
        let watcher = Watcher::new(parts.commands.wake_fd()).map_err(StartError::Watch)?;

        let findings = find(&*tree, &store, &mut recovered)?;
        let first = sampler.sample(now.boot, &[]);
        let cpus = first.node.cpus.unwrap_or(1);
        let standing = store.standing().clone();
        let mut counters = standing.counters;
        for (id, _) in &findings.tasks {
            if id.epoch == counters.epoch {
                counters.next_task = counters.next_task.max(id.number + 1);
            }
        }
        let mut reservations: Vec<_> =
            recovered.reservations.into_iter().chain(findings.given_back).collect();
        reservations.sort_by_key(|reservation| reservation.id);
        reservations.dedup_by_key(|reservation| reservation.id);
        for reservation in &reservations {
            if reservation.id.epoch == counters.epoch {
                let next = reservation.id.number + 1;
                counters.next_reservation = counters.next_reservation.max(next);
            }
        }
        let restored = Restored {
            tasks: findings.tasks,
            reservations: reservations.into_iter().map(|r| r.reservation()).collect(),
            jobs: standing.jobs.into_iter().collect(),
            totals: standing.totals,
            counters,
            draining: standing.draining,
            passive_capacity: standing.passive_capacity,
        };
        let core = Shaper::new(policy(&config), cpus, restored);
        let (workers, messages, inbox) =
            Workers::start(Arc::clone(&tree), sampler, watcher.waker())
                .map_err(StartError::Thread)?;
        let remote = Remote { messages, waker: watcher.waker() };
        let mut driver = Driver {
            rights: rights(&config),
            plan: plan(&config, &core),
            view: Snapshot {
                config_toml: config.to_toml().into(),
                colocation_threshold: config.classify.colocation_threshold,
                ..Snapshot::default()
            },
            hostname: hostname(),
            config,
            config_file,
            reload_log,
            core,
            tree,
            store,
            store_problem: None,
            mains: findings
                .entries
                .iter()
                .filter_map(|(id, entry)| Some((entry.process?, *id)))
                .collect(),
            entries: findings.entries,
            waiting: HashMap::new(),
            watcher,
            commands: parts.commands,
            workers,
            inbox,
            sources_new: Vec::new(),
            sources_gone: Vec::new(),
            reading: false,
            next_cycle: now.boot,
            cycles: 0,
            cpus,
            started_at: now.wall,
            sampled_at: None,
            node_last: Some((first.at, first.node)),
            node_rates: NodeRates::default(),
            changed: BTreeSet::new(),
            changed_all: true,
            changed_status: true,
            changed_jobs: true,
            snapshot: parts.snapshot,
            events: parts.events,
            answers: Vec::new(),
        };
        if let Err(error) = driver.tree.shape_root(&driver.plan) {
            tracing::warn!(%error, "the weight of the LRS root was not written");
        }
        for damage in &recovered.damaged {
            let reason = format!("{} {}", damage.path.display(), damage.what);
            driver.core.note(EventKind::Recovered, None, reason, Map::new(), now);
        }
        for id in findings.unrecorded {
            // The daemon was killed between the move and the event: the event is due.
            driver.core.readmit(id, now);
        }
        for id in findings.adopted {
            let reason = "its state file was lost or damaged; it goes on with what its cgroup \
                          tells, priority, labels and owner unknown";
            driver.core.note(EventKind::Recovered, Some(id), reason.into(), Map::new(), now);
        }
        driver.start_tasks(&findings.ended, now);
        for id in findings.forget {
            let removed = driver.store.remove_task(id);
            driver.noted(removed);
        }
        for group in findings.remove {
            if let Err(error) = driver.tree.remove(&group) {
                tracing::warn!(cgroup = group.record.path, %error, "an old cgroup stays");
            }
        }
        Ok((driver, remote))
    }

    /// Ends what ended meanwhile, then looks after the rest.
    fn start_tasks(&mut self, ended: &[TaskId], now: Moment) {
        let live = self.entries.len() - ended.len();
        let mut inputs = Map::new();
        inputs.insert("tasks".into(), json!(live));
        inputs.insert("ended_meanwhile".into(), json!(ended.len()));
        inputs.insert("cpus".into(), json!(self.cpus));
        let reason = format!("lrsd {} starts", env!("CARGO_PKG_VERSION"));
        self.core.note(EventKind::Started, None, reason, inputs, now);
        let endings = ended
            .iter()
            .map(|id| {
                let known = self.entries.get(id).and_then(|entry| entry.since_admission().cpu);
                let mut inputs = Map::new();
                let cpu = known.map(|cpu| cpu.as_secs_f64());
                inputs.insert("cpu_seconds".into(), json!(cpu));
                inputs.insert("elapsed_seconds".into(), json!(null));
                (*id, Ending { at: None, rate: None, inputs })
            })
            .collect();
        self.core.ended(endings, now);
        self.carry_out(now);
        for id in ended {
            self.clean_up(*id);
        }
        let live: Vec<TaskId> = self.entries.keys().copied().collect();
        for id in &live {
            // Compared before it is written: nothing is, where nothing differs.
            self.settle_in(*id, None, now);
            self.store_task(*id);
        }
        // A process may have ended between the first look and its watch.
        self.check_ended(&live, now);
        self.carry_out(now);
        self.publish(now);
    }
}

fn find(
    tree: &dyn TierTree,
    store: &Store,
    recovered: &mut Recovered,
) -> Result<Findings, StartError> {
    let mut findings = Findings::default();
    let live_in_history = &store.standing().live;
    let whole = !recovered.history_damaged;
    let mut groups: BTreeMap<TaskId, Group> = tree.existing()?.into_iter().collect();
    for record in std::mem::take(&mut recovered.tasks_of_earlier_boots) {
        if live_in_history.contains(&record.id) {
            findings.ended.push(record.id);
            findings.keep(record, None);
        } else {
            findings.forget.push(record.id);
        }
    }
    for record in std::mem::take(&mut recovered.tasks) {
        let id = record.id;
        let own = groups.remove(&id);
        let known = live_in_history.contains(&id);
        if record.phase == RecordPhase::Placed && !known && whole && saw(store, id) {
            // Its end is in the history; the daemon was killed before it forgot the record.
            findings.forget.push(id);
            findings.remove.extend(own);
            continue;
        }
        let group = match (&record.group, own) {
            (Some(group), own) if group.attachment != Attachment::Own => {
                findings.remove.extend(own);
                reopen(tree, group)?
            }
            (Some(group), None) => reopen(tree, group)?,
            (_, own) => own.map(|mut group| {
                // The record may be older than the group; it knows where the process was.
                group.record.origin = record.origin.clone();
                group
            }),
        };
        let occupied = match &group {
            Some(group) if group.record.attachment == Attachment::None => {
                record.process.is_some_and(super::process::alive)
            }
            Some(group) => !tree.processes(group)?.is_empty(),
            None => false,
        };
        match (record.phase, occupied) {
            (RecordPhase::Placed, true) if !known => {
                // The history of it is lost (damaged, deleted, a disk that was full); it is not.
                findings.unrecorded.push(id);
                findings.keep(record, group);
            }
            (RecordPhase::Placed, false) if !known => {
                findings.remove.extend(group);
                findings.forget.push(id);
            }
            (RecordPhase::Placed, true) => findings.keep(record, group),
            (RecordPhase::Placed, false) => {
                findings.ended.push(id);
                findings.keep(record, group);
            }
            (RecordPhase::Attaching, _) if known => {
                // The event is written, only the final record is missing.
                if !occupied {
                    findings.ended.push(id);
                }
                findings.keep(record, group);
            }
            (RecordPhase::Attaching, true) if is_inside(&record, group.as_ref(), tree)? => {
                findings.unrecorded.push(id);
                findings.keep(record, group);
            }
            (RecordPhase::Attaching, _) => {
                if let Some(group) = group {
                    // In place gets its weights back, own goes.
                    tree.release(&group)?;
                }
                findings.given_back.extend(record.used);
                findings.forget.push(id);
            }
        }
    }
    for (id, group) in groups {
        if tree.processes(&group)?.is_empty() {
            findings.remove.push(group);
            continue;
        }
        if !live_in_history.contains(&id) {
            findings.unrecorded.push(id);
        }
        findings.adopted.push(id);
        findings.adopt(id, Some(group));
    }
    // Known as running, but neither record nor group is left.
    for id in live_in_history {
        if !findings.entries.contains_key(id) {
            findings.ended.push(*id);
            findings.adopt(*id, None);
        }
    }
    Ok(findings)
}

/// Whether the history has had an event of this task. It has not when it was begun anew, or
/// when the disk was full as the task was admitted.
fn saw(store: &Store, id: TaskId) -> bool {
    let counters = store.standing().counters;
    id.epoch == counters.epoch && id.number < counters.next_task
}

fn reopen(
    tree: &dyn TierTree,
    record: &crate::cgroup::GroupRecord,
) -> Result<Option<Group>, StartError> {
    Ok(tree.reopen(record)?)
}

/// Whether the main process of a half-done admission reached its group. In place it was there
/// all along; then the written weights count, and they are written before anything else.
fn is_inside(
    record: &TaskRecord,
    group: Option<&Group>,
    tree: &dyn TierTree,
) -> Result<bool, StartError> {
    let (Some(group), Some(process)) = (group, record.process) else { return Ok(false) };
    Ok(tree.processes(group)?.contains(&process.pid))
}

impl Findings {
    fn keep(&mut self, record: TaskRecord, group: Option<Group>) {
        let main_exited = !record.process.is_some_and(super::process::alive);
        let task = Task {
            labels: record.labels.clone(),
            uid: record.uid,
            priority: record.priority,
            order: record.order,
            seat: record.seat,
            phase: Phase::Running,
            admitted_at: record.admitted(),
            promoted_at: record.promoted_at,
            resident: record.measured.and_then(|(_, sample)| sample.resident),
            rate: record.meter.computing_rate(),
            class: None,
        };
        let entry = Entry {
            process: record.process,
            admitted_by: record.admitted_by,
            main_exited,
            group: group.map(Arc::new),
            origin: record.origin,
            phase: Placement::Placed,
            meter: record.meter,
            last: record.measured,
            baseline: record.baseline,
            lost: record.lost,
            ..Entry::default()
        };
        self.tasks.push((record.id, task));
        self.entries.insert(record.id, entry);
    }

    /// A task of which only the id and perhaps the group are left. It takes its place behind
    /// everybody whose place is known.
    fn adopt(&mut self, id: TaskId, group: Option<Group>) {
        let last = self.tasks.iter().map(|(_, task)| task.order.0).max().unwrap_or(0);
        let task = Task {
            labels: Labels::default(),
            uid: None,
            priority: Priority::default(),
            order: Order(last + 1),
            seat: Seat::Overflow,
            phase: Phase::Running,
            admitted_at: Moment::default(),
            promoted_at: None,
            resident: None,
            rate: None,
            class: None,
        };
        self.tasks.push((id, task));
        let entry = Entry {
            group: group.map(Arc::new),
            phase: Placement::Placed,
            lost: true,
            ..Entry::default()
        };
        self.entries.insert(id, entry);
    }
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
