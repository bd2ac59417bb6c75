//! Tasks from observe mode: attached as soon as a daemon enforces.
//!
//! Observe mode gives a task an id, a seat and a place in the order, but no cgroup (attachment
//! `none`). A daemon that enforces finds such tasks in the records and attaches them like any
//! other: in a group of LRS's, or in place. Everything they have already they keep.
//!
//! - A found one is attached when its finder names it again, which it does of all that run once
//!   the daemon has started. So today's rule, or YARN, says how; and what is refused the finder
//!   proposes again after growing pauses.
//! - One that a client admitted asked for a slot, so it is attached too, with the checks of an
//!   admission. No client asks again, so the loop tries again, with the same pauses.
//!
//! The record has the state before the attach until that is over ([`Booked`]); a
//! daemon that finds it there undoes the attach, and begins it anew. As long as a task is not
//! attached, status warns and names the reason.
//!
//! Limits. A task that its rule or scheduler names no more stays as it is until it ends or is
//! released. One that was admitted in a service of systemd's, or below a finite limit, has to be
//! released and admitted again: what it would lose is systemd's to look up, and whether its client
//! wanted to keep that is not recorded.
//!
//! [`Booked`]: lrs_core::task::Booked

use std::time::Duration;

use super::Executor;
use super::claim::Admission;
use super::discovered::Place;
use super::entry::Unattached;
use super::keeping::UnitReport;
use super::world::{Move, World};
use crate::command::{Caller, CallerProcess, CommandError, ErrorKind};
use crate::group::{HeldBy, Reach};
use crate::refusals::Refusals;
use lrs_config::Mode;
use lrs_core::model::TaskId;
use lrs_core::step::Input;
use lrs_core::task::Task;

/// Pause after the first attach that failed.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

impl<W: World> Executor<'_, W> {
    /// Whether `id` is to be attached: this daemon enforces, and observe mode gave it no cgroup.
    pub(super) fn is_to_be_attached(&self, id: TaskId) -> bool {
        self.core.task(id).is_some_and(Task::is_booked)
            && self.state.config.daemon.mode == Mode::Enforce
    }

    /// At the start and once a cycle: attaches what clients admitted in observe mode.
    pub(super) fn attach_admitted(&mut self) {
        let waits = |unattached: &Unattached| unattached.refusals.again_at() > self.now.boot;
        let unattached =
            |id| self.state.entries.get(&id).and_then(|entry| entry.unattached.as_ref());
        let due = self.core.tasks().filter(|(id, task)| {
            let waits = unattached(*id).is_some_and(waits);
            task.who.found.is_none() && !waits && self.is_to_be_attached(*id)
        });
        let due: Vec<TaskId> = due.map(|(id, _)| id).collect();
        for id in due {
            match self.place_of_admitted(id) {
                Ok(place) => self.attach_booked(id, place, false),
                Err(error) => drop(self.stays_booked(id, error)),
            }
        }
    }

    /// Where the process of a task that a client admitted goes, if it still may: the checks of an
    /// admission.
    fn place_of_admitted(&self, id: TaskId) -> Result<Place, CommandError> {
        let refused = |reason: String| CommandError::new(ErrorKind::FailedPrecondition, reason);
        let known = self.core.task(id);
        let known = known.and_then(|task| Some((task, task.who.process?, task.who.admitted_by?)));
        let Some((task, process, uid)) = known else {
            return Err(refused("its process, or who admitted it, is not known".to_owned()));
        };
        let pid = process.pid;
        let pinned = self.state.world.identify(pid)?;
        if pinned.process != process {
            return Err(crate::command::gone(pid));
        }
        if task.uid != Some(pinned.uids.effective) {
            let uid = pinned.uids.effective;
            return Err(refused(format!("process {pid} runs as uid {uid} by now")));
        }
        let path = task.group.as_ref().map_or("", |group| group.path.as_str());
        let in_place = !path.is_empty();
        let again = format!("release the task (lrsctl release {id}) and admit it again");
        let in_unit = || {
            if in_place {
                return Ok(self.state.world.may_be_in_unit(pid));
            }
            match self.held_by(process, &UnitReport::default())? {
                HeldBy::None => Ok(false),
                // By leaving a scope without a limit nothing is lost ([`lrs_core::leaving`]).
                HeldBy::Systemd(unit) => Ok(unit.is_service()),
                HeldBy::Manager(manager) => Err(refused(format!(
                    "process {pid} is in {}, which {} manages; {again}",
                    manager.group, manager.name
                ))),
            }
        };
        if in_unit()? {
            return Err(refused(format!(
                "process {pid} is in a service of systemd, which has to be looked up; {again}"
            )));
        }
        if !task.who.as_admin {
            let caller =
                Caller { uid, gids: Vec::new(), process: CallerProcess::Unseen, granted: None };
            self.check_owner(&caller, pid, pinned.uids)?;
        }
        // Whether its client wanted to keep its unit is not recorded.
        if let Some(reason) =
            self.state.world.escaped_limit(process, Move::ToRoot).filter(|_| !in_place)
        {
            return Err(refused(format!("{reason}; {again}")));
        }
        let found =
            in_place.then(|| self.state.world.find_in_place(process, Some(path))).transpose();
        let group = found.map_err(crate::command::cgroup_error)?;
        Ok(Place { kin: task.kin(), origin: Default::default(), group, reach: Reach::All })
    }

    /// Begins to attach a task of observe mode, or one that has `followed` its last process into
    /// another group.
    pub(super) fn attach_booked(&mut self, id: TaskId, place: Place, followed: bool) {
        let Place { kin, origin, group, reach } = place;
        let Some(entry) = self.state.entries.get_mut(&id) else { return };
        let Some(booked) = entry.group.take() else { return };
        let competed = entry.competes_in.take();
        entry.written = None;
        let admission = entry.admission.get_or_insert_default();
        admission.booked = Some(booked);
        admission.in_place = group.is_some();
        admission.found_in = group;
        admission.reach = reach;
        self.leave_ratio_group(competed);
        self.push(Input::AttachBooked { task: id, origin, kin, followed });
    }

    /// [`lrs_core::step::Job::PrepareBooked`]. Only now its group is the task's: before, the core had
    /// no weights to write.
    pub(super) fn prepare_booked(&mut self, id: TaskId) {
        let ready = self.prepare_attach(id);
        self.prepared(id, ready);
    }

    /// The attach of a task of observe mode failed: it is what it was, and is tried again. One that
    /// followed its last process into a group where it cannot be in place is over.
    pub(super) fn booked_is_refused(&mut self, id: TaskId, error: CommandError) {
        let Some(entry) = self.state.entries.get_mut(&id) else { return };
        let Admission { booked, found_replies, replies, .. } = entry.take_admission();
        entry.group = booked;
        self.state.taken.forget(id);
        if self.core.task(id).is_some_and(|task| task.left_for.is_some()) {
            self.found_is_refused(found_replies, &error);
            self.answer_all(replies, Err(error));
            return self.end(vec![id]);
        }
        self.enter_ratio_group(id);
        let error = self.stays_booked(id, error);
        self.found_is_refused(found_replies, &error);
        if let Some(task) = self.task_view(id, self.now.boot) {
            self.answer_all(replies, Ok(task));
        }
        // It may have ended meanwhile.
        self.check_ended(&[id]);
    }

    /// Keeps why `id` is not attached, for status and the log; answers it as the finder shows it.
    pub(super) fn stays_booked(&mut self, id: TaskId, error: CommandError) -> CommandError {
        let found = self.core.task(id).is_some_and(|task| task.who.found.is_some());
        let Some(entry) = self.state.entries.get_mut(&id) else { return error };
        let why = error.message;
        let before = entry.unattached.take();
        let mut refusals =
            before.map_or_else(|| Refusals::new(FIRST_PAUSE), |before| before.refusals);
        // Of a found one its finder logs it.
        if refusals.add(&why, self.now.boot) && !found {
            tracing::warn!(task = %id, "task {id}, from observe mode, has no cgroup and no tier yet, it is tried again: {why}");
        }
        entry.unattached = Some(Unattached { why: why.clone(), refusals });
        self.state.touched.status = true;
        let message = format!("task {id}, from observe mode, has no cgroup and no tier yet: {why}");
        CommandError::new(error.kind, message)
    }

    /// For status: how many tasks of observe mode have no cgroup, and why the first of them.
    pub(super) fn unattached_warning(&self) -> Option<String> {
        if self.state.config.daemon.mode == Mode::Observe {
            return None;
        }
        let all = || self.core.tasks().filter(|(_, task)| task.is_booked()).map(|(id, _)| id);
        let why =
            |id| self.state.entries.get(&id)?.unattached.as_ref().map(|known| known.why.clone());
        let id = all().find(|id| why(*id).is_some()).or_else(|| all().next())?;
        let why = why(id).unwrap_or_else(|| {
            "it waits to be found again; where no rule finds it any more it runs on like this, \
             unless it is released"
                .to_owned()
        });
        Some(format!(
            "{} tasks from observe mode (attachment none) have no cgroup and no tier yet, and \
             hold their slots; they are tried again. Task {id}: {why}",
            all().count()
        ))
    }
}
