//! Everything that the loop does to the node, and all that it asks of it: the one seam between the
//! rules and the kernel.
//!
//! The loop is generic over a [`World`]. The real one is `src/node` of lrsd; that of `crates/sim` has none of
//! root, cgroups, threads and clocks.
//!
//! 1. A method does one thing to one task and decides nothing.
//! 2. An error is in a signature only where the loop does something about it; else it is a line in the
//!    log.
//! 3. What may take a millisecond is begun ([`Jobs`]), and comes back as one [`Message`].
//! 4. A group, a [`Pin`] and a [`Key`] are names that the world gave; the loop only hands them back.
//! 5. Time is no question to the world: each turn has one [`Moment`](lrs_core::units::Moment).
//!
//! [`Message`]: super::message::Message

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::job::Job;
use crate::command::CommandError;
use crate::group::{
    Capabilities, CgroupError, Drift, Effects, Group, GroupRecord, KernelView, Members, Origin,
    Position, Surroundings, WeightPlan,
};
use crate::recovered::ReservationRecord;
use crate::rights::Rights;
use lrs_config::Config;
use lrs_config::rule::Rule;
use lrs_core::event::Event;
use lrs_core::exit::Exit;
use lrs_core::model::{Level, TaskId};
use lrs_core::neighbours::RootWeight;
use lrs_core::sample::TaskSample;
use lrs_core::step::Record;
use lrs_core::task::{Halt, Task};
use lrs_core::units::{BootTime, Pid, ProcessRef, Uids};

/// See the module.
pub trait World: Kernel + Watch + Records + Jobs + Settings {}

impl<W: Kernel + Watch + Records + Jobs + Settings> World for W {}

/// What this node can do, and who writes the weight of the root.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Controllers, and how tiers are made of them.
    pub capabilities: Arc<Capabilities>,
    /// The weight of the root follows what the active tier wants.
    pub root_follows: bool,
    /// The weight of the root is systemd's to write.
    pub root_is_systemds: bool,
    /// systemd is the init process, so it can be asked about its units.
    pub systemd_runs: bool,
}

/// Keeps a process from being taken for another one while it lives.
#[derive(Debug, Default)]
pub struct Pin(pub Option<OwnedFd>);

/// Who a pid is.
#[derive(Debug)]
pub struct Identity {
    /// Pid and start time.
    pub process: ProcessRef,
    /// Its owners; the effective one counts.
    pub uids: Uids,
    /// Whether it leads its session.
    pub leads_session: bool,
    /// When it started.
    pub started: BootTime,
    /// For [`Watch::watch`].
    pub pin: Pin,
}

/// Where the main process of a task is, seen from the task's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// In the group or below it.
    Inside,
    /// In this group, which was made after the task's: it went there by its own doing.
    WentTo(String),
    /// The group is there no more, or is another one of the same path.
    GroupRemoved,
    /// Somewhere else, or not known.
    Elsewhere,
}

/// What a move takes a process out of.
#[derive(Clone, Copy, Debug)]
pub enum Move<'a> {
    /// From where it is to LRS's root.
    ToRoot,
    /// From there to LRS's root.
    From(&'a Origin),
    /// From where it is into the group at this path.
    Into(&'a str),
}

/// The node's cgroups and processes: at once, in microseconds, on the loop's own thread.
pub trait Kernel {
    /// The file with the CPU time of one group, open from the first reading on; dropped when no other is
    /// to come.
    type CpuFile: Default;

    /// What the node can do now.
    fn facts(&self) -> &Facts;

    /// What is worse on this node than it could be, one sentence each; `plan`: what the weights promise.
    fn warnings(&self, plan: &WeightPlan) -> Vec<String>;

    /// Makes tiers by `effects` from now on. `true`: tasks have to be weighed anew.
    fn adopt(&mut self, effects: Effects) -> bool;

    /// Who `pid` is.
    ///
    /// # Errors
    /// It is gone, or cannot be a task; the words are for the client.
    fn identify(&self, pid: Pid) -> Result<Identity, CommandError>;

    /// Whether `process` still runs; a zombie does not.
    fn lives(&self, process: ProcessRef) -> bool;

    /// Where `process` is.
    ///
    /// # Errors
    /// It has ended, or cannot be read.
    fn position(&self, process: ProcessRef) -> Result<Position, CgroupError>;

    /// Whether `pid` may be in the cgroup of a unit of systemd's that systemd writes weights to.
    fn may_be_in_unit(&self, pid: Pid) -> bool;

    /// Who holds `process`, and whether its group holds only `members`; `None`: nothing is moved here.
    ///
    /// # Errors
    /// It has ended, or cannot be read.
    fn surroundings(
        &self,
        process: ProcessRef,
        members: Members,
        foreign_unit: bool,
    ) -> Result<Option<Surroundings>, CgroupError>;

    /// The limit that `process` would escape by a move.
    fn escaped_limit(&self, process: ProcessRef, by: Move<'_>) -> Option<String>;

    /// The present group of `process`, to be managed in place; `cgroup`: where it has to be.
    ///
    /// # Errors
    /// It is elsewhere, or its group cannot be managed.
    fn find_in_place(
        &self,
        process: ProcessRef,
        cgroup: Option<&str>,
    ) -> Result<Group, CgroupError>;

    /// The group of `record`, which need not be there.
    fn presumed(&self, record: &GroupRecord) -> Group;

    /// The group of `record`; `None`: it is gone, or another one took its path.
    ///
    /// # Errors
    /// That cannot be read.
    fn reopen(&self, record: &GroupRecord) -> Result<Option<Group>, CgroupError>;

    /// The processes in `group` and below, without those that a rule leaves to a scheduler. None where the
    /// group is gone.
    ///
    /// # Errors
    /// A file cannot be read.
    fn members(&self, group: &Group, except: Option<&Rule>) -> Result<Vec<Pid>, CgroupError>;

    /// Where `process` is, seen from `group`.
    ///
    /// # Errors
    /// It cannot be read, or has ended.
    fn whereabouts(&self, group: &Group, process: ProcessRef) -> Result<Whereabouts, CgroupError>;

    /// Whether all in `group` is `owner`'s.
    ///
    /// # Errors
    /// `Denied` where it is not.
    fn check_owner(&self, group: &Group, owner: u32) -> Result<(), CgroupError>;

    /// What is known of `group` in place once the weights count that its owner has written since LRS
    /// did; `None`: none were.
    ///
    /// # Errors
    /// It cannot be read.
    fn owner_wrote(&self, group: &Group) -> Result<Option<GroupRecord>, CgroupError>;

    /// Writes the weights of `level` where they differ. The promotion path.
    ///
    /// # Errors
    /// What the kernel refused; a group in place is then as it was.
    fn weigh(&mut self, group: &Group, level: Level, plan: &WeightPlan) -> Result<(), CgroupError>;

    /// What of the weights of `group` is not as [`Kernel::weigh`] writes it.
    ///
    /// # Errors
    /// It cannot be read.
    fn drift(
        &self,
        group: &Group,
        level: Level,
        plan: &WeightPlan,
    ) -> Result<Vec<Drift>, CgroupError>;

    /// What the files of `group` say now.
    ///
    /// # Errors
    /// They cannot be read.
    fn show(&self, group: &Group) -> Result<KernelView, CgroupError>;

    /// Writes the root's own weight where it differs; answers what did.
    ///
    /// # Errors
    /// What the kernel refused.
    fn weigh_root(&mut self, weight: RootWeight) -> Result<Vec<Drift>, CgroupError>;

    /// Freezes an own group, or thaws what LRS froze.
    ///
    /// # Errors
    /// What the kernel refused; of a freeze also that others froze it.
    fn freeze(&mut self, group: &Group, on: bool) -> Result<(), CgroupError>;

    /// What others did to a task: its group is frozen, or its main process stopped.
    ///
    /// # Errors
    /// It cannot be read.
    fn halt(&self, group: &Group, main: Option<ProcessRef>) -> Result<Option<Halt>, CgroupError>;

    /// The file by which others froze the root.
    ///
    /// # Errors
    /// It cannot be read.
    fn frozen_root(&self) -> Result<Option<PathBuf>, CgroupError>;

    /// The counters of `group` now, with the bytes of `disks`; `None`: it is gone.
    fn figures(&self, group: &Group, disks: &[(u32, u32)]) -> Option<TaskSample>;

    /// Its CPU time alone; within, `None`: that is not known. `file`: a new one, or the same group's.
    fn cpu_time(&mut self, group: &Group, file: &mut Self::CpuFile) -> Option<Option<Duration>>;

    /// Gives the processes of an own group back, or its weights to one in place. Answers what keeps
    /// the processes where they are: that others froze it, or stopped it where `keep_stopped`.
    ///
    /// # Errors
    /// What the kernel refused; asked again it goes on.
    fn release(&mut self, group: &Group, keep_stopped: bool) -> Result<Option<Halt>, CgroupError>;

    /// Removes the own group of a task that is over; one in place gets its weights back.
    ///
    /// # Errors
    /// What the kernel refused; asked again it goes on.
    fn remove(&mut self, group: &Group) -> Result<(), CgroupError>;
}

/// A watched process; for [`Watch::unwatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub u64);

/// How a main process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HowEnded {
    /// So.
    Known(Exit),
    /// It is looked up, and comes as [`Message::Exit`](super::message::Message::Exit).
    Later,
    /// Nothing will tell.
    Never,
}

/// Ends of processes, which come as [`End`](super::turn::End).
pub trait Watch {
    /// Watches a process of `task` until it ends; `None`: it has, or its number is that of one that did not
    /// start at `start_ticks`, where that is known.
    ///
    /// # Errors
    /// Most likely out of descriptors; the groups and each cycle tell too.
    fn watch(
        &mut self,
        task: TaskId,
        pid: Pid,
        start_ticks: Option<u64>,
        pin: Option<Pin>,
    ) -> io::Result<Option<Key>>;

    /// Watches whether the group of `task` is empty, where the kernel tells.
    ///
    /// # Errors
    /// As above.
    fn watch_group(&mut self, task: TaskId, group: &Group) -> io::Result<()>;

    /// Ends all watches of a task.
    fn unwatch(&mut self, task: TaskId, processes: impl IntoIterator<Item = Key>);

    /// How a main process ended, that ended in this turn.
    fn how_ended(&mut self, task: TaskId, process: ProcessRef) -> HowEnded;
}

/// What is stored.
#[derive(Clone, Copy, Debug)]
pub enum Storable<'a> {
    /// A task, which is its own record.
    Task(&'a Task),
    /// A promise.
    Reservation(&'a ReservationRecord),
}

/// Why something was not stored: a sentence that names the file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotStored(pub String);

/// What survives the daemon.
pub trait Records {
    /// Stores what is known in place of its record.
    ///
    /// # Errors
    /// It was not stored.
    fn put(&mut self, known: Storable<'_>) -> Result<(), NotStored>;

    /// Removes a record.
    ///
    /// # Errors
    /// It is still there.
    fn forget(&mut self, record: Record) -> Result<(), NotStored>;

    /// Adds to the history.
    ///
    /// # Errors
    /// It was not stored.
    fn append(&mut self, event: &Event) -> Result<(), NotStored>;

    /// Makes the history whole again after a write of it failed or its files were removed. Answers whether
    /// that was necessary; then records may be gone too.
    ///
    /// # Errors
    /// It was not stored.
    fn resume(&mut self) -> Result<bool, NotStored>;
}

/// What takes long.
pub trait Jobs {
    /// Begins it.
    fn begin(&mut self, job: Job);
}

/// What the operator wants.
pub trait Settings {
    /// Reads the configuration file.
    ///
    /// # Errors
    /// What is wrong with it.
    fn load(&mut self) -> Result<Config, String>;

    /// Changes the log filter to that of `config`; answers who may do what by it.
    ///
    /// # Errors
    /// What is wrong with the filter.
    fn apply(&mut self, config: &Config) -> Result<Rights, String>;
}
