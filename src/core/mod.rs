//! The decision core.

pub mod colocation;
pub mod event;
pub mod model;
