//! Moving one process into a task's group, in every hierarchy where it is one to bring in; whom to
//! move is in [`super::attach`], the way out in [`super::evacuate`].
//!
//! A process is moved where it is in the group in which the main process was, and stays elsewhere. For
//! a caller without an admin's rights it has to be the caller's ([`super::owner`]), before the move and
//! after it.
//!
//! Files are written directly: `Cgroup::load_with_specified_controllers` of cgroups-rs forgets
//! the choice of controllers for the root group (path ""), so that moving a process back to `/`
//! through it would also take it out of its memory and pids groups.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::mounts::Hierarchy;
use super::owner::Owned;
use super::process::{self, Membership, Pinned, Stat, is_within};
use super::{CgroupError, files, name};
use crate::clock;
use crate::core::model::TaskId;
use crate::units::{BootTime, Pid, ProcessRef};

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
    /// See [`super::Conditions::owner`].
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
    pub(super) fn places(&self, pid: Pid) -> Result<Vec<Option<String>>, CgroupError> {
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

    pub(super) fn primary(&self) -> &Hierarchy {
        &self.hierarchies[0]
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
