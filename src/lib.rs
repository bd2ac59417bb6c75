//! LRS: active and passive task slots for a Linux node.
//!
//! Every cycle one *sample* is taken at one *now*; *classify* turns it into rates; *decide*
//! turns rates, events and state into actions; *apply* makes the cgroups match and reports
//! what really happened; *publish* replaces the one snapshot that every client reads.
//!
//! | module | one line | may use |
//! |---|---|---|
//! | [`units`] | quantities with their unit in the type | std |
//! | [`core`] | `crates/core`, pure decisions: slots, rates, capacity, guard | `units` |
//! | [`kernfs`] | reading what the kernel says in files | /proc, cgroup files |
//! | [`sample`] | one reading of the node and its tasks | /proc, cgroup files |
//! | [`cgroup`] | the applier: task groups and their weights | cgroup files |
//! | [`state`] | records and history that survive the daemon | files of the runtime directory |
//! | [`driver`] | the one loop that owns the state, over a `World` | none of the node: traits |
//! | [`node`] | that world for real: cgroups, threads, records, what wakes the loop | all above, [`clock`] |
//! | [`pretend`] | the same, pretended: no root, no kernel, no real time | all above, `lrs_sim` |
//! | [`command`], [`rights`], [`publish`] | what clients may ask, who may, what they read | `core` |
//! | [`server`] | one service layer; gRPC and D-Bus translate to it and decide nothing | `command`, `publish` |
//! | [`systemd`] | systemd's manager, readiness, watchdog | D-Bus, sd_notify |
//! | [`config`], [`doctor`] | settings; can this node keep the promises | files, /proc, /sys |
//! | [`log`], [`clock`] | `crates/host`: where log lines go; the only readers of clocks | journald |
//! | [`trim`] | freed memory goes back to the kernel | /proc |
//! | [`daemon`] | order of start and stop, signals | everything |
//! | [`give_back`] | `lrsd --give-back`, for the removal of LRS | `cgroup`, `state`, `systemd` |
//! | `schedule` | how the daemon's own threads are scheduled | sched_setattr(2) |
//! | `runtime` | async runtimes without a panic where there is no descriptor or thread left | |
//! | [`discover`], [`found`] | tasks that no client announced | /proc, Hadoop's files |
//! | [`cli`] | `lrsctl`: a client like any other | `lrs_api`, `lrs_bench` for its demo |
//!
//! What is deliberately absent: the loop and the core do not call [`clock`]; only
//! `cgroup` writes below the cgroup root; the servers never see `cgroup` or `state`; nothing in
//! `core` has a clock, a file, a socket, async or a log: it is a crate without those dependencies.
//!
//! `docs/architecture.md` tells the same at more length.

pub mod cgroup;
pub mod cli;
pub mod command;
pub mod config;
pub mod daemon;
pub mod discover;
pub mod doctor;
pub mod driver;
pub mod found;
pub mod give_back;
pub mod kernfs;
pub mod node;
pub mod pretend;
pub mod publish;
pub mod rights;
mod runtime;
pub mod sample;
mod schedule;
pub mod server;
pub mod state;
pub mod systemd;
pub mod trim;

pub use lrs_api::{proto, wire};
pub use lrs_core as core;
pub use lrs_core::units;
pub use lrs_host::{clock, log};
pub use server::{dbus, grpc as serve};
