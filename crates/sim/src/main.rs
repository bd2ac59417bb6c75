//! `lrs-sim`: random lives by the million ([`lrs_sim::lives`]), queues of one node
//! ([`lrs_sim::queue`]).
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for a terminal")]

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use lrs_core::state::Policy;
use lrs_sim::lives::{Broken, Report, live, live_watched, shrink};
use lrs_sim::queue::{self, Setting, head};

/// Requests at once of a disk that is deep: more than the tasks have.
const DEEP: u32 = 1024;

/// Runs the core of LRS on simulated nodes.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Random lives of tasks, with crashes at every durable write, against what is promised
    Lives(Lives),
    /// One life again, step by step
    Replay(Replay),
    /// Queues of jobs: makespan and response with LRS and with fixed numbers of slots, as a table
    Queue(Queue),
}

#[derive(Args)]
struct Lives {
    /// Steps in all
    #[arg(long, default_value_t = 1_000_000)]
    steps: u64,
    /// Steps of a life
    #[arg(long, default_value_t = 500)]
    length: u64,
    /// Seed of the first life; the others have the next ones
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Replay {
    /// Seed of the life
    seed: u64,
    /// Its steps, as the failure named them
    #[arg(value_delimiter = ',', required = true)]
    steps: Vec<u64>,
}

#[derive(Args)]
struct Queue {
    /// CPUs of the node; several with commas
    #[arg(long, value_delimiter = ',', default_value = "4")]
    cpus: Vec<u32>,
    /// Random queues of each setting
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// Tasks of 0.5 to 3 s in place of 5 to 30 s
    #[arg(long)]
    short: bool,
    /// Seed of the first queue; the others have the next ones
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Lives(lives) => run(&lives),
        Command::Replay(replay) => again(&replay),
        Command::Queue(queue) => compare(&queue),
    }
}

fn run(lives: &Lives) -> ExitCode {
    let mut report = Report::default();
    let mut broken: Vec<String> = Vec::new();
    let mut seed = lives.seed;
    while report.steps < lives.steps {
        match live(seed, 0..lives.length) {
            Ok(life) => report.add(&life),
            Err(failure) => {
                report.steps += failure.step.unwrap_or(lives.length);
                let promise = promise(&failure).to_owned();
                if !broken.contains(&promise) {
                    tell(seed, lives.length, &failure);
                    broken.push(promise);
                }
            }
        }
        seed += 1;
    }
    let Report { steps, crashes, reboots, admitted, promoted, kills } = report;
    println!("{steps} steps in {} lives, {} promises broken", seed - lives.seed, broken.len());
    println!("{admitted} tasks, {promoted} promotions, {crashes} crashes, {reboots} reboots");
    for (deed, kills) in kills {
        println!("{kills:>9} killed before {deed:?}");
    }
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What was broken, without the numbers of this life.
fn promise(broken: &Broken) -> &str {
    broken.what.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default()
}

/// Cuts the life to what it needs to break the same promise, and says how to see it again.
fn tell(seed: u64, length: u64, broken: &Broken) {
    let last = broken.step.unwrap_or(length.saturating_sub(1));
    let fails = |steps: &[u64]| {
        live(seed, steps.iter().copied()).is_err_and(|other| promise(&other) == promise(broken))
    };
    let steps: Vec<String> =
        shrink((0..=last).collect(), fails).iter().map(u64::to_string).collect();
    eprintln!("seed {seed} breaks a promise: {}", broken.what);
    eprintln!("replay it with: lrs-sim replay {seed} {}", steps.join(","));
}

fn again(replay: &Replay) -> ExitCode {
    let steps = replay.steps.iter().copied();
    match live_watched(replay.seed, steps, |step, what| println!("step {step}: {what}")) {
        Ok(report) => {
            println!("no promise broken: {report:?}");
            ExitCode::SUCCESS
        }
        Err(broken) => {
            eprintln!("{broken:?}");
            ExitCode::FAILURE
        }
    }
}

fn compare(queue: &Queue) -> ExitCode {
    println!("{}", head());
    let settings = queue.cpus.iter().flat_map(|cpus| {
        [DEEP, 1].into_iter().flat_map(move |channels| {
            [false, true].map(|interleaved| Setting {
                cpus: *cpus,
                channels,
                interleaved,
                short: queue.short,
            })
        })
    });
    for setting in settings {
        let Ok(row) = queue::compare(setting, &Policy::simulated(), queue.seed, queue.rounds)
        else {
            eprintln!("the daemon was killed without a fuse; this is a fault of lrs-sim");
            return ExitCode::FAILURE;
        };
        println!("{row}");
    }
    ExitCode::SUCCESS
}
