//! What goes into the machine and what comes out: one [`Input`], one [`Step`].
//!
//! [`Shaper::handle`](super::shaper::Shaper::handle) decides everything that follows from an input
//! at once and writes nothing. The caller carries the step out field by field, in the order of the
//! fields, and only then gives the next input. What it notices on the way is put before everything
//! else that waits to be decided, in the order in which it was noticed: so the answers of a step's
//! jobs come before what happened after them. What is decided after that order is safe at any
//! `kill -9`:
//!
//! 0. `thaw`: tasks that are frozen no more; before the record that says so.
//! 1. `weights`: a promotion has a deadline, everything else can wait.
//! 2. `events`: the history. Every count is folded from it. Before the records, so that none of
//!    them is ahead of it: a task that is in its slot by its record, which no longer has the
//!    promise it used, was admitted.
//! 3. `records`: what the next daemon has to find. A record that cannot be written is an input of
//!    its own kind: [`Input::AttachFailed`] for a task on its way, [`Input::Cancel`] for a new
//!    reservation; every other one is written again later.
//! 4. `forget`: records that the history makes needless. Before it, a kill would lose an end.
//! 5. `jobs`: work that may take long. Each is answered by an input.
//! 6. What the step touched is published, and then
//! 7. `answers`: a client that was answered reads its own change.
//!
//! The present daemon crashes between any two of these; the next one begins with
//! [`Shaper::new`](super::shaper::Shaper::new) and what is stored.
//!
//! Limits. The machine does not know whether weights were really written: if they could not
//! be, they are written again when the weights of the task are next compared. What an input says of a task
//! that is not there, or not in a state to take it, changes nothing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use serde_json::{Map, Value};

use super::cpus::CpuSet;
use super::event::{Change, Event, EventKind};
use super::exit::Exit;
use super::measured::Measured;
pub use super::model::Ticket;
use super::model::{Label, Labels, Level, Priority, ReservationId, Standing, TaskId};
use super::restore::Due;
use super::sample::{TaskSample, ThreadLook};
use super::state::{Lease, Patience, Policy, Refusal, Request};
use super::task::{Finder, GroupRecord, Halt, Kin, Origin, Task};
use super::unit::UnitRecord;
use crate::units::{BootTime, Bytes, ProcessRef};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// A client asks for a slot. Followed by [`Job::Prepare`], at once or later, or by an answer.
    Request {
        /// Under which it is answered.
        ticket: Ticket,
        /// What is asked for.
        request: Request,
        /// How it may wait; `None`: it does not.
        patience: Option<Patience>,
    },
    /// A request that waits is no longer wanted.
    Abandon(Ticket),
    /// What an admission needs is known: it can be recorded and begun. Followed by [`Job::Attach`].
    Prepared {
        /// The task.
        task: TaskId,
        /// What is known now.
        ready: Ready,
    },
    /// A task that observe mode left without a cgroup is to be attached. Followed by
    /// [`Job::PrepareBooked`].
    AttachBooked {
        /// The task.
        task: TaskId,
        /// Where its main process is.
        origin: Origin,
        /// Who is moved with it.
        kin: Kin,
        /// It was in a group of LRS's before, and went into this one by itself.
        followed: bool,
    },
    /// The processes of the task are in place.
    Attached {
        /// The task.
        task: TaskId,
        /// Its group.
        group: GroupRecord,
        /// Its counters, of a group that began with it.
        born: TaskSample,
    },
    /// The record that [`Job::Attach`] needs could not be written; [`Input::AttachFailed`] follows.
    NotRecorded(TaskId),
    /// They could not be put in place, or should not be any more: nothing of it is left.
    AttachFailed {
        /// The task.
        task: TaskId,
        /// Why, for the history.
        reason: String,
    },
    /// The last processes of these tasks have ended. All that end in the same instant belong into
    /// one input, so that none of them is promoted. The step has the weights of their successors
    /// and [`Job::Figures`], nothing else; the rest comes with the answer to that.
    Ended(Vec<TaskId>),
    /// The last figures of tasks that have ended, read once their successors had their weights:
    /// the answer to [`Job::Figures`]. Followed by [`Job::Remove`].
    Figures(Vec<(TaskId, Last)>),
    /// The first input of a daemon that finds tasks which its predecessor left: what became of them
    /// while no daemon ran.
    EndedAway {
        /// Of these no process is left; no figures are known. Followed by [`Job::Remove`].
        ended: Vec<TaskId>,
        /// These were given back; [`Input::Released`] follows for each.
        released: Vec<TaskId>,
    },
    /// The main process of the task has ended; others may be left.
    MainExited(TaskId),
    /// How the main process of the task ended, which may be over by now: nothing waits for it.
    Exited {
        /// The task.
        task: TaskId,
        /// The user it ran as.
        uid: Option<u32>,
        /// What it was.
        labels: Labels,
        /// How.
        exit: Exit,
    },
    /// The task could not be frozen, and is not.
    NotFrozen {
        /// The task.
        task: TaskId,
        /// Why.
        reason: String,
    },
    /// What others did to tasks, so that they cannot run; `None`: they can. Tasks not named are as
    /// they were.
    Halted(Vec<(TaskId, Option<Halt>)>),
    /// Others froze the group of all tasks: in words, by which file. `None`: it is not frozen.
    RootFrozen(Option<String>),
    /// The task is to be given back. Followed by [`Job::Release`], or over at once where it has no
    /// group.
    Release(TaskId),
    /// It was given back; its processes go on elsewhere. Followed by [`Job::Remove`].
    Released(TaskId),
    /// It could not be given back, and is what it was.
    ReleaseFailed(TaskId),
    /// Nothing of the task is left: its record may go.
    Removed(TaskId),
    /// The main process runs outside of its group.
    Outside {
        /// The task.
        task: TaskId,
        /// Where it is.
        found_in: String,
        /// The limit that a move back would lift it out of, where that matters.
        limit: Option<String>,
        /// Whether others are in the group.
        occupied: bool,
    },
    /// The main process went into a group that was made after the task's own.
    WentElsewhere {
        /// The task.
        task: TaskId,
        /// That group's path.
        to: String,
        /// What that makes of the task.
        whither: Whither,
    },
    /// How a [`Job::Reattach`] went.
    Reattached {
        /// The task.
        task: TaskId,
        /// What came of it.
        result: Result<(), NotMoved>,
    },
    /// Processes of others are in a group in place that has to be its owner's alone.
    Entered {
        /// The task.
        task: TaskId,
        /// Who they are.
        error: String,
    },
    /// Weights of the task are not what was written.
    Drifted {
        /// The task.
        task: TaskId,
        /// What is there and what should be, a sentence each.
        found: Vec<String>,
        /// What the owner of the group wrote gives it its tier all the same.
        fits: bool,
    },
    /// How a [`Job::Repair`] went.
    Repaired {
        /// The task.
        task: TaskId,
        /// As [`Input::Drifted`] had it.
        found: Vec<String>,
        /// The kernel's answer.
        result: Result<(), String>,
    },
    /// The owner of a group in place wrote into it, and gets that back from now on.
    OwnerWrote {
        /// The task.
        task: TaskId,
        /// Its group, with what was found there.
        group: GroupRecord,
    },
    /// A finder names a task that it found before.
    FoundAgain {
        /// The task.
        task: TaskId,
        /// What it says.
        found: FoundAgain,
    },
    /// A client asks for promises of slots.
    Reserve {
        /// Under which it is answered.
        ticket: Ticket,
        /// Who may use it.
        uid: u32,
        /// The caller is a member, neither admin nor integration.
        by_member: bool,
        /// What is going to come.
        labels: Labels,
        /// Priority of the task to come.
        priority: Priority,
        /// What it is to be.
        lease: Lease,
        /// How it may wait; `None`: it does not.
        patience: Option<Patience>,
    },
    /// A promise ends early.
    Cancel(ReservationId),
    /// Another priority; the rules of placement apply at once, in both directions.
    SetPriority {
        /// The task.
        task: TaskId,
        /// The new one.
        priority: Priority,
    },
    /// Another priority for all tasks of a job that run and all its requests that wait.
    SetJobPriority {
        /// The job, all kinds of it.
        job: Label,
        /// Its user; `None`: all users.
        uid: Option<u32>,
        /// The new one.
        priority: Priority,
    },
    /// Another kind of place.
    SetStanding {
        /// The task.
        task: TaskId,
        /// The new one.
        standing: Standing,
    },
    /// No new tasks from now on. Tasks and reservations stay; who waits does so until it ends.
    Drain,
    /// Slots are offered again.
    Resume,
    /// New settings.
    Configure(Policy),
    /// Time has passed: what is due by [`next_deadline`](super::shaper::Shaper::next_deadline).
    Tick,
    /// One cycle of measuring.
    Cycle {
        /// The node.
        node: Measured,
        /// When the tasks were read.
        at: BootTime,
        /// What was read of them.
        tasks: Vec<Reading>,
        /// Those that may not run on every CPU, and the CPUs that they may.
        pinned: Vec<(TaskId, CpuSet)>,
    },
    /// A reading between two cycles, while a request waits ([`super::ramp`]).
    Ramp {
        /// The node since the reading before.
        node: Measured,
        /// Mean resident size of the tasks.
        resident: Option<Bytes>,
    },
    /// What threads of tasks did at a moment between two cycles.
    Looked(Vec<(TaskId, ThreadLook)>),
    /// CPU counters of [`Shaper::looked_at`], wanted of each every [`LOOK`](super::lane::LOOK);
    /// `None`: one that cannot be read.
    ///
    /// [`Shaper::looked_at`]: super::shaper::Shaper::looked_at
    CpuLooked(Vec<(TaskId, Option<std::time::Duration>)>),
    /// What the earlier daemon did not get to write, after [`Shaper::new`] and before anything else
    /// is decided. The caller stores all tasks later in its start.
    ///
    /// [`Shaper::new`]: super::shaper::Shaper::new
    Restored(Due),
    /// Something for the history that only the caller knows.
    Note {
        /// What happened.
        kind: EventKind,
        /// To which task.
        task: Option<TaskId>,
        /// One sentence for a person.
        reason: String,
        /// The figures.
        inputs: Map<String, Value>,
    },
    /// Something outside went from one state to another.
    Change(Change),
    /// The daemon ends: what was held back of the history is written.
    Stop,
}

/// What an admission needs to know of where its process is. `None`: as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Where the main process is, per hierarchy.
    pub origin: Option<Origin>,
    /// The group, where it is not made by the attach.
    pub group: Option<GroupRecord>,
    /// What its counters read before it was a task's.
    pub baseline: Option<TaskSample>,
    /// The unit of systemd's, where what is known of it changed.
    pub unit: Option<UnitRecord>,
}

/// What a finder says of a task that it found before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundAgain {
    /// Who says so.
    pub by: Finder,
    /// Those the task has stay.
    pub labels: Labels,
    /// Its priority, if the finder knows it.
    pub priority: Option<Priority>,
    /// Its kind of place, if the finder knows it.
    pub standing: Option<Standing>,
    /// What is not known otherwise is slotless.
    pub presumed_slotless: bool,
}

/// One reading of one task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The task.
    pub task: TaskId,
    /// Whether it ends the interval of the meter ([`Counts::is_due`](super::counts::Counts::is_due)).
    pub due: bool,
    /// The counters.
    pub sample: TaskSample,
}

/// The last figures of a task that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Last {
    /// Its group was read once more.
    Read(TaskSample),
    /// It has no group that could be read.
    Unread,
    /// It ended while no daemon ran: neither when nor at what rate is known.
    Away,
}

/// What becomes of a task after its main process went into a group made later than the task's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whither {
    /// Others are left in the task's group: they are the task.
    Partly,
    /// It was the last one, and its group can be the task's in place; followed by
    /// [`Input::AttachBooked`].
    InPlace,
    /// It was the last one, and its group cannot: the task is over. Followed by [`Input::Ended`].
    Away,
}

/// Why processes were not moved back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum NotMoved {
    /// The main process is ending.
    Ending,
    /// They may not be.
    Denied {
        /// Why.
        reason: String,
        /// Whether others are in the group.
        occupied: bool,
    },
    /// It did not work.
    Failed(String),
}

/// What has to be carried out, in the order of the fields; see the module.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Tasks that the guard froze and that are thawed, before they get other weights.
    pub thaw: Vec<TaskId>,
    /// Tasks and the level of weights that they get: those that lose come before those that gain.
    pub weights: Vec<(TaskId, Level)>,
    /// The history, numbered in order.
    pub events: Vec<Event>,
    /// What has to be stored as it is now.
    pub records: BTreeSet<Record>,
    /// Records that are over.
    pub forget: BTreeSet<Record>,
    /// Work that may take long.
    pub jobs: Vec<Job>,
    /// Answers, each to the request that it is for.
    pub answers: Vec<(Ticket, Answer)>,
}

impl Step {
    /// Whether nothing follows.
    pub fn is_empty(&self) -> bool {
        *self == Step::default()
    }

    /// `later` follows.
    pub(super) fn append(&mut self, later: Step) {
        let Step { thaw, weights, records, events, forget, jobs, answers } = later;
        self.thaw.extend(thaw);
        self.weights.extend(weights);
        records.into_iter().for_each(|record| self.store(record));
        self.events.extend(events);
        forget.into_iter().for_each(|record| self.forget(record));
        self.jobs.extend(jobs);
        self.answers.extend(answers);
    }

    pub(super) fn set_level(&mut self, task: TaskId, level: Level) {
        // Only the last one of a step is ever written.
        self.weights.retain(|(other, _)| *other != task);
        self.weights.push((task, level));
    }

    pub(super) fn store(&mut self, record: Record) {
        self.forget.remove(&record);
        self.records.insert(record);
    }

    pub(super) fn forget(&mut self, record: Record) {
        self.records.remove(&record);
        self.forget.insert(record);
    }
}

/// What is stored: [`Shaper::stored_task`](super::shaper::Shaper::stored_task) or
/// [`Shaper::reservation`](super::shaper::Shaper::reservation) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Record {
    /// A reservation. Before the tasks: one that is given back is stored before the record of the
    /// task that used it forgets it.
    Reservation(ReservationId),
    /// A task.
    Task(TaskId),
}

/// Work that may take long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Job {
    /// Find out where the processes of a new task are and whether they may still be taken; then
    /// [`Input::Prepared`] or [`Input::AttachFailed`].
    Prepare {
        /// The task.
        task: TaskId,
        /// The request that it comes from.
        ticket: Ticket,
    },
    /// Find out the same for a request that is to wait in the group of its task; then the same.
    /// Its task is [`Shaper::parked`](super::shaper::Shaper::parked).
    Park {
        /// The task to come.
        task: TaskId,
        /// The request that waits.
        ticket: Ticket,
    },
    /// Find out the same for a task of observe mode, which has no request; then the same.
    PrepareBooked(TaskId),
    /// Put the processes in place, with the weights of its tier (none for one that is parked); then [`Input::Attached`] or
    /// [`Input::AttachFailed`]. Never begun where the record of the task could not be written.
    Attach(TaskId),
    /// Move the main process back into its group, with those that belong to it; then
    /// [`Input::Reattached`].
    Reattach(TaskId),
    /// Its processes are in place: compare its weights, watch it, measure it, answer who asked for
    /// it. What has ended by then is the next input.
    Watch(TaskId),
    /// Its admission came to nothing, and it is no task any more, or again the one that observe mode
    /// had: answer who asked for it.
    Refuse {
        /// The task.
        task: TaskId,
        /// Its main process.
        process: Option<ProcessRef>,
    },
    /// Read the last figures of tasks that have ended; then [`Input::Figures`].
    Figures(Vec<TaskId>),
    /// Write the weights of its tier; then [`Input::Repaired`].
    Repair {
        /// The task.
        task: TaskId,
        /// For the answer.
        found: Vec<String>,
    },
    /// Freeze its group, where the record that says so could be written; [`Input::NotFrozen`] where
    /// that fails.
    Freeze(TaskId),
    /// Give the processes and the weights back; then [`Input::Released`] or
    /// [`Input::ReleaseFailed`].
    Release(TaskId),
    /// Forget a task that is over, remove its own group, give a group in place its weights back;
    /// then [`Input::Removed`].
    Remove {
        /// It.
        task: Box<Task>,
        /// It was found, and its main process runs on as no task: its finder must not bring it
        /// back.
        leave_alone: bool,
    },
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Every slot is taken; it waits.
    Waiting,
    /// It has none.
    Refused(Refusal),
    /// It has waited as long as it would.
    TimedOut,
    /// It is promised these, at least one.
    Reserved(Vec<ReservationId>),
}
