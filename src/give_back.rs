//! `lrsd --give-back`: the removal of LRS leaves no weight behind without an owner. Nor
//! does a change from `daemon.mode = "enforce"` to `"observe"` ([`before_observing`]).
//!
//! A daemon that ends leaves all weights as they are, because the next one goes on from there.
//! When none will come, a passive task would stay behind all others for good. So the packages
//! run this after they have stopped the service:
//!
//! | record | then |
//! |---|---|
//! | own group | neutral weights; processes and record stay, a daemon installed again goes on |
//! | own group of an admission cut short, such as of a request that waited | its processes go back where they were; group and record gone |
//! | group in place | what was found, also set in systemd for its units; released, record gone |
//! | the root, left idle by a daemon that was killed | neutral weight |
//! | no process in its group any more | weights as above; the next daemon records the end |
//!
//! What YARN was offered is given back by `lrs-yarn --give-back`, which has the ledger.
//!
//! Whatever instant it is killed at, and after every error, it can be run again: nothing is
//! written that is there already, and a record goes last.
//!
//! Limits. Only what records name is given back: damaged ones are named, and so is an admission
//! cut short before its cgroup was recorded; the next daemon finds and undoes both. Before observing,
//! groups without a usable record are found below the present root, if a record or the history tells
//! of their tasks. A root that changed in the same restart stays, empty.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Map;

use crate::cgroup::{
    Attachment, CgroupError, Group, GroupRecord, Origin, RecordedGroups, TierTree, has_ended,
};
use crate::clock;
use crate::config::BAD_CONFIG;
use crate::config::{Config, ConfigErrors};
use crate::core::event::{Event, EventKind};
use crate::core::model::TaskId;
use crate::core::shaper::insert_labels;
use crate::core::task::{Hold, Life, Task};
use crate::log::{last_words, say};
use crate::sample::{TaskSample, read_final};
use crate::state::ReservationRecord;
use crate::state::lock::{LockError, RuntimeLock};
use crate::state::{Recovered, StateError, Store};
use crate::systemd::manager::{Manager, ManagerError};
use crate::systemd::unit::UnitRecord;

/// Why nothing was given back.
#[derive(Debug, thiserror::Error)]
enum GiveBackError {
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

/// Why a task has not all of its weights back.
#[derive(Debug, thiserror::Error)]
enum TaskError {
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("its files have their weights back, but a daemon-reload would undo that: {0}")]
    Systemd(#[from] ManagerError),
    #[error("its weights are given back, but it is not released: {0}")]
    State(#[from] StateError),
    #[error(
        "its admission was cut short before its cgroup was recorded; start lrsd once, it undoes \
         such"
    )]
    CutShort,
}

/// Entry of `lrsd --give-back` with the configuration file `config`.
pub fn run(config: &Path) -> ExitCode {
    match give_back(config) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(GiveBackError::Config(errors)) => {
            last_words(&errors.to_string());
            ExitCode::from(BAD_CONFIG)
        }
        Err(error) => {
            last_words(&format!("lrsd: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Answers whether every task has its weights back.
fn give_back(file: &Path) -> Result<bool, GiveBackError> {
    let config = Config::load_trusted(file)?.config;
    let runtime_dir = &config.daemon.runtime_dir;
    if !runtime_dir.join("state").is_dir() {
        nothing_recorded(runtime_dir);
        return Ok(true);
    }
    lrs_host::files::make_dir(runtime_dir)?;
    let _lock = RuntimeLock::take(runtime_dir)?;
    give_back_tasks(&config)
}

fn nothing_recorded(runtime_dir: &Path) {
    let state = runtime_dir.join("state");
    say(&format!("no task is recorded in {}: nothing to give back", state.display()));
}

/// Answers whether every task has its weights back.
fn give_back_tasks(config: &Config) -> Result<bool, GiveBackError> {
    let runtime_dir = &config.daemon.runtime_dir;
    let (store, recovered) =
        Store::open(runtime_dir, &crate::state::boot_id()?, crate::state::new_epoch())?;
    let mut complete = recovered.damaged_tasks.is_empty();
    for line in recovered.damage_in_words() {
        last_words(&format!("lrsd: {line}"));
    }
    if recovered.tasks.is_empty() {
        nothing_recorded(runtime_dir);
        return Ok(complete);
    }
    let groups = RecordedGroups::find(&config.tree_settings())?;
    if let Err(error) = groups.wake_root(&config.tree_settings()) {
        complete = false;
        last_words(&format!("lrsd: the cgroup of all tasks: {error}"));
    }
    let mut desk = Desk { groups, store };
    for record in &recovered.tasks {
        let mut task = format!("task {}", record.id);
        if let Some(unit) = &record.who.unit {
            task.push_str(&format!(" ({})", unit.name));
        }
        match desk.give_back(record) {
            Ok(outcome) => say(&format!("{task}: {outcome}")),
            Err(error) => {
                complete = false;
                last_words(&format!("lrsd: {task}: {error}"));
            }
        }
    }
    Ok(complete)
}

/// What one task after the other is done with.
struct Desk {
    groups: RecordedGroups,
    store: Store,
}

impl Desk {
    /// Answers what was done, for people.
    fn give_back(&mut self, record: &Task) -> Result<&'static str, TaskError> {
        if let Some(group) = record.group.as_ref().filter(|_| record.frozen) {
            self.groups.thaw(group)?;
        }
        if let Some(group) = record.group.as_ref().filter(|_| self.was_cut_short(record)) {
            if !self.groups.roll_back(group)? {
                return Ok("its admission was not done, and others froze it: neutral \
                           weights; its processes stay in its cgroup, and the next lrsd knows it");
            }
            self.release(record)?;
            return Ok("its admission was not done; its processes are back where they were");
        }
        let halted = record.group.as_ref().is_some_and(|group| self.groups.is_halted(group));
        let files = record.group.as_ref().map(|group| self.groups.give_back(group)).transpose();
        // Set in systemd even where the files could not be written: systemd writes them too.
        let set = record.who.unit.as_ref().map(|unit| self.tell(unit)).transpose();
        let occupied = files?.unwrap_or(false);
        let set = set?.unwrap_or(true);
        let attachment = record.group.as_ref().map(|group| group.attachment);
        match attachment {
            Some(Attachment::Own) if occupied && halted => {
                Ok("neutral weights; others froze or stopped it, and it stays so in its cgroup, \
                 which goes with its last process under the next lrsd, or by rmdir")
            }
            Some(Attachment::Own) if occupied => {
                Ok("neutral weights; it runs on in its cgroup, and the next lrsd knows it")
            }
            Some(Attachment::InPlace) if occupied => {
                self.release(record)?;
                Ok(if set {
                    "it has the weights back that were found, and is released"
                } else {
                    "its files have the weights back that were found, and it is released; systemd \
                     does not run here and did not get them"
                })
            }
            Some(Attachment::None) => Ok("only booked: no weight was changed"),
            None if record.who.unit.is_none()
                && record.who.process.is_some_and(|p| !has_ended(p)) =>
            {
                Err(TaskError::CutShort)
            }
            Some(Attachment::Own | Attachment::InPlace) | None => Ok("no process is left in it"),
        }
    }

    /// Whether the client got no answer for a task in a group that LRS made: a daemon would undo
    /// it.
    fn was_cut_short(&self, record: &Task) -> bool {
        let own = record.group.as_ref().is_some_and(|g| g.attachment == Attachment::Own);
        let known = self.store.standing().live.contains_key(&record.id);
        own && record.is_new() && !known
    }

    /// Gives the unit's properties back. `false`: no systemd runs here.
    fn tell(&self, unit: &UnitRecord) -> Result<bool, ManagerError> {
        if !crate::systemd::is_running() {
            return Ok(false);
        }
        Manager::default().give_back(unit).map(|()| true)
    }

    /// The event first: if the end is in the history, the record is only cleaned up.
    fn release(&mut self, record: &Task) -> Result<(), StateError> {
        let standing = self.store.standing();
        match standing.live.get(&record.id) {
            Some(tier) => {
                let mut inputs = Map::new();
                insert_labels(&mut inputs, &record.labels);
                let event = Event {
                    seq: standing.counters.next_seq.max(1),
                    at: clock::now().wall,
                    kind: EventKind::Released,
                    task: Some(record.id.to_string()),
                    from: tier.map(|tier| tier.to_string()),
                    to: None,
                    reason: Some("lrsd --give-back: LRS is being removed".to_owned()),
                    inputs,
                };
                self.store.append(&event)?;
            }
            // The client got no answer: the reservation it was to use holds again.
            None => {
                if let Some((id, reservation)) = record.promise().cloned() {
                    self.store.put_reservation(&ReservationRecord { id, reservation })?;
                }
            }
        }
        self.store.remove_task(record.id)
    }
}

/// A daemon cannot observe what an earlier one has shaped.
#[derive(Debug, thiserror::Error)]
#[error(
    "daemon.mode is \"observe\", but an lrsd with mode \"enforce\" has shaped tasks that still run, \
     and their weights cannot be given back: {what}: {error}; start lrsd as root, or set daemon.mode = \
     \"enforce\" again"
)]
pub struct StillShaped {
    what: String,
    error: TaskError,
}

/// Gives back what an earlier daemon has shaped, before one observes: observe mode writes
/// nothing, so that passive tasks would stay behind all others. Processes go back to the groups they
/// came from, and groups in place get the weights found. The tasks stay, with their ids, seats and
/// history, and have attachment `none` from then on. A daemon killed on the way goes on when it is
/// started again.
///
/// # Errors
/// A task has not all of its weights back; the daemon must not observe then.
pub fn before_observing(
    config: &Config,
    store: &Store,
    recovered: &mut Recovered,
) -> Result<(), StillShaped> {
    let is_shaped = |record: &Task| {
        let group = record.group.as_ref().map(|group| group.attachment);
        record.booked().is_some() || group.is_some_and(|attachment| attachment != Attachment::None)
    };
    let shaped = recovered.tasks.iter().any(is_shaped);
    if !shaped && !records_are_lost(store, recovered) {
        return Ok(());
    }
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: TaskError| StillShaped { what, error }
    };
    let the_root = "the LRS root";
    let tree = match crate::cgroup::open(&config.tree_settings()) {
        Ok(tree) => tree,
        Err(error) if shaped => return Err(failed(the_root)(error.into())),
        Err(error) => {
            // They may all be of a daemon that observed, which needs no rights for them.
            tracing::warn!(%error, "whether tasks with lost records have the weights of a tier cannot be seen: {error}");
            return Ok(());
        }
    };
    let given_back = unshape_all(&tree, store, recovered);
    let closed = tree.close().map_err(|error| failed(the_root)(error.into()));
    given_back.map_err(|(what, error)| failed(&what)(error)).and(closed)
}

/// Whether there may be groups below the root that no record tells of.
fn records_are_lost(store: &Store, recovered: &Recovered) -> bool {
    let all = || recovered.tasks.iter().chain(&recovered.tasks_of_earlier_boots);
    let unknown = |id: &TaskId| !all().any(|record| record.id == *id);
    !recovered.damaged_tasks.is_empty() || store.standing().live.keys().any(unknown)
}

/// The error with the task it is about.
fn unshape_all(
    tree: &TierTree,
    store: &Store,
    recovered: &mut Recovered,
) -> Result<(), (String, TaskError)> {
    let existing = tree.existing().map_err(|error| ("the LRS root".to_owned(), error.into()))?;
    let mut own: BTreeMap<TaskId, Group> = existing.into_iter().collect();
    for record in &mut recovered.tasks {
        let own = own.remove(&record.id);
        let what = format!("task {}", record.id);
        unshape(tree, store, record, own).map_err(|error| (what, error))?;
    }
    for (id, group) in own {
        tree.release(&group).map_err(|error| (format!("task {id}"), error.into()))?;
    }
    Ok(())
}

/// Gives one task back. `own`: the group LRS made for it below the present root.
fn unshape(
    tree: &TierTree,
    store: &Store,
    record: &mut Task,
    own: Option<Group>,
) -> Result<(), TaskError> {
    let mut groups: Vec<Group> = Vec::new();
    // Below a unit of systemd's, or below another root, only the record knows it.
    let unfound = |stored: &&GroupRecord| stored.attachment != Attachment::Own || own.is_none();
    if let Some(stored) = record.group.as_ref().filter(unfound) {
        groups.extend(tree.reopen(stored)?);
    }
    groups.extend(own.map(|mut group| {
        // The record may be older than the group; it knows where the process was.
        group.record.origin.clone_from(&record.who.origin);
        group
    }));
    let counted = groups.last().and_then(|group| read_final(&group.dirs));
    for group in &groups {
        if record.frozen {
            tree.thaw(group)?;
        }
        tree.release(group)?;
    }
    if let Some(unit) = record.who.unit.as_ref().filter(|_| crate::systemd::is_running()) {
        Manager::default().give_back(unit)?;
    }
    record.who.unit = None;
    record.frozen = false;
    if let Some(booked) = record.booked().cloned() {
        // Its attach was under way; what it had before is still so.
        record.group = Some(booked.group);
        record.life = Life::Placed(Hold::Kept);
    }
    let Some(stored) = record.group.take_if(|group| group.attachment != Attachment::None) else {
        return Ok(store.put_task(record)?);
    };
    // Other counters go on from here: those of its processes.
    let last = counted.or(record.counts.opened.map(|(_, sample)| sample));
    let last = last.and_then(|sample| sample.cpu);
    let base = record.counts.baseline.map_or(Some(Duration::ZERO), |baseline| baseline.cpu);
    let counted = last.zip(base).and_then(|(last, base)| last.checked_sub(base));
    record.counts.cpu_before += counted.unwrap_or_default();
    record.counts.baseline = Some(TaskSample::default());
    record.counts.opened = None;
    let (path, inode) = match stored.attachment {
        Attachment::InPlace => (stored.path, stored.inode),
        Attachment::Own | Attachment::None => (String::new(), 0),
    };
    let (attachment, origin, found) = (Attachment::None, Origin::default(), Vec::new());
    record.group = Some(GroupRecord {
        attachment,
        path,
        inode,
        origin,
        found,
        elsewhere: Vec::new(),
        for_member: false,
    });
    store.put_task(record)?;
    let id = record.id;
    tracing::info!(task = %id, "observe mode: task {id} has its weights back, and is only booked from now on");
    Ok(())
}
