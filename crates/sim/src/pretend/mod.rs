//! A node that is pretended: the loop's [`World`](lrs_executor::world::World) over a simulated node, without root, cgroups, threads or a clock.
//!
//! It runs the same loop as a real node: in the loop's own tests, in simulated clusters, and as `lrsd
//! --pretend`. It decides nothing, and everything follows from what is done to it.
//!
//! | file | job |
//! |---|---|
//! | `world` | what the loop may do to it |
//! | `jobs` | what the loop begins, and the readings |
//! | `machine` | it with a loop, and time |
//! | `tape` | records what its daemons decide |
//! | `fault` | what is done to it, and what goes wrong |
//!
//! Limits. Cgroup v2 with weights for CPU and disk: no `cpu.idle`, no systemd, no rules that find tasks.
//! No threads are read, so that a task enters the I/O lane by what its job did and not by its bursts.
//! Every process may be moved. What is begun is done in its order. Records and history are in
//! memory for as long as it is.

mod fault;
mod jobs;
pub mod machine;
mod tape;
mod world;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::load::Load;
use crate::node::{Hardware, Node};
use crate::tree::{Inode, NEUTRAL, Weights};

use lrs_config::{Config, Version};
use lrs_core::event::Event;
use lrs_core::exit::Exit;
use lrs_core::history_state::HistoryState;
use lrs_core::model::{Level, Priority, ReservationId, TaskId};
use lrs_core::task::Task;
use lrs_core::units::{Moment, Pid, ProcessRef, WallTime};
use lrs_executor::OwnGroup;
use lrs_executor::group::{
    Attachment, Capabilities, CpuTiers, Group, GroupDirs, GroupRecord, IoTiers, Origin,
};
use lrs_executor::job::Job;
use lrs_executor::message::Message;
use lrs_executor::recovered::Recovered;
use lrs_executor::recovered::ReservationRecord;
use lrs_executor::rights::Rights;
use lrs_executor::turn::End;
use lrs_executor::world::{Facts, Settings};

pub use fault::{Call, Deeds, Fault, Method};
pub use machine::Machine;
pub use tape::Tape;

/// The group that LRS makes its groups in.
pub const ROOT: &str = "/lrs";

/// The group that processes start in.
pub const HOME: &str = "/home";

/// The clock of people when the node boots.
pub const BOOT: WallTime = WallTime::from_unix_micros(1_700_000_000_000_000);

/// See the module.
pub struct Pretend {
    node: Node,
    /// The weights that LRS wrote last.
    written: BTreeMap<Inode, (Level, Weights)>,
    watched: BTreeMap<u64, (TaskId, ProcessRef)>,
    next_key: u64,
    /// How watched processes ended.
    exits: BTreeMap<ProcessRef, Exit>,
    /// What is stored.
    pub tasks: BTreeMap<TaskId, Task>,
    /// The same of promises.
    pub reservations: BTreeMap<ReservationId, ReservationRecord>,
    /// The history.
    pub events: Vec<Event>,
    /// Events that were not stored. The next segment of the journal begins with what they changed.
    unstored: Vec<Event>,
    /// The machine stopped since the daemon did.
    rebooted: bool,
    /// Another process has removed files of it.
    pub removed_files: bool,
    begun: VecDeque<Job>,
    /// How main processes ended, as far as that comes later.
    looked_up: Vec<Message>,
    /// Ends that were noticed.
    ends: Vec<End>,
    /// What was done to it, and what goes wrong.
    pub deeds: Deeds,
    /// What a reload finds.
    pub config: Config,
    facts: Facts,
    /// CPU time of the daemon.
    cpu: Duration,
    /// Of one with real clients: what their operator wants.
    pub operator: Option<Box<dyn Settings + Send>>,
    /// Where all goes that the next daemons decide.
    pub tape: Option<Tape>,
}

impl Pretend {
    /// At boot, with the settings that a daemon reads there.
    pub fn boot(hardware: Hardware, config: Config) -> Pretend {
        Pretend::boot_at(BOOT, hardware, config)
    }

    /// The same when the clock of people is `wall`.
    pub fn boot_at(wall: WallTime, hardware: Hardware, config: Config) -> Pretend {
        let mut node = Node::boot(hardware, wall);
        node.tree.make(HOME);
        let facts = Facts {
            capabilities: std::sync::Arc::new(Capabilities {
                version: Some(Version::V2),
                root: ROOT.to_owned(),
                cpu_tiers: CpuTiers::Weight,
                io_tiers: IoTiers::IoCost,
                io_by_thread: false,
                reason: "the node is pretended".to_owned(),
            }),
            root_follows: true,
            root_is_systemds: false,
            systemd_runs: false,
        };
        Pretend {
            node,
            written: BTreeMap::new(),
            watched: BTreeMap::new(),
            next_key: 0,
            exits: BTreeMap::new(),
            tasks: BTreeMap::new(),
            reservations: BTreeMap::new(),
            events: Vec::new(),
            unstored: Vec::new(),
            rebooted: false,
            removed_files: false,
            begun: VecDeque::new(),
            looked_up: Vec::new(),
            ends: Vec::new(),
            deeds: Deeds::default(),
            config,
            facts,
            cpu: Duration::ZERO,
            operator: None,
            tape: None,
        }
    }

    /// Its processes and groups.
    pub fn node(&mut self) -> &mut Node {
        &mut self.node
    }

    /// Both clocks.
    pub fn now(&self) -> Moment {
        self.node.now()
    }

    /// Lets time pass until a process ends by itself, and answers which did; for `time` at most.
    pub fn pass(&mut self, time: Duration) -> Vec<Pid> {
        let ended = self.node.run_to_end(time);
        ended.iter().for_each(|pid| self.note_end(*pid, Some(Exit::Status(0))));
        ended
    }

    /// Lets all of `time` pass.
    pub fn pass_all(&mut self, time: Duration) {
        let until = self.now().boot.after(time);
        while self.now().boot < until {
            self.pass(until.since(self.now().boot));
        }
    }

    /// A new process of `uid` in [`HOME`], which sleeps.
    pub fn start(&mut self, uid: u32) -> ProcessRef {
        self.start_in(HOME, uid)
    }

    /// The same in the group at `path`, which is made if need be.
    pub fn start_in(&mut self, path: &str, uid: u32) -> ProcessRef {
        let group = self.node.tree.make(path);
        self.node.tree.start(group, uid, Load::sleeper())
    }

    /// A child of `parent` in its group, if that is there.
    pub fn fork(&mut self, parent: Pid) -> Option<ProcessRef> {
        self.node.tree.fork(parent, Load::sleeper())
    }

    /// A process ends with `status`, if it is there.
    pub fn exit(&mut self, pid: Pid, status: u8) {
        self.end(pid, Some(Exit::Status(status)));
    }

    /// A process ends, if it is there; `exit`: how, where that is known.
    pub fn end(&mut self, pid: Pid, exit: Option<Exit>) {
        if self.node.tree.processes().contains_key(&pid) {
            self.node.tree.end(pid);
            self.note_end(pid, exit);
        }
    }

    fn note_end(&mut self, pid: Pid, exit: Option<Exit>) {
        let key = self.watched.iter().find(|(_, (_, it))| it.pid == pid).map(|(key, _)| *key);
        if let Some((task, process)) = key.and_then(|key| self.watched.remove(&key)) {
            self.exits.extend(exit.map(|exit| (process, exit)));
            self.ends.push(End::Process(task, pid));
        }
    }

    /// Ends that were noticed since this was last asked.
    pub fn take_ends(&mut self) -> Vec<End> {
        std::mem::take(&mut self.ends)
    }

    /// A process goes into a new group of a stranger's.
    pub fn leave_for(&mut self, pid: Pid, path: &str) {
        self.node.tree.make(path);
        self.move_away(pid, path);
    }

    /// A stranger moves a process, if it and the group are there.
    pub fn move_away(&mut self, pid: Pid, path: &str) {
        if let Some(group) = self.node.tree.at(path) {
            // One that has ended is not moved.
            let _ = self.node.tree.move_process(pid, group);
        }
    }

    /// A stranger writes another weight, where the group is there and may have one.
    pub fn write_foreign(&mut self, path: &str) {
        if let Some(group) = self.node.tree.at(path) {
            // It is there.
            let _ = self.node.tree.weigh(group, Weights { cpu: 77, ..NEUTRAL });
        }
    }

    /// A stranger freezes a group, or thaws it.
    pub fn freeze_as_stranger(&mut self, path: &str, on: bool) {
        if let Some(group) = self.node.tree.at(path) {
            // It is there.
            let _ = self.node.tree.freeze(group, on);
        }
    }

    /// A stranger freezes the group of all tasks, or thaws it.
    pub fn freeze_root(&mut self, on: bool) {
        self.node.tree.make(ROOT);
        self.freeze_as_stranger(ROOT, on);
    }

    /// What outlives the daemon: what was begun and not done is not, and no process is watched.
    pub fn after_kill(self) -> Pretend {
        let (watched, begun, exits) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        let (ends, unstored, looked_up) = (Vec::new(), Vec::new(), Vec::new());
        let deeds = self.deeds.after_kill();
        Pretend { watched, begun, exits, ends, unstored, looked_up, deeds, ..self }
    }

    /// No process and no group is left; of another boot, no promise is believed.
    pub fn reboot(&mut self) {
        let wall = self.now().wall;
        self.node = Node::boot(self.node.hardware, wall);
        self.node.tree.make(HOME);
        self.written.clear();
        self.reservations.clear();
        self.rebooted = true;
    }

    /// The groups of tasks.
    pub fn own_groups(&self) -> Vec<&str> {
        let below = self.node.tree.at(ROOT).into_iter().flat_map(|root| self.node.tree.below(root));
        below.map(|(_, group)| group.path.as_str()).collect()
    }

    fn groups_of_tasks(&self) -> Vec<OwnGroup> {
        let names = self.own_groups().into_iter().filter_map(|path| path.rsplit('/').next());
        let ids: Vec<TaskId> = names.filter_map(|name| name.parse().ok()).collect();
        let found = |task| {
            let group = self.made_for(task)?;
            let inside = self.found(&group).map(|found| self.inside(found)).unwrap_or_default();
            let processes = self.node.tree.processes();
            let mut uids = inside.iter().filter_map(|pid| Some(processes.get(pid)?.uid));
            let first = uids.next();
            let uid = first.filter(|first| uids.all(|uid| uid == *first));
            Some(OwnGroup { task, group, uid })
        };
        ids.into_iter().filter_map(found).collect()
    }

    /// What is stored, for the next daemon.
    fn recovered(&mut self) -> Recovered {
        let tasks = self.tasks.values().cloned().collect();
        let (tasks, tasks_of_earlier_boots) = if std::mem::take(&mut self.rebooted) {
            (Vec::new(), tasks)
        } else {
            (tasks, Vec::new())
        };
        Recovered {
            tasks,
            tasks_of_earlier_boots,
            reservations: self.reservations.values().cloned().collect(),
            events: self.events.clone(),
            ..Recovered::default()
        }
    }

    /// What the history says, from its first event on.
    pub fn history(&self) -> HistoryState {
        let mut history = HistoryState::default();
        self.events.iter().for_each(|event| history.fold(event));
        history
    }

    /// The tasks with processes that are watched.
    pub fn watched(&self) -> impl Iterator<Item = TaskId> {
        self.watched.values().map(|(task, _)| *task)
    }

    /// Those that run, with the groups that they are in.
    pub fn living_in(&self) -> Vec<(Pid, &str)> {
        let processes = self.node.tree.processes().keys();
        processes.filter_map(|pid| Some((*pid, self.group_of(*pid)?))).collect()
    }

    /// The path of the group that a process is in.
    pub fn group_of(&self, pid: Pid) -> Option<&str> {
        let process = self.node.tree.processes().get(&pid)?;
        Some(self.node.tree.groups().get(&process.group)?.path.as_str())
    }

    /// The level that a group's weights are of; `None`: another's, or those it was made with.
    pub fn level(&self, path: &str) -> Option<Level> {
        let group = self.node.tree.at(path)?;
        let (level, weights) = self.written.get(&group)?;
        (self.node.tree.groups().get(&group)?.weights == *weights).then_some(*level)
    }

    /// Whether the group is there.
    pub fn has(&self, path: &str) -> bool {
        self.node.tree.at(path).is_some()
    }

    /// Whether a group is there no more, or is another one of the same path.
    fn is_removed(&self, group: &Group) -> bool {
        self.found(group).is_none()
    }

    /// The group, if it is still that one.
    fn found(&self, group: &Group) -> Option<Inode> {
        let found = self.node.tree.at(&group.record.path);
        found.filter(|found| found.0 == group.record.inode)
    }

    /// The group that was made for a task, if it is there.
    fn made_for(&self, task: TaskId) -> Option<Group> {
        let path = format!("{ROOT}/{task}");
        let found = self.node.tree.at(&path)?;
        Some(own(path, found, Origin::default()))
    }

    /// The processes in a group and below.
    fn inside(&self, top: Inode) -> Vec<Pid> {
        let processes = self.node.tree.processes().iter();
        let inside = processes.filter(|(_, it)| self.node.tree.is_within(it.group, top));
        inside.map(|(pid, _)| *pid).collect()
    }

    fn living(&self, process: ProcessRef) -> Option<&crate::tree::Process> {
        self.node.tree.alive(process)
    }
}

fn own(path: String, inode: Inode, origin: Origin) -> Group {
    let record = GroupRecord {
        attachment: Attachment::Own,
        path,
        inode: inode.0,
        origin,
        found: Vec::new(),
        elsewhere: Vec::new(),
        for_member: false,
    };
    Group { record, dirs: GroupDirs::default() }
}

/// Who may do what: root alone is an administrator, and group 100 has the members.
pub fn rights(config: &Config) -> Rights {
    Rights {
        admins: Vec::new(),
        integrations: Vec::new(),
        lrs_gid: Some(100),
        max_user_priority: Priority(config.slots.max_user_priority),
        reservation_ttl_max: config.slots.reservation_ttl_max,
    }
}
