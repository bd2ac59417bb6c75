//! The orders in which requests of a user are served; what each does is in `shaper/order.rs`.

use serde::{Deserialize, Serialize};

/// How the next waiting request of a user is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueOrder {
    /// The first for which there is a slot: one of a job that waits gets a passive slot ([`super::opening`])
    /// while those before it, which compute, get none.
    #[default]
    Fit,
    /// First come, first served.
    Fifo,
    /// The one with the rate that suits what runs.
    Complement,
}
