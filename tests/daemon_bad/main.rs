//! Attempts to break the daemon: bad processes, bad requests, bad state; real binaries, real
//! kernel, a private instance a test (the harness of `tests/daemon`).
//!
//! Every test is ignored by default because it needs root and cgroups; asked to run without
//! them, it fails.

#![allow(dead_code)] // the harness also serves tests/daemon
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stderr)]

#[path = "../daemon/harness.rs"]
mod harness;
#[path = "../daemon/member.rs"]
mod member;

mod bad_input;
mod bad_limits;
mod bad_node;
mod bad_process;
mod bad_state;
