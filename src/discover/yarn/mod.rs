//! Finding the containers of a Hadoop node that does not know of LRS (spec 8).
//!
//! Nothing of Hadoop is changed or linked: what it writes for itself is read. What talks to YARN's
//! managers is `lrs-yarn` (`crates/yarn`), a process of its own.
//!
//! | module | one line |
//! |---|---|
//! | [`ids`], [`classify`] | ids; what a launch script or a command line starts (pure) |
//! | `watch` | pid files noticed in `nmPrivate` |
//! | `managers`, `verify` | where NodeManagers are; whether a process is the container that its pid file names |
//! | `containers`, [`finder`] | one entry a container; the finder that proposes them |
//! | [`join`] | `[yarn]` and Hadoop's files together; the list of containers for clients |
//!
//! What is found is proposed as [`crate::discover::DiscoveredTask`]; nothing here writes to a cgroup.

pub mod classify;
mod containers;
pub mod finder;
pub mod ids;
pub mod join;
mod managers;
mod proc;
#[cfg(test)]
mod recorded;
mod shell;
mod verify;
mod watch;

pub use containers::{ContainerInfo, Hint, Master};
pub use managers::named_node_managers;
