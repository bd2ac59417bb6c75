//! The daemon as its users meet it: real binaries, real kernel, a private instance a test.
//!
//! Every test is ignored by default because it needs root and cgroups; asked to run without
//! them, it fails.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stderr)]

mod harness;

mod bad_input;
mod bad_process;
mod bad_state;
mod crash;
mod lifecycle;
mod tiers;
