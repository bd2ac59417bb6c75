//! The look at every group's weights, every few cycles.
//!
//! Reading back and judging drift need the same two or three files of every task, again and again:
//! they are kept open and read once. The threads, where each is given a slice or an I/O
//! priority, come from `cgroup.threads` of the cgroup2 group: one file, where a walk through
//! v1's `cgroup.procs` and /proc costs six times as much (measured, 1,000 tasks of one thread:
//! 65 us a task and cycle by paths and walk).
//!
//! Limits. Groups in place are few and differ in which files they have; they are read by
//! path. Beside a cgroup2 twin the freezer of v1 is not looked at every cycle. A task with groups of
//! its own below, or with more threads than one page of
//! `cgroup.threads` names, is walked.

use std::path::Path;

use super::knob::{Content, Knob, by_path};
use super::tree::TierTree;
use super::{Attachment, CgroupError, Drift, Group, IoKnob, KernelView, WeightPlan, dirs, files};
use crate::core::model::{Level, Tier};
use crate::core::slice::Slice;
use crate::kernfs::files::{Descriptors, KeptFile};

/// freezer-subsystem.rst
const FREEZER_STATE: &str = "freezer.state";

/// More than this may be a page that was cut off.
const WHOLE_PAGE: usize = 4000;

/// Files of one group that are read again and again. Empty: the group is read by path.
#[derive(Debug, Default)]
pub struct OpenFiles {
    /// Those of its tier, by name.
    knobs: Vec<(&'static str, KeptFile)>,
    /// `cgroup.events`, or where there is no cgroup2 group `freezer.state`.
    frozen: Option<KeptFile>,
    threads: Option<KeptFile>,
    /// The slice that its threads were last given; `None`: that is not known.
    slice: Option<Slice>,
}

/// What an inspection needs beside the group: the budget of descriptors, and room to read.
#[derive(Debug)]
pub struct Reading {
    /// The budget of files kept open, shared with the sampler.
    pub descriptors: Descriptors,
    /// Reused from file to file.
    pub buffer: Vec<u8>,
}

impl Reading {
    /// What a file kept open says.
    fn content(&mut self, file: &mut KeptFile) -> Result<Content, CgroupError> {
        match file.read(&self.descriptors, &mut self.buffer) {
            Ok(text) => {
                let text = String::from_utf8_lossy(text);
                Ok(Content::parse(text.lines().next().unwrap_or_default().trim()))
            }
            Err(error) => Err(files::failed("read", file.path(), None, error)),
        }
    }

    fn frozen(&mut self, file: &mut Option<KeptFile>) -> Result<Option<bool>, CgroupError> {
        let Some(file) = file else { return Ok(None) };
        let by_v1 = file.path().ends_with(FREEZER_STATE);
        match file.read(&self.descriptors, &mut self.buffer) {
            Ok(text) if by_v1 => Ok(Some(text.trim_ascii() == b"FROZEN")),
            Ok(text) => Ok(crate::kernfs::parse::keyed(text, b"frozen").map(|frozen| frozen == 1)),
            Err(error) => Err(files::failed("read", file.path(), None, error)),
        }
    }
}

impl TierTree {
    /// What [`TierTree::inspect`] keeps open for `group`.
    pub fn keep(&self, group: &Group) -> OpenFiles {
        if group.record.attachment != Attachment::Own {
            return OpenFiles::default();
        }
        let present = self.present();
        let kept = |knob: &dyn Knob| {
            let dir = knob.part().dir(&group.dirs)?;
            Some((knob.file(), KeptFile::new(dir.join(knob.file()))))
        };
        let threads = || {
            let dir = group.dirs.unified.as_ref()?;
            Some(KeptFile::new(dir.join("cgroup.threads")))
        };
        let by_v1 = || {
            let freezer = dirs::in_use(&self.layout().hierarchies, &group.record)
                .find(|hierarchy| hierarchy.has("freezer"))?;
            Some(freezer.dir(&group.record.path).join(FREEZER_STATE))
        };
        let frozen = match &group.dirs.unified {
            Some(dir) => Some(dir.join("cgroup.events")),
            None => by_v1(),
        };
        OpenFiles {
            knobs: present.table().iter().filter_map(|knob| kept(&**knob)).collect(),
            frozen: frozen.map(KeptFile::new),
            threads: (self.slice.is_some() || present.knobs().contains(&IoKnob::ThreadPriority))
                .then(threads)
                .flatten(),
            slice: None,
        }
    }

    /// Every few cycles: [`TierTree::renew_threads`], [`TierTree::read_back`] and [`TierTree::drift`]
    /// in one, from files kept open.
    pub fn inspect(
        &self,
        group: &Group,
        kept: &mut OpenFiles,
        reading: &mut Reading,
        (level, slice): (Level, Slice),
        plan: &WeightPlan,
    ) -> Result<(KernelView, Vec<Drift>), CgroupError> {
        self.renew_by_list(group, kept, reading, (level.tier(), slice))?;
        if kept.knobs.is_empty() {
            return Ok((self.read_back(group)?, self.drift(group, level, plan)?));
        }
        let mut contents = Vec::with_capacity(kept.knobs.len());
        for knob in self.present().table() {
            let Some(dir) = knob.part().dir(&group.dirs) else { continue };
            let kept = kept.knobs.iter_mut().find(|(file, _)| *file == knob.file());
            let content = match kept {
                Some((_, kept)) => Some(reading.content(kept)?),
                None => by_path(&**knob, dir)?,
            };
            contents.extend(content.map(|content| (knob.file(), content)));
        }
        let mut read = |knob: &dyn Knob, _: &Path| {
            let content = contents.iter().find(|(file, _)| *file == knob.file());
            Ok(content.map(|(_, content)| content.clone()))
        };
        let view = self.view_of(group, &mut read)?;
        // Own groups are kept, and have no quota.
        let view = KernelView { frozen: reading.frozen(&mut kept.frozen)?, ..view };
        Ok((view, self.drift_in(group, &mut read, level, plan)?))
    }

    /// Between two of those: [`TierTree::renew_threads`] from files kept open. Without a walk where its threads
    /// have what they are to have, and those to come inherit it.
    pub fn renew_by_list(
        &self,
        group: &Group,
        kept: &mut OpenFiles,
        reading: &mut Reading,
        (tier, slice): (Tier, Slice),
    ) -> Result<(), CgroupError> {
        let is_own = group.record.attachment == Attachment::Own;
        let by_priority = is_own && self.present().knobs().contains(&IoKnob::ThreadPriority);
        // A thread that was moved into an own group later gets it with the next look.
        let renews = is_own && slice == Slice::Long;
        let by_slice = self.slice.is_some() && (renews || kept.slice != Some(slice));
        if !by_priority && !by_slice {
            return Ok(());
        }
        let changed = match self.apply_by_list(group, kept, reading, (tier, slice))? {
            Some(changed) => changed,
            None => self.renew_threads(group, tier, slice)?,
        };
        // One that was forked meanwhile has what its parent had before: over once a walk changes nothing.
        kept.slice = (changed == 0).then_some(slice);
        Ok(())
    }

    /// How many were changed; `None`: the list does not name all threads.
    fn apply_by_list(
        &self,
        group: &Group,
        kept: &mut OpenFiles,
        reading: &mut Reading,
        (tier, slice): (Tier, Slice),
    ) -> Result<Option<usize>, CgroupError> {
        let (Some(file), Some(dir)) = (&mut kept.threads, &group.dirs.unified) else {
            return Ok(None);
        };
        // kernfs counts subdirectories in the link count: 2 means none.
        if !rustix::fs::stat(dir).is_ok_and(|stat| stat.st_nlink == 2) {
            return Ok(None);
        }
        let text = match file.read(&reading.descriptors, &mut reading.buffer) {
            Ok(text) if text.len() < WHOLE_PAGE => text,
            Ok(_) => return Ok(None),
            Err(error) => return Err(files::failed("read", file.path(), None, error)),
        };
        let threads = self.thread_tier(group, tier, slice);
        threads.apply_to_threads(crate::kernfs::parse::ids(text)).map(Some)
    }
}
