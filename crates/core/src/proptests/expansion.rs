//! How passive slots open and close, by example.

use super::*;

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
    let busy = Measured { cpu: cpu(0.95), ..half };
    let mut shaper = full_with_waiters(0);
    shaper.ramp(&half, Some(Bytes(10)), at(5));
    assert_eq!(shaper.slots().passive_capacity, 2, "nobody waits");
    let mut shaper = full_with_waiters(8);
    shaper.ramp(&busy, Some(Bytes(10)), at(7));
    shaper.ramp(&half, None, at(7));
    assert_eq!(shaper.slots().passive_capacity, 2, "no CPU, or of a size that nobody knows");
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
