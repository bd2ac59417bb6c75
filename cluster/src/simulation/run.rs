//! The queue of events: jobs arrive, nodes report, the policy is asked, nodes go down and come back.
//!
//! Nodes report in turns that are spread over the time between two heartbeats. A policy that decides
//! node by node is asked for each that reports; one that solves for all together, once a period for
//! all. What ends between two reports keeps its own time and is known at the report.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::placement::check::Fault;
use crate::placement::cluster::{Cluster, JobId, NodeId, State, TaskId};
use crate::placement::input::{Kind, SlotsInput};
use crate::placement::live::NewJob;
use crate::placement::preempt::Preemption;
use crate::placement::turn::{Choice, Policy, Turn};
use lrs_core::model::Priority;
use lrs_core::units::Share;
use rand_pcg::Pcg64Mcg;

use crate::simulation::Clock;
use crate::simulation::figures::{Figures, Loss};
use crate::simulation::forecast::TaskTimes;
use crate::simulation::links::{FAR, Links, after};
use crate::simulation::machine::{Ended, Machine, Start};
use crate::simulation::scenario::Scenario;
use crate::simulation::trace::Tracer;
use crate::simulation::workload::{Arrival, Todo, Workload, exponential, random, spread};

mod losses;

/// Time between two checks of the shares of the groups.
const LOOK: Duration = Duration::from_secs(10);

/// What happens, and at which node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive,
    Down(usize),
    Up(usize),
    Report(usize),
    All,
    Look,
    /// An input arrives, unless transfers have changed since.
    Moved(u64),
}

/// A job that is not over.
#[derive(Clone, Copy, Debug)]
struct Live {
    arrival: Arrival,
    maps: usize,
    reduces: usize,
    last_end: Duration,
    /// How long its tasks that have ended held their slots, maps and reduces.
    took: [TaskTimes; 2],
}

/// Why a case was not run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// It makes no sense.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Faults(Vec<Fault>),
    /// Nothing ran, and nothing was started, for so long.
    #[error(
        "after {0} s no task runs and the policy starts none of the {1} that wait; nodes without \
         slots, or tasks that take more than a node has"
    )]
    Stuck(u64, usize),
    /// A promise of the simulation is broken: a fault of lrs-place.
    #[error("a fault of lrs-place: {0}")]
    Broken(String),
}

/// A round of a case.
pub(crate) struct Run<'a> {
    scenario: &'a Scenario,
    clock: Clock,
    pub(crate) cluster: Cluster,
    policy: Box<dyn Policy>,
    together: bool,
    workload: Workload<'a>,
    next: Option<Arrival>,
    nodes: Vec<NodeId>,
    machines: Vec<Option<Machine>>,
    rngs: Vec<Pcg64Mcg>,
    speeds: Vec<f64>,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    serial: u64,
    /// By the number of the job, and of the task.
    jobs: Vec<Option<Live>>,
    todo: Vec<Todo>,
    live: usize,
    running: usize,
    ended: Vec<Ended>,
    preemption: Option<Preemption>,
    last_end: Duration,
    /// Since when nothing has run while tasks wait.
    still: Option<Duration>,
    pub(crate) figures: &'a mut Figures,
    links: Links,
    /// Follows the round, for files.
    pub(crate) tracer: Option<Tracer<'a>>,
}

/// Runs all rounds of a case; `done` hears of the tasks that have ended from time to time.
///
/// # Errors
/// With what is wrong in the scenario, or which promise was broken.
pub fn run(scenario: &Scenario, clock: Clock, done: &dyn Fn(u64)) -> Result<Figures, Refused> {
    let faults = scenario.check();
    if !faults.is_empty() {
        return Err(Refused::Faults(faults));
    }
    let mut figures = Figures::default();
    for round in 0..scenario.rounds {
        let seed = scenario.seed.wrapping_add(round);
        let mut run = Run::new(scenario, seed, clock, &mut figures)?;
        run.play(done)?;
    }
    Ok(figures)
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        scenario: &'a Scenario,
        seed: u64,
        clock: Clock,
        figures: &'a mut Figures,
    ) -> Result<Run<'a>, Refused> {
        let cluster = scenario.cluster(None).map_err(Refused::Faults)?;
        let (policy, together) = scenario.policy(&cluster).map_err(Refused::Faults)?;
        let nodes: Vec<NodeId> = cluster.nodes().collect();
        let mut rngs: Vec<_> = (0..nodes.len()).map(|node| random(seed, 4, node as u64)).collect();
        let speed = |rng: &mut Pcg64Mcg| spread(rng, scenario.nodes.speed_spread).max(0.01);
        let speeds: Vec<f64> = rngs.iter_mut().map(speed).collect();
        let boot = |_: &f64| Some(Machine::boot(scenario, Duration::ZERO));
        let machines = speeds.iter().map(boot).collect();
        let mut workload = Workload::new(scenario, seed, &cluster);
        let seconds = Duration::from_secs_f64;
        let preemption = scenario.preempt.map(|preempt| {
            let mut preemption =
                Preemption::new(seconds(preempt.minimum_seconds), seconds(preempt.fair_seconds));
            preemption.oldest_first = preempt.oldest_first;
            preemption
        });
        let mut run = Run {
            next: workload.next(&cluster),
            cluster,
            policy,
            together,
            workload,
            machines,
            rngs,
            speeds,
            events: BinaryHeap::new(),
            serial: 0,
            jobs: Vec::new(),
            todo: Vec::new(),
            live: 0,
            running: 0,
            ended: Vec::new(),
            preemption,
            last_end: Duration::ZERO,
            still: None,
            figures,
            links: Links::default(),
            tracer: None,
            nodes,
            scenario,
            clock,
        };
        run.begin();
        Ok(run)
    }

    fn begin(&mut self) {
        if let Some(arrival) = self.next {
            self.push(arrival.at, Event::Arrive);
        }
        if self.together {
            self.push(self.beat(), Event::All);
        } else {
            for node in 0..self.nodes.len() {
                let part = node as f64 / self.nodes.len() as f64;
                self.push(self.beat().mul_f64(part), Event::Report(node));
            }
        }
        if self.scenario.failures.is_some() {
            (0..self.nodes.len()).for_each(|node| self.fails_later(node, Duration::ZERO));
        }
        if self.preemption.is_some() || self.cluster.has_groups() {
            self.push(LOOK, Event::Look);
        }
    }

    fn beat(&self) -> Duration {
        Duration::from_secs_f64(self.scenario.heartbeat_seconds)
    }

    fn push(&mut self, at: Duration, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((at, self.serial, event)));
    }

    fn fails_later(&mut self, node: usize, now: Duration) {
        let Some(failures) = self.scenario.failures else { return };
        let after = exponential(&mut self.rngs[node], failures.after_seconds);
        self.push(now + after, Event::Down(node));
    }

    pub(crate) fn play(&mut self, done: &dyn Fn(u64)) -> Result<(), Refused> {
        let mut reported = self.figures.tasks();
        while !self.is_over() {
            if !self.step()? {
                break;
            }
            if self.figures.tasks() >= reported + 1000 {
                reported = self.figures.tasks();
                done(reported);
            }
        }
        done(self.figures.tasks());
        let slots = u64::from(self.scenario.slots().active + self.scenario.slots().passive);
        self.figures.round(self.last_end, slots * self.nodes.len() as u64);
        Ok(())
    }

    /// Whether all jobs have come and are over.
    pub(crate) fn is_over(&self) -> bool {
        self.next.is_none() && self.live == 0
    }

    /// The next event; `false`: there is none.
    pub(crate) fn step(&mut self) -> Result<bool, Refused> {
        let Some(Reverse((now, _, event))) = self.events.pop() else { return Ok(false) };
        match event {
            Event::Arrive => self.arrive()?,
            Event::Down(node) => self.down(node, now)?,
            Event::Up(node) => {
                self.machines[node] = Some(Machine::boot(self.scenario, now));
                self.tracer.iter_mut().for_each(|tracer| tracer.up(node, now));
                self.resize(node, self.scenario.slots());
                self.fails_later(node, now);
            }
            Event::Report(node) => {
                self.push(now + self.beat(), event);
                self.report(node, now)?;
                if self.machines[node].is_some() {
                    self.assign(node..node + 1, now)?;
                }
            }
            Event::All => {
                self.push(now + self.beat(), event);
                for node in 0..self.nodes.len() {
                    self.report(node, now)?;
                }
                self.assign(0..self.nodes.len(), now)?;
            }
            Event::Moved(changes) if changes == self.links.changes => self.moved(now),
            Event::Moved(_) => return Ok(true),
            Event::Look => {
                self.push(now + LOOK, event);
                self.look(now)?;
            }
        }
        self.not_stuck(now)?;
        Ok(true)
    }

    fn arrive(&mut self) -> Result<(), Refused> {
        let Some(arrival) = self.next else { return Ok(()) };
        let class = &self.scenario.jobs()[arrival.class];
        let known = || self.scenario.rates_known.then(|| Share::clamped(class.rate()));
        let rate = arrival.hint.or_else(known);
        let priority = Priority(class.priority);
        let (name, group, arrived) = (String::new(), arrival.group, arrival.at);
        let new = NewJob { name, group, priority, rate, arrived };
        let job = self.cluster.arrive(new);
        let (maps, reduces) = (class.maps as usize, class.reduces as usize);
        let took = Default::default();
        let live = Live { arrival, maps, reduces, last_end: arrival.at, took };
        put(&mut self.jobs, job.number(), Some(live));
        self.live += 1;
        if let Some(tracer) = &mut self.tracer {
            tracer.arrive(job, class.number.unwrap_or(arrival.serial), &class.name, arrival.at);
        }
        let first = if maps > 0 { Kind::Map } else { Kind::Reduce };
        self.submit(job, arrival, first, arrival.at)?;
        self.next = self.workload.next(&self.cluster);
        if let Some(next) = self.next {
            self.push(next.at, Event::Arrive);
        }
        Ok(())
    }

    fn submit(
        &mut self,
        job: JobId,
        arrival: Arrival,
        kind: Kind,
        at: Duration,
    ) -> Result<(), Refused> {
        for (task, todo) in self.workload.tasks(&arrival, kind) {
            let Some(task) = self.cluster.submit(job, task) else {
                return Err(Refused::Broken("a job that is forgotten has tasks".into()));
            };
            put(&mut self.todo, task.number(), todo);
            self.tracer.iter_mut().for_each(|tracer| tracer.submit(job, task, at));
        }
        Ok(())
    }

    /// A node runs until now, and says what has ended.
    fn report(&mut self, node: usize, now: Duration) -> Result<(), Refused> {
        let Some(machine) = &mut self.machines[node] else { return Ok(()) };
        let mut ended = std::mem::take(&mut self.ended);
        machine.advance(now, &mut ended);
        let starved = machine.starve();
        let slots = machine.slots();
        for Ended { task, at } in ended.drain(..) {
            self.end(task, at)?;
        }
        self.ended = ended;
        for task in starved {
            self.lose(task, Loss::Memory, now);
        }
        if let Some(slots) = slots {
            self.resize(node, slots);
        }
        Ok(())
    }

    fn resize(&mut self, node: usize, slots: SlotsInput) {
        self.cluster.resize(self.nodes[node], slots);
    }

    fn end(&mut self, task: TaskId, at: Duration) -> Result<(), Refused> {
        let State::Running(_, since) = self.cluster[task].state() else {
            return Err(Refused::Broken("a task ended that does not run".into()));
        };
        let (job, kind) = (self.cluster[task].job, self.cluster[task].kind);
        self.tracer.iter_mut().for_each(|tracer| tracer.end(&self.cluster, task, None, at));
        self.cluster.finish(task);
        self.running -= 1;
        self.last_end = self.last_end.max(at);
        let Some(live) = self.jobs.get_mut(job.number()).and_then(Option::as_mut) else {
            return Err(Refused::Broken("a task of a job that is over ended".into()));
        };
        let class = &self.scenario.jobs()[live.arrival.class];
        let held = at.saturating_sub(since);
        self.figures.end(&class.name, kind, held);
        live.last_end = live.last_end.max(at);
        let took = &mut live.took[kind as usize];
        if let (Some(mean), Some(median)) = (took.mean(), took.median()) {
            self.figures.forecast(held, mean, median);
        }
        took.learn(held);
        let (left, work) = match kind {
            Kind::Map => (&mut live.maps, class.map),
            Kind::Reduce => (&mut live.reduces, class.reduce),
        };
        *left -= 1;
        let live = *live;
        self.cluster.learn(job, Share::clamped(work.computing));
        if live.maps > 0 {
            return Ok(());
        }
        if live.reduces == 0 {
            self.over(job, live);
        } else if kind == Kind::Map {
            self.submit(job, live.arrival, Kind::Reduce, live.last_end)?;
        }
        Ok(())
    }

    fn over(&mut self, job: JobId, live: Live) {
        let class = &self.scenario.jobs()[live.arrival.class].name;
        self.figures.job(class, live.last_end.saturating_sub(live.arrival.at));
        self.jobs[job.number()] = None;
        self.live -= 1;
        self.tracer.iter_mut().for_each(|tracer| tracer.over(job));
        self.policy.forget(job);
        self.cluster.forget(job);
    }

    /// Asks the policy for some nodes, and carries out what it says.
    fn assign(&mut self, nodes: std::ops::Range<usize>, now: Duration) -> Result<(), Refused> {
        if self.cluster.queue().next().is_none() {
            return Ok(());
        }
        if self.together && self.scenario.nodes.capacity.is_some() {
            self.predict(now);
        }
        let before = (self.clock)();
        let mut turn = Turn::new(&mut self.cluster, now);
        self.policy.assign(&self.nodes[nodes], &mut turn);
        let (choices, warnings) = turn.into_outcome();
        self.figures.decide((self.clock)().saturating_sub(before));
        self.figures.warn(warnings.into_iter());
        choices.into_iter().try_for_each(|choice| self.start(&choice, now))
    }

    fn start(&mut self, choice: &Choice, now: Duration) -> Result<(), Refused> {
        let task = &self.cluster[choice.task];
        let job = task.job;
        let Some(live) = self.jobs[job.number()] else {
            return Err(Refused::Broken("a task of a job that is over starts".into()));
        };
        let class = &self.scenario.jobs()[live.arrival.class].name;
        let seconds = choice.transfer_seconds.unwrap_or(0.0);
        let locality = (!task.replicas.is_empty()).then_some(choice.locality);
        let source = self.cluster.source(choice.task, choice.node);
        let source = source.filter(|_| self.scenario.shared_links && seconds > 0.0);
        self.figures.start(class, locality, if source.is_some() { 0.0 } else { seconds });
        self.running += 1;
        let mut ready = after(now, seconds);
        if let Some((from, _)) = source {
            self.links.begin(choice.task, (from, choice.node), seconds, now);
            self.next_moved();
            ready = FAR;
        }
        let Choice { task: id, node, tier, .. } = *choice;
        self.tracer.iter_mut().for_each(|of| of.start(id, node, tier, locality, now, ready));
        let speed = self.speeds[node.number()] as f32;
        let Todo { cpu, disk } = self.todo[id.number()];
        let Some(machine) = &mut self.machines[choice.node.number()] else {
            return Err(Refused::Broken("a task starts on a node that is down".into()));
        };
        machine.start(Start {
            task: choice.task,
            job: live.arrival.serial,
            hint: live.arrival.hint,
            priority: self.cluster[job].priority,
            todo: Todo { cpu: cpu / speed, disk: disk / speed },
            memory: self.cluster[choice.task].demand.memory_bytes as u64,
            ready,
            now,
        });
        Ok(())
    }

    fn next_moved(&mut self) {
        if let Some(at) = self.links.next() {
            self.push(at, Event::Moved(self.links.changes));
        }
    }

    /// Inputs arrive.
    fn moved(&mut self, now: Duration) {
        for (task, took) in self.links.ended(now) {
            self.figures.moved(took);
            self.tracer.iter_mut().for_each(|tracer| tracer.arrived(task, now));
            let State::Running(node, _) = self.cluster[task].state() else { continue };
            let machine = self.machines[node.number()].as_mut();
            machine.into_iter().for_each(|machine| machine.arrived(task, now));
        }
        self.next_moved();
    }

    /// When the running tasks are expected to end, for a policy that asks: after as long as the
    /// median of those of their job that have ended, which errs less than the mean.
    fn predict(&mut self, now: Duration) {
        let all = self.cluster.nodes().flat_map(|node| self.cluster[node].running());
        for task in all.collect::<Vec<_>>() {
            let State::Running(_, since) = self.cluster[task].state() else { continue };
            let Some(live) = self.jobs[self.cluster[task].job.number()] else { continue };
            let median = live.took[self.cluster[task].kind as usize].median();
            let left = median.map(|median| median.saturating_sub(now.saturating_sub(since)));
            self.cluster.predict(task, left);
        }
    }
}

/// Puts something at a place of a list that grows to it.
fn put<T: Clone + Default>(list: &mut Vec<T>, at: usize, what: T) {
    if list.len() <= at {
        list.resize(at + 1, T::default());
    }
    list[at] = what;
}
