//! One turn of the loop, and the last one.
//!
//! [`Loop::with`] alone changes the core. It lets the executor take one thing that happened; then the
//! core decides on what was noticed, one input at a time, and each step is carried out whole before the
//! next input. Nothing can be decided while a step is half carried out, since the executor borrows the
//! core immutably. Where something has to be done after the core has decided, it is a `with` of its own
//! here.

use std::time::Duration;

use serde_json::Map;
use tokio::sync::mpsc::UnboundedReceiver;

use super::debts::Debt;
use super::message::Message;
use super::postponed::PostponedRequest;
use super::world::World;
use super::{Executor, Loop};
use crate::command::{Command, CommandError, ErrorKind};
use crate::recorder::{Recorded, Recorder};
use lrs_core::event::EventKind;
use lrs_core::model::TaskId;
use lrs_core::shaper::Shaper;
use lrs_core::step::Input;
use lrs_core::units::{BootTime, Moment, Pid};

/// An end that the world noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A process of this task ended.
    Process(TaskId, Pid),
    /// The task's cgroup changed between empty and not.
    Group(TaskId),
}

/// What a turn takes.
#[derive(Debug, Default)]
pub struct Happened {
    /// All ends since the last turn.
    pub ends: Vec<End>,
    /// What was begun and is done, and what the operator wants.
    pub messages: Vec<Message>,
    /// What clients ask for.
    pub commands: Vec<Command>,
    /// The CPU time that this process has used.
    pub cpu: Duration,
}

impl<W: World> Loop<W> {
    /// The node, for what is beside the turns.
    pub fn world(&mut self) -> &mut W {
        &mut self.state.world
    }

    /// The same, when the loop is over.
    pub fn into_world(self) -> W {
        self.state.world
    }

    /// What has been decided.
    pub fn core(&self) -> &Shaper {
        &self.core
    }

    /// Of the tasks that the last turn put in place and that had to wait for a slot: when theirs came
    /// free.
    pub fn began(&self) -> &[BootTime] {
        &self.state.began
    }

    /// How long nothing is due.
    pub fn until_next(&mut self, now: Moment) -> Duration {
        self.executor(now).until_next()
    }

    /// Takes what has happened, decides, carries out, publishes, and then answers.
    pub fn turn(&mut self, happened: Happened, now: Moment) {
        let Happened { ends, messages, commands, cpu } = happened;
        self.state.pacing.begin_turn(cpu);
        self.state.began.clear();
        // All ends of a turn together, so that no task that ended in the same instant is promoted.
        let suspects = self.with(now, |executor| executor.take_exits(&ends));
        self.with(now, |executor| executor.check_ended(&suspects));
        self.with(now, |executor| executor.tell_exits());
        for message in messages {
            self.message(message, now);
        }
        for command in commands {
            self.command(command, now);
        }
        // Each goes by what was decided before: what a cycle compares is what was written by then.
        self.with(now, |executor| executor.take_deadlines());
        self.with(now, |executor| executor.take_looks());
        self.with(now, |executor| executor.begin_cycle());
        self.with(now, |executor| {
            executor.publish();
            // The next waiters may take a moment, the one that got a slot may not.
            executor.park_next();
        });
        let mut executor = self.executor(now);
        if !executor.state.answers.is_empty() {
            executor.publish();
        }
        if !executor.state.reading {
            executor.state.pacing.took();
        }
        executor.follow_ramp(now.boot);
    }

    /// A turn has ended, and this process has used `cpu` by now.
    pub fn turned(&mut self, cpu: Duration) {
        self.state.pacing.end_turn(cpu);
    }

    /// Has the executor take something that happened, and the core decide on what it noticed.
    pub(super) fn with<T>(
        &mut self,
        now: Moment,
        take: impl FnOnce(&mut Executor<'_, W>) -> T,
    ) -> T {
        let taken = take(&mut self.executor(now));
        while let Some(input) = self.state.inputs.next_input() {
            let recorded = self.recorder.is_some().then(|| input.clone());
            let step = self.core.handle(input, now);
            if let Some(input) = recorded {
                self.recorder = self.recorder.take().filter(|it| it.step(now, input, &step));
            }
            self.executor(now).carry_out(step);
        }
        taken
    }

    fn executor(&mut self, now: Moment) -> Executor<'_, W> {
        Executor { core: &self.core, state: &mut self.state, now }
    }

    fn message(&mut self, message: Message, now: Moment) {
        match message {
            Message::Reload => {
                if let Err(error) = self.reload(now) {
                    // An operator asked, and each time is answered: the time makes each line its own.
                    tracing::error!(%error, asked_at = %now.wall, "the configuration was not reloaded: {error}");
                }
            }
            Message::Cycle(report) => self.cycle(*report, now),
            Message::ReadAhead(ahead) => {
                self.with(now, |executor| executor.read_ahead(*ahead));
                self.with(now, |executor| executor.replan());
            }
            Message::Released { task, result } => {
                let returned = self.with(now, |executor| executor.released(task, result));
                // One that could not be released may have ended meanwhile.
                self.with(now, |executor| executor.check_ended(&[task]));
                self.admit_all(returned, now);
            }
            Message::Reattached { task, result } => {
                if self.with(now, |executor| executor.reattached(task, result)) {
                    // It may have ended, or have been moved again, meanwhile.
                    self.with(now, |executor| executor.check_ended(&[task]));
                }
            }
            message => self.with(now, |executor| executor.take_message(message)),
        }
    }

    fn command(&mut self, command: Command, now: Moment) {
        match command {
            Command::SetPriority { caller, id, priority, reply } => {
                let set = self.with(now, |executor| executor.set_priority(&caller, id, priority));
                self.with(now, |executor| {
                    let answer = set.and_then(|()| executor.answer_of(id));
                    executor.answer(Some(reply), answer);
                });
            }
            Command::Reload { caller, reply } => {
                let may = self.with(now, |executor| executor.may_operate(&caller));
                let answer = may.and_then(|()| self.reload(now));
                self.with(now, |executor| executor.answer(Some(reply), answer));
            }
            Command::Record { caller, reply } => {
                let may = self.with(now, |executor| executor.may_operate(&caller));
                let answer = may.and_then(|()| self.record(now));
                self.with(now, |executor| executor.answer(Some(reply), answer));
            }
            Command::Looked(look) => self.admit_sought(look, now),
            command => self.with(now, |executor| executor.command(command)),
        }
    }

    /// Applies the configuration file, all of it or nothing; answers the keys that changed.
    fn reload(&mut self, now: Moment) -> Result<Vec<String>, CommandError> {
        let changed = self.with(now, |executor| executor.reload())?;
        self.with(now, |executor| executor.reloaded(&changed));
        Ok(changed)
    }

    /// Records from the next input on.
    fn record(&mut self, now: Moment) -> Result<UnboundedReceiver<Recorded>, CommandError> {
        if self.recorder.as_ref().is_some_and(Recorder::is_read) {
            return Err(CommandError::new(
                ErrorKind::FailedPrecondition,
                "another client records already, and there is one recording at a time",
            ));
        }
        let (recorder, recorded) = Recorder::new();
        recorder.begin(&self.core, now);
        self.recorder = Some(recorder);
        Ok(recorded)
    }

    /// Goes on with the requests that waited for the finders' look `look` or one before, and with those
    /// that wait too long for that.
    pub(super) fn admit_sought(&mut self, look: u64, now: Moment) {
        let due = self.with(now, |executor| executor.take_sought(look));
        self.admit_all(due, now);
    }

    /// Each by itself: what one gets decides about the next.
    fn admit_all(&mut self, requests: Vec<PostponedRequest>, now: Moment) {
        for PostponedRequest { caller, request, pid, report, reply } in requests {
            self.with(now, |executor| {
                executor.admit_process(caller, request, pid, report, reply);
            });
        }
    }

    /// The loop is to end: tasks keep running with the weights they have. Then what was begun is
    /// finished, for [`Loop::end`].
    pub fn begin_end(&mut self, now: Moment) {
        self.with(now, |executor| {
            let tasks = executor.state.entries.len();
            let reason = format!("lrsd stops; {tasks} tasks keep running");
            executor.note(EventKind::Stopped, None, reason, Map::new());
            executor.push(Input::Stop);
        });
        let mut executor = self.executor(now);
        executor.pay_thaws();
        // Before the jobs are waited for, which may take longer than the stop may; and again when what
        // they finished may have changed it.
        executor.leave_root();
    }

    /// Takes what was finished meanwhile, and leaves the node as it is for the next daemon. What was
    /// measured is stored.
    pub fn end(&mut self, messages: Vec<Message>, now: Moment) {
        for message in messages {
            match message {
                Message::Released { task, result } => {
                    drop(self.with(now, |executor| executor.released(task, result)));
                }
                message @ (Message::Attached { .. }
                | Message::NotRemoved { .. }
                | Message::UnitRestored { .. }
                | Message::Exit { .. }
                | Message::TiersTested { .. }) => {
                    self.with(now, |executor| executor.take_message(message));
                }
                // A reading does not matter any more.
                Message::UnitLooked { .. }
                | Message::FoundLooked { .. }
                | Message::UnitPrepared { .. }
                | Message::UnitAnswered { .. }
                | Message::Reattached { .. }
                | Message::RootRemade
                | Message::RootShaped { .. }
                | Message::Cycle(_)
                | Message::ReadAhead(_)
                | Message::Looks(_)
                | Message::Reload => {}
            }
        }
        let mut executor = self.executor(now);
        for (task, group) in executor.state.debts.take_removals() {
            if let Err(error) = executor.state.world.remove(&group) {
                tracing::warn!(%task, %error, "the cgroup of task {task}, which has ended, stays: {error}");
            }
        }
        executor.unpark_all();
        executor.leave_root();
        executor.publish();
        let placed: Vec<TaskId> = executor.state.entries.keys().copied().collect();
        for id in placed {
            executor.store_task(id);
        }
    }

    /// The loop cannot go on: the most that the root may weigh is left behind.
    pub fn abandon(&mut self, now: Moment) {
        self.executor(now).leave_root();
    }
}

impl<W: World> Executor<'_, W> {
    /// How long nothing is due.
    fn until_next(&self) -> Duration {
        let now = self.now.boot;
        let cycle = if self.state.reading {
            // The reading's own message wakes the loop; this bounds a clock that jumped.
            self.period()
        } else {
            self.state.next_cycle.since(now)
        };
        let is_looked_at = self.core.looked_at().next().is_some();
        let look = is_looked_at.then_some(self.state.next_cpu_look);
        // One under way wakes the loop itself.
        let ramp = self.state.ramp.due().filter(|_| !self.state.reading);
        let others = [self.core.next_deadline(), look, ramp].into_iter().flatten();
        others.fold(cycle, |first: Duration, other: BootTime| first.min(other.since(now)))
    }

    /// Waits and reservations that are over.
    fn take_deadlines(&mut self) {
        // A slot that comes free by time is not for one that has gone.
        self.forget_closed_waiters();
        if self.core.next_deadline().is_some_and(|deadline| deadline <= self.now.boot) {
            self.push(Input::Tick);
        }
    }

    fn take_looks(&mut self) {
        if self.core.looked_at().next().is_none() {
            self.state.cpu_files.clear();
        } else if self.now.boot >= self.state.next_cpu_look {
            self.look_at_cpu();
        }
    }

    /// Asks for a cycle's readings when they are due.
    fn begin_cycle(&mut self) {
        self.follow_pace(self.now.boot);
        if self.now.boot >= self.state.next_cycle && !self.state.reading {
            self.request_cycle();
        }
    }

    /// An answer of a thread after which nothing has to be done here.
    fn take_message(&mut self, message: Message) {
        match message {
            Message::Attached { task, result } => self.attached(task, result),
            Message::RootRemade => self.shape_root(),
            Message::RootShaped { result } => self.root_shaped(result),
            Message::NotRemoved { task, group, error } => {
                tracing::debug!(%task, %error, "the cgroup made for task {task} stays until the next cycle: {error}");
                self.state.debts.push(Debt::Removal { task, group });
            }
            Message::UnitLooked { asking, result } => self.looked_up(*asking, result),
            Message::FoundLooked { found, report, reply } => {
                self.discover_as(*found, &report, reply)
            }
            Message::UnitPrepared { task, result } => self.unit_prepared(task, result),
            Message::UnitAnswered { task, result } => self.unit_answered(task, result),
            Message::UnitRestored { task, result, called_off } => {
                self.unit_restored(task, result, called_off);
            }
            Message::Exit { task, process, exit } => self.exit_found(task, process, exit),
            Message::Looks(looks) => self.push(Input::Looked(looks)),
            Message::TiersTested { result } => self.tiers_tested(result),
            // Theirs is in the loop itself.
            Message::Released { .. }
            | Message::Reattached { .. }
            | Message::Cycle(_)
            | Message::ReadAhead(_)
            | Message::Reload => {}
        }
    }
}
