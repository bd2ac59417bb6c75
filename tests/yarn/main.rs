//! A real Hadoop: its own daemons and jobs, alone and beside a private lrsd.
//!
//! `tests/yarn/run` fetches Hadoop and runs these; README.md beside it says how. They are not among
//! the tests that `cargo test` runs unasked, ignored or not: no machine has Hadoop by chance.

#![allow(dead_code)] // the harness also serves tests/daemon
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "../daemon/beside.rs"]
mod beside;
#[path = "../daemon/harness.rs"]
mod harness;
#[path = "../daemon/kerberos.rs"]
mod kerberos;

mod certificate;
mod cluster;
mod conf;
mod hadoop;
mod jobs;
mod process;
mod rest;

mod command;
mod executor;
mod failover;
mod frameworks;
mod loans;
mod modes;
mod offers;
mod opportunistic;
mod plain;
mod restarts;
mod shaped;
mod site;
