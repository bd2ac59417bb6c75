//! The I/O lane: which passive tasks compute promptly, because they compute in short bursts.
//!
//! An idle task cannot preempt when it wakes, so a passive task that waits for a disk between short
//! bursts starves beside active ones that compute, and the disk stands idle. In the lane it has
//! [`WEIGHT`], a part of the active weight. The lane is bounded, and no client can ask for it:
//!
//! - Entry ([`Lane::cycle`]) is by burst, CPU time per voluntary switch below [`SHORT_BURST`], and by
//!   computing rate, the part of a CPU that the task takes when it need not wait for one: the lowest
//!   comes first, until `share` of each active slot is promised. A task without a known burst may
//!   enter by the rate of its job. A high rate keeps out no task that computes in short bursts: a
//!   starved task has no exact one, and beside others it often computes less than alone.
//! - A task has an allowance: its part of a CPU a second, [`DEPTH`] of it at once. [`Lane::look`]
//!   compares it with the CPU counters every [`LOOK`]. A task over it gets [`SLOW_WEIGHT`] at once, with
//!   which the kernel itself holds it to [`SLOW_PART`] of a busy CPU; where that is not left of the
//!   budget, it leaves. It has [`WEIGHT`] again when its allowance is full and a pause is over that
//!   doubles each time.
//! - So a task that needs more than its part has what its part is worth, and so has a program that
//!   computes while it starts. One that shows no short bursts within [`SLOW_CYCLES`] is neither: it
//!   leaves, and its job lets no task in by its rate until [`FORGIVEN`] is over.
//! - What a job did before lets a task in, behind those that show bursts of their own, and no longer: a
//!   slow one has [`WEIGHT`] again by its own short bursts alone. Those that have shown none by
//!   [`OWN_BURSTS_AFTER`] make room for a task that shows them, whatever their parts are, so that
//!   no task stays in the lane by the past of its job.
//! - Over any time `T` all tasks together take at most `share * active * (T + DEPTH)` from active ones,
//!   and what they got within the last [`LOOK`]: a task enters where that leaves it a full allowance, so
//!   new ones that come and go add nothing. A part is at least [`LEAST_PART`], which bounds their number.
//! - While the CPUs are not saturated no task enters, for a free CPU is free for an idle task too, and
//!   after [`CALM_CYCLES`] such cycles all leave. Until then they are looked at as ever: the CPU of one
//!   active task may be busy where others are free. A task over its allowance leaves then, and comes
//!   back as soon as that is full.
//! - A task that enters by its own bursts takes the place of a slow one with no smaller part, or of one
//!   with twice its part, so that the smallest demand comes first whoever was there before.
//!
//! A member leaves for what it is, and not for what it used, after [`BAD_CYCLES`] cycles in a row in
//! which the last closed interval says so; so a task that changes each cycle stays where it is, and one
//! that changes more slowly pauses longer each time. Either way weights are seldom written.
//!
//! When a burst is known. A burst is that of a whole interval ([`super::rate`]), of a thread that was
//! seen awake when it began. Of a young task each cycle is an interval. Of an old one an interval is up
//! to 48 s and a cycle long, and a thread is looked for only where the counters leave its rate open. So
//! an old task that changes enters or leaves for its bursts 48 to 96 s later, and two cycles.
//!
//! Limits. The bound is for all CPUs together: members on one CPU take from the task there. A part is
//! at most `share`, so that one of them takes no more than that from one active task. Bursts are those of the thread that was seen
//! awake: a task with many busy threads may show a short burst, and is out by what it uses.
//! Nothing is seen of what the kernel's own threads do for a task, to write its blocks for instance.
//! A task that computes far more now than in the mean since its admission has too small a part, and is
//! slow.
//! A daemon that is killed leaves the weights of its members for the next one to take back.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::jobs::MAX_JOBS;
use super::model::{JobKey, Level, TaskId};
use super::rate::Interval;
use crate::units::{BootTime, Share};

/// Weight of a member, as a part of the active weight. Of 0.1, 0.25 and 1 the least, and it brings a
/// writer with pauses to more than 0.9 of its speed alone; 0.03 to 0.8 (docs/experiments/io-lane.md).
pub const WEIGHT: f64 = 0.1;

/// Weight of a member that is over its part, as a part of the active weight: of 0.02 and 0.03, with
/// which it has 10 to 50 times of what an idle one has, the one that fits the budget of one slot.
pub const SLOW_WEIGHT: f64 = 0.02;

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

/// Seconds after which the use of a CPU by earlier members keeps no task out any more.
const LONGEST_DEBT: f64 = 60.0;

/// The least part of a CPU that is promised to a task.
const LEAST_PART: f64 = 0.005;

/// The part of a task with [`SLOW_WEIGHT`]: on a busy CPU it gets no more.
const SLOW_PART: f64 = SLOW_WEIGHT;

/// How long after its entry a task may keep others out by the rate of its job.
const OWN_BURSTS_AFTER: Duration = Duration::from_secs(1);

/// Cycles in a row for which a slow task may show no burst.
const SLOW_CYCLES: u32 = 20;

/// A part is so many times the rate: what a task uses varies.
const HEADROOM: f64 = 1.5;

/// Cycles in a row in which a member may be what could not enter.
const BAD_CYCLES: u32 = 2;

/// Cycles in a row without saturated CPUs after which the lane is empty.
const CALM_CYCLES: u32 = 4;

/// The first pause after a member had to leave, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(3);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// After so long without having to leave, a task begins anew with the first pause.
const FORGIVEN: Duration = Duration::from_secs(1200);

/// What the lane may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Part of a CPU for each active slot; 0: no task enters.
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
    /// It used more than its part.
    Overrun,
    /// It used less than its part for a while, after it had used more.
    Less,
    /// It used more than its part for long, and shows no short bursts.
    Computes,
    /// What it used cannot be read.
    Unreadable,
    /// It used more than its part, and CPUs were free.
    Free,
    /// CPUs have been free for a while.
    Calm,
    /// The daemon stops, and no other looks at what it uses.
    Stop,
    /// Its bursts are long now.
    Changed,
    /// The budget became less.
    Budget,
}

/// A task that came into the lane, went out of it or has another weight in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// The task.
    pub task: TaskId,
    /// Its weight now, as a part of the active weight; `None`: it is not in the lane.
    pub weight: Option<f64>,
    /// Why.
    pub why: Why,
    /// Its part, in CPUs.
    pub part: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Member {
    part: f64,
    /// CPU seconds it may use now.
    credit: f64,
    looked: (BootTime, Duration),
    bad_cycles: u32,
    /// When it entered.
    entered: BootTime,
    /// It has shown short bursts of its own.
    has_bursts: bool,
    /// It has [`SLOW_WEIGHT`]; for how many cycles in a row it has shown no burst since.
    slow: Option<u32>,
    job: Option<JobKey>,
}

impl Member {
    /// How long until its allowance is full.
    fn refill(&self) -> Duration {
        let lacks = (self.part * DEPTH - self.credit).max(0.0);
        Duration::try_from_secs_f64(lacks / self.part).unwrap_or(LONGEST_PAUSE)
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lane {
    members: BTreeMap<TaskId, Member>,
    /// The most of a part, and of all parts.
    most: f64,
    all: f64,
    /// CPU seconds that all tasks together may take now, whoever they are.
    pot: f64,
    /// When that was counted; `None`: it is full.
    counted: Option<BootTime>,
    /// Cycles in a row without saturated CPUs.
    calm: u32,
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

    /// The level of a task in the lane.
    pub(super) fn level(&self, task: TaskId) -> Option<Level> {
        let member = self.members.get(&task)?;
        Some(if member.slow.is_some() { Level::SlowLane } else { Level::Lane })
    }

    /// Whether it has no member.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Who is in it.
    pub fn members(&self) -> impl ExactSizeIterator<Item = TaskId> {
        self.members.keys().copied()
    }

    /// A cycle is over. `passive`: all members, and the other passive tasks that may enter. Those who
    /// leave come first.
    pub fn cycle(&mut self, budget: Budget, passive: &[Candidate], now: BootTime) -> Vec<Move> {
        self.bars.retain(|_, bar| !bar.is_forgiven(now));
        self.jobs_barred.retain(|_, since| now.since(*since) < FORGIVEN);
        let known: BTreeMap<TaskId, &Candidate> = passive.iter().map(|c| (c.task, c)).collect();
        let most = budget.share.value();
        let all = most * f64::from(budget.active) + 1e-9;
        (self.most, self.all) = (most, all);
        self.refill(now);
        self.calm = if budget.contended { 0 } else { self.calm.saturating_add(1) };
        let mut gone = Vec::new();
        for (task, member) in &mut self.members {
            let Some(candidate) = known.get(task) else { continue };
            member.has_bursts |= candidate.burst.is_some_and(|burst| burst < SHORT_BURST);
            let long = candidate.burst.is_some_and(|burst| burst > SHORT_BURST * LEAVE_FACTOR);
            member.bad_cycles = if long { member.bad_cycles + 1 } else { 0 };
            if let Some(silent) = &mut member.slow {
                *silent = if candidate.burst.is_none() { *silent + 1 } else { 0 };
            }
            if member.bad_cycles >= BAD_CYCLES {
                gone.push((*task, Why::Changed));
            } else if member.slow.is_some_and(|silent| silent > SLOW_CYCLES) {
                gone.push((*task, Why::Computes));
            } else if member.part > most {
                gone.push((*task, Why::Budget));
            } else if self.calm >= CALM_CYCLES {
                gone.push((*task, Why::Calm));
            }
        }
        let mut moves: Vec<Move> =
            gone.into_iter().filter_map(|(task, why)| self.put_out(task, why, now)).collect();

        let mut promised = self.promised();
        while promised > all {
            let Some(task) = self.greatest(0.0) else { break };
            let Some(left) = self.put_out(task, Why::Budget, now) else { break };
            promised -= left.part;
            moves.push(left);
        }
        for candidate in passive {
            moves.extend(self.speed_up(candidate, now));
        }
        promised = self.promised();

        let mut wanted: Vec<(f64, &Candidate, Why)> = passive
            .iter()
            .filter(|candidate| budget.contended && !self.has(candidate.task))
            .filter(|candidate| self.bars.get(&candidate.task).is_none_or(|bar| bar.until <= now))
            .filter_map(|candidate| {
                let (rate, why) = self.entry_rate(candidate)?;
                Some((rate, candidate, why))
            })
            .collect();
        // What a task is itself comes before what its job was.
        let by_job = |why: Why| why == Why::Job;
        wanted.sort_by(|a, b| {
            let by_rate = a.0.total_cmp(&b.0).then(a.1.task.cmp(&b.1.task));
            by_job(a.2).cmp(&by_job(b.2)).then(by_rate)
        });
        let mut entered = Vec::new();
        for (rate, candidate, why) in wanted {
            let Some(cpu) = candidate.cpu else { continue };
            let part = self.part_of(rate);
            if why == Why::Job && rate > most || part <= 0.0 {
                continue;
            }
            if why == Why::Bursts {
                moves.extend(self.make_room(part, now));
                promised = self.promised();
            }
            let instead_of = if promised + part <= all {
                None
            } else if let Some(task) = self.greatest(2.0 * part).filter(|_| why == Why::Bursts) {
                Some(task)
            } else {
                continue;
            };
            if !self.has_left(part, instead_of) {
                continue;
            }
            if let Some(left) = instead_of.and_then(|task| self.put_out(task, Why::Budget, now)) {
                promised -= left.part;
                moves.push(left);
            }
            promised += part;
            let member = Member {
                part,
                credit: part * DEPTH,
                looked: (now, cpu),
                bad_cycles: 0,
                entered: now,
                has_bursts: why == Why::Bursts,
                slow: None,
                job: candidate.job.clone(),
            };
            self.members.insert(candidate.task, member);
            entered.push(Move { task: candidate.task, weight: Some(WEIGHT), why, part });
        }
        moves.extend(entered);
        moves
    }

    fn promised(&self) -> f64 {
        self.members.values().map(|member| member.part).sum()
    }

    fn part_of(&self, rate: f64) -> f64 {
        (rate * HEADROOM).max(LEAST_PART).min(self.most)
    }

    fn refill(&mut self, now: BootTime) {
        let passed =
            self.counted.replace(now).map_or(LONGEST_DEBT, |at| now.since(at).as_secs_f64());
        let pot = self.pot.max(-self.all * LONGEST_DEBT) + self.all * passed;
        self.pot = pot.min(self.all * DEPTH);
    }

    /// Whether a full allowance of a member with `part` is left when all but one have used theirs.
    fn has_left(&self, part: f64, all_but: Option<TaskId>) -> bool {
        let others = self.members.iter().filter(|(task, _)| Some(**task) != all_but);
        let theirs: f64 = others.map(|(_, member)| member.credit.max(0.0)).sum();
        self.pot - theirs + 1e-9 >= part * DEPTH
    }

    /// Puts out slow members that have shown no short bursts in time, the greatest part first, until a
    /// full allowance of `part` is free; none if that would not be free without all of them.
    fn make_room(&mut self, part: f64, now: BootTime) -> Vec<Move> {
        let in_time = |member: &Member| now.since(member.entered) < OWN_BURSTS_AFTER;
        let silent = |member: &Member| member.slow.is_some() && !member.has_bursts;
        let silent = self.members.iter().filter(|(_, m)| silent(m) && !in_time(m));
        let mut silent: Vec<_> = silent.map(|(task, member)| (member.part, *task)).collect();
        silent.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        let is_room = |put_out: &[(f64, TaskId)]| {
            let stay =
                self.members.iter().filter(|(id, _)| put_out.iter().all(|(_, out)| out != *id));
            let (mut parts, mut credit) = (0.0, 0.0);
            for (_, member) in stay {
                parts += member.part;
                credit += member.credit.max(0.0);
            }
            parts + part <= self.all && self.pot - credit + 1e-9 >= part * DEPTH
        };
        let enough = (0..=silent.len()).find(|count| is_room(&silent[..*count])).unwrap_or(0);
        silent.truncate(enough);
        silent.iter().filter_map(|(_, task)| self.put_out(*task, Why::Budget, now)).collect()
    }

    /// A slow member that has not less than half of `least`, or else the one with the greatest part, if
    /// that is `least` or more.
    fn greatest(&self, least: f64) -> Option<TaskId> {
        let is_slow = |member: &Member| member.slow.is_some() && member.part >= least / 2.0;
        let may = self.members.iter().filter(|(_, m)| is_slow(m) || m.part >= least);
        let greatest = may.max_by(|a, b| {
            let by_part = a.1.part.total_cmp(&b.1.part).then(a.0.cmp(b.0));
            a.1.slow.is_some().cmp(&b.1.slow.is_some()).then(by_part)
        });
        greatest.map(|(task, _)| *task)
    }

    /// Gives a member that is over its part the weight of its part, if the budget has room for it.
    fn slow_down(&mut self, task: TaskId, now: BootTime) -> Option<Move> {
        let promised = self.promised();
        let (most, all) = (self.most, self.all);
        let member = self.members.get_mut(&task).filter(|member| member.slow.is_none())?;
        let part = member.part.max(SLOW_PART);
        if part > most || promised - member.part + part > all {
            return None;
        }
        (member.part, member.slow) = (part, Some(0));
        self.bar(task, Duration::ZERO, now);
        Some(Move { task, weight: Some(SLOW_WEIGHT), why: Why::Overrun, part })
    }

    /// Gives a slow member the weight of the lane again, once it may come back.
    fn speed_up(&mut self, candidate: &Candidate, now: BootTime) -> Option<Move> {
        let task = candidate.task;
        let member = self.members.get(&task).filter(|member| member.slow.is_some())?;
        let is_full = member.credit >= member.part * DEPTH;
        if !is_full || member.bad_cycles > 0 || self.bars.get(&task).is_some_and(|b| b.until > now)
        {
            return None;
        }
        // The rate of its job has had its turn.
        let (rate, _) = self.entry_rate(candidate).filter(|(_, why)| *why == Why::Bursts)?;
        let part = self.part_of(rate);
        if self.promised() - member.part + part > self.all || !self.has_left(part, Some(task)) {
            return None;
        }
        let member = self.members.get_mut(&task)?;
        (member.part, member.credit, member.slow) = (part, part * DEPTH, None);
        Some(Move { task, weight: Some(WEIGHT), why: Why::Less, part })
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

    /// The CPU counters of members at `now`; `None`: it cannot be read. Answers those that are over
    /// their parts.
    pub fn look(&mut self, now: BootTime, counters: &[(TaskId, Option<Duration>)]) -> Vec<Move> {
        let mut over = Vec::new();
        self.refill(now);
        for (task, cpu) in counters {
            let Some(member) = self.members.get_mut(task) else { continue };
            let (at, before) = member.looked;
            let Some(cpu) = *cpu else {
                over.push((*task, Why::Unreadable));
                continue;
            };
            // A counter that went backwards is another group's: it counts from here on.
            let used = cpu.saturating_sub(before).as_secs_f64();
            let refill = member.part * now.since(at).as_secs_f64();
            let refilled = member.credit + refill;
            self.pot -= if member.slow.is_some() { used.min(refill) } else { used };
            // What was used is taken from what was there, before the rest is cut at the depth.
            let full = member.part * DEPTH;
            member.credit = (refilled - used).min(full);
            member.looked = (now, cpu);
            if member.slow.is_some() {
                // What it uses beyond its part it takes from no active task.
                member.credit = member.credit.max(-full);
            } else if member.credit < 0.0 {
                over.push((*task, if self.calm == 0 { Why::Overrun } else { Why::Free }));
            }
        }
        let moved = |(task, why)| {
            let slower = if why == Why::Overrun { self.slow_down(task, now) } else { None };
            slower.or_else(|| self.put_out(task, why, now))
        };
        over.into_iter().filter_map(moved).collect()
    }

    /// Nothing looks at them any more.
    pub fn stop(&mut self, now: BootTime) -> Vec<Move> {
        let all: Vec<TaskId> = self.members().collect();
        all.into_iter().filter_map(|task| self.put_out(task, Why::Stop, now)).collect()
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
        self.until_full(task, &member, now);
    }

    fn until_full(&mut self, task: TaskId, member: &Member, now: BootTime) {
        let full = now.after(member.refill());
        // Half of the first: the first time that it has to leave doubles it.
        let new = Bar { until: full, pause: FIRST_PAUSE / 2 };
        let bar = self.bars.entry(task).or_insert(new);
        bar.until = bar.until.max(full);
    }

    fn put_out(&mut self, task: TaskId, why: Why, now: BootTime) -> Option<Move> {
        let member = self.members.remove(&task)?;
        match why {
            Why::Free | Why::Calm | Why::Stop => self.until_full(task, &member, now),
            // Whatever the pause: the allowance is full when it comes back, and not before.
            _ => self.bar(task, member.refill(), now),
        }
        if why == Why::Unreadable
            && let Some(bar) = self.bars.get_mut(&task)
        {
            bar.until = bar.until.max(now.after(LONGEST_PAUSE));
        }
        if matches!(why, Why::Overrun | Why::Computes)
            && let Some(job) = member.job
        {
            if self.jobs_barred.len() >= MAX_JOBS {
                let oldest = self.jobs_barred.iter().min_by_key(|(_, since)| **since);
                if let Some(job) = oldest.map(|(job, _)| job.clone()) {
                    self.jobs_barred.remove(&job);
                }
            }
            self.jobs_barred.insert(job, now);
        }
        Some(Move { task, weight: None, why, part: member.part })
    }

    /// Begins a pause, twice as long as the one before and at least `least`.
    fn bar(&mut self, task: TaskId, least: Duration, now: BootTime) {
        let doubled = self.bars.get(&task).map(|bar| bar.pause.saturating_mul(2));
        let pause = doubled.unwrap_or(FIRST_PAUSE).min(LONGEST_PAUSE);
        self.bars.insert(task, Bar { until: now.after(pause.max(least)), pause });
    }
}

impl Why {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Why::Bursts => "it computes in short bursts between waits",
            Why::Job => "tasks of its job compute little, in short bursts between waits",
            Why::Overrun => "it used more CPU than its part of the lane",
            Why::Less => "it uses less than its part of the lane again",
            Why::Computes => "it used more CPU than its part of the lane, and not in short bursts",
            Why::Unreadable => "what it uses of the CPU cannot be read",
            Why::Free => "it used more CPU than its part of the lane, while CPUs were free",
            Why::Calm => "CPUs are free, and need no lane",
            Why::Stop => "lrsd stops, and nothing compares what it uses with its part",
            Why::Changed => "its bursts are long now",
            Why::Budget => "tiers.lane_share of the active slots is promised to others",
        }
    }
}

#[cfg(test)]
mod tests;
