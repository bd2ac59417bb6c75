//! What is stored: one small JSON file for each task and each reservation.
//!
//! The record of a task is the core's [`Task`](crate::core::task::Task) itself, that of a reservation is
//! [`ReservationRecord`](super::ReservationRecord): each is written and read by that one type; its parts are objects of their
//! own, so that no key can be there twice. Every record carries the [`FORMAT`], the boot it belongs
//! to and a [`checksum`]. A record of another boot describes processes that cannot exist any more; one
//! that does not fit its checksum, or is of another format, is of no use to this daemon, and is set
//! aside, never overwritten: its task goes on with what its cgroup tells.
//!
//! A key that this daemon does not know is passed over, at whatever depth, with a warning: behind a
//! checksum that fits it was written by a newer daemon, and the rest is right.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::FORMAT;
use super::checksum::{self, Checked};

/// A record with what makes it safe to read back.
#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    version: u32,
    boot_id: String,
    record: T,
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

/// The bytes of a file with this record.
pub(super) fn write<T: Serialize>(boot_id: &str, record: &T) -> Result<Vec<u8>, serde_json::Error> {
    let envelope = Envelope { version: FORMAT, boot_id: boot_id.to_owned(), record };
    Ok(checksum::add(serde_json::to_vec(&envelope)?))
}

/// The record in a file with these bytes, or what is wrong with it.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<Read<T>, String> {
    #[derive(Deserialize)]
    struct Head {
        version: Option<u64>,
    }
    let checked = checksum::check(bytes);
    let text = match &checked {
        Checked::Fits(text) => text.as_slice(),
        // Another format may have none.
        Checked::Absent => bytes,
        Checked::Differs => return Err("does not fit its checksum, so it was changed".to_owned()),
    };
    let head: Head =
        serde_json::from_slice(text).map_err(|error| format!("is no JSON: {error}"))?;
    match head.version {
        None => return Err("has no version, so lrsd did not write it".to_owned()),
        Some(version) if version != u64::from(FORMAT) => return Err(other_format(version)),
        Some(_) if checked == Checked::Absent => {
            return Err("has no checksum where lrsd writes one, so it was changed".to_owned());
        }
        Some(_) => {}
    }
    let (envelope, unknown) = known::<Envelope<T>>(text)
        .map_err(|error| format!("is not a record as lrsd writes them: {error}"))?;
    Ok(Read { record: envelope.record, boot_id: envelope.boot_id, unknown })
}

/// Why a file of another format is not read, and what to do.
pub(super) fn other_format(found: u64) -> String {
    format!(
        "is of format {found} and this lrsd reads format {FORMAT}: another version of lrsd wrote it; to \
         have what it tells, stop lrsd, put the file back under its name and start that version"
    )
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
