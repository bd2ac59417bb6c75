//! The daemon's figures, measured on this node: `cargo bench --bench daemon -- [section...]`.
//!
//! Needs root and a writable cgroup tree. Each section starts a private daemon (release build)
//! with real tasks and prints a table in Markdown; docs/experiments/README.md lists the
//! pages with the methods and the figures. `--quick` takes few readings, to see whether it all works.
//!
//! A supervisor makes the directories for all files, starts the measuring process and sweeps up after
//! it, however it ends.

// Measuring code may stop at the first thing that is not as it should be, and prints.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, missing_docs)]

mod admission;
mod attack;
mod churn;
mod client;
mod cost;
#[path = "../../tests/attack/flood.rs"]
#[allow(dead_code)]
mod flood;
mod gap;
#[path = "../../tests/daemon/harness.rs"]
#[allow(dead_code, clippy::disallowed_methods)]
mod harness;
mod neighbours;
mod node;
mod promotion;
mod queue;
mod restart;
mod rpc;
mod share;
mod slowdown;
#[path = "../supervise.rs"]
mod supervise;
mod switches;
mod watchers;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use lrs_testbed::groups::{remove_groups, root_dirs};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub quick: bool,
}

impl Effort {
    /// `full`, or `quick` for a first impression.
    pub fn pick<T>(self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

type Section = (&'static str, fn(Effort));

const SECTIONS: [Section; 15] = [
    ("promotion", promotion::run),
    ("gap", gap::run),
    ("share", share::run),
    ("slowdown", slowdown::run),
    ("neighbours", neighbours::run),
    ("cost", cost::run),
    ("admission", admission::run),
    ("servers", admission::by_nice),
    ("restart", restart::run),
    ("rpc", rpc::run),
    ("watchers", watchers::run),
    ("queue", queue::run),
    ("churn", churn::run),
    ("attack", attack::run),
    ("switches", switches::run),
];

/// Set by the supervisor: its pid, which names the cgroup root.
const SUPERVISOR: &str = "LRS_BENCH_SUPERVISOR";

/// Set by the supervisor: its directories, which go with it. Sockets need short paths, and what
/// waits for a disk must not be on a tmpfs, as /tmp often is.
const SCRATCH: &str = "LRS_BENCH_SCRATCH";
const SCRATCH_ON_DISK: &str = "LRS_BENCH_SCRATCH_ON_DISK";

/// Where files of this benchmark may be made.
pub fn scratch() -> PathBuf {
    std::env::var_os(SCRATCH).expect("started by the supervisor").into()
}

/// The same for files that are written to be waited for.
pub fn scratch_on_disk() -> PathBuf {
    std::env::var_os(SCRATCH_ON_DISK).expect("started by the supervisor").into()
}

/// The process that sweeps up after this one.
pub fn supervisor() -> u32 {
    let text = std::env::var(SUPERVISOR).expect("started by the supervisor");
    text.parse().expect("a pid")
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == work::WORD) {
        work::main(&arguments[1..]);
        return ExitCode::SUCCESS;
    }
    // cargo adds --bench; with --test (cargo test --benches) there is nothing to check.
    if arguments.iter().any(|word| word == "--test") {
        return ExitCode::SUCCESS;
    }
    let words: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|word| *word != "--bench").collect();
    let names: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
    if let Some(word) = words.iter().find(|word| **word != "--quick" && !names.contains(word)) {
        eprintln!("unknown section {word:?}; there are {}, and --quick", names.join(", "));
        return ExitCode::from(2);
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("the daemon is measured on the real kernel: run this as root");
        return ExitCode::FAILURE;
    }
    if std::env::var_os(SUPERVISOR).is_none() {
        return sweep_up_after();
    }
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .expect("prctl(PR_SET_PDEATHSIG)");
    let effort = Effort { quick: words.contains(&"--quick") };
    let wanted = |name: &str| words.iter().all(|word| *word == "--quick") || words.contains(&name);
    describe_node(effort);
    for (name, section) in SECTIONS {
        if wanted(name) {
            section(effort);
        }
    }
    ExitCode::SUCCESS
}

/// Runs the benchmark in a child and removes what it may have left.
fn sweep_up_after() -> ExitCode {
    let me = std::process::id();
    // A tmpfs, as /run is where systemd runs.
    let mut builder = tempfile::Builder::new();
    let scratch = builder.prefix("lrs-bench-").tempdir_in("/dev/shm").expect("a directory");
    let on_disk = supervise::scratch_on_disk();
    let (status, _) = supervise::run_again(|command| {
        command
            .env(SUPERVISOR, me.to_string())
            .env(SCRATCH, scratch.path())
            .env(SCRATCH_ON_DISK, on_disk.path());
    });
    for root in [node::root_name(me), node::bare_name(me)] {
        for stays in root_dirs(&root).iter().filter_map(|dir| remove_groups(dir).err()) {
            eprintln!("left behind: {stays}");
        }
    }
    for directory in [scratch, on_disk] {
        if let Err(error) = directory.close() {
            eprintln!("left behind: {error}");
        }
    }
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// CPUs this process may use: A of a daemon started by it.
pub fn cpus() -> u32 {
    std::thread::available_parallelism().expect("the number of CPUs").get() as u32
}

fn describe_node(effort: Effort) {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let model = read("/proc/cpuinfo");
    let model = model.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let load = read("/proc/loadavg");
    let load: Vec<&str> = load.split(' ').take(3).collect();
    println!("| node | |\n|---|---|");
    println!("| CPUs | {} x {} |", cpus(), model.unwrap_or("unknown"));
    println!("| kernel | {} |", read("/proc/sys/kernel/osrelease").trim());
    println!("| load average at start | {} |", load.join(" "));
    let busy = busy_share(Duration::from_secs(2));
    println!("| CPU used by others over 2 s | {:.1} % |", busy * 100.0);
    println!("| effort | {} |", effort.pick("full", "quick: not for publication"));
    if busy > 0.05 {
        println!("\n**Noisy: others use the CPUs; the figures below are worth less.**");
    }
}

/// Share of all CPUs that was not idle over `time`.
pub fn busy_share(time: Duration) -> f64 {
    let read = || {
        let text = std::fs::read_to_string("/proc/stat").expect("/proc/stat");
        let line = text.lines().next().unwrap_or_default().to_owned();
        let fields: Vec<f64> =
            line.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
        (fields[3] + fields[4], fields.iter().sum::<f64>())
    };
    let (idle, all) = read();
    std::thread::sleep(time);
    let (idle_after, all_after) = read();
    1.0 - (idle_after - idle) / (all_after - all).max(1.0)
}

/// A heading above a table.
pub fn section(title: &str) {
    println!("\n## {title}\n");
}
