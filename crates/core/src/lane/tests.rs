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
    assert!(moves.iter().all(|m| m.entered && m.why == Why::Bursts), "{moves:?}");
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
    let left = lane.look(at(0.2), &[(id(2), Some(Duration::from_millis(30)))]);
    assert_eq!(left.len(), 1);
    assert_eq!(members(&lane), [3]);
}

#[test]
fn who_is_over_its_part_leaves_at_once_and_its_pause_doubles() {
    let mut lane = Lane::default();
    let limits = budget(0.02, 2);
    let (mut entered, mut pauses) = (0.0, Vec::new());
    lane.cycle(limits, &[writer(1, 0.01)], at(entered));
    for _ in 0..5 {
        assert!(spends(&mut lane, 1, entered, 0.002).is_empty());
        let left = lane.look(at(entered + 0.2), &[(id(1), Some(Duration::from_millis(60)))]);
        assert_eq!(left.len(), 1);
        assert_eq!((left[0].why, left[0].entered), (Why::Overrun, false));
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
    let limits = budget(0.02, 4);
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
    assert!(lane.cycle(limits, &[of_hogs], at(9.0)).iter().all(|m| !m.entered));
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
        let part = weight * STEP as f64 / 1000.0 / (weight * busy.len() as f64 + 1.0);
        busy.iter().for_each(|&n| used[n] += part);
        let taken = part * busy.len() as f64;
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
