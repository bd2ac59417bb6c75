//! Tasks that a finder found running: from what it says to a task.
//!
//! No client asks for them, so no rights are checked and no client waits: the core seats them
//! whatever is free, drained or held, once they are in place. What is checked is whether the
//! process may be taken the way the finder says, and that is checked here, whoever runs it: no
//! move lifts it out of a finite limit, no group is taken that it is not in, none twice. Where the
//! process was then goes with the move, which is refused if it is elsewhere by that time.
//!
//! The finder asks again whenever it looks. The same process is then the same task, also after a
//! restart, and what the finder has learnt meanwhile is taken over.
//!
//! # What is different from an admission
//!
//! - No client asked, so no rights are checked and no client waits: clients' jobs go first on the placing
//!   thread. What runs is seated whatever is free, drained or held: active, passive, or beyond
//!   capacity (overflow). A slotless one has active weights and is counted nowhere.
//! - It gets its seat when its processes are in place (`Seat::Arriving` until then, with passive
//!   weights): an attach may fail, is tried again after growing pauses, and must not disturb anybody who
//!   is seated. It counts as no refused request, is logged once for each reason, and stays on the
//!   list of ignored containers.
//! - An opportunistic task comes behind every other, whatever the priorities: that is the first
//!   component of its rank. It is promoted last, gives up its active slot to anybody, and is put
//!   beyond capacity before another found task is (`core/shaper/standing.rs`). `lowest_active_priority` is
//!   the lowest there is while one of them is active, since any priority takes its slot.
//! - It is taken in one of three ways. *Session*: everything of the session that shares its leader's
//!   group is moved, orphans that init has adopted included, pass after pass until one finds no process
//!   outside (`cgroup/kin.rs`). *Descendants*: as Admit does. *In place*: only if the process is
//!   still in the group it was found in; on v1 in the hierarchies where it has that path, which for
//!   YARN's LinuxContainerExecutor may be cpu alone. Then CPU time is read of the processes.
//! - The place in which it was judged goes with the job. A process that was moved since, in
//!   any hierarchy, is left where it is, and judged anew with the next attempt.
//! - Where its finder does not know its standing yet, and its owner has one (YARN's
//!   LinuxContainerExecutor), the least CPU weight marks an opportunistic one. Asked of the weight
//!   found, so once: what is there later is LRS's. Container 1 of an attempt, if it says of itself
//!   that it is the master, is presumed to be (no slot) until the ResourceManager says otherwise; that
//!   stands, also when the next lrsd has yet to ask.
//! - No move lifts a process out of a finite limit of its group, whoever runs it: there is no
//!   administrator who could want that. It is refused, with what to do. What a rule would move out of
//!   the hands of another manager, or of a service that would not find it when it stops, stays where it is too
//!   ([`lrs_core::leaving`]); only YARN's containers leave the unit of their NodeManager.
//! - Asked again for the same process the loop answers with the same task, also after a restart,
//!   and takes over what the finder has learnt: standing, missing labels, and the priority where the
//!   finder says another one than last time, so that an operator's word stands.
//! - It is the operator's: the user of the container may neither release it nor change its
//!   priority.
//! - A task that was released is not taken again while this daemon runs, nor is one that was
//!   moved away again and again. A process that waits for a slot by Admit is left to that.
//! - After a `kill -9` on the way it is rolled back like any admission, and found again.
//! - One that observe mode booked (attachment `none`) is attached when its finder names it to a daemon
//!   that enforces; its id, seat and order are what they were. The record keeps what it was before
//!   (`booked`) until the attach is over, so that the next daemon can undo half of one. Then `attached`
//!   goes to the journal, then the final state to the record. What clients admitted in observe mode the
//!   loop attaches itself (`booked.rs`). The way back is before the loop: a daemon that observes
//!   first releases what its records name (`give_back.rs`), and the tasks stay.
//!
//! A quota that an owner has set on its group (YARN's strict mode) is read with the weights and shown
//! as `cpu_quota`: weights order such tasks, but spare CPU above the quota stays unused. Foreign
//! changes that were put right are counted in `repaired`.
//!
//! Limits. That a found task was released is forgotten with the daemon: the next one
//! takes it again. A unit of systemd's taken in place by a rule is managed by its files alone; a
//! daemon-reload is repaired like any foreign change.

use serde_json::{Value, json};

use super::Executor;
use super::claim::{Admission, Requester};
use super::job::UnitJob;
use super::keeping::UnitReport;
use super::world::{Identity, Move, World};
use crate::command::{Caller, CommandError, ErrorKind, Reply, cgroup_error};
use crate::found::{Attach, DiscoveredTask, Finder, Presumed};
use crate::group::{Group, Kin, Origin, Reach};
use crate::rights::{Action, Role};
use lrs_core::event::Event;
use lrs_core::model::{Standing, TaskId};
use lrs_core::state::{Need, Request};
use lrs_core::step::{FoundAgain, Input};
use lrs_core::task::{FoundRecord, Task, Who};
use lrs_core::units::ProcessRef;

/// How a found process is taken.
pub(super) struct Place {
    /// Who is moved with it, unless it is taken in place.
    pub(super) kin: Kin,
    /// Where it was when that was judged, per hierarchy.
    pub(super) origin: Origin,
    /// The group it is taken in.
    pub(super) group: Option<Group>,
    /// In which hierarchies it is moved.
    pub(super) reach: Reach,
}

impl<W: World> Executor<'_, W> {
    /// [`crate::command::Command::Discover`].
    pub(super) fn discover(&mut self, found: DiscoveredTask, reply: Reply<TaskId>) {
        if self.asks_about_found(&found) {
            let found = Box::new(found);
            return self.begin(UnitJob::LookFound { found, reply });
        }
        self.discover_as(found, &UnitReport::default(), reply);
    }

    /// `report`: of the unit that it is in.
    pub(super) fn discover_as(
        &mut self,
        found: DiscoveredTask,
        report: &UnitReport,
        reply: Reply<TaskId>,
    ) {
        let mut reply = Some(reply);
        match self.begin_discovery(found, report, &mut reply) {
            Ok(Some(id)) => self.answer(reply, Ok(id)),
            // Answered once its processes are in place.
            Ok(None) => {}
            Err(error) => self.answer(reply, Err(error)),
        }
    }

    fn begin_discovery(
        &mut self,
        found: DiscoveredTask,
        report: &UnitReport,
        reply: &mut Option<Reply<TaskId>>,
    ) -> Result<Option<TaskId>, CommandError> {
        let pinned = self.state.world.identify(found.process.pid)?;
        let process = pinned.process;
        if process != found.process {
            return Err(crate::command::gone(found.process.pid));
        }
        if let Some(id) = self.state.mains.get(&process).copied() {
            return self.found_again(id, found, (&pinned, report), reply);
        }
        if let Some(id) = self.task_of(process) {
            return Err(in_task(process, id));
        }
        if found.again || self.state.not_again.contains(&process) {
            return Err(refused(format!(
                "process {} was a found task and was released; it is left alone until it ends",
                process.pid
            )));
        }
        if self.waiting(process).is_some() {
            return Err(refused(format!(
                "process {} waits for a slot that was asked for it; it is not taken meanwhile",
                process.pid
            )));
        }
        let place = self.place_of(&found, &pinned, report)?;
        let DiscoveredTask { labels, priority, standing, presumed, finder, .. } = found;
        let standing = standing.or_else(|| match presumed {
            Presumed::Slot => None,
            Presumed::Slotless => Some(Standing::Slotless),
            Presumed::LeastIsOpportunistic => has_least(&place).then_some(Standing::Opportunistic),
        });
        let Place { kin, origin, group, reach } = place;
        let found = FoundRecord { by: finder, priority, standing, kin };
        let who = Who { process: Some(process), found: Some(found), origin, ..Who::default() };
        let request = Request {
            uid: pinned.uids.effective,
            who,
            labels,
            priority,
            reservation: None,
            need: match standing {
                None | Some(Standing::Slot | Standing::Opportunistic) => Need::Discovered,
                Some(Standing::Slotless) => Need::Slotless,
            },
            opportunistic: standing == Some(Standing::Opportunistic),
            // It does not wait.
            by_member: false,
        };
        let admission = Admission {
            pin: Some(pinned.pin),
            in_place: group.is_some(),
            found_in: group,
            reach,
            found_replies: reply.take().into_iter().collect(),
            ..Admission::default()
        };
        let ticket = self.ticket(Requester::Task(Box::new(admission)));
        self.push(Input::Request { ticket, request, patience: None });
        Ok(None)
    }

    /// How the process is taken, if it may be taken that way.
    fn place_of(
        &self,
        found: &DiscoveredTask,
        pinned: &Identity,
        report: &UnitReport,
    ) -> Result<Place, CommandError> {
        let process = pinned.process;
        let origin = self.state.world.position(process).map_err(cgroup_error)?.origin;
        let kin = match &found.attach {
            Attach::InPlace { cgroup } => {
                let group =
                    self.state.world.find_in_place(process, Some(cgroup)).map_err(cgroup_error)?;
                self.check_overlap(None, &group)?;
                let group = Some(group);
                return Ok(Place { kin: Kin::Descendants, origin, group, reach: Reach::All });
            }
            Attach::Session { .. } if !pinned.leads_session => {
                return Err(refused(format!(
                    "process {} does not lead its session, so it is not the first process of a \
                     container",
                    process.pid
                )));
            }
            Attach::Session { .. } => Kin::Session,
            Attach::Descendants { .. } => Kin::Descendants,
        };
        if let Some(why) = self.core.why_root_frozen() {
            return Err(refused(format!("process {} is not taken now: {why}", process.pid)));
        }
        if let Some(from) = found.attach.from() {
            // The hierarchy with the cpu controller comes first.
            let present = origin.first().map(|(_, path)| path.as_str());
            if present != Some(from) {
                return Err(refused(format!(
                    "process {} is in the cgroup {}, not in {from} any more, where it was found: \
                     it was moved there meanwhile",
                    process.pid,
                    present.unwrap_or("that cannot be seen from here")
                )));
            }
        }
        let reach = self.reach_of_found(&found.finder, process, report)?;
        if reach == Reach::Weights {
            return Ok(Place { kin, origin, group: None, reach });
        }
        match self.state.world.escaped_limit(process, Move::ToRoot) {
            None => Ok(Place { kin, origin, group: None, reach }),
            Some(reason) => Err(refused(format!(
                "{reason}; take the limit off, or have the process managed in place"
            ))),
        }
    }

    /// The finder says of a known process what it says now.
    fn found_again(
        &mut self,
        id: TaskId,
        found: DiscoveredTask,
        (pinned, report): (&Identity, &UnitReport),
        reply: &mut Option<Reply<TaskId>>,
    ) -> Result<Option<TaskId>, CommandError> {
        let attach = self.is_to_be_attached(id);
        let renamed = |by: &Finder| {
            // What was watched to try a rule out may be found by another one now.
            attach && matches!((by, &found.finder), (Finder::Rule(_), Finder::Rule(_)))
        };
        let task = self.core.task(id).filter(|task| match &task.who.found {
            Some(known) => known.by == found.finder || renamed(&known.by),
            None => false,
        });
        let (Some(task), Some(entry)) = (task, self.state.entries.get_mut(&id)) else {
            return Err(in_task(found.process, id));
        };
        if task.is_releasing() {
            let reason = format!("task {id} is being released");
            return Err(CommandError::new(ErrorKind::Unavailable, reason));
        }
        if task.is_attaching() {
            entry.admission.get_or_insert_default().found_replies.extend(reply.take());
        }
        let again = FoundAgain {
            by: found.finder.clone(),
            labels: found.labels.clone(),
            priority: found.priority,
            standing: found.standing,
            // What it is can be learnt after it was found.
            presumed_slotless: found.presumed == Presumed::Slotless,
        };
        self.push(Input::FoundAgain { task: id, found: again });
        if attach {
            return self.attach_found(id, &found, (pinned, report), reply);
        }
        Ok(reply.is_some().then_some(id))
    }

    /// Attaches a task that was found in observe mode, as the finder says now.
    fn attach_found(
        &mut self,
        id: TaskId,
        found: &DiscoveredTask,
        (pinned, report): (&Identity, &UnitReport),
        reply: &mut Option<Reply<TaskId>>,
    ) -> Result<Option<TaskId>, CommandError> {
        let place = match self.place_of(found, pinned, report) {
            Ok(place) => place,
            Err(error) => return Err(self.stays_booked(id, error)),
        };
        let Some(entry) = self.state.entries.get_mut(&id) else { return Ok(Some(id)) };
        entry.admission.get_or_insert_default().found_replies.extend(reply.take());
        let known = self.core.task(id).and_then(|task| task.who.found.as_ref());
        let unsaid =
            known.is_some_and(|known| known.standing.is_none()) && found.standing.is_none();
        if unsaid && found.presumed == Presumed::LeastIsOpportunistic && has_least(&place) {
            // Observe mode does not read the weights of a group.
            let standing = Standing::Opportunistic;
            self.push(Input::SetStanding { task: id, standing });
        }
        self.attach_booked(id, place, false);
        Ok(None)
    }

    /// Answers the finder of what could not be put in place.
    pub(super) fn found_is_refused(&mut self, replies: Vec<Reply<TaskId>>, error: &CommandError) {
        for reply in replies {
            self.answer(Some(reply), Err(error.clone()));
        }
    }

    /// A found task is the operator's, not its user's, who did not ask for it and could otherwise
    /// leave the place it was given.
    pub(super) fn may_act(
        &self,
        caller: &Caller,
        action: Action,
        task: &Task,
    ) -> Result<(), CommandError> {
        let found = task.who.found.as_ref();
        let Some(found) = found.filter(|_| self.state.rights.role(caller) == Role::Member) else {
            return self.state.rights.check(caller, action, task.uid);
        };
        Err(CommandError::new(
            ErrorKind::PermissionDenied,
            format!(
                "uid {} may not {action} here: the task was found by {}, so that takes root or a \
                 uid listed in [grpc] admins",
                caller.uid, found.by
            ),
        ))
    }

    /// Adds to the `admitted` event what its owner caps it at.
    pub(super) fn tell_quota(&self, event: &mut Event) {
        let Some(id) = event.task.as_deref().and_then(|id| id.parse().ok()) else { return };
        let Some(entry) = self.state.entries.get(&id) else { return };
        if let Some(quota) = entry.kernel.cpu_quota {
            event.inputs.insert("cpu_quota".into(), json!(quota.cpus()));
            let note = Value::from("capped by quota: it cannot use spare CPU");
            event.inputs.insert("note".into(), note);
        }
    }
}

/// Whether it is taken in place with the weight that marks what is opportunistic.
fn has_least(place: &Place) -> bool {
    place.group.as_ref().is_some_and(|group| lrs_core::weights::has_least_cpu_weight(&group.record))
}

fn refused(reason: String) -> CommandError {
    CommandError::new(ErrorKind::FailedPrecondition, reason)
}

fn in_task(process: ProcessRef, id: TaskId) -> CommandError {
    CommandError::new(
        ErrorKind::AlreadyExists(id),
        format!(
            "process {} is in task {id}, which another client or finder announced",
            process.pid
        ),
    )
}
