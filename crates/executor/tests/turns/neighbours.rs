//! A service beside LRS: what it keeps of its speed while tasks run, and what active tasks lose.
//!
//! The service is a group of its own beside the root, with the neutral weight. With a fixed weight of
//! the root, active slots times neutral, passive work alone takes as much from it as active work.
//!
//! Limits: those of [`lrs_sim::node`]; a share is all that is seen here, and no delay. The kernel divides
//! the weight of a group over the CPUs by what runs there, so that passive tasks on CPUs without an
//! active one have next to none of it; here they have their part.

use std::time::Duration;

use lrs_sim::load::Load;
use lrs_sim::node::Hardware;
use lrs_sim::tree::{Inode, NEUTRAL, Weights};

use lrs_config::Config;
use lrs_core::model::{Labels, TaskId};
use lrs_core::units::Pid;
use lrs_sim::pretend::{self, HOME, Machine};

const CYCLE: Duration = Duration::from_secs(3);
const CPUS: u32 = 4;
const NEVER: Duration = Duration::from_secs(1_000_000);

/// A node with a service, a daemon and its tasks.
struct Beside {
    machine: Machine,
    service: Inode,
    /// The root has this weight, whatever the core wants.
    fixed: Option<u64>,
}

impl Beside {
    fn start(threads: u32, fixed: Option<u64>) -> Beside {
        Beside::with_loans(threads, fixed, false)
    }

    fn with_loans(threads: u32, fixed: Option<u64>, lend: bool) -> Beside {
        let hardware = Hardware { cpus: CPUS, ..Hardware::default() };
        let mut config = Config::default();
        (config.slots.expand, config.slots.lend) = (false, lend);
        let mut machine = Machine::boot(hardware, config);
        let tree = &mut machine.world().node().tree;
        let service = tree.make("/service");
        tree.start(service, 0, Load { threads, ..Load::hog(NEVER) });
        Beside { machine, service, fixed }
    }

    /// A task that does `load`, in the next free slot.
    fn task(&mut self, load: Load) -> (TaskId, Pid) {
        let tree = &mut self.machine.world().node().tree;
        let home = tree.make(HOME);
        let process = tree.start(home, 0, load);
        let mut answer = self.machine.admit(process, Labels::default(), None);
        self.machine.finish_all();
        let task = answer.try_recv().unwrap().unwrap();
        (task.id.parse().unwrap(), process.pid)
    }

    fn tasks(&mut self, count: u32, load: Load) {
        for _ in 0..count {
            self.task(load);
        }
    }

    fn run(&mut self, cycles: u32) {
        for _ in 0..cycles {
            if let Some(cpu) = self.fixed {
                let tree = &mut self.machine.world().node().tree;
                let root = tree.make(pretend::ROOT);
                tree.weigh(root, Weights { cpu, ..NEUTRAL }).unwrap();
            }
            assert_eq!(self.machine.advance(CYCLE), []);
        }
    }

    /// CPUs that a group has over so many cycles.
    fn cpus_of(&mut self, group: Inode, cycles: u32) -> f64 {
        let mut used = || self.machine.world().node().tree.groups()[&group].used.cpu;
        let before = used();
        self.run(cycles);
        let mut used = || self.machine.world().node().tree.groups()[&group].used.cpu;
        (used() - before) / (CYCLE * cycles).as_secs_f64()
    }

    fn group(&mut self, task: TaskId) -> Inode {
        self.machine.world().node().tree.at(&format!("{}/{task}", pretend::ROOT)).unwrap()
    }
}

fn sleeper() -> Load {
    Load::sleeper()
}

fn hog() -> Load {
    Load::hog(NEVER)
}

#[test]
fn passive_work_alone_takes_nothing_from_a_service() {
    let kept = |fixed| {
        let mut beside = Beside::start(CPUS, fixed);
        beside.tasks(CPUS, sleeper());
        beside.tasks(CPUS, hog());
        // What sleeps in the active slots is known to sleep after a while.
        beside.run(6);
        let service = beside.service;
        beside.cpus_of(service, 10) / f64::from(CPUS)
    };
    assert!(kept(Some(400)) < 0.25, "the old rule: {}", kept(Some(400)));
    assert!(kept(None) > 0.999, "{}", kept(None));
}

#[test]
fn work_in_slots_on_loan_has_the_share_of_active_work() {
    let mut beside = Beside::with_loans(CPUS, None, true);
    beside.tasks(CPUS, sleeper());
    beside.tasks(CPUS, hog());
    beside.run(20);
    let service = beside.service;
    let left = f64::from(CPUS) - beside.cpus_of(service, 10);
    // 400 of 500, as for four active ones that compute.
    assert!((3.1..3.3).contains(&left), "they take {left} CPUs");
}

#[test]
fn active_work_has_the_share_of_what_it_wants() {
    for hogs in [1, 2, 4] {
        let mut beside = Beside::start(CPUS, None);
        let tasks: Vec<_> = (0..hogs).map(|_| beside.task(hog())).collect();
        beside.tasks(CPUS - hogs, sleeper());
        beside.tasks(CPUS, hog());
        beside.run(20);
        let service = beside.service;
        let left = f64::from(CPUS) - beside.cpus_of(service, 10);
        let group = beside.group(tasks[0].0);
        let has = beside.cpus_of(group, 10);
        // At the neutral weight for each: 100 of 200, 200 of 300, 400 of 500. What one wants is less.
        let share = f64::from(CPUS) * f64::from(hogs) / f64::from(hogs + 1);
        assert!(left < share + 0.1, "{hogs} active hogs take {left} from the service, not {share}");
        let expected = (share / f64::from(hogs)).min(1.0);
        assert!(has > 0.97 * expected, "one of {hogs} active hogs has {has}, not {expected}");
    }
}

#[test]
fn an_active_task_that_wakes_is_behind_the_service_for_a_cycle_at_most() {
    let mut beside = Beside::start(CPUS, None);
    let (task, waker) = beside.task(sleeper());
    beside.tasks(CPUS - 1, sleeper());
    beside.tasks(CPUS, hog());
    beside.run(10);
    beside.machine.world().node().tree.begin(waker, hog());
    let group = beside.group(task);
    assert_eq!(beside.cpus_of(group, 1), 0.0, "no reading shows that it woke");
    let after = beside.cpus_of(group, 1);
    assert!(after > 0.95, "it has {after} of a CPU in the cycle after that");
}

#[test]
fn a_promoted_task_has_its_weight_at_once() {
    let mut beside = Beside::start(CPUS, None);
    let (_, first) = beside.task(sleeper());
    beside.tasks(CPUS - 1, sleeper());
    let (task, _) = beside.task(hog());
    beside.run(10);
    let group = beside.group(task);
    assert_eq!(beside.cpus_of(group, 2), 0.0, "the service has every CPU");
    beside.machine.world().exit(first, 0);
    beside.machine.finish_all();
    let promoted = beside.cpus_of(group, 1);
    assert!(promoted > 0.95, "it has {promoted} of a CPU");
}
