//! What a tier is in a group's files: comparing and writing them.
//!
//! Changing a tier costs a few reads and at most three writes on paths known beforehand, the
//! CPU first: that is what a promoted task waits for. I/O priorities of threads need a walk
//! over the processes and are therefore not part of it ([`TierTree::reapply_io`]).

use std::path::Path;

use super::IoKnob;
use super::tree::TierTree;
use super::{
    Attachment, CgroupError, Drift, Group, GroupRecord, KernelView, WeightPlan, files, in_place,
};
use crate::core::model::{Level, Tier};
use crate::core::neighbours::RootWeight;
use crate::core::weights::{DISK_SCALES, Scale};

/// `cpu.idle` of a group (sched/core.c, 5.15+).
pub(super) const CPU_IDLE: &str = "cpu.idle";

/// Reads the number in a file of a group's directory; `None`: it is not known.
type Read<'r> = dyn FnMut(&Path, &str) -> Result<Option<u64>, CgroupError> + 'r;

fn by_path(dir: &Path, file: &str) -> Result<Option<u64>, CgroupError> {
    files::read_number(&dir.join(file)).map(Some)
}

/// A comparison of a group's files with a tier.
struct Comparison<'r> {
    read: &'r mut Read<'r>,
    /// Makes what differs as it should be.
    write: bool,
    /// What differs; after an error what was written before it.
    drifts: Vec<Drift>,
}

impl Comparison<'_> {
    fn number(&mut self, dir: &Path, file: &str, expected: u64) -> Result<(), CgroupError> {
        let Some(found) = (self.read)(dir, file)?.filter(|found| *found != expected) else {
            return Ok(());
        };
        self.differs(dir, file, &found.to_string(), &expected.to_string())
    }

    fn differs(
        &mut self,
        dir: &Path,
        file: &str,
        found: &str,
        expected: &str,
    ) -> Result<(), CgroupError> {
        if self.write {
            files::write_value(&dir.join(file), expected)?;
        }
        let (file, found, expected) = (file.to_owned(), found.to_owned(), expected.to_owned());
        self.drifts.push(Drift { file, found, expected });
        Ok(())
    }
}

/// Whether a tier may weigh more than what was found in the group.
fn may_rise(record: &GroupRecord) -> bool {
    !record.for_member
}

/// What the CPU files of a group shall say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuWish {
    Idle,
    Weight(u64),
    /// Found idle by its owner: fine for a passive task.
    WeightOrIdle(u64),
}

impl TierTree {
    fn cpu_wish(&self, record: &GroupRecord, level: Level, plan: &WeightPlan) -> CpuWish {
        if record.attachment == Attachment::Own {
            return match (self.idle_used, level) {
                (true, Level::Passive) => CpuWish::Idle,
                (true, level) => CpuWish::Weight(self.scale.pair_beside_idle(plan).of(level)),
                (false, level) => CpuWish::Weight(self.scale.pair(plan).of(level)),
            };
        }
        let owners = in_place::found_number(record, self.scale.file);
        let weight = self.scale.pair(plan).beside(owners, may_rise(record)).of(level);
        if level.tier() == Tier::Passive && in_place::found_number(record, CPU_IDLE) == Some(1) {
            CpuWish::WeightOrIdle(weight)
        } else {
            CpuWish::Weight(weight)
        }
    }

    /// Writes the weights of `level`, only where they differ; answers what differed.
    /// The promotion path: no allocation of note, no waiting. On an error an in-place group is
    /// as it was before; an own one may be half written.
    pub fn write_tier(
        &self,
        group: &Group,
        level: impl Into<Level>,
        plan: &WeightPlan,
    ) -> Result<Vec<Drift>, CgroupError> {
        let level = level.into();
        if self.observing {
            return Ok(Vec::new());
        }
        let in_place = group.record.attachment == Attachment::InPlace;
        if in_place {
            self.plans.note(&group.record, plan);
        }
        let mut comparison = Comparison { read: &mut by_path, write: true, drifts: Vec::new() };
        let outcome = self.compare(group, level, plan, &mut comparison);
        let drifts = comparison.drifts;
        match outcome {
            Ok(()) => {
                if in_place {
                    self.plans.wrote(&group.record, self.weights_of(&group.record, level, plan));
                }
                Ok(drifts)
            }
            Err(error) if in_place => Err(match undo(group, &drifts) {
                Ok(()) => error,
                Err(undo) => CgroupError::Refused(format!("{error}; and undoing failed: {undo}")),
            }),
            Err(error) => Err(error),
        }
    }

    /// Gives the root its weight among its siblings, in its files: what systemd has is the
    /// most it may have. Answers what differed.
    pub fn weigh_root(&self, weight: RootWeight) -> Result<Vec<Drift>, CgroupError> {
        if self.observing {
            return Ok(Vec::new());
        }
        let mut dir = self.root.dir();
        if self.root.is_scope {
            // The scope is alone in its slice.
            dir.pop();
        }
        let wish = match weight {
            RootWeight::Idle if self.idle_used => CpuWish::Idle,
            RootWeight::Idle => CpuWish::Weight(self.scale.min),
            RootWeight::Weight(weight) => CpuWish::Weight(self.scale.within(weight)),
        };
        let mut comparison = Comparison { read: &mut by_path, write: true, drifts: Vec::new() };
        self.compare_cpu(&dir, wish, &mut comparison)?;
        Ok(comparison.drifts)
    }

    /// The weight files of an in-place `group` and what [`TierTree::write_tier`] makes them say:
    /// what has to be set in its owner, where that is systemd. Of an idle group that may stay
    /// idle, `cpu.idle`.
    pub fn tier_files(
        &self,
        group: &Group,
        level: Level,
        plan: &WeightPlan,
    ) -> Vec<(&'static str, u64)> {
        let cpu = match self.cpu_wish(&group.record, level, plan) {
            CpuWish::Idle | CpuWish::WeightOrIdle(_) => (CPU_IDLE, 1),
            CpuWish::Weight(weight) => (self.scale.file, weight),
        };
        std::iter::once(cpu).chain(self.io_weights(&group.record, level.tier(), plan)).collect()
    }

    /// What is known of an in-place `group` once the weights that its owner wrote since
    /// [`TierTree::write_tier`] count as found; `None`: none were written. Asked before the next
    /// write, which would hide them.
    pub fn heed_owner(&self, group: &Group) -> Result<Option<GroupRecord>, CgroupError> {
        in_place::heeded(group, &self.plans.last(&group.record))
    }

    /// The weights of a foreign group at `level`, whether or not it may stay idle.
    fn weights_of(
        &self,
        record: &GroupRecord,
        level: Level,
        plan: &WeightPlan,
    ) -> Vec<(&'static str, u64)> {
        let owners = in_place::found_number(record, self.scale.file);
        let pair = self.scale.pair(plan).beside(owners, may_rise(record));
        let cpu = (self.scale.file, pair.of(level));
        std::iter::once(cpu).chain(self.io_weights(record, level.tier(), plan)).collect()
    }

    fn io_weights(
        &self,
        record: &GroupRecord,
        tier: Tier,
        plan: &WeightPlan,
    ) -> Vec<(&'static str, u64)> {
        let present = self.present();
        let weights = present.knobs().iter().filter_map(|knob| match knob {
            IoKnob::Weight(scale) => {
                let owners = in_place::found_number(record, scale.file)?;
                let pair = scale.pair(plan).beside(Some(owners), may_rise(record));
                Some((scale.file, pair.of(tier)))
            }
            IoKnob::PriorityClass | IoKnob::ThreadPriority => None,
        });
        weights.collect()
    }

    /// Gives an in-place group back to its owner.
    pub(super) fn restore(&self, group: &Group) -> Result<(), CgroupError> {
        in_place::restore(group, &self.ours(group))?;
        self.plans.forget(&group.record);
        Ok(())
    }

    /// Gives the owner of an in-place group back what an earlier daemon with another `tiers.io`
    /// wrote into the files of its disk tier.
    pub(super) fn restore_disk(
        &self,
        group: &Group,
        in_use: impl Fn(&str) -> bool,
    ) -> Result<(), CgroupError> {
        let ours = self.ours(group);
        let is_disk = |file: &str| DISK_SCALES.iter().any(|scale| scale.file == file);
        in_place::restore(group, &|file, present| {
            is_disk(file) && !in_use(file) && ours(file, present)
        })
    }

    /// Tells whether LRS wrote the present value of a file of an in-place group.
    fn ours<'a>(&self, group: &'a Group) -> impl Fn(&str, u64) -> bool + 'a {
        let plans = self.plans.of(&group.record);
        let scales = [self.scale].into_iter().chain(DISK_SCALES);
        let scales: Vec<Scale> = scales.collect();
        move |file, present| {
            let Some(plans) = &plans else { return true };
            let owners = in_place::found_number(&group.record, file);
            scales.iter().find(|scale| scale.file == file).is_some_and(|scale| {
                let rises = may_rise(&group.record);
                let mut pairs = plans.iter().map(|plan| scale.pair(plan).beside(owners, rises));
                pairs.any(|pair| {
                    [Level::Active, Level::Lane, Level::SlowLane, Level::Passive]
                        .map(|level| pair.of(level))
                        .contains(&present)
                })
            })
        }
    }

    fn compare(
        &self,
        group: &Group,
        level: Level,
        plan: &WeightPlan,
        comparison: &mut Comparison<'_>,
    ) -> Result<(), CgroupError> {
        if group.record.attachment == Attachment::None {
            return Ok(());
        }
        if let Some(dir) = &group.dirs.cpu {
            self.compare_cpu(dir, self.cpu_wish(&group.record, level, plan), comparison)?;
        }
        if let Some(dir) = &group.dirs.io {
            for knob in self.present().knobs() {
                self.compare_io(*knob, dir, group, level.tier(), plan, comparison)?;
            }
        }
        Ok(())
    }

    /// What differs from `level`, without writing.
    pub fn drift(
        &self,
        group: &Group,
        level: impl Into<Level>,
        plan: &WeightPlan,
    ) -> Result<Vec<Drift>, CgroupError> {
        let mut comparison = Comparison { read: &mut by_path, write: false, drifts: Vec::new() };
        self.compare(group, level.into(), plan, &mut comparison).map(|()| comparison.drifts)
    }

    /// The same of what was read just now, of an own group without `io.prio.class`.
    pub(super) fn drift_in(
        &self,
        group: &Group,
        view: &KernelView,
        level: Level,
        plan: &WeightPlan,
    ) -> Result<Vec<Drift>, CgroupError> {
        let mut read = |_: &Path, file: &str| {
            Ok(match file {
                CPU_IDLE => view.cpu_idle.map(u64::from),
                file if file == self.scale.file => view.cpu_weight,
                _ => view.io_weight,
            })
        };
        let mut comparison = Comparison { read: &mut read, write: false, drifts: Vec::new() };
        self.compare(group, level, plan, &mut comparison).map(|()| comparison.drifts)
    }

    /// `cpu.idle` first: the weight of an idle group cannot be written, and leaving idle resets
    /// it to neutral.
    fn compare_cpu(
        &self,
        dir: &Path,
        wish: CpuWish,
        comparison: &mut Comparison<'_>,
    ) -> Result<(), CgroupError> {
        let is_idle = self.idle_exists && (comparison.read)(dir, CPU_IDLE)? == Some(1);
        let (want_idle, weight) = match wish {
            CpuWish::Idle => (true, 0),
            CpuWish::WeightOrIdle(weight) => (is_idle, weight),
            CpuWish::Weight(weight) => (false, weight),
        };
        if is_idle != want_idle {
            let (found, expected) = if want_idle { ("0", "1") } else { ("1", "0") };
            comparison.differs(dir, CPU_IDLE, found, expected)?;
        }
        match (want_idle, is_idle) {
            (true, _) => Ok(()),
            (false, false) => comparison.number(dir, self.scale.file, weight),
            // Not compared: it is what leaving idle made of it.
            (false, true) if comparison.write => {
                files::write_value(&dir.join(self.scale.file), &weight.to_string())
            }
            (false, true) => Ok(()),
        }
    }

    fn compare_io(
        &self,
        knob: IoKnob,
        dir: &Path,
        group: &Group,
        tier: Tier,
        plan: &WeightPlan,
        comparison: &mut Comparison<'_>,
    ) -> Result<(), CgroupError> {
        let in_place = group.record.attachment == Attachment::InPlace;
        match knob {
            IoKnob::Weight(scale) => {
                let owners = in_place::found_number(&group.record, scale.file);
                // A group found without the file (no io controller there) has no disk tier.
                if in_place && owners.is_none() {
                    return Ok(());
                }
                let rises = may_rise(&group.record);
                let weight = scale.pair(plan).beside(owners, rises).of(tier);
                comparison.number(dir, scale.file, weight)
            }
            IoKnob::PriorityClass if !in_place => {
                let file = dir.join(in_place::IO_PRIO_CLASS);
                let class = match tier {
                    Tier::Active => "no-change",
                    Tier::Passive => "idle",
                };
                let found = files::read_value(&file)
                    .map_err(|error| files::failed("read", &file, None, error))?;
                if found == class {
                    return Ok(());
                }
                comparison.differs(dir, in_place::IO_PRIO_CLASS, &found, class)
            }
            IoKnob::PriorityClass | IoKnob::ThreadPriority => Ok(()),
        }
    }
}

/// Takes back what was written, the last first: leaving idle comes before the weight.
fn undo(group: &Group, written: &[Drift]) -> Result<(), CgroupError> {
    for drift in written.iter().rev() {
        let is_cpu = drift.file.starts_with("cpu.");
        let dir = if is_cpu { &group.dirs.cpu } else { &group.dirs.io };
        if let Some(dir) = dir {
            files::write_value(&dir.join(&drift.file), &drift.found)?;
        }
    }
    Ok(())
}

/// Makes the number in `path` `value`, unless it is.
pub(super) fn write_number(path: &Path, value: u64) -> Result<(), CgroupError> {
    if files::read_number(path)? == value {
        return Ok(());
    }
    files::write_value(path, &value.to_string())
}
