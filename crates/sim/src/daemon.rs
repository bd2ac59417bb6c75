//! The daemon in the simulation: feeds the core and carries out its steps in the same order as lrsd,
//! weights, history, records, what is forgotten, jobs, what is shown, answers.
//!
//! What lrsd does around the core is done here in its simplest form: it knows no rights, units or
//! hierarchies, and every task has a group of its own. The placing thread is a queue of jobs, each
//! done when the simulation asks for it, and its results are another, so that both come as late as one
//! likes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use lrs_core::Measured;
use lrs_core::exit::Exit;
use lrs_core::inputs::Inputs;
use lrs_core::lane;
use lrs_core::model::{Labels, Level, Priority, ReservationId, TaskId};
use lrs_core::neighbours::RootWeight;
use lrs_core::ramp::Ramp;
use lrs_core::rate::NodeRates;
use lrs_core::sample::{NodeSample, TaskSample};
use lrs_core::shaper::Shaper;
use lrs_core::slots::Seat;
use lrs_core::state::{Lease, Patience, Request};
use lrs_core::step::{self, Answer, Input, Last, NotMoved, Reading, Ready, Record, Step, Ticket};
use lrs_core::task::{Life, Task};
use lrs_core::units::{BootTime, Bytes, Pid, ProcessRef};

use crate::outside::{
    Alive, Call, Deed, Outside, Reply, TaskRecord, group_of, origin, origin_of, own_group,
};
use crate::tree::{Inode, NEUTRAL, ROOT, Refused, Weights};

/// `tiers.ratio`: active to passive, when both tiers are full.
const RATIO: u64 = 100;

/// What a client asks for when it asks for a slot.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The user that asks.
    pub caller: u32,
    /// For which process.
    pub process: ProcessRef,
    /// What the core is asked.
    pub request: Request,
    /// How long it waits.
    pub patience: Option<Patience>,
}

/// A request to the core that has no answer yet.
#[derive(Clone, Debug)]
enum PendingRequest {
    Task { ask: Box<Ask>, calls: Vec<Call>, waited: bool },
    Promise(Call),
}

/// Work of the placing thread.
#[derive(Clone, Debug)]
enum Job {
    Attach { task: TaskId, process: ProcessRef, origin: Inode, weights: Option<Weights> },
    MoveBack { task: TaskId, process: ProcessRef, group: Inode },
    Release { task: TaskId, group: Option<Inode>, origin: Inode },
    Remove(Inode),
}

/// What the placing thread answers.
#[derive(Clone, Debug)]
enum Message {
    Attached(TaskId, Result<Inode, Refused>),
    MovedBack(TaskId, Result<(), NotMoved>),
    Released(TaskId),
}

/// What the weights depend on beside the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    active: u32,
    passive_max: u32,
}

impl Plan {
    pub(crate) fn of(core: &Shaper) -> Plan {
        Plan { active: core.slots().active_capacity, passive_max: core.slots().passive_max }
    }

    /// Weights of a task: `RATIO` to one between the tiers when both are full.
    pub fn weights(self, level: impl Into<Level>) -> Weights {
        let passive_per_active = u64::from(self.passive_max.div_ceil(self.active.max(1)).max(1));
        let active = (RATIO * passive_per_active).clamp(100, 10_000);
        match level.into() {
            Level::Active => Weights { cpu: active, idle: false, io: active },
            Level::Lane => in_lane(active, lane::WEIGHT),
            Level::SlowLane => in_lane(active, lane::SLOW_WEIGHT),
            Level::Passive => Weights { cpu: 1, idle: false, io: 1 },
        }
    }
}

/// How a task that is over ended: one in three fails, one in three is not known.
fn exited(task: &Task) -> Option<Input> {
    let process = task.who.process?;
    let exit = match process.pid.raw() % 3 {
        0 => Exit::Status(0),
        1 => Exit::Signal { number: 9, core: false },
        _ => return None,
    };
    let (uid, labels) = (task.uid, task.labels.clone());
    Some(Input::Exited { task: task.id, uid, labels, exit })
}

fn in_lane(active: u64, part: f64) -> Weights {
    Weights { cpu: ((active as f64 * part).round() as u64).max(1), idle: false, io: 1 }
}

/// What clients read of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// Tier and kind of place.
    pub seat: Seat,
    /// Its priority.
    pub priority: Priority,
    /// Its labels.
    pub labels: Labels,
    /// How far it is.
    pub life: Discriminant<Life>,
}

/// The daemon while it runs.
#[derive(Clone, Debug)]
pub struct Daemon {
    /// The core.
    pub core: Shaper,
    /// The tasks, as the core has them, and who waits for each to be in place or given back.
    pub held: BTreeMap<TaskId, Vec<Call>>,
    /// What clients read.
    pub shown: BTreeMap<TaskId, Shown>,
    /// What weights are made of.
    pub plan: Plan,
    pending: BTreeMap<Ticket, PendingRequest>,
    /// Requests for processes that are on their way back from parking.
    returning: Vec<(Call, Ask)>,
    next_ticket: u64,
    jobs: VecDeque<Job>,
    messages: VecDeque<Message>,
    next: Inputs,
    /// What is answered once all that follows is done.
    due: Vec<(Call, Reply)>,
    node_last: (BootTime, NodeSample),
    ramp: Ramp,
}

impl Daemon {
    pub(crate) fn new(
        core: Shaper,
        held: BTreeMap<TaskId, Vec<Call>>,
        node_last: (BootTime, NodeSample),
    ) -> Daemon {
        let mut daemon = Daemon {
            plan: Plan::of(&core),
            core,
            held,
            shown: BTreeMap::new(),
            pending: BTreeMap::new(),
            returning: Vec::new(),
            next_ticket: 0,
            jobs: VecDeque::new(),
            messages: VecDeque::new(),
            next: Inputs::default(),
            due: Vec::new(),
            node_last,
            ramp: Ramp::default(),
        };
        daemon.show(&daemon.held.keys().copied().collect());
        daemon
    }

    // --- the core ---

    /// Has the core decide, and carries out what follows.
    pub(crate) fn feed(&mut self, input: Input, out: &mut Outside) -> Alive<()> {
        self.next.push(input);
        while let Some(input) = self.next.next_input() {
            let step = self.core.handle(input, out.node.now());
            self.execute(step, out)?;
        }
        let due = std::mem::take(&mut self.due);
        due.into_iter().try_for_each(|(call, reply)| out.answer(call, reply))
    }

    fn execute(&mut self, step: Step, out: &mut Outside) -> Alive<()> {
        // Nothing of a simulated group can be frozen but by policies that no simulation has.
        let Step { thaw: _, weights, records, events, forget, jobs, answers } = step;
        let mut touched: BTreeSet<TaskId> = weights.iter().map(|(id, _)| *id).collect();
        for (id, level) in weights {
            self.weigh(id, level, out)?;
        }
        self.weigh_root(out)?;
        for event in &events {
            out.fuse.burn(Deed::Event)?;
            out.store.append(event);
            touched.extend(event.task.as_deref().and_then(|id| id.parse::<TaskId>().ok()));
        }
        for record in records {
            match record {
                Record::Task(id) => {
                    self.store(id, out)?;
                    touched.insert(id);
                }
                Record::Reservation(id) => {
                    if let Some(reservation) = self.core.reservation(id) {
                        out.fuse.burn(Deed::StoreReservation)?;
                        out.store.reservations.insert(id, reservation.clone());
                    }
                }
            }
        }
        for record in forget {
            match record {
                Record::Task(id) => {
                    self.forget(id, out)?;
                    touched.insert(id);
                }
                Record::Reservation(id) => {
                    out.fuse.burn(Deed::ForgetReservation)?;
                    out.store.reservations.remove(&id);
                }
            }
        }
        for job in jobs {
            match job {
                step::Job::Prepare { task, ticket } => {
                    self.prepare(task, ticket, out)?;
                    touched.insert(task);
                }
                step::Job::Park { task, ticket } => self.park(task, ticket, out),
                step::Job::Attach(task) => self.begin_attach(task, out)?,
                step::Job::Reattach(task) => self.begin_reattach(task),
                // What follows from these is done where their inputs are fed.
                step::Job::Watch(_) | step::Job::Refuse { .. } | step::Job::Figures(_) => {}
                // There is no observe mode.
                step::Job::PrepareBooked(_) => {}
                step::Job::Freeze(_) => {}
                step::Job::Repair { task, found } => {
                    self.align(task, out)?;
                    self.next.push(Input::Repaired { task, found, result: Ok(()) });
                }
                step::Job::Release(task) => {
                    touched.insert(task);
                    self.begin_release(task);
                }
                step::Job::Remove { task, .. } => {
                    touched.insert(task.id);
                    self.clean_up(&task);
                }
            }
        }
        self.show(&touched);
        for (ticket, answer) in answers {
            self.answer(ticket, answer, out)?;
        }
        Ok(())
    }

    fn show(&mut self, touched: &BTreeSet<TaskId>) {
        for id in touched {
            match self.view(*id) {
                Some(view) => self.shown.insert(*id, view),
                None => self.shown.remove(id),
            };
        }
    }

    /// Whether `process` is the main process of a task.
    pub fn is_task(&self, process: ProcessRef) -> bool {
        self.core.tasks().any(|(_, task)| task.who.process == Some(process))
    }

    /// What a client should read of a task.
    pub fn view(&self, id: TaskId) -> Option<Shown> {
        let task = self.core.task(id).filter(|_| self.held.contains_key(&id))?;
        Some(Shown {
            seat: task.seat,
            priority: task.priority,
            labels: task.labels.clone(),
            life: discriminant(&task.life),
        })
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer, out: &mut Outside) -> Alive<()> {
        if let Answer::Waiting = answer {
            if let Some(PendingRequest::Task { waited, .. }) = self.pending.get_mut(&ticket) {
                *waited = true;
            }
            return Ok(());
        }
        let reply = match answer {
            Answer::Waiting => return Ok(()),
            Answer::Refused(refusal) => Reply::Refused(refusal.to_string()),
            Answer::TimedOut => Reply::Refused("no slot came free within the time given".into()),
            // It asks for one at a time.
            Answer::Reserved(ids) => match ids.first() {
                Some(id) => Reply::Reserved(*id),
                None => return Ok(()),
            },
        };
        let calls = match self.pending.remove(&ticket) {
            Some(PendingRequest::Task { calls, .. }) => calls,
            Some(PendingRequest::Promise(call)) => vec![call],
            None => Vec::new(),
        };
        self.tell_all(calls, &reply, out)
    }

    fn tell_all(&mut self, calls: Vec<Call>, reply: &Reply, out: &mut Outside) -> Alive<()> {
        calls.into_iter().try_for_each(|call| out.answer(call, reply.clone()))
    }

    // --- deeds ---

    /// Gives a task that is in place the weights of `level`, where they differ.
    pub(crate) fn weigh(&mut self, id: TaskId, level: Level, out: &mut Outside) -> Alive<()> {
        let placed = self.core.task(id).filter(|task| task.is_placed());
        let Some(group) = placed.and_then(group_of) else { return Ok(()) };
        write_weights(group, self.plan.weights(level), out)
    }

    /// Gives the root what the active tier wants.
    fn weigh_root(&self, out: &mut Outside) -> Alive<()> {
        match (out.lrs(), self.core.root_weight()) {
            (Some(root), Some(weight)) => write_weights(root, root_weights(weight), out),
            _ => Ok(()),
        }
    }

    /// The weights of its own tier.
    pub(crate) fn align(&mut self, id: TaskId, out: &mut Outside) -> Alive<()> {
        match self.core.level(id) {
            Some(level) => self.weigh(id, level, out),
            None => Ok(()),
        }
    }

    pub(crate) fn store(&mut self, id: TaskId, out: &mut Outside) -> Alive<()> {
        let Some(task) = self.core.stored_task(id) else { return Ok(()) };
        out.fuse.burn(Deed::StoreTask)?;
        let record = TaskRecord { boot: out.boot, task: task.clone() };
        out.store.put(id, record);
        Ok(())
    }

    pub(crate) fn forget(&mut self, id: TaskId, out: &mut Outside) -> Alive<()> {
        out.fuse.burn(Deed::ForgetTask)?;
        out.store.forget(id);
        Ok(())
    }

    // --- admission ---

    /// A client asks for a slot.
    pub fn admit(&mut self, call: Call, ask: Ask, out: &mut Outside) -> Alive<()> {
        if out.node.tree.alive(ask.process).is_none() {
            return out.answer(call, Reply::Refused("the process has ended".into()));
        }
        if let Some(id) = self.task_of(ask.process, out) {
            return self.admitted_already(id, call, &ask, out);
        }
        let same = |pending: &&mut PendingRequest| match pending {
            PendingRequest::Task { ask: other, .. } => other.process == ask.process,
            PendingRequest::Promise(_) => false,
        };
        if let Some(PendingRequest::Task { calls, .. }) = self.pending.values_mut().find(same) {
            calls.push(call);
            return Ok(());
        }
        if self.core.is_leaving(ask.process) {
            self.returning.push((call, ask));
            return Ok(());
        }
        let (request, patience) = (ask.request.clone(), ask.patience);
        let ticket = self.ticket(PendingRequest::Task {
            ask: Box::new(ask),
            calls: vec![call],
            waited: false,
        });
        self.feed(Input::Request { ticket, request, patience }, out)
    }

    fn ticket(&mut self, pending: PendingRequest) -> Ticket {
        self.next_ticket += 1;
        self.pending.insert(Ticket(self.next_ticket), pending);
        Ticket(self.next_ticket)
    }

    fn task_of(&self, process: ProcessRef, out: &Outside) -> Option<TaskId> {
        let group = out.node.tree.alive(process)?.group;
        let is = |task: &Task| task.who.process == Some(process) || group_of(task) == Some(group);
        let mut held = self.core.tasks().filter(|(id, _)| self.held.contains_key(id));
        held.find(|(_, task)| is(task)).map(|(id, _)| id)
    }

    fn admitted_already(
        &mut self,
        id: TaskId,
        call: Call,
        ask: &Ask,
        out: &mut Outside,
    ) -> Alive<()> {
        let (Some(task), Some(waiting)) = (self.core.task(id), self.held.get_mut(&id)) else {
            return Ok(());
        };
        let who = &task.who;
        let same = who.process == Some(ask.process) && who.admitted_by == Some(ask.caller);
        match task.life {
            Life::Attaching(_) if same => {
                waiting.push(call);
                Ok(())
            }
            Life::Placed(_) if same => out.answer(call, Reply::Admitted(id)),
            _ => out.answer(call, Reply::Refused(format!("it is in task {id} already"))),
        }
    }

    /// Finds out what the record of a new task has to say.
    fn prepare(&mut self, id: TaskId, ticket: Ticket, out: &mut Outside) -> Alive<()> {
        let Some(PendingRequest::Task { ask, calls, waited }) = self.pending.remove(&ticket) else {
            // It left while its process was being moved.
            let reason = "the client went away".to_owned();
            self.next.push(Input::AttachFailed { task: id, reason });
            return Ok(());
        };
        let process = out.node.tree.alive(ask.process);
        // One that waited may have changed hands.
        let fits = process.filter(|process| !waited || process.uid == ask.request.uid);
        self.held.insert(id, calls);
        let parked = self.core.task(id).filter(|task| task.is_from_parking()).and_then(group_of);
        let fits = fits.filter(|process| parked.is_none_or(|group| process.group == group));
        match fits.map(|process| process.group) {
            Some(group) => {
                // One that was parked keeps where it was before.
                let origin = parked.is_none().then(|| origin(group));
                let ready = Ready { origin, ..Ready::default() };
                self.next.push(Input::Prepared { task: id, ready });
            }
            None => self.messages.push_back(Message::Attached(id, Err(Refused::NoProcess))),
        }
        Ok(())
    }

    /// A waiter is to be parked.
    fn park(&mut self, id: TaskId, ticket: Ticket, out: &Outside) {
        let there = match self.pending.get(&ticket) {
            Some(PendingRequest::Task { ask, .. }) => {
                let process = out.node.tree.alive(ask.process);
                process.filter(|process| process.uid == ask.request.uid)
            }
            _ => None,
        };
        self.next.push(match there {
            Some(process) => {
                let ready = Ready { origin: Some(origin(process.group)), ..Ready::default() };
                Input::Prepared { task: id, ready }
            }
            None => Input::AttachFailed { task: id, reason: "it is not there".into() },
        });
    }

    fn begin_attach(&mut self, task: TaskId, out: &mut Outside) -> Alive<()> {
        let waiter = self.core.parked(task);
        let Some(known) = waiter.or_else(|| self.core.task(task)) else { return Ok(()) };
        let weights = waiter.is_none().then(|| self.plan.weights(known.tier()));
        if let (true, Some(group)) = (known.is_from_parking(), group_of(known)) {
            write_weights(group, self.plan.weights(known.tier()), out)?;
            self.messages.push_front(Message::Attached(task, Ok(group)));
            return Ok(());
        }
        let Some(process) = known.who.process else { return Ok(()) };
        let origin = origin_of(known);
        self.jobs.push_back(Job::Attach { task, process, origin, weights });
        Ok(())
    }

    fn attached(
        &mut self,
        id: TaskId,
        result: Result<Inode, Refused>,
        out: &mut Outside,
    ) -> Alive<()> {
        if let Some(waiter) = self.core.parked(id) {
            let origin = waiter.who.origin.clone();
            let input = match result {
                Ok(group) => {
                    let born = TaskSample::default();
                    Input::Attached { task: id, group: own_group(group, origin), born }
                }
                Err(error) => Input::AttachFailed { task: id, reason: format!("{error:?}") },
            };
            return self.feed(input, out);
        }
        let Some(task) = self.core.task(id) else { return Ok(()) };
        let calls = self.held.get_mut(&id).map(std::mem::take).unwrap_or_default();
        match result {
            Ok(group) => {
                let record = own_group(group, task.who.origin.clone());
                let born = TaskSample::default();
                self.feed(Input::Attached { task: id, group: record, born }, out)?;
                self.align(id, out)?;
                self.tell_all(calls, &Reply::Admitted(id), out)?;
                // It may have ended while it was being moved.
                self.check_ended(&[id], out)
            }
            Err(error) => {
                self.held.remove(&id);
                let reason = format!("its processes were not moved: {error:?}");
                self.feed(Input::AttachFailed { task: id, reason: reason.clone() }, out)?;
                self.show(&BTreeSet::from([id]));
                self.tell_all(calls, &Reply::Refused(reason), out)
            }
        }
    }

    /// Clients that do not wait any more.
    pub fn abandon(&mut self, call: Call, out: &mut Outside) -> Alive<()> {
        let mut gone = Vec::new();
        for (ticket, pending) in &mut self.pending {
            if let PendingRequest::Task { calls, .. } = pending {
                calls.retain(|other| *other != call);
                gone.extend(calls.is_empty().then_some(*ticket));
            }
        }
        for ticket in gone {
            self.pending.remove(&ticket);
            self.feed(Input::Abandon(ticket), out)?;
        }
        Ok(())
    }

    // --- other calls ---

    /// A client asks for a promise.
    pub fn reserve(
        &mut self,
        call: Call,
        uid: u32,
        priority: Priority,
        ttl: Option<Duration>,
        out: &mut Outside,
    ) -> Alive<()> {
        let ticket = self.ticket(PendingRequest::Promise(call));
        let labels = Labels::default();
        let (lease, patience) = (Lease::one(ttl), None);
        let by_member = uid != 0;
        let reserve = Input::Reserve { ticket, uid, by_member, labels, priority, lease, patience };
        self.feed(reserve, out)
    }

    /// A promise ends early.
    pub fn cancel(&mut self, call: Call, id: ReservationId, out: &mut Outside) -> Alive<()> {
        let reply = match self.core.check_reservation(id) {
            Err(refusal) => Reply::Refused(refusal.to_string()),
            Ok(()) => {
                self.feed(Input::Cancel(id), out)?;
                Reply::Done
            }
        };
        out.answer(call, reply)
    }

    /// Something else that is done at once.
    pub fn order(&mut self, call: Call, input: Input, out: &mut Outside) -> Alive<()> {
        let reconfigured = matches!(input, Input::Configure(_));
        self.feed(input, out)?;
        if reconfigured {
            self.replan(out)?;
        }
        out.answer(call, Reply::Done)
    }

    /// A task is to be given back.
    pub fn release(&mut self, call: Call, id: TaskId, out: &mut Outside) -> Alive<()> {
        let known = self.core.task(id).filter(|task| !task.is_attaching());
        let Some(waiting) = self.held.get_mut(&id).filter(|_| known.is_some()) else {
            return out.answer(call, Reply::Refused(format!("task {id} is not in its slot")));
        };
        waiting.push(call);
        self.feed(Input::Release(id), out)
    }

    fn begin_release(&mut self, id: TaskId) {
        let task = self.core.parked(id).or_else(|| self.core.task(id));
        let Some(task) = task else { return };
        let (group, origin) = (group_of(task), origin_of(task));
        self.jobs.push_back(Job::Release { task: id, group, origin });
    }

    fn begin_reattach(&mut self, id: TaskId) {
        let task = self.core.task(id);
        if let Some((process, group)) = task.and_then(|t| Some((t.who.process?, group_of(t)?))) {
            self.jobs.push_back(Job::MoveBack { task: id, process, group });
        }
    }

    // --- ends ---

    /// Processes have ended.
    pub fn processes_ended(&mut self, out: &mut Outside) -> Alive<()> {
        let all: Vec<TaskId> = self.held.keys().copied().collect();
        self.check_ended(&all, out)
    }

    pub(crate) fn check_ended(&mut self, suspects: &[TaskId], out: &mut Outside) -> Alive<()> {
        let mut ended = Vec::new();
        for id in suspects {
            let Some(task) = self.core.task(*id).filter(|task| task.is_placed()) else { continue };
            let Some(group) = group_of(task) else { continue };
            if out.node.tree.members(group).next().is_some() {
                continue;
            }
            match task.who.process.filter(|main| out.node.tree.alive(*main).is_some()) {
                Some(_) => self.moved_away(*id, out)?,
                None => ended.push(*id),
            }
        }
        if ended.is_empty() {
            return Ok(());
        }
        let groups = ended.iter().map(|id| (*id, self.core.task(*id).and_then(group_of)));
        let groups: Vec<_> = groups.collect();
        let exits: Vec<_> = ended.iter().filter_map(|id| exited(self.core.task(*id)?)).collect();
        self.feed(Input::Ended(ended), out)?;
        let last = |(id, group): (TaskId, Option<Inode>)| {
            let read = group.and_then(|group| out.node.sample_group(group));
            (id, read.map_or(Last::Unread, Last::Read))
        };
        let endings = groups.into_iter().map(last).collect();
        self.feed(Input::Figures(endings), out)?;
        exits.into_iter().try_for_each(|exit| self.feed(exit, out))
    }

    /// A task is over; its group goes in the background.
    fn clean_up(&mut self, task: &Task) {
        let Some(waiting) = self.held.remove(&task.id) else { return };
        self.due.extend(waiting.into_iter().map(|call| (call, Reply::Done)));
        self.jobs.extend(group_of(task).map(Job::Remove));
        self.next.push(Input::Removed(task.id));
    }

    // --- the placing thread ---

    /// The placing thread does its next job; `false`: it has none.
    pub fn work(&mut self, out: &mut Outside) -> Alive<bool> {
        let Some(job) = self.jobs.pop_front() else { return Ok(false) };
        match job {
            Job::Attach { task, process, origin, weights } => {
                let placed = attach(task, process, weights, origin, out)?;
                self.messages.push_back(Message::Attached(task, placed));
            }
            Job::MoveBack { task, process, group } => {
                let alive = out.node.tree.alive(process).is_some();
                if alive {
                    move_family(process.pid, group, out)?;
                }
                let result = if alive { Ok(()) } else { Err(NotMoved::Ending) };
                self.messages.push_back(Message::MovedBack(task, result));
            }
            Job::Release { task, group, origin } => {
                if let Some(group) = group {
                    give_back(group, origin, out)?;
                }
                self.messages.push_back(Message::Released(task));
            }
            Job::Remove(group) => remove_group(group, out)?,
        }
        Ok(true)
    }

    /// The next answer of the placing thread is taken; `false`: there is none.
    pub fn listen(&mut self, out: &mut Outside) -> Alive<bool> {
        let Some(message) = self.messages.pop_front() else { return Ok(false) };
        match message {
            Message::Attached(id, result) => self.attached(id, result, out)?,
            Message::MovedBack(id, result) => {
                self.feed(Input::Reattached { task: id, result }, out)?;
                self.check_ended(&[id], out)?;
            }
            Message::Released(id) if self.core.parked(id).is_some() => {
                self.feed(Input::Removed(id), out)?;
                let again = std::mem::take(&mut self.returning).into_iter();
                again.into_iter().try_for_each(|(call, ask)| self.admit(call, ask, out))?;
            }
            Message::Released(id) => self.feed(Input::Released(id), out)?,
        }
        Ok(true)
    }

    // --- the cycle ---

    /// What is due by the clock.
    pub fn tick(&mut self, out: &mut Outside) -> Alive<()> {
        let due = self.core.next_deadline().is_some_and(|at| at <= out.node.now().boot);
        if due { self.feed(Input::Tick, out) } else { Ok(()) }
    }

    /// One cycle: readings to rates, rates to decisions, foreign changes put right.
    pub fn cycle(&mut self, out: &mut Outside) -> Alive<()> {
        let now = out.node.now();
        let sample = out.node.sample();
        let rates = NodeRates::between((self.node_last.0, &self.node_last.1), (now.boot, &sample));
        let node = Measured::of(&rates, &sample);
        self.node_last = (now.boot, sample);
        let all: Vec<TaskId> = self.held.keys().copied().collect();
        let tasks = all.iter().filter_map(|id| self.measure(*id, out)).collect();
        self.feed(Input::Cycle { node, at: now.boot, tasks }, out)?;
        self.replan(out)?;
        for id in &all {
            self.check_weights(*id, out)?;
            let Some(task) = self.core.task(*id) else { continue };
            let found = task.who.process.and_then(|main| out.node.tree.alive(main));
            if found.is_some_and(|process| Some(process.group) != group_of(task)) {
                self.moved_away(*id, out)?;
            }
        }
        self.check_ended(&all, out)
    }

    /// When the node is read ahead of the cycle; `None`: it is not.
    pub fn next_ahead(&mut self, now: BootTime) -> Option<BootTime> {
        self.ramp.next(self.core.ramps_from(), now)
    }

    /// A reading ahead of the cycle, at a cost of `cpu`; no process is charged for it.
    pub fn read_ahead(&mut self, cpu: Duration, out: &mut Outside) -> Alive<()> {
        let read = |id: &TaskId| self.measure(*id, out)?.sample.resident;
        let resident = Bytes::mean(self.held.keys().filter_map(read));
        match self.ramp.read(out.node.now().boot, out.node.sample(), cpu) {
            Some(node) => self.feed(Input::Ramp { node, resident }, out),
            None => Ok(()),
        }
    }

    fn measure(&self, id: TaskId, out: &Outside) -> Option<Reading> {
        let sample = out.node.sample_group(group_of(self.core.task(id)?)?)?;
        Some(Reading { task: id, due: true, sample })
    }

    /// Follows the capacities with the weights.
    fn replan(&mut self, out: &mut Outside) -> Alive<()> {
        let plan = Plan::of(&self.core);
        if plan != self.plan {
            self.plan = plan;
            let all: Vec<TaskId> = self.held.keys().copied().collect();
            all.into_iter().try_for_each(|id| self.align(id, out))?;
        }
        Ok(())
    }

    /// Weights that others wrote: the core decides what is done about them.
    fn check_weights(&mut self, id: TaskId, out: &mut Outside) -> Alive<()> {
        let Some(task) = self.core.task(id).filter(|task| task.is_placed()) else { return Ok(()) };
        let found = group_of(task).and_then(|group| out.node.tree.groups().get(&group));
        let expected = self.core.level(id).map(|level| self.plan.weights(level));
        if found.is_none_or(|found| Some(found.weights) == expected) {
            return Ok(());
        }
        let found = vec!["weights are not those of the tier".to_owned()];
        self.feed(Input::Drifted { task: id, found, fits: false }, out)
    }

    /// The main process is not in its group any more: the core decides what is done about it.
    fn moved_away(&mut self, id: TaskId, out: &mut Outside) -> Alive<()> {
        let group = self.core.task(id).and_then(group_of);
        let occupied = group.is_some_and(|group| out.node.tree.members(group).next().is_some());
        let found_in = "elsewhere".to_owned();
        self.feed(Input::Outside { task: id, found_in, limit: None, occupied }, out)
    }
}

/// The weights of a root among its siblings.
pub(crate) fn root_weights(weight: RootWeight) -> Weights {
    match weight {
        RootWeight::Idle => Weights { idle: true, ..NEUTRAL },
        RootWeight::Weight(weight) => Weights { cpu: u64::from(weight), ..NEUTRAL },
    }
}

/// Writes weights where they differ.
fn write_weights(group: Inode, weights: Weights, out: &mut Outside) -> Alive<()> {
    let found = out.node.tree.groups().get(&group).map(|group| group.weights);
    if found.is_some_and(|found| found != weights) {
        out.fuse.burn(Deed::Weigh)?;
        // It is there: it was found.
        let _ = out.node.tree.weigh(group, weights);
    }
    Ok(())
}

/// Makes the group of a task, weighs it and moves the family of `process` into it. What could not be
/// done is undone.
fn attach(
    task: TaskId,
    process: ProcessRef,
    weights: Option<Weights>,
    origin: Inode,
    out: &mut Outside,
) -> Alive<Result<Inode, Refused>> {
    let Some(lrs) = out.lrs() else { return Ok(Err(Refused::NoGroup)) };
    out.fuse.burn(Deed::MakeGroup)?;
    let group = match out.node.tree.make(lrs, &task.to_string()) {
        Ok(group) => group,
        Err(error) => return Ok(Err(error)),
    };
    if let Some(weights) = weights {
        write_weights(group, weights, out)?;
    }
    // One that was moved since stays where it is.
    let there = out.node.tree.alive(process).is_some_and(|process| process.group == origin);
    if there {
        move_family(process.pid, group, out)?;
        return Ok(Ok(group));
    }
    remove_group(group, out)?;
    Ok(Err(Refused::NoProcess))
}

fn move_family(pid: Pid, group: Inode, out: &mut Outside) -> Alive<()> {
    for pid in out.node.tree.family(pid) {
        out.fuse.burn(Deed::Move)?;
        // One that has just ended is not there to be moved.
        let _ = out.node.tree.move_process(pid, group);
    }
    Ok(())
}

/// Gives the processes of a group back, and removes it.
pub(crate) fn give_back(group: Inode, origin: Inode, out: &mut Outside) -> Alive<()> {
    let origin = if out.node.tree.groups().contains_key(&origin) { origin } else { ROOT };
    let members: Vec<Pid> = out.node.tree.members(group).collect();
    for pid in members {
        out.fuse.burn(Deed::Move)?;
        let _ = out.node.tree.move_process(pid, origin);
    }
    remove_group(group, out)
}

pub(crate) fn remove_group(group: Inode, out: &mut Outside) -> Alive<()> {
    out.fuse.burn(Deed::RemoveGroup)?;
    // Not there: removed before.
    let _ = out.node.tree.remove(group);
    Ok(())
}
