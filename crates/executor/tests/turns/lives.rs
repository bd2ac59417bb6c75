//! Random lives of a node with its loop: members admit, wait, reserve, release and go; processes compute,
//! write, sleep, fork and end; strangers write weights, move and freeze; deeds are refused; the daemon is killed before any deed and
//! begins again, on the same boot or another, with all records or without one. After every turn slots and
//! priorities are as they have to be; whenever nothing is under way everything is, and another daemon that
//! begins then changes nothing.
//!
//! Each seed leaves some kinds of events out, and weighs the others as it likes, so that one life is full of
//! kills and the next has none. A seed that fails is played again with `LRS_LIVES_SEED`. `LRS_LIVES_STEPS`:
//! how many steps in all.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use lrs_sim::load::Load;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::bench::{Answer, MEMBER, request};
use super::every_point::{check, wind_up};
use super::{Bench, Call, Fault};
use lrs_api::proto;
use lrs_config::Auto;
use lrs_core::event::EventKind;
use lrs_core::model::{Label, Priority, ReservationId, TaskId};
use lrs_core::recording::Entry;
use lrs_core::state::Lease;
use lrs_core::task::Finder;
use lrs_core::units::{Moment, Pid, ProcessRef};
use lrs_executor::command::{AdmitRequest, Caller, Command, QueueId, ReserveRequest, Wait};
use lrs_executor::found::{Attach, DiscoveredTask, Presumed};
use lrs_recording::anonymous::Anonymous;
use lrs_recording::replay::{Played, Player, same};
use lrs_sim::pretend::{HOME, Tape};

/// Steps of one life.
const STEPS: usize = 200;

/// With more processes than these one ends.
const MOST_PROCESSES: usize = 25;

/// Events that there are in some life.
const EXPECTED: [EventKind; 19] = [
    EventKind::Admitted,
    EventKind::Cancelled,
    EventKind::Completed,
    EventKind::Contested,
    EventKind::Demoted,
    EventKind::Draining,
    EventKind::Drift,
    EventKind::Exit,
    EventKind::Expired,
    EventKind::Left,
    EventKind::Priority,
    EventKind::Promoted,
    EventKind::Refused,
    EventKind::Released,
    EventKind::Reloaded,
    EventKind::Reserved,
    EventKind::Resized,
    EventKind::Resumed,
    EventKind::Withdrawn,
];

/// Those of them that take many lives.
const RARE: [EventKind; 2] = [EventKind::Left, EventKind::Withdrawn];

/// The steps in which they occur.
const RARE_FROM: u64 = 100_000;

/// What may happen.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Admit,
    AdmitAndWait,
    AdmitInPlace,
    Discover,
    DiscoverInPlace,
    ClientGoes,
    Exit,
    Fork,
    Release,
    Reserve,
    ReserveAndWait,
    Redeem,
    Cancel,
    SetPriority,
    Drain,
    Resume,
    Reload,
    Later,
    Finish,
    Cycle,
    Write,
    Move,
    Leave,
    Freeze,
    FreezeRoot,
    Refuse,
    Kill,
    LoseRecord,
    Reboot,
}

const HAPPENINGS: [Happening; 29] = [
    Happening::Admit,
    Happening::AdmitAndWait,
    Happening::AdmitInPlace,
    Happening::Discover,
    Happening::DiscoverInPlace,
    Happening::ClientGoes,
    Happening::Exit,
    Happening::Fork,
    Happening::Release,
    Happening::Reserve,
    Happening::ReserveAndWait,
    Happening::Redeem,
    Happening::Cancel,
    Happening::SetPriority,
    Happening::Drain,
    Happening::Resume,
    Happening::Reload,
    Happening::Later,
    Happening::Finish,
    Happening::Cycle,
    Happening::Write,
    Happening::Move,
    Happening::Leave,
    Happening::Freeze,
    Happening::FreezeRoot,
    Happening::Refuse,
    Happening::Kill,
    Happening::LoseRecord,
    Happening::Reboot,
];

struct Life {
    bench: Option<Bench>,
    numbers: Rng,
    /// How likely each of [`HAPPENINGS`] is.
    weights: Vec<usize>,
    answers: Vec<Answer<proto::Task>>,
    reservations: Vec<ReservationId>,
    /// Tasks that clients were answered.
    admitted: BTreeSet<TaskId>,
    /// What all daemons decided.
    tape: Tape,
}

impl Life {
    fn new(seed: u64) -> Life {
        let mut numbers = Rng::with_seed(seed);
        let weights = HAPPENINGS.map(|happening| match happening {
            // Without them nothing happens at all.
            Happening::Admit | Happening::Exit | Happening::Finish => numbers.usize(4..12),
            // With few of them something is left to be lost.
            Happening::Reboot | Happening::LoseRecord => usize::from(numbers.u8(..3) == 0),
            _ if numbers.u8(..3) == 0 => 0,
            _ => numbers.usize(1..8),
        });
        let bench = Bench::new(numbers.u32(1..4), numbers.u32(0..4));
        let (answers, reservations, admitted) = (Vec::new(), Vec::new(), BTreeSet::new());
        let weights = weights.to_vec();
        let tape = Tape::default();
        let mut life =
            Life { bench: Some(bench), numbers, weights, answers, reservations, admitted, tape };
        // To play a life takes several times as long as to live it.
        if !seed.is_multiple_of(8) {
            return life;
        }
        let first = life.bench().order(|caller, reply| Command::Record { caller, reply });
        life.tape.add(first.blocking_recv().unwrap().unwrap());
        life.bench().world().tape = Some(life.tape.clone());
        life
    }

    fn bench(&mut self) -> &mut Bench {
        self.bench.as_mut().unwrap()
    }

    fn draw(&mut self) -> Happening {
        let all: usize = self.weights.iter().sum();
        let mut left = self.numbers.usize(..all);
        let found = HAPPENINGS.iter().zip(&self.weights).find(|(_, weight)| {
            let here = left < **weight;
            left = left.saturating_sub(**weight);
            here
        });
        *found.unwrap().0
    }

    /// Something that a process may do: each amount lasts for seconds to minutes.
    fn load(&mut self) -> Load {
        let numbers = &mut self.numbers;
        let rounds = [None, None, Some(1), Some(3)][numbers.usize(..4)];
        let resident = if numbers.u8(..8) == 0 { numbers.u64(..1 << 29) } else { 1 << 20 };
        let cpu = Duration::from_millis(numbers.u64(100..60_000));
        let hog = Load { rounds, resident, ..Load::hog(cpu) };
        match numbers.u8(..4) {
            0 => Load { resident, ..Load::sleeper() },
            1 => hog,
            2 => Load { cpu: Duration::ZERO, requests: numbers.u32(10..5000), ..hog },
            _ => Load { requests: numbers.u32(10..5000), sleep: cpu, threads: 2, ..hog },
        }
    }

    /// A new process of `uid`, which does something.
    fn start(&mut self, uid: u32) -> ProcessRef {
        let load = self.load();
        let process = self.bench().world().start(uid);
        self.bench().world().node().tree.begin(process.pid, load);
        process
    }

    fn process(&mut self) -> Option<Pid> {
        let living = self.bench().living();
        let index = self.numbers.usize(..living.len().max(1));
        living.get(index).map(|(pid, _)| *pid)
    }

    /// A fault before one of the next deeds.
    fn fault(&mut self, fault: Fault) {
        let at = self.bench.as_mut().unwrap().world().deeds.count + self.numbers.usize(..12);
        self.bench().world().deeds.fault = Some((at, fault));
    }

    fn step(&mut self) -> Happening {
        let full = self.bench().living().len() >= MOST_PROCESSES;
        let happening = if full { Happening::Exit } else { self.draw() };
        match happening {
            Happening::Admit | Happening::AdmitAndWait => {
                let uid = MEMBER + self.numbers.u32(..3);
                let process = self.start(uid);
                let wait = match (happening, self.numbers.bool()) {
                    (Happening::Admit, _) => Wait::No,
                    (_, true) => Wait::Forever,
                    (_, false) => Wait::For(Duration::from_secs(self.numbers.u64(1..200))),
                };
                let answer = self.bench().admit(process, wait);
                self.answers.push(answer);
            }
            Happening::AdmitInPlace => {
                let process = self.elsewhere();
                let answer = self.bench().order(|caller, reply| Command::Admit {
                    caller,
                    request: request(process, Wait::No, true),
                    reply,
                });
                self.answers.push(answer);
            }
            Happening::Discover => {
                let process = self.start(MEMBER);
                self.discover(process, Attach::Descendants { from: Some(HOME.to_owned()) });
            }
            Happening::DiscoverInPlace => {
                let process = self.elsewhere();
                let cgroup = self.bench().world().group_of(process.pid).unwrap().to_owned();
                self.discover(process, Attach::InPlace { cgroup });
            }
            Happening::ClientGoes => {
                let index = self.numbers.usize(..self.answers.len().max(1));
                if index < self.answers.len() {
                    self.answers.swap_remove(index);
                }
                self.bench().turn(Vec::new());
            }
            Happening::Exit => {
                if let Some(pid) = self.process() {
                    self.bench().end(pid);
                }
            }
            Happening::Fork => {
                if let Some(pid) = self.process() {
                    let load = self.load();
                    if let Some(child) = self.bench().world().fork(pid) {
                        self.bench().world().node().tree.begin(child.pid, load);
                    }
                }
            }
            Happening::Release => {
                let shown: Vec<_> = self.bench().shown_ids().into_iter().collect();
                let index = self.numbers.usize(..shown.len().max(1));
                if let Some(id) = shown.get(index).copied() {
                    drop(self.bench().order(|caller, reply| Command::Release {
                        caller,
                        id,
                        reply,
                    }));
                }
            }
            Happening::Reserve => self.reserve(Wait::No),
            Happening::ReserveAndWait => self.reserve(Wait::For(Duration::from_secs(100))),
            Happening::Redeem => {
                if let Some(id) = self.reservations.pop() {
                    let process = self.start(0);
                    let reservation = Some(id);
                    let answer = self.bench().order(|caller, reply| Command::Admit {
                        caller,
                        request: AdmitRequest { reservation, ..request(process, Wait::No, false) },
                        reply,
                    });
                    self.answers.push(answer);
                }
            }
            Happening::SetPriority => {
                let shown: Vec<_> = self.bench().shown_ids().into_iter().collect();
                let index = self.numbers.usize(..shown.len().max(1));
                let priority = Priority(self.numbers.i32(-5..5));
                if let Some(id) = shown.get(index).copied() {
                    drop(self.bench().order(|caller, reply| Command::SetPriority {
                        caller,
                        id,
                        priority,
                        reply,
                    }));
                }
            }
            Happening::Drain => {
                drop(self.bench().order(|caller, reply| Command::Drain { caller, reply }));
            }
            Happening::Resume => {
                drop(self.bench().order(|caller, reply| Command::Resume { caller, reply }));
            }
            Happening::Reload => {
                let (active, passive) = (self.numbers.u32(1..4), self.numbers.u32(0..4));
                let slots = &mut self.bench().world().config.slots;
                slots.active = Auto::Fixed(active);
                (slots.passive, slots.passive_max) = (Auto::Fixed(passive), Auto::Fixed(passive));
                drop(self.bench().order(|caller, reply| Command::Reload { caller, reply }));
            }
            Happening::Later => {
                let time = Duration::from_millis(self.numbers.u64(1..50_000));
                self.bench().later(time);
                self.bench().turn(Vec::new());
            }
            Happening::FreezeRoot => {
                let on = self.numbers.bool();
                self.bench().world().freeze_root(on);
            }
            Happening::Cancel => {
                if let Some(id) = self.reservations.pop() {
                    let id = QueueId::Reservation(id);
                    drop(self.bench().order(|caller, reply| Command::CancelReservation {
                        caller,
                        id,
                        reply,
                    }));
                }
            }
            Happening::Finish => drop(self.bench().finish()),
            Happening::Cycle => self.bench().cycle(),
            Happening::Write | Happening::Move => {
                if let Some(pid) = self.process() {
                    self.fault(match happening {
                        Happening::Write => Fault::Write(pid),
                        _ => Fault::Move(pid),
                    });
                }
            }
            Happening::Leave => {
                // As systemd-run does inside a task.
                let path = self.elsewhere_path();
                if let Some(pid) = self.process() {
                    self.bench().world().leave_for(pid, &path);
                    if self.numbers.bool() {
                        // In company it cannot go on in place there.
                        let other = self.bench().world().start(MEMBER);
                        self.bench().world().move_away(other.pid, &path);
                    }
                }
            }
            Happening::Freeze => {
                let pid = self.process();
                let group =
                    pid.and_then(|pid| self.bench().world().group_of(pid).map(str::to_owned));
                if let Some(group) = group.filter(|group| group != HOME) {
                    let on = self.numbers.bool();
                    self.bench().world().freeze_as_stranger(&group, on);
                }
            }
            Happening::Refuse => self.fault(Fault::Refuse),
            Happening::Kill => {
                self.fault(Fault::Kill);
                for _ in 0..self.numbers.usize(..6) {
                    // Whatever the daemon was doing.
                    self.bench().finish();
                }
                // Those that waited for an answer have none.
                self.answers.clear();
                let time = Duration::from_millis(self.numbers.u64(..20_000));
                self.bench().later(time);
                self.bench = self.bench.take().map(Bench::restart);
            }
            Happening::LoseRecord => {
                self.answers.clear();
                let ids: Vec<_> = self.bench().world().tasks.keys().copied().collect();
                let index = self.numbers.usize(..ids.len().max(1));
                if let Some(id) = ids.get(index) {
                    self.bench().world().tasks.remove(id);
                    // One in place, or on its way, is known by its record alone.
                    self.admitted.remove(id);
                }
                self.bench = self.bench.take().map(Bench::restart);
            }
            Happening::Reboot => {
                self.answers.clear();
                self.reservations.clear();
                self.bench = self.bench.take().map(Bench::reboot);
            }
        }
        happening
    }

    /// Notes which admissions were answered.
    fn take_answers(&mut self) {
        let admitted = &mut self.admitted;
        self.answers.retain_mut(|answer| match answer.try_recv() {
            Ok(answer) => {
                admitted.extend(answer.ok().and_then(|task| task.id.parse::<TaskId>().ok()));
                false
            }
            Err(TryRecvError::Empty) => true,
            Err(TryRecvError::Closed) => false,
        });
    }

    /// What was answered is so until an event says that it is over.
    fn check_answered(&mut self, why: &str) {
        let shown = self.bench().shown_ids();
        let history = self.bench().stored().history;
        for id in &self.admitted {
            assert!(!history.live.contains_key(id) || shown.contains(id), "{why}: {id} is lost");
        }
        self.admitted.retain(|id| shown.contains(id));
        let events = &self.bench.as_mut().unwrap().world().events;
        let recorded = |id: &TaskId| {
            let name = id.to_string();
            events.iter().any(|event| {
                event.kind == EventKind::Admitted && event.task.as_ref() == Some(&name)
            })
        };
        for id in &self.admitted {
            assert!(recorded(id), "{why}: {id} was answered, and the history has no admission");
        }
    }

    /// A daemon that begins while nothing is under way changes nothing.
    fn restart_quietly(&mut self, why: &str) {
        let shown = |bench: &mut Bench| -> Vec<_> {
            let ids = bench.shown_ids();
            let tasks = bench.core().tasks().filter(|(id, _)| ids.contains(id));
            tasks.map(|(id, it)| (id, it.seat, it.priority, it.labels.clone())).collect()
        };
        let before = shown(self.bench());
        self.answers.clear();
        self.bench = self.bench.take().map(Bench::restart);
        assert_eq!(shown(self.bench()), before, "{why}: another daemon");
        let start = std::mem::take(&mut self.bench().start);
        let makes = start.iter().any(|call| matches!(call, Call::Make(_)));
        assert!(!makes, "{why}: another daemon did {start:?}");
    }

    fn elsewhere_path(&mut self) -> String {
        let number = self.numbers.u32(..);
        format!("/others/{number}")
    }

    /// A process in a group of a stranger's.
    fn elsewhere(&mut self) -> ProcessRef {
        let path = self.elsewhere_path();
        self.bench().world().start_in(&path, MEMBER)
    }

    fn discover(&mut self, process: ProcessRef, attach: Attach) {
        let found = DiscoveredTask {
            process,
            labels: Default::default(),
            priority: None,
            standing: None,
            presumed: Presumed::Slot,
            attach,
            again: false,
            finder: Finder::Rule(Label::new("made-up").unwrap()),
        };
        let found = Box::new(found);
        let (reply, _) = oneshot::channel();
        self.bench().turn(vec![Command::Discover { found, reply }]);
    }

    fn reserve(&mut self, wait: Wait) {
        let (uid, count) = (MEMBER + self.numbers.u32(..3), self.numbers.u32(1..4));
        let mut answer = self.bench().order(|caller, reply| Command::Reserve {
            caller: Caller { uid, gids: vec![100], ..caller },
            request: ReserveRequest {
                labels: Default::default(),
                priority: Priority(0),
                lease: Lease { count, ..Lease::one(None) },
                wait,
            },
            reply,
        });
        if let Ok(Ok(promised)) = answer.try_recv() {
            let ids = [promised.id].into_iter().chain(promised.others.into_iter().map(|it| it.id));
            self.reservations.extend(ids.map(|id| id.parse::<ReservationId>().unwrap()));
        }
    }
}

/// What was recorded of all daemons decides the same again, read as a recording has it, and without names.
fn plays(entries: &[Entry], seed: u64) {
    let (mut player, mut anonymous) = (Player::default(), Anonymous::default());
    let mut daemons = 0;
    for (number, entry) in entries.iter().enumerate() {
        // At any time all of a core can be read back.
        if let Some(core) = player.core().filter(|_| number % 16 == 0) {
            let whole = Entry::Core(Box::new(core.clone()), Moment::default());
            let read = lrs_recording::decode(&lrs_recording::encode(&whole).unwrap());
            let read = read.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(format!("{whole:?}"), format!("{read:?}"), "seed {seed}");
        }
        let entry = lrs_recording::decode(&lrs_recording::encode(entry).unwrap());
        let entry = entry.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let played = player.play(&entry).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        match (played, &entry) {
            (Played::Step(now), Entry::Decided(then)) => {
                assert!(same(&now, &then.step), "seed {seed}: {then:?} is now {now:?}");
            }
            (Played::Began(_), Entry::Core(_, _)) => daemons += 1,
            _ => panic!("seed {seed}: {entry:?}"),
        }
        anonymous.entry(entry).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(daemons > 0 || !seed.is_multiple_of(8));
}

/// One life; `traced`: each step with its effects, for a seed that is looked into.
fn live(seed: u64, traced: bool) -> BTreeSet<EventKind> {
    let mut life = Life::new(seed);
    let mut last = Vec::new();
    for step in 0..STEPS {
        let happening = life.step();
        last.push(happening);
        let calls = life.bench().take_calls();
        if traced {
            eprintln!("step {step}: {happening:?} {calls:?}");
        }
        let why = format!("LRS_LIVES_SEED={seed}, after step {step}, {last:?}");
        super::invariants::slots(life.bench().core(), &why);
        life.take_answers();
        if step % 20 == 19 {
            life.bench().world().deeds.fault = None;
            if life.numbers.bool() {
                life.bench().back_to_normal();
            }
            life.bench().finish_all();
            (0..5).for_each(|_| life.bench().cycle());
            check(life.bench(), &why);
            life.check_answered(&why);
            if life.numbers.bool() {
                life.restart_quietly(&why);
            }
            last.clear();
        }
    }
    life.answers.clear();
    life.bench().back_to_normal();
    for id in std::mem::take(&mut life.reservations) {
        let id = QueueId::Reservation(id);
        drop(life.bench().order(|caller, reply| Command::CancelReservation { caller, id, reply }));
    }
    plays(&life.tape.take(), seed);
    let happened = life.bench().world().events.iter().map(|event| event.kind).collect();
    wind_up(life.bench.take().unwrap(), &format!("LRS_LIVES_SEED={seed}, at the end"));
    happened
}

#[allow(clippy::disallowed_methods)] // which seed and how many steps is the developer's to say
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
#[allow(clippy::disallowed_methods)] // threads of the test, each with worlds of its own
fn nothing_is_lost_in_random_lives() {
    if let Some(seed) = number("LRS_LIVES_SEED") {
        live(seed, true);
        return;
    }
    let steps = number("LRS_LIVES_STEPS").unwrap_or(8_000);
    let next = AtomicU64::new(0);
    let lives = || {
        let mut happened = BTreeSet::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= steps.div_ceil(STEPS as u64) {
                return happened;
            }
            happened.extend(live(seed, false));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let happened: BTreeSet<EventKind> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(lives)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("its panic is above")).collect()
    });
    // Else the lives are poorer than they seem.
    let missing = EXPECTED.iter().filter(|kind| !happened.contains(kind));
    let missing: Vec<_> =
        missing.filter(|kind| steps >= RARE_FROM || !RARE.contains(kind)).collect();
    assert!(missing.is_empty(), "never in {steps} steps: {missing:?}");
}
