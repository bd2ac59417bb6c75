//! The decision core.

pub mod event;
pub mod model;
pub mod rate;
