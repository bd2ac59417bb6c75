//! Another priority for a whole job: its tasks that run and its requests that wait.
//!
//! All are changed before anything is placed anew, so that no task of the job is promoted or demoted on
//! the way to where it ends up; one after the other would do that, and end with tasks of the same
//! priorities in the active tier.
//!
//! Limits. A reservation keeps its priority, and so does a task that comes later: it says its own. What
//! waits is not stored, so a request that comes back after a restart of the daemon has again the
//! priority that its client says.

use super::Shaper;
use crate::model::{Label, Labels, Priority, TaskId};
use crate::step::Ticket;
use crate::units::Moment;

/// What there is of a job, of all kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WholeJob {
    /// Its tasks that run.
    pub tasks: Vec<TaskId>,
    /// Its requests that wait, each with the user of the task that it is going to be.
    pub waiters: Vec<(Ticket, u32)>,
}

impl WholeJob {
    /// Whether there is nothing of it.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.waiters.is_empty()
    }
}

impl Shaper {
    /// What there is of a job of this user; `None`: of all jobs of that name.
    pub fn whole_job(&self, job: &Label, uid: Option<u32>) -> WholeJob {
        let mut found = WholeJob::default();
        let is_meant = |labels: &Labels, owner: Option<u32>| {
            labels.job.as_ref() == Some(job) && (uid.is_none() || owner == uid)
        };
        let meant = self.tasks().filter(|(_, task)| is_meant(&task.labels, task.uid));
        found.tasks.extend(meant.map(|(id, _)| id));
        for (ticket, waiter) in &self.waiters {
            let owner = waiter.request.uid;
            if is_meant(&waiter.request.labels, Some(owner)) {
                found.waiters.push((*ticket, owner));
            }
        }
        found
    }

    /// Changes the priority of all that there is of a job; the rules of placement apply once.
    pub(crate) fn set_job_priority(
        &mut self,
        job: &Label,
        uid: Option<u32>,
        priority: Priority,
        now: Moment,
    ) {
        let WholeJob { tasks, waiters, .. } = self.whole_job(job, uid);
        for id in tasks {
            self.change_priority(id, priority, now);
        }
        for (ticket, _) in waiters {
            if let Some(waiter) = self.waiters.get_mut(&ticket) {
                self.queue.remove(waiter.place(ticket));
                waiter.request.priority = Some(priority);
                self.queue.insert(waiter.place(ticket));
            }
        }
        self.rearrange(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::event::EventKind;
    use crate::model::Standing;
    use crate::proptests::Ask;
    use crate::slots::Seat;
    use crate::state::{Need, Patience, Policy, Request, Restored};
    use crate::step::Input;
    use crate::task::Who;
    use crate::units::{BootTime, WallTime};

    const OWN: u32 = 7;

    fn at(seconds: u64) -> Moment {
        let boot = BootTime(Duration::from_secs(seconds));
        Moment { boot, wall: WallTime::from_unix_micros(seconds as i64 * 1_000_000) }
    }

    fn label(text: &str) -> Label {
        Label::new(text).unwrap()
    }

    /// One that asks: of which user and job, with which priority, and how it came.
    #[derive(Clone, Copy, Debug)]
    struct Asks {
        own: bool,
        of_job: bool,
        priority: i32,
        standing: Option<Standing>,
    }

    fn asks() -> impl Strategy<Value = Asks> {
        let standing = prop_oneof![
            4 => Just(None),
            1 => Just(Some(Standing::Slot)),
            1 => Just(Some(Standing::Opportunistic)),
            1 => Just(Some(Standing::Slotless)),
        ];
        (any::<bool>(), any::<bool>(), -2..3, standing)
            .prop_map(|(own, of_job, priority, standing)| Asks { own, of_job, priority, standing })
    }

    /// A node on which they all run or wait.
    fn node(all: &[Asks]) -> Shaper {
        let mut shaper = Shaper::new(Policy::simulated(), 2, Restored::default());
        for (number, asks) in (0..).zip(all) {
            let job = Some(label(if asks.of_job { "nightly" } else { "other" }));
            let request = Request {
                uid: if asks.own { OWN } else { OWN + 1 },
                who: Who::default(),
                labels: Labels { job, ..Labels::default() },
                priority: Some(Priority(asks.priority)),
                reservation: None,
                need: match asks.standing {
                    None => Need::Slot,
                    Some(Standing::Slotless) => Need::Slotless,
                    Some(_) => Need::Discovered,
                },
                opportunistic: asks.standing == Some(Standing::Opportunistic),
                by_member: true,
            };
            let now = at(number);
            let patience = Patience { first_requested: now.wall, deadline: None, parks: false };
            let patience = asks.standing.is_none().then_some(patience);
            let ticket = Ticket(number);
            let _ = shaper.handle(Input::Request { ticket, request, patience }, now);
            let arrived: Vec<_> =
                shaper.tasks().filter(|(_, task)| task.is_new()).map(|(id, _)| id).collect();
            arrived.into_iter().for_each(|id| shaper.attached(id, now));
            shaper.take_step();
        }
        shaper
    }

    /// Who is where, tasks of the same rank being alike.
    fn seats(shaper: &Shaper) -> Vec<(String, bool, Priority)> {
        let of = |task: &crate::task::Task| {
            (format!("{:?}", task.seat), task.opportunistic, task.priority)
        };
        let mut seats: Vec<_> = shaper.tasks().map(|(_, task)| of(task)).collect();
        seats.sort();
        seats
    }

    fn changes_of_tier(events: &[crate::event::Event]) -> usize {
        let is = |kind| matches!(kind, EventKind::Promoted | EventKind::Demoted);
        events.iter().filter(|event| is(event.kind)).count()
    }

    proptest! {
        #[test]
        fn all_at_once_is_as_one_by_one_with_fewer_changes_of_tier(
            all in proptest::collection::vec(asks(), 0..24),
            priority in -3..4,
        ) {
            let (mut once, mut each) = (node(&all), node(&all));
            let (job, priority, now) = (label("nightly"), Priority(priority), at(99));
            let meant = once.whole_job(&job, Some(OWN));
            let priorities = |shaper: &Shaper| -> Vec<_> {
                shaper.tasks().map(|(id, task)| (id, task.priority)).collect()
            };
            let before = priorities(&once);

            let (uid, asked) = (Some(OWN), job.clone());
            let step = once.handle(Input::SetJobPriority { job: asked, uid, priority }, now);
            let mut changes = 0;
            for task in &meant.tasks {
                let step = each.handle(Input::SetPriority { task: *task, priority }, now);
                changes += changes_of_tier(&step.events);
            }

            prop_assert_eq!(priorities(&once), priorities(&each));
            prop_assert_eq!(seats(&once), seats(&each));
            prop_assert!(changes_of_tier(&step.events) <= changes, "{:?}", step.events);
            for (id, before) in before {
                let now = once.task(id).unwrap().priority;
                prop_assert_eq!(now, if meant.tasks.contains(&id) { priority } else { before });
            }
            // Those that wait: by priority, then by turns of users, in the order of first requests.
            let waits = |ticket: &Ticket| {
                let asks = all[ticket.0 as usize];
                let changed = asks.own && asks.of_job;
                let priority = if changed { priority.0 } else { asks.priority };
                (std::cmp::Reverse(priority), asks.own, *ticket)
            };
            let waiting: Vec<_> = once.waiters.keys().map(waits).collect();
            let mut wanted = waiting.clone();
            wanted.sort_by_key(|(priority, own, ticket)| {
                let of_user = |other: &&(_, bool, _)| (other.0, other.1) == (*priority, *own);
                let round = waiting.iter().filter(of_user).filter(|other| other.2 < *ticket).count();
                let first = waiting.iter().filter(of_user).map(|other| other.2).min();
                (*priority, round, first)
            });
            let queue: Vec<_> = once.queue().map(|waiting| waiting.ticket()).collect();
            prop_assert_eq!(queue, wanted.iter().map(|(.., ticket)| *ticket).collect::<Vec<_>>());
            prop_assert_eq!(once.waiters.len(), each.waiters.len());
        }
    }

    #[test]
    fn a_job_is_one_users_or_everybodys() {
        let of = |own, standing| Asks { own, of_job: true, priority: 0, standing };
        let shaper = node(&[of(true, None), of(false, None), of(true, Some(Standing::Slotless))]);
        let job = label("nightly");
        assert_eq!(shaper.whole_job(&job, Some(OWN)).tasks.len(), 2);
        let all = shaper.whole_job(&job, None);
        assert_eq!((all.tasks.len(), all.waiters.len()), (3, 0));
        assert!(shaper.whole_job(&label("night"), None).is_empty());
        assert!(shaper.tasks().any(|(_, task)| task.seat == Seat::Slotless));
    }
}
