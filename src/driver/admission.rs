//! From a request to a task in its slot.
//!
//! Order (spec 4): slot, state file, cgroup, weights, move, `admitted` event, final state,
//! answer. A failure on the way gives back the slot, the processes and a reservation used.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::Driver;
use super::entry::{Entry, Placement};
use super::process::{self, Pinned};
use super::worker::Job;
use crate::cgroup::{Attached, Attachment, CgroupError, Group};
use crate::command::{AdmitRequest, Caller, CommandError, ErrorKind, Reply, Wait};
use crate::core::model::{Priority, TaskId, Tier};
use crate::core::state::{Answer, Need, Patience, Phase, Refusal, Request, WaiterId};
use crate::proto;
use crate::rights::{Action, Role};
use crate::sample::TaskSource;
use crate::state::record::ReservationRecord;
use crate::units::{Moment, ProcessRef, WallTime};

/// A request that has been found fit, until its processes are in place.
#[derive(Debug)]
pub struct Admission {
    /// Who asked.
    pub caller: Caller,
    /// For what.
    pub request: AdmitRequest,
    /// The process.
    pub process: ProcessRef,
    /// Pins it.
    pub pidfd: OwnedFd,
    /// Who waits for the answer.
    pub replies: Vec<Reply<proto::Task>>,
}

/// What became of a request at once.
enum Begun {
    /// The task was there already.
    Answer(Box<proto::Task>),
    /// The answer comes later.
    Later,
}

impl Driver {
    pub(super) fn admit(
        &mut self,
        caller: Caller,
        request: AdmitRequest,
        reply: Reply<proto::Task>,
        now: Moment,
    ) {
        let mut reply = Some(reply);
        match self.begin_admission(caller, request, &mut reply, now) {
            Ok(Begun::Later) => {}
            Ok(Begun::Answer(task)) => self.answer(reply, Ok(*task)),
            Err(error) => self.answer(reply, Err(error)),
        }
        self.carry_out(now);
    }

    fn begin_admission(
        &mut self,
        caller: Caller,
        request: AdmitRequest,
        reply: &mut Option<Reply<proto::Task>>,
        now: Moment,
    ) -> Result<Begun, CommandError> {
        if self.rights.role(&caller) == Role::Reader {
            // Known before anything is read: who may not ask must not cost the loop.
            self.rights.check(&caller, Action::Admit { priority: None }, Some(caller.uid))?;
        }
        let Pinned { process, uid, pidfd } = process::pin(request.pid)?;
        if let Some(id) = self.task_of(process) {
            return self.admitted_already(id, process, &caller, reply, now);
        }
        let priority = self.effective_priority(&request);
        self.rights.check(&caller, Action::Admit { priority }, Some(uid))?;
        if let Some(waiting) = self.waiting.values_mut().find(|waiting| waiting.process == process)
        {
            if waiting.caller.uid != caller.uid {
                return Err(CommandError::new(
                    ErrorKind::FailedPrecondition,
                    format!(
                        "process {} waits for a slot already, asked for by uid {}",
                        process.pid, waiting.caller.uid
                    ),
                ));
            }
            // The same client asking again, after its connection broke.
            waiting.replies.extend(reply.take());
            return Ok(Begun::Later);
        }
        if let Some(id) = request.reservation {
            let reservation = self.core.reservation(id);
            // An unknown one is the core's to refuse, with the right words.
            if let Some(reservation) = reservation {
                let owner = Some(reservation.uid);
                self.rights.check(&caller, Action::ActOnReservation, owner)?;
            }
        }
        self.check_limits(&caller, &request, process)?;
        let asked = Request {
            uid,
            labels: request.labels.clone(),
            priority: request.priority,
            reservation: request.reservation,
            need: Need::Slot,
        };
        let patience = patience(&request, process, now);
        let admission = Admission {
            caller,
            request,
            process,
            pidfd,
            replies: reply.take().into_iter().collect(),
        };
        match self.core.request(asked, patience, now) {
            Ok(Answer::Waiting(waiter)) => {
                self.changed_status = true;
                self.waiting.insert(waiter, admission);
            }
            Ok(Answer::Placed(id)) => self.enter(id, admission),
            Err(refusal) => {
                let error = Err(refused(refusal));
                self.answer_all(admission.replies, error);
            }
        }
        Ok(Begun::Later)
    }

    /// A move must not lift a caller without root's rights out of its limits; in place nothing
    /// moves.
    fn check_limits(
        &self,
        caller: &Caller,
        request: &AdmitRequest,
        process: ProcessRef,
    ) -> Result<(), CommandError> {
        if request.in_place || self.rights.role(caller) == Role::Admin {
            return Ok(());
        }
        match self.tree.escapes_limits(process) {
            None => Ok(()),
            Some(reason) => Err(CommandError::new(ErrorKind::PermissionDenied, reason)),
        }
    }

    /// The priority rights are checked against: a reservation's was checked when it was made.
    fn effective_priority(&self, request: &AdmitRequest) -> Option<Priority> {
        let reserved = request
            .reservation
            .and_then(|id| self.core.reservation(id))
            .map(|reservation| reservation.priority);
        match (request.priority, reserved) {
            // What the reservation was granted needs no second check.
            (Some(asked), Some(reserved)) if asked <= reserved => Some(Priority(i32::MIN)),
            (None, Some(_)) => Some(Priority(i32::MIN)),
            (asked, _) => asked,
        }
    }

    /// The task a process is in: as its main process, or by its cgroup.
    fn task_of(&self, process: ProcessRef) -> Option<TaskId> {
        if let Some(id) = self.mains.get(&process) {
            return Some(*id);
        }
        // A process that ended meanwhile is in no group; its admission fails right after.
        if let Ok(Some(id)) = self.tree.task_of(process) {
            return self.entries.contains_key(&id).then_some(id);
        }
        let paths = process::cgroup_paths(process.pid);
        let in_place = self.entries.iter().find(|(_, entry)| {
            entry.group.as_ref().is_some_and(|group| {
                group.record.attachment == Attachment::InPlace && paths.contains(&group.record.path)
            })
        });
        in_place.map(|(id, _)| *id)
    }

    /// Asking twice for the same process gives the same task.
    fn admitted_already(
        &mut self,
        id: TaskId,
        process: ProcessRef,
        caller: &Caller,
        reply: &mut Option<Reply<proto::Task>>,
        now: Moment,
    ) -> Result<Begun, CommandError> {
        let same = self.entries.get_mut(&id).filter(|entry| {
            entry.process == Some(process) && entry.admitted_by == Some(caller.uid)
        });
        if let Some(entry) = same {
            match entry.phase {
                Placement::Attaching => {
                    entry.replies.extend(reply.take());
                    return Ok(Begun::Later);
                }
                Placement::Releasing => {
                    return Err(CommandError::new(
                        ErrorKind::FailedPrecondition,
                        format!("task {id} is being released; ask again in a moment"),
                    ));
                }
                Placement::Placed => {}
            }
            if let Some(task) = self.task_view(id, now.boot) {
                return Ok(Begun::Answer(Box::new(task)));
            }
        }
        Err(CommandError::new(
            ErrorKind::AlreadyExists(id),
            format!(
                "process {} is in task {id} already; release it first (lrsctl release {id})",
                process.pid
            ),
        ))
    }

    /// The core gave the request a slot.
    fn enter(&mut self, id: TaskId, admission: Admission) {
        let used = match self.core.task(id).map(|task| &task.phase) {
            Some(Phase::Attaching { used: Some((rid, reservation)), .. }) => {
                Some(ReservationRecord::new(*rid, reservation))
            }
            _ => None,
        };
        let Admission { caller, request, process, pidfd, replies } = admission;
        let entry = Entry {
            process: Some(process),
            admitted_by: Some(caller.uid),
            pinned: Some(pidfd),
            replies,
            used,
            in_place: request.in_place,
            ..Entry::default()
        };
        self.mains.insert(process, id);
        self.entries.insert(id, entry);
    }

    /// [`crate::core::state::Effect::Attach`].
    pub(super) fn start_attach(&mut self, id: TaskId, waiter: Option<WaiterId>, now: Moment) {
        let prepared = match waiter.and_then(|waiter| self.waiting.remove(&waiter)) {
            None => Ok(()),
            Some(admission) => {
                let fit = self.still_fit(id, &admission);
                self.enter(id, admission);
                fit
            }
        };
        let begun = prepared.and_then(|()| self.prepare_attach(id));
        match begun {
            Ok(Some(job)) => self.workers.place(job),
            Ok(None) => {}
            Err(error) => self.admission_failed(id, error, now),
        }
    }

    /// A process that waited may have changed hands or limits since it asked.
    fn still_fit(&self, id: TaskId, admission: &Admission) -> Result<(), CommandError> {
        if admission.replies.iter().all(Reply::is_closed) {
            return Err(CommandError::new(ErrorKind::Unavailable, "the client went away"));
        }
        let pinned = process::pin(admission.process.pid)?;
        let uid = self.core.task(id).and_then(|task| task.uid);
        if pinned.process != admission.process || uid != Some(pinned.uid) {
            return Err(CommandError::new(
                ErrorKind::FailedPrecondition,
                format!("process {} is not the one that asked any more", admission.process.pid),
            ));
        }
        self.check_limits(&admission.caller, &admission.request, admission.process)
    }

    /// Finds out what a release will need, stores it, and makes the job.
    fn prepare_attach(&mut self, id: TaskId) -> Result<Option<Job>, CommandError> {
        let Some(tier) = self.core.task(id).map(|task| task.tier()) else { return Ok(None) };
        let Some(entry) = self.entries.get_mut(&id) else { return Ok(None) };
        let Some(process) = entry.process else { return Ok(None) };
        let origin = self.tree.origin(process).map_err(cgroup_error)?;
        entry.origin = origin.clone();
        if entry.in_place {
            let group = self.tree.find_in_place(process).map_err(cgroup_error)?;
            self.check_in_place(id, &group)?;
            let Some(entry) = self.entries.get_mut(&id) else { return Ok(None) };
            // Stored before its first weight is written: its values must come back.
            entry.baseline = crate::sample::read_final(&group.dirs);
            entry.group = Some(Arc::new(group));
        }
        let (Some(task), Some(entry)) = (self.core.task(id), self.entries.get(&id)) else {
            return Ok(None);
        };
        let found = entry.group.clone();
        if let Err(error) = self.store.put_task(&entry.record(id, task)) {
            let refusal = CommandError::new(ErrorKind::Internal, error.to_string());
            self.noted(Err(error));
            return Err(refusal);
        }
        Ok(Some(Job::Attach { task: id, process, origin, found, tier, plan: self.plan }))
    }

    /// One task a group, and nobody's group but the caller's own.
    fn check_in_place(&self, id: TaskId, group: &Group) -> Result<(), CommandError> {
        let other = self.entries.iter().find(|(other, entry)| {
            **other != id
                && entry.group.as_ref().is_some_and(|taken| self.tree.overlaps(taken, group))
        });
        if let Some((other, _)) = other {
            return Err(CommandError::new(
                ErrorKind::FailedPrecondition,
                format!(
                    "cgroup {} is managed already, as task {other} or above or below it; release that first",
                    group.record.path
                ),
            ));
        }
        let caller = self.entries.get(&id).and_then(|entry| entry.admitted_by);
        let admin = caller.is_some_and(|uid| {
            let caller = Caller { uid, gids: Vec::new(), pid: None };
            self.rights.role(&caller) == Role::Admin
        });
        if admin {
            return Ok(());
        }
        let occupants = self.tree.occupants(group).map_err(cgroup_error)?;
        if occupants.iter().all(|uid| Some(*uid) == caller) {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorKind::PermissionDenied,
            format!(
                "cgroup {} holds processes of other users, whose weights are not yours to change; admit without --in-place",
                group.record.path
            ),
        ))
    }

    pub(super) fn attached(
        &mut self,
        id: TaskId,
        result: Result<(Arc<Group>, Attached, Tier), CgroupError>,
        now: Moment,
    ) {
        let (group, _, tier) = match result {
            Ok(placed) => placed,
            Err(error) => return self.admission_failed(id, cgroup_error(error), now),
        };
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.phase = Placement::Placed;
        entry.used = None;
        if entry.baseline.is_some() {
            // Counting starts at admission, not at the birth of somebody else's group.
            entry.last = entry.baseline.map(|sample| (now.boot, sample));
        } else {
            let born = crate::sample::TaskSample {
                cpu: Some(Duration::ZERO),
                pressure: crate::sample::read_final(&group.dirs).and_then(|s| s.pressure),
                ..Default::default()
            };
            entry.last = Some((now.boot, born));
        }
        entry.group = Some(group);
        self.core.attached(id, now);
        self.carry_out(now);
        self.settle_in(id, Some(tier), now);
        let task = self.task_view(id, now.boot);
        let replies = self.entries.get_mut(&id).map(|entry| std::mem::take(&mut entry.replies));
        if let Some(task) = task {
            self.answer_all(replies.unwrap_or_default(), Ok(task));
        }
        // It may have ended while it was being moved.
        self.check_ended(&[id], now);
    }

    /// Weights, watches and sampling of a task that is in place.
    pub(super) fn settle_in(&mut self, id: TaskId, has: Option<Tier>, now: Moment) {
        self.align(id, has, now);
        self.read_back(id);
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let (Some(process), false) = (entry.process, entry.main_exited) {
            let watched = match entry.pinned.take() {
                Some(pidfd) => self.watcher.watch_pidfd(id, process.pid, pidfd).map(Some),
                None => self.watcher.watch_process(id, process.pid),
            };
            match watched {
                Ok(Some(key)) => {
                    entry.watched.insert(process.pid, key);
                }
                Ok(None) => entry.main_exited = true,
                Err(error) => {
                    tracing::debug!(task = %id, %error, "main process not watched");
                }
            }
        }
        let Some(group) = &entry.group else { return };
        if let Some(parent) = ratio_group(group) {
            *self.ratio_groups.entry(parent.to_owned()).or_default() += 1;
        }
        if let Some(dir) = &group.dirs.unified
            && let Err(error) = self.watcher.watch_group(id, dir)
        {
            // The second source; pidfds and the check of every cycle remain.
            tracing::debug!(task = %id, %error, "cgroup.events not watched");
        }
        let source = match (group.record.attachment, entry.process) {
            (Attachment::None, Some(process)) => Some(TaskSource::Processes(process)),
            (Attachment::None, None) => None,
            (Attachment::Own | Attachment::InPlace, _) => {
                Some(TaskSource::Group(group.dirs.clone()))
            }
        };
        self.sources_new.extend(source.map(|source| (id, source)));
        self.changed.insert(id);
    }

    /// Takes a task out of the loop's books.
    pub(super) fn forget_entry(&mut self, id: TaskId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        if let Some(process) = entry.process {
            self.mains.remove(&process);
        }
        if let Some(parent) = entry.group.as_ref().and_then(|group| ratio_group(group)) {
            let last = self.ratio_groups.get_mut(parent).is_none_or(|tasks| {
                *tasks = tasks.saturating_sub(1);
                *tasks == 0
            });
            if last {
                self.ratio_groups.remove(parent);
            }
        }
        Some(entry)
    }

    /// The caller carries out what follows: a waiter that gets the slot now is not this one's
    /// to start, however many fail in a row.
    fn admission_failed(&mut self, id: TaskId, error: CommandError, now: Moment) {
        let Some(entry) = self.forget_entry(id) else { return };
        self.core.attach_failed(id, &error.message, now);
        self.answer_all(entry.replies, Err(error));
        if let Some(used) = &entry.used {
            // The promise is back before the record that remembers it goes.
            let stored = self.store.put_reservation(used);
            self.noted(stored);
        }
        let removed = self.store.remove_task(id);
        self.noted(removed);
    }

    /// Waiters whose clients have gone.
    pub(super) fn forget_closed_waiters(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let core = &mut self.core;
        let before = self.waiting.len();
        self.waiting.retain(|waiter, admission| {
            admission.replies.retain(|reply| !reply.is_closed());
            let wanted = !admission.replies.is_empty();
            if !wanted {
                core.forget_waiter(*waiter);
            }
            wanted
        });
        self.changed_status |= self.waiting.len() != before;
    }
}

/// The group in which a task's weights compete; `None` without one.
fn ratio_group(group: &Group) -> Option<&str> {
    group.record.path.rsplit_once('/').map(|(parent, _)| parent)
}

/// How long a request may wait, and its place: by the time the client first asked, which is
/// believed as far back as its process exists.
fn patience(request: &AdmitRequest, process: ProcessRef, now: Moment) -> Option<Patience> {
    let deadline = match request.wait {
        Wait::No => return None,
        Wait::For(duration) => Some(now.boot.after(duration)),
        Wait::Forever => None,
    };
    let age = now.boot.0.saturating_sub(process::started(process));
    let age_micros = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
    let born = WallTime::from_unix_micros(now.wall.unix_micros().saturating_sub(age_micros));
    let first_requested = request.first_requested_at.unwrap_or(now.wall).max(born).min(now.wall);
    Some(Patience { first_requested, deadline })
}

/// The core's refusal as clients know it.
pub(super) fn refused(refusal: Refusal) -> CommandError {
    let kind = match &refusal {
        Refusal::NoFreeSlot { .. } | Refusal::Holding(_) => ErrorKind::NoFreeSlot,
        Refusal::Draining | Refusal::ReservationEnded(_) => ErrorKind::FailedPrecondition,
        Refusal::UnknownReservation(_) => ErrorKind::NotFound,
    };
    CommandError::new(kind, refusal.to_string())
}

/// The applier's refusal as clients know it.
pub(super) fn cgroup_error(error: CgroupError) -> CommandError {
    let kind = match &error {
        CgroupError::ProcessGone(_) => ErrorKind::NotFound,
        CgroupError::Refused(_) | CgroupError::Unsupported(_) => ErrorKind::FailedPrecondition,
        CgroupError::Io { .. } => ErrorKind::Internal,
    };
    CommandError::new(kind, error.to_string())
}
