//! Queues of jobs: how long a node takes for them with LRS, and with a fixed number of slots.
//!
//! A queue is four jobs of tasks that all wait from the start, one job after another or interleaved.
//! The tasks of a job are alike: so much work, so much of it computing (the rate of a task alone),
//! the rest synchronous disk requests, in rounds of 500 ms. With LRS each task is a request that waits,
//! and lrsd's loop decides ([`lrs_sim::pretend`]); a task begins to work when its request is answered. With
//! a fixed number of slots the first so many of the queue run side by side at equal weights and each end
//! starts the next, as `xargs -P` does.
//!
//! Everything follows from the seed. Limits: those of [`lrs_sim::node`]; a move into a group takes no
//! time, and no task writes back later.

use std::fmt;
use std::time::Duration;

use clap::Args;
use fastrand::Rng;
use lrs_config::{Auto, Config};
use lrs_core::hint::Hint;
use lrs_core::model::{Label, Labels};
use lrs_core::order::QueueOrder;
use lrs_core::probe::Formula;
use lrs_core::units::{Pid, Share};
use lrs_sim::load::Load;
use lrs_sim::node::{Hardware, Node};
use lrs_sim::pretend::{BOOT, HOME, Machine};
use lrs_sim::tree::ROOT;

use crate::simulation::spread::Spread;

/// Slots a core that LRS is compared with.
pub const STATIC: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0];

/// The one of them that all others are compared with.
const BASE: usize = 2;

/// A way to run LRS.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    /// What its column is called.
    pub name: &'static str,
    /// Of expansion.
    pub formula: Formula,
    /// Of the queue.
    pub order: QueueOrder,
    /// Cycles follow the tasks.
    pub follows: bool,
    /// Jobs have an admin's hints, and those of this share of them are wrong: 1 less the rate.
    pub hints_wrong: Option<f64>,
}

/// As it is shipped.
pub const SHIPPED: Way = Way {
    name: "LRS",
    formula: Formula::Probe,
    order: QueueOrder::Fit,
    follows: false,
    hints_wrong: None,
};

/// Those that are compared.
pub const WAYS: [Way; 4] = [
    SHIPPED,
    Way { name: "complement", order: QueueOrder::Complement, ..SHIPPED },
    Way { name: "formula", formula: Formula::Lrs, ..SHIPPED },
    Way { name: "period", follows: true, ..SHIPPED },
];

const JOBS: usize = 4;

/// As long as nothing ends.
const LONG: Duration = Duration::from_secs(3600);

/// Requests at once of a disk that is deep: more than the tasks have.
const DEEP: u32 = 1024;

/// What `lrs-place queue` takes.
#[derive(Debug, Args)]
pub struct QueueArguments {
    /// CPUs of the node; several with commas
    #[arg(long, value_delimiter = ',', default_value = "4")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: Vec<u32>,
    /// Random queues of each setting
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rounds: u64,
    /// Tasks of 0.5 to 3 s in place of 5 to 30 s
    #[arg(long)]
    short: bool,
    /// Seed of the first queue; the others have the next ones
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What hints of the rates of jobs change, right ones and wrong ones: medians with their intervals
    #[arg(long)]
    hints: bool,
}

impl QueueArguments {
    /// The head of the table, in Markdown.
    pub fn head(&self) -> String {
        if self.hints { hints_head() } else { head() }
    }

    /// The rows of the table, each once it is known.
    pub fn rows(&self) -> impl Iterator<Item = String> + '_ {
        let settings = self.cpus.iter().flat_map(move |cpus| {
            [DEEP, 1].into_iter().flat_map(move |channels| {
                [false, true].map(|interleaved| Setting {
                    cpus: *cpus,
                    channels,
                    interleaved,
                    short: self.short,
                })
            })
        });
        settings.map(|setting| match self.hints {
            true => hints(setting, self.seed, self.rounds),
            false => compare(setting, self.seed, self.rounds).to_string(),
        })
    }
}

/// Disk requests in a round of a task that computes nothing.
const REQUESTS: u32 = 10;

/// A disk request alone.
const REQUEST: Duration = Duration::from_millis(50);

/// A node and the way its queue is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// CPUs.
    pub cpus: u32,
    /// Requests that the disk serves at once.
    pub channels: u32,
    /// The tasks of all jobs take turns in the queue; else one job follows another.
    pub interleaved: bool,
    /// Tasks take 0.5 to 3 s alone; else 5 to 30 s.
    pub short: bool,
}

impl Setting {
    /// The first cells of a row.
    fn cells(self) -> String {
        let disk = if self.channels == 1 { "serial" } else { "deep" };
        let jobs = if self.interleaved { "interleaved" } else { "one after another" };
        format!("| {} | {disk} | {jobs} |", self.cpus)
    }
}

/// A task of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queued {
    /// Number of its job.
    pub job: usize,
    /// What it does.
    pub load: Load,
}

/// How long a queue took, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Took {
    /// Until the last task had ended.
    pub makespan: f64,
    /// Until a task had ended, on average: all were asked for at once.
    pub response: f64,
}

/// A random queue: four jobs of `2 x cpus` tasks.
pub fn random(seed: u64, setting: Setting) -> Vec<Queued> {
    let mut rng = Rng::with_seed(seed);
    let jobs: Vec<Load> = (0..JOBS).map(|_| load(&mut rng, setting.short)).collect();
    let each = 2 * setting.cpus as usize;
    let job = |place: usize| if setting.interleaved { place % JOBS } else { place / each };
    (0..JOBS * each).map(|place| Queued { job: job(place), load: jobs[job(place)] }).collect()
}

fn load(rng: &mut Rng, short: bool) -> Load {
    let requests = rng.u32(0..=REQUESTS);
    let cpu = (REQUESTS - requests) * REQUEST;
    let rounds = Some(rng.u32(if short { 1..=6 } else { 10..=60 }));
    Load { requests, rounds, ..Load::hog(cpu) }
}

fn hardware(setting: Setting) -> Hardware {
    let Setting { cpus, channels, .. } = setting;
    Hardware { cpus, channels, request: REQUEST, ..Hardware::default() }
}

/// Seconds in which the tasks had ended, as they end.
#[derive(Default)]
struct Ends(Vec<f64>);

impl Ends {
    fn add(&mut self, ended: &[Pid], at: Duration) {
        self.0.extend(ended.iter().map(|_| at.as_secs_f64()));
    }

    fn took(&self) -> Took {
        let makespan = self.0.iter().copied().fold(0.0, f64::max);
        Took { makespan, response: self.0.iter().sum::<f64>() / self.0.len().max(1) as f64 }
    }
}

/// Runs a queue with `slots` slots.
pub fn with_slots(queue: &[Queued], setting: Setting, slots: usize) -> Took {
    let mut node = Node::boot(hardware(setting), BOOT);
    let mut queue = queue.iter();
    let (mut running, mut ends) = (0, Ends::default());
    loop {
        for task in queue.by_ref().take(slots.max(1) - running) {
            node.tree.start(ROOT, 0, task.load);
            running += 1;
        }
        if running == 0 {
            return ends.took();
        }
        let ended = node.run_to_end(LONG);
        ends.add(&ended, node.now().boot.0);
        running -= ended.len();
    }
}

/// Runs a queue with LRS.
pub fn with_lrs(queue: &[Queued], setting: Setting, way: Way) -> Took {
    let mut config = Config::default();
    (config.slots.formula, config.slots.order) = (way.formula, way.order);
    if way.follows {
        config.daemon.sample_period = Auto::Auto;
    }
    let mut machine = Machine::boot(hardware(setting), config);
    let mut waiting = Vec::new();
    for task in queue {
        let process = machine.world().start_in(HOME, 0);
        // Three letters and a digit are a label.
        let job = Label::new(&format!("job{}", task.job)).ok();
        let hint = hint(task, way).map(Hint::new);
        let labels = Labels { job, hint, ..Labels::default() };
        waiting.push((machine.admit(process, labels, None), process, task.load));
    }
    machine.finish_all();
    let mut ends = Ends::default();
    while ends.0.len() < queue.len() {
        waiting.retain_mut(|(answer, process, load)| {
            let admitted = matches!(answer.try_recv(), Ok(Ok(_)));
            if admitted {
                machine.world().node().tree.begin(process.pid, *load);
            }
            !admitted
        });
        let ended = machine.step(LONG);
        ends.add(&ended, machine.now().boot.0);
    }
    ends.took()
}

/// The rate that is expected of a task. The first jobs have the wrong ones; their rates are random.
fn hint(task: &Queued, way: Way) -> Option<Share> {
    let disk = f64::from(task.load.requests) * REQUEST.as_secs_f64();
    let rate = 1.0 - disk / (f64::from(REQUESTS) * REQUEST.as_secs_f64());
    let is_wrong = (task.job as f64) < way.hints_wrong? * JOBS as f64;
    Some(Share::clamped(if is_wrong { 1.0 - rate } else { rate }))
}

/// Shares of jobs with a wrong hint that are compared.
const WRONG: [f64; 4] = [0.0, 0.25, 0.5, 1.0];

/// A figure of a queue: its name, and how it is had.
type Figure = (&'static str, fn(&Took) -> f64);

/// What is compared of a queue.
const FIGURES: [Figure; 2] =
    [("makespan", |took| took.makespan), ("mean response", |took| took.response)];

/// The head of the table of [`hints`].
fn hints_head() -> String {
    let wrong: Vec<String> = WRONG.iter().map(|wrong| format!(" {} % |", wrong * 100.0)).collect();
    format!(
        "| CPUs | disk | jobs | order | ratio of |{}\n|{}",
        wrong.concat(),
        "---|".repeat(WRONG.len() + 5)
    )
}

/// Rows: each figure with hints over the same without hints, queue by queue, as median and interval.
fn hints(setting: Setting, seed: u64, rounds: u64) -> String {
    let mut rows = Vec::new();
    for (order, way) in [("fit", WAYS[0]), ("complement", WAYS[1])] {
        let mut took = [const { Vec::new() }; WRONG.len()];
        for seed in seed..seed + rounds {
            let queue = random(seed, setting);
            let without = with_lrs(&queue, setting, way);
            for (took, wrong) in took.iter_mut().zip(WRONG) {
                let way = Way { hints_wrong: Some(wrong), ..way };
                took.push((with_lrs(&queue, setting, way), without));
            }
        }
        for (name, figure) in FIGURES {
            let cells = took.iter().map(|took| {
                let ratio = |(with, without): &(Took, Took)| figure(with) / figure(without);
                let spread = Spread::of(&took.iter().map(ratio).collect::<Vec<_>>());
                spread.map_or_else(String::new, |spread| match spread.interval() {
                    None => format!(" {:.2} |", spread.median),
                    Some(in_it) => format!(
                        " {:.2} ({:.2} to {:.2}) |",
                        spread.median,
                        in_it.start(),
                        in_it.end()
                    ),
                })
            });
            let cells: String = cells.collect();
            rows.push(format!("{} {order} | {name} |{cells}", setting.cells()));
        }
    }
    rows.join("\n")
}

/// Means over many queues of one setting, each a ratio to the same queue with two slots a core.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Of these queues.
    pub setting: Setting,
    /// With LRS in each of its [`WAYS`].
    pub lrs: Vec<Took>,
    /// With [`STATIC`] slots a core.
    pub fixed: Vec<Took>,
}

/// Runs `rounds` random queues from `seed` on.
pub fn compare(setting: Setting, seed: u64, rounds: u64) -> Row {
    let mut lrs = [Mean::default(); WAYS.len()];
    let mut fixed = [Mean::default(); STATIC.len()];
    for seed in seed..seed + rounds {
        let queue = random(seed, setting);
        let slots = |a_core: f64| (a_core * f64::from(setting.cpus)).round() as usize;
        let took: Vec<Took> =
            STATIC.iter().map(|a_core| with_slots(&queue, setting, slots(*a_core))).collect();
        let base = took[BASE];
        for (mean, took) in fixed.iter_mut().zip(took) {
            mean.add(took, base);
        }
        for (mean, way) in lrs.iter_mut().zip(WAYS) {
            mean.add(with_lrs(&queue, setting, way), base);
        }
    }
    let ratios = |means: &[Mean]| means.iter().map(|mean| mean.ratio(rounds)).collect();
    Row { setting, lrs: ratios(&lrs), fixed: ratios(&fixed) }
}

/// Geometric means, as sums of logarithms.
#[derive(Clone, Copy, Default)]
struct Mean(Took);

impl Mean {
    fn add(&mut self, took: Took, base: Took) {
        self.0.makespan += (took.makespan / base.makespan).ln();
        self.0.response += (took.response / base.response).ln();
    }

    fn ratio(&self, rounds: u64) -> Took {
        let mean = |sum: f64| (sum / rounds.max(1) as f64).exp();
        Took { makespan: mean(self.0.makespan), response: mean(self.0.response) }
    }
}

/// The head of a table of [`Row`]s, in Markdown.
fn head() -> String {
    let fixed: Vec<String> = STATIC.iter().map(|a_core| format!(" {a_core} |")).collect();
    let ways: Vec<String> = WAYS.iter().map(|way| format!(" {} |", way.name)).collect();
    let dashes = "---|".repeat(STATIC.len() + WAYS.len() + 4);
    format!("| CPUs | disk | jobs | ratio of |{}{}\n|{dashes}", ways.concat(), fixed.concat())
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |f: &mut fmt::Formatter<'_>, what: &str, value: fn(&Took) -> f64| {
            write!(f, "{} {what} |", self.setting.cells())?;
            let all = self.lrs.iter().chain(&self.fixed);
            all.map(value).try_for_each(|ratio| write!(f, " {ratio:.2} |"))
        };
        let [(makespan, of_makespan), (response, of_response)] = FIGURES;
        line(f, makespan, of_makespan)?;
        writeln!(f)?;
        line(f, response, of_response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTING: Setting = Setting { cpus: 2, channels: 8, interleaved: true, short: false };

    #[test]
    fn the_same_seed_is_the_same_table() {
        let row = |seed| compare(SETTING, seed, 1);
        assert_eq!(row(3), row(3));
        assert_ne!(row(3), row(4));
    }

    #[test]
    fn hogs_take_what_their_work_is_with_any_number_of_slots() {
        let load = Load { rounds: Some(10), ..Load::hog(Duration::from_millis(500)) };
        let queue: Vec<Queued> = (0..8).map(|place| Queued { job: place % 2, load }).collect();
        for slots in [2, 4, 8] {
            let took = with_slots(&queue, SETTING, slots);
            assert!((took.makespan - 20.0).abs() < 0.1, "{slots}: {took:?}");
        }
        let took = with_lrs(&queue, SETTING, SHIPPED);
        assert!((took.makespan - 20.0).abs() < 0.2, "{took:?}");
        let shared = with_slots(&queue, SETTING, 8);
        assert!(took.response < 0.75 * shared.response, "{took:?}, {shared:?}");
    }

    #[test]
    fn jobs_take_turns_or_follow_each_other() {
        let order = |interleaved| {
            let queue = random(1, Setting { interleaved, ..SETTING });
            queue.iter().map(|task| task.job).collect::<Vec<_>>()
        };
        assert_eq!(order(true)[..6], [0, 1, 2, 3, 0, 1]);
        assert_eq!(order(false)[..6], [0, 0, 0, 0, 1, 1]);
    }
}
