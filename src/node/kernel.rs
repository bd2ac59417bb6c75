//! Cgroups and processes, at once. [`TierTree`](crate::cgroup::TierTree) does the work.

use std::path::PathBuf;
use std::time::Duration;

use super::{Node, process};
use crate::cgroup::{
    CgroupError, Drift, Effects, Group, GroupRecord, KernelView, Members, Position, Surroundings,
    WeightPlan,
};
use crate::command::CommandError;
use crate::config::rule::Rule;
use crate::core::model::Level;
use crate::core::neighbours::RootWeight;
use crate::core::sample::TaskSample;
use crate::core::task::{Attachment, Halt};
use crate::executor::world::{Facts, Identity, Kernel, Move, Whereabouts};
use crate::sample::{self, KeptCpuFile};
use crate::units::{Pid, ProcessRef};

impl Kernel for Node {
    type CpuFile = KeptCpuFile;

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn warnings(&self, plan: &WeightPlan) -> Vec<String> {
        let mut warnings = self.tree.warnings();
        warnings.extend(self.watcher.warning());
        warnings.extend(self.tree.shortfalls(plan));
        warnings.extend(crate::log::trouble());
        warnings.extend(self.store.damage_warning());
        warnings
    }

    fn adopt(&mut self, effects: Effects) -> bool {
        let is_new = self.tree.adopt(effects);
        self.facts.capabilities = self.tree.capabilities();
        is_new
    }

    fn identify(&self, pid: Pid) -> Result<Identity, CommandError> {
        process::pin(pid)
    }

    fn lives(&self, process: ProcessRef) -> bool {
        process::alive(process)
    }

    fn position(&self, process: ProcessRef) -> Result<Position, CgroupError> {
        self.tree.position(process)
    }

    fn may_be_in_unit(&self, pid: Pid) -> bool {
        process::may_be_in_unit(pid)
    }

    fn surroundings(
        &self,
        process: ProcessRef,
        members: Members,
        foreign_unit: bool,
    ) -> Result<Option<Surroundings>, CgroupError> {
        self.tree.surroundings(process, members, foreign_unit)
    }

    fn escaped_limit(&self, process: ProcessRef, by: Move<'_>) -> Option<String> {
        match by {
            Move::ToRoot => self.tree.escapes_limits(process),
            Move::From(home) => self.tree.escapes_limits_of(process, Some(home)),
            Move::Into(group) => self.tree.escapes_limits_into(process, group),
        }
    }

    fn find_in_place(
        &self,
        process: ProcessRef,
        cgroup: Option<&str>,
    ) -> Result<Group, CgroupError> {
        self.tree.find_in_place(process, cgroup)
    }

    fn presumed(&self, record: &GroupRecord) -> Group {
        self.tree.presumed(record)
    }

    fn reopen(&self, record: &GroupRecord) -> Result<Option<Group>, CgroupError> {
        self.tree.reopen(record)
    }

    fn members(&self, group: &Group, except: Option<&Rule>) -> Result<Vec<Pid>, CgroupError> {
        match except {
            Some(rule) => self.tree.processes_except(group, &|path| rule.excepts(path)),
            None => self.tree.processes(group),
        }
    }

    fn whereabouts(&self, group: &Group, process: ProcessRef) -> Result<Whereabouts, CgroupError> {
        if self.tree.is_removed(group) {
            return Ok(Whereabouts::GroupRemoved);
        }
        if self.tree.holds(group, process)? == Some(true) {
            return Ok(Whereabouts::Inside);
        }
        let went = self.tree.went_to(group, process)?;
        Ok(went.map_or(Whereabouts::Elsewhere, Whereabouts::WentTo))
    }

    fn check_owner(&self, group: &Group, owner: u32) -> Result<(), CgroupError> {
        self.tree.check_owner(group, owner, &mut Vec::new())
    }

    fn owner_wrote(&self, group: &Group) -> Result<Option<GroupRecord>, CgroupError> {
        self.tree.heed_owner(group)
    }

    fn weigh(&mut self, group: &Group, level: Level, plan: &WeightPlan) -> Result<(), CgroupError> {
        self.tree.write_tier(group, level, plan).map(drop)
    }

    fn drift(
        &self,
        group: &Group,
        level: Level,
        plan: &WeightPlan,
    ) -> Result<Vec<Drift>, CgroupError> {
        self.tree.drift(group, level, plan)
    }

    fn show(&self, group: &Group) -> Result<KernelView, CgroupError> {
        self.tree.read_back(group)
    }

    fn weigh_root(&mut self, weight: RootWeight) -> Result<Vec<Drift>, CgroupError> {
        self.tree.weigh_root(weight)
    }

    fn freeze(&mut self, group: &Group, on: bool) -> Result<(), CgroupError> {
        if on { self.tree.freeze(group) } else { self.tree.thaw(group) }
    }

    fn halt(&self, group: &Group, main: Option<ProcessRef>) -> Result<Option<Halt>, CgroupError> {
        self.tree.halt(group, main)
    }

    fn frozen_root(&self) -> Result<Option<PathBuf>, CgroupError> {
        self.tree.frozen_root()
    }

    fn figures(&self, group: &Group, disks: &[(u32, u32)]) -> Option<TaskSample> {
        let last = sample::read_end(&group.dirs, disks)?;
        // What a group of its owner's has may be from before the task.
        let is_own = group.record.attachment == Attachment::Own;
        let memory_peak = is_own.then(|| sample::read_memory_peak(&group.dirs)).flatten();
        Some(TaskSample { memory_peak, oom_kills: sample::read_oom_kills(&group.dirs), ..last })
    }

    fn cpu_time(&mut self, group: &Group, file: &mut KeptCpuFile) -> Option<Option<Duration>> {
        file.read(&group.dirs, &self.descriptors, &mut self.buffer)
    }

    fn release(&mut self, group: &Group, keep_stopped: bool) -> Result<Option<Halt>, CgroupError> {
        if keep_stopped { self.tree.release_task(group) } else { self.tree.release(group) }
    }

    fn remove(&mut self, group: &Group) -> Result<(), CgroupError> {
        self.tree.clean_up(group)
    }
}
