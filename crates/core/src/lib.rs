//! The decision core: pure, in that it has no clock, file, socket, async or log.
//!
//! Time comes in as an argument and what has to be done goes out as a [`step::Step`]. The
//! same code runs in the daemon, in the property tests and in replay of recorded events. The
//! crate's dependencies and its `clippy.toml` keep it pure.

pub mod bound;
pub mod capacity;
pub mod colocation;
pub mod counts;
pub mod cpus;
pub mod effect;
pub mod errno;
pub mod event;
pub mod exit;
pub mod freed;
pub mod guard;
pub mod hint;
pub mod history;
pub mod history_state;
pub mod inputs;
pub mod jobs;
pub mod lane;
pub mod leaving;
pub mod loan;
mod measured;
pub mod memory;
pub mod model;
pub mod name;
pub mod neighbours;
mod opening;
pub mod order;
pub mod pace;
mod parked;
pub mod pinning;
pub mod probe;
pub mod ramp;
pub mod rate;
pub mod recording;
mod reservation;
pub mod restore;
pub mod sample;
pub mod shaper;
pub mod slice;
pub mod slots;
pub mod state;
pub mod step;
pub mod task;
mod turns;
pub mod unit;
pub mod units;
pub mod usage;
pub mod weights;
mod withdrawn;

pub use measured::Measured;
pub use shaper::{queue, whole_job};

#[cfg(test)]
mod proptests;
