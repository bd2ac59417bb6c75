//! Stages 2 and 3 of the guard: headroom and freeze (spec 6).
//!
//! Both are for a node that is *acutely* short of memory although nothing more comes in: less than half
//! of the reserve of stage 1 is available, or a limit of stage 1 is passed twice over. What frees
//! memory then is that passive tasks ask for none: they are frozen, one after the other, the
//! lowest in rank and the newest first, with a hold between two. A CPU quota would do the
//! same for the CPU, but throttled tasks keep the kernel's locks before Linux 6.18.
//!
//! - *Headroom*: the I/O lane is empty, and at most half of the passive tasks are frozen.
//! - *Freeze*: any number of them.
//!
//! Each begins once it was acute for a time of its own and ends once it was well for
//! the time that stage 1 needs, doubled each time that it begins soon again, at most
//! six times. Then tasks are thawed one after the other, best in rank first. Between the two thresholds
//! nothing changes.
//!
//! No task starves: it is frozen for [`FreezePolicy::longest`] at most, and then runs for as long
//! before it may be frozen again.
//!
//! Limits. Only tasks in groups of LRS's own. A frozen task keeps its memory, its locks and its
//! connections: whoever waits for it waits. On cgroup v1 without a cgroup2 mount a signal, SIGKILL
//! too, acts once it is thawed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{GuardPolicy, LONGEST_DOUBLING, Signals};
use crate::model::TaskId;
use crate::units::{BootTime, Bytes};

/// Times of stages 2 and 3, and whether they act.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FreezePolicy {
    /// How long it has to be acute before headroom is made.
    pub headroom_after: Duration,
    /// Headroom is only reported.
    pub headroom_dry_run: bool,
    /// How long it has to be acute before any number is frozen.
    pub freeze_after: Duration,
    /// That is only reported.
    pub freeze_dry_run: bool,
    /// Between two tasks that are frozen or thawed.
    pub hold: Duration,
    /// How long a task is frozen at most, and runs at least after that.
    pub longest: Duration,
}

impl FreezePolicy {
    /// As shipped: both stages only report.
    pub const REPORTS: FreezePolicy = FreezePolicy {
        headroom_after: Duration::from_secs(10),
        headroom_dry_run: true,
        freeze_after: Duration::from_secs(30),
        freeze_dry_run: true,
        hold: Duration::from_secs(10),
        longest: Duration::from_secs(600),
    };
}

/// How bad it is.
enum Need {
    Acute(String),
    Between,
    Well,
}

fn need(policy: &GuardPolicy, signals: &Signals) -> Need {
    let memory = signals.memory.as_ref().map(|memory| {
        let half = |total| Bytes(policy.reserve.of(total).0 / 2);
        let (room, least) = memory.least_above(half);
        let acute = (room.available < least).then(|| {
            let limit = room.limit_in_words();
            format!("{} of memory available{limit}, less than half of the reserve", room.available)
        });
        let (room, enough) =
            memory.least_above(|total| Bytes(half(total).0.saturating_add(half(total).0 / 2)));
        (acute, room.available >= enough)
    });
    let limit = (2.0 * policy.memory_pressure.value()).min(1.0);
    let pressure = signals.memory_full.map(|full| {
        let acute = (full.value() >= limit).then(|| {
            format!("all tasks stalled for memory for {:.1} % of the cycle", 100.0 * full.value())
        });
        (acute, full.value() <= limit / 2.0)
    });
    let known: Vec<_> = [memory, pressure].into_iter().flatten().collect();
    let well = !known.is_empty() && known.iter().all(|(_, well)| *well);
    match known.into_iter().find_map(|(acute, _)| acute) {
        Some(reason) => Need::Acute(reason),
        None if well => Need::Well,
        None => Need::Between,
    }
}

/// What follows from a cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The stage went from one to another; 0: neither.
    pub turn: Option<(u32, u32)>,
    /// To be frozen.
    pub freeze: Option<TaskId>,
    /// To be thawed, and why.
    pub thaw: Vec<(TaskId, &'static str)>,
}

/// Where stages 2 and 3 are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ladder {
    stage: u32,
    reason: String,
    acute_since: Option<BootTime>,
    well_since: Option<BootTime>,
    /// When a task was frozen or thawed last.
    changed: Option<BootTime>,
    left: Option<BootTime>,
    again: u32,
    frozen: BTreeMap<TaskId, BootTime>,
    /// Until when a task that was frozen for long is not again.
    rests: BTreeMap<TaskId, BootTime>,
}

impl Ladder {
    /// 2: headroom, 3: freeze, also if they only report; 0: neither.
    pub fn stage(&self) -> u32 {
        self.stage
    }

    /// Why, as it was seen last.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Tasks that are frozen.
    pub fn frozen(&self) -> impl Iterator<Item = TaskId> {
        self.frozen.keys().copied()
    }

    /// Whether any is.
    pub fn has_frozen(&self) -> bool {
        !self.frozen.is_empty()
    }

    /// One cycle. `passive`: tasks that may be frozen, and those that are, whoever is frozen first
    /// first. `may_freeze`: no reason speaks against more.
    pub fn step(
        &mut self,
        (policy, guard): (&FreezePolicy, &GuardPolicy),
        signals: &Signals,
        passive: &[TaskId],
        may_freeze: bool,
        now: BootTime,
    ) -> Decision {
        let before = self.stage;
        let exit_after = guard.exit_after.saturating_mul(1 << self.again);
        let acute = match need(guard, signals) {
            Need::Acute(reason) => {
                let since = *self.acute_since.get_or_insert(now);
                self.well_since = None;
                let lasts = now.since(since);
                let stage = match () {
                    () if lasts >= policy.freeze_after => 3,
                    () if lasts >= policy.headroom_after => 2,
                    () => 0,
                };
                self.stage = self.stage.max(stage);
                self.reason = reason;
                true
            }
            Need::Between => {
                (self.acute_since, self.well_since) = (None, None);
                false
            }
            Need::Well => {
                self.acute_since = None;
                let since = *self.well_since.get_or_insert(now);
                if now.since(since) >= exit_after {
                    self.stage = 0;
                }
                false
            }
        };
        let turn = (before != self.stage).then_some((before, self.stage));
        match turn {
            Some((0, _)) => {
                let soon = exit_after.saturating_mul(10);
                self.again = match self.left {
                    Some(left) if now.since(left) < soon => (self.again + 1).min(LONGEST_DOUBLING),
                    _ => 0,
                };
            }
            Some((_, 0)) => self.left = Some(now),
            _ => {}
        }
        let mut decision = Decision { turn, ..Decision::default() };
        self.rests.retain(|task, until| *until > now && passive.contains(task));
        let over = |since: &BootTime| now.since(*since) >= policy.longest;
        let tired: Vec<TaskId> =
            self.frozen.iter().filter(|(_, since)| over(since)).map(|(task, _)| *task).collect();
        for task in tired {
            self.forget(task);
            self.rests.insert(task, BootTime(now.0 + policy.longest));
            decision.thaw.push((task, "it was frozen for as long as a task may be"));
        }
        if self.changed.is_some_and(|changed| now.since(changed) < policy.hold) {
            return decision;
        }
        let most = match self.stage {
            3 if !policy.freeze_dry_run => passive.len(),
            2 | 3 if !policy.headroom_dry_run => passive.len() / 2,
            _ => 0,
        };
        if acute && may_freeze && self.frozen.len() < most {
            let may =
                |task: &TaskId| !self.frozen.contains_key(task) && !self.rests.contains_key(task);
            decision.freeze = passive.iter().copied().find(may);
            if let Some(task) = decision.freeze {
                self.frozen.insert(task, now);
                self.changed = Some(now);
            }
        } else if self.stage == 0
            && !acute
            && let Some(task) = passive.iter().rev().find(|task| self.frozen.contains_key(task))
        {
            self.forget(*task);
            self.changed = Some(now);
            decision.thaw.push((*task, "the node has memory again"));
        }
        decision
    }

    /// The task is not frozen any more, or could not be.
    pub fn forget(&mut self, task: TaskId) {
        self.frozen.remove(&task);
    }

    /// It could not be frozen, and is not tried again for a while.
    pub fn failed(&mut self, task: TaskId, policy: &FreezePolicy, now: BootTime) {
        self.forget(task);
        self.rests.insert(task, BootTime(now.0 + policy.longest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::units::{Bytes, MemoryAmount, Share};

    fn at(seconds: u64) -> BootTime {
        BootTime(Duration::from_secs(seconds))
    }

    fn tasks(count: u64) -> Vec<TaskId> {
        (1..=count).rev().map(|number| TaskId { epoch: 1, number }).collect()
    }

    fn signals(available: u64) -> Signals {
        let memory = Memory::of_node(Bytes(available), Bytes(1000));
        Signals { memory: Some(memory), ..Signals::default() }
    }

    const POLICY: FreezePolicy = FreezePolicy {
        headroom_after: Duration::from_secs(6),
        headroom_dry_run: false,
        freeze_after: Duration::from_secs(30),
        freeze_dry_run: false,
        hold: Duration::from_secs(9),
        longest: Duration::from_secs(600),
    };

    fn guard() -> GuardPolicy {
        GuardPolicy {
            dry_run: false,
            reserve: MemoryAmount::Bytes(Bytes(100)),
            resume: MemoryAmount::Bytes(Bytes(200)),
            memory_pressure: Share::clamped(0.2),
            swap_growth: Bytes(1000),
            enter_after: Duration::ZERO,
            exit_after: Duration::from_secs(10),
            interference: Share::ONE,
            freeze: POLICY,
        }
    }

    #[test]
    fn newest_first_one_after_the_other_half_of_them_and_then_all_and_back_in_reverse() {
        let (guard, mut ladder, passive) = (guard(), Ladder::default(), tasks(4));
        let mut log = Vec::new();
        for cycle in 0..40u64 {
            let available = if cycle < 20 { 40 } else { 500 };
            let Decision { turn, freeze, thaw } =
                ladder.step((&POLICY, &guard), &signals(available), &passive, true, at(3 * cycle));
            let second = 3 * cycle;
            log.extend(turn.map(|(from, to)| format!("{second} {from}>{to}")));
            log.extend(freeze.map(|task| format!("{second} +{}", task.number)));
            log.extend(thaw.iter().map(|(task, _)| format!("{second} -{}", task.number)));
        }
        let expected = [
            "6 0>2", "6 +4", "15 +3", "30 2>3", "30 +2", "39 +1", "72 3>0", "72 -1", "81 -2",
            "90 -3", "99 -4",
        ];
        assert_eq!(log, expected);
    }

    #[test]
    fn dry_run_reports_stages_and_freezes_nothing() {
        let dry = FreezePolicy { headroom_dry_run: true, freeze_dry_run: true, ..POLICY };
        let (guard, mut ladder, passive) = (guard(), Ladder::default(), tasks(4));
        let mut turns = Vec::new();
        for cycle in 0..20 {
            let decision = ladder.step((&dry, &guard), &signals(10), &passive, true, at(3 * cycle));
            turns.extend(decision.turn);
            assert_eq!((decision.freeze, decision.thaw), (None, Vec::new()));
        }
        assert_eq!(turns, [(0, 2), (2, 3)]);
    }

    #[test]
    fn in_ten_hours_of_need_no_task_is_frozen_for_more_than_half_of_the_time() {
        let (guard, mut ladder, passive) = (guard(), Ladder::default(), tasks(6));
        let mut frozen = BTreeMap::new();
        for cycle in 0..12_000u64 {
            ladder.step((&POLICY, &guard), &signals(1), &passive, true, at(3 * cycle));
            for task in ladder.frozen() {
                *frozen.entry(task).or_insert(0u64) += 1;
            }
        }
        assert_eq!(frozen.len(), 6);
        assert!(frozen.values().all(|cycles| *cycles <= 6100), "{frozen:?}");
    }

    #[test]
    fn at_the_edge_it_does_not_flap_in_ten_hours() {
        let (guard, passive) = (guard(), tasks(4));
        let noise = |cycle: u64| (cycle.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % 1000;
        // Noise of a tenth around the threshold of 50.
        let mut ladder = Ladder::default();
        let (mut turns, mut frozen) = (0, 0);
        for cycle in 0..12_000u64 {
            let available = 45 + 10 * noise(cycle) / 1000;
            let decision =
                ladder.step((&POLICY, &guard), &signals(available), &passive, true, at(3 * cycle));
            turns += u32::from(decision.turn.is_some());
            frozen += u32::from(decision.freeze.is_some());
        }
        assert!(turns <= 2, "{turns} changes of the stage");
        // Each of four tasks at most once in twice ten minutes.
        assert!(frozen <= 4 * 31, "{frozen} freezes");
        // Tasks that are what memory is short of: a thaw brings the need back.
        let mut ladder = Ladder::default();
        let mut turns = 0;
        for cycle in 0..12_000u64 {
            let available = 20 + 40 * ladder.frozen().count() as u64;
            let decision =
                ladder.step((&POLICY, &guard), &signals(available), &passive, true, at(3 * cycle));
            turns += u32::from(decision.turn.is_some());
        }
        assert!(turns <= 160, "{turns} changes of the stage");
    }

    #[test]
    fn what_is_not_known_changes_nothing_but_the_bound() {
        let (guard, mut ladder, passive) = (guard(), Ladder::default(), tasks(2));
        for cycle in 0..4 {
            ladder.step((&POLICY, &guard), &signals(1), &passive, true, at(3 * cycle));
        }
        assert_eq!(ladder.frozen().count(), 1);
        let blind = Signals::default();
        for cycle in 4..190 {
            ladder.step((&POLICY, &guard), &blind, &passive, true, at(3 * cycle));
            assert_eq!((ladder.stage(), ladder.frozen().count()), (2, 1));
        }
        let decision = ladder.step((&POLICY, &guard), &blind, &passive, true, at(700));
        assert_eq!((decision.thaw.len(), ladder.has_frozen()), (1, false));
    }
}
