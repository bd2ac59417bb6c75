//! Active slots on loan.

use super::*;
use crate::jobs::{End, Finished};
use crate::sample::TaskPressure;
use crate::slots::Seat;

/// On 2 CPUs, with a job known that computes.
fn node() -> Shaper {
    let mut finished = Finished::default();
    finished.add(End { rate: Some(0.98), ..End::default() });
    let policy = Policy { passive: Some(4), ..Policy::simulated() };
    let jobs = vec![(labels("maps").job_key(Some(0)).unwrap(), finished)];
    Shaper::new(policy, 2, Restored { jobs, ..Restored::default() })
}

fn labels(job: &str) -> Labels {
    Labels { job: Some(Label::new(job).unwrap()), ..Labels::default() }
}

fn start(shaper: &mut Shaper, job: &str, priority: i32) -> TaskId {
    let asked = Request { labels: labels(job), ..request(priority) };
    let Ok(Answer::Placed(id)) = shaper.ask(asked, None, at(0)) else { panic!("no slot") };
    shaper.attached(id, at(0));
    id
}

/// A cycle in which these used so many milliseconds of a CPU.
fn cycle(
    shaper: &mut Shaper,
    cpu: &mut BTreeMap<TaskId, u64>,
    second: u64,
    used: &[(TaskId, u64)],
) {
    cycle_with_waits(shaper, cpu, second, used, Duration::ZERO);
}

/// The same; since they began these had waited so long for a CPU each.
fn cycle_with_waits(
    shaper: &mut Shaper,
    cpu: &mut BTreeMap<TaskId, u64>,
    second: u64,
    used: &[(TaskId, u64)],
    cpu_some: Duration,
) {
    for (task, ms) in used {
        let total = cpu.entry(*task).or_default();
        *total += ms;
        let cpu = Some(Duration::from_millis(*total));
        let pressure = Some(TaskPressure { cpu_some, ..TaskPressure::default() });
        let sample = TaskSample { cpu, pressure, ..TaskSample::default() };
        shaper.read(at(second).boot, Reading { task: *task, due: true, sample });
    }
    let node = Measured { cpu: super::cpu(0.99), ..Measured::default() };
    shaper.cycle(&node, at(second));
}

fn levels(shaper: &Shaper, ids: &[TaskId]) -> Vec<Option<Level>> {
    ids.iter().map(|id| shaper.level(*id)).collect()
}

const ACTIVE: Option<Level> = Some(Level::Active);
const PASSIVE: Option<Level> = Some(Level::Passive);

#[test]
fn two_reducers_that_wait_lend_their_slots_to_the_maps_they_wait_for() {
    let (mut shaper, mut cpu) = (node(), BTreeMap::new());
    let reducers = [start(&mut shaper, "reduce", 0), start(&mut shaper, "reduce", 0)];
    let sleeper = start(&mut shaper, "reduce", 0);
    let maps = [0, 0, 0].map(|_| start(&mut shaper, "maps", 0));
    let mut sleep = |shaper: &mut Shaper, second| {
        let all = reducers.iter().chain([&sleeper]).map(|id| (*id, 60));
        cycle(shaper, &mut cpu, second, &all.collect::<Vec<_>>());
    };
    (1..4).for_each(|n| sleep(&mut shaper, 3 * n));
    assert_eq!(levels(&shaper, &maps), [ACTIVE, ACTIVE, PASSIVE]);
    assert_eq!(levels(&shaper, &reducers), [ACTIVE, ACTIVE]);
    let slots = shaper.slots();
    assert_eq!((slots.active_used(), slots.passive_used()), (2, 4), "the counts know no loans");
    assert_eq!(shaper.looked_at().collect::<Vec<_>>(), reducers);

    // The second one wakes: the latest loan ends, of whichever slot it was.
    for (millis, used) in [(9_100, 1000), (9_200, 1050), (9_300, 1100)] {
        let now = Moment { boot: BootTime(Duration::from_millis(millis)), ..at(9) };
        let look = (reducers[1], Some(Duration::from_millis(used)));
        shaper.handle(Input::CpuLooked(vec![look]), now);
    }
    assert_eq!(levels(&shaper, &maps), [ACTIVE, PASSIVE, PASSIVE]);

    // Its slot is the borrower's when the first one ends, though another came before it.
    end(&mut shaper, reducers[0], at(10));
    assert_eq!(levels(&shaper, &[maps[0], sleeper]), [ACTIVE, PASSIVE]);
    assert_eq!(shaper.task(maps[0]).unwrap().seat, Seat::Active);
    assert_eq!(shaper.loans().borrowers(), []);
}

#[test]
fn a_higher_priority_borrows_first_and_who_stops_a_task_lends_its_slot_at_once() {
    let (mut shaper, mut cpu) = (node(), BTreeMap::new());
    let active = [start(&mut shaper, "serve", 5), start(&mut shaper, "serve", 5)];
    let [low, high] = [start(&mut shaper, "maps", 0), start(&mut shaper, "maps", 1)];
    let busy = [(active[0], 2900), (active[1], 2900)];
    cycle(&mut shaper, &mut cpu, 3, &busy);
    cycle(&mut shaper, &mut cpu, 6, &busy);
    assert_eq!(levels(&shaper, &[low, high]), [PASSIVE, PASSIVE]);
    shaper.halted(vec![(active[0], Some(Halt::Stopped))], at(7));
    assert_eq!(levels(&shaper, &[low, high]), [PASSIVE, ACTIVE]);
    // A borrower that is stopped makes room for the next.
    shaper.halted(vec![(high, Some(Halt::Stopped))], at(8));
    assert_eq!(levels(&shaper, &[low, high]), [ACTIVE, PASSIVE]);
    shaper.halted(vec![(high, None)], at(9));
    shaper.halted(vec![(active[0], None)], at(9));
    assert_eq!(levels(&shaper, &[low, high]), [PASSIVE, PASSIVE]);
}

/// Beside services on the same CPUs.
#[test]
fn a_reducer_that_waits_longer_for_a_cpu_than_it_computes_lends_and_a_starved_task_does_not() {
    let lent = |waits_ms: u64| {
        let (mut shaper, mut cpu) = (node(), BTreeMap::new());
        let active = [start(&mut shaper, "reduce", 0), start(&mut shaper, "reduce", 0)];
        let map = start(&mut shaper, "maps", 0);
        for n in 1..6 {
            let waits = Duration::from_millis(n * waits_ms);
            let used = active.map(|id| (id, 60));
            cycle_with_waits(&mut shaper, &mut cpu, 3 * n, &used, waits);
        }
        shaper.level(map) == ACTIVE
    };
    assert!(lent(400));
    assert!(!lent(1470), "all the time, on two CPUs in turn");
    assert!(!lent(2940));
}
