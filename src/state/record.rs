//! What is stored: one small JSON file for each task and each reservation.
//!
//! The record of a task is the core's [`Task`] itself, that of a reservation is
//! [`ReservationRecord`]: each is written and read by that one type; its parts are objects of their
//! own, so that no key can be there twice. Every record carries a format version, the boot it belongs
//! to, and since format 3 (reservations: 2) a [`checksum`]. A record of another boot describes
//! processes that cannot exist any more; one that does not fit its checksum, or of a version that this
//! daemon does not read, is damaged as far as it is concerned, and is set aside, never overwritten: so
//! a daemon of format 2 that finds format 3 (a downgrade) sets the record aside, says so, and goes on
//! with what the task's cgroup tells.
//!
//! A key that this daemon does not know is passed over, at whatever depth, with a warning: behind a
//! checksum that fits it was written by a newer daemon, and the rest is right.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::checksum::{self, Checked};
use super::{format1, format2};
use crate::core::model::ReservationId;
use crate::core::state::Reservation;
use crate::core::task::Task;

/// Format of the tasks this daemon writes. It reads [`super::format1`] and [`super::format2`] too.
pub const TASK_VERSION: u32 = 3;

/// Format of the reservations this daemon writes. It reads format 1 too.
pub const RESERVATION_VERSION: u32 = 2;

/// A reservation, as it has to be found again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReservationRecord {
    /// Its id.
    pub id: ReservationId,
    /// What the core knows of it.
    pub reservation: Reservation,
}

/// A record with what makes it safe to read back.
#[derive(Serialize, Deserialize)]
pub(super) struct Envelope<T> {
    pub version: u32,
    pub boot_id: String,
    pub record: T,
}

/// A record that was read.
#[derive(Debug)]
pub(super) struct Read<T> {
    pub record: T,
    /// The boot it belongs to.
    pub boot_id: String,
    /// Keys that this daemon does not know, with their paths.
    pub unknown: Vec<String>,
}

/// What a file of records has.
pub(super) trait Stored: Serialize + DeserializeOwned {
    /// Format that this daemon writes; the first with a checksum.
    const VERSION: u32;

    /// Reads the file of an earlier format; `None`: there was none of that number.
    fn read_earlier(version: u64, text: &[u8]) -> Option<Result<Read<Self>, serde_json::Error>>;
}

impl Stored for Task {
    const VERSION: u32 = TASK_VERSION;

    fn read_earlier(version: u64, text: &[u8]) -> Option<Result<Read<Task>, serde_json::Error>> {
        match version {
            1 => Some(earlier(text, |record| Ok((format1::read(record)?, Vec::new())))),
            2 => Some(earlier(text, |record| known_value(format2::task(record)))),
            _ => None,
        }
    }
}

impl Stored for ReservationRecord {
    const VERSION: u32 = RESERVATION_VERSION;

    fn read_earlier(version: u64, text: &[u8]) -> Option<Result<Read<Self>, serde_json::Error>> {
        (version == 1).then(|| earlier(text, |record| known_value(format2::reservation(record))))
    }
}

/// The bytes of a file with this record.
pub(super) fn write<T: Stored>(boot_id: &str, record: &T) -> Result<Vec<u8>, serde_json::Error> {
    let envelope = Envelope { version: T::VERSION, boot_id: boot_id.to_owned(), record };
    Ok(checksum::add(serde_json::to_vec(&envelope)?))
}

/// The record in a file with these bytes, or what is wrong with it.
pub(super) fn read<T: Stored>(bytes: &[u8]) -> Result<Read<T>, String> {
    #[derive(Deserialize)]
    struct Head {
        version: Option<u64>,
    }
    let checked = checksum::check(bytes);
    let (text, has_sum) = match &checked {
        Checked::Fits(text) => (text.as_slice(), true),
        Checked::Absent => (bytes, false),
        Checked::Differs => return Err("does not fit its checksum, so it was changed".to_owned()),
    };
    let head: Head =
        serde_json::from_slice(text).map_err(|error| format!("is no JSON: {error}"))?;
    let strange = |error| format!("is not a record as lrsd writes them: {error}");
    let Some(version) = head.version else {
        return Err(format!("is without a version, this lrsd reads up to {}", T::VERSION));
    };
    if version == u64::from(T::VERSION) {
        if !has_sum {
            return Err("has no checksum where lrsd writes one, so it was changed".to_owned());
        }
        let (envelope, unknown) = known::<Envelope<T>>(text).map_err(strange)?;
        return Ok(Read { record: envelope.record, boot_id: envelope.boot_id, unknown });
    }
    T::read_earlier(version, text)
        .ok_or_else(|| format!("is of format {version}, this lrsd reads up to {}", T::VERSION))?
        .map_err(strange)
}

/// A value, and the keys in the text that its type does not have.
pub(super) fn known<T: DeserializeOwned>(
    text: &[u8],
) -> Result<(T, Vec<String>), serde_json::Error> {
    let mut unknown = Vec::new();
    let mut text = serde_json::Deserializer::from_slice(text);
    let value = serde_ignored::deserialize(&mut text, |path| unknown.push(path.to_string()))?;
    text.end()?;
    Ok((value, unknown))
}

/// The same of a value that was read already.
fn known_value<T: DeserializeOwned>(value: Value) -> Result<(T, Vec<String>), serde_json::Error> {
    let mut unknown = Vec::new();
    let value = serde_ignored::deserialize(value, |path| unknown.push(format!("record.{path}")))?;
    Ok((value, unknown))
}

/// A record of an earlier format: its envelope, read as `T`, of which `read` makes the record.
fn earlier<T: DeserializeOwned, R>(
    text: &[u8],
    read: impl FnOnce(T) -> Result<(R, Vec<String>), serde_json::Error>,
) -> Result<Read<R>, serde_json::Error> {
    let (envelope, mut unknown) = known::<Envelope<T>>(text)?;
    let (record, more) = read(envelope.record)?;
    unknown.extend(more);
    Ok(Read { record, boot_id: envelope.boot_id, unknown })
}
