//! A node with LRS in a cluster: the real core decides tiers, promotions and how many slots there are.
//!
//! Each task that the cluster's policy starts here is a request to the daemon of [`lrs_sim::daemon`],
//! and works from when that is answered; the slots that the core opens and withdraws are what the node
//! offers at its next heartbeat. Two cycles are [`CYCLE`] apart, as lrsd is shipped.
//!
//! Limits: those of [`lrs_sim::queue`]. A job's rate is measured by the core for itself; the cluster's
//! policy is given what the workload says.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::placement::cluster::TaskId;
use crate::placement::input::SlotsInput;
use lrs_core::model::{Label, Labels};
use lrs_core::state::{Need, Patience, Policy, Request};
use lrs_core::task::Who;
use lrs_core::units::{MemoryAmount, Pid, ProcessRef, Share};

use crate::simulation::machine::{Ended, Start, begin, hardware, load, starved_of, take, wall};
use crate::simulation::scenario::Nodes;
use lrs_sim::daemon::{Ask, Daemon};
use lrs_sim::load::Load;
use lrs_sim::node::Node;
use lrs_sim::outside::{Alive, Call, Fuse, Outside, Reply, Store};
use lrs_sim::queue::CYCLE;
use lrs_sim::recover;
use lrs_sim::tree::{Inode, ROOT};

/// A node with LRS.
#[derive(Clone, Debug)]
pub struct Shaped {
    out: Outside,
    daemon: Daemon,
    home: Inode,
    booted: Duration,
    next_cycle: Duration,
    calls: u64,
    /// Tasks that have asked for a slot and have none: what they do when they get it.
    asked: BTreeMap<Call, (Pid, Load, Duration)>,
    tasks: Vec<(Pid, TaskId)>,
    moving: Vec<(Duration, Pid, Load)>,
}

impl Shaped {
    /// A node that boots at `now`.
    ///
    /// # Errors
    /// None: nothing kills the daemon.
    pub fn boot(nodes: &Nodes, now: Duration) -> Alive<Shaped> {
        let node = Node::boot(hardware(nodes), wall());
        let (store, fuse) = (Store::default(), Fuse::default());
        let mut out = Outside { node, store, boot: 0, fuse, replies: Vec::new() };
        out.store.history_state.counters.epoch = 1;
        // The root is there.
        let home = out.node.tree.make(ROOT, "home").unwrap_or(ROOT);
        let policy = policy(nodes);
        let daemon = recover::start(policy, &mut out)?;
        Ok(Shaped {
            out,
            daemon,
            home,
            booted: now,
            next_cycle: now + CYCLE,
            calls: 0,
            asked: BTreeMap::new(),
            tasks: Vec::new(),
            moving: Vec::new(),
        })
    }

    fn now(&self) -> Duration {
        self.booted + self.out.node.now().boot.0
    }

    /// A task asks for a slot.
    ///
    /// # Errors
    /// None: nothing kills the daemon.
    pub fn start(&mut self, start: Start) -> Alive<()> {
        let process = self.out.node.tree.start(self.home, 0, Load::sleeper());
        self.tasks.push((process.pid, start.task));
        let call = Call(self.calls);
        self.calls += 1;
        self.asked.insert(call, (process.pid, load(&start), start.ready));
        let ask = self.ask(process, &start);
        self.daemon.admit(call, ask, &mut self.out)?;
        self.answers()
    }

    fn ask(&self, process: ProcessRef, start: &Start) -> Ask {
        let who = Who { process: Some(process), admitted_by: Some(0), ..Who::default() };
        // Letters and digits are a label.
        let job = Label::new(&format!("job{}", start.job)).ok();
        let labels = Labels { job, ..Labels::default() };
        let (uid, priority, reservation, need) = (0, Some(start.priority), None, Need::Slot);
        let (opportunistic, by_member) = (false, false);
        let request =
            Request { uid, who, labels, priority, reservation, need, opportunistic, by_member };
        let first_requested = self.out.node.now().wall;
        let patience = Some(Patience { first_requested, deadline: None, parks: false });
        Ask { caller: 0, process, request, patience }
    }

    /// Whoever has its slot moves its input, or begins to work.
    fn answers(&mut self) -> Alive<()> {
        while self.daemon.work(&mut self.out)? || self.daemon.listen(&mut self.out)? {}
        for (call, reply) in std::mem::take(&mut self.out.replies) {
            if let (Reply::Admitted(_), Some((pid, load, at))) = (reply, self.asked.remove(&call)) {
                self.moving.push((at, pid, load));
            }
        }
        let now = self.now();
        begin(&mut self.moving, now, &mut self.out.node);
        Ok(())
    }

    /// As [`crate::simulation::machine::Machine::advance`].
    ///
    /// # Errors
    /// None: nothing kills the daemon.
    pub fn advance(&mut self, to: Duration, ended: &mut Vec<Ended>) -> Alive<()> {
        loop {
            self.answers()?;
            let now = self.now();
            if now >= self.next_cycle {
                self.next_cycle += CYCLE;
                self.daemon.cycle(&mut self.out)?;
                continue;
            }
            if now >= to {
                return Ok(());
            }
            let moved = self.moving.iter().map(|(at, ..)| *at).min().unwrap_or(to);
            let next = moved.min(to).min(self.next_cycle);
            let pids = self.out.node.run_to_end(next - now);
            let at = self.now();
            let over = |pid: &Pid| take(&mut self.tasks, *pid);
            ended.extend(pids.iter().filter_map(over).map(|task| Ended { task, at }));
            self.daemon.tick(&mut self.out)?;
            if !pids.is_empty() {
                self.daemon.processes_ended(&mut self.out)?;
            }
        }
    }

    /// A task is killed.
    ///
    /// # Errors
    /// None: nothing kills the daemon.
    pub fn kill(&mut self, task: TaskId) -> Alive<()> {
        let Some(index) = self.tasks.iter().position(|(_, of)| *of == task) else { return Ok(()) };
        let (pid, _) = self.tasks.remove(index);
        self.moving.retain(|(_, of, _)| *of != pid);
        self.asked.retain(|_, (of, ..)| *of != pid);
        self.out.node.tree.end(pid);
        self.daemon.processes_ended(&mut self.out)?;
        self.answers()
    }

    /// The task that goes if the node is short of memory.
    pub fn starved(&self) -> Option<TaskId> {
        starved_of(&self.out.node, &self.tasks)
    }

    /// The slots that the core has opened, but for those that the guard holds back.
    pub fn slots(&self) -> SlotsInput {
        let core = &self.daemon.core;
        let slots = core.slots();
        let held = slots.passive_free().saturating_sub(core.passive_offered());
        let passive = slots.passive_capacity.saturating_sub(held);
        SlotsInput { active: slots.active_capacity, passive }
    }
}

/// The settings; what the guard keeps of a node's memory is as it is shipped, where nodes have some.
fn policy(nodes: &Nodes) -> Policy {
    let mut policy = Policy { passive: Some(nodes.passive), ..Policy::simulated() };
    if nodes.memory().is_some() {
        let part = |of| MemoryAmount::OfTotal(Share::clamped(of));
        policy.memory_reserve = part(0.05);
        if let Some(guard) = &mut policy.guard {
            (guard.reserve, guard.resume) = (part(0.05), part(0.075));
        }
    }
    policy
}
