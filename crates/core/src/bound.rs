//! What keeps more passive slots from opening while all slots are taken: one word, for people who ask why
//! the queue does not move and for schedulers.
//!
//! It is what the last cycle, or the last reading ahead of it, stopped at (`shaper/bound.rs`); nothing decides by it.

use serde::{Deserialize, Serialize};

/// Why no passive slot opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// `slots.expand = false`.
    Off,
    /// `slots.passive_max` is reached.
    Max,
    /// The guard holds passive slots, or no further task of the size that is to be expected fits.
    Memory,
    /// The last slots made active tasks wait more (`guard.interference`).
    ActiveTier,
    /// The last slots did not raise what is done: the disk is the limit, or something else that tasks share.
    Throughput,
    /// The CPUs have no time to spare.
    Compute,
}
