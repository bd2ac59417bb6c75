//! What is to be measured.

use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::conf::Scheduler;
use crate::loads::{Effort, Load};

/// Where the NodeManager's local directories and the data of the jobs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Medium {
    /// Below cargo's target directory, and in the page cache.
    AsIs,
    /// See [`crate::disk`].
    Slow,
}

/// YARN's scheduler of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    Capacity,
    Fair,
}

impl Scheduling {
    pub fn scheduler(self) -> Scheduler {
        match self {
            Scheduling::Capacity => Scheduler::Capacity,
            Scheduling::Fair => Scheduler::Fair,
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Scheduling::Capacity => "CapacityScheduler",
            Scheduling::Fair => "FairScheduler",
        }
    }
}

/// LRS on a real YARN against static numbers of containers.
#[derive(Debug, Parser)]
#[command(name = "yarn")]
pub struct Options {
    /// Rounds: every load under every setting once [default: 10, 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// [default: word-count,terasort,pi, and dfsio-read,terasort with --disk slow]
    #[arg(long, value_delimiter = ',', value_enum)]
    loads: Vec<Load>,
    /// Of local directories and data
    #[arg(long, value_enum, default_value = "as-is")]
    pub disk: Medium,
    #[arg(long, value_delimiter = ',', value_enum, default_value = "capacity,fair")]
    pub schedulers: Vec<Scheduling>,
    /// Small jobs, one round: to see whether it all works
    #[arg(long)]
    quick: bool,
    /// Where runs.jsonl and machine.json go; runs that are there are not made again
    /// [default: bench-yarn or bench-yarn-slow in cargo's target directory]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only print the tables of the runs in this directory
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// What cargo bench adds
    #[arg(long, hide = true)]
    bench: bool,
    /// What cargo test adds
    #[arg(long, hide = true)]
    pub test: bool,
}

impl Options {
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(match self.effort() {
            Effort::Full => 10,
            Effort::Quick => 1,
        })
    }

    pub fn loads(&self) -> &[Load] {
        match (self.loads.is_empty(), self.disk) {
            (false, _) => &self.loads,
            (true, Medium::AsIs) => &[Load::WordCount, Load::Terasort, Load::Pi],
            (true, Medium::Slow) => &[Load::DfsioRead, Load::Terasort],
        }
    }

    pub fn effort(&self) -> Effort {
        if self.quick { Effort::Quick } else { Effort::Full }
    }

    pub fn out(&self) -> PathBuf {
        let disk = match self.disk {
            Medium::AsIs => "",
            Medium::Slow => "-slow",
        };
        let effort = match self.effort() {
            Effort::Full => "",
            Effort::Quick => "-quick",
        };
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("below target");
        self.out.clone().unwrap_or_else(|| target.join(format!("bench-yarn{disk}{effort}")))
    }
}
