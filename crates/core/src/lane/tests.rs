use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::model::Label;

const CYCLE: Duration = Duration::from_secs(3);

fn id(number: u64) -> TaskId {
    TaskId { epoch: 1, number }
}

fn at(seconds: f64) -> BootTime {
    BootTime(Duration::from_secs_f64(seconds))
}

fn budget(share: f64, active: u32) -> Budget {
    Budget { share: Share::clamped(share), active, contended: true }
}

fn writer(number: u64, rate: f64) -> Candidate {
    Candidate {
        task: id(number),
        job: None,
        burst: Some(Duration::from_micros(200)),
        rate: Some(Share::clamped(rate)),
        job_rate: None,
        cpu: Some(Duration::ZERO),
    }
}

fn hog(number: u64) -> Candidate {
    let burst = Some(Duration::from_millis(50));
    Candidate { burst, ..writer(number, 1.0) }
}

fn job(name: &str) -> Option<JobKey> {
    Some(JobKey { uid: Some(7), job: Label::new(name).unwrap(), kind: None })
}

/// A task that has just begun, of a job known to be io.
fn starting(number: u64, name: &str) -> Candidate {
    let job_rate = Some(Share::clamped(0.01));
    Candidate { job: job(name), burst: None, rate: None, job_rate, ..writer(number, 0.0) }
}

fn members(lane: &Lane) -> Vec<u64> {
    lane.members().map(|task| task.number).collect()
}

/// Uses so many CPU seconds from its entry at `entered` on, and is looked at.
fn spends(lane: &mut Lane, number: u64, entered: f64, seconds: f64) -> Vec<Move> {
    lane.look(at(entered + 0.1), &[(id(number), Some(Duration::from_secs_f64(seconds)))])
}

#[test]
fn the_lowest_rate_enters_first_and_the_budget_ends_it() {
    let mut lane = Lane::default();
    // Parts of 1.5 times the rate: 0.03, 0.018 and 0.012 of 0.04.
    let passive = [writer(1, 0.02), writer(2, 0.012), writer(3, 0.008), hog(4)];
    let moves = lane.cycle(budget(0.02, 2), &passive, at(0.0));
    assert!(moves.iter().all(|m| m.weight.is_some() && m.why == Why::Bursts), "{moves:?}");
    assert_eq!(members(&lane), [2, 3]);
}

#[test]
fn short_bursts_are_not_enough_and_neither_is_a_low_rate() {
    let mut lane = Lane::default();
    let napper = Candidate { burst: Some(Duration::from_millis(30)), ..writer(1, 0.01) };
    let unknown = Candidate { burst: None, ..writer(2, 0.01) };
    assert!(lane.cycle(budget(0.03, 8), &[napper, unknown, hog(3)], at(0.0)).is_empty());
    assert!(lane.cycle(budget(0.0, 8), &[writer(4, 0.0)], at(3.0)).is_empty(), "switched off");
}

#[test]
fn one_that_needs_more_than_a_part_has_a_part_and_comes_last() {
    let mut lane = Lane::default();
    let passive = [writer(1, 0.45), writer(2, 0.3), writer(3, 0.005)];
    let moves = lane.cycle(budget(0.02, 2), &passive, at(0.0));
    assert_eq!(
        moves.iter().map(|m| (m.task.number, m.part)).collect::<Vec<_>>(),
        [(3, 0.0075), (2, 0.02)]
    );
    assert!(spends(&mut lane, 2, 0.0, 0.02).is_empty());
    let over = lane.look(at(0.2), &[(id(2), Some(Duration::from_millis(30)))]);
    assert_eq!(over.iter().map(|m| m.weight).collect::<Vec<_>>(), [Some(SLOW_WEIGHT)]);
    assert_eq!(members(&lane), [2, 3]);
}

#[test]
fn who_is_over_its_part_leaves_at_once_and_its_pause_doubles() {
    let mut lane = Lane::default();
    // Less than a slow one needs.
    let limits = budget(0.015, 2);
    let (mut entered, mut pauses) = (0.0, Vec::new());
    lane.cycle(limits, &[writer(1, 0.01)], at(entered));
    for _ in 0..5 {
        assert!(spends(&mut lane, 1, entered, 0.002).is_empty());
        let left = lane.look(at(entered + 0.2), &[(id(1), Some(Duration::from_millis(60)))]);
        assert_eq!(left.len(), 1);
        assert_eq!((left[0].why, left[0].weight), (Why::Overrun, None));
        let gone = entered + 0.2;
        while !lane.has(id(1)) {
            entered += 0.1;
            lane.cycle(limits, &[writer(1, 0.01)], at(entered));
        }
        pauses.push(((entered - gone) * 10.0).round() / 10.0);
    }
    // The first is as long as the allowance takes to be full again.
    assert_eq!(pauses[1..], [6.0, 12.0, 24.0, 48.0], "{pauses:?}");
    assert!(pauses[0] >= 3.0 && pauses[0] < 6.0, "{pauses:?}");
}

#[test]
fn a_job_of_cheats_lets_no_task_in_by_its_rate() {
    let mut lane = Lane::default();
    let limits = budget(0.015, 4);
    let moves = lane.cycle(limits, &[starting(1, "lies")], at(0.0));
    assert_eq!((moves.len(), moves[0].why), (1, Why::Job));
    assert_eq!(spends(&mut lane, 1, 0.0, 0.1).len(), 1);
    let others = [starting(2, "lies"), starting(3, "true")];
    lane.cycle(limits, &others, at(3.0));
    assert_eq!(members(&lane), [3]);
    // By what it is itself a task of that job may.
    let known = Candidate { job: job("lies"), ..writer(2, 0.01) };
    lane.cycle(limits, &[known, starting(3, "true")], at(6.0));
    assert_eq!(members(&lane), [2, 3]);
    let of_hogs = Candidate { job_rate: Some(Share::clamped(0.9)), ..starting(4, "hogs") };
    assert!(lane.cycle(limits, &[of_hogs], at(9.0)).iter().all(|m| m.weight.is_none()));
}

#[test]
fn a_lower_budget_puts_the_greatest_out_and_less_active_slots_too() {
    let mut lane = Lane::default();
    let passive = [writer(1, 0.012), writer(2, 0.004), writer(3, 0.008)];
    lane.cycle(budget(0.02, 4), &passive, at(0.0));
    assert_eq!(members(&lane), [1, 2, 3]);
    let moves = lane.cycle(budget(0.02, 1), &passive, at(3.0));
    assert_eq!(members(&lane), [2, 3]);
    assert_eq!((moves[0].task, moves[0].why), (id(1), Why::Budget));
    lane.cycle(budget(0.0, 1), &passive, at(6.0));
    assert_eq!(members(&lane), [0u64; 0]);
}

#[test]
fn promotion_and_demotion_in_turn_give_no_other_allowance() {
    let mut lane = Lane::default();
    let limits = budget(0.02, 1);
    lane.cycle(limits, &[writer(1, 0.02)], at(0.0));
    assert!(spends(&mut lane, 1, 0.0, 0.019).is_empty());
    lane.leave(id(1), at(0.2));
    assert!(lane.cycle(limits, &[writer(1, 0.02)], at(0.3)).is_empty());
    assert_eq!(lane.cycle(limits, &[writer(1, 0.02)], at(3.0)).len(), 1);
}

#[test]
fn a_class_that_flips_writes_no_weights() {
    // Two writes for each of the longest pauses, and those of the pauses before it.
    for (period, most) in [(1, 1), (2, 140), (7, 140)] {
        let mut lane = Lane::default();
        let mut written = 0;
        // Ten hours.
        for cycle in 0..12_000u32 {
            let now = at(f64::from(cycle) * 3.0);
            let flips = if cycle / period % 2 == 0 { writer(1, 0.01) } else { hog(1) };
            written += lane.cycle(budget(0.02, 2), &[flips], now).len();
            lane.look(now, &[(id(1), Some(Duration::ZERO))]);
        }
        assert!(written <= most, "each {period} cycles: written {written} times");
    }
}

#[test]
fn the_burst_is_the_thread_s() {
    let thread = |voluntary| Interval {
        elapsed: CYCLE,
        cpu: Duration::from_millis(30),
        pressure: None,
        thread: Some(crate::sample::ThreadCounters {
            ran: Duration::from_millis(30),
            voluntary,
            ..Default::default()
        }),
        cpus: 2,
    };
    assert_eq!(burst(&thread(100)), Some(Duration::from_micros(300)));
    assert_eq!(burst(&thread(3)), None, "too few");
    assert_eq!(burst(&Interval { thread: None, ..thread(100) }), None);
}

/// What a task does in turn: so long a hog, so long a writer, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Cheat {
    hog: u64,
    writer: u64,
    starts: u64,
}

impl Cheat {
    fn computes(&self, ms: u64) -> bool {
        (ms + self.starts) % (self.hog + self.writer) < self.hog
    }
}

/// The most that one of the hogs, on the CPU of the cheats, loses over any 10 s, in seconds. Each
/// cycle finds the cheats as writers of `rate`, the best that they could look like. `weight`: of a
/// task in the lane, as a part of the active weight.
fn lost(cheats: &[Cheat], rate: f64, weight: f64, seconds: u64) -> f64 {
    const SHARE: f64 = 0.025;
    const STEP: u64 = 10;
    let mut lane = Lane::default();
    let mut used = vec![0.0; cheats.len()];
    let (mut window, mut sum, mut worst) = (VecDeque::new(), 0.0, 0.0f64);
    for ms in (0..seconds * 1000).step_by(STEP as usize) {
        let now = BootTime(Duration::from_millis(ms));
        let counter = |used: &f64| Duration::from_secs_f64(*used);
        if ms % 100 == 0 {
            let counters: Vec<(TaskId, Option<Duration>)> =
                (0..).zip(&used).map(|(n, used)| (id(n), Some(counter(used)))).collect();
            lane.look(now, &counters);
        }
        if ms % 3000 == 0 {
            let passive: Vec<Candidate> = (0..)
                .zip(&used)
                .map(|(n, used)| Candidate { cpu: Some(counter(used)), ..writer(n, rate) })
                .collect();
            lane.cycle(budget(SHARE, 1), &passive, now);
        }
        let busy: Vec<usize> = (0..cheats.len())
            .filter(|&n| lane.has(id(n as u64)) && cheats[n].computes(ms))
            .collect();
        let weights = busy.iter().map(|&n| match lane.level(id(n as u64)) {
            Some(Level::SlowLane) => SLOW_WEIGHT,
            _ => weight,
        });
        let weights: Vec<f64> = weights.collect();
        let all = 1.0 + weights.iter().sum::<f64>();
        let parts = weights.iter().map(|weight| weight / all * STEP as f64 / 1000.0);
        let mut taken = 0.0;
        for (&n, part) in busy.iter().zip(parts) {
            used[n] += part;
            taken += part;
        }
        window.push_back(taken);
        sum += taken;
        if window.len() as u64 > 10_000 / STEP {
            sum -= window.pop_front().unwrap_or(0.0);
        }
        worst = worst.max(sum);
    }
    worst
}

#[test]
fn a_task_that_alternates_costs_a_hog_three_percent_at_most() {
    for period in [50, 100, 190, 200, 500, 1000, 3000, 5000] {
        let cheat = Cheat { hog: period, writer: period, starts: 0 };
        let lost = lost(&[cheat], 0.0166, WEIGHT, 600);
        assert!(lost <= 0.3, "each {period} ms: {lost} s of 10 s");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn however_one_alternates_a_hog_keeps_its_part(
        (hog, writer, starts) in (1u64..=500, 1u64..=500, 0u64..1000), rate in prop_oneof![0.0005f64..0.025, Just(0.5)],
    ) {
        let cheat = Cheat { hog: hog * 10, writer: writer * 10, starts: starts * 10 };
        let lost = lost(&[cheat], rate, WEIGHT, 200);
        prop_assert!(lost <= 0.3, "{lost} s of 10 s");
    }

    #[test]
    fn however_several_alternate_a_hog_keeps_its_part(
        cheats in prop::collection::vec(
            (1u64..=500, 1u64..=500, 0u64..1000).prop_map(|(hog, writer, starts)| Cheat {
                hog: hog * 10, writer: writer * 10, starts: starts * 10,
            }),
            1..6,
        ),
        rate in prop_oneof![0.0005f64..0.025, Just(0.5)],
    ) {
        let lost = lost(&cheats, rate, WEIGHT, 200);
        prop_assert!(lost <= 0.3, "{lost} s of 10 s");
    }
}

fn calm(share: f64, active: u32) -> Budget {
    Budget { contended: false, ..budget(share, active) }
}

/// Where CPUs are free beside the busy one that it shares with an active task.
#[test]
fn a_member_is_looked_at_while_cpus_are_free_and_pays_no_pause() {
    let mut lane = Lane::default();
    lane.cycle(budget(0.02, 2), &[writer(1, 0.01)], at(0.0));
    lane.cycle(calm(0.02, 2), &[writer(1, 0.01)], at(3.0));
    let left = lane.look(at(3.1), &[(id(1), Some(Duration::from_millis(100)))]);
    assert_eq!(left.iter().map(|m| m.why).collect::<Vec<_>>(), [Why::Free]);
    // Its allowance of 0.015 s lacks 0.0535 s, at 0.015 a second.
    assert!(lane.cycle(budget(0.02, 2), &[writer(1, 0.01)], at(6.0)).is_empty());
    assert_eq!(lane.cycle(budget(0.02, 2), &[writer(1, 0.01)], at(9.0)).len(), 1);
}

#[test]
fn the_lane_is_empty_after_some_calm_cycles_and_not_after_one() {
    let mut lane = Lane::default();
    lane.cycle(budget(0.02, 2), &[writer(1, 0.01)], at(0.0));
    for cycle in 1..100u32 {
        let now = at(3.0 * f64::from(cycle));
        let limits = if cycle % 2 == 0 { budget(0.02, 2) } else { calm(0.02, 2) };
        assert!(lane.cycle(limits, &[writer(1, 0.01)], now).is_empty(), "cycle {cycle}");
    }
    let left = (100..200u32).flat_map(|cycle| {
        lane.cycle(calm(0.02, 2), &[writer(1, 0.01)], at(3.0 * f64::from(cycle)))
    });
    assert_eq!(left.map(|m| m.why).collect::<Vec<_>>(), [Why::Calm]);
    assert_eq!(lane.cycle(budget(0.02, 2), &[writer(1, 0.01)], at(603.0)).len(), 1);
}

#[test]
fn a_smaller_demand_takes_the_place_of_one_twice_as_great() {
    let mut lane = Lane::default();
    let limits = budget(0.025, 1);
    lane.cycle(limits, &[writer(1, 0.45)], at(0.0));
    let nearly = [writer(1, 0.45), writer(2, 0.009)];
    assert!(lane.cycle(limits, &nearly, at(3.0)).is_empty(), "0.0135 of 0.025");
    let moves = lane.cycle(limits, &[writer(1, 0.45), writer(3, 0.005)], at(6.0));
    let moves: Vec<_> = moves.iter().map(|m| (m.task.number, m.weight.is_some(), m.why)).collect();
    assert_eq!(moves, [(1, false, Why::Budget), (3, true, Why::Bursts)]);
}

#[test]
fn a_task_that_cannot_be_read_is_not_tried_again_and_again_and_its_job_is_no_cheat() {
    let mut lane = Lane::default();
    let limits = budget(0.02, 4);
    let unread = |number| Candidate { job: job("hidden"), ..writer(number, 0.01) };
    let mut written = 0;
    for cycle in 0..200u32 {
        let now = at(3.0 * f64::from(cycle));
        written += lane.cycle(limits, &[unread(1)], now).len();
        written += lane.look(now, &[(id(1), None)]).len();
    }
    assert_eq!(written, 2, "in ten minutes");
    assert_eq!(lane.cycle(limits, &[starting(2, "hidden")], at(600.0)).len(), 1);
}

#[test]
fn a_daemon_that_stops_leaves_no_task_in_the_lane() {
    let mut lane = Lane::default();
    lane.cycle(budget(0.02, 2), &[writer(1, 0.01), writer(2, 0.01)], at(0.0));
    let left = lane.stop(at(1.0));
    assert!(left.len() == 2 && left.iter().all(|m| m.weight.is_none() && m.why == Why::Stop));
    assert_eq!(lane.members().len(), 0);
}

/// A program that starts, and one that writes without pause: they have what their parts are worth.
#[test]
fn a_task_over_its_part_goes_on_slowly_and_is_fast_again_once_it_uses_less() {
    let mut lane = Lane::default();
    let limits = budget(0.025, 2);
    lane.cycle(limits, &[starting(1, "starts")], at(0.0));
    let moves = spends(&mut lane, 1, 0.0, 0.02);
    assert_eq!(moves[0].weight, Some(SLOW_WEIGHT));
    let (mut used, mut weights) = (0.02, Vec::new());
    for tenth in 1..=240u32 {
        let now = at(f64::from(tenth) / 10.0);
        // Six seconds of starting at what the kernel gives it.
        used += if tenth <= 60 { 0.002 } else { 0.0005 };
        let cpu = Some(Duration::from_secs_f64(used));
        assert!(lane.look(now, &[(id(1), cpu)]).is_empty());
        if tenth % 30 == 0 {
            let known = Candidate { cpu, job: job("starts"), ..writer(1, 0.005) };
            let young = Candidate { cpu, ..starting(1, "starts") };
            let task = if tenth <= 60 { young } else { known };
            weights.extend(lane.cycle(limits, &[task], now).iter().map(|m| (tenth, m.weight)));
        }
    }
    assert_eq!(weights, [(90, Some(WEIGHT))]);
    assert_eq!(lane.cycle(limits, &[starting(2, "starts")], at(25.0)).len(), 1, "no cheat");
}

#[test]
fn one_that_goes_on_to_compute_is_out_and_so_are_others_of_its_job() {
    let mut lane = Lane::default();
    let limits = budget(0.025, 2);
    lane.cycle(limits, &[starting(1, "lies")], at(0.0));
    spends(&mut lane, 1, 0.0, 0.1);
    let computes = Candidate { rate: Some(Share::ONE), ..starting(1, "lies") };
    let moves: Vec<(u32, Why)> = (1..100u32)
        .flat_map(|cycle| {
            let now = at(f64::from(cycle) * 3.0);
            let moves = lane.cycle(limits, std::slice::from_ref(&computes), now);
            moves.into_iter().map(move |m| (cycle, m.why))
        })
        .collect();
    assert_eq!(moves, [(SLOW_CYCLES + 1, Why::Computes)]);
    assert!(lane.cycle(limits, &[starting(2, "lies")], at(400.0)).is_empty());
}

#[test]
fn a_slow_task_makes_room_for_one_of_short_bursts() {
    let mut lane = Lane::default();
    let limits = budget(0.025, 1);
    lane.cycle(limits, &[writer(1, 0.45)], at(0.0));
    spends(&mut lane, 1, 0.0, 0.03);
    lane.cycle(limits, &[writer(1, 0.45), writer(2, 0.012)], at(3.0));
    assert_eq!(members(&lane), [2]);
}

/// Two hogs of a job that computed little before, and one that computes in short bursts: how many seconds
/// after its bursts are known that one is in the lane.
fn honest_beside_hogs(hogs: u64, job_rate: f64, honest: f64, cycle: u32) -> Option<f64> {
    let limits = budget(0.025, 2);
    let mut lane = Lane::default();
    let mut used = vec![0.0; hogs as usize + 1];
    for tenth in 0..1200u32 {
        let now = at(f64::from(tenth) / 10.0);
        // What the kernel gives beside one hog of the active tier on each CPU.
        for (number, used) in (0..).zip(&mut used) {
            let wants = if number == hogs { honest / 10.0 } else { 1.0 };
            *used += match lane.level(id(number)) {
                Some(Level::Lane) => wants.min(0.009),
                Some(_) => wants.min(0.002),
                None => 0.0001,
            };
        }
        let cpu = |number: u64| Some(Duration::from_secs_f64(used[number as usize]));
        let counters: Vec<_> = (0..=hogs).map(|number| (id(number), cpu(number))).collect();
        lane.look(now, &counters);
        if tenth % cycle == 0 {
            let hog = |number| Candidate {
                job_rate: Some(Share::clamped(job_rate)),
                rate: (tenth > 0).then_some(Share::ONE),
                cpu: cpu(number),
                ..starting(number, "cheap")
            };
            let mut passive: Vec<Candidate> = (0..hogs).map(hog).collect();
            // Seen awake first when the hogs have been there for a while.
            let known = Candidate { cpu: cpu(hogs), job: job("honest"), ..writer(hogs, honest) };
            passive.extend((tenth >= 30).then_some(known));
            lane.cycle(limits, &passive, now);
        }
        if lane.has(id(hogs)) {
            return Some(f64::from(tenth) / 10.0 - 3.0);
        }
    }
    None
}

#[test]
fn hogs_with_a_cheap_past_do_not_keep_out_one_that_computes_in_short_bursts() {
    let after = honest_beside_hogs(2, 0.015, 0.015, 30);
    assert!(after.is_some_and(|seconds| seconds <= 6.0), "{after:?}");
}

#[test]
fn a_job_s_past_lets_a_hog_compute_fast_once() {
    let mut lane = Lane::default();
    let limits = budget(0.025, 2);
    let (mut used, mut fast) = (0.0, 0);
    for tenth in 0..1200u32 {
        let now = at(f64::from(tenth) / 10.0);
        let level = lane.level(id(1));
        used += if level == Some(Level::Lane) { 0.009 } else { 0.002 };
        fast += u32::from(level == Some(Level::Lane));
        let cpu = Some(Duration::from_secs_f64(used));
        lane.look(now, &[(id(1), cpu)]);
        if tenth % 30 == 0 {
            let rate = (tenth > 0).then_some(Share::ONE);
            lane.cycle(limits, &[Candidate { cpu, rate, ..starting(1, "cheap") }], now);
        }
    }
    assert!(fast <= 5, "fast for {fast} tenths of a second of two minutes");
}

proptest! {
    #[test]
    fn however_many_hogs_have_a_cheap_past_the_honest_one_is_let_in(
        hogs in 1u64..8, job_rate in 0.0005f64..0.05, honest in 0.002f64..0.05, cycle in 1u32..=30,
    ) {
        let after = honest_beside_hogs(hogs, job_rate, honest, cycle);
        prop_assert!(after.is_some_and(|seconds| seconds <= 20.0), "{after:?}");
    }
}

#[test]
fn a_moderate_writer_has_what_the_weight_gives_and_is_seldom_written() {
    let mut lane = Lane::default();
    let limits = budget(0.025, 2);
    let (mut used, mut written) = (0.0, 0);
    // An hour.
    for tenth in 0..36_000u32 {
        let now = at(f64::from(tenth) / 10.0);
        used += match lane.level(id(1)) {
            Some(Level::Lane) => 0.009,
            Some(_) => 0.00195,
            None => 0.0,
        };
        let cpu = Some(Duration::from_secs_f64(used));
        written += lane.look(now, &[(id(1), cpu)]).len();
        if tenth % 30 == 0 {
            written += lane.cycle(limits, &[Candidate { cpu, ..writer(1, 0.45) }], now).len();
        }
    }
    assert!(written <= 40, "written {written} times");
    assert!(used / 3600.0 >= 0.019 && used / 3600.0 <= 0.025, "{used} s in an hour");
}

#[test]
fn tasks_that_come_and_go_take_no_more_than_those_that_stay() {
    let mut lane = Lane::default();
    let (mut used, mut worst) = (0.0, 0.0f64);
    // Each lives for a cycle, and takes all it can at once.
    for cycle in 0..200u64 {
        let now = at(3.0 * cycle as f64);
        let passive: Vec<Candidate> = (0..8).map(|n| starting(8 * cycle + n, "short")).collect();
        lane.cycle(budget(0.015, 2), &passive, now);
        let in_it: Vec<TaskId> = lane.members().collect();
        for task in in_it {
            used += 0.014;
            lane.look(at(3.0 * cycle as f64 + 0.1), &[(task, Some(Duration::from_millis(14)))]);
            lane.look(at(3.0 * cycle as f64 + 2.9), &[(task, Some(Duration::from_millis(58)))]);
            used += if lane.has(task) { 0.044 } else { 0.0 };
            lane.forget(task);
        }
        worst = worst.max(used / (3.0 * (cycle + 1) as f64 + DEPTH));
    }
    assert!(worst <= 0.03 + 1e-6, "{worst} of a CPU");
    assert!(used / 600.0 >= 0.015, "{used}");
}

#[test]
fn none_is_put_out_where_that_makes_no_room() {
    let all = 0.04;
    let member = |part: f64, has_bursts: bool| Member {
        part,
        credit: 0.0,
        looked: (at(0.0), Duration::ZERO),
        bad_cycles: 0,
        entered: at(0.0),
        has_bursts,
        slow: (!has_bursts).then_some(0),
        job: None,
    };
    let mut lane = Lane { all, most: all, pot: all * DEPTH, ..Lane::default() };
    lane.members.insert(id(1), member(0.015, false));
    lane.members.insert(id(2), member(0.03, true));
    assert!(lane.make_room(0.02, at(100.0)).is_empty());
    assert_eq!(members(&lane), [1, 2]);
    // Without the other one it is room enough, by as few as will do.
    lane.members.insert(id(2), member(0.01, false));
    let left = lane.make_room(0.02, at(100.0));
    assert_eq!(left.iter().map(|m| m.task.number).collect::<Vec<_>>(), [1]);
    assert_eq!(members(&lane), [2]);
}
