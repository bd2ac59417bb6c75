//! What a pass goes by, and what it tells.

use std::time::Duration;

use crate::offer::{NodeMemory, SlotSize, Slots};
use lrs_core::event::Change;

/// What the loop's snapshot says that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Slots open now.
    pub slots: Slots,
    /// The node's memory.
    pub memory: NodeMemory,
    /// What one slot is worth.
    pub slot: SlotSize,
    /// `yarn.offer`
    pub offer: bool,
    /// Whether anything may be changed: not in observe mode.
    pub enforce: bool,
    /// `yarn.poll`
    pub poll: Duration,
}

/// What a pass found to tell.
#[derive(Debug, Default)]
pub struct Outcome {
    /// For the history.
    pub changes: Vec<Change>,
    /// For the log alone: errors while nothing is offered or that change nothing at YARN, each
    /// reported once.
    pub complaints: Vec<String>,
}
