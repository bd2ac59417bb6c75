//! The files that tell the kernel what a tier is: one module for each.
//!
//! A [`Knob`] has its file, what that has to say of a task, and what it says in a new group. Everything
//! else is written once, over the table of those that act on this node: comparing and writing
//! ([`Comparison`]), undoing a write cut short, reading back, giving back to an owner
//! ([`super::in_place`]) and what a group has when LRS is gone ([`super::give_back`]). A new file of groups of
//! LRS's own is a module and a line in [`ALL`] and [`table`]; what only some kernels have, a field of
//! [`CpuKnobs`] or an [`IoKnob`] too.
//!
//! In groups of others more depends on a file. Which numbers LRS wrote there, and so may take back, is known
//! by what the knob wishes for at some level (`ours` in `tiers.rs`): a word would stay. A unit of systemd's gets what `core/unit.rs` knows by name, and
//! one weight of disks. A file that is [`Knob::is_for_others`] is wished for in place, and no other is.
//!
//! The order of a table is the order of writing, the CPU first, since a promoted task waits for that; and
//! `cpu.idle` before the weight, for an idle group takes no weight, and one that leaves that state has
//! the neutral one (`sched_group_set_idle`, kernel/sched/fair.c).
//!
//! `threads` (with `thread_priority` and `slice`) and `freezer` are in no table. The first is no file but a
//! walk over threads; the second is not part of a tier, and the kernel does it behind the answer.

use std::fmt;
use std::path::Path;

use super::{CgroupError, Drift, GroupDirs, GroupRecord, IoKnob, KernelView, WeightPlan, files};
use crate::core::model::Level;
use crate::core::neighbours::RootWeight;
use crate::core::weights::{self, Scale};
use cpu_idle::CpuIdle;
use cpu_weight::CpuWeight;
use disk_weight::DiskWeight;
use io_prio_class::IoPrioClass;

pub(super) mod cpu_idle;
pub(super) mod cpu_weight;
pub(super) mod disk_weight;
pub(super) mod freezer;
pub(super) mod io_prio_class;
pub(super) mod slice;
pub(super) mod thread_priority;
pub(super) mod threads;

/// What is written into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Word(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Word(word) => f.write_str(word),
        }
    }
}

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// `default N` is a number, too.
    Number(u64),
    Text(String),
}

impl Content {
    pub(super) fn parse(text: &str) -> Content {
        files::number(text).map_or_else(|| Content::Text(text.to_owned()), Content::Number)
    }

    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Content::Number(number) => Some(*number),
            Content::Text(_) => None,
        }
    }

    fn is(&self, value: Value) -> bool {
        match (self, value) {
            (Content::Number(found), Value::Number(number)) => *found == number,
            (Content::Text(found), Value::Word(word)) => found == word,
            (Content::Number(_), Value::Word(_)) | (Content::Text(_), Value::Number(_)) => false,
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Number(number) => write!(f, "{number}"),
            Content::Text(text) => f.write_str(text),
        }
    }
}

/// What a file has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// The file is no part of this tier: neither read nor written.
    NotTouched,
    /// Whatever it says is fine.
    Any,
    Is(Value),
}

/// The task and tier that a [`Wish`] is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) record: &'a GroupRecord,
    pub(super) level: Level,
    pub(super) plan: &'a WeightPlan,
    /// The group is idle, once what is before this file in the table was written.
    pub(super) is_idle: bool,
}

impl Ask<'_> {
    /// Whether a tier may weigh more than what was found in the group.
    pub(super) fn may_rise(&self) -> bool {
        !self.record.for_member
    }
}

/// Which directories of a group have the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Cpu,
    Disk,
}

impl Part {
    pub(super) fn dir(self, dirs: &GroupDirs) -> Option<&Path> {
        match self {
            Part::Cpu => dirs.cpu.as_deref(),
            Part::Disk => dirs.io.as_deref(),
        }
    }
}

/// A file of a group.
pub(super) trait Knob: fmt::Debug + Send + Sync {
    /// Its name.
    fn file(&self) -> &'static str;

    fn part(&self) -> Part;

    /// What it says in a new group.
    fn neutral(&self) -> Value;

    /// What it has to say of a task.
    fn wish(&self, ask: &Ask<'_>) -> Wish;

    /// What it has to say of the root of all tasks; `is_idle` as in [`Ask`].
    fn wish_of_root(&self, _weight: RootWeight, _is_idle: bool) -> Wish {
        Wish::NotTouched
    }

    /// What its range makes impossible under `plan`, in a sentence.
    fn shortfall(&self, _plan: &WeightPlan) -> Option<String> {
        None
    }

    /// Puts what was read into what clients see.
    fn show(&self, _number: u64, _view: &mut KernelView) {}

    /// Whether a group that leaves the idle state gets the neutral value of this file.
    fn goes_with_idle(&self) -> bool {
        false
    }

    /// Whether it is written in groups of others, so that what they had there is remembered.
    fn is_for_others(&self) -> bool {
        true
    }
}

/// Every file that some version of cgroups, some kernel or some configuration of LRS makes a tier with. What
/// they say of own groups depends on the node and is the [`table`]'s to know: of these, [`Knob::wish`] is
/// asked for groups of others alone.
pub(super) const ALL: [&dyn Knob; 7] = [
    &CpuIdle { used: false },
    &CpuWeight { scale: weights::CPU_WEIGHT, beside_idle: false },
    &CpuWeight { scale: weights::CPU_SHARES, beside_idle: false },
    &DiskWeight { scale: weights::IO_BFQ_WEIGHT },
    &DiskWeight { scale: weights::BLKIO_BFQ_WEIGHT },
    &DiskWeight { scale: weights::IO_WEIGHT },
    &IoPrioClass,
];

/// The directories in which `file` is.
pub(super) fn part_of(file: &str) -> Option<Part> {
    ALL.iter().find(|knob| knob.file() == file).map(|knob| knob.part())
}

/// What makes CPU tiers on this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuKnobs {
    /// Of the weight.
    pub(super) scale: Scale,
    /// The kernel has `cpu.idle`.
    pub(super) idle_exists: bool,
    /// Passive tasks of own groups use it.
    pub(super) idle_used: bool,
}

/// What is read and written here, in that order.
pub(super) fn table(cpu: CpuKnobs, disk: &[IoKnob]) -> Vec<Box<dyn Knob>> {
    let mut table: Vec<Box<dyn Knob>> = Vec::new();
    if cpu.idle_exists {
        table.push(Box::new(CpuIdle { used: cpu.idle_used }));
    }
    table.push(Box::new(CpuWeight { scale: cpu.scale, beside_idle: cpu.idle_used }));
    for knob in disk {
        match knob {
            IoKnob::Weight(scale) => table.push(Box::new(DiskWeight { scale: *scale })),
            IoKnob::PriorityClass => table.push(Box::new(IoPrioClass)),
            IoKnob::ThreadPriority => {}
        }
    }
    table
}

/// Reads a file of a group's directory; `None`: it is not known.
pub(super) type Read<'r> = dyn FnMut(&dyn Knob, &Path) -> Result<Option<Content>, CgroupError> + 'r;

/// Opens it.
pub(super) fn by_path(knob: &dyn Knob, dir: &Path) -> Result<Option<Content>, CgroupError> {
    let path = dir.join(knob.file());
    let text =
        files::read_value(&path).map_err(|error| files::failed("read", &path, None, error))?;
    Ok(Some(Content::parse(&text)))
}

/// Compares a group's files with what they have to say.
pub(super) struct Comparison<'r> {
    pub(super) read: &'r mut Read<'r>,
    /// Makes what differs as it should be.
    pub(super) write: bool,
    /// What differs; after an error what was written before it.
    pub(super) drifts: Vec<Drift>,
}

impl<'r> Comparison<'r> {
    pub(super) fn new(read: &'r mut Read<'r>, write: bool) -> Comparison<'r> {
        Comparison { read, write, drifts: Vec::new() }
    }

    /// Goes through the table. `wish` is asked with whether the group is idle by then.
    pub(super) fn run(
        &mut self,
        table: &[Box<dyn Knob>],
        dirs: &GroupDirs,
        wish: &dyn Fn(&dyn Knob, bool) -> Wish,
    ) -> Result<(), CgroupError> {
        let (mut is_idle, mut leaves_idle) = (false, false);
        for knob in table {
            let knob = &**knob;
            let Some(dir) = knob.part().dir(dirs) else { continue };
            let expected = match wish(knob, is_idle) {
                Wish::NotTouched => continue,
                Wish::Any => None,
                Wish::Is(value) => Some(value),
            };
            if leaves_idle && knob.goes_with_idle() {
                // Not compared: it is what leaving idle makes of it.
                if let Some(value) = expected.filter(|_| self.write) {
                    files::write_value(&dir.join(knob.file()), &value.to_string())?;
                }
                continue;
            }
            let found = (self.read)(knob, dir)?;
            if let (Some(found), Some(expected)) = (&found, expected)
                && !found.is(expected)
            {
                self.differs(dir, knob.file(), found, expected)?;
            }
            if knob.file() == cpu_idle::FILE {
                let was_idle = found.is_some_and(|found| found.is(cpu_idle::IDLE));
                is_idle = expected.map_or(was_idle, |expected| expected == cpu_idle::IDLE);
                leaves_idle = was_idle && !is_idle;
            }
        }
        Ok(())
    }

    fn differs(
        &mut self,
        dir: &Path,
        file: &str,
        found: &Content,
        expected: Value,
    ) -> Result<(), CgroupError> {
        let (found, expected) = (found.to_string(), expected.to_string());
        if self.write {
            files::write_value(&dir.join(file), &expected)?;
        }
        self.drifts.push(Drift { file: file.to_owned(), found, expected });
        Ok(())
    }
}

/// Takes back what was written, the last first: leaving idle comes before the weight.
pub(super) fn undo(dirs: &GroupDirs, written: &[Drift]) -> Result<(), CgroupError> {
    for drift in written.iter().rev() {
        if let Some(dir) = part_of(&drift.file).and_then(|part| part.dir(dirs)) {
            files::write_value(&dir.join(&drift.file), &drift.found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
