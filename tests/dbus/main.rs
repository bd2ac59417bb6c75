//! The D-Bus server on a real bus: a private dbus-daemon, and either the server in this process
//! with the test in the place of the loop (`server`), or a real lrsd in observe mode (`daemon`).
//! Needs the program dbus-daemon, and fails without it.

// The lint's exception for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stderr)]

mod bench;
mod bounds;
mod bus;
mod client;
mod daemon;
#[allow(dead_code)] // the harness also serves tests/daemon
#[path = "../daemon/harness.rs"]
mod harness;
#[path = "../grpc/played.rs"]
mod played;
mod polkit;
mod same;
mod server;
mod types;
