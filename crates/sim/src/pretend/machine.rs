//! A pretended node with the loop on it, and time that passes for both.

use std::sync::Arc;
use std::time::Duration;

use crate::node::Hardware;
use tokio::sync::{oneshot, watch};

use super::tape::Tape;
use super::{Pretend, rights};
use lrs_api::proto;
use lrs_config::Config;
use lrs_core::model::Labels;
use lrs_core::shaper::Shaper;
use lrs_core::units::{Moment, Pid, ProcessRef};
use lrs_executor::command::{
    AdmitRequest, Caller, CallerProcess, Command, CommandError, Subject, Wait,
};
use lrs_executor::publish::{EventRing, Snapshot};
use lrs_executor::rights::Rights;
use lrs_executor::turn::Happened;
use lrs_executor::{Loop, Resumed, Tickets};

/// The shortest time between two turns that nothing but time makes due: a due time that rounding has
/// left in the past ends there.
const STEP: Duration = Duration::from_micros(1);

/// Events that clients can ask for.
const EVENTS_KEPT: usize = 1000;

/// An answer that may not be there yet.
pub type Answer<T> = oneshot::Receiver<Result<T, CommandError>>;

/// See the module.
pub struct Machine {
    daemon: Loop<Pretend>,
    /// What clients read.
    pub snapshot: watch::Receiver<Arc<Snapshot>>,
    /// The events that clients can ask for.
    pub events: Arc<EventRing>,
    epoch: u32,
}

impl Machine {
    /// A node at boot, where a daemon starts with these settings.
    pub fn boot(hardware: Hardware, config: Config) -> Machine {
        Machine::on(Pretend::boot(hardware, config), 1)
    }

    /// A daemon starts.
    pub fn on(world: Pretend, epoch: u32) -> Machine {
        let rights = rights(&world.config);
        Machine::with_rights(world, rights, epoch)
    }

    /// The same for clients that are real, who may do what these say.
    pub fn with_rights(mut world: Pretend, rights: Rights, epoch: u32) -> Machine {
        let now = world.now();
        let (recovered, history_state) = (world.recovered(), world.history());
        let own_groups = world.groups_of_tasks();
        let (sender, snapshot) = watch::channel(Arc::new(Snapshot::default()));
        let events = Arc::new(EventRing::new(EVENTS_KEPT, world.events.iter().cloned()));
        let resumed = Resumed {
            rights,
            tickets: Tickets::with_key(&[7; 32], epoch, now.boot),
            config: world.config.clone(),
            recovered,
            history_state,
            own_groups,
            first: (now.boot, world.sample()),
            whole_disks: Vec::new(),
            hostname: "pretended".to_owned(),
            time_namespace: None,
            waiter_epoch: epoch,
            hints: lrs_executor::found::hint_queue().0,
            snapshot: sender,
            events: Arc::clone(&events),
            recorder: world.tape.as_ref().map(Tape::recorder),
        };
        Machine { daemon: Loop::resume(world, resumed, now), snapshot, events, epoch }
    }

    /// The daemon is killed, and the next one begins with what is stored, and the settings of then.
    pub fn restart(self) -> Machine {
        self.restart_with(|_| {})
    }

    /// The same, and something has happened on the node meanwhile.
    pub fn restart_with(self, meanwhile: impl FnOnce(&mut Pretend)) -> Machine {
        let mut world = self.daemon.into_world().after_kill();
        meanwhile(&mut world);
        Machine::on(world, self.epoch + 1)
    }

    /// The node.
    pub fn world(&mut self) -> &mut Pretend {
        self.daemon.world()
    }

    /// What the daemon has decided.
    pub fn core(&self) -> &Shaper {
        self.daemon.core()
    }

    /// The loop.
    pub fn daemon(&mut self) -> &mut Loop<Pretend> {
        &mut self.daemon
    }

    /// Both clocks.
    pub fn now(&mut self) -> Moment {
        self.world().now()
    }

    /// A turn with all that ended, and these commands.
    pub fn turn(&mut self, commands: Vec<Command>) {
        self.take(Happened { commands, ..Happened::default() });
    }

    /// A turn with what happened, and all that ended.
    pub fn take(&mut self, mut happened: Happened) {
        let now = self.now();
        let world = self.world();
        happened.ends = world.take_ends();
        happened.cpu = world.cpu;
        self.daemon.turn(happened, now);
        let cpu = self.world().cpu;
        self.daemon.turned(cpu);
    }

    /// One thing that was begun is done; `false`: nothing was.
    pub fn finish(&mut self) -> bool {
        let Some(messages) = self.world().finish() else { return false };
        self.take(Happened { messages, ..Happened::default() });
        true
    }

    /// Turns until all that was begun is done.
    pub fn finish_all(&mut self) {
        self.turn(Vec::new());
        while self.finish() {}
    }

    /// How long nothing is due.
    pub fn until_next(&mut self) -> Duration {
        let now = self.now();
        self.daemon.until_next(now)
    }

    /// The loop ends; what it had begun is done first.
    pub fn stop(mut self) {
        let now = self.now();
        self.daemon.begin_end(now);
        let messages = std::iter::from_fn(|| self.world().finish()).flatten().collect();
        self.daemon.end(messages, now);
    }

    /// Lets time pass until the next turn is due or a process ends by itself, for `most` at most; then has
    /// that turn, with all that it begins. Answers which processes ended.
    pub fn step(&mut self, most: Duration) -> Vec<Pid> {
        let due = self.until_next().max(STEP);
        let ended = self.world().pass(due.min(most));
        self.finish_all();
        ended
    }

    /// Such steps for `time`. Answers which processes ended.
    pub fn advance(&mut self, time: Duration) -> Vec<Pid> {
        let until = self.now().boot.after(time);
        let mut ended = Vec::new();
        loop {
            let left = until.since(self.now().boot);
            if left.is_zero() {
                return ended;
            }
            ended.extend(self.step(left));
        }
    }

    /// Root asks for a slot for `process`, for as long as it takes.
    pub fn admit(
        &mut self,
        process: ProcessRef,
        labels: Labels,
        priority: Option<lrs_core::model::Priority>,
    ) -> Answer<proto::Task> {
        let (reply, answer) = oneshot::channel();
        let request = AdmitRequest { labels, priority, ..request(process, Wait::Forever) };
        self.turn(vec![Command::Admit { caller: root(), request, reply }]);
        answer
    }
}

/// An administrator.
pub fn root() -> Caller {
    Caller { uid: 0, gids: Vec::new(), process: CallerProcess::Unseen, granted: None }
}

/// An admission of `process`.
pub fn request(process: ProcessRef, wait: Wait) -> AdmitRequest {
    AdmitRequest {
        subject: Subject::Process(process.pid),
        start_ticks: Some(process.start_ticks),
        labels: Labels::default(),
        priority: None,
        reservation: None,
        in_place: false,
        keep_unit: false,
        leave_unit: false,
        wait,
        ticket: None,
        ticket_to: None,
    }
}
