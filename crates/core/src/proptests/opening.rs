//! How passive slots open for tasks that wait, on CPUs that are saturated.

use super::*;
use crate::hint::Hint;
use crate::jobs::{End, Finished};
use crate::model::JobKey;
use crate::probe::Formula;
use crate::slots::Seat;

/// Bytes that each task takes.
const SIZE: u64 = 64 << 20;

fn labels(job: &str) -> Labels {
    Labels { job: Some(Label::new(job).unwrap()), ..Labels::default() }
}

fn probes() -> Policy {
    Policy { formula: Formula::Probe, ..Policy::simulated() }
}

/// On 2 CPUs, with jobs of users 0 and 7 known: "waits", "computes", and two on either side of the middle.
fn node(policy: Policy) -> Shaper {
    let job = |name, rate| {
        let mut finished = Finished::default();
        let resident = Some(SIZE as f64);
        finished.add(End { rate: Some(rate), resident, ..End::default() });
        [0, 7].map(|uid| (labels(name).job_key(Some(uid)).unwrap(), finished.clone()))
    };
    let jobs: Vec<(JobKey, Finished)> =
        [("waits", 0.02), ("computes", 0.98), ("waits more", 0.49), ("computes more", 0.51)]
            .into_iter()
            .flat_map(|(name, rate)| job(name, rate))
            .collect();
    Shaper::new(policy, 2, Restored { jobs, ..Restored::default() })
}

fn ask(shaper: &mut Shaper, job: &str, now: Moment) {
    ask_as(shaper, 0, 0, job, now);
}

fn ask_as(shaper: &mut Shaper, uid: u32, priority: i32, job: &str, now: Moment) {
    let patience = Patience { first_requested: now.wall, deadline: None, parks: false };
    let request = Request { uid, labels: labels(job), ..request(priority) };
    shaper.ask(request, Some(patience), now).unwrap();
    begin(shaper, now);
}

/// The same of a job with a hinted rate.
fn ask_hinted(shaper: &mut Shaper, by_member: bool, job: &str, rate: f64, now: Moment) {
    let patience = Patience { first_requested: now.wall, deadline: None, parks: false };
    let hint = Some(Hint::new(Share::clamped(rate)));
    let labels = Labels { hint, ..labels(job) }.hinted_by(by_member);
    shaper.ask(Request { labels, by_member, ..request(0) }, Some(patience), now).unwrap();
    begin(shaper, now);
}

/// All that were admitted are in their groups.
fn begin(shaper: &mut Shaper, now: Moment) {
    let new: Vec<_> = shaper.tasks().filter(|(_, task)| task.is_new()).map(|(id, _)| id).collect();
    new.into_iter().for_each(|id| shaper.attached(id, now));
}

fn saturated(bytes: u64) -> Measured {
    let memory = Some(Memory::of_node(Bytes(bytes), Bytes(100 * SIZE)));
    Measured { cpu: cpu(0.99), memory, ..Measured::default() }
}

/// Passive tasks of a job.
fn passive(shaper: &Shaper, job: &str) -> usize {
    let job = Label::new(job).unwrap();
    let is = |task: &Task| task.seat == Seat::Passive && task.labels.job.as_ref() == Some(&job);
    shaper.tasks().filter(|(_, task)| is(task)).count()
}

fn first(shaper: &Shaper, job: &str) -> TaskId {
    let job = Label::new(job).unwrap();
    shaper.tasks().find(|(_, task)| task.labels.job.as_ref() == Some(&job)).unwrap().0
}

#[test]
fn what_waits_gets_a_slot_at_once_and_what_computes_does_not() {
    let mut shaper = node(probes());
    (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
    shaper.cycle(&saturated(60 * SIZE), at(5));
    ask(&mut shaper, "computes", at(6));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (2, 1));
    (0..3).for_each(|_| ask(&mut shaper, "waits", at(7)));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (5, 1), "past the first");
    assert_eq!(passive(&shaper, "waits"), 3);
    // One that computes gets no slot that was opened for those that wait: it closes.
    let id = first(&shaper, "waits");
    end(&mut shaper, id, at(8));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (4, 1));
    // Where one that computes ends, the next has its place.
    let id = first(&shaper, "computes");
    end(&mut shaper, id, at(9));
    begin(&mut shaper, at(9));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (4, 0));
    // Up to the maximum, which is 8.
    (0..9).for_each(|_| ask(&mut shaper, "waits", at(10)));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (8, 5));
}

#[test]
fn a_job_waits_if_it_is_blocked_for_more_time_than_it_computes() {
    for (job, opened) in [("waits more", 1), ("computes more", 0)] {
        let mut shaper = node(probes());
        (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
        shaper.cycle(&saturated(60 * SIZE), at(5));
        ask(&mut shaper, job, at(6));
        assert_eq!(shaper.slots().passive_capacity, 2 + opened, "{job}");
    }
}

#[test]
fn the_formula_of_the_source_opens_nothing_on_saturated_cpus() {
    let mut shaper = node(Policy { formula: Formula::Lrs, ..probes() });
    (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
    shaper.cycle(&saturated(60 * SIZE), at(5));
    ask(&mut shaper, "waits", at(6));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (2, 1));
}

#[test]
fn a_job_of_which_nothing_is_known_has_one_sample() {
    let mut shaper = node(probes());
    (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
    shaper.cycle(&saturated(60 * SIZE), at(5));
    (0..3).for_each(|_| ask(&mut shaper, "new", at(6)));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (3, 2));
    ask(&mut shaper, "another", at(7));
    assert_eq!(shaper.waiting(), 3, "one at a time");
}

#[test]
fn the_end_of_a_sample_decides_for_its_job_at_once() {
    for (seconds, capacity) in [(0, 5), (1, 2)] {
        let mut shaper = node(probes());
        (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
        shaper.cycle(&saturated(60 * SIZE), at(5));
        (0..4).for_each(|_| ask(&mut shaper, "new", at(6)));
        assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (3, 3));
        let id = first(&shaper, "new");
        shaper.vacate(&[id], at(7));
        shaper.completed(vec![(id, Last::Read(used(seconds)))], at(7));
        let slots = shaper.slots();
        assert_eq!((slots.passive_capacity, slots.passive_free()), (capacity, 0), "{seconds}");
    }
}

#[test]
fn first_come_first_served_passes_nothing_by() {
    let mut shaper = node(Policy { order: QueueOrder::Fifo, ..probes() });
    (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
    shaper.cycle(&saturated(60 * SIZE), at(5));
    ask(&mut shaper, "waits", at(6));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (3, 0), "it is the first");
    ask(&mut shaper, "computes", at(7));
    ask(&mut shaper, "waits", at(8));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (3, 2));
}

#[test]
fn spare_cpus_between_two_cycles_open_slots_for_what_computes() {
    let mut shaper = node(probes());
    (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
    shaper.cycle(&saturated(60 * SIZE), at(5));
    (0..3).for_each(|_| ask(&mut shaper, "computes", at(6)));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (2, 3));
    let spare = Measured { cpu: cpu(0.4), ..saturated(60 * SIZE) };
    shaper.ramp(&spare, Some(Bytes(SIZE)), at(7));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (4, 1), "two a cycle");
}

#[test]
fn another_user_who_waits_is_not_kept_by_one_who_computes() {
    let mut shaper = node(probes());
    (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
    shaper.cycle(&saturated(60 * SIZE), at(5));
    ask(&mut shaper, "computes", at(6));
    ask_as(&mut shaper, 7, 0, "new", at(7));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (3, 1));
}

#[test]
fn a_request_of_higher_priority_has_any_slot() {
    let mut shaper = node(probes());
    (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
    shaper.cycle(&saturated(60 * SIZE), at(5));
    ask(&mut shaper, "waits", at(6));
    ask_as(&mut shaper, 0, 3, "computes", at(7));
    assert_eq!(shaper.waiting(), 1);
    let id = first(&shaper, "waits");
    end(&mut shaper, id, at(8));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (3, 0));
}

#[test]
fn promises_are_no_samples_and_count_as_computing() {
    let mut shaper = node(probes());
    (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
    shaper.cycle(&saturated(60 * SIZE), at(5));
    let patience = Patience { first_requested: at(6).wall, deadline: None, parks: false };
    for ticket in 100..103 {
        let request = Request { labels: labels("new"), ..request(0) };
        let waits =
            shaper.reserve(Ticket(ticket), request, Lease::one(None), Some(patience), at(6));
        assert_eq!(waits, Ok(None));
        shaper.rearrange(at(6));
    }
    assert_eq!(shaper.slots().passive_capacity, 2);
}

#[test]
fn memory_that_new_tasks_will_take_opens_no_slot() {
    let mut shaper = node(probes());
    (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
    for task in shaper.tasks().map(|(id, _)| id).collect::<Vec<_>>() {
        let sample = TaskSample { resident: Some(Bytes(SIZE)), ..TaskSample::default() };
        shaper.read(at(5).boot, Reading { task, due: false, sample });
    }
    // The policy keeps 100 bytes free: three more fit.
    shaper.cycle(&saturated(4 * SIZE), at(5));
    (0..6).for_each(|_| ask(&mut shaper, "waits", at(6)));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (5, 3));
}

#[test]
fn none_is_overtaken_more_often_than_the_policy_says() {
    let policy = Policy { overtake_max: 2, ..probes() };
    let mut shaper = node(policy);
    (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
    shaper.cycle(&saturated(60 * SIZE), at(5));
    ask(&mut shaper, "computes", at(6));
    (0..4).for_each(|_| ask(&mut shaper, "waits", at(7)));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (4, 3));
}

#[test]
fn a_cycle_gives_what_has_expired_by_its_own_memory() {
    for (room, capacity) in [(0, 2), (1, 3)] {
        let mut shaper = node(Policy { overtake_max: 0, ..probes() });
        (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
        shaper.cycle(&saturated(60 * SIZE), at(5));
        let deadline = Some(at(8).boot);
        let patience = Patience { first_requested: at(6).wall, deadline, parks: false };
        let computes = Request { labels: labels("computes"), ..request(0) };
        shaper.ask(computes, Some(patience), at(6)).unwrap();
        ask(&mut shaper, "waits", at(7));
        assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (2, 2), "it passes none");
        // The policy keeps 100 bytes free; the four have yet to take theirs.
        shaper.cycle(&saturated((4 + room) * SIZE + 100), at(9));
        assert_eq!(shaper.slots().passive_capacity, capacity, "room for {room}");
    }
}

proptest! {
    /// On saturated CPUs, whatever comes and ends.
    #[test]
    fn passive_tasks_that_compute_are_as_many_as_promotions_need(
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0usize..12), 1..80),
    ) {
        let mut shaper = node(probes());
        (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
        shaper.cycle(&saturated(60 * SIZE), at(5));
        for (second, (comes, waits, which)) in (6..).zip(steps) {
            if comes {
                ask(&mut shaper, if waits { "waits" } else { "computes" }, at(second));
            } else {
                let id = shaper.tasks().map(|(id, _)| id).nth(which);
                id.into_iter().for_each(|id| end(&mut shaper, id, at(second)));
                begin(&mut shaper, at(second));
            }
            if second % 3 == 0 {
                shaper.cycle(&saturated(60 * SIZE), at(second));
                begin(&mut shaper, at(second));
            }
            let slots = shaper.slots();
            prop_assert!(slots.passive_capacity <= slots.passive_max);
            prop_assert!(passive(&shaper, "computes") <= slots.base as usize);
            // No slot is free while a request waits that may have it.
            prop_assert!(slots.passive_free() == 0 || shaper.waiting() == 0);
        }
    }
}

/// Who waits, and how often each was passed; what was granted since the last cycle.
#[derive(Default)]
struct Served {
    /// Of each user, in the order of arrival.
    waiting: BTreeMap<u32, Vec<(Ticket, u32)>>,
    granted: u64,
    ended: u64,
}

impl Served {
    /// Takes what was granted. The slots that opened for it have room in memory of so many tasks.
    fn absorb(&mut self, step: Step, room: u64, most_passed: u32) {
        for job in step.jobs {
            let Job::Prepare { ticket, .. } = job else { continue };
            self.granted += 1;
            for waiting in self.waiting.values_mut() {
                let place = waiting.iter().position(|(other, _)| *other == ticket);
                let Some(place) = place else { continue };
                waiting.remove(place);
                for (passed, count) in &mut waiting[..place] {
                    *count += 1;
                    assert!(*count <= most_passed, "{passed:?} was passed {count} times");
                }
            }
        }
        let opened = step.events.iter().any(|event| event.kind == EventKind::Expanded);
        let new = self.granted.saturating_sub(self.ended);
        assert!(!opened || new <= room, "{new} new tasks, and memory for {room}");
    }
}

proptest! {
    /// On saturated CPUs, whatever comes and ends, in each order.
    #[test]
    fn none_is_passed_too_often_and_slots_open_as_memory_and_samples_allow(
        order in prop::sample::select(vec![QueueOrder::Fit, QueueOrder::Fifo, QueueOrder::Complement]),
        overtake_max in 0..4u32,
        steps in prop::collection::vec(
            (0..5u8, any::<bool>(), prop::sample::select(vec!["waits", "computes", "new", "newer"]), 0..12usize, 0..9u64),
            1..100,
        ),
    ) {
        let mut shaper = node(Policy { order, overtake_max, passive_max: Some(12), ..probes() });
        (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
        let mut room = 60;
        shaper.cycle(&saturated(room * SIZE), at(5));
        shaper.take_step();
        let most_passed = if order == QueueOrder::Fifo { 0 } else { overtake_max };
        let mut served = Served::default();
        for (second, (what, of_other, job, which, memory)) in (6..).zip(steps) {
            let now = at(second);
            let step = match what {
                0..3 => {
                    let uid = if of_other { 7 } else { 0 };
                    let asks = Request { uid, labels: labels(job), ..request(0) };
                    let patience = Patience { first_requested: now.wall, deadline: None, parks: false };
                    let ticket = Ticket(second);
                    served.waiting.entry(uid).or_default().push((ticket, 0));
                    let asks = Input::Request { ticket, request: asks, patience: Some(patience) };
                    shaper.handle(asks, now)
                }
                3 => {
                    let id = shaper.tasks().map(|(id, _)| id).nth(which);
                    if let Some(id) = id {
                        served.ended += 1;
                        end(&mut shaper, id, now);
                    }
                    shaper.take_step()
                }
                _ => {
                    room = memory;
                    served = Served { waiting: served.waiting, ..Served::default() };
                    // The policy keeps 100 bytes free.
                    shaper.cycle(&saturated(room * SIZE + 100), now);
                    shaper.take_step()
                }
            };
            served.absorb(step, room, most_passed);
            begin(&mut shaper, now);
            let base = shaper.slots().base as usize;
            let others = ["computes", "new", "newer"].map(|job| passive(&shaper, job));
            prop_assert!(others.iter().sum::<usize>() <= base + 1, "{others:?} of {base}");
            prop_assert!(shaper.slots().passive_free() == 0 || shaper.waiting() == 0);
        }
    }
}

/// A full node with a job of which nothing is known, beside its sample: waiting requests with this hint.
fn hinted(by_member: bool, rate: f64) -> Shaper {
    let mut shaper = node(probes());
    (0..4).for_each(|i| ask(&mut shaper, "computes", at(i)));
    shaper.cycle(&saturated(60 * SIZE), at(5));
    (0..4).for_each(|_| ask_hinted(&mut shaper, by_member, "new", rate, at(6)));
    shaper
}

#[test]
fn by_the_hint_of_an_admin_slots_open_and_by_that_of_a_member_none() {
    let slots = |by_member, rate| {
        let shaper = hinted(by_member, rate);
        (shaper.slots().passive_capacity, shaper.waiting())
    };
    assert_eq!(slots(false, 0.1), (6, 0));
    // The sample alone, as without a hint: also of a job that is expected to compute.
    assert_eq!((slots(false, 0.9), slots(true, 0.1), slots(true, 0.9)), ((3, 3), (3, 3), (3, 3)));
}

#[test]
fn a_hint_ends_with_the_first_measured_rate() {
    let mut shaper = hinted(false, 0.1);
    let expected = |shaper: &Shaper| {
        let id = first(shaper, "new");
        shaper.hint(&shaper.task(id).unwrap().labels, Some(0)).is_some()
    };
    assert!(expected(&shaper));
    // It computes after all.
    let id = first(&shaper, "new");
    let cycle = |shaper: &mut Shaper, seconds, now| {
        let sample = used(seconds);
        shaper.read(at(now).boot, Reading { task: id, due: true, sample });
        shaper.cycle(&saturated(60 * SIZE), at(now));
    };
    cycle(&mut shaper, 0, 6);
    assert!(expected(&shaper), "nothing was measured yet");
    cycle(&mut shaper, 3, 9);
    assert!(!expected(&shaper), "one that runs was");
    let capacity = shaper.slots().passive_capacity;
    (0..3).for_each(|_| ask_hinted(&mut shaper, false, "new", 0.1, at(12)));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (capacity, 3));
}

#[test]
fn a_hint_holds_across_a_reservation_with_the_rights_of_who_reserved() {
    let shaper = hinted(false, 0.1);
    let hint = shaper.task(first(&shaper, "new")).unwrap().labels.clone();
    let own = Labels { hint: Some(Hint::new(Share::ONE)), ..Labels::default() };
    assert_eq!(Labels::default().or(hint.clone()).hint, hint.hint);
    assert_eq!(own.clone().or(hint).hint, own.hint);
}

#[test]
fn by_the_hint_of_an_admin_a_task_enters_the_lane_and_by_that_of_a_member_not() {
    let in_lane = |by_member| {
        let mut shaper = hinted(by_member, 0.01);
        shaper.cycle(&saturated(60 * SIZE), at(7));
        shaper.lane().members().count()
    };
    assert!(in_lane(false) > 0);
    assert_eq!(in_lane(true), 0);
}
