//! What the complete runs of one load under one setting brought.
//!
//! Two times of a task: its *run time*, from the slot to the exit, says what running beside
//! others costs it; its *response*, from the arrival to the exit, is what its owner waits.
//! Each run gives one figure, and the setting has the median of them, so that a run the
//! machine disturbed weighs no more than another.

use serde::Serialize;

use crate::record::{Decisions, Outcome, Run, Task};
use crate::stats::Spread;

/// A median and how far the values lie apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    /// Lower and upper.
    pub(crate) quartiles: [f64; 2],
    /// Smallest and largest.
    pub(crate) range: [f64; 2],
    /// Number of values.
    pub(crate) count: usize,
}

impl From<&Spread> for Summary {
    fn from(spread: &Spread) -> Summary {
        Summary {
            median: spread.median(),
            quartiles: spread.quartiles(),
            range: [spread.min(), spread.max()],
            count: spread.count(),
        }
    }
}

/// A makespan and the round it was seen in.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Makespan {
    pub(crate) round: u32,
    pub(crate) seconds: f64,
}

/// Medians over complete runs. Shares are of all CPU time of the node, 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Runs the figures are made of.
    pub(crate) complete: usize,
    /// From the first arrival to the last exit, seconds.
    pub(crate) makespan: Option<Summary>,
    /// Each run's.
    pub(crate) makespans: Vec<Makespan>,
    /// Mean time from slot to exit, seconds.
    pub(crate) run_time_mean: Option<f64>,
    /// Time from slot to exit that 95 % of the tasks of a run do not exceed (nearest rank),
    /// seconds.
    pub(crate) run_time_p95: Option<f64>,
    /// Mean time from arrival to exit, seconds.
    pub(crate) response_mean: Option<f64>,
    /// Time from arrival to exit that 95 % of the tasks of a run do not exceed, seconds.
    pub(crate) response_p95: Option<f64>,
    /// Run time of tasks that were active from begin to end (with static slots: of all)
    /// over that of one of their group by itself in the same round; all tasks of all runs
    /// together.
    pub(crate) slowdown: Option<Summary>,
    /// Run time of the tasks that began first, as many as there are CPUs, active or passive, over that of one of
    /// their group by itself in the same round; mean over all runs.
    pub(crate) first_tasks: Option<f64>,
    /// [`Figures::slowdown`] by group.
    pub(crate) slowdown_of_groups: Vec<GroupSlowdown>,
    /// Share of CPU time that was used.
    pub(crate) effective: Option<f64>,
    /// Share of CPU time idle with I/O outstanding.
    pub(crate) iowait: Option<f64>,
    /// Share of CPU time taken by the hypervisor.
    pub(crate) steal: Option<f64>,
    /// Share of CPU time used by others than the tasks.
    pub(crate) others: Option<f64>,
    /// CPU seconds of the tasks of a run.
    pub(crate) cpu_seconds: Option<f64>,
    /// Of all CPUs.
    pub(crate) context_switches_per_second: Option<f64>,
    /// Of the disk of the working directory.
    pub(crate) read_bytes: Option<f64>,
    /// Of the disk of the working directory.
    pub(crate) written_bytes: Option<f64>,
    /// The most that available memory fell in a run.
    pub(crate) memory_peak_bytes: Option<f64>,
    /// Tasks that ran at a time, mean over the run.
    pub(crate) slots_in_use: Option<f64>,
    /// What lrsd changed in a run.
    pub(crate) decisions: Option<DecisionMedians>,
}

/// Slowdown of the tasks of one group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct GroupSlowdown {
    pub(crate) group: String,
    pub(crate) slowdown: Summary,
}

/// Medians of [`Decisions`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct DecisionMedians {
    pub(crate) promoted: f64,
    pub(crate) demoted: f64,
    pub(crate) expanded: f64,
    pub(crate) shrunk: f64,
}

/// A group's task on the idle node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Alone {
    pub(crate) group: String,
    /// Seconds from slot to exit.
    pub(crate) run_time: Summary,
}

impl Figures {
    /// Of `runs`, all complete and of one setting; `alone` are the runs of single tasks.
    pub(super) fn new(runs: &[&Run], alone: &[&Run], cpus: u32) -> Figures {
        let makespans: Vec<Makespan> = runs
            .iter()
            .filter_map(|run| Some(Makespan { round: run.round, seconds: run.makespan_seconds? }))
            .collect();
        let seconds = makespans.iter().map(|makespan| makespan.seconds).collect();
        let over = |times: fn(&Task) -> Option<f64>, figure: fn(&Spread) -> f64| {
            median(runs, |run| {
                Spread::new(run.tasks.iter().filter_map(times).collect()).as_ref().map(figure)
            })
        };
        let p95: fn(&Spread) -> f64 = |times| times.quantile(0.95);
        let slowdowns = slowdowns(runs, alone);
        let of_group = |group: &&str| {
            let of_group = slowdowns.iter().filter(|(name, _)| name == group);
            Spread::new(of_group.map(|(_, slowdown)| *slowdown).collect())
        };
        Figures {
            complete: runs.len(),
            makespan: Spread::new(seconds).as_ref().map(Summary::from),
            makespans,
            run_time_mean: over(run_time, Spread::mean),
            run_time_p95: over(run_time, p95),
            response_mean: over(response, Spread::mean),
            response_p95: over(response, p95),
            slowdown_of_groups: groups(runs)
                .iter()
                .filter_map(|group| {
                    let slowdown = Summary::from(&of_group(group)?);
                    Some(GroupSlowdown { group: (*group).to_owned(), slowdown })
                })
                .collect(),
            slowdown: Spread::new(slowdowns.iter().map(|(_, slowdown)| *slowdown).collect())
                .as_ref()
                .map(Summary::from),
            first_tasks: first_tasks(runs, alone, cpus),
            effective: median(runs, |run| run.node.effective),
            iowait: median(runs, |run| run.node.iowait),
            steal: median(runs, |run| run.node.steal),
            others: median(runs, |run| run.node.others),
            cpu_seconds: median(runs, |run| {
                let share = run.node.effective? - run.node.others?;
                Some(share * run.lasted_seconds * f64::from(cpus))
            }),
            context_switches_per_second: median(runs, |run| {
                let switches = run.node.context_switches? as f64;
                (run.lasted_seconds > 0.0).then(|| switches / run.lasted_seconds)
            }),
            read_bytes: median(runs, |run| run.node.read_bytes.map(|bytes| bytes as f64)),
            written_bytes: median(runs, |run| run.node.written_bytes.map(|bytes| bytes as f64)),
            memory_peak_bytes: median(runs, |run| {
                run.node.memory_peak_bytes.map(|bytes| bytes as f64)
            }),
            slots_in_use: median(runs, mean_running),
            decisions: decisions(runs),
        }
    }
}

/// Seconds from slot to exit.
fn run_time(task: &Task) -> Option<f64> {
    Some(task.ended? - task.started?)
}

/// Seconds from arrival to exit.
fn response(task: &Task) -> Option<f64> {
    Some(task.ended? - task.arrived)
}

/// Median over the runs in which it is known.
fn median(runs: &[&Run], figure: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
    let values = runs.iter().filter_map(|run| figure(run)).collect();
    Spread::new(values).map(|values| values.median())
}

fn decisions(runs: &[&Run]) -> Option<DecisionMedians> {
    let of = |count: fn(&Decisions) -> u64| {
        median(runs, |run| run.decisions.as_ref().map(|decisions| count(decisions) as f64))
    };
    Some(DecisionMedians {
        promoted: of(|decisions| decisions.promoted)?,
        demoted: of(|decisions| decisions.demoted)?,
        expanded: of(|decisions| decisions.expanded)?,
        shrunk: of(|decisions| decisions.shrunk)?,
    })
}

/// Mean of the tasks that run. A point holds until the next, the first for the time before it
/// as well, and the last until the end, as the pictures draw it.
fn mean_running(run: &Run) -> Option<f64> {
    let later = || run.timeline.iter().skip(1).map(|point| point.at);
    let from = std::iter::once(0.0).chain(later());
    let to = later().chain([run.lasted_seconds]);
    let (mut area, mut time) = (0.0, 0.0);
    for (point, (from, to)) in run.timeline.iter().zip(from.zip(to)) {
        let lasted = (to - from).max(0.0);
        area += f64::from(point.running) * lasted;
        time += lasted;
    }
    (time > 0.0).then(|| area / time)
}

/// Names in the order they first come.
fn groups<'a>(runs: &[&'a Run]) -> Vec<&'a str> {
    let mut groups: Vec<&str> = Vec::new();
    for task in runs.iter().flat_map(|run| &run.tasks) {
        if !groups.contains(&&*task.group) {
            groups.push(&task.group);
        }
    }
    groups
}

/// Each group's time by itself, over the rounds.
pub(super) fn alone(runs: &[&Run]) -> Vec<Alone> {
    let of_group = |group: &str| {
        let rounds = runs.iter().filter_map(|run| alone_time(runs, run.round, group));
        Spread::new(rounds.collect())
    };
    let known = groups(runs).into_iter().filter_map(|group| {
        let run_time = Summary::from(&of_group(group)?);
        Some(Alone { group: group.to_owned(), run_time })
    });
    known.collect()
}

/// What a task of the group took by itself in this round: the median of those that ran.
fn alone_time(alone: &[&Run], round: u32, group: &str) -> Option<f64> {
    let of_round = alone.iter().filter(|run| run.round == round);
    let times = of_round
        .flat_map(|run| &run.tasks)
        .filter(|task| task.group == group && task.outcome == Outcome::Ok)
        .filter_map(|task| run_time(task).filter(|seconds| *seconds > 0.0));
    Spread::new(times.collect()).map(|times| times.median())
}

/// See [`Figures::first_tasks`].
fn first_tasks(runs: &[&Run], alone: &[&Run], cpus: u32) -> Option<f64> {
    let of_run = |run: &&Run| {
        let mut tasks: Vec<&Task> = run.tasks.iter().collect();
        let start = |task: &&Task| task.started.unwrap_or(f64::INFINITY);
        tasks.sort_by(|a, b| start(a).total_cmp(&start(b)));
        let first = tasks.into_iter().take(cpus as usize);
        let ratio =
            |task: &Task| Some(run_time(task)? / alone_time(alone, run.round, &task.group)?);
        first.filter_map(ratio).collect::<Vec<_>>()
    };
    Spread::new(runs.iter().flat_map(of_run).collect()).map(|all| all.mean())
}

/// Group and slowdown of every task that had an active slot from begin to end.
fn slowdowns<'a>(runs: &[&'a Run], alone: &[&Run]) -> Vec<(&'a str, f64)> {
    let mut slowdowns = Vec::new();
    for run in runs {
        for task in &run.tasks {
            // Without tiers both are unknown, and every slot is as good as an active one.
            let active = task.began_active != Some(false) && task.demoted != Some(true);
            if !active || task.outcome != Outcome::Ok {
                continue;
            }
            let alone = alone_time(alone, run.round, &task.group);
            if let (Some(seconds), Some(alone)) = (run_time(task), alone) {
                slowdowns.push((&*task.group, seconds / alone));
            }
        }
    }
    slowdowns
}
