//! Who is moved into a task's group: a process and its kin. How one is moved is in
//! [`super::mover`], the way out in [`super::evacuate`].
//!
//! Writing a pid to `cgroup.procs` moves all its threads; a child forked afterwards is born
//! where its parent is. So the main process goes first, then its descendants, pass after pass
//! until a pass finds none outside. A process in a group of its own choice (not the one the
//! main process was in) is left there, and so is a member of another task. This holds in each
//! hierarchy: so the limits of the main process's groups are those of all that moves, and to go
//! back is for all of them to go where the main process was.
//!
//! A parent may end between being seen and being moved, which orphans children that nothing links
//! to the task any more, except that they are in its session, in its old group, younger than
//! it, and children of a reaper outside of the session: those are taken too.
//!
//! A task that is a session is more than its descendants: see [`super::kin`].
//!
//! Everything moved is remembered. On any error all of it goes back, with whatever was forked
//! inside meanwhile. For a caller without an admin's rights only its own processes are moved: one
//! that is not ([`super::owner`]) is such an error.
//!
//! One thread places all tasks, so no family may keep it: an attach and a release have
//! [`super::mover::BUDGET`] each, looked at between processes. What an attach has moved by then goes back,
//! within the same time once more; a release goes on where it stopped when asked again.
//!
//! Limits. A descendant that stays elsewhere in a second hierarchy of v1 is neither counted nor
//! shaped there: its disk I/O is missing from the task's, for instance. Its end is still waited for,
//! for the hierarchy of the cpu controller shows that.

use std::collections::HashMap;

use super::mover::{Deadline, Intake, Mover, Step};
use super::process::{self, Membership, Pinned, Stat, is_within};
use super::{CgroupError, Conditions, GroupRecord, Kin, name};
use crate::units::{Pid, ProcessRef};

/// Passes over the descendants. One moves all there are, one proves it; more are needed only
/// for what is forked by processes outside while a pass runs.
const ATTACH_PASSES: usize = 100;

impl Mover<'_> {
    /// See [`super::TierTree::attach_if`]. `again`: the task is in `group` already, so that on
    /// an error what was brought in stays, unless it must not be there. Answers how many processes
    /// were moved.
    pub(super) fn attach(
        &self,
        record: &GroupRecord,
        process: ProcessRef,
        kin: Kin,
        conditions: Conditions<'_>,
        again: bool,
    ) -> Result<usize, CgroupError> {
        let group = &*record.path;
        let pinned = self.pin(process)?;
        let mut places = self.places(process.pid)?;
        if let Some(from) = conditions.from {
            self.refuse_elsewhere(process.pid, &places, from)?;
        }
        let origin = places.first().cloned().flatten().unwrap_or_default();
        if is_within(&origin, self.root) && !is_within(&origin, group) {
            let task = origin[self.root.len()..].trim_start_matches('/');
            let pid = process.pid;
            return Err(CgroupError::Refused(match name::task(task) {
                Some(task) => format!("process {pid} is in the group of {task} already"),
                None => format!(
                    "process {pid} is in {origin}, which other software made or filled below the \
                     LRS root; move it to a group outside of {} first",
                    self.root
                ),
            }));
        }
        let Conditions { owner, .. } = conditions;
        for (hierarchy, place) in self.hierarchies.iter().zip(&mut places) {
            if record.elsewhere.contains(&hierarchy.name) {
                // Nothing that is there is brought in.
                *place = None;
            }
        }
        let mut intake = Intake { group, origin: places, owner, moves: HashMap::new() };
        let outcome = self.bring_in(&pinned, kin, &mut intake).and_then(|()| {
            if pinned.alive() { Ok(()) } else { Err(CgroupError::ProcessGone(process.pid)) }
        });
        match outcome {
            Ok(()) => Ok(intake.moves.len()),
            Err(error @ CgroupError::Denied(_)) if again => Err(self.put_back(&intake, error)),
            Err(error) if again => Err(error),
            Err(error) => Err(self.undo(&intake, error)),
        }
    }

    /// Refuses a process that has been moved since it was found to be at `from`: it may be
    /// where it must not be taken out of.
    fn refuse_elsewhere(
        &self,
        pid: Pid,
        places: &[Option<String>],
        from: &[(String, String)],
    ) -> Result<(), CgroupError> {
        for (hierarchy, present) in self.hierarchies.iter().zip(places) {
            let judged = from.iter().find(|(name, _)| *name == hierarchy.name);
            let judged = judged.map(|(_, path)| path.as_str());
            if present.as_deref() != judged {
                return Err(elsewhere(pid, present.as_deref(), judged));
            }
        }
        Ok(())
    }

    fn bring_in(&self, main: &Pinned, kin: Kin, intake: &mut Intake) -> Result<(), CgroupError> {
        let pid = main.process.pid;
        let deadline = Deadline::after(self.budget);
        let facts = Stat::read(pid)?.ok_or(CgroupError::ProcessGone(pid))?;
        super::kin::check(kin, pid, &facts)?;
        match self.bring_inside(pid, &facts, intake)? {
            Step::Gone => return Err(CgroupError::ProcessGone(pid)),
            Step::Moved => {}
            Step::Stays if facts.ended() => return Err(CgroupError::ProcessGone(pid)),
            // Inside already, or moved by others since `origin` was read.
            Step::Stays => {
                let present = Membership::of_living_thread(pid, &facts)?;
                let present = present.ok_or(CgroupError::ProcessGone(pid))?;
                let present = present.path_in(self.primary());
                if !present.is_some_and(|path| is_within(path, intake.group)) {
                    let origin = intake.origin.first().and_then(Option::as_deref);
                    return Err(elsewhere(pid, present, origin));
                }
            }
        }
        let mut outside = 0;
        for _ in 0..ATTACH_PASSES {
            outside = 0;
            let mut lost: Vec<Stat> = Vec::new();
            let family = process::descendants(pid, &|| deadline.passed())?;
            if !family.whole {
                let seen = family.pids.len();
                return Err(self.too_slow(pid, intake, &format!("{seen} or more")));
            }
            for (index, &member) in family.pids.iter().enumerate() {
                if deadline.passed() {
                    let left = family.pids.len() - index;
                    return Err(self.too_slow(pid, intake, &format!("up to {left}")));
                }
                let Some(facts) = Stat::read(member)? else { continue };
                match self.bring_inside(member, &facts, intake)? {
                    Step::Moved => outside += 1,
                    Step::Stays => {}
                    Step::Gone => lost.push(facts),
                }
            }
            if !lost.is_empty() {
                let found = self.bring_in_orphans(&lost, intake, deadline)?;
                outside += found.ok_or_else(|| {
                    let orphans = format!("the orphans of {} that had ended", lost.len());
                    self.too_slow(pid, intake, &orphans)
                })?;
            }
            if outside == 0 && kin == Kin::Session {
                let found = self.bring_in_session(pid, &family.pids, intake, deadline)?;
                outside =
                    found.ok_or_else(|| self.too_slow(pid, intake, "members of its session"))?;
            }
            if outside == 0 {
                return Ok(());
            }
        }
        Err(CgroupError::Refused(format!(
            "process {pid} forks faster than its family can be moved: {outside} were still \
             outside in pass {ATTACH_PASSES}; stop it (SIGSTOP), admit it, continue it (SIGCONT)"
        )))
    }

    fn too_slow(&self, main: Pid, intake: &Intake<'_>, outside: &str) -> CgroupError {
        CgroupError::Refused(format!(
            "process {main} and its family could not be moved within {:?}: {} were moved, \
             {outside} were still outside; stop it (SIGSTOP), admit it, continue it (SIGCONT), or \
             admit it before it starts its children",
            self.budget,
            intake.moves.len()
        ))
    }

    /// Children of processes that ended before they could be moved (module page). `None`:
    /// the deadline passed before all were looked at.
    fn bring_in_orphans(
        &self,
        lost: &[Stat],
        intake: &mut Intake<'_>,
        deadline: Deadline,
    ) -> Result<Option<usize>, CgroupError> {
        let all = process::all(&|| deadline.passed())?;
        let sessions: HashMap<i32, i32> =
            all.iter().map(|(pid, facts)| (pid.raw(), facts.session)).collect();
        let mut found = 0;
        for (pid, facts) in all {
            if deadline.passed() {
                return Ok(None);
            }
            let orphaned = lost.iter().any(|parent| {
                parent.session == facts.session && facts.start_ticks >= parent.start_ticks
            }) && sessions.get(&facts.parent) != Some(&facts.session);
            // The leader of a session has its parent outside by nature.
            if orphaned
                && facts.session != pid.raw()
                && matches!(self.bring_inside(pid, &facts, intake)?, Step::Moved)
            {
                found += 1;
            }
        }
        // The listing itself may have been cut short.
        Ok((!deadline.passed()).then_some(found))
    }
}

fn elsewhere(pid: Pid, present: Option<&str>, judged: Option<&str>) -> CgroupError {
    const HIDDEN: &str = "one that cannot be seen from here";
    CgroupError::MovedMeanwhile(format!(
        "process {pid} is in the cgroup {}, and not in {} any more: it was moved meanwhile; \
         it is left there",
        present.unwrap_or(HIDDEN),
        judged.unwrap_or(HIDDEN)
    ))
}

#[cfg(test)]
mod tests;
