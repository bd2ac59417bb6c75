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
//! | [`history`] | what is kept of the past over a boot | files of history.directory |
//! | [`executor`] | `crates/executor`, the one loop that owns the state, over a `World`; with it what clients may ask ([`command`]), who may ([`rights`]), what they read ([`publish`]) | none of the node: traits |
//! | [`node`] | that world for real: cgroups, threads, records, what wakes the loop | all above, [`clock`] |
//! | [`pretend`] | `lrsd --pretend`: a world without root and kernel for real clients | all above, `lrs_sim` |
//! | [`access`] | between servers and loop: a queue of commands, and where servers read | [`executor`] |
//! | [`server`] | one service layer; gRPC and D-Bus translate to it and decide nothing | `access` |
//! | [`systemd`] | systemd's manager, readiness, watchdog | D-Bus, sd_notify |
//! | [`config`], [`doctor`] | `crates/config`, settings; can this node keep the promises | files, /proc, /sys |
//! | [`log`], [`clock`] | `crates/host`: where log lines go; the only readers of clocks | journald |
//! | [`trim`] | freed memory goes back to the kernel | /proc |
//! | [`daemon`] | order of start and stop, signals | everything |
//! | [`give_back`] | `lrsd --give-back`, for the removal of LRS | `cgroup`, `state`, `systemd` |
//! | `schedule` | how the daemon's own threads are scheduled | sched_setattr(2) |
//! | `runtime` | async runtimes without a panic where there is no descriptor or thread left | |
//! | [`discover`] | tasks that no client announced | /proc, Hadoop's files |
//! | [`cli`] | `lrsctl`: a client like any other | `lrs_api`, `lrs_bench` for its demo |
//!
//! What is deliberately absent: the loop and the core do not call [`clock`]; only
//! `cgroup` writes below the cgroup root; the servers never see `cgroup` or `state`; nothing in
//! `core` has a clock, a file, a socket, async or a log: it is a crate without those dependencies.
//!
//! `docs/architecture.md` tells the same at more length.

pub mod access;
pub mod cgroup;
pub mod cli;
pub mod daemon;
pub mod discover;
pub mod doctor;
pub mod give_back;
pub mod history;
pub mod kernfs;
pub mod node;
pub mod pretend;
mod runtime;
pub mod sample;
mod schedule;
pub mod server;
pub mod state;
pub mod systemd;
pub mod trim;

pub use lrs_api::{proto, wire};
pub use lrs_config as config;
pub use lrs_core as core;
pub use lrs_core::units;
pub use lrs_executor as executor;
pub use lrs_executor::{command, publish, rights};
pub use lrs_host::{clock, log};
pub use server::{dbus, grpc as serve};
