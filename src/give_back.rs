//! `lrsd --give-back`: the removal of LRS leaves no weight behind that nobody looks after.
//!
//! A daemon that ends leaves all weights as they are, because the next one goes on from there.
//! When none will come, a passive task would stay behind all others for good. So the packages
//! run this after they have stopped the service:
//!
//! | record | then |
//! |---|---|
//! | own group | neutral weights; processes and record stay, a daemon installed again goes on |
//! | group in place | what was found, told to systemd too for its units; released, record gone |
//! | nobody in its group any more | weights as above; the next daemon books the end |
//!
//! What YARN was offered goes back at the stop of the service; where that failed it is tried once
//! more, and said how to do it by hand.
//!
//! Whatever instant it is killed at, and after every error, it can be run again: nothing is
//! written that is there already, and a record goes last.
//!
//! Limits. Only what records name is given back: damaged ones are named, and so is an admission
//! cut short before its cgroup was recorded; the next daemon finds and undoes both.

use std::path::Path;
use std::process::ExitCode;

use serde_json::Map;

use crate::cgroup::{Attachment, CgroupError, RecordedGroups, has_ended};
use crate::clock;
use crate::config::{Absent, Config, ConfigErrors};
use crate::core::event::{Event, EventKind};
use crate::core::shaper::insert_labels;
use crate::daemon::{BAD_CONFIG, new_epoch};
use crate::log::{last_words, say};
use crate::state::lock::{LockError, RuntimeLock};
use crate::state::record::{RecordPhase, TaskRecord};
use crate::state::{StateError, Store};
use crate::systemd::manager::{Manager, ManagerError};
use crate::systemd::unit::UnitRecord;
use crate::yarn::rm::give_back::at_removal;

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

/// Answers whether every task has its weights back, and YARN nothing of LRS's.
fn give_back(file: &Path) -> Result<bool, GiveBackError> {
    let config = Config::load(file, Absent::IsDefault)?;
    let runtime_dir = &config.daemon.runtime_dir;
    if !runtime_dir.join("state").is_dir() {
        nothing_recorded(runtime_dir);
        return Ok(true);
    }
    let _lock = RuntimeLock::take(runtime_dir)?;
    let tasks = give_back_tasks(&config);
    // Whatever became of the tasks: the two have nothing to do with each other.
    let offer = match at_removal(&config) {
        Ok(None) => true,
        Ok(Some(node)) => {
            say(&format!("YARN: {node} has its configured resource back"));
            true
        }
        Err(left) => {
            last_words(&format!("lrsd: {left}"));
            false
        }
    };
    Ok(tasks? && offer)
}

fn nothing_recorded(runtime_dir: &Path) {
    let state = runtime_dir.join("state");
    say(&format!("no task is recorded in {}: nothing to give back", state.display()));
}

/// Answers whether every task has its weights back.
fn give_back_tasks(config: &Config) -> Result<bool, GiveBackError> {
    let runtime_dir = &config.daemon.runtime_dir;
    let (store, recovered) = Store::open(runtime_dir, &crate::state::boot_id()?, new_epoch())?;
    let mut complete = recovered.damaged_tasks.is_empty();
    for damage in &recovered.damaged {
        last_words(&format!("lrsd: {} {}", damage.path.display(), damage.what));
    }
    if recovered.tasks.is_empty() {
        nothing_recorded(runtime_dir);
        return Ok(complete);
    }
    let groups = RecordedGroups::find(&config.tree_settings())?;
    let mut desk = Desk { groups, store };
    for record in &recovered.tasks {
        let mut task = format!("task {}", record.id);
        if let Some(unit) = &record.unit {
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
    fn give_back(&mut self, record: &TaskRecord) -> Result<&'static str, TaskError> {
        let files = record.group.as_ref().map(|group| self.groups.give_back(group)).transpose();
        // Told even where the files could not be written: systemd writes them too.
        let told = record.unit.as_ref().map(|unit| self.tell(unit)).transpose();
        let occupied = files?.unwrap_or(false);
        let told = told?.unwrap_or(true);
        let attachment = record.group.as_ref().map(|group| group.attachment);
        match attachment {
            Some(Attachment::Own) if occupied => {
                Ok("neutral weights; it runs on in its cgroup, and the next lrsd knows it")
            }
            Some(Attachment::InPlace) if occupied => {
                self.release(record)?;
                Ok(if told {
                    "it has the weights back that were found, and is released"
                } else {
                    "its files have the weights back that were found, and it is released; systemd \
                     does not run here and was not told"
                })
            }
            Some(Attachment::None) => Ok("only booked: no weight was changed"),
            None if record.unit.is_none() && record.process.is_some_and(|p| !has_ended(p)) => {
                Err(TaskError::CutShort)
            }
            Some(Attachment::Own | Attachment::InPlace) | None => Ok("nobody is left in it"),
        }
    }

    /// Gives the unit's properties back. `false`: there is no systemd to be told.
    fn tell(&self, unit: &UnitRecord) -> Result<bool, ManagerError> {
        if !crate::systemd::is_running() {
            return Ok(false);
        }
        Manager::default().give_back(unit).map(|()| true)
    }

    /// The event first: a record whose end is in the history is only to be cleaned up.
    fn release(&mut self, record: &TaskRecord) -> Result<(), StateError> {
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
            // Nobody was answered: the promise it was to use holds again.
            None => {
                let unused =
                    record.used.as_ref().filter(|_| record.phase == RecordPhase::Attaching);
                unused.map_or(Ok(()), |used| self.store.put_reservation(used))?;
            }
        }
        self.store.remove_task(record.id)
    }
}
