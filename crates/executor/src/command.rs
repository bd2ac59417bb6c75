//! What any client may ask, over whichever transport.
//!
//! gRPC and D-Bus translate a request into one [`Command`], sends it to the
//! loop and gets one answer. Who may do what is decided where the command is carried out,
//! by [`crate::rights`]; a server only says who is asking.

use std::fmt;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{mpsc, oneshot};

use crate::found::{DiscoveredTask, Hint};
use crate::group::CgroupError;
use crate::recorder::Recorded;
use lrs_api::proto;
use lrs_core::event::Change;
use lrs_core::model::{Label, Labels, Priority, ReservationId, TaskId, WaiterId};
use lrs_core::name;
pub use lrs_core::queue::Mark as QueueMark;
use lrs_core::state::{Lease, Refusal};
use lrs_core::unit::UnitName;
use lrs_core::units::{Pid, ProcessRef, WallTime};

/// What a caller is to this daemon, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// May look.
    Reader,
    /// May manage what is its own.
    Member,
    /// May speak for a scheduler.
    Integration,
    /// May do all.
    Admin,
}

/// The caller, as the kernel names it (SO_PEERCRED, SO_PEERGROUPS; unix(7)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Effective uid at connect time.
    pub uid: u32,
    /// Primary and supplementary gids.
    pub gids: Vec<u32>,
    /// The process, where the server can know it.
    pub process: CallerProcess,
    /// What an authority (polkit) granted for this one call. It adds to the table of
    /// [`crate::rights`], it never takes away.
    pub granted: Option<Role>,
}

/// The process that asks. The pids that it names are those of its own pid namespace
/// (pid_namespaces(7)), so they mean something here only if that is lrsd's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerProcess {
    /// Its pid namespace is lrsd's.
    Here(ProcessRef),
    /// It is in another pid namespace, below lrsd's: a container's, for example.
    Inside(ProcessRef),
    /// It cannot be seen from lrsd's pid namespace, or the command is no client's.
    Unseen,
    /// It had ended before it was looked at.
    Ended,
    /// It could not be looked at. In words, why.
    Unknown(String),
}

impl CallerProcess {
    /// Its pid in lrsd's pid namespace.
    pub fn pid(&self) -> Option<Pid> {
        match self {
            CallerProcess::Here(process) | CallerProcess::Inside(process) => Some(process.pid),
            CallerProcess::Unseen | CallerProcess::Ended | CallerProcess::Unknown(_) => None,
        }
    }
}

/// Where the answer goes.
pub type Reply<T> = oneshot::Sender<Result<T, CommandError>>;

/// A request to the loop.
#[derive(Debug)]
#[allow(missing_docs)] // the fields say it; each variant is one rpc of the contract
pub enum Command {
    /// From a finder inside the daemon, never from a client. Asked again for the same process it
    /// brings priority, standing and missing labels of that task up to date. Answers when the
    /// processes are in place.
    ///
    /// Never refused for want of a slot. `NotFound`: the process has ended. `AlreadyExists`: it
    /// is in a task that was announced or found before. `FailedPrecondition`: it may not be
    /// taken, or not now; the message says why.
    Discover {
        found: Box<DiscoveredTask>,
        reply: Reply<TaskId>,
    },
    Admit {
        caller: Caller,
        request: AdmitRequest,
        reply: Reply<proto::Task>,
    },
    Reserve {
        caller: Caller,
        request: ReserveRequest,
        reply: Reply<proto::Reservation>,
    },
    CancelReservation {
        caller: Caller,
        id: QueueId,
        reply: Reply<()>,
    },
    /// A page of those that wait, and of reservations. Needs no right.
    ListQueue {
        caller: Caller,
        request: QueueRequest,
        reply: Reply<QueuePage>,
    },
    Release {
        caller: Caller,
        id: TaskId,
        reply: Reply<()>,
    },
    SetPriority {
        caller: Caller,
        id: TaskId,
        priority: Priority,
        reply: Reply<proto::Task>,
    },
    SetJobPriority {
        caller: Caller,
        request: JobPriority,
        reply: Reply<proto::SetJobPriorityResponse>,
    },
    Drain {
        caller: Caller,
        reply: Reply<()>,
    },
    Resume {
        caller: Caller,
        reply: Reply<()>,
    },
    /// Answers the keys that changed.
    Reload {
        caller: Caller,
        reply: Reply<Vec<String>>,
    },
    /// Answers what is recorded from now on.
    Record {
        caller: Caller,
        reply: Reply<UnboundedReceiver<Recorded>>,
    },
    /// Answers what a test of the tiers showed.
    VerifyTiers {
        caller: Caller,
        reply: Reply<proto::CgroupStatus>,
    },
    /// What a scheduler says of its containers. `Unavailable`: the finder does not take it just
    /// now. `FailedPrecondition`: there is none.
    Hint {
        caller: Caller,
        hints: Vec<Hint>,
        reply: Reply<()>,
    },
    /// How this node stands with a scheduler, and what belongs into the history.
    ReportIntegration {
        caller: Caller,
        yarn: Option<Box<proto::YarnStatus>>,
        changes: Vec<Change>,
        reply: Reply<()>,
    },
    /// Why no task is found, a sentence for the operator; `None`: all is well again. The sender
    /// does not wait for an answer.
    FinderTrouble(Option<String>),
    /// The containers on this node, from the thread that finds them, which does not wait for an
    /// answer.
    YarnFound(YarnFound),
    /// All that was there when the loop wanted the look of this number, or one before it, has been found
    /// and has its answer. The thread that finds tasks does not wait for an answer to this.
    Looked(u64),
}

/// Commands taken in one turn: a flood of them must not keep a promotion waiting.
pub const COMMANDS_A_TURN: usize = 32;

impl Command {
    /// How much of a turn a command takes. A job may have hundreds of tasks, each with its record. A found
    /// task is pinned, looked up and stored, which are dozens of files read and one written, and a node
    /// manager starts hundreds at once. A page of the queue, a thousand entries, takes a millisecond, so that
    /// there is one in a turn.
    pub fn cost(&self) -> usize {
        match self {
            Command::ListQueue { .. } => COMMANDS_A_TURN,
            Command::Discover { .. } | Command::SetJobPriority { .. } => COMMANDS_A_TURN / 4,
            _ => 1,
        }
    }
}

/// What the finder knows of YARN on this node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct YarnFound {
    /// Those it found.
    pub containers: Vec<proto::YarnContainer>,
    /// How many NodeManagers run on the node; `None`: not known.
    pub node_managers: Option<u32>,
    /// Why none is looked for, and since when that is so.
    pub problem: Option<(String, WallTime)>,
}

/// Something in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueId {
    /// A request that waits.
    Waiter(WaiterId),
    /// A promise.
    Reservation(ReservationId),
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueId::Waiter(id) => id.fmt(f),
            QueueId::Reservation(id) => id.fmt(f),
        }
    }
}

/// What of the queue is asked for.
#[derive(Clone, Debug)]
pub enum QueueRequest {
    /// This alone. `NotFound`: it is not there.
    Id(QueueId),
    /// What waits for this process, if anything does.
    Process(Pid),
    /// So many waiters behind this one; from the beginning with all reservations.
    Page {
        /// [`QueuePage::next`] of the page before.
        after: Option<QueueMark>,
        /// At most.
        size: usize,
    },
}

/// A page of the queue.
#[derive(Clone, Debug, Default)]
pub struct QueuePage {
    /// In the order in which they are served.
    pub entries: Vec<proto::Queued>,
    /// `None`: this was the last page.
    pub next: Option<QueueMark>,
}

/// Arguments of Admit.
#[derive(Clone, Debug)]
pub struct AdmitRequest {
    /// What becomes a task.
    pub subject: Subject,
    /// The process's start time in clock ticks since boot, where the server was given the process itself
    /// (a pidfd) and not a number: whoever has the pid by now must have it too.
    pub start_ticks: Option<u64>,
    /// What the task is.
    pub labels: Labels,
    /// `None`: the reservation's, or 0.
    pub priority: Option<Priority>,
    /// A reservation to use.
    pub reservation: Option<ReservationId>,
    /// Manage the present cgroup as it is; a unit always is.
    pub in_place: bool,
    /// The process asks for itself and leaves its unit of systemd's only if nothing is lost by it
    /// ([`lrs_core::leaving`]); means nothing in place.
    pub keep_unit: bool,
    /// It leaves its unit, or the group of another manager, whatever is lost.
    pub leave_unit: bool,
    /// Whether and how long to wait for a slot.
    pub wait: Wait,
    /// By which it keeps its place over a restart of the daemon; not checked.
    pub ticket: Option<String>,
    /// Where its ticket goes when it begins to wait, if its client may have that.
    pub ticket_to: Option<mpsc::Sender<String>>,
}

/// Who is to become a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// This process; the server has put the caller's own pid in place of 0.
    Process(Pid),
    /// All processes of this unit of systemd's.
    Unit(UnitName),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Process(pid) => write!(f, "process {pid}"),
            Subject::Unit(unit) => write!(f, "unit {unit}"),
        }
    }
}

/// How long a request may wait for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Refuse at once when no slot is free.
    No,
    /// At most this long.
    For(Duration),
    /// Until one is free.
    Forever,
}

/// Arguments of Reserve.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct ReserveRequest {
    pub labels: Labels,
    pub priority: Priority,
    /// How many, how long, of which tier.
    pub lease: Lease,
    /// How long it may wait for the first.
    pub wait: Wait,
}

/// Arguments of SetJobPriority.
#[derive(Clone, Debug)]
pub struct JobPriority {
    /// The job, all kinds of it.
    pub job: Label,
    /// The owner; `None`: the caller, or any user if an admin calls.
    pub uid: Option<u32>,
    /// The new priority.
    pub priority: Priority,
}

/// Why a command was not carried out: the side at fault, and a message that says what was found
/// and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    /// Maps to one canonical gRPC code and one D-Bus error name.
    pub kind: ErrorKind,
    /// A full sentence without a final stop.
    pub message: String,
}

impl CommandError {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> CommandError {
        // A path of a cgroup may be in it.
        let message = name::shown(&message.into()).into_owned();
        CommandError { kind, message }
    }
}

/// Longest error message in bytes that leaves a server. In gRPC it travels percent-encoded in a
/// header, up to three bytes for one, and clients cap all headers of a response together (16 KiB
/// in hyper and grpc-go); beyond the cap they drop the connection and the user sees no message
/// at all. On D-Bus it keeps what a client wrote from coming back to it by the megabyte.
pub const MAX_MESSAGE_BYTES: usize = 4096;

/// `message`, cut at [`MAX_MESSAGE_BYTES`], saying so.
pub fn shortened(mut message: String) -> String {
    if message.len() <= MAX_MESSAGE_BYTES {
        return message;
    }
    let mut end = MAX_MESSAGE_BYTES;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let left_out = message.len() - end;
    message.truncate(end);
    message.push_str(&format!(" ... ({left_out} bytes more; see the log of lrsd)"));
    message
}

/// Kinds of [`CommandError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A field breaks its documented range.
    InvalidArgument,
    /// No such task, reservation or process.
    NotFound,
    /// The process is in this task already.
    AlreadyExists(TaskId),
    /// No free slot.
    NoFreeSlot,
    /// The state of the reservation, process or node does not allow it.
    FailedPrecondition,
    /// The caller has no right to it. Nothing else is refused in this word: an admin may.
    PermissionDenied,
    /// The wait for a slot ran out.
    WaitTimedOut,
    /// The daemon is stopping; of a finder's news: ask again in a moment.
    Unavailable,
    /// The kernel or the disk failed us; the message says where.
    Internal,
}

/// The core's refusal as clients know it.
pub(crate) fn refused(refusal: Refusal) -> CommandError {
    let kind = match &refusal {
        Refusal::NoFreeSlot { .. }
        | Refusal::NoActiveSlot { .. }
        | Refusal::Holding(_)
        | Refusal::RootFrozen(_) => ErrorKind::NoFreeSlot,
        Refusal::Draining | Refusal::ReservationEnded(_) | Refusal::ReservationWithdrawn { .. } => {
            ErrorKind::FailedPrecondition
        }
        Refusal::UnknownReservation(_) => ErrorKind::NotFound,
    };
    CommandError::new(kind, refusal.to_string())
}

/// The applier's refusal as clients know it.
pub fn cgroup_error(error: CgroupError) -> CommandError {
    let kind = match &error {
        CgroupError::ProcessGone(_) => ErrorKind::NotFound,
        CgroupError::Refused(_) | CgroupError::MovedMeanwhile(_) | CgroupError::Unsupported(_) => {
            ErrorKind::FailedPrecondition
        }
        CgroupError::Denied(_) => ErrorKind::PermissionDenied,
        CgroupError::Io { .. } => ErrorKind::Internal,
    };
    CommandError::new(kind, error.to_string())
}

/// There is no such process, or not any more.
pub(crate) fn gone(pid: Pid) -> CommandError {
    CommandError::new(
        ErrorKind::NotFound,
        format!("process {pid} does not exist; give the pid of a running process"),
    )
}
