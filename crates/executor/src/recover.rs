//! From what an earlier daemon left to a running loop.
//!
//! What becomes of each task is in [`lrs_core::restore`].

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use serde_json::{Map, json};
use tokio::sync::watch as watch_channel;

use super::debts::Debts;
use super::entry::Entry;
use super::execute::Touched;
use super::find::{EarlierTasks, find};
use super::pacing::Pacing;
use super::postponed::Postponed;
use super::root_weight::RootState;
use super::settings::{plan, policy};
use super::taken::Taken;
use super::tickets::Tickets;
use super::world::World;
use super::{Loop, State};
use crate::found::HintSender;
use crate::group::Group;
use crate::publish::{EventRing, Snapshot};
use crate::recorder::Recorder;
use crate::recovered::{OwnGroup, Recovered};
use crate::rights::Rights;
use lrs_config::{Config, Mode};
use lrs_core::event::{Event, EventKind};
use lrs_core::history_state::HistoryState;
use lrs_core::inputs::Inputs;
use lrs_core::model::TaskId;
use lrs_core::ramp::Ramp;
use lrs_core::rate::NodeRates;
use lrs_core::sample::NodeSample;
use lrs_core::shaper::Shaper;
use lrs_core::slots::Seat;
use lrs_core::step::{Input, Record};
use lrs_core::task::Task;
use lrs_core::units::{BootTime, Moment};

/// What a loop begins with, beside the world.
pub struct Resumed {
    /// The settings.
    pub config: Config,
    /// Who may do what, by them.
    pub rights: Rights,
    /// What the daemon before stored.
    pub recovered: Recovered,
    /// What its history says.
    pub history_state: HistoryState,
    /// The groups that were made for tasks.
    pub own_groups: Vec<OwnGroup>,
    /// The first reading of the node, and when.
    pub first: (BootTime, NodeSample),
    /// The whole disks of the node, as of that.
    pub whole_disks: Vec<(u32, u32)>,
    /// The name of the node.
    pub hostname: String,
    /// The time namespace of this process; `None`: the kernel has none.
    pub time_namespace: Option<String>,
    /// Part of the ids of requests that wait.
    pub waiter_epoch: u32,
    /// By which they keep their places over a restart.
    pub tickets: Tickets,
    /// Where hints of schedulers go.
    pub hints: HintSender,
    /// Where snapshots go.
    pub snapshot: watch_channel::Sender<Arc<Snapshot>>,
    /// Where events go; holds the recovered ones already.
    pub events: Arc<EventRing>,
    /// Records from the first step on.
    pub recorder: Option<Recorder>,
}

/// Which tasks cannot run: no record has it, and one of them must not get an active slot that came free
/// meanwhile.
fn find_halts(world: &impl World, tasks: &mut [Task], groups: &BTreeMap<TaskId, Group>) {
    for task in tasks.iter_mut().filter(|task| task.seat != Seat::Active && !task.frozen) {
        let Some(group) = groups.get(&task.id) else { continue };
        let main = task.who.process.filter(|_| !task.main_exited);
        match world.halt(group, main) {
            Ok(halt) => task.halted = halt,
            Err(error) => {
                // Most likely its last process has just ended.
                let id = task.id;
                tracing::debug!(task = %id, %error, "whether task {id} can run is not known: {error}");
            }
        }
    }
}

impl<W: World> Loop<W> {
    /// Goes on where the daemon before ended, and publishes the first snapshot.
    pub fn resume(mut world: W, resumed: Resumed, now: Moment) -> Loop<W> {
        let Resumed { config, rights, recovered, history_state, own_groups, first, .. } = resumed;
        let time_namespace = resumed.time_namespace;
        let damage = recovered.damage_in_words();
        let observing = config.daemon.mode == Mode::Observe;
        let found = find(&mut world, observing, history_state, recovered, own_groups, now.boot);
        let EarlierTasks { mut restored, start, mut groups, remove, left, started } = found;
        find_halts(&world, &mut restored.tasks, &groups);
        let cpus = first.1.usable_cpus().unwrap_or(1.into());
        let mains =
            restored.tasks.iter().filter_map(|task| Some((task.who.process?, task.id))).collect();
        let entries = restored.tasks.iter().map(|task| {
            let group = groups.remove(&task.id).map(Arc::new);
            (task.id, Box::new(Entry { group, ..Entry::default() }))
        });
        let entries = entries.collect();
        let core = Shaper::new(policy(&config), cpus, restored);
        let state = State {
            world,
            rights,
            plan: plan(&config, &core),
            view: Snapshot {
                config_toml: config.to_toml().into(),
                config: Some(Arc::new(config.clone())),
                colocation_threshold: config.classify.colocation_threshold,
                ..Snapshot::default()
            },
            hostname: resumed.hostname,
            config,
            store_problem: None,
            mains,
            taken: Taken::default(),
            entries,
            asked: BTreeMap::new(),
            next_ticket: 0,
            waiter_epoch: resumed.waiter_epoch,
            tickets: resumed.tickets,
            inputs: Inputs::default(),
            unwritten: BTreeMap::new(),
            mains_ended: super::ending::Mains::default(),
            hints: resumed.hints,
            yarn_reported: now.boot,
            finder_trouble: None,
            not_again: HashSet::new(),
            root_weight: RootState::default(),
            debts: Debts::new(left.into_values()),
            to_park: VecDeque::new(),
            postponed: Postponed::default(),
            looking: HashMap::new(),
            ratio_groups: BTreeMap::new(),
            sources_new: BTreeMap::new(),
            sources_gone: Vec::new(),
            reading: false,
            next_cycle: now.boot,
            pacing: Pacing::default(),
            ramp: Ramp::default(),
            next_cpu_look: now.boot,
            running: lrs_api::proto::Running::default(),
            cpu_looked: None,
            cpu_files: BTreeMap::new(),
            cycles: 0,
            reading_took: None,
            cpus,
            whole_disks: resumed.whole_disks,
            started: now.boot,
            started_at: now.wall,
            sampled_at: None,
            node_last: Some(first),
            node_rates: NodeRates::default(),
            touched: Touched { all: true, ..Touched::default() },
            snapshot: resumed.snapshot,
            events: resumed.events,
            answers: Vec::new(),
            began: Vec::new(),
            tests: super::verify::Tests::default(),
        };
        let mut daemon = Loop { core, state, recorder: resumed.recorder };
        if let Some(recorder) = &daemon.recorder {
            recorder.begin(&daemon.core, now);
        }
        daemon.with(now, |executor| {
            let entries = executor.state.entries.iter();
            let groups: Vec<_> =
                entries.filter_map(|(id, entry)| Some((*id, entry.group.clone()?))).collect();
            for (id, group) in groups {
                executor.take(id, &group);
            }
            executor.shape_root();
            for reason in damage {
                executor.note(EventKind::Recovered, None, reason, Map::new());
            }
        });
        daemon.with(now, |executor| {
            if let Some(reason) = moved_in_time(started.as_ref(), time_namespace.as_deref()) {
                executor.note(EventKind::Recovered, None, reason, Map::new());
            }
            executor.push(Input::Restored(start.due));
        });
        daemon.start_tasks(start.ended, start.released, time_namespace, now);
        daemon.with(now, |executor| {
            // Before the records that know how they were found.
            let mut stay = HashSet::new();
            for (id, group) in remove {
                if let Err(error) = executor.state.world.remove(&group) {
                    let cgroup = &group.record.path;
                    tracing::warn!(cgroup, %error, "the old cgroup {cgroup} stays until the next start: {error}");
                    stay.insert(id);
                }
            }
            for id in start.forget {
                if !stay.contains(&id) && !executor.state.debts.needs_record(id) {
                    executor.forget(Record::Task(id));
                }
            }
            for (id, unit) in start.units {
                executor.restore_unit(id, None, unit, None);
            }
        });
        daemon
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

/// The warning where the daemon before ran in another time namespace, by its last `started`.
fn moved_in_time(started: Option<&Event>, now: Option<&str>) -> Option<String> {
    let started = started?;
    let before = started.inputs.get(TIME_NAMESPACE)?.as_str()?;
    let now = now.filter(|now| *now != before)?;
    Some(format!(
        "lrsd runs in another time namespace ({now}) than before ({before}), where the time since boot \
         and the start times of processes differ: tasks go on, their ages and the ends of reservations \
         are off by that, and main processes count as exited; start it in the namespace of the node"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lrs_core::units::WallTime;

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
        let before = started(json!("time:[1]"));
        assert_eq!(moved_in_time(Some(&before), Some("time:[1]")), None);
        let warning = moved_in_time(Some(&before), Some("time:[2]")).unwrap();
        assert!(warning.contains("time:[1]") && warning.contains("time:[2]"), "{warning}");
        assert_eq!(moved_in_time(Some(&started(json!(null))), Some("time:[2]")), None);
        assert_eq!(moved_in_time(None, Some("time:[2]")), None);
        assert_eq!(moved_in_time(Some(&before), None), None);
    }
}
