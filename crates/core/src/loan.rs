//! Active slots on loan: what an active task leaves while it sleeps, a passive one that computes uses.
//!
//! A task that only waits for others keeps its active slot: a reducer that began with the first maps holds
//! it for minutes, while the maps it waits for are passive. So an active task that was idle for
//! [`CYCLES`] lends its slot. It keeps its active weight, which costs nothing while it sleeps, and the
//! first passive task that computes gets active weights as well, until the lender wakes.
//!
//! - Idle is a cycle in which what the task used of a CPU and waited for one is less than [`IDLE`] together,
//!   and what it waited for disks too. Where it waited longer for CPUs, up to [`MOST_WAIT`] of the time, what it
//!   used is compared with the rest of the time, and its mean since its admission must not say that it
//!   computes: beside services the threads of a reducer wait for CPUs several times as long as they compute,
//!   but so does a task that is starved. A task that others froze or stopped is idle at once.
//! - Who lends is [`looked`](Loans::look) at every [`LOOK`](crate::lane::LOOK), while anybody borrows. One that
//!   used more than [`WAKES`] of a CPU in each of the last two intervals between looks has woken. In one alone it
//!   is a burst, as of a JVM that fetches the output of a map or collects garbage. One that woke lends no more, and
//!   the loan that was made last ends, whoever it is: no borrower has a certain slot. So a lender and a borrower
//!   share a CPU as equals for about a quarter of a second; where the lender computes every other 100 ms, until
//!   the end of the cycle.
//! - One that woke has to be idle for twice as many cycles before it lends again, at most
//!   [`MOST_CYCLES`], so that weights are seldom written. After [`FORGIVEN`] of lending it begins anew.
//! - A borrower stays in its passive slot in all counts, and what schedulers are offered knows no loans.
//!
//! Limits. Where the kernel has no PSI, a cycle says nothing of waits, and the mean since the admission decides
//! with it. PSI averages a wait over the CPUs: a task that is starved on many of them in turn is idle here
//! where its mean does not say that it computes. A task that works by the network alone and computes little is idle
//! here: what it lends is CPU that it does not use.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::model::TaskId;
use super::rate::Interval;
use crate::units::BootTime;

/// Cycles in a row that a task has to be idle before it lends its slot.
pub const CYCLES: u32 = 2;

/// The most of it, for one that woke again and again.
const MOST_CYCLES: u32 = 64;

/// After it lent for so long, a lender that wakes needs [`CYCLES`] again: two writes of weights a minute are few.
const FORGIVEN: Duration = Duration::from_secs(60);

/// Part of a CPU, and of the time on disks, below which a task is idle.
pub const IDLE: f64 = 0.05;

/// Part of the time waited for CPUs above which a task was not idle, whatever it used.
const MOST_WAIT: f64 = 0.5;

/// Part of a CPU that a lender uses, from look to look, when it has woken.
pub const WAKES: f64 = 0.2;

/// What a cycle says of an active task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The task.
    pub task: TaskId,
    /// It was idle in the last cycle: see the module.
    pub idle: bool,
    /// Others froze or stopped it.
    pub halted: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Record {
    /// Cycles in a row that it was idle.
    idle: u32,
    /// Cycles it has to be.
    needs: u32,
    /// Since when it lends.
    lends: Option<BootTime>,
    /// Its CPU counter, when it was looked at last.
    looked: Option<(BootTime, Duration)>,
    /// It used more than [`WAKES`] of a CPU up to the last look.
    #[serde(default)]
    computes: bool,
    halted: bool,
}

impl Record {
    fn wake(&mut self, now: BootTime) {
        if let Some(since) = self.lends.take() {
            let forgiven = now.since(since) >= FORGIVEN;
            self.needs = if forgiven { CYCLES } else { (self.needs * 2).min(MOST_CYCLES) };
        }
        (self.idle, self.looked, self.halted) = (0, None, false);
    }
}

/// Who lends, and who borrows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Loans {
    active: BTreeMap<TaskId, Record>,
    /// The first loan first.
    borrowers: Vec<TaskId>,
    /// Something changed since who borrows was decided.
    pub(super) changed: bool,
}

/// Whether a task was idle in `interval`; `None`: it hardly used a CPU, and its mean has to say whether it
/// would have.
pub fn is_idle(interval: &Interval) -> Option<bool> {
    let part = |time: Duration| time.as_secs_f64() / interval.elapsed.as_secs_f64();
    let used = part(interval.cpu);
    if used >= IDLE {
        return Some(false);
    }
    let waits = interval.pressure?;
    let waited = part(waits.cpu_some);
    if part(waits.io_some) >= IDLE || waited >= MOST_WAIT || used >= IDLE * (1.0 - waited) {
        return Some(false);
    }
    (used + waited < IDLE).then_some(true)
}

impl Loans {
    /// A cycle is over. `active`: who is in an active slot.
    pub fn cycle(&mut self, active: &[Holder], now: BootTime) {
        let mut before = std::mem::take(&mut self.active);
        for Holder { task, idle, halted } in active {
            let new = Record {
                idle: 0,
                needs: CYCLES,
                lends: None,
                looked: None,
                computes: false,
                halted: false,
            };
            let mut record = before.remove(task).unwrap_or(new);
            if *idle {
                record.idle = record.idle.saturating_add(1);
            } else if !halted {
                record.wake(now);
            }
            record.halted = *halted;
            if record.lends.is_none() && (*halted || record.idle >= record.needs) {
                record.lends = Some(now);
            }
            self.active.insert(*task, record);
        }
        self.changed = true;
    }

    /// Others froze or stopped a task, or it runs again.
    pub fn halt(&mut self, task: TaskId, halted: bool, now: BootTime) {
        self.changed |= self.has(task);
        let Some(record) = self.active.get_mut(&task) else { return };
        if halted && record.lends.is_none() {
            (record.lends, self.changed) = (Some(now), true);
        } else if !halted && record.halted {
            record.wake(now);
            self.changed = true;
        }
        record.halted = halted;
    }

    /// Compares what lenders used since they were looked at last. `None`: a counter that cannot be read,
    /// which is that of one that woke.
    pub fn look(&mut self, counters: &[(TaskId, Option<Duration>)], now: BootTime) {
        for (task, cpu) in counters {
            let Some(record) = self.active.get_mut(task).filter(|record| record.lends.is_some())
            else {
                continue;
            };
            let used = cpu.zip(record.looked).map(|(cpu, (at, before))| {
                let elapsed = now.since(at).as_secs_f64().max(f64::MIN_POSITIVE);
                cpu.saturating_sub(before).as_secs_f64() / elapsed
            });
            record.looked = cpu.map(|cpu| (now, cpu));
            let computed = std::mem::replace(&mut record.computes, used > Some(WAKES));
            if cpu.is_none() && !record.halted || computed && record.computes {
                record.wake(now);
                self.changed = true;
            }
        }
    }

    /// A task has no active slot any more, or ended.
    pub fn forget(&mut self, task: TaskId) {
        self.changed |= self.active.remove(&task).is_some();
        let before = self.borrowers.len();
        self.borrowers.retain(|borrower| *borrower != task);
        self.changed |= self.borrowers.len() != before;
    }

    /// Who borrows is to be decided anew, since something of `task` changed; answers whether it borrows.
    pub(super) fn decide_again(&mut self, task: TaskId) -> bool {
        let borrows = self.has(task);
        self.changed |= borrows;
        borrows
    }

    /// How many slots may be on loan.
    pub fn lent(&self) -> usize {
        self.active.values().filter(|record| record.lends.is_some()).count()
    }

    /// Whether a task lends its slot.
    pub fn lends(&self, task: TaskId) -> bool {
        self.active.get(&task).is_some_and(|record| record.lends.is_some())
    }

    /// Whether a task has an active slot on loan.
    pub fn has(&self, task: TaskId) -> bool {
        self.borrowers.contains(&task)
    }

    /// Who borrows, the first loan first.
    pub fn borrowers(&self) -> &[TaskId] {
        &self.borrowers
    }

    /// Who is to be looked at: those that lend, while anybody borrows.
    pub fn watched(&self) -> impl Iterator<Item = TaskId> {
        let lends = |(task, record): (&TaskId, &Record)| record.lends.map(|_| *task);
        self.active.iter().filter(|_| !self.borrowers.is_empty()).filter_map(lends)
    }

    /// From now on these borrow; those that did before keep the order of their loans.
    pub(super) fn set_borrowers(&mut self, wanted: &[TaskId]) {
        self.borrowers.retain(|task| wanted.contains(task));
        let new = wanted.iter().filter(|task| !self.borrowers.contains(task)).copied();
        let new: Vec<TaskId> = new.collect();
        self.borrowers.extend(new);
        if self.borrowers.is_empty() {
            // What they use while none is looked at is not compared.
            self.active.values_mut().for_each(|record| record.looked = None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::TaskPressure;

    const SLEEPER: TaskId = TaskId { epoch: 1, number: 1 };

    fn at(millis: u64) -> BootTime {
        BootTime(Duration::from_millis(millis))
    }

    fn cycle(loans: &mut Loans, idle: bool, millis: u64) -> bool {
        loans.cycle(&[Holder { task: SLEEPER, idle, halted: false }], at(millis));
        loans.lends(SLEEPER)
    }

    #[test]
    fn who_sleeps_lends_after_two_cycles_and_after_each_waking_later() {
        let mut loans = Loans::default();
        assert!(!cycle(&mut loans, true, 0));
        assert!(cycle(&mut loans, true, 3000));
        assert!(!cycle(&mut loans, false, 6000), "it woke");
        let cycles = (1..10).find(|n| cycle(&mut loans, true, 6000 + 3000 * n));
        assert_eq!(cycles, Some(4));
        // A long loan begins anew.
        assert!(cycle(&mut loans, true, 78_000));
        assert!(!cycle(&mut loans, false, 81_000));
        assert!(!cycle(&mut loans, true, 84_000));
        assert!(cycle(&mut loans, true, 87_000));
    }

    #[test]
    fn a_lender_that_uses_a_fifth_of_a_cpu_for_longer_than_a_burst_has_woken() {
        let mut loans = Loans::default();
        cycle(&mut loans, true, 0);
        cycle(&mut loans, true, 3000);
        loans.set_borrowers(&[TaskId { epoch: 1, number: 2 }]);
        let mut look = |millis, cpu: Option<u64>| {
            loans.look(&[(SLEEPER, cpu.map(Duration::from_millis))], at(millis));
            loans.lends(SLEEPER)
        };
        assert!(look(3100, Some(5000)), "the first look has nothing to compare");
        assert!(look(3200, Some(5019)));
        assert!(look(3300, Some(5100)), "a burst");
        assert!(look(3400, Some(5110)));
        assert!(look(3500, Some(5131)), "another one");
        assert!(!look(3600, Some(5152)));

        // Without a borrower, what it used before counts no more.
        let lent = |n: u64| 3600 + 3000 * n;
        assert_eq!((1..9).find(|n| cycle(&mut loans, true, lent(*n))), Some(4));
        loans.look(&[(SLEEPER, Some(Duration::from_secs(6)))], at(16_000));
        loans.look(&[(SLEEPER, Some(Duration::from_millis(6050)))], at(16_100));
        loans.set_borrowers(&[]);
        loans.set_borrowers(&[TaskId { epoch: 1, number: 2 }]);
        loans.look(&[(SLEEPER, Some(Duration::from_millis(6100)))], at(16_200));
        loans.look(&[(SLEEPER, Some(Duration::from_millis(6150)))], at(16_300));
        assert!(loans.lends(SLEEPER), "the first burst since");
    }

    #[test]
    fn who_is_stopped_lends_at_once_and_not_when_it_goes_on() {
        let mut loans = Loans::default();
        assert!(!cycle(&mut loans, false, 0));
        loans.halt(SLEEPER, true, at(1));
        assert!(loans.lends(SLEEPER));
        loans.cycle(&[Holder { task: SLEEPER, idle: true, halted: true }], at(3000));
        loans.halt(SLEEPER, false, at(3001));
        assert!(!loans.lends(SLEEPER));
    }

    #[test]
    fn who_hardly_computes_and_waits_is_idle_unless_waits_hide_what_it_would_compute() {
        let idle = |cpu, waits: Option<(u64, u64)>| {
            is_idle(&Interval {
                elapsed: Duration::from_secs(3),
                cpu: Duration::from_millis(cpu),
                pressure: waits.map(|(cpu, disk)| TaskPressure {
                    cpu_some: Duration::from_millis(cpu),
                    io_some: Duration::from_millis(disk),
                }),
                thread: None,
                cpus: 2,
            })
        };
        assert_eq!(idle(90, Some((10, 10))), Some(true), "a reducer that waits for maps");
        assert_eq!(idle(160, None), Some(false));
        assert_eq!(idle(60, Some((400, 0))), None, "the same beside services, or starved");
        assert_eq!(idle(60, Some((1470, 0))), None, "on two CPUs in turn");
        assert_eq!(idle(120, Some((700, 0))), Some(false), "more than a twentieth of the rest");
        assert_eq!(idle(10, Some((1510, 0))), Some(false));
        assert_eq!(idle(0, Some((2990, 0))), Some(false), "it got no CPU");
        assert_eq!(idle(10, Some((0, 400))), Some(false));
        assert_eq!(idle(10, None), None);
    }
}
