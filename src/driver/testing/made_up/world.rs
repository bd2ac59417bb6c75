//! What the loop may do to the made-up node, and what it is answered.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::HOME;
use super::{Call, MadeUp, Method, Process, ROOT, own, rights};
use crate::cgroup::{
    Attachment, Capabilities, CgroupError, CpuTiers, Drift, Effects, Group, GroupDirs, GroupRecord,
    HeldBy, IoTiers, KernelView, Members, Position, Surroundings, Version, WeightPlan,
};
use crate::command::{CommandError, ErrorKind};
use crate::config::Config;
use crate::config::rule::Rule;
use crate::core::event::Event;
use crate::core::model::{Level, TaskId};
use crate::core::neighbours::RootWeight;
use crate::core::sample::TaskSample;
use crate::core::step::Record;
use crate::core::task::{Halt, Task};
use crate::driver::job::{GroupJob, Job};
use crate::driver::message::Message;
use crate::driver::world::{
    Facts, HowEnded, Identity, Jobs, Kernel, Key, Move, Pin, Records, Settings, Watch, Whereabouts,
};
use crate::rights::Rights;
use crate::state::StateError;
use crate::state::record::ReservationRecord;
use crate::units::{BootTime, Pid, ProcessRef, Uids};

impl Kernel for MadeUp {
    fn facts(&self) -> &Facts {
        static FACTS: LazyLock<Facts> = LazyLock::new(|| Facts {
            capabilities: Arc::new(Capabilities {
                version: Some(Version::V2),
                root: ROOT.to_owned(),
                cpu_tiers: CpuTiers::Weight,
                io_tiers: IoTiers::None,
                io_by_thread: false,
                reason: "it is made up".to_owned(),
            }),
            root_follows: true,
            root_is_systemds: false,
            systemd_runs: false,
        });
        &FACTS
    }

    fn warnings(&self, _: &WeightPlan) -> Vec<String> {
        Vec::new()
    }

    fn adopt(&mut self, _: Effects) -> bool {
        false
    }

    fn identify(&self, pid: Pid) -> Result<Identity, CommandError> {
        let found = self.processes.get(&pid).filter(|_| !self.fails(Method::Identify));
        let Some(Process { start_ticks, uid, .. }) = found else {
            return Err(CommandError::new(ErrorKind::NotFound, format!("process {pid} is gone")));
        };
        let uids = Uids { real: *uid, effective: *uid, saved: *uid, filesystem: *uid };
        Ok(Identity {
            process: ProcessRef { pid, start_ticks: *start_ticks },
            uids,
            leads_session: false,
            started: BootTime::default(),
            pin: Pin::default(),
        })
    }

    fn lives(&self, process: ProcessRef) -> bool {
        self.living(process).is_some()
    }

    fn position(&self, process: ProcessRef) -> Result<Position, CgroupError> {
        let found = self.living(process).ok_or(CgroupError::ProcessGone(process.pid))?;
        let name = found.group.strip_prefix(ROOT).and_then(|rest| rest.strip_prefix('/'));
        Ok(Position {
            origin: [("unified".to_owned(), found.group.clone())].into(),
            paths: vec![found.group.clone()],
            task: name.and_then(|name| name.parse().ok()),
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
        let alone = living.group == HOME || self.inside(&living.group).len() == 1;
        Ok(Some(Surroundings { held_by: HeldBy::None, alone, weighed: true }))
    }

    fn escaped_limit(&self, _: ProcessRef, _: Move<'_>) -> Option<String> {
        None
    }

    fn find_in_place(&self, process: ProcessRef, _: Option<&str>) -> Result<Group, CgroupError> {
        let process = self.living(process).ok_or(CgroupError::ProcessGone(process.pid))?;
        let Some(found) = self.groups.get(&process.group) else {
            return Err(CgroupError::Refused(format!("{} has no weights", process.group)));
        };
        let group = own(process.group.clone(), found.inode, Default::default());
        let record = GroupRecord { attachment: Attachment::InPlace, ..group.record };
        Ok(Group { record, ..group })
    }

    fn presumed(&self, record: &GroupRecord) -> Group {
        Group { record: record.clone(), dirs: GroupDirs::default() }
    }

    fn members(&self, group: &Group, _: Option<&Rule>) -> Result<Vec<Pid>, CgroupError> {
        if self.fails(Method::Members) {
            return Err(CgroupError::Refused("cgroup.procs cannot be read".to_owned()));
        }
        Ok(self.inside(&group.record.path))
    }

    fn whereabouts(&self, group: &Group, process: ProcessRef) -> Result<Whereabouts, CgroupError> {
        if self.is_removed(group) {
            return Ok(Whereabouts::GroupRemoved);
        }
        let found = self.living(process).ok_or(CgroupError::ProcessGone(process.pid))?;
        if crate::cgroup::is_within(&found.group, &group.record.path) {
            return Ok(Whereabouts::Inside);
        }
        let younger = self.groups.get(&found.group).is_some_and(|it| it.inode > group.record.inode);
        let went = younger && group.record.attachment == Attachment::Own;
        let went = went && !crate::cgroup::is_within(&found.group, ROOT);
        Ok(if went { Whereabouts::WentTo(found.group.clone()) } else { Whereabouts::Elsewhere })
    }

    fn check_owner(&self, _: &Group, _: u32) -> Result<(), CgroupError> {
        Ok(())
    }

    fn owner_wrote(&self, group: &Group) -> Result<Option<GroupRecord>, CgroupError> {
        let found = self.groups.get(&group.record.path);
        let wrote = found.is_some_and(|found| found.foreign) && group.record.found.is_empty();
        let found = vec![("cpu.weight".to_owned(), "77".to_owned())];
        Ok(wrote.then(|| GroupRecord { found, ..group.record.clone() }))
    }

    fn weigh(&mut self, group: &Group, level: Level, _: &WeightPlan) -> Result<(), CgroupError> {
        self.write(&group.record.path, level)
    }

    fn drift(
        &self,
        group: &Group,
        level: Level,
        _: &WeightPlan,
    ) -> Result<Vec<Drift>, CgroupError> {
        Ok(self.drifts(group, level))
    }

    fn show(&self, group: &Group) -> Result<KernelView, CgroupError> {
        match self.fails(Method::Show) {
            true => Err(CgroupError::Refused("cpu.weight cannot be read".to_owned())),
            false => self.shown(group),
        }
    }

    fn weigh_root(&mut self, _: RootWeight) -> Result<Vec<Drift>, CgroupError> {
        match self.deed(Call::WeighRoot) {
            Some(refused) if refused || self.fails(Method::WeighRoot) => {
                Err(CgroupError::Refused("cpu.weight cannot be written".to_owned()))
            }
            _ => Ok(Vec::new()),
        }
    }

    fn freeze(&mut self, group: &Group, on: bool) -> Result<(), CgroupError> {
        let path = &group.record.path;
        match self.deed(Call::Freeze(path.clone(), on)) {
            None => return Ok(()),
            Some(refused) if refused || self.fails(Method::Freeze) => {
                return Err(CgroupError::Refused("cgroup.freeze cannot be written".to_owned()));
            }
            Some(_) => {}
        }
        if let Some(found) = self.groups.get_mut(path) {
            found.frozen = on;
        }
        Ok(())
    }

    fn halt(&self, group: &Group, _: Option<ProcessRef>) -> Result<Option<Halt>, CgroupError> {
        let found = self.groups.get(&group.record.path);
        Ok(found.filter(|found| found.frozen).map(|_| Halt::Frozen))
    }

    fn frozen_root(&self) -> Result<Option<PathBuf>, CgroupError> {
        Ok(self.frozen_root.then(|| PathBuf::from("/lrs/cgroup.freeze")))
    }

    fn figures(&self, group: &Group, _: &[(u32, u32)]) -> Option<TaskSample> {
        self.groups.get(&group.record.path)?;
        Some(TaskSample { cpu: Some(Duration::from_secs(1)), ..TaskSample::default() })
    }

    fn cpu_time(&self, group: &Group) -> Option<Option<Duration>> {
        self.groups.get(&group.record.path)?;
        Some(Some(Duration::from_secs(1)))
    }

    fn release(&mut self, group: &Group) -> Result<Option<Halt>, CgroupError> {
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

impl Watch for MadeUp {
    fn watch(&mut self, task: TaskId, pid: Pid, _: Option<Pin>) -> io::Result<Option<Key>> {
        match self.deed(Call::Watch(task, pid)) {
            None => return Ok(None),
            Some(refused) if refused || self.fails(Method::Watch) => {
                return Err(rustix::io::Errno::MFILE.into());
            }
            Some(_) => {}
        }
        if !self.processes.contains_key(&pid) {
            return Ok(None);
        }
        let key = self.number();
        self.watched.insert(key, (task, pid));
        Ok(Some(Key(key)))
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
        let exit = self.exits.get(&process.pid).copied();
        // Each third is looked up first.
        if process.start_ticks.is_multiple_of(3) {
            self.looked_up.push(Message::Exit { task, process, exit });
            return HowEnded::Later;
        }
        exit.map_or(HowEnded::Never, HowEnded::Known)
    }
}

impl Records for MadeUp {
    fn put_task(&mut self, task: &Task) -> Result<(), StateError> {
        if !self.stored(Call::PutTask(task.id), Method::PutTask)? {
            return Ok(());
        }
        self.tasks.insert(task.id, task.clone());
        Ok(())
    }

    fn put_reservation(&mut self, record: &ReservationRecord) -> Result<(), StateError> {
        if !self.stored(Call::PutReservation(record.id), Method::PutReservation)? {
            return Ok(());
        }
        self.reservations.insert(record.id, record.clone());
        Ok(())
    }

    fn forget(&mut self, record: Record) -> Result<(), StateError> {
        if !self.stored(Call::Forget(record), Method::Forget)? {
            return Ok(());
        }
        match record {
            Record::Task(id) => drop(self.tasks.remove(&id)),
            Record::Reservation(id) => drop(self.reservations.remove(&id)),
        }
        Ok(())
    }

    fn append(&mut self, event: &Event) -> Result<(), StateError> {
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

    fn resume(&mut self) -> Result<bool, StateError> {
        if !self.dead {
            self.events.append(&mut self.unstored);
        }
        Ok(std::mem::take(&mut self.removed_files))
    }
}

impl MadeUp {
    /// Whether a deed on the disk has an effect.
    fn stored(&mut self, call: Call, method: Method) -> Result<bool, StateError> {
        match self.deed(call) {
            None => Ok(false),
            Some(refused) if refused || self.fails(method) => {
                let full = rustix::io::Errno::NOSPC.into();
                Err(crate::state::files::at("/run/lrs/state".as_ref(), "write", full))
            }
            Some(_) => Ok(true),
        }
    }
}

impl Jobs for MadeUp {
    fn begin(&mut self, job: Job) {
        let (name, task) = match &job {
            Job::Group(GroupJob::Attach { task, .. }) => ("attach", Some(*task)),
            Job::Group(GroupJob::Reattach { task, .. }) => ("reattach", Some(*task)),
            Job::Group(GroupJob::Release { task, .. }) => ("release", Some(*task)),
            Job::Group(GroupJob::Io { .. }) => ("io", None),
            Job::Group(GroupJob::Remove { task, .. }) => ("remove", Some(*task)),
            Job::Unit(_) => ("unit", None),
            Job::Read(_) => ("read", None),
        };
        // What is begun cannot be refused.
        if self.deed(Call::Begin(name, task)).is_some() {
            self.begun.push_back(job);
        }
    }
}

impl Settings for MadeUp {
    fn load(&mut self) -> Result<Config, String> {
        Ok(self.config.clone())
    }

    fn apply(&mut self, config: &Config) -> Result<Rights, String> {
        Ok(rights(config))
    }
}
