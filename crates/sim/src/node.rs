//! A node: CPUs and a disk that its groups share by weight, and time.
//!
//! Time runs from one change of what anybody does to the next; between two, everybody goes at a
//! constant speed, so a second costs as little as a microsecond and nothing is rounded to a slice.
//! CPU and disk are divided alike ([`crate::share`]): a CPU is used by one thread at a time and a
//! channel of the disk by one request, from the root of the tree down, siblings by their weights. A
//! group's processes are siblings of the groups in it, at the neutral weight.
//!
//! Limits. No caches, no memory pressure, no cost of a switch; a disk serves `channels` requests at
//! once and each takes equally long, so a serial disk has one and a fast one many. A process waits
//! for its disk request, as a synchronous one does: there is no write-back.

use std::collections::BTreeMap;
use std::time::Duration;

use lrs_core::sample::{
    CpuTimes, DiskBytes, MemorySample, NodePressure, NodeSample, TaskPressure, TaskSample,
};
use lrs_core::units::{BootTime, Bytes, Moment, Pid, WallTime};

use crate::load::Doing;
use crate::share::{Want, divide};
use crate::tree::{Inode, NEUTRAL, ROOT, Tree, Used, Weights};

/// What the node is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hardware {
    /// CPUs.
    pub cpus: u32,
    /// Requests that the disk serves at once.
    pub channels: u32,
    /// How long one takes.
    pub request: Duration,
    /// Bytes of a request.
    pub request_bytes: u64,
    /// Memory in bytes.
    pub memory: u64,
}

/// Two CPUs and a fast disk.
impl Default for Hardware {
    fn default() -> Hardware {
        let request = Duration::from_millis(10);
        Hardware { cpus: 2, channels: 8, request, request_bytes: 4096, memory: 1 << 30 }
    }
}

/// A node while it runs.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is made of; may change while it runs (a CPU taken offline).
    pub hardware: Hardware,
    /// Its groups and processes.
    pub tree: Tree,
    /// Since boot.
    now: Duration,
    /// The people's clock at boot, in microseconds.
    boot_micros: i64,
    /// Seconds of CPU time that no process used, without and with a disk request outstanding.
    idle: f64,
    iowait: f64,
}

/// Which of the two is divided.
#[derive(Clone, Copy, PartialEq)]
enum Resource {
    Cpu,
    Disk,
}

impl Resource {
    fn weight(self, weights: Weights) -> (u64, bool) {
        match self {
            Resource::Cpu => (weights.cpu, weights.idle),
            Resource::Disk => (weights.io, false),
        }
    }
}

/// Speeds of the processes that want anything, in CPUs and channels.
type Speeds = BTreeMap<Pid, f64>;

impl Node {
    /// A node at boot; `wall`: the people's clock.
    pub fn boot(hardware: Hardware, wall: WallTime) -> Node {
        Node {
            hardware,
            tree: Tree::default(),
            now: Duration::ZERO,
            boot_micros: wall.unix_micros(),
            idle: 0.0,
            iowait: 0.0,
        }
    }

    /// Both clocks.
    pub fn now(&self) -> Moment {
        let micros = i64::try_from(self.now.as_micros()).unwrap_or(i64::MAX);
        Moment {
            boot: BootTime(self.now),
            wall: WallTime::from_unix_micros(self.boot_micros.saturating_add(micros)),
        }
    }

    /// Lets time pass, and returns the processes that ended by themselves, each removed.
    pub fn run(&mut self, time: Duration) -> Vec<Pid> {
        let end = self.now + time;
        let mut ended = self.run_to_end(time);
        while self.now < end {
            ended.extend(self.run_to_end(end - self.now));
        }
        ended
    }

    /// The same until the first of them ends, for `time` at most.
    pub fn run_to_end(&mut self, time: Duration) -> Vec<Pid> {
        let end = self.now + time;
        let mut ended = self.turn();
        while self.now < end && ended.is_empty() {
            let cpu = self.speeds(Resource::Cpu);
            let disk = self.speeds(Resource::Disk);
            let mut step = (end - self.now).as_secs_f64();
            for (pid, process) in self.tree.processes() {
                let (left, speed) = match process.progress.doing {
                    Doing::Computing(left) => (left, cpu.get(pid).copied().unwrap_or(0.0)),
                    Doing::Disk(left) => (left, disk.get(pid).copied().unwrap_or(0.0)),
                    Doing::Sleeping(left) => (left, 1.0),
                };
                let speed = if self.tree.is_frozen(process.group) { 0.0 } else { speed };
                if speed > 0.0 {
                    step = step.min(left / speed);
                }
            }
            // Rounded up, so that what is nearly over is over and time goes on.
            let step = Duration::from_nanos((step * 1e9).ceil() as u64).min(end - self.now);
            self.pass(step.as_secs_f64(), &cpu, &disk);
            self.now += step;
            ended.extend(self.turn());
        }
        ended
    }

    /// Whoever is done with a part of its round goes on to the next, or ends.
    fn turn(&mut self) -> Vec<Pid> {
        let request = self.hardware.request;
        let pids: Vec<Pid> = self.tree.processes().keys().copied().collect();
        let over = |pid: &Pid| self.tree.progress(*pid).is_some_and(|p| !p.turn(request));
        let ended: Vec<Pid> = pids.into_iter().filter(over).collect();
        for pid in &ended {
            self.tree.end(*pid);
        }
        ended
    }

    fn pass(&mut self, seconds: f64, cpu: &Speeds, disk: &Speeds) {
        let mut used: BTreeMap<Inode, Used> = BTreeMap::new();
        let pids: Vec<(Pid, Inode)> =
            self.tree.processes().iter().map(|(pid, process)| (*pid, process.group)).collect();
        for (pid, group) in pids {
            if self.tree.is_frozen(group) {
                continue;
            }
            let Some(progress) = self.tree.progress(pid) else { continue };
            progress.lived += seconds;
            let mut own = Used::default();
            match &mut progress.doing {
                Doing::Computing(left) => {
                    let speed = cpu.get(&pid).copied().unwrap_or(0.0);
                    *left -= speed * seconds;
                    own.cpu = speed * seconds;
                    own.cpu_some =
                        (1.0 - speed / f64::from(progress.load.threads.max(1))) * seconds;
                }
                Doing::Disk(left) => {
                    let speed = disk.get(&pid).copied().unwrap_or(0.0);
                    *left -= speed * seconds;
                    own.disk = speed * seconds;
                    own.io_some = seconds;
                }
                Doing::Sleeping(left) => *left -= seconds,
            }
            let mut above = group;
            loop {
                let sum = used.entry(above).or_default();
                sum.cpu += own.cpu;
                sum.disk += own.disk;
                // "Some": of several that wait, the one that waits most.
                sum.cpu_some = sum.cpu_some.max(own.cpu_some);
                sum.io_some = sum.io_some.max(own.io_some);
                if above == ROOT {
                    break;
                }
                above = self.tree.groups().get(&above).map_or(ROOT, |group| group.parent);
            }
        }
        for (group, grown) in used {
            let Some(counters) = self.tree.counters(group) else { continue };
            counters.cpu += grown.cpu;
            counters.disk += grown.disk;
            counters.cpu_some += grown.cpu_some;
            counters.io_some += grown.io_some;
        }
        let unused = (f64::from(self.hardware.cpus) - cpu.values().sum::<f64>()).max(0.0) * seconds;
        // A CPU with a task that waits for a disk counts as waiting, the others as idle.
        let waiting = (disk.len() as f64 * seconds).min(unused);
        self.iowait += waiting;
        self.idle += unused - waiting;
    }

    fn speeds(&self, resource: Resource) -> Speeds {
        let mut wants: BTreeMap<Inode, Vec<(Pid, f64)>> = BTreeMap::new();
        let mut below: BTreeMap<Inode, f64> = BTreeMap::new();
        let all = self.tree.processes().iter();
        for (pid, process) in all.filter(|(_, process)| !self.tree.is_frozen(process.group)) {
            let most = match (resource, process.progress.doing) {
                (Resource::Cpu, Doing::Computing(_)) => f64::from(process.progress.load.threads),
                (Resource::Disk, Doing::Disk(_)) => 1.0,
                _ => continue,
            };
            wants.entry(process.group).or_default().push((*pid, most));
            let mut above = process.group;
            loop {
                *below.entry(above).or_default() += most;
                if above == ROOT {
                    break;
                }
                above = self.tree.groups().get(&above).map_or(ROOT, |group| group.parent);
            }
        }
        let capacity = match resource {
            Resource::Cpu => self.hardware.cpus,
            Resource::Disk => self.hardware.channels,
        };
        let mut speeds = Speeds::new();
        if !wants.is_empty() {
            self.divide_below(resource, ROOT, f64::from(capacity), &wants, &below, &mut speeds);
        }
        speeds
    }

    fn divide_below(
        &self,
        resource: Resource,
        group: Inode,
        capacity: f64,
        wants: &BTreeMap<Inode, Vec<(Pid, f64)>>,
        below: &BTreeMap<Inode, f64>,
        speeds: &mut Speeds,
    ) {
        let own = wants.get(&group).map_or(&[][..], Vec::as_slice);
        let (neutral, _) = resource.weight(NEUTRAL);
        let groups: Vec<(Inode, Want)> = self
            .tree
            .below(group)
            .filter_map(|(inode, group)| {
                let (weight, idle) = resource.weight(group.weights);
                Some((inode, Want { weight, idle, most: *below.get(&inode)? }))
            })
            .collect();
        let of_processes =
            own.iter().map(|(_, most)| Want { weight: neutral, idle: false, most: *most });
        let all: Vec<Want> = of_processes.chain(groups.iter().map(|(_, want)| *want)).collect();
        let parts = divide(capacity, &all);
        for ((pid, _), part) in own.iter().zip(&parts) {
            speeds.insert(*pid, *part);
        }
        for ((inode, _), part) in groups.iter().zip(&parts[own.len()..]) {
            self.divide_below(resource, *inode, *part, wants, below, speeds);
        }
    }

    /// The memory of all its processes.
    pub fn resident(&self) -> u64 {
        self.tree.processes().values().map(|process| process.progress.resident()).sum()
    }

    /// What a reading of the node finds.
    pub fn sample(&self) -> NodeSample {
        let whole = self.tree.groups().get(&ROOT).map(|root| root.used).unwrap_or_default();
        let resident = self.resident();
        let bytes = self.bytes(whole.disk);
        NodeSample {
            cpus: Some((0..self.hardware.cpus).collect()),
            quotas: Vec::new(),
            cpu: Some(CpuTimes {
                user: Duration::from_secs_f64(whole.cpu),
                idle: Duration::from_secs_f64(self.idle),
                iowait: Duration::from_secs_f64(self.iowait),
                ..CpuTimes::default()
            }),
            root_cpu: None,
            parents: Vec::new(),
            disk: Some(DiskBytes { read: Bytes(0), written: bytes }),
            pressure: Some(NodePressure {
                cpu_some: Some(Duration::from_secs_f64(whole.cpu_some)),
                io_some: Some(Duration::from_secs_f64(whole.io_some)),
                ..NodePressure::default()
            }),
            memory: Some(MemorySample {
                total: Bytes(self.hardware.memory),
                available: Bytes(self.hardware.memory.saturating_sub(resident)),
                swap_used: Some(Bytes(0)),
            }),
            memory_limits: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// What a reading of a group finds; `None` if it is not there. Counters of threads are not
    /// modelled: the rate rests on pressure and looks.
    pub fn sample_group(&self, group: Inode) -> Option<TaskSample> {
        let used = self.tree.groups().get(&group)?.used;
        let doing: Vec<_> =
            self.tree.members(group).filter_map(|pid| self.tree.processes().get(&pid)).collect();
        let is = |wanted: fn(&Doing) -> bool| doing.iter().any(|p| wanted(&p.progress.doing));
        let runnable = is(|doing| matches!(doing, Doing::Computing(_)));
        let waiting = is(|doing| matches!(doing, Doing::Disk(_)));
        Some(TaskSample {
            cpu: Some(Duration::from_secs_f64(used.cpu)),
            read: Some(Bytes(0)),
            written: Some(self.bytes(used.disk)),
            memory_peak: None,
            oom_kills: None,
            resident: Some(Bytes(doing.iter().map(|p| p.progress.resident()).sum())),
            pressure: Some(TaskPressure {
                cpu_some: Duration::from_secs_f64(used.cpu_some),
                io_some: Duration::from_secs_f64(used.io_some),
            }),
            asleep: Some(!runnable && !waiting),
            disk_wait: Some(!runnable && waiting),
            thread: None,
        })
    }

    /// Bytes that the disk moves in so many seconds of service.
    fn bytes(&self, service: f64) -> Bytes {
        let requests = service / self.hardware.request.as_secs_f64().max(1e-9);
        Bytes((requests * self.hardware.request_bytes as f64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Load;

    fn node(cpus: u32, channels: u32) -> Node {
        let hardware = Hardware { cpus, channels, ..Hardware::default() };
        Node::boot(hardware, WallTime::from_unix_micros(1_000_000))
    }

    fn group(node: &mut Node, name: &str, weights: Weights) -> Inode {
        let group = node.tree.make(&format!("/{name}"));
        node.tree.weigh(group, weights).unwrap();
        group
    }

    fn start(node: &mut Node, group: Inode, load: Load) -> Pid {
        node.tree.start(group, 7, load).pid
    }

    fn cpu_of(node: &Node, group: Inode) -> f64 {
        node.tree.groups()[&group].used.cpu
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn hogs_of_two_tiers_get_a_hundred_to_one() {
        let mut node = node(1, 1);
        let active = group(&mut node, "a", Weights { cpu: 10_000, ..NEUTRAL });
        let passive = group(&mut node, "b", Weights { cpu: 100, ..NEUTRAL });
        for group in [active, passive] {
            start(&mut node, group, Load::hog(seconds(1000)));
        }
        node.run(seconds(101));
        assert!((cpu_of(&node, active) - 100.0).abs() < 1e-6, "{}", cpu_of(&node, active));
        assert!((cpu_of(&node, passive) - 1.0).abs() < 1e-6);
        let pressure = node.sample_group(passive).unwrap().pressure.unwrap();
        assert!((pressure.cpu_some.as_secs_f64() - 100.0).abs() < 1e-6);
    }

    #[test]
    fn an_idle_group_lives_on_what_is_left() {
        let mut node = node(2, 1);
        let active = group(&mut node, "a", NEUTRAL);
        let passive = group(&mut node, "b", Weights { idle: true, ..NEUTRAL });
        start(&mut node, active, Load::hog(seconds(10)));
        start(&mut node, active, Load::hog(seconds(4)));
        start(&mut node, passive, Load::hog(seconds(3)));
        assert_eq!(node.run(seconds(4)).len(), 1, "both CPUs are the active group's");
        assert_eq!(cpu_of(&node, passive), 0.0);
        node.run(seconds(3));
        assert!((cpu_of(&node, passive) - 3.0).abs() < 1e-6);
        assert!((cpu_of(&node, active) - 11.0).abs() < 1e-6);
        assert_eq!(node.tree.processes().len(), 1);
    }

    #[test]
    fn what_is_frozen_stands_still_and_wants_nothing() {
        let mut node = node(1, 1);
        let frozen = group(&mut node, "a", NEUTRAL);
        let below = node.tree.make("/a/b");
        let other = group(&mut node, "c", NEUTRAL);
        start(&mut node, below, Load::hog(seconds(5)));
        start(&mut node, other, Load::hog(seconds(5)));
        node.tree.freeze(frozen, true).unwrap();
        assert_eq!(node.run(seconds(5)).len(), 1);
        assert_eq!(
            (cpu_of(&node, frozen), node.sample_group(below).unwrap().pressure),
            (0.0, Some(Default::default()))
        );
        node.tree.freeze(frozen, false).unwrap();
        assert_eq!(node.run(seconds(5)).len(), 1);
    }

    #[test]
    fn a_group_is_one_to_its_siblings_however_many_are_in_it() {
        let mut node = node(3, 1);
        let many = group(&mut node, "many", NEUTRAL);
        let one = group(&mut node, "one", NEUTRAL);
        for _ in 0..4 {
            start(&mut node, many, Load::hog(seconds(100)));
        }
        start(&mut node, one, Load { threads: 4, ..Load::hog(seconds(100)) });
        node.run(seconds(10));
        assert!((cpu_of(&node, many) - 15.0).abs() < 1e-6);
        assert!((cpu_of(&node, one) - 15.0).abs() < 1e-6);
    }

    #[test]
    fn a_serial_disk_takes_turns_by_weight_and_a_deep_one_serves_all() {
        let written = |channels| {
            let mut node = node(2, channels);
            let active = group(&mut node, "a", Weights { io: 300, ..NEUTRAL });
            let passive = group(&mut node, "b", NEUTRAL);
            for group in [active, passive] {
                start(&mut node, group, Load::writer(10_000));
            }
            node.run(seconds(10));
            let bytes = |group| node.sample_group(group).unwrap().written.unwrap().0 / 4096;
            let iowait = node.sample().cpu.unwrap().iowait.as_secs_f64();
            assert!((iowait - 20.0).abs() < 1e-6, "both CPUs wait: {iowait}");
            (bytes(active), bytes(passive))
        };
        assert_eq!(written(1), (750, 250));
        assert_eq!(written(2), (1000, 1000));
    }

    #[test]
    fn rounds_alternate_and_end() {
        let mut node = node(1, 1);
        let load = Load {
            cpu: Duration::from_millis(500),
            requests: 20,
            sleep: Duration::from_millis(300),
            rounds: Some(3),
            ..Load::sleeper()
        };
        start(&mut node, ROOT, load);
        assert_eq!(node.run(Duration::from_millis(2_999)).len(), 0);
        assert_eq!(node.run(Duration::from_millis(2)).len(), 1);
        let sample = node.sample();
        let cpu = sample.cpu.unwrap();
        let near = |time: Duration, expected: f64| (time.as_secs_f64() - expected).abs() < 1e-5;
        assert!(near(cpu.user, 1.5) && near(cpu.iowait, 0.6), "{cpu:?}");
        assert!(near(cpu.idle, 0.901), "{cpu:?}");
        assert_eq!(node.now().wall, WallTime::from_unix_micros(4_001_000));
    }

    #[test]
    fn a_hundred_and_twenty_eight_cpus_are_used_by_as_many() {
        let mut node = node(128, 1);
        for i in 0..200 {
            let group = group(&mut node, &format!("g{i}"), NEUTRAL);
            start(&mut node, group, Load::hog(seconds(64)));
        }
        assert_eq!(node.run(seconds(99)).len(), 0);
        // 200 x 64 s on 128 CPUs: 100 s.
        assert_eq!(node.run(seconds(2)).len(), 200);
    }
}
