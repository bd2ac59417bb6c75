//! A service outside LRS beside its tasks: what it keeps of its requests, and what an active task
//! that wakes waits for.
//!
//! The service is two pairs of processes in a group of their own beside the LRS root: one asks, the
//! other computes and answers, then a pause. The tasks are stopped and go on in turn (SIGSTOP), so
//! that each reading beside them stands between two of the service alone: the speed of a machine
//! moves within minutes.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use lrs_bench::stats::Spread;
use lrs_testbed::groups::{cpu_mount, remove_groups};
use rustix::process::{Pid, Signal, kill_process};

use crate::node::{Node, bare_name};
use crate::work::{self, Timed};
use crate::{Effort, cpus, section};

/// So that a root that follows the tasks has followed within [`FOLLOWED`].
const PERIOD: &str = "daemon.sample_period = \"200ms\"";
const FOLLOWED: Duration = Duration::from_millis(1500);

pub fn run(effort: Effort) {
    let rounds = effort.pick(5, 2);
    section(&format!(
        "A service outside LRS beside {} active and {} passive tasks, {rounds} rounds of 1 s",
        cpus(),
        2 * cpus()
    ));
    let old = 100 * cpus();
    println!(
        "| `tiers.root_weight` | active tasks | answers | requests / alone | p99 ms | p99 / alone |"
    );
    println!("|---|---|---|---|---|---|");
    let group = Outside::new();
    let a_milli = work::rounds_in(Duration::from_millis(20)) / 20;
    for weight in [old.to_string(), "\"auto\"".to_owned()] {
        for active in ["sleep", "hog"] {
            for (busy, pause) in [(5, 0), (1, 2)] {
                let load = Load {
                    name: format!("{busy} ms, pause {pause} ms"),
                    rounds: a_milli * busy,
                    pause: 1000 * pause,
                };
                beside(&group, &weight, active, &load, rounds);
            }
        }
    }
    println!(
        "\n| `tiers.root_weight` | an active task that slept, its work / alone, median | worst |"
    );
    println!("|---|---|---|");
    for weight in [old.to_string(), "\"auto\"".to_owned()] {
        wake(&group, &weight, effort.pick(5, 2));
    }
}

/// What an answer takes, and the pause after it in microseconds.
struct Load {
    name: String,
    rounds: u64,
    pause: u64,
}

fn start(weight: &str) -> Node {
    let passive = 2 * cpus();
    Node::start(&format!(
        "{PERIOD}\nslots.expand = false\nslots.lend = false\nslots.passive = {passive}\ntiers.root_weight = {weight}"
    ))
}

fn beside(group: &Outside, weight: &str, active: &str, load: &Load, rounds: usize) {
    let mut node = start(weight);
    let mut tasks = Vec::new();
    (0..cpus()).for_each(|_| tasks.extend(node.task(&[active]).pid));
    (0..2 * cpus()).for_each(|_| tasks.extend(node.task(&["hog"]).pid));
    let send = |signal| {
        let pids = tasks.iter().filter_map(|pid| Pid::from_raw(*pid));
        pids.for_each(|pid| kill_process(pid, signal).expect("kill"));
    };
    let (mut kept, mut later, mut late) = (Vec::new(), Vec::new(), Vec::new());
    send(Signal::STOP);
    std::thread::sleep(FOLLOWED);
    let mut before = group.serve(load);
    for _ in 0..rounds {
        send(Signal::CONT);
        std::thread::sleep(FOLLOWED);
        let with = group.serve(load);
        send(Signal::STOP);
        std::thread::sleep(FOLLOWED / 4);
        let after = group.serve(load);
        kept.push(2.0 * with.requests / (before.requests + after.requests));
        later.push(2.0 * with.p99 / (before.p99 + after.p99));
        late.push(with.p99);
        before = after;
    }
    send(Signal::CONT);
    let [kept, later, late] = [kept, later, late].map(|v| Spread::new(v).expect("readings"));
    println!(
        "| {weight} | {active} | {} | {:.2} ({:.2} to {:.2}) | {:.1} | {:.2} |",
        load.name,
        kept.median(),
        kept.min(),
        kept.max(),
        late.median(),
        later.median()
    );
}

/// An active task that slept, and then computes while processes outside want all CPUs.
fn wake(group: &Outside, weight: &str, rounds: usize) {
    let node = start(weight);
    let mut took = Vec::new();
    for _ in 0..rounds {
        let task = || {
            let worker = Timed::start(&["cpu", "20000000"]);
            node.rpc().admit(worker.pid());
            worker
        };
        let mut alone = task();
        std::thread::sleep(FOLLOWED);
        alone.go();
        let before = alone.took();
        alone.end();
        let mut worker = task();
        let hogs: Vec<Hog> = (0..2 * cpus()).map(|_| Hog(group.start(&["hog"]))).collect();
        std::thread::sleep(FOLLOWED);
        worker.go();
        took.push(worker.took().as_secs_f64() / before.as_secs_f64());
        drop(hogs);
        worker.end();
    }
    let took = Spread::new(took).expect("readings");
    println!("| {weight} | {:.2} | {:.2} |", took.median(), took.max());
}

struct Served {
    requests: f64,
    p99: f64,
}

/// A group of our own beside the LRS root.
struct Outside(PathBuf);

impl Outside {
    fn new() -> Outside {
        let (mount, _) = cpu_mount().expect("cgroups");
        let dir = mount.join(bare_name(crate::supervisor()));
        std::fs::create_dir(&dir).expect("a group of our own");
        Outside(dir)
    }

    fn procs(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    fn start(&self, words: &[&str]) -> Child {
        let (me, procs) = (std::env::current_exe().expect("this benchmark"), self.procs());
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let (me, procs) = (path(&me), path(&procs));
        let all = [&["join", &procs, &me, work::WORD], words].concat();
        work::command(&all).stdout(Stdio::piped()).spawn().expect("a worker starts")
    }

    /// A second of two pairs.
    fn serve(&self, load: &Load) -> Served {
        let (rounds, pause) = (load.rounds.to_string(), load.pause.to_string());
        let pairs: Vec<Child> =
            (0..2).map(|_| self.start(&["ask", &rounds, &pause, "1000000"])).collect();
        let mut times = Vec::new();
        for mut pair in pairs {
            let lines = BufReader::new(pair.stdout.take().expect("piped")).lines();
            times.extend(lines.map(|line| line.expect("a line").parse::<f64>().expect("micros")));
            pair.wait().expect("wait");
        }
        let requests = times.len() as f64;
        let p99 = Spread::new(times).expect("answers").quantile(0.99) / 1000.0;
        Served { requests, p99 }
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        if let Err(stays) = remove_groups(&self.0) {
            eprintln!("left behind: {stays}");
        }
    }
}

struct Hog(Child);

impl Drop for Hog {
    fn drop(&mut self) {
        self.0.kill().expect("kill");
        self.0.wait().expect("wait");
    }
}
