//! What an earlier daemon left: its records, its history, its groups.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::group::Group;
use lrs_core::event::Event;
use lrs_core::model::{ReservationId, TaskId};
use lrs_core::state::Reservation;
use lrs_core::task::Task;

/// A reservation, as it has to be found again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReservationRecord {
    /// Its id.
    pub id: ReservationId,
    /// What the core knows of it.
    pub reservation: Reservation,
}

/// Something of the stored state that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// A group that was made for a task and is there.
#[derive(Debug)]
pub struct OwnGroup {
    /// The task.
    pub task: TaskId,
    /// The group.
    pub group: Group,
    /// The user of every process in it, where it is one; looked up where no record has the task.
    pub uid: Option<u32>,
}

/// Everything an earlier daemon left in its records and its history.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Task records of this boot.
    pub tasks: Vec<Task>,
    /// Task records of an earlier boot: their processes are gone.
    pub tasks_of_earlier_boots: Vec<Task>,
    /// Reservations of this boot.
    pub reservations: Vec<ReservationRecord>,
    /// Tasks with a damaged record; their cgroup may still be there.
    pub damaged_tasks: Vec<TaskId>,
    /// Kept events, oldest first.
    pub events: Vec<Event>,
    /// What could not be read; of what more than [`DAMAGE_NAMED`] files have, only these.
    pub damaged: Vec<Damage>,
    /// How many more files could not be read.
    pub damaged_more: usize,
    /// Keys of records that this lrsd does not know, each with its file.
    pub unknown_keys: Vec<String>,
    /// Part of the history could not be read: that it does not know a task proves nothing.
    pub history_damaged: bool,
}

/// So many files have a sentence each.
pub const DAMAGE_NAMED: usize = 8;

impl Recovered {
    /// The damage, one sentence each: of a few files of each, of many of all
    /// together.
    pub fn damage_in_words(&self) -> Vec<String> {
        let sentence = |damage: &Damage| format!("{} {}", damage.path.display(), damage.what);
        let mut sentences: Vec<String> = match (self.damaged.first(), self.damaged_more) {
            (Some(first), more) if more > 0 => vec![format!(
                "{} files could not be read and are kept as *.damaged beside; the first: {}",
                self.damaged.len() + more,
                sentence(first)
            )],
            _ => self.damaged.iter().map(sentence).collect(),
        };
        match &self.unknown_keys[..] {
            [] => {}
            [only] => sentences.push(only.clone()),
            [first, others @ ..] => sentences.push(format!(
                "{first}; so have {} more files: they were written by another lrsd, and are read \
                 without those keys",
                others.len()
            )),
        }
        sentences
    }

    /// Adds a file that could not be read.
    pub fn damage(&mut self, damage: Damage) {
        if self.damaged.len() < DAMAGE_NAMED {
            self.damaged.push(damage);
        } else {
            self.damaged_more += 1;
        }
    }

    /// Whether an earlier daemon of this boot had tasks: they may run still.
    pub fn has_tasks(&self) -> bool {
        !self.tasks.is_empty() || !self.damaged_tasks.is_empty()
    }
}
