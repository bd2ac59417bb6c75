//! How passive slots open and close, by example.

use super::*;
use crate::bound::Bound;

fn plenty() -> Option<Memory> {
    Some(Memory::of_node(Bytes(1000), Bytes(1000)))
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
    shaper.cycle(&Measured { cpu: cpu(0.95), ..half.clone() }, at(13));
    assert_eq!(shaper.slots().passive_capacity, 3, "the free one goes, the used one stays");
    end(&mut shaper, extra, at(14));
    for cycle in 0..3 {
        assert_eq!(shaper.slots().passive_capacity, 3, "cycle {cycle}");
        shaper.cycle(&half, at(16 + 3 * cycle));
    }
    assert_eq!(shaper.slots().passive_capacity, 2, "free throughout three cycles");
}

/// Tasks that sleep in all slots, each of 100 bytes, which they have taken by the tenth second; no request waits.
fn full_of_sleepers(policy: Policy) -> Shaper {
    let mut shaper = Shaper::new(policy, 2, Restored::default());
    for _ in 0..4 {
        let id = admit(&mut shaper, 0, at(0));
        let sample = TaskSample { resident: Some(Bytes(100)), ..TaskSample::default() };
        shaper.read(at(9).boot, Reading { task: id, due: false, sample });
    }
    shaper
}

/// Changes of passive capacity that the last step tells of.
fn opened_and_closed(shaper: &mut Shaper) -> usize {
    let events = shaper.take_step().events;
    let kinds = events.iter().map(|event| event.kind);
    kinds.filter(|kind| matches!(kind, EventKind::Expanded | EventKind::Shrunk)).count()
}

#[test]
fn slots_that_no_task_takes_are_closed_once_and_then_stay_on_offer() {
    let idle = Measured { cpu: cpu(0.01), memory: plenty(), ..Measured::default() };
    let mut shaper = full_of_sleepers(Policy::simulated());
    let capacities = |shaper: &mut Shaper, cycles: std::ops::Range<u64>, node: &Measured| {
        let cycle = |cycle| {
            shaper.cycle(node, at(10 + 3 * cycle));
            shaper.slots().passive_capacity
        };
        cycles.map(cycle).collect::<Vec<_>>()
    };
    assert_eq!(capacities(&mut shaper, 0..5, &idle), [8, 8, 8, 2, 8]);
    assert!(capacities(&mut shaper, 5..100, &idle).iter().all(|slots| *slots == 8));
    assert_eq!(shaper.passive_offered(), 6);
    // A task that ends leaves a slot free, which is used at once.
    let first = shaper.tasks().next().unwrap().0;
    end(&mut shaper, first, at(400));
    admit(&mut shaper, 0, at(401));
    assert!(capacities(&mut shaper, 140..150, &idle).contains(&2), "they were closed once more");
    // Memory that became scarce since, above the reserve of 100 bytes: one more task fits.
    let scarce = Memory::of_node(Bytes(250), Bytes(1000));
    let node = Measured { memory: Some(scarce), ..idle.clone() };
    assert_eq!(capacities(&mut shaper, 150..160, &node).last(), Some(&3));
    let saturated = Measured { cpu: cpu(0.95), ..idle.clone() };
    assert_eq!(capacities(&mut shaper, 160..161, &saturated), [2], "a busy node closes them");
    let mut policy = shaper.policy.clone();
    assert_eq!(capacities(&mut shaper, 161..170, &idle).last(), Some(&8));
    policy.expand = false;
    shaper.set_policy(policy, at(600));
    assert_eq!(capacities(&mut shaper, 200..204, &idle).last(), Some(&2), "they do not open again");
}

#[test]
fn a_word_says_what_keeps_slots_from_opening() {
    let node = |share, available| Measured {
        cpu: cpu(share),
        memory: Some(Memory::of_node(Bytes(available), Bytes(1000))),
        ..Measured::default()
    };
    let policy = |expand, passive_max| Policy {
        expand,
        passive_max: Some(passive_max),
        formula: Formula::Lrs,
        ..Policy::simulated()
    };
    for (policy, share, available, expected) in [
        (policy(true, 8), 0.95, 1000, Some(Bound::Compute)),
        (policy(true, 8), 0.85, 1000, Some(Bound::Compute)),
        // The formula of the source ends there, the CPUs do not.
        (policy(true, 8), 0.75, 1000, None),
        (policy(true, 8), 0.5, 150, Some(Bound::Memory)),
        (policy(true, 2), 0.5, 1000, Some(Bound::Max)),
        (policy(true, 2), 0.95, 1000, Some(Bound::Max)),
        (policy(false, 8), 0.5, 1000, Some(Bound::Off)),
        // Slots open, which are free.
        (policy(true, 8), 0.5, 1000, None),
    ] {
        let mut shaper = full_of_sleepers(policy);
        assert_eq!(shaper.bound(), None, "no cycle has looked");
        shaper.cycle(&node(share, available), at(10));
        assert_eq!(shaper.bound(), expected, "{share} {available}");
        let first = shaper.tasks().next().unwrap().0;
        end(&mut shaper, first, at(11));
        assert_eq!(shaper.bound(), None, "a slot is free");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Two hours in which no task comes or goes and no request comes.
    #[test]
    fn tasks_that_sleep_do_not_make_slots_open_and_close_for_ever(
        shares in proptest::collection::vec((0.0f64..0.6, 0.0f64..0.3), 1..20),
        shrink_after in 1u32..10, probes: bool, extra in 0u32..4,
    ) {
        let formula = if probes { Formula::Probe } else { Formula::Lrs };
        let mut shaper =
            full_of_sleepers(Policy { shrink_after, formula, ..Policy::simulated() });
        let node = |cycle: usize| {
            let (effective, iowait) = shares[cycle % shares.len()];
            let [effective, iowait] = [effective, iowait].map(Share::clamped);
            let cpu = Some(CpuShares { effective, iowait, steal: Share::ZERO });
            Measured { cpu, memory: plenty(), ..Measured::default() }
        };
        // Some of what is opened may be taken.
        for cycle in 0..extra {
            shaper.cycle(&node(0), at(10 + u64::from(cycle)));
            if shaper.passive_offered() > 0 {
                let id = admit(&mut shaper, 0, at(10));
                let sample = TaskSample { resident: Some(Bytes(1)), ..TaskSample::default() };
                shaper.read(at(10).boot, Reading { task: id, due: false, sample });
            }
        }
        shaper.take_step();
        let mut changes = 0;
        let hours = 2;
        for cycle in 0..hours * 1200 {
            shaper.cycle(&node(cycle), at(20 + 3 * cycle as u64));
            changes += opened_and_closed(&mut shaper);
            let free = shaper.slots().active_free() + shaper.slots().passive_free();
            prop_assert!(free == 0 || shaper.bound().is_none(), "{:?}", shaper.bound());
        }
        // By probe a trial that no task takes may come once an hour.
        let most = if probes { 4 + 2 * (hours + 1) } else { 4 };
        prop_assert!(changes <= most, "{changes} changes, {} slots", shaper.slots().passive_capacity);
    }
}

/// Two CPUs with four tasks, one cycle, and so many requests that wait.
fn full_with_waiters(waiters: u32) -> Shaper {
    let mut shaper = shaper(2);
    for i in 0..4 {
        admit(&mut shaper, 0, at(i));
    }
    shaper.cycle(&Measured { cpu: cpu(0.95), memory: plenty(), ..Measured::default() }, at(4));
    let patience = Patience { first_requested: at(6).wall, deadline: None, parks: false };
    for _ in 0..waiters {
        shaper.ask(request(0), Some(patience), at(6)).unwrap();
    }
    shaper
}

/// All that were admitted are in their groups. Answers the last of them.
fn begin(shaper: &mut Shaper, now: Moment) -> TaskId {
    let ids: Vec<_> = shaper.tasks().map(|(id, task)| (id, task.is_new())).collect();
    for (id, _) in ids.iter().filter(|(_, new)| *new) {
        shaper.attached(*id, now);
    }
    ids.last().unwrap().0
}

#[test]
fn while_a_request_waits_slots_open_before_the_cycle_and_none_is_withdrawn() {
    let half = Measured { cpu: cpu(0.5), memory: plenty(), ..Measured::default() };
    let busy = Measured { cpu: cpu(0.95), ..half.clone() };
    let mut shaper = full_with_waiters(0);
    shaper.ramp(&half, Some(Bytes(10)), at(5));
    assert_eq!(shaper.slots().passive_capacity, 2, "no request waits");
    let mut shaper = full_with_waiters(8);
    shaper.ramp(&busy, Some(Bytes(10)), at(7));
    shaper.ramp(&half, None, at(7));
    assert_eq!(shaper.slots().passive_capacity, 2, "no CPU, or of an unknown size");
    shaper.ramp(&half, Some(Bytes(10)), at(8));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (4, 6));
    assert_eq!(shaper.ramps_from(), None, "two slots a cycle on two CPUs");
    let last = begin(&mut shaper, at(9));
    end(&mut shaper, last, at(9));
    assert_eq!(shaper.ramps_from(), Some(6), "one more for the task that ended");
    shaper.ramp(&half, Some(Bytes(10)), at(9));
    assert_eq!(shaper.slots().passive_capacity, 4, "the task in its place does not run yet");
    begin(&mut shaper, at(9));
    shaper.ramp(&half, Some(Bytes(10)), at(9));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (5, 4));
    assert_eq!(shaper.ramps_from(), None);
    shaper.cycle(&half, at(10));
    assert_eq!(shaper.slots().passive_capacity, 5, "the cycle was before them");
    assert_eq!(shaper.ramps_from(), Some(7));
    begin(&mut shaper, at(11));
    shaper.ramp(&half, Some(Bytes(10)), at(11));
    assert_eq!((shaper.slots().passive_capacity, shaper.waiting()), (7, 2), "two again");
    shaper.drain(at(12));
    assert_eq!(shaper.ramps_from(), None);
}

#[test]
fn what_new_tasks_will_take_is_not_free_for_slots_before_the_cycle() {
    let half = Measured { cpu: cpu(0.5), memory: plenty(), ..Measured::default() };
    let mut shaper = full_with_waiters(6);
    shaper.ramp(&half, Some(Bytes(500)), at(8));
    assert_eq!(shaper.slots().passive_capacity, 3, "one fits");
    begin(&mut shaper, at(9));
    shaper.ramp(&half, Some(Bytes(10)), at(9));
    assert_eq!(shaper.slots().passive_capacity, 3, "new tasks are small, those before were not");

    let mut shaper = full_with_waiters(8);
    for id in shaper.tasks().map(|(id, _)| id).collect::<Vec<_>>() {
        end(&mut shaper, id, at(7));
    }
    begin(&mut shaper, at(8));
    shaper.ramp(&half, Some(Bytes(200)), at(9));
    assert_eq!(shaper.slots().passive_capacity, 2, "four took the places of four");
}

#[test]
fn a_task_that_still_grows_owes_what_the_others_have_and_an_old_one_nothing() {
    let memory = Some(Memory::of_node(Bytes(400), Bytes(1000)));
    let half = Measured { cpu: cpu(0.5), memory, ..Measured::default() };
    for (seconds, opened) in [(9, 0), (20, 1)] {
        let mut shaper = shaper(2);
        for (index, bytes) in [300, 300, 300, 10].into_iter().enumerate() {
            let task = admit(&mut shaper, 0, at(index as u64));
            let sample = TaskSample { resident: Some(Bytes(bytes)), ..TaskSample::default() };
            shaper.read(at(8).boot, Reading { task, due: false, sample });
        }
        // Room for one of the mean size, or for what the last one has yet to take.
        shaper.cycle(&half, at(seconds));
        assert_eq!(shaper.slots().passive_capacity - 2, opened, "after {seconds} s");
    }
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
        let backs_off = |event: &&Event| event.to.as_deref() == Some("backs_off");
        let first = events.iter().find(backs_off).expect("an event");
        assert_eq!(first.inputs["lost_with"], 0.6, "{first:?}");
        assert_eq!(events.iter().filter(backs_off).count(), 1, "within half an hour");
    }
}

#[test]
fn scarce_memory_stops_expansion_and_offers() {
    let mut shaper = shaper(1);
    let low = Measured {
        cpu: cpu(0.2),
        memory: Some(Memory::of_node(Bytes(50), Bytes(1000))),
        ..Measured::default()
    };
    shaper.cycle(&low, at(0));
    assert!(shaper.holding());
    assert_eq!((shaper.active_offered(), shaper.passive_offered()), (1, 0));
    admit(&mut shaper, 0, at(1));
    assert!(matches!(shaper.ask(request(5), None, at(1)), Err(Refusal::Holding(_))));
    shaper.cycle(&Measured { memory: plenty(), ..low.clone() }, at(3));
    assert!(shaper.holding(), "left only after the hold time");
    shaper.cycle(&Measured { memory: plenty(), ..low.clone() }, at(9));
    assert!(!shaper.holding());
}

/// A node with plenty of memory, above tasks in a group that may have 400 bytes and uses so many.
fn limited(used: u64) -> Option<Memory> {
    let node =
        MemorySample { total: Bytes(2000), available: Bytes(1400), swap_used: Some(Bytes(0)) };
    let (limit, used) = (Bytes(400), Bytes(used));
    let file = "/cg/lrs.slice/memory.max".into();
    Memory::of(Some(node), &[MemoryLimit { file, limit, used, reclaimable: Bytes(10) }])
}

#[test]
fn below_a_limit_no_slot_opens_for_a_task_that_does_not_fit() {
    let mut shaper = shaper(2);
    for i in 0..4 {
        let task = admit(&mut shaper, 0, at(i));
        let sample = TaskSample { resident: Some(Bytes(80)), ..TaskSample::default() };
        shaper.read(at(9).boot, Reading { task, due: false, sample });
    }
    shaper.policy.memory_reserve = MemoryAmount::OfTotal(Share::clamped(0.05));
    shaper.policy.guard = None;
    let measured = |used| Measured { cpu: cpu(0.1), memory: limited(used), ..Measured::default() };
    shaper.take_step();
    shaper.cycle(&measured(330), at(10));
    assert_eq!(shaper.slots().passive_capacity, 2, "60 above the reserve of 5 % of 400");
    shaper.cycle(&measured(310), at(13));
    assert_eq!(shaper.slots().passive_capacity, 3, "80 above it, and CPU for more");
    let events = shaper.take_step().events;
    let expanded = events.iter().find(|event| event.kind == EventKind::Expanded).expect("an event");
    let input = |name: &str| expanded.inputs.get(name).cloned().unwrap_or_default();
    assert_eq!(input("memory_available_bytes"), 100);
    assert_eq!(input("memory_reserve_bytes"), 20);
    assert_eq!(input("memory_limit_file"), "/cg/lrs.slice/memory.max");
    assert_eq!(input("memory_limit_bytes"), 400);
}

#[test]
fn the_guard_holds_below_a_limit_while_the_node_has_plenty() {
    let mut shaper = shaper(1);
    let mut guard = shaper.policy.guard.expect("a guard");
    guard.reserve = MemoryAmount::OfTotal(Share::clamped(0.05));
    guard.resume = MemoryAmount::OfTotal(Share::clamped(0.075));
    shaper.policy.guard = Some(guard);
    let measured = |used| Measured { memory: limited(used), ..Measured::default() };
    shaper.cycle(&measured(389), at(0));
    assert!(!shaper.holding(), "21 available, 20 reserved");
    shaper.cycle(&measured(391), at(3));
    assert!(shaper.holding());
    let reason = &shaper.guard().entered().expect("entered").reason;
    assert!(
        reason.contains("19 B of memory available (the limit in /cg/lrs.slice/memory.max)"),
        "{reason}"
    );
    let events = shaper.take_step().events;
    let held = events.iter().find(|event| event.kind == EventKind::Guard).expect("an event");
    assert_eq!(held.inputs["memory_limit_bytes"], 400);
    shaper.cycle(&measured(381), at(20));
    shaper.cycle(&measured(381), at(40));
    assert!(shaper.holding(), "29 available, 30 needed");
    shaper.cycle(&measured(379), at(60));
    shaper.cycle(&measured(379), at(80));
    assert!(!shaper.holding());
}
