//! Random event sequences against the invariants of the contract, checked after every step,
//! and the placement rules by example.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::Measured;
use super::capacity::CpuShares;
use super::event::{Event, EventKind};
use super::exit::Exit;
use super::guard::Memory;
use super::guard::freeze::FreezePolicy;
use super::model::{Label, Labels, Level, Priority, ReservationId, Standing, TaskId, Tier};
use super::order::QueueOrder;
use super::probe::Formula;
use super::restore::Due;
use super::sample::{TaskPressure, TaskSample, ThreadCounters};
use super::shaper::Shaper;
use super::slots::Seat;
use super::state::{Asked, Lease, Need, Patience, Policy, Refusal, Request, Restored, Totals};
use super::step::{
    Answer as Told, Input, Job, Last, NotMoved, Reading, Ready, Record, Step, Ticket,
};
use super::task::{Attachment, GroupRecord, Task, Who};
use crate::units::{BootTime, Bytes, Moment, Share, WallTime};

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
            Asked::Placed(id) => Answer::Placed(id),
            Asked::Waiting => Answer::Waiting(ticket),
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
        let request = Request::of_promise(uid, labels, priority);
        let promised = self.reserve(Ticket(0), request, Lease::one(ttl), None, now)?;
        Ok(promised.expect("it does not wait")[0])
    }

    fn attached(&mut self, id: TaskId, now: Moment) {
        let group = GroupRecord {
            attachment: Attachment::Own,
            path: format!("/lrs/{id}"),
            inode: id.number + 2,
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

fn end(shaper: &mut Shaper, id: TaskId, now: Moment) {
    shaper.vacate(&[id], now);
    shaper.completed(vec![(id, Last::Unread)], now);
}

// --- the rules by example ---

#[test]
fn tasks_fill_active_slots_first_and_are_promoted_first_come_first_served() {
    let mut shaper = shaper(2);
    let ids: Vec<_> = (0..4).map(|i| admit(&mut shaper, 0, at(i))).collect();
    assert_eq!(
        ids.iter().map(|id| tier(&shaper, *id)).collect::<Vec<_>>(),
        [Tier::Active, Tier::Active, Tier::Passive, Tier::Passive]
    );
    assert!(matches!(
        shaper.ask(request(i32::MAX), None, at(5)),
        Err(Refusal::NoFreeSlot { active: 2, passive: 2 })
    ));
    end(&mut shaper, ids[0], at(6));
    assert_eq!(tier(&shaper, ids[2]), Tier::Active);
    assert_eq!(tier(&shaper, ids[3]), Tier::Passive);
    assert_eq!(shaper.passive_offered(), 1, "its passive slot is free for new work");
    assert_eq!(shaper.task(ids[2]).unwrap().promoted_at, Some(at(6).wall));
}

#[test]
fn a_higher_priority_displaces_the_lowest_latest_active_task() {
    let mut shaper = shaper(2);
    let first = admit(&mut shaper, 0, at(0));
    let second = admit(&mut shaper, 0, at(1));
    shaper.take_step();
    let urgent = admit(&mut shaper, 7, at(2));
    assert_eq!(tier(&shaper, urgent), Tier::Active);
    assert_eq!(tier(&shaper, first), Tier::Active);
    assert_eq!(tier(&shaper, second), Tier::Passive);
    assert_eq!(events(&mut shaper), [EventKind::Demoted, EventKind::Admitted]);
    // The demoted one keeps its place: it comes before a later one of the same priority.
    let later = admit(&mut shaper, 0, at(3));
    end(&mut shaper, urgent, at(4));
    assert_eq!(tier(&shaper, second), Tier::Active);
    assert_eq!(tier(&shaper, later), Tier::Passive);
}

#[test]
fn set_priority_applies_at_once_in_both_directions() {
    let mut shaper = shaper(1);
    let first = admit(&mut shaper, 0, at(0));
    let second = admit(&mut shaper, 0, at(1));
    shaper.set_priority(second, Priority(1), at(2));
    assert_eq!((tier(&shaper, first), tier(&shaper, second)), (Tier::Passive, Tier::Active));
    shaper.set_priority(second, Priority(i32::MIN), at(3));
    assert_eq!((tier(&shaper, first), tier(&shaper, second)), (Tier::Active, Tier::Passive));
    assert_eq!(shaper.totals().promoted, 2);
    assert_eq!(shaper.totals().demoted, 2);
}

#[test]
fn a_reservation_never_demotes_nor_blocks_a_running_passive_task() {
    let mut shaper = shaper(1);
    let zero = Labels::default;
    let rid = shaper.promised(0, zero(), Priority(9), None, at(0)).unwrap();
    assert_eq!(shaper.reservation(rid).unwrap().tier, Tier::Active);
    let running = admit(&mut shaper, 0, at(1));
    assert_eq!(tier(&shaper, running), Tier::Active, "a promise keeps no running work waiting");
    assert_eq!(shaper.reservation(rid).unwrap().tier, Tier::Passive);
    assert_eq!((shaper.active_offered(), shaper.passive_offered()), (0, 0));
    // Its admission swaps by priority.
    let mut with = request(9);
    with.reservation = Some(rid);
    with.priority = None;
    let Ok(Answer::Placed(urgent)) = shaper.ask(with.clone(), None, at(2)) else { panic!() };
    assert_eq!(tier(&shaper, urgent), Tier::Active);
    assert_eq!(tier(&shaper, running), Tier::Passive);
    assert_eq!(shaper.ask(with, None, at(3)), Err(Refusal::ReservationEnded(rid)));
}

#[test]
fn a_reservation_keeps_its_place_in_the_order() {
    let mut shaper = shaper(1);
    let active = admit(&mut shaper, 0, at(0));
    let rid = shaper.promised(0, Labels::default(), Priority(0), None, at(1)).unwrap();
    shaper.set_policy(Policy { passive: Some(3), ..Policy::simulated() }, at(1));
    let later = admit(&mut shaper, 0, at(2));
    let mut with = request(0);
    with.reservation = Some(rid);
    let Ok(Answer::Placed(reserved)) = shaper.ask(with, None, at(3)) else { panic!() };
    shaper.attached(reserved, at(3));
    end(&mut shaper, active, at(4));
    assert_eq!(tier(&shaper, reserved), Tier::Active);
    assert_eq!(tier(&shaper, later), Tier::Passive);
}

#[test]
fn a_reservation_that_failed_to_attach_is_back() {
    let mut shaper = shaper(1);
    let rid = shaper.promised(0, Labels::default(), Priority(0), None, at(0)).unwrap();
    let mut with = request(0);
    with.reservation = Some(rid);
    let Ok(Answer::Placed(id)) = shaper.ask(with.clone(), None, at(1)) else { panic!() };
    shaper.attach_failed(id, "process 17 has ended", at(1));
    assert!(shaper.ask(with, None, at(2)).is_ok());
}

#[test]
fn expired_reservations_free_their_slot_and_say_so() {
    let mut shaper = shaper(1);
    let ttl = Some(Duration::from_secs(2));
    let rid = shaper.promised(0, Labels::default(), Priority(0), ttl, at(0)).unwrap();
    assert_eq!(shaper.next_deadline(), Some(at(2).boot));
    shaper.expire(at(1));
    assert!(shaper.reservation(rid).is_some());
    shaper.take_step();
    shaper.expire(at(2));
    assert_eq!(events(&mut shaper), [EventKind::Expired]);
    assert_eq!(shaper.active_offered(), 1);
    assert_eq!(shaper.check_reservation(rid), Err(Refusal::ReservationEnded(rid)));
    let never = ReservationId { number: rid.number + 1, ..rid };
    assert_eq!(shaper.check_reservation(never), Err(Refusal::UnknownReservation(never)));
}

#[test]
fn waiters_are_served_by_priority_then_by_first_request() {
    let mut shaper = shaper(1);
    let running: Vec<_> = (0..2).map(|i| admit(&mut shaper, 0, at(i))).collect();
    let wait = |shaper: &mut Shaper, priority, first: u64| {
        let patience = Patience { first_requested: at(first).wall, deadline: None, parks: false };
        match shaper.ask(request(priority), Some(patience), at(10)) {
            Ok(Answer::Waiting(id)) => id,
            other => panic!("{other:?}"),
        }
    };
    let late = wait(&mut shaper, 0, 9);
    let early = wait(&mut shaper, 0, 3);
    let urgent = wait(&mut shaper, 1, 10);
    shaper.take_step();
    let mut served = Vec::new();
    for id in running {
        end(&mut shaper, id, at(11));
    }
    for job in shaper.take_step().jobs {
        if let Job::Prepare { task, ticket } = job {
            served.push((ticket, task));
        }
    }
    assert_eq!(served.iter().map(|(w, _)| *w).collect::<Vec<_>>(), [urgent, early]);
    let task = served[0].1;
    shaper.attached(task, at(12));
    end(&mut shaper, task, at(13));
    let mut served = shaper.take_step().jobs;
    served.retain(|job| !matches!(job, Job::Remove { .. }));
    assert!(matches!(served[..], [Job::Prepare { ticket, .. }] if ticket == late));
}

#[test]
fn after_a_restart_the_oldest_waiter_comes_first_however_late_it_reconnects() {
    let restored = Restored { gather_until: Some(at(2).boot), ..Restored::default() };
    let policy = Policy { active: Some(1), passive: Some(0), ..Policy::simulated() };
    let mut shaper = Shaper::new(policy, 1, restored);
    let since = |seconds| {
        Some(Patience { first_requested: at(seconds).wall, deadline: None, parks: false })
    };
    let Ok(Answer::Waiting(young)) = shaper.ask(request(0), since(9), at(1)) else { panic!() };
    let Ok(Answer::Waiting(old)) = shaper.ask(request(0), since(3), at(1)) else { panic!() };
    assert_eq!(shaper.next_deadline(), Some(at(2).boot));
    shaper.expire(at(2));
    let served = shaper.take_step().jobs.into_iter().find_map(|job| match job {
        Job::Prepare { ticket, .. } => Some(ticket),
        _ => None,
    });
    assert_eq!(served, Some(old));
    assert_ne!(served, Some(young));
}

#[test]
fn an_end_is_told_before_what_follows_from_it() {
    let mut shaper = shaper(1);
    let first = admit(&mut shaper, 0, at(0));
    admit(&mut shaper, 0, at(0));
    shaper.take_step();
    let step = shaper.handle(Input::Ended(vec![first]), at(1));
    assert_eq!(step.weights.len(), 1, "the promotion can be written at once");
    assert_eq!(step, Step { weights: step.weights.clone(), ..Step::default() });
    let step = shaper.handle(Input::Figures(vec![(first, Last::Unread)]), at(1));
    let kinds: Vec<_> = step.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Completed, EventKind::Promoted]);
}

#[test]
fn promises_are_as_many_as_are_free_and_wait_for_the_first_in_the_queue() {
    let mut shaper = shaper(2);
    let first = admit(&mut shaper, 0, at(0));
    let reserve = |shaper: &mut Shaper, ticket, priority, lease, patience| {
        let request = Request::of_promise(7, Labels::default(), Priority(priority));
        shaper.reserve(Ticket(ticket), request, lease, patience, at(1))
    };
    let three = Lease { count: 3, ..Lease::one(Some(Duration::from_secs(9))) };
    let active = Lease { active: true, ..three };
    let held = reserve(&mut shaper, 1, 0, active, None).unwrap().unwrap();
    assert_eq!(held.len(), 1, "one of two active slots was free");
    let none = Refusal::NoActiveSlot { active: 2 };
    assert_eq!(reserve(&mut shaper, 2, 0, active, None), Err(none));
    let rest = reserve(&mut shaper, 3, 0, three, None).unwrap().unwrap();
    assert_eq!(rest.len(), 2, "the passive ones");
    let deadline = Some(at(5).boot);
    let patience = Patience { first_requested: at(1).wall, deadline, parks: false };
    assert_eq!(reserve(&mut shaper, 4, 0, three, Some(patience)), Ok(None));
    let Ok(Answer::Waiting(_)) = shaper.ask(request(1), Some(patience), at(1)) else {
        panic!("full, and of higher priority")
    };
    assert_eq!(shaper.waiting(), 2);
    shaper.take_step();
    // The first slot is for the request before it.
    end(&mut shaper, first, at(2));
    assert!(shaper.take_step().answers.is_empty());
    shaper.cancel_reservation(rest[0], at(2));
    let answers = shaper.take_step().answers;
    let [(Ticket(4), Told::Reserved(ids))] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((ids.len(), shaper.reservation(ids[0]).unwrap().uid), (1, 7));
    // One that nobody grants in time.
    assert_eq!(reserve(&mut shaper, 5, 0, three, Some(patience)), Ok(None));
    shaper.expire(at(5));
    assert!(shaper.take_step().answers.contains(&(Ticket(5), Told::TimedOut)));
}

#[test]
fn draining_keeps_reservations_and_queues_who_waits_and_refuses_the_others() {
    let mut shaper = shaper(1);
    let rid = shaper.promised(0, Labels::default(), Priority(0), None, at(0)).unwrap();
    shaper.drain(at(1));
    assert_eq!(shaper.ask(request(5), None, at(1)), Err(Refusal::Draining));
    let since = |seconds| {
        Some(Patience { first_requested: at(seconds).wall, deadline: None, parks: false })
    };
    for seconds in [1, 0] {
        let Ok(Answer::Waiting(_)) = shaper.ask(request(0), since(seconds), at(1)) else {
            panic!("whoever waits does so until it ends")
        };
    }
    let mut with = request(0);
    with.reservation = Some(rid);
    assert!(shaper.ask(with, None, at(2)).is_ok(), "a promise holds");
    assert_eq!(shaper.waiting(), 2);
    shaper.resume(at(3));
    assert_eq!(shaper.waiting(), 1, "one slot is left");
}

#[test]
fn a_smaller_node_demotes_the_lowest_and_latest_and_loses_nobody() {
    let mut shaper = shaper(4);
    let ids: Vec<_> = (0..8).map(|i| admit(&mut shaper, i32::from(i == 3), at(i))).collect();
    shaper.cycle(&Measured { cpus: Some(2), ..Measured::default() }, at(9));
    let active: Vec<_> =
        ids.iter().filter(|id| tier(&shaper, **id) == Tier::Active).copied().collect();
    assert_eq!(active, [ids[0], ids[3]]);
    assert_eq!(shaper.slots().base, 2);
    assert_eq!(shaper.slots().passive_capacity, 6, "never below what is in use");
    shaper.cycle(&Measured { cpus: Some(4), ..Measured::default() }, at(12));
    assert_eq!(shaper.slots().active_used(), 4);
}

fn cpu(effective: f64) -> Option<CpuShares> {
    Some(CpuShares { effective: Share::clamped(effective), ..CpuShares::default() })
}

fn plenty() -> Option<Memory> {
    Some(Memory { available: Bytes(1000), total: Bytes(1000) })
}

#[test]
fn spare_cpu_opens_slots_and_saturation_closes_the_free_ones() {
    let mut shaper = shaper(2);
    let ids: Vec<_> = (0..4).map(|i| admit(&mut shaper, 0, at(i))).collect();
    for id in &ids {
        let sample = TaskSample { resident: Some(Bytes(100)), ..TaskSample::default() };
        shaper.read(at(9).boot, Reading { task: *id, due: false, sample });
    }
    let half = Measured { cpu: cpu(0.5), memory: plenty(), ..Measured::default() };
    shaper.cycle(&half, at(10));
    // N = floor(0.5 / (0.5 * 2 / 4)) = 2
    assert_eq!(shaper.slots().passive_capacity, 4);
    let extra = admit(&mut shaper, 0, at(11));
    shaper.cycle(&Measured { cpu: cpu(0.95), ..half }, at(13));
    assert_eq!(shaper.slots().passive_capacity, 3, "the free one goes, the used one stays");
    end(&mut shaper, extra, at(14));
    for cycle in 0..3 {
        assert_eq!(shaper.slots().passive_capacity, 3, "cycle {cycle}");
        shaper.cycle(&half, at(16 + 3 * cycle));
    }
    assert_eq!(shaper.slots().passive_capacity, 2, "free throughout three cycles");
}

#[test]
fn expansion_backs_off_where_active_tasks_wait_more_by_either_formula() {
    for formula in [Formula::Lrs, Formula::Probe] {
        let mut shaper = shaper(2);
        shaper.policy.formula = formula;
        for i in 0..4 {
            let id = admit(&mut shaper, 0, at(i));
            let sample = TaskSample { resident: Some(Bytes(1)), ..TaskSample::default() };
            shaper.read(at(9).boot, Reading { task: id, due: false, sample });
        }
        let cycle = |shaper: &mut Shaper, effective, number: u64| {
            let expanded = shaper.slots().passive_capacity - shaper.slots().base;
            for task in shaper.tasks.values_mut() {
                task.counts.lost = Some(if expanded > 0 { 0.6 } else { 0.2 });
            }
            let node = Measured { cpu: cpu(effective), memory: plenty(), ..Measured::default() };
            shaper.cycle(&node, at(10 + 3 * number));
            // Whatever is opened is taken at once.
            while shaper.passive_offered() > 0 {
                admit(shaper, 0, at(10 + 3 * number));
            }
        };
        for number in 0..4 {
            cycle(&mut shaper, 0.7, number);
        }
        let mut most = 0;
        let mut events = Vec::new();
        for number in 4..600 {
            cycle(&mut shaper, 0.5, number);
            most = most.max(shaper.slots().passive_capacity);
            events.extend(shaper.take_step().events);
            if shaper.probe.owed() > 0 {
                // Tasks beyond the base end: their slots go.
                let last = shaper.tasks.keys().next_back().copied().unwrap();
                end(&mut shaper, last, at(10 + 3 * number));
            }
        }
        assert!(most > 2, "{formula:?}: nothing was added");
        assert_eq!(shaper.slots().passive_capacity, 2, "{formula:?}");
        let told = |event: &&Event| event.to.as_deref() == Some("backs_off");
        let said = events.iter().find(told).expect("an event");
        assert_eq!(said.inputs["lost_with"], 0.6, "{said:?}");
        assert_eq!(events.iter().filter(told).count(), 1, "within half an hour");
    }
}

#[test]
fn scarce_memory_stops_expansion_and_offers() {
    let mut shaper = shaper(1);
    let low = Measured {
        cpu: cpu(0.2),
        memory: Some(Memory { available: Bytes(50), total: Bytes(1000) }),
        ..Measured::default()
    };
    shaper.cycle(&low, at(0));
    assert!(shaper.holding());
    assert_eq!((shaper.active_offered(), shaper.passive_offered()), (1, 0));
    admit(&mut shaper, 0, at(1));
    assert!(matches!(shaper.ask(request(5), None, at(1)), Err(Refusal::Holding(_))));
    shaper.cycle(&Measured { memory: plenty(), ..low }, at(3));
    assert!(shaper.holding(), "left only after the hold time");
    shaper.cycle(&Measured { memory: plenty(), ..low }, at(9));
    assert!(!shaper.holding());
}

#[test]
fn refusals_share_an_event_and_are_all_counted() {
    let mut shaper = shaper(1);
    admit(&mut shaper, 0, at(0));
    admit(&mut shaper, 0, at(0));
    shaper.take_step();
    for _ in 0..500 {
        assert!(shaper.ask(request(0), None, at(1)).is_err());
    }
    assert_eq!(shaper.totals().refused, 500);
    assert_eq!(events(&mut shaper), [EventKind::Refused]);
}

#[test]
fn a_task_that_ended_while_the_daemon_was_away_leaves_its_jobs_rate_alone() {
    let mut shaper = shaper(1);
    let labels = Labels { job: Some(Label::new("grep").unwrap()), ..Labels::default() };
    for last in [Last::Read(used(90)), Last::Away] {
        let Ok(Answer::Placed(id)) =
            shaper.ask(Request { labels: labels.clone(), ..request(0) }, None, at(0))
        else {
            panic!()
        };
        shaper.attached(id, at(0));
        shaper.vacate(&[id], at(100));
        shaper.completed(vec![(id, last)], at(100));
    }
    let (_, running, finished) = shaper.jobs().iter().next().unwrap();
    assert_eq!((running, finished.count, finished.rated), (0, 2, 1));
}

#[test]
fn a_wait_is_expected_to_end_as_the_jobs_before_it_do() {
    let mut shaper = shaper(1);
    let labels = Labels { job: Some(Label::new("grep").unwrap()), ..Labels::default() };
    let of_job = || Request { labels: labels.clone(), ..request(0) };
    let ask = |shaper: &mut Shaper, request, seconds| {
        let patience =
            Some(Patience { first_requested: at(seconds).wall, deadline: None, parks: false });
        match shaper.ask(request, patience, at(seconds)).unwrap() {
            Answer::Placed(id) => {
                shaper.attached(id, at(seconds));
                Some(id)
            }
            Answer::Waiting(_) => None,
        }
    };
    let first = ask(&mut shaper, of_job(), 0).unwrap();
    shaper.vacate(&[first], at(100));
    shaper.completed(vec![(first, Last::Read(used(90)))], at(100));
    for request in [of_job(), of_job()] {
        assert!(ask(&mut shaper, request, 1000).is_some());
    }
    for (second, request) in (1001..).zip([of_job(), request(0), of_job(), of_job()]) {
        assert!(ask(&mut shaper, request, second).is_none());
    }
    let waits = |shaper: &Shaper, seconds| {
        let waits = shaper.expected_waits(at(seconds).boot);
        waits.iter().map(|wait| wait.as_secs()).collect::<Vec<_>>()
    };
    assert_eq!(waits(&shaper, 1010), [90, 90, 190, 290]);
    // Both run longer than was expected: nothing is known of any slot.
    assert!(waits(&shaper, 1101).is_empty());
}

#[test]
fn an_opportunistic_task_is_below_every_priority() {
    let mut shaper = shaper(1);
    let spare = discover(&mut shaper, i32::MAX, Standing::Opportunistic, at(0));
    assert_eq!(tier(&shaper, spare), Tier::Active);
    assert_eq!(shaper.lowest_active_priority(), Some(Priority(i32::MIN)));
    let low = discover(&mut shaper, i32::MIN, Standing::Slot, at(1));
    assert_eq!((tier(&shaper, low), tier(&shaper, spare)), (Tier::Active, Tier::Passive));
    shaper.set_priority(spare, Priority(i32::MAX - 1), at(2));
    assert_eq!(tier(&shaper, spare), Tier::Passive, "no priority lifts it");
    shaper.set_standing(spare, Standing::Slot, at(3));
    assert_eq!((tier(&shaper, low), tier(&shaper, spare)), (Tier::Passive, Tier::Active));
    shaper.set_standing(spare, Standing::Opportunistic, at(4));
    assert_eq!((tier(&shaper, low), tier(&shaper, spare)), (Tier::Active, Tier::Passive));
}

#[test]
fn an_opportunistic_task_goes_beyond_capacity_before_any_other() {
    let mut shaper = shaper(1);
    let spare: Vec<_> =
        (0..3).map(|i| discover(&mut shaper, 5, Standing::Opportunistic, at(i))).collect();
    let seat = |shaper: &Shaper, id| shaper.task(id).unwrap().seat;
    assert_eq!(seat(&shaper, spare[2]), Seat::Overflow);
    let first = discover(&mut shaper, 0, Standing::Slot, at(4));
    let second = discover(&mut shaper, 0, Standing::Slot, at(5));
    assert_eq!(seat(&shaper, first), Seat::Active);
    assert_eq!(seat(&shaper, second), Seat::Passive);
    assert!(spare.iter().all(|id| seat(&shaper, *id) == Seat::Overflow));
    // Not even where there is no passive slot to pass through.
    let none =
        Policy { passive: Some(0), passive_max: Some(0), expand: false, ..Policy::simulated() };
    let mut shaper = Shaper::new(none, 1, Restored::default());
    let spare = discover(&mut shaper, 5, Standing::Opportunistic, at(0));
    let other = discover(&mut shaper, -5, Standing::Slot, at(1));
    assert_eq!((seat(&shaper, other), seat(&shaper, spare)), (Seat::Active, Seat::Overflow));
}

#[test]
fn a_found_task_is_seated_while_draining_holding_and_full() {
    let mut shaper = shaper(1);
    let low = Memory { available: Bytes(50), total: Bytes(1000) };
    shaper.cycle(&Measured { cpu: cpu(0.2), memory: Some(low), ..Measured::default() }, at(0));
    shaper.drain(at(0));
    assert!(shaper.holding() && shaper.draining());
    let ids: Vec<_> = (0..3).map(|i| discover(&mut shaper, 0, Standing::Slot, at(i))).collect();
    let seats: Vec<_> = ids.iter().map(|id| shaper.task(*id).unwrap().seat).collect();
    assert_eq!(seats, [Seat::Active, Seat::Passive, Seat::Overflow]);
    let master = discover(&mut shaper, 0, Standing::Slotless, at(4));
    assert_eq!(tier(&shaper, master), Tier::Active);
    assert_eq!(shaper.slots().active_used(), 1, "a slotless task is not counted");
    assert_eq!(shaper.totals().refused, 0);
}

#[test]
fn a_found_task_disturbs_nobody_before_it_is_in_place() {
    let mut shaper = shaper(1);
    let seated = admit(&mut shaper, 0, at(0));
    shaper.take_step();
    for attempt in 1..=3 {
        for standing in [Standing::Slot, Standing::Opportunistic, Standing::Slotless] {
            let Ok(Answer::Placed(id)) = shaper.ask(found(9, standing), None, at(attempt)) else {
                panic!("refused what runs")
            };
            assert_eq!(tier(&shaper, seated), Tier::Active);
            assert_eq!(shaper.slots().passive_used(), 0);
            assert_eq!(shaper.passive_offered(), 1, "it keeps no slot from who asks for one");
            shaper.set_standing(id, Standing::Slotless, at(attempt));
            shaper.set_standing(id, Standing::Slot, at(attempt));
            assert_eq!(tier(&shaper, seated), Tier::Active);
            shaper.attach_failed(id, "process 17 is frozen", at(attempt));
            assert_eq!(events(&mut shaper), [], "nobody asked, nobody was refused");
        }
    }
    assert_eq!(shaper.totals(), Totals { admitted: 1, ..Totals::default() });
    // Once it is in place its rank counts, and it has had one tier only.
    let id = discover(&mut shaper, 9, Standing::Slot, at(5));
    assert_eq!((tier(&shaper, id), tier(&shaper, seated)), (Tier::Active, Tier::Passive));
    let told: Vec<Event> = shaper.take_step().events;
    let kinds: Vec<_> = told.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Demoted, EventKind::Admitted]);
    assert_eq!(told[1].to.as_deref(), Some("active"));
}

#[test]
fn a_task_that_turns_out_slotless_leaves_its_slot_and_one_that_does_not_takes_one() {
    let mut shaper = shaper(1);
    let first = discover(&mut shaper, 0, Standing::Slot, at(0));
    let second = discover(&mut shaper, 0, Standing::Slot, at(1));
    shaper.take_step();
    shaper.set_standing(first, Standing::Slotless, at(2));
    assert_eq!(shaper.task(second).unwrap().seat, Seat::Active);
    assert_eq!(tier(&shaper, first), Tier::Active);
    assert_eq!(events(&mut shaper), [EventKind::Standing, EventKind::Promoted]);
    shaper.set_standing(first, Standing::Slot, at(3));
    // Admitted first, it is still not ahead of one that holds its slot.
    assert_eq!(shaper.task(first).unwrap().seat, Seat::Passive);
    assert_eq!(events(&mut shaper), [EventKind::Standing, EventKind::Demoted]);
    shaper.set_standing(first, Standing::Slotless, at(4));
    assert_eq!(tier(&shaper, first), Tier::Active);
    assert_eq!(events(&mut shaper), [EventKind::Standing, EventKind::Promoted]);
}

#[test]
fn labels_learnt_late_move_a_task_to_its_job() {
    let mut shaper = shaper(1);
    let id = discover(&mut shaper, 0, Standing::Slot, at(0));
    let label = |text| Some(Label::new(text).unwrap());
    let job = Labels { job: label("application_1_1"), ..Labels::default() };
    shaper.add_labels(id, job.clone());
    shaper.add_labels(id, Labels { job: label("other"), kind: label("map"), ..job });
    let labels = &shaper.task(id).unwrap().labels;
    assert_eq!((&labels.job, &labels.kind), (&label("application_1_1"), &label("map")));
    // An application may be moved to another queue.
    for group in ["root.day", "root.night"] {
        shaper.add_labels(id, Labels { group: label(group), ..Labels::default() });
    }
    shaper.add_labels(id, Labels::default());
    assert_eq!(shaper.task(id).unwrap().labels.group, label("root.night"));
    end(&mut shaper, id, at(1));
    let finished: Vec<_> = shaper.jobs().iter().filter(|(_, _, f)| f.count > 0).collect();
    assert_eq!(finished.len(), 1);
    assert!(shaper.jobs().iter().all(|(_, running, _)| running == 0));
}

// --- random sequences ---

#[derive(Clone, Debug)]
enum Op {
    Request {
        priority: i32,
        wait: Option<Option<u64>>,
        job: u8,
    },
    Discover {
        priority: i32,
        standing: Standing,
        job: u8,
    },
    Redeem {
        pick: usize,
        priority: Option<i32>,
    },
    Attached {
        pick: usize,
    },
    AttachFailed {
        pick: usize,
    },
    Reserve {
        priority: i32,
        ttl: Option<u64>,
    },
    Cancel {
        pick: usize,
    },
    End {
        picks: Vec<usize>,
    },
    Release {
        pick: usize,
    },
    SetPriority {
        pick: usize,
        priority: i32,
    },
    SetJobPriority {
        job: u8,
        priority: i32,
    },
    SetStanding {
        pick: usize,
        standing: Standing,
    },
    AddLabels {
        pick: usize,
        job: u8,
    },
    ForgetWaiter {
        pick: usize,
    },
    Drain,
    Resume,
    Cycle {
        cpus: Option<u32>,
        e: f64,
        w: f64,
        s: f64,
        available: Option<u64>,
    },
    Expire,
    Configure {
        active: Option<u32>,
        passive: Option<u32>,
        max: Option<u32>,
        expand: bool,
        probe: bool,
        complement: bool,
        lane: bool,
    },
    Resident {
        pick: usize,
        bytes: u64,
    },
    /// Each computed so many milliseconds, in so many bursts.
    Bursts {
        ms: u64,
        bursts: u64,
    },
    /// Each task in the lane used so many milliseconds.
    LaneLook {
        ms: Option<u64>,
    },
    Restart,
    Live {
        pick: usize,
        what: u8,
        flag: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let priority = || prop_oneof![Just(0), -2..3i32, Just(i32::MIN), Just(i32::MAX)];
    let standing = || {
        prop_oneof![Just(Standing::Slot), Just(Standing::Opportunistic), Just(Standing::Slotless)]
    };
    let wait = prop::option::of(prop::option::of(0..60u64));
    let pick = || 0..64usize;
    prop_oneof![
        7 => (priority(), wait, 0..3u8)
            .prop_map(|(priority, wait, job)| Op::Request { priority, wait, job }),
        3 => (priority(), standing(), 0..3u8)
            .prop_map(|(priority, standing, job)| Op::Discover { priority, standing, job }),
        3 => (pick(), prop::option::of(priority()))
            .prop_map(|(pick, priority)| Op::Redeem { pick, priority }),
        6 => pick().prop_map(|pick| Op::Attached { pick }),
        1 => pick().prop_map(|pick| Op::AttachFailed { pick }),
        3 => (priority(), prop::option::of(0..60u64))
            .prop_map(|(priority, ttl)| Op::Reserve { priority, ttl }),
        1 => pick().prop_map(|pick| Op::Cancel { pick }),
        6 => prop::collection::vec(pick(), 1..3).prop_map(|picks| Op::End { picks }),
        1 => pick().prop_map(|pick| Op::Release { pick }),
        2 => (pick(), priority()).prop_map(|(pick, priority)| Op::SetPriority { pick, priority }),
        1 => (0..3u8, priority())
            .prop_map(|(job, priority)| Op::SetJobPriority { job, priority }),
        2 => (pick(), standing())
            .prop_map(|(pick, standing)| Op::SetStanding { pick, standing }),
        1 => (pick(), 0..3u8).prop_map(|(pick, job)| Op::AddLabels { pick, job }),
        1 => pick().prop_map(|pick| Op::ForgetWaiter { pick }),
        1 => Just(Op::Drain),
        2 => Just(Op::Resume),
        6 => (prop::option::of(0..6u32), prop_oneof![0.0..1.0f64, Just(0.95)], 0.0..0.5f64, 0.0..0.3f64,
              prop::option::of(0..2000u64))
            .prop_map(|(cpus, e, w, s, available)| Op::Cycle { cpus, e, w, s, available }),
        2 => Just(Op::Expire),
        1 => (prop::option::of(1..6u32), prop::option::of(0..6u32), prop::option::of(0..9u32),
              any::<[bool; 4]>())
            .prop_map(|(active, passive, max, [expand, probe, complement, lane])| Op::Configure {
                active, passive, max, expand, probe, complement, lane,
            }),
        2 => (pick(), 0..300u64).prop_map(|(pick, bytes)| Op::Resident { pick, bytes }),
        20 => (1..60u64, 10..200u64).prop_map(|(ms, bursts)| Op::Bursts { ms, bursts }),
        3 => prop::option::of(0..60u64).prop_map(|ms| Op::LaneLook { ms }),
        1 => Just(Op::Restart),
        9 => (pick(), 0..11u8, any::<bool>())
            .prop_map(|(pick, what, flag)| Op::Live { pick, what, flag }),
    ]
}

/// What the world outside the core believes, from effects alone.
#[derive(Default)]
struct World {
    attaching: BTreeSet<TaskId>,
    reserved: BTreeSet<ReservationId>,
    waiting: BTreeSet<Ticket>,
    answered: BTreeSet<Ticket>,
    levels: BTreeMap<TaskId, Level>,
    /// Frozen groups.
    iced: BTreeSet<TaskId>,
    /// CPU time and switches.
    used: BTreeMap<TaskId, (Duration, u64)>,
    last_seq: u64,
}

impl World {
    /// The counters of a task that computed so long, in so many bursts.
    fn uses(&mut self, id: TaskId, ms: u64, bursts: u64) -> (Duration, u64) {
        let (cpu, voluntary) = self.used.entry(id).or_default();
        *cpu += Duration::from_millis(ms);
        *voluntary += bursts;
        (*cpu, *voluntary)
    }

    fn absorb(&mut self, shaper: &mut Shaper) {
        // What comes of an input ends with it; here functions of the core are called alone.
        shaper.thaw_what_may_not_be(Moment::default());
        loop {
            let step = shaper.take_step();
            if step.is_empty() {
                break;
            }
            self.carry_out(step, shaper);
        }
    }

    fn carry_out(&mut self, step: Step, shaper: &mut Shaper) {
        let Step { thaw, weights, records, events, forget, jobs, answers } = step;
        for id in thaw {
            // Twice would be to thaw what somebody else froze.
            assert!(self.iced.remove(&id), "{id} was not frozen");
        }
        self.levels.extend(weights);
        assert!(records.is_disjoint(&forget), "stored and forgotten at once");
        for record in records {
            match record {
                Record::Task(id) => assert!(shaper.stored_task(id).is_some()),
                Record::Reservation(id) => {
                    assert!(shaper.reservation(id).is_some());
                    self.reserved.insert(id);
                }
            }
        }
        for event in events {
            assert_eq!(event.seq, self.last_seq + 1, "sequence numbers have no gaps");
            self.last_seq = event.seq;
        }
        for record in forget {
            if let Record::Reservation(id) = record {
                assert!(self.reserved.remove(&id), "ended twice");
            }
        }
        for job in jobs {
            match job {
                Job::Prepare { task, ticket } => {
                    self.attaching.insert(task);
                    assert!(self.answered.insert(ticket), "served twice");
                    // Only of one that waited.
                    self.waiting.remove(&ticket);
                    shaper.prepared(task, Ready::default());
                }
                Job::Attach(id) => assert!(self.attaching.contains(&id)),
                Job::Remove { task, .. } => {
                    assert!(shaper.task(task.id).is_none(), "removed while it is there");
                }
                Job::Park { .. } => unreachable!("these requests do not park"),
                Job::Freeze(id) => {
                    self.iced.insert(id);
                }
                Job::Reattach(_) | Job::Repair { .. } | Job::Release(_) => {}
            }
        }
        for (ticket, told) in answers {
            assert_eq!(told, Told::TimedOut);
            assert!(self.waiting.remove(&ticket), "an unknown waiter timed out");
            assert!(self.answered.insert(ticket), "served before");
        }
    }
}

fn check(shaper: &Shaper, world: &World) {
    let slots = shaper.slots();
    let frozen: BTreeSet<TaskId> = shaper.ladder().frozen().collect();
    for (id, task) in shaper.tasks() {
        assert_eq!(task.frozen, world.iced.contains(&id), "{id}: the record and the group");
        assert_eq!(task.frozen, frozen.contains(&id), "{id}: the record and the rule");
        let may = task.tier() == Tier::Passive && task.is_placed() && !shaper.draining();
        assert!(may || !task.frozen, "{id} is frozen and should run");
    }
    assert!(slots.active_used() <= slots.active_capacity, "active tasks exceed A");
    assert!(
        slots.active_used() + slots.active_reserved() <= slots.active_capacity,
        "active slots promised twice"
    );
    assert!(slots.passive_in_use() <= slots.passive_capacity, "capacity below what is in use");
    assert!(slots.passive_capacity >= slots.base, "capacity below base");
    assert!(
        slots.passive_capacity <= slots.passive_max.max(slots.passive_in_use()),
        "expanded beyond the maximum"
    );
    let passive_waits = slots.best_passive().is_some() || slots.best_overflow().is_some();
    assert!(
        !(passive_waits && slots.active_used() < slots.active_capacity),
        "a passive task waits while an active slot is free or only promised"
    );
    if let (Some((best, _)), Some((worst, _))) = (slots.best_passive(), slots.worst_active()) {
        assert!(!best.outranks(worst), "priorities are inverted");
    }
    let is = |opportunistic, seats: &[Seat]| {
        shaper.tasks().any(|(_, t)| t.opportunistic == opportunistic && seats.contains(&t.seat))
    };
    let waits = is(false, &[Seat::Passive, Seat::Overflow]);
    assert!(!(waits && is(true, &[Seat::Active])), "an opportunistic task keeps another waiting");
    let beyond = is(false, &[Seat::Overflow]);
    assert!(!(beyond && is(true, &[Seat::Passive])), "an opportunistic task keeps a slot");
    let counted = shaper.tasks().filter(|(_, task)| task.seat == Seat::Active);
    let lowest =
        counted.map(|(_, t)| if t.opportunistic { Priority(i32::MIN) } else { t.priority });
    assert_eq!(shaper.lowest_active_priority(), lowest.min());
    assert!(slots.overflow() == 0 || slots.passive_free() == 0, "overflow beside a free slot");
    if shaper.active_offered() + shaper.passive_offered() > 0 {
        assert_eq!(shaper.waiting(), 0, "a request waits beside an offered slot");
    }
    // What is shown of the queue is all of it in order, also in pages.
    let queue: Vec<_> = shaper.queue(None).map(|waiting| waiting.place).collect();
    assert!(queue.len() == shaper.waiting() && queue.is_sorted());
    for (index, place) in queue.iter().enumerate() {
        assert_eq!(shaper.waiting_of(place.2).map(|(before, _)| before), Some(index));
        let next = shaper.queue(Some(*place)).next().map(|waiting| waiting.place);
        assert_eq!(next.as_ref(), queue.get(index + 1));
    }
    let waits = shaper.expected_waits(at(1).boot);
    assert!(waits.len() <= queue.len() && waits.is_sorted());
    // The sets and the table say the same.
    let mut seats: BTreeMap<&str, u32> = BTreeMap::new();
    for (id, task) in shaper.tasks() {
        let seat = match task.seat {
            Seat::Active => "active",
            Seat::Passive => "passive",
            Seat::Overflow => "overflow",
            Seat::Slotless => "slotless",
            Seat::Arriving => "arriving",
        };
        *seats.entry(seat).or_default() += 1;
        let attaching = task.is_attaching();
        assert_eq!(attaching, world.attaching.contains(&id));
        assert!(attaching || task.seat != Seat::Arriving, "in place, and without a seat");
        if let Some(told) = world.levels.get(&id) {
            assert_eq!(Some(*told), shaper.level(id), "the applier was told another tier");
        }
    }
    let seat = |name| seats.get(name).copied().unwrap_or(0);
    assert_eq!(seat("active"), slots.active_used());
    assert_eq!(seat("passive"), slots.passive_used());
    assert_eq!(seat("overflow"), slots.overflow());
    assert_eq!(
        world.reserved.len() as u32,
        slots.active_reserved() + slots.passive_reserved(),
        "reservations told and held differ"
    );
    assert_eq!(shaper.waiting(), world.waiting.len());
    for id in shaper.lane().members() {
        let told = world.levels.get(&id);
        assert!(
            told.is_some_and(|level| is_in_lane(*level)),
            "{id} is in the lane, and the applier does not know"
        );
    }
}

fn is_in_lane(level: Level) -> bool {
    matches!(level, Level::Lane | Level::SlowLane)
}

fn restart(shaper: &Shaper) -> Shaper {
    let restored = Restored {
        tasks: shaper
            .tasks()
            .filter(|(_, task)| !task.is_attaching())
            .map(|(_, task)| task.clone())
            .collect(),
        called_off: Vec::new(),
        reservations: shaper.reservations().map(|(id, r)| (id, r.clone())).collect(),
        jobs: shaper.jobs().iter().map(|(key, _, f)| (key.clone(), f.clone())).collect(),
        totals: shaper.totals(),
        counters: shaper.counters(),
        draining_since: shaper.draining_since(),
        gather_until: None,
        passive_capacity: Some(shaper.slots().passive_capacity),
    };
    Shaper::new(shaper.policy().clone(), 2, restored)
}

fn nth<T: Copy>(items: impl Iterator<Item = T>, pick: usize) -> Option<T> {
    let items: Vec<T> = items.collect();
    (!items.is_empty()).then(|| items[pick % items.len()])
}

fn labels(job: u8) -> Labels {
    let job = (job > 0).then(|| Label::new(&format!("job-{job}")).unwrap());
    Labels { job, ..Labels::default() }
}

fn step(shaper: &mut Shaper, world: &mut World, op: Op, now: Moment) {
    let reservations = || world.reserved.iter().copied();
    match op {
        Op::Discover { priority, standing, job } => {
            let asked = Request { labels: labels(job), ..found(priority, standing) };
            let answer = shaper.ask(asked, None, now);
            let Ok(Answer::Placed(id)) = answer else { panic!("refused what runs: {answer:?}") };
            assert_eq!(shaper.task(id).unwrap().standing(), standing);
        }
        Op::SetStanding { pick, standing } => {
            if let Some(id) = nth(shaper.tasks().map(|(id, _)| id), pick) {
                shaper.set_standing(id, standing, now);
                assert_eq!(shaper.task(id).unwrap().standing(), standing);
            }
        }
        Op::AddLabels { pick, job } => {
            if let Some(id) = nth(shaper.tasks().map(|(id, _)| id), pick) {
                shaper.add_labels(id, labels(job));
            }
        }
        Op::Request { priority, wait, job } => {
            let patience = wait.map(|wait| Patience {
                first_requested: now.wall,
                deadline: wait.map(|s| now.boot.after(Duration::from_secs(s))),
                parks: false,
            });
            let offered = shaper.active_offered() + shaper.passive_offered();
            let asked = Request { labels: labels(job), ..request(priority) };
            match shaper.ask(asked, patience, now) {
                Ok(Answer::Waiting(id)) => {
                    assert_eq!(offered, 0, "made to wait beside an offered slot");
                    world.waiting.insert(id);
                }
                Ok(Answer::Placed(_)) => assert!(offered > 0, "placed without an offer"),
                Err(_) => assert_eq!(offered, 0),
            }
        }
        Op::Redeem { pick, priority } => {
            if let Some(id) = nth(reservations(), pick) {
                let used = Request {
                    reservation: Some(id),
                    priority: priority.map(Priority),
                    ..request(0)
                };
                let expired = shaper.reservation(id).is_none_or(|r| r.expires <= now.boot);
                match shaper.ask(used, None, now) {
                    Ok(_) => assert!(!expired),
                    Err(refusal) => assert_eq!(refusal, Refusal::ReservationEnded(id)),
                }
            }
        }
        Op::Attached { pick } => {
            if let Some(id) = nth(world.attaching.iter().copied(), pick) {
                world.attaching.remove(&id);
                shaper.attached(id, now);
            }
        }
        Op::AttachFailed { pick } => {
            if let Some(id) = nth(world.attaching.iter().copied(), pick) {
                world.attaching.remove(&id);
                world.levels.remove(&id);
                shaper.attach_failed(id, "test", now);
            }
        }
        Op::Reserve { priority, ttl } => {
            let offered = shaper.active_offered() + shaper.passive_offered();
            let ttl = ttl.map(Duration::from_secs);
            let answer = shaper.promised(1, Labels::default(), Priority(priority), ttl, now);
            assert_eq!(answer.is_ok(), offered > 0, "free is what Reserve would grant");
        }
        Op::Cancel { pick } => {
            if let Some(id) = nth(reservations(), pick) {
                shaper.check_reservation(id).expect("it exists");
                shaper.cancel_reservation(id, now);
            }
        }
        Op::End { picks } => {
            let running = shaper.tasks().filter(|(_, t)| !t.is_attaching());
            let running: Vec<_> = running.map(|(id, _)| id).collect();
            if !running.is_empty() {
                let ids: BTreeSet<_> =
                    picks.into_iter().map(|pick| running[pick % running.len()]).collect();
                let completed = shaper.totals().completed + ids.len() as u64;
                let ids: Vec<_> = ids.into_iter().collect();
                shaper.vacate(&ids, now);
                let last = |id| {
                    (
                        id,
                        if now.boot.0.as_secs().is_multiple_of(2) {
                            Last::Away
                        } else {
                            Last::Unread
                        },
                    )
                };
                shaper.completed(ids.into_iter().map(last).collect(), now);
                assert_eq!(shaper.totals().completed, completed);
            }
        }
        Op::Release { pick } => {
            let running = shaper.tasks().filter(|(_, t)| !t.is_attaching());
            if let Some(id) = nth(running.map(|(id, _)| id), pick) {
                shaper.released(id, now);
            }
        }
        Op::Live { pick, what, flag } => {
            let running = shaper.tasks().filter(|(_, t)| !t.is_attaching());
            if let Some(task) = nth(running.map(|(id, _)| id), pick) {
                let found = vec!["cpu.weight is 7, should be 100".to_owned()];
                let denied = NotMoved::Denied { reason: "test".into(), occupied: flag };
                let limit = (pick == 0).then(|| "a limit".to_owned());
                let released = shaper.totals().released;
                let releasing = shaper.task(task).unwrap().is_releasing();
                let input = match what {
                    0 => Input::Release(task),
                    1 => Input::ReleaseFailed(task),
                    2 if releasing => Input::Released(task),
                    3 | 2 => Input::Outside { task, found_in: "/".into(), limit, occupied: flag },
                    4 => Input::Reattached { task, result: Ok(()) },
                    5 => Input::Reattached { task, result: Err(denied) },
                    6 => Input::Drifted { task, found, fits: flag },
                    7 => Input::Repaired { task, found, result: Ok(()) },
                    8 => Input::Entered { task, error: "uid 7 is in it".into() },
                    9 => Input::MainExited(task),
                    _ => {
                        let Task { uid, labels, .. } = shaper.task(task).unwrap().clone();
                        let exit = Exit::Status(u8::from(flag));
                        Input::Exited { task, uid, labels, exit }
                    }
                };
                let step = shaper.handle(input, now);
                let gone = u64::from(shaper.task(task).is_none());
                assert_eq!(shaper.totals().released, released + gone);
                world.carry_out(step, shaper);
            }
        }
        Op::SetPriority { pick, priority } => {
            if let Some(id) = nth(shaper.tasks().map(|(id, _)| id), pick) {
                shaper.set_priority(id, Priority(priority), now);
            }
        }
        Op::SetJobPriority { job, priority } => {
            if let Some(job) = labels(job).job {
                shaper.set_job_priority(&job, None, Priority(priority), now);
            }
        }
        Op::ForgetWaiter { pick } => {
            if let Some(id) = nth(world.waiting.iter().copied(), pick) {
                world.waiting.remove(&id);
                world.answered.insert(id);
                shaper.abandon(id);
            }
        }
        Op::Drain => shaper.drain(now),
        Op::Resume => shaper.resume(now),
        Op::Cycle { cpus, e, w, s, available } => {
            let cpu = CpuShares {
                effective: Share::clamped(e),
                iowait: Share::clamped(w),
                steal: Share::clamped(s),
            };
            let memory = available
                .map(|available| Memory { available: Bytes(available), total: Bytes(2000) });
            // What is under pressure here is as random as the CPU.
            let memory_full = memory.map(|_| Share::clamped(s));
            let swap_growth = memory.map(|_| 100.0 * (w - 0.5));
            let cpu = Some(cpu);
            shaper.cycle(&Measured { cpus, cpu, memory, memory_full, swap_growth }, now);
        }
        Op::Expire => shaper.expire(now),
        Op::Configure { active, passive, max, expand, probe, complement, lane } => {
            let formula = if probe { Formula::Probe } else { Formula::Lrs };
            let order = if complement { QueueOrder::Complement } else { QueueOrder::Fifo };
            let mut all = Policy { formula, order, ..Policy::simulated() };
            if let Some(guard) = &mut all.guard {
                guard.freeze = FreezePolicy {
                    headroom_after: Duration::ZERO,
                    headroom_dry_run: probe,
                    freeze_after: Duration::from_secs(3),
                    freeze_dry_run: false,
                    hold: Duration::from_secs(1),
                    longest: Duration::from_secs(60),
                };
            }
            let lane_share = Share::clamped(if lane { 0.05 } else { 0.0 });
            let policy = Policy { active, passive, passive_max: max, expand, lane_share, ..all };
            shaper.set_policy(policy, now);
        }
        Op::Resident { pick, bytes } => {
            if let Some(id) = nth(shaper.tasks().map(|(id, _)| id), pick) {
                let sample = TaskSample { resident: Some(Bytes(bytes)), ..TaskSample::default() };
                shaper.read(now.boot, Reading { task: id, due: false, sample });
            }
        }
        Op::Bursts { ms, bursts } => {
            let all: Vec<_> = shaper.tasks().map(|(id, _)| id).collect();
            for task in all {
                let (ran, voluntary) = world.uses(task, ms, bursts);
                let thread = ThreadCounters { ran, voluntary, ..ThreadCounters::default() };
                let (cpu, thread) = (Some(ran), Some(thread));
                let sample = TaskSample { cpu, thread, ..used(0) };
                shaper.read(now.boot, Reading { task, due: true, sample });
            }
        }
        Op::LaneLook { ms } => {
            let members: Vec<_> = shaper.lane().members().collect();
            let look = |id| (id, ms.map(|ms| world.uses(id, ms, 0).0));
            let counters = members.into_iter().map(look).collect();
            let step = shaper.handle(Input::LaneLooked(counters), now);
            world.carry_out(step, shaper);
        }
        Op::Restart => {
            // Waiters ask again and half-done admissions are the driver's to finish; here they
            // end with the old daemon.
            world.absorb(shaper);
            *shaper = restart(shaper);
            shaper.restored(Due::default(), now);
            shaper.expire(now);
            world.attaching.clear();
            world.waiting.clear();
            let alive: BTreeSet<_> = shaper.tasks().map(|(id, _)| id).collect();
            world.levels.retain(|id, _| alive.contains(id));
            // A daemon that starts compares the weights of all tasks with their tiers.
            world.levels.values_mut().for_each(|level| *level = level.tier().into());
        }
    }
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
            step(&mut shaper, &mut world, op, now);
            world.absorb(&mut shaper);
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
        asked in prop::collection::vec((-2..3i32, 0..20u64), 1..12),
    ) {
        let mut shaper = shaper(1);
        let one = Some(1);
        let policy = Policy { active: one, passive: one, passive_max: one, ..Policy::simulated() };
        shaper.set_policy(policy, at(20));
        let mut running = vec![admit(&mut shaper, 0, at(20)), admit(&mut shaper, 0, at(20))];
        for (priority, since) in asked {
            let first_requested = at(since).wall;
            let patience = Some(Patience { first_requested, deadline: None, parks: false });
            let answer = shaper.ask(request(priority), patience, at(20));
            prop_assert!(matches!(answer, Ok(Answer::Waiting(_))));
        }
        let shown: Vec<_> = shaper.queue(None).map(|waiting| waiting.ticket()).collect();
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
