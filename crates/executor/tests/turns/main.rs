//! Turns of the loop on a node that is [pretended](lrs_sim::pretend), and a bench that gives it its turns.
//!
//! An effect that a test does not ask for fails it: [`Bench::saw`] takes all that there were, and a
//! bench with effects that were not seen panics when it is dropped.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod bench;
mod every_point;
mod invariants;
mod lives;
mod memory;
mod neighbours;
mod restarts;
mod turns;

use bench::Bench;
use lrs_sim::pretend::{Call, Fault, Method};
