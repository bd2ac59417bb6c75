//! The tree of this node, on the kernel's own files.
//!
//! One code path serves v1, v2 and hybrid machines: a task's group is the same path in every
//! hierarchy in use, and the hierarchies differ only in the names and ranges of their weight
//! files. cgroups-rs creates v1 groups in exactly the chosen hierarchies;
//! the rest is done on the files, because its reads and writes hide errors (`procs()`,
//! `apply()`), it lacks `cpu.idle` and `io.weight`, its delete sleeps, and on v2 it knows one
//! mount point only and ignores errors while enabling controllers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cgroups_rs::fs::hierarchies::V1;

use super::IoKnob;
use super::attach::{self, Mover};
use super::effects::{self, Present};
use super::mounts::{Hierarchy, Mounts, UNIFIED};
use super::open::{Root, task_id};
use super::probe;
use super::process::{Membership, is_within};
use super::tiers::{CPU_IDLE, write_number};
use super::{
    Attached, Attachment, Capabilities, CgroupError, Conditions, CpuTiers, DiskTiers, Group,
    GroupDirs, GroupRecord, IoTiers, KernelView, Kin, Members, MemoryGroups, Origin, PassiveCpu,
    Position, Reach, Surroundings, TreeSettings, Version, WeightPlan, cpus, dirs, files, freeze,
    give_back, in_place, ioprio, limits, members, name, observe, owner, quota, scope, surroundings,
};
use crate::core::model::{Label, TaskId, Tier};
use crate::core::neighbours::RootWeight;
use crate::core::task::Halt;
use crate::core::weights::{self, Scale};
use crate::sample::QuotaDirs;
use crate::units::{Pid, ProcessRef};

/// The cgroup tree of this node as LRS uses it. The loop and the attach worker call it from
/// different threads, never for the same group at once.
///
/// In observe mode nothing is written and tasks are booked with [`Attachment::None`]: they have no
/// processes but their main one, with a pidfd that alone shows their end.
#[derive(Debug)]
pub struct TierTree {
    /// Nothing is written: observe mode.
    pub(super) observing: bool,
    pub(super) root: Root,
    pub(super) root_weight: Option<u32>,
    pub(super) scale: Scale,
    /// The kernel has `cpu.idle`.
    pub(super) idle_exists: bool,
    /// Passive tasks of own groups use it.
    pub(super) idle_used: bool,
    /// `tiers.io`.
    pub(super) disk_tiers: DiskTiers,
    /// What makes tiers now; the loop replaces it.
    pub(super) present: RwLock<Arc<Present>>,
    /// What was written to groups of others.
    pub(super) plans: in_place::Plans,
    /// Why tasks have no twin in the cgroup2 mount, once one could not be made.
    pub(super) no_twin: Mutex<Option<String>>,
    /// The root had to be made anew and needs its weight.
    pub(super) remade: AtomicBool,
    /// For cgroups-rs; on v2 unused.
    pub(super) v1: V1,
}

impl TierTree {
    pub(super) fn open(settings: &TreeSettings, recorded: bool) -> Result<TierTree, CgroupError> {
        let root = Root::open(settings, recorded)?;
        match TierTree::on(root, settings) {
            Ok(tree) => Ok(tree),
            Err((root, error)) => match root.close() {
                Ok(()) => Err(error),
                Err(undo) => Err(CgroupError::Unsupported(format!("{error}; and {undo}"))),
            },
        }
    }

    fn on(root: Root, settings: &TreeSettings) -> Result<TierTree, (Box<Root>, CgroupError)> {
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
        reasons.extend(root.notes.iter().cloned());
        let capabilities = Capabilities {
            version: Some(root.version),
            root: root.path.clone(),
            cpu_tiers: if idle_used { CpuTiers::Idle } else { CpuTiers::Weight },
            io_tiers: IoTiers::None,
            io_by_thread: false,
            reason: reasons.join("; "),
        };
        let effects = effects::read(&root, settings.io);
        let scale = match root.version {
            Version::V1 => weights::CPU_SHARES,
            Version::V2 => weights::CPU_WEIGHT,
        };
        Ok(TierTree {
            observing: false,
            root,
            root_weight: settings.root_weight,
            scale,
            idle_exists: idle.is_ok(),
            idle_used,
            disk_tiers: settings.io,
            present: RwLock::new(Arc::new(Present::new(capabilities, effects))),
            plans: in_place::Plans::default(),
            no_twin: Mutex::new(None),
            remade: AtomicBool::new(false),
            v1: V1::new(),
        })
    }

    pub(super) fn mover(&self) -> Mover<'_> {
        let root = &self.root.path;
        Mover { hierarchies: &self.root.hierarchies, root, budget: attach::BUDGET }
    }

    fn primary(&self) -> &Hierarchy {
        &self.root.hierarchies[0]
    }

    /// Makes `path` in every hierarchy but those named; where it was there before, nothing is
    /// touched. Answers in which it is not: those, and the cgroup2 mount beside v1 where that takes no
    /// group.
    fn make(&self, path: &str, mut elsewhere: Vec<String>) -> Result<Vec<String>, CgroupError> {
        let all = self.root.hierarchies.iter();
        let used = all.filter(|hierarchy| !elsewhere.contains(&hierarchy.name)).cloned();
        let Some(why) = dirs::make(&used.collect::<Vec<_>>(), path, &self.v1)? else {
            return Ok(elsewhere);
        };
        elsewhere.push(UNIFIED.to_owned());
        let mut known = self.no_twin.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            let why = why.to_string();
            tracing::warn!(
                "a task goes on without a group in the cgroup2 mount, and so without its pressure and the notice of its end; others may too: {why}"
            );
            *known = Some(why);
        }
        Ok(elsewhere)
    }

    /// The hierarchies in which a task that reaches so far is not moved.
    fn beyond(&self, reach: Reach) -> Vec<String> {
        let weighs = |hierarchy: &&Hierarchy| {
            ["cpu", "cpuacct", "blkio"].iter().any(|name| hierarchy.has(name))
        };
        let all = self.root.hierarchies.iter();
        match reach {
            Reach::All => Vec::new(),
            Reach::Weights => {
                all.filter(|h| !weighs(h)).map(|hierarchy| hierarchy.name.clone()).collect()
            }
        }
    }

    fn own_group(
        &self,
        path: String,
        elsewhere: Vec<String>,
    ) -> Result<Option<Group>, CgroupError> {
        let Some(inode) = dirs::inode(&self.primary().dir(&path))? else { return Ok(None) };
        let record = GroupRecord {
            attachment: Attachment::Own,
            path,
            inode,
            origin: Origin::default(),
            found: Vec::new(),
            elsewhere,
            for_member: false,
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

impl TierTree {
    /// What this node can do now.
    pub fn capabilities(&self) -> Arc<Capabilities> {
        Arc::clone(&self.present().capabilities)
    }

    /// What is worse than it could be, and what to do about it, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.root.warnings.clone();
        let no_twin = self.no_twin.lock().unwrap_or_else(PoisonError::into_inner);
        let no_twin = no_twin.iter().map(|why| {
            format!(
                "tasks were admitted without a group in the cgroup2 mount, where there is \
                     neither their pressure nor the notice of their end: {why}"
            )
        });
        warnings.extend(no_twin);
        let sched_ext = self.present().effects.sched_ext.as_deref().map(probe::under_sched_ext);
        warnings.extend(sched_ext.map(|found| found.to_string()));
        warnings
    }

    /// Whether tasks of an earlier daemon go on here.
    pub fn takes_over(&self) -> bool {
        self.root.takes_over
    }

    /// Sentences about promises the kernel's ranges or the node cannot keep under `plan`.
    pub fn shortfalls(&self, plan: &WeightPlan) -> Vec<String> {
        if self.observing {
            return Vec::new();
        }
        let present = self.present();
        let io = present.knobs().iter().filter_map(|knob| match knob {
            IoKnob::Weight(scale) => scale.shortfall(plan, false),
            IoKnob::PriorityClass | IoKnob::ThreadPriority => None,
        });
        let root_scale = if self.root.is_scope { weights::CPU_WEIGHT } else { self.scale };
        let root = root_scale.root_shortfall(plan, self.root_weight);
        self.scale.shortfall(plan, self.idle_used).into_iter().chain(io).chain(root).collect()
    }

    /// Whether the weight of the root follows what the active tier wants
    /// ([`TierTree::weigh_root`]).
    pub fn root_follows(&self) -> bool {
        !self.observing && self.root_weight.is_none()
    }

    /// Whether the weight of the root is systemd's to write.
    pub fn root_is_systemds(&self) -> bool {
        self.root.is_scope
    }

    /// Writes the root's own weight where it differs, or has systemd write it, which may take
    /// seconds; of a root that follows the active tier the most it may weigh. `plan` changes with A.
    pub fn shape_root(&self, plan: &WeightPlan) -> Result<(), CgroupError> {
        if self.observing {
            return Ok(());
        }
        if let Some(weight) = self.root_weight {
            // An earlier daemon with "auto" may have left it idle, and an idle group takes no weight.
            self.weigh_root(RootWeight::Weight(weight))?;
        }
        if self.root.is_scope {
            let weight = weights::CPU_WEIGHT.root(plan, self.root_weight);
            return scope::set_weight(weight);
        }
        let weight = self.scale.root(plan, self.root_weight);
        write_number(&self.root.dir().join(self.scale.file), weight)
    }

    /// Whether the root had to be made anew since the last question: it needs its weight again.
    pub fn take_remade(&self) -> bool {
        self.remade.swap(false, Ordering::Relaxed)
    }

    /// Creates the group of a new task in every hierarchy within `reach`, or none of them. `name`
    /// is what people know the task by.
    pub fn create(
        &self,
        id: TaskId,
        name: Option<&Label>,
        reach: Reach,
    ) -> Result<Group, CgroupError> {
        if self.observing {
            return Ok(observe::booked(String::new(), 0));
        }
        if self.root.restore()? {
            tracing::warn!(root = self.root.path, "the cgroup root was gone; made it anew");
            // Without its weight the root still holds the task.
            self.remade.store(true, Ordering::Relaxed);
        }
        self.make_own(format!("{}/{}", self.root.path, name::of(id, name)), reach)
    }

    pub(super) fn make_own(&self, path: String, reach: Reach) -> Result<Group, CgroupError> {
        let elsewhere = self.make(&path, self.beyond(reach))?;
        let dir = self.primary().dir(&path);
        self.own_group(path, elsewhere)?
            .ok_or_else(|| files::failed("find", &dir, None, io::ErrorKind::NotFound.into()))
    }

    /// The present cgroup of `process`, or the group above it with the path `named`, to be
    /// managed as it is. Refuses the root group and a group that holds this daemon.
    pub fn find_in_place(
        &self,
        process: ProcessRef,
        named: Option<&str>,
    ) -> Result<Group, CgroupError> {
        if self.observing {
            return self.book_in_place(process, named);
        }
        in_place::find(&self.mover(), self.root.version, self.scale, process, named)
    }

    /// Opens what a state file recorded. `None`: it is gone, or another group took its path.
    pub fn reopen(&self, record: &GroupRecord) -> Result<Option<Group>, CgroupError> {
        let group = self.presumed(record);
        if group.dirs == GroupDirs::default()
            || dirs::inode(&self.primary().dir(&record.path))? == Some(record.inode)
        {
            return Ok(Some(group));
        }
        Ok(None)
    }

    /// The same where its presence is unknown.
    pub fn presumed(&self, record: &GroupRecord) -> Group {
        let dirs = match self.observing || record.attachment == Attachment::None {
            true => GroupDirs::default(),
            false => dirs::of_group(&self.root.hierarchies, self.root.version, record),
        };
        Group { record: record.clone(), dirs }
    }

    /// Task groups below the root, for recovery: those named like a task id.
    pub fn existing(&self) -> Result<Vec<(TaskId, Group)>, CgroupError> {
        if self.observing {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for dir in attach::child_groups(&self.root.dir())? {
            let Some(id) = task_id(&dir) else { continue };
            let name = dir.file_name().unwrap_or_default().to_string_lossy();
            if let Some(group) = self.own_group(format!("{}/{name}", self.root.path), Vec::new())? {
                found.push((id, group));
            }
        }
        found.sort_by_key(|(id, _)| *id);
        Ok(found)
    }

    /// Moves `process` and those of its `kin` that share its present cgroup into `group`,
    /// repeated until a pass finds none outside. Where a hierarchy has one of them in another
    /// group, it is left there in that one. On an error nothing stays moved. The daemon and members
    /// of other tasks, found by path, do not move.
    ///
    /// # Errors
    /// `Refused` after two seconds, with how many are still outside; undoing takes as long at
    /// most once more. `Refused` for a session that `process` does not lead.
    pub fn attach(
        &self,
        group: &Group,
        process: ProcessRef,
        kin: Kin,
    ) -> Result<Attached, CgroupError> {
        self.attach_if(group, process, kin, Conditions::default())
    }

    /// [`TierTree::attach`] under `conditions`.
    ///
    /// # Errors
    /// `Refused` where the process is in another group than `from` now. `Denied` where one that
    /// would be moved is not the owner's, or was not any more after the move.
    pub fn attach_if(
        &self,
        group: &Group,
        process: ProcessRef,
        kin: Kin,
        conditions: Conditions<'_>,
    ) -> Result<Attached, CgroupError> {
        match group.record.attachment {
            Attachment::Own if !self.observing => {
                let path = &group.record.path;
                // Others of the task are in: what is brought back to them is not undone, and a
                // hierarchy in which the group was removed gets it again.
                let again = !members::processes(group)?.is_empty();
                if again {
                    for hierarchy in members::in_use(&self.root.hierarchies, &group.record) {
                        dirs::make_if_missing(&hierarchy.dir(path))?;
                    }
                }
                let moved = self.mover().attach(&group.record, process, kin, conditions, again)?;
                Ok(Attached { moved })
            }
            Attachment::Own | Attachment::InPlace | Attachment::None => {
                self.mover().pin(process).map(|_| Attached { moved: 0 })
            }
        }
    }

    /// Reads the weights back.
    pub fn read_back(&self, group: &Group) -> Result<KernelView, CgroupError> {
        if self.observing {
            return Ok(KernelView::default());
        }
        let number = |dir: &Option<PathBuf>, file: &str| -> Result<Option<u64>, CgroupError> {
            let Some(dir) = dir else { return Ok(None) };
            Ok(files::read_value_if_there(&dir.join(file))?.as_deref().and_then(files::number))
        };
        let io_scale = self.present().knobs().iter().find_map(|knob| match knob {
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

    /// Freezes a group of LRS's own. The kernel does it behind the answer.
    ///
    /// # Errors
    /// `Refused` where others froze it, `Unsupported` where the node has no freezer.
    pub fn freeze(&self, group: &Group) -> Result<(), CgroupError> {
        if self.observing || group.record.attachment != Attachment::Own {
            return Err(CgroupError::Refused("it is in no group of LRS's own".into()));
        }
        freeze::freeze(&self.root.hierarchies, group)
    }

    /// Thaws a group that LRS froze; one that is not frozen, or gone, is left as it is.
    ///
    /// # Errors
    /// `Io`; asked again it goes on.
    pub fn thaw(&self, group: &Group) -> Result<(), CgroupError> {
        freeze::thaw(&self.root.hierarchies, group)
    }

    /// Every process in the group and below. Empty when the group is gone.
    pub fn processes(&self, group: &Group) -> Result<Vec<Pid>, CgroupError> {
        members::processes(group)
    }

    /// The same without those directly in groups below with a path in `excepted`.
    ///
    /// # Errors
    /// As of [`TierTree::processes`].
    pub fn processes_except(
        &self,
        group: &Group,
        excepted: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Vec<Pid>, CgroupError> {
        members::processes_except(group, excepted)
    }

    /// Whether the group is there no more: its owner removed it, or made another under its path.
    pub fn is_removed(&self, group: &Group) -> bool {
        let Some(dir) = &group.dirs.cpu else { return false };
        dirs::inode(dir).is_ok_and(|inode| inode != Some(group.record.inode))
    }

    /// Gives the task back: own processes return to where they came from or to the root's
    /// parent and the group is removed; in place gets the values found, except where its owner
    /// has written another meanwhile.
    ///
    /// A move would thaw what others froze: such a group of LRS's own keeps its processes, with
    /// neutral weights, and is to be removed when they have ended. Answers so.
    ///
    /// # Errors
    /// `Refused` after two seconds with processes still in the group; those moved by then stay
    /// out, and asked again it goes on.
    pub fn release(&self, group: &Group) -> Result<Option<Halt>, CgroupError> {
        if self.observing || group.record.attachment == Attachment::None {
            return Ok(None);
        }
        if group.record.attachment == Attachment::Own
            && let Some(Halt::Frozen) = self.halt(group, None)?
        {
            give_back::neutralise(group)?;
            return Ok(Some(Halt::Frozen));
        }
        self.reapply_io(group, Tier::Active)?;
        if group.record.attachment == Attachment::InPlace {
            return self.restore(group).map(|()| None);
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
                self.root.rehome(id, &group.record.origin, &processes);
            }
        }
        // Those forked meanwhile, too, and all of them without systemd.
        self.mover().evacuate(&group.record.path, attach::BUDGET, &home)?;
        self.remove(group).map(|()| None)
    }

    /// Removes an empty own group. Fine when it is gone already.
    pub fn remove(&self, group: &Group) -> Result<(), CgroupError> {
        if self.observing {
            return Ok(());
        }
        match group.record.attachment {
            Attachment::Own => dirs::remove_everywhere(&self.root.hierarchies, &group.record.path),
            Attachment::InPlace | Attachment::None => Ok(()),
        }
    }

    /// Removes the root if lrsd made it and it is empty. The last call.
    pub fn close(&self) -> Result<(), CgroupError> {
        if self.observing {
            return Ok(());
        }
        self.root.close()
    }

    /// Where `process` is. Ask before the attach, so that a stored [`GroupRecord::origin`] is complete
    /// before anything moves.
    pub fn position(&self, process: ProcessRef) -> Result<Position, CgroupError> {
        let membership =
            Membership::of_process(process.pid)?.ok_or(CgroupError::ProcessGone(process.pid))?;
        let origin = self.root.hierarchies.iter().filter_map(|hierarchy| {
            Some((hierarchy.name.clone(), membership.path_in(hierarchy)?.to_owned()))
        });
        let task = || self.mover().task_at(&membership);
        Ok(Position {
            origin: origin.collect(),
            paths: membership.paths().map(str::to_owned).collect(),
            task: if self.observing { None } else { task() },
        })
    }

    /// Why only root may have `process` moved, and `lrsctl run` does not leave
    /// its unit by itself: the limit on CPU, memory, I/O
    /// or CPUs above it (v1: cpu.cfs_quota_us or blkio.throttle) that the move would escape. What
    /// to do about it depends on the caller.
    pub fn escapes_limits(&self, process: ProcessRef) -> Option<String> {
        self.escapes_limits_of(process, None)
    }

    /// The same of a process that was at `home` ([`TierTree::position`]), where that is not where it is.
    pub fn escapes_limits_of(&self, process: ProcessRef, home: Option<&Origin>) -> Option<String> {
        if self.observing {
            return None;
        }
        limits::escaped(&self.mover(), process, home)
    }

    /// The same of a move into `group`, a path: the limits above that go on.
    pub fn escapes_limits_into(&self, process: ProcessRef, group: &str) -> Option<String> {
        if self.observing {
            return None;
        }
        limits::escaped(&Mover { root: group, ..self.mover() }, process, None)
    }

    /// Who holds `process`, and whether its group holds only `members`. `foreign_unit`:
    /// systemd reported that its unit is delegated, or that it has no such unit. `None`: nothing is
    /// moved here ([`Attachment::None`]).
    ///
    /// # Errors
    /// `ProcessGone`; a file could not be read.
    pub fn surroundings(
        &self,
        process: ProcessRef,
        members: Members,
        foreign_unit: bool,
    ) -> Result<Option<Surroundings>, CgroupError> {
        if self.observing {
            return Ok(None);
        }
        let unit =
            surroundings::UnitFacts { systemd_runs: crate::systemd::is_running(), foreign_unit };
        surroundings::of(&self.mover(), process, members, unit).map(Some)
    }

    /// Whether `process` is in `group` or below it in every hierarchy in use; one read of
    /// `/proc/PID/cgroup`, so a group made anew under the same path counts as the group.
    /// `None`: the process has ended, or nothing is attached ([`Attachment::None`]).
    pub fn holds(&self, group: &Group, process: ProcessRef) -> Result<Option<bool>, CgroupError> {
        if self.observing {
            return Ok(None);
        }
        members::holds(&self.root.hierarchies, &group.record, process)
    }

    /// The group that `process` is in, in any hierarchy in use, if it is outside of `group`, one of LRS's, and
    /// was made after that: then it went there by its own doing. On v1 systemd makes the group of a scope only
    /// where it has something to set, and moves the process to the slice's in the others.
    pub fn went_to(
        &self,
        group: &Group,
        process: ProcessRef,
    ) -> Result<Option<String>, CgroupError> {
        if self.observing || group.record.attachment != Attachment::Own {
            return Ok(None);
        }
        members::went_to(&self.root.hierarchies, &self.root.path, &group.record, process)
    }

    /// Whether `owner`, who has no admin's rights, may have `group` managed in place: every process
    /// in it and below, since a tier changes its speed, belongs to that uid alone, and on v2 that
    /// uid may put processes into it. `known`, sorted, are the processes that passed the last check.
    /// They are not checked again, since any child that they start is in the group. It is replaced
    /// by those that are there now.
    ///
    /// # Errors
    /// `Denied`, also when some are of a pid namespace that this daemon cannot see.
    pub fn check_owner(
        &self,
        group: &Group,
        owner: u32,
        known: &mut Vec<Pid>,
    ) -> Result<(), CgroupError> {
        owner::check_group(group, owner, known)
    }

    /// The user that every process in the group and below runs as, by all uids; `None`: there are
    /// others, or none, or more than are looked at, or it cannot be read.
    pub fn sole_owner(&self, group: &Group) -> Option<u32> {
        owner::sole_owner(group)
    }

    /// The root and the groups above it, with the quotas that bound the tasks.
    pub fn quota_dirs(&self) -> Vec<QuotaDirs> {
        if self.observing {
            return Vec::new();
        }
        let cpu = self.primary();
        let accounting = self.root.hierarchies.iter().find(|h| h.has("cpuacct")).unwrap_or(cpu);
        let upwards = |of: &Hierarchy| cpus::upwards(&of.dir("/"), &of.dir(&self.root.path));
        let dirs = upwards(cpu).into_iter().zip(upwards(accounting));
        dirs.map(|(quota, usage)| QuotaDirs { quota, usage }).collect()
    }

    /// Groups with the cpuset that the tasks may have, nearest first.
    ///
    /// # Errors
    /// The mounts, or in which groups lrsd is, cannot be read.
    pub fn cpuset_dirs(&self) -> Result<Vec<PathBuf>, CgroupError> {
        cpus::cpuset_dirs(&Mounts::read()?, &self.root.path, Path::new("/proc/self/cgroup"))
    }

    /// The groups with the limits of memory that bound the tasks; `None`: there are none.
    pub fn memory_groups(&self) -> Option<MemoryGroups> {
        let primary = self.root.hierarchies.first()?;
        // What is only observed lives anywhere below the mount.
        let root = (!self.observing).then_some(self.root.path.as_str());
        let place = (primary.mount.point.as_path(), root);
        MemoryGroups::of_daemon(self.capabilities().version, place, self.root.is_scope)
    }

    /// Gives every thread of an own `group` the I/O priority of `tier`, where disk tiers are made
    /// that way; takes back what an earlier daemon with another `tiers.io` left in its threads
    /// and files. Walks the processes: call it off the promotion path.
    pub fn reapply_io(&self, group: &Group, tier: Tier) -> Result<(), CgroupError> {
        if self.observing {
            return Ok(());
        }
        let present = self.present();
        let in_use = |file: &str| {
            present.knobs().iter().any(|knob| match knob {
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
        let by_thread = present.knobs().contains(&IoKnob::ThreadPriority);
        let tier = if by_thread { tier } else { Tier::Active };
        ioprio::apply(&self.processes(group)?, tier).map(drop)
    }
}
