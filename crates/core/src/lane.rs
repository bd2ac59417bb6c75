//! The I/O lane: which passive tasks compute promptly, because they compute in short bursts.
//!
//! An idle task cannot preempt when it wakes, so a passive task that waits for a disk between short
//! bursts starves beside active ones that compute, and the disk stands idle. In the lane it has
//! [`WEIGHT`], a part of the active weight. The lane is bounded, and no client can ask for it:
//!
//! - Entry ([`Lane::cycle`]) is by burst, CPU time per voluntary switch below [`SHORT_BURST`], and by
//!   computing rate, the part of a CPU that the task takes when it need not wait for one: the lowest
//!   comes first, until `share` of each active slot is promised. A task whose burst is not known yet
//!   may enter by the rate of its job. A high rate keeps nobody out who computes in short bursts: a
//!   starved task has no exact one, and beside others it often computes less than alone.
//! - A task has an allowance: its part of a CPU a second, [`DEPTH`] of it at once. [`Lane::look`]
//!   compares it with the CPU counters every [`LOOK`]. A task over it leaves at once, and comes back
//!   when the allowance is full again and a pause is over that doubles each time. Its job then lets no
//!   task in by its rate, until [`FORGIVEN`] is over.
//! - Over any time `T` the same tasks use at most `share * active * (T + DEPTH)` in the lane, and what
//!   they got within the last [`LOOK`]. A part is at least [`LEAST_PART`], which bounds their number.
//! - All of this is while the CPUs are saturated. A passive task on a free CPU takes it from nobody:
//!   nobody enters then, and what members use is not counted.
//!
//! A member leaves for what it is, and not for what it used, after [`BAD_CYCLES`] cycles in a row; so
//! a task that changes each cycle stays where it is, and one that changes more slowly pauses longer
//! each time. Either way weights are seldom written.
//!
//! Limits. The bound is for all CPUs together: members on one CPU take from the task there. A part is
//! at most `share`, so that one of them takes no more than that from one active task; a task that needs
//! more is out again at once, whatever else is free. Bursts are those of the thread that was seen
//! awake: a task with many busy threads may show a short burst, and is out by what it uses.
//! Nothing is seen of what the kernel's own threads do for a task, to write its blocks for instance.
//! A new task begins with a full allowance: a job of short tasks may add that of the lane each cycle.
//! A program that computes for longer than its allowance while it starts is out again at once, also
//! where its job is known; so is a task whose rate since its admission is far below that of now.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use super::event::EventKind;
use super::model::{JobKey, Level, TaskId, Tier};
use super::rate::Interval;
use super::shaper::Shaper;
use super::task::{Attachment, Task};
use crate::units::{BootTime, Moment, Share};

/// Weight of a member, as a part of the active weight. Of 0.1, 0.25 and 1 the least, and it brings a
/// writer with pauses to more than 0.9 of its speed alone; 0.03 to 0.8 (docs/performance.md).
pub const WEIGHT: f64 = 0.1;

/// How often the CPU counters of members are to be looked at.
pub const LOOK: Duration = Duration::from_millis(100);

/// CPU time per voluntary switch below which a task may enter.
pub const SHORT_BURST: Duration = Duration::from_millis(2);

/// Voluntary switches in an interval below which a burst says nothing.
const ENOUGH_SWITCHES: u64 = 10;

/// Bursts of a member may be so many times [`SHORT_BURST`].
const LEAVE_FACTOR: u32 = 2;

/// Seconds of its part that a task may use at once.
const DEPTH: f64 = 1.0;

/// The least part of a CPU that is promised to a task.
const LEAST_PART: f64 = 0.005;

/// A part is so many times the rate: what a task uses varies.
const HEADROOM: f64 = 1.5;

/// Cycles in a row in which a member may be what could not enter.
const BAD_CYCLES: u32 = 2;

/// The first pause after a member had to leave, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(3);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// After so long without having to leave, a task begins anew with the first pause.
const FORGIVEN: Duration = Duration::from_secs(1200);

/// What the lane may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Part of a CPU for each active slot; 0: nobody enters.
    pub share: Share,
    /// Active slots.
    pub active: u32,
    /// Whether the CPUs are saturated.
    pub contended: bool,
}

/// A passive task, as the cycle found it. `None`: not known.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The task.
    pub task: TaskId,
    /// Its job, of its user.
    pub job: Option<JobKey>,
    /// CPU time per voluntary switch.
    pub burst: Option<Duration>,
    /// Its own computing rate.
    pub rate: Option<Share>,
    /// The rate of its job.
    pub job_rate: Option<Share>,
    /// Its CPU counter.
    pub cpu: Option<Duration>,
}

/// Why a task came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It computes in short bursts.
    Bursts,
    /// The same of the job it begins for.
    Job,
    /// It used more than its part, or what it used cannot be read.
    Overrun,
    /// Its bursts are long now.
    Changed,
    /// The budget became less.
    Budget,
}

/// A task that came into the lane or went out of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// The task.
    pub task: TaskId,
    /// Whether it is in the lane now.
    pub entered: bool,
    /// Why.
    pub why: Why,
    /// Its part, in CPUs.
    pub part: f64,
}

#[derive(Clone, Debug)]
struct Member {
    part: f64,
    /// CPU seconds it may use now.
    credit: f64,
    looked: (BootTime, Duration),
    bad_cycles: u32,
    job: Option<JobKey>,
}

impl Member {
    /// How long until its allowance is full.
    fn refill(&self) -> Duration {
        let lacks = (self.part * DEPTH - self.credit).max(0.0);
        Duration::try_from_secs_f64(lacks / self.part).unwrap_or(LONGEST_PAUSE)
    }
}

#[derive(Clone, Copy, Debug)]
struct Bar {
    until: BootTime,
    pause: Duration,
}

impl Bar {
    fn is_forgiven(&self, now: BootTime) -> bool {
        now.since(self.until) >= FORGIVEN
    }
}

/// Who is in the lane, and who was.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    members: BTreeMap<TaskId, Member>,
    contended: bool,
    bars: BTreeMap<TaskId, Bar>,
    jobs_barred: BTreeMap<JobKey, BootTime>,
}

/// CPU time per voluntary switch of the thread that was seen awake; `None`: it says too little.
pub fn burst(interval: &Interval) -> Option<Duration> {
    let thread = interval.thread.filter(|thread| thread.voluntary >= ENOUGH_SWITCHES)?;
    Some(thread.ran.div_f64(thread.voluntary as f64))
}

impl Lane {
    /// Whether a task is in the lane.
    pub fn has(&self, task: TaskId) -> bool {
        self.members.contains_key(&task)
    }

    /// Who is in it.
    pub fn members(&self) -> impl ExactSizeIterator<Item = TaskId> {
        self.members.keys().copied()
    }

    /// Whether [`Lane::look`] wants the counters of the members now.
    pub fn is_watched(&self) -> bool {
        self.contended && !self.members.is_empty()
    }

    /// A cycle is over. `passive`: all members, and the other passive tasks that may enter. Those who
    /// leave come first.
    pub fn cycle(&mut self, budget: Budget, passive: &[Candidate], now: BootTime) -> Vec<Move> {
        self.bars.retain(|_, bar| !bar.is_forgiven(now));
        self.jobs_barred.retain(|_, since| now.since(*since) < FORGIVEN);
        let known: BTreeMap<TaskId, &Candidate> = passive.iter().map(|c| (c.task, c)).collect();
        let most = budget.share.value();
        self.contended = budget.contended;
        let mut gone = Vec::new();
        for (task, member) in &mut self.members {
            let Some(candidate) = known.get(task) else { continue };
            if !budget.contended {
                member.credit = member.part * DEPTH;
                member.looked = (now, candidate.cpu.unwrap_or(member.looked.1));
            }
            let long = candidate.burst.is_some_and(|burst| burst > SHORT_BURST * LEAVE_FACTOR);
            member.bad_cycles = if long { member.bad_cycles + 1 } else { 0 };
            if member.bad_cycles >= BAD_CYCLES {
                gone.push((*task, Why::Changed));
            } else if member.part > most {
                gone.push((*task, Why::Budget));
            }
        }
        let mut moves: Vec<Move> =
            gone.into_iter().filter_map(|(task, why)| self.put_out(task, why, now)).collect();

        let all = most * f64::from(budget.active);
        let mut promised: f64 = self.members.values().map(|member| member.part).sum();
        while promised > all + 1e-9 {
            let greatest = |a: &(&TaskId, &Member), b: &(&TaskId, &Member)| {
                a.1.part.total_cmp(&b.1.part).then(a.0.cmp(b.0))
            };
            let Some(task) = self.members.iter().max_by(greatest).map(|(task, _)| *task) else {
                break;
            };
            let Some(left) = self.put_out(task, Why::Budget, now) else { break };
            promised -= left.part;
            moves.push(left);
        }

        let mut wanted: Vec<(f64, &Candidate, Why)> = passive
            .iter()
            .filter(|candidate| budget.contended && !self.has(candidate.task))
            .filter(|candidate| self.bars.get(&candidate.task).is_none_or(|bar| bar.until <= now))
            .filter_map(|candidate| {
                let (rate, why) = self.entry_rate(candidate)?;
                Some((rate, candidate, why))
            })
            .collect();
        wanted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.task.cmp(&b.1.task)));
        for (rate, candidate, why) in wanted {
            let Some(cpu) = candidate.cpu else { continue };
            let part = (rate * HEADROOM).max(LEAST_PART).min(most);
            if why == Why::Job && rate > most || part <= 0.0 || promised + part > all + 1e-9 {
                continue;
            }
            promised += part;
            let member = Member {
                part,
                credit: part * DEPTH,
                looked: (now, cpu),
                bad_cycles: 0,
                job: candidate.job.clone(),
            };
            self.members.insert(candidate.task, member);
            moves.push(Move { task: candidate.task, entered: true, why, part });
        }
        moves
    }

    /// What a candidate would take of a CPU, if it may enter at all.
    fn entry_rate(&self, candidate: &Candidate) -> Option<(f64, Why)> {
        if let (Some(burst), Some(rate)) = (candidate.burst, candidate.rate) {
            return (burst < SHORT_BURST).then(|| (rate.value(), Why::Bursts));
        }
        // A starved program that is still starting computes; its job knows better.
        let job = candidate.job.as_ref()?;
        let rate = candidate.job_rate.filter(|_| !self.jobs_barred.contains_key(job))?;
        Some((rate.value(), Why::Job))
    }

    /// The CPU counters of members at `now`; `None`: it cannot be read. Answers those that have to
    /// leave.
    pub fn look(&mut self, now: BootTime, counters: &[(TaskId, Option<Duration>)]) -> Vec<Move> {
        let mut over = Vec::new();
        for (task, cpu) in counters {
            let Some(member) = self.members.get_mut(task) else { continue };
            let (at, before) = member.looked;
            let Some(cpu) = *cpu else {
                over.push(*task);
                continue;
            };
            // A counter that went backwards is another group's: it counts from here on.
            let used = cpu.saturating_sub(before).as_secs_f64();
            let refilled = member.credit + member.part * now.since(at).as_secs_f64();
            // What was used is taken from what was there, before the rest is cut at the depth.
            member.credit = (refilled - used).min(member.part * DEPTH);
            member.looked = (now, cpu);
            if member.credit < 0.0 {
                over.push(*task);
            }
        }
        over.into_iter().filter_map(|task| self.put_out(task, Why::Overrun, now)).collect()
    }

    /// A task has ended or was given back.
    pub fn forget(&mut self, task: TaskId) {
        self.members.remove(&task);
        self.bars.remove(&task);
    }

    /// A task is passive no longer. It keeps the pauses it had, and finds its allowance as it left it:
    /// a task that is promoted and demoted in turn gets no other.
    pub fn leave(&mut self, task: TaskId, now: BootTime) {
        let Some(member) = self.members.remove(&task) else { return };
        let full = now.after(member.refill());
        // Half of the first: the first time that it has to leave doubles it.
        let new = Bar { until: full, pause: FIRST_PAUSE / 2 };
        let bar = self.bars.entry(task).or_insert(new);
        bar.until = bar.until.max(full);
    }

    fn put_out(&mut self, task: TaskId, why: Why, now: BootTime) -> Option<Move> {
        let member = self.members.remove(&task)?;
        let refill = member.refill();
        let Member { part, job, .. } = member;
        let doubled = self.bars.get(&task).map(|bar| bar.pause.saturating_mul(2));
        let pause = doubled.unwrap_or(FIRST_PAUSE).min(LONGEST_PAUSE);
        // Whatever the pause: the allowance is full when it comes back, and not before.
        let until = now.after(pause.max(refill));
        self.bars.insert(task, Bar { until, pause });
        if why == Why::Overrun
            && let Some(job) = job
        {
            self.jobs_barred.insert(job, now);
        }
        Some(Move { task, entered: false, why, part })
    }
}

impl Why {
    fn as_str(self) -> &'static str {
        match self {
            Why::Bursts => "it computes in short bursts between waits",
            Why::Job => "tasks of its job compute little, in short bursts between waits",
            Why::Overrun => "it used more CPU than its part of the lane",
            Why::Changed => "its bursts are long now",
            Why::Budget => "tiers.lane_share of the active slots is promised to others",
        }
    }
}

impl Shaper {
    /// The weights a task should have; `None`: there is no such task.
    pub fn level(&self, id: TaskId) -> Option<Level> {
        let task = self.task(id)?;
        Some(match task.tier() {
            Tier::Passive if self.lane.has(id) => Level::Lane,
            tier => tier.into(),
        })
    }

    /// Who is in the I/O lane.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Once a cycle, after all that changes who is passive.
    pub(super) fn fill_lane(&mut self, contended: bool, now: Moment) {
        let share = self.policy.lane_share;
        if share.value() == 0.0 && self.lane.members.is_empty() {
            return;
        }
        let budget = Budget { share, active: self.slots.active_capacity, contended };
        let may = |task: &Task| {
            let shaped = task.attachment() != Attachment::None && !task.is_contested();
            // One that is given back, or that somebody else shapes, keeps what it has.
            self.lane.has(task.id) || task.tier() == Tier::Passive && task.is_placed() && shaped
        };
        let passive: Vec<Candidate> = self
            .tasks()
            .filter(|(_, task)| may(task))
            .map(|(id, task)| {
                let job = task.job_key().filter(|job| job.uid.is_some());
                Candidate {
                    task: id,
                    burst: task.counts.burst,
                    rate: task.counts.meter.computing_rate(),
                    job_rate: job.as_ref().and_then(|job| self.jobs.mean_rate(job)),
                    job,
                    cpu: task.counts.last.and_then(|(_, last)| last.cpu),
                }
            })
            .collect();
        let moves = self.lane.cycle(budget, &passive, now.boot);
        self.carry_out(moves, now);
    }

    /// The CPU counters of the members, between two cycles.
    pub(super) fn look_at_lane(&mut self, counters: &[(TaskId, Option<Duration>)], now: Moment) {
        let moves = self.lane.look(now.boot, counters);
        self.carry_out(moves, now);
    }

    fn carry_out(&mut self, moves: Vec<Move>, now: Moment) {
        for Move { task: id, entered, why, part } in moves {
            let Some(level) = self.level(id) else { continue };
            self.step.set_level(id, level);
            let counts = self.task(id).map(|task| &task.counts);
            let rate = counts.and_then(|counts| counts.meter.computing_rate());
            let burst = counts.and_then(|counts| counts.burst).map(|burst| burst.as_secs_f64());
            let kind = if entered { EventKind::LaneIn } else { EventKind::LaneOut };
            self.record(now, kind, Some(id.to_string()), |event| {
                event.reason = Some(why.as_str().to_owned());
                event.inputs.insert("part".into(), json!(part));
                event.inputs.insert("computing_rate".into(), json!(rate));
                event.inputs.insert("burst_seconds".into(), json!(burst));
            });
        }
    }
}

#[cfg(test)]
mod tests;
