//! What a tier is in a group's files: comparing and writing them.
//!
//! Changing a tier costs a few reads and at most three writes on paths known beforehand, the
//! CPU first: that is what a promoted task waits for. What each thread is given needs a walk
//! over the processes and is therefore not part of it ([`TierTree::renew_threads`]).

use super::knob::{self, Ask, Comparison, Part, Value, Wish, by_path, cpu_idle};
use super::open::Root;
use super::tree::TierTree;
use super::{
    Attachment, CgroupError, Drift, Group, GroupDirs, GroupRecord, KernelView, WeightPlan, in_place,
};
use crate::core::model::Level;
use crate::core::neighbours::RootWeight;

impl TierTree {
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
        let in_place = group.record.attachment == Attachment::InPlace;
        if in_place {
            self.plans.note(&group.record, plan);
        }
        let mut by_path = by_path;
        let mut comparison = Comparison::new(&mut by_path, true);
        let outcome = self.compare(group, level, plan, &mut comparison);
        let drifts = comparison.drifts;
        match outcome {
            Ok(()) => {
                if in_place {
                    let weights = self.weights_of(&group.record, level, plan, false);
                    self.plans.wrote(&group.record, weights);
                }
                Ok(drifts)
            }
            Err(error) if in_place => Err(match knob::undo(&group.dirs, &drifts) {
                Ok(()) => error,
                Err(undo) => CgroupError::Refused(format!("{error}; and undoing failed: {undo}")),
            }),
            Err(error) => Err(error),
        }
    }

    /// Gives the root its weight among its siblings, in its files: what systemd has is the
    /// most it may have. Answers what differed; nothing where no root is LRS's.
    pub fn weigh_root(&self, weight: RootWeight) -> Result<Vec<Drift>, CgroupError> {
        self.root().map_or(Ok(Vec::new()), |root| self.weigh(root, weight))
    }

    pub(super) fn weigh(&self, root: &Root, weight: RootWeight) -> Result<Vec<Drift>, CgroupError> {
        let mut dir = root.dir();
        if root.layout.is_scope {
            // The scope is alone in its slice.
            dir.pop();
        }
        let dirs = GroupDirs { cpu: Some(dir), ..GroupDirs::default() };
        let mut by_path = by_path;
        let mut comparison = Comparison::new(&mut by_path, true);
        comparison.run(self.present().table(), &dirs, &|knob, is_idle| {
            knob.wish_of_root(weight, is_idle)
        })?;
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
        self.weights_of(&group.record, level, plan, true)
    }

    /// What is known of an in-place `group` once the weights that its owner wrote since
    /// [`TierTree::write_tier`] count as found; `None`: none were written. Asked before the next
    /// write, which would hide them.
    pub fn heed_owner(&self, group: &Group) -> Result<Option<GroupRecord>, CgroupError> {
        in_place::heeded(group, &self.plans.last(&group.record))
    }

    /// The weights of a foreign group at `level`. Of one that may stay idle, and does so if
    /// `stays_idle`, `cpu.idle` in place of the CPU weight.
    fn weights_of(
        &self,
        record: &GroupRecord,
        level: Level,
        plan: &WeightPlan,
        stays_idle: bool,
    ) -> Vec<(&'static str, u64)> {
        let mut weights = Vec::new();
        let mut is_idle = false;
        for knob in self.present().table() {
            match knob.wish(&Ask { record, level, plan, is_idle }) {
                Wish::Any if stays_idle && knob.file() == cpu_idle::FILE => {
                    is_idle = true;
                    weights.push((cpu_idle::FILE, 1));
                }
                Wish::Is(Value::Number(weight)) if knob.file() != cpu_idle::FILE => {
                    weights.push((knob.file(), weight));
                }
                Wish::Any | Wish::NotTouched | Wish::Is(_) => {}
            }
        }
        weights
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
        let is_disk = |file: &str| knob::part_of(file) == Some(Part::Disk);
        in_place::restore(group, &|file, present| {
            is_disk(file) && !in_use(file) && ours(file, present)
        })
    }

    /// Tells whether LRS wrote the present value of a file of an in-place group.
    fn ours<'a>(&self, group: &'a Group) -> impl Fn(&str, u64) -> bool + 'a {
        let plans = self.plans.of(&group.record);
        move |file, present| {
            let Some(plans) = &plans else { return true };
            // Also of a file that makes no tier any more.
            let Some(knob) = knob::ALL.iter().find(|knob| knob.file() == file) else {
                return false;
            };
            let writes = |plan, level| {
                let ask = Ask { record: &group.record, level, plan, is_idle: false };
                knob.wish(&ask) == Wish::Is(Value::Number(present))
            };
            let levels = [Level::Active, Level::Lane, Level::SlowLane, Level::Passive];
            plans.iter().any(|plan| levels.into_iter().any(|level| writes(plan, level)))
        }
    }

    fn compare(
        &self,
        group: &Group,
        level: Level,
        plan: &WeightPlan,
        comparison: &mut Comparison<'_>,
    ) -> Result<(), CgroupError> {
        let record = &group.record;
        comparison.run(self.present().table(), &group.dirs, &|knob, is_idle| {
            knob.wish(&Ask { record, level, plan, is_idle })
        })
    }

    /// What differs from `level`, without writing.
    pub fn drift(
        &self,
        group: &Group,
        level: impl Into<Level>,
        plan: &WeightPlan,
    ) -> Result<Vec<Drift>, CgroupError> {
        self.drift_in(group, &mut by_path, level.into(), plan)
    }

    /// The same as `read` has it.
    pub(super) fn drift_in(
        &self,
        group: &Group,
        read: &mut knob::Read<'_>,
        level: Level,
        plan: &WeightPlan,
    ) -> Result<Vec<Drift>, CgroupError> {
        let mut comparison = Comparison::new(read, false);
        self.compare(group, level, plan, &mut comparison).map(|()| comparison.drifts)
    }

    /// What clients see of a group's files, as `read` has it.
    pub(super) fn view_of(
        &self,
        group: &Group,
        read: &mut knob::Read<'_>,
    ) -> Result<KernelView, CgroupError> {
        let mut view = KernelView::default();
        for knob in self.present().table() {
            let Some(dir) = knob.part().dir(&group.dirs) else { continue };
            if let Some(number) = read(&**knob, dir)?.and_then(|content| content.number()) {
                knob.show(number, &mut view);
            }
        }
        Ok(view)
    }
}
