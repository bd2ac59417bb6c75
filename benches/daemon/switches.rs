//! What a switch between two tasks costs that fill a cache, by working set and slice.
//!
//! Two workers on one CPU follow random pointers through memory of their own, each with a slice of its
//! own (`sched_setattr(2)`, Linux 6.12 and newer). What they need for a step more than one does alone, over
//! the switches between them, is the price of one; what it makes of all their time is the loss. A table
//! of this machine in a minute and a half.
//!
//! Limit. The caches belong to others too: a row of one loss at every slice is not about switches.

use std::hint::black_box;
use std::process::{Child, Stdio};
use std::time::Duration;

use lrs::clock::{boot_time, thread_cpu_time};

use crate::{Effort, section, work};

/// Bytes that belong together in a cache.
const LINE: usize = 64;

/// What a worker did.
#[derive(Clone, Copy, Debug, Default)]
struct Steps {
    steps: f64,
    cpu_seconds: f64,
    switches: f64,
}

pub fn run(effort: Effort) {
    let (kib, milliseconds): (&[u64], u64) =
        effort.pick((&[256, 512, 1024, 2048, 4096, 8192, 16384, 32768], 1_000), (&[512], 100));
    section("a switch between two tasks on one CPU, by working set and slice");
    println!(
        "| working set MiB | ns a step alone | loss, price of a switch at 1 ms | 3 ms | 10 ms | 30 ms | 100 ms |"
    );
    println!("|---|---|---|---|---|---|---|");
    for kib in kib {
        let alone = step(vec![start(*kib, 0, milliseconds)]);
        let alone_seconds = alone.cpu_seconds / alone.steps;
        let mut row = format!("| {} | {:.1} |", *kib as f64 / 1024.0, alone_seconds * 1e9);
        for slice_ms in [1, 3, 10, 30, 100] {
            let both = step(vec![
                start(*kib, slice_ms, milliseconds),
                start(*kib, slice_ms, milliseconds),
            ]);
            let more = both.cpu_seconds - both.steps * alone_seconds;
            let price = more / both.switches.max(1.0) * 1e6;
            row += &format!(" {:.1} %, {price:.0} us |", 100.0 * more / both.cpu_seconds);
        }
        println!("{row}");
    }
}

fn start(kib: u64, slice_ms: u64, milliseconds: u64) -> Child {
    let arguments = [kib, slice_ms, milliseconds].map(|number| number.to_string());
    let [kib, slice, time] = &arguments;
    let mut command = work::command(&["touch", kib, slice, time]);
    command.stdout(Stdio::piped()).spawn().expect("a worker starts")
}

/// What all of them did.
fn step(workers: Vec<Child>) -> Steps {
    workers.into_iter().fold(Steps::default(), |sum, worker| {
        let output = worker.wait_with_output().expect("a worker ends");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("a line of numbers");
        let numbers: Vec<f64> =
            text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let [steps, cpu_seconds, switches] = numbers[..] else { panic!("a worker wrote {text}") };
        Steps {
            steps: sum.steps + steps,
            cpu_seconds: sum.cpu_seconds + cpu_seconds,
            switches: sum.switches + switches,
        }
    })
}

/// Entry of a worker: follows pointers through `kib` KiB for `time`.
pub fn touch(kib: u64, slice_ms: u64, time: Duration) {
    let mut cpu = rustix::thread::CpuSet::new();
    // The last one: the first has most of the interrupts.
    let usable = rustix::thread::sched_getaffinity(None).expect("the CPUs of this process");
    let last = (0..rustix::thread::CpuSet::MAX_CPU).rev().find(|cpu| usable.is_set(*cpu));
    cpu.set(last.expect("a CPU"));
    rustix::thread::sched_setaffinity(None, &cpu).expect("one CPU");
    set_slice(Duration::from_millis(slice_ms));
    let lines = kib as usize * 1024 / LINE;
    let memory = cycle(lines);
    let mut at = 0;
    let mut follow = |steps: usize| {
        for _ in 0..steps {
            at = memory[at * (LINE / size_of::<u32>())] as usize;
        }
        black_box(at);
    };
    follow(4 * lines);
    let (begun, cpu, switched) = (boot_time(), thread_cpu_time(), switches());
    let mut steps = 0;
    while boot_time().since(begun) < time {
        follow(4096);
        steps += 4096;
    }
    let used = thread_cpu_time().saturating_sub(cpu);
    println!("{steps} {} {}", used.as_secs_f64(), switches() - switched);
}

/// A random cycle through all lines (Sattolo's algorithm), one number a line.
fn cycle(lines: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut random = 88_172_645_463_325_252_u64;
    for last in (1..lines).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(last, random as usize % last);
    }
    let mut memory = vec![0; lines * LINE / size_of::<u32>()];
    for (line, next) in order.into_iter().enumerate() {
        memory[line * LINE / size_of::<u32>()] = next;
    }
    memory
}

/// How often the CPU was taken from this process.
fn switches() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage(2) fills the structure behind the pointer; zeroes are one, too.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()), 0);
        usage.assume_init()
    };
    usage.ru_nivcsw
}

/// Zero: the kernel's own.
fn set_slice(slice: Duration) {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: slice.as_nanos() as u64,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: sched_setattr(2) reads `size` bytes behind the pointer, which is to so many.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0u32) };
    assert_eq!(answer, 0, "sched_setattr: {}", std::io::Error::last_os_error());
}
