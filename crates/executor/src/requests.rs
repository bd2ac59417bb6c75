//! Commands of clients: rights first, then the core, then the answer.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, json};
use tokio::sync::mpsc::error::TrySendError;

use super::claim::Requester;
use super::job::{GroupJob, UnitJob};
use super::postponed::PostponedRequest;
use super::settings::{plan, policy};
use super::world::World;
use super::{Executor, view};
use crate::command::{
    Caller, Command, CommandError, ErrorKind, JobPriority, QueueId, Reply, ReserveRequest, Wait,
    refused,
};
use crate::found::Hint;
use crate::group::CgroupError;
use crate::rights::{Action, Role};
use lrs_api::proto;
use lrs_api::wire::proto_time;
use lrs_core::event::{Change, EventKind};
use lrs_core::model::{Priority, ReservationId, TaskId};
use lrs_core::state::Patience;
use lrs_core::step::{Input, Record};
use lrs_core::task::{Halt, Task};

/// As `slots.reservation_ttl` has it.
const RESERVATION_TTL: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(24 * 3600);

impl<W: World> Executor<'_, W> {
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Discover { found, reply } => self.discover(*found, reply),
            Command::Admit { caller, request, reply } => self.admit(caller, request, reply),
            Command::Reserve { caller, request, reply } => {
                self.reserve(&caller, request, reply);
            }
            Command::CancelReservation { caller, id, reply } => {
                let answer = match id {
                    QueueId::Reservation(id) => self.cancel(&caller, id),
                    QueueId::Waiter(id) => self.cancel_wait(&caller, id),
                };
                self.answer(Some(reply), answer);
            }
            Command::ListQueue { caller, request, reply } => {
                let answer = self.queue_page(&caller, request);
                self.answer(Some(reply), answer);
            }
            Command::Release { caller, id, reply } => self.release(&caller, id, reply),
            Command::SetJobPriority { caller, request, reply } => {
                let answer = self.set_job_priority(&caller, request);
                self.answer(Some(reply), answer);
            }
            Command::Drain { caller, reply } => {
                let answer = self.may_operate(&caller);
                if answer.is_ok() {
                    self.push(Input::Drain);
                }
                self.answer(Some(reply), answer);
            }
            Command::Resume { caller, reply } => {
                let answer = self.may_operate(&caller);
                if answer.is_ok() {
                    self.push(Input::Resume);
                }
                self.answer(Some(reply), answer);
            }
            Command::FinderTrouble(trouble) => {
                self.state.finder_trouble = trouble;
                self.state.touched.status = true;
            }
            // Theirs is in the loop itself.
            Command::SetPriority { .. }
            | Command::Reload { .. }
            | Command::Record { .. }
            | Command::Looked(_) => {}
            Command::YarnFound(found) => {
                self.state.view.yarn_found = Arc::new(found);
                self.state.touched.status = true;
            }
            Command::VerifyTiers { caller, reply } => self.verify_tiers(&caller, reply),
            Command::Hint { caller, hints, reply } => {
                let answer = self.state.rights.check(&caller, Action::Integrate, None);
                let answer = answer.and_then(|()| self.pass_on(hints));
                self.answer(Some(reply), answer);
            }
            Command::ReportIntegration { caller, yarn, changes, reply } => {
                let answer = self.state.rights.check(&caller, Action::Integrate, None);
                if answer.is_ok() {
                    self.reported(yarn, changes);
                }
                self.answer(Some(reply), answer);
            }
        }
    }

    pub(super) fn may_operate(&self, caller: &Caller) -> Result<(), CommandError> {
        self.state.rights.check(caller, Action::Operate, None)
    }

    /// Hints to the finders, which look them up by name. The loop does not wait for them.
    fn pass_on(&self, hints: Vec<Hint>) -> Result<(), CommandError> {
        self.state.hints.hints.try_send(hints).map_err(|error| match error {
            TrySendError::Full(_) => CommandError::new(
                ErrorKind::Unavailable,
                "the thread that finds tasks is behind or hangs (lrsctl status); send it again",
            ),
            TrySendError::Closed(_) => CommandError::new(
                ErrorKind::FailedPrecondition,
                "no containers are looked for: set yarn.enabled or a [[discover]] rule, and \
                 restart lrsd",
            ),
        })
    }

    fn reported(&mut self, yarn: Option<Box<proto::YarnStatus>>, changes: Vec<Change>) {
        self.state.yarn_reported = self.now.boot;
        if let Some(mut yarn) = yarn {
            yarn.reported_at = Some(proto_time(self.now.wall));
            self.state.view.yarn = Some(Arc::from(yarn));
        } else if let Some(yarn) = &mut self.state.view.yarn {
            Arc::make_mut(yarn).reported_at = Some(proto_time(self.now.wall));
        }
        self.state.touched.status = true;
        for change in changes {
            self.push(Input::Change(change));
        }
    }

    /// Answers once the snapshot that shows the change is out.
    pub(super) fn answer<T: Send + 'static>(
        &mut self,
        reply: Option<Reply<T>>,
        answer: Result<T, CommandError>,
    ) {
        if let Some(reply) = reply {
            // A client that went away needs no answer.
            self.state.answers.push(Box::new(move || drop(reply.send(answer))));
        }
    }

    pub(super) fn answer_all(
        &mut self,
        replies: Vec<Reply<proto::Task>>,
        answer: Result<proto::Task, CommandError>,
    ) {
        for reply in replies {
            self.answer(Some(reply), answer.clone());
        }
    }

    fn reserve(
        &mut self,
        caller: &Caller,
        request: ReserveRequest,
        reply: Reply<proto::Reservation>,
    ) {
        let ReserveRequest { labels, priority, mut lease, wait } = request;
        if let Some(ttl) = lease.ttl.filter(|ttl| !RESERVATION_TTL.contains(ttl)) {
            let message =
                format!("a reservation cannot last {ttl:?}; give a ttl from 100ms to 24h");
            let error = CommandError::new(ErrorKind::InvalidArgument, message);
            return self.answer(Some(reply), Err(error));
        }
        let action = Action::Reserve { priority, ttl: lease.ttl };
        if let Err(error) = self.state.rights.check(caller, action, None) {
            return self.answer(Some(reply), Err(error));
        }
        let by_member = self.state.rights.role(caller) == Role::Member;
        let labels = labels.hinted_by(by_member);
        if by_member && lease.ttl.is_none() {
            let slots = &self.state.config.slots;
            lease.ttl = Some(slots.reservation_ttl.min(slots.reservation_ttl_max));
        }
        let deadline = match wait {
            Wait::No | Wait::Forever => None,
            Wait::For(duration) => Some(self.now.boot.after(duration)),
        };
        let patience = Patience { first_requested: self.now.wall, deadline, parks: false };
        let patience = (wait != Wait::No).then_some(patience);
        let ticket = self.ticket(Requester::Promise(reply));
        let uid = caller.uid;
        let reserve = Input::Reserve { ticket, uid, by_member, labels, priority, lease, patience };
        self.push(reserve);
    }

    /// A new reservation as its client sees it. `unstored`: why it was not stored; a promise must
    /// survive the daemon that made it.
    fn promised(
        &self,
        id: ReservationId,
        unstored: Option<&String>,
    ) -> Result<proto::Reservation, CommandError> {
        if let Some(error) = unstored {
            return Err(CommandError::new(ErrorKind::Internal, error));
        }
        let reservation = self.core.reservation(id).ok_or_else(|| vanished(id))?;
        let expires_at = super::queue::wall(reservation.expires, self.now);
        let text = |label: &Option<_>| label.as_ref().map(ToString::to_string);
        Ok(proto::Reservation {
            id: id.to_string(),
            job: text(&reservation.labels.job),
            kind: text(&reservation.labels.kind),
            group: text(&reservation.labels.group),
            priority: reservation.priority.0,
            tier: view::tier(reservation.tier).into(),
            expires_at: Some(proto_time(expires_at)),
            others: Vec::new(),
        })
    }

    /// Several reservations of one request, as their client sees them.
    pub(super) fn all_promised(
        &mut self,
        ids: &[ReservationId],
        unstored: &BTreeMap<Record, String>,
    ) -> Result<proto::Reservation, CommandError> {
        let mut promised = Vec::with_capacity(ids.len());
        for id in ids {
            match self.promised(*id, unstored.get(&Record::Reservation(*id))) {
                Ok(reservation) => promised.push(reservation),
                Err(error) => {
                    ids.iter().for_each(|id| self.push(Input::Cancel(*id)));
                    return Err(error);
                }
            }
        }
        let mut promised = promised.into_iter();
        let first = promised.next().ok_or_else(|| {
            CommandError::new(ErrorKind::Internal, "a reservation was granted without a slot")
        })?;
        Ok(proto::Reservation { others: promised.collect(), ..first })
    }

    fn cancel(&mut self, caller: &Caller, id: ReservationId) -> Result<(), CommandError> {
        if let Some(reservation) = self.core.reservation(id) {
            let owner = Some(reservation.uid);
            self.state.rights.check(caller, Action::ActOnReservation, owner)?;
        }
        self.core.check_reservation(id).map_err(refused)?;
        self.push(Input::Cancel(id));
        Ok(())
    }

    fn release(&mut self, caller: &Caller, id: TaskId, reply: Reply<()>) {
        if let Err(error) = self.may_release(caller, id) {
            return self.answer(Some(reply), Err(error));
        }
        // Answered once it is over.
        if let Some(entry) = self.state.entries.get_mut(&id) {
            entry.release_replies.push(reply);
        }
        self.push(Input::Release(id));
    }

    fn may_release(&self, caller: &Caller, id: TaskId) -> Result<(), CommandError> {
        let task = self.known(id)?;
        self.may_act(caller, Action::ActOnTask, task)?;
        if task.is_attaching() {
            return Err(CommandError::new(
                ErrorKind::FailedPrecondition,
                format!("task {id} is being admitted; release it once that is done"),
            ));
        }
        Ok(())
    }

    /// [`lrs_core::step::Job::Release`].
    pub(super) fn begin_give_back(&mut self, id: TaskId) {
        if self.core.parked(id).is_some() {
            return self.begin_unparking(id);
        }
        let group = self.state.entries.get(&id).and_then(|entry| entry.group.clone());
        let (Some(task), Some(group)) = (self.core.task(id), group) else { return };
        match task.who.unit.clone() {
            Some(unit) => self.begin(UnitJob::GiveBack {
                task: id,
                group: Some(group),
                unit,
                releases: true,
                called_off: None,
            }),
            None => self.begin(GroupJob::Release { task: id, group, waited: false }),
        }
    }

    /// The answer to [`GroupJob::Release`]. Answers what was asked meanwhile for those on their way back
    /// from parking.
    pub(super) fn released(
        &mut self,
        id: TaskId,
        result: Result<Option<Halt>, CgroupError>,
    ) -> Vec<PostponedRequest> {
        if self.core.parked(id).is_some() {
            return self.unparked(id, result);
        }
        let error = match result {
            // It is LRS's own freeze, and with the task the debt would go.
            Ok(Some(Halt::Frozen)) if self.state.debts.has_thaw(id) => {
                CgroupError::Refused(format!(
                    "task {id} is frozen, and could not be thawed yet: each cycle tries again; then release it"
                ))
            }
            Ok(halt) => {
                // Its event says what became of its processes.
                self.push(Input::Halted(vec![(id, halt)]));
                self.stays(id, halt);
                self.push(Input::Released(id));
                return Vec::new();
            }
            Err(error) => error,
        };
        let Some(entry) = self.state.entries.get_mut(&id) else { return Vec::new() };
        let replies = std::mem::take(&mut entry.release_replies);
        let error = crate::command::cgroup_error(error);
        self.push(Input::ReleaseFailed(id));
        for reply in replies {
            self.answer(Some(reply), Err(error.clone()));
        }
        Vec::new()
    }

    /// Answered with what becomes of the task.
    pub(super) fn set_priority(
        &mut self,
        caller: &Caller,
        id: TaskId,
        priority: Priority,
    ) -> Result<(), CommandError> {
        let task = self.known(id)?;
        self.may_act(caller, Action::SetPriority { priority }, task)?;
        self.push(Input::SetPriority { task: id, priority });
        Ok(())
    }

    /// A task as an answer.
    pub(super) fn answer_of(&self, id: TaskId) -> Result<proto::Task, CommandError> {
        self.task_view(id, self.now.boot).ok_or_else(|| no_task(id))
    }

    /// All that there is of a job, or nothing of it.
    fn set_job_priority(
        &mut self,
        caller: &Caller,
        request: JobPriority,
    ) -> Result<proto::SetJobPriorityResponse, CommandError> {
        let JobPriority { job, uid, priority } = request;
        // What polkit grants is what was asked for before: one's own.
        let is_admin = self.state.rights.role(caller) == Role::Admin && caller.granted.is_none();
        let uid = uid.or_else(|| (!is_admin).then_some(caller.uid));
        let meant = self.core.whole_job(&job, uid);
        // To one who has none, those of others are what was meant.
        let all = meant.is_empty().then(|| self.core.whole_job(&job, None));
        let all = all.as_ref().unwrap_or(&meant);
        let action = Action::SetPriority { priority };
        for task in all.tasks.iter().filter_map(|id| self.core.task(*id)) {
            self.may_act(caller, action, task)?;
        }
        for (_, owner) in &all.waiters {
            self.state.rights.check(caller, action, Some(*owner))?;
        }
        if meant.is_empty() {
            let message = format!(
                "nothing of job \"{job}\" runs or waits here{}; `lrsctl tasks` and `lrsctl queue` list \
                 what does",
                uid.map_or_else(String::new, |uid| format!(" for uid {uid}")),
            );
            return Err(CommandError::new(ErrorKind::NotFound, message));
        }
        self.push(Input::SetJobPriority { job, uid, priority });
        let count = |all: usize| u32::try_from(all).unwrap_or(u32::MAX);
        let (tasks, waiting) = (count(meant.tasks.len()), count(meant.waiters.len()));
        Ok(proto::SetJobPriorityResponse { tasks, waiting })
    }

    fn known(&self, id: TaskId) -> Result<&Task, CommandError> {
        self.core
            .task(id)
            .filter(|_| self.state.entries.contains_key(&id))
            .ok_or_else(|| no_task(id))
    }

    /// Applies the configuration file, all of it or nothing; answers the keys that changed. Then
    /// [`Self::reloaded`].
    pub(super) fn reload(&mut self) -> Result<Vec<String>, CommandError> {
        let invalid = |message: String| CommandError::new(ErrorKind::FailedPrecondition, message);
        let new = self.state.world.load();
        let new = new.map_err(|errors| invalid(format!("the old settings stay: {errors}")))?;
        let changed = self.state.config.changed_keys(&new);
        let frozen: Vec<_> =
            changed.iter().filter(|key| key.needs_restart).map(|key| key.key).collect();
        if !frozen.is_empty() {
            return Err(invalid(format!(
                "the old settings stay: {} can only change with a restart of lrsd; restart it, or put the old value back",
                frozen.join(", ")
            )));
        }
        let rights = self.state.world.apply(&new);
        let rights = rights
            .map_err(|error| invalid(format!("the old settings stay: daemon.log: {error}")))?;
        self.state.config = new;
        self.state.rights = rights;
        self.push(Input::Configure(policy(&self.state.config)));
        Ok(changed.iter().map(|key| key.key.to_string()).collect())
    }

    /// The core has the new settings.
    pub(super) fn reloaded(&mut self, keys: &[String]) {
        self.replan();
        self.state.next_cycle = self.state.next_cycle.min(self.now.boot.after(self.period()));
        self.state.view.config_toml = self.state.config.to_toml().into();
        self.state.view.config = Some(Arc::new(self.state.config.clone()));
        self.state.view.colocation_threshold = self.state.config.classify.colocation_threshold;
        self.state.touched.all = true;
        let mut inputs = Map::new();
        inputs.insert("changed".into(), json!(keys));
        let reason = match keys {
            [] => "nothing changed".to_owned(),
            keys => format!("{} changed", keys.join(", ")),
        };
        self.note(EventKind::Reloaded, None, reason, inputs);
    }

    /// Follows the capacities with the weights.
    pub(super) fn replan(&mut self) {
        let plan = plan(&self.state.config, self.core);
        if plan == self.state.plan {
            return;
        }
        if plan.ratio != self.state.plan.ratio {
            self.forget_test();
        }
        self.state.plan = plan;
        self.shape_root();
        let placed: Vec<TaskId> = self.state.entries.keys().copied().collect();
        for id in placed {
            self.align(id, None);
        }
    }
}

fn no_task(id: TaskId) -> CommandError {
    CommandError::new(
        ErrorKind::NotFound,
        format!(
            "no task {id} runs here; `lrsctl tasks` lists those that do, `lrsctl why {id}` its past"
        ),
    )
}

fn vanished(id: ReservationId) -> CommandError {
    CommandError::new(ErrorKind::Internal, format!("reservation {id} vanished as it was made"))
}
