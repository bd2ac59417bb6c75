//! The cycle: what was read becomes rates, rates become decisions, foreign changes are put
//! right.

use std::sync::Arc;
use std::time::Duration;

use super::job::{CHECK_EVERY, Check, CycleRequest};
use super::message::{CycleReport, Readback};
use super::world::World;
use super::{Executor, Loop};
use crate::group::{Attachment, CgroupError, Effects, KernelView};
use lrs_core::Measured;
use lrs_core::lane;
use lrs_core::model::{TaskId, Tier};
use lrs_core::rate::NodeRates;
use lrs_core::step::{Input, Reading};
use lrs_core::task::Task;
use lrs_core::units::{BootTime, Moment};

/// What a cycle read of tasks, to be compared with what was decided.
struct Comparison {
    asked_at: BootTime,
    kernel: Vec<Readback>,
    outside: Vec<TaskId>,
    entered: Vec<(TaskId, CgroupError)>,
    effects: Option<Effects>,
}

impl<W: World> Loop<W> {
    /// Takes a cycle's readings. Each part goes by what the core decided on the one before.
    pub(super) fn cycle(&mut self, report: CycleReport, now: Moment) {
        self.admit_sought(0, now);
        let compared = self.with(now, |executor| executor.take_cycle(report));
        let Comparison { asked_at, kernel, outside, entered, effects } = compared;
        self.with(now, |executor| executor.compare(asked_at, kernel, effects));
        self.with(now, |executor| {
            entered.into_iter().for_each(|(id, error)| executor.entered(id, error));
        });
        self.with(now, |executor| executor.look_for(outside, asked_at));
        self.with(now, |executor| executor.check_unwatched());
        self.with(now, |executor| executor.end_cycle());
    }
}

impl<W: World> Executor<'_, W> {
    /// Asks the reading thread for the next sample.
    pub(super) fn request_cycle(&mut self) {
        self.set_pace(self.now.boot);
        self.state.pacing.asked();
        let period = self.period();
        // On the grid of the period, so that a slow cycle does not shift all later ones; a
        // grid left behind (suspend, a stopped daemon) starts anew.
        let on_grid = self.state.next_cycle.after(period);
        self.state.next_cycle =
            if on_grid > self.now.boot { on_grid } else { self.now.boot.after(period) };
        self.state.cycles += 1;
        let mut due = Vec::with_capacity(self.state.entries.len());
        // What an active task waits for is what the root has to weigh for, and what expansion must
        // not add to.
        let mut pressure = Vec::with_capacity(self.state.entries.len());
        let mut wanted: Vec<(TaskId, u32)> = Vec::new();
        for (id, task) in self.core.tasks() {
            let is_due = task.counts.is_due(self.now.boot);
            if is_due || task.tier() == Tier::Active {
                pressure.push(id);
            }
            if is_due {
                due.push(id);
                let looks = task.counts.meter.looks_wanted();
                if task.is_placed() && looks > 0 {
                    wanted.push((id, looks));
                }
            }
        }
        let placed = || {
            let placed = self.core.tasks().filter(|(_, task)| task.is_placed());
            placed.filter_map(|(id, task)| Some((id, task, self.state.entries.get(&id)?)))
        };
        let look_at = wanted.iter().map(|(id, _)| *id).collect();
        // One look comes with the reading; the others are spread over the period.
        let extra = wanted.iter().map(|(_, looks)| looks - 1).max().unwrap_or(0);
        let seed = self.state.started_at.unix_micros();
        let looks = (0..extra)
            .map(|look| {
                let after = jitter(period, look, extra, self.state.cycles, seed);
                let tasks = wanted.iter().filter(|(_, looks)| looks - 1 > look);
                (after, tasks.map(|(id, _)| *id).collect())
            })
            .collect();
        let turn = |task: &Task| is_checked(task, self.state.cycles, self.now.boot);
        let check = placed()
            .filter(|(_, task, _)| task.attachment() != Attachment::None)
            .filter_map(|(id, task, entry)| {
                let level = self.core.level(id)?;
                let unwritten = entry.written.is_none_or(|(written, _)| written != level);
                let weights = turn(task) || unwritten || entry.kernel == KernelView::default();
                let in_place = task.attachment() == Attachment::InPlace;
                let owner = in_place.then(|| self.owner_only(task)).flatten();
                Some(Check {
                    task: id,
                    group: entry.group.clone()?,
                    level,
                    slice: self.core.slice(id),
                    owner,
                    weights,
                    main: task.who.process.filter(|_| !task.main_exited),
                    halted: task.halted.is_some(),
                    frozen: task.frozen,
                })
            })
            .collect();
        let members = placed()
            .filter(|(_, task, _)| turn(task))
            .filter(|(_, task, _)| task.attachment() != Attachment::None && !task.main_exited)
            .filter_map(|(id, task, entry)| Some((id, entry.group.clone()?, task.who.process?)))
            .collect();
        let request = CycleRequest {
            due,
            pressure,
            look_at,
            looks,
            check,
            members,
            asked_at: self.now.boot,
            plan: Some(self.state.plan),
        };
        self.read(Some(request));
        self.pay();
        if self.state.root_weight.is_due() {
            self.shape_root();
        }
    }

    /// Takes a cycle's readings: the core decides by them first. Answers what is compared after that.
    fn take_cycle(&mut self, report: CycleReport) -> Comparison {
        // Else a clock that is set makes an age of minutes days.
        self.state.started_at = self.now.time_of(self.state.started, self.state.started_at);
        self.state.reading = false;
        let CycleReport {
            sample,
            asked_at,
            due,
            kernel,
            outside,
            entered,
            kept_files,
            disks,
            effects,
            halts,
            pinned,
            frozen_root,
        } = report;
        self.state.whole_disks = disks;
        self.state.reading_took = Some(sample.took);
        let is_slow = sample.took > self.period() / 2;
        if let Some(others) =
            is_slow.then(|| self.state.pacing.slow.one_more(self.now.boot)).flatten()
        {
            tracing::warn!(
                took_ms = sample.took.as_millis() as u64,
                tasks = sample.tasks.len(),
                kept_files = kept_files.0,
                kept_files_max = kept_files.1,
                others,
                "a cycle over {} tasks took {} ms, more than half of its {} ms ({others} more since the last such warning); raise daemon.sample_period, or LimitNOFILE where files are opened anew ({} of {} kept open)",
                sample.tasks.len(),
                sample.took.as_millis(),
                self.period().as_millis(),
                kept_files.0,
                kept_files.1
            );
        }
        if let Some((at, node)) = &self.state.node_last {
            self.state.node_rates = NodeRates::between((*at, node), (sample.at, &sample.node));
        }
        let node = Measured::of(&self.state.node_rates, &sample.node);
        self.state.cpus = node.cpus.unwrap_or(self.state.cpus);
        self.state.node_last = Some((sample.at, sample.node));
        self.state.sampled_at = Some(self.now.wall);

        // What was read where a task was before it was put in place is not the task's.
        let old = |id| self.state.entries.get(&id).is_none_or(|entry| entry.placed_at >= asked_at);
        let tasks = sample
            .tasks
            .into_iter()
            .filter(|(id, _)| !old(*id))
            .map(|(task, sample)| {
                let due = due.binary_search(&task).is_ok();
                Reading { task, due, sample }
            })
            .collect();
        self.take_root(frozen_root);
        self.take_halts(halts);
        self.push(Input::Cycle { node, at: sample.at, tasks, pinned });
        Comparison { asked_at, kernel, outside, entered, effects }
    }

    /// Weights as they should be, by what the core has decided.
    fn compare(&mut self, asked_at: BootTime, kernel: Vec<Readback>, effects: Option<Effects>) {
        self.replan();
        self.check_root();
        self.check_weights(asked_at, kernel);
        self.tell_again();
        if let Some(effects) = effects {
            self.adopt(effects);
        }
    }

    /// Tasks with processes that were not where they should be.
    fn look_for(&mut self, outside: Vec<TaskId>, asked_at: BootTime) {
        let mut ended = Vec::new();
        for id in outside {
            // Put in place since the reading was asked for, it is not where it was seen.
            let entry = self.state.entries.get(&id);
            let was_there = entry.is_some_and(|entry| entry.placed_at < asked_at);
            if was_there && self.moved_away(id) {
                ended.push(id);
            }
        }
        self.end(ended);
    }

    /// Tasks that may end without a descriptor that tells: the main process has ended, could not be watched, or
    /// left its group (it lives and is watched, and is the task's no more), which its owner may be
    /// about to remove.
    fn check_unwatched(&mut self) {
        let unwatched: Vec<TaskId> = self
            .state
            .entries
            .iter()
            .filter(|(id, entry)| {
                let task = self.core.task(**id).filter(|task| !task.main_exited);
                let main = task.and_then(|task| task.who.process);
                let unwatched = main.is_none_or(|main| !entry.watched.contains_key(&main.pid));
                unwatched || entry.emptied.is_some()
            })
            .map(|(id, _)| *id)
            .collect();
        self.check_ended(&unwatched);
    }

    /// The rest of a cycle.
    fn end_cycle(&mut self) {
        self.attach_admitted();
        self.store_again();
        let world = &self.state.world;
        self.state.not_again.retain(|process| world.lives(*process));
        self.state.touched.all = true;
    }

    fn check_weights(&mut self, asked_at: BootTime, kernel: Vec<Readback>) {
        let mut suspects = Vec::new();
        for (id, result) in kernel {
            let Some(entry) = self.state.entries.get_mut(&id) else { continue };
            if entry.telling > 0 {
                // systemd may be about to write what it was last asked to set; no foreign change.
                continue;
            }
            let (Some(group), Some(level)) = (entry.group.clone(), self.core.level(id)) else {
                continue;
            };
            match (result, entry.written) {
                // Weights written since the reading was asked for are not what it read; the I/O
                // priorities it gave were the old tier's.
                (_, Some((level, at))) if at > asked_at => self.write_io(id, &group, level.tier()),
                (Ok(None), _) => {}
                (Ok(Some((view, drifts))), Some((written, _))) if written == level => {
                    entry.kernel = view;
                    if !drifts.is_empty() {
                        self.drifted(id, level, &drifts);
                        self.read_back(id);
                    }
                }
                // A write that failed before: tried again, no foreign change.
                (Ok(_), _) => {
                    self.align(id, None);
                    self.read_back(id);
                }
                // Most likely its last process is ending right now.
                (Err(error), _) => {
                    tracing::debug!(task = %id, %error, "the weights of task {id} cannot be read back: {error}");
                    suspects.push(id);
                }
            }
        }
        self.check_ended(&suspects);
    }

    /// The scheduler of a disk, or of the CPUs, is another one: tasks get their tiers by what it
    /// heeds, and what the one before needed is taken back.
    fn adopt(&mut self, effects: Effects) {
        let is_new = self.state.world.adopt(effects);
        let found = Arc::clone(&self.state.world.facts().capabilities);
        tracing::info!("what makes tiers on this node has changed: {}", found.reason);
        self.forget_test();
        if !is_new {
            return;
        }
        let placed: Vec<TaskId> = self.state.entries.keys().copied().collect();
        for id in placed {
            self.align(id, None);
            self.read_back(id);
            self.renew_disk_tier(id);
        }
    }

    /// Has the core compare what tasks used with what they may: those in the I/O lane, and those that
    /// lend their slots. A few at a time, so that no promotion waits for them, and each of them every
    /// [`lane::LOOK`].
    pub(super) fn look_at_cpu(&mut self) {
        let mut members: Vec<TaskId> = self.core.looked_at().collect();
        members.sort_unstable();
        if self.state.cpu_looked.is_none() {
            self.state.cpu_files.retain(|id, _| members.binary_search(id).is_ok());
        }
        let turns = members.len().div_ceil(LOOK_BATCH).max(1);
        self.state.next_cpu_look = self.now.boot.after(lane::LOOK / turns as u32);
        let after = |id: &&TaskId| self.state.cpu_looked.is_none_or(|last| **id > last);
        let batch: Vec<TaskId> = members.iter().filter(after).take(LOOK_BATCH).copied().collect();
        let all_looked_at = batch.last() == members.last();
        self.state.cpu_looked = batch.last().filter(|_| !all_looked_at).copied();
        let state = &mut *self.state;
        let times = batch.into_iter().filter_map(|id| {
            let group = state.entries.get(&id)?.group.as_ref()?;
            let opened = || (Arc::clone(group), W::CpuFile::default());
            let (of, file) = state.cpu_files.entry(id).or_insert_with(opened);
            if !Arc::ptr_eq(of, group) {
                (*of, *file) = opened();
            }
            // One that is gone ends in a moment.
            Some((id, state.world.cpu_time(group, file)?))
        });
        let times = times.collect();
        self.push(Input::CpuLooked(times));
    }
}

/// Tasks that are looked at in one turn of the loop: 0.2 ms where their files are opened each time, a
/// quarter of that where they stay open.
const LOOK_BATCH: usize = 16;

/// Whether weights and place of a task are checked in this cycle: when it is its turn, and in
/// every cycle while another writer may be fighting over it
/// ([`CONTEST_REPAIRS`](lrs_core::task::CONTEST_REPAIRS)).
fn is_checked(task: &Task, cycle: u64, now: BootTime) -> bool {
    is_turn(task.id, cycle) || task.repaired_lately(now)
}

/// Whether a task has its turn in this cycle. Tasks admitted one after the
/// other have their turns one after the other.
fn is_turn(task: TaskId, cycle: u64) -> bool {
    task.number.wrapping_add(cycle).is_multiple_of(u64::from(CHECK_EVERY))
}

/// When, within a period, look `look` of `looks` is taken: each at a random place of its own
/// part of the period, so that none is in step with a task that has a period which divides ours. A
/// multiplicative hash of the cycle's number is randomness enough for that.
fn jitter(period: Duration, look: u32, looks: u32, cycle: u64, seed: i64) -> Duration {
    let number = cycle.wrapping_mul(1021).wrapping_add(u64::from(look)) ^ seed.unsigned_abs();
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let random = mixed as f64 / f64::from(u32::MAX);
    let share = (f64::from(look) + random) / f64::from(looks.max(1));
    // Apart from the readings, which look too.
    period.mul_f64(share.clamp(0.05, 0.95))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lrs_core::model::Order;
    use lrs_core::slots::Seat;

    #[test]
    fn each_task_has_its_turn_every_few_cycles_and_not_all_at_once() {
        for cycle in 0..u64::from(3 * CHECK_EVERY) {
            let task = |number| TaskId { epoch: 1, number };
            let due = (0..100).filter(|number| is_turn(task(*number), cycle)).count();
            assert_eq!(due, 25);
        }
        let turns = (0..8).filter(|cycle| is_turn(TaskId { epoch: 1, number: 7 }, *cycle));
        assert_eq!(turns.collect::<Vec<_>>(), [1, 5]);
    }

    #[test]
    fn a_writer_of_every_cycle_is_given_way_to_within_the_window() {
        let period = Duration::from_secs(3);
        let mut task = Task::lost(TaskId { epoch: 1, number: 7 }, Order(0), Seat::Active);
        let mut repairs = Vec::new();
        for cycle in 0..20 {
            let now = BootTime(period * cycle as u32);
            if is_checked(&task, cycle, now) && !task.is_contested() {
                task.note_repair(now);
                repairs.push(cycle);
            }
        }
        assert_eq!(repairs, [1, 2, 3, 4]);
        assert!(task.is_contested());
    }

    #[test]
    fn looks_are_spread_over_the_period() {
        let period = Duration::from_secs(3);
        let single: Vec<_> = (0..100).map(|cycle| jitter(period, 0, 1, cycle, 12345)).collect();
        assert!(single.iter().all(|look| *look > Duration::ZERO && *look < period));
        let early = single.iter().filter(|look| **look < period / 2).count();
        assert!((20..80).contains(&early), "{early} of 100 in the first half");
        for cycle in 0..100 {
            let looks: Vec<_> = (0..4).map(|look| jitter(period, look, 4, cycle, 7)).collect();
            assert!(looks.is_sorted(), "{looks:?}");
        }
    }
}
