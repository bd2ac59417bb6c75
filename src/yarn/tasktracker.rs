//! The tasks of a TaskTracker (Hadoop 1).
//!
//! It leaves no pid files and its children have no id in their environment, so they are found
//! among the processes: a java of the class `org.apache.hadoop.mapred.Child` that leads its
//! session, descends from a TaskTracker, and is in the TaskTracker's cgroup. With `mapred.job.reuse.jvm.num.tasks` one process runs several tasks; its kind and
//! name are those of the first.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::classify;
use super::ids::{AttemptId, Phase, label};
use super::proc::{self, Seen};
use super::verify::Rules;
use crate::cgroup::{Places, Whereabouts};
use crate::core::model::Labels;
use crate::discover::{Attach, Finder, Found, Standing};
use crate::units::{BootTime, Pid, ProcessRef};

const MAIN_CLASS: &str = "org.apache.hadoop.mapred.TaskTracker";

/// Longest way from a child up to its TaskTracker; task-controller and a shell may be between.
const MAX_ANCESTORS: usize = 8;

/// How old a process is before its command line is taken for its last: what starts a daemon or a
/// task is a shell first.
const GROWN: Duration = Duration::from_secs(60);

/// What is known of the processes.
#[derive(Debug, Default)]
pub(super) struct TaskTracker {
    /// Children that were proposed, and what is grown and is none.
    known: HashSet<ProcessRef>,
    /// TaskTrackers and their groups.
    trackers: HashMap<ProcessRef, Places>,
}

impl TaskTracker {
    /// The children that have come since the last look at all processes.
    pub(super) fn look(
        &mut self,
        all: &[Seen],
        whereabouts: &Whereabouts,
        rules: &Rules,
        now: BootTime,
    ) -> Vec<Found> {
        let by_pid: HashMap<Pid, Seen> = all.iter().map(|seen| (seen.process.pid, *seen)).collect();
        let living: HashSet<ProcessRef> = all.iter().map(|seen| seen.process).collect();
        self.known.retain(|process| living.contains(process));
        self.trackers.retain(|process, _| living.contains(process));
        let mut children = Vec::new();
        for seen in all {
            let process = seen.process;
            if self.known.contains(&process) {
                continue;
            }
            // Gone meanwhile, or unreadable: no child that could be taken.
            let Ok(arguments) = proc::arguments(process.pid) else { continue };
            match classify::mrv1_child(&arguments).filter(|_| seen.leads) {
                Some(attempt) => children.push((*seen, attempt)),
                None if now.since(started(process)) > GROWN => {
                    self.known.insert(process);
                }
                None => {}
            }
            // A TaskTracker forks before it execs, and for that time looks like two.
            self.trackers.remove(&process);
            if classify::has_main_class(&arguments, MAIN_CLASS) {
                self.trackers
                    .extend(places(process.pid, whereabouts).map(|there| (process, there)));
            }
        }
        children.retain(|(seen, _)| self.is_child(seen, &by_pid, whereabouts, rules));
        self.known.extend(children.iter().map(|(seen, _)| seen.process));
        children.into_iter().map(|(seen, attempt)| found(seen.process, attempt)).collect()
    }

    /// Proposes this process again with the next look.
    pub(super) fn again(&mut self, process: ProcessRef) {
        self.known.remove(&process);
    }

    /// Whether it descends from a TaskTracker and is where that is, or where LRS has put it.
    fn is_child(
        &self,
        seen: &Seen,
        all: &HashMap<Pid, Seen>,
        whereabouts: &Whereabouts,
        rules: &Rules,
    ) -> bool {
        let Some(here) = places(seen.process.pid, whereabouts) else { return false };
        let mut next = seen.parent;
        for _ in 0..MAX_ANCESTORS {
            let Some(ancestor) = next.and_then(|pid| all.get(&pid)) else { return false };
            if let Some(there) = self.trackers.get(&ancestor.process) {
                let own = rules.own_root.as_deref().is_some_and(|root| here.within(root));
                return own || here == *there;
            }
            next = ancestor.parent;
        }
        false
    }
}

fn started(process: ProcessRef) -> BootTime {
    let ticks = procfs::ticks_per_second().max(1);
    BootTime(Duration::from_micros(process.start_ticks.saturating_mul(1_000_000) / ticks))
}

fn places(pid: Pid, whereabouts: &Whereabouts) -> Option<Places> {
    whereabouts.of(pid).unwrap_or_else(|error| {
        tracing::debug!("the cgroup of process {pid} cannot be read: {error}");
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
        attach: Attach::Session { from: None },
        finder: Finder::Yarn,
    }
}
