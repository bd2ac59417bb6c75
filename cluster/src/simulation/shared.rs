//! CPUs and a disk that the tasks of a node share, and what a task does on them.
//!
//! Where tasks say what memory they take (`demand.memory_bytes`) and nodes what they have, a node that
//! is short of it ends the task with most memory, of several alike the last one, as the kernel does.
//! Limits: it takes all of it from when it begins to work to its end, nothing is swapped out, and being
//! short is found at the next report.

use std::time::Duration;

use crate::placement::cluster::TaskId;
use lrs_core::model::Priority;
use lrs_core::units::{Pid, Share, WallTime};

use crate::simulation::nodes::{Nodes, REQUEST};
use crate::simulation::workload::Todo;
use lrs_sim::load::Load;
use lrs_sim::node::Node;
use lrs_sim::tree::ROOT;

/// Rounds of computing and disk requests in a task: few, since each is an event.
const ROUNDS: u32 = 4;

/// A task that starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// The task.
    pub task: TaskId,
    /// Tells jobs apart.
    pub job: u64,
    /// The rate that is expected of it.
    pub hint: Option<Share>,
    /// The job's.
    pub priority: Priority,
    /// What it does.
    pub todo: Todo,
    /// What memory it takes while it works.
    pub memory: u64,
    /// When its input is there.
    pub ready: Duration,
    /// Now.
    pub now: Duration,
}

/// A task that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// The task.
    pub task: TaskId,
    /// When.
    pub at: Duration,
}

/// What a task does on a node that is shared.
pub(crate) fn load(start: &Start) -> Load {
    let Start { todo, memory, .. } = *start;
    let requests = f64::from(todo.disk) / REQUEST.as_secs_f64() / f64::from(ROUNDS);
    let requests = requests.round() as u32;
    let cpu = Duration::from_secs_f64(f64::from(todo.cpu) / f64::from(ROUNDS));
    Load { requests, rounds: Some(ROUNDS), resident: memory, ..Load::hog(cpu) }
}

/// The clock of people at the start of a simulation.
pub(crate) fn wall() -> WallTime {
    WallTime::from_unix_micros(1_700_000_000_000_000)
}

/// CPUs and a disk that the tasks of a node share alike.
#[derive(Clone, Debug)]
pub struct Shared {
    node: Node,
    booted: Duration,
    tasks: Vec<(Pid, TaskId)>,
    /// Tasks that have their input at this time.
    moving: Vec<(Duration, Pid, Load)>,
}

impl Shared {
    pub(crate) fn boot(nodes: &Nodes, now: Duration) -> Shared {
        let node = Node::boot(nodes.hardware(), wall());
        Shared { node, booted: now, tasks: Vec::new(), moving: Vec::new() }
    }

    pub(crate) fn start(&mut self, start: Start) {
        let pid = self.node.tree.start(ROOT, 0, Load::sleeper()).pid;
        self.tasks.push((pid, start.task));
        self.moving.push((start.ready, pid, load(&start)));
        begin(&mut self.moving, start.now, &mut self.node);
    }

    pub(crate) fn advance(&mut self, to: Duration, ended: &mut Vec<Ended>) {
        loop {
            let now = self.booted + self.node.now().boot.0;
            begin(&mut self.moving, now, &mut self.node);
            if now >= to {
                return;
            }
            let next = self.moving.iter().map(|(at, ..)| *at).min().unwrap_or(to).min(to);
            let pids = self.node.run_to_end(next - now);
            let at = self.booted + self.node.now().boot.0;
            let over = |pid: &Pid| take(&mut self.tasks, *pid);
            ended.extend(pids.iter().filter_map(over).map(|task| Ended { task, at }));
        }
    }

    pub(crate) fn kill(&mut self, task: TaskId) {
        let Some(index) = self.tasks.iter().position(|(_, of)| *of == task) else { return };
        let (pid, _) = self.tasks.remove(index);
        self.moving.retain(|(_, of, _)| *of != pid);
        self.node.tree.end(pid);
    }

    pub(crate) fn arrived(&mut self, task: TaskId, at: Duration) {
        let pid = self.tasks.iter().find(|(_, of)| *of == task).map(|(pid, _)| *pid);
        let moving = self.moving.iter_mut().filter(|(_, of, _)| Some(*of) == pid);
        moving.for_each(|(ready, ..)| *ready = at);
    }

    /// The task that goes if the node is short of memory.
    pub(crate) fn starved(&self) -> Option<TaskId> {
        starved_of(&self.node, &self.tasks)
    }
}

/// The task that goes if the node is short of memory.
pub(crate) fn starved_of(node: &Node, tasks: &[(Pid, TaskId)]) -> Option<TaskId> {
    if node.resident() <= node.hardware.memory {
        return None;
    }
    let resident =
        |pid: &Pid| node.tree.processes().get(pid).map_or(0, |one| one.progress.load.resident);
    let largest = tasks.iter().max_by_key(|(pid, _)| (resident(pid), *pid));
    largest.filter(|(pid, _)| resident(pid) > 0).map(|(_, task)| *task)
}

/// Those that have their input begin to work.
pub(crate) fn begin(moving: &mut Vec<(Duration, Pid, Load)>, now: Duration, node: &mut Node) {
    moving.retain(|(at, pid, load)| {
        if *at <= now {
            node.tree.begin(*pid, *load);
        }
        *at > now
    });
}

/// The task of a process, which is over.
pub(crate) fn take(tasks: &mut Vec<(Pid, TaskId)>, pid: Pid) -> Option<TaskId> {
    let index = tasks.iter().position(|(of, _)| *of == pid)?;
    Some(tasks.remove(index).1)
}
