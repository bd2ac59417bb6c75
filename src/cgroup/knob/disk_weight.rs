//! The weight of a group at the disks: `io.bfq.weight`, on v1 `blkio.bfq.weight` (bfq-iosched.rst),
//! where BFQ schedules a disk; `io.weight` (cgroup-v2.rst) where iocost does. [`super::super::probe`]
//! says which of them acts.
//!
//! A group of others has a disk tier only if it had the file when it was found: LRS enables no controller
//! there.

use super::{Ask, Knob, Part, Value, Wish};
use crate::cgroup::{KernelView, WeightPlan};
use crate::core::task::Attachment;
use crate::core::weights::{Scale, found_number};

#[derive(Debug)]
pub(super) struct DiskWeight {
    pub(super) scale: Scale,
}

impl Knob for DiskWeight {
    fn file(&self) -> &'static str {
        self.scale.file
    }

    fn part(&self) -> Part {
        Part::Disk
    }

    fn neutral(&self) -> Value {
        Value::Number(self.scale.neutral)
    }

    fn wish(&self, ask: &Ask<'_>) -> Wish {
        let owners = found_number(ask.record, self.scale.file);
        match (ask.record.attachment, owners) {
            (Attachment::None, _) | (Attachment::InPlace, None) => return Wish::NotTouched,
            (Attachment::Own, _) | (Attachment::InPlace, Some(_)) => {}
        }
        let pair = self.scale.pair(ask.plan).beside(owners, ask.may_rise());
        Wish::Is(Value::Number(pair.of(ask.level.tier())))
    }

    fn shortfall(&self, plan: &WeightPlan) -> Option<String> {
        self.scale.shortfall(plan, false)
    }

    fn show(&self, number: u64, view: &mut KernelView) {
        // Of two the first.
        view.io_weight.get_or_insert(number);
    }
}
