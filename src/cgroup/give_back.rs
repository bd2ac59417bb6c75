//! Task groups given back while no daemon runs: what the removal of LRS needs.
//!
//! Nothing is opened but the groups that records name. [`super::open()`] would make the root,
//! lock it and have systemd start a scope, and only a daemon that systemd started knows which
//! root it is; here whoever runs the package manager has only the records.
//!
//! Processes of an admission that was cut short (those of requests that wait, above all) go back to
//! where they were. Any other group of LRS's own keeps its processes, and its files say what those of a new group say:
//! a passive task must not stay behind all others when no daemon is left to promote it. A group of
//! others gets what was found there.
//!
//! Limits. What the owner of a group in place has written since the daemon's end is overwritten
//! with what was found, as [`super::in_place`] says; of units systemd knows better. A process that
//! cannot go back to where it was goes to the group above LRS's root, and into no scope of its own.

use super::dirs::{self, inode};
use super::knob::cpu_idle::FILE as CPU_IDLE;
use super::knob::freezer;
use super::knob::threads::ThreadTier;
use super::mounts::Hierarchy;
use super::mover::{BUDGET, Mover};
use super::neutral::{neutralise, neutralise_cpu};
use super::{
    Attachment, CgroupError, Group, GroupRecord, TreeSettings, Version, files, halts, in_place,
    layout, members,
};
use crate::core::task::Halt;
use crate::systemd::SLICE;

/// The hierarchies in which records name groups.
#[derive(Debug)]
pub struct RecordedGroups {
    version: Version,
    /// Primary first.
    hierarchies: Vec<Hierarchy>,
}

impl RecordedGroups {
    /// Finds the hierarchies that a daemon with `settings` uses; writes nothing.
    ///
    /// # Errors
    /// `Unsupported` when there are none; the text says what to do.
    pub fn find(settings: &TreeSettings) -> Result<RecordedGroups, CgroupError> {
        let (version, hierarchies) = layout::hierarchies(settings)?;
        Ok(RecordedGroups { version, hierarchies })
    }

    /// Makes the root that a daemon with `settings` has one like others, where it was left idle:
    /// its tasks run on, and no daemon is there to wake it.
    ///
    /// # Errors
    /// A file could not be read or written; asked again it goes on.
    pub fn wake_root(&self, settings: &TreeSettings) -> Result<(), CgroupError> {
        let root = settings.root.as_deref().unwrap_or(layout::AUTO_ROOT);
        for path in [root, SLICE] {
            let dir = self.hierarchies[0].dir(path);
            if files::read_value_if_there(&dir.join(CPU_IDLE))?.as_deref() == Some("1") {
                neutralise_cpu(&dir)?;
            }
        }
        Ok(())
    }

    /// Thaws the group that its record says LRS froze.
    ///
    /// # Errors
    /// As [`RecordedGroups::give_back`].
    pub fn thaw(&self, record: &GroupRecord) -> Result<(), CgroupError> {
        if inode(&self.hierarchies[0].dir(&record.path))? != Some(record.inode) {
            return Ok(());
        }
        let dirs = dirs::of_group(&self.hierarchies, self.version, record);
        freezer::thaw(&self.hierarchies, &Group { record: record.clone(), dirs })
    }

    /// Gives the group its neutral weights if it is LRS's own, else those found. Answers
    /// whether processes are in it; `false` too for one that is gone or was only booked.
    ///
    /// # Errors
    /// A file could not be read or written; asked again it goes on.
    pub fn give_back(&self, record: &GroupRecord) -> Result<bool, CgroupError> {
        if record.attachment == Attachment::None
            || inode(&self.hierarchies[0].dir(&record.path))? != Some(record.inode)
        {
            return Ok(false);
        }
        let dirs = dirs::of_group(&self.hierarchies, self.version, record);
        let group = Group { record: record.clone(), dirs };
        match record.attachment {
            Attachment::Own => neutralise(&group)?,
            Attachment::InPlace | Attachment::None => {
                ThreadTier::NEUTRAL.apply(&members::processes(&group)?)?;
                in_place::restore(&group, &|_, _| true)?;
            }
        }
        Ok(!members::processes(&group)?.is_empty())
    }
}

impl RecordedGroups {
    /// Whether nothing in the group can run, because others froze or stopped it. What cannot be read
    /// counts as running.
    pub fn is_halted(&self, record: &GroupRecord) -> bool {
        let dirs = dirs::of_group(&self.hierarchies, self.version, record);
        let group = Group { record: record.clone(), dirs };
        halts::of(&self.hierarchies, &group, None).is_ok_and(|halt| halt.is_some())
    }

    /// Moves what is in a group that LRS made in its root back to where it was, as a daemon does,
    /// and removes the group. Fine when it is gone. `false`: others froze it, and it keeps its
    /// processes, with neutral weights.
    ///
    /// # Errors
    /// A file could not be written, or the processes fork faster than they can be moved; asked
    /// again it goes on.
    pub fn roll_back(&self, record: &GroupRecord) -> Result<bool, CgroupError> {
        if inode(&self.hierarchies[0].dir(&record.path))? != Some(record.inode) {
            return Ok(true);
        }
        let root = record.path.rsplit_once('/').map_or("/", |(root, _)| root);
        let dirs = dirs::of_group(&self.hierarchies, self.version, record);
        let group = Group { record: record.clone(), dirs };
        let processes = members::processes(&group)?;
        // In an empty one is nothing that a move would thaw.
        if !processes.is_empty()
            && halts::of(&self.hierarchies, &group, None)? == Some(Halt::Frozen)
        {
            return neutralise(&group).map(|()| false);
        }
        ThreadTier::NEUTRAL.apply(&processes)?;
        let mover = Mover { hierarchies: &self.hierarchies, root, budget: BUDGET };
        mover.evacuate(&record.path, BUDGET, &|index| {
            let name = &self.hierarchies[index].name;
            let home = record.origin.iter().find(|(hierarchy, _)| hierarchy == name);
            home.map(|(_, path)| path.clone())
        })?;
        dirs::remove_everywhere(&self.hierarchies, &record.path).map(|()| true)
    }
}
