//! Moving processes out of a task's group: a release, and an attach that failed.
//!
//! Whatever an attach moved in a hierarchy came from where the main process was there, and what was
//! forked inside is where its parent is: so all of them have the same way back.
//!
//! A process moves only in the hierarchies in which it is where the main process is. So one check of
//! the main process's limits holds for all that moves, and the way back is the same for all.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use super::mounts::Hierarchy;
use super::mover::{BUDGET, Deadline, Intake, Mover, refused_move};
use super::process::{Stat, is_within};
use super::walk::processes_below;
use super::{CgroupError, files};
use crate::units::Pid;

impl Mover<'_> {
    /// Moves everything back; answers `error`, with what could not be undone.
    pub(super) fn undo(&self, intake: &Intake<'_>, error: CgroupError) -> CgroupError {
        // Time of its own: the one of the attach may be what ran out.
        let homes = |index: usize| intake.home(index);
        and_undoing(error, self.evacuate(intake.group, BUDGET, &homes))
    }

    /// Moves back what this attach moved and leaves the others of the task where they are.
    pub(super) fn put_back(&self, intake: &Intake<'_>, error: CgroupError) -> CgroupError {
        let all = intake.moves.iter().try_for_each(|(pid, (start_ticks, moved_in))| {
            let same = Stat::read(*pid)?.is_some_and(|facts| facts.start_ticks == *start_ticks);
            moved_in.iter().filter(|_| same).try_for_each(|index| {
                let home = self.hierarchies.get(*index).zip(intake.home(*index));
                let home = home.map(|(hierarchy, home)| hierarchy.dir(&home).join("cgroup.procs"));
                move_to_first(*pid, home.into_iter())
            })
        });
        and_undoing(error, all)
    }

    /// Moves every process in `group` and below to its home in that hierarchy, or else as
    /// [`Mover::move_home`] says, until none is left.
    pub(super) fn evacuate(
        &self,
        group: &str,
        budget: Duration,
        home: &dyn Fn(usize) -> Option<String>,
    ) -> Result<(), CgroupError> {
        let deadline = Deadline::after(budget);
        loop {
            let mut left = 0;
            for (index, hierarchy) in self.hierarchies.iter().enumerate() {
                for pid in processes_below(&hierarchy.dir(group))? {
                    if deadline.passed() {
                        // Those of this pass that are left, or were forked meanwhile.
                        match processes_below(&hierarchy.dir(group))?.len() {
                            0 => break,
                            left => return Err(not_empty(hierarchy, group, left, budget)),
                        }
                    }
                    left += 1;
                    self.move_home(pid, hierarchy, home(index), group)?;
                }
            }
            if left == 0 {
                return Ok(());
            }
        }
    }

    /// Moves `pid` out of `group` to `home`, or where that does not take it to the root's parent or the
    /// mount. Out of a group outside of the root, such as one below the root of before, only home.
    fn move_home(
        &self,
        pid: Pid,
        hierarchy: &Hierarchy,
        home: Option<String>,
        group: &str,
    ) -> Result<(), CgroupError> {
        let procs = |path: &str| hierarchy.dir(path).join("cgroup.procs");
        let parent = self.root.rsplit_once('/').map_or("/", |(parent, _)| parent);
        let home = home.map(|home| procs(&home));
        let others = is_within(group, self.root).then(|| [procs(parent), procs("/")]);
        move_to_first(pid, home.into_iter().chain(others.into_iter().flatten()))
    }
}

impl Intake<'_> {
    /// Where what was moved in that hierarchy came from.
    fn home(&self, index: usize) -> Option<String> {
        let origin = self.origin.get(index).cloned().flatten();
        origin.filter(|path| !is_within(path, self.group))
    }
}

fn and_undoing(error: CgroupError, undone: Result<(), CgroupError>) -> CgroupError {
    match undone {
        Ok(()) => error,
        Err(undo) => CgroupError::Refused(format!("{error}; and undoing failed: {undo}")),
    }
}

fn not_empty(hierarchy: &Hierarchy, group: &str, left: usize, budget: Duration) -> CgroupError {
    CgroupError::Refused(format!(
        "{left} processes are still in {} after {budget:?}: they fork faster than they can be \
         moved, or are very many; ask again, or stop them first (SIGSTOP)",
        hierarchy.dir(group).display()
    ))
}

/// The first candidate that takes it; the error of the last one when none does.
fn move_to_first(pid: Pid, candidates: impl Iterator<Item = PathBuf>) -> Result<(), CgroupError> {
    let mut last = None;
    let mut tried = HashSet::new();
    for file in candidates {
        if !tried.insert(file.clone()) {
            continue;
        }
        match files::write_raw(&file, &pid.to_string()) {
            Ok(()) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            Err(error) => last = Some(refused_move(pid, &file, error)),
        }
    }
    last.map_or(Ok(()), Err)
}
