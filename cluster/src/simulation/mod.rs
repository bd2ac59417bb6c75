//! A cluster around the placement policies: nodes that report, jobs that arrive, input that lies
//! somewhere.
//!
//! [`crate::placement`] decides and this carries out: it has no rule of its own about which task goes
//! where. So a published result can be held against the policy that `lrs-place plan` has, and all
//! policies against each other on the same workload. A node with LRS is that of
//! [`lrs_sim::pretend`]: lrsd's own loop.
//!
//! | module | what |
//! |---|---|
//! | [`scenario`] | what a case says, with its faults |
//! | [`workload`] | jobs and their tasks, drawn from a seed when they arrive |
//! | [`machine`] | nodes: slots that do not disturb each other, CPUs and a disk that are shared, LRS |
//! | [`nodes`] | what nodes are made of |
//! | [`shared`], [`shaped`] | CPUs and a disk that tasks share; the same with lrsd's loop |
//! | [`queue`] | queues of jobs on one node: LRS against fixed numbers of slots |
//! | [`run`] | the queue of events |
//! | [`once`] | one decision for one moment, many times |
//! | [`analysis`], [`solving`] | figures that need no cluster |
//! | `forecast` | how long a task is going to run, by those that have ended |
//! | [`figures`] | what is counted, in bounded memory |
//! | [`runs`], [`spread`] | the figures of a case over its seeds: median and interval |
//! | [`suite`] | files of cases |
//! | [`published`] | what the sources published, and whether ours is as that |
//! | [`report`] | tables, JSON and CSV of what came out |
//! | [`bars`] | a figure of each case as a picture |
//! | `links` | transfers that share links |
//! | [`swf`] | logs of jobs in the Standard Workload Format |
//! | [`trace`], `gantt` | what a round did, task by task, as CSV and as a picture |
//!
//! The workload depends on the seed alone and not on the policy: the same jobs with the same work and
//! the same replicas arrive at the same moments.
//!
//! Limits. Without `shared_links` a transfer takes the size by the bandwidth between two nodes, however many
//! transfers there are. Reduces wait until all maps of their job have ended. No task is started a second time because
//! it is slow. The input of a node that is down is read from it all the same, as from a copy that was
//! made elsewhere.

pub mod analysis;
pub mod bars;
pub mod figures;
mod forecast;
mod gantt;
mod links;
pub mod machine;
pub mod nodes;
pub mod once;
pub mod published;
pub mod queue;
pub mod report;
pub mod run;
pub mod runs;
pub mod scenario;
pub mod shaped;
pub mod shared;
pub mod solving;
pub mod spread;
pub mod suite;
pub mod swf;
#[cfg(test)]
mod tests;
pub mod trace;
pub mod workload;

/// Reads a clock that only goes forward: the cost of deciding is measured with it, and nothing else.
pub type Clock = fn() -> std::time::Duration;
