//! Tasks that no client announced: found running, and taken into slots without being asked.
//!
//! Finders look and say what they found as [`DiscoveredTask`]; the loop decides what becomes of it
//! ([`crate::command::Command::Discover`]). What is found runs already, so it is never refused
//! for want of a slot: beyond capacity it is passive and marked overflow (spec 8).
//!
//! A finder reads what other users wrote: command lines, environments, pid files. None of that is
//! believed alone. A process is moved only where the operator's rule or the node manager's own
//! group says so, and a foreign group is never left without its owner's knowledge: see
//! [`Attach`].

pub mod finder;
mod hint;
mod looks;
#[cfg(test)]
pub(crate) mod made_up;
pub mod proc_file;
pub mod processes;
pub mod rules;
pub mod scan;
pub mod thread;
pub mod yarn;

pub use self::hint::Hints;
pub use crate::core::model::Standing;
pub use crate::core::task::Finder;
pub use crate::executor::found::{
    Attach, DiscoveredTask, Hint, HintReceiver, HintSender, Master, Presumed, hint_queue,
};
