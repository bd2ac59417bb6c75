//! Random lives of a node with its loop: members admit, wait, reserve, release and go; processes fork and
//! end; strangers write weights, move and freeze; deeds are refused; the daemon is killed before any deed and
//! begins again. Whenever nothing is under way everything is as it has to be.
//!
//! Each seed leaves some kinds of events out, and weighs the others as it likes, so that one life is full of
//! kills and the next has none. A seed that fails is played again with `LRS_LIVES_SEED`. `LRS_LIVES_STEPS`:
//! how many steps in all.

use fastrand::Rng;

use super::bench::{Answer, MEMBER};
use super::every_point::{check, wind_up};
use super::made_up::HOME;
use super::{Bench, Fault};
use crate::command::{Command, QueueId, ReserveRequest, Wait};
use crate::core::model::{Priority, ReservationId};
use crate::core::state::Lease;
use crate::proto;
use crate::units::Pid;

/// Steps of one life.
const STEPS: usize = 200;

/// What may happen.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Admit,
    AdmitAndWait,
    ClientGoes,
    Exit,
    Fork,
    Release,
    Reserve,
    Cancel,
    Finish,
    Cycle,
    Write,
    Move,
    Freeze,
    Refuse,
    Kill,
}

const HAPPENINGS: [Happening; 15] = [
    Happening::Admit,
    Happening::AdmitAndWait,
    Happening::ClientGoes,
    Happening::Exit,
    Happening::Fork,
    Happening::Release,
    Happening::Reserve,
    Happening::Cancel,
    Happening::Finish,
    Happening::Cycle,
    Happening::Write,
    Happening::Move,
    Happening::Freeze,
    Happening::Refuse,
    Happening::Kill,
];

struct Life {
    bench: Option<Bench>,
    numbers: Rng,
    /// How likely each of [`HAPPENINGS`] is.
    weights: Vec<usize>,
    answers: Vec<Answer<proto::Task>>,
    reservations: Vec<ReservationId>,
}

impl Life {
    fn new(seed: u64) -> Life {
        let mut numbers = Rng::with_seed(seed);
        let weights = HAPPENINGS.map(|happening| match happening {
            // Without them nothing happens at all.
            Happening::Admit | Happening::Exit | Happening::Finish => numbers.usize(4..12),
            _ if numbers.u8(..3) == 0 => 0,
            _ => numbers.usize(1..8),
        });
        let bench = Bench::new(numbers.u32(1..4), numbers.u32(0..4));
        let (answers, reservations) = (Vec::new(), Vec::new());
        let weights = weights.to_vec();
        Life { bench: Some(bench), numbers, weights, answers, reservations }
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

    fn process(&mut self) -> Option<Pid> {
        let living = self.bench().living();
        let index = self.numbers.usize(..living.len().max(1));
        living.get(index).map(|(pid, _)| *pid)
    }

    /// A fault before one of the next deeds.
    fn fault(&mut self, fault: Fault) {
        let at = self.bench.as_mut().unwrap().world().deeds + self.numbers.usize(..12);
        self.bench().world().fault = Some((at, fault));
    }

    fn step(&mut self) -> Happening {
        let happening = self.draw();
        match happening {
            Happening::Admit | Happening::AdmitAndWait => {
                let uid = MEMBER + self.numbers.u32(..3);
                let process = self.bench().world().start(uid);
                let wait = match happening {
                    Happening::Admit => Wait::No,
                    _ => Wait::Forever,
                };
                let answer = self.bench().admit(process, wait);
                self.answers.push(answer);
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
                // More of them than end would fill the node.
                let few = self.bench().living().len() < 30;
                if let Some(pid) = self.process().filter(|_| few) {
                    self.bench().world().fork(pid);
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
            Happening::Reserve => self.reserve(),
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
            Happening::Freeze => {
                let pid = self.process();
                let group = pid.map(|pid| self.bench().world().group_of(pid).to_owned());
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
                self.bench = self.bench.take().map(Bench::restart);
            }
        }
        happening
    }

    fn reserve(&mut self) {
        let mut answer = self.bench().order(|caller, reply| Command::Reserve {
            caller,
            request: ReserveRequest {
                labels: Default::default(),
                priority: Priority(0),
                lease: Lease::one(None),
                wait: Wait::No,
            },
            reply,
        });
        if let Ok(Ok(promised)) = answer.try_recv() {
            self.reservations.push(promised.id.parse().unwrap());
        }
    }
}

/// One life; `traced`: each step with its effects, for a seed that is looked into.
fn live(seed: u64, traced: bool) {
    let mut life = Life::new(seed);
    let mut last = Vec::new();
    for step in 0..STEPS {
        let happening = life.step();
        last.push(happening);
        let calls = std::mem::take(&mut life.bench().world().calls);
        if traced {
            eprintln!("step {step}: {happening:?} {calls:?}");
        }
        if step % 20 == 19 {
            let why = format!("LRS_LIVES_SEED={seed}, after step {step}, {last:?}");
            life.bench().world().fault = None;
            life.bench().finish_all();
            (0..5).for_each(|_| life.bench().cycle());
            check(life.bench(), &why);
            last.clear();
        }
    }
    life.answers.clear();
    for id in std::mem::take(&mut life.reservations) {
        let id = QueueId::Reservation(id);
        drop(life.bench().order(|caller, reply| Command::CancelReservation { caller, id, reply }));
    }
    wind_up(life.bench.take().unwrap(), &format!("LRS_LIVES_SEED={seed}, at the end"));
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn nothing_is_lost_in_random_lives() {
    if let Some(seed) = number("LRS_LIVES_SEED") {
        return live(seed, true);
    }
    let steps = number("LRS_LIVES_STEPS").unwrap_or(20_000);
    (0..steps.div_ceil(STEPS as u64)).for_each(|seed| live(seed, false));
}
