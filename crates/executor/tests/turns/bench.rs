//! A loop on a pretended node, and those who use it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lrs_sim::node::Hardware;
use tokio::sync::oneshot;

use lrs_api::proto;
use lrs_config::{Auto, Config};
use lrs_core::event::EventKind;
use lrs_core::history_state::HistoryState;
use lrs_core::model::{Level, ReservationId, TaskId};
use lrs_core::shaper::Shaper;
use lrs_core::state::Reservation;
use lrs_core::task::{Life, Task};
use lrs_core::units::{Moment, Pid, ProcessRef};
use lrs_executor::Loop;
use lrs_executor::command::{AdmitRequest, Caller, CallerProcess, Command, Reply, Wait};
use lrs_executor::world::Kernel as _;
pub use lrs_sim::pretend::machine::Answer;
use lrs_sim::pretend::machine::{self, root};
use lrs_sim::pretend::{Call, Machine, Pretend};

/// A user that is a member.
pub const MEMBER: u32 = 1000;

/// Of a turn.
const MILLISECOND: Duration = Duration::from_millis(1);

/// See the module.
pub struct Bench {
    machine: Option<Machine>,
    /// What the start did.
    pub start: Vec<Call>,
}

impl Bench {
    /// A node with so many slots, on which nothing runs.
    pub fn new(active: u32, passive: u32) -> Bench {
        // No test of a turn waits for a cycle that it does not ask for.
        Bench::with_cycles_of(Duration::from_secs(60), active, passive)
    }

    /// The same with shorter cycles.
    pub fn with_cycles_of(period: Duration, active: u32, passive: u32) -> Bench {
        let mut config = Config::default();
        config.slots.active = Auto::Fixed(active);
        config.slots.passive = Auto::Fixed(passive);
        config.slots.passive_max = Auto::Fixed(passive);
        config.daemon.sample_period = Auto::Fixed(period);
        let mut machine = Machine::boot(Hardware::default(), config);
        machine.world().deeds.record();
        Bench::of(machine)
    }

    fn of(machine: Machine) -> Bench {
        let mut bench = Bench { machine: Some(machine), start: Vec::new() };
        bench.finish_all();
        bench.start = bench.take_calls();
        bench
    }

    /// The daemon is killed, and the next one begins with what is stored.
    pub fn restart(self) -> Bench {
        self.restart_with(|_| {})
    }

    /// The same, and something has happened on the node meanwhile.
    pub fn restart_with(mut self, meanwhile: impl FnOnce(&mut Pretend)) -> Bench {
        self.take_calls();
        Bench::of(self.machine.take().unwrap().restart_with(meanwhile))
    }

    /// Tasks that were released, or rolled back, while others had frozen them, and have processes yet.
    pub fn left_behind(&mut self) -> BTreeSet<TaskId> {
        let world = self.world();
        let over = |task: &&Task| matches!(task.life, Life::Releasing(_) | Life::Attaching(_));
        let releasing = world.tasks.values().filter(over);
        let left = releasing.filter(|task| {
            let group = task.group.as_ref().map(|record| world.presumed(record));
            group.is_some_and(|group| world.members(&group, None).is_ok_and(|all| !all.is_empty()))
        });
        left.map(|task| task.id).collect()
    }

    fn machine(&mut self) -> &mut Machine {
        self.machine.as_mut().unwrap()
    }

    /// The loop.
    pub fn daemon(&mut self) -> &mut Loop<Pretend> {
        self.machine().daemon()
    }

    /// The node.
    pub fn world(&mut self) -> &mut Pretend {
        self.machine().world()
    }

    /// The time of the next turn.
    pub fn now(&mut self) -> Moment {
        self.machine().now()
    }

    /// A turn with all that ended, and these commands.
    pub fn turn(&mut self, commands: Vec<Command>) {
        self.machine().turn(commands);
        self.later(MILLISECOND);
    }

    /// Time passes without a turn.
    pub fn later(&mut self, time: Duration) {
        self.world().pass_all(time);
    }

    /// One thing that was begun is done; `false`: nothing was.
    pub fn finish(&mut self) -> bool {
        let finished = self.machine().finish();
        self.later(MILLISECOND);
        finished
    }

    /// Turns until all that was begun is done.
    pub fn finish_all(&mut self) {
        self.turn(Vec::new());
        while self.finish() {}
    }

    /// A cycle: the next turn is one in which its reading is due.
    pub fn cycle(&mut self) {
        let Auto::Fixed(period) = self.world().config.daemon.sample_period else { return };
        self.later(period + Duration::from_secs(1));
        self.finish_all();
    }

    /// Begins to admit `process`; the answer is there when it is in place.
    pub fn admit(&mut self, process: ProcessRef, wait: Wait) -> Answer<proto::Task> {
        let uid = MEMBER;
        let (reply, answer) = oneshot::channel();
        let caller =
            Caller { uid, gids: vec![100], process: CallerProcess::Here(process), granted: None };
        let request = request(process, wait, false);
        self.turn(vec![Command::Admit { caller, request, reply }]);
        answer
    }

    /// A new process of root's that is a task in its own group, at `path`.
    pub fn task_in_place(&mut self, path: &str) -> (TaskId, ProcessRef) {
        let process = self.world().start_in(path, 0);
        let request = request(process, Wait::No, true);
        let mut answer = self.order(|caller, reply| Command::Admit { caller, request, reply });
        self.finish_all();
        let task = answer.try_recv().unwrap().unwrap();
        (task.id.parse().unwrap(), process)
    }

    /// A new process that is a task.
    pub fn task(&mut self) -> (TaskId, ProcessRef) {
        let process = self.world().start(MEMBER);
        let mut answer = self.admit(process, Wait::No);
        self.finish_all();
        let task = answer.try_recv().unwrap().unwrap();
        self.take_calls();
        (task.id.parse().unwrap(), process)
    }

    /// A process ends, and the loop has the turn in which that is reported.
    pub fn end(&mut self, pid: Pid) {
        self.world().exit(pid, 0);
        self.turn(Vec::new());
    }

    /// What an administrator asks for.
    pub fn order<T>(&mut self, command: impl FnOnce(Caller, Reply<T>) -> Command) -> Answer<T> {
        let (reply, answer) = oneshot::channel();
        self.turn(vec![command(root(), reply)]);
        answer
    }

    /// All effects since the last call.
    pub fn take_calls(&mut self) -> Vec<Call> {
        self.world().deeds.take()
    }

    /// What clients read.
    pub fn status(&self) -> Arc<proto::Status> {
        Arc::clone(&self.machine.as_ref().unwrap().snapshot.borrow().status)
    }

    /// A task as clients read it.
    pub fn shown(&self, id: TaskId) -> Option<Arc<proto::Task>> {
        self.machine.as_ref().unwrap().snapshot.borrow().tasks.get(&id).cloned()
    }

    /// All effects since the last call, in their order.
    #[track_caller]
    pub fn saw(&mut self, expected: &[Call]) {
        let calls = self.take_calls();
        assert_eq!(calls, expected);
    }

    /// Whether this was among the effects since the last call; it takes all of them.
    #[track_caller]
    pub fn saw_among(&mut self, expected: &[Call]) {
        let calls = self.take_calls();
        for call in expected {
            assert!(calls.contains(call), "no {call:?} in {calls:#?}");
        }
    }

    /// The kinds of the events of a task.
    pub fn events_of(&mut self, id: TaskId) -> Vec<EventKind> {
        let id = id.to_string();
        let events = self.world().events.iter();
        events.filter(|event| event.task.as_ref() == Some(&id)).map(|event| event.kind).collect()
    }
}

impl Bench {
    /// Ends a process, unless a fault has.
    pub fn exit_if_it_lives(&mut self, process: ProcessRef) {
        if self.world().lives(process) {
            self.world().exit(process.pid, 0);
        }
    }

    /// The root is thawed, and the node takes tasks.
    pub fn back_to_normal(&mut self) {
        self.world().freeze_root(false);
        drop(self.order(|caller, reply| Command::Resume { caller, reply }));
    }

    /// Those that run, with their groups.
    pub fn living(&mut self) -> Vec<(Pid, String)> {
        let living = self.world().living_in().into_iter();
        living.map(|(pid, group)| (pid, group.to_owned())).collect()
    }

    /// The level that the core wants of a task, and that its group has; `None`: LRS gave way to another
    /// writer.
    pub fn levels(&mut self, id: TaskId) -> Option<(Option<Level>, Option<Level>)> {
        let daemon = self.daemon();
        let task = daemon.core().task(id).filter(|task| !task.is_contested())?;
        let path = task.group.as_ref().map(|group| group.path.clone())?;
        let wanted = daemon.core().level(id);
        Some((wanted, daemon.world().level(&path)))
    }

    /// What the loop knows.
    pub fn core(&mut self) -> &Shaper {
        self.daemon().core()
    }

    /// What the next daemon would know.
    pub fn stored(&mut self) -> Stored {
        let world = self.world();
        let promises = world.reservations.values();
        Stored {
            tasks: world.tasks.clone(),
            promises: promises.map(|it| (it.id, it.reservation.clone())).collect(),
            history: world.history(),
        }
    }

    /// The machine stops and starts anew.
    pub fn reboot(mut self) -> Bench {
        self.world().reboot();
        self.restart()
    }

    /// Those that wait in the groups made for them.
    pub fn parked(&mut self) -> BTreeSet<TaskId> {
        self.daemon().core().all_parked().map(|task| task.id).collect()
    }

    /// The promises that the core knows.
    pub fn promised(&mut self) -> BTreeSet<ReservationId> {
        self.daemon().core().reservations().map(|(id, _)| id).collect()
    }

    /// The tasks that clients see.
    pub fn shown_ids(&self) -> BTreeSet<TaskId> {
        self.machine.as_ref().unwrap().snapshot.borrow().tasks.keys().copied().collect()
    }
}

/// An admission of `process`.
pub fn request(process: ProcessRef, wait: Wait, in_place: bool) -> AdmitRequest {
    AdmitRequest { in_place, ..machine::request(process, wait) }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let Some(machine) = &mut self.machine else { return };
        let unseen = machine.world().deeds.take();
        if !std::thread::panicking() {
            assert!(unseen.is_empty(), "effects that the test did not ask for: {unseen:#?}");
        }
    }
}

/// The state directory.
pub struct Stored {
    pub tasks: BTreeMap<TaskId, Task>,
    pub promises: BTreeMap<ReservationId, Reservation>,
    pub history: HistoryState,
}
