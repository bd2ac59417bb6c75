//! The starvation trap, on the real kernel: spec 3's cases, each active and alone and passive
//! beside as many saturated hogs as there are CPUs, judged after 15 s.
//!
//! The groups are made by hand through plain files, so that only the sampler and the estimator
//! are under test. Two meters are fed from one run: one at a 500 ms cycle (30 intervals: the
//! tests do not need a long cycle to gather evidence, and short ones expose what counters of
//! coarse grain do), one at the default 3 s (5 intervals).
//!
//! Every workload waits for a line on its standard input: it is in its group, and its tier is
//! set, before it begins. Starting a program as a starved task takes seconds by itself.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)] // test helpers

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use lrs::cgroup::GroupDirs;
use lrs::clock::boot_time;
use lrs::core::model::{Class, TaskId};
use lrs::core::rate::{Interval, RateMeter};
use lrs::kernfs::files::raise_descriptor_limit;
use lrs::sample::{Sampler, Settings, TaskSample, TaskSource, ThreadLook};
use lrs::units::{BootTime, Share};

/// After this a class is expected.
const VERDICT: Duration = Duration::from_secs(15);

/// The short cycle.
const TICK: Duration = Duration::from_millis(500);

/// Ticks in the default cycle of 3 s.
const TICKS_PER_LONG_CYCLE: u32 = 6;

/// Writes a second the disk of the dd case makes: a slow one. The disk of a virtual machine may
/// be its host's page cache; dd then computes for a third to a half of its time and is moderate
/// by the definition, in either tier.
const DISK_IOPS: u32 = 10;

const NEEDS: &str = "this test needs root and cgroups with the cpu controller";

// ---- workloads --------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    BusyShell,
    ForkingShell,
    OneOf25,
    Dd,
    Sleeper,
    /// Busy for half a second by the wall clock, asleep for half a second.
    HalfClock,
    /// Busy for 2 ms of CPU, asleep for 2 ms. Active only: starved, its sleeps are too short
    /// beside its waits to be seen (`lrs::core::rate`, "Limits").
    HalfAmount,
    /// 2 % of a CPU in short bursts.
    Napper,
}

impl Work {
    fn expected(self) -> Class {
        match self {
            Work::BusyShell | Work::ForkingShell | Work::OneOf25 => Class::Cpu,
            Work::HalfClock | Work::HalfAmount => Class::Moderate,
            Work::Sleeper => Class::Idle,
            Work::Dd | Work::Napper => Class::Io,
        }
    }

    /// What computes two percent of the time is on the border of what sleeps.
    fn is_one_of(self, class: Option<Class>) -> bool {
        class == Some(self.expected()) || self == Work::Napper && class == Some(Class::Idle)
    }

    fn is_reexec(self) -> bool {
        matches!(self, Work::OneOf25 | Work::HalfClock | Work::HalfAmount | Work::Napper)
    }

    fn command(self, disk: &Path) -> Command {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.arg("-c").arg(format!("read go; {script}"));
            command
        };
        match self {
            Work::BusyShell => shell("while :; do :; done"),
            Work::ForkingShell => {
                shell("while :; do ( i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done ); done")
            }
            Work::Dd => shell(&format!(
                "exec dd if=/dev/zero of={} bs=4k count=100000000 oflag=direct,dsync",
                disk.join("written").display()
            )),
            Work::Sleeper => shell("exec sleep 1000"),
            Work::OneOf25 | Work::HalfClock | Work::HalfAmount | Work::Napper => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(["--exact", "workload_of_another_test", "--nocapture"]);
                command.env("LRS_TEST_WORKLOAD", format!("{self:?}"));
                command
            }
        }
    }
}

/// Not a test of its own: the body of the processes that the tests start from this binary.
#[test]
#[allow(clippy::disallowed_methods)] // it has to look at the clock it is named for
fn workload_of_another_test() {
    let Ok(work) = std::env::var("LRS_TEST_WORKLOAD") else { return };
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    let spin_cpu = |time: Duration| {
        let cpu = || {
            let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
        };
        let until = cpu() + time;
        while cpu() < until {}
    };
    match work.as_str() {
        "OneOf25" => {
            for _ in 0..24 {
                std::thread::spawn(|| std::thread::sleep(Duration::from_secs(3600)));
            }
            loop {
                std::hint::spin_loop();
            }
        }
        "HalfClock" => loop {
            let begin = std::time::Instant::now();
            while begin.elapsed() < Duration::from_millis(500) {}
            std::thread::sleep(Duration::from_millis(500));
        },
        "HalfAmount" => loop {
            spin_cpu(Duration::from_millis(2));
            std::thread::sleep(Duration::from_millis(2));
        },
        "Napper" => loop {
            spin_cpu(Duration::from_micros(50));
            std::thread::sleep(Duration::from_micros(2500));
        },
        other => panic!("no workload {other:?}"),
    }
}

// ---- groups -----------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq)]
enum Tier {
    Active,
    /// `cpu.idle`, where the kernel has it.
    Passive,
    /// Weights only.
    PassiveByWeight,
}

/// Hierarchies with a group each; removed with everything in them when dropped.
struct Tree {
    v2: bool,
    /// Kind and directory of this test.
    roots: Vec<(&'static str, PathBuf)>,
    groups: Vec<String>,
    children: Vec<Child>,
    gates: Vec<ChildStdin>,
    disk: PathBuf,
}

impl Tree {
    fn new(name: &str) -> Tree {
        let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let mut mounts = if v2 {
            vec![("unified", "/sys/fs/cgroup")]
        } else {
            vec![
                ("cpu", "/sys/fs/cgroup/cpu"),
                ("cpuacct", "/sys/fs/cgroup/cpuacct"),
                ("blkio", "/sys/fs/cgroup/blkio"),
            ]
        };
        if !v2 && Path::new("/sys/fs/cgroup/unified/cgroup.procs").exists() {
            mounts.push(("unified", "/sys/fs/cgroup/unified"));
        }
        let name = format!("lrs-test-{}-{name}", std::process::id());
        let roots = mounts.iter().map(|(k, mount)| (*k, Path::new(mount).join(&name))).collect();
        // Not the temporary directory, which may be memory.
        let disk = PathBuf::from("/var/tmp").join(&name);
        fs::create_dir(&disk).unwrap();
        let tree =
            Tree { v2, roots, groups: Vec::new(), children: Vec::new(), gates: Vec::new(), disk };
        const CONTROLLERS: &str = "+cpu +io +memory";
        if v2 {
            tree.put("/sys/fs/cgroup/cgroup.subtree_control".as_ref(), CONTROLLERS);
        }
        for (_, dir) in &tree.roots {
            fs::create_dir(dir).unwrap_or_else(|e| panic!("{}: {e}; {NEEDS}", dir.display()));
        }
        // The other work of this machine must not take what "alone" promises.
        if v2 {
            tree.put(&tree.dir("unified", "").join("cgroup.subtree_control"), CONTROLLERS);
            tree.put(&tree.dir("unified", "").join("cpu.weight"), "10000");
        } else {
            tree.put(&tree.dir("cpu", "").join("cpu.shares"), "102400");
        }
        tree
    }

    fn dir(&self, kind: &str, group: &str) -> PathBuf {
        let kind = if self.v2 { "unified" } else { kind };
        let (_, root) = self.roots.iter().find(|(k, _)| *k == kind).unwrap();
        root.join(group)
    }

    fn put(&self, path: &Path, value: &str) {
        fs::write(path, value)
            .unwrap_or_else(|e| panic!("{} <- {value:?}: {e}; {NEEDS}", path.display()));
    }

    fn dirs(&self, group: &str) -> GroupDirs {
        let unified = self.roots.iter().any(|(k, _)| *k == "unified");
        GroupDirs {
            cpu: Some(self.dir("cpu", group)),
            cpuacct: Some(self.dir("cpuacct", group)),
            io: Some(self.dir("blkio", group)),
            memory: self.v2.then(|| self.dir("unified", group)),
            unified: unified.then(|| self.dir("unified", group)),
        }
    }

    /// Starts `work` in a group of its own; it waits for [`Tree::go`].
    fn start(&mut self, work: Work, tier: Tier) -> String {
        let group = format!("{}-{work:?}", self.groups.len());
        for (_, root) in &self.roots {
            fs::create_dir(root.join(&group)).unwrap();
        }
        self.groups.push(group.clone());
        let mut child = work
            .command(&self.disk)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        if work.is_reexec() {
            let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
            assert!(lines.map_while(Result::ok).any(|line| line.contains("ready")));
        }
        for (_, root) in &self.roots {
            self.put(&root.join(&group).join("cgroup.procs"), &child.id().to_string());
        }
        let cpu = self.dir("cpu", &group);
        let idle = cpu.join("cpu.idle");
        match tier {
            Tier::Active => {}
            Tier::Passive if idle.exists() => self.put(&idle, "1"),
            Tier::Passive | Tier::PassiveByWeight if self.v2 => {
                self.put(&cpu.join("cpu.weight"), "1");
            }
            // A hundredth of the neutral 1024.
            Tier::Passive | Tier::PassiveByWeight => self.put(&cpu.join("cpu.shares"), "10"),
        }
        if work == Work::Dd {
            self.slow_disk(&group);
        }
        self.gates.push(child.stdin.take().unwrap());
        self.children.push(child);
        group
    }

    fn slow_disk(&self, group: &str) {
        let device = fs::metadata(&self.disk).unwrap().st_dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let sys = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).unwrap_or_else(|e| {
            panic!("/var/tmp is on no block device ({major}:{minor}: {e}), dd needs one")
        });
        let partition = sys.join("partition").exists();
        let disk = if partition { sys.parent().unwrap() } else { &sys };
        let device = fs::read_to_string(disk.join("dev")).unwrap();
        let device = device.trim();
        if self.v2 {
            let file = self.dir("unified", group).join("io.max");
            self.put(&file, &format!("{device} wiops={DISK_IOPS}"));
        } else {
            let file = self.dir("blkio", group).join("blkio.throttle.write_iops_device");
            self.put(&file, &format!("{device} {DISK_IOPS}"));
        }
    }

    fn go(&mut self) {
        for mut gate in self.gates.drain(..) {
            gate.write_all(b"\n").unwrap();
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        for group in &self.groups {
            let pids = fs::read_to_string(self.dir("cpu", group).join("cgroup.procs"));
            for pid in pids.unwrap_or_default().lines().filter_map(|pid| pid.parse().ok()) {
                let pid = nix::unistd::Pid::from_raw(pid);
                // It may have ended by itself.
                let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            }
            // A forking task may have outrun the list.
            if let Some((_, root)) = self.roots.iter().find(|(k, _)| *k == "unified") {
                let _ = fs::write(root.join(group).join("cgroup.kill"), "1");
            }
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for (_, root) in &self.roots {
            for group in self.groups.iter().map(String::as_str).chain([""]) {
                let dir = root.join(group);
                // The last exits take a moment to leave their group; v1 has no event for it.
                for _ in 0..200 {
                    if fs::remove_dir(&dir).is_ok() || !dir.exists() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                if dir.exists() {
                    eprintln!("left behind: {}", dir.display());
                }
            }
        }
        let _ = fs::remove_dir_all(&self.disk);
    }
}

// ---- running ----------------------------------------------------------------------------

/// A meter and the reading it saw last.
#[derive(Default)]
struct Fed {
    meter: RateMeter,
    /// The reading its open interval began with.
    opened: Option<(BootTime, TaskSample)>,
    last: Option<(BootTime, TaskSample)>,
    looks_left: u32,
}

impl Fed {
    /// Whether the coming reading ends the interval, as the daemon asks.
    fn is_due(&self, now: BootTime) -> bool {
        let Some(((begun, before), (_, last))) = self.opened.zip(self.last) else { return true };
        self.meter.is_due(now.since(begun), before.cpu != last.cpu)
    }

    fn feed(&mut self, at: BootTime, sample: &TaskSample, look: Option<ThreadLook>, cpus: u32) {
        let due = self.is_due(at);
        self.last = Some((at, *sample));
        if !due {
            return;
        }
        if let Some(look) = look.filter(|_| self.looks_left > 0) {
            self.looks_left -= 1;
            self.meter.saw(look);
        }
        if let Some((begun, before)) = &self.opened
            && let Some(interval) = Interval::between((*begun, before), (at, sample), cpus)
        {
            self.meter.advance(&interval);
        }
        self.opened = self.last;
        self.looks_left = self.meter.looks_wanted();
    }
}

struct Outcome {
    work: Work,
    short: RateMeter,
    long: RateMeter,
    counters: Option<TaskSample>,
}

/// xorshift64: moments of looks that no period of a workload can follow.
struct Jitter(u64);

impl Jitter {
    fn below(&mut self, limit: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        limit.mul_f64((self.0 >> 11) as f64 / (1u64 << 53) as f64)
    }
}

/// Runs `works` together for [`VERDICT`], beside a hog on each CPU unless `tier` is active.
fn run(name: &str, tier: Tier, works: &[Work]) -> Vec<Outcome> {
    run_for(VERDICT, name, tier, works)
}

fn run_for(time: Duration, name: &str, tier: Tier, works: &[Work]) -> Vec<Outcome> {
    let limit = raise_descriptor_limit().unwrap();
    let mut sampler = Sampler::new(Settings::of_this_machine(limit.sampler_budget())).unwrap();
    let mut tree = Tree::new(name);
    if tier != Tier::Active {
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            tree.start(Work::BusyShell, Tier::Active);
        }
    }
    let mut tasks = Vec::new();
    for (number, &work) in works.iter().enumerate() {
        let group = tree.start(work, tier);
        let id = TaskId { epoch: 0, number: number as u64 };
        sampler.watch(id, TaskSource::Group(tree.dirs(&group)));
        tasks.push((id, work, [Fed::default(), Fed::default()]));
    }
    tree.go();

    let ids: Vec<TaskId> = tasks.iter().map(|(id, ..)| *id).collect();
    let mut jitter = Jitter(0x9E37_79B9_7F4A_7C15 ^ u64::from(std::process::id()));
    let begin = boot_time();
    let mut tick = 0u32;
    loop {
        let now = boot_time();
        let sample = sampler.sample(now, &ids);
        assert_eq!(sample.node.problems, Vec::<String>::new());
        let cpus = sample.node.cpus.unwrap().len();
        for (id, reading) in &sample.tasks {
            let (.., [short, long]) = &mut tasks[id.number as usize];
            let look = reading.look();
            short.feed(now, reading, look, cpus);
            if tick.is_multiple_of(TICKS_PER_LONG_CYCLE) {
                long.feed(now, reading, look, cpus);
            } else if let Some(look) = look.filter(|_| long.looks_left > 0) {
                long.looks_left -= 1;
                long.meter.saw(look);
            }
        }
        if now.since(begin) >= time && tick.is_multiple_of(TICKS_PER_LONG_CYCLE) {
            break;
        }
        tick += 1;
        // The next reading at its time and a jittered bit: looks ride on it.
        let due = begin.after(TICK * tick + jitter.below(TICK / 4));
        std::thread::sleep(due.since(boot_time()));
    }
    tasks
        .into_iter()
        .map(|(_, work, [short, long])| Outcome {
            work,
            counters: long.last.map(|(_, sample)| sample),
            short: short.meter,
            long: long.meter,
        })
        .collect()
}

/// Whether every instruction costs ten or twenty (the VM without hardware support).
///
/// A task starved there has not finished starting after 15 s, so of the starved cases only the
/// one that computes from its first instruction can be judged; the others run natively.
fn emulated() -> bool {
    std::env::var_os("LRS_TEST_SLOW").is_some()
}

/// Prints every outcome and fails when a class is not the expected one.
fn judge(tier: Tier, outcomes: &[Outcome]) {
    let io_below = Share::clamped(0.2);
    let cpu_above = Share::clamped(0.8);
    let figure = |rate: Option<Share>| rate.map_or("-".into(), |r| format!("{:.3}", r.value()));
    let mut wrong = Vec::new();
    for outcome in outcomes {
        // Emulated, one look or switch takes a share of a short cycle that no real CPU has.
        let cycles = [("3s", &outcome.long), ("500ms", &outcome.short)];
        for (cycle, meter) in cycles.into_iter().take(if emulated() { 1 } else { 2 }) {
            let rate = meter.computing_rate();
            let class = meter.class(io_below, cpu_above);
            let line = format!(
                "{tier:?} {:?}, cycle {cycle}: rate {}, raw {}, class {class:?}",
                outcome.work,
                figure(rate),
                figure(meter.computing_rate_raw()),
            );
            println!("{line}\n    {meter:?}");
            if !outcome.work.is_one_of(class) {
                wrong.push(line);
            }
        }
        println!("    {:?}", outcome.counters);
    }
    assert!(wrong.is_empty(), "wrong classes:\n{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs root and cgroups"]
fn active_and_alone() {
    // Together they never want more than two CPUs: each is as good as alone.
    let tier = Tier::Active;
    let mut outcomes = run("a1", tier, &[Work::Sleeper, Work::Dd, Work::HalfClock, Work::Napper]);
    outcomes.extend(run("a2", tier, &[Work::BusyShell, Work::HalfAmount]));
    outcomes.extend(run("a3", tier, &[Work::ForkingShell, Work::OneOf25]));
    judge(tier, &outcomes);
}

#[test]
#[ignore = "needs root and cgroups"]
fn passive_beside_saturated_active_tasks() {
    let tier = Tier::Passive;
    if emulated() {
        return judge(tier, &run("p0", tier, &[Work::BusyShell]));
    }
    let mut outcomes = run("p1", tier, &[Work::BusyShell, Work::ForkingShell, Work::OneOf25]);
    outcomes.extend(run("p2", tier, &[Work::Dd, Work::Sleeper, Work::HalfClock]));
    outcomes.extend(run("p3", tier, &[Work::Napper]));
    judge(tier, &outcomes);
}

/// Of a task that has been seen enough, intervals grow and looks become few; its class stays.
#[test]
#[ignore = "needs root and cgroups"]
fn passive_for_a_minute() {
    if emulated() {
        return;
    }
    let works = [Work::BusyShell, Work::OneOf25, Work::Dd, Work::HalfClock];
    judge(Tier::Passive, &run_for(4 * VERDICT, "m1", Tier::Passive, &works));
}

#[test]
#[ignore = "needs root and cgroups"]
fn passive_by_weight_beside_saturated_active_tasks() {
    let tier = Tier::PassiveByWeight;
    if emulated() {
        return judge(tier, &run("w0", tier, &[Work::BusyShell]));
    }
    let mut outcomes = run("w1", tier, &[Work::BusyShell, Work::ForkingShell, Work::OneOf25]);
    outcomes.extend(run("w2", tier, &[Work::Dd, Work::Sleeper, Work::HalfClock]));
    outcomes.extend(run("w3", tier, &[Work::Napper]));
    judge(tier, &outcomes);
}
