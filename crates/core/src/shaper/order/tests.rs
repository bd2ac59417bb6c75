use proptest::prelude::*;

use super::*;
use crate::hint::Hint;
use crate::jobs::{End, Finished};
use crate::model::{Label, Labels};
use crate::state::{Need, Patience, Policy, Request, Restored};
use crate::step::{Input, Job, Last, Step};
use crate::task::Who;
use crate::units::{Moment, WallTime};

fn key(job: &str) -> JobKey {
    JobKey { uid: Some(0), job: Label::new(job).unwrap(), kind: None }
}

/// One active and one passive slot, and jobs with these rates.
fn shaper(order: QueueOrder, rates: &[(&str, f64)]) -> Shaper {
    let policy = Policy {
        active: Some(1),
        passive: Some(1),
        passive_max: Some(1),
        order,
        ..Policy::simulated()
    };
    let finished = |rate| {
        let mut finished = Finished::default();
        finished.add(End { rate: Some(rate), ..End::default() });
        finished
    };
    let jobs = rates.iter().map(|(job, rate)| (key(job), finished(*rate))).collect();
    Shaper::new(policy, 1, Restored { jobs, ..Restored::default() })
}

fn feed(shaper: &mut Shaper, input: Input) -> Step {
    shaper.handle(input, Moment::default())
}

/// Asks for a task of `job`; the numbers are the places in the queue.
fn ask(shaper: &mut Shaper, number: u64, job: &str) -> Step {
    ask_as(0, shaper, number, job)
}

fn ask_as(uid: u32, shaper: &mut Shaper, number: u64, job: &str) -> Step {
    ask_hinted(uid, shaper, number, job, None)
}

fn ask_hinted(uid: u32, shaper: &mut Shaper, number: u64, job: &str, rate: Option<f64>) -> Step {
    let hint = rate.map(|rate| Hint::new(Share::clamped(rate)));
    let labels = Labels { job: Some(Label::new(job).unwrap()), hint, ..Labels::default() };
    let (priority, reservation, need) = (None, None, Need::Slot);
    let (opportunistic, by_member) = (false, false);
    let who = Who::default();
    let request =
        Request { uid, who, labels, priority, reservation, need, opportunistic, by_member };
    let first_requested = WallTime::from_unix_micros(i64::try_from(number).unwrap());
    let patience = Some(Patience { first_requested, deadline: None, parks: false });
    feed(shaper, Input::Request { ticket: Ticket(number), request, patience })
}

fn granted(step: &Step) -> Vec<u64> {
    let of = |job: &Job| match job {
        Job::Prepare { ticket, .. } => Some(ticket.0),
        _ => None,
    };
    step.jobs.iter().filter_map(of).collect()
}

/// The first task ends, and gives its slot to the next.
fn end_first(shaper: &mut Shaper) -> Vec<u64> {
    let first = shaper.tasks().next().map(|(id, _)| id).unwrap();
    feed(shaper, Input::Ended(vec![first]));
    granted(&feed(shaper, Input::Figures(vec![(first, Last::Unread)])))
}

/// The order in which requests for these jobs are granted.
fn order_of(order: QueueOrder, rates: &[(&str, f64)], jobs: &[&str]) -> Vec<u64> {
    let mut shaper = shaper(order, rates);
    let mut served = Vec::new();
    for (number, job) in (0..).zip(jobs) {
        served.extend(granted(&ask(&mut shaper, number, job)));
    }
    while shaper.tasks().len() > 0 {
        served.extend(end_first(&mut shaper));
    }
    served
}

const RATES: [(&str, f64); 2] = [("cpu", 1.0), ("io", 0.0)];

#[test]
fn computing_goes_beside_io() {
    let jobs = ["cpu", "cpu", "cpu", "cpu", "io", "io", "io", "io"];
    assert_eq!(order_of(QueueOrder::Fifo, &RATES, &jobs), [0, 1, 2, 3, 4, 5, 6, 7]);
    let served = order_of(QueueOrder::Complement, &RATES, &jobs);
    assert_eq!(served, [0, 1, 4, 2, 5, 3, 6, 7], "computing and I/O side by side");
}

#[test]
fn equal_rates_are_served_as_they_come() {
    let jobs = ["cpu"; 6];
    assert_eq!(order_of(QueueOrder::Complement, &RATES, &jobs), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn an_unknown_job_is_sampled_once_and_first() {
    let jobs = ["cpu", "cpu", "cpu", "cpu", "new", "new"];
    let served = order_of(QueueOrder::Complement, &RATES, &jobs);
    assert_eq!(served[2], 4, "its first task goes before the others: {served:?}");
    assert_eq!(served[3], 2, "its second one does not: {served:?}");
}

#[test]
fn rates_of_jobs_decide_within_a_user_and_not_between_users() {
    let mut shaper = shaper(QueueOrder::Complement, &RATES);
    for number in 0..2 {
        ask_as(1, &mut shaper, number, "cpu");
    }
    for (number, job) in [(2, "cpu"), (3, "cpu"), (4, "io"), (5, "cpu")] {
        ask_as(1, &mut shaper, number, job);
    }
    // A job that is not known would be sampled before all others.
    for number in 6..9 {
        ask_as(2, &mut shaper, number, &format!("new-{number}"));
    }
    let served: Vec<u64> = (0..7).flat_map(|_| end_first(&mut shaper)).collect();
    assert_eq!(
        served.iter().map(|number| *number >= 6).collect::<Vec<_>>(),
        [false, true, false, true, false, true, false]
    );
}

proptest! {
    #[test]
    fn overtaking_is_bounded_and_everybody_is_served_once(
        jobs in proptest::collection::vec(prop::sample::select(vec!["cpu", "io", "mid", "new"]), 1..60),
    ) {
        let rates = [("cpu", 1.0), ("io", 0.05), ("mid", 0.5)];
        let served = order_of(QueueOrder::Complement, &rates, &jobs);
        let mut sorted = served.clone();
        sorted.sort_unstable();
        prop_assert!(sorted.iter().copied().eq(0..jobs.len() as u64));
        for (turn, number) in served.iter().enumerate() {
            let overtook = served[..turn].iter().filter(|other| *other > number).count();
            prop_assert!(overtook <= 8, "{} was overtaken {} times: {:?}", number, overtook, served);
        }
    }
}

#[test]
fn a_queue_of_ten_thousand_is_served() {
    let mut shaper = shaper(QueueOrder::Complement, &RATES);
    for number in 0..10_000 {
        ask(&mut shaper, number, &format!("job-{}", number % 3000));
    }
    for _ in 0..20 {
        assert_eq!(end_first(&mut shaper).len(), 1);
    }
}

#[test]
fn a_members_hints_order_its_own_requests() {
    let served = |rates: [Option<f64>; 3]| {
        let mut shaper = shaper(QueueOrder::Complement, &RATES);
        (0..2).for_each(|number| drop(ask(&mut shaper, number, "other")));
        for (number, (job, rate)) in (2..).zip(["a", "b", "b"].into_iter().zip(rates)) {
            ask_hinted(0, &mut shaper, number, job, rate);
        }
        end_first(&mut shaper)
    };
    assert_eq!(served([None; 3]), [2]);
    assert_eq!(served([Some(1.0), Some(0.5), Some(0.5)]), [3], "the nearest to their mean");
}

#[test]
fn a_job_with_a_hint_is_sampled_first_nevertheless() {
    let mut shaper = shaper(QueueOrder::Complement, &RATES);
    (0..3).for_each(|number| drop(ask(&mut shaper, number, "cpu")));
    ask_hinted(0, &mut shaper, 3, "new", Some(1.0));
    assert_eq!(end_first(&mut shaper), [3]);
}
