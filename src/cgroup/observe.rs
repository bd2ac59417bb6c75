//! Observe mode: a tree that answers without any write.
//!
//! Tasks are booked with attachment `none`. Nothing groups their processes, so
//! [`TierTree::processes`] knows nothing of them: completion comes from the main process's
//! pidfd alone.

use super::effects::Present;
use super::layout::Layout;
use super::tree::{State, TierTree, booked};
use super::{
    Attachment, Capabilities, CgroupError, CpuTiers, Effects, Group, GroupRecord, IoFinding,
    IoTiers, TreeSettings, Version, dirs, in_place, layout,
};
use crate::units::ProcessRef;

impl TierTree {
    /// One that only looks.
    pub(super) fn observe(settings: &TreeSettings) -> TierTree {
        let (version, hierarchies, found) = match layout::hierarchies(settings) {
            Ok((Version::V1, all)) => (Some(Version::V1), all, "cgroup v1 is mounted"),
            Ok((Version::V2, all)) => (Some(Version::V2), all, "cgroup v2 is mounted"),
            Err(_) => {
                (None, Vec::new(), "no cgroup file system with the cpu controller is mounted here")
            }
        };
        let layout = Layout::observed(settings, version.unwrap_or(Version::V2), hierarchies);
        let capabilities = Capabilities {
            version,
            root: layout.path.clone(),
            cpu_tiers: CpuTiers::None,
            io_tiers: IoTiers::None,
            io_by_thread: false,
            reason: format!("observe mode writes no cgroup file; {found}"),
        };
        let effects = Effects { io: IoFinding::none(""), sched_ext: None };
        let present = Present::new(capabilities, None, effects);
        TierTree::new(State::Observing(layout), present, settings)
    }

    /// See [`TierTree::find_in_place`]; the group is only looked at.
    pub(super) fn book_in_place(
        &self,
        Layout { version, hierarchies, .. }: &Layout,
        process: ProcessRef,
        named: Option<&str>,
    ) -> Result<Group, CgroupError> {
        let Some(primary) = hierarchies.first() else {
            return Err(CgroupError::Unsupported(self.capabilities().reason.clone()));
        };
        let mover = self.mover();
        let _pinned = mover.pin(process)?;
        let path = in_place::chosen(mover.present_group(process.pid)?, process, named)?;
        let inode =
            dirs::inode(&primary.dir(&path))?.ok_or(CgroupError::ProcessGone(process.pid))?;
        let origin = self.position(process)?.origin;
        let up_to_it = |(name, origin): &(String, String)| {
            (name.clone(), in_place::up_to(origin, &path).to_owned())
        };
        let origin = origin.iter().map(up_to_it).collect();
        let mut group = booked(path, inode);
        group.record.origin = origin;
        // The root group counts the whole node: no files of it stand for a task.
        if group.record.path != "/" {
            let in_place = GroupRecord { attachment: Attachment::InPlace, ..group.record.clone() };
            group.dirs = dirs::of_group(hierarchies, *version, &in_place);
        }
        Ok(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::{DiskTiers, Kin, Reach, SliceSetting};
    use crate::core::model::TaskId;
    use crate::units::Pid;

    #[test]
    fn records_without_a_group() {
        let settings = TreeSettings {
            root: None,
            version: None,
            passive_cpu: crate::cgroup::PassiveCpu::Auto,
            io: DiskTiers::Weights,
            slice: SliceSetting::Off,
            memory: true,
            root_weight: None,
        };
        let tree = TierTree::observe(&settings);
        assert_eq!(tree.capabilities().cpu_tiers, CpuTiers::None);
        let group = tree.create(TaskId { epoch: 1, number: 1 }, None, Reach::All).unwrap();
        assert_eq!(group.record.attachment, Attachment::None);
        assert_eq!(group.record.path, "", "a group that does not exist has no path");
        assert_eq!(tree.processes(&group).unwrap(), []);
        assert_eq!(tree.reopen(&group.record).unwrap(), Some(group));
        let init = ProcessRef { pid: Pid::new(1).unwrap(), start_ticks: 0 };
        let group = tree.create(TaskId { epoch: 1, number: 2 }, None, Reach::All).unwrap();
        assert!(matches!(
            tree.attach(&group, init, Kin::Descendants),
            Err(CgroupError::Refused(_))
        ));
    }
}
