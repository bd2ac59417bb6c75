//! Random event sequences against the invariants of the contract, checked after every step;
//! the rules by example are in [`examples`].

mod examples;
mod expansion;
mod forecast;
mod loans;
mod opening;
mod ops;
mod records;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::Measured;
use super::capacity::CpuShares;
use super::cpus::{CpuSet, UsableCpus};
use super::event::{Event, EventKind};
use super::exit::Exit;
use super::guard::freeze::FreezePolicy;
use super::memory::Memory;
use super::model::{Label, Labels, Level, Priority, ReservationId, Standing, TaskId, Tier};
use super::order::QueueOrder;
use super::probe::Formula;
use super::restore::Due;
use super::sample::{MemoryLimit, MemorySample, TaskPressure, TaskSample, ThreadCounters};
use super::shaper::Shaper;
use super::slots::Seat;
use super::state::{
    Lease, Need, Patience, Policy, Refusal, Request, RequestOutcome, Restored, Totals,
};
use super::step::{
    Answer as Reply, Input, Job, Last, NotMoved, Reading, Ready, Record, Step, Ticket,
};
use super::task::{Attachment, GroupRecord, Halt, Task, Who};
use crate::units::{BootTime, Bytes, MemoryAmount, Moment, Share, WallTime};
use ops::{op, step};
use world::{World, check};

fn shaper(cpus: u32) -> Shaper {
    Shaper::new(Policy::simulated(), cpus, Restored::default())
}

fn at(seconds: u64) -> Moment {
    Moment {
        boot: BootTime(Duration::from_secs(seconds)),
        wall: WallTime::from_unix_micros(seconds as i64 * 1_000_000),
    }
}

fn request(priority: i32) -> Request {
    Request {
        uid: 0,
        who: Who::default(),
        labels: Labels::default(),
        priority: Some(Priority(priority)),
        reservation: None,
        need: Need::Slot,
        opportunistic: false,
        by_member: false,
    }
}

fn found(priority: i32, standing: Standing) -> Request {
    let need = if standing == Standing::Slotless { Need::Slotless } else { Need::Discovered };
    let opportunistic = standing == Standing::Opportunistic;
    Request { need, opportunistic, ..request(priority) }
}

/// Seats a discovered task, which nothing can refuse, and attaches it.
fn discover(shaper: &mut Shaper, priority: i32, standing: Standing, now: Moment) -> TaskId {
    let Ok(Answer::Placed(id)) = shaper.ask(found(priority, standing), None, now) else {
        panic!("a found task was refused or made to wait")
    };
    shaper.attached(id, now);
    id
}

/// Admits and attaches at once; panics when refused.
fn admit(shaper: &mut Shaper, priority: i32, now: Moment) -> TaskId {
    match shaper.ask(request(priority), None, now) {
        Ok(Answer::Placed(id)) => {
            shaper.attached(id, now);
            id
        }
        other => panic!("not placed: {other:?}"),
    }
}

/// What a request comes to at once, under a ticket of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Placed(TaskId),
    Waiting(Ticket),
}

/// What a task that used so many seconds of CPU time, and never waited for any, shows.
fn used(seconds: u64) -> TaskSample {
    TaskSample {
        cpu: Some(Duration::from_secs(seconds)),
        pressure: Some(TaskPressure::default()),
        ..TaskSample::default()
    }
}

pub(super) trait Ask {
    fn ask(
        &mut self,
        request: Request,
        patience: Option<Patience>,
        now: Moment,
    ) -> Result<Answer, Refusal>;

    fn promised(
        &mut self,
        uid: u32,
        labels: Labels,
        priority: Priority,
        ttl: Option<Duration>,
        now: Moment,
    ) -> Result<ReservationId, Refusal>;

    fn attached(&mut self, id: TaskId, now: Moment);
}

impl Ask for Shaper {
    fn ask(
        &mut self,
        request: Request,
        patience: Option<Patience>,
        now: Moment,
    ) -> Result<Answer, Refusal> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let ticket = Ticket(NEXT.fetch_add(1, Ordering::Relaxed));
        Ok(match self.request(ticket, request, patience, now)? {
            RequestOutcome::Placed(id) => Answer::Placed(id),
            RequestOutcome::Waiting => {
                // As `handle` does it.
                self.rearrange(now);
                Answer::Waiting(ticket)
            }
        })
    }

    fn promised(
        &mut self,
        uid: u32,
        labels: Labels,
        priority: Priority,
        ttl: Option<Duration>,
        now: Moment,
    ) -> Result<ReservationId, Refusal> {
        let request = Request::of_promise(uid, uid != 0, labels, priority);
        let promised = self.reserve(Ticket(0), request, Lease::one(ttl), None, now)?;
        Ok(promised.expect("it does not wait")[0])
    }

    fn attached(&mut self, id: TaskId, now: Moment) {
        let group = GroupRecord {
            attachment: Attachment::Own,
            path: format!("/lrs/{id}"),
            inode: id.number + 2,
            elsewhere: Vec::new(),
            for_member: false,
            origin: Default::default(),
            found: Vec::new(),
        };
        self.in_place(id, group, used(0), now);
    }
}

fn tier(shaper: &Shaper, id: TaskId) -> Tier {
    shaper.task(id).expect("the task is there").tier()
}

fn events(shaper: &mut Shaper) -> Vec<EventKind> {
    shaper.take_step().events.into_iter().map(|event| event.kind).collect()
}

fn cpu(effective: f64) -> Option<CpuShares> {
    Some(CpuShares { effective: Share::clamped(effective), ..CpuShares::default() })
}

fn end(shaper: &mut Shaper, id: TaskId, now: Moment) {
    shaper.vacate(&[id], now);
    shaper.completed(vec![(id, Last::Unread)], now);
}

fn is_in_lane(level: Level) -> bool {
    matches!(level, Level::Lane | Level::SlowLane)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_events_breaks_an_invariant(
        ops in prop::collection::vec((op(), -20i64..40), 1..120),
    ) {
        let mut shaper = shaper(2);
        let mut world = World::default();
        let mut clock = 1000i64;
        for (op, advance) in ops {
            // Mostly forward, sometimes backwards, once in a while far.
            clock = (clock + if advance == 39 { 1_000_000 } else { advance }).max(0);
            let now = at(clock as u64);
            let passive = |task: &Task| {
                task.halted.is_some() && matches!(task.seat, Seat::Passive | Seat::Overflow)
            };
            let halted = shaper.tasks().filter(|(_, task)| passive(task));
            let halted: Vec<_> = halted.map(|(id, _)| id).collect();
            step(&mut shaper, &mut world, op, now);
            world.absorb(&mut shaper);
            for task in halted.iter().filter_map(|id| shaper.task(*id)) {
                let promoted = task.halted.is_some() && task.seat == Seat::Active;
                prop_assert!(!promoted, "{} cannot run and was promoted", task.id);
            }
            let alive: BTreeSet<_> = shaper.tasks().map(|(id, _)| id).collect();
            world.levels.retain(|id, _| alive.contains(id));
            check(&shaper, &world);
        }
        // Every reservation ends: at the end of time nothing is held any more.
        shaper.expire(Moment { boot: BootTime(Duration::MAX), ..Moment::default() });
        world.absorb(&mut shaper);
        prop_assert!(world.reserved.is_empty());
        // No task keeps the weights of the lane where nothing looks at what it uses.
        let stopped = shaper.handle(Input::Stop, at(clock.max(0) as u64));
        world.carry_out(stopped, &mut shaper);
        let in_lane = |(id, level): (&TaskId, &Level)| is_in_lane(*level).then_some(*id);
        let left: Vec<_> = world.levels.iter().filter_map(in_lane).collect();
        prop_assert!(left.iter().all(|id| shaper.task(*id).is_none()), "{left:?} stay in the lane");
    }

    #[test]
    fn the_queue_is_shown_in_the_order_of_its_grants(
        asked in prop::collection::vec((-2..3i32, 0..3u32, 0..20u64), 1..12),
    ) {
        let mut shaper = shaper(1);
        let one = Some(1);
        let policy = Policy { active: one, passive: one, passive_max: one, ..Policy::simulated() };
        shaper.set_policy(policy, at(20));
        let mut running = vec![admit(&mut shaper, 0, at(20)), admit(&mut shaper, 0, at(20))];
        for (priority, uid, since) in asked {
            let first_requested = at(since).wall;
            let patience = Some(Patience { first_requested, deadline: None, parks: false });
            let asks = Request { uid, ..request(priority) };
            let answer = shaper.ask(asks, patience, at(20));
            prop_assert!(matches!(answer, Ok(Answer::Waiting(_))));
        }
        let shown: Vec<_> = shaper.queue().map(|waiting| waiting.ticket()).collect();
        let mut granted = Vec::new();
        shaper.take_step();
        while let Some(task) = running.pop() {
            end(&mut shaper, task, at(21));
            for job in shaper.take_step().jobs {
                if let Job::Prepare { task, ticket } = job {
                    granted.push(ticket);
                    shaper.attached(task, at(21));
                    running.push(task);
                }
            }
        }
        prop_assert_eq!(granted, shown);
    }

    #[test]
    fn promotions_follow_priority_then_admission(
        priorities in prop::collection::vec(-2..3i32, 3..12),
    ) {
        let mut shaper = shaper(1);
        shaper.set_policy(Policy { active: Some(1), passive: Some(20), ..Policy::simulated() }, at(0));
        let ids: Vec<_> =
            priorities.iter().map(|p| admit(&mut shaper, *p, at(1))).collect();
        let mut expected: Vec<_> = ids.iter().copied().zip(&priorities).collect();
        expected.sort_by_key(|(id, priority)| (std::cmp::Reverse(**priority), *id));
        for (id, _) in expected {
            prop_assert_eq!(tier(&shaper, id), Tier::Active);
            end(&mut shaper, id, at(2));
        }
        prop_assert_eq!(shaper.tasks().len(), 0);
    }
}
