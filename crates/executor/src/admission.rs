//! From a request to a task in its slot.
//!
//! | where a request is | who has the reply |
//! |---|---|
//! | systemd is asked about its unit | the job ([`super::job::Asking`]) |
//! | it waits for the finders, or for its process to come back from parking | [`super::postponed`] |
//! | the core has it under a [`Ticket`]; it may wait for a slot, its process parked | [`Requester`] |
//! | it has a slot and an id, and its process is being put in place | the [`Admission`] of its [`Entry`] |
//! | it is in place, or came to nothing | the client |
//!
//! Order (spec 4): slot, state file, cgroup, weights, move, `admitted` event, final state,
//! answer. A failure on the way gives back the slot, the processes and a reservation used.

use super::Executor;
use super::claim::{Admission, Claim, Requester};
use super::entry::Entry;
use super::keeping::{LeavingDecision, UnitReport};
use super::postponed::{PostponedRequest, Until};
use super::tickets::Place;
use super::world::{Identity, Move, World};
use crate::command::{
    AdmitRequest, Caller, CommandError, ErrorKind, Reply, Wait, cgroup_error, gone,
};
use crate::group::{Origin, Reach};
use crate::rights::{Action, Role};
use lrs_api::proto;
use lrs_core::model::{Priority, TaskId};
use lrs_core::state::{Need, Patience, Request};
use lrs_core::step::{Input, Ticket};
use lrs_core::task::{Life, Who};
use lrs_core::units::{BootTime, Moment, Pid, ProcessRef, Uids, WallTime};

/// What became of a request at once.
enum Begun {
    /// The task was there already.
    Answer(Box<proto::Task>),
    /// The answer comes later.
    Later,
}

impl<W: World> Executor<'_, W> {
    pub(super) fn admit(
        &mut self,
        caller: Caller,
        request: AdmitRequest,
        reply: Reply<proto::Task>,
    ) {
        match self.at_hand(&caller, &request) {
            Some(pid) => {
                self.admit_process(caller, request, pid, UnitReport::default(), reply);
            }
            None => self.look_up(caller, request, reply),
        }
    }

    /// `report`: of the unit that it is the main process of, or that it is to keep.
    pub(super) fn admit_process(
        &mut self,
        caller: Caller,
        request: AdmitRequest,
        pid: Pid,
        report: UnitReport,
        reply: Reply<proto::Task>,
    ) {
        let mut reply = Some(reply);
        match self.begin_admission(caller, request, pid, report, &mut reply) {
            Ok(Begun::Later) => {}
            Ok(Begun::Answer(task)) => self.answer(reply, Ok(*task)),
            Err(error) => self.answer(reply, Err(error)),
        }
    }

    /// The next ticket, under which `asked` is found again.
    pub(super) fn ticket(&mut self, asked: Requester) -> Ticket {
        self.state.next_ticket += 1;
        let ticket = Ticket(self.state.next_ticket);
        self.state.asked.insert(ticket, asked);
        ticket
    }

    /// The admission of `process` that waits for a slot.
    pub(super) fn waiting(
        &mut self,
        process: ProcessRef,
    ) -> Option<(&Claim, &mut Vec<Reply<proto::Task>>)> {
        let mut claims = self.state.asked.values_mut().filter_map(|asked| match asked {
            Requester::Task(admission) => Some((admission.claim.as_ref()?, &mut admission.replies)),
            Requester::Promise(_) => None,
        });
        claims.find(|(claim, _)| claim.process == process)
    }

    fn begin_admission(
        &mut self,
        caller: Caller,
        mut request: AdmitRequest,
        pid: Pid,
        report: UnitReport,
        reply: &mut Option<Reply<proto::Task>>,
    ) -> Result<Begun, CommandError> {
        if self.state.rights.role(&caller) == Role::Reader {
            // Known before anything is read: who may not ask must not cost the loop.
            self.state.rights.check(&caller, Action::Admit { priority: None }, Some(caller.uid))?;
        }
        // What is put into a frozen root hangs.
        self.look_at_root();
        let Identity { process, uids, started, pin, .. } = self.state.world.identify(pid)?;
        if request.start_ticks.is_some_and(|expected| expected != process.start_ticks) {
            return Err(gone(pid));
        }
        if let Some(id) = self.task_of(process) {
            return self.admitted_already(id, process, &caller, reply);
        }
        let priority = self.effective_priority(&request);
        self.state.rights.check(&caller, Action::Admit { priority }, Some(uids.effective))?;
        self.check_owner(&caller, pid, uids)?;
        let joined = self.waiting(process).map(|(waiting, replies)| {
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
            replies.extend(reply.take());
            Ok(waiting.place)
        });
        if let Some(place) = joined.transpose()? {
            self.give_ticket(&caller, place, request.ticket_to.take());
            return Ok(Begun::Later);
        }
        if self.core.is_leaving(process) {
            if let Some(reply) = reply.take() {
                let request = PostponedRequest { caller, request, pid, report, reply };
                self.state.postponed.push(Until::Returned, request);
            }
            return Ok(Begun::Later);
        }
        if let Some(id) = request.reservation {
            let reservation = self.core.reservation(id);
            // An unknown one is the core's to refuse, with the right words.
            if let Some(reservation) = reservation {
                let owner = Some(reservation.uid);
                self.state.rights.check(&caller, Action::ActOnReservation, owner)?;
            }
        }
        if self.has_to_be_sought(&request, process, &report)? {
            if let Some(reply) = reply.take() {
                self.seek(PostponedRequest { caller, request, pid, report, reply });
            }
            return Ok(Begun::Later);
        }
        // A process that keeps its unit does not make a task of that unit.
        let mut unit = report.unit.clone().filter(|_| request.in_place);
        let kept = self.keep_in_its_group(&caller, &mut request, process, report, &mut unit)?;
        if let Some(unit) = &unit {
            self.check_unit(unit, None)?;
        }
        if kept.as_ref().map(LeavingDecision::reach) != Some(Reach::Weights) {
            self.check_limits(&caller, &request, process)?;
        }
        let as_admin = self.state.rights.role(&caller) == Role::Admin;
        let who = Who {
            process: Some(process),
            admitted_by: Some(caller.uid),
            as_admin,
            unit: unit.clone(),
            stays_because: kept.as_ref().and_then(LeavingDecision::because),
            lost_by_move: kept.as_ref().and_then(LeavingDecision::lost),
            ..Who::default()
        };
        let by_member = self.state.rights.role(&caller) == Role::Member;
        let asked = Request {
            uid: uids.effective,
            who,
            labels: request.labels.clone().hinted_by(by_member),
            priority: request.priority,
            reservation: request.reservation,
            need: Need::Slot,
            opportunistic: false,
            by_member,
        };
        let parks = self.may_park(&caller, &request, process, unit.as_ref(), kept.as_ref());
        let first_requested = self.first_requested(&request, uids.effective, process, started);
        let patience = patience(&request, first_requested, parks, self.now);
        let number = self.state.next_ticket + 1;
        let place = Place { uid: uids.effective, process, since: first_requested, number };
        let admission = Admission {
            in_place: request.in_place,
            reach: kept.as_ref().map(LeavingDecision::reach).unwrap_or_default(),
            claim: Some(Claim { caller, request, process, place, unit, kept }),
            pin: Some(pin),
            replies: reply.take().into_iter().collect(),
            ..Admission::default()
        };
        let ticket = self.ticket(Requester::Task(Box::new(admission)));
        self.push(Input::Request { ticket, request: asked, patience });
        Ok(Begun::Later)
    }

    /// Without an admin's rights a caller may have only its own processes managed; one may have taken
    /// another user's rights for a moment. What moves is checked again when it does.
    pub(super) fn check_owner(
        &self,
        caller: &Caller,
        pid: Pid,
        uids: Uids,
    ) -> Result<(), CommandError> {
        if uids.all_are(caller.uid) || self.state.rights.role(caller) == Role::Admin {
            return Ok(());
        }
        Err(cgroup_error(crate::group::denied(pid, uids, caller.uid)))
    }

    /// A move must not lift a caller without root's rights out of its limits; in place nothing
    /// moves.
    pub(super) fn check_limits(
        &self,
        caller: &Caller,
        request: &AdmitRequest,
        process: ProcessRef,
    ) -> Result<(), CommandError> {
        self.check_limits_of(caller, request, process, None)
    }

    /// The same of a process that was at `home`, where that is not where it is.
    pub(super) fn check_limits_of(
        &self,
        caller: &Caller,
        request: &AdmitRequest,
        process: ProcessRef,
        home: Option<&Origin>,
    ) -> Result<(), CommandError> {
        if request.in_place || self.state.rights.role(caller) == Role::Admin {
            return Ok(());
        }
        let by = home.map_or(Move::ToRoot, Move::From);
        match self.state.world.escaped_limit(process, by) {
            None => Ok(()),
            Some(reason) => Err(CommandError::new(
                ErrorKind::PermissionDenied,
                format!("{reason}; ask an administrator to admit it, or admit it in place"),
            )),
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
    pub(super) fn task_of(&self, process: ProcessRef) -> Option<TaskId> {
        if let Some(id) = self.state.mains.get(&process) {
            return Some(*id);
        }
        // A process that ended meanwhile is in no group; its admission fails right after.
        let position = self.state.world.position(process).ok()?;
        if let Some(id) = position.task {
            return self.state.entries.contains_key(&id).then_some(id);
        }
        position.paths.iter().find_map(|path| self.state.taken.holding(path))
    }

    /// Asking twice for the same process gives the same task.
    fn admitted_already(
        &mut self,
        id: TaskId,
        process: ProcessRef,
        caller: &Caller,
        reply: &mut Option<Reply<proto::Task>>,
    ) -> Result<Begun, CommandError> {
        let same = self.core.task(id).filter(|task| {
            task.who.process == Some(process) && task.who.admitted_by == Some(caller.uid)
        });
        if let (Some(task), Some(entry)) = (same, self.state.entries.get_mut(&id)) {
            match task.life {
                Life::Attaching(_) => {
                    entry.admission.get_or_insert_default().replies.extend(reply.take());
                    return Ok(Begun::Later);
                }
                Life::Releasing(_) => {
                    return Err(CommandError::new(
                        ErrorKind::FailedPrecondition,
                        format!("task {id} is being released; ask again in a moment"),
                    ));
                }
                Life::Placed(_) => {}
            }
            if let Some(task) = self.task_view(id, self.now.boot) {
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
    pub(super) fn enter(&mut self, id: TaskId, admission: Box<Admission>) {
        if let Some(unit) = admission.claim.as_ref().and_then(|claim| claim.unit.as_ref()) {
            // It has no group yet, and no other task may take that of the unit meanwhile.
            self.state.taken.put(id, &unit.control_group);
        }
        let process = self.core.task(id).and_then(|task| task.who.process);
        self.state.mains.extend(process.map(|process| (process, id)));
        let entry = Entry { admission: Some(admission), ..Entry::default() };
        self.state.entries.insert(id, Box::new(entry));
    }

    /// The way of `id` into its place.
    pub(super) fn admission_of(&mut self, id: TaskId) -> Option<&mut Admission> {
        self.state.entries.get_mut(&id)?.admission.as_deref_mut()
    }

    /// When a request of a process was made first: now, or as its ticket of an earlier daemon's says,
    /// but not before there was the process.
    fn first_requested(
        &self,
        request: &AdmitRequest,
        uid: u32,
        process: ProcessRef,
        started: BootTime,
    ) -> WallTime {
        let Some(ticket) = &request.ticket else { return self.now.wall };
        match self.state.tickets.since(ticket, uid, process, self.now.boot) {
            Ok(since) => {
                let age = self.now.boot.since(started);
                let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
                let born = self.now.wall.unix_micros().saturating_sub(age);
                since.max(WallTime::from_unix_micros(born)).min(self.now.wall)
            }
            Err(why) => {
                let pid = process.pid;
                tracing::debug!(%pid, uid, "process {pid} waits from now on, its ticket is none: {why}");
                self.now.wall
            }
        }
    }

    /// Forgets requests that wait without a client: each client has gone.
    pub(super) fn forget_closed_waiters(&mut self) {
        let mut gone = Vec::new();
        for (ticket, asked) in &mut self.state.asked {
            let is_gone = match asked {
                Requester::Task(admission) => {
                    admission.replies.retain(|reply| !reply.is_closed());
                    admission.claim.is_some() && admission.replies.is_empty()
                }
                Requester::Promise(reply) => reply.is_closed(),
            };
            gone.extend(is_gone.then_some(*ticket));
        }
        for ticket in gone {
            self.state.asked.remove(&ticket);
            self.state.touched.status = true;
            self.push(Input::Abandon(ticket));
        }
    }
}

/// How long a request may wait, and its place.
fn patience(
    request: &AdmitRequest,
    first_requested: WallTime,
    parks: bool,
    now: Moment,
) -> Option<Patience> {
    let deadline = match request.wait {
        Wait::No => return None,
        Wait::For(duration) => Some(now.boot.after(duration)),
        Wait::Forever => None,
    };
    Some(Patience { first_requested, deadline, parks })
}
