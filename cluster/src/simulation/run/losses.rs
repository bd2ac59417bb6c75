//! What does not get to its end: nodes go down, tasks are preempted or lost, a case that cannot end is refused.

use std::time::Duration;

use super::{Event, Refused, Run};
use crate::placement::cluster::{State, TaskId};
use crate::placement::groups::{Groups, unfairness};
use crate::placement::input::SlotsInput;
use crate::simulation::figures::Loss;

impl Run<'_> {
    /// A node goes down with all that runs there, unless it is down.
    pub(super) fn down(&mut self, node: usize, now: Duration) -> Result<(), Refused> {
        self.report(node, now)?;
        self.machines[node] = None;
        self.tracer.iter_mut().for_each(|tracer| tracer.down(node, now));
        self.resize(node, SlotsInput::default());
        let id = self.nodes[node];
        for task in self.cluster[id].running().collect::<Vec<_>>() {
            self.lose(task, Loss::Node, now);
        }
        let down = self.scenario.failures.map_or(0.0, |failures| failures.down_seconds);
        self.push(now + Duration::from_secs_f64(down), Event::Up(node));
        Ok(())
    }

    /// How fair it is, and what is preempted to be fairer.
    pub(super) fn look(&mut self, now: Duration) -> Result<(), Refused> {
        if self.cluster.queue().next().is_none() {
            return Ok(());
        }
        if let Some(distance) = unfairness(&Groups::of(&self.cluster)) {
            self.figures.unfair(distance);
        }
        let Some(preemption) = &mut self.preemption else { return Ok(()) };
        for task in preemption.choose(&self.cluster, now) {
            let State::Running(node, _) = self.cluster[task].state() else { continue };
            // What has ended since its last report is not killed.
            self.report(node.number(), now)?;
            if !matches!(self.cluster[task].state(), State::Running(..)) {
                continue;
            }
            if let Some(machine) = &mut self.machines[node.number()] {
                machine.kill(task);
            }
            self.lose(task, Loss::Preempted, now);
        }
        Ok(())
    }

    /// A running task waits again.
    pub(super) fn lose(&mut self, task: TaskId, why: Loss, now: Duration) {
        let State::Running(_, since) = self.cluster[task].state() else { return };
        self.tracer.iter_mut().for_each(|tracer| tracer.end(&self.cluster, task, Some(why), now));
        self.cluster.lose(task);
        self.links.drop(task, now);
        self.next_moved();
        self.running -= 1;
        self.figures.lose(why, now.saturating_sub(since));
    }

    /// A case that cannot end is refused, not run for ever.
    pub(super) fn not_stuck(&mut self, now: Duration) -> Result<(), Refused> {
        let waits =
            || self.cluster.queue().next().is_some() || self.cluster.unfit().next().is_some();
        let all_up = || self.machines.iter().all(Option::is_some);
        if self.running > 0 || !waits() || !all_up() {
            self.still = None;
            return Ok(());
        }
        let since = *self.still.get_or_insert(now);
        if now.saturating_sub(since) <= self.beat() * 100 + Duration::from_secs(3600) {
            return Ok(());
        }
        let waiting =
            self.cluster.queue().map(|job| self.cluster[job].waiting_tasks()).sum::<usize>()
                + self.cluster.unfit().count();
        Err(Refused::Stuck(now.as_secs(), waiting))
    }
}
