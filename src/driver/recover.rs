//! From what an earlier daemon left to a running loop.
//!
//! What becomes of each task is in [`crate::core::restore`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use lrs_host::spare::NoThread;
use serde_json::{Map, json};
use tokio::sync::watch as watch_channel;

use super::execute::Touched;
use super::find::{Findings, find};
use super::pacing::Pacing;
use super::root_weight::RootState;
use super::settings::{plan, policy, rights};
use super::taken::Taken;
use super::tickets::Tickets;
use super::watch::Watcher;
use super::worker::Workers;
use super::{Driver, ReloadLog, Remote, State};
use crate::cgroup::{CgroupError, TierTree};
use crate::clock;
use crate::command::CommandReceiver;
use crate::config::{Config, Mode};
use crate::core::cpus::UsableCpus;
use crate::core::event::{Event, EventKind};
use crate::core::inputs::Inputs;
use crate::core::model::TaskId;
use crate::core::ramp::Ramp;
use crate::core::rate::NodeRates;
use crate::core::shaper::Shaper;
use crate::core::step::Input;
use crate::discover::HintSender;
use crate::publish::{EventRing, LastTurn, Snapshot};
use crate::sample::Sampler;
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
    pub tree: Arc<TierTree>,
    /// The state directory and what was in it.
    pub store: Store,
    /// See `store`.
    pub recovered: Recovered,
    /// Reads the node.
    pub sampler: Sampler,
    /// Where hints of schedulers go.
    pub hints: HintSender,
    /// The loop's end of the command queue.
    pub commands: CommandReceiver,
    /// Where snapshots go.
    pub snapshot: watch_channel::Sender<Arc<Snapshot>>,
    /// Where events go; holds the recovered ones already.
    pub events: Arc<EventRing>,
    /// Where each turn says that it ended.
    pub last_turn: Arc<LastTurn>,
}

/// Why the loop cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// epoll, inotify or eventfd.
    #[error("cannot set up waiting for events: {0}")]
    Watch(io::Error),
    /// A thread.
    #[error("cannot start the thread of {what}: {}", NoThread(source))]
    Thread {
        /// Which one.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The cgroup tree.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

impl Driver {
    /// Recovers and publishes the first snapshot. Serving may begin when this returns.
    pub fn start(parts: Parts) -> Result<(Driver, Remote), StartError> {
        let Parts { config, config_file, reload_log, tree, store, mut recovered, hints, .. } =
            parts;
        let mut sampler = parts.sampler;
        let now = clock::now();
        let watcher = Watcher::new(parts.commands.wake_fd()).map_err(StartError::Watch)?;

        let observing = config.daemon.mode == Mode::Observe;
        let history_state = store.standing().clone();
        let Findings { restored, start, entries, remove, left } =
            find(&tree, observing, history_state, &mut recovered, now.boot)?;
        let first = sampler.sample(now.boot, &[]);
        let whole_disks = sampler.whole_disks();
        let cpus = UsableCpus::of(&first.node).unwrap_or(1.into());
        let mains =
            restored.tasks.iter().filter_map(|task| Some((task.who.process?, task.id))).collect();
        let core = Shaper::new(policy(&config), cpus, restored);
        let (workers, messages, inbox) =
            Workers::start(Arc::clone(&tree), sampler, watcher.waker())
                .map_err(|source| StartError::Thread { what: "a worker", source })?;
        let remote = Remote { messages, waker: watcher.waker() };
        let waiter_epoch = crate::state::new_epoch();
        let tickets = Tickets::open(&config.daemon.runtime_dir, waiter_epoch, now.boot);
        let plan = plan(&config, &core);
        let state = State {
            rights: rights(&config),
            plan,
            view: Snapshot {
                config_toml: config.to_toml().into(),
                config: Some(Arc::new(config.clone())),
                colocation_threshold: config.classify.colocation_threshold,
                ..Snapshot::default()
            },
            hostname: hostname(),
            config,
            config_file,
            reload_log,
            tree,
            store,
            store_problem: None,
            mains,
            taken: Taken::default(),
            entries,
            asked: BTreeMap::new(),
            next_ticket: 0,
            waiter_epoch,
            tickets,
            inputs: Inputs::default(),
            unwritten: BTreeMap::new(),
            watcher,
            mains_ended: super::ending::Mains::default(),
            commands: parts.commands,
            workers,
            inbox,
            hints,
            yarn_reported: now.boot,
            finder_trouble: None,
            not_again: HashSet::new(),
            root_weight: RootState::default(),
            not_removed: Vec::new(),
            left,
            not_thawed: BTreeSet::new(),
            to_park: VecDeque::new(),
            not_unparked: Vec::new(),
            held: Vec::new(),
            sought: Vec::new(),
            unrestored: BTreeMap::new(),
            looking: HashMap::new(),
            ratio_groups: BTreeMap::new(),
            sources_new: BTreeMap::new(),
            sources_gone: Vec::new(),
            reading: false,
            next_cycle: now.boot,
            pacing: Pacing::default(),
            ramp: Ramp::default(),
            next_lane_look: now.boot,
            running: crate::proto::Running::default(),
            lane_looked: None,
            cycles: 0,
            cpus,
            whole_disks,
            started: now.boot,
            started_at: now.wall,
            sampled_at: None,
            node_last: Some((first.at, first.node)),
            node_rates: NodeRates::default(),
            touched: Touched { all: true, ..Touched::default() },
            snapshot: parts.snapshot,
            events: parts.events,
            last_turn: parts.last_turn,
            answers: Vec::new(),
        };
        let mut driver = Driver { core, state };
        driver.with(now, |executor| {
            let entries = executor.state.entries.iter();
            let groups: Vec<_> =
                entries.filter_map(|(id, entry)| Some((*id, entry.group.clone()?))).collect();
            for (id, group) in groups {
                executor.take(id, &group);
            }
            executor.shape_root();
            for reason in recovered.damage_in_words() {
                executor.note(EventKind::Recovered, None, reason, Map::new());
            }
        });
        let namespace = time_namespace();
        driver.with(now, |executor| {
            if let Some(reason) = moved_in_time(&recovered.events, namespace.as_deref()) {
                executor.note(EventKind::Recovered, None, reason, Map::new());
            }
            executor.push(Input::Restored(start.due));
        });
        driver.start_tasks(start.ended, start.released, namespace, now);
        driver.with(now, |executor| {
            for id in start.forget {
                if executor.is_left(id) {
                    continue;
                }
                let removed = executor.state.store.remove_task(id);
                executor.noted(removed);
            }
            for (id, unit) in start.units {
                executor.restore_unit(id, None, unit, None);
            }
            for group in remove {
                if let Err(error) = super::worker::remove(&executor.state.tree, &group) {
                    let cgroup = &group.record.path;
                    tracing::warn!(cgroup, %error, "the old cgroup {cgroup} stays: {error}");
                }
            }
        });
        Ok((driver, remote))
    }

    /// Ends what ended meanwhile, then looks after the rest.
    fn start_tasks(
        &mut self,
        ended: Vec<TaskId>,
        released: Vec<TaskId>,
        namespace: Option<String>,
        now: Moment,
    ) {
        let live = self.state.entries.len() - ended.len() - released.len();
        let mut inputs = Map::new();
        inputs.insert("tasks".into(), json!(live));
        inputs.insert("ended_meanwhile".into(), json!(ended.len()));
        inputs.insert("cpus".into(), json!(self.state.cpus.slots()));
        inputs.insert(TIME_NAMESPACE.into(), json!(namespace));
        let reason = format!("lrsd {} starts", env!("CARGO_PKG_VERSION"));
        self.with(now, |executor| executor.note(EventKind::Started, None, reason, inputs));
        self.with(now, |executor| {
            for id in &ended {
                // Its admission counts. A kill after its end must not find a record to roll back.
                executor.store_task(*id);
            }
            let units = released.iter().filter_map(|id| {
                let unit = executor.core.task(*id)?.who.unit.clone()?;
                Some((*id, unit))
            });
            for (id, unit) in units.collect::<Vec<_>>() {
                // The files have their weights back; the record stays until systemd has too.
                executor.restore_unit(id, None, unit, None);
            }
            executor.push(Input::EndedAway { ended, released: released.clone() });
            released.into_iter().for_each(|id| executor.push(Input::Released(id)));
        });
        let live: Vec<TaskId> = self.state.entries.keys().copied().collect();
        for id in &live {
            self.with(now, |executor| {
                // Compared before it is written: nothing is, where nothing differs.
                executor.watch(*id);
                executor.store_task(*id);
            });
        }
        // A process may have ended between the first look and its watch.
        self.with(now, |executor| executor.check_ended(&live));
        self.with(now, |executor| executor.attach_admitted());
        self.with(now, |executor| {
            executor.publish();
            // Last: it reads files of every task, and clients wait for the rest.
            live.into_iter().for_each(|id| executor.renew_disk_tier(id));
        });
    }
}

/// Input of `started` events.
const TIME_NAMESPACE: &str = "time_namespace";

/// The time namespace of this process (namespaces(7)); `None`: the kernel has none.
fn time_namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/time").ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// The warning where the daemon before ran in another time namespace, by its last `started`.
fn moved_in_time(events: &[Event], now: Option<&str>) -> Option<String> {
    let started = events.iter().rev().find(|event| event.kind == EventKind::Started)?;
    let before = started.inputs.get(TIME_NAMESPACE)?.as_str()?;
    let now = now.filter(|now| *now != before)?;
    Some(format!(
        "lrsd runs in another time namespace ({now}) than before ({before}), where the time since boot \
         and the start times of processes differ: tasks go on, their ages and the ends of reservations \
         are off by that, and main processes count as exited; start it in the namespace of the node"
    ))
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::WallTime;

    #[test]
    fn another_time_namespace_is_warned_of() {
        let started = |namespace: serde_json::Value| Event {
            seq: 1,
            at: WallTime::from_unix_micros(0),
            kind: EventKind::Started,
            task: None,
            from: None,
            to: None,
            reason: None,
            inputs: [(TIME_NAMESPACE.to_owned(), namespace)].into_iter().collect(),
        };
        let here = time_namespace();
        let before = [started(json!("time:[1]")), started(json!(here))];
        assert_eq!(moved_in_time(&before, here.as_deref()), None);
        let warning = moved_in_time(&before[..1], Some("time:[2]")).unwrap();
        assert!(warning.contains("time:[1]") && warning.contains("time:[2]"), "{warning}");
        assert_eq!(moved_in_time(&[started(json!(null))], Some("time:[2]")), None);
        assert_eq!(moved_in_time(&[], Some("time:[2]")), None);
        assert_eq!(moved_in_time(&before, None), None);
    }
}
