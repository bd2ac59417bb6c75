//! Containers as an unmodified NodeManager starts them, beside a real lrsd: no Hadoop, no java.
//!
//! A shell plays the NodeManager. It makes the files, groups and processes a recorded one
//! made (Hadoop 3.4.2), in the recorded order, and puts a new process where the recorded one was
//! at each step. LinuxContainerExecutor can be tested no other way, since its helper is published
//! nowhere; tests/yarn runs DefaultContainerExecutor for real.

#![allow(dead_code)] // the harness also serves tests/daemon
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "../daemon/harness.rs"]
mod harness;

mod groups;
mod node;
mod private;

mod crowd;
mod default_executor;
mod linux_executor;
