use super::*;
use crate::units::Share;

const CYCLE: Duration = Duration::from_secs(3);

/// Uniform figures from 0 to 1 (Knuth's MMIX generator).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A node and its load: what `slots` slots do.
struct Played {
    probe: Probe,
    cycles: u32,
    slots: u32,
    most: u32,
    /// Cycles in which slots were added, and taken back.
    ups: Vec<u32>,
    downs: Vec<u32>,
}

impl Played {
    fn new(slots: u32, most: u32) -> Played {
        let probe = Probe::default();
        Played { probe, cycles: 0, slots, most, ups: Vec::new(), downs: Vec::new() }
    }

    fn cycle(&mut self, used: f64, bytes: f64) {
        self.cycles += 1;
        let now = BootTime(CYCLE * self.cycles);
        let progress = Progress { cpus: 4.0 * used, bytes };
        self.probe.end_cycle(progress, true, now);
        let owed = self.probe.owed();
        if owed > 0 {
            self.slots -= owed;
            self.probe.withdrawn(self.slots, owed, now);
            self.downs.push(self.cycles);
        }
        let cpu = CpuShares { effective: Share::clamped(used), ..CpuShares::default() };
        let add = slots_carried(&cpu, self.slots).min(self.most - self.slots);
        if add > 0 && self.probe.may_try() {
            self.slots += add;
            self.probe.tried(add);
            self.ups.push(self.cycles);
        }
    }
}

#[test]
fn constant_load_with_noise_is_tried_once_an_hour() {
    for seed in 0..8u64 {
        let mut random = Random(seed);
        // The sum of twelve uniform figures is normal: a deviation of 10 %.
        let mut noisy = || 1.0 + 0.1 * ((0..12).map(|_| random.next()).sum::<f64>() - 6.0);
        let mut node = Played::new(8, 32);
        for _ in 0..10 * 1200 {
            node.cycle(0.4 * noisy(), 1e6 * noisy());
        }
        for moves in [&node.ups, &node.downs] {
            assert!(moves.len() <= 11, "{seed}: {moves:?}");
            assert!(moves.windows(2).all(|two| two[1] - two[0] >= 1200), "{seed}: {moves:?}");
        }
        assert_eq!(node.slots, 8, "{seed}: {:?}", node.ups);
    }
}

#[test]
fn what_waits_for_a_deep_disk_gets_more_slots_in_two_cycles() {
    let mut node = Played::new(8, 18);
    for _ in 0..20 {
        let slots = f64::from(node.slots);
        node.cycle(0.01 * slots, 1e5 * slots);
    }
    assert_eq!(node.ups[..2], [1, 2].map(|cycle| cycle + 1));
    assert_eq!((node.slots, node.downs.len()), (18, 0));
}

#[test]
fn what_waits_for_a_serial_disk_gets_none() {
    let mut node = Played::new(8, 18);
    for _ in 0..100 {
        node.cycle(0.1, 1e6);
    }
    assert_eq!((node.slots, node.ups.len(), node.downs.len()), (8, 1, 1));
    // Another load has another answer.
    for _ in 0..20 {
        let slots = f64::from(node.slots);
        node.cycle(0.03 * slots, 1e5 * slots);
    }
    assert_eq!(node.slots, 18);
}

#[test]
fn more_bytes_for_less_cpu_is_no_gain() {
    let mut node = Played::new(8, 18);
    for _ in 0..20 {
        let tried = node.slots > 8;
        node.cycle(if tried { 0.2 } else { 0.4 }, if tried { 2e6 } else { 1e6 });
    }
    assert_eq!(node.slots, 8);
}

#[test]
fn slots_that_the_spare_cpu_carries() {
    let carried = |effective, steal, slot_max| {
        let share = Share::clamped;
        let cpu = CpuShares {
            effective: share(effective),
            iowait: share(1.0 - effective - steal),
            steal: share(steal),
        };
        slots_carried(&cpu, slot_max)
    };
    assert_eq!(carried(0.8, 0.0, 8), 2, "a quarter of what is used is spare, waiting included");
    assert_eq!(carried(0.75, 0.25, 8), 0);
    assert_eq!(carried(0.1, 0.0, 8), 4, "half at the most");
    assert_eq!(carried(0.0, 0.0, 8), 4);
    assert_eq!(carried(1.0, 0.0, 0), 0);
    assert_eq!(carried(0.0, 0.0, 0), 0);
}

#[test]
fn a_cycle_with_a_free_slot_says_nothing() {
    let mut probe = Probe::default();
    let done = Progress { cpus: 1.0, bytes: 0.0 };
    for cycle in 0..5u32 {
        assert_eq!(probe.end_cycle(done, cycle % 2 == 0, BootTime(CYCLE * cycle)), None);
        assert!(!probe.may_try());
    }
}

#[test]
fn a_trial_is_compared_with_what_was_done_right_before() {
    let mut probe = Probe::default();
    let done = Progress { cpus: 1.0, bytes: 0.0 };
    let mut number = 0;
    let mut cycle = |full| {
        number += 1;
        probe.end_cycle(done, full, BootTime(CYCLE * number));
        probe.may_try()
    };
    assert!(!cycle(true) && cycle(true));
    assert!(!cycle(false), "a slot came free: what was done before is forgotten");
    assert!(!cycle(true) && cycle(true));
}

#[test]
fn a_trial_that_loses_slots_goes_whole_and_is_not_begun_again_at_once() {
    let mut probe = Probe::default();
    let mut now = BootTime(Duration::ZERO);
    let mut cycle = |probe: &mut Probe| {
        now = now.after(CYCLE);
        probe.end_cycle(Progress { cpus: 1.0, bytes: 0.0 }, true, now);
        now
    };
    cycle(&mut probe);
    cycle(&mut probe);
    assert!(probe.may_try());
    probe.tried(4);
    assert!(probe.is_trying());
    let now = cycle(&mut probe);
    probe.withdrawn(3, 1, now);
    assert_eq!((probe.is_trying(), probe.owed()), (false, 3), "the rest as it comes free");
    for left in (0..3).rev() {
        let now = cycle(&mut probe);
        probe.withdrawn(left, 1, now);
        assert_eq!(probe.owed(), left);
    }
    for _ in 0..100 {
        cycle(&mut probe);
        assert!(!probe.may_try(), "the pause is that of a trial without gain");
    }
}
