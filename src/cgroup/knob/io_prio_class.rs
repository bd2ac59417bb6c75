//! `io.prio.class` (cgroup-v2.rst, "IO Priority"; 5.14+): requests of a passive task have the idle class.
//! It acts where a disk's scheduler looks at priorities and no weight does. Only in groups of LRS's own.

use super::{Ask, Knob, Part, Value, Wish};
use crate::core::model::Tier;
use crate::core::task::Attachment;

pub(in crate::cgroup) const FILE: &str = "io.prio.class";

const NEUTRAL: &str = "no-change";

#[derive(Debug)]
pub(super) struct IoPrioClass;

impl Knob for IoPrioClass {
    fn file(&self) -> &'static str {
        FILE
    }

    fn part(&self) -> Part {
        Part::Disk
    }

    fn neutral(&self) -> Value {
        Value::Word(NEUTRAL)
    }

    fn wish(&self, ask: &Ask<'_>) -> Wish {
        match (ask.record.attachment, ask.level.tier()) {
            (Attachment::InPlace | Attachment::None, _) => Wish::NotTouched,
            (Attachment::Own, Tier::Active) => Wish::Is(Value::Word(NEUTRAL)),
            (Attachment::Own, Tier::Passive) => Wish::Is(Value::Word("idle")),
        }
    }

    fn is_for_others(&self) -> bool {
        false
    }
}
