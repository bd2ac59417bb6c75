//! What holds after every turn, whatever happened (docs/architecture.md, Invariants).

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use super::Bench;
use lrs_core::model::Priority;
use lrs_core::shaper::Shaper;
use lrs_core::slots::Seat;
use lrs_core::task::Task;

/// Seats, slots and priorities (spec 3 and 5).
pub fn slots(core: &Shaper, why: &str) {
    let slots = core.slots();
    let taken = slots.active_used() + slots.active_reserved();
    assert!(taken <= slots.active_capacity, "{why}: more active slots are taken than there are");
    assert!(slots.passive_in_use() <= slots.passive_capacity, "{why}: P is below what is in use");
    assert!(slots.passive_capacity >= slots.base, "{why}: P is below its base");
    let most = slots.passive_max.max(slots.passive_in_use());
    assert!(slots.passive_capacity <= most, "{why}: P is above its maximum");
    // One that others froze or stopped is not promoted, and is not among these.
    let waits = slots.best_passive().is_some() || slots.best_running_overflow().is_some();
    let free = slots.active_used() < slots.active_capacity;
    assert!(!(waits && free), "{why}: a passive task waits while an active slot is free");
    if let (Some((best, _)), Some((worst, _))) = (slots.best_passive(), slots.worst_active()) {
        assert!(!best.outranks(worst), "{why}: priorities are inverted");
    }
    let has = |opportunistic, seats: &[Seat]| {
        core.tasks().any(|(_, t)| t.opportunistic == opportunistic && seats.contains(&t.seat))
    };
    let kept = has(false, &[Seat::Passive, Seat::Overflow]) && has(true, &[Seat::Active]);
    assert!(!kept, "{why}: an opportunistic task keeps another waiting");
    let kept = has(false, &[Seat::Overflow]) && has(true, &[Seat::Passive]);
    assert!(!kept, "{why}: an opportunistic task keeps a slot");
    let active = core.tasks().filter(|(_, task)| task.seat == Seat::Active);
    let lowest = active.map(|(_, t)| if t.opportunistic { Priority(i32::MIN) } else { t.priority });
    assert_eq!(core.lowest_active_priority(), lowest.min(), "{why}: the lowest priority");
    assert!(
        slots.overflow() == 0 || slots.passive_free() == 0,
        "{why}: overflow beside a free slot"
    );
    let mut seats: BTreeMap<&str, u32> = BTreeMap::new();
    for (id, task) in core.tasks() {
        let attaching = task.is_attaching();
        assert!(attaching || task.seat != Seat::Arriving, "{why}: {id} is in place without a seat");
        let seat = match task.seat {
            Seat::Active => "active",
            Seat::Passive => "passive",
            Seat::Overflow => "overflow",
            Seat::Slotless | Seat::Arriving => continue,
        };
        *seats.entry(seat).or_default() += 1;
    }
    let seat = |name| seats.get(name).copied().unwrap_or(0);
    let counted = [slots.active_used(), slots.passive_used(), slots.overflow()];
    assert_eq!(
        counted,
        [seat("active"), seat("passive"), seat("overflow")],
        "{why}: what is counted"
    );
}

/// What is stored is what is, while all of it can be stored.
pub fn stored(bench: &mut Bench, why: &str) {
    let store = bench.stored();
    let core = bench.core();
    let life = |task: &Task| discriminant(&task.life);
    for (id, task) in core.tasks().filter(|(_, task)| !task.is_attaching()) {
        let fits = |record: &&Task| {
            (record.seat, record.priority, record.opportunistic, &record.labels, record.order)
                == (task.seat, task.priority, task.opportunistic, &task.labels, task.order)
                && (&record.who, &record.group, life(record))
                    == (&task.who, &task.group, life(task))
        };
        let record = store.tasks.get(&id);
        assert!(record.as_ref().is_some_and(fits), "{why}: {id} is {task:?}, stored: {record:?}");
        assert!(store.history.live.contains_key(&id), "{why}: {id} is not in the history");
    }
    let used: BTreeSet<_> =
        core.tasks().filter_map(|(_, task)| task.promise().map(|(id, _)| *id)).collect();
    for (id, reservation) in core.reservations() {
        assert_eq!(store.promises.get(&id), Some(reservation), "{why}: reservation {id}");
    }
    for id in store.promises.keys() {
        let known = core.reservation(*id).is_some() || used.contains(id);
        assert!(known, "{why}: reservation {id} is over and stored");
    }
    let counts =
        |t: lrs_core::state::Totals| [t.admitted, t.completed, t.released, t.promoted, t.demoted];
    assert_eq!(counts(core.totals()), counts(store.history.totals), "{why}: totals of the history");
    let recorded = store.history.counters.next_seq.max(1);
    assert_eq!(core.counters().next_seq, recorded, "{why}: the next event");
}
