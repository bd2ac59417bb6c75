//! Carrying out what the core decided: the one place that executes a [`Step`], in the order of its
//! fields.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Executor;
use super::claim::Requester;
use super::job::{GroupJob, Job};
use super::log::log;
use super::world::{Storable, World};
use crate::command::{CommandError, ErrorKind, refused};
use crate::group::{Attachment, Drift, Group};
use crate::recovered::ReservationRecord;
use crate::world::NotStored;
use lrs_core::event::{Event, EventKind};
use lrs_core::model::{Level, TaskId, Tier};
use lrs_core::step::{self, Answer, Input, Record, Step, Ticket};
use lrs_core::task::Task;

/// What has to be published: what the steps of a turn touched.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Tasks that changed, came or went.
    pub(super) tasks: BTreeSet<TaskId>,
    /// All tasks and jobs: a cycle measured them anew.
    pub(super) all: bool,
    /// Jobs have one task more or less.
    pub(super) jobs: bool,
    /// The node.
    pub(super) status: bool,
}

impl<W: World> Executor<'_, W> {
    /// The core is to decide on `input`, once what is being done is done.
    pub(super) fn push(&mut self, input: Input) {
        self.state.inputs.push(input);
    }

    /// Begins what takes long.
    pub(super) fn begin(&mut self, job: impl Into<Job>) {
        self.state.world.begin(job.into());
    }

    /// Adds to the history what only the loop knows.
    pub(super) fn note(
        &mut self,
        kind: EventKind,
        task: Option<TaskId>,
        reason: String,
        inputs: serde_json::Map<String, serde_json::Value>,
    ) {
        self.push(Input::Note { kind, task, reason, inputs });
    }

    /// Carries out what the core decided.
    pub(super) fn carry_out(&mut self, step: Step) {
        if step.is_empty() {
            return self.follow_root();
        }
        self.state.touched.status = true;
        let Step { thaw, weights, events, records, forget, jobs, answers } = step;
        for id in thaw {
            self.thaw(id);
        }
        for (id, level) in &weights {
            match self.write_tier(*id, *level) {
                Ok(()) => self.state.unwritten.remove(id),
                Err(error) => self.state.unwritten.insert(*id, error),
            };
        }
        self.follow_root();
        for event in events {
            self.record(event);
        }
        let mut unstored = BTreeMap::new();
        for record in records {
            if let Err(error) = self.store_record(record) {
                unstored.insert(record, error.to_string());
                self.noted(Err(error));
            }
        }
        for record in forget {
            self.forget(record);
        }
        for (id, _) in weights {
            // What is shown is what the kernel says now, not what was written.
            self.read_back(id);
            self.state.touched.tasks.insert(id);
        }
        for job in jobs {
            match job {
                step::Job::Prepare { task, ticket } => self.prepare(task, ticket),
                step::Job::Park { task, ticket } => self.state.to_park.push_back((task, ticket)),
                step::Job::Attach(id) => match unstored.remove(&Record::Task(id)) {
                    None => self.begin_attach(id),
                    Some(error) => self.not_recorded(id, error),
                },
                step::Job::PrepareBooked(id) => self.prepare_booked(id),
                step::Job::Watch(id) => self.begin_watching(id),
                step::Job::Refuse { task, process } => self.refuse(task, process),
                step::Job::Figures(ended) => self.read_figures(ended),
                step::Job::Reattach(id) => self.begin_reattach(id),
                step::Job::Repair { task, found } => self.repair(task, found),
                step::Job::Freeze(id) => {
                    let unstored = unstored.get(&Record::Task(id)).cloned();
                    self.freeze(id, unstored);
                }
                step::Job::Release(id) => self.begin_give_back(id),
                step::Job::Remove { task, leave_alone } => self.clean_up(*task, leave_alone),
            }
        }
        for (ticket, answer) in answers {
            self.answer_request(ticket, answer, &unstored);
        }
    }

    fn store_record(&mut self, record: Record) -> Result<(), NotStored> {
        match record {
            Record::Task(id) => {
                self.state.touched.tasks.insert(id);
                let Some(task) = self.core.stored_task(id) else { return Ok(()) };
                if !self.state.debts.has_thaw(id) {
                    return self.state.world.put(Storable::Task(task));
                }
                // So that the next daemon thaws it, should this one be killed.
                let task = Task { frozen: true, ..task.clone() };
                self.state.world.put(Storable::Task(&task))
            }
            Record::Reservation(id) => match self.core.reservation(id) {
                Some(reservation) => {
                    let reservation = reservation.clone();
                    let record = ReservationRecord { id, reservation };
                    self.state.world.put(Storable::Reservation(&record))
                }
                None => Ok(()),
            },
        }
    }

    /// One that cannot be recorded is not admitted.
    fn not_recorded(&mut self, id: TaskId, mut error: String) {
        if self.core.parked(id).is_some() {
            return self.push(Input::AttachFailed { task: id, reason: error });
        }
        let from_parking = self.core.task(id).is_some_and(Task::is_from_parking);
        let group = self.state.entries.get(&id).and_then(|entry| entry.group.clone());
        let own = |group: &Arc<Group>| group.record.attachment == Attachment::Own;
        // One that waited in its group goes back first.
        if let Some(group) = group.filter(|group| own(group) && !from_parking)
            && let Err(undo) = self.state.world.remove(&group)
        {
            error = format!("{error}; and its cgroup stays: {undo}");
        }
        let error = CommandError::new(ErrorKind::Internal, error);
        self.push(Input::NotRecorded(id));
        self.admission_failed(id, error);
    }

    fn answer_request(
        &mut self,
        ticket: Ticket,
        answer: Answer,
        unstored: &BTreeMap<Record, String>,
    ) {
        if let Answer::Waiting = answer {
            if let Some(Requester::Task(admission)) = self.state.asked.get_mut(&ticket)
                && let Some(claim) = &mut admission.claim
            {
                admission.waited = true;
                let (place, to) = (claim.place, claim.request.ticket_to.take());
                let caller = claim.caller.clone();
                self.give_ticket(&caller, place, to);
            }
            return;
        }
        let error = match answer {
            Answer::Waiting => return,
            Answer::Refused(refusal) => refused(refusal),
            Answer::TimedOut => CommandError::new(
                ErrorKind::WaitTimedOut,
                match self.core.why_root_frozen() {
                    _ if self.core.draining() => {
                        "no slot came free within the time given: the node \
                         is draining and takes no new tasks; `lrsctl resume` ends that, or use \
                         another node"
                            .to_owned()
                    }
                    Some(why) => format!(
                        "no slot came free within the time given: {why}; thaw it, then try again"
                    ),
                    None => "no slot came free within the time given; wait longer (--wait=DUR) or \
                             try again later"
                        .to_owned(),
                },
            ),
            Answer::Reserved(ids) => {
                let Some(Requester::Promise(reply)) = self.state.asked.remove(&ticket) else {
                    return;
                };
                if reply.is_closed() {
                    // It waited, and its client has just gone.
                    return ids.iter().for_each(|id| self.push(Input::Cancel(*id)));
                }
                let answer = self.all_promised(&ids, unstored);
                return self.answer(Some(reply), answer);
            }
        };
        self.refuse_asked(ticket, error);
    }

    /// Whoever asked under this ticket gets nothing.
    pub(super) fn refuse_asked(&mut self, ticket: Ticket, error: CommandError) {
        match self.state.asked.remove(&ticket) {
            Some(Requester::Task(admission)) => {
                self.found_is_refused(admission.found_replies, &error);
                self.answer_all(admission.replies, Err(error));
            }
            Some(Requester::Promise(reply)) => self.answer(Some(reply), Err(error)),
            None => {}
        }
    }

    /// Adds an event to the history, the ring and the log.
    fn record(&mut self, mut event: Event) {
        let task = event.task.as_deref().and_then(|id| id.parse().ok());
        if let (Some(id), EventKind::Promoted | EventKind::Demoted) = (task, event.kind)
            && let Some(error) = self.state.unwritten.remove(&id)
        {
            event.inputs.insert("weights_not_written".into(), error.into());
        }
        if event.kind == EventKind::Admitted {
            self.tell_quota(&mut event);
        }
        let labels = task.and_then(|id| self.core.task(id)).map(|task| &task.labels);
        log(&event, labels);
        self.state.touched.jobs |= matches!(
            event.kind,
            EventKind::Admitted
                | EventKind::Completed
                | EventKind::Left
                | EventKind::Exit
                | EventKind::Released
        );
        let appended = self.state.world.append(&event);
        self.noted(appended);
        self.state.events.push(event);
    }

    /// Removes a record, or does so with the next cycle that can store.
    pub(super) fn forget(&mut self, record: Record) {
        let removed = self.state.world.forget(record);
        if removed.is_err() {
            self.state.debts.forgetting(record);
        }
        self.noted(removed);
    }

    /// Stores what is known of a task.
    pub(super) fn store_task(&mut self, id: TaskId) {
        let stored = self.store_record(Record::Task(id));
        self.noted(stored);
    }

    /// A write of state that may fail without stopping the work: the task runs on, status says
    /// so, and every cycle tries again. (An admission or reservation is refused instead.) One
    /// write that succeeds proves nothing for the others: on a full disk removals always do.
    pub(super) fn noted(&mut self, result: Result<(), NotStored>) {
        let Err(error) = result else { return };
        if self.state.store_problem.is_none() {
            tracing::warn!(%error, "state is not being stored, a restart would lose it: {error}");
            self.state.touched.status = true;
        }
        self.state.store_problem = Some(error.to_string());
    }

    /// Once a cycle: stores everything anew after a write has failed or files were removed, until all of it
    /// succeeds: it is not known which records on the disk are old.
    pub(super) fn store_again(&mut self) {
        let resumed = self.state.world.resume();
        if self.state.store_problem.is_none() {
            match resumed {
                Ok(false) => return,
                Ok(true) => tracing::warn!(
                    "files were removed from the state directory; what is known is stored anew, but of tasks \
                     that have ended the next daemon will know nothing"
                ),
                Err(_) => {}
            }
        }
        match resumed.and_then(|_| self.try_to_store_all()) {
            Ok(()) if self.state.store_problem.take().is_some() => {
                tracing::info!("state can be stored again");
            }
            Ok(()) => {}
            Err(error) => self.noted(Err(error)),
        }
        self.state.touched.status = true;
    }

    fn try_to_store_all(&mut self) -> Result<(), NotStored> {
        // In the order of a step: a task that gave its reservation back remembers it until then.
        for (id, reservation) in self.core.reservations() {
            let reservation = reservation.clone();
            let record = ReservationRecord { id, reservation };
            self.state.world.put(Storable::Reservation(&record))?;
        }
        let tasks: Vec<TaskId> = self.core.stored_tasks().map(|task| task.id).collect();
        tasks.into_iter().try_for_each(|id| self.store_record(Record::Task(id)))?;
        for task in self.state.debts.leftovers() {
            self.state.world.put(Storable::Task(task))?;
        }
        while let Some(record) = self.state.debts.record() {
            // A promise comes back when the admission that was to use it fails.
            let is_wanted = match record {
                Record::Task(id) => self.core.stored_task(id).is_some(),
                Record::Reservation(id) => self.core.reservation(id).is_some(),
            };
            if !is_wanted {
                self.state.world.forget(record)?;
            }
            self.state.debts.forgotten(record);
        }
        Ok(())
    }

    /// Gives a placed task the weights of `level`. One on its way gets them when it arrives.
    fn write_tier(&mut self, id: TaskId, level: Level) -> Result<(), String> {
        self.heed_owner(id);
        if !self.core.task(id).is_some_and(Task::is_placed) {
            return Ok(());
        }
        let Some(entry) = self.state.entries.get_mut(&id) else { return Ok(()) };
        let Some(group) = &entry.group else { return Ok(()) };
        match self.state.world.weigh(group, level, &self.state.plan) {
            Ok(()) => {
                let before =
                    entry.written.replace((level, self.now.boot)).map(|(before, _)| before);
                let group = Arc::clone(group);
                if before.map(Level::tier) != Some(level.tier()) {
                    self.write_io(id, &group, level.tier());
                }
                self.tell_unit(id, level);
                Ok(())
            }
            Err(error) => {
                entry.written = None;
                // Its group may be about to go with its last process; the check of the next
                // cycle tells the two apart and tries again.
                tracing::warn!(task = %id, %level, %error, "task {id} did not get the weights of the {level} tier: {error}");
                Err(error.to_string())
            }
        }
    }

    /// Takes over what the owner of an in-place group wrote into it since LRS did. It is stored at once,
    /// since it may be written over next; the core has it with the next input. A unit's weights are in a
    /// record of their own, from systemd.
    fn heed_owner(&mut self, id: TaskId) {
        let Some(task) = self.core.task(id).filter(|task| task.is_placed()) else { return };
        if task.who.unit.is_some() || task.attachment() != Attachment::InPlace {
            return;
        }
        let Some(entry) = self.state.entries.get_mut(&id) else { return };
        let Some(group) = &entry.group else { return };
        match self.state.world.owner_wrote(group) {
            Ok(Some(record)) => {
                let dirs = group.dirs.clone();
                entry.group = Some(Arc::new(Group { record: record.clone(), dirs }));
                let frozen = task.frozen || self.state.debts.has_thaw(id);
                let group = Some(record.clone());
                let task = Task { group, frozen, ..task.clone() };
                let stored = self.state.world.put(Storable::Task(&task));
                self.noted(stored);
                self.push(Input::OwnerWrote { task: id, group: record });
            }
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(task = %id, %error, "what the owner of the cgroup of task {id} wrote cannot be read: {error}");
            }
        }
    }

    /// Gives the threads their I/O priority, where disk tiers are made that way: a walk, so not
    /// on this thread.
    pub(super) fn write_io(&mut self, id: TaskId, group: &Arc<Group>, tier: Tier) {
        if self.state.world.facts().capabilities.io_by_thread {
            let slice = self.core.slice(id);
            self.begin(GroupJob::Threads { group: Arc::clone(group), tier, slice });
        }
    }

    /// Has the disk tier of a task made as this daemon makes it, and what an earlier one with
    /// another `tiers.io` left taken back.
    pub(super) fn renew_disk_tier(&mut self, id: TaskId) {
        let group = self.state.entries.get(&id).and_then(|entry| entry.group.clone());
        if let (Some(group), Some(level)) = (group, self.core.level(id)) {
            let tier = level.tier();
            self.begin(GroupJob::Threads { group, tier, slice: self.core.slice(id) });
        }
    }

    /// Writes the weights of a task that just arrived, where they differ from its tier. `true`:
    /// what was read back before may be old.
    pub(super) fn align(&mut self, id: TaskId, has: Option<Level>) -> bool {
        let Some(wanted) = self.core.level(id) else { return false };
        if has != Some(wanted) {
            // Recorded by write_tier; the next cycle tries again.
            let _ = self.write_tier(id, wanted);
            return true;
        }
        if let Some(entry) = self.state.entries.get_mut(&id) {
            entry.written = Some((wanted, self.now.boot));
        }
        false
    }

    /// Reads a group's weights back for the snapshot.
    pub(super) fn read_back(&mut self, id: TaskId) {
        let Some(entry) = self.state.entries.get_mut(&id) else { return };
        let Some(group) = entry.group.clone() else { return };
        match self.state.world.show(&group) {
            Ok(view) => entry.kernel = view,
            Err(error) => {
                tracing::debug!(task = %id, %error, "the weights of task {id} cannot be read back: {error}")
            }
        }
    }

    /// Weights are not what was written: the core decides what is done about it.
    pub(super) fn drifted(&mut self, id: TaskId, level: Level, drifts: &[Drift]) {
        if drifts.is_empty() || self.core.task(id).is_none_or(Task::is_contested) {
            return;
        }
        self.heed_owner(id);
        let Some(group) = self.state.entries.get(&id).and_then(|entry| entry.group.clone()) else {
            return;
        };
        // What its owner wants may be what the tier beside it is.
        let fits = group.record.attachment == Attachment::InPlace
            && self
                .state
                .world
                .drift(&group, level, &self.state.plan)
                .is_ok_and(|left| left.is_empty());
        let found = drifts
            .iter()
            .map(|drift| format!("{} is {}, should be {}", drift.file, drift.found, drift.expected))
            .collect();
        self.push(Input::Drifted { task: id, found, fits });
        self.state.touched.tasks.insert(id);
    }

    /// [`lrs_core::step::Job::Repair`].
    fn repair(&mut self, id: TaskId, found: Vec<String>) {
        let group = self.state.entries.get(&id).and_then(|entry| entry.group.clone());
        let (Some(group), Some(level)) = (group, self.core.level(id)) else { return };
        let result = match self.state.world.weigh(&group, level, &self.state.plan) {
            Ok(_) => {
                // Else systemd's next daemon-reload writes the foreign value again.
                self.tell_unit(id, level);
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        };
        self.read_back(id);
        self.push(Input::Repaired { task: id, found, result });
    }
}
