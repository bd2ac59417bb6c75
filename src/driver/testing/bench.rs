//! A loop on the made-up world, and those who use it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::{Call, MadeUp};
use crate::command::{
    AdmitRequest, Caller, CallerProcess, Command, CommandError, Reply, Subject, Wait,
};
use crate::config::{Auto, Config};
use crate::core::event::{Event, EventKind};
use crate::core::history_state::HistoryState;
use crate::core::model::{Labels, Level, ReservationId, TaskId};
use crate::core::restore::{GroupUse, Known, Observation, Restore, Verdict};
use crate::core::shaper::Shaper;
use crate::core::state::Reservation;
use crate::core::task::Task;
use crate::driver::turn::Happened;
use crate::driver::world::Kernel as _;
use crate::driver::{Driver, EarlierTasks, Resumed, Tickets};
use crate::proto;
use crate::publish::{EventRing, Snapshot};
use crate::sample::NodeSample;
use crate::units::{BootTime, Moment, Pid, ProcessRef, WallTime};

/// A user that is a member.
pub const MEMBER: u32 = 1000;

/// See the module.
pub struct Bench {
    driver: Option<Driver<MadeUp>>,
    config: Config,
    /// The time of the next turn.
    pub now: Moment,
    snapshot: watch::Receiver<Arc<Snapshot>>,
    epoch: u32,
    /// What the start did.
    pub start: Vec<Call>,
}

/// An answer that may not be there yet.
pub type Answer<T> = oneshot::Receiver<Result<T, CommandError>>;

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
        let mut world = MadeUp::default();
        world.config = config.clone();
        Bench::on(world, config, 1)
    }

    fn on(mut world: MadeUp, config: Config, epoch: u32) -> Bench {
        let now = Moment {
            boot: BootTime(Duration::from_secs(u64::from(epoch) * 1000)),
            wall: WallTime::from_unix_micros(
                1_700_000_000_000_000 + i64::from(epoch) * 1_000_000_000,
            ),
        };
        let found = find(&mut world, now.boot);
        world.calls.clear();
        let (sender, snapshot) = watch::channel(Arc::new(Snapshot::default()));
        let resumed = Resumed {
            rights: super::made_up::rights(&config),
            tickets: Tickets::with_key(&[7; 32], epoch, now.boot),
            config: config.clone(),
            found,
            damage: Vec::new(),
            first: (now.boot, NodeSample::default()),
            whole_disks: Vec::new(),
            hostname: "made-up".to_owned(),
            time_namespace: None,
            waiter_epoch: epoch,
            hints: crate::discover::hint_queue().0,
            snapshot: sender,
            events: Arc::new(EventRing::new(1000, world.events.iter().cloned())),
        };
        let driver = Some(Driver::resume(world, resumed, now));
        let mut bench = Bench { driver, config, now, snapshot, epoch, start: Vec::new() };
        bench.finish_all();
        bench.start = std::mem::take(&mut bench.world().calls);
        bench
    }

    /// The daemon is killed, and the next one begins with what is stored.
    pub fn restart(mut self) -> Bench {
        self.world().calls.clear();
        let Driver { state, .. } = self.driver.take().unwrap();
        // It reads the file anew.
        let config = state.world.config.clone();
        Bench::on(state.world.after_kill(), config, self.epoch + 1)
    }

    /// The loop.
    pub fn driver(&mut self) -> &mut Driver<MadeUp> {
        self.driver.as_mut().unwrap()
    }

    /// The node.
    pub fn world(&mut self) -> &mut MadeUp {
        self.driver().world()
    }

    /// A turn with all that ended, and these commands.
    pub fn turn(&mut self, commands: Vec<Command>) {
        let ends = std::mem::take(&mut self.world().ends);
        self.take(Happened { ends, commands, ..Happened::default() });
    }

    fn take(&mut self, happened: Happened) {
        let now = self.now;
        self.driver().turn(happened, now);
        self.now = self.now_after(Duration::from_millis(1));
    }

    /// So much later.
    pub fn now_after(&self, time: Duration) -> Moment {
        let micros = i64::try_from(time.as_micros()).unwrap();
        let wall = WallTime::from_unix_micros(self.now.wall.unix_micros() + micros);
        Moment { boot: self.now.boot.after(time), wall }
    }

    /// One thing that was begun is done; `false`: nothing was.
    pub fn finish(&mut self) -> bool {
        let now = self.now;
        let Some(messages) = self.world().finish(now) else { return false };
        let ends = std::mem::take(&mut self.world().ends);
        self.take(Happened { ends, messages, ..Happened::default() });
        true
    }

    /// Turns until all that was begun is done.
    pub fn finish_all(&mut self) {
        self.turn(Vec::new());
        while self.finish() {}
    }

    /// A cycle: the next turn is one in which its reading is due.
    pub fn cycle(&mut self) {
        let Auto::Fixed(period) = self.config.daemon.sample_period else { return };
        self.now = self.now_after(period + Duration::from_secs(1));
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

    /// A new process that is a task.
    pub fn task(&mut self) -> (TaskId, ProcessRef) {
        let process = self.world().start(MEMBER);
        let mut answer = self.admit(process, Wait::No);
        self.finish_all();
        let task = answer.try_recv().unwrap().unwrap();
        self.world().calls.clear();
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
        let caller =
            Caller { uid: 0, gids: Vec::new(), process: CallerProcess::Unseen, granted: None };
        self.turn(vec![command(caller, reply)]);
        answer
    }

    /// What clients read.
    pub fn status(&self) -> Arc<proto::Status> {
        Arc::clone(&self.snapshot.borrow().status)
    }

    /// A task as clients read it.
    pub fn shown(&self, id: TaskId) -> Option<Arc<proto::Task>> {
        self.snapshot.borrow().tasks.get(&id).cloned()
    }

    /// All effects since the last call, in their order.
    #[track_caller]
    pub fn saw(&mut self, expected: &[Call]) {
        let calls = std::mem::take(&mut self.world().calls);
        assert_eq!(calls, expected);
    }

    /// Whether this was among the effects since the last call; it takes all of them.
    #[track_caller]
    pub fn saw_among(&mut self, expected: &[Call]) {
        let calls = std::mem::take(&mut self.world().calls);
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
        let driver = self.driver();
        let task = driver.core.task(id).filter(|task| !task.is_contested())?;
        let path = task.group.as_ref().map(|group| group.path.clone())?;
        let wanted = driver.core.level(id);
        Some((wanted, driver.world().level(&path)))
    }

    /// What the loop knows.
    pub fn core(&mut self) -> &Shaper {
        &self.driver().core
    }

    /// What the next daemon would know.
    pub fn stored(&mut self) -> Stored {
        let world = self.world();
        let promises = world.reservations.values();
        Stored {
            tasks: world.tasks.clone(),
            promises: promises.map(|it| (it.id, it.reservation.clone())).collect(),
            history: folded(&world.events),
        }
    }

    /// The machine stops and starts anew.
    pub fn reboot(mut self) -> Bench {
        self.world().reboot();
        self.restart()
    }

    /// Those that wait in the groups made for them.
    pub fn parked(&mut self) -> BTreeSet<TaskId> {
        self.driver().core.all_parked().map(|task| task.id).collect()
    }

    /// The promises that the core knows.
    pub fn promised(&mut self) -> BTreeSet<ReservationId> {
        self.driver().core.reservations().map(|(id, _)| id).collect()
    }

    /// The tasks that clients see.
    pub fn shown_ids(&self) -> BTreeSet<TaskId> {
        self.snapshot.borrow().tasks.keys().copied().collect()
    }
}

/// An admission of `process`.
pub fn request(process: ProcessRef, wait: Wait, in_place: bool) -> AdmitRequest {
    AdmitRequest {
        subject: Subject::Process(process.pid),
        start_ticks: None,
        labels: Labels::default(),
        priority: None,
        reservation: None,
        in_place,
        keep_unit: false,
        leave_unit: false,
        wait,
        ticket: None,
        ticket_to: None,
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let Some(driver) = &mut self.driver else { return };
        let unseen = std::mem::take(&mut driver.world().calls);
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

fn folded(events: &[Event]) -> HistoryState {
    let mut history = HistoryState::default();
    events.iter().for_each(|event| history.fold(event));
    history
}

/// What is left of the daemon before, as `src/node/find.rs` finds it on a real node.
fn find(world: &mut MadeUp, now: BootTime) -> EarlierTasks {
    let history = folded(&world.events);
    let earlier_boot = std::mem::take(&mut world.rebooted);
    let promises = world.reservations.values();
    let promises = promises.map(|record| (record.id, record.reservation.clone())).collect();
    let mut restore = Restore::new(history, false, world.tasks.values(), promises);
    let (mut groups, mut remove) = (BTreeMap::new(), Vec::new());
    for task in world.tasks.values().cloned().collect::<Vec<_>>() {
        if earlier_boot {
            restore.earlier_boot(task);
            continue;
        }
        let stored = task.group.as_ref().map(|record| world.presumed(record));
        let made = || {
            let mut group = world.made_for(task.id)?;
            group.record.origin.clone_from(&task.who.origin);
            Some(group)
        };
        let group = stored.filter(|group| !world.is_removed(group)).or_else(made);
        let occupied = |group| world.members(group, None).is_ok_and(|pids| !pids.is_empty());
        let seen = Observation {
            group: group.as_ref().map(|group| group.record.clone()),
            occupied: group.as_ref().is_some_and(occupied),
            main_lives: task.who.process.is_some_and(|process| world.lives(process)),
        };
        let verdict = restore.judge(&task, &seen);
        let undone = match (verdict, &group) {
            (Verdict::RollBack | Verdict::FinishRelease, Some(group)) => {
                world.release(group).is_ok()
            }
            _ => true,
        };
        let id = task.id;
        match restore.take(task, seen, verdict, undone) {
            GroupUse::InUse => groups.extend(group.map(|group| (id, group))),
            GroupUse::Unneeded => remove.extend(group),
            GroupUse::GivenBack => {}
        }
    }
    let unknown = world.own_groups().into_iter().filter_map(|path| path.rsplit('/').next());
    let unknown: Vec<TaskId> = unknown.filter_map(|name| name.parse().ok()).collect();
    for id in unknown.into_iter().filter(|id| !world.tasks.contains_key(id)) {
        let Some(group) = world.made_for(id) else { continue };
        let occupied = world.members(&group, None).is_ok_and(|pids| !pids.is_empty());
        let known = Known::from_history(id, world.events.iter());
        match restore.group(id, group.record.clone(), occupied, known) {
            GroupUse::InUse => drop(groups.insert(id, group)),
            GroupUse::Unneeded => remove.push(group),
            GroupUse::GivenBack => {}
        }
    }
    let (restored, start) = restore.finish(now);
    EarlierTasks { restored, start, groups, remove, left: Default::default(), started: None }
}
