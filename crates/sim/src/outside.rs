//! Everything that outlives the daemon: the node, the stored state, the answers to clients. And the
//! fuse that kills it.
//!
//! Each thing that the daemon does to any of these costs a piece of the fuse, and a daemon with a
//! burnt fuse is gone before it does the next: `kill -9` between any two of its deeds. Half
//! of a deed is never seen, for records are renamed into place, a line of the journal that is cut
//! is not read, and a write to a cgroup file is one call of the kernel.

use std::collections::{BTreeMap, BTreeSet};

use lrs_core::event::{Event, EventKind};
use lrs_core::history_state::HistoryState;
use lrs_core::model::{ReservationId, TaskId};
use lrs_core::state::Reservation;
use lrs_core::task::{Attachment, GroupRecord, Origin, Task};

use crate::node::Node;
use crate::tree::{Inode, ROOT};

/// The daemon was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed;

/// What goes on unless the daemon is killed.
pub type Alive<T> = Result<T, Killed>;

/// What the daemon does to the world outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // each is what it says
pub enum Deed {
    MakeGroup,
    RemoveGroup,
    Weigh,
    Move,
    StoreTask,
    StoreReservation,
    Event,
    ForgetTask,
    ForgetReservation,
    Answer,
}

/// Kills the daemon after so many deeds.
#[derive(Clone, Debug, Default)]
pub struct Fuse {
    left: Option<u32>,
    /// How often it was killed before which deed.
    pub kills: BTreeMap<Deed, u64>,
}

impl Fuse {
    /// The daemon is killed before the deed after the next `deeds`.
    pub fn light(&mut self, deeds: u32) {
        self.left = Some(deeds);
    }

    /// It is not.
    pub fn put_out(&mut self) {
        self.left = None;
    }

    /// A deed is next.
    ///
    /// # Errors
    /// `Killed` if it is not done any more.
    pub fn burn(&mut self, deed: Deed) -> Alive<()> {
        match &mut self.left {
            None => Ok(()),
            Some(0) => {
                self.left = None;
                *self.kills.entry(deed).or_default() += 1;
                Err(Killed)
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

/// The group of a task, as its record has it.
pub fn group_of(task: &Task) -> Option<Inode> {
    task.group.as_ref().map(|group| Inode(group.inode))
}

/// The group its processes were in, which they go back to.
pub fn origin_of(task: &Task) -> Inode {
    let path = task.who.origin.first().and_then(|(_, path)| path.parse().ok());
    path.map_or(ROOT, Inode)
}

/// A place as records have it. The only hierarchy's paths are inodes.
pub fn origin(group: Inode) -> Origin {
    [("unified".into(), group.0.to_string())].into()
}

/// The group that was made for a task.
pub fn own_group(group: Inode, origin: Origin) -> GroupRecord {
    let (attachment, path) = (Attachment::Own, format!("/{}", group.0));
    GroupRecord {
        attachment,
        path,
        inode: group.0,
        origin,
        found: Vec::new(),
        elsewhere: Vec::new(),
        for_member: false,
    }
}

/// The record of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRecord {
    /// The boot it is of.
    pub boot: u32,
    /// The task.
    pub task: Task,
}

/// The state directory.
#[derive(Clone, Debug, Default)]
pub struct Store {
    /// Records of tasks.
    pub tasks: BTreeMap<TaskId, TaskRecord>,
    /// Records of reservations.
    pub reservations: BTreeMap<ReservationId, Reservation>,
    /// The journal, folded.
    pub history_state: HistoryState,
    /// The first thing about the history that cannot be: a gap, a second end.
    pub contradiction: Option<String>,
    ended: BTreeSet<TaskId>,
    /// Reservations that yielded to others.
    pub withdrawn: BTreeSet<ReservationId>,
    /// Which task a reservation was last used for.
    users: BTreeMap<ReservationId, TaskId>,
}

impl Store {
    /// Stores a task.
    pub fn put(&mut self, id: TaskId, record: TaskRecord) {
        if let Some((reservation, _)) = record.task.promise() {
            self.users.insert(*reservation, id);
        }
        self.tasks.insert(id, record);
    }

    /// Forgets a task.
    pub fn forget(&mut self, id: TaskId) {
        self.tasks.remove(&id);
        if !self.was_admitted(id) {
            self.users.retain(|_, user| *user != id);
        }
    }

    /// Whether a task was admitted that used the reservation.
    pub fn was_used(&self, reservation: ReservationId) -> bool {
        self.users.get(&reservation).is_some_and(|id| self.was_admitted(*id))
    }

    /// Whether the history has it that the task was admitted.
    pub fn was_admitted(&self, id: TaskId) -> bool {
        self.history_state.live.contains_key(&id) || self.ended.contains(&id)
    }

    /// Adds to the history.
    pub fn append(&mut self, event: &Event) {
        let expected = self.history_state.counters.next_seq.max(1);
        let task = event.task.as_deref().and_then(|id| id.parse::<TaskId>().ok());
        let live = task.is_some_and(|id| self.history_state.live.contains_key(&id));
        let over = task.is_some_and(|id| self.ended.contains(&id));
        let wrong = match event.kind {
            _ if event.seq != expected => Some("has another number than the next"),
            EventKind::Admitted if live || over => Some("is of a task that was admitted before"),
            EventKind::Completed | EventKind::Released if !live => {
                Some("is of a task that is not there, or has ended before")
            }
            EventKind::Promoted | EventKind::Demoted | EventKind::Priority if !live => {
                Some("is of a task that is not there")
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            self.contradiction.get_or_insert_with(|| format!("{event:?} {wrong}"));
        }
        if matches!(event.kind, EventKind::Completed | EventKind::Released) {
            self.ended.extend(task);
        }
        if event.kind == EventKind::Withdrawn {
            self.withdrawn
                .extend(event.task.as_deref().and_then(|id| id.parse::<ReservationId>().ok()));
        }
        self.history_state.fold(event);
    }
}

/// A client and a call of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call(pub u64);

/// What a client is answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Its process is that task.
    Admitted(TaskId),
    /// It is promised a slot.
    Reserved(ReservationId),
    /// What it asked for was done.
    Done,
    /// It was not, and nothing was changed.
    Refused(String),
}

/// The world that the daemon acts on.
#[derive(Clone, Debug)]
pub struct Outside {
    /// CPUs, disk, groups and processes.
    pub node: Node,
    /// The state directory.
    pub store: Store,
    /// Counts boots.
    pub boot: u32,
    /// See [`Fuse`].
    pub fuse: Fuse,
    /// Answers to clients, until the simulation takes them.
    pub replies: Vec<(Call, Reply)>,
}

/// Name of the group that the tasks' groups are in.
pub const LRS: &str = "lrs";

impl Outside {
    /// The group that the tasks' groups are in, if there is one.
    pub fn lrs(&self) -> Option<Inode> {
        self.node.tree.find(ROOT, LRS)
    }

    /// The tasks' groups, by the tasks they are named after.
    pub fn task_groups(&self) -> BTreeMap<TaskId, Inode> {
        let below = self.lrs().map(|lrs| self.node.tree.below(lrs));
        let named = below.into_iter().flatten();
        named.filter_map(|(inode, group)| Some((group.name.parse().ok()?, inode))).collect()
    }

    /// Answers a client.
    ///
    /// # Errors
    /// `Killed` before the client has the answer.
    pub fn answer(&mut self, call: Call, reply: Reply) -> Alive<()> {
        self.fuse.burn(Deed::Answer)?;
        self.replies.push((call, reply));
        Ok(())
    }

    /// The machine stops and starts anew: no process and no group is left, the state directory is.
    pub fn reboot(&mut self) {
        self.boot += 1;
        self.node = Node::boot(self.node.hardware, self.node.now().wall);
    }
}
