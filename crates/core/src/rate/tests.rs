use proptest::prelude::*;

use super::*;
use crate::sample::{DiskBytes, NodePressure};
use crate::units::Bytes;

fn seconds(value: f64) -> Duration {
    Duration::from_secs_f64(value)
}

fn interval(elapsed: f64, cpu: f64, pressure: Option<(f64, f64)>) -> Interval {
    Interval {
        elapsed: seconds(elapsed),
        cpu: seconds(cpu),
        pressure: pressure.map(|(cpu_some, io_some)| TaskPressure {
            cpu_some: seconds(cpu_some),
            io_some: seconds(io_some),
        }),
        thread: None,
        cpus: 2,
    }
}

fn with_thread(mut interval: Interval, ran: f64, waited: f64, nv: u64, niv: u64) -> Interval {
    interval.thread = Some(ThreadCounters {
        ran: seconds(ran),
        waited: seconds(waited),
        voluntary: nv,
        involuntary: niv,
    });
    interval
}

fn rate_of(intervals: &[(Interval, &[ThreadLook])]) -> Option<f64> {
    let mut meter = RateMeter::default();
    for (interval, looks) in intervals {
        for &look in *looks {
            meter.saw(look);
        }
        meter.advance(interval);
    }
    meter.computing_rate().map(Share::value)
}

use ThreadLook::{Asleep, DiskWait, Runnable};

/// Readings of 15 s captured on Linux 6.18 with two CPUs and two hogs in active groups, the
/// task in a group with cpu.idle=1: CPU, cpu.pressure, io.pressure, looks, thread counters.
#[test]
fn captured_starved_tasks() {
    let run = [Runnable; 10];
    let hog = interval(15.05, 0.083, Some((11.0, 0.0)));
    assert_eq!(rate_of(&[(hog, &run)]), Some(1.0));

    // dd, 4 KiB: alone the exact counters gave 0.44.
    let dd = with_thread(interval(15.05, 0.047, Some((9.03, 0.04))), 0.047, 14.93, 993, 6);
    let rate = rate_of(&[(dd, &run)]).unwrap();
    assert!((0.35..0.55).contains(&rate), "{rate}");

    let wall = with_thread(interval(15.04, 0.066, Some((8.47, 0.0))), 0.066, 10.92, 8, 18);
    let looks = [[Runnable; 3].as_slice(), &[Asleep]].concat();
    let rate = rate_of(&[(wall, &looks)]).unwrap();
    assert!((0.2..0.8).contains(&rate), "{rate}");

    let napper = with_thread(interval(15.1, 0.041, Some((12.11, 0.0))), 0.041, 13.56, 727, 9);
    let looks = [[Runnable; 4].as_slice(), &[Asleep]].concat();
    let rate = rate_of(&[(napper, &looks)]).unwrap();
    assert!(rate < 0.2, "{rate}");
}

#[test]
fn unstarved_tasks_are_exact_without_looks() {
    let half = interval(10.0, 5.0, Some((0.0, 0.0)));
    assert_eq!(rate_of(&[(half, &[])]), Some(0.5));
    let sleeper = interval(10.0, 0.0, Some((0.0, 0.0)));
    assert_eq!(rate_of(&[(sleeper, &[])]), Some(0.0));
    let hog = interval(10.0, 10.0, Some((0.0, 0.0)));
    assert_eq!(rate_of(&[(hog, &[])]), Some(1.0));
    let dd = interval(10.0, 1.0, Some((0.0, 9.0)));
    assert!((rate_of(&[(dd, &[])]).unwrap() - 0.1).abs() < 1e-9);
}

#[test]
fn looks_are_wanted_only_where_counters_leave_it_open() {
    let mut meter = RateMeter::default();
    assert_eq!(meter.looks_wanted(), LOOKS_AT_FIRST);
    meter.advance(&interval(3.0, 1.5, Some((0.01, 0.0))));
    assert_eq!(meter.looks_wanted(), 0);
    meter.advance(&interval(3.0, 3.0, Some((0.5, 0.0))));
    assert_eq!(meter.looks_wanted(), 0);
    // Some waiting beside much sleep hardly matters.
    meter.advance(&interval(3.0, 0.01, Some((0.2, 0.0))));
    assert_eq!(meter.looks_wanted(), 0);
    // Starved, and starved so much that it did not run at all.
    meter.advance(&interval(3.0, 0.0, Some((1.6, 0.0))));
    assert_eq!(meter.looks_wanted(), LOOKS_AT_FIRST);
    meter.advance(&interval(3.0, 0.01, Some((1.6, 0.0))));
    assert_eq!(meter.looks_wanted(), LOOKS_AT_FIRST);
    for _ in 0..FEW_LOOKS {
        meter.saw(Runnable);
    }
    meter.advance(&interval(3.0, 0.01, Some((1.6, 0.0))));
    assert_eq!(meter.looks_wanted(), 1);
    // On more than one CPU, but not on both all the time.
    meter.advance(&interval(3.0, 3.5, Some((0.0, 0.0))));
    assert_eq!(meter.looks_wanted(), 1);
    // No PSI.
    meter.advance(&interval(3.0, 1.5, None));
    assert_eq!(meter.looks_wanted(), 1);
}

#[test]
fn a_young_or_unseen_task_is_due_with_every_reading() {
    let mut meter = RateMeter::default();
    assert!(meter.is_due(Duration::ZERO, false));
    meter.advance(&interval(15.0, 7.0, Some((0.0, 0.0))));
    assert!(meter.is_due(Duration::ZERO, true), "15 s are when a class is expected");
    meter.advance(&interval(45.0, 20.0, Some((0.0, 0.0))));
    assert!(!meter.is_due(seconds(3.0), true));
    assert!(meter.is_due(seconds(7.5), true));
    assert!(!meter.is_due(seconds(7.5), false));
    assert!(meter.is_due(seconds(15.0), false));
    // Starved now, and not looked at yet.
    meter.advance(&interval(3.0, 0.01, Some((2.9, 0.0))));
    assert!(meter.is_due(seconds(3.0), true));
    (0..FEW_LOOKS).for_each(|_| meter.saw(Runnable));
    assert!(!meter.is_due(seconds(3.0), true));
    // One with threads that may not be read is not tried for ever.
    let mut hidden = RateMeter::default();
    hidden.advance(&interval(LOOKS_TRIED, 1.0, None));
    assert!(!hidden.is_due(seconds(3.0), true));
}

#[test]
fn however_an_even_task_is_cut_into_intervals_its_rate_is_the_same() {
    let piece = |times: f64| {
        let dd = interval(3.0 * times, 0.01 * times, Some((1.8 * times, 0.008 * times)));
        with_thread(dd, 0.01 * times, 2.9 * times, 200 * times as u64, 2 * times as u64)
    };
    let each: Vec<_> = (0..16).map(|_| (piece(1.0), [Runnable].as_slice())).collect();
    let merged = rate_of(&[(piece(16.0), &[Runnable])]).unwrap();
    assert!((rate_of(&each).unwrap() - merged).abs() < 1e-9);
}

/// Drives a meter as the daemon does, with a cycle of 3 s: `before` cycles of computing, then
/// `after` asleep. Gives the rate and the longest interval.
fn rate_after_change(before: u32, after: u32) -> (f64, f64) {
    let mut meter = RateMeter::default();
    let (mut open, mut cpu, mut longest) = (0.0, 0.0, 0.0f64);
    for cycle in 0..before + after {
        let due = meter.is_due(seconds(open), cpu > 0.0);
        open += 3.0;
        cpu += if cycle < before { 3.0 } else { 0.0 };
        if due {
            longest = longest.max(open);
            meter.advance(&interval(open, cpu, Some((0.0, 0.0))));
            (open, cpu) = (0.0, 0.0);
        }
    }
    (meter.computing_rate().unwrap().value(), longest)
}

#[test]
fn without_psi_looks_split_the_time() {
    let rate = rate_of(&[(interval(10.0, 1.0, None), &[Runnable, Asleep, DiskWait, Asleep])]);
    assert!((rate.unwrap() - 1.0 / 8.5).abs() < 1e-9);
    assert_eq!(rate_of(&[(interval(10.0, 0.05, None), &[Runnable; 4])]), Some(1.0));
}

/// The same captured tasks, judged by the counters of their one thread.
#[test]
fn without_psi_a_lone_threads_counters_tell_disk_from_starvation() {
    let hog = with_thread(interval(15.01, 0.047, None), 0.047, 14.88, 0, 12);
    assert_eq!(rate_of(&[(hog, &[Runnable; 5])]), Some(1.0));
    // A few page faults, and a wait that is still going on.
    let hog = with_thread(interval(15.0, 0.083, None), 0.083, 14.0, 2, 25);
    assert_eq!(rate_of(&[(hog, &[Runnable; 5])]), Some(1.0));
    let dd = with_thread(interval(15.01, 0.044, None), 0.044, 14.84, 458, 0);
    let rate = rate_of(&[(dd, &[Runnable; 5])]).unwrap();
    // Within three mean waits of the exact 0.26: more the counters do not say.
    assert!((0.2..0.7).contains(&rate), "{rate}");
}

#[test]
fn too_little_evidence_is_unknown() {
    assert_eq!(RateMeter::default().computing_rate(), None);
    assert_eq!(RateMeter::default().computing_rate_raw(), None);
    assert_eq!(rate_of(&[(interval(0.29, 0.25, Some((0.0, 0.0))), &[])]), None);
    assert_eq!(rate_of(&[(interval(0.31, 0.31, Some((0.0, 0.0))), &[])]), Some(1.0));
    // Over before anybody looked, where nothing tells a sleeper from one that waited for the CPU.
    assert_eq!(rate_of(&[(interval(0.9, 0.1, None), &[])]), None);
    assert_eq!(rate_of(&[(interval(0.9, 0.9, None), &[])]), Some(1.0));
    // Starved from its first instruction: it neither ran nor slept.
    assert_eq!(rate_of(&[(interval(5.0, 0.001, Some((4.9, 0.0))), &[Runnable])]), None);
}

#[test]
fn classes_have_half_open_ranges() {
    let share = Share::clamped;
    let of = |rate, disk| class_of(share(rate), disk, share(0.2), share(0.8));
    let class = |rate| of(rate, None);
    assert_eq!(class(0.1999), Class::Io);
    assert_eq!(class(0.2), Class::Moderate);
    assert_eq!(class(0.7999), Class::Moderate);
    assert_eq!(class(0.8), Class::Cpu);
    assert_eq!(of(0.019, Some(share(0.019))), Class::Idle);
    assert_eq!(of(0.019, Some(share(0.02))), Class::Io);
    assert_eq!(of(0.02, Some(share(0.0))), Class::Io);
    assert_eq!(class(0.0), Class::Io, "whether it waits for a disk is not known");
}

#[test]
fn a_meter_survives_its_state_file() {
    let mut meter = RateMeter::default();
    meter.saw(Asleep);
    meter.advance(&with_thread(interval(3.0, 0.7, Some((0.2, 0.1))), 0.7, 0.1, 3, 4));
    meter.advance(&with_thread(interval(3.0, 0.7, None), 0.7, 0.1, 3, 4));
    let text = serde_json::to_string(&meter).unwrap();
    let back: RateMeter = serde_json::from_str(&text).unwrap();
    // JSON may cost a float its last bit.
    let difference =
        back.computing_rate().unwrap().value() - meter.computing_rate().unwrap().value();
    assert!(difference.abs() < 1e-12, "{text}");
    assert_eq!(
        (back.looks, back.recent, back.ambiguous),
        (meter.looks, meter.recent, meter.ambiguous)
    );
    assert!(!text.contains("blind_many"), "an empty pool takes no room: {text}");
}

#[test]
fn backward_counters_and_empty_intervals_are_no_interval() {
    let at = |s| BootTime(Duration::from_secs(s));
    let sample =
        |cpu: u64| TaskSample { cpu: Some(Duration::from_secs(cpu)), ..Default::default() };
    let between =
        |a, old: &TaskSample, b, new: &TaskSample| Interval::between((at(a), old), (at(b), new), 2);
    assert!(between(1, &sample(5), 2, &sample(6)).is_some());
    assert_eq!(between(1, &sample(5), 1, &sample(6)), None);
    assert_eq!(between(2, &sample(5), 1, &sample(6)), None);
    assert_eq!(between(1, &sample(5), 2, &sample(4)), None);
    assert_eq!(between(1, &TaskSample::default(), 2, &sample(4)), None);
    // Pressure that went back is left out, the interval stays.
    let pressed = |total| TaskSample {
        pressure: Some(TaskPressure { cpu_some: seconds(total), io_some: seconds(total) }),
        ..sample(5)
    };
    assert_eq!(between(1, &pressed(2.0), 2, &pressed(1.0)).unwrap().pressure, None);
    assert!(between(1, &pressed(1.0), 2, &pressed(2.0)).unwrap().pressure.is_some());
}

#[test]
fn node_rates_are_shares_of_all_time() {
    let at = |s| BootTime(Duration::from_secs(s));
    let node = |user: u64, idle: u64, iowait: u64, steal: u64, bytes: u64| NodeSample {
        cpu: Some(CpuTimes {
            user: Duration::from_secs(user),
            idle: Duration::from_secs(idle),
            iowait: Duration::from_secs(iowait),
            steal: Duration::from_secs(steal),
            ..CpuTimes::default()
        }),
        disk: Some(DiskBytes { read: Bytes(bytes), written: Bytes(2 * bytes) }),
        pressure: Some(NodePressure {
            cpu_some: Some(Duration::from_secs(user)),
            ..Default::default()
        }),
        ..NodeSample::default()
    };
    let old = node(10, 20, 30, 40, 1000);
    let new = node(14, 22, 33, 41, 6000);
    let rates = NodeRates::between((at(10), &old), (at(15), &new));
    let share = |value: f64| Some(Share::clamped(value));
    assert_eq!(rates.effective, share(0.4));
    assert_eq!(rates.idle, share(0.2));
    assert_eq!(rates.iowait, share(0.3));
    assert_eq!(rates.steal, share(0.1));
    assert_eq!(rates.disk_read_per_sec, Some(1000.0));
    assert_eq!(rates.disk_write_per_sec, Some(2000.0));
    let pressure = rates.pressure.unwrap();
    assert_eq!(pressure.cpu_some, Some(Share::clamped(0.8)));
    assert_eq!(pressure.memory_full, None, "one file that is missing costs that one");
    assert_eq!(NodeRates::between((at(15), &new), (at(10), &old)), NodeRates::default());
    // No time passed: nothing is known, not even of counters that grew.
    let still = NodeRates::between((at(10), &old), (at(10), &old));
    assert_eq!(still.effective, None);
    assert_eq!(still.disk_read_per_sec, None);
    // iowait wobbles by a tick.
    let mut wobble = new.clone();
    wobble.cpu.as_mut().unwrap().iowait -= Duration::from_millis(3010);
    assert_eq!(NodeRates::between((at(10), &old), (at(15), &wobble)).iowait, share(0.0));
}

#[test]
fn task_rates() {
    let at = |s| BootTime(Duration::from_secs(s));
    let sample = |cpu: u64, bytes: Option<u64>| TaskSample {
        cpu: Some(Duration::from_secs(cpu)),
        written: bytes.map(Bytes),
        ..TaskSample::default()
    };
    let rates = TaskRates::between((at(0), &sample(1, Some(0))), (at(4), &sample(3, Some(8))), 2.0);
    assert_eq!(rates.cpu_share, Some(Share::clamped(0.25)));
    assert_eq!(rates.write_per_sec, Some(2.0));
    assert_eq!(rates.read_per_sec, None);
    let none = TaskRates::between((at(0), &sample(3, Some(8))), (at(4), &sample(1, Some(0))), 2.0);
    assert_eq!(none, TaskRates::default());
    let no_cpus = TaskRates::between((at(0), &sample(1, None)), (at(4), &sample(3, None)), 0.0);
    assert_eq!(no_cpus.cpu_share, None);
}

fn any_interval() -> impl Strategy<Value = Interval> {
    let time = || {
        prop_oneof![Just(0u64), 0u64..5_000_000_000, any::<u64>()].prop_map(Duration::from_nanos)
    };
    let count = || prop_oneof![0u64..1000, any::<u64>()];
    (
        time(),
        time(),
        proptest::option::of((time(), time())),
        proptest::option::of((time(), time(), count(), count())),
        any::<u32>(),
    )
        .prop_map(|(elapsed, cpu, pressure, thread, cpus)| Interval {
            elapsed,
            cpu,
            pressure: pressure.map(|(cpu_some, io_some)| TaskPressure { cpu_some, io_some }),
            thread: thread.map(|(ran, waited, voluntary, involuntary)| ThreadCounters {
                ran,
                waited,
                voluntary,
                involuntary,
            }),
            cpus,
        })
}

proptest! {
    #[test]
    fn a_change_of_behaviour_is_in_the_rate_in_time(before in 4u32..6000, after in 20u32..6000) {
        let (rate, longest) = rate_after_change(before, after);
        let late = LONGEST_OPEN.as_secs_f64() / 3.0;
        prop_assert!(longest <= 3.0 * (late + 1.0));
        // Cycles. Between the rate as it is, and as it was when the interval now open began.
        let (before, after) = (f64::from(before), f64::from(after));
        let exact = |late: f64| before / (before + after - late);
        prop_assert!(rate >= exact(0.0) - 1e-9, "{rate} {}", exact(0.0));
        prop_assert!(rate <= exact(late + 1.0) + 1e-9, "{rate} {}", exact(late + 1.0));
    }

    #[test]
    fn an_interval_is_due_at_the_latest_after_its_bound(
        elapsed in 0.0f64..1e6, share in 0.0f64..1.0, open in 0.0f64..100.0, used in any::<bool>()
    ) {
        let mut meter = RateMeter::default();
        meter.advance(&interval(elapsed, elapsed * share, Some((0.0, 0.0))));
        let due = meter.is_due(seconds(open), used);
        prop_assert!(due || open < LONGEST_OPEN.as_secs_f64());
        prop_assert!(!due || meter.is_due(seconds(open + 1.0), used), "once due, due");
        prop_assert!(!due || meter.is_due(seconds(open), true) , "computing is looked at sooner");
    }

    #[test]
    fn any_history_gives_a_share_or_nothing(
        steps in proptest::collection::vec((any_interval(), 0usize..4), 0..30),
    ) {
        let mut meter = RateMeter::default();
        for (interval, look) in steps {
            if let Some(look) = [Asleep, DiskWait, Runnable].get(look) {
                meter.saw(*look);
            }
            meter.advance(&interval);
            for rate in [meter.computing_rate(), meter.computing_rate_raw()].into_iter().flatten() {
                prop_assert!((0.0..=1.0).contains(&rate.value()));
            }
            prop_assert!(meter.looks_wanted() <= LOOKS_AT_FIRST);
        }
    }

    /// A starved hog never looks I/O-bound, whatever PSI's averaging made of its waits.
    #[test]
    fn a_task_never_asleep_and_never_on_a_disk_computes(
        intervals in proptest::collection::vec((0.5f64..5.0, 0.001f64..1.0, 0.51f64..1.0), 1..10),
    ) {
        let mut meter = RateMeter::default();
        for (elapsed, cpu, seen) in intervals {
            let cpu = cpu.min(elapsed);
            meter.saw(Runnable);
            // Two CPUs: PSI shows between half and all of the wait.
            meter.advance(&interval(elapsed, cpu, Some(((elapsed - cpu) * seen, 0.0))));
        }
        if let Some(rate) = meter.computing_rate() {
            // What an interval may leave unexplained (SLACK) counts as sleep; the class stays.
            prop_assert!(rate.value() > 0.9, "{rate:?} {meter:?}");
        }
    }
}
