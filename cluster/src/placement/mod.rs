//! Which waiting task goes to which free slot on which node: the placement policies of LRS's
//! sources, pure.
//!
//! LRS shapes one node and is no cluster manager. These policies give schedulers that people run a
//! decision to compare theirs with; `lrs-place plan` and the simulation have the same code. No clock,
//! file, socket or log; time is an argument; maps are ordered, so that the same input has the same
//! plan. The `clippy.toml` of this package, which is the core's, keeps it so.
//!
//! | module | what |
//! |---|---|
//! | [`input`], [`shape`], [`check`] | what a file says; all of its faults, or a cluster |
//! | [`cluster`] | nodes, jobs and tasks, indexed by where input lies |
//! | [`live`], [`saved`] | what a cluster goes through beside starts and ends; a restart |
//! | [`turn`] | the trait of a policy; the only way in which it starts a task; reasons |
//! | [`catalogue`] | the policies by name, with what each reads |
//! | [`plan`], [`explain`] | one decision for a whole cluster, in figures; why not on another node |
//! | [`fifo`], [`local`] | Hadoop's choices, as baselines |
//! | [`lsap`], [`solver`] | all tasks and slots at once, at the least sum of costs |
//! | [`groups`], [`preempt`] | shares of groups of jobs, and which job is next; what to preempt for them |
//! | [`delay`] | delay scheduling |
//! | [`dla`], [`resources`] | DLAforBT: matching by idle resources; CPUs, memory, disk |
//! | [`dispatcher`], [`layering`], [`wco`] | the thesis: LRS (ch. 4), slot layering (ch. 3), WCO (ch. 2) |
//!
//! Words: a *policy* decides; a task is *local* where its input is. *Tier*, *slot*, *job* are the
//! node's (docs/glossary.md).

pub mod catalogue;
pub mod check;
pub mod cluster;
pub mod delay;
pub mod dispatcher;
pub mod dla;
pub mod explain;
mod fault;
pub mod fifo;
mod group;
pub mod groups;
mod ids;
pub mod input;
pub mod layering;
pub mod live;
pub mod local;
pub mod lsap;
mod node;
mod passed;
pub mod plan;
pub mod preempt;
pub mod resources;
pub mod saved;
pub mod shape;
mod sizes;
pub mod solver;
mod task;
pub mod turn;
mod waiting;
pub mod wco;

#[cfg(test)]
mod proptests;
#[cfg(test)]
mod tests;
