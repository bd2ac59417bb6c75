//! What [`TierTree`] answers of processes and groups without writing, for the loop and the sampler.

use std::path::{Path, PathBuf};

use super::layout::Layout;
use super::mounts::{Hierarchy, Mounts};
use super::mover::Mover;
use super::open::Root;
use super::process::Membership;
use super::tree::TierTree;
use super::{
    Attachment, CgroupError, Group, Members, MemoryGroups, Origin, Position, Surroundings, cpus,
    dirs, halts, limits, members, owner, surroundings,
};
use crate::core::task::Halt;
use crate::sample::QuotaDirs;
use crate::units::{Pid, ProcessRef};

impl TierTree {
    /// Where `process` is. Ask before the attach, so that a stored [`super::GroupRecord::origin`] is
    /// complete before anything moves.
    pub fn position(&self, process: ProcessRef) -> Result<Position, CgroupError> {
        let membership =
            Membership::of_process(process.pid)?.ok_or(CgroupError::ProcessGone(process.pid))?;
        let origin = self.layout().hierarchies.iter().filter_map(|hierarchy| {
            Some((hierarchy.name.clone(), membership.path_in(hierarchy)?.to_owned()))
        });
        Ok(Position {
            origin: origin.collect(),
            paths: membership.paths().map(str::to_owned).collect(),
            task: self.root().and_then(|_| self.mover().task_at(&membership)),
        })
    }

    /// What others did to the group, so that nothing in it can run. What LRS froze counts too.
    pub fn halt(
        &self,
        group: &Group,
        main: Option<ProcessRef>,
    ) -> Result<Option<Halt>, CgroupError> {
        if group.record.attachment == Attachment::None {
            return Ok(None);
        }
        halts::of(&self.layout().hierarchies, group, main)
    }

    /// The file by which the root, or a group above it, is frozen.
    pub fn frozen_root(&self) -> Result<Option<PathBuf>, CgroupError> {
        let Some(Root { layout, .. }) = self.root() else { return Ok(None) };
        halts::frozen_upwards(&layout.hierarchies, &layout.path)
    }

    /// Why only root may have `process` moved, and `lrsctl run` does not leave
    /// its unit by itself: the limit on CPU, memory, I/O
    /// or CPUs above it (v1: cpu.cfs_quota_us or blkio.throttle) that the move would escape. What
    /// to do about it depends on the caller.
    pub fn escapes_limits(&self, process: ProcessRef) -> Option<String> {
        self.escapes_limits_of(process, None)
    }

    /// The same of a process that was at `home` ([`TierTree::position`]), where that is not where it is.
    pub fn escapes_limits_of(&self, process: ProcessRef, home: Option<&Origin>) -> Option<String> {
        self.root().and_then(|_| limits::escaped(&self.mover(), process, home))
    }

    /// The same of a move into `group`, a path: the limits above that go on.
    pub fn escapes_limits_into(&self, process: ProcessRef, group: &str) -> Option<String> {
        let mover = Mover { root: group, ..self.mover() };
        self.root().and_then(|_| limits::escaped(&mover, process, None))
    }

    /// Who holds `process`, and whether its group holds only `members`. `foreign_unit`:
    /// systemd reported that its unit is delegated, or that it has no such unit. `None`: nothing is
    /// moved here ([`Attachment::None`]).
    ///
    /// # Errors
    /// `ProcessGone`; a file could not be read.
    pub fn surroundings(
        &self,
        process: ProcessRef,
        members: Members,
        foreign_unit: bool,
    ) -> Result<Option<Surroundings>, CgroupError> {
        if self.root().is_none() {
            return Ok(None);
        }
        let unit =
            surroundings::UnitFacts { systemd_runs: crate::systemd::is_running(), foreign_unit };
        surroundings::of(&self.mover(), process, members, unit).map(Some)
    }

    /// Whether `process` is in `group` or below it in every hierarchy in use; one read of
    /// `/proc/PID/cgroup`, so a group made anew under the same path counts as the group.
    /// `None`: the process has ended, or nothing is attached ([`Attachment::None`]).
    pub fn holds(&self, group: &Group, process: ProcessRef) -> Result<Option<bool>, CgroupError> {
        members::holds(&self.layout().hierarchies, &group.record, process)
    }

    /// The group that `process` is in, in any hierarchy in use, if it is outside of `group`, one of LRS's, and
    /// was made after that: then it went there by its own doing. On v1 systemd makes the group of a scope only
    /// where it has something to set, and moves the process to the slice's in the others.
    pub fn went_to(
        &self,
        group: &Group,
        process: ProcessRef,
    ) -> Result<Option<String>, CgroupError> {
        if group.record.attachment != Attachment::Own {
            return Ok(None);
        }
        let Layout { path, hierarchies, .. } = self.layout();
        members::went_to(hierarchies, path, &group.record, process)
    }

    /// Whether `owner`, who has no admin's rights, may have `group` managed in place: every process
    /// in it and below, since a tier changes its speed, belongs to that uid alone, and on v2 that
    /// uid may put processes into it. `known`, sorted, are the processes that passed the last check.
    /// They are not checked again, since any child that they start is in the group. It is replaced
    /// by those that are there now.
    ///
    /// # Errors
    /// `Denied`, also when some are of a pid namespace that this daemon cannot see.
    pub fn check_owner(
        &self,
        group: &Group,
        owner: u32,
        known: &mut Vec<Pid>,
    ) -> Result<(), CgroupError> {
        owner::check_group(group, owner, known)
    }

    /// The user that every process in the group and below runs as, by all uids; `None`: there are
    /// others, or none, or more than are looked at, or it cannot be read.
    pub fn sole_owner(&self, group: &Group) -> Option<u32> {
        owner::sole_owner(group)
    }

    /// Every process in the group and below. Empty when the group is gone.
    pub fn processes(&self, group: &Group) -> Result<Vec<Pid>, CgroupError> {
        members::processes(group)
    }

    /// The same without those directly in groups below with a path in `excepted`.
    ///
    /// # Errors
    /// As of [`TierTree::processes`].
    pub fn processes_except(
        &self,
        group: &Group,
        excepted: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Vec<Pid>, CgroupError> {
        members::processes_except(group, excepted)
    }

    /// Whether the group is there no more: its owner removed it, or made another under its path.
    pub fn is_removed(&self, group: &Group) -> bool {
        let Some(dir) = &group.dirs.cpu else { return false };
        dirs::inode(dir).is_ok_and(|inode| inode != Some(group.record.inode))
    }

    /// The root and the groups above it, with the quotas that bound the tasks.
    pub fn quota_dirs(&self) -> Vec<QuotaDirs> {
        let Some(Root { layout, .. }) = self.root() else { return Vec::new() };
        let cpu = self.primary();
        let accounting = layout.hierarchies.iter().find(|h| h.has("cpuacct")).unwrap_or(cpu);
        let upwards = |of: &Hierarchy| cpus::upwards(&of.dir("/"), &of.dir(&layout.path));
        let dirs = upwards(cpu).into_iter().zip(upwards(accounting));
        dirs.map(|(quota, usage)| QuotaDirs { quota, usage }).collect()
    }

    /// Groups with the cpuset that the tasks may have, nearest first.
    ///
    /// # Errors
    /// The mounts, or in which groups lrsd is, cannot be read.
    pub fn cpuset_dirs(&self) -> Result<Vec<PathBuf>, CgroupError> {
        cpus::cpuset_dirs(&Mounts::read()?, &self.layout().path, Path::new("/proc/self/cgroup"))
    }

    /// The groups with the limits of memory that bound the tasks; `None`: there are none.
    pub fn memory_groups(&self) -> Option<MemoryGroups> {
        let primary = self.layout().hierarchies.first()?;
        // What is only observed lives anywhere below the mount.
        let root = self.root().map(|root| root.layout.path.as_str());
        let place = (primary.mount.point.as_path(), root);
        MemoryGroups::of_daemon(self.capabilities().version, place, self.layout().is_scope)
    }
}
