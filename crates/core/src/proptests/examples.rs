//! The rules by example.

use super::*;
use crate::neighbours::RootWeight;

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
    served.retain(|job| matches!(job, Job::Prepare { .. }));
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
fn an_end_is_recorded_before_what_follows_from_it() {
    let mut shaper = shaper(1);
    let first = admit(&mut shaper, 0, at(0));
    admit(&mut shaper, 0, at(0));
    shaper.take_step();
    let step = shaper.handle(Input::Ended(vec![first]), at(1));
    assert_eq!(step.weights.len(), 1, "the promotion can be written at once");
    let jobs = vec![Job::Figures(vec![first])];
    assert_eq!(step, Step { weights: step.weights.clone(), jobs, ..Step::default() });
    let step = shaper.handle(Input::Figures(vec![(first, Last::Unread)]), at(1));
    let kinds: Vec<_> = step.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Completed, EventKind::Promoted]);
}

#[test]
fn promises_are_as_many_as_are_free_and_wait_for_the_first_in_the_queue() {
    let mut shaper = shaper(2);
    let first = admit(&mut shaper, 0, at(0));
    let reserve = |shaper: &mut Shaper, ticket, priority, lease, patience| {
        let request = Request::of_promise(7, true, Labels::default(), Priority(priority));
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
    let [(Ticket(4), Reply::Reserved(ids))] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((ids.len(), shaper.reservation(ids[0]).unwrap().uid), (1, 7));
    // One that is not granted in time.
    assert_eq!(reserve(&mut shaper, 5, 0, three, Some(patience)), Ok(None));
    shaper.expire(at(5));
    assert!(shaper.take_step().answers.contains(&(Ticket(5), Reply::TimedOut)));
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
fn a_smaller_node_demotes_the_lowest_and_latest_and_loses_none() {
    let mut shaper = shaper(4);
    let ids: Vec<_> = (0..8).map(|i| admit(&mut shaper, i32::from(i == 3), at(i))).collect();
    shaper.take_step();
    shaper.cycle(&Measured { cpus: Some(2.into()), ..Measured::default() }, at(9));
    assert_eq!(resized(&mut shaper), ["LRS's tasks may run on 2 CPUs, 4 before"]);
    let active: Vec<_> =
        ids.iter().filter(|id| tier(&shaper, **id) == Tier::Active).copied().collect();
    assert_eq!(active, [ids[0], ids[3]]);
    assert_eq!(shaper.slots().base, 2);
    assert_eq!(shaper.slots().passive_capacity, 6, "never below what is in use");
    shaper.cycle(&Measured { cpus: Some(4.into()), ..Measured::default() }, at(12));
    assert_eq!(shaper.slots().active_used(), 4);
    assert_eq!(shaper.slots().passive_capacity, 4, "what came back opens no passive slot");
    shaper.take_step();
    let quota = UsableCpus::new(4, Some(1.5));
    shaper.cycle(&Measured { cpus: Some(quota), ..Measured::default() }, at(15));
    assert_eq!(shaper.slots().active_used(), 1);
    assert_eq!(resized(&mut shaper), ["a CPU quota above LRS's tasks allows 1.50 CPUs"]);
    shaper.set_policy(Policy { active: Some(3), ..Policy::simulated() }, at(16));
    assert_eq!(resized(&mut shaper), ["the settings changed"]);
}

/// Why the capacity changed since the last look.
fn resized(shaper: &mut Shaper) -> Vec<String> {
    let events = shaper.take_step().events.into_iter();
    events
        .filter(|event| event.kind == EventKind::Resized)
        .filter_map(|event| event.reason)
        .collect()
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
    assert_eq!((running, finished.count, finished.rates.count()), (0, 2, 1));
}

#[test]
fn a_task_shorter_than_a_cycle_has_its_figures_in_the_history_and_for_its_job() {
    let mut shaper = shaper(1);
    let labels = Labels { job: Some(Label::new("short").unwrap()), ..Labels::default() };
    let mut completed = Vec::new();
    for end in 1..=2 {
        let Ok(Answer::Placed(id)) =
            shaper.ask(Request { labels: labels.clone(), ..request(0) }, None, at(0))
        else {
            panic!()
        };
        shaper.attached(id, at(0));
        shaper.vacate(&[id], at(0));
        let (read, written) = (Some(Bytes(7)), Some(Bytes(4096)));
        let last = TaskSample { read, written, oom_kills: Some(2), ..used(0) };
        let now = Moment { boot: BootTime(Duration::from_millis(200)), ..at(0) };
        shaper.completed(vec![(id, Last::Read(last))], now);
        let step = shaper.take_step();
        let mut ends = step.events.into_iter();
        completed.extend(ends.find(|event| event.kind == EventKind::Completed));
        let finished = shaper.jobs().iter().next().unwrap().2.clone();
        assert_eq!(
            finished.rates.count(),
            u64::from(end == 2),
            "0.2 s say too little, twice that enough"
        );
    }
    assert_eq!(completed.len(), 2);
    let inputs = &completed[0].inputs;
    let figures = ["read_bytes", "write_bytes", "oom_kills"].map(|name| inputs[name].as_u64());
    assert_eq!(figures, [Some(7), Some(4096), Some(2)]);
    let reason = completed[0].reason.as_deref().unwrap();
    assert!(reason.contains("want of memory"), "{completed:?}");
    // The next daemon learns the same.
    let mut history_state = crate::history_state::HistoryState::default();
    completed.iter().for_each(|event| history_state.fold(event));
    let (_, _, finished) = shaper.jobs().iter().next().unwrap();
    assert_eq!(history_state.jobs.values().next(), Some(finished));
}

#[test]
fn a_tier_of_short_sleepers_wants_what_those_before_them_wanted() {
    let weight_beside = |job: &str, ended: Option<TaskSample>| {
        let mut shaper = shaper(1);
        let labels = Labels { job: Some(Label::new(job).unwrap()), ..Labels::default() };
        let admit = |shaper: &mut Shaper, second| {
            let request = Request { labels: labels.clone(), ..request(0) };
            let Ok(Answer::Placed(id)) = shaper.ask(request, None, at(second)) else { panic!() };
            shaper.attached(id, at(second));
            id
        };
        if let Some(last) = ended {
            let id = admit(&mut shaper, 0);
            shaper.vacate(&[id], at(1));
            shaper.completed(vec![(id, Last::Read(last))], at(1));
        }
        admit(&mut shaper, 1);
        (2..8).for_each(|second| shaper.cycle(&Measured::default(), at(second)));
        shaper.root_weight()
    };
    let slept = used(0);
    assert_eq!(weight_beside("naps", Some(slept)), Some(RootWeight::Idle));
    assert_eq!(weight_beside("new", None), Some(RootWeight::Weight(100)), "not known");
    assert_eq!(weight_beside("computes", Some(used(1))), Some(RootWeight::Weight(100)));
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
    let low = Memory::of_node(Bytes(50), Bytes(1000));
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
fn a_found_task_disturbs_no_other_before_it_is_in_place() {
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
            assert_eq!(shaper.passive_offered(), 1, "it keeps no slot from a request");
            shaper.set_standing(id, Standing::Slotless, at(attempt));
            shaper.set_standing(id, Standing::Slot, at(attempt));
            assert_eq!(tier(&shaper, seated), Tier::Active);
            shaper.attach_failed(id, "process 17 is frozen", at(attempt));
            assert_eq!(events(&mut shaper), [], "no request came, none was refused");
        }
    }
    assert_eq!(shaper.totals(), Totals { admitted: 1, ..Totals::default() });
    // Once it is in place its rank counts, and it has had one tier only.
    let id = discover(&mut shaper, 9, Standing::Slot, at(5));
    assert_eq!((tier(&shaper, id), tier(&shaper, seated)), (Tier::Active, Tier::Passive));
    let events: Vec<Event> = shaper.take_step().events;
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Demoted, EventKind::Admitted]);
    assert_eq!(events[1].to.as_deref(), Some("active"));
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

#[test]
fn a_task_that_cannot_run_is_passed_over_and_gets_its_slot_once_it_can() {
    let mut shaper = shaper(1);
    let passive = Policy { active: Some(1), passive: Some(3), ..Policy::simulated() };
    shaper.set_policy(passive, at(0));
    let ids: Vec<_> = (0..3).map(|_| admit(&mut shaper, 0, at(1))).collect();
    shaper.halted(vec![(ids[1], Some(Halt::Frozen))], at(2));
    assert_eq!(shaper.slots().next_active(2)[..1], ids[2..3]);
    end(&mut shaper, ids[0], at(3));
    assert_eq!((tier(&shaper, ids[1]), tier(&shaper, ids[2])), (Tier::Passive, Tier::Active));
    // One that is active keeps its slot.
    shaper.halted(vec![(ids[2], Some(Halt::Stopped))], at(4));
    shaper.halted(vec![(ids[1], None)], at(4));
    assert_eq!((tier(&shaper, ids[1]), tier(&shaper, ids[2])), (Tier::Passive, Tier::Active));
    end(&mut shaper, ids[2], at(5));
    assert_eq!(tier(&shaper, ids[1]), Tier::Active);
    // A slot that no request can use stays free, and goes to the one that is due when it can run.
    let late = admit(&mut shaper, 0, at(6));
    shaper.halted(vec![(late, Some(Halt::Stopped))], at(6));
    end(&mut shaper, ids[1], at(7));
    assert_eq!((tier(&shaper, late), shaper.active_offered()), (Tier::Passive, 1));
    shaper.halted(vec![(late, None)], at(8));
    assert_eq!(tier(&shaper, late), Tier::Active);
}

#[test]
fn into_a_frozen_root_nothing_is_admitted() {
    let mut shaper = shaper(1);
    shaper.root_frozen(Some("the cgroup /lrs is frozen".to_owned()), at(1));
    let refused = shaper.ask(request(0), None, at(1)).unwrap_err();
    assert!(refused.to_string().contains("/lrs is frozen"), "{refused}");
    let patience =
        Patience { first_requested: at(1).wall, deadline: Some(at(5).boot), parks: true };
    let waits = shaper.ask(request(0), Some(patience), at(1));
    assert!(matches!(waits, Ok(Answer::Waiting(_))));
    shaper.park(at(1));
    assert!(shaper.take_step().jobs.is_empty(), "neither moved nor parked");
    shaper.expire(at(6));
    let step = shaper.take_step();
    assert!(matches!(&step.answers[..], [(_, Reply::TimedOut)]), "{:?}", step.answers);
    shaper.root_frozen(None, at(7));
    assert!(shaper.ask(request(0), None, at(7)).is_ok());
}

/// The candidate has the numbers of the task that it stands for.
#[test]
fn a_passive_task_of_short_bursts_is_let_into_the_lane_by_its_own_counters() {
    let mut shaper = shaper(2);
    let [_, _] = [0, 0].map(|second| admit(&mut shaper, 0, at(second)));
    let [naps, computes] = [1, 1].map(|second| admit(&mut shaper, 0, at(second)));
    let node = Measured { cpu: cpu(1.0), ..Measured::default() };
    for cycle in 1..=6 {
        let now = at(1 + 3 * cycle);
        // 0.1 ms a burst and 100 of them in a cycle; the other has not slept once.
        for (task, millis, voluntary) in [(naps, 10, 100), (computes, 1000, 0)] {
            let ran = Duration::from_millis(millis * cycle);
            let voluntary = voluntary * cycle;
            let thread = ThreadCounters { ran, voluntary, ..ThreadCounters::default() };
            let (cpu, thread) = (Some(ran), Some(thread));
            let sample = TaskSample { cpu, thread, ..used(0) };
            shaper.read(now.boot, Reading { task, due: true, sample });
        }
        shaper.cycle(&node, now);
    }
    assert_eq!(shaper.lane().members().collect::<Vec<_>>(), [naps]);
    assert_eq!(shaper.level(naps), Some(Level::Lane));
    assert_eq!(shaper.level(computes), Some(Level::Passive));
}
