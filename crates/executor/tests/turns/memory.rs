//! Slots for tasks that take their memory late: what those that run have yet to take is kept for them.
//!
//! Limits: those of [`lrs_sim::node`]. The first tasks of a node, one for each active and each passive slot
//! of the base, are let in whatever memory there is, so that the node here has memory for those.

use std::time::Duration;

use lrs_sim::load::Load;
use lrs_sim::node::Hardware;

use fastrand::Rng;
use lrs_config::Config;
use lrs_core::model::{Label, Labels};
use lrs_sim::pretend::{HOME, Machine};

const GIB: u64 = 1 << 30;
/// Of each task, after five seconds.
const SIZE: u64 = 300 << 20;
const TASKS: usize = 40;

/// What became of a queue.
#[derive(Debug)]
struct Queue {
    /// The least memory that was available at any time.
    least: u64,
    /// The most tasks that had a slot at once.
    most: usize,
    /// Tasks that ended.
    ended: usize,
    /// The guard froze one.
    frozen: bool,
}

/// A queue of tasks that do `load`, all of one job or without a name.
fn queue(load: Load, memory: u64, cpus: u32, job: Option<&str>) -> Queue {
    let hardware = Hardware { memory, cpus, ..Hardware::default() };
    let mut machine = Machine::boot(hardware, Config::default());
    let job = job.map(|job| Label::new(job).unwrap());
    let mut waiting = Vec::new();
    for number in 0..TASKS as u32 {
        let process = machine.world().start_in(HOME, 0);
        let labels = Labels { job: job.clone(), ..Labels::default() };
        // They do not end together.
        let rounds = load.rounds.map(|rounds| rounds + number % 7 * rounds / 20);
        waiting.push((machine.admit(process, labels, None), process, Load { rounds, ..load }));
    }
    machine.finish_all();
    let mut queue = Queue { least: memory, most: 0, ended: 0, frozen: false };
    let hour = machine.now().boot.after(Duration::from_secs(3600));
    while queue.ended < TASKS && machine.now().boot < hour {
        waiting.retain_mut(|(answer, process, load)| {
            let admitted = matches!(answer.try_recv(), Ok(Ok(_)));
            if admitted {
                machine.world().node().tree.begin(process.pid, *load);
            }
            !admitted
        });
        queue.ended += machine.step(Duration::from_millis(100)).len();
        queue.least = queue.least.min(memory.saturating_sub(machine.world().node().resident()));
        queue.most = queue.most.max(machine.core().tasks().count());
        queue.frozen |= machine.core().tasks().any(|(_, task)| task.frozen);
    }
    queue
}

/// How many of 40 tasks that wait, of 50 MiB from their beginning, have a slot after 20 s beside an old
/// task of 5 of the 12 GiB.
fn beside_a_large_one(uid: u32, job: Option<&str>) -> usize {
    let hardware = Hardware { memory: 12 * GIB, cpus: 4, ..Hardware::default() };
    let mut machine = Machine::boot(hardware, Config::default());
    let second = Duration::from_secs(1);
    let waits = Load { sleep: second, ..Load::hog(second / 100) };
    let mut answers = Vec::new();
    let mut admit = |machine: &mut Machine, uid, resident, job: Option<&str>| {
        let process = machine.world().start_in(HOME, uid);
        let load = Load { resident, rounds: None, ..waits };
        machine.world().node().tree.begin(process.pid, load);
        let job = job.map(|job| Label::new(job).unwrap());
        answers.push(machine.admit(process, Labels { job, ..Labels::default() }, None));
    };
    admit(&mut machine, uid, 5 * GIB, None);
    machine.advance(60 * second);
    (0..TASKS).for_each(|_| admit(&mut machine, 0, 50 << 20, job));
    machine.advance(20 * second);
    machine.core().tasks().count()
}

#[test]
fn a_large_task_keeps_no_others_out_for_long() {
    // All twenty slots that four CPUs have at the most.
    assert_eq!(beside_a_large_one(7, Some("small")), 20);
    assert_eq!(beside_a_large_one(7, None), 20);
    assert_eq!(beside_a_large_one(0, Some("small")), 20);
}

#[test]
fn no_queue_of_tasks_that_grow_takes_the_reserve() {
    let millis = Duration::from_millis;
    let waits = Load { sleep: millis(190), rounds: Some(150), ..Load::hog(millis(10)) };
    let waits = Load { resident: SIZE, grows: millis(5000), ..waits };
    let computes = Load { rounds: Some(30), sleep: Duration::ZERO, cpu: millis(500), ..waits };
    let turns = Load { sleep: millis(500), ..computes };
    for (gib, cpus) in [(2, 2), (3, 4), (4, 4), (8, 4)] {
        let memory = gib * GIB;
        // guard.memory_reserve is a twentieth.
        let reserve = memory / 20;
        for job in [Some("grow"), None] {
            for load in [waits, computes, turns] {
                let queue = queue(load, memory, cpus, job);
                let case = format!("{gib} GiB, {cpus} CPUs, {job:?}, {load:?}: {queue:?}");
                assert!(queue.least >= reserve && !queue.frozen, "{case}");
                assert_eq!(queue.ended, TASKS, "{case}");
                // Neither is memory left unused that has room for more of those that wait.
                let fit = ((memory - reserve) / SIZE).min(5 * u64::from(cpus)) as usize;
                assert!(load != waits || queue.most + 1 >= fit, "{case}");
            }
        }
    }
}

/// Tasks of any size, alike, that take it steadily within ten seconds. The later seeds once failed; `LRS_QUEUES`
/// plays the first so many. Of 500 one takes the reserve (348): its tasks end while they still grow.
#[test]
#[allow(clippy::disallowed_methods)] // what is played is the developer's to say
fn random_queues_of_tasks_that_grow_keep_the_reserve() {
    let first = std::env::var("LRS_QUEUES").ok().map(|count| 0..count.parse().unwrap());
    let (mut expanded, mut all, mut failed) = (0, 0, Vec::new());
    for seed in first.unwrap_or(0..30).chain([69, 241, 243, 245, 262, 286]) {
        let mut any = Rng::with_seed(seed);
        let cpus = any.u32(1..9);
        let memory = any.u64(1..17) * GIB;
        let reserve = memory / 20;
        // The base has room: two slots a CPU.
        let most = (memory - reserve) / u64::from(2 * cpus);
        let mut millis = |range: std::ops::Range<u64>| Duration::from_millis(any.u64(range));
        let load =
            Load { grows: millis(0..10_000), sleep: millis(0..2000), ..Load::hog(millis(1..500)) };
        let load = Load {
            resident: any.u64(most / 20..=most),
            rounds: Some(any.u32(2..60)),
            requests: any.u32(0..20),
            ..load
        };
        let job = any.bool().then_some("grow");
        let queue = queue(load, memory, cpus, job);
        expanded += usize::from(queue.most > 2 * cpus as usize);
        all += 1;
        if queue.least < reserve || queue.frozen || queue.ended != TASKS {
            failed.push(format!("{seed}: {memory} B, {cpus} CPUs, {job:?}, {load:?}: {queue:?}"));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    // Where there is room for more than the base, slots open.
    assert!(expanded * 2 > all, "{expanded} of {all} had more tasks at once than the base");
}
