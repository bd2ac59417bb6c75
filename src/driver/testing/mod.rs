//! Turns of the loop without root, cgroups, threads or a clock: a [`World`](super::world::World) that is
//! made up, and a bench that gives the loop its turns.
//!
//! An effect that a test does not ask for fails it: [`Bench::saw`] takes all that there were, and a
//! bench with effects that were not seen panics when it is dropped.

mod bench;
mod every_point;
mod invariants;
mod lives;
mod made_up;
mod turns;

use bench::Bench;
use made_up::{Call, Fault, MadeUp, Method};
