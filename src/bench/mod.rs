//! `lrsctl bench`: what LRS gives on this node, with these tasks, against static slots.

// Nothing outside calls these two before the engine is merged.
#[allow(dead_code)]
pub(crate) mod data;
#[allow(dead_code, unused_imports)]
pub(crate) mod disk;
pub mod record;
