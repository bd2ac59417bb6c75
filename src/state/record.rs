//! What is stored: one small JSON file for each task and each reservation.
//!
//! The record of a task is the core's [`Task`] itself. Every record carries a format version and
//! the boot it belongs to. A record of another boot describes processes that cannot exist any more;
//! one of a version that this daemon does not read is damaged as far as it is concerned, and is set
//! aside, never overwritten: so a daemon of format 1 that finds format 2 (a downgrade) sets the
//! record aside, says so, and goes on with what the task's cgroup tells.

use serde::{Deserialize, Serialize};

use crate::core::model::ReservationId;
use crate::core::state::Reservation;
use crate::core::task::Task;

/// Format of the tasks this daemon writes. It reads [`super::format1`] too.
pub const TASK_VERSION: u32 = 2;

/// Format of reservations, which has not changed.
pub const RESERVATION_VERSION: u32 = 1;

/// A reservation, as it has to be found again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReservationRecord {
    /// Its id.
    pub id: ReservationId,
    /// What the core knows of it.
    #[serde(flatten)]
    pub reservation: Reservation,
}

/// A record with what makes it safe to read back.
#[derive(Serialize, Deserialize)]
pub(super) struct Envelope<T> {
    pub version: u32,
    pub boot_id: String,
    pub record: T,
}

/// What a file of records has.
pub(super) trait Stored: Sized {
    /// Reads a record of format `version`; `None`: it is of one that is not read.
    fn read(
        version: Option<u64>,
        record: serde_json::Value,
    ) -> Option<Result<Self, serde_json::Error>>;
}

impl Stored for Task {
    fn read(
        version: Option<u64>,
        record: serde_json::Value,
    ) -> Option<Result<Task, serde_json::Error>> {
        match version {
            Some(1) => Some(super::format1::read(record)),
            Some(2) => Some(serde_json::from_value(record)),
            _ => None,
        }
    }
}

impl Stored for ReservationRecord {
    fn read(
        version: Option<u64>,
        record: serde_json::Value,
    ) -> Option<Result<ReservationRecord, serde_json::Error>> {
        (version == Some(u64::from(RESERVATION_VERSION))).then(|| serde_json::from_value(record))
    }
}
