//! LRS on a real YARN against static numbers of containers: `cargo bench --bench yarn`.
//!
//! Needs root, cgroups and the Hadoop that `tests/yarn/run --fetch` brings; docs/experiments/yarn.md
//! explains the method and holds the figures. Each run is a line in `runs.jsonl` before the next
//! begins: a bench that ended early goes on with the same `--out`, and `--report DIR` prints the
//! tables of what is there.
//!
//! A supervisor makes the directory for all files, starts the measuring process and sweeps up
//! after it, however it ends.
//!
//! Limits: one node, so nothing crosses a network; files are those of the local file system, not
//! HDFS; whatever goes wrong in a run ends the bench.

// Measuring code may stop at the first thing that is not as it should be, and prints.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, missing_docs)]
#![allow(clippy::disallowed_methods)] // what is measured here is wall time
#![allow(dead_code)] // the modules of the tests also serve the tests

#[path = "../../tests/daemon/beside.rs"]
mod beside;
#[path = "../../tests/yarn/certificate.rs"]
mod certificate;
#[path = "../../tests/yarn/cluster.rs"]
mod cluster;
#[path = "../../tests/yarn/conf.rs"]
mod conf;
#[path = "../../tests/yarn/hadoop.rs"]
mod hadoop;
#[path = "../../tests/daemon/harness.rs"]
mod harness;
#[path = "../../tests/yarn/jobs.rs"]
mod jobs;
#[path = "../../tests/yarn/process.rs"]
mod process;
#[path = "../../tests/yarn/rest.rs"]
mod rest;
#[path = "../supervise.rs"]
mod supervisor;

mod dfsio;
mod disk;
mod loads;
mod measure;
mod options;
mod overall;
mod record;
mod runs;
mod settings;
mod supervise;
mod tables;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser as _;
use lrs_bench::order::order;

use cluster::Cluster;
use disk::Disk;
use loads::Load;
use options::{Medium, Options, Scheduling};
use record::{Machine, Records, Turn};
use settings::Setting;

/// Starts of a cluster before it is given up: another process may take a port that was free.
const STARTS: u32 = 3;

fn main() -> ExitCode {
    let options = Options::parse();
    // cargo test --benches has nothing to check here.
    if options.test {
        return ExitCode::SUCCESS;
    }
    if let Some(directory) = &options.report {
        print!("{}", tables::of(&Records::read(directory)));
        return ExitCode::SUCCESS;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("containers are put into cgroups: run this as root");
        return ExitCode::FAILURE;
    }
    if !supervise::is_supervised() {
        return supervise::supervise();
    }
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .expect("prctl(PR_SET_PDEATHSIG)");
    let mut records = Records::open(&options.out(), Machine::describe(&options));
    for &scheduling in &options.schedulers {
        measure_all(scheduling, &options, &mut records);
    }
    println!("{}", tables::of(&records));
    ExitCode::SUCCESS
}

/// All runs of a scheduler that are not there yet, in a cluster of their own.
fn measure_all(scheduling: Scheduling, options: &Options, records: &mut Records) {
    let settings = Setting::all(cpus());
    let mut turns = Vec::new();
    for round in 0..options.rounds() {
        for &load in options.loads() {
            for (place, index) in order(settings.len(), round).into_iter().enumerate() {
                turns.push(Turn { scheduling, load, setting: settings[index], round, place });
            }
        }
    }
    turns.retain(|turn| !records.has(turn));
    if turns.is_empty() {
        return;
    }
    // Before the cluster, so that it is dropped after it.
    let disk = match options.disk {
        Medium::AsIs => None,
        Medium::Slow => Some(Disk::make()),
    };
    let disk = disk.as_ref();
    let cluster = &mut start(scheduling, disk);
    let mut prepared = loads::Prepared::new(options.effort());
    // The daemons of a cluster have just started: their first jobs are slower than all later.
    let warm_up = Turn { load: Load::WordCount, setting: settings[0], ..turns[0] };
    measure::run(&warm_up, cluster, &mut prepared, disk);
    let count = turns.len();
    for (done, turn) in (1..).zip(turns) {
        let run = measure::run(&turn, cluster, &mut prepared, disk);
        eprintln!("{done}/{count}: {run}");
        records.add(run);
    }
}

fn start(scheduling: Scheduling, disk: Option<&Disk>) -> Cluster {
    let options = conf::Options {
        scheduler: scheduling.scheduler(),
        containers: settings::base(cpus()),
        data: disk.map(Disk::fresh),
        ..conf::Options::default()
    };
    for _ in 1..STARTS {
        match catch_unwind(AssertUnwindSafe(|| Cluster::start(options.clone()))) {
            Ok(cluster) => return cluster,
            Err(_) => eprintln!("no cluster; once more"),
        }
    }
    Cluster::start(options)
}

/// CPUs this process may use: A of a daemon started by it.
fn cpus() -> u32 {
    let count = std::thread::available_parallelism().expect("the number of CPUs").get();
    u32::try_from(count).expect("a number of CPUs")
}
