//! The state machine: what is in which slot, and what follows from what happened.
//!
//! No clock, file, socket, async or log. The caller brings the time with every input, asks
//! [`Shaper::next_deadline`] when to come back at the latest, and carries out the [`Step`] that
//! [`Shaper::handle`] gives. Time that stands still, jumps or runs
//! backwards changes nothing but when deadlines are met.
//!
//! After every input `settle` (placement.rs) restores the order of the contract (thesis 3.3.2,
//! 4.3.1; spec 3 and 5): first the active tier is cut to its capacity, then passive tasks are
//! promoted into what is free, then priorities are put right, then reservations move up, then
//! waiting requests get what is left. Each rule is one line of that function.
//!
//! What comes before a task, requests, waits and promises, is in requests.rs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::capacity::FreeWindow;
use super::event::{Change, Event, EventKind};
use super::guard::Guard;
use super::jobs::Jobs;
use super::model::{Labels, Priority, ReservationId, TaskId};
use super::slots::{Seat, Slots};
use super::state::{
    Asked, Counters, Ending, Phase, Policy, Reservation, Restored, Task, Totals, Waiter,
};
use super::step::{Answer, Figures, Input, Job, Record, Step, Ticket};
use crate::units::{BootTime, Moment, WallTime};

/// The pure core of LRS.
#[derive(Clone, Debug)]
pub struct Shaper {
    pub(super) policy: Policy,
    pub(super) cpus: u32,
    pub(super) slots: Slots,
    pub(super) free_window: FreeWindow,
    pub(super) guard: Guard,
    pub(super) tasks: BTreeMap<TaskId, Task>,
    pub(super) reservations: BTreeMap<ReservationId, Reservation>,
    pub(super) waiters: BTreeMap<Ticket, Waiter>,
    /// The waiters, first come first.
    pub(super) queue: BTreeSet<(Reverse<Priority>, WallTime, Ticket)>,
    /// When waits and reservations end.
    pub(super) deadlines: BTreeSet<(BootTime, Deadline)>,
    /// Tasks that have left their slots and wait for their records.
    pub(super) vacated: BTreeMap<TaskId, Task>,
    pub(super) jobs: Jobs,
    pub(super) totals: Totals,
    pub(super) counters: Counters,
    pub(super) draining_since: Option<WallTime>,
    pub(super) gather_until: Option<BootTime>,
    /// What follows from the present input.
    pub(super) step: Step,
    pub(super) refusals_unsaid: u64,
    pub(super) refusal_said_at: Option<BootTime>,
}

/// What ends at a time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deadline {
    Reservation(ReservationId),
    Waiter(Ticket),
}

impl Shaper {
    /// A core on a node whose LRS tasks may use `cpus` CPUs, with what an earlier daemon left.
    /// Nothing is decided before the first input; [`Input::Ended`] with those that ended
    /// meanwhile comes first, so that no dead task is promoted.
    pub fn new(policy: Policy, cpus: u32, restored: Restored) -> Shaper {
        let mut shaper = Shaper {
            policy,
            cpus: cpus.max(1),
            slots: Slots::default(),
            free_window: FreeWindow::default(),
            guard: Guard::default(),
            tasks: BTreeMap::new(),
            reservations: BTreeMap::new(),
            waiters: BTreeMap::new(),
            queue: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            vacated: BTreeMap::new(),
            jobs: Jobs::restore(restored.jobs),
            totals: restored.totals,
            counters: restored.counters,
            draining_since: restored.draining_since,
            gather_until: restored.gather_until,
            step: Step::default(),
            refusals_unsaid: 0,
            refusal_said_at: None,
        };
        shaper.counters.next_seq = shaper.counters.next_seq.max(1);
        shaper.size();
        for (id, task) in restored.tasks {
            shaper.counters.next_order =
                shaper.counters.next_order.max(task.order.0.saturating_add(1));
            shaper.slots.sit(task.seat, task.rank(), id);
            if let Some(key) = task.labels.job_key() {
                shaper.jobs.started(key);
            }
            shaper.tasks.insert(id, task);
        }
        for (id, reservation) in restored.reservations {
            shaper.counters.next_order =
                shaper.counters.next_order.max(reservation.order.0.saturating_add(1));
            shaper.slots.reserve(reservation.tier, reservation.rank(), id);
            shaper.deadlines.insert((reservation.expires, Deadline::Reservation(id)));
            shaper.reservations.insert(id, reservation);
        }
        let wished = restored.passive_capacity.unwrap_or(0).min(shaper.slots.passive_max);
        shaper.slots.passive_capacity =
            shaper.slots.passive_capacity.max(wished).max(shaper.slots.passive_in_use());
        shaper
    }

    // --- what is ---

    /// Capacities and holders.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// A task by id.
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(&id)
    }

    /// All tasks, by id.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = (TaskId, &Task)> {
        self.tasks.iter().map(|(id, task)| (*id, task))
    }

    /// A reservation by id.
    pub fn reservation(&self, id: ReservationId) -> Option<&Reservation> {
        self.reservations.get(&id)
    }

    /// All reservations, by id.
    pub fn reservations(&self) -> impl Iterator<Item = (ReservationId, &Reservation)> {
        self.reservations.iter().map(|(id, reservation)| (*id, reservation))
    }

    /// All jobs known.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// Counters.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Numbers.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Whether an operator asked for no new tasks.
    pub fn draining(&self) -> bool {
        self.draining_since.is_some()
    }

    /// Since when, by the people's clock.
    pub fn draining_since(&self) -> Option<WallTime> {
        self.draining_since
    }

    /// Where the guard stands.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// The settings in force.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether the guard keeps passive slots from being offered.
    pub fn holding(&self) -> bool {
        self.guard.entered().is_some() && self.policy.guard.is_some_and(|guard| !guard.dry_run)
    }

    /// Active slots Reserve would grant now.
    pub fn active_offered(&self) -> u32 {
        if self.draining() { 0 } else { self.slots.active_free() }
    }

    /// Passive slots Reserve would grant now.
    pub fn passive_offered(&self) -> u32 {
        if self.draining() || self.holding() { 0 } else { self.slots.passive_free() }
    }

    /// Lowest priority in the active tier; `None` while it is empty. An opportunistic task
    /// counts as the lowest there is: anybody else may have its slot.
    pub fn lowest_active_priority(&self) -> Option<Priority> {
        self.slots.worst_active().map(|(rank, _)| rank.priority())
    }

    /// When [`Input::Tick`] has something to do.
    pub fn next_deadline(&self) -> Option<BootTime> {
        let first = self.deadlines.first().map(|(deadline, _)| *deadline);
        [first, self.gather_until].into_iter().flatten().min()
    }

    // --- what happens ---

    /// Decides what follows from `input`. The caller carries the step out before the next input.
    pub fn handle(&mut self, input: Input, now: Moment) -> Step {
        match input {
            Input::Request { ticket, request, patience } => {
                match self.request(ticket, request, patience, now) {
                    Ok(Asked::Placed(_)) => {}
                    Ok(Asked::Waiting) => self.step.answers.push((ticket, Answer::Waiting)),
                    Err(refusal) => self.step.answers.push((ticket, Answer::Refused(refusal))),
                }
            }
            Input::Abandon(ticket) => self.abandon(ticket),
            Input::Prepared(task) => self.prepared(task),
            Input::Attached(task) => self.attached(task, now),
            Input::AttachFailed { task, reason } => self.attach_failed(task, &reason, now),
            Input::Ended(tasks) => {
                self.vacate(&tasks, now);
                let weights = std::mem::take(&mut self.step.weights);
                return Step { weights, ..Step::default() };
            }
            Input::Figures(endings) => self.completed(endings, now),
            Input::Released(task) => self.released(task, now),
            Input::Reserve { ticket, uid, labels, priority, ttl } => {
                let answer = match self.reserve(uid, labels, priority, ttl, now) {
                    Ok(id) => Answer::Reserved(id),
                    Err(refusal) => Answer::Refused(refusal),
                };
                self.step.answers.push((ticket, answer));
            }
            Input::Cancel(id) => self.cancel_reservation(id, now),
            Input::SetPriority { task, priority } => self.set_priority(task, priority, now),
            Input::SetStanding { task, standing } => self.set_standing(task, standing, now),
            Input::AddLabels { task, labels } => self.add_labels(task, labels),
            Input::Drain => self.drain(now),
            Input::Resume => self.resume(now),
            Input::Configure(policy) => self.set_policy(policy, now),
            Input::Tick => self.expire(now),
            Input::Cycle { node, tasks } => {
                for (id, figures) in tasks {
                    self.measured(id, figures);
                }
                self.cycle(&node, now);
            }
            Input::Readmit(task) => self.readmit(task, now),
            Input::Note { kind, task, reason, inputs } => {
                self.note(kind, task, reason, inputs, now);
            }
            Input::Change(change) => self.note_change(change, now),
            Input::Stop => self.flush_refusals(now),
        }
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

    /// A new task can be recorded: the promise it used is kept by its record from now on.
    pub(super) fn prepared(&mut self, id: TaskId) {
        let Some(Phase::Attaching { used, .. }) = self.tasks.get(&id).map(|task| &task.phase)
        else {
            return;
        };
        if let Some((reservation, _)) = used {
            self.step.forget(Record::Reservation(*reservation));
        }
        self.step.store(Record::Task(id));
        self.step.jobs.push(Job::Attach(id));
    }

    /// The processes of the task are in place. One that was found gets its seat now.
    pub(super) fn attached(&mut self, id: TaskId, now: Moment) {
        self.arrive(id, now);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Phase::Attaching { reason, .. } = std::mem::replace(&mut task.phase, Phase::Running)
        else {
            return;
        };
        let (tier, priority) = (task.tier(), task.priority);
        let labels = task.labels.clone();
        self.totals.admitted += 1;
        let inputs = self.slot_inputs();
        self.record(now, EventKind::Admitted, Some(id.to_string()), |event| {
            event.to = Some(tier.to_string());
            event.reason = Some(reason.into());
            event.inputs = inputs;
            event.inputs.insert("priority".into(), json!(priority));
            insert_labels(&mut event.inputs, &labels);
        });
        self.step.store(Record::Task(id));
    }

    /// A recovered task whose `admitted` event the earlier daemon did not get to write.
    pub(super) fn readmit(&mut self, id: TaskId, now: Moment) {
        let Some(task) = self.tasks.get(&id) else { return };
        let (tier, priority, labels) = (task.tier(), task.priority, task.labels.clone());
        self.totals.admitted += 1;
        self.record(now, EventKind::Admitted, Some(id.to_string()), |event| {
            event.to = Some(tier.to_string());
            event.reason = Some("its admission was finished after a restart of lrsd".into());
            event.inputs.insert("priority".into(), json!(priority));
            insert_labels(&mut event.inputs, &labels);
        });
    }

    /// The processes could not be put in place: the slot is free again, and a reservation that
    /// was used is back with what is left of its time. What was found, and asked for by nobody, is
    /// no refused request, however often its finder tries.
    pub(super) fn attach_failed(&mut self, id: TaskId, reason: &str, now: Moment) {
        let Some(task) = self.remove_task(id) else { return };
        if let Some(key) = task.labels.job_key() {
            self.jobs.left(key);
        }
        if let Phase::Attaching { used: Some((rid, mut reservation)), .. } = task.phase {
            reservation.tier = task.seat.tier();
            self.slots.reserve(reservation.tier, reservation.rank(), rid);
            self.deadlines.insert((reservation.expires, Deadline::Reservation(rid)));
            self.reservations.insert(rid, reservation);
            self.step.store(Record::Reservation(rid));
        }
        if !matches!(task.seat, Seat::Arriving | Seat::Slotless) {
            self.count_refusal(reason, now);
        }
        self.settle(now);
    }

    /// Tasks whose last process has gone leave their slots. Their figures follow with
    /// [`Input::Figures`]: reading them takes longer than the next task should wait.
    pub(super) fn vacate(&mut self, ids: &[TaskId], now: Moment) {
        for id in ids {
            if let Some(task) = self.remove_task(*id) {
                self.vacated.insert(*id, task);
            }
        }
        self.settle(now);
    }

    /// Records of tasks that were vacated; told before what followed from their ends.
    pub(super) fn completed(&mut self, endings: Vec<(TaskId, Ending)>, now: Moment) {
        let followed = std::mem::take(&mut self.step.events);
        for (id, ending) in endings {
            let Some(task) = self.vacated.remove(&id) else { continue };
            if let Some(key) = task.labels.job_key() {
                self.jobs.ended(key, ending.at.and(ending.rate));
            }
            self.totals.completed += 1;
            self.record(now, EventKind::Completed, Some(id.to_string()), |event| {
                event.from = Some(task.tier().to_string());
                event.inputs = ending.inputs;
                event.inputs.insert("ended_at".into(), json!(ending.at));
                event.inputs.insert("computing_rate".into(), json!(ending.rate));
                insert_labels(&mut event.inputs, &task.labels);
                if ending.at.is_none() {
                    event.reason = Some("ended while lrsd was away".into());
                }
            });
        }
        self.step.events.extend(followed);
    }

    /// A task that was vacated, until its record is written.
    pub fn vacated(&self, id: TaskId) -> Option<&Task> {
        self.vacated.get(&id)
    }

    /// A task is given back; its processes go on elsewhere. It may have left its slot before.
    pub(super) fn released(&mut self, id: TaskId, now: Moment) {
        let Some(task) = self.remove_task(id).or_else(|| self.vacated.remove(&id)) else { return };
        if let Some(key) = task.labels.job_key() {
            self.jobs.left(key);
        }
        self.totals.released += 1;
        self.record(now, EventKind::Released, Some(id.to_string()), |event| {
            event.from = Some(task.tier().to_string());
            insert_labels(&mut event.inputs, &task.labels);
        });
        self.settle(now);
    }

    /// Changes a priority; the rules of placement apply at once, in both directions.
    pub(super) fn set_priority(&mut self, id: TaskId, priority: Priority, now: Moment) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if task.priority == priority {
            return;
        }
        let before = task.priority;
        self.slots.stand(task.seat, task.rank());
        task.priority = priority;
        self.slots.sit(task.seat, task.rank(), id);
        self.record(now, EventKind::Priority, Some(id.to_string()), |event| {
            event.from = Some(before.to_string());
            event.to = Some(priority.to_string());
        });
        self.step.store(Record::Task(id));
        self.settle(now);
    }

    /// Takes no new tasks from now on. Tasks, reservations and waiters stay.
    pub(super) fn drain(&mut self, now: Moment) {
        if self.draining_since.is_none() {
            self.draining_since = Some(now.wall);
            self.record(now, EventKind::Draining, None, |_| ());
        }
    }

    /// Offers slots again.
    pub(super) fn resume(&mut self, now: Moment) {
        if self.draining_since.take().is_some() {
            self.record(now, EventKind::Resumed, None, |_| ());
            self.settle(now);
        }
    }

    /// New settings.
    pub(super) fn set_policy(&mut self, policy: Policy, now: Moment) {
        self.policy = policy;
        if self.policy.guard.is_none() {
            self.guard.reset();
        }
        self.resize(now);
        self.settle(now);
    }

    /// Ends reservations and waits whose time is over.
    pub(super) fn expire(&mut self, now: Moment) {
        self.gather_until = self.gather_until.filter(|until| *until > now.boot);
        while let Some((at, what)) = self.deadlines.first().copied()
            && at <= now.boot
        {
            self.deadlines.pop_first();
            match what {
                Deadline::Reservation(id) => self.end_reservation(id, EventKind::Expired, now),
                Deadline::Waiter(id) => {
                    if self.take_waiter(id).is_some() {
                        self.step.answers.push((id, Answer::TimedOut));
                    }
                }
            }
        }
        self.settle(now);
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

    /// Takes what the last cycle measured of a task.
    pub(super) fn measured(&mut self, id: TaskId, Figures { resident, rate, class }: Figures) {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.resident = resident.or(task.resident);
            task.rate = rate;
            task.class = class;
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
            // Numbered when it is taken, so that ends can be told before what follows from them.
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

/// Adds what is known of name, job and kind to the figures of an event.
/// Adds the labels that are known to `inputs`, by their names in JSON.
pub fn insert_labels(inputs: &mut Map<String, Value>, labels: &Labels) {
    let Labels { name, job, kind } = labels;
    for (key, label) in [("name", name), ("job", job), ("kind", kind)] {
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
