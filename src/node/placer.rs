//! The thread that puts processes in place and gives them back.
//!
//! It does first what a client waits for: tasks that were found, of which hundreds may come at once
//! and no client waits for, are put in place when nothing else is to be done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use super::outbox::Outbox;
use super::queue::Queue;
use crate::cgroup::{Attached, CgroupError, Conditions, Group, Kin, Origin, TierTree, WeightPlan};
use crate::core::model::Tier;
use crate::core::slice::Slice;
use crate::executor::job::GroupJob;
use crate::executor::message::{Message, Placed};
use crate::units::ProcessRef;

/// Does jobs until the loop drops its end of the queue; once `stopping`, removals alone.
pub(super) fn place_all(
    tree: &TierTree,
    jobs: &Receiver<GroupJob>,
    outbox: &Outbox,
    stopping: &AtomicBool,
) {
    let mut queue = place_queue(jobs);
    while let Some(job) = queue.next() {
        let only_removals = stopping.load(Ordering::Relaxed);
        match job {
            job if only_removals && !matches!(job, GroupJob::Remove { .. }) => {}
            GroupJob::Attach {
                task,
                name,
                process,
                kin,
                origin,
                reach,
                owner,
                found,
                tier,
                slice,
                plan,
                discovered: _,
            } => {
                let result = match found {
                    Some(group) => weigh(tree, &group, tier, &plan)
                        .map(|()| (group, Attached { moved: 0 }, tier)),
                    None => tree.create(task, name.as_ref(), reach).and_then(|group| {
                        // It may have been put under a limit, or taken by another manager, since it was
                        // looked at.
                        let from = origin.clone();
                        let group = with_origin(group, origin);
                        let conditions = Conditions { from: Some(&from), owner };
                        let placed = attach(tree, group, (process, kin), conditions, (tier, &plan));
                        placed.map_err(|(group, error)| {
                            // What was made for it goes at once, or later.
                            if let Err(error) = tree.clean_up(&group) {
                                tracing::warn!(%task, %error, "the admission of task {task} failed, and the cgroup made for it stays until it can be removed: {error}");
                                outbox.send(Message::NotRemoved { task, group, error });
                            }
                            error
                        })
                    }),
                };
                if let (Ok((group, _, Some(tier))), Slice::Long) = (&result, slice) {
                    renew_threads(tree, group, *tier, slice);
                }
                outbox.send(Message::Attached { task, result });
                if tree.take_remade() {
                    outbox.send(Message::RootRemade);
                }
            }
            GroupJob::Reattach { task, process, kin, owner, group } => {
                let conditions = Conditions { owner, ..Conditions::default() };
                let result = match tree.went_to(&group, process) {
                    // Since the loop looked it has gone into a group of its own making: no move
                    // back, and the next look says what it is.
                    Ok(Some(_)) => Err(CgroupError::ProcessGone(process.pid)),
                    Ok(None) | Err(_) => tree.attach_if(&group, process, kin, conditions),
                };
                outbox.send(Message::Reattached { task, result });
            }
            GroupJob::Threads { group, tier, slice } => renew_threads(tree, &group, tier, slice),
            GroupJob::Release { task, group, waited } => {
                let result = if waited { tree.release(&group) } else { tree.release_task(&group) };
                outbox.send(Message::Released { task, result });
            }
            GroupJob::Remove { task, group } => {
                if let Err(error) = tree.clean_up(&group) {
                    outbox.send(Message::NotRemoved { task, group, error });
                }
            }
        }
    }
}

fn place_queue(jobs: &Receiver<GroupJob>) -> Queue<'_, GroupJob> {
    Queue::new(jobs, |job| matches!(job, GroupJob::Attach { discovered: true, .. }))
}

/// Threads come and go; the next cycle tries again.
fn renew_threads(tree: &TierTree, group: &Group, tier: Tier, slice: Slice) {
    if let Err(error) = tree.renew_threads(group, tier, slice) {
        let cgroup = &group.record.path;
        tracing::debug!(cgroup, %error, "the threads in {cgroup} did not get their I/O priority or slice: {error}");
    }
}

fn weigh(
    tree: &TierTree,
    group: &Group,
    tier: Option<Tier>,
    plan: &WeightPlan,
) -> Result<(), CgroupError> {
    tier.map_or(Ok(()), |tier| tree.write_tier(group, tier, plan).map(drop))
}

fn with_origin(mut group: Group, origin: Origin) -> Group {
    group.record.origin = origin;
    group
}

fn attach(
    tree: &TierTree,
    group: Group,
    (process, kin): (ProcessRef, Kin),
    conditions: Conditions<'_>,
    (tier, plan): (Option<Tier>, &WeightPlan),
) -> Result<Placed, (Arc<Group>, CgroupError)> {
    let group = Arc::new(group);
    let placed = weigh(tree, &group, tier, plan)
        .and_then(|()| tree.attach_if(&group, process, kin, conditions));
    match placed {
        Ok(attached) => Ok((group, attached, tier)),
        Err(error) => Err((group, error)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::cgroup::Reach;
    use crate::core::model::TaskId;
    use crate::units::Pid;

    fn attach_job(number: u64, discovered: bool) -> GroupJob {
        GroupJob::Attach {
            task: TaskId { epoch: 1, number },
            name: None,
            process: ProcessRef { pid: Pid::new(1).unwrap(), start_ticks: 0 },
            kin: Kin::Descendants,
            origin: Origin::default(),
            reach: Reach::All,
            owner: None,
            found: None,
            tier: Some(Tier::Passive),
            slice: Slice::Default,
            plan: WeightPlan { ratio: 100, active_capacity: 1, passive_max: 1 },
            discovered,
        }
    }

    fn number(job: Option<GroupJob>) -> Option<u64> {
        match job {
            Some(GroupJob::Attach { task, .. }) => Some(task.number),
            _ => None,
        }
    }

    #[test]
    fn what_a_client_waits_for_comes_before_what_was_found() {
        let (sender, receiver) = channel();
        let mut queue = place_queue(&receiver);
        for found in 1..=300 {
            sender.send(attach_job(found, true)).unwrap();
        }
        assert_eq!(number(queue.next()), Some(1));
        sender.send(attach_job(1000, false)).unwrap();
        sender.send(attach_job(1001, false)).unwrap();
        assert_eq!(number(queue.next()), Some(1000), "behind the one under way, no more");
        assert_eq!(number(queue.next()), Some(1001));
        drop(sender);
        let rest: Vec<u64> = std::iter::from_fn(|| number(queue.next())).collect();
        assert_eq!(rest, (2..=300).collect::<Vec<_>>(), "each once and in order");
    }
}
