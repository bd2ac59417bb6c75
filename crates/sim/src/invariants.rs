//! What holds after every step of the daemon, whatever happened (docs/architecture.md, Invariants).

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use lrs_core::model::{Priority, TaskId};
use lrs_core::shaper::Shaper;
use lrs_core::slots::Seat;
use lrs_core::task::Task;

use crate::daemon::{Daemon, root_weights};
use crate::outside::{Outside, group_of};
use crate::tree::Inode;

macro_rules! ensure {
    ($holds:expr, $($what:tt)*) => {
        if !$holds {
            return Err(format!($($what)*));
        }
    };
}

/// All of them. `foreign`: groups with weights that others have changed since the last cycle.
///
/// # Errors
/// The first that does not hold.
pub fn all(daemon: &Daemon, out: &Outside, foreign: &BTreeSet<Inode>) -> Result<(), String> {
    slots(&daemon.core)?;
    weights(daemon, out, foreign)?;
    groups(daemon, out)?;
    stored(daemon, out)?;
    shown(daemon)
}

/// Seats, slots and priorities (spec 3 and 5).
///
/// # Errors
/// The first that does not hold.
pub fn slots(core: &Shaper) -> Result<(), String> {
    let slots = core.slots();
    let taken = slots.active_used() + slots.active_reserved();
    ensure!(taken <= slots.active_capacity, "more active slots are taken than there are");
    ensure!(slots.passive_in_use() <= slots.passive_capacity, "P is below what is in use");
    ensure!(slots.passive_capacity >= slots.base, "P is below its base");
    let most = slots.passive_max.max(slots.passive_in_use());
    ensure!(slots.passive_capacity <= most, "P is above its maximum");
    let waits = slots.best_passive().is_some() || slots.best_overflow().is_some();
    let free = slots.active_used() < slots.active_capacity;
    ensure!(!(waits && free), "a passive task waits while an active slot is free");
    if let (Some((best, _)), Some((worst, _))) = (slots.best_passive(), slots.worst_active()) {
        ensure!(!best.outranks(worst), "priorities are inverted");
    }
    let sits = |opportunistic, seats: &[Seat]| {
        core.tasks().any(|(_, t)| t.opportunistic == opportunistic && seats.contains(&t.seat))
    };
    let kept = sits(false, &[Seat::Passive, Seat::Overflow]) && sits(true, &[Seat::Active]);
    ensure!(!kept, "an opportunistic task keeps another waiting");
    let kept = sits(false, &[Seat::Overflow]) && sits(true, &[Seat::Passive]);
    ensure!(!kept, "an opportunistic task keeps a slot");
    let active = core.tasks().filter(|(_, task)| task.seat == Seat::Active);
    let lowest = active.map(|(_, t)| if t.opportunistic { Priority(i32::MIN) } else { t.priority });
    ensure!(core.lowest_active_priority() == lowest.min(), "another priority is the lowest");
    ensure!(slots.overflow() == 0 || slots.passive_free() == 0, "overflow beside a free slot");
    let mut seats: BTreeMap<&str, u32> = BTreeMap::new();
    for (id, task) in core.tasks() {
        let attaching = task.is_attaching();
        ensure!(attaching || task.seat != Seat::Arriving, "task {id} is in place without a seat");
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
    let found = [seat("active"), seat("passive"), seat("overflow")];
    ensure!(found == counted, "the sets have {counted:?}, the tasks {found:?}");
    Ok(())
}

/// Every task in its slot has the weights of its tier, and the root what the active tier wants.
fn weights(daemon: &Daemon, out: &Outside, foreign: &BTreeSet<Inode>) -> Result<(), String> {
    for (id, task) in daemon.core.tasks() {
        let group = group_of(task).filter(|group| !foreign.contains(group));
        let found = group.and_then(|group| out.node.tree.groups().get(&group));
        let Some(found) = found.filter(|_| task.is_placed() && !task.is_contested()) else {
            continue;
        };
        let level = daemon.core.level(id).unwrap_or(task.tier().into());
        let expected = daemon.plan.weights(level);
        ensure!(found.weights == expected, "task {id} is {level} and has {:?}", found.weights);
    }
    let root = out.lrs().filter(|root| !foreign.contains(root));
    let root = root.and_then(|root| out.node.tree.groups().get(&root));
    if let (Some(root), Some(weight)) = (root, daemon.core.root_weight()) {
        let expected = root_weights(weight);
        ensure!(root.weights == expected, "the root has {:?}, not {expected:?}", root.weights);
    }
    Ok(())
}

/// Every task is known to both sides, and no process is in a group that is no task's.
fn groups(daemon: &Daemon, out: &Outside) -> Result<(), String> {
    let parked = |id: &TaskId| daemon.core.parked(*id).is_some();
    let decided: Vec<TaskId> =
        daemon.core.tasks().map(|(id, _)| id).filter(|id| !parked(id)).collect();
    let held: Vec<TaskId> = daemon.held.keys().copied().collect();
    ensure!(decided == held, "the core has {decided:?}, the daemon {held:?}");
    for (id, group) in out.task_groups() {
        let empty = out.node.tree.members(group).next().is_none();
        let known = daemon.held.contains_key(&id) || parked(&id);
        ensure!(empty || known, "processes are left in the group of {id}");
    }
    Ok(())
}

/// What is stored is what is.
fn stored(daemon: &Daemon, out: &Outside) -> Result<(), String> {
    let (core, store) = (&daemon.core, &out.store);
    for (id, task) in core.tasks().filter(|(_, task)| !task.is_attaching()) {
        let record = store.tasks.get(&id).map(|record| &record.task);
        let life = |task: &Task| discriminant(&task.life);
        let fits = |record: &Task| {
            (record.seat, record.priority, record.opportunistic, &record.labels, record.order)
                == (task.seat, task.priority, task.opportunistic, &task.labels, task.order)
                && (&record.who, &record.group, life(record))
                    == (&task.who, &task.group, life(task))
        };
        ensure!(record.is_some_and(fits), "task {id} is {task:?} and stored as {record:?}");
        ensure!(store.history_state.live.contains_key(&id), "task {id} is not in the history");
    }
    let used: BTreeSet<_> =
        core.tasks().filter_map(|(_, task)| task.promise().map(|(id, _)| *id)).collect();
    for (id, reservation) in core.reservations() {
        let same = store.reservations.get(&id) == Some(reservation);
        ensure!(same, "reservation {id} is {reservation:?}, not as stored");
    }
    for id in store.reservations.keys() {
        let known = core.reservation(*id).is_some() || used.contains(id);
        ensure!(known, "reservation {id} is over and stored");
    }
    let (totals, history_state) = (core.totals(), store.history_state.totals);
    let counts =
        |t: lrs_core::state::Totals| [t.admitted, t.completed, t.released, t.promoted, t.demoted];
    ensure!(
        counts(totals) == counts(history_state),
        "{totals:?} are not those of the history, {history_state:?}"
    );
    let jobs = core.jobs().iter().map(|(key, _, finished)| (key, finished.failed));
    for (key, failed) in jobs {
        let recorded = store.history_state.jobs.get(key).map_or(0, |finished| finished.failed);
        ensure!(failed == recorded, "{failed} tasks of {key:?} failed, by the history {recorded}");
    }
    let (next, recorded) = (core.counters().next_seq, store.history_state.counters.next_seq.max(1));
    ensure!(next == recorded, "the next event is {next}, by the history {recorded}");
    Ok(())
}

/// What clients read is what is.
fn shown(daemon: &Daemon) -> Result<(), String> {
    for id in daemon.held.keys().chain(daemon.shown.keys()) {
        let (shown, view) = (daemon.shown.get(id), daemon.view(*id));
        ensure!(shown == view.as_ref(), "task {id} is {view:?}, and is shown as {shown:?}");
    }
    Ok(())
}
