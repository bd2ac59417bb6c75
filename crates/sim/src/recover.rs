//! From what an earlier daemon left to one that runs: the table of `driver/find.rs`, in the order of
//! `driver/recover.rs`, for tasks with groups of their own.
//!
//! | found | then |
//! |---|---|
//! | record placed, group with processes | goes on |
//! | record placed, group empty, main process elsewhere | goes on: it is moved back |
//! | record placed, group empty or gone | ended while nobody looked: `completed`, end unknown |
//! | record placed, its end in the history, nobody in its group | cleaned up |
//! | record placed, unknown to the history, processes there | goes on: the event is due |
//! | record attaching, its admission in the history | goes on |
//! | record attaching, otherwise | rolled back; the client, unanswered, asks again |
//! | record releasing | the release is finished |
//! | group with processes, no record | goes on with what is known |
//! | group without processes, no record | removed |
//! | record of another boot | ended with that boot |

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lrs_core::event::EventKind;
use lrs_core::model::{Order, ReservationId, TaskId, Tier};
use lrs_core::shaper::Shaper;
use lrs_core::slots::Seat;
use lrs_core::state::{Policy, Reservation, Restored};
use lrs_core::step::Input;
use lrs_core::step::Last;
use lrs_core::task::{self, Task};

use crate::daemon::{Daemon, Held, give_back, remove_group};
use crate::outside::{Alive, Deed, LRS, Life, Outside, Place, TaskRecord};
use crate::tree::{Inode, ROOT};

/// How long waiters of an earlier daemon get to come back.
const GATHER_WAITERS: Duration = Duration::from_millis(600);

#[derive(Default)]
struct Findings {
    tasks: Vec<Task>,
    held: BTreeMap<TaskId, Held>,
    ended: Vec<TaskId>,
    released: Vec<TaskId>,
    unrecorded: Vec<TaskId>,
    adopted: Vec<TaskId>,
    given_back: Vec<(ReservationId, Reservation)>,
    used: BTreeSet<ReservationId>,
    forget: Vec<TaskId>,
    remove: Vec<Inode>,
    next_order: u64,
}

/// Starts the daemon.
///
/// # Errors
/// `Killed` on the way: the next start begins anew.
pub fn start(policy: Policy, out: &mut Outside) -> Alive<Daemon> {
    let now = out.node.now();
    if out.lrs().is_none() {
        out.fuse.burn(Deed::MakeGroup)?;
        // Below the root a group can always be made.
        let _ = out.node.tree.make(ROOT, LRS);
    }
    let Findings {
        tasks,
        held,
        ended,
        released,
        unrecorded,
        adopted,
        given_back,
        used,
        forget,
        remove,
        ..
    } = find(out)?;
    let books = out.store.books.clone();
    let mut counters = books.counters;
    // No id is used twice, not even that of an admission that is rolled back: it was shown.
    let ids = tasks.iter().map(|task| &task.id).chain(&forget);
    for id in ids.filter(|id| id.epoch == counters.epoch) {
        counters.next_task = counters.next_task.max(id.number.saturating_add(1));
    }
    for (id, reservation) in &given_back {
        out.fuse.burn(Deed::StoreReservation)?;
        out.store.reservations.insert(*id, reservation.clone());
    }
    for id in &used {
        out.fuse.burn(Deed::ForgetReservation)?;
        out.store.reservations.remove(id);
    }
    for (id, _) in out.store.reservations.iter().filter(|(id, _)| id.epoch == counters.epoch) {
        counters.next_reservation = counters.next_reservation.max(id.number.saturating_add(1));
    }
    let restored = Restored {
        tasks,
        reservations: out.store.reservations.clone().into_iter().collect(),
        jobs: books.jobs.into_iter().collect(),
        totals: books.totals,
        counters,
        draining_since: books.draining_since,
        gather_until: (counters.next_seq > 1).then(|| now.boot.after(GATHER_WAITERS)),
        passive_capacity: books.passive_capacity,
    };
    let core = Shaper::new(policy, out.node.hardware.cpus, restored);
    let mut daemon = Daemon::new(core, held, (now.boot, out.node.sample()));
    for id in unrecorded {
        daemon.feed(Input::Readmit(id), out)?;
    }
    for id in adopted {
        daemon.note(EventKind::Recovered, id, "its record was lost", out)?;
    }
    for id in &ended {
        // Before its end is in the history: a record still on its way to its slot, of a task that
        // the history has no more, would be rolled back, and the promise it used given back.
        daemon.store(*id, out)?;
    }
    daemon.feed(Input::Ended([ended.clone(), released.clone()].concat()), out)?;
    let endings = ended.iter().map(|id| (*id, Last::Away)).collect();
    daemon.feed(Input::Figures(endings), out)?;
    for id in &released {
        daemon.feed(Input::Released(*id), out)?;
    }
    for id in ended.iter().chain(&released) {
        daemon.clean_up(*id, out)?;
    }
    let live: Vec<TaskId> = daemon.held.keys().copied().collect();
    for id in &live {
        daemon.align(*id, out)?;
        daemon.store(*id, out)?;
    }
    daemon.check_ended(&live, out)?;
    for id in forget {
        daemon.forget(id, out)?;
    }
    for group in remove {
        remove_group(group, out)?;
    }
    Ok(daemon)
}

fn find(out: &mut Outside) -> Alive<Findings> {
    let mut findings = Findings::default();
    let orders = out.store.tasks.values().map(|record| record.task.order.0);
    let promised = out.store.reservations.values().map(|reservation| reservation.order.0);
    findings.next_order = orders.chain(promised).max().unwrap_or(0).saturating_add(1);
    let mut groups = out.task_groups();
    let mut records: Vec<(TaskId, TaskRecord)> = out.store.tasks.clone().into_iter().collect();
    records.sort_by_key(|(_, record)| record.task.order);
    for (id, record) in records {
        if record.boot == out.boot {
            let group = groups.remove(&id);
            findings.judge(id, record, group, out)?;
        } else if out.store.books.live.contains_key(&id) {
            findings.ended.push(id);
            findings.keep(id, record, None, out);
        } else {
            findings.forget.push(id);
        }
    }
    for (id, group) in groups {
        findings.judge_group(id, group, out);
    }
    let live: Vec<TaskId> = out.store.books.live.keys().copied().collect();
    for id in live {
        if !findings.held.contains_key(&id) {
            findings.ended.push(id);
            findings.adopt(id, None, out);
        }
    }
    Ok(findings)
}

impl Findings {
    fn judge(
        &mut self,
        id: TaskId,
        record: TaskRecord,
        group: Option<Inode>,
        out: &mut Outside,
    ) -> Alive<()> {
        let known = out.store.books.live.contains_key(&id);
        let tree = &out.node.tree;
        let main_lives = record.place.process.is_some_and(|main| tree.alive(main).is_some());
        // A main process that somebody has moved out is moved back, as without a restart.
        let occupied =
            group.is_some_and(|group| tree.members(group).next().is_some() || known && main_lives);
        let used = record.task.promise().cloned();
        if known {
            self.used.extend(used.as_ref().map(|(id, _)| *id));
        }
        match record.place.life {
            Life::Releasing => {
                if !known {
                    self.remove.extend(group);
                    self.forget.push(id);
                    return Ok(());
                }
                if let Some(group) = group {
                    give_back(group, record.place.origin, out)?;
                }
                self.released.push(id);
                self.keep(id, record, None, out);
            }
            Life::Attaching if !known => {
                if let Some(group) = group {
                    give_back(group, record.place.origin, out)?;
                }
                self.given_back.extend(used);
                self.forget.push(id);
            }
            Life::Placed if !known && !occupied => {
                self.remove.extend(group);
                self.forget.push(id);
            }
            Life::Placed | Life::Attaching => {
                if !known {
                    self.unrecorded.push(id);
                }
                if !occupied {
                    self.ended.push(id);
                }
                self.keep(id, record, group, out);
            }
        }
        Ok(())
    }

    fn judge_group(&mut self, id: TaskId, group: Inode, out: &Outside) {
        if out.node.tree.members(group).next().is_none() {
            self.remove.push(group);
            return;
        }
        if !out.store.books.live.contains_key(&id) {
            self.unrecorded.push(id);
        }
        self.adopted.push(id);
        self.adopt(id, Some(group), out);
    }

    fn keep(&mut self, id: TaskId, record: TaskRecord, group: Option<Inode>, out: &Outside) {
        // The history is written after the record, so it may be older; but a tier is in both.
        let tier = out.store.books.live.get(&id).copied().flatten();
        let seat = match (record.task.seat, tier) {
            (Seat::Active | Seat::Passive | Seat::Overflow, Some(Tier::Active)) => Seat::Active,
            (Seat::Active, Some(Tier::Passive)) => Seat::Passive,
            (Seat::Arriving, Some(Tier::Active)) => Seat::Active,
            (Seat::Arriving, _) => Seat::Overflow,
            (seat, _) => seat,
        };
        let life = task::Life::Placed(task::Hold::Kept);
        self.tasks.push(Task { seat, life, ..record.task });
        self.held.insert(id, Held::new(Place { group, life: Life::Placed, ..record.place }));
    }

    fn adopt(&mut self, id: TaskId, group: Option<Inode>, out: &Outside) {
        let order = Order(self.next_order);
        self.next_order = self.next_order.saturating_add(1);
        let seat = match out.store.books.live.get(&id).copied().flatten() {
            Some(Tier::Active) => Seat::Active,
            Some(Tier::Passive) => Seat::Passive,
            None => Seat::Overflow,
        };
        self.tasks.push(Task::lost(id, order, seat));
        let life = Life::Placed;
        let place = Place { process: None, admitted_by: None, origin: ROOT, group, life };
        self.held.insert(id, Held::new(place));
    }
}
