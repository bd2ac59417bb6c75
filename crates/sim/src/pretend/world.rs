//! What the loop may do to the pretended node, and what it is answered.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::tree::{NEUTRAL, Weights};

use super::{Call, Method, Pretend, ROOT, own, rights};
use lrs_config::Config;
use lrs_config::rule::Rule;
use lrs_core::event::Event;
use lrs_core::model::{Level, TaskId};
use lrs_core::neighbours::RootWeight;
use lrs_core::sample::TaskSample;
use lrs_core::step::Record;
use lrs_core::task::Halt;
use lrs_core::units::{BootTime, Pid, ProcessRef, Uids};
use lrs_executor::command::{CommandError, ErrorKind};
use lrs_executor::group::{
    Attachment, CgroupError, Drift, Effects, Group, GroupDirs, GroupRecord, HeldBy, KernelView,
    Members, Position, Surroundings, WeightPlan,
};
use lrs_executor::job::{GroupJob, Job};
use lrs_executor::message::Message;
use lrs_executor::rights::Rights;
use lrs_executor::world::NotStored;
use lrs_executor::world::{
    Facts, HowEnded, Identity, Jobs, Kernel, Key, Move, Pin, Records, Settings, Storable, Watch,
    Whereabouts,
};

/// The path of a group as the kernel writes it.
fn kernel_path(path: &str) -> String {
    if path.is_empty() { "/".to_owned() } else { path.to_owned() }
}

impl Kernel for Pretend {
    /// The path of the group.
    type CpuFile = Option<String>;

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn warnings(&self, _: &WeightPlan) -> Vec<String> {
        let warning =
            "this node is pretended: no process is shaped, and no figure is of this machine";
        self.operator.iter().map(|_| warning.to_owned()).collect()
    }

    fn adopt(&mut self, _: Effects) -> bool {
        false
    }

    fn identify(&self, pid: Pid) -> Result<Identity, CommandError> {
        let found = self.node.tree.processes().get(&pid);
        let Some(found) = found.filter(|_| !self.deeds.fails(Method::Identify)) else {
            return Err(CommandError::new(ErrorKind::NotFound, format!("process {pid} is gone")));
        };
        let uid = found.uid;
        Ok(Identity {
            process: ProcessRef { pid, start_ticks: found.start_ticks },
            uids: Uids { real: uid, effective: uid, saved: uid, filesystem: uid },
            leads_session: false,
            started: BootTime::default(),
            pin: Pin::default(),
        })
    }

    fn lives(&self, process: ProcessRef) -> bool {
        self.living(process).is_some()
    }

    fn position(&self, process: ProcessRef) -> Result<Position, CgroupError> {
        let gone = CgroupError::ProcessGone(process.pid);
        self.living(process).ok_or(gone)?;
        let path = kernel_path(self.group_of(process.pid).unwrap_or_default());
        let name = path.strip_prefix(ROOT).and_then(|rest| rest.strip_prefix('/'));
        Ok(Position {
            task: name.and_then(|name| name.parse().ok()),
            origin: [("unified".to_owned(), path.clone())].into(),
            paths: vec![path],
        })
    }

    fn may_be_in_unit(&self, _: Pid) -> bool {
        false
    }

    fn surroundings(
        &self,
        process: ProcessRef,
        _: Members,
        _: bool,
    ) -> Result<Option<Surroundings>, CgroupError> {
        let living = self.living(process).ok_or(CgroupError::ProcessGone(process.pid))?;
        let at_home = self.node.tree.at(super::HOME) == Some(living.group);
        let alone = at_home || self.inside(living.group).len() == 1;
        Ok(Some(Surroundings { held_by: HeldBy::None, alone, weighed: true }))
    }

    fn escaped_limit(&self, _: ProcessRef, _: Move<'_>) -> Option<String> {
        None
    }

    fn find_in_place(&self, process: ProcessRef, _: Option<&str>) -> Result<Group, CgroupError> {
        let living = self.living(process).ok_or(CgroupError::ProcessGone(process.pid))?;
        let path = self.group_of(process.pid).filter(|path| !path.is_empty());
        let Some((path, weights)) = path.zip(self.weights_of(living.group)) else {
            return Err(CgroupError::Refused("the root has no weights".to_owned()));
        };
        let group = own(path.to_owned(), living.group, Default::default());
        let owners = (weights != NEUTRAL).then(|| of_owner(weights));
        let (attachment, found) = (Attachment::InPlace, owners.into_iter().collect());
        Ok(Group { record: GroupRecord { attachment, found, ..group.record }, ..group })
    }

    fn presumed(&self, record: &GroupRecord) -> Group {
        Group { record: record.clone(), dirs: GroupDirs::default() }
    }

    fn reopen(&self, record: &GroupRecord) -> Result<Option<Group>, CgroupError> {
        let group = self.presumed(record);
        Ok(self.found(&group).is_some().then_some(group))
    }

    fn members(&self, group: &Group, _: Option<&Rule>) -> Result<Vec<Pid>, CgroupError> {
        if self.deeds.fails(Method::Members) {
            return Err(CgroupError::Refused("cgroup.procs cannot be read".to_owned()));
        }
        Ok(self.found(group).map(|found| self.inside(found)).unwrap_or_default())
    }

    fn whereabouts(&self, group: &Group, process: ProcessRef) -> Result<Whereabouts, CgroupError> {
        let Some(top) = self.found(group) else { return Ok(Whereabouts::GroupRemoved) };
        let living = self.living(process).ok_or(CgroupError::ProcessGone(process.pid))?;
        if self.node.tree.is_within(living.group, top) {
            return Ok(Whereabouts::Inside);
        }
        let path = self.group_of(process.pid).unwrap_or_default();
        let went = living.group > top
            && group.record.attachment == Attachment::Own
            && !lrs_executor::group::is_within(path, ROOT);
        Ok(if went { Whereabouts::WentTo(path.to_owned()) } else { Whereabouts::Elsewhere })
    }

    fn check_owner(&self, group: &Group, owner: u32) -> Result<(), CgroupError> {
        let inside = self.found(group).map(|found| self.inside(found)).unwrap_or_default();
        let processes = self.node.tree.processes();
        let strange =
            inside.iter().find(|pid| processes.get(pid).is_some_and(|it| it.uid != owner));
        match strange {
            Some(pid) => Err(CgroupError::Denied(format!("process {pid} is another user's"))),
            None => Ok(()),
        }
    }

    fn owner_wrote(&self, group: &Group) -> Result<Option<GroupRecord>, CgroupError> {
        let Some(found) = self.found(group) else { return Ok(None) };
        let both = self.written.get(&found).zip(self.weights_of(found));
        let Some((_, now)) = both.filter(|((_, ours), now)| ours != now) else { return Ok(None) };
        let found = vec![of_owner(now)];
        let wrote = group.record.found != found;
        Ok(wrote.then(|| GroupRecord { found, ..group.record.clone() }))
    }

    fn weigh(&mut self, group: &Group, level: Level, plan: &WeightPlan) -> Result<(), CgroupError> {
        self.write(group, level, plan)
    }

    fn drift(
        &self,
        group: &Group,
        level: Level,
        plan: &WeightPlan,
    ) -> Result<Vec<Drift>, CgroupError> {
        Ok(self.drifts(group, level, plan))
    }

    fn show(&self, group: &Group) -> Result<KernelView, CgroupError> {
        match self.deeds.fails(Method::Show) {
            true => Err(CgroupError::Refused("cpu.weight cannot be read".to_owned())),
            false => Ok(self.shown(group)),
        }
    }

    fn weigh_root(&mut self, weight: RootWeight) -> Result<Vec<Drift>, CgroupError> {
        let weights = match weight {
            RootWeight::Idle => Weights { idle: true, ..NEUTRAL },
            RootWeight::Weight(weight) => Weights { cpu: u64::from(weight), ..NEUTRAL },
        };
        let root = self.node.tree.make(ROOT);
        if self.weights_of(root) == Some(weights) {
            return Ok(Vec::new());
        }
        match self.deed(Call::WeighRoot) {
            None => return Ok(Vec::new()),
            Some(refused) if refused || self.deeds.fails(Method::WeighRoot) => {
                return Err(CgroupError::Refused("cpu.weight cannot be written".to_owned()));
            }
            Some(_) => {}
        }
        // It is there.
        let _ = self.node.tree.weigh(root, weights);
        Ok(Vec::new())
    }

    fn freeze(&mut self, group: &Group, on: bool) -> Result<(), CgroupError> {
        match self.deed(Call::Freeze(group.record.path.clone(), on)) {
            None => return Ok(()),
            Some(refused) if refused || self.deeds.fails(Method::Freeze) => {
                return Err(CgroupError::Refused("cgroup.freeze cannot be written".to_owned()));
            }
            Some(_) => {}
        }
        if on && self.halt(group, None)?.is_some() {
            let path = &group.record.path;
            return Err(CgroupError::Refused(format!("{path} is frozen by other software")));
        }
        if let Some(found) = self.found(group) {
            // It is there.
            let _ = self.node.tree.freeze(found, on);
        }
        Ok(())
    }

    fn halt(&self, group: &Group, _: Option<ProcessRef>) -> Result<Option<Halt>, CgroupError> {
        let found = self.found(group).and_then(|found| self.node.tree.groups().get(&found));
        Ok(found.filter(|found| found.frozen).map(|_| Halt::Frozen))
    }

    fn frozen_root(&self) -> Result<Option<PathBuf>, CgroupError> {
        Ok(self.frozen_file())
    }

    fn figures(&self, group: &Group, _: &[(u32, u32)]) -> Option<TaskSample> {
        // Nothing is left of their memory.
        let figures = self.node.sample_group(self.found(group)?)?;
        Some(TaskSample { resident: None, ..figures })
    }

    fn cpu_time(&mut self, group: &Group, file: &mut Option<String>) -> Option<Option<Duration>> {
        let of = file.get_or_insert_with(|| group.record.path.clone());
        assert_eq!(*of, group.record.path, "a file of another group");
        Some(self.node.sample_group(self.found(group)?)?.cpu)
    }

    fn release(&mut self, group: &Group, _: bool) -> Result<Option<Halt>, CgroupError> {
        match self.deed(Call::Release(group.record.path.clone())) {
            None => Ok(None),
            Some(true) => Err(CgroupError::Refused("a process cannot be moved".to_owned())),
            Some(false) => self.release_now(group),
        }
    }

    fn remove(&mut self, group: &Group) -> Result<(), CgroupError> {
        self.remove_now(group)
    }
}

/// The weight that the owner of a group wrote, as records have it.
fn of_owner(weights: Weights) -> (String, String) {
    ("cpu.weight".to_owned(), weights.cpu.to_string())
}

impl Watch for Pretend {
    fn watch(
        &mut self,
        task: TaskId,
        pid: Pid,
        start_ticks: Option<u64>,
        _: Option<Pin>,
    ) -> io::Result<Option<Key>> {
        match self.deed(Call::Watch(task, pid)) {
            None => return Ok(None),
            Some(refused) if refused || self.deeds.fails(Method::Watch) => {
                const EMFILE: i32 = 24;
                return Err(io::Error::from_raw_os_error(EMFILE));
            }
            Some(_) => {}
        }
        let Some(found) = self.node.tree.processes().get(&pid) else { return Ok(None) };
        let process = ProcessRef { pid, start_ticks: found.start_ticks };
        if start_ticks.is_some_and(|ticks| ticks != process.start_ticks) {
            return Ok(None);
        }
        self.next_key += 1;
        self.watched.insert(self.next_key, (task, process));
        Ok(Some(Key(self.next_key)))
    }

    fn watch_group(&mut self, _: TaskId, _: &Group) -> io::Result<()> {
        Ok(())
    }

    fn unwatch(&mut self, task: TaskId, processes: impl IntoIterator<Item = Key>) {
        if self.deed(Call::Unwatch(task)).is_none() {
            return;
        }
        for key in processes {
            self.watched.remove(&key.0);
        }
    }

    fn how_ended(&mut self, task: TaskId, process: ProcessRef) -> HowEnded {
        let exit = self.exits.remove(&process);
        // Each third is looked up first.
        if process.start_ticks.is_multiple_of(3) {
            self.looked_up.push(Message::Exit { task, process, exit });
            return HowEnded::Later;
        }
        exit.map_or(HowEnded::Never, HowEnded::Known)
    }
}

impl Records for Pretend {
    fn put(&mut self, known: Storable<'_>) -> Result<(), NotStored> {
        match known {
            Storable::Task(task) => {
                if self.stored(Call::PutTask(task.id), Method::PutTask)? {
                    self.tasks.insert(task.id, task.clone());
                }
            }
            Storable::Reservation(record) => {
                if self.stored(Call::PutReservation(record.id), Method::PutReservation)? {
                    self.reservations.insert(record.id, record.clone());
                }
            }
        }
        Ok(())
    }

    fn forget(&mut self, record: Record) -> Result<(), NotStored> {
        if !self.stored(Call::Forget(record), Method::Forget)? {
            return Ok(());
        }
        match record {
            Record::Task(id) => drop(self.tasks.remove(&id)),
            Record::Reservation(id) => drop(self.reservations.remove(&id)),
        }
        Ok(())
    }

    fn append(&mut self, event: &Event) -> Result<(), NotStored> {
        let task = event.task.as_deref().and_then(|id| id.parse().ok());
        match self.stored(Call::Append(event.kind, task), Method::Append) {
            Err(error) => {
                self.unstored.push(event.clone());
                Err(error)
            }
            Ok(false) => Ok(()),
            Ok(true) => {
                self.events.append(&mut self.unstored);
                self.events.push(event.clone());
                Ok(())
            }
        }
    }

    fn resume(&mut self) -> Result<bool, NotStored> {
        if !self.deeds.dead {
            self.events.append(&mut self.unstored);
        }
        Ok(std::mem::take(&mut self.removed_files))
    }
}

impl Pretend {
    /// Whether a deed on the disk has an effect.
    fn stored(&mut self, call: Call, method: Method) -> Result<bool, NotStored> {
        match self.deed(call) {
            None => Ok(false),
            Some(refused) if refused || self.deeds.fails(method) => {
                Err(NotStored("cannot write /run/lrs/state: no space is left".to_owned()))
            }
            Some(_) => Ok(true),
        }
    }
}

impl Jobs for Pretend {
    fn begin(&mut self, job: Job) {
        let (name, task) = match &job {
            Job::Group(GroupJob::Attach { task, .. }) => ("attach", Some(*task)),
            Job::Group(GroupJob::Reattach { task, .. }) => ("reattach", Some(*task)),
            Job::Group(GroupJob::Release { task, .. }) => ("release", Some(*task)),
            Job::Group(GroupJob::Threads { .. }) => ("threads", None),
            Job::Group(GroupJob::Remove { task, .. }) => ("remove", Some(*task)),
            Job::Unit(_) => ("unit", None),
            Job::Read(_) => ("read", None),
            Job::VerifyTiers(_) => ("verify", None),
        };
        // What is begun cannot be refused.
        if self.deed(Call::Begin(name, task)).is_some() {
            self.begun.push_back(job);
        }
    }
}

impl Settings for Pretend {
    fn load(&mut self) -> Result<Config, String> {
        if let Some(operator) = &mut self.operator {
            self.config = operator.load()?;
        }
        Ok(self.config.clone())
    }

    fn apply(&mut self, config: &Config) -> Result<Rights, String> {
        match &mut self.operator {
            Some(operator) => operator.apply(config),
            None => Ok(rights(config)),
        }
    }
}
