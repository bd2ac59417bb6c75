//! `cpu.idle` (sched/core.c, 5.15+): the group gets what all others leave, and any task that wakes
//! outside preempts it at once, which no weight does. For passive tasks in groups of LRS's own.
//!
//! An owner who made its group idle keeps it so while the task is passive. LRS makes no group of others
//! idle: an idle group refuses the owner's writes of a weight.

use std::path::Path;

use super::{Ask, Knob, Part, Value, Wish};
use crate::cgroup::KernelView;
use crate::core::model::{Level, Tier};
use crate::core::neighbours::RootWeight;
use crate::core::task::Attachment;
use crate::core::weights::found_number;

pub(in crate::cgroup) const FILE: &str = "cpu.idle";

pub(in crate::cgroup) const IDLE: Value = Value::Number(1);
const NOT_IDLE: Value = Value::Number(0);

#[derive(Debug)]
pub(super) struct CpuIdle {
    /// Passive tasks of own groups, and a root without active ones, are idle.
    pub(super) used: bool,
}

fn idle_if(idle: bool) -> Wish {
    Wish::Is(if idle { IDLE } else { NOT_IDLE })
}

impl Knob for CpuIdle {
    fn file(&self) -> &'static str {
        FILE
    }

    fn part(&self) -> Part {
        Part::Cpu
    }

    fn neutral(&self) -> Value {
        NOT_IDLE
    }

    fn wish(&self, ask: &Ask<'_>) -> Wish {
        let owners_is_idle = || found_number(ask.record, FILE) == Some(1);
        match ask.record.attachment {
            Attachment::None => Wish::NotTouched,
            Attachment::Own => idle_if(self.used && ask.level == Level::Passive),
            Attachment::InPlace if ask.level.tier() == Tier::Passive && owners_is_idle() => {
                Wish::Any
            }
            Attachment::InPlace => idle_if(false),
        }
    }

    fn wish_of_root(&self, weight: RootWeight, _is_idle: bool) -> Wish {
        idle_if(self.used && weight == RootWeight::Idle)
    }

    fn show(&self, number: u64, view: &mut KernelView) {
        view.cpu_idle = Some(number == 1);
    }
}

/// Whether groups have it, seen on `group`, a group below the root one. Else why not.
pub(in crate::cgroup) fn probe(group: &Path) -> Result<(), String> {
    if group.join(FILE).exists() {
        Ok(())
    } else {
        Err("this kernel has no cpu.idle (Linux 5.15 or newer does)".to_owned())
    }
}
