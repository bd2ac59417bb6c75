//! Putting an admitted task in its place: its record, its group, the move, and the way back.
//!
//! The steps and what a kill after each leaves are in docs/architecture.md, "The life of a task".

use std::sync::Arc;
use std::time::Duration;

use super::Executor;
use super::claim::{Admission, Claim, Requester};
use super::entry::Entry;
use super::job::{CalledOff, GroupJob, UnitJob};
use super::message::AttachResult;
use super::parking::client_left;
use super::world::World;
use crate::command::{CommandError, ErrorKind, Reply, cgroup_error};
use crate::group::TaskSource;
use crate::group::{Attachment, CgroupError, Group, Reach};
use lrs_core::model::{Level, TaskId, Tier};
use lrs_core::sample::TaskSample;
use lrs_core::step::{Input, Ready, Ticket};
use lrs_core::task::Task;
use lrs_core::units::ProcessRef;

/// How often a process that is moved again and again is judged anew: systemd moves it in one hierarchy
/// after the other, which may take a while in each.
const MOST_JUDGED_ANEW: u8 = 5;

impl<W: World> Executor<'_, W> {
    /// [`lrs_core::step::Job::Prepare`].
    pub(super) fn prepare(&mut self, id: TaskId, ticket: Ticket) {
        let Some(Requester::Task(admission)) = self.state.asked.remove(&ticket) else {
            // It left while its process was being moved.
            let reason = client_left().message;
            return self.push(Input::AttachFailed { task: id, reason });
        };
        let fit = if admission.waited { self.still_fit(id, &admission) } else { Ok(()) };
        self.enter(id, admission);
        let ready = fit.and_then(|()| self.prepare_attach(id));
        self.prepared(id, ready);
    }

    /// What an admission needs to know is known, or it comes to nothing.
    pub(super) fn prepared(&mut self, id: TaskId, ready: Result<Ready, CommandError>) {
        match ready {
            Ok(ready) => self.push(Input::Prepared { task: id, ready }),
            Err(error) => self.admission_failed(id, error),
        }
    }

    /// [`lrs_core::step::Job::Attach`]: its record is written.
    pub(super) fn begin_attach(&mut self, id: TaskId) {
        if let Some(waiter) = self.core.parked(id) {
            let job = self.attach_job(waiter, None, None);
            return job.into_iter().for_each(|job| self.begin(job));
        }
        let group = self.state.entries.get(&id).and_then(|entry| entry.group.clone());
        let Some(task) = self.core.task(id) else { return };
        if task.is_from_parking() {
            return self.grant_parked(id);
        }
        match (task.who.process, &task.who.unit) {
            // Systemd makes its files first.
            (Some(process), Some(unit)) if group.is_none() => {
                let unit = unit.clone();
                self.begin(UnitJob::Prepare { task: id, process, unit });
            }
            _ => {
                let job = self.attach_job(task, group, Some(task.tier()));
                job.into_iter().for_each(|job| self.begin(job));
            }
        }
    }

    /// A process that waited may have changed hands or limits since it asked.
    pub(super) fn still_fit(&self, id: TaskId, admission: &Admission) -> Result<(), CommandError> {
        if admission.replies.iter().all(Reply::is_closed) {
            return Err(client_left());
        }
        admission.claim.as_ref().map_or(Ok(()), |claim| self.still_may(id, claim))
    }

    fn still_may(&self, id: TaskId, claim: &Claim) -> Result<(), CommandError> {
        let Claim { caller, request, process, unit, kept, .. } = claim;
        let pinned = self.state.world.identify(process.pid)?;
        let task = self.core.stored_task(id);
        if pinned.process != *process
            || task.and_then(|task| task.uid) != Some(pinned.uids.effective)
        {
            return Err(CommandError::new(
                ErrorKind::FailedPrecondition,
                format!("process {} is not the one that asked any more", process.pid),
            ));
        }
        self.check_owner(caller, process.pid, pinned.uids)?;
        if let Some(task) = task.filter(|task| task.is_from_parking()) {
            return self.still_parked(task, claim);
        }
        if let Some(unit) = unit {
            self.check_unit(unit, Some(id))?;
        }
        if let Some(kept) = kept {
            self.still_kept(caller, *process, kept)?;
            if kept.reach() == Reach::Weights {
                return Ok(());
            }
        }
        self.check_limits(caller, request, *process)
    }

    /// Finds out what the record of the task has to say for a release.
    pub(super) fn prepare_attach(&mut self, id: TaskId) -> Result<Ready, CommandError> {
        let mut ready = Ready::default();
        let Some(task) = self.core.task(id) else { return Ok(ready) };
        let Some(process) = task.who.process else { return Ok(ready) };
        if let Some(group) = task.group.as_ref().filter(|_| task.is_from_parking()) {
            let group = self.state.world.presumed(group);
            // It counts from now on.
            ready.baseline = self.state.world.figures(&group, &[]).map(without_peak);
            if let Some(entry) = self.state.entries.get_mut(&id) {
                entry.group = Some(Arc::new(group));
            }
            return Ok(ready);
        }
        if task.who.found.is_none() {
            // A found one keeps where it was when it was judged.
            ready.origin = Some(self.state.world.position(process).map_err(cgroup_error)?.origin);
        }
        if task.who.unit.is_some() {
            // Its group is found once systemd has made its files.
            return Ok(ready);
        }
        let Some(admission) = self.admission_of(id) else { return Ok(ready) };
        if admission.in_place {
            let group = match admission.found_in.take() {
                Some(group) => group,
                None => self.state.world.find_in_place(process, None).map_err(cgroup_error)?,
            };
            self.hold_in_place(id, group, &mut ready)?;
        }
        Ok(ready)
    }

    /// `group`, in which the process of `id` was found, is the task's, as it is.
    pub(super) fn hold_in_place(
        &mut self,
        id: TaskId,
        mut group: Group,
        ready: &mut Ready,
    ) -> Result<(), CommandError> {
        self.check_in_place(id, &group)?;
        let task = self.core.task(id);
        group.record.for_member = task.is_some_and(|task| self.owner_only(task).is_some());
        let Some(entry) = self.state.entries.get_mut(&id) else { return Ok(()) };
        // Stored before its first weight is written: its values must come back.
        ready.baseline = self.state.world.figures(&group, &[]).map(without_peak);
        ready.group = Some(group.record.clone());
        if group.is_in_place() {
            self.state.taken.put(id, &group.record.path);
        }
        entry.group = Some(Arc::new(group));
        Ok(())
    }

    fn attach_job(
        &self,
        task: &Task,
        found: Option<Arc<Group>>,
        tier: Option<Tier>,
    ) -> Option<GroupJob> {
        let entry = self.state.entries.get(&task.id);
        let reach = entry.and_then(|entry| Some(entry.admission.as_ref()?.reach));
        Some(GroupJob::Attach {
            task: task.id,
            name: task.labels.name.clone().or_else(|| task.labels.job.clone()),
            process: task.who.process?,
            kin: task.kin(),
            origin: task.who.origin.clone(),
            reach: reach.unwrap_or_default(),
            owner: self.owner_only(task),
            found,
            tier,
            slice: self.core.slice(task.id),
            plan: self.state.plan,
            discovered: task.who.found.is_some(),
        })
    }

    /// One task a group.
    pub(super) fn check_overlap(
        &self,
        id: Option<TaskId>,
        group: &Group,
    ) -> Result<(), CommandError> {
        if !group.is_in_place() {
            return Ok(());
        }
        let Some(other) = self.state.taken.overlapping(&group.record.path, id) else {
            return Ok(());
        };
        Err(CommandError::new(
            ErrorKind::FailedPrecondition,
            format!(
                "cgroup {} is managed already, as task {other} or above or below it; release that first",
                group.record.path
            ),
        ))
    }

    /// One task a group, and only the caller's own group. A finder has no group of its
    /// own: the operator's settings name the groups that it may take.
    pub(super) fn check_in_place(&self, id: TaskId, group: &Group) -> Result<(), CommandError> {
        self.check_overlap(Some(id), group)?;
        let owner = self.core.task(id).and_then(|task| self.owner_only(task));
        let Some(owner) = owner else { return Ok(()) };
        self.state.world.check_owner(group, owner).map_err(cgroup_error)
    }

    /// The only uid with processes that may be managed for that task; `None`: any uid, for an admin
    /// or the operator's settings want it so.
    pub(super) fn owner_only(&self, task: &Task) -> Option<u32> {
        let who = &task.who;
        who.admitted_by.filter(|_| who.found.is_none() && !who.as_admin)
    }

    pub(super) fn attached(&mut self, id: TaskId, result: AttachResult) {
        if self.core.parked(id).is_some() {
            return self.parked(id, result);
        }
        let (group, _, tier) = match result {
            Ok(placed) => placed,
            Err(error) => {
                return match self.judge_anew(id, &error) {
                    Some(ready) => self.prepared(id, ready),
                    None => self.admission_failed(id, self.why_not(id, error)),
                };
            }
        };
        let Some(entry) = self.state.entries.get_mut(&id) else { return };
        let booked = entry.admission.as_mut().and_then(|admission| admission.booked.take());
        if booked.is_some() {
            entry.unattached = None;
            entry.placed_at = self.now.boot;
        }
        let born = TaskSample {
            cpu: Some(Duration::ZERO),
            pressure: self.state.world.figures(&group, &[]).and_then(|figures| figures.pressure),
            ..Default::default()
        };
        let record = group.record.clone();
        entry.written = tier.map(|tier| (Level::from(tier), self.now.boot));
        entry.group = Some(group);
        // An owner's quota is part of how a task was admitted.
        self.read_back(id);
        self.push(Input::Attached { task: id, group: record, born });
    }

    /// Looks again at an admitted process that was moved between its judgement and its move, and whether
    /// it may be moved from there. systemd on v1 does that to all in a slice when the first unit beside
    /// them gets a controller, as `lrs-tasks.scope` does. `None`: the attach failed for another reason, or
    /// too often.
    fn judge_anew(
        &mut self,
        id: TaskId,
        error: &CgroupError,
    ) -> Option<Result<Ready, CommandError>> {
        // A group that stays would be removed below the task.
        if !matches!(error, CgroupError::MovedMeanwhile(_)) || self.state.debts.has_removal(id) {
            return None;
        }
        let admission = self.admission_of(id)?;
        if admission.judged_anew == MOST_JUDGED_ANEW || admission.claim.is_none() {
            return None;
        }
        admission.judged_anew += 1;
        tracing::debug!(task = %id, %error, "the process of task {id} is judged anew: {error}");
        let claim = self.state.entries.get(&id)?.admission.as_ref()?.claim.as_ref()?;
        Some(self.still_may(id, claim).and_then(|()| self.prepare_attach(id)))
    }

    /// [`lrs_core::step::Job::Watch`].
    pub(super) fn begin_watching(&mut self, id: TaskId) {
        self.watch(id);
        if let Some(level) = self.core.level(id) {
            self.tell_unit(id, level);
        }
        let admission = self.state.entries.get_mut(&id).map(|entry| entry.take_admission());
        let Admission { replies, found_replies, waited, .. } = admission.unwrap_or_default();
        if let Some(task) = self.core.task(id).filter(|_| waited) {
            // In the very input that freed a slot it is given to a request that waits.
            self.state.began.push(task.admitted_at.boot);
        }
        for reply in found_replies {
            self.answer(Some(reply), Ok(id));
        }
        if let Some(task) = self.task_view(id, self.now.boot) {
            self.answer_all(replies, Ok(task));
        }
        // It may have ended while it was being moved.
        self.check_ended(&[id]);
    }

    /// Why the weights of a group were not written. The files of a unit go with its last process.
    fn why_not(&self, id: TaskId, error: CgroupError) -> CommandError {
        let who = self.core.task(id).map(|task| &task.who);
        let ended =
            who.and_then(|who| who.process).is_some_and(|main| !self.state.world.lives(main));
        match who.and_then(|who| who.unit.as_ref()) {
            Some(unit) if ended => super::units::unit_stopped(&unit.name),
            _ => cgroup_error(error),
        }
    }

    /// Weights, watches and sampling of a task that is in place.
    pub(super) fn watch(&mut self, id: TaskId) {
        let written = self.state.entries.get(&id).and_then(|entry| entry.written);
        if self.align(id, written.map(|(level, _)| level)) {
            self.read_back(id);
        }
        let Some(task) = self.core.task(id) else { return };
        let (process, main_exited) = (task.who.process, task.main_exited);
        let Some(entry) = self.state.entries.get_mut(&id) else { return };
        let unwatched = process.filter(|main| !entry.watched.contains_key(&main.pid));
        if let (Some(process), false) = (unwatched, main_exited) {
            let pin = entry.admission.as_mut().and_then(|admission| admission.pin.take());
            match self.state.world.watch(id, process.pid, Some(process.start_ticks), pin) {
                Ok(Some(key)) => {
                    entry.watched.insert(process.pid, key);
                }
                Ok(None) => self.main_exited(id),
                Err(error) => {
                    tracing::debug!(task = %id, %error, "the main process of task {id} is not watched: {error}");
                }
            }
        }
        let Some(group) = self.state.entries.get(&id).and_then(|entry| entry.group.clone()) else {
            return;
        };
        self.enter_ratio_group(id);
        if let Err(error) = self.state.world.watch_group(id, &group) {
            // The second source; pidfds and the check of every cycle remain.
            tracing::debug!(task = %id, %error, "cgroup.events of task {id} is not watched: {error}");
        }
        let source = match (group.record.attachment, process) {
            (Attachment::None, Some(process)) => Some(TaskSource::Processes(process)),
            (Attachment::None, None) => None,
            // On v1 an owner may have made its group with the cpu controller alone.
            (Attachment::InPlace, Some(process))
                if self.state.world.figures(&group, &[]).is_none_or(|now| now.cpu.is_none()) =>
            {
                Some(TaskSource::Processes(process))
            }
            (Attachment::Own | Attachment::InPlace, _) => {
                Some(TaskSource::Group(group.dirs.clone()))
            }
        };
        self.state.sources_new.extend(source.map(|source| (id, source)));
        self.state.touched.tasks.insert(id);
    }

    /// The loop holds a task no more.
    pub(super) fn forget_entry(
        &mut self,
        id: TaskId,
        process: Option<ProcessRef>,
    ) -> Option<Box<Entry>> {
        let mut entry = self.state.entries.remove(&id)?;
        self.state.cpu_files.remove(&id);
        self.state.unwritten.remove(&id);
        self.state.taken.forget(id);
        if let Some(process) = process {
            self.state.mains.remove(&process);
        }
        self.leave_ratio_group(entry.competes_in.take());
        Some(entry)
    }

    /// The weights of the group of `id` compete with those of its neighbours from now on.
    pub(super) fn enter_ratio_group(&mut self, id: TaskId) {
        let Some(entry) = self.state.entries.get_mut(&id) else { return };
        if let (None, Some(group)) = (&entry.competes_in, &entry.group) {
            entry.competes_in = ratio_group(group).map(str::to_owned);
            if let Some(parent) = entry.competes_in.clone() {
                *self.state.ratio_groups.entry(parent).or_default() += 1;
            }
        }
    }

    /// They do so no more; `parent`: [`Entry::competes_in`].
    pub(super) fn leave_ratio_group(&mut self, parent: Option<String>) {
        let Some(parent) = parent else { return };
        let last = self.state.ratio_groups.get_mut(&parent).is_none_or(|tasks| {
            *tasks = tasks.saturating_sub(1);
            *tasks == 0
        });
        if last {
            self.state.ratio_groups.remove(&parent);
        }
    }

    /// An admission comes to nothing: the core takes it back, then [`Self::refuse`].
    pub(super) fn admission_failed(&mut self, id: TaskId, error: CommandError) {
        let Some(entry) = self.state.entries.get_mut(&id) else { return };
        let reason = error.message.clone();
        entry.admission.get_or_insert_default().failed = Some(error);
        self.push(Input::AttachFailed { task: id, reason });
    }

    /// [`lrs_core::step::Job::Refuse`]: the promise it used is back by now.
    pub(super) fn refuse(&mut self, id: TaskId, process: Option<ProcessRef>) {
        let failed = self.admission_of(id).and_then(|admission| admission.failed.take());
        let Some(error) = failed else { return };
        if self.core.task(id).is_some() {
            return self.booked_is_refused(id, error);
        }
        let Some(mut entry) = self.forget_entry(id, process) else { return };
        let Admission { replies, found_replies, .. } = entry.take_admission();
        self.found_is_refused(found_replies, &error);
        let over = self.core.stored_task(id).filter(|task| task.owes_unit());
        if let Some(unit) = over.and_then(|task| task.who.unit.clone()) {
            // Answered once nothing of it is left, in systemd either.
            let called_off = Some(CalledOff { replies, error });
            return self.restore_unit(id, entry.group, unit, called_off);
        }
        self.answer_all(replies, Err(error));
    }
}

/// What a group used before it was the task's; the most that it ever had is not the task's either.
fn without_peak(figures: TaskSample) -> TaskSample {
    TaskSample { memory_peak: None, ..figures }
}

/// The group in which a task's weights compete; `None` without one.
fn ratio_group(group: &Group) -> Option<&str> {
    group.record.path.rsplit_once('/').map(|(parent, _)| parent)
}
