//! `lrsctl bench`: what LRS gives on this node, with these tasks, against static slots.

pub mod record;
#[cfg_attr(not(test), expect(dead_code, reason = "`lrsctl bench` is not wired up yet"))]
pub(crate) mod report;
pub mod stats;
