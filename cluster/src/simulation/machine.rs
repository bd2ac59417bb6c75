//! Nodes: slots that do not disturb each other, or CPUs and a disk that tasks share.
//!
//! A node is let run until it reports, and says then what has ended and exactly when. So it costs an
//! event for each heartbeat and none for what happens between two.

use std::time::Duration;

use crate::placement::cluster::TaskId;
use crate::placement::input::SlotsInput;

use crate::simulation::links::FAR;
use crate::simulation::scenario::{Kind, Scenario};
use crate::simulation::shaped::Shaped;
use crate::simulation::shared::Shared;
pub use crate::simulation::shared::{Ended, Start};

/// A node as the cluster sees it.
pub enum Machine {
    /// A slot is as fast as any.
    Slots(Slots),
    /// CPUs and a disk are shared.
    Shared(Box<Shared>),
    /// The same with LRS.
    Lrs(Box<Shaped>),
}

impl Machine {
    /// A node that boots at `now`.
    pub fn boot(scenario: &Scenario, now: Duration) -> Machine {
        match scenario.nodes.kind {
            Kind::Static => Machine::Slots(Slots::default()),
            Kind::Shared => Machine::Shared(Box::new(Shared::boot(&scenario.nodes, now))),
            Kind::Lrs => Machine::Lrs(Box::new(Shaped::boot(&scenario.nodes, now))),
        }
    }

    /// A task starts, and first moves its input.
    pub fn start(&mut self, start: Start) {
        match self {
            Machine::Slots(slots) => slots.start(start),
            Machine::Shared(shared) => shared.start(start),
            Machine::Lrs(shaped) => shaped.start(start),
        }
    }

    /// Time passes until `to`; `ended` gets what ends, in the order in which it does.
    pub fn advance(&mut self, to: Duration, ended: &mut Vec<Ended>) {
        match self {
            Machine::Slots(slots) => slots.advance(to, ended),
            Machine::Shared(shared) => shared.advance(to, ended),
            Machine::Lrs(shaped) => shaped.advance(to, ended),
        }
    }

    /// A task is killed.
    pub fn kill(&mut self, task: TaskId) {
        match self {
            Machine::Slots(slots) => slots.running.retain(|(_, of)| *of != task),
            Machine::Shared(shared) => shared.kill(task),
            Machine::Lrs(shaped) => shaped.kill(task),
        }
    }

    /// The input of a task has arrived, which started without a time for that.
    pub fn arrived(&mut self, task: TaskId, at: Duration) {
        match self {
            Machine::Slots(slots) => {
                let of = slots.running.iter_mut().find(|(_, of)| *of == task);
                of.into_iter().for_each(|(end, _)| *end = at + end.saturating_sub(FAR));
            }
            Machine::Shared(shared) => shared.arrived(task, at),
            Machine::Lrs(shaped) => shaped.arrived(task, at),
        }
    }

    /// The tasks that it ends because it is short of memory.
    pub fn starve(&mut self) -> Vec<TaskId> {
        let (mut starved, mut short) = (Vec::new(), true);
        while short {
            let found = match self {
                Machine::Slots(_) => None,
                Machine::Shared(shared) => shared.starved(),
                Machine::Lrs(shaped) => shaped.starved(),
            };
            short = found.is_some();
            if let Some(task) = found {
                self.kill(task);
                starved.push(task);
            }
        }
        starved
    }

    /// The slots that it offers now, where these change.
    pub fn slots(&self) -> Option<SlotsInput> {
        match self {
            Machine::Lrs(shaped) => Some(shaped.slots()),
            Machine::Slots(_) | Machine::Shared(_) => None,
        }
    }
}

/// Slots that do not disturb each other.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// When each task ends.
    running: Vec<(Duration, TaskId)>,
}

impl Slots {
    fn start(&mut self, start: Start) {
        let takes = Duration::from_secs_f64(start.todo.seconds());
        self.running.push((start.ready + takes, start.task));
    }

    fn advance(&mut self, to: Duration, ended: &mut Vec<Ended>) {
        let first = ended.len();
        self.running.retain(|(at, task)| {
            if *at <= to {
                ended.push(Ended { task: *task, at: *at });
            }
            *at > to
        });
        ended[first..].sort_by_key(|ended| (ended.at, ended.task));
    }
}
