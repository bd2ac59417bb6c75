//! What the daemon itself costs.
//!
//! CPU time is the kernel's own account, /proc/PID/task/TID/schedstat (nanoseconds on a CPU),
//! summed over the daemon's threads and named by them; interrupts taken meanwhile are in it.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use lrs::clock::boot_time;

use crate::node::Node;
use crate::{Effort, busy_share, section};

pub fn run(effort: Effort) {
    let (aged, cycles) = effort.pick((4, 10), (2, 3));
    section(&format!("The daemon's cost, 3 s cycle, {cycles} cycles"));
    println!(
        "| tasks | CPU per cycle ms | of a core | by thread, ms per cycle | RSS MiB | of it heap \
         MiB | threads | descriptors | node busy |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    measure("0", 0, &["sleep"], aged, cycles);
    measure("100 sleeping", 100, &["sleep"], aged, cycles);
    measure("100 busy: 0.3 of every 10 ms", 100, &["pulse", "300", "10000"], aged, cycles);
    measure("100 x 40 threads, sleeping", 100, &["threads", "40"], aged, cycles);
    measure("1000 sleeping", 1000, &["sleep"], aged, cycles);
    measure("1000 busy: 0.3 of every 100 ms", 1000, &["pulse", "300", "100000"], aged, cycles);
    growth(effort);
    history(effort);
}

/// The same from 10 to 10,000 sleeping tasks, beside what `pidstat` and `atop` take for the same
/// tasks and period: windows with and without them in turn.
fn growth(effort: Effort) {
    let (aged, cycles, rounds) = effort.pick((20, 10, 2), (2, 2, 1));
    section(&format!("Growth, {rounds} x {cycles} cycles of 3 s each, tasks {aged} cycles old"));
    println!(
        "| sleeping tasks | daemon, ms per cycle | of a core | us per task and cycle | RSS MiB | \
         pidstat -u -d 3, ms per cycle | lrsd / pidstat | atop 3, ms per cycle | |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for tasks in effort.pick(&[10, 100, 1_000, 3_000, 10_000][..], &[10, 100]) {
        let mut node = Node::start("slots.expand = false\nslots.passive = 20000");
        let pids = node.nest(*tasks);
        std::thread::sleep(PERIOD * aged);
        let (mut own, mut pidstat, mut atop) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            own.push(spent(node.pid(), cycles));
            pidstat.extend(spent_by(pidstat_over(&pids), cycles));
            atop.extend(spent_by(atop_to_nowhere(), cycles));
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let shown = |value: f64, digits| match value.is_nan() {
            true => "not installed".to_owned(),
            false => format!("{value:.digits$}"),
        };
        let (own, pidstat, atop) = (mean(&own), mean(&pidstat), mean(&atop));
        let each = own * 1e3 / *tasks as f64;
        println!(
            "| {tasks} | {own:.2} | {:.3} % | {each:.1} | {:.1} | {} | {} | {} | {} |",
            own / PERIOD.as_secs_f64() / 10.0,
            Memory::of(node.pid()).resident,
            shown(pidstat, 2),
            shown(own / pidstat, 2),
            shown(atop, 2),
            "#".repeat((each.round() as usize).min(60)),
        );
        node.end_all();
    }
    println!(
        "\nThe bars are us per task and cycle: of equal length where the cost grows with the tasks."
    );
}

/// CPU time of a process over `cycles` periods, in ms per period.
fn spent(pid: u32, cycles: u32) -> f64 {
    let before = cpu_of(pid);
    std::thread::sleep(PERIOD * cycles);
    (cpu_of(pid) - before).as_secs_f64() * 1e3 / f64::from(cycles)
}

/// CPU time of all threads of a process that are there now.
pub fn cpu_of(pid: u32) -> Duration {
    Duration::from_nanos(cpu_by_thread(pid).values().sum())
}

/// The same of its thread that owns all state.
pub fn loop_cpu_of(pid: u32) -> Duration {
    Duration::from_nanos(*cpu_by_thread(pid).get("lrs-loop").expect("the loop"))
}

/// The same of another program, its start left out. `None`: it is not installed.
fn spent_by(mut program: Command, cycles: u32) -> Option<f64> {
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = program.spawn().ok()?;
    std::thread::sleep(PERIOD / 2);
    let spent = spent(child.id(), cycles);
    let early = child.try_wait().expect("wait");
    child.kill().expect("kill");
    child.wait().expect("wait");
    assert!(early.is_none(), "{program:?} ended while it was measured: {early:?}");
    Some(spent)
}

fn pidstat_over(pids: &[i32]) -> Command {
    let list: Vec<String> = pids.iter().map(ToString::to_string).collect();
    let mut command = Command::new("pidstat");
    command.args(["-u", "-d", "-p", &list.join(","), &PERIOD.as_secs().to_string()]);
    command
}

/// All processes of the node: it has no choice of fewer.
fn atop_to_nowhere() -> Command {
    let mut command = Command::new("atop");
    command.args(["-P", "PRC,PRD", &PERIOD.as_secs().to_string()]);
    command
}

const PERIOD: Duration = Duration::from_secs(3);

fn measure(name: &str, tasks: usize, worker: &[&str], aged: u32, cycles: u32) {
    let mut node = Node::start("slots.expand = false\nslots.passive = 2000");
    for _ in 0..tasks {
        node.task(worker);
    }
    std::thread::sleep(PERIOD * aged);
    let (begun, before) = (boot_time(), cpu_by_thread(node.pid()));
    let busy = busy_share(PERIOD * cycles);
    let (took, after) = (boot_time().since(begun), cpu_by_thread(node.pid()));
    let spent: BTreeMap<&str, f64> = after
        .iter()
        .map(|(thread, nanos)| {
            let nanos = nanos - before.get(thread).copied().unwrap_or(0);
            (thread.as_str(), nanos as f64 / 1e6 / f64::from(cycles))
        })
        .collect();
    let total: f64 = spent.values().sum();
    let share = total * f64::from(cycles) / 10.0 / took.as_secs_f64();
    let threads: Vec<String> =
        spent.iter().map(|(thread, millis)| format!("{thread} {millis:.2}")).collect();
    let memory = Memory::of(node.pid());
    println!(
        "| {name} | {total:.2} | {share:.3} % | {} | {:.1} | {:.1} | {} | {} | {:.0} % |",
        threads.join(", "),
        memory.resident,
        memory.anonymous,
        fs::read_dir(format!("/proc/{}/task", node.pid())).expect("threads").count(),
        fs::read_dir(format!("/proc/{}/fd", node.pid())).expect("descriptors").count(),
        busy * 100.0
    );
    node.end_all();
}

/// What a long history costs: the ring of events is full after some 1,400 short tasks.
fn history(effort: Effort) {
    let tasks = effort.pick(2000, 200);
    let mut node = Node::start("slots.expand = false\nslots.passive = 100");
    let before = Memory::of(node.pid());
    for _ in 0..tasks / 100 {
        for _ in 0..100 {
            node.task(&["sleep"]);
        }
        node.end_all();
    }
    for _ in 0..100 {
        node.task(&["sleep"]);
    }
    std::thread::sleep(2 * PERIOD);
    let after = Memory::of(node.pid());
    println!(
        "\n100 sleeping tasks after {tasks} that have ended: RSS {:.1} MiB, of it heap {:.1} MiB \
         (at start {:.1} and {:.1}).",
        after.resident, after.anonymous, before.resident, before.anonymous
    );
    node.end_all();
}

/// MiB.
struct Memory {
    resident: f64,
    anonymous: f64,
}

impl Memory {
    fn of(pid: u32) -> Memory {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
            let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
            kib / 1024.0
        };
        Memory { resident: field("VmRSS:"), anonymous: field("RssAnon:") }
    }
}

fn cpu_by_thread(pid: u32) -> BTreeMap<String, u64> {
    let mut spent = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten() {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let text = fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
        let nanos: u64 = text.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        *spent.entry(name.trim().to_owned()).or_default() += nanos;
    }
    spent
}
