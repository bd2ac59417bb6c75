//! The history state, to which the events up to now add up: totals, job rates, numbers.
//!
//! The journal is the source of truth for everything that is counted: the history state is a
//! fold over its events, so that a total can never disagree with the history and a daemon killed at
//! any instant resumes with exactly what it had recorded.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{Event, EventKind, PROGRAM};
use crate::exit::Exit;
use crate::jobs::{End, Finished, MAX_JOBS};
use crate::model::{JobKey, Label, ReservationId, TaskId, Tier};
use crate::state::{Counters, Totals};
use crate::units::WallTime;

/// The history state after some event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistoryState {
    /// Numbers that never restart. `next_order` is kept by the task files.
    pub counters: Counters,
    /// Counts.
    pub totals: Totals,
    /// Finished tasks by job.
    #[serde(with = "pairs")]
    pub jobs: BTreeMap<JobKey, Finished>,
    /// Since when an operator drains the node.
    pub draining_since: Option<WallTime>,
    /// P after the last expansion or withdrawal.
    pub passive_capacity: Option<u32>,
    /// Tasks admitted and neither completed nor released, and the tier the last event gave
    /// them: a record may be one event behind. `None`: an event without a tier.
    pub live: BTreeMap<TaskId, Option<Tier>>,
}

/// JSON objects have text keys only, so the map is a list of pairs; and in a recording a text that is a
/// key counts as none of a name.
pub(crate) mod pairs {
    use super::*;

    pub fn serialize<K: Serialize, V: Serialize, S: serde::Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub fn deserialize<'de, K, V, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
    }
}

impl HistoryState {
    /// Adds one event. An event seen before (by sequence number) changes nothing.
    pub fn fold(&mut self, event: &Event) {
        if event.seq < self.counters.next_seq {
            return;
        }
        self.counters.next_seq = event.seq.saturating_add(1);
        let task = event.task.as_deref().and_then(|id| id.parse::<TaskId>().ok());
        match event.kind {
            EventKind::Admitted => {
                self.totals.admitted += 1;
                if let Some(id) = task {
                    self.live.insert(id, tier(event));
                    if id.epoch == self.counters.epoch {
                        let next = id.number.saturating_add(1);
                        self.counters.next_task = self.counters.next_task.max(next);
                    }
                }
            }
            EventKind::Completed | EventKind::Left => {
                self.totals.completed += 1;
                self.totals.left += u64::from(event.kind == EventKind::Left);
                task.map(|id| self.live.remove(&id));
                self.finish(event);
            }
            EventKind::Exit => {
                if let Some(key) = job_key(event).filter(|_| has_failed(event)) {
                    self.job(key).failed += 1;
                }
            }
            EventKind::Released => {
                self.totals.released += 1;
                task.map(|id| self.live.remove(&id));
            }
            EventKind::Promoted => {
                self.totals.promoted += 1;
                self.moved(task, event);
            }
            EventKind::Demoted => {
                self.totals.demoted += 1;
                self.moved(task, event);
            }
            EventKind::Refused => {
                let refused = event.inputs.get("refused_since_last_event").and_then(Value::as_u64);
                self.totals.refused += refused.unwrap_or(1);
            }
            EventKind::Reserved => {
                let id = event.task.as_deref().and_then(|id| id.parse::<ReservationId>().ok());
                if let Some(id) = id.filter(|id| id.epoch == self.counters.epoch) {
                    let next = id.number.saturating_add(1);
                    self.counters.next_reservation = self.counters.next_reservation.max(next);
                }
            }
            EventKind::Draining => self.draining_since = Some(event.at),
            EventKind::Resumed => self.draining_since = None,
            EventKind::Expanded | EventKind::Shrunk => {
                self.passive_capacity = event.to.as_deref().and_then(|to| to.parse().ok());
            }
            EventKind::Attached
            | EventKind::Priority
            | EventKind::Standing
            | EventKind::Cancelled
            | EventKind::Expired
            | EventKind::Withdrawn
            | EventKind::Resized
            | EventKind::Probe
            | EventKind::LaneIn
            | EventKind::LaneOut
            | EventKind::Loan
            | EventKind::LoanEnd
            | EventKind::Guard
            | EventKind::Drift
            | EventKind::Contested
            | EventKind::Started
            | EventKind::Stopped
            | EventKind::Reloaded
            | EventKind::Recovered
            | EventKind::Offered
            | EventKind::OfferFailed => {}
        }
    }

    fn moved(&mut self, task: Option<TaskId>, event: &Event) {
        if let Some(known) = task.and_then(|id| self.live.get_mut(&id)) {
            *known = tier(event);
        }
    }

    fn finish(&mut self, event: &Event) {
        let Some(key) = job_key(event) else { return };
        let group = label(event, "group");
        let job = self.job(key);
        job.name_group(group.as_ref());
        job.add(End::noted(&event.inputs, event.at));
    }

    fn job(&mut self, key: JobKey) -> &mut Finished {
        if self.jobs.len() >= MAX_JOBS && !self.jobs.contains_key(&key) {
            let oldest = self.jobs.iter().min_by_key(|(_, job)| job.last_timed);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.jobs.remove(&key);
            }
        }
        self.jobs.entry(key).or_default()
    }
}

/// The job of the task that an event of its end is about.
fn job_key(event: &Event) -> Option<JobKey> {
    let job = label(event, "job").or_else(|| label(event, PROGRAM))?;
    let kind = label(event, "kind");
    let uid = event.inputs.get("uid").and_then(Value::as_u64);
    Some(JobKey { uid: uid.and_then(|uid| u32::try_from(uid).ok()), job, kind })
}

fn label(event: &Event, key: &str) -> Option<Label> {
    Label::new(event.inputs.get(key)?.as_str()?).ok()
}

fn has_failed(event: &Event) -> bool {
    Exit::noted(&event.inputs).is_some_and(Exit::failed)
}

fn tier(event: &Event) -> Option<Tier> {
    match event.to.as_deref() {
        Some("active") => Some(Tier::Active),
        Some("passive") => Some(Tier::Passive),
        _ => None,
    }
}
