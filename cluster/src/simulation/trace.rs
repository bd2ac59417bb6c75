//! What a round did, task by task: `tasks.csv`, and `jobs.csv` and `schedule.csv` with the columns of Batsim 4
//! (docs/output-jobs.rst and output-schedule.rst of oar-team/batsim, 4.2.1), which its tools read; and a picture.
//!
//! Rows are written as tasks and jobs end, in the order in which the cluster gets to know of it, so that memory is
//! that of what waits and runs. Times are seconds of the simulation.
//!
//! A machine of Batsim is a node here, with its number. It computes while a task holds a slot there. What
//! the simulation has not, energy and sleep, is 0 or, as Batsim without its energy plugin has it, -1. Batsim 5 writes
//! the schedule as JSON; its jobs.csv is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

use lrs_core::model::Tier;

use crate::placement::cluster::{Cluster, JobId, Locality, NodeId, State, TaskId};
use crate::placement::input::Kind;
use crate::simulation::Clock;
use crate::simulation::figures::{Figures, Loss};
use crate::simulation::gantt::{Gantt, Stretch};
use crate::simulation::run::{Refused, Run};
use crate::simulation::scenario::Scenario;

/// The head of tasks.csv: a row for each start of a task. `input_time` is when its input was there,
/// if it was; `outcome` is `ended`, or what it was lost by: `node_down`, `preempted`, `memory`.
const TASKS: &str = "job_id,task,kind,node,tier,locality,submission_time,starting_time,input_time,\
                     finish_time,waiting_time,outcome";

/// The head of jobs.csv.
const JOBS: &str = "job_id,workload_name,profile,submission_time,requested_number_of_resources,\
                    requested_time,success,final_state,starting_time,execution_time,finish_time,\
                    waiting_time,turnaround_time,stretch,allocated_resources,consumed_energy,metadata";

/// Where the rows go.
pub struct Files<'a> {
    /// tasks.csv.
    pub tasks: &'a mut dyn Write,
    /// jobs.csv.
    pub jobs: &'a mut dyn Write,
}

/// What there is only at the end of a round.
#[derive(Clone, Debug)]
pub struct Traced {
    /// schedule.csv.
    pub schedule: String,
    /// The slots of the nodes over time, as SVG.
    pub gantt: String,
}

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
pub enum Untraced {
    /// The case cannot be run.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// A file cannot be written.
    #[error("cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// Plays the first round of a case once more, and writes down what it does.
///
/// # Errors
/// With what is wrong in the scenario, or with the files.
pub fn trace(
    scenario: &Scenario,
    workload: &str,
    clock: Clock,
    files: Files<'_>,
) -> Result<Traced, Untraced> {
    let faults = scenario.check();
    if !faults.is_empty() {
        return Err(Refused::Faults(faults).into());
    }
    let before = clock();
    let mut figures = Figures::default();
    // Borrowed for as long as the run.
    let files = Files { tasks: files.tasks, jobs: files.jobs };
    let mut run = Run::new(scenario, scenario.seed, clock, &mut figures)?;
    let tracer = Tracer::new(&run.cluster, workload, files);
    writeln!(tracer.files.tasks, "{TASKS}")?;
    writeln!(tracer.files.jobs, "{JOBS}")?;
    run.tracer = Some(tracer);
    run.play(&|_| {})?;
    let Some(tracer) = run.tracer.take() else { unreachable!("it was put there") };
    if let Some(error) = tracer.failed {
        return Err(error.into());
    }
    let schedule = tracer.schedule(run.figures.deciding(), clock().saturating_sub(before));
    Ok(Traced { schedule, gantt: tracer.gantt.svg(workload) })
}

/// A task that was asked for, and its last start.
#[derive(Clone, Debug)]
struct Begun {
    number: u64,
    asked: Duration,
    input: Duration,
    tier: Tier,
    locality: Option<Locality>,
    lane: usize,
}

/// A job that is not over.
#[derive(Clone, Debug)]
struct Going {
    id: u64,
    class: String,
    asked: Duration,
    started: Option<Duration>,
    over: Duration,
    tasks: u64,
    nodes: BTreeSet<usize>,
}

/// How a node spends its time.
#[derive(Clone, Debug, Default)]
struct Spends {
    /// Whether the place of each of its running tasks is taken.
    lanes: Vec<bool>,
    busy_since: Duration,
    busy: Duration,
    down_since: Option<Duration>,
    down: Duration,
}

/// Sums and maxima over jobs.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    sum: f64,
    most: f64,
    count: u64,
}

impl Total {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.most = self.most.max(value);
        self.count += 1;
    }

    fn mean(self) -> f64 {
        self.sum / self.count.max(1) as f64
    }
}

/// Follows a round.
pub(crate) struct Tracer<'a> {
    files: Files<'a>,
    /// The first row that could not be written.
    failed: Option<io::Error>,
    workload: String,
    /// By the number of the task.
    begun: BTreeMap<TaskId, Begun>,
    jobs: BTreeMap<JobId, Going>,
    nodes: Vec<Spends>,
    waited: Total,
    turned: Total,
    stretched: Total,
    last: Duration,
    gantt: Gantt,
}

impl<'a> Tracer<'a> {
    fn new(cluster: &Cluster, workload: &str, files: Files<'a>) -> Tracer<'a> {
        let names = cluster.nodes().map(|node| cluster[node].name.clone()).collect();
        Tracer {
            files,
            failed: None,
            workload: workload.to_owned(),
            begun: BTreeMap::new(),
            jobs: BTreeMap::new(),
            nodes: vec![Spends::default(); cluster.nodes().count()],
            waited: Total::default(),
            turned: Total::default(),
            stretched: Total::default(),
            last: Duration::ZERO,
            gantt: Gantt::new(names),
        }
    }

    /// A job arrives.
    pub(crate) fn arrive(&mut self, job: JobId, id: u64, class: &str, asked: Duration) {
        let (class, nodes) = (class.to_owned(), BTreeSet::new());
        let going = Going { id, class, asked, started: None, over: asked, tasks: 0, nodes };
        self.jobs.insert(job, going);
    }

    /// A task of it waits.
    pub(crate) fn submit(&mut self, job: JobId, task: TaskId, asked: Duration) {
        let Some(going) = self.jobs.get_mut(&job) else { return };
        let (number, tier) = (going.tasks, Tier::Active);
        going.tasks += 1;
        let begun = Begun { number, asked, input: asked, tier, locality: None, lane: 0 };
        self.begun.insert(task, begun);
    }

    /// It starts, and has its input at a time.
    pub(crate) fn start(
        &mut self,
        task: TaskId,
        node: NodeId,
        tier: Tier,
        locality: Option<Locality>,
        now: Duration,
        input: Duration,
    ) {
        let Some(begun) = self.begun.get_mut(&task) else { return };
        let spends = &mut self.nodes[node.number()];
        if !spends.lanes.contains(&true) {
            spends.busy_since = now;
        }
        let lane = spends.lanes.iter().position(|taken| !taken).unwrap_or(spends.lanes.len());
        spends.lanes.resize(spends.lanes.len().max(lane + 1), true);
        spends.lanes[lane] = true;
        (begun.input, begun.tier, begun.locality, begun.lane) = (input, tier, locality, lane);
    }

    /// Its input has arrived.
    pub(crate) fn arrived(&mut self, task: TaskId, at: Duration) {
        self.begun.get_mut(&task).into_iter().for_each(|begun| begun.input = at);
    }

    /// It is over, or was lost and waits again; the cluster still has it as running.
    pub(crate) fn end(
        &mut self,
        cluster: &Cluster,
        task: TaskId,
        lost: Option<Loss>,
        at: Duration,
    ) {
        let State::Running(node, started) = cluster[task].state() else { return };
        let (Some(begun), Some(going)) =
            (self.begun.get_mut(&task), self.jobs.get_mut(&cluster[task].job))
        else {
            return;
        };
        let spends = &mut self.nodes[node.number()];
        spends.lanes[begun.lane] = false;
        if !spends.lanes.contains(&true) {
            spends.busy += at.saturating_sub(spends.busy_since);
        }
        going.started = Some(going.started.map_or(started, |first| first.min(started)));
        going.over = going.over.max(at);
        going.nodes.insert(node.number());
        let kind = match cluster[task].kind {
            Kind::Map => "map",
            Kind::Reduce => "reduce",
        };
        let locality = begun.locality.map_or(String::new(), |locality| locality.to_string());
        let outcome = match lost {
            None => "ended",
            Some(Loss::Node) => "node_down",
            Some(Loss::Preempted) => "preempted",
            Some(Loss::Memory) => "memory",
        };
        let Begun { number, asked, input, tier, lane, .. } = *begun;
        let row = format!(
            "{},{number},{kind},{},{tier},{locality},{},{},{},{},{},{outcome}",
            going.id,
            cluster[node].name,
            seconds(asked),
            seconds(started),
            if input <= at { seconds(input) } else { String::new() },
            seconds(at),
            seconds(started.saturating_sub(asked)),
        );
        let (job, is_lost) = (going.id, lost.is_some());
        self.gantt.add(Stretch { node: node.number(), lane, started, ended: at, job, is_lost });
        begun.asked = at;
        if !is_lost {
            self.begun.remove(&task);
        }
        let written = writeln!(self.files.tasks, "{row}");
        self.keep(written);
    }

    /// A job is over.
    pub(crate) fn over(&mut self, job: JobId) {
        let Some(going) = self.jobs.remove(&job) else { return };
        let Going { id, class, asked, started, over, tasks, nodes } = going;
        let started = started.unwrap_or(over);
        let took = over.saturating_sub(started).as_secs_f64();
        let (waited, turned) = (started.saturating_sub(asked), over.saturating_sub(asked));
        self.waited.add(waited.as_secs_f64());
        self.turned.add(turned.as_secs_f64());
        let stretch = (took > 0.0).then(|| turned.as_secs_f64() / took);
        stretch.into_iter().for_each(|stretch| self.stretched.add(stretch));
        self.last = self.last.max(over);
        let stretch = stretch.map_or(String::new(), |stretch| format!("{stretch:.6}"));
        let row = format!(
            "{id},{},{},{},{tasks},-1,1,COMPLETED_SUCCESSFULLY,{},{took:.6},{},{},{},{stretch},{},-1,",
            quoted(&self.workload),
            quoted(&class),
            seconds(asked),
            seconds(started),
            seconds(over),
            seconds(waited),
            seconds(turned),
            intervals(&nodes),
        );
        let written = writeln!(self.files.jobs, "{row}");
        self.keep(written);
    }

    /// A node goes down.
    pub(crate) fn down(&mut self, node: usize, now: Duration) {
        self.nodes[node].down_since = Some(now);
    }

    /// It is there again.
    pub(crate) fn up(&mut self, node: usize, now: Duration) {
        let spends = &mut self.nodes[node];
        let since = spends.down_since.take();
        spends.down += since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
    }

    fn keep(&mut self, written: io::Result<()>) {
        self.failed = self.failed.take().or(written.err());
    }

    fn schedule(&self, deciding: f64, whole: Duration) -> String {
        let sum = |of: &dyn Fn(&Spends) -> Duration| {
            self.nodes.iter().map(|node| of(node).as_secs_f64()).sum::<f64>()
        };
        let busy = sum(&|node| node.busy);
        let down = sum(&|node| {
            let still = node.down_since.map_or(Duration::ZERO, |at| self.last.saturating_sub(at));
            node.down + still
        });
        let idle = (self.last.as_secs_f64() * self.nodes.len() as f64 - busy - down).max(0.0);
        let Tracer { waited, turned, stretched, .. } = self;
        let (jobs, time) = (waited.count.to_string(), |seconds: f64| format!("{seconds:.6}"));
        let columns = [
            ("batsim_version", format!("lrs-place {}", env!("CARGO_PKG_VERSION"))),
            ("consumed_joules", "-1".into()),
            ("makespan", seconds(self.last)),
            ("max_slowdown", time(stretched.most)),
            ("max_turnaround_time", time(turned.most)),
            ("max_waiting_time", time(waited.most)),
            ("mean_slowdown", time(stretched.mean())),
            ("mean_turnaround_time", time(turned.mean())),
            ("mean_waiting_time", time(waited.mean())),
            ("nb_computing_machines", self.nodes.len().to_string()),
            ("nb_grouped_switches", "0".into()),
            ("nb_jobs", jobs.clone()),
            ("nb_jobs_finished", jobs.clone()),
            ("nb_jobs_killed", "0".into()),
            ("nb_jobs_rejected", "0".into()),
            ("nb_jobs_success", jobs),
            ("nb_machine_switches", "0".into()),
            ("scheduling_time", time(deciding)),
            ("simulation_time", seconds(whole)),
            ("success_rate", time(1.0)),
            ("time_computing", time(busy)),
            ("time_idle", time(idle)),
            ("time_sleeping", time(0.0)),
            ("time_switching_off", time(0.0)),
            ("time_switching_on", time(0.0)),
            ("time_unavailable", time(down)),
        ];
        let row = |cells: Vec<&str>| cells.join(",") + "\n";
        let heads = columns.iter().map(|(name, _)| *name).collect();
        row(heads) + &row(columns.iter().map(|(_, value)| value.as_str()).collect())
    }
}

/// As Batsim writes a time.
fn seconds(time: Duration) -> String {
    format!("{:.6}", time.as_secs_f64())
}

/// A cell of any text.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// Numbers as Batsim's interval set: `1-3 5`.
fn intervals(numbers: &BTreeSet<usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let text = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_an_interval_set_of_batsim() {
        let of = |numbers: &[usize]| intervals(&numbers.iter().copied().collect());
        // the examples of docs/interval-set.rst
        assert_eq!(of(&[7, 5, 3, 2, 1]), "1-3 5 7");
        assert_eq!(of(&(37..=42).collect::<Vec<_>>()), "37-42");
        assert_eq!((of(&[]), of(&[4])), (String::new(), "4".to_owned()));
    }

    #[test]
    fn a_cell_may_have_any_text() {
        assert_eq!(quoted("static, all \"well\""), "\"static, all \"\"well\"\"\"");
        assert_eq!(quoted("fifo"), "fifo");
    }
}
