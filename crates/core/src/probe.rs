//! Expansion by probe: slots beyond what the formula gives.
//!
//! The formula of the source ([`super::capacity::slots_to_add`]) stops early on large nodes and on
//! slow disks. With `slots.formula = "probe"`, the default, LRS takes what it gives and, where the
//! spare CPU could carry more, opens as many as spare CPU over CPU per slot, at most half of those
//! there are.
//!
//! While a request waits, these are no trial: CPU that is idle beside work that waits is worse than a
//! slot without gain. No more are opened than wait, and none in the pause after a failed trial.
//!
//! Where no request waits, because a scheduler reads free slots, they are a trial. It compares
//! progress, the CPUs in use and the bytes a second, with that before it:
//!
//! - after one cycle a clear rise allows a second step at once;
//! - after two cycles without a further step the trial ends. It is kept if one figure rose by more
//!   than its spread and the other did not fall by as much; else its slots are taken back as they
//!   come free, and nothing is tried for [`PAUSE`], unless what is done has changed by half.
//!
//! The spread is that of the means compared, three times their standard error, and never taken for
//! smaller than [`NOISE`] of the figure before: two cycles say little of how steady a load is.
//!
//! A trial ends without a verdict, as one that gained nothing, where slots are withdrawn meanwhile (the
//! CPU is saturated, the guard holds, the settings change). The formula adds nothing while one runs.
//!
//! Limits. Only cycles with every slot taken count. The figures are the node's, so a service beside
//! LRS that begins to compute in the same two cycles looks like progress. A step that gains less
//! than about a quarter does not differ from noise, and is taken back.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::capacity::CpuShares;
use crate::units::BootTime;

/// How many slots are added while CPU is spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Formula {
    /// The formula of the source alone.
    Lrs,
    /// At least that, and as many as spare CPU could carry.
    Probe,
}

/// Nothing is tried for so long after a trial that gained nothing.
pub const PAUSE: Duration = Duration::from_secs(3600);

/// Cycles that progress before a trial is taken over.
const BEFORE: usize = 4;

/// Cycles that end a trial.
const CYCLES: usize = 2;

/// Steps of a trial.
const STEPS: u32 = 2;

/// Deviation of a figure that is assumed at the least, as a part of it.
const NOISE: f64 = 0.1;

/// Standard errors that tell a rise from noise.
const ERRORS: f64 = 3.0;

/// From which change of a figure, as a part of it, a load is another.
const CHANGED: f64 = 0.5;

/// What was done in a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// CPUs in use.
    pub cpus: f64,
    /// Bytes a second to and from disks, of tasks.
    pub bytes: f64,
}

/// The least deviation of each figure: below it nothing is meant.
const FLOOR: Progress = Progress { cpus: 0.02, bytes: 4096.0 };

/// What became of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Slots that were tried.
    pub slots: u32,
    /// Whether they stay.
    pub kept: bool,
    /// Progress before.
    pub before: Progress,
    /// Progress with them.
    pub with: Progress,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Trial {
    slots: u32,
    steps: u32,
    cycles: VecDeque<Progress>,
}

/// Watches progress, and judges trials.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Probe {
    before: VecDeque<Progress>,
    trial: Option<Trial>,
    /// No trial until then, and what was done when the last one failed.
    paused: Option<(BootTime, Progress)>,
    /// Slots to be taken back as they come free.
    owed: u32,
    /// The last trial gained nothing, by its verdict.
    failed: bool,
    /// Every slot was taken when the cycle began.
    full: bool,
}

/// Slots that the spare CPU could carry: `(1 - E - S) / (E / SlotMax)`, time that waits for I/O
/// being spare, and at most half of `slot_max`.
pub fn slots_carried(cpu: &CpuShares, slot_max: u32) -> u32 {
    let half = slot_max.div_ceil(2);
    let effective = cpu.effective.value();
    let spare = (1.0 - effective - cpu.steal.value()).max(0.0);
    let carried = spare * f64::from(slot_max) / effective;
    // Nothing in use carries any number.
    // Decimal shares are not exact; a quotient a hair below a whole number is it.
    if carried.is_finite() && carried < f64::from(half) { (carried + 1e-9) as u32 } else { half }
}

impl Probe {
    /// Ends a cycle. `full`: every slot is taken now. Answers what became of a trial that ends.
    pub fn end_cycle(&mut self, progress: Progress, full: bool, now: BootTime) -> Option<Verdict> {
        let whole = std::mem::replace(&mut self.full, full) && full;
        if !whole {
            // What is compared has to be what was done right before.
            if self.trial.is_none() {
                self.before.clear();
            }
            return None;
        }
        let Some(trial) = &mut self.trial else {
            self.before.push_back(progress);
            self.before.drain(..self.before.len().saturating_sub(BEFORE));
            let enough = self.before.len() == BEFORE;
            let other = |at| enough && changed(mean(&self.before), at);
            self.paused = self.paused.filter(|(until, at)| now < *until && !other(*at));
            return None;
        };
        trial.cycles.push_back(progress);
        if trial.cycles.len() < CYCLES {
            return None;
        }
        let Trial { slots, cycles, .. } = self.trial.take()?;
        let kept = rose(&self.before, &cycles);
        let (before, with) = (mean(&self.before), mean(&cycles));
        self.failed = !kept;
        if kept {
            self.before = cycles;
        } else {
            self.paused = Some((BootTime(now.0 + PAUSE), before));
            self.owed = slots;
        }
        Some(Verdict { slots, kept, before, with })
    }

    /// Whether more slots may be tried now.
    pub fn may_try(&self) -> bool {
        match &self.trial {
            None => self.paused.is_none() && self.owed == 0 && !self.before.is_empty(),
            Some(trial) => trial.steps < STEPS && rose(&self.before, &trial.cycles),
        }
    }

    /// Whether nothing is tried for a while, because a trial gained nothing.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// Whether nothing is opened for a while because the last trial gained nothing, by its verdict.
    pub fn gained_nothing(&self) -> bool {
        self.failed && (self.paused.is_some() || self.owed > 0)
    }

    /// Slots were added without a trial: what was done before them is nothing to compare with.
    pub fn added(&mut self) {
        self.before.clear();
        self.full = false;
    }

    /// Whether a trial runs. What else changes the number of slots would be judged with it.
    pub fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// `slots` were added on trial.
    pub fn tried(&mut self, slots: u32) {
        let trial =
            self.trial.get_or_insert_with(|| Trial { slots: 0, steps: 0, cycles: VecDeque::new() });
        trial.slots += slots;
        trial.steps += 1;
        trial.cycles.clear();
    }

    /// `slots`, on trial or not, are to be taken back for another reason than progress. Nothing is
    /// tried for a while.
    pub fn give_up(&mut self, slots: u32, now: BootTime) {
        (self.trial, self.failed) = (None, false);
        self.paused = Some((BootTime(now.0 + PAUSE), mean(&self.before)));
        self.owed += slots;
    }

    /// Slots to be taken back as they come free.
    pub fn owed(&self) -> u32 {
        self.owed
    }

    /// `slots` were withdrawn, and `expanded` are left above the base. A trial of them ends as one
    /// that gained nothing: what is left of it goes too, and there is a pause before the next.
    pub fn withdrawn(&mut self, expanded: u32, slots: u32, now: BootTime) {
        let mut owed = self.owed;
        if let Some(trial) = self.trial.take() {
            owed += trial.slots;
            self.failed = false;
            self.paused = Some((BootTime(now.0 + PAUSE), mean(&self.before)));
        }
        self.owed = owed.saturating_sub(slots).min(expanded);
        self.before.clear();
    }
}

/// Whether one figure is another than it was.
fn changed(now: Progress, then: Progress) -> bool {
    let other = |figure: fn(&Progress) -> f64| {
        let large = figure(&then).max(figure(&FLOOR) / NOISE);
        (figure(&now) - figure(&then)).abs() > CHANGED * large
    };
    other(|p| p.cpus) || other(|p| p.bytes)
}

fn mean(cycles: &VecDeque<Progress>) -> Progress {
    let count = cycles.len().max(1) as f64;
    let of = |figure: fn(&Progress) -> f64| cycles.iter().map(figure).sum::<f64>() / count;
    Progress { cpus: of(|p| p.cpus), bytes: of(|p| p.bytes) }
}

/// Whether one figure rose by more than its spread, and none fell by as much.
fn rose(before: &VecDeque<Progress>, with: &VecDeque<Progress>) -> bool {
    if before.is_empty() || with.is_empty() {
        return false;
    }
    let cpus = change(before, with, |p| p.cpus);
    let bytes = change(before, with, |p| p.bytes);
    cpus.max(bytes) > 1.0 && cpus.min(bytes) >= -1.0
}

/// The change of the mean, in units of its spread.
fn change(
    before: &VecDeque<Progress>,
    with: &VecDeque<Progress>,
    figure: fn(&Progress) -> f64,
) -> f64 {
    let least = figure(&FLOOR).max(NOISE * figure(&mean(before)));
    let of = |cycles: &VecDeque<Progress>| {
        let count = cycles.len() as f64;
        let mean = cycles.iter().map(figure).sum::<f64>() / count;
        let squares: f64 = cycles.iter().map(|p| (figure(p) - mean).powi(2)).sum();
        let deviation = (squares / (count - 1.0).max(1.0)).sqrt().max(least);
        (mean, deviation.powi(2) / count)
    };
    let ((was, was_error), (is, is_error)) = (of(before), of(with));
    (is - was) / (ERRORS * (was_error + is_error).sqrt())
}

#[cfg(test)]
mod tests;
