//! State that survives the daemon, in `<runtime_dir>/state/`.
//!
//! - `task-<id>.json`, `reservation-<id>.json`: one record each, renamed into place.
//! - `journal-<n>.jsonl`: the history and, folded from it, every count ([`HistoryState`]).
//!
//! The order of an admission is: record (attaching), cgroup, weights, move, `admitted` event,
//! record (placed), answer. The order of a completion is: `completed` event, record removed.
//! So whatever instant the daemon is killed at, a record without an end in the journal is a
//! task to look after, and one with an end is only to be cleaned up.
//!
//! Each record and each line of the journal has a [`checksum`]. A file that does not fit it, or
//! cannot be read, is set aside under `<name>.damaged` and reported, never deleted: in the log, as an
//! event, and in `status` for as long as it is there ([`aside`]). Nothing of a record that does not
//! fit its checksum is used, for it is not known which part of it is wrong: its task goes on with what
//! its cgroup and the history tell. Nothing here is synced to disk: see [`journal`].

use std::path::{Path, PathBuf};

pub mod aside;
pub mod checksum;
pub mod journal;
pub mod record;
pub mod ticket_key;

#[cfg(test)]
mod tests;

pub use lrs_host::files::{self, StateError};
pub use lrs_host::lock;

use crate::core::event::Event;
use crate::core::history_state::HistoryState;
use crate::core::model::{ReservationId, TaskId};
use crate::core::task::Task;
pub use crate::executor::recovered::{Damage, Recovered, ReservationRecord};
use aside::SetAside;
use journal::Journal;
use lrs_host::files::at;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Format of the records and of the journal that this daemon writes and reads. A key that a daemon of this
/// format may pass over, and does without where it is absent, needs no other number.
pub const FORMAT: u32 = 1;

/// A number that no other state directory of this node had.
pub fn new_epoch() -> u32 {
    let mut bytes = [0u8; 4];
    // Early in a boot the pool may not be ready; the clock then has to do.
    let random = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK);
    let number = match random {
        Ok(4) => u32::from_ne_bytes(bytes),
        _ => lrs_host::clock::now().wall.unix_micros() as u32,
    };
    number.max(1)
}

/// The open state directory.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    boot_id: String,
    journal: Journal,
    set_aside: SetAside,
}

impl Store {
    /// Opens (or makes) `<runtime_dir>/state`. `epoch` goes into the ids of a new history and
    /// must not be 0.
    pub fn open(
        runtime_dir: &Path,
        boot_id: &str,
        epoch: u32,
    ) -> Result<(Store, Recovered), StateError> {
        let dir = runtime_dir.join("state");
        lrs_host::files::make_dir(&dir)?;
        let (journal, replayed) = Journal::open(&dir, epoch)?;
        let mut recovered = Recovered {
            events: replayed.events,
            history_damaged: !replayed.damaged.is_empty(),
            ..Recovered::default()
        };
        replayed.damaged.into_iter().for_each(|damage| recovered.damage(damage));
        let set_aside = SetAside::default();
        let mut store = Store { dir, boot_id: boot_id.to_owned(), journal, set_aside };
        store.read_records(&mut recovered)?;
        store.set_aside = SetAside::in_dir(&store.dir);
        Ok((store, recovered))
    }

    /// What `status` says of files that were set aside and are there still.
    pub fn damage_warning(&self) -> Option<String> {
        self.set_aside.warning()
    }

    /// The files that were set aside.
    pub fn set_aside(&mut self) -> &mut SetAside {
        &mut self.set_aside
    }

    /// The totals: counts, job rates, numbers.
    pub fn standing(&self) -> &HistoryState {
        self.journal.standing()
    }

    /// Adds an event to the history.
    pub fn append(&mut self, event: &Event) -> Result<(), StateError> {
        self.journal.append(event)
    }

    /// Makes sure that the history can be written, after an append that failed or where its files were
    /// removed, also with the whole runtime directory. Answers whether that was necessary; then
    /// records may be gone too.
    pub fn resume(&mut self) -> Result<bool, StateError> {
        if self.journal.is_in_place() {
            return Ok(false);
        }
        lrs_host::files::make_dir(&self.dir)?;
        self.journal.begin_anew()?;
        Ok(true)
    }

    /// Stores a task.
    pub fn put_task(&self, task: &Task) -> Result<(), StateError> {
        self.put(&self.task_path(task.id), task)
    }

    /// Forgets a task.
    pub fn remove_task(&self, id: TaskId) -> Result<(), StateError> {
        files::remove(&self.task_path(id))
    }

    /// Stores a reservation.
    pub fn put_reservation(&self, record: &ReservationRecord) -> Result<(), StateError> {
        self.put(&self.reservation_path(record.id), record)
    }

    /// Forgets a reservation.
    pub fn remove_reservation(&self, id: ReservationId) -> Result<(), StateError> {
        files::remove(&self.reservation_path(id))
    }

    fn task_path(&self, id: TaskId) -> PathBuf {
        self.dir.join(format!("task-{id}.json"))
    }

    fn reservation_path(&self, id: ReservationId) -> PathBuf {
        self.dir.join(format!("reservation-{id}.json"))
    }

    fn put<T: Serialize>(&self, path: &Path, record: &T) -> Result<(), StateError> {
        files::write_atomically(path, &record::write(&self.boot_id, record)?)
    }

    fn read_records(&self, recovered: &mut Recovered) -> Result<(), StateError> {
        let entries = std::fs::read_dir(&self.dir).map_err(|e| at(&self.dir, "list", e))?;
        for entry in entries {
            let path = entry.map_err(|error| at(&self.dir, "list", error))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name.ends_with(".json.new") || name.ends_with(".jsonl.new") {
                // Half of a write the earlier daemon was killed in; the whole one counts.
                files::remove(&path)?;
                continue;
            }
            let Some(stem) = name.strip_suffix(".json") else { continue };
            if let Some(id) = stem.strip_prefix("task-") {
                let record = self.read_record::<Task>(&path, recovered);
                let record = record.and_then(|(record, of_this_boot)| {
                    // A copy made by hand would be a second record of one task.
                    let is_named_so = record.id.to_string() == id;
                    is_named_so.then_some((record, of_this_boot)).ok_or_else(|| {
                        Unusable::Damaged("is the record of another task than its name says".into())
                    })
                });
                match record {
                    Ok((record, true)) => recovered.tasks.push(record),
                    Ok((record, false)) => recovered.tasks_of_earlier_boots.push(record),
                    Err(Unusable::Unread(error)) => return Err(error),
                    Err(Unusable::Damaged(what)) => {
                        recovered.damaged_tasks.extend(id.parse::<TaskId>());
                        set_aside(&path, what, recovered);
                    }
                }
            } else if stem.starts_with("reservation-") {
                match self.read_record::<ReservationRecord>(&path, recovered) {
                    Ok((record, true)) => recovered.reservations.push(record),
                    // A promise does not survive a boot: its clock is gone.
                    Ok((record, false)) => self.remove_reservation(record.id)?,
                    Err(Unusable::Unread(error)) => return Err(error),
                    Err(Unusable::Damaged(what)) => set_aside(&path, what, recovered),
                }
            }
        }
        recovered.tasks.sort_by_key(|record| record.order);
        Ok(())
    }

    /// The record and whether it is of this boot.
    fn read_record<T: DeserializeOwned>(
        &self,
        path: &Path,
        recovered: &mut Recovered,
    ) -> Result<(T, bool), Unusable> {
        let bytes = files::read(path).map_err(Unusable::of)?;
        let read = record::read::<T>(&bytes).map_err(Unusable::Damaged)?;
        if !read.unknown.is_empty() {
            let (path, keys) = (path.display(), read.unknown.join(", "));
            recovered
                .unknown_keys
                .push(format!("{path} has keys that this lrsd does not know: {keys}"));
        }
        Ok((read.record, read.boot_id == self.boot_id))
    }
}

/// Why a file of the state is of no use.
enum Unusable {
    /// It is not as lrsd wrote it, or not its own: it is set aside. In words.
    Damaged(String),
    /// It was not read (no descriptors, no memory, a disk that fails), and may be whole: a start that went
    /// on would lose what it tells.
    Unread(StateError),
}

impl Unusable {
    fn of(error: StateError) -> Unusable {
        match error.is_objection() {
            true => Unusable::Damaged(error.to_string()),
            false => Unusable::Unread(error),
        }
    }
}

fn set_aside(path: &Path, what: String, recovered: &mut Recovered) {
    let what = match aside::set(path) {
        Ok(aside) => format!("{what}; kept as {}", aside.display()),
        Err(error) => format!("{what}; it could not be renamed: {error}"),
    };
    recovered.damage(Damage { path: path.to_owned(), what });
}

/// Id of this boot (random(4): /proc/sys/kernel/random/boot_id).
pub fn boot_id() -> Result<String, StateError> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    std::fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .map_err(|error| at(path, "read", error))
}
