//! The state machine: what is in which slot, and what follows from what happened.
//!
//! No clock, file, socket, async or log. The caller brings the time with every input, asks
//! [`Shaper::next_deadline`] when to come back at the latest, and carries out the [`Step`] that
//! [`Shaper::handle`] gives. Time that stands still, jumps or runs
//! backwards changes nothing but when deadlines are met.
//!
//! What a rule knows by itself is in a file beside this one, with its state ([`crate::lane`],
//! [`crate::ramp`]); what it needs the tasks, the slots and the others for is in a file below, often of
//! the same name.
//!
//! After every input `rearrange` (placement.rs) restores the order of the contract (thesis 3.3.2,
//! 4.3.1; spec 3 and 5): first the active tier is cut to its capacity, then passive tasks are
//! promoted into what is free, then priorities are put right, then reservations move up, then
//! waiting requests get what is left. Each rule is one line of that function.
//!
//! What comes before a task, requests, waits and promises, is in requests.rs.

mod bound;
mod cycle;
mod drift;
mod facts;
mod forecast;
mod freezing;
mod lane;
mod life;
mod loan;
mod neighbours;
mod opening;
mod order;
mod parking;
mod pinning;
mod placement;
pub mod queue;
mod ramp;
mod requests;
mod share;
mod slice;
mod standing;
pub mod whole_job;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use serde_json::{Map, Value, json};

use super::bound::Bound;
use super::capacity::FreeWindow;
use super::cpus::{CpuSet, UsableCpus};
use super::event::{Change, Event, EventKind, PROGRAM};
use super::freed::Freed;
use super::guard::Guard;
use super::guard::freeze::Ladder;
use super::guard::interference::Interference;
use super::jobs::Jobs;
use super::lane::Lane;
use super::loan::Loans;
use super::model::{Labels, Priority, ReservationId, TaskId};
use super::neighbours::Follow;
use super::opening::Opening;
use super::parked::Parking;
use super::probe::Probe;
use super::ramp::Ahead;
use super::reservation::Deadline;
use super::slots::Slots;
use super::state::{
    Counters, Policy, Request, RequestOutcome, Reservation, Restored, Totals, Waiter,
};
use super::step::{Answer, Input, Job, Last, Reading, Record, Step, Ticket};
use super::task::Task;
use super::turns::Turns;
use super::usage::Usage;
use super::withdrawn::Withdrawn;
use crate::units::{BootTime, Moment, WallTime};

/// The pure core of LRS.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shaper {
    pub(super) policy: Policy,
    pub(super) cpus: UsableCpus,
    /// Tasks that may not use all of them, and which they may.
    pub(super) pinned: BTreeMap<TaskId, CpuSet>,
    pub(super) slots: Slots,
    pub(super) free_window: FreeWindow,
    /// Tasks that had come or gone when expanded slots were closed because no task took them.
    pub(super) untaken: Option<u64>,
    /// [`Shaper::bound`], of the last cycle or reading ahead of it.
    pub(super) bound: Option<Bound>,
    /// Passive slots there shall be once passive tasks have moved up into an active tier that grew
    /// with the node's CPUs.
    pub(super) passive_after_growth: Option<u32>,
    pub(super) guard: Guard,
    /// Stages 2 and 3 of the guard.
    pub(super) ladder: Ladder,
    /// Whether expansion made active tasks wait.
    pub(super) interference: Interference,
    /// Slots on trial.
    pub(super) probe: Probe,
    /// Passive slots for tasks that wait.
    pub(super) opening: Opening,
    /// Passive slots opened ahead of the cycle.
    pub(super) ahead: Ahead,
    /// The weight of the root.
    pub(super) follow: Follow,
    /// What tasks used of the CPUs.
    pub(super) usage: Usage,
    /// Passive tasks that compute promptly.
    pub(super) lane: Lane,
    /// Active slots on loan.
    pub(super) loans: Loans,
    /// Boxed: a map filled in order is half empty, and a task has 1.5 KiB.
    #[serde(with = "crate::recording::whole_map")]
    pub(super) tasks: BTreeMap<TaskId, Box<Task>>,
    pub(super) reservations: BTreeMap<ReservationId, Reservation>,
    pub(super) waiters: BTreeMap<Ticket, Waiter>,
    /// The waiters, in the order in which they are served.
    pub(super) queue: Turns,
    pub(super) withdrawn: Withdrawn,
    /// When waits and reservations end, and from when on a reservation may be withdrawn.
    pub(super) deadlines: BTreeSet<(BootTime, Deadline)>,
    /// Waiters that are in their groups.
    pub(super) parking: Parking,
    /// Tasks that have left their slots and wait for their figures, or for a unit to get its
    /// weights back.
    #[serde(with = "crate::recording::whole_map")]
    pub(super) vacated: BTreeMap<TaskId, Box<Task>>,
    pub(super) jobs: Jobs,
    /// Slots that came free.
    pub(super) freed: Freed,
    pub(super) totals: Totals,
    pub(super) counters: Counters,
    pub(super) draining_since: Option<WallTime>,
    /// Others froze the group of all tasks; in words, by which file.
    pub(super) root_frozen: Option<String>,
    pub(super) gather_until: Option<BootTime>,
    /// What follows from the present input.
    pub(super) step: Step,
    /// What follows from ends, until their figures are known.
    held: Step,
    pub(super) refusals_unrecorded: u64,
    pub(super) refusal_event_at: Option<BootTime>,
}

impl Shaper {
    /// A core on a node where tasks of LRS may use `cpus` CPUs, with what an earlier daemon left.
    /// Nothing is decided before the first input; [`Input::Ended`] with those that ended
    /// meanwhile comes first, so that no dead task is promoted.
    pub fn new(policy: Policy, cpus: impl Into<UsableCpus>, restored: Restored) -> Shaper {
        let mut shaper = Shaper {
            policy,
            cpus: cpus.into(),
            pinned: BTreeMap::new(),
            slots: Slots::default(),
            free_window: FreeWindow::default(),
            untaken: None,
            bound: None,
            passive_after_growth: None,
            guard: Guard::default(),
            ladder: Ladder::default(),
            interference: Interference::default(),
            probe: Probe::default(),
            opening: Opening::default(),
            ahead: Ahead::default(),
            follow: Follow::default(),
            usage: Usage::default(),
            lane: Lane::default(),
            loans: Loans::default(),
            tasks: BTreeMap::new(),
            reservations: BTreeMap::new(),
            waiters: BTreeMap::new(),
            queue: Turns::default(),
            withdrawn: Withdrawn::default(),
            deadlines: BTreeSet::new(),
            parking: Parking::default(),
            vacated: restored
                .called_off
                .into_iter()
                .map(|task| (task.id, Box::new(task)))
                .collect(),
            jobs: Jobs::restore(restored.jobs),
            freed: Freed::default(),
            totals: restored.totals,
            counters: restored.counters,
            draining_since: restored.draining_since,
            root_frozen: None,
            gather_until: restored.gather_until,
            step: Step::default(),
            held: Step::default(),
            refusals_unrecorded: 0,
            refusal_event_at: None,
        };
        shaper.counters.next_seq = shaper.counters.next_seq.max(1);
        shaper.size();
        for task in restored.tasks {
            let id = task.id;
            shaper.counters.next_order =
                shaper.counters.next_order.max(task.order.0.saturating_add(1));
            shaper.slots.insert(task.seat, task.rank(), id);
            shaper.slots.halt(id, task.halted.is_some());
            if let Some(key) = task.job_key() {
                shaper.jobs.started(key, task.labels.group.as_ref());
            }
            shaper.tasks.insert(id, Box::new(task));
        }
        for (id, reservation) in restored.reservations {
            shaper.counters.next_order =
                shaper.counters.next_order.max(reservation.order.0.saturating_add(1));
            shaper.keep_reservation(id, reservation);
        }
        let wished = restored.passive_capacity.unwrap_or(0).min(shaper.slots.passive_max);
        shaper.slots.passive_capacity =
            shaper.slots.passive_capacity.max(wished).max(shaper.slots.passive_in_use());
        shaper
    }

    /// Decides what follows from `input`. The caller carries the step out before the next input.
    pub fn handle(&mut self, input: Input, now: Moment) -> Step {
        match input {
            Input::Request { ticket, request, patience } => {
                match self.request(ticket, request, patience, now) {
                    Ok(RequestOutcome::Placed(_)) => {}
                    Ok(RequestOutcome::Waiting) => {
                        self.step.answers.push((ticket, Answer::Waiting));
                        // Reservations may yield to it.
                        self.rearrange(now);
                    }
                    Err(refusal) => self.step.answers.push((ticket, Answer::Refused(refusal))),
                }
            }
            Input::Abandon(ticket) => self.abandon(ticket),
            Input::Prepared { task, ready } => self.prepared(task, ready),
            Input::AttachBooked { task, origin, kin, followed } => {
                self.attach_booked(task, origin, kin, followed);
            }
            Input::Attached { task, group, born } => self.in_place(task, group, born, now),
            Input::NotRecorded(task) => self.not_recorded(task),
            Input::AttachFailed { task, reason } => self.attach_failed(task, &reason, now),
            Input::Ended(tasks) => {
                let ended = self.vacate(&tasks, now);
                if !ended.is_empty() {
                    self.thaw_what_may_not_be(now);
                    let weights = std::mem::take(&mut self.step.weights);
                    let thaw = std::mem::take(&mut self.step.thaw);
                    let rest = std::mem::take(&mut self.step);
                    self.held.append(rest);
                    let jobs = vec![Job::Figures(ended)];
                    return Step { thaw, weights, jobs, ..Step::default() };
                }
            }
            Input::Figures(endings) => {
                self.step = std::mem::take(&mut self.held);
                self.completed(endings, now);
            }
            Input::EndedAway { ended, released } => {
                self.vacate(&[ended.clone(), released].concat(), now);
                self.completed(ended.into_iter().map(|id| (id, Last::Away)).collect(), now);
            }
            Input::MainExited(task) => {
                if let Some(task) = self.tasks.get_mut(&task) {
                    task.main_exited = true;
                }
            }
            Input::Exited { task, uid, labels, exit } => self.exited(task, uid, &labels, exit, now),
            Input::Release(task) => self.release(task, now),
            Input::Released(task) => self.released(task, now),
            Input::ReleaseFailed(task) => self.release_failed(task),
            Input::NotFrozen { task, reason } => self.not_frozen(task, reason, now),
            Input::Halted(halts) => self.halted(halts, now),
            Input::RootFrozen(why) => self.root_frozen(why, now),
            Input::Removed(task) => {
                self.vacated.remove(&task);
                if !self.not_parked(task) {
                    self.step.forget(Record::Task(task));
                }
            }
            Input::Outside { task, found_in, limit, occupied } => {
                self.outside(task, &found_in, limit.as_deref(), occupied, now);
            }
            Input::WentElsewhere { task, to, whither } => {
                self.went_elsewhere(task, &to, whither, now);
            }
            Input::Reattached { task, result } => self.reattached(task, result, now),
            Input::Entered { task, error } => self.entered(task, &error, now),
            Input::Drifted { task, found, fits } => self.drifted(task, found, fits, now),
            Input::Repaired { task, found, result } => self.repaired(task, &found, result, now),
            Input::OwnerWrote { task, group } => self.owner_wrote(task, group),
            Input::FoundAgain { task, found } => self.found_again(task, found, now),
            Input::Reserve { ticket, uid, by_member, labels, priority, lease, patience } => {
                let request = Request::of_promise(uid, by_member, labels, priority);
                let answer = match self.reserve(ticket, request, lease, patience, now) {
                    Ok(Some(promised)) => Answer::Reserved(promised),
                    Ok(None) => Answer::Waiting,
                    Err(refusal) => Answer::Refused(refusal),
                };
                let waits = answer == Answer::Waiting;
                self.step.answers.push((ticket, answer));
                if waits {
                    self.rearrange(now);
                }
            }
            Input::Cancel(id) => self.cancel_reservation(id, now),
            Input::SetPriority { task, priority } => self.set_priority(task, priority, now),
            Input::SetJobPriority { job, uid, priority } => {
                self.set_job_priority(&job, uid, priority, now);
            }
            Input::SetStanding { task, standing } => self.set_standing(task, standing, now),
            Input::Drain => self.drain(now),
            Input::Resume => self.resume(now),
            Input::Configure(policy) => self.set_policy(policy, now),
            Input::Tick => self.expire(now),
            Input::Cycle { mut node, at, tasks, pinned } => {
                self.follow_cpus(&node, now);
                self.pinned = pinned.into_iter().collect();
                for reading in tasks {
                    self.read(at, reading);
                }
                let parents = std::mem::take(&mut node.parents);
                self.usage.end_cycle(at, node.root_cpu, parents, self.cpus.total());
                self.cycle(&node, now);
            }
            Input::Ramp { node, resident } => self.ramp(&node, resident, now),
            Input::Looked(looks) => {
                for (id, look) in looks {
                    if let Some(task) = self.tasks.get_mut(&id) {
                        task.counts.meter.saw(look);
                    }
                }
            }
            Input::CpuLooked(counters) => {
                self.look_at_lane(&counters, now);
                self.loans.look(&counters, now.boot);
                self.lend(now);
            }
            Input::Restored(due) => self.restored(due, now),
            Input::Note { kind, task, reason, inputs } => {
                self.note(kind, task, reason, inputs, now);
            }
            Input::Change(change) => self.note_change(change, now),
            Input::Stop => {
                self.flush_refusals(now);
                self.end_parking();
                self.empty_lane(now);
                self.end_all_loans(now);
                self.thaw_all("lrsd stops", now);
            }
        }
        self.park(now);
        self.thaw_what_may_not_be(now);
        self.take_step()
    }

    /// What has been decided so far, with the events numbered.
    pub(super) fn take_step(&mut self) -> Step {
        let mut step = std::mem::take(&mut self.step);
        for event in &mut step.events {
            event.seq = post_increment(&mut self.counters.next_seq);
        }
        step
    }

    /// Changes a priority; the rules of placement apply at once, in both directions.
    pub(super) fn set_priority(&mut self, id: TaskId, priority: Priority, now: Moment) {
        if self.change_priority(id, priority, now) {
            self.rearrange(now);
        }
    }

    /// Changes it and leaves the rules of placement to the caller; `false`: there was nothing to change.
    pub(super) fn change_priority(&mut self, id: TaskId, priority: Priority, now: Moment) -> bool {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| task.priority != priority) else {
            return false;
        };
        let before = task.priority;
        self.slots.remove(task.seat, task.rank());
        task.priority = priority;
        self.slots.insert(task.seat, task.rank(), id);
        self.record(now, EventKind::Priority, Some(id.to_string()), |event| {
            event.from = Some(before.to_string());
            event.to = Some(priority.to_string());
        });
        self.step.store(Record::Task(id));
        true
    }

    /// Takes no new tasks from now on. Tasks and reservations stay; who waits does so until it ends.
    pub(super) fn drain(&mut self, now: Moment) {
        if self.draining_since.is_none() {
            self.draining_since = Some(now.wall);
            self.record(now, EventKind::Draining, None, |_| ());
            self.thaw_all("the node is drained", now);
        }
    }

    /// Offers slots again.
    pub(super) fn resume(&mut self, now: Moment) {
        if self.draining_since.take().is_some() {
            self.record(now, EventKind::Resumed, None, |_| ());
            self.rearrange(now);
        }
    }

    /// New settings.
    pub(super) fn set_policy(&mut self, policy: Policy, now: Moment) {
        let guard = std::mem::replace(&mut self.policy, policy).guard;
        if self.policy.guard.is_none() {
            self.guard.reset();
            self.interference.reset();
        }
        // A reload that leaves the guard as it is thaws nothing.
        if self.policy.guard != guard {
            self.follow_freeze_policy(now);
        }
        self.resize("the settings changed", now);
        self.rearrange(now);
    }

    /// Ends reservations and waits that have expired.
    pub(super) fn expire(&mut self, now: Moment) {
        self.gather_until = self.gather_until.filter(|until| *until > now.boot);
        while let Some((at, what)) = self.deadlines.first().copied()
            && at <= now.boot
        {
            self.deadlines.pop_first();
            match what {
                Deadline::Reservation(id) => {
                    self.end_reservation(id, EventKind::Expired, now, |_| ());
                }
                // What is placed below looks at it.
                Deadline::MayYield(_) => {}
                Deadline::Waiter(id) => {
                    if self.take_waiter(id).is_some() {
                        self.step.answers.push((id, Answer::TimedOut));
                    }
                }
            }
        }
        self.rearrange(now);
    }

    /// Records something only the caller knows (drift, recovery, start, stop).
    pub(super) fn note(
        &mut self,
        kind: EventKind,
        task: Option<TaskId>,
        reason: String,
        inputs: Map<String, Value>,
        now: Moment,
    ) {
        self.record(now, kind, task.map(|id| id.to_string()), |event| {
            event.reason = Some(reason);
            event.inputs = inputs;
        });
    }

    /// Records that something only the caller knows went from one state to another.
    pub(super) fn note_change(&mut self, change: Change, now: Moment) {
        let Change { kind, from, to, reason, inputs } = change;
        self.record(now, kind, None, |event| {
            event.from = from;
            event.to = to;
            event.reason = Some(reason);
            event.inputs = inputs;
        });
    }

    /// Takes what the last cycle read of a task.
    pub(super) fn read(&mut self, at: BootTime, reading: Reading) {
        let Reading { task, due, sample } = reading;
        if let Some(task) = self.tasks.get_mut(&task) {
            self.usage.add(task.id, task.is_below_root(), task.counts.grown_to(&sample));
            let id = task.id;
            if task.counts.advance(at, sample, due, self.cpus) {
                self.step.store(Record::Task(id));
            }
        }
    }

    // --- records ---

    pub(super) fn slot_inputs(&self) -> Map<String, Value> {
        let slots = &self.slots;
        let mut inputs = Map::new();
        for (key, value) in [
            ("active_capacity", slots.active_capacity),
            ("active_used", slots.active_used()),
            ("active_reserved", slots.active_reserved()),
            ("passive_capacity", slots.passive_capacity),
            ("passive_used", slots.passive_used()),
            ("passive_reserved", slots.passive_reserved()),
        ] {
            inputs.insert(key.into(), json!(value));
        }
        inputs
    }

    pub(super) fn record(
        &mut self,
        now: Moment,
        kind: EventKind,
        task: Option<String>,
        fill: impl FnOnce(&mut Event),
    ) {
        let mut event = Event {
            // Numbered when it is taken, so that ends can come before what follows from them.
            seq: 0,
            at: now.wall,
            kind,
            task,
            from: None,
            to: None,
            reason: None,
            inputs: Map::new(),
        };
        fill(&mut event);
        self.step.events.push(event);
    }
}

/// Adds the labels that are known to `inputs`, by their names in JSON; the command, which is not for all,
/// is not among them.
pub fn insert_labels(inputs: &mut Map<String, Value>, labels: &Labels) {
    let Labels { name, job, kind, group, command: _, hint: _ } = labels;
    if let Some(program) = labels.program() {
        inputs.insert(PROGRAM.into(), json!(program));
    }
    for (key, label) in [("name", name), ("job", job), ("kind", kind), ("group", group)] {
        if let Some(label) = label {
            inputs.insert(key.into(), json!(label));
        }
    }
}

pub(super) fn post_increment(counter: &mut u64) -> u64 {
    let value = *counter;
    *counter = counter.saturating_add(1);
    value
}
