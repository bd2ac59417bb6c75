//! What status says tasks used of the CPUs, against what wait4(2) says of them, and the same of others.
//!
//! Tasks are shells that compute for a given time, four at once, beside a hog that is no task. What a
//! shell used before it was a task is taken off. From the first task to the cycle after the last one all
//! cycles are added up, each as `WatchStatus` sends it.
//!
//! The figures of docs/experiments/counting.md: `LRS_COUNT_SECONDS=60 cargo test --release --test daemon
//! counting -- --ignored --nocapture` as root. Without that it is a short run with a wide bound, for
//! machines that do other things.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use lrs::proto::{Node, WatchStatusRequest};
use lrs::wire::wall_time;
use lrs_api::client::{Endpoint, connect};
use lrs_testbed::groups::cpu_mount;

use crate::harness::{Daemon, Foreign, PATIENCE};

const SETTINGS: &str = "[slots]\nactive = 4\npassive = 4\nexpand = false\n";

/// Computes from the first line of its input on.
const SHELL: &str = "echo ready; read go; while :; do :; done";

/// CPU seconds.
fn schedstat(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn shell() -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", SHELL]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child
}

/// Lets it compute for `time`; answers what it used of the CPU in all, by wait4(2).
fn computes_for(mut child: Child, time: Duration) -> f64 {
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    std::thread::sleep(time);
    child.kill().unwrap();
    waited(child)
}

/// std has no wait4(2).
fn waited(child: Child) -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: a child that no other thread waits for, and room for the answer.
    let usage = unsafe {
        let pid = child.id() as i32;
        assert_eq!(libc::wait4(pid, std::ptr::null_mut(), 0, usage.as_mut_ptr()), pid);
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Who made the groups of the tasks.
#[derive(Clone, Copy, PartialEq)]
enum Groups {
    Own,
    InPlace,
}

/// A group of another's, in each hierarchy that LRS uses, with this process in it.
fn put_into_own_group(daemon: &Daemon, pid: u32) -> Vec<PathBuf> {
    let parent = |root: PathBuf| root.with_file_name(format!("{}-owner", daemon.root));
    let make = |parent: PathBuf| {
        let group = parent.join(pid.to_string());
        std::fs::create_dir_all(&group).unwrap();
        let enabled = parent.join("cgroup.subtree_control");
        if cpu_mount().unwrap().0.join("cgroup.subtree_control").exists() {
            std::fs::write(enabled, "+cpu").unwrap();
        }
        std::fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
        group
    };
    daemon.root_dirs().into_iter().map(parent).map(make).collect()
}

/// One task after the other; what wait4 says they used as tasks, in CPU seconds. A group of another's is
/// removed as soon as its process has ended.
fn tasks_of(daemon: &Daemon, groups: Groups, each: Duration, until: Instant) -> f64 {
    let mut used = 0.0;
    while Instant::now() < until {
        let child = shell();
        let pid = child.id();
        let (made, how) = match groups {
            Groups::Own => (Vec::new(), "--priority=0"),
            Groups::InPlace => (put_into_own_group(daemon, pid), "--in-place"),
        };
        let before = schedstat(pid);
        daemon.ok(&["admit", "--wait=60s", how, &pid.to_string()]);
        used += computes_for(child, each) - before;
        made.iter().for_each(|group| remove(group));
    }
    used
}

/// Its process may not have left it yet in every hierarchy.
fn remove(group: &Path) {
    let begun = Instant::now();
    while let Err(error) = std::fs::remove_dir(group) {
        assert!(begun.elapsed() < PATIENCE, "{}: {error}", group.display());
        std::thread::yield_now();
    }
}

/// The node as each cycle leaves it. A command that asks takes longer than a cycle where CPUs are
/// busy, and would miss some.
fn watch(daemon: &Daemon) -> Receiver<Node> {
    let endpoint = Endpoint::unix(&daemon.socket()).unwrap();
    let (sender, receiver) = channel();
    let watched = async move {
        let mut lrsd = connect(&endpoint, "lrs-test").await.unwrap();
        let stream = lrsd.watch_status(WatchStatusRequest {}).await.unwrap();
        let mut stream = stream.into_inner();
        // It ends with the daemon, or when no more is wanted.
        while let Ok(Some(status)) = stream.message().await {
            if sender.send(status.node.unwrap_or_default()).is_err() {
                break;
            }
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(move || runtime.block_on(watched));
    receiver
}

/// All cycles from one to another.
struct Cycles {
    nodes: Receiver<Node>,
    last: Option<i64>,
    cpus: f64,
    tasks: f64,
    busy: f64,
    missed: u32,
}

impl Cycles {
    fn watch(daemon: &Daemon) -> Cycles {
        let nodes = watch(daemon);
        Cycles { nodes, last: None, cpus: 0.0, tasks: 0.0, busy: 0.0, missed: 0 }
    }

    /// Whether it is of a cycle that was not taken yet.
    fn take(&mut self, node: &Node) -> bool {
        let Some(at) = &node.sampled_at else { return false };
        let at = wall_time(at).unix_micros();
        let last = self.last.replace(at);
        let Some(last) = last.filter(|last| *last != at) else { return last.is_none() };
        let seconds = (at - last) as f64 / 1e6;
        let cpus = seconds * f64::from(node.cores);
        let share = |share: Option<f64>| share.unwrap_or(f64::NAN);
        let cpu = node.cpu.unwrap_or_default();
        self.cpus += cpus;
        self.tasks += cpus * share(cpu.tasks);
        self.busy += cpus * share(cpu.effective);
        self.missed += u32::from(seconds > 1.5 * node.period_ms as f64 / 1e3);
        true
    }

    /// Takes the cycles up to the one that ends next.
    fn next(&mut self) {
        while let Ok(node) = self.nodes.try_recv() {
            self.take(&node);
        }
        let next = |cycles: &mut Cycles| cycles.nodes.recv_timeout(PATIENCE).expect("a cycle");
        loop {
            let node = next(self);
            if self.take(&node) {
                break;
            }
        }
    }
}

#[test]
#[ignore = "needs root and cgroups"]
fn tasks_of_any_length_are_counted_as_wait4_counts_them() {
    compare(&Daemon::start("counting", &settings()), Groups::Own);
}

#[test]
#[ignore = "needs root and cgroups"]
fn tasks_in_place_are_counted_to_their_ends() {
    let daemon = Daemon::start("counting-in-place", &settings());
    let owners = daemon.root_dirs().into_iter();
    let owners = owners.map(|root| root.with_file_name(format!("{}-owner", daemon.root)));
    let _owners: Vec<Foreign> = owners.map(Foreign).collect();
    compare(&daemon, Groups::InPlace);
}

/// How long, of the figures to be published.
fn asked() -> Option<u64> {
    std::env::var("LRS_COUNT_SECONDS").ok().map(|text| text.parse().unwrap())
}

fn settings() -> String {
    let period = if asked().is_some() { "3s" } else { "1s" };
    format!("daemon.sample_period = \"{period}\"\n{SETTINGS}")
}

fn compare(daemon: &Daemon, groups: Groups) {
    let asked = asked();
    // An owner that removes a group at once takes the end of its task's CPU time with it: the group above
    // has it.
    let lengths: &[u64] = match asked {
        Some(_) => &[100, 500, 2000, 10_000],
        None => &[100, 2000],
    };
    // A test must not fail for what else the machine does.
    let bound = if asked.is_some() { 0.01 } else { 0.05 };
    eprintln!(
        "length  tasks: status, wait4  others: status, at least  off (of the node)  cycles missed"
    );
    // Of figures all lines are wanted, also below one that is off.
    let mut faults = Vec::new();
    for &length in lengths {
        let hog = shell();
        let hog_before = schedstat(hog.id());
        let mut cycles = Cycles::watch(daemon);
        cycles.next();
        let until = Instant::now() + Duration::from_secs(asked.unwrap_or(5));
        let each = Duration::from_millis(length);
        let (used, others) = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(|| tasks_of(daemon, groups, each, until)));
            let time = until.duration_since(Instant::now());
            let hog = scope.spawn(move || computes_for(hog, time) - hog_before);
            let used: f64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
            (used, hog.join().unwrap())
        });
        cycles.next();
        cycles.next();
        let node = cycles.cpus;
        let found = cycles.busy - cycles.tasks;
        let off = (cycles.tasks - used) / node;
        eprintln!(
            "{:>5.1} s  {:.3}, {:.3}  {:.3}, {:.3}  {:+.4}  {}",
            length as f64 / 1e3,
            cycles.tasks / node,
            used / node,
            found / node,
            others / node,
            off,
            cycles.missed
        );
        let figures = format!(
            "{length} ms: tasks {} in status, {used} for wait4, others {found} with a hog of {others}, of {node} \
             CPU seconds; {} cycles were missed",
            cycles.tasks, cycles.missed
        );
        let (much, close) = (used > 0.02 * node, off.abs() < bound);
        // Not a number is a fault too.
        if !(much && close && found > others - bound * node) {
            faults.push(figures);
        }
    }
    daemon.nothing_left();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
