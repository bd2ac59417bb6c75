//! What the loop begins on a pretended node: done when it is asked for, in its order.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::tree::{Inode, NEUTRAL, Weights};

use super::{Call, HOME, Method, Pretend, ROOT, own};
use lrs_core::model::{Level, TaskId, Tier};
use lrs_core::sample::{NodeSample, Sample};
use lrs_core::task::Halt;
use lrs_core::units::{Pid, ProcessRef};
use lrs_executor::command::{CommandError, ErrorKind};
use lrs_executor::group::{
    Attached, Attachment, CgroupError, Drift, Group, KernelView, Origin, WeightPlan,
};
use lrs_executor::job::{Check, CycleRequest, GroupJob, Job, UnitJob};
use lrs_executor::message::{Ahead, CycleReport, Message, Placed};
use lrs_executor::world::Kernel as _;

/// What a reading costs lrsd with a few tasks (docs/experiments/simulated-rules.md).
const READING: Duration = Duration::from_millis(1);

impl Pretend {
    /// Does what was begun first, as the threads do; `None`: nothing was.
    pub fn finish(&mut self) -> Option<Vec<Message>> {
        if self.deeds.dead {
            return None;
        }
        let Some(job) = self.begun.pop_front() else {
            return (!self.looked_up.is_empty()).then(|| vec![self.looked_up.remove(0)]);
        };
        Some(match job {
            Job::Group(job) => self.finish_group(job),
            Job::Unit(job) => finish_unit(job),
            Job::VerifyTiers(_) => {
                let why = "a pretended node has no kernel of which tiers could be tested";
                vec![Message::TiersTested { result: Err(CgroupError::Unsupported(why.to_owned())) }]
            }
            Job::Read(request) => vec![match request.cycle {
                Some(cycle) => Message::Cycle(Box::new(self.read(cycle))),
                None => Message::ReadAhead(Box::new(self.read_ahead())),
            }],
        })
    }

    fn finish_group(&mut self, job: GroupJob) -> Vec<Message> {
        let mut messages = Vec::new();
        match job {
            GroupJob::Attach { task, process, origin, found, tier, plan, .. } => {
                let weights = tier.map(|tier| (tier, plan));
                let result = self.attach(task, process, origin, found, weights);
                let result = result.map_err(|(group, error)| {
                    if let Some((group, error)) = group
                        .and_then(|group| Some((group.clone(), self.remove_now(&group).err()?)))
                    {
                        messages.push(Message::NotRemoved { task, group, error });
                    }
                    error
                });
                messages.push(Message::Attached { task, result });
            }
            GroupJob::Reattach { task, process, group, .. } => {
                let result = self.move_into(process, &group);
                messages.push(Message::Reattached { task, result });
            }
            GroupJob::Release { task, group, .. } => {
                let result = self.release_now(&group);
                messages.push(Message::Released { task, result });
            }
            GroupJob::Threads { .. } => {}
            GroupJob::Remove { task, group } => {
                let failed = self.remove_now(&group).err();
                let message = failed.map(|error| Message::NotRemoved { task, group, error });
                messages.extend(message);
            }
        }
        messages
    }

    fn attach(
        &mut self,
        task: TaskId,
        process: ProcessRef,
        origin: Origin,
        found: Option<Arc<Group>>,
        weights: Option<(Tier, WeightPlan)>,
    ) -> Result<Placed, (Option<Arc<Group>>, CgroupError)> {
        if self.deeds.fails(Method::Attach) {
            let error = CgroupError::Refused("it may not be moved".to_owned());
            return Err((None, error));
        }
        let in_place = found.is_some();
        let group = match found {
            Some(group) => group,
            None => Arc::new(self.make(task, origin).map_err(|error| (None, error))?),
        };
        let placed = weights.map_or(Ok(()), |(tier, plan)| self.write(&group, tier.into(), &plan));
        let placed = placed.and_then(|()| match in_place {
            true => Ok(Attached { moved: 0 }),
            false => self.move_from(process, &group),
        });
        match placed {
            Ok(attached) => Ok((group, attached, weights.map(|(tier, _)| tier))),
            Err(error) => Err(((!in_place).then_some(group), error)),
        }
    }

    fn make(&mut self, task: TaskId, origin: Origin) -> Result<Group, CgroupError> {
        let path = format!("{ROOT}/{task}");
        if self.deed(Call::Make(path.clone())).is_none_or(|refused| refused) {
            return Err(CgroupError::Refused(format!("{path} cannot be made")));
        }
        let made = self.node.tree.make(&path);
        Ok(own(path, made, origin))
    }

    pub(super) fn write(
        &mut self,
        group: &Group,
        level: Level,
        plan: &WeightPlan,
    ) -> Result<(), CgroupError> {
        let path = &group.record.path;
        let weights = weights(level, plan);
        if let Some(found) = self.found(group).filter(|it| self.weights_of(*it) == Some(weights)) {
            self.written.insert(found, (level, weights));
            return Ok(());
        }
        match self.deed(Call::Weigh(path.clone(), level)) {
            None => return Ok(()),
            Some(refused) if refused || self.deeds.fails(Method::Weigh) => {
                return Err(CgroupError::Refused("cpu.weight cannot be written".to_owned()));
            }
            Some(_) => {}
        }
        let gone = || CgroupError::Refused(format!("{path} is gone"));
        let found = self.found(group).ok_or_else(gone)?;
        self.node.tree.weigh(found, weights).map_err(|_| gone())?;
        self.written.insert(found, (level, weights));
        Ok(())
    }

    /// Moves a process into its task's group, from where it was judged to be.
    fn move_from(&mut self, process: ProcessRef, group: &Group) -> Result<Attached, CgroupError> {
        let now = self.position(process)?.origin;
        let judged = &group.record.origin;
        if !judged.is_empty() && *judged != now {
            let pid = process.pid;
            return Err(CgroupError::MovedMeanwhile(format!("process {pid} was moved meanwhile")));
        }
        self.move_into(process, group)
    }

    /// Moves a process and its descendants.
    fn move_into(&mut self, process: ProcessRef, group: &Group) -> Result<Attached, CgroupError> {
        if self.living(process).is_none() {
            return Err(CgroupError::ProcessGone(process.pid));
        }
        let path = &group.record.path;
        let mut moved: Vec<(Pid, String)> = Vec::new();
        for pid in self.node.tree.family(process.pid) {
            let failed = match self.deed(Call::Move(pid)) {
                None => return Ok(Attached { moved: moved.len() }),
                Some(true) => Some(CgroupError::Refused("it may not be moved".to_owned())),
                Some(false) if pid == process.pid && self.living(process).is_none() => {
                    Some(CgroupError::ProcessGone(pid))
                }
                Some(false) if self.is_removed(group) => {
                    Some(CgroupError::Refused(format!("{path} is gone")))
                }
                Some(false) => None,
            };
            if let Some(error) = failed {
                // Those that were moved go back.
                for (pid, home) in moved {
                    if self.deed(Call::Move(pid)).is_some() {
                        self.move_away(pid, &home);
                    }
                }
                return Err(error);
            }
            moved.extend(self.group_of(pid).map(|home| (pid, home.to_owned())));
            self.move_away(pid, path);
        }
        Ok(Attached { moved: moved.len() })
    }

    pub(super) fn release_now(&mut self, group: &Group) -> Result<Option<Halt>, CgroupError> {
        let refused = || CgroupError::Refused("a process cannot be moved".to_owned());
        if self.deeds.fails(Method::Release) {
            return Err(refused());
        }
        if group.record.attachment != Attachment::Own {
            self.give_weights_back(group);
            return Ok(None);
        }
        let inside = self.found(group).map(|found| self.inside(found)).unwrap_or_default();
        if !inside.is_empty()
            && let Some(halt) = self.halt(group, None)?
        {
            // A move would thaw it.
            if let Some(found) = self.found(group) {
                // It is there.
                let _ = self.node.tree.weigh(found, NEUTRAL);
            }
            return Ok(Some(halt));
        }
        for pid in inside {
            match self.deed(Call::Move(pid)) {
                None => return Ok(None),
                Some(true) => return Err(refused()),
                Some(false) => {}
            }
            let home = group.record.origin.first().map_or(HOME, |(_, path)| path.as_str());
            self.move_away(pid, home);
        }
        self.remove_now(group).map(|()| None)
    }

    pub(super) fn remove_now(&mut self, group: &Group) -> Result<(), CgroupError> {
        let path = &group.record.path;
        let busy = || CgroupError::Refused(format!("{path} is busy"));
        match self.deed(Call::Remove(path.clone())) {
            None => return Ok(()),
            Some(refused) if refused || self.deeds.fails(Method::Remove) => return Err(busy()),
            Some(_) => {}
        }
        if group.record.attachment != Attachment::Own {
            self.give_weights_back(group);
        } else if let Some(found) = self.found(group) {
            self.node.tree.remove(found).map_err(|_| busy())?;
            self.written.remove(&found);
        }
        Ok(())
    }

    /// A group in place gets the weights back that it was found with, unless its owner has written others
    /// since.
    fn give_weights_back(&mut self, group: &Group) {
        let Some(found) = self.found(group) else { return };
        let Some((_, ours)) = self.written.remove(&found) else { return };
        if self.weights_of(found) == Some(ours) {
            let owners = group.record.found.iter().find(|(file, _)| file == "cpu.weight");
            let cpu = owners.and_then(|(_, value)| value.parse().ok()).unwrap_or(NEUTRAL.cpu);
            // It is there.
            let _ = self.node.tree.weigh(found, Weights { cpu, ..NEUTRAL });
        }
    }

    pub(super) fn weights_of(&self, group: Inode) -> Option<Weights> {
        self.node.tree.groups().get(&group).map(|group| group.weights)
    }

    fn read_ahead(&mut self) -> Ahead {
        self.cpu += READING;
        let tree = &self.node.tree;
        let groups = tree.at(ROOT).into_iter().flat_map(|root| tree.below(root));
        let sizes = groups.filter_map(|(group, _)| self.node.sample_group(group)?.resident);
        let sizes = sizes.collect();
        Ahead { at: self.now().boot, node: self.sample(), sizes, cost: READING }
    }

    /// What a reading of the node finds.
    pub(super) fn sample(&self) -> NodeSample {
        let root = self.node.tree.at(ROOT).and_then(|root| self.node.sample_group(root));
        NodeSample { root_cpu: root.and_then(|root| root.cpu), ..self.node.sample() }
    }

    fn read(&mut self, cycle: CycleRequest) -> CycleReport {
        self.cpu += READING;
        let at = self.now().boot;
        let read =
            |check: &Check| Some((check.task, self.node.sample_group(self.found(&check.group)?)?));
        let tasks = cycle.check.iter().filter_map(read).collect();
        let kernel = cycle
            .check
            .iter()
            .filter(|check| check.weights)
            .map(|check| {
                let plan = cycle.plan.as_ref();
                let drifts = plan.map(|plan| self.drifts(&check.group, check.level, plan));
                let shown = (self.shown(&check.group), drifts.unwrap_or_default());
                (check.task, Ok(Some(shown)))
            })
            .collect();
        let shaped = cycle.check.iter().filter(|check| !check.frozen);
        let halts = shaped
            .filter_map(|check| Some((check.task, self.halt(&check.group, check.main).ok()?)))
            .collect();
        let outside = cycle.members.iter().filter(|(_, group, process)| {
            let living = self.living(*process);
            let within = |it: &crate::tree::Process| {
                self.found(group).is_some_and(|top| self.node.tree.is_within(it.group, top))
            };
            living.is_some_and(|it| !within(it))
        });
        let outside = outside.map(|(task, ..)| *task).collect();
        let frozen = self.frozen_root().ok().flatten();
        CycleReport {
            sample: Sample { at, node: self.sample(), tasks, took: Duration::ZERO },
            asked_at: cycle.asked_at,
            due: cycle.due,
            kernel,
            outside,
            entered: Vec::new(),
            kept_files: (0, 0),
            disks: Vec::new(),
            effects: None,
            halts,
            pinned: Vec::new(),
            frozen_root: Ok(frozen),
        }
    }

    pub(super) fn shown(&self, group: &Group) -> KernelView {
        let weights = self.found(group).and_then(|found| self.weights_of(found));
        // One that is gone shows nothing, as in the kernel's files.
        let Some(weights) = weights else { return KernelView::default() };
        let (cpu, io) = (Some(weights.cpu), Some(weights.io));
        KernelView { cpu_weight: cpu, io_weight: io, ..KernelView::default() }
    }

    pub(super) fn drifts(&self, group: &Group, level: Level, plan: &WeightPlan) -> Vec<Drift> {
        let found = self.found(group).and_then(|found| self.weights_of(found));
        let wanted = weights(level, plan);
        match found.filter(|found| *found != wanted) {
            Some(found) => vec![Drift {
                file: "cpu.weight".to_owned(),
                found: found.cpu.to_string(),
                expected: wanted.cpu.to_string(),
            }],
            None => Vec::new(),
        }
    }

    pub(super) fn frozen_file(&self) -> Option<PathBuf> {
        let root = self.node.tree.groups().get(&self.node.tree.at(ROOT)?)?;
        root.frozen.then(|| PathBuf::from(ROOT).join("cgroup.freeze"))
    }
}

/// The weights of a level, as the kernel has them.
fn weights(level: Level, plan: &WeightPlan) -> Weights {
    let (cpu, io) = plan.weights(level);
    Weights { cpu, idle: false, io }
}

/// There is no systemd: nothing is a unit.
fn finish_unit(job: UnitJob) -> Vec<Message> {
    match job {
        UnitJob::ShapeRoot { .. } => vec![Message::RootShaped { result: Ok(()) }],
        UnitJob::Look(asking) => {
            vec![Message::UnitLooked { asking, result: Err(no_units()) }]
        }
        UnitJob::LookFound { found, reply } => {
            let report = Default::default();
            vec![Message::FoundLooked { found, report, reply }]
        }
        UnitJob::Prepare { task, .. } => {
            vec![Message::UnitPrepared { task, result: Err(no_units()) }]
        }
        UnitJob::Tell { task, .. } => vec![Message::UnitAnswered { task, result: Ok(()) }],
        UnitJob::GiveBack { task, called_off, .. } => {
            vec![Message::UnitRestored { task, result: Ok(()), called_off }]
        }
    }
}

fn no_units() -> CommandError {
    let words = "this node is pretended and has no units: name a process";
    CommandError::new(ErrorKind::FailedPrecondition, words.to_owned())
}
