//! A simulated node that runs the core of LRS through whole lives of tasks: no root, no kernel, no
//! real time.
//!
//! Everything follows from a seed: the clock is virtual, random numbers are an argument, maps are
//! ordered. The crate does no I/O (its `clippy.toml` is the core's).
//!
//! | module | what |
//! |---|---|
//! | [`share`], [`load`] | weighted fair sharing; what processes do |
//! | [`tree`], [`node`] | groups and processes; CPUs and disk that they share, time, samples |

pub mod load;
pub mod node;
pub mod share;
pub mod tree;
