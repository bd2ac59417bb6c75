//! What the loop makes of a found task, with real processes: a loop of the test's own in this
//! process, which gets from the test what a finder would send.

// The lint's exception for tests does not reach their helper functions.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod bench;
mod places;
mod refusals;
mod root_weight;
mod sessions;
