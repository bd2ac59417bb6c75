//! Active slots on loan, as the shaper stands: who may borrow, and the events; the rule is in
//! [`crate::loan`].

use serde_json::json;

use super::Shaper;
use crate::event::EventKind;
use crate::loan::{Holder, IDLE, Loans};
use crate::model::{TaskId, Tier};
use crate::slice::COMPUTES;
use crate::slots::Seat;
use crate::task::Task;
use crate::units::{Moment, Share};

impl Shaper {
    /// Who has an active slot on loan, and who lends his.
    pub fn loans(&self) -> &Loans {
        &self.loans
    }

    /// Tasks with CPU counters that are wanted every [`LOOK`](crate::lane::LOOK).
    pub fn looked_at(&self) -> impl Iterator<Item = TaskId> {
        self.lane.members().chain(self.loans.watched())
    }

    /// Once a cycle: which active tasks were idle.
    pub(crate) fn note_idle(&mut self, now: Moment) {
        let active =
            self.tasks.values().filter(|task| task.seat == Seat::Active && task.is_placed());
        let holders: Vec<Holder> = active
            .map(|task| {
                let counts = &task.counts;
                let below = |share: Option<Share>, most| share.is_some_and(|s| s.value() < most);
                let meter = &counts.meter;
                let in_mean =
                    || below(meter.computing_rate(), COMPUTES) && below(meter.disk_share(), IDLE);
                // Where a reading failed, nothing is known of the cycle.
                let read = counts.rates.cpu_share.is_some();
                let idle = read && counts.idle.unwrap_or_else(in_mean);
                Holder { task: task.id, idle, halted: task.halted.is_some() }
            })
            .collect();
        self.loans.cycle(&holders, now.boot);
    }

    /// Ends loans and makes new ones, where something changed.
    pub(crate) fn lend(&mut self, now: Moment) {
        if !std::mem::take(&mut self.loans.changed) {
            return;
        }
        let lent = if self.policy.lend { self.loans.lent() } else { 0 };
        if lent == 0 && self.loans.borrowers().is_empty() {
            return;
        }
        let before = self.loans.borrowers().to_vec();
        let wanted = self.who_borrows(lent);
        let ended: Vec<_> = before.iter().filter(|id| !wanted.contains(id)).copied().collect();
        // Who may borrow depends on who does.
        let ended: Vec<_> = ended.into_iter().map(|id| (id, self.loan_end_reason(id))).collect();
        self.loans.set_borrowers(&wanted);
        for (id, reason) in ended {
            self.end_loan(id, reason, now);
        }
        for id in wanted.into_iter().filter(|id| !before.contains(id)) {
            self.lane.leave(id, now.boot);
            self.set_loan(
                id,
                EventKind::Loan,
                "an active task is idle, and this one computes",
                now,
            );
        }
    }

    /// Who gets an active slot that came free, where `best` comes first: a task with one on loan, unless
    /// the priority of `best` is higher.
    pub(crate) fn borrower_before(&self, best: TaskId) -> TaskId {
        let priority = |id: TaskId| self.tasks.get(&id).map(|task| task.rank().priority());
        let equal = |id: &&TaskId| priority(**id) == priority(best);
        self.loans.borrowers().iter().find(equal).copied().unwrap_or(best)
    }

    /// The daemon stops: nothing looks at who lends.
    pub(crate) fn end_all_loans(&mut self, now: Moment) {
        let all = self.loans.borrowers().to_vec();
        self.loans.set_borrowers(&[]);
        for id in all {
            self.end_loan(id, "lrsd stops, and nothing sees when the lender wakes", now);
        }
    }

    /// The first passive tasks that compute, at most `lent`: within a priority those that borrow
    /// already, the first loan first.
    fn who_borrows(&self, lent: usize) -> Vec<TaskId> {
        let loan_of = |id| self.loans.borrowers().iter().position(|other| *other == id);
        let mut wanted: Vec<_> = self
            .slots
            .passive_that_run()
            .filter_map(|id| self.tasks.get(&id))
            .filter(|task| self.may_borrow(task))
            .map(|task| (task.rank().priority(), loan_of(task.id), task.id))
            .collect();
        // Stable: what is equal stays in the order of the slots.
        wanted.sort_by_key(|(priority, loan, _)| {
            (std::cmp::Reverse(*priority), loan.unwrap_or(usize::MAX))
        });
        wanted.into_iter().take(lent).map(|(_, _, id)| id).collect()
    }

    fn may_borrow(&self, task: &Task) -> bool {
        // One that is given back or that others shape keeps what it has.
        let shaped = task.is_placed() && !task.is_contested() || self.loans.has(task.id);
        shaped && !task.frozen && self.rate_of(task).is_some_and(|rate| rate.value() >= COMPUTES)
    }

    /// Why a task that borrowed does no more.
    fn loan_end_reason(&self, id: TaskId) -> &'static str {
        if !self.policy.lend {
            return "slots.lend is off";
        }
        match self.tasks.get(&id) {
            Some(task) if task.frozen => "it was frozen",
            Some(task) if !self.may_borrow(task) => "it computes no more",
            Some(task) if task.halted.is_some() => "others froze or stopped it",
            _ => "fewer active tasks are idle, or a task before it borrows",
        }
    }

    fn end_loan(&mut self, id: TaskId, reason: &str, now: Moment) {
        // One that is active now has the slot for good.
        if self.tasks.get(&id).is_some_and(|task| task.tier() == Tier::Passive) {
            self.set_loan(id, EventKind::LoanEnd, reason, now);
        }
    }

    fn set_loan(&mut self, id: TaskId, kind: EventKind, reason: &str, now: Moment) {
        let Some(level) = self.level(id) else { return };
        self.step.set_level(id, level);
        let lent = self.loans.lent();
        self.record(now, kind, Some(id.to_string()), |event| {
            event.reason = Some(reason.to_owned());
            event.inputs.insert("slots_lent".into(), json!(lent));
        });
    }
}
