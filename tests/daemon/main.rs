//! The daemon as its users meet it: real binaries, real kernel, a private instance a test.
//!
//! Every test is ignored by default because it needs root and cgroups; asked to run without
//! them, it fails.

#![allow(dead_code)] // the harness also serves tests/daemon_bad
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stderr)]

mod beside;
mod harness;
mod kerberos;
mod member;
mod schedule;

mod counting;
mod cpus;
mod crash;
mod disks;
mod each;
mod ending;
mod ends;
mod finder;
mod freezing;
mod give_back;
mod halts;
mod hang;
mod lane;
mod lifecycle;
mod loans;
mod managers;
mod memory;
mod modes;
mod names;
mod namespaces;
mod neighbours;
mod owner;
mod pacing;
mod parking;
mod past;
mod queue;
mod sharing;
mod slices;
mod supervised;
mod tiers;
mod unread;
mod verify;
mod yarn;
