//! The tree of this node, on the kernel's own files: its root, and the groups of tasks made and found;
//! [`super::release`] gives them back.
//!
//! One code path serves v1, v2 and hybrid machines: a task's group is the same path in every
//! hierarchy in use, and the hierarchies differ only in the names and ranges of their weight
//! files. cgroups-rs creates v1 groups in exactly the chosen hierarchies;
//! the rest is done on the files, because its reads and writes hide errors (`procs()`,
//! `apply()`), it lacks `cpu.idle` and `io.weight`, its delete sleeps, and on v2 it knows one
//! mount point only and ignores errors while enabling controllers.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cgroups_rs::fs::hierarchies::V1;

use super::effects::{self, Present};
use super::knob::slice::SliceLength;
use super::knob::{Content, CpuKnobs, Knob, cpu_idle, cpu_weight, freezer};
use super::layout::Layout;
use super::mounts::{Hierarchy, UNIFIED};
use super::mover::{BUDGET, Mover};
use super::open::Root;
use super::{
    Attached, Attachment, Capabilities, CgroupError, Conditions, CpuTiers, DiskTiers, Effects,
    Group, GroupDirs, GroupRecord, IoTiers, KernelView, Kin, Origin, PassiveCpu, Reach,
    TreeSettings, WeightPlan, dirs, files, in_place, members, name, probe, quota, scope, walk,
};
use crate::core::model::{Label, TaskId};
use crate::core::neighbours::RootWeight;
use crate::core::weights;
use crate::units::ProcessRef;

/// The cgroup tree of this node as LRS uses it. The loop and the attach worker call it from
/// different threads, never for the same group at once; the reading thread reads of any, and gives threads
/// their I/O priority and slice.
#[derive(Debug)]
pub struct TierTree {
    pub(super) state: State,
    pub(super) root_weight: Option<u32>,
    /// `tiers.io`.
    pub(super) disk_tiers: DiskTiers,
    /// How long long slices are; `None`: slices are the kernel's.
    pub(super) slice: Option<SliceLength>,
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

/// What LRS may do here. The third state, in which groups are only given back, is a type of its own:
/// [`super::RecordedGroups`].
#[derive(Debug)]
pub(super) enum State {
    /// Tasks have groups below a root of LRS's, and tiers.
    Enforcing(Root),
    /// Nothing is written. Tasks are booked with [`Attachment::None`]: they have no processes but
    /// their main one, with a pidfd that alone shows their end.
    Observing(Layout),
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
        let idle = cpu_idle::probe(&root.dir());
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
        let slice = match settings.slice.length().map(SliceLength::probe) {
            None => None,
            Some(Ok(slice)) => {
                reasons.push("longer slices for tasks that compute".to_owned());
                Some(slice)
            }
            Some(Err(reason)) => {
                reasons.push(format!("slices are the kernel's own: {reason}"));
                None
            }
        };
        reasons.extend(root.notes.iter().cloned());
        let Layout { version, path, .. } = &root.layout;
        let capabilities = Capabilities {
            version: Some(*version),
            root: path.clone(),
            cpu_tiers: if idle_used { CpuTiers::Idle } else { CpuTiers::Weight },
            io_tiers: IoTiers::None,
            io_by_thread: false,
            reason: reasons.join("; "),
        };
        let scale = cpu_weight::scale(*version);
        let cpu = CpuKnobs { scale, idle_exists: idle.is_ok(), idle_used };
        let present = Present::new(capabilities, Some(cpu), effects::read(&root, settings.io));
        Ok(TierTree { slice, ..TierTree::new(State::Enforcing(root), present, settings) })
    }

    pub(super) fn new(state: State, present: Present, settings: &TreeSettings) -> TierTree {
        TierTree {
            state,
            root_weight: settings.root_weight,
            disk_tiers: settings.io,
            slice: None,
            present: RwLock::new(Arc::new(present)),
            plans: in_place::Plans::default(),
            no_twin: Mutex::new(None),
            remade: AtomicBool::new(false),
            v1: V1::new(),
        }
    }

    /// The root, which is there for whoever enforces.
    pub(super) fn root(&self) -> Option<&Root> {
        match &self.state {
            State::Enforcing(root) => Some(root),
            State::Observing(_) => None,
        }
    }

    pub(super) fn layout(&self) -> &Layout {
        match &self.state {
            State::Enforcing(root) => &root.layout,
            State::Observing(layout) => layout,
        }
    }

    pub(super) fn mover(&self) -> Mover<'_> {
        let Layout { path, hierarchies, .. } = self.layout();
        Mover { hierarchies, root: path, budget: BUDGET }
    }

    pub(super) fn primary(&self) -> &Hierarchy {
        &self.layout().hierarchies[0]
    }

    /// Makes `path` in every hierarchy but those named; where it was there before, nothing is
    /// touched. Answers in which it is not: those, and the cgroup2 mount beside v1 where that takes no
    /// group.
    fn make(&self, path: &str, mut elsewhere: Vec<String>) -> Result<Vec<String>, CgroupError> {
        let all = self.layout().hierarchies.iter();
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
        let all = self.layout().hierarchies.iter();
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
        let Layout { version, hierarchies, .. } = self.layout();
        let dirs = dirs::of_group(hierarchies, *version, &record);
        Ok(Some(Group { record, dirs }))
    }
}

impl TierTree {
    /// What this node can do now.
    pub fn capabilities(&self) -> Arc<Capabilities> {
        Arc::clone(&self.present().capabilities)
    }

    pub(super) fn present(&self) -> Arc<Present> {
        Arc::clone(&self.present.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the node anew. `None`: all is as it was.
    pub fn look_again(&self) -> Option<Effects> {
        let found = effects::read(self.root()?, self.disk_tiers);
        (found != self.present().effects).then_some(found)
    }

    /// Goes by `effects` from now on. Answers whether tasks have to be given their tiers anew: other
    /// files make them. Nothing may read weights meanwhile.
    pub fn adopt(&self, effects: Effects) -> bool {
        let mut present = self.present.write().unwrap_or_else(PoisonError::into_inner);
        let differ = present.knobs() != effects.io.knobs;
        *present = Arc::new(present.with(effects));
        differ
    }

    /// What is worse than it could be, and what to do about it, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.root().map_or(Vec::new(), |root| root.warnings.clone());
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
        self.root().is_some_and(|root| root.takes_over)
    }

    /// Sentences about promises the kernel's ranges or the node cannot keep under `plan`.
    pub fn shortfalls(&self, plan: &WeightPlan) -> Vec<String> {
        let Some(Root { layout, .. }) = self.root() else { return Vec::new() };
        let scale = match layout.is_scope {
            true => weights::CPU_WEIGHT,
            false => cpu_weight::scale(layout.version),
        };
        let present = self.present();
        let tiers = present.table().iter().filter_map(|knob| knob.shortfall(plan));
        tiers.chain(scale.root_shortfall(plan, self.root_weight)).collect()
    }

    /// Whether the weight of the root follows what the active tier wants
    /// ([`TierTree::weigh_root`]).
    pub fn root_follows(&self) -> bool {
        self.root().is_some() && self.root_weight.is_none()
    }

    /// Whether the weight of the root is systemd's to write.
    pub fn root_is_systemds(&self) -> bool {
        self.layout().is_scope
    }

    /// Writes the root's own weight where it differs, or has systemd write it, which may take
    /// seconds; of a root that follows the active tier the most it may weigh. `plan` changes with A.
    pub fn shape_root(&self, plan: &WeightPlan) -> Result<(), CgroupError> {
        let Some(root) = self.root() else { return Ok(()) };
        if let Some(weight) = self.root_weight {
            // An earlier daemon with "auto" may have left it idle, and an idle group takes no weight.
            self.weigh(root, RootWeight::Weight(weight))?;
        }
        if root.layout.is_scope {
            let weight = weights::CPU_WEIGHT.root(plan, self.root_weight);
            return scope::set_weight(weight);
        }
        let scale = cpu_weight::scale(root.layout.version);
        files::write_number(&root.dir().join(scale.file), scale.root(plan, self.root_weight))
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
        let Some(root) = self.root() else { return Ok(booked(String::new(), 0)) };
        let path = &root.layout.path;
        if root.restore()? {
            tracing::warn!(root = path, "the cgroup root was gone; made it anew");
            // Without its weight the root still holds the task.
            self.remade.store(true, Ordering::Relaxed);
        }
        self.make_own(format!("{path}/{}", name::of(id, name)), reach)
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
        match &self.state {
            State::Enforcing(root) => {
                in_place::find(&self.mover(), root.layout.version, process, named)
            }
            State::Observing(layout) => self.book_in_place(layout, process, named),
        }
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
        let dirs = match (&self.state, record.attachment) {
            (State::Observing(_), _) | (_, Attachment::None) => GroupDirs::default(),
            (State::Enforcing(Root { layout, .. }), Attachment::Own | Attachment::InPlace) => {
                dirs::of_group(&layout.hierarchies, layout.version, record)
            }
        };
        Group { record: record.clone(), dirs }
    }

    /// Task groups below the root, for recovery: those named like a task id.
    pub fn existing(&self) -> Result<Vec<(TaskId, Group)>, CgroupError> {
        let Some(root) = self.root() else { return Ok(Vec::new()) };
        let path = &root.layout.path;
        let mut found = Vec::new();
        for dir in walk::child_groups(&root.dir())? {
            let Some(id) = name::task_at(&dir) else { continue };
            let name = dir.file_name().unwrap_or_default().to_string_lossy();
            if let Some(group) = self.own_group(format!("{path}/{name}"), Vec::new())? {
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
            Attachment::Own if self.root().is_some() => {
                let path = &group.record.path;
                // Others of the task are in: what is brought back to them is not undone, and a
                // hierarchy in which the group was removed gets it again.
                let again = !members::processes(group)?.is_empty();
                if again {
                    for hierarchy in dirs::in_use(&self.layout().hierarchies, &group.record) {
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
        if group.record.attachment == Attachment::None {
            return Ok(KernelView::default());
        }
        let mut if_there = |knob: &dyn Knob, dir: &Path| {
            let text = files::read_value_if_there(&dir.join(knob.file()))?;
            Ok(text.as_deref().map(Content::parse))
        };
        Ok(KernelView {
            cpu_quota: quota::read(group)?,
            frozen: members::frozen(&self.layout().hierarchies, group)?,
            ..self.view_of(group, &mut if_there)?
        })
    }

    /// Freezes a group of LRS's own. The kernel does it behind the answer.
    ///
    /// # Errors
    /// `Refused` where others froze it, `Unsupported` where the node has no freezer.
    pub fn freeze(&self, group: &Group) -> Result<(), CgroupError> {
        if self.root().is_none() || group.record.attachment != Attachment::Own {
            return Err(CgroupError::Refused("it is in no group of LRS's own".into()));
        }
        freezer::freeze(&self.layout().hierarchies, group)
    }

    /// Thaws a group that LRS froze; one that is not frozen, or gone, is left as it is.
    ///
    /// # Errors
    /// `Io`; asked again it goes on.
    pub fn thaw(&self, group: &Group) -> Result<(), CgroupError> {
        freezer::thaw(&self.layout().hierarchies, group)
    }

    /// Removes the root if lrsd made it and it is empty. The last call.
    pub fn close(&self) -> Result<(), CgroupError> {
        self.root().map_or(Ok(()), Root::close)
    }
}

/// A group of which there is a record alone.
pub(super) fn booked(path: String, inode: u64) -> Group {
    let record = GroupRecord {
        attachment: Attachment::None,
        path,
        inode,
        elsewhere: Vec::new(),
        for_member: false,
        origin: Origin::default(),
        found: Vec::new(),
    };
    Group { record, dirs: GroupDirs::default() }
}
