//! The tree of this node, on the kernel's own files.
//!
//! One code path serves v1, v2 and hybrid machines: a task's group is the same path in every
//! hierarchy in use, and the hierarchies differ only in the names and ranges of their weight
//! files. cgroups-rs finds the v1 hierarchies and creates groups in exactly the chosen ones;
//! the rest is done on the files, because its reads and writes hide errors (`procs()`,
//! `apply()`), it lacks `cpu.idle` and `io.weight`, its delete sleeps, and on v2 it knows one
//! mount point only and ignores errors while enabling controllers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use cgroups_rs::fs::hierarchies::V1;

use super::attach::{self, Mover};
use super::inspect::{Kept, Reading};
use super::mounts::Hierarchy;
use super::open::{Root, task_id};
use super::probe::{self, IoFacts, IoFinding, IoKnob};
use super::process::{Membership, is_within};
use super::tiers::{CPU_IDLE, settle_number};
use super::weights::{self, Scale};
use super::{
    Attached, Attachment, Capabilities, CgroupError, Conditions, CpuTiers, DiskTiers, Drift, Group,
    GroupDirs, GroupRecord, KernelView, Kin, PassiveCpu, Surroundings, TierTree, TreeSettings,
    Version, WeightPlan, dirs, files, give_back, in_place, ioprio, limits, members, name, quota,
    scope, surroundings,
};
use crate::core::model::{Label, TaskId, Tier};
use crate::units::{Pid, ProcessRef};

/// [`TierTree`] with a locked root on cgroupfs.
#[derive(Debug)]
pub(super) struct KernelTree {
    root: Root,
    root_weight: Option<u32>,
    pub(super) scale: Scale,
    /// The kernel has `cpu.idle`.
    pub(super) idle_exists: bool,
    /// Passive tasks of own groups use it.
    pub(super) idle_used: bool,
    pub(super) io: IoFinding,
    /// What was written to groups of others.
    pub(super) plans: in_place::Plans,
    capabilities: Capabilities,
    /// The root had to be made anew and needs its weight.
    remade: AtomicBool,
    /// For cgroups-rs; on v2 unused.
    v1: V1,
}

impl KernelTree {
    pub(super) fn open(settings: &TreeSettings) -> Result<KernelTree, CgroupError> {
        let root = Root::open(settings)?;
        match KernelTree::on(root, settings) {
            Ok(tree) => Ok(tree),
            Err((root, error)) => match root.close() {
                Ok(()) => Err(error),
                Err(undo) => Err(CgroupError::Unsupported(format!("{error}; and {undo}"))),
            },
        }
    }

    fn on(root: Root, settings: &TreeSettings) -> Result<KernelTree, (Box<Root>, CgroupError)> {
        let idle = probe::cpu_idle(&root.dir());
        let mut reasons = Vec::new();
        let idle_used = match (settings.passive_cpu, &idle) {
            (PassiveCpu::Idle, Err(reason)) => {
                let text = format!(
                    "tiers.passive_cpu = \"idle\", but {reason}; set it to \"auto\" or \"weight\""
                );
                return Err((Box::new(root), CgroupError::Unsupported(text)));
            }
            (PassiveCpu::Weight, _) => {
                reasons.push("CPU tiers by weights, as tiers.passive_cpu says".to_owned());
                false
            }
            (PassiveCpu::Auto, Err(reason)) => {
                reasons.push(format!("CPU tiers by weights: {reason}"));
                false
            }
            (PassiveCpu::Idle | PassiveCpu::Auto, Ok(())) => {
                reasons.push("CPU tiers by cpu.idle".to_owned());
                true
            }
        };
        let io = match settings.io {
            DiskTiers::Off => IoFinding::none(format!("{}: tiers.io = false", probe::EQUAL)),
            DiskTiers::Weights => io_finding(&root, false),
            DiskTiers::Idle => io_finding(&root, true),
        };
        reasons.push(io.reason.clone());
        reasons.extend(root.notes.iter().cloned());
        let capabilities = Capabilities {
            version: Some(root.version),
            root: root.path.clone(),
            cpu_tiers: if idle_used { CpuTiers::Idle } else { CpuTiers::Weight },
            io_tiers: io.tiers,
            io_by_thread: io.knobs.contains(&IoKnob::ThreadPriority),
            reason: reasons.join("; "),
        };
        let scale = match root.version {
            Version::V1 => weights::CPU_SHARES,
            Version::V2 => weights::CPU_WEIGHT,
        };
        Ok(KernelTree {
            root,
            root_weight: settings.root_weight,
            scale,
            idle_exists: idle.is_ok(),
            idle_used,
            io,
            plans: in_place::Plans::default(),
            capabilities,
            remade: AtomicBool::new(false),
            v1: V1::new(),
        })
    }

    fn mover(&self) -> Mover<'_> {
        let root = &self.root.path;
        Mover { hierarchies: &self.root.hierarchies, root, budget: attach::BUDGET }
    }

    fn primary(&self) -> &Hierarchy {
        &self.root.hierarchies[0]
    }

    /// Makes `path` in every hierarchy; where it was there before, nothing is touched.
    fn make(&self, path: &str) -> Result<(), CgroupError> {
        dirs::make(&self.root.hierarchies, path, &self.v1)
    }

    fn own_group(&self, path: String) -> Result<Option<Group>, CgroupError> {
        let Some(inode) = dirs::inode(&self.primary().dir(&path))? else { return Ok(None) };
        let record = GroupRecord {
            attachment: Attachment::Own,
            path,
            inode,
            origin: Vec::new(),
            found: Vec::new(),
        };
        let dirs = dirs::of_group(&self.root.hierarchies, self.root.version, &record);
        Ok(Some(Group { record, dirs }))
    }

    /// Whether the group the task came from is gone where systemd tracks it. On v1 a unit may
    /// have none of its own in the other hierarchies.
    fn is_homeless(&self, group: &Group) -> bool {
        let gone = |hierarchy: &Hierarchy| {
            let origin = group.record.origin.iter().find(|(name, _)| *name == hierarchy.name);
            origin.is_none_or(|(_, path)| !hierarchy.dir(path).is_dir())
        };
        scope::tracked(&self.root.hierarchies).any(gone)
    }
}

impl TierTree for KernelTree {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn shortfalls(&self, plan: &WeightPlan) -> Vec<String> {
        let io = self.io.knobs.iter().filter_map(|knob| match knob {
            IoKnob::Weight(scale) => scale.shortfall(plan, false),
            IoKnob::PriorityClass | IoKnob::ThreadPriority => None,
        });
        let root_scale = if self.root.is_scope { weights::CPU_WEIGHT } else { self.scale };
        let root = root_scale.root_shortfall(plan, self.root_weight);
        self.scale.shortfall(plan, self.idle_used).into_iter().chain(io).chain(root).collect()
    }

    fn shape_root(&self, plan: &WeightPlan) -> Result<(), CgroupError> {
        if self.root.is_scope {
            let weight = weights::CPU_WEIGHT.root(plan, self.root_weight);
            return scope::set_weight(weight);
        }
        let weight = self.scale.root(plan, self.root_weight);
        settle_number(
            &self.root.dir().join(self.scale.file),
            self.scale.file,
            weight,
            true,
            &mut Vec::new(),
        )
    }

    fn take_remade(&self) -> bool {
        self.remade.swap(false, Ordering::Relaxed)
    }

    fn create(&self, id: TaskId, name: Option<&Label>) -> Result<Group, CgroupError> {
        if self.root.restore()? {
            tracing::warn!(root = self.root.path, "the cgroup root was gone; made it anew");
            // Without its weight the root still holds the task.
            self.remade.store(true, Ordering::Relaxed);
        }
        self.create_below(&self.root.path, id, name)
    }

    fn create_below(
        &self,
        parent: &str,
        id: TaskId,
        name: Option<&Label>,
    ) -> Result<Group, CgroupError> {
        let path = format!("{parent}/{}", name::of(id, name));
        self.make(&path)?;
        let dir = self.primary().dir(&path);
        self.own_group(path)?
            .ok_or_else(|| files::failed("find", &dir, None, io::ErrorKind::NotFound.into()))
    }

    fn find_in_place(
        &self,
        process: ProcessRef,
        named: Option<&str>,
    ) -> Result<Group, CgroupError> {
        let scales = self.io.knobs.iter().filter_map(|knob| match knob {
            IoKnob::Weight(scale) => Some(*scale),
            IoKnob::PriorityClass | IoKnob::ThreadPriority => None,
        });
        in_place::find(&self.mover(), self.root.version, self.scale, scales, process, named)
    }

    fn reopen(&self, record: &GroupRecord) -> Result<Option<Group>, CgroupError> {
        if record.attachment == Attachment::None {
            return Ok(Some(Group { record: record.clone(), dirs: GroupDirs::default() }));
        }
        if dirs::inode(&self.primary().dir(&record.path))? != Some(record.inode) {
            return Ok(None);
        }
        let dirs = dirs::of_group(&self.root.hierarchies, self.root.version, record);
        Ok(Some(Group { record: record.clone(), dirs }))
    }

    fn existing(&self) -> Result<Vec<(TaskId, Group)>, CgroupError> {
        let mut found = Vec::new();
        for dir in attach::child_groups(&self.root.dir())? {
            let Some(id) = task_id(&dir) else { continue };
            let name = dir.file_name().unwrap_or_default().to_string_lossy();
            if let Some(group) = self.own_group(format!("{}/{name}", self.root.path))? {
                found.push((id, group));
            }
        }
        found.sort_by_key(|(id, _)| *id);
        Ok(found)
    }

    fn attach_if(
        &self,
        group: &Group,
        process: ProcessRef,
        kin: Kin,
        conditions: Conditions<'_>,
    ) -> Result<Attached, CgroupError> {
        match group.record.attachment {
            Attachment::Own => {
                let path = &group.record.path;
                // Others of the task are in: what is brought back to them is not undone, and a
                // hierarchy in which somebody removed the group gets it again.
                let again = !members::processes(group)?.is_empty();
                if again {
                    for dir in self.root.hierarchies.iter().map(|h| h.dir(path)) {
                        dirs::make_if_missing(&dir)?;
                    }
                }
                let moved = self.mover().attach(path, process, kin, conditions, again)?;
                Ok(Attached { moved })
            }
            Attachment::InPlace | Attachment::None => Ok(Attached { moved: 0 }),
        }
    }

    fn write_tier(
        &self,
        group: &Group,
        tier: Tier,
        plan: &WeightPlan,
    ) -> Result<Vec<Drift>, CgroupError> {
        self.write(group, tier, plan)
    }

    fn heed_owner(&self, group: &Group) -> Result<Option<GroupRecord>, CgroupError> {
        self.heeded(group)
    }

    fn tier_files(&self, group: &Group, tier: Tier, plan: &WeightPlan) -> Vec<(&'static str, u64)> {
        self.files_of(group, tier, plan)
    }

    fn read_back(&self, group: &Group) -> Result<KernelView, CgroupError> {
        let number = |dir: &Option<PathBuf>, file: &str| {
            let Some(dir) = dir else { return Ok(None) };
            Ok(files::read_value_if_there(&dir.join(file))?.as_deref().and_then(files::number))
        };
        let io_scale = self.io.knobs.iter().find_map(|knob| match knob {
            IoKnob::Weight(scale) => Some(scale.file),
            IoKnob::PriorityClass | IoKnob::ThreadPriority => None,
        });
        Ok(KernelView {
            cpu_weight: number(&group.dirs.cpu, self.scale.file)?,
            cpu_idle: number(&group.dirs.cpu, CPU_IDLE)?.map(|value| value == 1),
            io_weight: io_scale.map_or(Ok(None), |file| number(&group.dirs.io, file))?,
            cpu_quota: quota::read(group)?,
            frozen: members::frozen(&self.root.hierarchies, group)?,
        })
    }

    fn drift(
        &self,
        group: &Group,
        tier: Tier,
        plan: &WeightPlan,
    ) -> Result<Vec<Drift>, CgroupError> {
        let mut drifts = Vec::new();
        self.settle(group, tier, plan, false, &mut drifts).map(|()| drifts)
    }

    fn keep(&self, group: &Group) -> Kept {
        self.kept(group)
    }

    fn inspect(
        &self,
        group: &Group,
        kept: &mut Kept,
        reading: &mut Reading,
        tier: Tier,
        plan: &WeightPlan,
    ) -> Result<(KernelView, Vec<Drift>), CgroupError> {
        self.look(group, kept, reading, tier, plan)
    }

    fn renew_io(
        &self,
        group: &Group,
        kept: &mut Kept,
        reading: &mut Reading,
        tier: Tier,
    ) -> Result<(), CgroupError> {
        self.renew(group, kept, reading, tier)
    }

    fn processes(&self, group: &Group) -> Result<Vec<Pid>, CgroupError> {
        members::processes(group)
    }

    fn release(&self, group: &Group) -> Result<(), CgroupError> {
        if group.record.attachment == Attachment::None {
            return Ok(());
        }
        self.reapply_io(group, Tier::Active)?;
        if group.record.attachment == Attachment::InPlace {
            return self.restore(group);
        }
        let home = |index: usize| -> Option<String> {
            let name = &self.root.hierarchies[index].name;
            let origin = group.record.origin.iter().find(|(hierarchy, _)| hierarchy == name);
            origin.map(|(_, path)| path.clone())
        };
        // Beside the services there are other limits than in a unit.
        if is_within(&group.record.path, &self.root.path)
            && self.is_homeless(group)
            && let Some(id) = task_id(Path::new(&group.record.path))
        {
            let processes = members::processes(group)?;
            if !processes.is_empty() {
                self.root.rehome(id, &processes);
            }
        }
        // Those forked meanwhile, too, and all of them without systemd.
        self.mover().evacuate(&group.record.path, attach::BUDGET, &home)?;
        self.remove(group)
    }

    fn remove(&self, group: &Group) -> Result<(), CgroupError> {
        match group.record.attachment {
            Attachment::Own => dirs::remove_everywhere(&self.root.hierarchies, &group.record.path),
            Attachment::InPlace | Attachment::None => Ok(()),
        }
    }

    fn close(&self) -> Result<(), CgroupError> {
        self.root.close()
    }

    fn origin(&self, process: ProcessRef) -> Result<Vec<(String, String)>, CgroupError> {
        let membership =
            Membership::read(process.pid)?.ok_or(CgroupError::ProcessGone(process.pid))?;
        Ok(self
            .root
            .hierarchies
            .iter()
            .filter_map(|hierarchy| {
                Some((hierarchy.name.clone(), membership.path_in(hierarchy)?.to_owned()))
            })
            .collect())
    }

    fn task_of(&self, process: ProcessRef) -> Result<Option<TaskId>, CgroupError> {
        self.mover().task_of(process.pid)
    }

    fn escapes_limits_into(&self, process: ProcessRef, group: &str) -> Option<String> {
        limits::escaped(&Mover { root: group, ..self.mover() }, process)
    }

    fn surroundings(&self, process: ProcessRef) -> Result<Option<Surroundings>, CgroupError> {
        surroundings::of(&self.mover(), process)
    }

    fn holds(&self, group: &Group, process: ProcessRef) -> Result<Option<bool>, CgroupError> {
        members::holds(&self.root.hierarchies, &group.record, process)
    }

    fn quota_dirs(&self) -> Vec<PathBuf> {
        let cpu = self.primary();
        crate::sample::Settings::ancestors(&cpu.dir("/"), &cpu.dir(&self.root.path))
    }

    fn reapply_io(&self, group: &Group, tier: Tier) -> Result<(), CgroupError> {
        let in_use = |file: &str| {
            self.io.knobs.iter().any(|knob| match knob {
                IoKnob::Weight(scale) => scale.file == file,
                IoKnob::PriorityClass => file == in_place::IO_PRIO_CLASS,
                IoKnob::ThreadPriority => false,
            })
        };
        if group.record.attachment != Attachment::Own {
            return self.restore_disk(group, in_use);
        }
        if let Some(dir) = &group.dirs.io {
            give_back::neutralise_disk(dir, in_use)?;
        }
        let by_thread = self.io.knobs.contains(&IoKnob::ThreadPriority);
        let tier = if by_thread { tier } else { Tier::Active };
        ioprio::apply(&self.processes(group)?, tier).map(drop)
    }
}

fn io_finding(root: &Root, idle_class: bool) -> IoFinding {
    let disks = match probe::disks(Path::new("/sys/block")) {
        Ok(disks) => disks,
        Err(error) => {
            let why = format!("{}: /sys/block cannot be read ({error})", probe::EQUAL);
            return IoFinding::none(why);
        }
    };
    let group = match root.version {
        Version::V1 => root.hierarchies.iter().find(|h| h.has("blkio")).map(|h| h.dir(&root.path)),
        Version::V2 => root.controllers.contains(&"io").then(|| root.dir()),
    };
    // Only the real root group has it; inside a container nothing is known of iocost.
    let qos = std::fs::read_to_string(root.hierarchies[0].dir("io.cost.qos")).unwrap_or_default();
    probe::io(&IoFacts {
        version: root.version,
        group: group.as_deref(),
        disks: &disks,
        iocost: &probe::iocost_devices(&qos),
        idle_class,
    })
}
