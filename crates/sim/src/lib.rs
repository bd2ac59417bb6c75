//! Simulated nodes that run the core of LRS through whole lives of tasks: no root, no kernel, no real
//! time. Clusters of such nodes are in the folder `cluster`, a program of its own.
//!
//! Everything follows from a seed: the clock is virtual, random numbers are an argument, maps are
//! ordered. The library does no I/O; its `clippy.toml` is the core's.
//!
//! | module | what |
//! |---|---|
//! | [`share`], [`load`] | weighted fair sharing; what processes do |
//! | [`tree`], [`node`] | groups and processes; CPUs and disk that they share, time, samples |
//! | [`outside`] | that, the stored state and the answers to clients; the fuse that kills the daemon |
//! | [`daemon`], [`recover`] | lrsd around the core, in its simplest form; its start |
//! | [`lives`], [`invariants`] | random lives with crashes, and what has to hold |
//! | `neighbours` | tests of a service beside LRS |
//! | [`queue`] | queues of jobs: LRS against fixed numbers of slots |
//!
//! Random lives by the million, each with crashes between any two deeds of the daemon:
//!
//! ```text
//! cargo run --release -p lrs-sim -- lives --steps 1000000
//! ```
//!
//! A life that breaks a promise is cut to the steps it needs, and printed with the command that
//! shows it again (`lrs-sim replay SEED STEPS`). `cargo test` runs a short version, and the stage
//! `lives` of `.ci/full` a long one.
//!
//! How long random queues of jobs take, with the core and with 1 to 5 slots a core:
//!
//! ```text
//! cargo run --release -p lrs-sim -- queue --cpus 4 --rounds 20
//! ```
//!
//! Limits. What lrsd does around the core is modelled and not run: the order of its deeds, one group
//! a task, one hierarchy. Release, drift, moves back and the restore are the core's own. Systemd's
//! units, tasks in place, observe mode, a release that fails and a state directory that cannot be
//! written are not modelled; the core's unit tests and the real-kernel tests have them.

pub mod daemon;
pub mod invariants;
pub mod lives;
pub mod load;
#[cfg(test)]
mod neighbours;
pub mod node;
pub mod outside;
pub mod queue;
pub mod recover;
pub mod share;
pub mod tree;
