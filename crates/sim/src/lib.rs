//! A simulated node: processes in weighted groups, CPUs and a disk that these share, and time. No
//! root, no kernel, no real time.
//!
//! It knows nothing of LRS. `lrs::pretend` runs the daemon's loop on such a node, for tests, for `lrsd
//! --pretend` and for simulated clusters.
//!
//! The clock is virtual and maps are ordered, so that the same acts have the same effects. The library
//! does no I/O; its `clippy.toml` is the core's.
//!
//! | module | what |
//! |---|---|
//! | [`share`] | weighted fair sharing |
//! | [`load`] | what processes do |
//! | [`tree`] | groups and processes |
//! | [`node`] | CPUs and disk that they share, time, samples |

pub mod load;
pub mod node;
pub mod share;
pub mod tree;
