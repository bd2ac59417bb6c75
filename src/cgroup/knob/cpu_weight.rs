//! `cpu.weight` (cgroup-v2.rst), on v1 `cpu.shares` (sched-design-CFS.rst). An idle group has none.

use super::{Ask, Knob, Part, Value, Wish};
use crate::cgroup::{KernelView, Version, WeightPlan};
use crate::core::model::Level;
use crate::core::neighbours::RootWeight;
use crate::core::task::Attachment;
use crate::core::weights::{self, Scale, found_number};

#[derive(Debug)]
pub(super) struct CpuWeight {
    pub(super) scale: Scale,
    /// Passive tasks of own groups are idle, and have no weight.
    pub(super) beside_idle: bool,
}

/// The file and its range.
pub(in crate::cgroup) fn scale(version: Version) -> Scale {
    match version {
        Version::V1 => weights::CPU_SHARES,
        Version::V2 => weights::CPU_WEIGHT,
    }
}

impl Knob for CpuWeight {
    fn file(&self) -> &'static str {
        self.scale.file
    }

    fn part(&self) -> Part {
        Part::Cpu
    }

    fn neutral(&self) -> Value {
        Value::Number(self.scale.neutral)
    }

    fn wish(&self, ask: &Ask<'_>) -> Wish {
        let pair = match (ask.record.attachment, self.beside_idle) {
            _ if ask.is_idle => return Wish::NotTouched,
            (Attachment::None, _) => return Wish::NotTouched,
            (Attachment::Own, true) if ask.level == Level::Passive => return Wish::NotTouched,
            (Attachment::Own, true) => self.scale.pair_beside_idle(ask.plan),
            (Attachment::Own, false) => self.scale.pair(ask.plan),
            (Attachment::InPlace, _) => {
                let owners = found_number(ask.record, self.scale.file);
                self.scale.pair(ask.plan).beside(owners, ask.may_rise())
            }
        };
        Wish::Is(Value::Number(pair.of(ask.level)))
    }

    fn wish_of_root(&self, weight: RootWeight, is_idle: bool) -> Wish {
        match weight {
            _ if is_idle => Wish::NotTouched,
            // Of a kernel without cpu.idle, or where that is not used.
            RootWeight::Idle => Wish::Is(Value::Number(self.scale.min)),
            RootWeight::Weight(weight) => Wish::Is(Value::Number(self.scale.within(weight))),
        }
    }

    fn goes_with_idle(&self) -> bool {
        true
    }

    fn shortfall(&self, plan: &WeightPlan) -> Option<String> {
        self.scale.shortfall(plan, self.beside_idle)
    }

    fn show(&self, number: u64, view: &mut KernelView) {
        view.cpu_weight = Some(number);
    }
}
