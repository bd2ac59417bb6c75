//! Waiters in the groups of the tasks they are going to be: what [`lrs_core::shaper::Shaper::parked`]
//! decides, carried out. Why, and in which order, is on the page of the core's module.
//!
//! A parked process is no task here: it has no entry, so nothing measures it, compares its weights or
//! shows it. Its request stays among those that wait, so whoever asks for the same process again joins
//! that. What is asked for a process on its way back is held until it is there, because from where it
//! is now it would not be known where it belongs.
//!
//! Limits. A way back that failed is tried again in the next cycle. Who is frozen by others on it, and is
//! given a slot meanwhile, holds that and is put in place once it is thawed.

use super::Executor;
use super::claim::{Claim, Requester};
use super::debts::Debt;
use super::job::GroupJob;
use super::keeping::LeavingDecision;
use super::message::AttachResult;
use super::postponed::{PostponedRequest, Until};
use super::world::{Whereabouts, World};
use crate::command::{AdmitRequest, Caller, CommandError, ErrorKind, cgroup_error};
use crate::group::{Attached, CgroupError, Origin, Reach};
use lrs_config::Mode;
use lrs_core::model::TaskId;
use lrs_core::step::{Input, Ready, Record, Ticket};
use lrs_core::task::{Halt, Task};
use lrs_core::unit::UnitRecord;
use lrs_core::units::ProcessRef;

impl<W: World> Executor<'_, W> {
    /// Whether a process may wait in the group of its task: one that asks for itself, so that it does
    /// nothing meanwhile, and that would be moved there anyway.
    pub(super) fn may_park(
        &self,
        caller: &Caller,
        request: &AdmitRequest,
        process: ProcessRef,
        unit: Option<&UnitRecord>,
        kept: Option<&LeavingDecision>,
    ) -> bool {
        let partly = kept.is_some_and(|kept| kept.reach() != Reach::All);
        let stays = request.in_place || unit.is_some() || partly;
        self.state.config.daemon.mode == Mode::Enforce
            && caller.process.pid() == Some(process.pid)
            && !stays
    }

    /// [`lrs_core::step::Job::Park`] of this turn.
    pub(super) fn park_next(&mut self) {
        while let Some((id, ticket)) = self.state.to_park.pop_front() {
            let input = match self.origin_of_waiter(id, ticket) {
                Ok(origin) => {
                    let ready = Ready { origin: Some(origin), ..Ready::default() };
                    Input::Prepared { task: id, ready }
                }
                Err(error) => not_parked(id, error.message),
            };
            self.push(input);
        }
    }

    /// Where the process of a request that waits is, if it may be taken from there.
    fn origin_of_waiter(&self, id: TaskId, ticket: Ticket) -> Result<Origin, CommandError> {
        match self.state.asked.get(&ticket) {
            Some(Requester::Task(admission)) => {
                self.still_fit(id, admission)?;
                let claim = admission.claim.as_ref().ok_or_else(client_left)?;
                let position = self.state.world.position(claim.process);
                position.map(|position| position.origin).map_err(cgroup_error)
            }
            _ => Err(client_left()),
        }
    }

    /// A parked process is in its group, or could not be put there.
    pub(super) fn parked(&mut self, id: TaskId, result: AttachResult) {
        let input = match result {
            Ok((group, ..)) => {
                let (group, born) = (group.record.clone(), Default::default());
                Input::Attached { task: id, group, born }
            }
            Err(error) => not_parked(id, error.to_string()),
        };
        self.push(input);
    }

    /// Whether a process that waited in its group is there, and may be.
    pub(super) fn still_parked(&self, task: &Task, claim: &Claim) -> Result<(), CommandError> {
        let process = claim.process;
        let Some(record) = &task.group else { return Ok(()) };
        let group = self.state.world.presumed(record);
        let inside = match self.state.world.whereabouts(&group, process) {
            Ok(whereabouts) => whereabouts == Whereabouts::Inside,
            Err(CgroupError::ProcessGone(_)) => false,
            Err(error) => return Err(cgroup_error(error)),
        };
        if inside {
            return self.check_limits_of(
                &claim.caller,
                &claim.request,
                process,
                Some(&task.who.origin),
            );
        }
        Err(CommandError::new(
            ErrorKind::FailedPrecondition,
            format!(
                "process {} was moved out of {}, where it waited for a slot; ask again",
                process.pid, record.path
            ),
        ))
    }

    /// Gives a process that waited in its group the weights of its tier.
    pub(super) fn grant_parked(&mut self, id: TaskId) {
        let group = self.state.entries.get(&id).and_then(|entry| entry.group.clone());
        let tier = self.core.task(id).map(Task::tier);
        let (Some(group), Some(tier)) = (group, tier) else { return };
        let written = self.state.world.weigh(&group, tier.into(), &self.state.plan);
        self.attached(id, written.map(|()| (group, Attached { moved: 0 }, Some(tier))));
    }

    /// Has a process put back where it was before it was parked.
    pub(super) fn begin_unparking(&mut self, id: TaskId) {
        let group = self.core.parked(id).and_then(|waiter| waiter.group.as_ref());
        if let Some(group) = group.map(|record| self.state.world.presumed(record)) {
            self.begin(GroupJob::Release { task: id, group: group.into(), waited: true });
        }
    }

    /// It is there, or not yet. Answers what was asked meanwhile for those on their way.
    pub(super) fn unparked(
        &mut self,
        id: TaskId,
        result: Result<Option<Halt>, CgroupError>,
    ) -> Vec<PostponedRequest> {
        let why = match result {
            Ok(None) => None,
            Ok(Some(_)) => Some("it is frozen by others".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why {
            tracing::warn!(task = %id, error = %why, "a process that does not wait for a slot any more is still in the cgroup made for it, the next cycle tries again: {why}");
            self.state.debts.push(Debt::Unparking(id));
            return Vec::new();
        }
        self.push(Input::Removed(id));
        self.state.postponed.take(|until| matches!(until, Until::Returned))
    }

    /// The daemon ends, and its threads have: what they did not get to.
    pub(super) fn unpark_all(&mut self) {
        let all: Vec<Task> = self.core.all_parked().cloned().collect();
        for Task { id, group, .. } in all {
            let group = group.map(|record| self.state.world.presumed(&record));
            let released = group.map(|group| self.state.world.release(&group, false));
            match released.unwrap_or(Ok(None)) {
                // Frozen by others: the record tells the next daemon.
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.forget(Record::Task(id));
                }
                // The record tells the next daemon.
                Err(error) => {
                    tracing::warn!(task = %id, %error, "a process that waited for a slot stays in the cgroup made for it: {error}");
                }
            }
        }
    }
}

pub(super) fn client_left() -> CommandError {
    CommandError::new(ErrorKind::Unavailable, "the client went away")
}

fn not_parked(task: TaskId, reason: String) -> Input {
    tracing::debug!(%task, "a process waits for a slot where it is, and is moved when it has one: {reason}");
    Input::AttachFailed { task, reason }
}
