//! What makes tiers on this node at present: the schedulers of its disks and of its CPUs.
//!
//! Both change while a daemon runs: udev rules and operators choose a disk's scheduler after boot, a
//! scheduler in BPF (sched_ext) comes and goes. The reading thread reads them anew every ten
//! seconds, which is a few small files for each disk, and the loop takes over what
//! differs between two readings, so that no look at weights compares what one of them says with what
//! was written by the other.
//!
//! Limits. A group in place has a disk tier only if it had the file of the weight when it was
//! admitted: BFQ loaded later is without it.

use std::path::Path;
use std::sync::Arc;

use super::knob::{self, CpuKnobs, Knob};
use super::layout::Layout;
use super::open::Root;
use super::probe::{self, IoFacts};
use super::{Capabilities, DiskTiers, Effects, IoFinding, IoKnob, Version};

/// [`Effects`] as they are used, and what clients read of them.
#[derive(Debug)]
pub(super) struct Present {
    pub(super) effects: Effects,
    pub(super) capabilities: Arc<Capabilities>,
    /// The files that make tiers; none where nothing is written.
    table: Vec<Box<dyn Knob>>,
    /// Without effects.
    base: Capabilities,
    cpu: Option<CpuKnobs>,
}

/// What there is now.
pub(super) fn read(root: &Root, wanted: DiskTiers) -> Effects {
    let io = match wanted {
        DiskTiers::Off => IoFinding::none(format!("{}: tiers.io = false", probe::EQUAL)),
        DiskTiers::Weights => io_finding(root, false),
        DiskTiers::Idle => io_finding(root, true),
    };
    Effects { io, sched_ext: probe::sched_ext(Path::new("/sys")) }
}

impl Present {
    /// `cpu`: `None` where nothing is written.
    pub(super) fn new(base: Capabilities, cpu: Option<CpuKnobs>, effects: Effects) -> Present {
        let parts = [base.reason.as_str(), effects.io.reason.as_str()];
        let reason =
            parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        let capabilities = Arc::new(Capabilities {
            io_tiers: effects.io.tiers,
            io_by_thread: effects.io.knobs.contains(&IoKnob::ThreadPriority),
            reason,
            ..base.clone()
        });
        let table = cpu.map_or(Vec::new(), |cpu| knob::table(cpu, &effects.io.knobs));
        Present { effects, capabilities, table, base, cpu }
    }

    /// The same by other effects.
    pub(super) fn with(&self, effects: Effects) -> Present {
        Present::new(self.base.clone(), self.cpu, effects)
    }

    pub(super) fn table(&self) -> &[Box<dyn Knob>] {
        &self.table
    }

    pub(super) fn knobs(&self) -> &[IoKnob] {
        &self.effects.io.knobs
    }
}

fn io_finding(root: &Root, idle_class: bool) -> IoFinding {
    let Layout { version, path, hierarchies, .. } = &root.layout;
    let disks = match probe::disks(Path::new("/sys/block")) {
        Ok(disks) => disks,
        Err(error) => {
            let why = format!("{}: /sys/block cannot be read ({error})", probe::EQUAL);
            return IoFinding::none(why);
        }
    };
    let group = match version {
        Version::V1 => hierarchies.iter().find(|h| h.has("blkio")).map(|h| h.dir(path)),
        Version::V2 => root.controllers.contains(&"io").then(|| root.dir()),
    };
    // Only the real root group has it; inside a container nothing is known of iocost.
    let qos = std::fs::read_to_string(hierarchies[0].dir("io.cost.qos")).unwrap_or_default();
    probe::io(&IoFacts {
        version: *version,
        group: group.as_deref(),
        disks: &disks,
        iocost: &probe::iocost_devices(&qos),
        idle_class,
    })
}
