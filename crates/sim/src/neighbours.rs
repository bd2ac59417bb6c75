//! A service beside LRS: what it keeps of its speed while tasks run, and what active tasks lose.
//!
//! The service is a group of its own beside the root, with the neutral weight. With a fixed weight of
//! the root, active slots times neutral, passive work alone takes as much from it as active work.
//!
//! Limits: those of [`crate::node`]; a share is all that is seen here, and no delay. The kernel divides
//! the weight of a group over the CPUs by what runs there, so that passive tasks on CPUs without an
//! active one have next to none of it; here they have their part.

use std::time::Duration;

use lrs_core::model::{Labels, TaskId};
use lrs_core::state::{Need, Policy, Request};
use lrs_core::task::Who;
use lrs_core::units::{Pid, WallTime};

use crate::daemon::{Ask, Daemon};
use crate::load::Load;
use crate::node::{Hardware, Node};
use crate::outside::{Alive, Call, Fuse, Outside, Store, group_of};
use crate::recover;
use crate::tree::{Inode, NEUTRAL, ROOT, Weights};

const CYCLE: Duration = Duration::from_secs(3);
const CPUS: u32 = 4;
const NEVER: Duration = Duration::from_secs(1_000_000);

/// A node with a service, a daemon and its tasks.
struct Beside {
    out: Outside,
    daemon: Daemon,
    service: Inode,
    /// The root has this weight, whatever the core wants.
    fixed: Option<u64>,
    calls: u64,
}

impl Beside {
    fn start(threads: u32, fixed: Option<u64>) -> Alive<Beside> {
        let hardware = Hardware {
            cpus: CPUS,
            channels: 8,
            request: Duration::from_millis(10),
            request_bytes: 4096,
            memory: 1 << 30,
        };
        let node = Node::boot(hardware, WallTime::from_unix_micros(1_700_000_000_000_000));
        let (store, fuse) = (Store::default(), Fuse::default());
        let mut out = Outside { node, store, boot: 0, fuse, replies: Vec::new() };
        out.store.history_state.counters.epoch = 1;
        let service = out.node.tree.make(ROOT, "service").unwrap_or(ROOT);
        out.node.tree.start(service, 0, Load { threads, ..Load::hog(NEVER) });
        let policy = Policy { expand: false, ..Policy::simulated() };
        let daemon = recover::start(policy, &mut out)?;
        Ok(Beside { out, daemon, service, fixed, calls: 0 })
    }

    /// A task that does `load`, in the next free slot.
    fn admit(&mut self, load: Load) -> Alive<Pid> {
        let out = &mut self.out;
        let process = out.node.tree.start(ROOT, 0, load);
        let who = Who { process: Some(process), admitted_by: Some(0), ..Who::default() };
        let (labels, need) = (Labels::default(), Need::Slot);
        let (uid, priority, reservation) = (0, None, None);
        let (opportunistic, by_member) = (false, false);
        let request =
            Request { uid, who, labels, priority, reservation, need, opportunistic, by_member };
        self.calls += 1;
        let ask = Ask { caller: 0, process, request, patience: None };
        self.daemon.admit(Call(self.calls), ask, out)?;
        while self.daemon.work(out)? || self.daemon.listen(out)? {}
        Ok(process.pid)
    }

    fn task(&mut self, load: Load) {
        self.admit(load).unwrap();
    }

    fn run(&mut self, cycles: u32) -> Alive<()> {
        for _ in 0..cycles {
            if let (Some(cpu), Some(root)) = (self.fixed, self.out.lrs()) {
                let _ = self.out.node.tree.weigh(root, Weights { cpu, ..NEUTRAL });
            }
            self.out.node.run(CYCLE);
            self.daemon.cycle(&mut self.out)?;
        }
        Ok(())
    }

    /// CPUs that a group has over so many cycles.
    fn cpus_of(&mut self, group: Inode, cycles: u32) -> Alive<f64> {
        let used = |out: &Outside| out.node.tree.groups()[&group].used.cpu;
        let before = used(&self.out);
        self.run(cycles)?;
        Ok((used(&self.out) - before) / (CYCLE * cycles).as_secs_f64())
    }

    fn group(&self, task: TaskId) -> Inode {
        self.daemon.core.task(task).and_then(group_of).unwrap()
    }

    fn first_task(&self) -> TaskId {
        self.daemon.core.tasks().next().unwrap().0
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
        let mut beside = Beside::start(CPUS, fixed).unwrap();
        (0..CPUS).for_each(|_| beside.task(sleeper()));
        (0..CPUS).for_each(|_| beside.task(hog()));
        // What sleeps in the active slots is known to sleep after a while.
        beside.run(6).unwrap();
        let service = beside.service;
        beside.cpus_of(service, 10).unwrap() / f64::from(CPUS)
    };
    assert!(kept(Some(400)) < 0.25, "the old rule: {}", kept(Some(400)));
    assert!(kept(None) > 0.999, "{}", kept(None));
}

#[test]
fn active_work_has_the_share_of_what_it_wants() {
    for hogs in [1, 2, 4] {
        let mut beside = Beside::start(CPUS, None).unwrap();
        (0..hogs).for_each(|_| beside.task(hog()));
        (hogs..CPUS).for_each(|_| beside.task(sleeper()));
        (0..CPUS).for_each(|_| beside.task(hog()));
        beside.run(20).unwrap();
        let service = beside.service;
        let left = f64::from(CPUS) - beside.cpus_of(service, 10).unwrap();
        let group = beside.group(beside.first_task());
        let has = beside.cpus_of(group, 10).unwrap();
        // At the neutral weight for each: 100 of 200, 200 of 300, 400 of 500. What one wants is less.
        let share = f64::from(CPUS) * f64::from(hogs) / f64::from(hogs + 1);
        assert!(left < share + 0.1, "{hogs} active hogs take {left} from the service, not {share}");
        let expected = (share / f64::from(hogs)).min(1.0);
        assert!(has > 0.97 * expected, "one of {hogs} active hogs has {has}, not {expected}");
    }
}

#[test]
fn an_active_task_that_wakes_is_behind_the_service_for_a_cycle_at_most() {
    let mut beside = Beside::start(CPUS, None).unwrap();
    let waker = beside.admit(sleeper()).unwrap();
    (1..CPUS).for_each(|_| beside.task(sleeper()));
    (0..CPUS).for_each(|_| beside.task(hog()));
    beside.run(10).unwrap();
    beside.out.node.tree.begin(waker, hog());
    let group = beside.group(beside.first_task());
    assert_eq!(beside.cpus_of(group, 1).unwrap(), 0.0, "no reading shows that it woke");
    let after = beside.cpus_of(group, 1).unwrap();
    assert!(after > 0.95, "it has {after} of a CPU in the cycle after that");
}

#[test]
fn a_promoted_task_has_its_weight_at_once() {
    let mut beside = Beside::start(CPUS, None).unwrap();
    let first = beside.admit(sleeper()).unwrap();
    (1..CPUS).for_each(|_| beside.task(sleeper()));
    beside.admit(hog()).unwrap();
    beside.run(10).unwrap();
    let task = beside.daemon.core.tasks().last().unwrap().0;
    let group = beside.group(task);
    assert_eq!(beside.cpus_of(group, 2).unwrap(), 0.0, "the service has every CPU");
    beside.out.node.tree.end(first);
    beside.daemon.processes_ended(&mut beside.out).unwrap();
    let promoted = beside.cpus_of(group, 1).unwrap();
    assert!(promoted > 0.95, "it has {promoted} of a CPU");
}
