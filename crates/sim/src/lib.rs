//! A simulated node: processes in weighted groups, CPUs and a disk that these share, and time. No
//! root, no kernel, no real time.
//!
//! The node knows nothing of LRS. [`pretend`] runs the daemon's loop on it, for tests, for `lrsd
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
//! | [`pretend`] | the loop's world over it |

pub mod load;
pub mod node;
pub mod pretend;
pub mod share;
pub mod tree;
