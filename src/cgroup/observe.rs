//! Observe mode: the same questions answered without any write.
//!
//! Tasks are booked with attachment `none`. Nothing groups their processes, so
//! [`TierTree::processes`] knows nothing of them: completion comes from the main process's
//! pidfd alone.

use super::attach::{BUDGET, Mover};
use super::mounts::Hierarchy;
use super::process::Membership;
use super::{
    Attached, Attachment, Capabilities, CgroupError, Conditions, CpuTiers, Drift, Group, GroupDirs,
    GroupRecord, IoTiers, KernelView, Kin, TierTree, TreeSettings, Version, WeightPlan, dirs,
    in_place, open,
};
use crate::core::model::{Label, TaskId, Tier};
use crate::units::{Pid, ProcessRef};

/// [`TierTree`] that only looks.
#[derive(Debug)]
pub(super) struct ObserveTree {
    /// Primary first; empty where nothing is mounted.
    hierarchies: Vec<Hierarchy>,
    version: Option<Version>,
    capabilities: Capabilities,
}

impl ObserveTree {
    pub(super) fn open(settings: &TreeSettings) -> ObserveTree {
        let (version, hierarchies, found) = match open::hierarchies(settings) {
            Ok((Version::V1, all)) => (Some(Version::V1), all, "cgroup v1 is mounted"),
            Ok((Version::V2, all)) => (Some(Version::V2), all, "cgroup v2 is mounted"),
            Err(_) => {
                (None, Vec::new(), "no cgroup file system with the cpu controller is mounted here")
            }
        };
        let auto =
            if open::is_scope(settings) { crate::systemd::SCOPE_PATH } else { open::AUTO_ROOT };
        let root = settings.root.as_deref().unwrap_or(auto).trim_matches('/');
        let capabilities = Capabilities {
            version,
            root: format!("/{root}"),
            cpu_tiers: CpuTiers::None,
            io_tiers: IoTiers::None,
            io_by_thread: false,
            reason: format!("observe mode writes no cgroup file; {found}"),
        };
        ObserveTree { hierarchies, version, capabilities }
    }

    /// For looking at processes only.
    fn mover(&self) -> Mover<'_> {
        let root = &self.capabilities.root;
        Mover { hierarchies: &self.hierarchies, root, budget: BUDGET }
    }

    fn record(path: String, inode: u64) -> GroupRecord {
        GroupRecord {
            attachment: Attachment::None,
            path,
            inode,
            origin: Vec::new(),
            found: Vec::new(),
        }
    }
}

impl TierTree for ObserveTree {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn shortfalls(&self, _: &WeightPlan) -> Vec<String> {
        Vec::new()
    }

    fn shape_root(&self, _: &WeightPlan) -> Result<(), CgroupError> {
        Ok(())
    }

    fn create(&self, _: TaskId, _: Option<&Label>) -> Result<Group, CgroupError> {
        // Nothing is created, so there is no path to name.
        let record = ObserveTree::record(String::new(), 0);
        Ok(Group { record, dirs: GroupDirs::default() })
    }

    fn find_in_place(
        &self,
        process: ProcessRef,
        named: Option<&str>,
    ) -> Result<Group, CgroupError> {
        let (Some(version), false) = (self.version, self.hierarchies.is_empty()) else {
            return Err(CgroupError::Unsupported(self.capabilities.reason.clone()));
        };
        let mover = self.mover();
        let _pinned = mover.pin(process)?;
        let path = in_place::chosen(mover.present_group(process.pid)?, process, named)?;
        let inode = dirs::inode(&self.hierarchies[0].dir(&path))?
            .ok_or(CgroupError::ProcessGone(process.pid))?;
        // Its files are those of a group in place.
        let mut record = ObserveTree::record(path, inode);
        record.attachment = Attachment::InPlace;
        record.origin = self.origin(process)?;
        for (_, origin) in &mut record.origin {
            *origin = in_place::up_to(origin, &record.path).to_owned();
        }
        // The root group counts the whole node: no files of it stand for a task.
        let dirs = match record.path.as_str() {
            "/" => GroupDirs::default(),
            _ => dirs::of_group(&self.hierarchies, version, &record),
        };
        record.attachment = Attachment::None;
        Ok(Group { record, dirs })
    }

    fn reopen(&self, record: &GroupRecord) -> Result<Option<Group>, CgroupError> {
        Ok(Some(Group { record: record.clone(), dirs: GroupDirs::default() }))
    }

    fn existing(&self) -> Result<Vec<(TaskId, Group)>, CgroupError> {
        Ok(Vec::new())
    }

    fn attach_if(
        &self,
        _: &Group,
        process: ProcessRef,
        _: Kin,
        _: Conditions<'_>,
    ) -> Result<Attached, CgroupError> {
        let mover = self.mover();
        mover.pin(process).map(|_| Attached { moved: 0 })
    }

    fn write_tier(&self, _: &Group, _: Tier, _: &WeightPlan) -> Result<Vec<Drift>, CgroupError> {
        Ok(Vec::new())
    }

    fn read_back(&self, _: &Group) -> Result<KernelView, CgroupError> {
        Ok(KernelView::default())
    }

    fn drift(&self, _: &Group, _: Tier, _: &WeightPlan) -> Result<Vec<Drift>, CgroupError> {
        Ok(Vec::new())
    }

    fn processes(&self, _: &Group) -> Result<Vec<Pid>, CgroupError> {
        Ok(Vec::new())
    }

    fn release(&self, _: &Group) -> Result<(), CgroupError> {
        Ok(())
    }

    fn remove(&self, _: &Group) -> Result<(), CgroupError> {
        Ok(())
    }

    fn close(&self) -> Result<(), CgroupError> {
        Ok(())
    }

    fn origin(&self, process: ProcessRef) -> Result<Vec<(String, String)>, CgroupError> {
        let membership =
            Membership::read(process.pid)?.ok_or(CgroupError::ProcessGone(process.pid))?;
        Ok(self
            .hierarchies
            .iter()
            .filter_map(|h| Some((h.name.clone(), membership.path_in(h)?.to_owned())))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::DiskTiers;

    #[test]
    fn books_without_a_group() {
        let settings = TreeSettings {
            root: None,
            version: None,
            passive_cpu: crate::cgroup::PassiveCpu::Auto,
            io: DiskTiers::Weights,
            root_weight: None,
        };
        let tree = ObserveTree::open(&settings);
        assert_eq!(tree.capabilities().cpu_tiers, CpuTiers::None);
        let group = tree.create(TaskId { epoch: 1, number: 1 }, None).unwrap();
        assert_eq!(group.record.attachment, Attachment::None);
        assert_eq!(group.record.path, "", "a group that does not exist has no path");
        assert_eq!(tree.processes(&group).unwrap(), []);
        assert_eq!(tree.reopen(&group.record).unwrap(), Some(group));
        let init = ProcessRef { pid: Pid::new(1).unwrap(), start_ticks: 0 };
        let group = tree.create(TaskId { epoch: 1, number: 2 }, None).unwrap();
        assert!(matches!(
            tree.attach(&group, init, Kin::Descendants),
            Err(CgroupError::Refused(_))
        ));
    }
}
