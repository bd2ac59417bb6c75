//! Which events are kept in memory, and which ends of tasks.
//!
//! Users share the room. Where it is full the one who has most in it loses the oldest of that, so that a
//! flood of one user erases its own events first, and no other user's part becomes less than an equal one.
//! Events of no user (slots, the guard, starts and stops) have a part as a user has. Of each task that runs
//! the last event of each kind is kept beside that, whatever happens: the admission, why it is in its tier,
//! what the guard did with it. They go into the common room when it ends.
//!
//! The bound is so many events as there is room for ([`KeptEvents::new`]), and for each task that runs
//! as many more as there are kinds of events about tasks: fewer than 20.
//!
//! The user of an event is its `uid`, or that of an earlier event about the same task or reservation.
//!
//! An event is kept as its JSON text, which has a fifth of the bytes of its figures by name and is one piece in place
//! of thirty: 4,096 events and as many ends held 25 MiB for good.
//!
//! Limits. Of a task that runs earlier events of a kind may go. Events of a reservation are its owner's
//! and go with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::event::{Event, EventKind};
use super::exit::Exit;

/// The user of an event; `None`: of no user, or not known.
type Owner = Option<u32>;

/// An event as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Packed {
    /// As in the event.
    pub seq: u64,
    /// As in the event.
    pub kind: EventKind,
    /// As in the event.
    pub task: Option<Arc<str>>,
    uid: Owner,
    exit: Option<Exit>,
    text: Box<[u8]>,
}

impl Packed {
    /// To be kept.
    pub fn of(event: &Event) -> Arc<Packed> {
        Arc::new(Packed {
            seq: event.seq,
            kind: event.kind,
            task: event.task.as_deref().map(Arc::from),
            uid: uid(event),
            exit: Exit::noted(&event.inputs),
            // No part of an event has a form that JSON lacks.
            text: serde_json::to_vec(event).unwrap_or_default().into_boxed_slice(),
        })
    }

    /// To be read.
    pub fn event(&self) -> Option<Arc<Event>> {
        serde_json::from_slice(&self.text).ok().map(Arc::new)
    }
}

/// Room that users share.
#[derive(Clone, Debug)]
struct Room {
    capacity: usize,
    used: usize,
    by_owner: BTreeMap<Owner, BTreeSet<u64>>,
}

impl Room {
    fn new(capacity: usize) -> Room {
        Room { capacity: capacity.max(1), used: 0, by_owner: BTreeMap::new() }
    }

    /// Puts one in; answers the one that has to go for it.
    fn add(&mut self, owner: Owner, seq: u64) -> Option<u64> {
        self.used += usize::from(self.by_owner.entry(owner).or_default().insert(seq));
        if self.used <= self.capacity {
            return None;
        }
        let most = |(_, seqs): &(&Owner, &BTreeSet<u64>)| {
            (seqs.len(), std::cmp::Reverse(seqs.first().copied()))
        };
        let owner = self.by_owner.iter().max_by_key(most).map(|(owner, _)| *owner)?;
        let seqs = self.by_owner.get_mut(&owner)?;
        let gone = seqs.pop_first();
        if seqs.is_empty() {
            self.by_owner.remove(&owner);
        }
        self.used -= usize::from(gone.is_some());
        gone
    }
}

/// What is kept about one task or reservation.
#[derive(Clone, Debug, Default)]
struct Story {
    owner: Owner,
    seqs: BTreeSet<u64>,
    /// Of a task that runs: those that stay.
    runs: Option<BTreeMap<EventKind, u64>>,
    /// Earlier ones are gone.
    cut: bool,
}

/// The events that are kept, by number.
#[derive(Clone, Debug)]
pub struct KeptEvents {
    events: BTreeMap<u64, Arc<Packed>>,
    room: Room,
    stories: BTreeMap<Arc<str>, Story>,
    /// Nothing is gone since the first event of all.
    whole: bool,
}

/// Events in a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<E = Arc<Event>> {
    /// Events that are gone between the position asked for and the first one given.
    pub lost: u64,
    /// Oldest first, none missing between them.
    pub events: Vec<E>,
}

impl KeptEvents {
    /// Room for so many events (at least 1) beside those of tasks that run.
    pub fn new(capacity: usize) -> KeptEvents {
        let (events, stories) = (BTreeMap::new(), BTreeMap::new());
        KeptEvents { events, room: Room::new(capacity), stories, whole: true }
    }

    /// Adds the next one.
    pub fn push(&mut self, event: Arc<Packed>) {
        let seq = event.seq;
        let next = self.events.last_key_value().map_or(1, |(last, _)| last.saturating_add(1));
        self.whole &= seq == next;
        let (mut owner, mut loose) = (event.uid, vec![seq]);
        if let Some(id) = &event.task {
            let story = self.stories.entry(Arc::clone(id)).or_default();
            story.owner = event.uid.or(story.owner);
            owner = story.owner;
            story.seqs.insert(seq);
            loose = story.next(event.kind, seq);
        }
        self.events.insert(seq, event);
        for seq in loose {
            if let Some(gone) = self.room.add(owner, seq) {
                self.remove(gone);
            }
        }
    }

    fn remove(&mut self, seq: u64) {
        self.whole = false;
        let Some(event) = self.events.remove(&seq) else { return };
        let Some(id) = &event.task else { return };
        if let Some(story) = self.stories.get_mut(id) {
            story.seqs.remove(&seq);
            story.cut = true;
            if story.seqs.is_empty() {
                self.stories.remove(id);
            }
        }
    }

    /// At most `limit` events in a row from number `from` on.
    pub fn read(&self, from: u64, limit: usize) -> Page<Arc<Packed>> {
        let mut events: Vec<Arc<Packed>> = Vec::new();
        for (seq, event) in self.events.range(from..).take(limit) {
            if events.last().is_some_and(|last| last.seq.saturating_add(1) != *seq) {
                break;
            }
            events.push(Arc::clone(event));
        }
        let lost = events.first().map_or(0, |first| first.seq.saturating_sub(from.max(1)));
        Page { lost, events }
    }

    /// All about one task or reservation, oldest first, and whether some are gone.
    pub fn about(&self, id: &str) -> (Vec<Arc<Packed>>, bool) {
        let Some(story) = self.stories.get(id) else { return (Vec::new(), !self.whole) };
        let events = story.seqs.iter().filter_map(|seq| self.events.get(seq)).cloned();
        let events: Vec<_> = events.collect();
        // Nothing happens to a task or a reservation before the event that makes it.
        let begins = events.first().is_some_and(|first| {
            matches!(first.kind, EventKind::Admitted | EventKind::Reserved | EventKind::Refused)
        });
        (events, story.cut || !(begins || self.whole))
    }

    /// All that `wanted` holds for, oldest first, and whether some may be gone.
    pub fn all(&self, wanted: impl Fn(&Packed) -> bool) -> (Vec<Arc<Packed>>, bool) {
        let events = self.events.values().filter(|event| wanted(event)).cloned().collect();
        (events, !self.whole)
    }

    /// Those of tasks that run, which stay.
    pub fn of_running(&self) -> impl Iterator<Item = &Arc<Packed>> {
        let running = self.stories.values().filter_map(|story| story.runs.as_ref());
        running.flat_map(|kinds| kinds.values()).filter_map(|seq| self.events.get(seq))
    }
}

impl Story {
    /// Takes the next event; answers those that are under no protection any more.
    fn next(&mut self, kind: EventKind, seq: u64) -> Vec<u64> {
        use EventKind::{Admitted, Completed, Left, Released};
        if matches!(kind, Completed | Left | Released) {
            let ended = self.runs.take().unwrap_or_default();
            return ended.into_values().chain([seq]).collect();
        }
        if kind == Admitted && self.runs.is_none() {
            self.runs = Some(BTreeMap::new());
        }
        match &mut self.runs {
            Some(kinds) => kinds.insert(kind, seq).into_iter().collect(),
            None => vec![seq],
        }
    }
}

fn uid(event: &Event) -> Owner {
    u32::try_from(event.inputs.get("uid").and_then(Value::as_u64)?).ok()
}

/// A task that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended<E = Arc<Event>> {
    /// The event `completed`.
    pub event: E,
    /// How its main process ended; `None`: not known (yet).
    pub exit: Option<Exit>,
}

impl Ended<Arc<Packed>> {
    /// To be read.
    pub fn unpacked(self) -> Option<Ended> {
        Some(Ended { event: self.event.event()?, exit: self.exit })
    }
}

/// The tasks that ended last, by the numbers of their ends.
#[derive(Clone, Debug)]
pub struct Ends {
    ended: BTreeMap<u64, Ended<Arc<Packed>>>,
    room: Room,
    noted: u64,
}

impl Ends {
    /// Room for so many (at least 1).
    pub fn new(capacity: usize) -> Ends {
        Ends { ended: BTreeMap::new(), room: Room::new(capacity), noted: 0 }
    }

    /// Takes what an event says of an end.
    pub fn note(&mut self, event: &Arc<Packed>) {
        let exit = event.exit;
        if matches!(event.kind, EventKind::Completed | EventKind::Left) {
            self.noted += 1;
            self.ended.insert(event.seq, Ended { event: Arc::clone(event), exit });
            if let Some(gone) = self.room.add(event.uid, event.seq) {
                self.ended.remove(&gone);
            }
        } else if event.kind == EventKind::Exit {
            // As a rule it comes right after the end.
            let mut ended = self.ended.values_mut().rev();
            if let Some(task) = ended.find(|task| task.event.task == event.task) {
                task.exit = exit;
            }
        }
    }

    /// Those from the number `from` on, the latest end last.
    pub fn since(&self, from: u64) -> Vec<Ended<Arc<Packed>>> {
        self.ended.range(from..).map(|(_, ended)| ended.clone()).collect()
    }

    /// How many there were, with those that are gone.
    pub fn noted(&self) -> u64 {
        self.noted
    }

    /// The last one with this id.
    pub fn of(&self, id: &str) -> Option<Ended<Arc<Packed>>> {
        self.ended.values().rfind(|task| task.event.task.as_deref() == Some(id)).cloned()
    }
}

#[cfg(test)]
mod tests;
