//! Tasks given back while the daemon runs: processes moved out, values found restored, groups removed.

use std::path::Path;

use super::knob::threads::ThreadTier;
use super::layout::Layout;
use super::mounts::Hierarchy;
use super::mover::BUDGET;
use super::neutral::{neutralise, neutralise_disk};
use super::process::is_within;
use super::tree::TierTree;
use super::{Attachment, CgroupError, Group, IoKnob, dirs, members, name, scope};
use crate::core::model::Tier;
use crate::core::slice::Slice;
use crate::core::task::Halt;

impl TierTree {
    /// Gives the task back: own processes return to where they came from or to the root's
    /// parent and the group is removed; in place gets the values found, except where its owner
    /// has written another meanwhile.
    ///
    /// A move would thaw what others froze: such a group of LRS's own keeps its processes, with
    /// neutral weights, and is to be removed when they have ended. Answers so.
    ///
    /// # Errors
    /// `Refused` after two seconds with processes still in the group; those moved by then stay
    /// out, and asked again it goes on.
    pub fn release(&self, group: &Group) -> Result<Option<Halt>, CgroupError> {
        let Some(root) = self.root().filter(|_| group.record.attachment != Attachment::None) else {
            return Ok(None);
        };
        let Layout { path, hierarchies, .. } = &root.layout;
        if let Some(Halt::Frozen) = self.halt_inside(group)? {
            neutralise(group)?;
            return Ok(Some(Halt::Frozen));
        }
        self.renew_threads(group, Tier::Active, Slice::Default)?;
        if group.record.attachment == Attachment::InPlace {
            return self.restore(group).map(|()| None);
        }
        let home = |index: usize| -> Option<String> {
            let name = &hierarchies[index].name;
            let origin = group.record.origin.iter().find(|(hierarchy, _)| hierarchy == name);
            origin.map(|(_, path)| path.clone())
        };
        let processes = members::processes(group)?;
        // Beside the services there are other limits than in a unit.
        if is_within(&group.record.path, path)
            && self.is_homeless(group)
            && let Some(id) = name::task_at(Path::new(&group.record.path))
            && !processes.is_empty()
        {
            root.rehome(id, &group.record.origin, &processes);
        }
        // Those forked meanwhile, too, and all of them without systemd.
        self.mover().evacuate(&group.record.path, BUDGET, &home)?;
        // Again: the reading thread may have begun its walk over the threads before. What carries no mark
        // of LRS's is left as it is, so that a number that is another process's by now does no harm.
        if let Err(error) = ThreadTier::NEUTRAL.apply(&processes) {
            let cgroup = &group.record.path;
            tracing::warn!(cgroup, %error, "threads that were given back from {cgroup} may keep an I/O priority or a slice of LRS's: {error}");
        }
        self.remove(group).map(|()| None)
    }

    /// As [`TierTree::release`] for a task; one that is stopped stays where it is, too.
    ///
    /// # Errors
    /// As there.
    pub fn release_task(&self, group: &Group) -> Result<Option<Halt>, CgroupError> {
        if let Some(halt) = self.halt_inside(group)? {
            neutralise(group)?;
            return Ok(Some(halt));
        }
        self.release(group)
    }

    /// What others did to the processes of an own group; in an empty one is nothing that a move would thaw.
    fn halt_inside(&self, group: &Group) -> Result<Option<Halt>, CgroupError> {
        if group.record.attachment != Attachment::Own || members::processes(group)?.is_empty() {
            return Ok(None);
        }
        self.halt(group, None)
    }

    /// Removes an empty own group. Fine when it is gone already.
    pub fn remove(&self, group: &Group) -> Result<(), CgroupError> {
        match group.record.attachment {
            Attachment::Own if self.root().is_some() => {
                dirs::remove_everywhere(&self.layout().hierarchies, &group.record.path)
            }
            Attachment::Own | Attachment::InPlace | Attachment::None => Ok(()),
        }
    }

    /// Cleans up after a task: its own group goes, one in place gets its weights back.
    ///
    /// # Errors
    /// As [`TierTree::remove`] and [`TierTree::release`].
    pub fn clean_up(&self, group: &Group) -> Result<(), CgroupError> {
        match group.record.attachment {
            Attachment::Own => self.remove(group),
            Attachment::InPlace => self.release(group).map(drop),
            Attachment::None => Ok(()),
        }
    }

    /// Gives every thread of `group` its slice, and of an own one the I/O priority of `tier`, where disk
    /// tiers are made that way; takes back what an earlier daemon with other settings left in its threads
    /// and files. Answers how many threads were changed. Walks the processes: call it off the promotion path.
    pub fn renew_threads(
        &self,
        group: &Group,
        tier: Tier,
        slice: Slice,
    ) -> Result<usize, CgroupError> {
        let present = self.present();
        let in_use = |file: &str| present.table().iter().any(|knob| knob.file() == file);
        match (group.record.attachment, &group.dirs.io) {
            (Attachment::None, _) => return Ok(0),
            (Attachment::InPlace, _) => self.restore_disk(group, in_use)?,
            (Attachment::Own, Some(dir)) => neutralise_disk(dir, in_use)?,
            (Attachment::Own, None) => {}
        }
        // Also what an earlier daemon gave.
        let threads = self.thread_tier(group, tier, slice);
        let threads = ThreadTier { io: threads.io.or(Some(Tier::Active)), ..threads };
        threads.apply(&self.processes(group)?)
    }

    /// What the threads of `group` are given.
    pub(super) fn thread_tier(&self, group: &Group, tier: Tier, slice: Slice) -> ThreadTier {
        let by_thread = group.record.attachment == Attachment::Own
            && self.present().knobs().contains(&IoKnob::ThreadPriority);
        ThreadTier { io: by_thread.then_some(tier), slice, length: self.slice }
    }

    /// Whether the group the task came from is gone where systemd tracks it. On v1 a unit may
    /// have none of its own in the other hierarchies.
    fn is_homeless(&self, group: &Group) -> bool {
        let gone = |hierarchy: &Hierarchy| {
            let origin = group.record.origin.iter().find(|(name, _)| *name == hierarchy.name);
            origin.is_none_or(|(_, path)| !hierarchy.dir(path).is_dir())
        };
        scope::tracked(&self.layout().hierarchies).any(gone)
    }
}
