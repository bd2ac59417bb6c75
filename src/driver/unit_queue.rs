//! The order in which systemd is asked: what is owed to units that are tasks first, look-ups
//! after.
//!
//! Clients ask for look-ups, as many as they like; a unit that is to get its weights back must
//! not wait for them. Among themselves the other jobs stay in order, so that none overtakes
//! another about the same unit.

use std::collections::VecDeque;

use super::unit_worker::{Asking, UnitJob};
use crate::core::model::TaskId;

/// Jobs that are not begun.
#[derive(Debug, Default)]
pub(super) struct UnitQueue {
    owed: VecDeque<UnitJob>,
    looks: VecDeque<Box<Asking>>,
}

impl UnitQueue {
    pub(super) fn push(&mut self, job: UnitJob) {
        match job {
            UnitJob::Look(asking) => self.looks.push_back(asking),
            UnitJob::ShapeRoot { .. } => {
                // Only the newest plan counts.
                self.owed.retain(|job| !matches!(job, UnitJob::ShapeRoot { .. }));
                self.owed.push_back(job);
            }
            job => self.owed.push_back(job),
        }
    }

    pub(super) fn pop(&mut self) -> Option<UnitJob> {
        self.owed.pop_front().or_else(|| self.looks.pop_front().map(UnitJob::Look))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.owed.is_empty() && self.looks.is_empty()
    }

    /// Whether systemd is about to be told a later tier of `task`.
    pub(super) fn has_tier_of(&self, task: TaskId) -> bool {
        self.owed
            .iter()
            .any(|job| matches!(job, UnitJob::Tell { task: other, .. } if *other == task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::WeightPlan;
    use crate::command::Caller;
    use crate::proto;
    use crate::systemd::unit::UnitRecord;

    fn task(number: u64) -> TaskId {
        TaskId { epoch: 1, number }
    }

    fn tell(number: u64) -> UnitJob {
        let unit = UnitRecord {
            name: "job.service".parse().unwrap(),
            control_group: "/system.slice/job.service".into(),
            found: Default::default(),
            given: Vec::new(),
            adopted: false,
        };
        UnitJob::Tell { task: task(number), unit, settings: Vec::new() }
    }

    fn look() -> UnitJob {
        let caller = Caller { uid: 0, gids: Vec::new(), pid: None, granted: None };
        let request = proto::AdmitRequest { pid: 7, ..Default::default() };
        let request = crate::request::admit(request, &caller).unwrap();
        let (reply, _) = tokio::sync::oneshot::channel();
        UnitJob::Look(Box::new(Asking { caller, request, reply }))
    }

    #[test]
    fn the_root_is_shaped_by_the_newest_plan_alone() {
        let plan = |ratio| WeightPlan { ratio, active_capacity: 1, passive_max: 1 };
        let mut queue = UnitQueue::default();
        for job in
            [UnitJob::ShapeRoot { plan: plan(10) }, tell(1), UnitJob::ShapeRoot { plan: plan(100) }]
        {
            queue.push(job);
        }
        assert!(matches!(queue.pop(), Some(UnitJob::Tell { .. })));
        assert!(
            matches!(queue.pop(), Some(UnitJob::ShapeRoot { plan: newest }) if newest == plan(100))
        );
        assert!(queue.is_empty());
    }

    #[test]
    fn look_ups_wait_for_everything_else() {
        let mut queue = UnitQueue::default();
        for job in [look(), tell(1), look(), tell(2)] {
            queue.push(job);
        }
        assert!(queue.has_tier_of(task(2)) && !queue.has_tier_of(task(3)));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop())
            .map(|job| match job {
                UnitJob::Tell { task, .. } => Some(task),
                _ => None,
            })
            .collect();
        assert_eq!(order, [Some(task(1)), Some(task(2)), None, None]);
        assert!(queue.is_empty());
    }
}
