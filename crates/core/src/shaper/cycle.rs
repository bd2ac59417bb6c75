//! What the shaper does once a cycle: follow the node's CPUs, guard its memory, open passive
//! slots while CPU is spare and close them when it is not (thesis 4.3.2.1; spec 3 and 6).
//!
//! The source says that capacity also shrinks but not how. Here: a saturated CPU withdraws
//! every free expanded slot at once (fast down); otherwise an expanded slot goes after it was
//! free throughout `shrink_after` cycles. A slot in use is never withdrawn. Slots on trial: probe.rs;
//! slots opened between two cycles: ramp.rs.
//!
//! Where every other slot is taken, slots that were closed because no task took them open again with
//! the next cycle. If no task came or went meanwhile they then stay, as many as memory allows, until
//! the CPU is saturated or the guard holds: schedulers that read free slots find them, and tasks that
//! sleep do not make slots open and close for ever.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Shaper;
use crate::bound::Bound;
use crate::capacity::{CpuShares, Expansion, slots_that_fit, slots_to_add};
use crate::event::EventKind;
use crate::guard::{Signals, Turn};
use crate::measured::Measured;
use crate::memory::{Memory, Room};
use crate::pace;
use crate::probe::{Formula, Progress, Verdict, slots_carried};
use crate::state::Totals;
use crate::units::{BootTime, Bytes, Moment};

impl Shaper {
    /// One cycle. Readings of tasks are taken by [`Shaper::read`] before.
    pub(crate) fn cycle(&mut self, measured: &Measured, now: Moment) {
        self.follow_cpus(measured, now);
        self.opening.cycle(&self.jobs, self.tasks.values().map(Box::as_ref));
        let saturation = self.policy.cpu_saturation;
        self.opening.saturated = measured.cpu.is_some_and(|cpu| cpu.saturated(saturation));
        let resident = self.mean_resident(now.boot).max(self.ahead.resident);
        let owed = self.memory_to_come(resident, now.boot);
        self.note_memory(measured.memory.as_ref(), owed, now.boot);
        // The slots of what has expired are given by what this cycle says.
        self.expire(now);
        self.follow_cycle();
        self.freed.cycle(now.boot);
        self.flush_refusals(now);
        let Measured { memory_full, swap_growth, .. } = *measured;
        let signals = Signals { memory: measured.memory.clone(), memory_full, swap_growth };
        self.guard_memory(&signals, now);
        self.guard_freeze(&signals, now);
        self.note_idle(now);
        self.opening.in_cycle = true;
        self.rearrange(now);
        self.opening.in_cycle = false;

        let free_throughout =
            self.free_window.end_cycle(self.slots.passive_free(), self.policy.shrink_after);
        let opened = self.ahead.cycle();
        self.bound = self.bound_by_state();
        let Some(cpu) = measured.cpu else { return };
        self.fill_lane(cpu.saturated(self.policy.cpu_saturation), now);
        self.judge_step(now);
        self.judge_trial(&cpu, now);
        // What these judged may hold expansion back.
        self.bound = self.bound_by_state();
        if cpu.saturated(self.policy.cpu_saturation) {
            let by_kind = if self.opening.lacks_memory { Bound::Memory } else { Bound::Compute };
            self.bound = self.bound.or(Some(by_kind));
            self.shrink_by(u32::MAX, "the CPU is saturated", &cpu, now);
        } else if let Some(free) = free_throughout.filter(|free| *free > 0) {
            self.close_untaken(free, &cpu, measured.memory.as_ref(), now);
        } else if opened == 0 {
            // Else slots were opened ahead of this cycle, which looks back on the time before.
            let memory = self.opening.memory.clone();
            self.ahead.last = self.expand(&cpu, memory.as_ref(), resident, u32::MAX, now);
        }
    }

    /// Whether CPU that is spare may open passive slots now.
    pub(crate) fn may_expand(&self) -> bool {
        self.expands() && self.is_full() && self.room() > 0
    }

    /// Whether it may on a node that is full.
    fn expands(&self) -> bool {
        let held = self.draining() || self.holding() || self.probe.owed() > 0 || self.backs_off();
        self.policy.expand && !held
    }

    /// Passive slots that may still be opened.
    pub(crate) fn room(&self) -> u32 {
        self.slots.passive_max.saturating_sub(self.slots.passive_capacity)
    }

    /// Opens as many slots as the formula says; by probe as many as the CPU could carry, which is a
    /// trial where no request waits for them. Never more than `most`. Answers how many.
    pub(crate) fn expand(
        &mut self,
        cpu: &CpuShares,
        memory: Option<&Memory>,
        resident: Option<Bytes>,
        most: u32,
        now: Moment,
    ) -> u32 {
        if !self.may_expand() {
            let throughput = self.probe.gained_nothing().then_some(Bound::Throughput);
            self.bound = self.bound_by_state().or(throughput);
            return 0;
        }
        let expansion = Expansion {
            cores: self.cpus.slots(),
            slot_max: self.slots.allocated(),
            io_wait_threshold: self.policy.io_wait_threshold,
            room: self.room().min(most),
        };
        let trying = self.probe.is_trying();
        let by_formula = if trying { 0 } else { slots_to_add(cpu, &expansion) };
        let waiting = u32::try_from(self.waiting()).unwrap_or(u32::MAX);
        let carried = match self.policy.formula {
            Formula::Probe if waiting > 0 && !trying && !self.probe.is_paused() => {
                slots_carried(cpu, expansion.slot_max).min(waiting)
            }
            Formula::Probe if waiting == 0 && self.probe.may_try() => {
                slots_carried(cpu, expansion.slot_max)
            }
            _ => 0,
        };
        let wanted = by_formula.max(carried.min(expansion.room));
        let room = memory.map(|memory| self.room_that_binds(memory));
        let (room, reserve) = room.unzip();
        let available = room.map(|room| room.available);
        let n = slots_that_fit(wanted, resident, available, reserve.unwrap_or_default());
        if n == 0 {
            let known = resident.is_some() && available.is_some();
            self.bound = self.bound_by_cpu(cpu, wanted, known);
            return 0;
        }
        self.bound = None;
        let tried = if waiting > 0 { 0 } else { n.saturating_sub(by_formula) };
        let from = self.slots.passive_capacity;
        self.slots.passive_capacity = from + n;
        self.free_window.restart();
        self.interference.added(n);
        if tried == 0 {
            self.probe.added();
        }
        let mut inputs = cpu_inputs(cpu);
        inputs.insert("cores".into(), json!(expansion.cores));
        inputs.insert("slot_max".into(), json!(expansion.slot_max));
        inputs.insert("n_by_cpu".into(), json!(wanted));
        inputs.insert("n".into(), json!(n));
        inputs.insert("mean_resident_bytes".into(), json!(resident));
        inputs.insert("memory_available_bytes".into(), json!(available));
        inputs.insert("memory_reserve_bytes".into(), json!(reserve));
        if let Some(room) = room {
            room.name_limit(&mut inputs);
        }
        let reason = if tried > 0 {
            self.probe.tried(tried);
            inputs.insert("n_on_trial".into(), json!(tried));
            "every slot is taken, and CPU is spare for more: on trial"
        } else if cpu.iowait > self.policy.io_wait_threshold {
            "every slot is taken and the CPUs wait for I/O"
        } else {
            "every slot is taken and CPU is spare"
        };
        self.record_capacity(EventKind::Expanded, from, reason, inputs, now);
        self.rearrange(now);
        n
    }

    /// The room for memory that binds, and what of it no new slot may take.
    pub(super) fn room_that_binds<'m>(&self, memory: &'m Memory) -> (&'m Room, Bytes) {
        memory.least_above(|all| self.policy.memory_reserve.of(all))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.slots.active_free() == 0 && self.slots.passive_free() == 0
    }

    fn judge_trial(&mut self, cpu: &CpuShares, now: Moment) {
        if self.policy.formula == Formula::Lrs {
            return;
        }
        let rates = self.tasks.values().map(|task| &task.counts.rates);
        let bytes = rates.flat_map(|rates| [rates.read_per_sec, rates.write_per_sec]);
        let cpus = cpu.effective.value() * self.cpus.total();
        let progress = Progress { cpus, bytes: bytes.flatten().sum() };
        let full = self.is_full();
        let Some(verdict) = self.probe.end_cycle(progress, full, now.boot) else { return };
        let Verdict { slots, kept, before, with } = verdict;
        self.record(now, EventKind::Probe, None, |event| {
            let (state, reason) = if kept {
                ("kept", "more was done with these slots than before")
            } else {
                ("taken back", "no more was done with these slots; they go as they come free")
            };
            event.to = Some(state.into());
            event.reason = Some(reason.into());
            for (key, value) in [
                ("slots", json!(slots)),
                ("cpus_before", json!(rounded(before.cpus))),
                ("cpus_with", json!(rounded(with.cpus))),
                ("bytes_per_sec_before", json!(before.bytes.round())),
                ("bytes_per_sec_with", json!(with.bytes.round())),
            ] {
                event.inputs.insert(key.into(), value);
            }
        });
    }

    /// Whether expansion waits because the last step made active tasks wait.
    pub(crate) fn backs_off(&self) -> bool {
        self.policy.guard.is_some_and(|guard| !guard.dry_run) && self.interference.backs_off()
    }

    /// Compares what active tasks lose with what they lost before the last step of expansion.
    fn judge_step(&mut self, now: Moment) {
        let Some(policy) = self.policy.guard else { return };
        let full = self.is_full();
        let active = self.slots.active_tier().filter_map(|id| {
            let task = self.tasks.get(&id)?;
            Some((id, task.counts.lost))
        });
        let limit = policy.interference;
        let Some(worse) = self.interference.end_cycle(active, full, limit, now.boot) else {
            return;
        };
        self.record(now, EventKind::Guard, None, |event| {
            event.to = Some("backs_off".into());
            event.reason = Some(format!(
                "active tasks waited for {:.1} % of the time before {} passive slots were added and \
                 for {:.1} % since: they go as they come free, and none is added for a while",
                100.0 * worse.before,
                worse.slots,
                100.0 * worse.with
            ));
            for (key, value) in [
                ("slots", json!(worse.slots)),
                ("lost_before", json!(rounded(worse.before))),
                ("lost_with", json!(rounded(worse.with))),
                ("tasks", json!(worse.tasks)),
                ("limit", json!(limit)),
                ("dry_run", json!(policy.dry_run)),
            ] {
                event.inputs.insert(key.into(), value);
            }
        });
        if !policy.dry_run {
            let expanded = self.slots.passive_capacity.saturating_sub(self.slots.base);
            self.probe.give_up(worse.slots.min(expanded), now.boot);
            self.take_back(now);
        }
    }

    /// Takes back slots of a trial that gained nothing, as far as they are free.
    pub(crate) fn take_back(&mut self, now: Moment) {
        if let Some(passive) = self.passive_after_growth.take() {
            let above = self.slots.passive_capacity.saturating_sub(passive);
            self.slots.passive_capacity -= above.min(self.slots.passive_free());
        }
        let owed = self.probe.owed().min(self.slots.passive_free());
        if owed > 0 {
            let reason = if self.backs_off() {
                "active tasks waited more with them"
            } else {
                "tried without gain"
            };
            self.withdraw(owed, reason, Map::new(), now);
        }
    }

    /// Closes expanded slots of the `free` ones that no task took. Those that opened again since such
    /// slots were closed, with the same tasks, stay if memory allows them.
    fn close_untaken(&mut self, free: u32, cpu: &CpuShares, memory: Option<&Memory>, now: Moment) {
        let Totals { admitted, completed, released, .. } = self.totals;
        let came_and_went = Some(admitted + completed + released);
        let others_taken =
            self.slots.active_free() == 0 && self.slots.passive_in_use() >= self.slots.base;
        let opens_again = self.expands() && others_taken && !self.probe.is_trying();
        let stay = if opens_again && self.untaken == came_and_went {
            let (room, reserve) = memory.map(|memory| self.room_that_binds(memory)).unzip();
            let available = room.map(|room| room.available);
            let resident = self.mean_resident(now.boot);
            slots_that_fit(free, resident, available, reserve.unwrap_or_default())
        } else {
            0
        };
        let from = self.slots.passive_capacity;
        let reason = if stay > 0 {
            "free for the last cycles, and memory is short"
        } else {
            "free for the last cycles"
        };
        self.shrink_by(free - stay, reason, cpu, now);
        if self.slots.passive_capacity < from {
            self.untaken = came_and_went;
        }
    }

    fn shrink_by(&mut self, most: u32, reason: &str, cpu: &CpuShares, now: Moment) {
        self.withdraw(most, reason, cpu_inputs(cpu), now);
    }

    /// Withdraws at most `most` free expanded slots.
    pub(super) fn withdraw(
        &mut self,
        most: u32,
        reason: &str,
        inputs: Map<String, Value>,
        now: Moment,
    ) {
        let slots = &mut self.slots;
        let from = slots.passive_capacity;
        let floor = slots.base.max(slots.passive_in_use());
        let to = from.saturating_sub(most).max(floor);
        if to >= from {
            return;
        }
        slots.passive_capacity = to;
        self.probe.withdrawn(to - slots.base, from - to, now.boot);
        self.interference.withdrawn();
        self.free_window.restart();
        self.record_capacity(EventKind::Shrunk, from, reason, inputs, now);
    }

    pub(super) fn record_capacity(
        &mut self,
        kind: EventKind,
        from: u32,
        reason: &str,
        inputs: Map<String, Value>,
        now: Moment,
    ) {
        let to = self.slots.passive_capacity;
        self.record(now, kind, None, |event| {
            event.from = Some(from.to_string());
            event.to = Some(to.to_string());
            event.reason = Some(reason.to_owned());
            event.inputs = inputs;
        });
    }

    fn guard_memory(&mut self, signals: &Signals, now: Moment) {
        let Some(policy) = self.policy.guard else { return };
        let Signals { memory_full, swap_growth, .. } = *signals;
        let Some(turn) = self.guard.step(&policy, signals, now) else { return };
        let (from, to, reason) = match turn {
            Turn::Entered(reason) => ("0", "1", reason),
            Turn::Left(reason) => ("1", "0", reason),
        };
        self.record(now, EventKind::Guard, None, |event| {
            event.from = Some(from.into());
            event.to = Some(to.into());
            signals.name_memory(&policy, &mut event.inputs);
            event.inputs.insert("memory_full".into(), json!(memory_full));
            event.inputs.insert("swap_growth_per_sec".into(), json!(swap_growth));
            event.inputs.insert("dry_run".into(), json!(policy.dry_run));
            event.reason = Some(reason.clone());
        });
        if to == "1" && self.holding() {
            self.withdraw(u32::MAX, &reason, Map::new(), now);
        }
    }

    /// The mean time of the tasks that run, by those of their jobs that finished; of one that runs
    /// longer, or has none in its job, what it has taken. `None`: no task runs.
    pub fn mean_task(&self, now: BootTime) -> Option<Duration> {
        let jobs = self.jobs();
        let times = self.tasks().filter(|(_, task)| !task.is_new()).map(|(_, task)| {
            let mean = task.job_key().and_then(|job| jobs.mean_seconds(&job));
            let so_far = now.since(task.admitted_at.boot).as_secs_f64();
            mean.unwrap_or(0.0).max(so_far)
        });
        let (sum, count) = times.fold((0.0, 0_u32), |(sum, count), it| (sum + it, count + 1));
        (count > 0)
            .then(|| Duration::try_from_secs_f64(sum / f64::from(count)).unwrap_or(pace::LONGEST))
    }

    /// Capacities as settings and CPUs have them now; an expanded passive tier stays expanded
    /// as far as it may. The caller rearranges.
    pub(crate) fn size(&mut self) {
        let active = self.policy.active.unwrap_or(self.cpus.slots()).max(1);
        let base = self.policy.passive.unwrap_or(active);
        let max = self.policy.passive_max.unwrap_or(active.saturating_mul(4)).max(base);
        let slots = &mut self.slots;
        let expanded = slots.passive_capacity.saturating_sub(slots.base);
        slots.active_capacity = active;
        slots.base = base;
        slots.passive_max = max;
        slots.passive_capacity = base.saturating_add(expanded).min(max).max(slots.passive_in_use());
    }

    /// Takes the CPUs of a reading; where it does not know them, the last known ones stay.
    pub(crate) fn follow_cpus(&mut self, measured: &Measured, now: Moment) {
        let Some(cpus) = measured.cpus else { return };
        let before = std::mem::replace(&mut self.cpus, cpus);
        if before.slots() != cpus.slots() {
            let (active, passive) = (self.slots.active_capacity, self.slots.passive_capacity);
            self.resize(&cpus.change_since(before), now);
            // Passive tasks move up into what comes back. The slots that they leave were kept for
            // them alone, when CPUs went, and are no room for others.
            let grown = self.slots.active_capacity.saturating_sub(active);
            self.passive_after_growth =
                (grown > 0).then(|| passive.saturating_sub(grown).max(self.slots.base));
        }
    }

    /// [`Shaper::size`], recorded where it changed something, for which `reason` is the cause. The
    /// weights of all tasks depend on A and `passive_max`; the caller, who has the numbers, follows.
    pub(crate) fn resize(&mut self, reason: &str, now: Moment) {
        let before = (self.slots.active_capacity, self.slots.base);
        self.size();
        let expanded = self.slots.passive_capacity.saturating_sub(self.slots.base);
        self.probe.withdrawn(expanded, 0, now.boot);
        self.free_window.restart();
        let after = (self.slots.active_capacity, self.slots.base);
        if before == after {
            return;
        }
        let cpus = self.cpus;
        self.record(now, EventKind::Resized, None, |event| {
            event.from = Some(format!("{} active, {} passive", before.0, before.1));
            event.to = Some(format!("{} active, {} passive", after.0, after.1));
            event.reason = Some(reason.to_owned());
            event.inputs.insert("cpus".into(), json!(cpus.spread()));
            event.inputs.insert("cpu_quota".into(), json!(cpus.binding_quota()));
        });
    }
}

fn cpu_inputs(cpu: &CpuShares) -> Map<String, Value> {
    let mut inputs = Map::new();
    for (key, share) in [("effective", cpu.effective), ("iowait", cpu.iowait), ("steal", cpu.steal)]
    {
        inputs.insert(key.into(), json!(rounded(share.value())));
    }
    inputs
}

/// Four digits are what a person reads; more is noise of the sampling.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
