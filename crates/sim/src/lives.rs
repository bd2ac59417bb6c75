//! Random lives: clients, their processes, other software, crashes and reboots, and what the contract
//! says must hold of it all (spec 3 to 5).
//!
//! Step `n` of a life takes its random numbers from the seed and `n` alone. So a life that breaks a
//! promise is identified by its seed, and can be cut to few of its steps: [`shrink`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fastrand::Rng;
use lrs_core::model::{Label, Labels, Priority, ReservationId, Standing, TaskId};
use lrs_core::order::QueueOrder;
use lrs_core::probe::Formula;
use lrs_core::state::{Need, Patience, Policy, Request};
use lrs_core::step::FoundAgain;
use lrs_core::step::Input;
use lrs_core::task::{Finder, FoundRecord, Kin, Who};
use lrs_core::units::{BootTime, Pid, ProcessRef, Share, WallTime};

use crate::daemon::{Ask, Daemon};
use crate::invariants;
use crate::load::Load;
use crate::node::{Hardware, Node};
use crate::outside::{Alive, Call, Deed, Fuse, Killed, Outside, Reply, Store, group_of, origin_of};
use crate::recover;
use crate::tree::{Inode, ROOT, Weights};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// In which step; `None`: at the end.
    pub step: Option<u64>,
    /// Which, and how.
    pub what: String,
}

/// What lives went through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps.
    pub steps: u64,
    /// Times that the daemon was killed.
    pub crashes: u64,
    /// Of those, before which of its deeds; the others were at rest.
    pub kills: BTreeMap<Deed, u64>,
    /// Times that the machine was.
    pub reboots: u64,
    /// Tasks admitted.
    pub admitted: u64,
    /// Promotions.
    pub promoted: u64,
}

impl Report {
    /// Adds another.
    pub fn add(&mut self, other: &Report) {
        self.steps += other.steps;
        self.crashes += other.crashes;
        self.reboots += other.reboots;
        self.admitted += other.admitted;
        self.promoted += other.promoted;
        for (deed, kills) in &other.kills {
            *self.kills.entry(*deed).or_default() += kills;
        }
    }
}

/// Lives one life of these steps.
///
/// # Errors
/// The first promise that it breaks.
pub fn live(seed: u64, steps: impl Iterator<Item = u64>) -> Result<Report, Broken> {
    live_watched(seed, steps, |_, _| ())
}

/// The same; `watch` gets each step and what is there after it.
///
/// # Errors
/// The first promise that it breaks.
pub fn live_watched(
    seed: u64,
    steps: impl Iterator<Item = u64>,
    mut watch: impl FnMut(u64, String),
) -> Result<Report, Broken> {
    let mut life = Lives::new(seed);
    for step in steps {
        life.rng = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ step);
        life.report.steps += 1;
        let done = life.step();
        watch(step, life.describe());
        done.map_err(|what| Broken { step: Some(step), what })?;
    }
    life.finish().map_err(|what| Broken { step: None, what })?;
    let mut report = life.report;
    report.kills = life.out.fuse.kills;
    report.admitted = life.out.store.history_state.totals.admitted;
    report.promoted = life.out.store.history_state.totals.promoted;
    Ok(report)
}

/// The fewest of a life's steps, as far as they are found soon, that still break a promise. `fails`:
/// whether these do.
pub fn shrink(mut steps: Vec<u64>, fails: impl Fn(&[u64]) -> bool) -> Vec<u64> {
    let mut part = steps.len() / 2;
    while part > 0 {
        let mut from = 0;
        while from < steps.len() {
            let to = (from + part).min(steps.len());
            let without = [&steps[..from], &steps[to..]].concat();
            if fails(&without) {
                steps = without;
            } else {
                from = to;
            }
        }
        part /= 2;
    }
    steps
}

/// A process that its client wants to be a task.
#[derive(Clone, Debug)]
struct Client {
    ask: Ask,
    call: Option<Call>,
}

/// What a client may expect of its task by the answers it got, until something else is asked for.
#[derive(Clone, Debug)]
struct Expectation {
    process: ProcessRef,
    /// Where its process was before, if there was a record with that.
    origin: Option<Inode>,
    /// Those it may have; several while a call is under way.
    priorities: Vec<Priority>,
    /// Its release was asked for.
    releasing: bool,
    /// Its record was destroyed: only the processes are promised anything.
    lost: bool,
}

/// A call that is under way.
#[derive(Clone, Debug)]
enum Under {
    Admission(ProcessRef),
    Reservation(BootTime),
    Release(TaskId),
    Priority(TaskId, Priority),
    Draining(bool),
    Other,
}

struct Lives {
    rng: Rng,
    out: Outside,
    daemon: Option<Daemon>,
    policy: Policy,
    clients: BTreeMap<ProcessRef, Client>,
    tasks: BTreeMap<TaskId, Expectation>,
    /// Promised slots and their ends.
    reserved: BTreeMap<ReservationId, BootTime>,
    calls: BTreeMap<Call, Under>,
    next_call: u64,
    draining: Option<bool>,
    /// Groups with weights that others have changed since the last cycle.
    foreign: BTreeSet<Inode>,
    /// Processes that others have moved.
    moved: BTreeSet<ProcessRef>,
    home: Inode,
    report: Report,
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

impl Lives {
    fn new(seed: u64) -> Lives {
        let mut rng = Rng::with_seed(seed);
        let hardware = Hardware {
            cpus: rng.u32(1..5),
            channels: rng.u32(1..5),
            request: Duration::from_millis(rng.u64(1..20)),
            request_bytes: 4096,
            memory: 4000,
        };
        let node = Node::boot(hardware, WallTime::from_unix_micros(1_700_000_000_000_000));
        let mut store = Store::default();
        store.history_state.counters.epoch = 1;
        let fuse = Fuse::default();
        let mut out = Outside { node, store, boot: 0, fuse, replies: Vec::new() };
        // The root is there.
        let home = out.node.tree.make(ROOT, "home").unwrap_or(ROOT);
        Lives {
            rng,
            out,
            daemon: None,
            policy: Policy::simulated(),
            clients: BTreeMap::new(),
            tasks: BTreeMap::new(),
            reserved: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            draining: Some(false),
            foreign: BTreeSet::new(),
            moved: BTreeSet::new(),
            home,
            report: Report::default(),
        }
    }

    fn pick<T>(&mut self, mut items: impl ExactSizeIterator<Item = T>) -> Option<T> {
        let len = items.len();
        if len == 0 { None } else { items.nth(self.rng.usize(0..len)) }
    }

    fn call(&mut self, under: Under) -> Call {
        self.next_call += 1;
        self.calls.insert(Call(self.next_call), under);
        Call(self.next_call)
    }

    fn describe(&self) -> String {
        let Outside { node, store, .. } = &self.out;
        let tasks = match &self.daemon {
            None => "no daemon".to_owned(),
            Some(daemon) => format!("{:?}", daemon.shown),
        };
        let records: Vec<_> =
            store.tasks.iter().map(|(id, record)| (id, &record.task.life)).collect();
        format!(
            "at {:?}, event {}: {tasks}; stored {records:?} {:?}; live {:?}; groups {:?}",
            node.now().boot.0,
            store.history_state.counters.next_seq,
            store.reservations.keys(),
            store.history_state.live,
            self.out.task_groups().keys()
        )
    }

    // --- steps ---

    fn step(&mut self) -> Result<(), String> {
        if self.daemon.is_none() && self.rng.u8(0..10) < 9 {
            return self.start();
        }
        if self.rng.u8(0..5) < 3 {
            let deeds = self.rng.u32(0..8);
            self.out.fuse.light(deeds);
        }
        match self.rng.u8(0..100) {
            0..18 => self.time_passes(),
            18..28 => self.a_client_asks(),
            28..36 => self.ask_again(),
            36..52 => self.several(|daemon, out| daemon.work(out).map(|_| ())),
            52..66 => self.several(|daemon, out| daemon.listen(out).map(|_| ())),
            66..72 => self.cycle(),
            72..74 => self.reads_ahead(),
            74..78 => self.releases(),
            78..83 => self.orders(),
            83..87 => self.reserves(),
            87..96 => self.others(),
            96 => self.gives_up(),
            97 => self.configures(),
            98 => self.is_killed_at_rest(),
            _ => self.disaster(),
        }
    }

    /// Something that the daemon does, if it runs; what then has to hold.
    fn with_daemon(
        &mut self,
        act: impl FnOnce(&mut Daemon, &mut Outside) -> Alive<()>,
    ) -> Result<(), String> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        let done = act(&mut daemon, &mut self.out);
        self.daemon = Some(daemon);
        self.after(done)
    }

    /// The same a few times.
    fn several(
        &mut self,
        act: impl Fn(&mut Daemon, &mut Outside) -> Alive<()>,
    ) -> Result<(), String> {
        (0..self.rng.u8(1..5)).try_for_each(|_| self.with_daemon(&act))
    }

    fn after(&mut self, done: Alive<()>) -> Result<(), String> {
        self.listen()?;
        if let Some(wrong) = self.out.store.contradiction.take() {
            return Err(format!("the history contradicts itself: {wrong}"));
        }
        match done {
            Err(Killed) => {
                self.killed();
                Ok(())
            }
            Ok(()) => match &self.daemon {
                Some(daemon) => invariants::all(daemon, &self.out, &self.foreign),
                None => Ok(()),
            },
        }
    }

    fn killed(&mut self) {
        self.report.crashes += 1;
        self.daemon = None;
        self.out.fuse.put_out();
        for client in self.clients.values_mut() {
            client.call = None;
        }
        // What was under way may have been done or not.
        for (_, under) in std::mem::take(&mut self.calls) {
            match under {
                Under::Draining(_) => self.draining = None,
                Under::Admission(_) | Under::Reservation(_) | Under::Release(_) => {}
                Under::Priority(..) | Under::Other => {}
            }
        }
    }

    fn start(&mut self) -> Result<(), String> {
        if self.rng.u8(0..10) < 2 {
            let deeds = self.rng.u32(0..14);
            self.out.fuse.light(deeds);
        }
        match recover::start(self.policy.clone(), &mut self.out) {
            Err(killed) => self.after(Err(killed)),
            Ok(daemon) => {
                self.daemon = Some(daemon);
                self.after(Ok(()))?;
                self.promises_are_kept()
            }
        }
    }

    fn time_passes(&mut self) -> Result<(), String> {
        let millis = match self.rng.u8(0..10) {
            0..6 => self.rng.u64(0..50),
            6..9 => self.rng.u64(50..3000),
            _ => self.rng.u64(3000..40_000),
        };
        let ended = self.out.node.run(Duration::from_millis(millis));
        self.forget_dead();
        self.with_daemon(|daemon, out| {
            daemon.tick(out)?;
            if ended.is_empty() { Ok(()) } else { daemon.processes_ended(out) }
        })
    }

    fn forget_dead(&mut self) {
        let tree = &self.out.node.tree;
        self.clients.retain(|process, _| tree.alive(*process).is_some());
        self.moved.retain(|process| tree.alive(*process).is_some());
    }

    fn load(&mut self) -> Load {
        let millis = |rng: &mut Rng, most| Duration::from_millis(rng.u64(100..most));
        let rounds = Some(self.rng.u32(1..5));
        let resident = self.rng.u64(0..150);
        let load = match self.rng.u8(0..4) {
            0 => Load::hog(millis(&mut self.rng, 5000)),
            1 => Load::writer(self.rng.u32(1..200)),
            2 => Load {
                cpu: millis(&mut self.rng, 500),
                requests: self.rng.u32(1..20),
                ..Load::sleeper()
            },
            _ => Load::sleeper(),
        };
        let sleep = millis(&mut self.rng, 2000);
        Load { rounds: load.rounds.and(rounds), sleep, resident, ..load }
    }

    fn a_client_asks(&mut self) -> Result<(), String> {
        if self.clients.len() >= 14 {
            return self.processes_end();
        }
        let (uid, load, now) = (self.rng.u32(0..3), self.load(), self.out.node.now());
        let process = self.out.node.tree.start(self.home, uid, load);
        if self.rng.u8(0..4) == 0 {
            self.out.node.tree.fork(process.pid, load);
        }
        let found = self.rng.u8(0..6) == 0;
        let standing = self.rng.u8(0..3);
        let need = match standing {
            _ if !found => Need::Slot,
            0 => Need::Slotless,
            _ => Need::Discovered,
        };
        let patience = match self.rng.u8(0..3) {
            _ if found => None,
            0 => None,
            1 => Some(None),
            _ => Some(Some(now.boot.after(Duration::from_millis(self.rng.u64(0..20_000))))),
        };
        let (first_requested, parks) = (now.wall, self.rng.u8(0..4) > 0);
        let patience = patience.map(|deadline| Patience { first_requested, deadline, parks });
        let reservation = if need == Need::Slot && self.rng.u8(0..3) == 0 {
            let used: BTreeSet<_> =
                self.clients.values().filter_map(|c| c.ask.request.reservation).collect();
            let mut free = self.reserved.keys().filter(|id| !used.contains(id));
            free.next().copied()
        } else {
            None
        };
        let caller = self.rng.u32(0..2);
        let finder =
            FoundRecord { by: Finder::Yarn, priority: None, standing: None, kin: Kin::Descendants };
        let who = Who {
            process: Some(process),
            admitted_by: Some(caller),
            found: found.then_some(finder),
            ..Who::default()
        };
        let request = Request {
            uid,
            who,
            labels: self.labels(),
            priority: Some(Priority(self.rng.i32(-2..3))),
            reservation,
            need,
            opportunistic: found && standing == 1,
            by_member: uid != 0,
        };
        let ask = Ask { caller, process, request, patience };
        self.clients.insert(process, Client { ask, call: None });
        self.ask(process)
    }

    fn labels(&mut self) -> Labels {
        let job = self.rng.u8(0..4);
        // Two letters and a digit are a label.
        let job = (job > 0).then(|| Label::new(&format!("job{job}")).ok()).flatten();
        Labels { job, ..Labels::default() }
    }

    fn ask(&mut self, process: ProcessRef) -> Result<(), String> {
        if self.daemon.is_none() {
            return Ok(());
        }
        let call = self.call(Under::Admission(process));
        let Some(client) = self.clients.get_mut(&process) else { return Ok(()) };
        client.call = Some(call);
        let ask = client.ask.clone();
        self.with_daemon(|daemon, out| daemon.admit(call, ask, out))
    }

    /// The same clients, the same processes: after a crash, or because a connection broke.
    fn ask_again(&mut self) -> Result<(), String> {
        let unanswered: Vec<ProcessRef> =
            self.clients.iter().filter(|(_, c)| c.call.is_none()).map(|(p, _)| *p).collect();
        unanswered.into_iter().try_for_each(|process| self.ask(process))
    }

    fn gives_up(&mut self) -> Result<(), String> {
        let waiting: Vec<Call> = self.clients.values().filter_map(|client| client.call).collect();
        let Some(call) = self.pick(waiting.into_iter()) else { return Ok(()) };
        for client in self.clients.values_mut().filter(|client| client.call == Some(call)) {
            client.call = None;
        }
        self.calls.remove(&call);
        self.with_daemon(|daemon, out| daemon.abandon(call, out))
    }

    fn cycle(&mut self) -> Result<(), String> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(()) };
        let done = daemon.cycle(&mut self.out);
        self.daemon = Some(daemon);
        if done.is_ok() {
            // Put right, or left alone for good.
            self.foreign.clear();
        }
        self.after(done)
    }

    fn reads_ahead(&mut self) -> Result<(), String> {
        self.with_daemon(|daemon, out| match daemon.next_ahead(out.node.now().boot) {
            Some(_) => daemon.read_ahead(Duration::ZERO, out),
            None => Ok(()),
        })
    }

    fn releases(&mut self) -> Result<(), String> {
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        let Some(id) = self.pick(ids.into_iter()).filter(|_| self.daemon.is_some()) else {
            return Ok(());
        };
        if let Some(expected) = self.tasks.get_mut(&id) {
            expected.releasing = true;
        }
        let call = self.call(Under::Release(id));
        self.with_daemon(|daemon, out| daemon.release(call, id, out))
    }

    fn orders(&mut self) -> Result<(), String> {
        if self.daemon.is_none() {
            return Ok(());
        }
        let ids: Vec<TaskId> = self.tasks.keys().copied().collect();
        let task = self.pick(ids.into_iter());
        let (under, input) = match (self.rng.u8(0..16), task) {
            (0, _) => (Under::Draining(true), Input::Drain),
            (1..6, _) if self.draining != Some(false) => (Under::Draining(false), Input::Resume),
            (6..9, Some(task)) => {
                let standing = [Standing::Slot, Standing::Opportunistic, Standing::Slotless];
                let standing = standing[self.rng.usize(0..3)];
                (Under::Other, Input::SetStanding { task, standing })
            }
            (9..11, Some(task)) => {
                let found = FoundAgain {
                    by: Finder::Yarn,
                    labels: self.labels(),
                    priority: None,
                    standing: None,
                    presumed_slotless: false,
                };
                (Under::Other, Input::FoundAgain { task, found })
            }
            (_, Some(task)) => {
                let priority = Priority(self.rng.i32(-3..4));
                if let Some(expected) = self.tasks.get_mut(&task) {
                    expected.priorities.push(priority);
                }
                (Under::Priority(task, priority), Input::SetPriority { task, priority })
            }
            (_, None) => return Ok(()),
        };
        if let Under::Draining(_) = under {
            self.draining = None;
        }
        let call = self.call(under);
        self.with_daemon(|daemon, out| daemon.order(call, input, out))
    }

    fn reserves(&mut self) -> Result<(), String> {
        if self.daemon.is_none() {
            return Ok(());
        }
        let ids: Vec<ReservationId> = self.reserved.keys().copied().collect();
        let cancel = self.rng.u8(0..4) == 0;
        if let Some(id) = self.pick(ids.into_iter()).filter(|_| cancel) {
            // Done or not: it holds no more.
            self.reserved.remove(&id);
            let call = self.call(Under::Other);
            return self.with_daemon(|daemon, out| daemon.cancel(call, id, out));
        }
        let ttl = Duration::from_secs(self.rng.u64(1..60));
        let until = self.out.node.now().boot.after(ttl);
        let (uid, priority) = (self.rng.u32(0..2), Priority(self.rng.i32(-2..3)));
        let call = self.call(Under::Reservation(until));
        self.with_daemon(|daemon, out| daemon.reserve(call, uid, priority, Some(ttl), out))
    }

    /// What other software does, and the processes themselves.
    fn others(&mut self) -> Result<(), String> {
        let pids: Vec<Pid> = self.out.node.tree.processes().keys().copied().collect();
        let groups: Vec<Inode> = self.out.task_groups().into_values().collect();
        let Some(pid) = self.pick(pids.into_iter()) else { return Ok(()) };
        match (self.rng.u8(0..10), self.pick(groups.into_iter())) {
            (0..3, _) => {
                let load = self.load();
                if self.out.node.tree.processes().len() < 30 {
                    self.out.node.tree.fork(pid, load);
                }
                Ok(())
            }
            (3, Some(group)) => {
                let cpu = self.rng.u64(1..10_000);
                self.foreign.insert(group);
                let weights = Weights { cpu, idle: false, io: 77 };
                // It is there: it was listed.
                let _ = self.out.node.tree.weigh(group, weights);
                Ok(())
            }
            (4, _) => {
                let start_ticks = self.out.node.tree.processes()[&pid].start_ticks;
                self.moved.insert(ProcessRef { pid, start_ticks });
                let _ = self.out.node.tree.move_process(pid, self.home);
                Ok(())
            }
            (5, _) => {
                let uid = self.rng.u32(0..3);
                self.out.node.tree.chown(pid, uid);
                Ok(())
            }
            _ => self.processes_end(),
        }
    }

    fn processes_end(&mut self) -> Result<(), String> {
        for _ in 0..self.rng.u8(1..4) {
            let pids: Vec<Pid> = self.out.node.tree.processes().keys().copied().collect();
            if let Some(pid) = self.pick(pids.into_iter()) {
                self.out.node.tree.end(pid);
            }
        }
        self.forget_dead();
        self.with_daemon(|daemon, out| daemon.processes_ended(out))
    }

    fn configures(&mut self) -> Result<(), String> {
        if self.daemon.is_none() {
            return Ok(());
        }
        let mut some = |most| self.rng.bool().then(|| self.rng.u32(1..most));
        let (active, passive, passive_max) = (some(5), some(6), some(9));
        let expand = self.rng.bool();
        let formula = if self.rng.bool() { Formula::Probe } else { Formula::Lrs };
        let order = if self.rng.bool() { QueueOrder::Complement } else { QueueOrder::Fifo };
        let lane_share = Share::clamped(if self.rng.bool() { 0.05 } else { 0.0 });
        let all = Policy { formula, order, lane_share, ..Policy::simulated() };
        self.policy = Policy { active, passive, passive_max, expand, ..all };
        if self.rng.bool() {
            self.out.node.hardware.cpus = self.rng.u32(1..5);
        }
        let (call, policy) = (self.call(Under::Other), self.policy.clone());
        self.with_daemon(|daemon, out| daemon.order(call, Input::Configure(policy), out))
    }

    /// Killed with nothing under way and started at once: it must write nothing that is there.
    fn is_killed_at_rest(&mut self) -> Result<(), String> {
        self.out.fuse.put_out();
        // What is decided by the node's CPUs is decided, and what others did is put right.
        self.cycle()?;
        for _ in 0..64 {
            self.with_daemon(|daemon, out| daemon.work(out).map(|_| ()))?;
            self.with_daemon(|daemon, out| daemon.listen(out).map(|_| ()))?;
        }
        let Some(daemon) = self.daemon.take() else { return Ok(()) };
        // What is contested is looked after again.
        let contested = daemon.core.tasks().any(|(_, task)| task.is_contested());
        let quiet = self.foreign.is_empty() && daemon.core.waiting() == 0 && !contested;
        self.killed();
        let writes = self.out.node.tree.writes;
        let mut again = recover::start(self.policy.clone(), &mut self.out)
            .map_err(|_| "killed without a fuse".to_owned())?;
        let written = self.out.node.tree.writes - writes;
        let same = again.shown == daemon.shown || !quiet;
        check(same, || {
            format!("shown before the restart {:?}, after it {:?}", daemon.shown, again.shown)
        })?;
        check(written == 0 || !quiet, || format!("a restart wrote {written} times"))?;
        again.processes_ended(&mut self.out).map_err(|_| "killed without a fuse".to_owned())?;
        self.daemon = Some(again);
        self.after(Ok(()))?;
        self.promises_are_kept()
    }

    /// Rare and bad: the machine goes down, or a record is lost.
    fn disaster(&mut self) -> Result<(), String> {
        if self.rng.u8(0..3) > 0 {
            return Ok(());
        }
        self.killed();
        if self.rng.bool() {
            self.report.reboots += 1;
            self.out.reboot();
            // The root is there.
            self.home = self.out.node.tree.make(ROOT, "home").unwrap_or(ROOT);
            self.forget_dead();
            self.tasks.clear();
            self.reserved.clear();
            self.out.store.reservations.clear();
            self.foreign.clear();
            return Ok(());
        }
        let ids: Vec<TaskId> = self.out.store.tasks.keys().copied().collect();
        if let Some(id) = self.pick(ids.into_iter()) {
            let record = self.out.store.tasks.remove(&id);
            if let Some((reservation, _)) = record.as_ref().and_then(|record| record.task.promise())
            {
                // It alone knew of the promise.
                self.reserved.remove(reservation);
            }
            if let Some(expected) = self.tasks.get_mut(&id) {
                expected.lost = true;
            }
        }
        Ok(())
    }

    // --- what is promised ---

    /// Takes the answers to clients, and holds the daemon to them.
    fn listen(&mut self) -> Result<(), String> {
        for (call, reply) in std::mem::take(&mut self.out.replies) {
            let Some(under) = self.calls.remove(&call) else { continue };
            match (under, reply) {
                (Under::Admission(process), Reply::Admitted(id)) => self.admitted(process, id)?,
                (Under::Admission(process), _) => {
                    if let Some(client) = self.clients.get_mut(&process) {
                        client.call = None;
                    }
                }
                (Under::Reservation(until), Reply::Reserved(id)) => {
                    let stored = self.out.store.reservations.contains_key(&id);
                    check(stored, || format!("reservation {id} was answered and is not stored"))?;
                    self.reserved.insert(id, until);
                }
                (Under::Release(id), Reply::Done) => self.released(id)?,
                (Under::Priority(id, priority), Reply::Done) => {
                    if let Some(expected) = self.tasks.get_mut(&id) {
                        expected.priorities = vec![priority];
                    }
                }
                (Under::Draining(on), Reply::Done) => self.draining = Some(on),
                _ => {}
            }
        }
        Ok(())
    }

    fn admitted(&mut self, process: ProcessRef, id: TaskId) -> Result<(), String> {
        check(self.out.store.was_admitted(id), || {
            format!("task {id} was answered before its admission was in the history")
        })?;
        let Some(client) = self.clients.get_mut(&process) else { return Ok(()) };
        client.call = None;
        let live = self.out.store.history_state.live.contains_key(&id);
        let record = self.out.store.tasks.get(&id);
        check(!live || record.is_some_and(|record| !record.task.is_attaching()), || {
            format!("task {id} was answered, and its record is {record:?}")
        })?;
        if let Some(reservation) = client.ask.request.reservation.take() {
            self.reserved.remove(&reservation);
            let back = self.out.store.reservations.contains_key(&reservation);
            check(!back, || format!("reservation {reservation} is task {id} and is there too"))?;
        }
        // A task that lost its record has no process that it is known by.
        let known = |expected: &Expectation| expected.process == process && !expected.lost;
        let twice = self.tasks.iter().find(|(other, expected)| **other != id && known(expected));
        check(twice.is_none(), || format!("process {process:?} is {id} and {twice:?}"))?;
        let priority = client.ask.request.priority.unwrap_or_default();
        let origin = record.map(|record| origin_of(&record.task));
        let new = Expectation {
            process,
            origin,
            priorities: vec![priority],
            releasing: false,
            lost: false,
        };
        self.tasks.entry(id).or_insert(new);
        Ok(())
    }

    fn released(&mut self, id: TaskId) -> Result<(), String> {
        check(!self.out.store.history_state.live.contains_key(&id), || {
            format!("the release of {id} was answered before it was in the history")
        })?;
        let Some(expected) = self.tasks.remove(&id) else { return Ok(()) };
        self.clients.remove(&expected.process);
        let process = self.out.node.tree.alive(expected.process);
        let back = process.is_none_or(|p| p.group == self.home || Some(p.group) == expected.origin);
        // A record that was lost was all that knew where it was.
        check(back || expected.lost, || {
            format!("task {id} was released, and its process is not where it was")
        })
    }

    /// After a start: whatever clients were answered before holds.
    fn promises_are_kept(&mut self) -> Result<(), String> {
        let Some(daemon) = &self.daemon else { return Ok(()) };
        let (core, tree) = (&daemon.core, &self.out.node.tree);
        for (id, expected) in &mut self.tasks {
            let group = core.task(*id).and_then(group_of);
            let inside = tree.alive(expected.process).is_some_and(|p| Some(p.group) == group);
            let Some(task) = core.task(*id) else {
                let alive = tree.alive(expected.process).is_some();
                let forgotten =
                    alive && !self.moved.contains(&expected.process) && !expected.releasing;
                check(!forgotten, || format!("task {id} was forgotten"))?;
                continue;
            };
            if expected.lost {
                check(task.uid.is_none() || !inside, || format!("task {id} lost its record only"))?;
                expected.priorities = vec![task.priority];
                continue;
            }
            let priority = expected.priorities.contains(&task.priority);
            check(priority, || format!("task {id} has another priority: {task:?}, {expected:?}"))?;
            expected.priorities = vec![task.priority];
        }
        self.tasks.retain(|id, _| core.task(*id).is_some());
        let now = self.out.node.now().boot;
        let withdrawn = &self.out.store.withdrawn;
        self.reserved.retain(|id, until| *until > now && !withdrawn.contains(id));
        for id in self.reserved.keys() {
            let user = self.clients.values().find(|c| c.ask.request.reservation == Some(*id));
            let taken = user.is_some_and(|client| daemon.is_task(client.ask.process));
            // The task that used it may have ended before its client got the answer.
            let over = self.out.store.was_used(*id);
            let there = core.reservation(*id).is_some();
            check(there != (taken || over), || {
                format!("reservation {id} is there: {there}, is a task: {taken}, was one: {over}")
            })?;
        }
        if let Some(draining) = self.draining {
            check(core.draining() == draining, || format!("draining is not {draining} any more"))?;
        }
        self.draining = Some(core.draining());
        let attaching = core.tasks().any(|(_, task)| task.is_attaching());
        check(!attaching, || "an admission of the earlier daemon is still under way".to_owned())
    }

    /// The end of a life: everything ends, and nothing is left.
    fn finish(&mut self) -> Result<(), String> {
        self.out.fuse.put_out();
        while self.daemon.is_none() {
            self.start()?;
            self.out.fuse.put_out();
        }
        let calls: Vec<Call> = self.clients.values().filter_map(|client| client.call).collect();
        for call in calls {
            self.with_daemon(|daemon, out| daemon.abandon(call, out))?;
        }
        let pids: Vec<Pid> = self.out.node.tree.processes().keys().copied().collect();
        pids.into_iter().for_each(|pid| self.out.node.tree.end(pid));
        self.out.node.run(Duration::from_secs(10_000));
        for _ in 0..100 {
            self.with_daemon(|daemon, out| daemon.work(out).map(|_| ()))?;
            self.with_daemon(|daemon, out| daemon.listen(out).map(|_| ()))?;
        }
        self.with_daemon(|daemon, out| daemon.tick(out))?;
        self.cycle()?;
        for _ in 0..100 {
            self.with_daemon(|daemon, out| daemon.work(out).map(|_| ()))?;
            self.with_daemon(|daemon, out| daemon.listen(out).map(|_| ()))?;
        }
        let store = &self.out.store;
        let totals = store.history_state.totals;
        check(store.tasks.is_empty(), || format!("records are left: {:?}", store.tasks))?;
        check(store.reservations.is_empty(), || {
            format!("promises are left: {:?}", store.reservations)
        })?;
        check(store.history_state.live.is_empty(), || {
            format!("tasks never end: {:?}", store.history_state.live)
        })?;
        check(totals.admitted == totals.completed + totals.released, || format!("{totals:?}"))?;
        let groups = self.out.task_groups();
        check(groups.is_empty(), || format!("groups are left: {groups:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_lives_break_no_promise() {
        let mut report = Report::default();
        for seed in 0..150 {
            match live(seed, 0..150) {
                Ok(life) => report.add(&life),
                Err(broken) => panic!("seed {seed}: {broken:?}"),
            }
        }
        assert_eq!(report.steps, 150 * 150);
        assert!(report.crashes > 1000, "{report:?}");
        assert_eq!(report.kills.len(), 10, "killed before every kind of deed: {report:?}");
    }

    #[test]
    fn the_same_seed_is_the_same_life() {
        assert_eq!(live(7, 0..200), live(7, 0..200));
        assert_ne!(live(7, 0..200), live(8, 0..200));
    }

    #[test]
    fn a_failure_is_cut_to_what_it_needs() {
        let fails = |steps: &[u64]| steps.contains(&3) && steps.contains(&77);
        assert_eq!(shrink((0..100).collect(), fails), [3, 77]);
    }
}
