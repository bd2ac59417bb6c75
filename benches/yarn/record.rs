//! What is kept: a line of JSON for each run, and the node they were made on.

use std::fmt;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use procfs::Current as _;
use serde::{Deserialize, Serialize};

use crate::cpus;
use crate::disk;
use crate::hadoop::{self, SMALL_JVM};
use crate::loads::{Effort, Load};
use crate::options::{Medium, Options, Scheduling};
use crate::settings::Setting;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub scheduling: Scheduling,
    pub load: Load,
    pub setting: Setting,
    pub round: u32,
    /// In the order of its round's settings.
    pub place: usize,
}

/// One run. Shares are of all CPU time of the node while the client ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    pub scheduler: Scheduling,
    pub load: Load,
    pub setting: String,
    pub round: u32,
    /// In the order of its round's settings.
    pub place: usize,
    /// From submission to end as the ResourceManager has it.
    pub seconds: f64,
    /// From the start of the client's JVM to its end.
    pub client_seconds: f64,
    /// Most containers seen at a time, the master included.
    pub containers_most: usize,
    pub cpu_busy: f64,
    pub cpu_iowait: f64,
    pub cpu_stolen: f64,
    /// Share of the client's time in which the slow disk had a request.
    pub disk_busy: Option<f64>,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {}, {}, round {}: {:.1} s, {} containers, CPU {:.0} %",
            self.scheduler.title(),
            self.load.name(),
            self.setting,
            self.round + 1,
            self.seconds,
            self.containers_most,
            self.cpu_busy * 100.0
        )
    }
}

/// The node and the command of a set of runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub lrs: String,
    pub hadoop: String,
    pub java_options: String,
    pub kernel: String,
    pub cpu: Option<String>,
    pub cpus: u32,
    pub memory_bytes: Option<u64>,
    /// Of local directories and data, where it is not the node's own.
    pub disk: Option<String>,
    /// Over a minute before the first run.
    pub load_average: Option<f64>,
    pub rounds: u32,
    /// Small jobs, which say nothing of time.
    pub quick: bool,
    pub command: Vec<String>,
}

impl Machine {
    pub fn describe(options: &Options) -> Machine {
        let cpu = procfs::CpuInfo::current().ok();
        let cpu = cpu.as_ref().and_then(|info| info.get_field(0, "model name"));
        Machine {
            lrs: env!("CARGO_PKG_VERSION").to_owned(),
            hadoop: hadoop::NEWEST.to_owned(),
            java_options: SMALL_JVM.join(" "),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpu: cpu.map(str::to_owned),
            cpus: cpus(),
            memory_bytes: procfs::Meminfo::current().ok().map(|memory| memory.mem_total),
            disk: (options.disk == Medium::Slow).then(disk::describe),
            load_average: procfs::LoadAverage::current().ok().map(|load| f64::from(load.one)),
            rounds: options.rounds(),
            quick: options.effort() == Effort::Quick,
            command: command(std::env::args().skip(1)),
        }
    }
}

/// What to type for the same: without the places of this program and of its runs.
fn command(mut arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut words = ["cargo", "bench", "--bench", "yarn", "--"].map(str::to_owned).to_vec();
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "--bench" => {}
            "--out" => drop(arguments.next()),
            word if word.starts_with("--out=") => {}
            _ => words.push(word),
        }
    }
    words
}

/// The runs of a directory.
pub struct Records {
    directory: PathBuf,
    pub machine: Machine,
    pub runs: Vec<Run>,
}

impl Records {
    /// Those that are there already stay; a run is added to them.
    pub fn open(directory: &Path, mut machine: Machine) -> Records {
        fs::create_dir_all(directory).expect("a directory for the runs");
        let described = directory.join("machine.json");
        if described.exists() {
            let before = Records::read(directory);
            assert_eq!(
                before.machine.quick,
                machine.quick,
                "the runs in {} are of jobs of another size",
                directory.display()
            );
            assert_eq!(
                before.machine.disk,
                machine.disk,
                "the runs in {} are on another disk",
                directory.display()
            );
            let Machine { command: mut commands, .. } = before.machine;
            if !commands.ends_with(&machine.command) {
                commands.push("&&".to_owned());
                commands.append(&mut machine.command);
            }
            machine.command = commands;
        }
        let text = serde_json::to_string_pretty(&machine).expect("JSON");
        fs::write(&described, text + "\n").expect("machine.json");
        Records::read(directory)
    }

    /// Runs as they were kept, and no more.
    pub fn read(directory: &Path) -> Records {
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let machine = serde_json::from_str(&read("machine.json")).expect("machine.json");
        let there = directory.join("runs.jsonl").exists();
        let lines = if there { read("runs.jsonl") } else { String::new() };
        let runs = lines.lines().map(|line| serde_json::from_str(line).expect("a run")).collect();
        Records { directory: directory.to_owned(), machine, runs }
    }

    pub fn has(&self, turn: &Turn) -> bool {
        self.runs.iter().any(|run| {
            run.scheduler == turn.scheduling
                && run.load == turn.load
                && run.setting == turn.setting.name()
                && run.round == turn.round
        })
    }

    /// On disk before the next run begins.
    pub fn add(&mut self, run: Run) {
        let line = serde_json::to_string(&run).expect("JSON") + "\n";
        let path = self.directory.join("runs.jsonl");
        let mut file = fs::File::options().create(true).append(true).open(path).expect("runs");
        file.write_all(line.as_bytes()).and_then(|()| file.sync_data()).expect("a run is kept");
        self.runs.push(run);
    }
}
