//! The world that is made up. It has processes, groups with weights, records and jobs, and decides
//! nothing; what the loop does to it is written down.
//!
//! Each thing that is done to it is a deed, counted from the start. A [`Fault`] lies before one of them:
//! the daemon is killed, so that nothing that it does from then on has an effect; the deed is refused; or a
//! stranger acts. Half of a deed is never seen: records are renamed into place, a line of the journal that
//! is cut is not read, and a write to a cgroup file is one call of the kernel.

mod world;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::cgroup::{
    Attached, Attachment, CgroupError, Drift, Group, GroupDirs, GroupRecord, KernelView, Origin,
};
use crate::config::Config;
use crate::core::event::{Event, EventKind};
use crate::core::exit::Exit;
use crate::core::model::{Level, Priority, ReservationId, TaskId, Tier};
use crate::core::sample::{NodeSample, Sample};
use crate::core::step::Record;
use crate::core::task::{Halt, Task};
use crate::driver::job::{CycleRequest, GroupJob, Job, UnitJob};
use crate::driver::message::{Ahead, CycleReport, Message, Placed};
use crate::driver::turn::End;
use crate::driver::world::Kernel as _;
use crate::rights::Rights;
use crate::state::record::ReservationRecord;
use crate::units::{Moment, Pid, ProcessRef};

/// The group that LRS makes its groups in.
pub const ROOT: &str = "/lrs";

/// The group that processes start in.
pub const HOME: &str = "/home";

/// What the loop did.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each is the method of its name
pub enum Call {
    /// A group by its path.
    Weigh(String, Level),
    WeighRoot,
    Freeze(String, bool),
    Release(String),
    Remove(String),
    PutTask(TaskId),
    PutReservation(ReservationId),
    Forget(Record),
    Append(EventKind, Option<TaskId>),
    Watch(TaskId, Pid),
    Unwatch(TaskId),
    Begin(&'static str, Option<TaskId>),
    /// By a thread.
    Make(String),
    Move(Pid),
}

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Method {
    Identify,
    Members,
    Weigh,
    WeighRoot,
    Show,
    Freeze,
    Release,
    Remove,
    Watch,
    PutTask,
    PutReservation,
    Forget,
    Append,
    Attach,
}

/// What lies before a deed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The daemon is killed.
    Kill,
    /// The deed is refused, where it can be.
    Refuse,
    /// A process ends.
    Exit(Pid),
    /// A stranger moves a process to [`HOME`].
    Move(Pid),
    /// A stranger writes a weight into the group of a process.
    Write(Pid),
}

/// A process.
#[derive(Clone, Debug)]
struct Process {
    start_ticks: u64,
    uid: u32,
    group: String,
}

/// A group.
#[derive(Clone, Debug)]
struct MadeUpGroup {
    inode: u64,
    level: Option<Level>,
    /// A stranger wrote another weight since.
    foreign: bool,
    frozen: bool,
}

/// See the module.
#[derive(Default)]
pub struct MadeUp {
    processes: BTreeMap<Pid, Process>,
    groups: BTreeMap<String, MadeUpGroup>,
    next: u64,
    watched: BTreeMap<u64, (TaskId, Pid)>,
    /// What is stored.
    pub tasks: BTreeMap<TaskId, Task>,
    /// The same of promises.
    pub reservations: BTreeMap<ReservationId, ReservationRecord>,
    /// The history.
    pub events: Vec<Event>,
    /// Events that were not stored. The next segment of the journal begins with what they changed.
    unstored: Vec<Event>,
    /// The machine stopped since the daemon did.
    pub rebooted: bool,
    /// Another process has removed files of it.
    pub removed_files: bool,
    begun: VecDeque<Job>,
    /// How main processes ended, as far as that comes later.
    looked_up: Vec<Message>,
    /// What was done since it was last looked at.
    pub calls: Vec<Call>,
    /// How often each of these fails from now on.
    refused: RefCell<BTreeMap<Method, usize>>,
    /// Ends that were noticed.
    pub ends: Vec<End>,
    exits: BTreeMap<Pid, Exit>,
    frozen_root: bool,
    /// Deeds so far.
    pub deeds: usize,
    /// What lies before which deed.
    pub fault: Option<(usize, Fault)>,
    dead: bool,
    /// What a reload finds.
    pub config: Config,
}

impl MadeUp {
    /// The next `times` calls of `method` fail.
    pub fn refuse(&mut self, method: Method, times: usize) {
        self.refused.get_mut().insert(method, times);
    }

    fn fails(&self, method: Method) -> bool {
        let mut refused = self.refused.borrow_mut();
        let Some(left) = refused.get_mut(&method).filter(|left| **left > 0) else { return false };
        *left -= 1;
        true
    }

    /// The next deed. `None`: it is not done, for the daemon is dead; else whether it is refused.
    fn deed(&mut self, call: Call) -> Option<bool> {
        let fault = self.fault.filter(|(at, _)| *at == self.deeds).map(|(_, fault)| fault);
        self.deeds += 1;
        self.fault = self.fault.filter(|_| fault.is_none());
        match fault {
            Some(Fault::Kill) => self.dead = true,
            Some(Fault::Exit(pid)) if self.processes.contains_key(&pid) => self.exit(pid, 1),
            Some(Fault::Move(pid)) if self.processes.contains_key(&pid) => {
                self.move_away(pid, HOME);
            }
            Some(Fault::Write(pid)) => {
                let group = self.processes.get(&pid).and_then(|it| self.groups.get_mut(&it.group));
                if let Some(group) = group {
                    group.foreign = true;
                }
            }
            Some(Fault::Refuse | Fault::Exit(_) | Fault::Move(_)) | None => {}
        }
        if self.dead {
            return None;
        }
        self.calls.push(call);
        Some(fault == Some(Fault::Refuse))
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A new process of `uid` in [`HOME`].
    pub fn start(&mut self, uid: u32) -> ProcessRef {
        let number = self.number();
        let pid = Pid::new(1000 + number as i32).unwrap();
        self.processes.insert(pid, Process { start_ticks: number, uid, group: HOME.to_owned() });
        ProcessRef { pid, start_ticks: number }
    }

    /// What outlives the daemon: what was begun and not done is not, and no process is watched.
    pub fn after_kill(self) -> MadeUp {
        let (watched, begun) = (BTreeMap::new(), VecDeque::new());
        let (refused, ends, calls) = (RefCell::default(), Vec::new(), Vec::new());
        let (unstored, looked_up, dead, fault) = (Vec::new(), Vec::new(), false, None);
        MadeUp { watched, begun, looked_up, refused, ends, calls, unstored, dead, fault, ..self }
    }

    /// No process and no group is left; of another boot, no promise is believed.
    pub fn reboot(&mut self) {
        self.processes.clear();
        self.groups.clear();
        self.reservations.clear();
        (self.frozen_root, self.rebooted) = (false, true);
    }

    /// A child of `parent`, in its group.
    pub fn fork(&mut self, parent: Pid) -> ProcessRef {
        let Process { uid, group, .. } = self.processes[&parent].clone();
        let child = self.start(uid);
        self.processes.get_mut(&child.pid).unwrap().group = group;
        child
    }

    /// A process ends with `status`.
    pub fn exit(&mut self, pid: Pid, status: u8) {
        self.processes.remove(&pid).unwrap();
        self.exits.insert(pid, Exit::Status(status));
        let key = self.watched.iter().find(|(_, watched)| watched.1 == pid).map(|(key, _)| *key);
        if let Some((task, pid)) = key.and_then(|key| self.watched.remove(&key)) {
            self.ends.push(End::Process(task, pid));
        }
    }

    /// A group of a stranger's with a process of `uid` in it.
    pub fn start_in(&mut self, path: &str, uid: u32) -> ProcessRef {
        let process = self.start(uid);
        self.leave_for(process.pid, path);
        process
    }

    /// A process goes into a new group of a stranger's.
    pub fn leave_for(&mut self, pid: Pid, path: &str) {
        let inode = self.number();
        let made = MadeUpGroup { inode, level: None, foreign: false, frozen: false };
        self.groups.insert(path.to_owned(), made);
        self.move_away(pid, path);
    }

    /// The groups below [`ROOT`].
    pub fn own_groups(&self) -> Vec<&str> {
        let paths = self.groups.keys().filter(|path| crate::cgroup::is_within(path, ROOT));
        paths.map(String::as_str).collect()
    }

    /// The tasks with processes that are watched.
    pub fn watched(&self) -> impl Iterator<Item = TaskId> {
        self.watched.values().map(|(task, _)| *task)
    }

    /// Those that run, with the groups that they are in.
    pub fn living_in(&self) -> Vec<(Pid, &str)> {
        self.processes.iter().map(|(pid, it)| (*pid, it.group.as_str())).collect()
    }

    /// A stranger moves a process, if it is there.
    pub fn move_away(&mut self, pid: Pid, group: &str) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.group = group.to_owned();
        }
    }

    /// Whether a group is there no more, or is another one of the same path.
    pub fn is_removed(&self, group: &Group) -> bool {
        let found = self.groups.get(&group.record.path);
        found.is_none_or(|found| found.inode != group.record.inode)
    }

    /// The group that was made for a task, if it is there.
    pub fn made_for(&self, task: TaskId) -> Option<Group> {
        let path = format!("{ROOT}/{task}");
        let found = self.groups.get(&path)?;
        Some(own(path, found.inode, Default::default()))
    }

    /// The group a process is in.
    pub fn group_of(&self, pid: Pid) -> &str {
        &self.processes[&pid].group
    }

    /// A stranger writes another weight.
    pub fn write_foreign(&mut self, path: &str) {
        self.groups.get_mut(path).unwrap().foreign = true;
    }

    /// The level that a group's weights are of; `None`: another's, or those it was made with.
    pub fn level(&self, path: &str) -> Option<Level> {
        self.groups.get(path).filter(|group| !group.foreign).and_then(|group| group.level)
    }

    /// Whether the group is there.
    pub fn has(&self, path: &str) -> bool {
        self.groups.contains_key(path)
    }

    /// A stranger freezes a group, or thaws it.
    pub fn freeze_as_stranger(&mut self, path: &str, on: bool) {
        self.groups.get_mut(path).unwrap().frozen = on;
    }

    /// A stranger freezes the group of all tasks.
    pub fn freeze_root(&mut self, on: bool) {
        self.frozen_root = on;
    }

    pub(super) fn inside(&self, path: &str) -> Vec<Pid> {
        let within = |process: &Process| crate::cgroup::is_within(&process.group, path);
        self.processes.iter().filter(|(_, process)| within(process)).map(|(pid, _)| *pid).collect()
    }

    fn living(&self, process: ProcessRef) -> Option<&Process> {
        self.processes.get(&process.pid).filter(|it| it.start_ticks == process.start_ticks)
    }

    /// Does what was begun first, as the threads do; `None`: nothing was.
    pub fn finish(&mut self, now: Moment) -> Option<Vec<Message>> {
        if self.dead {
            return None;
        }
        let Some(job) = self.begun.pop_front() else {
            return self.looked_up.pop().map(|it| vec![it]);
        };
        Some(match job {
            Job::Group(job) => self.finish_group(job),
            Job::Unit(UnitJob::ShapeRoot { .. }) => vec![Message::RootShaped { result: Ok(()) }],
            Job::Unit(job) => panic!("no test has units: {job:?}"),
            Job::Read(request) => match request.cycle {
                Some(cycle) => vec![Message::Cycle(Box::new(self.read(cycle, now)))],
                None => {
                    let (at, node) = (now.boot, NodeSample::default());
                    let ahead = Ahead { at, node, sizes: Vec::new(), cost: Duration::ZERO };
                    vec![Message::ReadAhead(Box::new(ahead))]
                }
            },
        })
    }

    fn finish_group(&mut self, job: GroupJob) -> Vec<Message> {
        let mut messages = Vec::new();
        match job {
            GroupJob::Attach { task, process, origin, found, tier, .. } => {
                let result = self.attach(task, process, origin, found, tier);
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
                let moved = self.move_into(process, &group.record.path);
                let result = moved.map(|()| Attached { moved: 1 });
                messages.push(Message::Reattached { task, result });
            }
            GroupJob::Release { task, group, .. } => {
                let result = self.release_now(&group);
                messages.push(Message::Released { task, result });
            }
            GroupJob::Io { .. } => {}
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
        tier: Option<Tier>,
    ) -> Result<Placed, (Option<Arc<Group>>, CgroupError)> {
        if self.fails(Method::Attach) {
            let error = CgroupError::Refused("it may not be moved".to_owned());
            return Err((None, error));
        }
        let in_place = found.is_some();
        let group = match found {
            Some(group) => group,
            None => Arc::new(self.make(task, origin).map_err(|error| (None, error))?),
        };
        let path = &group.record.path;
        let placed = tier.map_or(Ok(()), |tier| self.write(path, tier.into()));
        let placed = placed.and_then(|()| match in_place {
            true => Ok(()),
            false => self.move_from(process, &group),
        });
        match placed {
            Ok(()) => Ok((group, Attached { moved: 1 }, tier)),
            Err(error) => Err(((!in_place).then_some(group), error)),
        }
    }

    fn make(&mut self, task: TaskId, origin: Origin) -> Result<Group, CgroupError> {
        let path = format!("{ROOT}/{task}");
        if self.deed(Call::Make(path.clone())).is_none_or(|refused| refused) {
            return Err(CgroupError::Refused(format!("{path} cannot be made")));
        }
        let inode = self.number();
        let made = MadeUpGroup { inode, level: None, foreign: false, frozen: false };
        self.groups.insert(path.clone(), made);
        Ok(own(path, inode, origin))
    }

    fn write(&mut self, path: &str, level: Level) -> Result<(), CgroupError> {
        match self.deed(Call::Weigh(path.to_owned(), level)) {
            None => return Ok(()),
            Some(refused) if refused || self.fails(Method::Weigh) => {
                return Err(CgroupError::Refused("cpu.weight cannot be written".to_owned()));
            }
            Some(_) => {}
        }
        let found = self.groups.get_mut(path);
        let found = found.ok_or_else(|| CgroupError::Refused(format!("{path} is gone")))?;
        (found.level, found.foreign) = (Some(level), false);
        Ok(())
    }

    /// Moves a process into its task's group, from where it was judged to be.
    fn move_from(&mut self, process: ProcessRef, group: &Group) -> Result<(), CgroupError> {
        let judged = group.record.origin.first().map(|(_, path)| path);
        if self.living(process).is_some_and(|living| Some(&living.group) != judged) {
            let pid = process.pid;
            return Err(CgroupError::MovedMeanwhile(format!("process {pid} was moved meanwhile")));
        }
        self.move_into(process, &group.record.path)
    }

    fn move_into(&mut self, process: ProcessRef, path: &str) -> Result<(), CgroupError> {
        match self.deed(Call::Move(process.pid)) {
            None => return Ok(()),
            Some(true) => return Err(CgroupError::Refused("it may not be moved".to_owned())),
            Some(false) => {}
        }
        if self.living(process).is_none() {
            return Err(CgroupError::ProcessGone(process.pid));
        }
        if !self.groups.contains_key(path) {
            return Err(CgroupError::Refused(format!("{path} is gone")));
        }
        self.move_away(process.pid, path);
        Ok(())
    }

    fn release_now(&mut self, group: &Group) -> Result<Option<Halt>, CgroupError> {
        if self.fails(Method::Release) {
            return Err(CgroupError::Refused("a process cannot be moved".to_owned()));
        }
        let path = &group.record.path;
        if group.record.attachment != Attachment::Own {
            return Ok(None);
        }
        for pid in self.inside(path) {
            match self.deed(Call::Move(pid)) {
                None => return Ok(None),
                Some(true) => {
                    return Err(CgroupError::Refused("a process cannot be moved".to_owned()));
                }
                Some(false) => {}
            }
            let home = group.record.origin.first().map_or(HOME, |(_, path)| path.as_str());
            self.move_away(pid, home);
        }
        self.remove_now(group).map(|()| None)
    }

    fn remove_now(&mut self, group: &Group) -> Result<(), CgroupError> {
        let path = &group.record.path;
        match self.deed(Call::Remove(path.clone())) {
            None => return Ok(()),
            Some(refused)
                if refused || self.fails(Method::Remove) || !self.inside(path).is_empty() =>
            {
                return Err(CgroupError::Refused(format!("{path} is busy")));
            }
            Some(_) => {}
        }
        if group.record.attachment == Attachment::Own {
            self.groups.remove(path);
        }
        Ok(())
    }

    /// A reading of a node with two CPUs that are never idle.
    fn read(&self, cycle: CycleRequest, now: Moment) -> CycleReport {
        let kernel = cycle
            .check
            .iter()
            .filter(|check| check.weights)
            .map(|check| {
                let shown = self.shown(&check.group);
                let drifts = self.drifts(&check.group, check.level);
                (check.task, shown.map(|shown| Some((shown, drifts))))
            })
            .collect();
        let shaped = cycle.check.iter().filter(|check| !check.frozen);
        let halts = shaped
            .filter_map(|check| Some((check.task, self.halt(&check.group, check.main).ok()?)))
            .collect();
        let outside = cycle.members.iter().filter(|(_, group, process)| {
            let living = self.living(*process);
            living.is_some_and(|it| !crate::cgroup::is_within(&it.group, &group.record.path))
        });
        let outside = outside.map(|(task, ..)| *task).collect();
        CycleReport {
            sample: Sample {
                at: now.boot,
                node: NodeSample::default(),
                tasks: Vec::new(),
                took: Duration::ZERO,
            },
            asked_at: cycle.asked_at,
            due: cycle.due,
            kernel,
            outside,
            entered: Vec::new(),
            kept_files: (0, 0),
            disks: Vec::new(),
            effects: None,
            halts,
            frozen_root: Ok(self.frozen_root.then(|| PathBuf::from("/lrs/cgroup.freeze"))),
        }
    }

    fn shown(&self, group: &Group) -> Result<KernelView, CgroupError> {
        match self.groups.get(&group.record.path) {
            Some(found) => {
                let weight = match found.level {
                    None => 100,
                    Some(Level::Passive) => 1,
                    Some(_) => 10_000,
                };
                Ok(KernelView { cpu_weight: Some(weight), ..KernelView::default() })
            }
            None => Err(CgroupError::Refused(format!("{} is gone", group.record.path))),
        }
    }

    fn drifts(&self, group: &Group, level: Level) -> Vec<Drift> {
        match self.groups.get(&group.record.path) {
            Some(found) if found.foreign || found.level != Some(level) => vec![Drift {
                file: "cpu.weight".to_owned(),
                found: "77".to_owned(),
                expected: format!("{level}"),
            }],
            _ => Vec::new(),
        }
    }
}

fn own(path: String, inode: u64, origin: Origin) -> Group {
    let record = GroupRecord {
        attachment: Attachment::Own,
        path,
        inode,
        origin,
        found: Vec::new(),
        elsewhere: Vec::new(),
        for_member: false,
    };
    Group { record, dirs: GroupDirs::default() }
}

/// Root alone is an administrator; group 100 has the members.
pub fn rights(config: &Config) -> Rights {
    Rights {
        admins: Vec::new(),
        integrations: Vec::new(),
        lrs_gid: Some(100),
        max_user_priority: Priority(config.slots.max_user_priority),
        reservation_ttl_max: config.slots.reservation_ttl_max,
    }
}
