//! The tasks of a TaskTracker (Hadoop 1).
//!
//! It leaves no pid files and its children have no id in their environment, so they are found
//! among the processes: a java of the class `org.apache.hadoop.mapred.Child` that leads its
//! session, descends from a TaskTracker, and is in the TaskTracker's cgroup. With
//! `mapred.job.reuse.jvm.num.tasks` one process runs several tasks; its kind and name are those of
//! the first.
//!
//! A TaskTracker's name is nobody's property either: its user must own a local directory, so that
//! `yarn.local_dirs` has to name those of `mapred.local.dir`. A child runs as that user or, under
//! LinuxTaskController, as the job's: then the processes between are the TaskTracker's, root's
//! (task-controller before it gives its rights up) or the job's own. No other way leads from a
//! TaskTracker to another user, but by rights that user gave away.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::classify;
use super::containers::REFUSED_PAUSE;
use super::ids::{AttemptId, Phase, label};
use super::managers;
use super::proc::{self, Seen};
use super::verify::Rules;
use crate::cgroup::{Places, Whereabouts};
use crate::command::CommandError;
use crate::core::model::Labels;
use crate::discover::refusals::Refusals;
use crate::discover::{Attach, Finder, Found, Presumed, Standing};
use crate::units::{BootTime, Pid, ProcessRef};

const MAIN_CLASS: &str = "org.apache.hadoop.mapred.TaskTracker";

/// Longest way from a child up to its TaskTracker; task-controller and a shell may be between.
const MAX_ANCESTORS: usize = 8;

/// What is known of the processes.
#[derive(Debug, Default)]
pub(super) struct TaskTracker {
    /// Children that were proposed, and what is grown and is none.
    known: HashSet<ProcessRef>,
    /// Children the loop would not have. Proposed again when their time has come.
    refused: HashMap<ProcessRef, Refusals>,
    /// TaskTrackers, their users and their groups.
    trackers: HashMap<ProcessRef, (u32, Places)>,
}

impl TaskTracker {
    /// The children that have come since the last look at all processes. `owners`: who owns a
    /// local directory.
    pub(super) fn look(
        &mut self,
        all: &[Seen],
        whereabouts: &Whereabouts,
        rules: &Rules,
        owners: &BTreeSet<u32>,
        now: BootTime,
    ) -> Vec<Found> {
        let by_pid: HashMap<Pid, Seen> = all.iter().map(|seen| (seen.process.pid, *seen)).collect();
        let living: HashSet<ProcessRef> = all.iter().map(|seen| seen.process).collect();
        self.known.retain(|process| living.contains(process));
        self.refused.retain(|process, _| living.contains(process));
        self.trackers.retain(|process, _| living.contains(process));
        let mut children = Vec::new();
        for seen in all {
            let process = seen.process;
            let waits = self.refused.get(&process).is_some_and(|said| said.again_at() > now);
            if waits || self.known.contains(&process) {
                continue;
            }
            // Gone meanwhile, or unreadable: no child that could be taken.
            let Ok(arguments) = proc::arguments(process.pid) else { continue };
            match classify::mrv1_child(&arguments).filter(|_| seen.leads) {
                Some(attempt) => children.push((*seen, attempt)),
                None if now.since(proc::started(process)) > proc::GROWN => {
                    self.known.insert(process);
                }
                None => {}
            }
            // A TaskTracker forks before it execs, and for that time looks like two.
            self.trackers.remove(&process);
            if classify::has_main_class(&arguments, MAIN_CLASS) {
                let tracker = standing(process, whereabouts);
                let tracker = tracker.filter(|(owner, _)| owners.contains(owner));
                self.trackers.extend(tracker.map(|found| (process, found)));
            }
        }
        children.retain(|(seen, _)| self.is_child(seen, &by_pid, whereabouts, rules).is_some());
        self.known.extend(children.iter().map(|(seen, _)| seen.process));
        children.into_iter().map(|(seen, attempt)| found(seen.process, attempt)).collect()
    }

    /// The loop would not have this process: it is proposed again after a while. Said once for
    /// each reason.
    pub(super) fn refused(&mut self, process: ProcessRef, why: &CommandError, now: BootTime) {
        self.known.remove(&process);
        let refusals = self.refused.entry(process).or_insert_with(|| Refusals::new(REFUSED_PAUSE));
        if refusals.add(&why.message, now) {
            tracing::warn!("process {} is not taken: {why}", process.pid);
        }
    }

    /// `Some` if it descends from a TaskTracker as its children do, and is where that is, or where
    /// LRS has put it.
    fn is_child(
        &self,
        seen: &Seen,
        all: &HashMap<Pid, Seen>,
        whereabouts: &Whereabouts,
        rules: &Rules,
    ) -> Option<()> {
        let (uid, here) = standing(seen.process, whereabouts)?;
        let mut between = Vec::new();
        let mut next = seen.parent;
        for _ in 0..MAX_ANCESTORS {
            let ancestor = next.and_then(|pid| all.get(&pid))?;
            if let Some((owner, there)) = self.trackers.get(&ancestor.process) {
                let own = rules.own_root.as_deref().is_some_and(|root| here.within(root));
                let fits = (own || here == *there) && is_way(*owner, uid, &between);
                return fits.then_some(());
            }
            between.push(standing(ancestor.process, whereabouts)?.0);
            next = ancestor.parent;
        }
        None
    }
}

/// Whether a TaskTracker of `owner` reaches a child of `uid` by processes of these users.
fn is_way(owner: u32, uid: u32, between: &[u32]) -> bool {
    const ROOT: u32 = 0;
    between.iter().all(|user| *user == owner || (uid != owner && (*user == uid || *user == ROOT)))
}

fn standing(process: ProcessRef, whereabouts: &Whereabouts) -> Option<(u32, Places)> {
    managers::standing(process, whereabouts).unwrap_or_else(|error| {
        tracing::debug!("user and cgroup of process {} cannot be read: {error}", process.pid);
        None
    })
}

fn found(process: ProcessRef, attempt: AttemptId) -> Found {
    let kind = match attempt.phase {
        Phase::Map => "map",
        Phase::Reduce => "reduce",
    };
    let labels = Labels { name: label(attempt), job: label(attempt.job_name()), kind: label(kind) };
    Found {
        process,
        labels,
        priority: None,
        standing: Some(Standing::Slot),
        presumed: Presumed::Slot,
        attach: Attach::Session { from: None },
        finder: Finder::Yarn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_task_controller_leads_to_another_user() {
        let (owner, user, other) = (7, 1000, 1001);
        assert!(is_way(owner, owner, &[]) && is_way(owner, owner, &[owner]));
        assert!(is_way(owner, user, &[]) && is_way(owner, user, &[0, user]));
        assert!(!is_way(owner, user, &[0, other]) && !is_way(owner, owner, &[user]));
    }
}
