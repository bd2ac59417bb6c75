//! The node as the loop's [`World`](crate::executor::world::World): its cgroups, its processes, the
//! threads beside the loop, the records, and what wakes the loop.
//!
//! | file | job |
//! |---|---|
//! | `start` | from its parts to a loop |
//! | `run` | waits, gives the loop its turns, ends it |
//! | `kernel` | cgroups and processes, at once |
//! | `watch`, `exits` | ends of processes; how they ended |
//! | `worker` | starts and stops the threads beside the loop |
//! | `placer`, `reader`, `units` | what they do: attaching, reading, asking systemd |
//! | `queue`, `outbox` | the jobs of a thread; its way back to the loop |
//! | `process`, `rights` | who a pid is; who may do what |
//!
//! It decides nothing: what to do, and in which order, is the loop's ([`crate::executor`]).

pub(crate) mod exits;
mod kernel;
mod outbox;
mod placer;
pub(crate) mod process;
mod queue;
mod reader;
pub(crate) mod rights;
mod run;
mod start;
mod units;
mod verify;
mod watch;
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::access::CommandReceiver;
use crate::access::take_commands;
use crate::cgroup::{Group, TierTree};
use crate::config::Config;
use crate::core::event::Event;
use crate::core::model::TaskId;
use crate::core::step::Record;
use crate::executor::job::Job;
use crate::executor::message::Message;
use crate::executor::turn::Happened;
use crate::executor::world::{
    Facts, HowEnded, Jobs, Key, NotStored, Pin, Records, Settings, Storable, Watch,
};
use crate::kernfs::files::Descriptors;
use crate::rights::Rights;
use crate::state::{StateError, Store};
use crate::units::{Pid, ProcessRef};
use exits::of_pidfd;
use outbox::{ExitLookup, Inward, Unknown};
use watch::{Ended, Ready, Watcher};
use worker::Workers;

pub use run::{LoopError, run};
pub use start::{Parts, StartError, start};

/// Changes the log filter; the error says what is wrong with the new directives.
pub type ReloadLog = Box<dyn Fn(&str) -> Result<(), String> + Send>;

/// Main processes that their parents have not waited for yet, so that no descriptor is kept for
/// each child that is never waited for.
const MOST_UNREAPED: usize = 1024;

/// See the module.
pub struct Node {
    tree: Arc<TierTree>,
    store: Store,
    watcher: Watcher,
    workers: Workers,
    inbox: Receiver<Inward>,
    commands: CommandReceiver,
    config_file: PathBuf,
    reload_log: ReloadLog,
    /// Processes that ended before this turn.
    ended: Vec<Ended>,
    /// Kept, so that a wait allocates nothing.
    ready: Vec<Ready>,
    /// Main processes that have ended and that their parents have not waited for, with their watches.
    unreaped: BTreeMap<TaskId, (ProcessRef, Key)>,
    /// Kept, since each step asks for them: a promotion takes no lock for that.
    facts: Facts,
    /// For the files of CPU time that the loop reads, shared with the sampler.
    descriptors: Descriptors,
    /// Kept, so that such a reading allocates nothing.
    buffer: Vec<u8>,
    /// The loop is to end.
    stop: bool,
}

impl Node {
    /// Waits until something happens or `timeout` is over.
    ///
    /// # Errors
    /// epoll_wait(2) failed.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<Happened> {
        // Closed, they leave the set: else they would wake the loop again.
        self.ended.clear();
        let mut ready = std::mem::take(&mut self.ready);
        self.watcher.wait(timeout, &mut ready)?;
        let mut happened = Happened { cpu: crate::clock::cpu_time(), ..Happened::default() };
        for ended in self.watcher.take_ended() {
            match ended.reaped {
                true => self.reaped(&ended, &mut happened.messages),
                false => self.ended.push(ended),
            }
        }
        for event in &ready {
            match *event {
                Ready::End(end) => happened.ends.push(end),
                Ready::Messages => self.take_messages(&mut happened.messages),
                Ready::Commands => happened.commands = take_commands(&mut self.commands),
            }
        }
        self.ready = ready;
        Ok(happened)
    }

    fn take_messages(&mut self, messages: &mut Vec<Message>) {
        while let Ok(inward) = self.inbox.try_recv() {
            match inward {
                Inward::Loop(message) => messages.push(message),
                Inward::Exit { unknown, found } => messages.extend(self.exit_found(unknown, found)),
                Inward::Stop => self.stop = true,
            }
        }
    }

    /// A parent has waited for a main process.
    fn reaped(&mut self, ended: &Ended, messages: &mut Vec<Message>) {
        let known = self.unreaped.get(&ended.task).filter(|(process, _)| process.pid == ended.pid);
        let Some((process, _)) = known.copied() else { return };
        self.unreaped.remove(&ended.task);
        // Else a kernel that does not keep the status.
        let exit = of_pidfd(ended.pidfd()).ok().flatten();
        messages.push(Message::Exit { task: ended.task, process, exit });
    }

    /// What `lrs-ends` found.
    fn exit_found(&mut self, unknown: Unknown, found: ExitLookup) -> Vec<Message> {
        let Unknown { process, ended } = unknown;
        let task = ended.task;
        let known = |exit| vec![Message::Exit { task, process, exit }];
        match found {
            ExitLookup::Exit(exit) => known(Some(exit)),
            ExitLookup::Never => known(None),
            ExitLookup::NotYet => {
                let mut messages = Vec::new();
                if self.unreaped.len() >= MOST_UNREAPED
                    && let Some((task, (process, key))) = self.unreaped.pop_first()
                {
                    self.watcher.forget_process(key);
                    messages.push(Message::Exit { task, process, exit: None });
                }
                match self.watcher.await_reaped(ended) {
                    Ok(key) => {
                        if let Some((_, before)) = self.unreaped.insert(task, (process, key)) {
                            self.watcher.forget_process(before);
                        }
                    }
                    Err(error) => {
                        stays_unknown(task, &error);
                        messages.extend(known(None));
                    }
                }
                messages
            }
        }
    }
}

/// Tolerated: a status that is not found is a state that clients know, and the task is over.
fn stays_unknown(task: TaskId, error: &io::Error) {
    tracing::debug!(%task, %error, "how the main process of task {task} ended stays unknown: {error}");
}

impl Watch for Node {
    fn watch(
        &mut self,
        task: TaskId,
        pid: Pid,
        start_ticks: Option<u64>,
        pin: Option<Pin>,
    ) -> io::Result<Option<Key>> {
        match pin.and_then(|pin| pin.0) {
            Some(pidfd) => self.watcher.watch_pidfd(task, pid, pidfd).map(Some),
            None => self.watcher.watch_process(task, pid, start_ticks),
        }
    }

    fn watch_group(&mut self, task: TaskId, group: &Group) -> io::Result<()> {
        match &group.dirs.unified {
            Some(dir) => self.watcher.watch_group(task, dir),
            None => Ok(()),
        }
    }

    fn unwatch(&mut self, task: TaskId, processes: impl IntoIterator<Item = Key>) {
        processes.into_iter().for_each(|key| self.watcher.forget_process(key));
        self.watcher.forget_group(task);
    }

    fn how_ended(&mut self, task: TaskId, process: ProcessRef) -> HowEnded {
        let is_it = |ended: &Ended| ended.task == task && ended.pid == process.pid;
        let Some(index) = self.ended.iter().position(is_it) else { return HowEnded::Never };
        let ended = self.ended.swap_remove(index);
        if let Ok(Some(exit)) = of_pidfd(ended.pidfd()) {
            return HowEnded::Known(exit);
        }
        match self.watcher.forget_ended(&ended) {
            Ok(()) => {
                self.workers.look_at_end(Unknown { process, ended });
                HowEnded::Later
            }
            Err(error) => {
                stays_unknown(task, &error);
                HowEnded::Never
            }
        }
    }
}

impl Records for Node {
    fn put(&mut self, known: Storable<'_>) -> Result<(), NotStored> {
        let stored = match known {
            Storable::Task(task) => self.store.put_task(task),
            Storable::Reservation(record) => self.store.put_reservation(record),
        };
        stored.map_err(not_stored)
    }

    fn forget(&mut self, record: Record) -> Result<(), NotStored> {
        let removed = match record {
            // What it was made of is free now.
            Record::Task(id) => self.store.remove_task(id).inspect(|()| crate::trim::ended()),
            Record::Reservation(id) => self.store.remove_reservation(id),
        };
        removed.map_err(not_stored)
    }

    fn append(&mut self, event: &Event) -> Result<(), NotStored> {
        self.store.append(event).map_err(not_stored)
    }

    fn resume(&mut self) -> Result<bool, NotStored> {
        self.store.resume().map_err(not_stored)
    }
}

fn not_stored(error: StateError) -> NotStored {
    NotStored(error.to_string())
}

impl Jobs for Node {
    fn begin(&mut self, job: Job) {
        match job {
            Job::Group(job) => self.workers.place(job),
            Job::Unit(job) => self.workers.ask(job),
            Job::VerifyTiers(plan) => self.workers.verify(Arc::clone(&self.tree), plan),
            Job::Read(request) => {
                if request.cycle.is_some() {
                    self.store.set_aside().look_again();
                }
                self.workers.read(request);
            }
        }
    }
}

impl Settings for Node {
    fn load(&mut self) -> Result<Config, String> {
        let loaded = Config::load_trusted(&self.config_file);
        loaded.map(|loaded| loaded.config).map_err(|errors| errors.to_string())
    }

    fn apply(&mut self, config: &Config) -> Result<Rights, String> {
        (self.reload_log)(&config.daemon.log)?;
        Ok(rights::rights(config))
    }
}

/// What a signal handler wants of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// It ends after the present turn.
    Stop,
    /// It applies the configuration file anew.
    Reload,
}

/// Lets signal handlers reach the loop.
#[derive(Clone)]
pub struct Remote(Arc<dyn Fn(Signal) + Send + Sync>);

impl Remote {
    /// By `send`, which may be called from any thread and does not wait.
    pub fn new(send: impl Fn(Signal) + Send + Sync + 'static) -> Remote {
        Remote(Arc::new(send))
    }

    /// Ends the loop after the present turn.
    pub fn stop(&self) {
        self.0(Signal::Stop);
    }

    /// Applies the configuration file anew.
    pub fn reload(&self) {
        self.0(Signal::Reload);
    }
}
