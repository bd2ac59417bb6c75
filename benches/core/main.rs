//! What the pure parts of the daemon cost: `cargo bench --bench core`.
//!
//! Neither kernel nor daemon is needed, so this is the one benchmark for any machine: decisions
//! of one cycle, a promotion, the rate of a task, and the replacement of the snapshot, each at
//! 10 to 10,000 tasks. With each comes what it allocates: a steady cycle should allocate little.
//! What a whole cycle costs with its readings is in the `cost` section of `--bench daemon`.

// Measuring code may stop at the first thing that is not as it should be.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use divan::{AllocProfiler, Bencher, black_box};
use lrs::core::Measured;
use lrs::core::capacity::CpuShares;
use lrs::core::memory::Memory;
use lrs::core::model::{Label, Labels, Priority, TaskId};
use lrs::core::order::QueueOrder;
use lrs::core::rate::{Interval, RateMeter};
use lrs::core::shaper::Shaper;
use lrs::core::state::{Need, Patience, Policy, Request, Restored};
use lrs::core::step::{Input, Job, Last, Reading, Ready, Ticket};
use lrs::core::task::{Attachment, GroupRecord, Who};
use lrs::proto;
use lrs::publish::Snapshot;
use lrs::sample::{TaskPressure, TaskSample};
use lrs::units::{BootTime, Bytes, MemoryAmount, Moment, Share, WallTime};

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

const SIZES: [usize; 4] = [10, 100, 1_000, 10_000];

const CPUS: u32 = 4;

fn main() {
    divan::main();
}

fn at(seconds: u64) -> Moment {
    Moment {
        boot: BootTime(Duration::from_secs(seconds)),
        wall: WallTime::from_unix_micros(seconds as i64 * 1_000_000),
    }
}

fn request(labels: Labels) -> Request {
    Request {
        uid: 0,
        who: Who::default(),
        labels,
        priority: Some(Priority(0)),
        reservation: None,
        need: Need::Slot,
        opportunistic: false,
        by_member: false,
    }
}

/// A shaper with `tasks` tasks, the first [`CPUS`] of them active.
fn full(tasks: usize) -> (Shaper, Vec<TaskId>) {
    let policy = Policy {
        passive: Some(tasks as u32),
        passive_max: Some(tasks as u32),
        guard: None,
        memory_reserve: MemoryAmount::Bytes(Bytes(0)),
        ..Policy::simulated()
    };
    let mut shaper = Shaper::new(policy, CPUS, Restored::default());
    let ids = (0..tasks as u64)
        .map(|ticket| {
            let request = request(Labels::default());
            let input = Input::Request { ticket: Ticket(ticket), request, patience: None };
            let [Job::Prepare { task, .. }] = shaper.handle(input, at(1)).jobs[..] else {
                panic!("no slot for one of {tasks} tasks");
            };
            shaper.handle(Input::Prepared { task, ready: Ready::default() }, at(1));
            let born = TaskSample::default();
            shaper.handle(Input::Attached { task, group: group(task), born }, at(1));
            task
        })
        .collect();
    (shaper, ids)
}

fn group(task: TaskId) -> GroupRecord {
    GroupRecord {
        attachment: Attachment::Own,
        path: format!("/lrs/{task}"),
        inode: 1,
        elsewhere: Vec::new(),
        for_member: false,
        origin: Default::default(),
        found: Vec::new(),
    }
}

/// All decisions of one cycle on a saturated node.
#[divan::bench(args = SIZES)]
fn cycle(bencher: Bencher, tasks: usize) {
    let (mut shaper, ids) = full(tasks);
    let measured = Measured {
        cpus: Some(CPUS.into()),
        cpu: Some(CpuShares {
            effective: Share::clamped(0.95),
            iowait: Share::default(),
            steal: Share::default(),
        }),
        root_cpu: None,
        parents: Vec::new(),
        memory: Some(Memory::of_node(Bytes(8 << 30), Bytes(16 << 30))),
        memory_full: None,
        swap_growth: None,
        memory_taken: None,
    };
    let mut second = 1;
    bencher.bench_local(|| {
        second += 3;
        let sample = TaskSample {
            cpu: Some(Duration::from_secs(second / 2)),
            resident: Some(Bytes(1 << 20)),
            ..TaskSample::default()
        };
        let tasks = ids.iter().map(|task| Reading { task: *task, due: true, sample }).collect();
        let (node, at) = (black_box(measured.clone()), at(second));
        shaper.handle(Input::Cycle { node, at: at.boot, tasks, pinned: Vec::new() }, at)
    });
}

/// The end of one active task: its successor gets a tier, both get their events.
#[divan::bench(args = SIZES, sample_count = 20, sample_size = 1)]
fn promotion(bencher: Bencher, tasks: usize) {
    bencher.with_inputs(|| full(tasks)).bench_local_values(|(mut shaper, ids)| {
        let weights = shaper.handle(Input::Ended(ids[..1].to_vec()), at(2));
        let rest = shaper.handle(Input::Figures(vec![(ids[0], Last::Unread)]), at(2));
        // Dropped after the clock has stopped.
        (weights, rest, shaper, ids)
    });
}

/// `resume` on a drained node where 10,000 requests wait: 512 of them get a slot in one turn.
#[divan::bench(args = [QueueOrder::Fifo, QueueOrder::Complement], sample_count = 10, sample_size = 1)]
fn grants(bencher: Bencher, order: QueueOrder) {
    let waiting = || {
        let policy = Policy { passive: Some(508), order, guard: None, ..Policy::simulated() };
        let mut shaper = Shaper::new(policy, CPUS, Restored::default());
        shaper.handle(Input::Drain, at(1));
        for ticket in 0..10_000u64 {
            let job = Label::new(&format!("job-{}", ticket % 100)).ok();
            let labels = Labels { job, ..Labels::default() };
            let first_requested = WallTime::from_unix_micros(ticket as i64);
            let patience = Some(Patience { first_requested, deadline: None, parks: false });
            let request = request(labels);
            shaper.handle(Input::Request { ticket: Ticket(ticket), request, patience }, at(1));
        }
        shaper
    };
    bencher.with_inputs(waiting).bench_local_values(|mut shaper| {
        let step = shaper.handle(Input::Resume, at(2));
        assert_eq!(step.jobs.len(), 512);
        (step, shaper)
    });
}

/// An interval of every task, and the rate asked of each.
#[divan::bench(args = SIZES)]
fn rates(bencher: Bencher, tasks: usize) {
    let seconds = Duration::from_secs_f64;
    let starved = Interval {
        elapsed: seconds(3.0),
        cpu: seconds(0.01),
        pressure: Some(TaskPressure { cpu_some: seconds(1.6), io_some: seconds(0.1) }),
        thread: None,
        cpus: CPUS,
    };
    let mut meters = vec![RateMeter::default(); tasks];
    bencher.bench_local(|| {
        for meter in &mut meters {
            meter.advance(black_box(&starved));
            black_box(meter.computing_rate());
        }
    });
}

fn published(tasks: usize) -> Snapshot {
    let tasks = (0..tasks).map(|number| {
        let id = TaskId { epoch: 1, number: number as u64 };
        let task = proto::Task { id: id.to_string(), ..proto::Task::default() };
        (id, Arc::new(task))
    });
    Snapshot { tasks: tasks.collect(), ..Snapshot::default() }
}

/// A snapshot in which one task has changed while clients still read the one before.
#[divan::bench(args = SIZES)]
fn snapshot_of_one_change(bencher: Bencher, tasks: usize) {
    let mut view = published(tasks);
    let id = TaskId { epoch: 1, number: tasks as u64 / 2 };
    let task = Arc::new(proto::Task { id: id.to_string(), ..proto::Task::default() });
    bencher.bench_local(|| {
        let read = Arc::new(view.clone());
        view.tasks.insert(id, Arc::clone(&task));
        read
    });
}
