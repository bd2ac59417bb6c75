//! Interference: whether active tasks wait more since passive slots were added, and then no more
//! are (spec 6; issue 13: expansion backs off).
//!
//! The measure is the part of a cycle that an active task lost: the part of the CPU it wanted and
//! did not get, and the time it waited for disks ([`lost`]). Each task is compared with itself, so
//! that a promotion of a task of another kind is no change. After each step the mean over the tasks
//! of the last [`CYCLES`] full cycles is compared with that before the step. It is worse if it rose by
//! the limit of the settings *and* by more than three standard errors, for which a deviation of less
//! than [`NOISE`] is not believed. Then the slots of the step are taken back as they come free and
//! nothing is added for [`PAUSE`], or until none of the tasks that were compared is active any more,
//! yet not within [`LEAST_PAUSE`]: at most two steps and two backward steps an hour where tasks are
//! long.
//!
//! Steps that follow each other at once are judged together, against the time before the first, so
//! that a slow ramp is not compared with its own middle.
//!
//! Limits. Node pressure is not used: passive tasks that wait are what LRS is for. Waits that the kernel
//! does not count as pressure are not seen (a journal commit counts in part, a lock not at all). A
//! task shorter than six cycles is never compared. A service beside LRS that begins to compute in the
//! same cycles looks like the step's fault, and costs a pause.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::TaskId;
use crate::neighbours;
use crate::rate::Interval;
use crate::units::{BootTime, Share};

/// Nothing is added for so long after a step that made active tasks wait more.
pub const PAUSE: Duration = Duration::from_secs(3600);

/// The same, if those tasks have ended meanwhile.
pub const LEAST_PAUSE: Duration = Duration::from_secs(300);

/// Cycles before a step that it is compared with.
const BEFORE: usize = 4;

/// Full cycles after a step until it is judged.
const CYCLES: usize = 2;

/// A step that could not be judged within so many cycles is not.
const LONGEST: u32 = 20;

/// Deviation of a task's loss that is assumed at the least, as a part of it, and as a part of a cycle.
const NOISE: (f64, f64) = (0.1, 0.02);

/// Standard errors that tell a rise from noise.
const ERRORS: f64 = 3.0;

/// The part of the interval that the task lost to others: the part of the CPU it wanted and did not
/// get, and the part of the time in which it waited for disks. `None`: not known.
///
/// PSI weighs the CPUs by how long the task's threads were on each (kernel/sched/psi.c), so for one
/// thread it is the time itself. For many it may be less: a false alarm would cost an hour without
/// expansion, on a node of many CPUs at a wait of less than one part in a hundred.
pub fn lost(interval: &Interval) -> Option<f64> {
    let elapsed = interval.elapsed.as_secs_f64();
    let pressure = interval.pressure?;
    let wanted = neighbours::demand(&Interval { cpus: 1, ..*interval })?;
    let got = if wanted > 0.0 { interval.cpu.as_secs_f64() / elapsed / wanted } else { 1.0 };
    let disk = pressure.io_some.as_secs_f64() / elapsed;
    Some((1.0 - got.clamp(0.0, 1.0) + disk.clamp(0.0, 1.0)).min(1.0))
}

/// A step that made active tasks wait more.
#[derive(Clone, Debug, PartialEq)]
pub struct Worse {
    /// Slots that were added.
    pub slots: u32,
    /// Part of a cycle that an active task lost before, in the mean.
    pub before: f64,
    /// The same with the slots.
    pub with: f64,
    /// Tasks that were compared.
    pub tasks: usize,
}

/// Mean and deviation of one task.
type Figure = (f64, f64);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Step {
    slots: u32,
    before: BTreeMap<TaskId, Figure>,
    /// Full cycles in a row since the last slots were added.
    full: usize,
    age: u32,
}

/// What active tasks lost of late, and the step that is being judged.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Interference {
    lost: BTreeMap<TaskId, VecDeque<f64>>,
    step: Option<Step>,
    paused: Option<(BootTime, BTreeSet<TaskId>)>,
    /// Every slot was taken when the cycle began.
    full: bool,
}

impl Interference {
    /// Ends a cycle. `active`: what each active task lost of it. `full`: every slot is taken now.
    /// `limit`: by how much the mean may rise; [`Share::ONE`]: nothing is judged.
    pub fn end_cycle(
        &mut self,
        active: impl Iterator<Item = (TaskId, Option<f64>)>,
        full: bool,
        limit: Share,
        now: BootTime,
    ) -> Option<Worse> {
        let mut earlier = std::mem::take(&mut self.lost);
        let mut there = BTreeSet::new();
        for (task, lost) in active {
            there.insert(task);
            let Some(lost) = lost else { continue };
            let mut cycles = earlier.remove(&task).unwrap_or_default();
            cycles.push_back(lost);
            cycles.drain(..cycles.len().saturating_sub(BEFORE));
            self.lost.insert(task, cycles);
        }
        let over = |(since, tasks): &(BootTime, BTreeSet<TaskId>)| {
            let gone = tasks.is_disjoint(&there);
            now.since(*since) >= if gone { LEAST_PAUSE } else { PAUSE }
        };
        if self.paused.as_ref().is_some_and(over) {
            self.paused = None;
        }
        let whole = std::mem::replace(&mut self.full, full) && full;
        let step = self.step.as_mut()?;
        step.full = if whole { step.full + 1 } else { 0 };
        step.age += 1;
        if step.full < CYCLES {
            if step.age > LONGEST {
                self.step = None;
            }
            return None;
        }
        let Step { slots, before, .. } = self.step.take()?;
        let worse = judge(slots, &before, &self.lost, limit)?;
        self.paused = Some((now, before.into_keys().collect()));
        Some(worse)
    }

    /// `slots` were added.
    pub fn added(&mut self, slots: u32) {
        let step = self.step.get_or_insert_with(|| {
            let measured = self.lost.iter().filter(|(_, cycles)| cycles.len() >= CYCLES);
            let before = measured.map(|(task, cycles)| (*task, figure(cycles.iter()))).collect();
            Step { before, ..Step::default() }
        });
        step.slots += slots;
        step.full = 0;
        // The cycle in which the slots fill is that of starting tasks.
        self.full = false;
    }

    /// `slots` were added one by one, as tasks came: they are judged with those of the last step. The cycles of that
    /// step go on to count.
    pub fn added_meanwhile(&mut self, slots: u32) {
        match &mut self.step {
            Some(step) => step.slots += slots,
            None => self.added(slots),
        }
    }

    /// So many of those were closed.
    pub fn closed_meanwhile(&mut self, slots: u32) {
        self.step = self.step.take().and_then(|step| {
            let left = step.slots.saturating_sub(slots);
            (left > 0).then_some(Step { slots: left, ..step })
        });
    }

    /// Whether nothing is to be added now.
    pub fn backs_off(&self) -> bool {
        self.paused.is_some()
    }

    /// Slots were withdrawn for another reason: what follows is not the step's.
    pub fn withdrawn(&mut self) {
        self.step = None;
    }

    /// Nothing is judged any more.
    pub fn reset(&mut self) {
        *self = Interference::default();
    }
}

/// Each task against itself.
fn judge(
    slots: u32,
    before: &BTreeMap<TaskId, Figure>,
    lost: &BTreeMap<TaskId, VecDeque<f64>>,
    limit: Share,
) -> Option<Worse> {
    let (mut was, mut is, mut error, mut tasks) = (0.0, 0.0, 0.0, 0);
    for (task, (mean, deviation)) in before {
        let Some(cycles) = lost.get(task).filter(|cycles| cycles.len() >= CYCLES) else { continue };
        let (with, with_deviation) = figure(cycles.iter().rev().take(CYCLES));
        was += mean;
        is += with;
        error += deviation.powi(2) / BEFORE as f64 + with_deviation.powi(2) / CYCLES as f64;
        tasks += 1;
    }
    let count = f64::from(u32::try_from(tasks).ok().filter(|tasks| *tasks > 0)?);
    let (before, with, error) = (was / count, is / count, error.sqrt() / count);
    let rise = with - before;
    // Nothing can rise by all there is; a limit of that switches the rule off.
    let worse = limit < Share::ONE && rise >= limit.value() && rise > ERRORS * error;
    worse.then_some(Worse { slots, before, with, tasks })
}

fn figure<'a>(cycles: impl Iterator<Item = &'a f64> + Clone) -> Figure {
    let count = cycles.clone().count().max(1) as f64;
    let mean = cycles.clone().sum::<f64>() / count;
    let squares: f64 = cycles.map(|lost| (lost - mean).powi(2)).sum();
    let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
    (mean, deviation.max(NOISE.0 * mean).max(NOISE.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::TaskPressure;

    const LIMIT: f64 = 0.25;

    fn at(seconds: u64) -> BootTime {
        BootTime(Duration::from_secs(seconds))
    }

    fn task(number: u64) -> TaskId {
        TaskId { epoch: 1, number }
    }

    fn noise(cycle: u64) -> f64 {
        let mixed = cycle.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        0.9 + 0.2 * (mixed % 1000) as f64 / 1000.0
    }

    /// Plays `cycles` of 3 s with two active tasks that lose `lost(expanded)`, one slot added
    /// whenever that is allowed, slots free at once; answers steps up and down.
    fn play(
        cycles: u64,
        most: u32,
        ids: impl Fn(u64) -> u64,
        lost: impl Fn(u32) -> f64,
    ) -> (u32, u32) {
        let (mut rule, mut expanded, mut up, mut down) = (Interference::default(), 0, 0, 0);
        for cycle in 0..cycles {
            let active = (0..2).map(|n| {
                let lost = lost(expanded) * noise(2 * cycle + n);
                (task(10 * ids(cycle) + n), Some(lost.min(1.0)))
            });
            if let Some(worse) = rule.end_cycle(active, true, Share::clamped(LIMIT), at(3 * cycle))
            {
                expanded -= worse.slots;
                down += worse.slots;
            }
            if cycle > 4 && expanded < most && !rule.backs_off() {
                rule.added(1);
                expanded += 1;
                up += 1;
            }
        }
        (up, down)
    }

    #[test]
    fn a_task_loses_what_it_wanted_and_did_not_get_and_its_waits_for_disks() {
        let of = |cpu: f64, cpu_some: f64, io_some: f64| {
            let pressure = TaskPressure {
                cpu_some: Duration::from_secs_f64(cpu_some),
                io_some: Duration::from_secs_f64(io_some),
            };
            lost(&Interval {
                elapsed: Duration::from_secs(1),
                cpu: Duration::from_secs_f64(cpu),
                pressure: Some(pressure),
                thread: None,
                cpus: 64,
            })
        };
        let near = |found: Option<f64>, expected: f64| {
            assert!(found.is_some_and(|found| (found - expected).abs() < 1e-6), "{found:?}");
        };
        near(of(1.0, 0.0, 0.0), 0.0);
        near(of(0.0, 0.0, 0.0), 0.0);
        near(of(0.5, 0.5, 0.0), 0.5);
        near(of(0.0, 0.0, 0.2), 0.2);
        near(of(0.5, 0.5, 0.9), 1.0);
        // On a node of many CPUs a wait of a part in a hundred is no more than that.
        near(of(0.99, 0.01, 0.0), 0.01);
        let blind = Interval {
            elapsed: Duration::from_secs(1),
            cpu: Duration::from_millis(500),
            pressure: None,
            thread: None,
            cpus: 2,
        };
        assert_eq!(lost(&blind), None);
    }

    #[test]
    fn a_step_that_costs_active_tasks_nothing_stays_whatever_the_noise() {
        for level in [0.0, 0.1, 0.3, 0.5, 0.8, 0.9] {
            assert_eq!(play(12_000, 6, |_| 0, |_| level), (6, 0), "{level}");
        }
    }

    #[test]
    fn at_the_edge_there_is_at_most_one_step_up_and_one_down_an_hour() {
        // Each slot costs from half to twice of what is allowed.
        for part in [0.5, 0.8, 0.95, 1.0, 1.05, 1.2, 2.0] {
            let (up, down) = play(12_000, 6, |_| 0, |slots| 0.1 + part * LIMIT * f64::from(slots));
            // A ramp is judged as a whole, and goes as a whole.
            assert!(up <= 6 * 11 && down <= 6 * 10, "{part}: {up} up, {down} down");
            assert!(part < 1.2 || down > 0, "{part}");
        }
        // One slot is all there is room for: the step itself.
        let (up, down) = play(12_000, 1, |_| 0, |slots| 0.1 + 0.5 * f64::from(slots));
        assert!((9..=11).contains(&up) && (9..=11).contains(&down), "{up} up, {down} down");
        // Tasks of a minute: the least pause.
        let (up, down) = play(12_000, 1, |cycle| cycle / 20, |slots| 0.1 + 0.5 * f64::from(slots));
        assert!(up <= 121 && down <= 120, "{up} up, {down} down");
    }

    #[test]
    fn what_is_not_known_is_not_judged_and_a_task_is_compared_with_itself() {
        let mut rule = Interference::default();
        let limit = Share::clamped(LIMIT);
        for cycle in 0..5 {
            let active = [(task(1), Some(0.1)), (task(2), None)].into_iter();
            assert_eq!(rule.end_cycle(active, true, limit, at(3 * cycle)), None);
        }
        rule.added(2);
        for cycle in 5..12 {
            // The first task is gone, another one lost more all along, and one says nothing.
            let active = [(task(3), Some(0.9)), (task(2), None)].into_iter();
            assert_eq!(rule.end_cycle(active, true, limit, at(3 * cycle)), None);
        }
        assert!(!rule.backs_off());
        // A step of which no full cycle is seen is given up.
        rule.added(2);
        for cycle in 12..40 {
            let active = [(task(3), Some(1.0))].into_iter();
            assert_eq!(rule.end_cycle(active, false, limit, at(3 * cycle)), None);
        }
        assert!(rule.step.is_none());
    }

    #[test]
    fn a_limit_of_everything_judges_nothing() {
        let mut rule = Interference::default();
        for cycle in 0..20 {
            let lost = if cycle < 6 { 0.0 } else { 1.0 };
            let active = [(task(1), Some(lost))].into_iter();
            assert_eq!(rule.end_cycle(active, true, Share::ONE, at(3 * cycle)), None);
            if cycle == 5 {
                rule.added(1);
            }
        }
    }
}
