//! Joining a Hadoop node that does not know of LRS (spec 8).
//!
//! Nothing of Hadoop is changed or linked: what it writes for itself is read, and its web services
//! are called.
//!
//! | module | one line |
//! |---|---|
//! | [`ids`], [`classify`] | ids; what a launch script or a command line starts (pure) |
//! | `watch` | pid files noticed in `nmPrivate` |
//! | `managers`, `verify` | where NodeManagers are; whether a process is the container it is said to be |
//! | `containers`, [`finder`] | one entry a container; the finder that proposes them |
//! | [`join`] | `[yarn]` and Hadoop's files together; the list of containers for clients |
//! | [`rm`] | the web services: slots to the ResourceManager, priorities and queues from it |
//!
//! What is found is proposed as [`crate::discover::Found`]; nothing here writes to a cgroup.

pub mod classify;
mod containers;
pub mod finder;
pub mod ids;
pub mod join;
mod managers;
mod proc;
#[cfg(test)]
mod recorded;
pub mod rm;
mod shell;
mod verify;
mod watch;

pub use containers::{ContainerInfo, Hint, Master};
