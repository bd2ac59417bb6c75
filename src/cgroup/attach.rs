//! Moving processes into a task's group; the way out is in [`super::evacuate`].
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
//! [`BUDGET`] each, looked at between processes. What an attach has moved by then goes back,
//! within the same time once more; a release goes on where it stopped when asked again.
//!
//! Files are written directly: `Cgroup::load_with_specified_controllers` of cgroups-rs forgets
//! the choice of controllers for the root group (path ""), so that moving a process back to `/`
//! through it would also take it out of its memory and pids groups.
//!
//! Limits. A descendant that stays elsewhere in a second hierarchy of v1 is neither counted nor
//! shaped there: its disk I/O is missing from the task's, for instance. Its end is still waited for,
//! for the hierarchy of the cpu controller shows that.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::mounts::Hierarchy;
use super::owner::Owned;
use super::process::{self, Membership, Pinned, Stat, is_within};
use super::{CgroupError, Conditions, GroupRecord, Kin, files, name};
use crate::clock;
use crate::core::model::TaskId;
use crate::kernfs::parse::ids;
use crate::kernfs::process::read_proc;
use crate::units::{BootTime, Pid, ProcessRef};

/// Passes over the descendants. One moves all there are, one proves it; more are needed only
/// for what is forked by processes outside while a pass runs.
const ATTACH_PASSES: usize = 100;

/// Longest time one attach or one release takes, give or take the move of one process
/// (8 ms at the median, *measured*). A family that needs more is outgrowing it.
pub(super) const BUDGET: Duration = Duration::from_secs(2);

/// When to give up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(BootTime);

impl Deadline {
    pub(super) fn after(budget: Duration) -> Deadline {
        Deadline(clock::boot_time().after(budget))
    }

    pub(super) fn passed(self) -> bool {
        clock::boot_time() >= self.0
    }
}

/// Where processes go; borrowed from the tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mover<'a> {
    /// Primary first.
    pub(super) hierarchies: &'a [Hierarchy],
    /// The LRS root with a leading slash.
    pub(super) root: &'a str,
    /// [`BUDGET`], except in tests.
    pub(super) budget: Duration,
}

/// One attach under way.
pub(super) struct Intake<'a> {
    /// Path of the task's group.
    pub(super) group: &'a str,
    /// Where the main process was, by hierarchy; `None` where the mount does not show it, or where
    /// another manager holds it.
    pub(super) origin: Vec<Option<String>>,
    /// See [`Conditions::owner`].
    pub(super) owner: Option<u32>,
    /// Which processes were moved (pid and start time), and in which hierarchies.
    pub(super) moves: HashMap<Pid, (u64, Vec<usize>)>,
}

impl Intake<'_> {
    /// Whether a process at `path` in that hierarchy is inside already, or is to be brought in.
    fn concerns(&self, index: usize, path: &str) -> bool {
        is_within(path, self.group) || self.comes_from(index, path)
    }

    fn comes_from(&self, index: usize, path: &str) -> bool {
        self.origin.get(index).is_some_and(|origin| origin.as_deref() == Some(path))
    }
}

pub(super) enum Step {
    /// Was outside in at least one hierarchy, and is inside now.
    Moved,
    /// Nothing to do: inside already, or in a group of its own.
    Stays,
    /// Ended before it could be moved.
    Gone,
}

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

    /// Pins `process` after refusing what can never be a task.
    pub(super) fn pin(&self, process: ProcessRef) -> Result<Pinned, CgroupError> {
        let pid = process.pid;
        if pid.raw() == 1 {
            return Err(CgroupError::Refused(
                "process 1 is the init process of this node; it cannot be a task".to_owned(),
            ));
        }
        if u32::try_from(pid.raw()) == Ok(std::process::id()) {
            return Err(CgroupError::Refused(format!(
                "process {pid} is this daemon; it cannot be a task"
            )));
        }
        let pinned = Pinned::new(process)?;
        match Stat::read(pid)? {
            Some(facts) if facts.is_kernel_thread() => Err(CgroupError::Refused(format!(
                "process {pid} is a kernel thread; only user processes can be tasks"
            ))),
            Some(_) => Ok(pinned),
            None => Err(CgroupError::ProcessGone(pid)),
        }
    }

    /// Path of the process's group in the primary hierarchy.
    pub(super) fn present_group(&self, pid: Pid) -> Result<String, CgroupError> {
        // It is there, or that was an error.
        Ok(self.places(pid)?.into_iter().next().flatten().unwrap_or_default())
    }

    /// Paths of the process's groups by hierarchy; `None` where the mount does not show it, which
    /// is an error in the primary one.
    fn places(&self, pid: Pid) -> Result<Vec<Option<String>>, CgroupError> {
        let membership = Membership::of_process(pid)?.ok_or(CgroupError::ProcessGone(pid))?;
        let path = |hierarchy| membership.path_in(hierarchy).map(str::to_owned);
        let places: Vec<_> = self.hierarchies.iter().map(path).collect();
        if places.first().is_some_and(Option::is_some) {
            return Ok(places);
        }
        Err(CgroupError::Refused(format!(
            "the cgroup of process {pid} is outside of {} (another cgroup namespace or \
             container); run lrsd where it is visible",
            self.primary().mount.point.display()
        )))
    }

    /// The task of this root that has a process of this `membership` in its group.
    pub(super) fn task_at(&self, membership: &Membership) -> Option<TaskId> {
        let path = membership.path_in(self.primary())?;
        let rest = path.strip_prefix(self.root)?.strip_prefix('/')?;
        rest.split('/').next().and_then(name::task)
    }

    fn primary(&self) -> &Hierarchy {
        &self.hierarchies[0]
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

    /// Brings one process inside in every hierarchy where it is one of ours to bring.
    pub(super) fn bring_inside(
        &self,
        pid: Pid,
        facts: &Stat,
        intake: &mut Intake<'_>,
    ) -> Result<Step, CgroupError> {
        if facts.ended() || u32::try_from(pid.raw()) == Ok(std::process::id()) {
            return Ok(Step::Stays);
        }
        let Some(membership) = Membership::of_living_thread(pid, facts)? else {
            return Ok(Step::Gone);
        };
        match membership.path_in(self.primary()) {
            Some(path) if intake.concerns(0, path) => {}
            _ => return Ok(Step::Stays),
        }
        let outside = self.hierarchies.iter().enumerate().filter_map(|(index, hierarchy)| {
            let path = membership.path_in(hierarchy)?;
            let moves = !is_within(path, intake.group) && intake.comes_from(index, path);
            moves.then(|| (index, hierarchy.dir(intake.group).join("cgroup.procs")))
        });
        let outside: Vec<(usize, PathBuf)> = outside.collect();
        if outside.is_empty() {
            return Ok(Step::Stays);
        }
        let process = ProcessRef { pid, start_ticks: facts.start_ticks };
        let owned = match intake.owner.map(|owner| Owned::hold(process, owner)).transpose()? {
            Some(None) => return Ok(Step::Gone),
            Some(owned) => owned,
            None => None,
        };
        for (index, file) in outside {
            match files::write_raw(&file, &pid.to_string()) {
                Ok(()) => {
                    let known = intake.moves.entry(pid);
                    let (_, known) = known.or_insert((facts.start_ticks, Vec::new()));
                    known.push(index);
                }
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(Step::Gone),
                Err(error) => return Err(refused_move(pid, &file, error)),
            }
        }
        let step = self.evict_stranger(process, intake)?;
        match owned.map(|owned| owned.check()).transpose()? {
            Some(false) => Ok(Step::Gone),
            Some(true) | None => Ok(step),
        }
    }

    /// The number may have changed hands between the look at the process and the write. The
    /// newcomer then goes to where the kernel had put it: beside its parent.
    fn evict_stranger(
        &self,
        process: ProcessRef,
        intake: &mut Intake<'_>,
    ) -> Result<Step, CgroupError> {
        let pid = process.pid;
        let stranger = match Stat::read(pid)? {
            Some(facts) if facts.start_ticks == process.start_ticks => return Ok(Step::Moved),
            Some(facts) => facts,
            None => return Ok(Step::Gone),
        };
        intake.moves.remove(&pid);
        let parent = Pid::new(stranger.parent).map(Membership::read).transpose()?.flatten();
        for hierarchy in self.hierarchies {
            let home = parent.as_ref().and_then(|parent| parent.path_in(hierarchy)).unwrap_or("/");
            let file = hierarchy.dir(home).join("cgroup.procs");
            match files::write_raw(&file, &pid.to_string()) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(refused_move(pid, &file, error)),
            }
        }
        Ok(Step::Gone)
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

/// What the kernel's refusals of a move mean (cgroups(7), sched-rt-group.rst).
pub(super) fn refused_move(pid: Pid, file: &Path, error: io::Error) -> CgroupError {
    if error.raw_os_error() == Some(libc::EINVAL) && process::has_realtime_thread(pid) {
        return CgroupError::Refused(format!(
            "process {pid} has a real-time thread, and this kernel (CONFIG_RT_GROUP_SCHED) moves \
             those only into groups with real-time budget: {} refused it; run it under \
             SCHED_OTHER (chrt -o -p 0 {pid})",
            file.display()
        ));
    }
    files::failed("move a process by writing", file, Some(&pid.to_string()), error)
}

/// Every process in `dir` and below; nothing when it is gone. Processes of another pid
/// namespace, which the kernel lists as 0, cannot be named and are left out.
pub(super) fn processes_below(dir: &Path) -> Result<Vec<Pid>, CgroupError> {
    processes_below_except(dir, &|_| false)
}

/// The same without those directly in groups that are `excepted`.
pub(super) fn processes_below_except(
    dir: &Path,
    excepted: &dyn Fn(&Path) -> bool,
) -> Result<Vec<Pid>, CgroupError> {
    let mut found = Vec::new();
    let mut next = vec![dir.to_owned()];
    while let Some(dir) = next.pop() {
        if excepted(&dir) {
            next.extend(child_groups(&dir)?);
            continue;
        }
        let procs = dir.join("cgroup.procs");
        match read_proc(&procs) {
            Ok(text) => found.extend(ids(&text).filter_map(Pid::new)),
            Err(error) if files::is_gone(&error) => continue,
            // A threaded group below: its processes are listed by the domain above it.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            Err(error) => return Err(files::failed("read", &procs, None, error)),
        }
        next.extend(child_groups(&dir)?);
    }
    Ok(found)
}

/// Directories in `dir`; nothing when it is gone.
pub(super) fn child_groups(dir: &Path) -> Result<Vec<PathBuf>, CgroupError> {
    // kernfs counts subdirectories in the link count: 2 means none, and saves the listing.
    match rustix::fs::stat(dir) {
        Ok(stat) if stat.st_nlink == 2 => return Ok(Vec::new()),
        Ok(_) => {}
        Err(rustix::io::Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(files::failed("stat", dir, None, errno.into())),
    }
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if files::is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(files::failed("list", dir, None, error)),
    };
    let mut groups = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| files::failed("list", dir, None, error))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            groups.push(entry.path());
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests;
