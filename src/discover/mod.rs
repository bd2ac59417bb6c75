//! Tasks nobody announced: found running, and taken into slots without being asked.
//!
//! Finders look and say what they found as [`Found`]; the loop decides what becomes of it
//! ([`crate::command::Command::Discover`]). What is found runs already, so it is never refused
//! for want of a slot: beyond capacity it is passive and marked overflow (spec 8).
//!
//! A finder reads what other users wrote: command lines, environments, pid files. None of that is
//! believed alone. A process is moved only where the operator's rule or the node manager's own
//! group says so, and a foreign group is never left without its owner's knowledge: see
//! [`Attach`].

pub mod finder;
mod hint;
#[cfg(test)]
pub(crate) mod made_up;
pub mod proc_file;
pub mod processes;
pub mod refusals;
pub mod rules;
pub mod scan;
pub mod thread;

pub use self::hint::{Hint, HintReceiver, HintSender, Hints, Master, hint_queue};
pub use crate::core::model::Standing;
use crate::core::model::{Labels, Priority};
pub use crate::core::task::Finder;
use crate::units::ProcessRef;

/// A task found running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its main process, pinned by start time.
    pub process: ProcessRef,
    /// `name` is what its owner calls it: a container id, an allocation.
    pub labels: Labels,
    /// Its place among others, as a scheduler or the rule says. `None`: the finder has not learnt
    /// it; a known task keeps what it has, a new one gets 0.
    pub priority: Option<Priority>,
    /// What kind of place it needs. `None`: as above; a new one gets what is `presumed`.
    pub standing: Option<Standing>,
    /// What it needs while nobody has said it.
    pub presumed: Presumed,
    /// How its processes are taken.
    pub attach: Attach,
    /// Who found it, for the history.
    pub finder: Finder,
}

/// What kind of place a task needs while nobody has said it. It takes nothing back that was said
/// before, be it to an earlier lrsd.
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
    /// A process that somebody has put elsewhere since is not moved. `None`: the place did not
    /// matter to the finder, or the group is managed in place.
    pub fn from(&self) -> Option<&str> {
        match self {
            Attach::Session { from } | Attach::Descendants { from } => from.as_deref(),
            Attach::InPlace { .. } => None,
        }
    }
}
