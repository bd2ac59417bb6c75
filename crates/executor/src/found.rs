//! What finders, servers and the loop exchange about tasks that run already, and the queue to the finders.
//!
//! A finder proposes a task as [`DiscoveredTask`]; a scheduler's [`Hint`] goes by the loop to
//! the finders. Both pass through [`crate::command`], so they belong to neither side.
//!
//! The loop checks who sends a hint and passes it on without waiting, so the queue is short and
//! what does not fit is refused: a finder that hangs must not fill memory.

use lrs_core::model::{Label, Labels, Priority, Standing};
pub use lrs_core::task::Finder;
use lrs_core::units::ProcessRef;
use tokio::sync::{mpsc, watch};

/// A task found running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredTask {
    /// Its main process, pinned by start time.
    pub process: ProcessRef,
    /// `name` is what its owner calls it: a container id, an allocation.
    pub labels: Labels,
    /// Its place among others, as a scheduler or the rule says. `None`: the finder has not learnt
    /// it; a known task keeps what it has, a new one gets 0.
    pub priority: Option<Priority>,
    /// What kind of place it needs. `None`: as above; a new one gets what is `presumed`.
    pub standing: Option<Standing>,
    /// What it needs until its scheduler reports that.
    pub presumed: Presumed,
    /// How its processes are taken.
    pub attach: Attach,
    /// It was a task before, of which there is news: it is no task anew if it was released meanwhile.
    pub again: bool,
    /// Who found it, for the history.
    pub finder: Finder,
}

/// What kind of place a task needs until its scheduler reports that. It does not override an
/// earlier report, be it to the lrsd before a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presumed {
    /// A slot.
    Slot,
    /// None: by its own words it is its application's master.
    Slotless,
    /// A slot behind all others if it is taken in place with the least CPU weight there is, by
    /// which its owner marks what is opportunistic; otherwise a slot.
    LeastIsOpportunistic,
}

/// How the processes of a found task are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attach {
    /// The main process, which leads its session, with all members of that session and their
    /// descendants, is moved into a group of LRS's.
    Session {
        /// See [`Attach::from`].
        from: Option<String>,
    },
    /// The main process with the descendants that share its group, as Admit does.
    Descendants {
        /// See [`Attach::from`].
        from: Option<String>,
    },
    /// Nothing moves: the weights of this group are edited. The path is that below the mount of
    /// the hierarchy with the cpu controller, with a leading slash; the main process must be in
    /// it or below it still.
    InPlace {
        /// `/hadoop-yarn/container_1_0001_01_000002`
        cgroup: String,
    },
}

impl Attach {
    /// The group the main process was in when the finder judged that it may be moved out of it,
    /// as a path below the mount of the hierarchy with the cpu controller, with a leading slash.
    /// A process that has been moved elsewhere since is not moved. `None`: the place did not
    /// matter to the finder, or the group is managed in place.
    pub fn from(&self) -> Option<&str> {
        match self {
            Attach::Session { from } | Attach::Descendants { from } => from.as_deref(),
            Attach::InPlace { .. } => None,
        }
    }
}

/// What a scheduler says of a container, found or not yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint {
    /// `container_e01_1700000000000_0001_01_000002`, or the id of a rule's task.
    pub container: String,
    /// Higher is sooner; `None`: not known.
    pub priority: Option<Priority>,
    /// Whether it is opportunistic; `None`: not known.
    pub opportunistic: Option<bool>,
    /// Queue of its application: the group of its task.
    pub queue: Option<Label>,
    /// Where its application's master is; `None`: not known.
    pub master: Option<Master>,
}

/// Where an application's master is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Master {
    /// In this container.
    Container(String),
    /// In none: YARN's unmanaged application.
    Outside,
}

/// Requests that may wait for the finder, each with 256 hints at most.
const QUEUED: usize = 16;

/// The loop's end.
#[derive(Debug)]
pub struct HintSender {
    /// What a scheduler reported of its containers.
    pub hints: mpsc::Sender<Vec<Hint>>,
    /// The number of the last search that the loop wants: a client asks for a slot in the group of another
    /// manager, and its task may not be found yet. Any number may be wanted at once.
    pub looks: watch::Sender<u64>,
}

/// The finder's end.
#[derive(Debug)]
pub struct HintReceiver {
    /// See [`HintSender::hints`].
    pub hints: mpsc::Receiver<Vec<Hint>>,
    /// To be done now; `Command::Looked` says when they are over.
    pub looks: watch::Receiver<u64>,
}

/// New ends.
pub fn hint_queue() -> (HintSender, HintReceiver) {
    let (hints, hinted) = mpsc::channel(QUEUED);
    let (looks, wanted) = watch::channel(0);
    (HintSender { hints, looks }, HintReceiver { hints: hinted, looks: wanted })
}
