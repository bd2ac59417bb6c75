//! A node with LRS in a cluster: the real core decides tiers, promotions and how many slots there are.
//!
//! Each task that the cluster's policy starts here is a request to lrsd's loop ([`lrs_sim::pretend`]),
//! and works from when that is answered; the slots that the core opens and withdraws are what the node
//! offers at its next heartbeat. Settings are those that are shipped.
//!
//! Limits: those of [`lrs_sim::node`]. A job's rate is measured by the core for itself; the cluster's
//! policy is given what the workload says. A hint is an admin's.

use std::time::Duration;

use lrs_api::proto;
use lrs_config::{Auto, Config};
use lrs_core::hint::Hint;
use lrs_core::model::{Label, Labels};
use lrs_core::units::{MemoryAmount, Pid, Share};
use lrs_sim::load::Load;
use lrs_sim::pretend::machine::Answer;
use lrs_sim::pretend::{self, HOME};

use crate::placement::cluster::TaskId;
use crate::placement::input::SlotsInput;
use crate::simulation::nodes::Nodes;
use crate::simulation::shared::{Ended, Start, begin, load, starved_of, take};

/// A node with LRS.
pub struct Shaped {
    machine: pretend::Machine,
    booted: Duration,
    /// Tasks that have asked for a slot and have none: what they do when they get it, and from when on.
    asked: Vec<(Answer<proto::Task>, Pid, Load, Duration)>,
    tasks: Vec<(Pid, TaskId)>,
    moving: Vec<(Duration, Pid, Load)>,
}

impl Shaped {
    /// A node that boots at `now`.
    pub fn boot(nodes: &Nodes, now: Duration) -> Shaped {
        let machine = pretend::Machine::boot(nodes.hardware(), config(nodes));
        let (asked, tasks, moving) = (Vec::new(), Vec::new(), Vec::new());
        Shaped { machine, booted: now, asked, tasks, moving }
    }

    fn now(&mut self) -> Duration {
        self.booted + self.machine.now().boot.0
    }

    /// A task asks for a slot.
    pub fn start(&mut self, start: Start) {
        let process = self.machine.world().start_in(HOME, 0);
        self.tasks.push((process.pid, start.task));
        // Letters and digits are a label.
        let job = Label::new(&format!("job{}", start.job)).ok();
        let labels = Labels { job, hint: start.hint.map(Hint::new), ..Labels::default() };
        let answer = self.machine.admit(process, labels, Some(start.priority));
        self.asked.push((answer, process.pid, load(&start), start.ready));
        self.machine.finish_all();
        self.answers();
    }

    /// Whoever has its slot moves its input, or begins to work.
    fn answers(&mut self) {
        let moving = &mut self.moving;
        self.asked.retain_mut(|(answer, pid, load, at)| {
            let admitted = matches!(answer.try_recv(), Ok(Ok(_)));
            if admitted {
                moving.push((*at, *pid, *load));
            }
            !admitted
        });
        let now = self.now();
        begin(&mut self.moving, now, self.machine.world().node());
    }

    /// As [`crate::simulation::machine::Machine::advance`].
    pub fn advance(&mut self, to: Duration, ended: &mut Vec<Ended>) {
        loop {
            self.answers();
            let now = self.now();
            if now >= to {
                return;
            }
            let next = self.moving.iter().map(|(at, ..)| *at).min().unwrap_or(to).min(to);
            let pids = self.machine.step(next - now);
            let at = self.now();
            let over = |pid: &Pid| take(&mut self.tasks, *pid);
            ended.extend(pids.iter().filter_map(over).map(|task| Ended { task, at }));
        }
    }

    /// A task is killed.
    pub fn kill(&mut self, task: TaskId) {
        let Some(index) = self.tasks.iter().position(|(_, of)| *of == task) else { return };
        let (pid, _) = self.tasks.remove(index);
        self.moving.retain(|(_, of, _)| *of != pid);
        self.asked.retain(|(_, of, ..)| *of != pid);
        self.machine.world().exit(pid, 1);
        self.machine.finish_all();
        self.answers();
    }

    /// The input of a task has arrived, whether it has its slot yet or not.
    pub fn arrived(&mut self, task: TaskId, at: Duration) {
        let pid = self.tasks.iter().find(|(_, of)| *of == task).map(|(pid, _)| *pid);
        let moving = self.moving.iter_mut().map(|(ready, of, _)| (ready, *of));
        let asked = self.asked.iter_mut().map(|(_, of, _, ready)| (ready, *of));
        let of_task = moving.chain(asked).filter(|(_, of)| Some(*of) == pid);
        of_task.for_each(|(ready, _)| *ready = at);
    }

    /// The task that goes if the node is short of memory.
    pub fn starved(&mut self) -> Option<TaskId> {
        starved_of(self.machine.world().node(), &self.tasks)
    }

    /// The slots that the core has opened, but for those that the guard holds back.
    pub fn slots(&self) -> SlotsInput {
        let core = self.machine.core();
        let slots = core.slots();
        let held = slots.passive_free().saturating_sub(core.passive_offered());
        let passive = slots.passive_capacity.saturating_sub(held);
        SlotsInput { active: slots.active_capacity, passive }
    }
}

/// The settings as they are shipped, but for the guard where the nodes have no memory.
fn config(nodes: &Nodes) -> Config {
    let mut config = Config::default();
    config.slots.passive = Auto::Fixed(nodes.passive);
    if nodes.memory().is_none() {
        config.guard.memory_reserve = MemoryAmount::OfTotal(Share::ZERO);
    }
    config
}
